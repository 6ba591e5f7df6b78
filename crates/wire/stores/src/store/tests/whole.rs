//! What every store must do, and what each does of its own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::{PATIENCE, block_for_within, found};
use evenkeel_testkit::zookeeper;
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::super::embedded::{Durability, Embedded, EmbeddedSettings};
use super::super::memcached::Memcached;
use super::super::pauses::Pausing;
use super::super::zookeeper::{ZooKeeper, ZooKeeperSettings};
use super::super::{Host, Pauses};
use super::Place;
use super::wire::{Client, Reply};

pub(super) fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

fn embedded(place: &Place, name: &str) -> Host {
    let settings = EmbeddedSettings::at(&place.0.join(name));
    Embedded::start(name, settings, None).unwrap()
}

pub(super) fn client(host: &Host) -> Client<DuplexStream> {
    Client::new(host.connect().unwrap())
}

/// A real memcached with so many MB and where it listens, or a visible word that the test is
/// skipped.
pub(super) fn memcached(memory: &str) -> Option<(Program, SocketAddr)> {
    let address = nobody();
    Some((evenkeel_testkit::memcached::start(address, memory)?, address))
}

/// What a duplicate is asked from its first connection to being copied, by any store.
pub(super) async fn serves_as_a_duplicate(host: &Host) {
    let mut one = client(host);
    let Reply::Many(b'%', hello) = one.ask("HELLO 3").await else { panic!("no map") };
    assert!(hello.contains(&Reply::bulk("proto")) && hello.contains(&Reply::line(":3")));
    assert_eq!(one.ask("CLIENT SETNAME evenkeel-orders-7").await, Reply::line("+OK"));
    assert_eq!(one.ask("FLUSHALL").await, Reply::line("+OK"));
    assert_eq!(one.ask("GET evenkeel:watermark").await, Reply::line("_"));
    assert_eq!(one.ask("SET evenkeel:watermark 1,2").await, Reply::line("+OK"));
    // A write that must not be repeated, with its watermark.
    let group: [&[&str]; 4] =
        [&["MULTI"], &["INCR", "n"], &["SET", "evenkeel:watermark", "1 3"], &["EXEC"]];
    let replies = one.ask_all(&group).await;
    let done = vec![Reply::line(":1"), Reply::line("+OK")];
    assert_eq!(replies[3], Reply::Many(b'*', done));
    // What other characters keys may have.
    let odd: [&[u8]; 3] = [b"a key/with % .\xff", b".", b"line\r\nend\0"];
    for key in odd {
        let set = one.ask_all(&[[b"SET", key, key], [b"GET", key, b""]]).await;
        assert_eq!(set[0], Reply::line("+OK"));
        let got = one.ask_all(&[[&b"GET"[..], key]]).await;
        assert_eq!(got[0], Reply::Bulk(key.to_vec()));
    }
    assert_eq!(one.ask("MSET a 1 b 2 c 3").await, Reply::line("+OK"));
    assert_eq!(one.ask("DEL b nothing").await, Reply::line(":1"));
    let got = ["1", "3"].map(Reply::bulk);
    let got = vec![got[0].clone(), Reply::line("_"), got[1].clone()];
    assert_eq!(one.ask("MGET a b c").await, Reply::Many(b'*', got));
    assert_eq!(one.ask("EXISTS a b c").await, Reply::line(":2"));
    assert_eq!(one.ask("STRLEN evenkeel:watermark").await, Reply::line(":3"));
    assert_eq!(one.ask("DBSIZE").await, Reply::line(":7"));
    // Copied, key by key, to another place.
    let mut keys = listed(&mut one, 2).await;
    keys.sort();
    assert_eq!(keys.len(), 7);
    assert!(odd.iter().all(|key| keys.contains(&key.to_vec())));
    let copied = one.ask_all(&[[&b"DUMP"[..], b"n"], [b"PEXPIRETIME", b"n"]]).await;
    let [Reply::Bulk(dump), expiry] = &copied[..] else { panic!("{copied:?}") };
    assert_eq!(*expiry, Reply::line(":-1"));
    assert_eq!(one.ask("PEXPIRETIME b").await, Reply::line(":-2"));
    let restore = [&b"RESTORE"[..], b"copy", b"0", dump, b"REPLACE", b"ABSTTL"];
    assert_eq!(one.ask_all(&[restore]).await, [Reply::line("+OK")]);
    assert_eq!(one.ask("GET copy").await, Reply::bulk("1"));
    for byte in 0..dump.len() {
        let mut damaged = dump.clone();
        damaged[byte] ^= 0x10;
        let restore = [&b"RESTORE"[..], b"copy", b"0", &damaged, b"REPLACE", b"ABSTTL"];
        let refused = one.ask_all(&[restore]).await.remove(0);
        assert_eq!(refused, Reply::line("-ERR DUMP payload version or checksum are wrong"));
    }
    // What it has not.
    let refused = one.ask("LPUSH a b").await;
    assert_eq!(
        refused,
        Reply::line(&format!("-ERR store '{}' has no command 'LPUSH'", host.name()))
    );
    // Many keys at once, and a large value.
    let many: Vec<Vec<u8>> = (0..500).map(|key| format!("many:{key}").into_bytes()).collect();
    let pairs = many.iter().flat_map(|key| [key.clone(), vec![b'x'; 300]]);
    let set: Vec<Vec<u8>> = [b"MSET".to_vec()].into_iter().chain(pairs).collect();
    assert_eq!(one.ask_all(&[set]).await, [Reply::line("+OK")]);
    let large = vec![b'y'; 400_000];
    assert_eq!(one.ask_all(&[[&b"SET"[..], b"large", &large]]).await, [Reply::line("+OK")]);
    let got = one.ask_all(&[["STRLEN", "large"], ["GET", "many:499"], ["GET", "large"]]).await;
    assert_eq!(got[0], Reply::line(":400000"));
    assert_eq!(got[1], Reply::Bulk(vec![b'x'; 300]));
    assert_eq!(got[2], Reply::Bulk(large));
    assert_eq!(listed(&mut one, 100).await.len(), 509);
    // Another connection sees it, and may end this one.
    let mut two = client(host);
    assert_eq!(two.ask("GET a").await, Reply::bulk("1"));
    let Reply::Bulk(clients) = two.ask("CLIENT LIST").await else { panic!("no list") };
    let clients = String::from_utf8(clients).unwrap();
    let line = clients.lines().find(|line| line.contains("name=evenkeel-orders-7")).unwrap();
    let id = line.split(' ').next().unwrap().strip_prefix("id=").unwrap();
    assert_eq!(two.ask(&format!("CLIENT KILL ID {id}")).await, Reply::line(":1"));
    assert!(one.is_closed().await);
    assert_eq!(two.ask(&format!("CLIENT KILL ID {id}")).await, Reply::line(":0"));
    assert_eq!(two.ask("FLUSHALL").await, Reply::line("+OK"));
    assert_eq!(two.ask("GET a").await, Reply::line("$-1"));
    assert_eq!(listed(&mut two, 100).await, Vec::<Vec<u8>>::new());
}

/// All keys, by pages.
async fn listed(client: &mut Client<DuplexStream>, count: usize) -> Vec<Vec<u8>> {
    let (mut keys, mut cursor) = (Vec::new(), b"0".to_vec());
    loop {
        let count = count.to_string();
        let scan = [&b"SCAN"[..], &cursor, b"COUNT", count.as_bytes()];
        let reply = client.ask_all(&[scan]).await.remove(0);
        let Reply::Many(_, mut page) = reply else { panic!("{reply:?}") };
        let (Some(Reply::Many(_, some)), Some(Reply::Bulk(next))) = (page.pop(), page.pop()) else {
            panic!("no page")
        };
        keys.extend(some.into_iter().map(|key| match key {
            Reply::Bulk(key) => key,
            other => panic!("{other:?}"),
        }));
        cursor = next;
        if cursor == b"0" {
            return keys;
        }
    }
}

#[test]
fn the_embedded_store_is_a_duplicate() {
    let place = Place::new();
    let host = embedded(&place, "embedded");
    block_on(serves_as_a_duplicate(&host));
}

#[test]
fn memcached_is_a_duplicate() {
    let Some((_server, address)) = memcached("64") else { return };
    let address = address.to_string();
    let host = Memcached::start("memcached", &address, None).unwrap();
    block_on(async {
        serves_as_a_duplicate(&host).await;
        let mut client = client(&host);
        let refused = client.ask("HSET a b c").await;
        assert_eq!(refused, Reply::line("-ERR store 'memcached' has no command 'HSET'"));
        let refused = client.ask("SET a b PX 1000").await;
        assert_eq!(refused, Reply::line("-ERR this store keeps no expiry"));
        let refused = client.ask(&format!("SET {} b", "k".repeat(187))).await;
        assert!(format!("{refused:?}").contains("keeps keys of 1 to 186"), "{refused:?}");
        let key = "k".repeat(186);
        assert_eq!(client.ask(&format!("SET {key} b")).await, Reply::line("+OK"));
    });
}

#[test]
fn zookeeper_is_a_duplicate() {
    let place = Place::new();
    let address = nobody();
    let Some(_server) = zookeeper::start(address, &place.0) else { return };
    let open = |name: &str| {
        let root = "/evenkeel/orders".to_owned();
        let settings = ZooKeeperSettings { servers: vec![address.to_string()], root };
        ZooKeeper::start(name, settings, None)
    };
    let open_once = || open("zookeeper").inspect_err(|error| println!("{error}")).ok();
    let host = block_for_within(2 * PATIENCE, "ZooKeeper serves", open_once);
    block_on(async {
        serves_as_a_duplicate(&host).await;
        super::cut::the_watermark_comes_last_in_zookeeper(&address.to_string()).await;
        // One that takes over and empties it fences off who wrote before.
        let successor = open("zookeeper").unwrap();
        let (mut old, mut new) = (client(&host), client(&successor));
        assert_eq!(old.ask("SET evenkeel:epoch 1").await, Reply::line("+OK"));
        assert_eq!(new.ask("FLUSHALL").await, Reply::line("+OK"));
        assert_eq!(new.ask("DBSIZE").await, Reply::line(":1"), "the epoch");
        assert_eq!(new.ask("GET evenkeel:epoch").await, Reply::bulk("1"));
        assert_eq!(new.ask("SET evenkeel:epoch 2").await, Reply::line("+OK"));
        old.stream.write_all(b"SET a 4\r\n").await.unwrap();
        assert!(old.is_closed().await);
        assert_eq!(new.ask("EXISTS a").await, Reply::line(":0"));
        // A later epoch fences off who does not know of it, whole batches of it.
        let mut old = client(&host);
        assert_eq!(old.ask("SET evenkeel:epoch 1").await, Reply::line("+OK"));
        assert_eq!(old.ask("SET a 1").await, Reply::line("+OK"));
        assert_eq!(new.ask("GET evenkeel:epoch").await, Reply::bulk("1"));
        assert_eq!(new.ask("SET evenkeel:epoch 2").await, Reply::line("+OK"));
        assert_eq!(new.ask("SET b 2").await, Reply::line("+OK"));
        assert_eq!(new.ask("SET b 3").await, Reply::line("+OK"));
        old.stream.write_all(b"SET a 4\r\nDEL b\r\n").await.unwrap();
        assert!(old.is_closed().await);
        let values = ["1", "3"].map(Reply::bulk).to_vec();
        assert_eq!(new.ask("MGET a b").await, Reply::Many(b'*', values));
    });
}

#[test]
fn a_memcached_that_comes_back_empty_ends_all_connections() {
    let Some((mut server, address)) = memcached("64") else { return };
    let address = address.to_string();
    let host = Memcached::start("memcached", &address, None).unwrap();
    block_on(async {
        let (mut ordered, mut free) = (client(&host), client(&host));
        assert_eq!(ordered.ask("SET a 1").await, Reply::line("+OK"));
        assert_eq!(free.ask("GET a").await, Reply::bulk("1"));
        server.kill();
        ordered.stream.write_all(b"GET a\r\n").await.unwrap();
        // Else the free one would say that there is no such key.
        assert!(ordered.is_closed().await && free.is_closed().await);
    });
}

#[test]
fn what_is_stored_is_there_again() {
    let place = Place::new();
    let host = embedded(&place, "embedded");
    let refused = Embedded::open(&EmbeddedSettings::at(&place.0.join("embedded"))).unwrap_err();
    assert!(refused.to_string().contains("a file of its own"), "{refused}");
    let other = embedded(&place, "other");
    block_on(async {
        let mut one = client(&host);
        one.ask("HSET h a 1 b 2").await;
        one.ask("SADD s x y").await;
        one.ask("SET t 1 PXAT 9000000000000").await;
        assert_eq!(client(&other).ask("DBSIZE").await, Reply::line(":0"));
    });
    drop(host);
    let host = embedded(&place, "embedded");
    block_on(async {
        let mut one = client(&host);
        assert_eq!(one.ask("HGET h b").await, Reply::bulk("2"));
        assert_eq!(one.ask("SCARD s").await, Reply::line(":2"));
        assert_eq!(one.ask("PEXPIRETIME t").await, Reply::line(":9000000000000"));
        for (key, time) in [("h", "0"), ("t", "9000000000000")] {
            let Reply::Bulk(dump) = one.ask(&format!("DUMP {key}")).await else {
                panic!("no dump")
            };
            let restore = [&b"RESTORE"[..], key.as_bytes(), time.as_bytes(), &dump, b"ABSTTL"];
            let copied = client(&other).ask_all(&[restore]).await;
            assert_eq!(copied, [Reply::line("+OK")]);
        }
        let mut other = client(&other);
        assert_eq!(other.ask("HGET h a").await, Reply::bulk("1"));
        assert_eq!(other.ask("PEXPIRETIME t").await, Reply::line(":9000000000000"));
    });
}

#[test]
fn a_crash_takes_the_watermark_back_with_the_writes() {
    let place = Place::new();
    let (path, copy) = (place.0.join("store"), place.0.join("as-in-a-crash"));
    let every = Durability::Every(Duration::from_secs(3600));
    let settings = EmbeddedSettings { durability: every, ..EmbeddedSettings::at(&path) };
    let host = Embedded::start("embedded", settings, None).unwrap();
    block_on(async {
        let mut one = client(&host);
        for write in 1..=50 {
            let mark = format!("1 {write}");
            let group: [&[&str]; 4] =
                [&["MULTI"], &["INCR", "n"], &["SET", "evenkeel:watermark", &mark], &["EXEC"]];
            one.ask_all(&group).await;
        }
    });
    // The file as a crash would leave it: nothing was durable since it was opened.
    std::fs::copy(&path, &copy).unwrap();
    let crashed = Embedded::start("crashed", EmbeddedSettings::at(&copy), None).unwrap();
    block_on(async {
        let mut one = client(&crashed);
        let none = Reply::Many(b'*', vec![Reply::line("$-1"); 2]);
        assert_eq!(one.ask("MGET n evenkeel:watermark").await, none);
        assert_eq!(client(&host).ask("GET n").await, Reply::bulk("50"));
    });
}

/// Waits until nobody sees a key that was to go soon.
async fn expired(client: &mut Client<DuplexStream>) {
    let look = async || (client.ask("GET soon").await == Reply::line("$-1")).then_some(());
    found("it expires", look).await;
}

#[test]
fn what_has_expired_is_gone() {
    let place = Place::new();
    let host = embedded(&place, "embedded");
    block_on(async {
        let mut one = client(&host);
        one.ask("SET soon 1 PX 30").await;
        one.ask("SET late 1 PX 1000000").await;
        assert_eq!(one.ask("GET soon").await, Reply::bulk("1"));
        assert_eq!(one.ask("DBSIZE").await, Reply::line(":2"));
        expired(&mut one).await;
        assert_eq!(one.ask("INCR soon").await, Reply::line(":1"));
        assert_eq!(one.ask("PEXPIRETIME soon").await, Reply::line(":-1"));
        one.ask("SET soon 1 PX 30").await;
        expired(&mut one).await;
        // Any write removes what is due.
        one.ask("SET other 1").await;
        assert_eq!(one.ask("DBSIZE").await, Reply::line(":2"));
    });
}

#[test]
fn a_batch_that_waits_is_not_run_once_its_connection_was_ended() {
    let place = Place::new();
    let settings = EmbeddedSettings::at(&place.0.join("fenced"));
    let always =
        Pauses { every: Duration::from_nanos(1), length: Duration::from_millis(60), seed: 1 };
    let host = Embedded::start("fenced", settings, Some(always)).unwrap();
    block_on(async {
        let (mut first, mut old, mut new) = (client(&host), client(&host), client(&host));
        let Reply::Line(id) = old.ask("CLIENT ID").await else { panic!("no id") };
        let id = String::from_utf8_lossy(&id[1..]).into_owned();
        new.ask("PING").await;
        let pause = || tokio::time::sleep(Duration::from_millis(5));
        // One has the store and pauses, the next waits for it, and is ended meanwhile.
        first.stream.write_all(b"GET a\r\n").await.unwrap();
        pause().await;
        old.stream.write_all(b"SET a late\r\n").await.unwrap();
        pause().await;
        assert_eq!(new.ask(&format!("CLIENT KILL ID {id}")).await, Reply::line(":1"));
        assert!(old.is_closed().await);
        assert_eq!(new.ask("GET a").await, Reply::line("$-1"));
    });
}

#[test]
fn transactions_have_manners() {
    let place = Place::new();
    let host = embedded(&place, "embedded");
    block_on(async {
        let mut one = client(&host);
        assert_eq!(one.ask("EXEC").await, Reply::line("-ERR EXEC without MULTI"));
        one.ask("MULTI").await;
        assert_eq!(one.ask("MULTI").await, Reply::line("-ERR MULTI calls can not be nested"));
        one.ask("SET a 1").await;
        let refused = one.ask("NOTHING").await;
        assert_eq!(refused, Reply::line("-ERR store 'embedded' has no command 'NOTHING'"));
        let aborted = "-EXECABORT Transaction discarded because of previous errors.";
        assert_eq!(one.ask("EXEC").await, Reply::line(aborted));
        assert_eq!(one.ask("GET a").await, Reply::line("$-1"));
        one.stream.write_all(b"*1\r\n:5\r\n").await.unwrap();
        let said = one.read().await;
        assert!(format!("{said:?}").starts_with("-ERR Protocol error"), "{said:?}");
        assert!(one.is_closed().await);
    });
}

#[test]
fn replies_come_in_order_over_any_pieces() {
    let place = Place::new();
    let host = embedded(&place, "embedded");
    block_on(async {
        let mut one = client(&host);
        // More than one batch, more than the pipe holds, sent while nothing is read.
        let value = "v".repeat(1000);
        let commands: Vec<Vec<String>> = (0..2000)
            .flat_map(|key| {
                let set = vec!["SET".to_owned(), key.to_string(), format!("{key}{value}")];
                let get = vec!["GET".to_owned(), key.to_string()];
                [set, vec!["PING".to_owned()], get, vec!["DBSIZE".to_owned()]]
            })
            .collect();
        let (mut reading, mut writing) = tokio::io::split(host.connect().unwrap());
        let mut sent = Vec::new();
        for command in &commands {
            let words: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
            crate::resp::encode::command(&mut sent, &words);
        }
        let expected: String = (0..2000)
            .map(|key: usize| {
                let text = format!("{key}{value}");
                format!("+OK\r\n+PONG\r\n${}\r\n{text}\r\n:{}\r\n", text.len(), key + 1)
            })
            .collect();
        let mut came = vec![0; expected.len()];
        let write = writing.write_all(&sent);
        let read = tokio::io::AsyncReadExt::read_exact(&mut reading, &mut came);
        let (wrote, read) = futures_join(write, read).await;
        wrote.unwrap();
        read.unwrap();
        assert!(came == expected.as_bytes());
        assert_eq!(one.ask("DBSIZE").await, Reply::line(":2000"));
    });
}

/// Both at once.
async fn futures_join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(move |context| {
        use std::task::Poll;
        if of_a.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(context)
        {
            of_a = Some(value);
        }
        if of_b.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(context)
        {
            of_b = Some(value);
        }
        if of_a.is_some() && of_b.is_some() {
            return Poll::Ready((of_a.take().unwrap(), of_b.take().unwrap()));
        }
        Poll::Pending
    })
    .await
}

#[test]
fn pauses_have_the_share_of_time_that_was_asked_for() {
    let (every, length) = (Duration::from_millis(90), Duration::from_millis(10));
    let begin = Instant::now();
    let mut pausing = Pausing::new(Pauses { every, length, seed: 3 }, begin);
    let asked = 200_000;
    let paused = (0..asked)
        .filter(|&millis| pausing.until(begin + Duration::from_millis(millis)).is_some())
        .count();
    // 10 of 100 ms; 2000 pauses with exponential gaps: 5 standard deviations are 11 %.
    let share = paused as f64 / asked as f64;
    assert!((0.089..0.111).contains(&share), "{share}");
}

#[test]
fn a_paused_store_answers_nobody() {
    let place = Place::new();
    let settings = EmbeddedSettings::at(&place.0.join("paused"));
    let (every, length) = (Duration::from_millis(1), Duration::from_millis(100));
    let host =
        Embedded::start("paused", settings, Some(Pauses { every, length, seed: 1 })).unwrap();
    block_on(async {
        let mut one = client(&host);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let begin = Instant::now();
        for _ in 0..3 {
            one.ask("GET a").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Nearly all of the time is pause, so each question waits for the end of one.
        assert!(begin.elapsed() > Duration::from_millis(150), "{:?}", begin.elapsed());
    });
}
