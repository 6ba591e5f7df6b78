//! What duplicates keep of their replication streams, as the log for whoever leads next: it has
//! none, or one of an earlier term. Where the log is on a disk, what cannot be read is only missed:
//! the others are copied then.
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
use tokio::task::JoinSet;
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
use evenkeel_wal::{Log, LogError, LogPlace, RecordKind};

/// How often it is looked whether it is time to note where the stream of a duplicate is.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Looks after which that is noted of one that is written to: a second. When so many writes came
/// that they may be a quarter of what is kept, sooner.
const NOTE_AFTER: u32 = 20;
/// Looks after which one that is not written to is noted as well: it may have dropped its stream,
/// which a Redis does after an hour without replicas.
const NOTE_ANYWAY: u32 = 600 * NOTE_AFTER;
/// Bytes of a write in a stream, before that is known.
const WRITE_BYTES: f64 = 256.0;
/// How long a process that ends waits until it is noted where streams are.
const LAST_WITHIN: Duration = Duration::from_millis(250);
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
    let place = opened(connector, us, link).await?;
    fencing::note_landmark(link, us, &place, false).await
}

/// Where the stream of a duplicate is, which keeps it from now on.
async fn opened(
    connector: &Connector,
    us: &Us,
    link: &mut Link,
) -> Result<StreamPlace, FencingError> {
    let no = |why: &str| {
        let text = "it keeps no replication backlog, which is the log for who leads next";
        Err(FencingError::Passing(format!("{connector}: {text}{why}")))
    };
    if let Some(place) = place(link).await? {
        return Ok(place);
    }
    let asking = follow::as_replica(connector, &us.label()).await?;
    let mut opener = follow::ask_for_snapshot(asking).await?;
    let (times, apart) = follow::KEPT_BY_NOW;
    let mut said = Inbox::default();
    for _ in 0..times {
        if let Some(place) = place(link).await? {
            return Ok(place);
        }
        let reading = poll_fn(|context| said.poll_read(pin!(&mut opener), context));
        let count = timeout(apart, reading).await.ok().transpose()?;
        match count {
            Some(0) => break,
            Some(_) if said.filled().starts_with(b"-") => {
                return no(&format!(" ({})", String::from_utf8_lossy(said.filled()).trim_end()));
            }
            Some(_) => sleep(apart).await, // its snapshot begins
            None => {}
        }
    }
    no("")
}

async fn place(link: &mut Link) -> io::Result<Option<StreamPlace>> {
    Ok(StreamPlace::of(&link.ask(&[b"INFO", b"replication"]).await?))
}

/// Notes where the stream of a duplicate is, again and again while it is written to, for as long as
/// these connections to it are in use. What fails is tried again: it is of use only later.
pub(super) async fn keep(engine: Rc<Engine>, server: usize, connection: u64) {
    let (mut link, mut noted, mut looks) = (None, 0, 0);
    let (mut many, mut last) = (1, None::<StreamPlace>);
    loop {
        sleep(LOOK_EVERY).await;
        looks += 1;
        let (connector, us, writes) = {
            let inner = engine.look();
            if inner.servers[server].connection != connection {
                return;
            }
            let writes = inner.members.sent_to(server).0.saturating_sub(noted);
            if writes < many && looks < if writes > 0 { NOTE_AFTER } else { NOTE_ANYWAY } {
                continue;
            }
            (inner.connectors[server].clone(), inner.us_to(server), writes)
        };
        looks = 0;
        match note(&connector, &us, (link.take(), false)).await {
            Ok((used, place)) => {
                many = many_writes(writes, last.as_ref(), &place);
                (link, noted, last) = (Some(used), noted + writes, Some(place));
            }
            Err(error) => tracing::debug!(server, %error, "where its stream is was not noted"),
        }
    }
}

/// How many writes may be a quarter of what is kept of the stream, by how much these were.
fn many_writes(writes: u64, last: Option<&StreamPlace>, now: &StreamPlace) -> u64 {
    let came = last.map_or(0, |last| now.offset.saturating_sub(last.offset));
    let each = if came > 0 && writes > 0 { came as f64 / writes as f64 } else { WRITE_BYTES };
    (now.kept_bytes_max as f64 / 4.0 / each).max(1.0) as u64
}

async fn note(
    connector: &Connector,
    us: &Us,
    (link, is_last): (Option<Link>, bool),
) -> io::Result<(Link, StreamPlace)> {
    let mut link = match link {
        Some(link) => link,
        None => connect(connector, &us.label()).await?,
    };
    let noted = match place(&mut link).await? {
        Some(place) => place,
        None => opened(connector, us, &mut link).await?,
    };
    fencing::note_landmark(&mut link, us, &noted, is_last).await?;
    Ok((link, noted))
}

/// Notes once more where the streams of all live duplicates are, before this process ends.
pub(super) async fn note_all(engine: &Engine) {
    let mut noting = JoinSet::new();
    {
        let inner = engine.look();
        for server in (0..inner.servers.len()).filter(|&server| inner.members.is_settled(server)) {
            let (connector, us) = (inner.connectors[server].clone(), inner.us_to(server));
            if matches!(connector, Connector::Tcp { .. }) {
                noting.spawn_local(
                    async move { note(&connector, &us, (None, true)).await.map(drop) },
                );
            }
        }
    }
    let all = async { while noting.join_next().await.is_some() {} };
    let _ = timeout(LAST_WITHIN, all).await; // what is not noted is copied, or was noted before
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
///
/// # Errors
/// When the duplicate does not answer.
pub(super) async fn read_tail(
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

/// Whether a log on a disk can hold what these lines tell. One number is of one write there, while
/// a duplicate that came back may have told that of another partition's.
pub(super) fn fit_on_disk(lines: &[(usize, Line)]) -> bool {
    let of =
        |(_, line): &(usize, Line)| line.batches.iter().map(|it| it.mark.1).collect::<Vec<_>>();
    let mut numbers: Vec<u64> = lines.iter().flat_map(of).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len() == count
}

/// Gives a log that holds nothing what these lines tell, then begins this epoch, behind this write.
///
/// On a disk it is all of this epoch: opened again, it cannot tell what each duplicate has done in
/// the epochs before, and who has a watermark of those is filled.
///
/// # Errors
/// As [`Log::commit`].
pub(super) fn record(
    log: &mut Log,
    lines: Vec<(usize, Line)>,
    (epoch, last): (u64, u64),
    place: LogPlace,
) -> Result<(), LogError> {
    let begins = lines.iter().filter_map(|(_, line)| Some(line.base?.1)).min();
    let is_on_disk = place == LogPlace::Disk;
    // What was before the first write nobody can tell from what has been forgotten.
    let begins = begins.unwrap_or(last).max(u64::from(is_on_disk)).min(last);
    let mut batches: Vec<_> = lines
        .into_iter()
        .flat_map(|(partition, line)| line.batches.into_iter().map(move |it| (partition, it)))
        .filter(|(_, batch)| batch.mark.1 > begins || !is_on_disk)
        .collect();
    batches.sort_by_key(|(_, batch)| batch.mark.1);
    log.begin_after(begins)?;
    let mut bytes = 0;
    for (partition, batch) in batches {
        let (of, sequence) = batch.mark;
        if of > log.epoch() && of < epoch && !is_on_disk {
            log.begin_epoch(of)?;
        }
        log.append(sequence, (0, partition as u16), RecordKind::Once, &batch.commands)?;
        bytes += batch.commands.len();
        if bytes >= BATCH_BYTES {
            log.commit()?;
            bytes = 0;
        }
    }
    if is_on_disk && log.last_sequence() < last {
        // The last writes changed nothing: no stream has them.
        log.append(last, (0, 0), RecordKind::Once, b"")?;
    }
    log.commit()?;
    if !is_on_disk {
        log.skip_to(last);
    }
    log.begin_epoch(epoch)?;
    log.commit()
}
