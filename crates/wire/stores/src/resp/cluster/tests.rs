//! The map as clients are told it, beside what a real Redis Cluster of one node says.

use super::*;
use crate::resp::request::{Limits, RequestParser};
use crate::resp::{Protocol, encode};

fn at(port: u16) -> Endpoint {
    Endpoint { host: "127.0.0.1".to_owned(), port }
}

fn with<T>(words: &[&str], act: impl FnOnce(Arguments<'_>) -> T) -> T {
    let mut buffer = Vec::new();
    let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    encode::command(&mut buffer, &bytes);
    let mut parser = RequestParser::new(Limits::default());
    parser.parse(&buffer).unwrap().unwrap();
    act(parser.arguments(&buffer))
}

fn told(map: &ClusterMap, protocol: Protocol, words: &[&str]) -> String {
    let mut out = Vec::new();
    let words: Vec<&str> = std::iter::once("CLUSTER").chain(words.iter().copied()).collect();
    let asked = with(&words, |arguments| map.answer(arguments, (0, protocol), &mut out));
    assert_eq!(asked, Asked::Answered, "{words:?}");
    String::from_utf8(out).unwrap()
}

/// All slots, led by this one where somebody does; these are known.
fn whole(leader: Option<Endpoint>, nodes: &[Endpoint]) -> [SlotGroup; 1] {
    [SlotGroup { slots: (0, 16_383), leader, nodes: nodes.to_vec() }]
}

fn three(own: u16) -> ClusterMap {
    let known = [at(3), at(1), at(2)];
    ClusterMap::new(("cart", &at(own)), &whole(Some(at(2)), &known), (7, false))
}

#[test]
fn who_does_not_lead_a_slot_says_who_does() {
    assert_eq!(three(2).redirection(3_999), None);
    assert_eq!(three(1).redirection(3_999).unwrap(), "MOVED 3999 127.0.0.1:2");
    let nobody = ClusterMap::new(("cart", &at(1)), &whole(None, &[at(2)]), (0, false));
    assert_eq!(nobody.redirection(0).unwrap(), NOT_SERVED);
    assert!(told(&nobody, Protocol::Resp2, &["INFO"]).contains("cluster_state:fail\r\n"));
    assert_eq!(told(&nobody, Protocol::Resp2, &["SLOTS"]), "*0\r\n");
    let named = Endpoint { host: "::1".to_owned(), port: 6_380 };
    let far = ClusterMap::new(("cart", &at(1)), &whole(Some(named), &[]), (0, false));
    assert_eq!(far.redirection(1).unwrap(), "MOVED 1 ::1:6380", "as Redis writes it");
}

/// Two processes, each with a node for each of three groups; nobody leads the last.
#[test]
fn groups_of_slots_are_shards_and_nodes_stand_by_for_their_group_alone() {
    let group = |slots, leader: Option<u16>, nodes: [u16; 2]| SlotGroup {
        slots,
        leader: leader.map(at),
        nodes: nodes.map(at).to_vec(),
    };
    let groups = [
        group((0, 99), Some(1), [1, 11]),
        group((100, 100), Some(12), [2, 12]),
        group((101, 16_383), None, [3, 13]),
    ];
    let map = |own: u16| ClusterMap::new(("cart", &at(own)), &groups, (1, false));
    assert_eq!(map(1).redirection(100).unwrap(), "MOVED 100 127.0.0.1:12");
    assert_eq!(map(1).redirection(101).unwrap(), NOT_SERVED);
    assert_eq!((map(1).redirection(99), map(12).redirection(100)), (None, None));
    // Slots of another group that the same process leads are another node's.
    assert_eq!(map(12).redirection(99).unwrap(), "MOVED 99 127.0.0.1:1");
    assert_eq!((map(11).master(), map(2).master()), (Some(&at(1)), Some(&at(12))));
    assert!(map(12).leads() && !map(2).leads() && map(3).master().is_none());
    let nodes = told(&map(11), Protocol::Resp2, &["NODES"]);
    let line = |port: u16| nodes.lines().find(|it| it.contains(&format!(":{port}@"))).unwrap();
    assert_eq!(nodes.matches("@0 ").count(), 6, "{nodes}");
    assert!(line(1).ends_with(" master - 0 0 1 connected 0-99"), "{nodes}");
    assert!(line(12).ends_with(" master - 0 0 1 connected 100"), "{nodes}");
    let id = |port: u16| line(port).split(' ').next().unwrap();
    assert!(line(11).contains(&format!(" myself,slave {} ", id(1))), "{nodes}");
    assert!(line(2).contains(&format!(" slave {} ", id(12))), "{nodes}");
    let info = told(&map(3), Protocol::Resp2, &["INFO"]);
    assert!(info.contains("cluster_size:2\r\n") && info.contains("cluster_state:fail\r\n"));
    let mine = told(&map(11), Protocol::Resp2, &["MYSHARDID"]);
    assert_eq!(mine, told(&map(1), Protocol::Resp2, &["MYSHARDID"]));
    assert_ne!(mine, told(&map(2), Protocol::Resp2, &["MYSHARDID"]));
    let slots = told(&map(13), Protocol::Resp2, &["SLOTS"]);
    assert!(slots.starts_with("*2\r\n*4\r\n:0\r\n:99\r\n*4\r\n"), "{slots}");
}

#[test]
fn a_node_keeps_its_id_and_another_service_has_others() {
    let id = |map: &ClusterMap| told(map, Protocol::Resp2, &["MYID"]);
    let alone = ClusterMap::new(("cart", &at(1)), &whole(Some(at(1)), &[]), (9, false));
    assert_eq!(id(&alone), id(&three(1)));
    assert_ne!(id(&three(1)), id(&three(2)));
    let other = ClusterMap::new(("shop", &at(1)), &whole(None, &[]), (9, false));
    assert_ne!(id(&alone), id(&other));
    assert_eq!(id(&alone).len(), "$40\r\n\r\n".len() + 40);
    let of_leader = id(&three(2)).trim_end().rsplit('\n').next().unwrap().to_owned();
    let replicas = told(&three(1), Protocol::Resp2, &["REPLICAS", &of_leader]);
    assert!(replicas.starts_with("*2\r\n") && replicas.contains("127.0.0.1:3@0 slave"));
    let not = told(&three(1), Protocol::Resp2, &["REPLICAS", &"0".repeat(40)]);
    assert_eq!(not, format!("-ERR Unknown node {}\r\n", "0".repeat(40)));
}

#[test]
fn what_changes_a_cluster_is_refused_and_numbers_are_checked() {
    for words in [&["RESET"][..], &["MEET", "1.1.1.1", "1"], &["SETSLOT", "1", "STABLE"]] {
        let said = told(&three(1), Protocol::Resp2, words);
        assert!(said.starts_with("-ERR the lease decides"), "{said}");
    }
    let asked = |words: &[&str]| {
        with(words, |it| three(1).answer(it, (0, Protocol::Resp2), &mut Vec::new()))
    };
    assert_eq!(asked(&["cluster", "CountKeysInSlot", "16383"]), Asked::Count(16_383));
    assert_eq!(asked(&["cluster", "getkeysinslot", "0", "3"]), Asked::Keys(0, 3));
}

#[test]
fn keys_of_one_command_have_one_slot() {
    let slot_of = |words: &[&str]| {
        with(words, |arguments| {
            let command = commands::lookup(arguments.at(0)).unwrap();
            slot_of(command, commands::classify(command, arguments), arguments)
        })
    };
    let of = |key: &str| Ok(Some(slot(key.as_bytes())));
    assert_eq!(slot_of(&["mset", "{a}1", "x", "{a}2", "y"]), of("a"));
    assert_eq!(slot_of(&["mget", "a", "b"]), Err(CROSSSLOT));
    assert_eq!(slot_of(&["eval", "return 1", "2", "a", "b"]), Err(CROSSSLOT));
    assert_eq!(slot_of(&["eval", "return 1", "0"]), Ok(None));
    assert_eq!(slot_of(&["ssubscribe", "a", "b"]), Err(CROSSSLOT));
    assert_eq!(slot_of(&["ssubscribe", "{a}1", "{a}2"]), of("a"));
    assert_eq!(slot_of(&["spublish", "a", "b"]), of("a"));
    assert_eq!(slot_of(&["sunsubscribe"]), Ok(None));
    for plain in [&["subscribe", "a", "b"][..], &["publish", "a", "b"], &["ping"], &["keys", "a"]] {
        assert_eq!(slot_of(plain), Ok(None), "{plain:?}");
    }
}
