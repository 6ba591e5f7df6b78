//! The same story over every store that is no Redis: what clients see, and what survives.

use std::collections::BTreeMap;

use evenkeel_duplicates::{DuplicatesConfig, Target};
use evenkeel_ordered::Acknowledge;
use evenkeel_stores::resp::reply::{ReplyScanner, elements, payload};
use evenkeel_stores::store::Host;
use evenkeel_stores::store::cassandra::Cassandra;
use evenkeel_stores::store::embedded::{Embedded, EmbeddedSettings};
use evenkeel_stores::store::memcached::Memcached;
use evenkeel_stores::store::zookeeper::{ZooKeeper, ZooKeeperSettings};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::PATIENCE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::world::World;
use super::{bulk, ok};

pub(super) type State = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn free_port() -> u16 {
    nobody().port()
}

fn open(target: &Target) -> Host {
    match target {
        Target::Embedded { settings, .. } => Embedded::start("direct", settings.clone(), None),
        Target::Memcached { address } => Memcached::start("direct", &address.to_string(), None),
        Target::ZooKeeper { settings } => ZooKeeper::start("direct", settings.clone(), None),
        Target::Cassandra { settings } => Cassandra::start("direct", settings.clone(), None),
        Target::Tcp { .. } => panic!("a Redis is asked directly"),
    }
    .unwrap()
}

/// Asks a store, past the front.
fn ask(host: &Host, commands: &[String]) -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut stream = host.connect().unwrap();
        stream.write_all((commands.join("\r\n") + "\r\n").as_bytes()).await.unwrap();
        let (mut inbox, mut from, mut scanner) = (Vec::new(), 0, ReplyScanner::default());
        let mut replies = Vec::new();
        while replies.len() < commands.len() {
            match scanner.scan(&inbox[from..]).unwrap() {
                Some(length) => {
                    replies.push(inbox[from..from + length].to_vec());
                    from += length;
                }
                None => assert_ne!(stream.read_buf(&mut inbox).await.unwrap(), 0, "it closed"),
            }
        }
        replies
    })
}

/// All strings of a store but those of ours.
pub(super) fn state(target: &Target) -> State {
    let host = open(target);
    let mut cursor = "0".to_owned();
    let mut state = State::new();
    loop {
        let page = ask(&host, &[format!("SCAN {cursor} COUNT 10000")]).remove(0);
        let parts: Vec<&[u8]> = elements(&page).collect();
        let keys: Vec<String> = elements(parts[1])
            .map(|key| String::from_utf8(payload(key).unwrap().to_vec()).unwrap())
            .filter(|key| !key.starts_with("evenkeel:"))
            .collect();
        let gets: Vec<String> = keys.iter().map(|key| format!("GET {key}")).collect();
        for (key, value) in keys.iter().zip(ask(&host, &gets)) {
            state.insert(key.clone().into_bytes(), payload(&value).unwrap().to_vec());
        }
        cursor = String::from_utf8(payload(parts[0]).unwrap().to_vec()).unwrap();
        if cursor == "0" {
            return state;
        }
    }
}

/// A round of writes, with what the strings hold then.
fn write(client: &mut Client, model: &mut BTreeMap<String, String>, round: usize) {
    for n in 0..150 {
        let (text, count) = (format!("text:{n}"), format!("count:{}", n % 10));
        assert_eq!(client.ask(&["SET", &text, &format!("{round}-{n}")]), ok());
        model.insert(text.clone(), format!("{round}-{n}"));
        let now = model.get(&count).map_or(0, |now| now.parse().unwrap()) + 1;
        assert_eq!(client.ask(&["INCR", &count]), Reply::Integer(now));
        model.insert(count, now.to_string());
        if n % 3 == round % 3 {
            assert_eq!(client.ask(&["DEL", &text]), Reply::Integer(1));
            model.remove(&text);
        } else {
            let value = model.get_mut(&text).unwrap();
            value.push_str("-more");
            let length = value.len() as i64;
            assert_eq!(client.ask(&["APPEND", &text, "-more"]), Reply::Integer(length));
        }
    }
}

pub(super) fn read(client: &mut Client, model: &BTreeMap<String, String>) {
    for (key, value) in model {
        assert_eq!(client.ask(&["GET", key]), bulk(value), "{key}");
    }
    assert_eq!(client.ask(&["GET", "nothing"]), Reply::Null);
}

/// Two partitions of two duplicates. `lose` makes the first of them forget everything while the
/// front is down.
pub(super) fn story(name: &str, targets: &[Target], lose: impl FnOnce()) {
    let change = |config: &mut DuplicatesConfig| {
        config.members.acknowledge = Acknowledge::All;
        // A log that soon does not reach back to the first write.
        config.log.segment_bytes = 4 << 10;
        config.log.bytes_max = 16 << 10;
    };
    let partitions = targets.chunks(2).map(<[Target]>::to_vec).collect();
    let mut world = World::over(name, partitions, targets.len(), change);
    let mut model = BTreeMap::new();
    let mut client = world.client();
    write(&mut client, &mut model, 0);
    read(&mut client, &model);
    let unknown = client.ask(&["LPUSH", "text:0", "x"]);
    let is_named = |text: &str| text.starts_with("ERR store '") && text.contains("'LPUSH'");
    assert!(matches!(&unknown, Reply::Error(text) if is_named(text)), "{unknown:?}");
    // Another front over the same stores and log.
    world.restart();
    let mut client = world.client();
    read(&mut client, &model);
    write(&mut client, &mut model, 1);
    world.settle();
    world.stop();
    lose();
    world.restart();
    let mut client = world.client();
    read(&mut client, &model);
    write(&mut client, &mut model, 2);
    read(&mut client, &model);
    world.settle();
    assert_eq!(world.state_now().disagreements, 0);
    world.stop();
    let states: Vec<State> = targets.iter().map(state).collect();
    assert_eq!(states[0], states[1], "duplicates of the first partition differ");
    assert_eq!(states[2], states[3], "duplicates of the second partition differ");
    assert!(!states[0].is_empty() && !states[2].is_empty());
    let together: State =
        states[0].iter().chain(&states[2]).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(together.len(), states[0].len() + states[2].len(), "a key is in both partitions");
    let expected = model.into_iter().map(|(key, value)| (key.into_bytes(), value.into_bytes()));
    assert_eq!(together, expected.collect());
}

#[test]
fn embedded_stores_are_duplicates() {
    let folder = Folder::new("stores-embedded");
    let file = |n: usize| folder.file(&format!("{n}.redb"));
    let target = |n| Target::Embedded { settings: EmbeddedSettings::at(&file(n)), pauses: None };
    let targets: Vec<Target> = (0..4).map(target).collect();
    story("embedded", &targets, || std::fs::remove_file(file(0)).unwrap());
}

pub(super) fn memcached(port: u16) -> Option<Program> {
    evenkeel_testkit::memcached::start(([127, 0, 0, 1], port).into(), "64")
}

#[test]
fn memcacheds_are_duplicates() {
    let ports: Vec<u16> = (0..4).map(|_| free_port()).collect();
    let Some(mut servers) = ports.iter().map(|&port| memcached(port)).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let target = |&port: &u16| Target::Memcached {
        address: std::net::SocketAddr::from(([127, 0, 0, 1], port)).into(),
    };
    let targets: Vec<Target> = ports.iter().map(target).collect();
    story("memcached", &targets, || {
        drop(servers.remove(0)); // it forgets everything as it ends
        servers.insert(0, memcached(ports[0]).unwrap());
    });
}

/// One server, and where it listens and keeps its files. `None`, said aloud, where ZooKeeper is not
/// installed.
pub(super) fn zookeeper(name: &str) -> Option<(Program, u16, Folder)> {
    let (folder, address) = (Folder::new(&format!("stores-{name}")), nobody());
    let server = evenkeel_testkit::zookeeper::start(address, folder.path())?;
    Some((server, address.port(), folder))
}

#[test]
fn zookeeper_nodes_are_duplicates() {
    let Some((_server, port, _folder)) = zookeeper("zookeeper") else { return };
    // One ensemble for all, since this is about what is kept and not about how fast.
    let target = |n: usize| Target::ZooKeeper {
        settings: ZooKeeperSettings {
            servers: vec![format!("127.0.0.1:{port}")],
            root: format!("/evenkeel/story-{n}"),
        },
    };
    let targets: Vec<Target> = (0..4).map(target).collect();
    story("zookeeper", &targets, || {
        let cleared = ask(&open(&targets[0]), &["FLUSHALL".to_owned()]);
        assert_eq!(cleared, [b"+OK\r\n"]);
    });
}

/// The service starts and serves while a store is away, and takes it when it comes.
#[test]
fn a_memcached_that_comes_later_is_filled() {
    let ports = [free_port(), free_port()];
    let Some(_first) = memcached(ports[0]) else { return };
    let change = |config: &mut DuplicatesConfig| {
        config.members.acknowledge = Acknowledge::All;
    };
    let target = |port: u16| Target::Memcached {
        address: std::net::SocketAddr::from(([127, 0, 0, 1], port)).into(),
    };
    let world = World::over("later", vec![ports.map(target).to_vec()], 1, change);
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "a", "1"]), ok());
    let _second = memcached(ports[1]);
    world.wait_live(2, 2 * PATIENCE);
    world.settle();
    assert_eq!(state(&target(ports[1])), State::from([(b"a".to_vec(), b"1".to_vec())]));
}
