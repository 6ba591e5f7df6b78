//! One connection to a store: bytes in, batches through the store, bytes out.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

use super::clients::{Clients, Killed};
use super::commands::{Command, Overlay, Run, find, run};
use super::pauses::Pausing;
use super::{Abilities, Change, Entry, Store, now_ms};
use crate::resp::Protocol;
use crate::resp::encode;
use crate::resp::request::{Arguments, RequestParser};

/// Commands of one batch: what they load is in memory at once.
const BATCH_COMMANDS_MAX: usize = 512;
/// Commands between `MULTI` and `EXEC`.
const QUEUED_MAX: usize = 4096;
const READ_BYTES: usize = 64 << 10;
/// Listings under way on one connection; a client that leaves more unfinished begins again.
const CURSORS_MAX: usize = 16;
/// Keys of one page, whatever is asked for.
const PAGE_KEYS_MAX: usize = 10_000;
const PAGE_KEYS: usize = 10;

/// A store and those connected to it.
#[derive(Debug)]
pub struct Shared<S> {
    store: Mutex<S>,
    clients: Clients,
    pausing: RefCell<Option<Pausing>>,
}

impl<S: Store> Shared<S> {
    pub(super) fn new(store: S, pausing: Option<Pausing>) -> Self {
        let pausing = RefCell::new(pausing);
        Self { store: Mutex::new(store), clients: Clients::default(), pausing }
    }

    /// A store that nobody is connected to, for [`serve`] in a thread of one's own.
    pub fn of(store: S) -> Self {
        Self::new(store, None)
    }
}

/// What a batch is made of, in the order of its replies.
enum Piece {
    /// A reply that needs no store.
    Said(Vec<u8>),
    /// Commands; of a transaction the replies are one array.
    Group { commands: Vec<Command>, is_transaction: bool },
}

struct Session<'a, S> {
    shared: &'a Shared<S>,
    id: u64,
    killed: Rc<Killed>,
    abilities: Abilities,
    name: &'static str,
    protocol: Protocol,
    /// Between `MULTI` and `EXEC`: what is to be run, or `None` when it must not be.
    queued: Option<Option<Vec<Command>>>,
    cursors: BTreeMap<u64, Vec<u8>>,
    cursors_count: u64,
    ends: bool,
}

/// Serves one connection until it is closed or killed. Replies come in the order of the requests,
/// those of a batch when the store has taken what it changed.
///
/// # Errors
/// When the connection breaks, or the store fails: then nothing of the batch is answered.
pub async fn serve<S: Store>(
    shared: &Shared<S>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let (id, killed) = shared.clients.enter();
    let (abilities, name) = {
        let store = shared.store.lock().await;
        (store.abilities(), store.name())
    };
    let session = Session {
        shared,
        id,
        killed,
        abilities,
        name,
        protocol: Protocol::default(),
        queued: None,
        cursors: BTreeMap::new(),
        cursors_count: 0,
        ends: false,
    };
    let served = session.run(stream).await;
    shared.clients.leave(id);
    served
}

impl<S: Store> Session<'_, S> {
    async fn run(mut self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut parser = RequestParser::default();
        let (mut inbox, mut from, mut out) = (Vec::new(), 0, Vec::new());
        loop {
            let (pieces, taken) = self.batch(&mut parser, &inbox[from..], &mut out);
            from += taken;
            // One that was ended while it read ends in execute, or as it reads.
            let is_idle = pieces.is_empty() && out.is_empty();
            if !pieces.is_empty() {
                let mut replies = Vec::new();
                if let Err(error) = self.execute(&pieces, &mut replies).await {
                    // A store that went away may come back with another content.
                    self.shared.clients.kill_all();
                    return Err(error);
                }
                out.splice(..0, replies);
            }
            if !out.is_empty() {
                stream.write_all(&out).await?;
                stream.flush().await?;
                out.clear();
                out.shrink_to(READ_BYTES);
            }
            if self.ends {
                return Ok(());
            }
            if !is_idle {
                continue;
            }
            inbox.drain(..from);
            from = 0;
            inbox.shrink_to(READ_BYTES);
            inbox.reserve(READ_BYTES);
            if read(&mut stream, &mut inbox, &self.killed).await? == 0 {
                return Ok(());
            }
        }
    }

    /// What has arrived, up to the most that is done at once, and how many bytes that is. What
    /// comes after all of it is in `out`.
    fn batch(
        &mut self,
        parser: &mut RequestParser,
        inbox: &[u8],
        out: &mut Vec<u8>,
    ) -> (Vec<Piece>, usize) {
        let (mut pieces, mut taken) = (Vec::new(), 0);
        while pieces.len() < BATCH_COMMANDS_MAX && !self.ends {
            match parser.parse(&inbox[taken..]) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    let arguments = parser.arguments(&inbox[taken..]);
                    if arguments.is(0, "HELLO") && !pieces.is_empty() {
                        break; // replies before it are of the protocol before it
                    }
                    if !arguments.is_empty() {
                        self.take(arguments, &mut pieces);
                    }
                    taken += length;
                }
                Err(error) => {
                    encode::protocol_error(out, error);
                    self.ends = true;
                }
            }
        }
        (pieces, taken)
    }

    /// One command: what it says at once, or what is to be run.
    fn take(&mut self, arguments: Arguments<'_>, pieces: &mut Vec<Piece>) {
        let mut said = Vec::new();
        let is_word = |word: &str| arguments.is(0, word);
        let is_queueing = self.queued.is_some();
        if is_word("EXEC") {
            match self.queued.take() {
                None => encode::error(&mut said, "ERR EXEC without MULTI"),
                Some(None) => encode::error(
                    &mut said,
                    "EXECABORT Transaction discarded because of previous errors.",
                ),
                Some(Some(commands)) => {
                    pieces.push(Piece::Group { commands, is_transaction: true });
                    return;
                }
            }
        } else if is_word("DISCARD") {
            match self.queued.take() {
                None => encode::error(&mut said, "ERR DISCARD without MULTI"),
                Some(_) => encode::simple(&mut said, "OK"),
            }
        } else if is_word("MULTI") {
            if is_queueing {
                encode::error(&mut said, "ERR MULTI calls can not be nested");
            } else {
                self.queued = Some(Some(Vec::new()));
                encode::simple(&mut said, "OK");
            }
        } else if is_queueing {
            self.queue(arguments, &mut said);
        } else if !self.answers_itself(arguments, &mut said) {
            match find(arguments, self.name, self.abilities) {
                Ok(command) => {
                    pieces.push(Piece::Group { commands: vec![command], is_transaction: false });
                    return;
                }
                Err(fault) => encode::error(&mut said, &fault),
            }
        }
        pieces.push(Piece::Said(said));
    }

    fn queue(&mut self, arguments: Arguments<'_>, said: &mut Vec<u8>) {
        let found = find(arguments, self.name, self.abilities).and_then(|command| {
            if command.is_of_whole_store() {
                let name = String::from_utf8_lossy(arguments.at(0)).into_owned();
                let of = self.name;
                return Err(format!("ERR store '{of}' has no '{name}' inside MULTI").into());
            }
            Ok(command)
        });
        let Some(queued) = &mut self.queued else { return };
        match (found, queued.as_mut()) {
            (Ok(command), Some(commands)) if commands.len() < QUEUED_MAX => {
                commands.push(command);
                encode::simple(said, "QUEUED");
            }
            (Ok(_), None) => encode::simple(said, "QUEUED"),
            (Ok(_), Some(_)) => {
                encode::error(said, &format!("ERR more than {QUEUED_MAX} commands in a MULTI"));
                *queued = None;
            }
            (Err(fault), _) => {
                encode::error(said, &fault);
                *queued = None;
            }
        }
    }

    /// Commands about the connection; `false` when it is none of them.
    fn answers_itself(&mut self, arguments: Arguments<'_>, said: &mut Vec<u8>) -> bool {
        let is_word = |word: &str| arguments.is(0, word);
        if is_word("PING") {
            match arguments.get(1) {
                None => encode::simple(said, "PONG"),
                Some(words) => encode::bulk(said, words),
            }
        } else if is_word("ECHO") && arguments.len() == 2 {
            encode::bulk(said, arguments.at(1));
        } else if is_word("HELLO") {
            self.hello(arguments, said);
        } else if is_word("CLIENT") {
            self.client(arguments, said);
        } else if is_word("SELECT") && arguments.len() == 2 {
            match arguments.at(1) {
                b"0" => encode::simple(said, "OK"),
                _ => encode::error(said, "ERR DB index is out of range"),
            }
        } else if is_word("QUIT") {
            encode::simple(said, "OK");
            self.ends = true;
        } else {
            return false;
        }
        true
    }

    /// `HELLO [2|3] [SETNAME name]`
    fn hello(&mut self, arguments: Arguments<'_>, said: &mut Vec<u8>) {
        let mut protocol = self.protocol;
        match arguments.get(1) {
            None => {}
            Some(b"2") => protocol = Protocol::Resp2,
            Some(b"3") => protocol = Protocol::Resp3,
            Some(_) => return encode::error(said, "NOPROTO unsupported protocol version"),
        }
        let mut index = 2;
        let mut name = None;
        while index < arguments.len() {
            if arguments.is(index, "SETNAME") && index + 1 < arguments.len() {
                name = Some(arguments.at(index + 1));
                index += 2;
            } else if arguments.is(index, "AUTH") {
                let words = "ERR AUTH <password> called without any password configured: a store \
                             in this process asks for none";
                return encode::error(said, words);
            } else {
                return encode::error(said, "ERR Syntax error in HELLO");
            }
        }
        if let Some(name) = name {
            let Some(name) = client_name(name) else { return encode::error(said, BAD_NAME) };
            self.shared.clients.rename(self.id, name);
        }
        self.protocol = protocol;
        encode::map(said, 7, protocol);
        for (field, value) in [("server", self.name), ("version", env!("CARGO_PKG_VERSION"))] {
            encode::bulk(said, field.as_bytes());
            encode::bulk(said, value.as_bytes());
        }
        encode::bulk(said, b"proto");
        encode::integer(said, if protocol == Protocol::Resp3 { 3 } else { 2 });
        encode::bulk(said, b"id");
        encode::integer(said, self.id.cast_signed());
        for (field, value) in [("mode", "standalone"), ("role", "master")] {
            encode::bulk(said, field.as_bytes());
            encode::bulk(said, value.as_bytes());
        }
        encode::bulk(said, b"modules");
        encode::array(said, 0);
    }

    /// `CLIENT SETNAME name | GETNAME | ID | LIST | KILL ID n`
    fn client(&mut self, arguments: Arguments<'_>, said: &mut Vec<u8>) {
        let clients = &self.shared.clients;
        let is = |word: &str, length: usize| arguments.is(1, word) && arguments.len() == length;
        if is("SETNAME", 3) {
            let Some(name) = client_name(arguments.at(2)) else {
                return encode::error(said, BAD_NAME);
            };
            clients.rename(self.id, name);
            encode::simple(said, "OK");
        } else if is("GETNAME", 2) {
            match clients.name(self.id) {
                name if name.is_empty() => encode::null(said, self.protocol),
                name => encode::bulk(said, name.as_bytes()),
            }
        } else if is("ID", 2) {
            encode::integer(said, self.id.cast_signed());
        } else if is("LIST", 2) {
            encode::bulk(said, clients.list().as_bytes());
        } else if is("KILL", 4) && arguments.is(2, "ID") {
            let id = str::from_utf8(arguments.at(3)).ok().and_then(|id| id.parse().ok());
            match id {
                Some(id) => encode::integer(said, i64::from(clients.kill(id))),
                None => encode::error(said, "ERR client-id should be greater than 0"),
            }
        } else {
            let words = "ERR of CLIENT only SETNAME, GETNAME, ID, LIST and KILL ID are known here";
            encode::error(said, words);
        }
    }

    /// Runs a batch while nobody else has the store; not that of a connection that was ended, even
    /// if it waited: who ended it counts on that.
    async fn execute(&mut self, pieces: &[Piece], out: &mut Vec<u8>) -> io::Result<()> {
        let shared = self.shared;
        let mut store = shared.store.lock().await;
        if self.killed.is_killed() {
            self.ends = true;
            return Ok(());
        }
        let until = shared.pausing.borrow_mut().as_mut().and_then(|p| p.until(Instant::now()));
        if let Some(until) = until {
            tokio::time::sleep_until(until.into()).await;
        }
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            if let Some(command) = of_whole_store(first) {
                self.run_whole(&mut *store, command, out).await?;
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|piece| of_whole_store(piece).is_some());
            let (now, later) = rest.split_at(end.unwrap_or(rest.len()));
            self.run_together(&mut *store, now, out).await?;
            rest = later;
        }
        Ok(())
    }

    /// Commands on keys: loaded together, stored together.
    async fn run_together(
        &self,
        store: &mut S,
        pieces: &[Piece],
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut keys: Vec<&[u8]> = pieces.iter().flat_map(keys_of).collect();
        keys.sort_unstable();
        keys.dedup();
        let entries = if keys.is_empty() { Vec::new() } else { store.load(&keys).await? };
        let mut overlay = Overlay::new(&keys, entries, now_ms(), self.abilities);
        for piece in pieces {
            match piece {
                Piece::Said(said) => out.extend_from_slice(said),
                Piece::Group { commands, is_transaction } => {
                    if *is_transaction {
                        encode::array(out, commands.len());
                    }
                    for command in commands {
                        run(command, &mut overlay, self.protocol, out);
                    }
                }
            }
            if overlay.changed_bytes() > self.abilities.change_bytes_max {
                store_all(store, overlay.changes()).await?;
            }
        }
        store_all(store, overlay.changes()).await
    }

    async fn run_whole(
        &mut self,
        store: &mut S,
        command: &Command,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        match command.whole() {
            Some(Run::Count) => encode::integer(out, store.count().await?.cast_signed()),
            Some(Run::Clear) => {
                store.clear().await?;
                encode::simple(out, "OK");
            }
            Some(Run::List) => self.list(store, command.arguments(), out).await?,
            _ => encode::error(out, "ERR this is no command of a whole store"),
        }
        Ok(())
    }

    /// `SCAN cursor [COUNT count]`
    async fn list(
        &mut self,
        store: &mut S,
        arguments: &[Vec<u8>],
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let number = |bytes: &[u8]| str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        let Some(cursor) = number(&arguments[1]) else {
            encode::error(out, "ERR invalid cursor");
            return Ok(());
        };
        let count = match &arguments[2..] {
            [] => Some(PAGE_KEYS as u64),
            [option, count] if option.eq_ignore_ascii_case(b"COUNT") => number(count),
            _ => {
                encode::error(out, "ERR syntax error: of SCAN's options only COUNT is known here");
                return Ok(());
            }
        };
        let Some(count) = count.filter(|&count| count > 0) else {
            encode::error(out, "ERR value is not an integer or out of range");
            return Ok(());
        };
        let after = self.cursors.remove(&cursor);
        if after.is_none() && cursor != 0 {
            encode::error(out, "ERR invalid cursor: it is of another connection, or was used");
            return Ok(());
        }
        let count = usize::try_from(count).unwrap_or(PAGE_KEYS_MAX).min(PAGE_KEYS_MAX);
        let page = store.list(after.as_deref(), count).await?;
        let next = self.cursor(&page);
        encode::array(out, 2);
        encode::bulk(out, itoa::Buffer::new().format(next).as_bytes());
        encode::array(out, page.keys.len());
        for key in &page.keys {
            encode::bulk(out, key);
        }
        Ok(())
    }

    /// What goes on behind this page; 0 = nothing does.
    fn cursor(&mut self, page: &super::Page) -> u64 {
        let Some(last) = page.keys.last().filter(|_| !page.is_last) else { return 0 };
        self.cursors_count += 1;
        self.cursors.insert(self.cursors_count, last.clone());
        if self.cursors.len() > CURSORS_MAX {
            self.cursors.pop_first();
        }
        self.cursors_count
    }
}

/// Reads what comes; 0 = the connection is at its end.
async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    inbox: &mut Vec<u8>,
    killed: &Killed,
) -> io::Result<usize> {
    tokio::select! {
        biased;
        () = killed.killed() => Ok(0),
        read = stream.read_buf(inbox) => read,
    }
}

async fn store_all<S: Store>(store: &mut S, changes: Vec<Change>) -> io::Result<()> {
    if changes.is_empty() { Ok(()) } else { store.store(&changes).await }
}

fn of_whole_store(piece: &Piece) -> Option<&Command> {
    match piece {
        Piece::Group { commands, is_transaction: false } => {
            commands.first().filter(|command| command.is_of_whole_store())
        }
        _ => None,
    }
}

fn keys_of(piece: &Piece) -> impl Iterator<Item = &[u8]> {
    let commands = match piece {
        Piece::Said(_) => &[],
        Piece::Group { commands, .. } => &commands[..],
    };
    commands.iter().flat_map(Command::keys)
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

fn client_name(name: &[u8]) -> Option<&str> {
    let is_plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    str::from_utf8(name).ok().filter(|_| is_plain)
}

impl Entry {
    /// Whether it holds nothing any more at that time.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|at| at <= now_ms)
    }
}
