//! memcached as a duplicate: strings without expiry, over its text protocol (1.6, meta commands).
//!
//! **What it cannot do.** It forgets everything when it ends, the watermark too, which is an item
//! as any other: one that comes back is filled anew. It evicts when its memory is full (start it
//! with `-M`, which makes it refuse instead, or with enough). It has no fencing either: that
//! another process writes to it is not noticed, except through the keys that are kept about it.
//!
//! **Half a batch.** Several items are not stored as a whole: one may be refused for want of memory
//! while those beside it are stored, and it lives on when we end in the middle. So the watermark
//! comes last, what is said before it calls the present one stale (`md … I`: no memory is needed),
//! and it is called stale again when not all was stored. A stale one is not told as it is: it is
//! told with epoch 0, in which nobody has written. Whoever has the log then has the duplicate
//! filled anew; who has not may still choose it, if there is none better.
//!
//! Keys of printable characters are memcached's own, so that other clients find them; others are
//! sent as base64, which memcached takes as the bytes they mean.
//!
//! Source: `doc/protocol.txt` of memcached 1.6.18.

use std::io;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use evenkeel_runtime::dial::tcp;
use evenkeel_settings::address::ServerAddress;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::codec::decode_percent;
use super::keys::{RESERVED, WATERMARK};
use super::{Abilities, Change, Entry, Host, Page, Pauses, Store, Value};

/// How long a server that is there may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests that are sent before their answers are read; both fit into buffers of the system.
const AT_ONCE: usize = 64;
/// An answer's first line is shorter; so is a line of a listing, whose keys may be three times as
/// long as they are.
const LINE_BYTES_MAX: u64 = 4 << 10;
/// The bytes whose base64 is not longer than a key may be (250).
const KEY_BYTES_MAX: usize = 186;
/// Of an item's size, more than what is kept beside its value.
const BESIDE_BYTES: usize = 1 << 10;
/// The watermark stays, but says from now on that it is stale.
const STALE: &[u8] = b"md evenkeel:watermark I\r\n";
/// A watermark that says that not all is there.
const FILLING: &[u8] = b"filling";
/// How often a listing is asked for while another one runs, and the time between.
const BUSY_MAX: usize = 100;
const BUSY: Duration = Duration::from_millis(20);

/// A connection to one memcached.
#[derive(Debug)]
pub struct Memcached {
    address: String,
    connection: Option<BufReader<TcpStream>>,
    item_bytes_max: usize,
    /// The keys of the listing that began last, in order.
    listed: Vec<Vec<u8>>,
    /// Not all was stored that its watermark may count: it is called stale before anything else.
    is_in_doubt: bool,
}

impl Memcached {
    /// Connects to `host:port`.
    ///
    /// # Errors
    /// When nobody answers there, or not as memcached.
    pub async fn open(address: &str) -> io::Result<Self> {
        let mut store = Self {
            address: address.to_owned(),
            connection: None,
            item_bytes_max: 0,
            listed: Vec::new(),
            is_in_doubt: false,
        };
        let settings = store.statistics(b"stats settings\r\n", "item_size_max").await?;
        store.item_bytes_max = usize::try_from(settings).unwrap_or(usize::MAX);
        Ok(store)
    }

    /// Connects in a thread of its own.
    ///
    /// # Errors
    /// As [`Memcached::open`].
    pub fn start(name: &str, address: &str, pauses: Option<Pauses>) -> io::Result<Host> {
        let address = address.to_owned();
        Host::start(name, pauses, async move || Self::open(&address).await)
    }

    /// Sends and hands over what reads the answer; after an error nothing is sent on this
    /// connection any more.
    async fn ask<T>(
        &mut self,
        request: &[u8],
        read: impl AsyncFnOnce(&mut BufReader<TcpStream>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        if self.is_in_doubt {
            let doubted = timeout(PATIENCE, call_stale(&mut connection)).await;
            doubted.map_err(late).and_then(|done| done).map_err(|error| self.named(&error))?;
            self.is_in_doubt = false;
        }
        let asked = timeout(PATIENCE, async {
            connection.get_mut().write_all(request).await?;
            read(&mut connection).await
        });
        match asked.await.map_err(late).and_then(|answer| answer) {
            Ok(answer) => {
                self.connection = Some(connection);
                Ok(answer)
            }
            Err(error) => Err(self.named(&error)),
        }
    }

    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("memcached {}: {error}", self.address))
    }

    async fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let address = &self.address;
        let failed = |error: io::Error| {
            let words = format!("memcached {address}: {error} (is it running?)");
            io::Error::new(error.kind(), words)
        };
        let server = ServerAddress::parse(address).map_err(io::Error::other).map_err(failed)?;
        Ok(BufReader::new(tcp(server).await.map_err(failed)?))
    }

    /// One number of its statistics.
    async fn statistics(&mut self, request: &[u8], name: &str) -> io::Result<u64> {
        let line = format!("STAT {name} ");
        self.ask(request, async |answer| {
            let mut value = None;
            loop {
                let came = read_line(answer).await?;
                if let Some(number) = came.strip_prefix(line.as_bytes()) {
                    value = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
                } else if came == b"END" {
                    let words = format!("its statistics have no number {name}");
                    return value.ok_or_else(|| io::Error::other(words));
                } else if !came.starts_with(b"STAT ") {
                    return Err(unexpected(&came, "its statistics"));
                }
            }
        })
        .await
    }

    /// All keys, in order. Walking the hash table, unlike walking the LRU lists, does not pass by
    /// what moves in them.
    async fn keys(&mut self) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..BUSY_MAX {
            let listed = self.ask(b"lru_crawler metadump hash\r\n", async |answer| {
                let mut keys = Vec::new();
                loop {
                    let line = read_line(answer).await?;
                    let key =
                        line.strip_prefix(b"key=").and_then(|rest| rest.split(is_space).next());
                    match key.map(decode_percent) {
                        Some(Some(key)) => keys.push(key),
                        None if line == b"END" => return Ok(Some(keys)),
                        None if line.starts_with(b"BUSY") => return Ok(None),
                        _ => return Err(unexpected(&line, "a line of its keys")),
                    }
                }
            });
            if let Some(mut keys) = listed.await? {
                keys.sort_unstable();
                keys.dedup();
                return Ok(keys);
            }
            tokio::time::sleep(BUSY).await;
        }
        let words =
            format!("memcached {}: somebody else lists its keys all the time", self.address);
        Err(io::Error::other(words))
    }
}

impl Store for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            has_collections: false,
            has_expiry: false,
            key_bytes_min: 1,
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: self.item_bytes_max.saturating_sub(BESIDE_BYTES),
            change_bytes_max: 16 << 20,
        }
    }

    async fn load(&mut self, keys: &[&[u8]]) -> io::Result<Vec<Option<Entry>>> {
        let mut entries = Vec::with_capacity(keys.len());
        for some in keys.chunks(AT_ONCE) {
            let mut request = Vec::new();
            for key in some {
                request.extend_from_slice(b"mg ");
                write_key(&mut request, key, " v");
            }
            let most = self.item_bytes_max;
            let loaded = self.ask(&request, async |answer| {
                let mut loaded = Vec::with_capacity(some.len());
                for &key in some {
                    let item = read_item(answer, most).await?;
                    loaded.push(item.map(|(text, is_stale)| {
                        let is_doubtful = is_stale && key == WATERMARK;
                        let text = if is_doubtful { doubtful(&text) } else { text };
                        Entry { value: Value::Text(text), expires_ms: None }
                    }));
                }
                Ok(loaded)
            });
            entries.extend(loaded.await?);
        }
        Ok(entries)
    }

    async fn store(&mut self, changes: &[Change]) -> io::Result<()> {
        let (own, others): (Vec<_>, Vec<_>) =
            changes.iter().partition(|(key, _)| key.starts_with(RESERVED));
        let has_mark = own.iter().any(|(key, _)| key == WATERMARK);
        // Without a new watermark nothing is counted: what has part of it gets all of it again.
        let mut stale = if has_mark && !others.is_empty() { STALE } else { b"" };
        let at_once: Vec<_> = if changes.len() <= AT_ONCE {
            vec![[others, own].concat()]
        } else {
            others.chunks(AT_ONCE).chain(own.chunks(AT_ONCE)).map(<[_]>::to_vec).collect()
        };
        for some in at_once {
            let mut request = std::mem::take(&mut stale).to_vec();
            let answers = some.len() + usize::from(!request.is_empty());
            for (key, entry) in &some {
                write_change(&mut request, key, entry.as_ref());
            }
            let stored = self.ask(&request, async |answer| {
                for _ in 0..answers {
                    expect_done(answer).await?;
                }
                Ok(())
            });
            if let Err(error) = stored.await {
                self.is_in_doubt |= has_mark;
                // At once, since we may end; if it is not reached, before the next that is asked.
                let _ = self.ask(b"", async |_| Ok(())).await;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn list(&mut self, after: Option<&[u8]>, count: usize) -> io::Result<Page> {
        // A listing in the middle goes on in the newer of two, which is as good.
        if after.is_none() {
            self.listed = self.keys().await?;
        }
        let from = after.map_or(0, |after| self.listed.partition_point(|key| &key[..] <= after));
        let rest = &self.listed[from..];
        let keys = rest[..rest.len().min(count)].to_vec();
        let is_last = keys.len() == rest.len();
        if is_last {
            self.listed = Vec::new();
        }
        Ok(Page { keys, is_last })
    }

    async fn count(&mut self) -> io::Result<u64> {
        self.statistics(b"stats\r\n", "curr_items").await
    }

    async fn clear(&mut self) -> io::Result<()> {
        self.ask(b"flush_all\r\n", async |answer| match read_line(answer).await?.as_slice() {
            b"OK" => Ok(()),
            line => Err(unexpected(line, "OK")),
        })
        .await
    }
}

fn late(_: Elapsed) -> io::Error {
    let words = format!("no answer within {} s", PATIENCE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, words)
}

fn unexpected(came: &[u8], expected: &str) -> io::Error {
    let came: String = String::from_utf8_lossy(came).chars().take(200).collect();
    let words = format!("{came:?} came, expected {expected} (is it memcached 1.6 or later?)");
    io::Error::new(io::ErrorKind::InvalidData, words)
}

/// A line without its end.
async fn read_line(answer: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    (&mut *answer).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
    if line.pop() != Some(b'\n') {
        let words = "it closed the connection, or sent a line that does not end";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
    }
    line.pop_if(|last| *last == b'\r');
    Ok(line)
}

/// Whether a change was done; `false` when there was nothing to be changed.
async fn expect_done(answer: &mut BufReader<TcpStream>) -> io::Result<bool> {
    match read_line(answer).await?.as_slice() {
        b"HD" => Ok(true),
        b"NF" => Ok(false),
        line => Err(unexpected(line, "HD")),
    }
}

/// The watermark counts what may not be there. One that was refused is gone (memcached keeps no
/// old value then); without one, what is there would be somebody else's.
async fn call_stale(connection: &mut BufReader<TcpStream>) -> io::Result<()> {
    connection.get_mut().write_all(STALE).await?;
    if !expect_done(connection).await? {
        let mut request = Vec::new();
        let filling = Entry { value: Value::Text(FILLING.to_vec()), expires_ms: None };
        write_change(&mut request, WATERMARK, Some(&filling));
        connection.get_mut().write_all(&request).await?;
        expect_done(connection).await?;
    }
    Ok(())
}

/// How a stale watermark is told: no history has writes of epoch 0, but one that has more is still
/// the better one. Before the first write there is none to be told.
fn doubtful(watermark: &[u8]) -> Vec<u8> {
    let sequence = str::from_utf8(watermark).ok().and_then(|text| text.split_once(' '));
    let sequence = sequence.and_then(|(_, sequence)| sequence.parse::<u64>().ok());
    match sequence {
        Some(sequence @ 1..) => format!("0 {sequence}").into_bytes(),
        Some(0) | None => FILLING.to_vec(),
    }
}

/// The answer to `mg … v`, and whether it is called stale.
async fn read_item(
    answer: &mut BufReader<TcpStream>,
    most: usize,
) -> io::Result<Option<(Vec<u8>, bool)>> {
    let line = read_line(answer).await?;
    if line == b"EN" {
        return Ok(None);
    }
    let mut parts = line.split(is_space);
    let length = parts.next().filter(|&first| first == b"VA").and_then(|_| parts.next());
    let length = length.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    let Some(length) = length.filter(|&length: &usize| length <= most) else {
        return Err(unexpected(&line, "an item of at most its item_size_max"));
    };
    let mut text = vec![0; length + 2];
    answer.read_exact(&mut text).await?;
    text.truncate(length);
    Ok(Some((text, parts.any(|flag| flag == b"X"))))
}

fn write_change(request: &mut Vec<u8>, key: &[u8], entry: Option<&Entry>) {
    match entry.map(|entry| &entry.value) {
        Some(Value::Text(text)) => {
            request.extend_from_slice(b"ms ");
            write_key(request, key, &format!(" {}", text.len()));
            request.extend_from_slice(text);
            request.extend_from_slice(b"\r\n");
        }
        // Others are refused before they come here: it keeps only strings.
        Some(_) | None => {
            request.extend_from_slice(b"md ");
            write_key(request, key, "");
        }
    }
}

/// A key, what follows it, and the end of the line.
fn write_key(request: &mut Vec<u8>, key: &[u8], behind: &str) {
    let is_plain = key.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if is_plain {
        request.extend_from_slice(key);
    } else {
        request.extend_from_slice(BASE64_STANDARD.encode(key).as_bytes());
    }
    request.extend_from_slice(behind.as_bytes());
    request.extend_from_slice(if is_plain { b"\r\n" } else { b" b\r\n" });
}

fn is_space(byte: &u8) -> bool {
    *byte == b' '
}
