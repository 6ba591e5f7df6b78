//! Where a service begins: from its log, or from what the duplicates have where the log is gone or
//! another process has written since.

use std::cmp::Reverse;
use std::io;
use std::time::Duration;

use evenkeel_ordered::{Acknowledge, Epoch, History, Position, Sequence};
use tokio::task::JoinSet;

use super::backlog;
use super::config::{Connector, DuplicatesConfig};
use evenkeel_leadership::Leadership;
use evenkeel_store_link::connect::connect;
use evenkeel_store_link::fencing::{self, Look};
use evenkeel_stores::resp::backlog::Line;
use evenkeel_wal::{Log, LogError, LogPlace, Recovered};

/// The log of this term, and the history it begins with.
pub(super) type Begun = (Log, History);

/// How long the first start waits for duplicates that do not answer, when the log is gone.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Bytes of a stream that are taken into the log, at most: they are held in memory.
const STREAM_BYTES_MAX: usize = 256 << 20;
/// How long another duplicate is waited for when enough have answered.
const OTHERS_WITHIN: Duration = Duration::from_millis(250);

/// The history this term begins with, in an epoch above every one that was ever seen.
///
/// The log says what was written. Where it is gone while duplicates have watermarks, one duplicate
/// of each partition is the history, the one that has most, and it is waited until enough answer
/// to be sure that one of them has everything that was acknowledged. *One*: watermarks are told
/// now and then, so two that say the same may differ in the writes since. It is named by the new
/// epoch, so that every other is copied anew, also one that is reached much later. And all are
/// fenced off *before* they are asked: whoever wrote before may be writing still.
///
/// The streams of those that are the history tell what they were given last (`backlog.rs`), so
/// that the others need not be copied: always where the log is in memory, which is gone at every
/// start, and as far as they can be read where it is on a disk.
///
/// A log that others have written after is an error, unless processes take turns: then it is set
/// aside, and the duplicates are asked.
pub(super) async fn begin(
    config: &DuplicatesConfig,
    connectors: &[Connector],
    mut log: Log,
    mut recovered: Recovered,
    leadership: Option<&Leadership>,
) -> io::Result<Begun> {
    let mut is_first = true;
    loop {
        let has_log = recovered.last_sequence > 0 || !recovered.epochs.is_empty();
        // Without a log their epochs are of no use where etcd gives them, unless there were some
        // before it did.
        let looks = match leadership {
            Some(_) if !has_log && is_first => Vec::new(),
            _ => ask_all(config, connectors, None).await,
        };
        is_first = false;
        let seen = looks.iter().flatten().flatten().map(|look| look.epoch);
        let seen = seen.max().unwrap_or_default();
        if has_log && seen.0 > log.epoch() {
            if leadership.is_none() {
                return Err(stale(config, seen, log.epoch()));
            }
            tracing::info!(service = config.name, "the log is of an earlier term: it is set aside");
            (log, recovered) = on_disk(log, Log::quarantine).await?;
            continue;
        }
        let above = seen.0.max(log.epoch());
        let epoch = match leadership {
            None => fencing::epoch_above(above),
            Some(leadership) => leadership.epoch_above(above).await?,
        };
        // A machine that lost power may have lost the log's end, which duplicates still have.
        let is_beyond = |watermark: Position| {
            watermark.epoch.0 == log.epoch() && watermark.sequence.0 > recovered.last_sequence
        };
        let furthest = furthest(looks.iter().flatten());
        let has_all = has_log && !furthest.is_some_and(is_beyond);
        let is_new = furthest.is_none() && !looks.iter().flatten().flatten().any(is_filling);
        // One in memory is gone at every start: who was written to may just not answer yet.
        let is_first_start = is_new && leadership.is_none() && config.log.place == LogPlace::Disk;
        if has_all || is_first_start {
            return begin_with(log, of_log(&recovered)?, Epoch(epoch)).await;
        }
        // One that holds something cannot take what streams tell of before.
        let reads = config.log.place == LogPlace::Memory || !has_log;
        match take_over(config, connectors, Epoch(epoch), reads).await {
            Ok(Taken::From(history, lines)) => {
                return begin_from((log, config.log.place), history, lines).await;
            }
            Ok(Taken::Nothing) => {
                return begin_with(log, of_log(&recovered)?, Epoch(epoch)).await;
            }
            Ok(Taken::NotYet) => tracing::warn!(
                service = config.name,
                "the log or its end is gone; waiting for duplicates, one of which must have \
                 everything"
            ),
            Err(error) => tracing::warn!(service = config.name, %error, "it is begun anew"),
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}

/// The history goes on from what duplicates have, and tell of it.
async fn begin_from(
    (log, place): (Log, LogPlace),
    history: Position,
    lines: Option<Lines>,
) -> io::Result<Begun> {
    let Some(lines) = lines else {
        let begins = move |log: &mut Log| {
            log.begin_after(history.sequence.0)?;
            log.begin_epoch(history.epoch.0)?;
            log.commit()
        };
        let (log, ()) = on_disk(log, begins).await?;
        return Ok((log, History::from_watermark(history)));
    };
    let stretches = backlog::stretches(&lines);
    let writes: usize = lines.iter().map(|(_, line)| line.batches.len()).sum();
    let record = move |log: &mut Log| backlog::record(log, lines, history.numbers(), place);
    let (log, ()) = on_disk(log, record).await?;
    tracing::info!(writes, last = history.sequence.0, "the log is what duplicates have of it");
    Ok((log, History::from_streams(history, stretches)))
}

/// What the log tells goes on in a new epoch.
async fn begin_with(log: Log, mut history: History, epoch: Epoch) -> io::Result<Begun> {
    let begins = move |log: &mut Log| {
        log.begin_epoch(epoch.0)?;
        log.commit()
    };
    let (log, ()) = on_disk(log, begins).await?;
    history.begin_epoch(epoch);
    Ok((log, history))
}

/// Does something to the log on another thread: a disk may take longer than the lease, which is
/// renewed on this one.
pub(super) async fn on_disk<T: Send + 'static>(
    mut log: Log,
    work: impl FnOnce(&mut Log) -> Result<T, LogError> + Send + 'static,
) -> io::Result<(Log, T)> {
    let working = tokio::task::spawn_blocking(move || work(&mut log).map(|done| (log, done)));
    working.await?.map_err(io::Error::other)
}

/// Another process has written since this log was: to go on from here would undo its writes.
fn stale(config: &DuplicatesConfig, theirs: Epoch, ours: u64) -> io::Error {
    io::Error::other(format!(
        "duplicates.{}: another process has taken over the duplicates since this log was written \
         (their epoch is {}, the log's {ours}), and the log in {} lacks its writes; to begin from \
         what the duplicates have, stop the other process and move the log away",
        config.name,
        theirs.0,
        config.log_directory.display(),
    ))
}

/// What came of taking over.
enum Taken {
    /// With what the streams of those that are the history tell, where that is the log.
    From(Position, Option<Lines>),
    /// Enough have answered, and none was ever written to by this service.
    Nothing,
    /// Too few have answered, or none is whole.
    NotYet,
}

/// What streams tell, by partition.
type Lines = Vec<(usize, Line)>;

/// Fences all duplicates off and chooses one of each partition as the history; `reads`: with what
/// their streams tell.
async fn take_over(
    config: &DuplicatesConfig,
    connectors: &[Connector],
    epoch: Epoch,
    reads: bool,
) -> io::Result<Taken> {
    let looks = ask_all(config, connectors, Some(epoch)).await;
    if !enough(config.members.acknowledge, &looks) {
        return Ok(Taken::NotYet);
    }
    if furthest(looks.iter().flatten()).is_none() {
        let is_new = !looks.iter().flatten().flatten().any(is_filling);
        return Ok(if is_new { Taken::Nothing } else { Taken::NotYet });
    }
    let (mut bases, mut lines, mut first) = (Vec::new(), Vec::new(), 0);
    let is_memory = config.log.place == LogPlace::Memory;
    let bytes_max = usize::try_from(config.log.bytes_max).unwrap_or(usize::MAX);
    let bytes_max = bytes_max.min(STREAM_BYTES_MAX);
    for (number, partition) in looks.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
        let candidates = candidates(partition);
        let Some(&foremost) = candidates.first() else { return Ok(Taken::NotYet) };
        let mut base = first + foremost;
        if reads && let Some(watermark) = partition[foremost].and_then(|it| it.watermark) {
            let of = |&place: &usize| partition[place].and_then(|it| it.watermark);
            let equal = candidates.iter().filter(|place| of(place) == Some(watermark));
            let mut equal: Vec<usize> = equal.map(|place| first + place).collect();
            let us = (&*config.name, epoch);
            if !is_memory {
                longest_first(us, connectors, &mut equal, watermark).await;
                base = equal[0];
            }
            if let Some((of, line)) = told(us, connectors, (&equal, watermark), bytes_max).await {
                base = of;
                lines.push((number, line));
            }
        }
        bases.push((number, base));
        first += partition.len();
    }
    if !is_memory && !backlog::fit_on_disk(&lines) {
        lines.clear();
    }
    let history = Position { epoch, sequence: number_tails(&looks, epoch, &mut lines) };
    for (number, base) in bases {
        let named = Position { epoch, sequence: last_of(number, &lines, history) };
        fencing::found(&connectors[base], &config.name, named).await?;
    }
    let is_told = is_memory || !lines.is_empty();
    Ok(Taken::From(history, is_told.then_some(lines)))
}

/// Names what came behind the last watermarks, which nobody else may have: by the new epoch, since
/// in the one before another write may have the same number. The last number of all.
fn number_tails(looks: &Looks, epoch: Epoch, lines: &mut Lines) -> Sequence {
    let marks = looks.iter().flatten().flatten().filter_map(|look| look.watermark);
    let mut last = marks.filter(is_named).map(|mark| mark.sequence).max().unwrap_or_default();
    for (_, line) in lines.iter_mut().filter(|(_, line)| !line.tail.is_empty()) {
        last = last.next();
        line.number_tail((epoch.0, last.0));
    }
    last
}

/// The number of what the history of a partition has last: that of its tail. Its stream then tells
/// the same as those of duplicates that get it from the log.
fn last_of(partition: usize, lines: &Lines, history: Position) -> Sequence {
    let line = lines.iter().find(|(of, _)| *of == partition);
    let last = line.and_then(|(_, line)| line.last()).filter(|last| last.0 == history.epoch.0);
    last.map_or(history.sequence, |(_, sequence)| Sequence(sequence))
}

/// Who of a partition may be the history, the furthest first; one that is empty, if nobody has
/// anything.
fn candidates(partition: &[Option<Look>]) -> Vec<usize> {
    let of = |place: usize| partition[place].and_then(|look| look.watermark).filter(is_named);
    let is_empty = |place: &usize| partition[*place].is_some_and(|look| !look.holds_data);
    let places = 0..partition.len();
    let mut named: Vec<usize> = places.clone().filter(|&place| of(place).is_some()).collect();
    named.sort_by_key(|&place| Reverse(of(place)));
    if named.is_empty() { places.into_iter().find(is_empty).into_iter().collect() } else { named }
}

/// Puts those first that have done most behind this watermark: a write is acknowledged when it is
/// answered, also where its watermark was not written any more.
async fn longest_first(
    (name, epoch): (&str, Epoch),
    connectors: &[Connector],
    places: &mut [usize],
    watermark: Position,
) {
    let label = fencing::Us { name: name.to_owned(), epoch, number: 0 }.label();
    let mut lengths = vec![0; connectors.len()];
    for &place in places.iter() {
        let connector = &connectors[place];
        if matches!(connector, Connector::Tcp { .. })
            && let Ok(Some(tail)) = backlog::read_tail(connector, &label, watermark).await
        {
            lengths[place] = tail.len();
        }
    }
    places.sort_by_key(|&place| Reverse(lengths[place])); // equal ones stay in their order
}

/// What the first of these tells whose stream can be read and ends with this watermark.
async fn told(
    (name, epoch): (&str, Epoch),
    connectors: &[Connector],
    (places, watermark): (&[usize], Position),
    bytes_max: usize,
) -> Option<(usize, Line)> {
    let us = fencing::Us { name: name.to_owned(), epoch, number: 0 };
    let is_redis = |place: &&usize| matches!(connectors[**place], Connector::Tcp { .. });
    for &place in places.iter().filter(is_redis) {
        match backlog::read_line(&connectors[place], &us.label(), bytes_max).await {
            Ok(Some(line)) if line.last() == Some(watermark.numbers()) => {
                return Some((place, line));
            }
            Ok(_) => tracing::info!(place, "the stream of a duplicate does not tell where it is"),
            Err(error) => tracing::info!(place, %error, "the stream of a duplicate is not read"),
        }
    }
    None
}

fn of_log(recovered: &Recovered) -> io::Result<History> {
    let epochs = recovered.epochs.iter();
    let epochs = epochs.map(|&(epoch, first)| (Epoch(epoch), Sequence(first))).collect();
    let held_from = Sequence(recovered.first_sequence);
    let history = History::of_log(epochs, held_from, Sequence(recovered.last_sequence));
    let mixed = || io::Error::other("the log's epochs do not ascend (two logs mixed up?)");
    let mut history = history.ok_or_else(mixed)?;
    if let Some(began) = recovered.state {
        history.record_state(Sequence(began));
    }
    Ok(history)
}

type Looks = Vec<Vec<Option<Look>>>;

/// What all duplicates have; with an epoch, after they are fenced off from those before it. Then
/// those that do not answer are not waited for long once enough have.
async fn ask_all(
    config: &DuplicatesConfig,
    connectors: &[Connector],
    epoch: Option<Epoch>,
) -> Looks {
    let (mut looking, mut connectors) = (JoinSet::new(), connectors.iter());
    for (partition, targets) in config.partitions.iter().enumerate() {
        for (place, connector) in (0..targets.len()).zip(&mut connectors) {
            let (connector, name) = (connector.clone(), config.name.clone());
            looking.spawn_local(async move {
                let looked = match epoch {
                    Some(epoch) => fencing::fence_off(&connector, &name, epoch).await,
                    None => look(&connector, &name).await,
                };
                (partition, place, looked)
            });
        }
    }
    let mut looks: Looks =
        config.partitions.iter().map(|targets| vec![None; targets.len()]).collect();
    loop {
        let next = looking.join_next();
        let next = match epoch {
            Some(_) if enough(config.members.acknowledge, &looks) => {
                tokio::time::timeout(OTHERS_WITHIN, next).await.ok().flatten()
            }
            _ => next.await,
        };
        match next {
            None => return looks,
            Some(Err(_)) => {}
            Some(Ok((partition, place, looked))) => {
                let reported =
                    |error: &io::Error| tracing::info!(%error, "a duplicate is not asked");
                looks[partition][place] = looked.inspect_err(reported).ok();
            }
        }
    }
}

async fn look(connector: &Connector, name: &str) -> io::Result<Look> {
    let mut link = connect(connector, &format!("evenkeel-{name}-look")).await?;
    fencing::look(&mut link, name).await
}

fn furthest<'a>(looks: impl Iterator<Item = &'a Option<Look>>) -> Option<Position> {
    looks.flatten().filter_map(|look| look.watermark).filter(is_named).max()
}

/// Not of one that is being filled.
const fn is_named(watermark: &Position) -> bool {
    watermark.epoch.0 != u64::MAX
}

/// Whether one of those that answered must have every write that was acknowledged.
fn enough(level: Acknowledge, looks: &Looks) -> bool {
    looks.iter().filter(|partition| !partition.is_empty()).all(|partition| {
        let (all, answered) = (partition.len(), partition.iter().flatten().count());
        // One that was emptied, by us to be filled or by others, had perhaps acknowledged what was
        // in it.
        let marks = || partition.iter().flatten().map(|look| look.watermark);
        let is_begun = marks().flatten().any(|mark| is_named(&mark) && mark.sequence.0 > 0);
        let is_whole = |mark: &Option<Position>| mark.map_or(!is_begun, |mark| is_named(&mark));
        let whole = marks().filter(is_whole).count();
        match level {
            Acknowledge::Majority => whole > all / 2 || answered == all,
            Acknowledge::One | Acknowledge::All => answered == all,
        }
    })
}

fn is_filling(look: &Look) -> bool {
    look.watermark.is_some_and(|watermark| !is_named(&watermark))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use evenkeel_store_link::fencing::NOBODYS;
    use evenkeel_stores::resp::backlog::Batch;
    use evenkeel_stores::store::keys::WATERMARK;
    use evenkeel_testkit::folder::Folder;
    use evenkeel_testkit::redis::{self, Redis};
    use evenkeel_testkit::story::skipped;
    use evenkeel_wal::{LogSettings, Part};

    /// With the lease among the others it would end, and nobody would lead.
    #[test]
    fn others_have_their_turn_while_the_disk_is_slow() {
        let name = format!("evenkeel-takeover-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let (log, _) = Log::open(&directory, LogSettings::default()).unwrap();
        let (renewed, until_renewed) = mpsc::channel();
        evenkeel_runtime::accept::worker_runtime().unwrap().block_on(async {
            tokio::task::spawn_local(async move { renewed.send(()).unwrap() });
            let within = Duration::from_secs(20);
            let slow = move |_: &mut Log| Ok(until_renewed.recv_timeout(within).is_ok());
            assert!(on_disk(log, slow).await.unwrap().1);
        });
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// The last write of a dead leader, in the lines of two partitions: both have a place, and a
    /// duplicate that has another write of that number is not ours.
    #[test]
    fn tails_are_of_the_new_epoch_and_each_has_its_own_number() {
        let mark = |sequence| Position { epoch: Epoch(4), sequence: Sequence(sequence) };
        let look = |sequence| {
            let (watermark, holds_data, database_last) = (Some(mark(sequence)), true, 0);
            vec![Some(Look { epoch: Epoch(9), watermark, holds_data, database_last })]
        };
        let line = |last, tail: &[u8]| {
            let epochs = vec![(4, 90, last)];
            Line { base: Some((4, 90)), epochs, tail: tail.to_vec(), ..Line::default() }
        };
        let mut lines = vec![(0, line(100, b"a")), (1, line(95, b"b")), (2, line(99, b""))];
        let looks = vec![look(100), look(95), look(99)];
        let last = number_tails(&looks, Epoch(9), &mut lines);
        let history = Position { epoch: Epoch(9), sequence: last };
        let of = |partition| last_of(partition, &lines, history).0;
        assert_eq!((of(0), of(1), of(2)), (101, 102, 102));
        let known = History::from_streams(history, backlog::stretches(&lines));
        assert_eq!(known.renamed(0, mark(101)), None, "it has another one's last write");
        assert_eq!(known.renamed(0, mark(100)), Some(mark(100)));
        let named = Position { epoch: Epoch(9), sequence: Sequence(101) };
        assert_eq!(known.position(Sequence(101)), named, "who gets it says so");
        let (mut log, _) = Log::open(&std::env::temp_dir(), in_memory()).unwrap();
        backlog::record(&mut log, lines, history.numbers(), LogPlace::Memory).unwrap();
        assert_eq!((log.epoch(), log.last_sequence()), (9, 102));
    }

    fn in_memory() -> LogSettings {
        LogSettings { place: LogPlace::Memory, ..LogSettings::default() }
    }

    /// A duplicate that came back is marked with the last number of all partitions, which a write
    /// of another one has.
    #[test]
    fn two_partitions_may_tell_the_same_number() {
        let batch = |mark, commands: &[u8]| Batch { mark, commands: commands.to_vec() };
        let line = |batches: Vec<Batch>| {
            let epochs = vec![(4, 130, 150)];
            Line { base: Some((4, 130)), epochs, batches: batches.into(), ..Line::default() }
        };
        let lines = vec![
            (0, line(vec![batch((4, 140), b"c"), batch((4, 150), b"a")])),
            (1, line(vec![batch((4, 150), b"b")])),
        ];
        let (mut log, _) = Log::open(&std::env::temp_dir(), in_memory()).unwrap();
        assert!(!backlog::fit_on_disk(&lines), "where a number is of one write");
        backlog::record(&mut log, lines, (9, 150), LogPlace::Memory).unwrap();
        for (partition, expected) in [(0, vec![&b"c"[..], b"a"]), (1, vec![b"b"])] {
            let part = Part { partition, shards: Vec::new() };
            let mut reader = log.read_after(130, Some(&part)).unwrap();
            let mut found = Vec::new();
            while let Some(record) = reader.next().unwrap() {
                found.push(record.command.to_vec());
            }
            assert_eq!(found, expected, "partition {partition}");
            assert!(reader.is_at_end());
        }
    }

    /// Of one that was fenced off between a write, which it had answered, and its watermark.
    #[test]
    fn who_did_most_behind_the_same_watermark_is_the_history() {
        if let Err(missing) = redis::possible() {
            return skipped(&missing);
        }
        let folder = Folder::new("takeover-longest");
        let redises = ["a", "b", "c"].map(|name| Redis::new(folder.file(name)));
        let connector = |it: &Redis| Connector::Tcp {
            address: it.address.into(),
            login: None,
            tls: None,
            is_cluster: false,
        };
        let connectors: Vec<Connector> = redises.iter().map(connector).collect();
        let us = fencing::Us { name: "cart".to_owned(), epoch: Epoch(4), number: 1 };
        evenkeel_runtime::accept::worker_runtime().unwrap().block_on(async {
            for (connector, does) in connectors.iter().zip([0, 2, 1]) {
                let mut link = connect(connector, &us.label()).await.unwrap();
                assert!(fencing::fence(&mut link, &us, connector).await.is_ok());
                assert!(backlog::begin(connector, &us, &mut link).await.is_ok());
                link.expect_ok(&[b"SET", b"a", b"1"]).await.unwrap();
                link.expect_ok(&[b"SET", WATERMARK, b"4 5"]).await.unwrap();
                for key in ["b", "c"].iter().take(does) {
                    link.expect_ok(&[b"SET", key.as_bytes(), b"1"]).await.unwrap();
                }
            }
            let watermark = Position { epoch: Epoch(4), sequence: Sequence(5) };
            let mut places = vec![0, 1, 2];
            longest_first(("cart", Epoch(9)), &connectors, &mut places, watermark).await;
            assert_eq!(places, [1, 2, 0]);
        });
    }

    /// Opened again, it does not say who did what in the terms before: a watermark of those is no
    /// place in it. Nor is it everything, though it tells of the first write; and the last one,
    /// which changed nothing, has its place.
    #[test]
    fn a_log_on_a_disk_that_was_read_from_streams_tells_one_term() {
        let name = format!("evenkeel-takeover-disk-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let batch = |sequence, commands: &[u8]| {
            let (mark, commands) = ((4, sequence), commands.to_vec());
            Batch { mark, commands }
        };
        for (base, first) in [(0, 2), (3, 4)] {
            let batches = vec![batch(1, b"before"), batch(5, b"a"), batch(6, b"b")];
            let batches = batches.into_iter().filter(|it| it.mark.1 > base).collect();
            let (base, epochs) = (Some((4, base)), vec![(4, base, 8)]);
            let lines = vec![(0, Line { base, epochs, batches, ..Line::default() })];
            assert!(backlog::fit_on_disk(&lines));
            let (mut log, _) = Log::open(&directory, LogSettings::default()).unwrap();
            backlog::record(&mut log, lines, (9, 8), LogPlace::Disk).unwrap();
            drop(log);
            let (log, recovered) = Log::open(&directory, LogSettings::default()).unwrap();
            assert_eq!((recovered.first_sequence, recovered.last_sequence), (first, 8));
            let history = of_log(&recovered).unwrap();
            let is_ours = |epoch, sequence| {
                history.is_ours(Position { epoch: Epoch(epoch), sequence: Sequence(sequence) })
            };
            assert!(is_ours(9, 8) && !is_ours(4, 8) && !is_ours(4, 5) && !history.is_whole());
            let part = Part { partition: 0, shards: Vec::new() };
            let mut reader = log.read_after(first - 1, Some(&part)).unwrap();
            let mut found = Vec::new();
            while let Some(record) = reader.next().unwrap() {
                found.push((record.sequence, record.command.to_vec()));
            }
            assert_eq!(found, [(5, b"a".to_vec()), (6, b"b".to_vec()), (8, Vec::new())]);
            drop(log);
            std::fs::remove_dir_all(&directory).unwrap();
        }
    }

    /// One that somebody emptied had acknowledged what only it and one that is away had.
    #[test]
    fn who_was_emptied_is_no_part_of_a_majority() {
        let look = |watermark: Option<Position>| {
            Some(Look {
                epoch: Epoch(3),
                watermark,
                holds_data: watermark.is_some(),
                database_last: 0,
            })
        };
        let at = |sequence| Some(Position { epoch: Epoch(3), sequence: Sequence(sequence) });
        for (looks, is_enough) in [
            ([look(at(7)), look(at(9)), None], true),
            ([look(at(7)), look(None), None], false), // emptied
            ([look(at(7)), look(Some(NOBODYS)), None], false),
            ([look(at(7)), look(None), look(at(8))], true),
            ([look(at(7)), look(None), look(None)], true), // nobody else will tell more
            ([look(None), look(None), None], true),        // the first start
            ([look(at(0)), look(None), None], true),
        ] {
            assert_eq!(
                enough(Acknowledge::Majority, &vec![looks.to_vec()]),
                is_enough,
                "{looks:?}"
            );
        }
    }
}
