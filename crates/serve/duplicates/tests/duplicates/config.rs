//! Configurations of tests.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_duplicates::{DuplicatesConfig, Target};
use evenkeel_leadership::layout::MapPlace;
use evenkeel_ordered::{Consistency, MembersConfig};
use evenkeel_stores::resp::request::Limits;
use evenkeel_wal::LogSettings;

/// A configuration of one service whose files are in a folder, and which says nothing else.
pub fn config(name: &str, partitions: Vec<Vec<Target>>, directory: &Path) -> DuplicatesConfig {
    DuplicatesConfig {
        name: name.to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls: None,
        advertise: None,
        sentinel: None,
        cluster: None,
        group: Default::default(),
        relay_tls: None,
        partitions,
        shards: 16,
        consistency: Consistency::default(),
        read_copies: 8,
        policy: "least-outstanding".parse().unwrap(),
        hedge: None,
        safeguards: Safeguards::default(),
        members: MembersConfig::default(),
        log_directory: directory.join("log"),
        map: MapPlace::File(directory.join("layout")),
        spares: Vec::new(),
        log: LogSettings::default(),
        access: Default::default(),
        limits: Limits::default(),
        clients_max: 1_000,
        idle_max: None,
        drain: Duration::from_secs(5),
        etcd: None,
        check_rate: 100,
        manager: None,
    }
}
