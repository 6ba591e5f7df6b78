//! A real Redis server on a socket in a folder of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::redis;

use super::array;
use crate::resp::Protocol;
use crate::resp::reply::ReplyScanner;

/// The server, which ends before its folder goes.
pub(super) struct Server {
    _program: Program,
    socket: PathBuf,
    _folder: Folder,
}

impl Server {
    /// A server with no data; `None` with a visible word when this machine has none.
    pub(super) fn start(options: &[&str]) -> Option<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = Folder::new(&format!("resp-{number}"));
        let options = [&["--enable-debug-command", "yes"], options].concat();
        let (program, socket) = redis::on_socket(folder.path(), &options)?;
        Some(Self { _program: program, socket, _folder: folder })
    }

    pub(super) fn connect(&self, protocol: Protocol) -> Connection {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut connection = Connection { stream, bytes: Vec::new() };
        if protocol == Protocol::Resp3 {
            assert_eq!(connection.ask(&["HELLO", "3"])[0], b'%');
        }
        connection
    }
}

/// A connection that asks and waits.
pub(super) struct Connection {
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Connection {
    /// The whole reply to one command.
    pub(super) fn ask<T: AsRef<[u8]>>(&mut self, arguments: &[T]) -> Vec<u8> {
        self.send(&array(arguments));
        self.reply().unwrap()
    }

    /// The replies to several commands at once.
    pub(super) fn ask_all(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| array(command)).collect();
        self.send(&bytes);
        commands.iter().map(|_| self.reply().unwrap()).collect()
    }

    /// Does these lines, one command each, none of which may fail.
    pub(super) fn prepare(&mut self, lines: &[&str]) {
        for line in lines {
            let reply = self.ask(&super::words(line));
            assert_ne!(reply[0], b'-', "{line}: {}", String::from_utf8_lossy(&reply));
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next whole reply; `None` when the server has closed.
    pub(super) fn reply(&mut self) -> Option<Vec<u8>> {
        let mut scanner = ReplyScanner::default();
        loop {
            if let Some(length) = scanner.scan(&self.bytes).unwrap() {
                return Some(self.bytes.drain(..length).collect());
            }
            let mut came = [0; 65_536];
            let count = self.stream.read(&mut came).ok().filter(|&count| count > 0)?;
            self.bytes.extend(&came[..count]);
        }
    }
}
