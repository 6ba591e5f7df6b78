//! A client that knows nothing of Evenkeel: RESP2 over a socket, one thing after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Self>),
}

pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Reads what comes, beside whoever goes on sending.
    pub fn reader(&self) -> Self {
        Self { stream: BufReader::new(self.stream.get_ref().try_clone().unwrap()) }
    }

    pub fn ask(&mut self, command: &[&str]) -> Reply {
        self.tell(command);
        self.read()
    }

    pub fn tell(&mut self, command: &[&str]) {
        let mut bytes = format!("*{}\r\n", command.len());
        for part in command {
            bytes.push_str(&format!("${}\r\n{part}\r\n", part.len()));
        }
        self.send(bytes.as_bytes());
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends the same again and again until the other side takes no more; bytes that were taken.
    pub fn send_until_blocked(&mut self, bytes: &[u8], patience: Duration) -> usize {
        let stream = self.stream.get_mut();
        stream.set_write_timeout(Some(patience)).unwrap();
        let (begun, mut sent) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(10) {
            match stream.write(bytes) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        sent
    }

    pub fn read(&mut self) -> Reply {
        self.try_read().unwrap()
    }

    pub fn try_read(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let (tag, text) = line.trim_end().split_at(1);
        Ok(match tag {
            "+" => Reply::Simple(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Integer(text.parse().unwrap()),
            "$" if text == "-1" => Reply::Null,
            "$" => {
                let mut bytes = vec![0; text.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            "*" if text == "-1" => Reply::Null,
            "*" => {
                let count: usize = text.parse().unwrap();
                let items: std::io::Result<Vec<Reply>> =
                    (0..count).map(|_| self.try_read()).collect();
                Reply::Array(items?)
            }
            _ => panic!("no RESP2: {line:?}"),
        })
    }

    /// What comes until the other side closes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).unwrap();
        bytes
    }
}
