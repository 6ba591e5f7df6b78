//! Follows the key events of the duplicates that tell them
//! (`duplicates-engine/src/key_events.rs`): a subscription on a connection of its own.
//!
//! The connection says `PING` now and then: a subscription that says nothing for long would not
//! show otherwise that its other end is gone. It has the name of the duplicate's other connections,
//! so that whoever takes over fences it off with them.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio::time::interval;

use evenkeel_duplicates_engine::Engine;
use evenkeel_store_link::connect::{Stream, connect};
use evenkeel_store_link::inbox::Inbox;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::key_events::PATTERNS;
use evenkeel_stores::resp::reply::{ReplyScanner, elements, payload};

/// How often it is looked whether somebody still listens, and in how many of these a source must
/// have said something.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS_PER_PING: u32 = 5;

/// Follows the sources that are wanted, for the life of the service.
pub(super) async fn keep(engine: Rc<Engine>) {
    let wanted = engine.look().key_events_wanted();
    let mut tasks = JoinSet::new();
    loop {
        wanted.notified().await;
        for (server, serial) in engine.look().take_wanted_sources() {
            tasks.spawn_local(follow(Rc::clone(&engine), server, serial));
        }
        while tasks.try_join_next().is_some() {}
    }
}

async fn follow(engine: Rc<Engine>, server: usize, serial: u64) {
    let Err(error) = run(&engine, server, serial).await else { return };
    let mut inner = engine.borrow();
    inner.read_clock();
    inner.source_failed(server, serial, &error.to_string());
}

/// One connection, until it breaks (an error) or nobody needs it.
async fn run(engine: &Engine, server: usize, serial: u64) -> io::Result<()> {
    let (connector, label) = {
        let inner = engine.look();
        (inner.connectors[server].clone(), inner.us_to(server).label())
    };
    let mut link = connect(&connector, &label).await?;
    // Where that may not be asked, it is not known how it tells what has expired.
    let reply = link.ask(&[b"CONFIG", b"GET", b"notify-keyspace-events"]).await?;
    let value = elements(&reply).nth(1).and_then(payload).unwrap_or_default().to_vec();
    let mut stream = link.into_stream()?;
    send(&mut stream, &[b"PSUBSCRIBE", PATTERNS[0], PATTERNS[1]]).await?;
    let (mut inbox, mut scanner) = (Inbox::default(), ReplyScanner::default());
    let mut due = interval(LOOK_EVERY);
    let (mut confirmed, mut looks, mut was_heard) = (0, 0, true);
    loop {
        let coming = poll_fn(|context| inbox.poll_read(pin!(&mut stream), context));
        let count = tokio::select! {
            count = coming => Some(count?),
            _ = due.tick() => None,
        };
        match count {
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(_) => was_heard = true,
            None if !engine.look().is_source(server, serial) => return Ok(()),
            None => {
                looks += 1;
                if looks % LOOKS_PER_PING == 0 {
                    if !std::mem::take(&mut was_heard) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    send(&mut stream, &[b"PING"]).await?;
                }
                continue;
            }
        }
        let mut inner = engine.borrow();
        inner.read_clock();
        while let Some(length) = scanner.scan(inbox.filled()).map_err(io::Error::other)? {
            let reply = &inbox.filled()[scanner.body()];
            if reply.first() == Some(&b'-') {
                return Err(io::Error::other(String::from_utf8_lossy(reply).into_owned()));
            }
            let words: Vec<&[u8]> = elements(reply).filter_map(payload).take(4).collect();
            match words.as_slice() {
                [b"pmessage", _, channel, text] => {
                    inner.key_event_came(server, serial, channel, text);
                }
                [b"psubscribe", ..] => {
                    confirmed += 1;
                    if confirmed == PATTERNS.len() {
                        inner.source_opened(server, serial, &value);
                    }
                }
                _ => {} // PONG
            }
            inbox.consume(length);
        }
    }
}

async fn send(stream: &mut Box<dyn Stream>, command: &[&[u8]]) -> io::Result<()> {
    let mut bytes = Vec::new();
    encode::command(&mut bytes, command);
    stream.write_all(&bytes).await?;
    stream.flush().await
}
