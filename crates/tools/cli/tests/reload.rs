//! `evenkeel run` that is told by SIGHUP to read its file again.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStderr, Command, Stdio};

use common::PROGRAM;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::story::nobody;

/// A running program and what it says.
struct Running {
    child: Child,
    says: BufReader<ChildStderr>,
}

impl Running {
    fn start(file: &std::path::Path) -> Self {
        let mut command = Command::new(PROGRAM);
        let mut child = command.arg("run").arg(file).stderr(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stderr.take().unwrap());
        Self { child, says }
    }

    /// Reads what it says until a line has these words.
    fn until(&mut self, words: &str) -> String {
        let mut said = String::new();
        loop {
            let before = said.len();
            assert_ne!(self.says.read_line(&mut said).unwrap(), 0, "no {words:?} in\n{said}");
            if said[before..].contains(words) {
                return said;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A replica that answers every connection once, for as long as the test runs.
fn replica() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    address
}

#[test]
fn a_signal_makes_it_read_its_file_again_and_a_wrong_file_changes_nothing() {
    let (folder, replica) = (Folder::new("reload"), replica());
    let door = nobody();
    let file = folder.file("run.toml");
    let write = |policy: &str, workers: usize| {
        let text = format!(
            "[process]\nworkers = {workers}\n[[listen]]\naddress = '{door}'\nupstream = 'web'\n\
             [upstream.web]\npolicy = '{policy}'\nreplicas = ['{replica}']\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    write("c3", 1);
    let mut running = Running::start(&file);
    running.until("SIGHUP reloads");
    write("round-robin", 1);
    running.signal("HUP");
    running.until("reloaded: configuration 2; changed: upstream.web.policy");
    write("round-robbin", 1);
    running.signal("HUP");
    running.until("not reloaded, nothing changed");
    let said = running.until("upstream.web.policy");
    assert!(said.contains("run.toml:7:10") && said.contains("round-robin"), "{said}");
    write("round-robin", 2);
    running.signal("HUP");
    running.until("process.workers has changed, and only a restart changes it");
    assert!(http::get(door, "/").starts_with("HTTP/1.1 200"), "it serves all the time");
    running.signal("TERM");
    running.until("stopping");
    assert!(running.child.wait().unwrap().success());
}
