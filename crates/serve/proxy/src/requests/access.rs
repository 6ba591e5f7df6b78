//! The access log: one line for each request that is wanted, written by a thread of its own.
//!
//! Who serves requests never waits for it: lines wait in a bounded queue, and those that find it
//! full are counted and lost. So are those that cannot be written (a full disk); that is said once
//! until it goes again.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use evenkeel_geo::epoch::StableHash;
use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};

use super::record::RequestRecord;
use super::wanted::Rules;

/// Lines that may wait for the thread that writes them.
const WAITING_MAX: usize = 8_192;

/// `[log] access`.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessConfig {
    /// Where lines go.
    pub target: Target,
    /// The share of requests that are logged though nothing is remarkable about them: 0 to 1.
    pub sample: f64,
    /// What takes longer is always logged; `None` = what is slow beside others.
    pub slow: Option<Duration>,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The process's standard output.
    Stdout,
    /// The end of a file, which is made where there is none.
    File(PathBuf),
}

/// What is counted of it.
#[derive(Debug, Default)]
pub struct AccessCounts {
    /// Lines that were written.
    pub written: AtomicU64,
    /// Lines that found the queue full.
    pub queue_full: AtomicU64,
    /// Lines that could not be written.
    pub failed: AtomicU64,
}

/// For whoever has lines to write.
#[derive(Clone, Debug)]
pub struct Access {
    rules: Arc<Rules>,
    counts: Arc<AccessCounts>,
    lines: mpsc::Sender<String>,
}

/// To change where lines go, and which are wanted.
#[derive(Debug)]
pub struct AccessControl {
    rules: Arc<Rules>,
    counts: Arc<AccessCounts>,
    target: watch::Sender<Option<Target>>,
}

/// Writes lines.
#[derive(Debug)]
pub struct AccessWriter {
    lines: mpsc::Receiver<String>,
    target: watch::Receiver<Option<Target>>,
    counts: Arc<AccessCounts>,
}

/// The three ends of an access log. It is off with `None`.
pub fn open(config: Option<&AccessConfig>) -> (Access, AccessControl, AccessWriter) {
    let (sender, lines) = mpsc::channel(WAITING_MAX);
    let (target, targets) = watch::channel(None);
    let (rules, counts) = (Arc::<Rules>::default(), Arc::<AccessCounts>::default());
    let writer = AccessWriter { lines, target: targets, counts: Arc::clone(&counts) };
    let access = Access { rules: Arc::clone(&rules), counts: Arc::clone(&counts), lines: sender };
    let control = AccessControl { rules, counts, target };
    control.set(config);
    (access, control, writer)
}

impl AccessControl {
    /// Follows this configuration from now on. A file is opened again, also the same: it may have
    /// been moved away.
    pub fn set(&self, config: Option<&AccessConfig>) {
        self.target.send_replace(config.map(|config| config.target.clone()));
        self.rules.set(config.map(|config| (config.sample, config.slow)));
    }

    /// What is counted.
    pub const fn counts(&self) -> &Arc<AccessCounts> {
        &self.counts
    }
}

impl Access {
    /// Whether there is an access log at the moment.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.rules.is_on()
    }

    /// Whether a line is wanted of a request that has ended.
    pub fn wants(&self, record: &RequestRecord) -> bool {
        self.rules.is_remarkable(record) || self.rules.draws_any(drawn_by(record))
    }

    /// Hands a line over, without its end.
    pub fn write(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            self.counts.queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What processes that see the same request know of it: its trace, or its id.
fn drawn_by(record: &RequestRecord) -> u128 {
    if record.trace_id != 0 {
        return record.trace_id;
    }
    let mut hash = StableHash::default();
    hash.bytes(record.id.bytes());
    hash.finish().into()
}

impl AccessWriter {
    /// Writes until nobody has lines any more.
    pub async fn run(mut self) {
        let mut sink = Sink::default();
        let first = self.target.borrow_and_update().clone();
        sink.open(first);
        let mut has_control = true;
        loop {
            tokio::select! {
                biased;
                changed = self.target.changed(), if has_control => match changed {
                    Ok(()) => {
                        let target = self.target.borrow_and_update().clone();
                        sink.open(target);
                    }
                    Err(_) => has_control = false,
                },
                line = self.lines.recv() => match line {
                    Some(line) => self.burst(line, &mut sink),
                    None => return,
                },
            }
        }
    }

    /// Writes a line and all that wait, then hands them to the system together.
    fn burst(&mut self, line: String, sink: &mut Sink) {
        let mut next = Some(line);
        let mut taken = 0;
        while let Some(mut line) = next {
            line.push('\n');
            sink.write(&line);
            taken += 1;
            // Another target may wait behind a stream of lines without an end.
            next = if taken < WAITING_MAX { self.lines.try_recv().ok() } else { None };
        }
        let failed = sink.flush(taken as u64);
        self.counts.failed.fetch_add(failed, Ordering::Relaxed);
        self.counts.written.fetch_add(taken as u64 - failed, Ordering::Relaxed);
    }
}

/// Where lines go at the moment.
#[derive(Default)]
struct Sink {
    target: Option<Target>,
    file: Option<BufWriter<Box<dyn io::Write + Send>>>,
    /// Whether something went wrong since it last went well, and was said.
    is_said: bool,
    error: Option<io::Error>,
}

impl Sink {
    fn open(&mut self, target: Option<Target>) {
        self.file = None;
        self.target = target;
        match self.reopen() {
            Ok(()) => self.is_said = false,
            Err(error) => self.say(&error),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        let file: Box<dyn io::Write + Send> = match &self.target {
            None => return Ok(()),
            Some(Target::Stdout) => Box::new(io::stdout()),
            Some(Target::File(path)) => {
                Box::new(std::fs::OpenOptions::new().create(true).append(true).open(path)?)
            }
        };
        self.file = Some(BufWriter::with_capacity(64 * 1024, file));
        Ok(())
    }

    fn write(&mut self, line: &str) {
        if self.error.is_some() {
            return;
        }
        let opened = if self.file.is_none() { self.reopen() } else { Ok(()) };
        let written = opened.and_then(|()| match &mut self.file {
            Some(file) => file.write_all(line.as_bytes()),
            None => Ok(()), // it was switched off meanwhile
        });
        self.error = written.err();
    }

    /// Ends a burst of so many lines; how many of them were lost.
    fn flush(&mut self, lines: u64) -> u64 {
        let flushed = self.file.as_mut().map_or(Ok(()), io::Write::flush);
        let error = self.error.take().or(flushed.err());
        let Some(error) = error else {
            self.is_said &= self.file.is_none();
            return 0;
        };
        self.say(&error);
        if let Some(file) = self.file.take() {
            let _ = file.into_parts(); // not written once more when it is dropped
        }
        lines
    }

    fn say(&mut self, error: &io::Error) {
        if std::mem::replace(&mut self.is_said, true) {
            return;
        }
        let path = match &self.target {
            Some(Target::File(path)) => path.display().to_string(),
            Some(Target::Stdout) | None => "stdout".to_owned(),
        };
        tracing::error!(
            %error,
            "the access log {path} cannot be written; lines are lost and counted until it can"
        );
    }
}

/// A moment as RFC 3339 in UTC, to the microsecond.
pub fn timestamp(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at.max(SystemTime::UNIX_EPOCH));
    let (date, (hour, minute, second, micro)) = (at.date(), at.time().as_hms_micro());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z")
}

#[cfg(test)]
mod tests {
    use evenkeel_core::Instant;

    use super::*;

    fn config(target: Target) -> AccessConfig {
        AccessConfig { target, sample: 0.01, slow: Some(Duration::from_millis(250)) }
    }

    fn record(trace_id: u128, total_us: u32) -> RequestRecord {
        RequestRecord { trace_id, total_us, ..RequestRecord::new(Instant::ZERO, 0) }
    }

    #[test]
    fn slow_and_failed_ones_are_wanted_and_a_share_of_the_others() {
        let (access, control, _writer) = open(Some(&config(Target::Stdout)));
        let quick = |trace: u128| record(trace * 0x1234_5678_9abc_def1, 1_000);
        let drawn = (1..=100_000).filter(|&n| access.wants(&quick(n))).count();
        assert!((800..1_200).contains(&drawn), "1 % of 100,000: {drawn}");
        assert!((1..1_000).all(|n| access.wants(&record(n, 250_001))));
        for trace_id in 1..1_000 {
            let mut failed = record(trace_id, 10);
            failed.status = 502;
            assert!(access.wants(&failed), "{trace_id}");
        }
        control.set(None);
        assert!(!access.is_on());
    }

    #[test]
    fn requests_of_no_trace_are_drawn_by_their_ids() {
        let (access, _control, _writer) = open(Some(&config(Target::Stdout)));
        let with_id = |id: &str| {
            let mut quick = record(0, 1_000);
            quick.id.set(&[id.as_bytes()]);
            quick
        };
        let drawn = (0..100_000).filter(|n| access.wants(&with_id(&format!("{n:032x}")))).count();
        assert!((800..1_200).contains(&drawn), "1 % of 100,000: {drawn}");
    }

    #[test]
    fn who_has_a_line_never_waits() {
        let (access, _control, _writer) = open(Some(&config(Target::Stdout)));
        for _ in 0..WAITING_MAX + 5 {
            access.write(String::new());
        }
        assert_eq!(access.counts.queue_full.load(Ordering::Relaxed), 5);
    }

    #[tokio::test]
    async fn a_file_that_was_moved_away_is_opened_again_and_one_that_cannot_be_is_counted() {
        let folder = std::env::temp_dir().join(format!("evenkeel-access-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, moved) = (folder.join("access.log"), folder.join("access.log.1"));
        let of = config(Target::File(path.clone()));
        let (access, control, writer) = open(Some(&of));
        let counts = Arc::clone(control.counts());
        let writing = tokio::task::spawn(writer.run());
        let until = async |written: u64, failed: u64| {
            while counts.written.load(Ordering::Relaxed) < written
                || counts.failed.load(Ordering::Relaxed) < failed
            {
                tokio::task::yield_now().await;
            }
        };
        access.write("one".to_owned());
        until(1, 0).await;
        std::fs::rename(&path, &moved).unwrap();
        access.write("two".to_owned());
        until(2, 0).await;
        control.set(Some(&of));
        access.write("three".to_owned());
        until(3, 0).await;
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        control.set(Some(&config(Target::File("/dev/full".into()))));
        access.write("lost".to_owned());
        until(3, 1).await;
        control.set(Some(&of));
        access.write("four".to_owned());
        until(4, 1).await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\nfour\n");
        drop((access, control));
        writing.await.unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_moment_is_told_to_the_microsecond() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(951_782_400_000_007);
        assert_eq!(timestamp(at), "2000-02-29T00:00:00.000007Z");
    }
}
