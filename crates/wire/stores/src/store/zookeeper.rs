//! ZooKeeper as a duplicate: strings without expiry; one duplicate is a whole ensemble.
//!
//! A key is a node, `ROOT/BB/kNAME`: BB is one of 256 places by the checksum of the key, since the
//! list of a node's children is one message; NAME is the key with all but letters, digits, `-`, `_`
//! and `:` as `%20`. What changes with a batch is one `multi`: a watermark is in step with the
//! writes that it counts, except where they have more than 768 KiB together: then it comes last.
//!
//! **Fencing.** Each `multi` also asks that the node of the key `evenkeel:epoch` still has the
//! version that was read or written here last. Whoever writes a later epoch therefore stops one
//! that still believes to be the only one, even in the middle of its batch. Versions of a node that
//! is made again begin again at 0, so that node outlives a `FLUSHALL`.
//!
//! **Reads** are answered by the server that we are connected to, which may be behind the others;
//! a session sees its own writes, and begins with a `sync`. Keys may be as rare as ZooKeeper wants
//! data to be: all of it is in the memory of every server.
//!
//! The session has no node that ends with it, so one that is not used for long is left to end by
//! itself, and another is begun.

mod wire;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::wire::Operation;
use super::keys::{EPOCH, RESERVED};
use super::{Abilities, Change, Entry, Host, Page, Pauses, Store, Value};
use crate::clients::zookeeper::wire::{
    Credentials, NODE_EXISTS, connect, connected, error_of_code, reply,
};

/// How long a server may take for one exchange.
const PATIENCE: Duration = Duration::from_secs(30);
/// Asked for; servers give at most 20 ticks, 40 s by default.
const SESSION: Duration = Duration::from_secs(40);
/// Places of keys below the root.
const PLACES: usize = 256;
/// Requests that are sent before their answers are read: what servers take at once by default
/// (`zookeeper.globalOutstandingLimit`) is far more.
const AT_ONCE: usize = 64;
/// Answers are not longer: lists of children are the longest.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Of keys and values in one `multi`: servers take messages of 1 MiB by default.
const MULTI_BYTES_MAX: usize = 768 << 10;
/// What a request needs beside path and data, at most.
const BESIDE_BYTES: usize = 128;
const KEY_BYTES_MAX: usize = 1 << 10;
const VALUE_BYTES_MAX: usize = 512 << 10;

const NO_NODE: i32 = -101;
const BAD_VERSION: i32 = -103;

/// Where the keys are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZooKeeperSettings {
    /// The servers of one ensemble, `host:port`: the first that answers is used.
    pub servers: Vec<String>,
    /// The node below which everything is, such as `/evenkeel/orders`; it is made if there is none.
    pub root: String,
}

/// A session with one ensemble.
#[derive(Debug)]
pub struct ZooKeeper {
    settings: ZooKeeperSettings,
    connection: Option<Connection>,
    /// Keys that had a node when they were loaded or stored last.
    there: BTreeSet<Vec<u8>>,
    /// The version of the epoch's node, if there is one.
    epoch: Option<i32>,
}

#[derive(Debug)]
struct Connection {
    server: String,
    stream: BufReader<TcpStream>,
    xid: i32,
    used: Instant,
    /// For how long it may be unused.
    rests: Duration,
}

/// An answer: an error code or 0, and its body.
type Answer = (i32, Vec<u8>);

impl ZooKeeper {
    /// Connects, and makes the nodes that keys are below.
    ///
    /// # Errors
    /// When no server answers, or the root is no path.
    pub async fn open(settings: ZooKeeperSettings) -> io::Result<Self> {
        let ZooKeeperSettings { servers, root } = &settings;
        let is_path = root.starts_with('/')
            && !root.ends_with('/')
            && root[1..].split('/').all(|part| {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
                !part.is_empty() && part.bytes().all(is_plain)
            });
        if !is_path || servers.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "ZooKeeper servers {servers:?} with the root \"{root}\": at least one server, \
                     and a path such as /evenkeel/orders were expected"
                ),
            ));
        }
        let mut store = Self { settings, connection: None, there: BTreeSet::new(), epoch: None };
        store.make_nodes().await?;
        store.load(&[EPOCH]).await?;
        Ok(store)
    }

    /// Connects in a thread of its own.
    ///
    /// # Errors
    /// As [`ZooKeeper::open`].
    pub fn start(
        name: &str,
        settings: ZooKeeperSettings,
        pauses: Option<Pauses>,
    ) -> io::Result<Host> {
        Host::start(name, pauses, async move || Self::open(settings).await)
    }

    async fn make_nodes(&mut self) -> io::Result<()> {
        let root = self.settings.root.clone();
        let parents = root.match_indices('/').skip(1).map(|(at, _)| root[..at].to_owned());
        let places = (0..PLACES).map(|place| format!("{root}/{place:02x}"));
        let nodes: Vec<String> = parents.chain([root.clone()]).chain(places).collect();
        for some in nodes.chunks(AT_ONCE) {
            let requests = |xid: i32, index: usize| wire::create(xid, &some[index]);
            for (error, _) in self.ask(some.len(), requests).await? {
                if error != NODE_EXISTS {
                    self.expect_done(error)?;
                }
            }
        }
        Ok(())
    }

    /// Sends so many requests and waits for their answers; after an error this connection is not
    /// used any more.
    async fn ask(
        &mut self,
        count: usize,
        request: impl Fn(i32, usize) -> Vec<u8>,
    ) -> io::Result<Vec<Answer>> {
        let is_fresh = |connection: &Connection| connection.used.elapsed() < connection.rests;
        let mut connection = match self.connection.take().filter(is_fresh) {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let asked = timeout(PATIENCE, connection.exchange(count, request)).await;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        match asked.unwrap_or_else(|_| Err(late())) {
            Ok(answers) => {
                self.connection = Some(connection);
                Ok(answers)
            }
            Err(error) => {
                let words = format!("ZooKeeper {}: {error}", connection.server);
                Err(io::Error::new(error.kind(), words))
            }
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        let mut why = Vec::new();
        for server in &self.settings.servers {
            let connecting = timeout(PATIENCE, Connection::open(server, &self.settings.root)).await;
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
            match connecting.unwrap_or_else(|_| Err(late())) {
                Ok(connection) => return Ok(connection),
                Err(error) => why.push(format!("{server}: {error}")),
            }
        }
        let words = format!("ZooKeeper: {} (is it running?)", why.join("; "));
        Err(io::Error::new(io::ErrorKind::NotConnected, words))
    }

    fn expect_done(&self, error: i32) -> io::Result<()> {
        if error == 0 {
            return Ok(());
        }
        let root = &self.settings.root;
        let words = match error {
            BAD_VERSION => "another process has written a later epoch, this one must stop".into(),
            error => error_of_code(error).message,
        };
        Err(io::Error::other(format!("ZooKeeper below {root}: {words}")))
    }

    /// The keys of one place, in order.
    async fn place(&mut self, place: usize) -> io::Result<Vec<Vec<u8>>> {
        let path = format!("{}/{place:02x}", self.settings.root);
        let (error, body) = self.ask_one(|xid| wire::children(xid, &path)).await?;
        self.expect_done(error)?;
        let names = wire::read_children(&body)?;
        // Nodes that are no keys are somebody else's.
        let mut keys: Vec<_> = names.into_iter().filter_map(key_of).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    async fn ask_one(&mut self, request: impl Fn(i32) -> Vec<u8>) -> io::Result<Answer> {
        Ok(self.ask(1, |xid, _| request(xid)).await?.remove(0))
    }

    /// Changes that fit into one message.
    async fn store_some(&mut self, changes: &[&Change]) -> io::Result<()> {
        let paths: Vec<_> =
            changes.iter().map(|(key, _)| path_of(&self.settings.root, key)).collect();
        let epoch_path = path_of(&self.settings.root, EPOCH);
        let mut operations: Vec<_> =
            self.epoch.iter().map(|&version| Operation::Check(&epoch_path, version)).collect();
        for ((key, entry), path) in changes.iter().zip(&paths) {
            let is_there = self.there.contains(key);
            match entry.as_ref().map(|entry| &entry.value) {
                Some(Value::Text(text)) if is_there => operations.push(Operation::Set(path, text)),
                Some(Value::Text(text)) => operations.push(Operation::Create(path, text)),
                // Others are refused before they come here: it keeps only strings.
                Some(_) | None if is_there => operations.push(Operation::Delete(path)),
                Some(_) | None => {}
            }
        }
        if operations.len() > usize::from(self.epoch.is_some()) {
            let (error, body) = self.ask_one(|xid| wire::multi(xid, &operations)).await?;
            self.expect_done(error)?;
            let error = wire::multi_error(&body)?;
            self.expect_done(error.unwrap_or(0))?;
        }
        for (key, entry) in changes {
            let was_there = self.there.contains(key);
            if key == EPOCH {
                let next = self.epoch.map_or(0, |version| version.wrapping_add(1));
                self.epoch = entry.as_ref().map(|_| next);
            }
            match (entry, was_there) {
                (Some(_), false) => _ = self.there.insert(key.clone()),
                (None, true) => _ = self.there.remove(key),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Connection {
    async fn open(server: &str, root: &str) -> io::Result<Self> {
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&connect(SESSION, &Credentials::default())).await?;
        let mut stream = BufReader::new(stream);
        let answer = message(&mut stream).await?;
        if connected(&answer)?.is_none() {
            return Err(io::Error::other("it gives no session"));
        }
        // Version, then the time that it gives, which connected() has found to be there.
        let given: [u8; 4] = answer[4..8].try_into().expect("four bytes");
        let given = Duration::from_millis(u64::from(u32::from_be_bytes(given)));
        let (server, used) = (server.to_owned(), Instant::now());
        let mut connection = Self { server, stream, xid: 0, used, rests: given / 2 };
        // A root that is not there yet is no reason to wait.
        connection.exchange(1, |xid, _| wire::sync(xid, root)).await?;
        Ok(connection)
    }

    async fn exchange(
        &mut self,
        count: usize,
        request: impl Fn(i32, usize) -> Vec<u8>,
    ) -> io::Result<Vec<Answer>> {
        let first = if self.xid > i32::MAX / 2 { 1 } else { self.xid + 1 };
        let mut requests = Vec::new();
        for (index, xid) in (first..).take(count).enumerate() {
            requests.extend_from_slice(&request(xid, index));
            self.xid = xid;
        }
        self.stream.get_mut().write_all(&requests).await?;
        let mut answers = Vec::with_capacity(count);
        while answers.len() < count {
            let answer = message(&mut self.stream).await?;
            let read = reply(&answer)?;
            if read.xid < 0 {
                continue; // unasked
            }
            if (read.xid - first).cast_unsigned() as usize != answers.len() {
                let words = format!("an answer to request {} came out of order", read.xid);
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
            answers.push((read.error, read.body.to_vec()));
        }
        self.used = Instant::now();
        Ok(answers)
    }
}

/// One message without its length.
async fn message(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await? as usize;
    if length > MESSAGE_BYTES_MAX {
        let words = format!(
            "a message of {length} bytes came, at most {MESSAGE_BYTES_MAX} were expected (is it \
             ZooKeeper?)"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

impl Store for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            has_collections: false,
            has_expiry: false,
            key_bytes_min: 0,
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            change_bytes_max: 128 << 10,
        }
    }

    async fn load(&mut self, keys: &[&[u8]]) -> io::Result<Vec<Option<Entry>>> {
        let mut entries = Vec::with_capacity(keys.len());
        self.there.clear();
        for some in keys.chunks(AT_ONCE) {
            let root = self.settings.root.clone();
            let answers =
                self.ask(some.len(), |xid, index| wire::data(xid, &path_of(&root, some[index])));
            for ((error, body), &key) in answers.await?.into_iter().zip(some) {
                let mut version = None;
                if error == NO_NODE {
                    entries.push(None);
                } else {
                    self.expect_done(error)?;
                    let (text, of) = wire::read_data(&body)?;
                    version = Some(of);
                    self.there.insert(key.to_vec());
                    entries
                        .push(Some(Entry { value: Value::Text(text.to_vec()), expires_ms: None }));
                }
                if key == EPOCH {
                    self.epoch = version;
                }
            }
        }
        Ok(entries)
    }

    async fn store(&mut self, changes: &[Change]) -> io::Result<()> {
        // What is kept about the writes, the watermark, not before any of them.
        let (own, mut ordered): (Vec<_>, Vec<_>) =
            changes.iter().partition(|(key, _)| key.starts_with(RESERVED));
        ordered.extend(own);
        let mut rest = &ordered[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(key, entry)| {
                let text = entry.as_ref().map_or(0, |entry| match &entry.value {
                    Value::Text(text) => text.len(),
                    Value::Hash(_) | Value::Set(_) => 0,
                });
                bytes += 3 * key.len() + self.settings.root.len() + text + BESIDE_BYTES;
                bytes <= MULTI_BYTES_MAX
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            self.store_some(now).await?;
            rest = later;
        }
        Ok(())
    }

    /// Place by place, and sorted in each.
    async fn list(&mut self, after: Option<&[u8]>, count: usize) -> io::Result<Page> {
        let mut page = Page::default();
        let mut place = after.map_or(0, place_of);
        while place < PLACES && page.keys.len() < count {
            let mut keys = self.place(place).await?;
            if let Some(after) = after.filter(|after| place_of(after) == place) {
                keys.drain(..keys.partition_point(|key| &key[..] <= after));
            }
            let room = count - page.keys.len();
            if keys.len() > room {
                keys.truncate(room);
                page.keys.append(&mut keys);
                return Ok(page);
            }
            page.keys.append(&mut keys);
            place += 1;
        }
        page.is_last = place == PLACES;
        Ok(page)
    }

    async fn count(&mut self) -> io::Result<u64> {
        let root = self.settings.root.clone();
        let (error, body) = self.ask_one(|xid| wire::count(xid, &root)).await?;
        self.expect_done(error)?;
        let count = wire::read_count(&body)?;
        Ok(u64::try_from(count).unwrap_or(0).saturating_sub(PLACES as u64))
    }

    async fn clear(&mut self) -> io::Result<()> {
        for place in 0..PLACES {
            let mut keys = self.place(place).await?;
            keys.retain(|key| key != EPOCH);
            self.there.extend(keys.iter().cloned());
            let gone: Vec<Change> = keys.into_iter().map(|key| (key, None)).collect();
            self.store(&gone).await?;
        }
        self.there.retain(|key| key == EPOCH);
        Ok(())
    }
}

fn place_of(key: &[u8]) -> usize {
    crc32fast::hash(key) as usize % PLACES
}

fn path_of(root: &str, key: &[u8]) -> String {
    let mut path = format!("{root}/{:02x}/k", place_of(key));
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-_:".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(path, "%{byte:02x}");
        }
    }
    path
}

/// The key of a node; `None` when it is not one.
fn key_of(name: &[u8]) -> Option<Vec<u8>> {
    super::codec::decode_percent(name.strip_prefix(b"k")?)
}
