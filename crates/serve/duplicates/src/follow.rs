//! Follows the replication stream of a duplicate that does commands whose effects are not known
//! beforehand (`duplicates-engine/src/effects.rs`): a replica that keeps nothing.
//!
//! **Without a snapshot.** A Redis begins to keep its stream when the first replica asks for a
//! snapshot, at once, and makes that some seconds later (`repl-diskless-sync-delay`, 5 s). So one
//! connection asks for a snapshot, a second one learns where the stream is (`INFO replication`) and
//! goes on from there (`PSYNC id offset`), and the first one leaves before anything was made: no
//! fork, and nobody's script waits for that delay.
//!
//! **With one**, where a server does not do so. `REPLCONF rdb-filter-only ""` makes it empty, so it
//! costs a fork and a few bytes. The stream flows when the snapshot's process has ended *and* an
//! acknowledgement has come since, so these are sent often until something comes.
//!
//! A connection that breaks goes on at the next byte (`PSYNC id offset`) if the backlog has it;
//! else whoever does a command is given up. The stream ends with the connections of its duplicate,
//! whose next ones fence it off as well: it has their name.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio::time::{Interval, interval, sleep};

use super::config::Connector;
use evenkeel_duplicates_engine::{EFFECTS_BYTES_MAX, Engine};
use evenkeel_store_link::connect::{Link, Stream, connect};
use evenkeel_store_link::inbox::Inbox;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::replication::{Event, Groups, ReplicationParser, place_of_stream};
use evenkeel_stores::resp::request::Limits;
use evenkeel_stores::store::keys::AHEAD;

/// How often is acknowledged until the stream flows, and then.
const ACKNOWLEDGE_EVERY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How often, and in which intervals, it is asked whether a stream is kept by now.
pub(super) const KEPT_BY_NOW: (u32, Duration) = (20, Duration::from_millis(5));
/// How often a connection that broke is begun again.
const CONNECTIONS_MAX: u32 = 3;

/// Follows the streams that are wanted, for the life of the service.
pub(super) async fn keep(engine: Rc<Engine>) {
    let wanted = engine.look().streams_wanted();
    let mut tasks = JoinSet::new();
    loop {
        wanted.notified().await;
        for (server, connection) in engine.look().take_wanted_streams() {
            tasks.spawn_local(follow(Rc::clone(&engine), server, connection));
        }
        while tasks.try_join_next().is_some() {}
    }
}

async fn follow(engine: Rc<Engine>, server: usize, connection: u64) {
    let mut follower = Follower {
        engine,
        server,
        connection,
        parser: ReplicationParser::new(Limits {
            argument_bytes_max: 512 << 20,
            arguments_max: 1 << 20,
            command_bytes_max: 1 << 30,
            ..Limits::default()
        }),
        groups: Groups::new(EFFECTS_BYTES_MAX),
        is_open: false,
    };
    let mut connections = 0;
    let why = loop {
        connections += 1;
        match follower.run().await {
            Ok(()) => return,
            Err(_) if follower.is_over() => return,
            Err(error) if connections >= CONNECTIONS_MAX || !follower.is_open => break error,
            Err(error) => {
                tracing::info!(server, %error, "the replication stream of a duplicate broke");
                follower.parser.reconnect();
            }
        }
    };
    let mut inner = follower.engine.borrow();
    inner.read_clock();
    let is_refused = why.kind() == io::ErrorKind::Other;
    inner.stream_failed((server, connection), &why.to_string(), is_refused);
}

struct Follower {
    engine: Rc<Engine>,
    server: usize,
    connection: u64,
    parser: ReplicationParser,
    groups: Groups,
    /// Commands have come or will: it may go on where it broke off.
    is_open: bool,
}

impl Follower {
    /// Its duplicate is connected to anew, or not at all.
    fn is_over(&self) -> bool {
        self.engine.look().servers[self.server].connection != self.connection
    }

    /// One connection, until it breaks or is over.
    async fn run(&mut self) -> io::Result<()> {
        let (connector, label) = {
            let inner = self.engine.look();
            (inner.connectors[self.server].clone(), inner.us_to(self.server).label())
        };
        let mut link = as_replica(&connector, &label).await?;
        let mut opener = None;
        if self.parser.place().is_none() && !self.find_stream(&mut link).await? {
            opener = Some(ask_for_snapshot(as_replica(&connector, &label).await?).await?);
            let (times, apart) = KEPT_BY_NOW;
            for _ in 0..times {
                if self.find_stream(&mut link).await? {
                    break;
                }
                sleep(apart).await;
            }
        }
        let mut stream = link.into_stream()?;
        let place = self.parser.place().map(|(id, offset)| (id.to_vec(), offset.to_string()));
        let (id, offset) = place.unwrap_or_else(|| (b"?".to_vec(), "-1".to_owned()));
        send(&mut stream, &[b"PSYNC", &id, offset.as_bytes()]).await?;
        let mut inbox = Inbox::default();
        let mut due = interval(ACKNOWLEDGE_EVERY.0);
        loop {
            let coming = poll_fn(|context| inbox.poll_read(pin!(&mut stream), context));
            let count = tokio::select! {
                count = coming => Some(count?),
                _ = due.tick() => None,
            };
            let wants_answer = match count {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) => self.read(&mut inbox, &mut due)?,
                None if self.is_over() => return Ok(()),
                None => self.is_open,
            };
            if self.is_open {
                drop(opener.take()); // nobody needs its snapshot
            }
            if wants_answer {
                let offset = self.parser.offset().to_string();
                send(&mut stream, &[b"REPLCONF", b"ACK", offset.as_bytes()]).await?;
            }
        }
    }

    /// Learns where the stream is; false where the server does not keep it, or does not say.
    async fn find_stream(&mut self, link: &mut Link) -> io::Result<bool> {
        let info = link.ask(&[b"INFO", b"replication"]).await?;
        let place = place_of_stream(&info);
        if let Some((id, offset)) = place {
            self.parser.go_on_from(id, offset);
        }
        Ok(place.is_some())
    }

    /// Takes what has come; whether it asks to be acknowledged.
    fn read(&mut self, inbox: &mut Inbox, due: &mut Interval) -> io::Result<bool> {
        let mut wants_answer = false;
        loop {
            let (count, event) = self.parser.next(inbox.filled()).map_err(io::Error::other)?;
            match event {
                Some(Event::Snapshot) if self.is_open => {
                    return Err(io::Error::other("the backlog does not have what is missing"));
                }
                Some(Event::Snapshot) => {}
                None if count == 0 => return Ok(wants_answer),
                None => {}
                Some(Event::Commands) => {
                    self.is_open = true;
                    let mut inner = self.engine.borrow();
                    inner.read_clock();
                    inner.stream_opened(self.server, self.connection);
                }
                Some(Event::Command) => {
                    if due.period() != ACKNOWLEDGE_EVERY.1 {
                        *due = interval(ACKNOWLEDGE_EVERY.1); // it flows
                    }
                    let arguments = self.parser.arguments(inbox.filled());
                    wants_answer |= arguments.is(0, "replconf") && arguments.is(1, "getack");
                    let group = self.groups.take(arguments, &inbox.filled()[..count]);
                    if let Some(group) = group.filter(|group| group.mark.starts_with(AHEAD)) {
                        let mut inner = self.engine.borrow();
                        inner.read_clock();
                        inner.effects_came(self.server, self.connection, group);
                    }
                }
            }
            inbox.consume(count);
        }
    }
}

/// A connection that may ask for the stream.
pub(super) async fn as_replica(connector: &Connector, label: &str) -> io::Result<Link> {
    let mut link = connect(connector, label).await?;
    link.expect_ok(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"]).await?;
    link.expect_ok(&[b"REPLCONF", b"rdb-filter-only", b""]).await?;
    Ok(link)
}

/// From then on the server keeps its stream; what it answers is not read.
pub(super) async fn ask_for_snapshot(link: Link) -> io::Result<Box<dyn Stream>> {
    let mut stream = link.into_stream()?;
    send(&mut stream, &[b"PSYNC", b"?", b"-1"]).await?;
    Ok(stream)
}

pub(super) async fn send(stream: &mut Box<dyn Stream>, command: &[&[u8]]) -> io::Result<()> {
    let mut bytes = Vec::new();
    encode::command(&mut bytes, command);
    stream.write_all(&bytes).await?;
    stream.flush().await
}
