//! `[upstream.NAME.cql]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_settings::address::Address;
use evenkeel_settings::common::{MS, NAME_BYTES_MAX, REPLICAS_MAX};
use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Setting, Table};

use crate::config::CqlConfig;
use evenkeel_cql::client::config::user;

const MINUTE: Duration = Duration::from_secs(60);

/// Cassandra itself takes no longer names of data centres than a column can hold; a label may not.
const SHORT: &str = "a name of 1 to 64 bytes";

impl CqlConfig {
    /// Reads `[upstream.NAME.cql]`; what is wrong is reported at its key, and `remote` stays empty.
    pub fn read(table: &mut Table<'_>) -> Self {
        let is_short = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
        let datacenter = table.key("datacenter").text().check(SHORT, is_short).optional();
        let proxies = table.key("proxies").list(|item| Address::to_connect(item).address);
        let few = format!("at most {REPLICAS_MAX} addresses");
        let proxies = proxies.check(&few, |all| all.len() <= REPLICAS_MAX);
        let by_default = Self::default();
        let frame_bytes = table.key("frame_bytes_max").bytes().between(65_536..=256 << 20);
        let waiting_bytes = table.key("waiting_bytes_max").bytes().between(65_536..=1 << 32);
        let prepared_bytes = table.key("prepared_bytes_max").bytes().between(65_536..=1 << 32);
        let connections = table.key("connections_max").integer().between(1..=1_024);
        let streams = table.key("streams_max").integer().between(1..=32_768);
        let requests = table.key("requests_max").integer().between(1..=32_768);
        let compression = [("none", false), ("lz4", true)];
        let config = Self {
            datacenter,
            remote: Vec::new(), // until [redirect] is read
            proxies: proxies.or(Vec::new()),
            reached_at: reached_at(table.key("reached_at")),
            user: user(table),
            is_compressed: table.key("compression").variant(&compression).or(false),
            poll: table.key("poll").duration().between(10 * MS..=MINUTE).optional(),
            connections_max: connections.or(by_default.connections_max),
            streams_max: streams.or(by_default.streams_max),
            frame_bytes_max: frame_bytes.or(by_default.frame_bytes_max as u64) as usize,
            requests_max: requests.or(by_default.requests_max),
            waiting_bytes_max: waiting_bytes.or(by_default.waiting_bytes_max as u64) as usize,
            heartbeat: duration(table, "heartbeat", 100 * MS..=60 * MINUTE, by_default.heartbeat),
            prepared_bytes_max: prepared_bytes.or(by_default.prepared_bytes_max as u64) as usize,
        };
        if table.is_sound() && config.waiting_bytes_max < config.frame_bytes_max {
            let came = config.waiting_bytes_max.to_string();
            let expected = format!("at least one message: {}", config.frame_bytes_max);
            table.problem("waiting_bytes_max", Mismatch::new(came, expected));
        }
        config
    }
}

/// Where nodes are reached, by the address that they tell.
fn reached_at(setting: Setting<'_>) -> BTreeMap<SocketAddr, SocketAddr> {
    let named = setting.named(|reported, at| {
        let node = reported.parse::<SocketAddr>().ok();
        if node.is_none() {
            let expected = "an address that a node reports, such as \"10.0.0.1:9042\"";
            at.problem(Mismatch::new("a key that is not an address", expected));
        }
        (node, Address::to_connect(at).address)
    });
    let few = format!("at most {REPLICAS_MAX} nodes");
    let named = named.check(&few, |all| all.len() <= REPLICAS_MAX).or(BTreeMap::new());
    named.into_values().filter_map(|(node, at)| Some((node?, at))).collect()
}

/// Reports keys of a table that say nothing where Cassandra's protocol is spoken.
pub fn refuse(table: &mut Table<'_>, keys: &[&str]) {
    for &key in keys {
        if table.key(key).value().is_some() {
            let expected = "no such key with protocol = \"cql\": it is for HTTP";
            table.problem(key, Mismatch::new(key, expected));
        }
    }
}
