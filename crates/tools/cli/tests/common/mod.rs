//! What tests of the program share: the program.

#![allow(dead_code, clippy::unwrap_used, reason = "each test takes what it needs, and may fail")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_evenkeel");

/// The program with these arguments, to its end.
pub(crate) fn evenkeel(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

/// What was said in an output.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A running program and what it says.
pub(crate) struct Running {
    pub(crate) child: Child,
    says: BufReader<ChildStderr>,
}

impl Running {
    pub(crate) fn start(file: &std::path::Path) -> Self {
        Self::start_by(Command::new(PROGRAM).arg("run").arg(file))
    }

    pub(crate) fn start_by(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stderr.take().unwrap());
        Self { child, says }
    }

    /// Reads what it says until a line has these words.
    pub(crate) fn until(&mut self, words: &str) -> String {
        let mut said = String::new();
        loop {
            let before = said.len();
            assert_ne!(self.says.read_line(&mut said).unwrap(), 0, "no {words:?} in\n{said}");
            if said[before..].contains(words) {
                return said;
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
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
pub(crate) fn replica() -> SocketAddr {
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
