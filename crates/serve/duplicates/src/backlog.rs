//! What duplicates keep of their replication streams, as the log of a service that has none on a
//! disk: whoever leads next reads it there.
//!
//! A Redis keeps the last bytes of its stream (`repl-backlog-size`) once somebody has asked for it
//! ([`follow`]), and tells them from any byte on. Where commands end in it is noted in its stamp
//! while it is written to ([`evenkeel_stores::resp::backlog::Landmarks`]).
//!
//! **Who lags** when another process takes over is given what the furthest one has done since, if
//! its own stream shows that it did nothing else: what it was sent last may have reached nobody
//! else, and has no watermark yet. Who was restarted has another stream, and is filled anew.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_ordered::{Epoch, Position, Sequence, Stretch};
use tokio::time::{sleep, timeout};

use super::config::Connector;
use super::follow;
use evenkeel_duplicates_engine::Engine;
use evenkeel_store_link::connect::{Link, connect};
use evenkeel_store_link::fencing::{self, FencingError, Us};
use evenkeel_store_link::inbox::Inbox;
use evenkeel_stores::resp::backlog::{Landmarks, Line, LineBuilder, StreamPlace, is_beginning};
use evenkeel_stores::resp::replication::{Event, ReplicationParser};
use evenkeel_stores::resp::request::Limits;
use evenkeel_wal::{Log, LogError, RecordKind};

/// How often it is noted where the stream of a duplicate is that is written to.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// How long the next bytes of a backlog may take.
const NEXT_WITHIN: Duration = Duration::from_secs(2);
/// What is appended to the log at once.
const BATCH_BYTES: usize = 1 << 20;

/// Has a duplicate keep its stream, and notes where that is, before it is written to.
///
/// # Errors
/// When it does not, or is not ours any more.
pub(super) async fn begin(
    connector: &Connector,
    us: &Us,
    link: &mut Link,
) -> Result<(), FencingError> {
    let mut opener = None;
    let (times, apart) = follow::KEPT_BY_NOW;
    for _ in 0..times {
        if let Some(place) = place(link).await? {
            return fencing::note_landmark(link, us, &place).await;
        }
        if opener.is_none() {
            let asking = follow::as_replica(connector, &us.label()).await?;
            opener = Some(follow::ask_for_snapshot(asking).await?);
        }
        sleep(apart).await;
    }
    let text = "it keeps no replication backlog, which is the log where log = \"memory\"";
    Err(FencingError::Passing(format!("{connector}: {text}")))
}

async fn place(link: &mut Link) -> io::Result<Option<StreamPlace>> {
    Ok(StreamPlace::of(&link.ask(&[b"INFO", b"replication"]).await?))
}

/// Notes where the stream of a duplicate is, again and again while it is written to, for as long as
/// these connections to it are in use. What fails is tried again: it is of use only later.
pub(super) async fn keep(engine: Rc<Engine>, server: usize, connection: u64) {
    let (mut link, mut noted) = (None, 0);
    loop {
        sleep(NOTE_EVERY).await;
        let (connector, us, sent) = {
            let inner = engine.look();
            if inner.servers[server].connection != connection {
                return;
            }
            let sent = inner.members.sent_to(server).0;
            (inner.connectors[server].clone(), inner.us_to(server), sent)
        };
        if sent == noted {
            continue;
        }
        match note(&connector, &us, link.take()).await {
            Ok(used) => (link, noted) = (Some(used), sent),
            Err(error) => tracing::debug!(server, %error, "where its stream is was not noted"),
        }
    }
}

async fn note(connector: &Connector, us: &Us, link: Option<Link>) -> io::Result<Link> {
    let mut link = match link {
        Some(link) => link,
        None => connect(connector, &us.label()).await?,
    };
    if let Some(place) = place(&mut link).await? {
        fencing::note_landmark(&mut link, us, &place).await?;
    }
    Ok(link)
}

/// What the stream of a duplicate tells, as far back as it is known and so many bytes of it; `None`
/// where nothing of it can be read.
///
/// # Errors
/// When the duplicate does not answer.
pub(super) async fn read_line(
    connector: &Connector,
    label: &str,
    bytes_max: usize,
) -> io::Result<Option<Line>> {
    let (landmarks, end) = landmarks(connector, label).await?;
    let Some(&oldest) = landmarks.offsets.first() else { return Ok(None) };
    read(connector, label, (&landmarks.id, oldest, end), bytes_max).await.map(Some)
}

/// What a duplicate has done behind this watermark, its last; `None` where that cannot be known.
async fn read_tail(
    connector: &Connector,
    label: &str,
    watermark: Position,
) -> io::Result<Option<Vec<u8>>> {
    let (landmarks, end) = landmarks(connector, label).await?;
    for &offset in landmarks.offsets.iter().rev() {
        let line = read(connector, label, (&landmarks.id, offset, end), usize::MAX).await?;
        if line.last() == Some(watermark.numbers()) {
            return Ok(Some(line.tail));
        }
    }
    Ok(None)
}

/// The landmarks of its stream that can be read from, and its end.
async fn landmarks(connector: &Connector, label: &str) -> io::Result<(Landmarks, u64)> {
    let mut link = connect(connector, label).await?;
    let mut landmarks = fencing::landmarks(&mut link).await?;
    let Some(place) = place(&mut link).await? else { return Ok(Default::default()) };
    let kept = place.first_kept.saturating_sub(1)..=place.offset;
    landmarks.offsets.retain(|offset| place.id == landmarks.id && kept.contains(offset));
    Ok((landmarks, place.offset))
}

async fn read(
    connector: &Connector,
    label: &str,
    (id, from, end): (&[u8], u64, u64),
    bytes_max: usize,
) -> io::Result<Line> {
    let mut stream = follow::as_replica(connector, label).await?.into_stream()?;
    let mut parser = ReplicationParser::new(Limits::MAX);
    parser.go_on_from(id, from);
    follow::send(&mut stream, &[b"PSYNC", id, (from + 1).to_string().as_bytes()]).await?;
    let (mut inbox, mut line) = (Inbox::default(), LineBuilder::new(bytes_max));
    let mut is_open = false;
    while !is_open || parser.offset() < end {
        let (count, event) = parser.next(inbox.filled()).map_err(io::Error::other)?;
        match event {
            Some(Event::Snapshot) => {
                return Err(io::Error::other("its backlog does not reach back that far"));
            }
            Some(Event::Commands) => is_open = true,
            Some(Event::Command) => {
                line.take(parser.arguments(inbox.filled()), &inbox.filled()[..count]);
            }
            None if count == 0 => {
                let reading = poll_fn(|context| inbox.poll_read(pin!(&mut stream), context));
                if timeout(NEXT_WITHIN, reading).await?? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            None => {}
        }
        inbox.consume(count);
    }
    Ok(line.finish())
}

/// Whether a duplicate has done nothing behind its watermark but what the log has behind that. It
/// was given in a term before this one: what it was sent then may have reached nobody else.
pub(super) async fn has_done_the_same(
    engine: &Engine,
    server: usize,
    connector: &Connector,
    watermark: Position,
) -> io::Result<bool> {
    let label = engine.look().us_to(server).label();
    let Some(tail) = read_tail(connector, &label, watermark).await? else { return Ok(false) };
    if tail.is_empty() {
        return Ok(true);
    }
    let inner = engine.look();
    let partition = inner.members.partition(server);
    let Some(at) = inner.history.renamed(partition, watermark) else { return Ok(false) };
    let part = inner.part(partition);
    let Ok(mut log) = inner.log.read_after(at.sequence.0, Some(&part)) else { return Ok(false) };
    let (mut after, mut length) = (Vec::new(), 0);
    while length < tail.len() && !log.is_at_end() {
        if let Some(record) = log.next().map_err(io::Error::other)? {
            length += record.command.len();
            after.push(record.command.to_vec());
        }
    }
    Ok(is_beginning(&tail, after.iter().map(Vec::as_slice)))
}

/// The parts of the order of writes that these lines of partitions tell.
pub(super) fn stretches(lines: &[(usize, Line)]) -> Vec<Stretch> {
    let of = |(partition, line): &(usize, Line)| {
        let partition = *partition;
        let stretch = |&(epoch, first, last): &(u64, u64, u64)| {
            let (epoch, first, last) = (Epoch(epoch), Sequence(first), Sequence(last));
            Stretch { partition, epoch, first, last }
        };
        line.epochs.iter().map(stretch).collect::<Vec<_>>()
    };
    lines.iter().flat_map(of).collect()
}

/// Gives a log that holds nothing what these lines tell, then begins this epoch, behind this write.
///
/// # Errors
/// As [`Log::commit`].
pub(super) fn record(
    log: &mut Log,
    lines: Vec<(usize, Line)>,
    (epoch, last): (u64, u64),
) -> Result<(), LogError> {
    let begins = lines.iter().filter_map(|(_, line)| Some(line.base?.1)).min();
    let mut batches: Vec<_> = lines
        .into_iter()
        .flat_map(|(partition, line)| line.batches.into_iter().map(move |it| (partition, it)))
        .collect();
    batches.sort_by_key(|(_, batch)| batch.mark.1);
    log.begin_after(begins.unwrap_or(last).min(last))?;
    let mut bytes = 0;
    for (partition, batch) in batches {
        let (of, sequence) = batch.mark;
        if of > log.epoch() && of < epoch {
            log.begin_epoch(of)?;
        }
        log.append(sequence, (0, partition as u16), RecordKind::Once, &batch.commands)?;
        bytes += batch.commands.len();
        if bytes >= BATCH_BYTES {
            log.commit()?;
            bytes = 0;
        }
    }
    log.commit()?;
    log.skip_to(last);
    log.begin_epoch(epoch)?;
    log.commit()
}
