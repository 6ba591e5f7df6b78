//! Reading: every kind of setting, every problem at once.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_settings::{Mismatch, Node, Problems, Setting, Table, Value};
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};

fn parse(text: &str) -> Node {
    Node::parse(text, "a.toml").unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems<T>(text: &str, shape: impl FnOnce(&mut Table<'_>) -> T) -> Vec<String> {
    let problems: Problems = parse(text).read(shape).err().expect("the settings are wrong");
    problems.iter().map(ToString::to_string).collect()
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn every_kind_reads_what_people_write() {
    let node = parse(
        "connect = '30ms'\nbuffer = '64KiB'\nlimit = 1000\nrate = '3000/min'\nflow = 7\n\
         share = '5%'\nodds = 0.25\nport = 80\nrequests = 1e6\nskew = 2\nname = 'x'\non = true\n\
         listen = '127.0.0.1:80'\npolicy = 'c3'\nmodel = 'paper'\ncores = [1, 8]",
    );
    let read = node.read(|table| {
        assert_eq!(table.key("connect").duration().required(), 30 * MS);
        assert_eq!(table.key("buffer").bytes().required(), 65_536);
        assert_eq!(table.key("limit").bytes().required(), 1_000);
        assert_eq!(table.key("rate").rate().required(), 50.0);
        assert_eq!(table.key("flow").rate().required(), 7.0);
        assert_eq!(table.key("share").probability().required(), 0.05);
        assert_eq!(table.key("odds").probability().required(), 0.25);
        assert_eq!(table.key("port").integer::<u16>().required(), 80);
        assert_eq!(table.key("requests").integer::<u64>().required(), 1_000_000);
        assert_eq!(table.key("skew").number().required(), 2.0);
        assert_eq!(table.key("name").text().required(), "x");
        assert!(table.key("on").boolean().required());
        assert_eq!(table.key("listen").address().required().port(), 80);
        assert_eq!(table.key("policy").choice(&["random", "c3"]).required(), "c3");
        assert_eq!(table.key("model").variant(&[("lindley", 1), ("paper", 2)]).required(), 2);
        let cores = table.key("cores").list(|item| item.integer::<u32>().required());
        assert_eq!(cores.required(), [1, 8]);
        assert_eq!(table.key("absent").duration().optional(), None);
        assert_eq!(table.key("absent").duration().between(MS..=2 * MS).or(5 * MS), 5 * MS);
        assert!(table.is_sound());
    });
    read.unwrap_or_else(|problems| panic!("{problems}"));
}

#[test]
fn every_kind_says_what_it_expected() {
    let text = "duration = 30\nbytes = '64k'\nrate = -1\nshare = 5\nport = 65536\nhalf = 0.5\n\
                number = nan\nboolean = 'true'\ntext = 3\naddress = ':80'\nchoice = 'c33'\n\
                list = 'c3'\ntable = []\nnamed = 1\nlong = '2s'\nodd = 3";
    let found = problems(text, |table| {
        let _ = table.key("duration").duration().or(MS);
        let _ = table.key("bytes").bytes().or(1);
        let _ = table.key("rate").rate().or(1.0);
        let _ = table.key("share").probability().or(1.0);
        let _ = table.key("port").integer::<u16>().or(1);
        let _ = table.key("half").integer::<i64>().or(1);
        let _ = table.key("number").number().or(1.0);
        let _ = table.key("boolean").boolean().optional();
        let _ = table.key("text").text().optional();
        let _ = table.key("address").address().optional();
        let _ = table.key("choice").choice(&["random", "c3"]).optional();
        let _ = table.key("list").list(|item| item.text().required()).optional();
        let _ = table.key("table").table(|_| ()).optional();
        let _ = table.key("named").named(|_, item| item.text().required()).optional();
        let _ = table.key("long").duration().between(MS..=1_000 * MS).optional();
        let _ = table.key("odd").integer::<u8>().check("an even number", |n| n % 2 == 0).optional();
    });
    let expected = [
        "a.toml:1:12: duration: got 30, expected a duration such as 30ms, 2.5s or 1m30s; \
         did you mean 30ms or 30s?",
        "a.toml:2:9: bytes: got \"64k\", expected a size such as 1000, 64KiB or 1MiB; \
         did you mean KiB (1024) or kB (1000)?",
        "a.toml:3:8: rate: got -1, expected a rate such as 500/s, 30k/s or 3000/min",
        "a.toml:4:9: share: got 5, expected a share from 0 to 1 such as 0.05 or 5%; \
         did you mean 5%?",
        "a.toml:5:8: port: got 65536, expected a whole number from 0 to 65535",
        "a.toml:6:8: half: got 0.5, expected a whole number from -9223372036854775808 \
         to 9223372036854775807",
        "a.toml:7:10: number: got NaN, expected a number",
        "a.toml:8:11: boolean: got \"true\", expected true or false",
        "a.toml:9:8: text: got 3, expected a text; a text is written in quotes",
        "a.toml:10:11: address: got \":80\", expected an IP address with a port such as \
         127.0.0.1:8080; did you mean 127.0.0.1:80?",
        "a.toml:11:10: choice: got \"c33\", expected one of random, c3; did you mean \"c3\"?",
        "a.toml:12:8: list: got \"c3\", expected a list",
        "a.toml:13:9: table: got an empty list, expected a table",
        "a.toml:14:9: named: got 1, expected a table",
        "a.toml:15:8: long: got \"2s\", expected a duration from 1ms to 1s",
        "a.toml:16:7: odd: got 3, expected an even number",
    ];
    assert_eq!(found, expected);
}

#[derive(Debug)]
struct Replica {
    _cores: u32,
    _queue: Option<u32>,
}

impl Replica {
    fn read(table: &mut Table<'_>) -> Self {
        let cores = table.key("cores").integer().between(1..=64).required();
        Self { _cores: cores, _queue: table.key("queue").integer().optional() }
    }

    /// A replica may be written as its number of cores alone.
    fn read_short(item: Setting<'_>) -> Self {
        match item.value() {
            Some(Value::Integer(_)) => Self { _cores: item.integer().required(), _queue: None },
            _ => item.table(Self::read).required(),
        }
    }
}

#[test]
fn problems_of_every_table_come_at_once_in_the_order_of_the_file() {
    let text = "top = 1\n[[replica]]\ncores = 0\n[[replica]]\nqeue = 3\n\
                [upstream.shop]\npolicy = 1\n[upstream.\"a b\"]\n";
    let found = problems(text, |table| {
        let names = vec!["x".to_owned()]; // shapes may borrow from around them
        let replicas = table.key("replica").list(Replica::read_short).required();
        let upstreams: BTreeMap<String, String> = table
            .key("upstream")
            .named(|_, item| {
                item.table(|table| format!("{names:?}{}", table.key("policy").text().required()))
                    .required()
            })
            .required();
        let missing = table.key("missing").table(Replica::read).required();
        table.key("section").section(Replica::read);
        (replicas, upstreams, missing, names.len())
    });
    let expected = [
        "a.toml:1:1: missing: got nothing, expected a table",
        "a.toml:1:1: section.cores: got nothing, expected a whole number from 1 to 64",
        "a.toml:1:7: got the unknown key \"top\", \
         expected one of replica, upstream, missing, section",
        "a.toml:3:9: replica.0.cores: got 0, expected a whole number from 1 to 64",
        "a.toml:4:1: replica.1.cores: got nothing, expected a whole number from 1 to 64",
        "a.toml:5:8: replica.1: got the unknown key \"qeue\", expected one of cores, queue; \
         did you mean \"queue\"?",
        "a.toml:7:10: upstream.shop.policy: got 1, expected a text; a text is written in quotes",
        "a.toml:8:1: upstream.\"a b\".policy: got nothing, expected a text",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_check_across_keys_is_reported_where_its_key_was_written() {
    let shape = |table: &mut Table<'_>| {
        let low = table.key("low").integer::<u32>().or(0);
        let high = table.key("high").integer::<u32>().or(9);
        if table.is_sound() && low > high {
            table.problem("low", Mismatch::new(low.to_string(), format!("at most high ({high})")));
        }
    };
    assert_eq!(
        problems("high = 3\nlow = 5", shape),
        ["a.toml:2:7: low: got 5, expected at most high (3)"]
    );
    // A wrong value is no reason to compare its default.
    assert_eq!(problems("high = 'x'\nlow = 50", shape).len(), 1);
    let mut node = parse("high = 3");
    node.set("low=7").unwrap();
    let found = node.read(shape).unwrap_err().to_string();
    assert_eq!(found, "--set low=7: low: got 7, expected at most high (3)");
}

#[test]
fn stand_ins_lie_within_the_range() {
    let _ = parse("a = 7").read(|table| {
        assert_eq!(table.key("a").integer().between(1..=5).required(), 1_u8);
        assert_eq!(table.key("b").integer().between(3..=5).required(), 3_u8);
        assert_eq!(table.key("a").duration().between(MS..=MS).required(), MS);
    });
}

#[test]
fn hundreds_of_thousands_of_unknown_keys_cost_bounded_time() {
    let text: String = (0..200_000).map(|index| format!("conect{index} = 1\n")).collect();
    let cpu = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let began = cpu(); // of this thread: others may be busy meanwhile
    let found = parse(&text).read(|table| {
        ["connect", "timeout", "policy", "replicas", "hedge"]
            .map(|key| table.key(key).text().optional())
    });
    assert_eq!(found.unwrap_err().len(), 200_000);
    let spent = cpu() - began;
    assert!(spent < Duration::from_secs(60), "{spent:?}");
}

proptest! {
    #[test]
    fn every_unknown_key_and_every_wrong_value_is_reported(
        keys in prop::collection::btree_map("[a-z]{1,8}", (any::<bool>(), any::<bool>()), 0..30),
    ) {
        // Each key is known or not, and holds a number (right) or a truth value (wrong).
        let text: String = keys
            .iter()
            .map(|(key, (_, right))| format!("{key} = {}\n", if *right { "1" } else { "true" }))
            .collect();
        let node = parse(&text);
        let read = node.read(|table| {
            for (key, _) in keys.iter().filter(|(_, (known, _))| *known) {
                let _ = table.key(key).integer::<u8>().required();
            }
        });
        let mut expected: Vec<(usize, bool)> = Vec::new();
        for (index, (known, right)) in keys.values().enumerate() {
            if !known || !right {
                expected.push((index + 1, *known));
            }
        }
        let found = read.err().unwrap_or_default();
        prop_assert_eq!(found.len(), expected.len());
        for (problem, (line, known)) in found.iter().zip(expected) {
            let place = format!("a.toml:{line}:");
            prop_assert!(problem.at.to_string().starts_with(&place), "{}", problem);
            prop_assert_eq!(problem.what.came.starts_with("the unknown key"), !known);
        }
    }
}
