//! The rig itself: that it does to nodes what it says.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use evenkeel_cql::Version;
use evenkeel_cql::codec::Compression;

use evenkeel_testkit::cassandra::client::Client;
use evenkeel_testkit::cassandra::{self, Cluster, Quota, Spec, processor_time};

#[test]
fn nodes_are_killed_and_come_back() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    {
        let disturbed = cluster.disturb();
        disturbed.kill(2);
        assert!(TcpStream::connect(cluster.address(2)).is_err());
        assert!(TcpStream::connect(cluster.address(0)).is_ok());
    }
    let _calm = cluster.calm();
    assert!(TcpStream::connect(cluster.address(2)).is_ok());
}

#[test]
fn a_paused_node_keeps_connections_and_answers_when_it_is_resumed() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let disturbed = cluster.disturb();
    let mut client = TcpStream::connect(cluster.address(1)).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    disturbed.pause(1);
    // OPTIONS of version 4.
    client.write_all(&[4, 0, 0, 0, 5, 0, 0, 0, 0]).unwrap();
    let mut header = [0; 9];
    client.read_exact(&mut header).unwrap_err();
    disturbed.resume(1);
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.read_exact(&mut header).unwrap();
    assert_eq!(header[..5], [0x84, 0, 0, 0, 6], "SUPPORTED");
}

#[test]
fn a_quota_is_kept() {
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let used = || {
        let (began, before) = (Instant::now(), processor_time(busy.id()));
        std::thread::sleep(Duration::from_secs(1));
        (processor_time(busy.id()) - before).as_secs_f64() / began.elapsed().as_secs_f64()
    };
    let limited = [100, 20].map(|period_ms| {
        let quota = Quota::of(busy.id(), 0.05, Duration::from_millis(period_ms));
        (used(), quota.way)
    });
    let unlimited = used();
    busy.kill().unwrap();
    busy.wait().unwrap();
    for (limited, way) in limited {
        assert!(limited < 0.15, "{limited} of a processor by {way:?}");
        // Whoever else is busy here leaves it this much.
        assert!(unlimited > 1.3 * limited, "{unlimited} after {limited}");
    }
}

#[test]
fn nodetool_speaks_to_one_node() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let _calm = cluster.calm();
    let said = cluster.nodetool(2, &["status"]);
    for node in 0..cluster.nodes() {
        let address = cluster.address(node).ip().to_string();
        let line = said.lines().find(|line| line.contains(&address)).unwrap();
        assert!(line.starts_with("UN "), "up and normal: {line}");
    }
}

#[test]
fn its_client_speaks_every_version_and_compression() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let _calm = cluster.calm();
    let compressions = [None, Some(Compression::Lz4), Some(Compression::Snappy)];
    for (version, compressions) in
        [(Version::V4, &compressions[..]), (Version::V5, &compressions[..2])]
    {
        for compression in compressions {
            let mut client = Client::connect(cluster.address(0), version, *compression).unwrap();
            let rows = client.rows("SELECT data_center, rack FROM system.local");
            assert_eq!(rows, [[Some(b"east".to_vec()), Some(b"r1".to_vec())]]);
            // Longer than a segment, and than what is compressed at once.
            let long = client.rows("SELECT * FROM system_schema.columns");
            assert!(long.len() > 100, "{}", long.len());
        }
    }
}

#[test]
fn nodes_speak_tls_and_ask_who_is_there() {
    if let Err(missing) = cassandra::possible() {
        return evenkeel_testkit::story::skipped(&missing);
    }
    let cluster = Cluster::start(&Spec { tls: true, password: true, ..Spec::of(&[("east", 1)]) });
    let authority = cluster.authority().unwrap();
    for version in [Version::V4, Version::V5] {
        let mut client = Client::connect_tls(cluster.address(0), authority, version).unwrap();
        let rows = client.rows("SELECT role FROM system_auth.roles");
        assert_eq!(rows, [[Some(b"cassandra".to_vec())]]);
    }
    Client::connect(cluster.address(0), Version::V4, None).map(|_| ()).unwrap_err();
}
