//! A script of several connections, at a plain Redis and through the front: every byte is the same.
//!
//! A line is a step. `a: SET k 1` has connection `a` ask and read the answer; `a! BLPOP q 0` only
//! sends; `a?` reads what comes next; `a.` closes. `~2` waits until two clients are blocked. `@b`
//! is the number of connection `b`.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use evenkeel_stores::resp::reply::ReplyScanner;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Redis, encoded};
use evenkeel_testkit::wait::{PATIENCE, block_until};

use super::world::World;

/// A connection whose answers are bytes.
pub struct Raw {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Raw {
    pub fn connect(address: SocketAddr, protocol: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut raw = Self { stream, bytes: Vec::new() };
        if protocol == "3" {
            assert_eq!(raw.ask(&["HELLO", "3"])[0], b'%');
        }
        raw
    }

    pub fn tell(&mut self, words: &[&str]) {
        self.stream.write_all(&encoded(words)).unwrap();
    }

    pub fn ask(&mut self, words: &[&str]) -> Vec<u8> {
        self.tell(words);
        self.read()
    }

    pub fn read(&mut self) -> Vec<u8> {
        let mut scanner = ReplyScanner::default();
        loop {
            if let Some(length) = scanner.scan(&self.bytes).unwrap() {
                return self.bytes.drain(..length).collect();
            }
            let mut some = [0; 4_096];
            match self.stream.read(&mut some) {
                Ok(count @ 1..) => self.bytes.extend_from_slice(&some[..count]),
                ended => panic!("no answer: {ended:?}, {:?}", self.bytes.escape_ascii()),
            }
        }
    }
}

/// Waits until so many clients are blocked.
pub fn blocked(address: SocketAddr, count: usize) {
    let mut client = Client::connect(address);
    let line = format!("blocked_clients:{count}\r\n");
    block_until(&format!("{count} clients are blocked"), || {
        client.ask(&["INFO", "clients"]).text().is_some_and(|info| info.contains(&line))
            || client.ask(&["INFO"]).text().is_some_and(|info| info.contains(&line))
    });
}

/// What a script says at this address; without what differs by chance.
fn transcript(address: SocketAddr, protocol: &str, script: &[&str]) -> Vec<String> {
    let mut clients: BTreeMap<&str, Raw> = BTreeMap::new();
    let (mut said, mut numbers) = (Vec::new(), BTreeMap::new());
    for step in script {
        if let Some(count) = step.strip_prefix('~') {
            blocked(address, count.parse().unwrap());
            continue;
        }
        let (name, rest) = step.split_at(1);
        let (what, words) = rest.split_at(1);
        let words: Vec<&str> = words.split_whitespace().collect();
        for other in words.iter().filter_map(|word| word.strip_prefix('@')) {
            numbers.entry(other).or_insert_with(|| {
                let client = clients.entry(other);
                let client = client.or_insert_with(|| Raw::connect(address, protocol));
                let number = client.ask(&["CLIENT", "ID"]);
                String::from_utf8_lossy(&number[1..]).trim().to_owned()
            });
        }
        let number = |word: &str| word.strip_prefix('@').and_then(|it| numbers.get(it));
        let words: Vec<String> = words
            .iter()
            .map(|word| number(word).map_or((*word).to_owned(), String::clone))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let client = clients.entry(name).or_insert_with(|| Raw::connect(address, protocol));
        let came = match what {
            ":" => client.ask(&words),
            "?" => client.read(),
            "!" => {
                client.tell(&words);
                continue;
            }
            "." => {
                clients.remove(name);
                continue;
            }
            _ => panic!("{step}"),
        };
        let mut came = came.escape_ascii().to_string();
        for (name, number) in &numbers {
            came = came.replace(&format!(":{number}\\r"), &format!(":@{name}\\r"));
        }
        said.push(format!("{step} -> {came}"));
    }
    said
}

/// Runs scripts both ways, for both protocols.
pub fn compare(world: &World, scripts: &[&[&str]]) {
    ["2", "3"].iter().for_each(|protocol| compare_in(world, protocol, scripts));
}

/// Runs scripts both ways, for one protocol.
pub fn compare_in(world: &World, protocol: &str, scripts: &[&[&str]]) {
    let folder = Folder::new("beside");
    let plain = Redis::new(folder.file("plain"));
    for (number, script) in scripts.iter().enumerate() {
        plain.client().ask(&["FLUSHALL"]);
        // Keys of one script are of no other one, which is run with the other protocol too.
        let marked: Vec<String> = script
            .iter()
            .map(|step| step.replace('%', &format!("{{{number}.{protocol}}}")))
            .collect();
        let marked: Vec<&str> = marked.iter().map(String::as_str).collect();
        let theirs = transcript(plain.address, protocol, &marked);
        let ours = transcript(world.address, protocol, &marked);
        assert_eq!(ours, theirs, "script {number}, RESP{protocol}");
    }
}

/// Until when a state is to come.
pub const SOON: Duration = Duration::from_secs(20);
