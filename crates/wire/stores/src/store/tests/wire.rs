//! A client for tests: commands in words, replies as trees.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::resp::encode;

/// A reply.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reply {
    /// A simple line, with what it begins with.
    Line(Vec<u8>),
    Bulk(Vec<u8>),
    /// An array, set or map, with what it begins with.
    Many(u8, Vec<Reply>),
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Line(line) => write!(formatter, "{}", String::from_utf8_lossy(line)),
            Self::Bulk(bulk) => write!(formatter, "{:?}", String::from_utf8_lossy(bulk)),
            Self::Many(tag, many) => write!(formatter, "{}{many:?}", char::from(*tag)),
        }
    }
}

impl Reply {
    /// Without an order where Redis promises none; of pairs, the pairs are kept.
    pub(crate) fn sorted(self, are_pairs: bool) -> Self {
        let Self::Many(tag, mut many) = self else { return self };
        if are_pairs {
            let mut pairs: Vec<_> = many.chunks(2).map(<[Self]>::to_vec).collect();
            pairs.sort();
            return Self::Many(tag, pairs.concat());
        }
        many.sort();
        Self::Many(tag, many)
    }

    pub(crate) fn line(text: &str) -> Self {
        Self::Line(text.as_bytes().to_vec())
    }

    pub(crate) fn bulk(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }
}

pub(crate) struct Client<T> {
    pub(crate) stream: T,
    bytes: Vec<u8>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Client<T> {
    pub(crate) fn new(stream: T) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// One command, its words separated by spaces.
    pub(crate) async fn ask(&mut self, words: &str) -> Reply {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        self.ask_all(&[&words]).await.remove(0)
    }

    /// Sends all at once and reads as many replies.
    pub(crate) async fn ask_all<C: AsRef<[A]>, A: AsRef<[u8]>>(
        &mut self,
        commands: &[C],
    ) -> Vec<Reply> {
        let mut sent = Vec::new();
        for command in commands {
            let words: Vec<&[u8]> = command.as_ref().iter().map(AsRef::as_ref).collect();
            encode::command(&mut sent, &words);
        }
        self.stream.write_all(&sent).await.unwrap();
        let mut replies = Vec::new();
        for _ in commands {
            replies.push(self.read().await);
        }
        replies
    }

    pub(crate) async fn read(&mut self) -> Reply {
        loop {
            if let Some((reply, rest)) = parse(&self.bytes) {
                self.bytes = rest.to_vec();
                return reply;
            }
            let read = self.stream.read_buf(&mut self.bytes).await.unwrap();
            assert!(read > 0, "closed within {:?}", String::from_utf8_lossy(&self.bytes));
        }
    }

    /// Whether the other side has closed it.
    pub(crate) async fn is_closed(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.bytes).await, Ok(0) | Err(_))
    }
}

fn parse(bytes: &[u8]) -> Option<(Reply, &[u8])> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
    let number = || str::from_utf8(&line[1..]).unwrap().parse::<i64>().unwrap();
    match line[0] {
        b'$' if number() >= 0 => {
            let length = usize::try_from(number()).unwrap();
            let rest_of = rest.get(length + 2..)?;
            Some((Reply::Bulk(rest[..length].to_vec()), rest_of))
        }
        tag @ (b'*' | b'~' | b'%') if number() >= 0 => {
            let count = number() * if tag == b'%' { 2 } else { 1 };
            let (mut many, mut rest) = (Vec::new(), rest);
            for _ in 0..count {
                let (one, behind) = parse(rest)?;
                many.push(one);
                rest = behind;
            }
            Some((Reply::Many(tag, many), rest))
        }
        _ => Some((Reply::Line(line.to_vec()), rest)),
    }
}
