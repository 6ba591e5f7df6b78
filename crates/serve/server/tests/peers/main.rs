//! What clients and replicas get to know of each other through both engines of HTTP/1.1, HAProxy
//! and nginx: each message of the corpus goes through all of them.
//!
//! Each difference between the engine `native` and another one is in `differences.txt`, with its
//! reason. Two rules have no exceptions there: through `native` the origin gets no request that it
//! gets through neither HAProxy nor nginx, and a client no whole answer that it gets through
//! neither.
//!
//! With what each of them did: `PEERS_SHOW=NAME cargo test -p evenkeel-server --test peers --
//! --nocapture`, where NAME is a part of names.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod changed;
mod differences;
mod message;
mod origin;
mod subjects;

use std::io::{ErrorKind, Read as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use differences::Observed;
use evenkeel_testkit::corpus::{self, Case};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::wait::PATIENCE;
use message::{Kind, Reader};
use origin::{Origin, write_case};
use subjects::Subject;

/// Cases that run side by side: those that a server waits for take a second.
const LANES: usize = 8;
/// When a client gives up, and writes nothing more, because nothing comes.
const QUIET: Duration = Duration::from_secs(1);
/// Behind each case: whether it is answered tells whether the connection is still good.
const SENTINEL: &[u8] = b"GET /sentinel HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[test]
fn no_request_of_a_client_is_read_in_another_way_without_a_reason() {
    let cases = corpus::read(corpus::REQUESTS);
    let observed = Subjects::start("requests", LANES).run(&cases, ask);
    differences::judge("requests", &cases, &observed);
}

#[test]
fn no_answer_of_a_replica_is_read_in_another_way_without_a_reason() {
    let cases = corpus::read(corpus::RESPONSES);
    let observed = Subjects::start("responses", LANES).run(&cases, be_answered);
    differences::judge("responses", &cases, &observed);
}

/// Requests of the corpus, changed at random: only the rules without exceptions are looked at.
#[test]
#[ignore = "minutes: PEERS_ROUNDS=50 PEERS_SEED=1 cargo test -p evenkeel-server --test peers -- \
            --ignored --nocapture"]
fn no_changed_request_is_passed_on_where_no_other_does_so() {
    let number = |name: &str, otherwise| {
        std::env::var(name).map_or(otherwise, |text| text.parse::<u64>().expect(name))
    };
    let (rounds, seed) = (number("PEERS_ROUNDS", 5), number("PEERS_SEED", 1));
    let subjects = Subjects::start("changed", 32);
    let corpus = corpus::read(corpus::REQUESTS);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for round in 0..rounds {
        let cases = changed::all(&corpus, seed + round);
        count += cases.len();
        wrong.extend(differences::broken_rules("requests", &cases, &subjects.run(&cases, ask)));
    }
    println!("{count} requests from seed {seed}, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

type Run = fn(&Case, SocketAddr, &Origin) -> Observed;

/// Sends a case as a client does.
fn ask(case: &Case, address: SocketAddr, origin: &Origin) -> Observed {
    origin.begin(Case::default());
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    write_case(&stream, case, if case.closes { &[] } else { SENTINEL });
    observe(&stream, origin)
}

/// Asks for what is answered with a case.
fn be_answered(case: &Case, address: SocketAddr, origin: &Origin) -> Observed {
    origin.begin(case.clone());
    let method = if case.head { "HEAD" } else { "GET" };
    let ask = format!("{method} /case HTTP/1.1\r\nhost: a\r\n\r\n");
    let request = Case { pieces: vec![ask.into_bytes()], ..Case::default() };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    write_case(&stream, &request, SENTINEL);
    observe(&stream, origin)
}

/// All that are compared, `native` first.
struct Subjects {
    all: Vec<Subject>,
    _folder: Folder,
}

impl Subjects {
    fn start(name: &str, lanes: usize) -> Self {
        let folder = Folder::new(&format!("peers-{name}"));
        let mut all = vec![subjects::evenkeel("native", lanes), subjects::evenkeel("hyper", lanes)];
        all.extend(subjects::haproxy(&folder, lanes));
        all.extend(subjects::nginx(&folder, lanes));
        Self { all, _folder: folder }
    }

    /// What came of each case through each of them.
    fn run(&self, cases: &[Case], run: Run) -> Vec<(&'static str, Vec<Observed>)> {
        std::thread::scope(|scope| {
            let running = self
                .all
                .iter()
                .map(|subject| (subject.name, scope.spawn(move || run_all(subject, cases, run))));
            let running: Vec<_> = running.collect();
            running.into_iter().map(|(name, thread)| (name, thread.join().unwrap())).collect()
        })
    }
}

/// Each case, by one of the lanes.
fn run_all(subject: &Subject, cases: &[Case], run: Run) -> Vec<Observed> {
    let mut all: Vec<(usize, Observed)> = std::thread::scope(|scope| {
        let lanes = subject.lanes.iter().enumerate().map(|(number, (address, origin))| {
            scope.spawn(move || {
                let of_lane = cases.iter().enumerate().skip(number).step_by(subject.lanes.len());
                of_lane.map(|(at, case)| (at, run(case, *address, origin))).collect::<Vec<_>>()
            })
        });
        let lanes: Vec<_> = lanes.collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    all.sort_by_key(|one| one.0);
    all.into_iter().map(|one| one.1).collect()
}

/// What a client is answered up to the end of its connection, and what the origin was told.
fn observe(mut stream: &TcpStream, origin: &Origin) -> Observed {
    let mut read = Vec::new();
    stream.set_read_timeout(Some(QUIET)).unwrap();
    let mut waited = false;
    let mut buffer = [0; 16 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => read.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock && !waited => {
                waited = true;
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let _ = stream.shutdown(Shutdown::Write);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it never ends"),
            Err(_) => break, // a reset is an end
        }
    }
    let told = origin.told();
    let mut reader = Reader::new((), read);
    let mut answers = Vec::new();
    let mut finals = 0;
    loop {
        let is_head = told.get(finals).is_some_and(|request| request.word(0) == "HEAD");
        let kind = if is_head { Kind::ResponseToHead } else { Kind::Response };
        let Some(answer) = reader.message(kind) else { break };
        finals += usize::from(!answer.word(1).starts_with('1') || answer.word(1) == "101");
        answers.push(answer);
    }
    let rest = reader.rest().len();
    Observed { told, answers, rest, waited }
}
