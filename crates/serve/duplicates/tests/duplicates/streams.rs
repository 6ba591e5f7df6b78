//! `XADD key *`: ids that grow, whatever our clock says.

use evenkeel_testkit::redis::{Client, Redis, Reply};

use super::world::World;
use super::{bulk, ok};

/// The last id of a stream.
fn last_id(client: &mut Client, key: &str) -> String {
    let Reply::Array(info) = client.ask(&["XINFO", "STREAM", key]) else { panic!("no stream") };
    let names = info.chunks(2).find(|pair| pair[0] == bulk("last-generated-id"));
    names.and_then(|pair| pair[1].text()).unwrap().to_owned()
}

/// So many duplicates have the same entries.
fn are_equal(world: &World, keys: &[&str], count: usize) {
    world.settle();
    for key in keys {
        let entries = |redis: &Redis| redis.client().ask(&["XRANGE", key, "-", "+"]);
        let all: Vec<Reply> = world.redises[..count].iter().map(entries).collect();
        assert!(all.iter().all(|it| *it == all[0]), "duplicates differ in {key}");
    }
}

#[test]
fn ids_of_a_stream_go_on_where_our_clock_is_behind_the_last_one() {
    let Some(world) = World::start("stream", 3, |_| {}) else { return };
    let mut client = world.client();
    let ahead = "33000000000000"; // the year 3015, as another leader's clock would have it
    client.ask(&["XADD", "s", &format!("{ahead}-5"), "f", "v"]);
    let mut add = |words: &[&str]| {
        let words: Vec<&str> = [&["XADD"], words, &["*", "f", "v"]].concat();
        client.ask(&words)
    };
    assert_eq!(add(&["s"]), bulk(&format!("{ahead}-6")));
    assert_eq!(add(&["s", "MAXLEN", "~", "9"]), bulk(&format!("{ahead}-7")));
    // Set by hand, deleted at the end, renamed, and full: the next id is never before the last.
    client.ask(&["XSETID", "s", "33000000000001-18446744073709551615"]);
    assert_eq!(client.ask(&["XADD", "s", "*", "f", "v"]), bulk("33000000000002-0"));
    client.ask(&["XDEL", "s", "33000000000002-0"]);
    assert_eq!(client.ask(&["XADD", "s", "*", "f", "v"]), bulk("33000000000002-1"));
    client.ask(&["RENAME", "s", "{s}t"]);
    assert_eq!(client.ask(&["XADD", "{s}t", "*", "f", "v"]), bulk("33000000000002-2"));
    let anew = client.ask(&["XADD", "s", "*", "f", "v"]);
    assert!(anew.text().unwrap() < ahead, "a new stream has the present: {anew:?}");
    // In one packet, and in a transaction: what stands behind finds the entry.
    client.ask(&["XADD", "p", &format!("{ahead}-5"), "f", "v"]);
    client.send(b"XADD p * f v\r\nXLEN p\r\nXADD p * f v\r\nXLEN p\r\n");
    assert_eq!(client.read(), bulk(&format!("{ahead}-6")));
    assert_eq!(client.read(), Reply::Integer(2));
    assert_eq!(client.read(), bulk(&format!("{ahead}-7")));
    assert_eq!(client.read(), Reply::Integer(3));
    client.ask(&["XADD", "m", &format!("{ahead}-5"), "f", "v"]);
    client.send(b"MULTI\r\nXADD m * f v\r\nXADD m * f v\r\nEXEC\r\n");
    let queued = Reply::Simple("QUEUED".to_owned());
    for expected in [ok(), queued.clone(), queued] {
        assert_eq!(client.read(), expected);
    }
    let added = [6, 7].map(|number| bulk(&format!("{ahead}-{number}")));
    assert_eq!(client.read(), Reply::Array(added.into()));
    assert_eq!(last_id(&mut client, "m"), format!("{ahead}-7"));
    let wrong = [client.ask(&["SET", "text", "1"]), client.ask(&["XADD", "text", "*", "f", "v"])];
    assert!(matches!(&wrong[1], Reply::Error(text) if text.starts_with("WRONGTYPE")), "{wrong:?}");
    are_equal(&world, &["s", "{s}t", "p", "m"], 3);
}

#[test]
fn ids_of_a_stream_grow_while_others_choose_them_and_duplicates_die() {
    let Some(mut world) = World::start("streams", 3, |_| {}) else { return };
    let adding = |mut client: Client, chosen: bool| {
        std::thread::spawn(move || {
            let mut added = Vec::new();
            for number in 0..300_u64 {
                let id = match chosen {
                    true => format!("{}-1", 33_000_000_000_000 + number * 1_000),
                    false => "*".to_owned(),
                };
                match client.ask(&["XADD", "s", &id, "f", "v"]) {
                    Reply::Bulk(id) => added.push(String::from_utf8(id).unwrap()),
                    // Another chose a later one; who lets the server choose is never told so.
                    Reply::Error(text) if chosen && text.contains("equal or smaller") => {}
                    other => panic!("{other:?}"),
                }
            }
            added
        })
    };
    let choosing = adding(world.client(), true);
    let adders: Vec<_> = (0..3).map(|_| adding(world.client(), false)).collect();
    world.redises[2].kill();
    let mut added: Vec<String> = adders.into_iter().flat_map(|it| it.join().unwrap()).collect();
    assert_eq!(added.len(), 900);
    added.extend(choosing.join().unwrap());
    let mut client = world.client();
    assert_eq!(client.ask(&["XLEN", "s"]), Reply::Integer(added.len() as i64));
    are_equal(&world, &["s"], 2);
}
