//! A client that knows nothing of Evenkeel: RESP2 over a socket, whose end it survives.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(String),
    Null,
    Array(Vec<Self>),
}

/// What a client knows of what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was answered.
    Done(Reply),
    /// It was refused before anything was sent: it must not happen.
    Refused(String),
    /// It was sent and nobody knew then: a front that lives on must apply it.
    Uncertain,
    /// The connection broke: it may happen, now, later or never.
    Unknown,
}

impl Outcome {
    pub(crate) fn of(reply: io::Result<Reply>) -> Self {
        match reply {
            Err(_) => Self::Unknown,
            Ok(Reply::Error(text)) if text.starts_with("UNCERTAIN") => Self::Uncertain,
            Ok(Reply::Error(text)) if text.starts_with("UNAVAILABLE") => Self::Refused(text),
            Ok(reply) => Self::Done(reply),
        }
    }
}

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn ask(&mut self, command: &[&str]) -> io::Result<Reply> {
        let mut text = String::new();
        encode(&mut text, command);
        self.send(&text)?;
        self.read()
    }

    pub(crate) fn send(&mut self, text: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes())
    }

    pub(crate) fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 || !line.ends_with("\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (tag, text) = line.trim_end().split_at(1);
        Ok(match tag {
            "+" => Reply::Simple(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Integer(text.parse().unwrap()),
            "$" | "*" if text == "-1" => Reply::Null,
            "$" => {
                let mut bytes = vec![0; text.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(String::from_utf8(bytes).unwrap())
            }
            "*" => {
                let count: usize = text.parse().unwrap();
                let items: io::Result<Vec<Reply>> = (0..count).map(|_| self.read()).collect();
                Reply::Array(items?)
            }
            _ => panic!("no RESP2: {line:?}"),
        })
    }
}

/// A command as an array of bulk strings.
pub(crate) fn encode(out: &mut String, command: &[&str]) {
    write!(out, "*{}\r\n", command.len()).unwrap();
    for part in command {
        write!(out, "${}\r\n{part}\r\n", part.len()).unwrap();
    }
}
