//! `CLUSTER …` beside what a real Redis Cluster of one node says.

use super::server::Server;
use crate::resp::Protocol;
use crate::resp::cluster::{ClusterMap, Endpoint, SlotGroup};
use crate::resp::reply::payload;

/// What we say, where this is the id of the node.
fn ours(map: &ClusterMap, (own, id): (&str, &str), protocol: Protocol, words: &[&str]) -> String {
    let mut out = Vec::new();
    super::with_arguments(words, |arguments| map.answer(arguments, (0, protocol), &mut out));
    String::from_utf8(out).unwrap().replace(own, id)
}

#[test]
fn the_map_is_told_as_a_real_cluster_tells_it() {
    let arguments = [
        "--cluster-enabled",
        "yes",
        "--cluster-announce-ip",
        "127.0.0.1",
        "--cluster-announce-port",
        "7000",
    ];
    let Some(server) = Server::start(&arguments) else { return };
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut connection = server.connect(protocol);
        let mut theirs = |words: &[&str]| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            String::from_utf8(connection.ask(&words)).unwrap()
        };
        theirs(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        let id = theirs(&["CLUSTER", "MYID"]);
        let id = String::from_utf8_lossy(payload(id.as_bytes()).unwrap()).into_owned();
        let at = Endpoint { host: "127.0.0.1".to_owned(), port: 7_000 };
        let whole = (0, 16_383);
        let group = SlotGroup { slots: whole, leader: Some(at.clone()), nodes: Vec::new() };
        let map = ClusterMap::new(("cart", &at), &[group], (0, false));
        let own = ours(&map, ("", ""), Protocol::Resp2, &["CLUSTER", "MYID"]);
        let own = String::from_utf8_lossy(payload(own.as_bytes()).unwrap()).into_owned();
        let other = "0".repeat(40);
        for words in [
            &["CLUSTER", "SLOTS"][..],
            &["CLUSTER", "SHARDS"],
            &["CLUSTER", "MYID"],
            &["CLUSTER", "LINKS"],
            &["CLUSTER", "KEYSLOT", "foo{bar}"],
            &["CLUSTER", "REPLICAS", &id],
            &["CLUSTER", "REPLICAS", &other],
            &["CLUSTER", "COUNT-FAILURE-REPORTS", &id],
            &["CLUSTER", "COUNT-FAILURE-REPORTS", &other],
            &["CLUSTER", "KEYSLOT"],
            &["CLUSTER", "NOSUCH"],
            &["CLUSTER", "COUNTKEYSINSLOT", "16384"],
            &["CLUSTER", "COUNTKEYSINSLOT", "x"],
            &["CLUSTER", "GETKEYSINSLOT", "0", "-1"],
        ] {
            let words_of_ours: Vec<&str> =
                words.iter().map(|word| if *word == id { own.as_str() } else { *word }).collect();
            let said = ours(&map, (&own, &id), protocol, &words_of_ours);
            assert_eq!(said, theirs(words), "{protocol:?} {words:?}");
        }
        // What there is no bus for differs: its port, and the time of the epoch.
        let fields = |line: &str| -> Vec<String> {
            let line = line.lines().find(|line| line.contains("myself")).unwrap();
            line.split(' ').map(|part| part.split('@').next().unwrap().to_owned()).collect()
        };
        let (mine, real) = (
            ours(&map, (&own, &id), protocol, &["CLUSTER", "NODES"]),
            theirs(&["CLUSTER", "NODES"]),
        );
        let (mut mine, mut real) = (fields(&mine), fields(&real));
        (mine[6], real[6]) = Default::default();
        assert_eq!(mine, real);
        let names = |text: &str| -> Vec<String> {
            let names = text.lines().filter_map(|line| line.split_once(':'));
            let names =
                names.filter(|(name, _)| name.starts_with("cluster_") || name.starts_with("total"));
            names
                .filter(|(name, _)| !name.starts_with("cluster_stats_messages_"))
                .map(|(name, _)| name.to_owned())
                .collect()
        };
        let info = ours(&map, (&own, &id), protocol, &["CLUSTER", "INFO"]);
        assert_eq!(names(&info), names(&theirs(&["CLUSTER", "INFO"])));
        assert!(theirs(&["MGET", "a", "b"]).starts_with("-CROSSSLOT Keys in request don't hash"));
    }
}
