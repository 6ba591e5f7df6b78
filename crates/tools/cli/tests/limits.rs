//! `evenkeel run` where files are short or another process is there already.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{PROGRAM, Running, replica, text};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::block_until;

/// A proxy's file, and where it listens.
struct Proxy {
    folder: Folder,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Proxy {
    fn new(name: &str) -> Self {
        Self { folder: Folder::new(name), listen: nobody(), admin: nobody() }
    }

    /// A configuration of two workers.
    fn file(&self, name: &str, replica: SocketAddr, more: &str) -> PathBuf {
        let Self { listen, .. } = self;
        let file = self.folder.file(name);
        let text = format!(
            "[process]\nworkers = 2\n[[listen]]\naddress = '{listen}'\nupstream = 'web'\n\
             [upstream.web]\nreplicas = ['{replica}']\n{more}"
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    fn with_admin(&self) -> String {
        format!("[admin]\naddress = '{}'\n", self.admin)
    }
}

/// The program within these limits of open files.
fn within(soft: u32, hard: u32, file: &Path) -> Running {
    let limits = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" run \"$1\"");
    Running::start_by(Command::new("sh").arg("-c").arg(limits).arg(PROGRAM).arg(file))
}

/// A client that was answered once and stays.
fn kept(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    ask(&mut stream);
    stream
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: web\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "closed after {answer:?}");
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", text(&answer));
}

#[test]
fn the_soft_limit_of_open_files_is_no_limit_of_clients() {
    let proxy = Proxy::new("soft-limit");
    let file = proxy.file("run.toml", replica(), "");
    let mut running = within(100, 2_000, &file);
    let said = running.until("SIGHUP reloads");
    let raised = "limit of open files: 2000 (raised from 100 to the hard limit)";
    assert!(said.contains(raised), "{said}");
    let numbers = "warning: limit of open files: got 2000, expected at least 22268: the \
                   configuration allows 20000 connections of clients and 2048 to replicas";
    assert!(said.contains(numbers), "{said}");
    let clients: Vec<TcpStream> = (0..300).map(|_| kept(proxy.listen)).collect();
    assert_eq!(clients.len(), 300);
}

#[test]
fn idle_clients_take_no_files_from_replicas_and_administration() {
    let proxy = Proxy::new("reserve");
    let file = proxy.file("run.toml", replica(), &proxy.with_admin());
    let mut running = within(300, 300, &file);
    running.until("SIGHUP reloads");
    // 300 files, of which the process has 208 for itself; replicas and clients share the rest.
    let mut first = kept(proxy.listen);
    let idle: Vec<TcpStream> =
        (0..400).map(|_| TcpStream::connect(proxy.listen).unwrap()).collect();
    running.until("clients wait: the limit of open files leaves no more places for them");
    for _ in 0..20 {
        ask(&mut first);
    }
    let metrics = http::get(proxy.admin, "/metrics");
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}"))[name.len() + 1..].to_owned()
    };
    assert_eq!(value("evenkeel_open_files_max"), "300");
    assert_eq!(value("evenkeel_clients_max"), "46");
    let clients: u64 = value("evenkeel_clients").parse().unwrap();
    assert!((46..=48).contains(&clients), "{clients}: one more for each listener at most");
    assert_ne!(value("evenkeel_accept_pauses_total"), "0");
    assert!(metrics.contains("evenkeel_accept_errors_total{reason=\"process_files\"} 0"));
    drop(idle);
    block_until("there are places again", || {
        http::try_get(proxy.listen, "/").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
}

#[test]
fn a_second_process_does_not_take_clients_in_silence() {
    for with_admin in [false, true] {
        let proxy = Proxy::new(if with_admin { "second-admin" } else { "second" });
        let more = if with_admin { proxy.with_admin() } else { String::new() };
        let file = proxy.file("run.toml", replica(), &more);
        let mut running = Running::start(&file);
        running.until("SIGHUP reloads");
        // The other one has another replica, where nobody is: half of the requests would fail.
        let other = proxy.file("other.toml", nobody(), "");
        let said = Running::start(&other).until(&proxy.listen.to_string());
        assert!(said.contains(&format!("cannot listen on {}: ", proxy.listen)), "{said}");
        assert!(said.contains("another process listens there"), "{said}");
        assert!(said.contains("evenkeel run --take-over"), "{said}");
        for _ in 0..20 {
            assert!(http::get(proxy.listen, "/").starts_with("HTTP/1.1 200"));
        }
        if with_admin {
            let listen = nobody();
            let alone = format!(
                "[[listen]]\naddress = '{listen}'\nupstream = 'web'\n\
                 [upstream.web]\nreplicas = ['{}']\n{more}",
                nobody()
            );
            std::fs::write(&other, alone).unwrap();
            let said = Running::start(&other).until(&proxy.admin.to_string());
            assert!(said.contains(&format!("cannot listen on {}: ", proxy.admin)), "{said}");
        }
    }
}
