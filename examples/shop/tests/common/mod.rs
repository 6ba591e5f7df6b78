//! A running shop and a client of a few lines.

#![allow(dead_code, clippy::unwrap_used, reason = "a test fails by panicking; each uses its part")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A shop in a process of its own; killed when the test ends.
pub(crate) struct Shop {
    pub(crate) process: Child,
    pub(crate) address: String,
}

impl Shop {
    pub(crate) fn start(database: &str, more: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_evenkeel-shop"))
            .args(["--database", database])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("first line: {line:?}")).to_owned();
        Self { process, address }
    }

    /// Sends a request and leaves the answer unread.
    pub(crate) fn send(&self, path: &str, headers: &[&str]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let head =
            format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn request(&self, path: &str, headers: &[&str]) -> Answer {
        let mut text = String::new();
        self.send(path, headers).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer { head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) struct Answer {
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value)
    }
}

/// A fresh folder for one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let name = format!("evenkeel-shop-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn database_in(folder: &Path) -> String {
    folder.join("shop.db").to_str().unwrap().to_owned()
}
