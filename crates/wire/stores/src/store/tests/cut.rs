//! Batches of which a store takes only a part: the watermark counts nothing that is not there.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_testkit::wait::PATIENCE;
use tokio::io::AsyncWriteExt as _;

use super::super::Host;
use super::super::memcached::Memcached;
use super::super::zookeeper::{ZooKeeper, ZooKeeperSettings};
use super::whole::{block_on, client, memcached};
use super::wire::Reply;
use crate::resp::encode;

const WATERMARK: &str = "evenkeel:watermark";

/// In front of a server: after so many bytes of requests it takes no more, as if their sender had
/// been killed.
struct Cut {
    address: String,
    left: Arc<AtomicUsize>,
}

impl Cut {
    fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let (server, limit) = (server.to_owned(), Arc::clone(&left));
        std::thread::spawn(move || {
            for coming in listener.incoming().map_while(Result::ok) {
                if limit.load(Relaxed) == 0 {
                    return; // it stays dead
                }
                let mut going = TcpStream::connect(&server).unwrap();
                let (mut from, mut to) = (going.try_clone().unwrap(), coming.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let limit = Arc::clone(&limit);
                std::thread::spawn(move || forward(coming, &mut going, &limit));
            }
        });
        Self { address, left }
    }

    fn after(&self, bytes: usize) {
        self.left.store(bytes, Relaxed);
    }
}

fn forward(mut from: TcpStream, to: &mut TcpStream, limit: &AtomicUsize) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(came @ 1..) = from.read(&mut bytes) {
        // Before they are sent on: a limit that is set once they were answered stays.
        let taken = limit.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(came)));
        let left = taken.unwrap();
        to.write_all(&bytes[..came.min(left)]).unwrap();
        if came >= left {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Both);
}

/// `SET key value` of all of them and the watermark, sent at once to a store that fails.
async fn fails_with(host: &Host, keys: &[String], value: &[u8], watermark: &str) {
    let mut failing = client(host);
    let mut sent = Vec::new();
    encode::command(&mut sent, &[b"MULTI"]);
    for key in keys {
        encode::command(&mut sent, &[b"SET", key.as_bytes(), value]);
    }
    encode::command(&mut sent, &[b"SET", WATERMARK.as_bytes(), watermark.as_bytes()]);
    encode::command(&mut sent, &[b"EXEC"]);
    failing.stream.write_all(&sent).await.unwrap();
    let closed = async { while !failing.is_closed().await {} };
    tokio::time::timeout(PATIENCE, closed).await.expect("a store that was cut off fails");
}

async fn set_watermark(host: &Host, text: &str) {
    let set = client(host).ask_all(&[["SET", WATERMARK, text]]).await;
    assert_eq!(set, [Reply::line("+OK")]);
}

async fn watermark(host: &Host) -> Reply {
    client(host).ask("GET evenkeel:watermark").await
}

/// Items of this size until no more is taken.
fn fill(address: &str, size: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    for round in 0.. {
        let mut sent = Vec::new();
        for item in 0..100 {
            let head = format!("ms fill{size:05}{:09} {size}\r\n", round * 100 + item);
            sent.extend_from_slice(head.as_bytes());
            sent.resize(sent.len() + size, b'x');
            sent.extend_from_slice(b"\r\n");
        }
        sent.extend_from_slice(b"mn\r\n");
        stream.write_all(&sent).unwrap();
        let mut answers = Vec::new();
        while !answers.ends_with(b"MN\r\n") {
            let mut some = [0; 4096];
            let came = stream.read(&mut some).unwrap();
            assert_ne!(came, 0);
            answers.extend_from_slice(&some[..came]);
        }
        if answers.starts_with(b"SERVER_ERROR out of memory") {
            return;
        }
    }
}

#[test]
fn a_memcached_that_is_full_does_not_count_what_it_refused() {
    let Some((_server, address)) = memcached("8") else { return };
    let address = address.to_string();
    let host = Memcached::start("full", &address, None).unwrap();
    block_on(async {
        set_watermark(&host, "3 7").await;
        fill(&address, 8000);
        // It sorts behind the watermark, and is refused.
        fails_with(&host, &["user:2".to_owned()], &[b'y'; 8000], "3 8").await;
        assert_eq!(client(&host).ask("EXISTS user:2").await, Reply::line(":0"));
        assert_eq!(watermark(&host).await, Reply::bulk("0 8"), "nobody's: filled anew");
        // As the next process finds it.
        let next = Memcached::start("next", &address, None).unwrap();
        assert_eq!(watermark(&next).await, Reply::bulk("0 8"));
        // Before any write nothing can be told.
        set_watermark(&host, "0 0").await;
        assert_eq!(watermark(&host).await, Reply::bulk("0 0"));
        let keys: Vec<_> = (0..65).map(|key| format!("user:{key}")).collect();
        fails_with(&host, &keys, &[b'y'; 8000], "3 9").await;
        assert_eq!(watermark(&host).await, Reply::bulk("filling"));
        // One that is whole again says so.
        assert_eq!(client(&host).ask("FLUSHALL").await, Reply::line("+OK"));
        set_watermark(&host, "4 1").await;
        assert_eq!(watermark(&host).await, Reply::bulk("4 1"));
    });
}

#[test]
fn a_memcached_that_refuses_its_watermark_says_that_it_is_being_filled() {
    let Some((_server, address)) = memcached("8") else { return };
    let address = address.to_string();
    let host = Memcached::start("full", &address, None).unwrap();
    block_on(async {
        set_watermark(&host, "3 7").await;
        for size in [8000, 3] {
            fill(&address, size);
        }
        // memcached drops the value before, too: without one it would be a stranger.
        fails_with(&host, &[], b"", "3 8").await;
        assert_eq!(watermark(&host).await, Reply::bulk("filling"));
    });
}

#[test]
fn a_memcached_that_got_half_a_batch_is_in_doubt() {
    let Some((_server, address)) = memcached("64") else { return };
    let address = address.to_string();
    let cut = Cut::before(&address);
    let host = Memcached::start("cut", &cut.address, None).unwrap();
    block_on(async {
        set_watermark(&host, "3 7").await;
        cut.after(50_000);
        let keys: Vec<_> = (0..500).map(|key| format!("user:{key}")).collect();
        fails_with(&host, &keys, &[b'y'; 300], "3 8").await;
        let next = Memcached::start("next", &address, None).unwrap();
        let Reply::Line(size) = client(&next).ask("DBSIZE").await else { panic!("no number") };
        let size: usize = str::from_utf8(&size[1..]).unwrap().parse().unwrap();
        assert!((2..=200).contains(&size), "a part of it: {size}");
        assert_eq!(watermark(&next).await, Reply::bulk("0 7"));
    });
}

/// A batch that is too long for one message, and is cut between two.
pub(super) async fn the_watermark_comes_last_in_zookeeper(server: &str) {
    let cut = Cut::before(server);
    let open = |address: &str| {
        let settings =
            ZooKeeperSettings { servers: vec![address.to_owned()], root: "/cut".to_owned() };
        ZooKeeper::start("cut", settings, None).unwrap()
    };
    let host = open(&cut.address);
    set_watermark(&host, "3 7").await;
    cut.after(600_000);
    let keys = ["user:a", "user:b"].map(str::to_owned);
    fails_with(&host, &keys, &[b'y'; 400_000], "3 8").await;
    let next = open(server);
    assert_eq!(client(&next).ask("EXISTS user:a user:b").await, Reply::line(":1"));
    assert_eq!(watermark(&next).await, Reply::bulk("3 7"));
}
