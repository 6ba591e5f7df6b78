//! `INFO` and `ROLE`: what clients look for in one server, said of all duplicates.
//!
//! One duplicate of each partition is asked, and its text becomes ours
//! ([`evenkeel_stores::resp::info`]); `# Evenkeel` tells how the duplicates are.

use evenkeel_core::Instant;
use evenkeel_ordered::ReplicaState;

use super::Inner;
use super::asking::{Purpose, Whom};
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::{encode, info};

/// `evenkeel:epoch` and `evenkeel:watermark`, of each duplicate.
const OWN_KEYS: u64 = 2;
const VERSION: &str = "7.0.0";

impl Inner {
    /// `INFO [section…]`
    pub(super) fn info_command(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let names = parsed.arguments().iter().skip(1);
        let names: Vec<String> =
            names.map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
        let is_ours = names.iter().all(|name| name == "evenkeel") && !names.is_empty();
        if self.is_redis() && !is_ours {
            return self.put_question(
                id,
                Whom::EachPartition,
                Purpose::Info(names),
                parsed.to_vec(),
            );
        }
        let mut out = Vec::new();
        self.write_info(id, &names, &[], &mut out);
        self.reply_at_once(id, &out, Default::default());
    }

    /// The text for a client, in RESP3.
    pub(super) fn write_info(
        &mut self,
        id: ClientId,
        names: &[String],
        answers: &[(usize, Vec<u8>)],
        out: &mut Vec<u8>,
    ) {
        let texts: Vec<_> = answers.iter().filter_map(|(_, reply)| text_of(reply)).collect();
        let mut texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
        let template = info::sections(info::TEMPLATE, names);
        if texts.is_empty() {
            texts.push(&template);
        }
        let mut text = info::merge(&texts, &self.own_lines(id), OWN_KEYS);
        if info::is_everything(names) || names.iter().any(|name| name == "evenkeel") {
            text = text.trim_start().to_owned();
            text.push_str(if text.is_empty() { "" } else { "\r\n" });
            text.push_str(&self.own_section());
        }
        let text = info::with_errors(&text, &self.counts.errors.lines());
        encode::text(out, &text, evenkeel_stores::resp::Protocol::Resp3);
    }

    /// Lines of sections of Redis that are about us.
    fn own_lines(&mut self, id: ClientId) -> Vec<(&'static str, String)> {
        let mode = self.mode(id);
        let up_s = self.now.since(Instant::ZERO).as_secs();
        let live: usize =
            (0..self.members.partitions()).map(|it| self.members.live(it).len()).sum();
        let blocked = self.waiting.idle() + self.wait_list.len() + self.pause.held();
        let [clients, keys, items, prefixes] = self.tracking.sizes();
        vec![
            ("redis_version", self.version()),
            ("redis_mode", mode.to_owned()),
            ("process_id", std::process::id().to_string()),
            ("run_id", self.run_id()),
            ("tcp_port", self.config.listen.port().to_string()),
            ("uptime_in_seconds", up_s.to_string()),
            ("uptime_in_days", (up_s / 86_400).to_string()),
            ("connected_clients", self.counts.clients.to_string()),
            ("maxclients", self.config.clients_max.to_string()),
            ("blocked_clients", blocked.to_string()),
            ("loading", "0".to_owned()),
            ("number_of_cached_scripts", self.scripts.len().to_string()),
            ("total_error_replies", self.counts.errors.total.to_string()),
            ("role", "master".to_owned()),
            ("connected_slaves", live.saturating_sub(self.map.partitions()).to_string()),
            ("master_repl_offset", self.history.last().sequence.0.to_string()),
            ("tracking_clients", clients.to_string()),
            ("tracking_total_keys", keys.to_string()),
            ("tracking_total_items", items.to_string()),
            ("tracking_total_prefixes", prefixes.to_string()),
            ("cluster_enabled", u8::from(mode == "cluster").to_string()),
        ]
    }

    fn own_section(&self) -> String {
        let last = self.history.last();
        let mut text = format!(
            "# Evenkeel\r\nservice:{}\r\nepoch:{}\r\nsequence:{}\r\npartitions:{}\r\nshards:{}\r\n",
            self.config.name,
            last.epoch.0,
            last.sequence.0,
            self.map.partitions(),
            self.map.shards(),
        );
        let is_one = |server: &usize| self.members.is_configured(*server);
        for server in (0..self.servers.len()).filter(is_one) {
            let state = match self.members.state(server) {
                ReplicaState::Disconnected => "disconnected",
                ReplicaState::CatchingUp => "catching-up",
                ReplicaState::InSync => "in-sync",
            };
            text.push_str(&format!(
                "duplicate{server}:partition={},state={state},applied={},error={:?},\
                 pending={}\r\n",
                self.members.partition(server),
                self.members.applied(server).0,
                self.servers[server].error.as_deref().unwrap_or_default(),
                self.members.owed(server)
            ));
        }
        text
    }

    /// The lowest version of the duplicates: what all of them can do.
    pub(super) fn version(&self) -> String {
        let number = |version: &String| -> Vec<u64> {
            version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
        };
        let servers = self.servers.iter().enumerate();
        let servers = servers.filter(|(server, _)| self.members.is_configured(*server));
        let versions = servers.filter_map(|(_, server)| server.version.as_ref());
        versions.min_by_key(|version| number(version)).map_or(VERSION.to_owned(), String::clone)
    }

    /// Forty digits that no other process has.
    fn run_id(&self) -> String {
        let epoch = self.history.last().epoch.0;
        format!("{:016x}{epoch:024x}", evenkeel_store_link::fencing::nonce())
    }

    /// `ROLE`: the last write's number, and the live duplicates with theirs.
    pub(super) fn role(&mut self, id: ClientId) {
        let partitions = 0..self.members.partitions();
        let live: Vec<usize> = partitions.flat_map(|it| self.members.live(it).iter()).collect();
        let of = |&server: &usize| {
            let place = self.connectors[server].place();
            let (host, port) = place.rsplit_once(':').unwrap_or((&place, "0"));
            let applied = self.members.applied(server).0.to_string();
            [host.to_owned(), port.to_owned(), applied]
        };
        let duplicates: Vec<[String; 3]> = live.iter().map(of).collect();
        let last = self.history.last().sequence.0;
        self.reply_now(id, |out, _| {
            encode::array(out, 3);
            encode::bulk(out, b"master");
            encode::integer(out, last as i64);
            encode::array(out, duplicates.len());
            for duplicate in &duplicates {
                encode::array(out, duplicate.len());
                duplicate.iter().for_each(|part| encode::bulk(out, part.as_bytes()));
            }
        });
    }
}

/// The text of an answer to `INFO`, if it is one.
fn text_of(reply: &[u8]) -> Option<std::borrow::Cow<'_, str>> {
    let text = evenkeel_stores::resp::reply::payload(reply)?;
    let text = match reply.first()? {
        b'=' => text.get(4..)?,
        b'$' => text,
        _ => return None,
    };
    Some(String::from_utf8_lossy(text))
}
