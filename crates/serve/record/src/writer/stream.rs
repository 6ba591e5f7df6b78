//! The rows of one upstream on their way to its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use evenkeel_core::Instant;
use evenkeel_core::request::Kind;
use evenkeel_core::request::copies::{CopyEnd, CopyRecord, ServedRecord};
use evenkeel_core::time::{Duration, nanos};
use evenkeel_records::writer::Totals;
use evenkeel_records::{DayWriter, Limits, Manifest, RecordsError};
use evenkeel_twin::join::REQUEST_BITS;
use evenkeel_twin::rows::{End, Row, Served, Why};

use crate::config::RecordConfig;
use crate::counts::{RecordCounts, add};
use crate::day;
use crate::lane::{Lane, Lost, NewLane, ROWS_MAX, Stream, Teller, Told, WINDOW};

/// A window is written when it has been over for so long: later ones are added one by one.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// Rows of windows that are not written yet: 120 MB, some 17 s of 100,000 requests each second.
const HELD_MAX: usize = 1 << 21;
/// What cannot be begun is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How often old days are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Windows of which it is known that they lack rows after they were written.
const REMEMBERED: u64 = 64;

/// Now, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    /// For names.
    pub(super) wall: SystemTime,
}

/// Where days go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) config: Arc<RecordConfig>,
    /// How many streams share its limit.
    pub(super) shares: u64,
}

impl Target {
    fn bytes_max(&self) -> u64 {
        self.config.bytes_max / self.shares
    }
}

/// A day that is written.
#[derive(Debug)]
struct OpenDay {
    writer: DayWriter,
    path: PathBuf,
    /// The moment from which its rows count, ns of the clock.
    began_ns: u64,
    replicas: usize,
    target: Target,
    /// The day of the calendar, counted from 1970.
    date: u64,
    pushed: u64,
    told: Totals,
}

/// What one upstream's dispatchers told.
#[derive(Debug)]
pub(super) struct StreamState {
    about: Arc<Stream>,
    lanes: Vec<(Teller, Lane)>,
    room: Vec<Told>,
    /// Windows that are not written yet.
    open: BTreeMap<u64, Vec<(Teller, Told)>>,
    held: usize,
    /// The first window that is not written yet.
    next: u64,
    /// Windows that lack rows.
    dropped: BTreeSet<u64>,
    day: Option<OpenDay>,
    /// Where what is told goes; as of the last turn.
    target: Option<Target>,
    /// When the next day may be begun, after one could not.
    retry_at: Instant,
    look_at: Instant,
    is_failing: bool,
    counts: Arc<RecordCounts>,
}

impl StreamState {
    pub(super) fn new(first: NewLane, at: Moment, counts: Arc<RecordCounts>) -> Self {
        Self {
            about: first.stream,
            lanes: vec![(first.of, first.lane)],
            room: Vec::with_capacity(ROWS_MAX),
            open: BTreeMap::new(),
            held: 0,
            next: at.now.as_nanos() / nanos(WINDOW),
            dropped: BTreeSet::new(),
            day: None,
            target: None,
            retry_at: Instant::ZERO,
            look_at: Instant::ZERO,
            is_failing: false,
            counts,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.about.name
    }

    /// One more dispatcher, perhaps with another policy: then it has another day.
    pub(super) fn add(&mut self, new: NewLane, at: Moment) {
        let of = |it: &Stream| (it.policies.clone(), it.pairs, it.like.clone());
        if of(&self.about) != of(&new.stream) {
            self.empty_lanes();
            let target = self.target.clone();
            self.settle(at, target.as_ref(), Instant::FAR);
            // The rest of this window belongs to no day.
            if let Some(day) = &mut self.day {
                day.writer.note_windows(0, 1);
            }
            self.end_day();
            self.about = new.stream;
        }
        self.lanes.push((new.of, new.lane));
    }

    /// Whether nobody can tell it anything any more, and all is written.
    pub(super) const fn is_over(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Takes what there is, and writes what is complete.
    pub(super) fn turn(&mut self, at: Moment, target: Option<&Target>) {
        let is_elsewhere = |day: &OpenDay| {
            Some(&day.target.config) != target.map(|target| &target.config)
                || day.date != date_of(at.wall)
        };
        if target.is_none()
            && let Some(before) = self.target.take()
        {
            // Recording is off; what was told before is written.
            self.empty_lanes();
            self.settle(at, Some(&before), Instant::FAR);
        }
        self.target = target.cloned();
        if self.day.as_ref().is_some_and(is_elsewhere) {
            self.end_day();
        }
        self.empty_lanes();
        let until = if self.lanes.is_empty() { Instant::FAR } else { at.now };
        self.settle(at, target, until);
        if self.lanes.is_empty() {
            return self.end_day();
        }
        if let Some(day) = &mut self.day {
            let rotated = day.writer.rotate_at(at.now.as_nanos().saturating_sub(day.began_ns));
            self.note(rotated);
        }
        if at.now >= self.look_at
            && let Some(target) = target
        {
            self.look_at = at.now + LOOK_EVERY;
            self.remove_old(at, target);
        }
    }

    fn empty_lanes(&mut self) {
        for number in (0..self.lanes.len()).rev() {
            let (of, lane) = &self.lanes[number];
            let (of, is_over) = (*of, lane.is_over());
            let mut room = std::mem::take(&mut self.room);
            if let Some(lost) = lane.take(&mut room) {
                self.lose(lost);
            }
            room.drain(..).for_each(|copy| self.place(of, copy));
            self.room = room;
            if is_over {
                self.lanes.remove(number);
            }
        }
    }

    /// A lane was full.
    fn lose(&mut self, lost: Lost) {
        add(&self.counts.overload, lost.rows);
        let (first, last) = lost.windows;
        let first = first.max(self.next.saturating_sub(REMEMBERED));
        (first..=last).for_each(|window| self.drop_window(window));
    }

    fn drop_window(&mut self, window: u64) {
        if !self.dropped.insert(window) {
            return;
        }
        if let Some(rows) = self.open.remove(&window) {
            self.held -= rows.len();
            add(&self.counts.overload, rows.len() as u64);
        }
        if window < self.next {
            add(&self.counts.windows_dropped, 1);
            if let Some(day) = &mut self.day {
                day.writer.note_windows(0, 1);
            }
        }
    }

    fn place(&mut self, of: Teller, copy: Told) {
        let window = copy.window();
        if self.held >= HELD_MAX && window >= self.next {
            self.drop_window(window);
        }
        if self.dropped.contains(&window) {
            return add(&self.counts.overload, 1);
        }
        self.held += 1;
        // Those of a window that is over are written with the next one.
        self.open.entry(window).or_default().push((of, copy));
    }

    /// Writes the windows that are over at that time, and what came late of others.
    fn settle(&mut self, at: Moment, target: Option<&Target>, until: Instant) {
        let over = until.as_nanos().saturating_sub(nanos(SETTLED_AFTER)) / nanos(WINDOW);
        let last = self.open.keys().next_back().map_or(self.next, |last| last + 1);
        let over = over.min(last.max(at.now.as_nanos() / nanos(WINDOW)));
        while let Some(entry) = self.open.first_entry()
            && *entry.key() < self.next
        {
            let rows = entry.remove();
            self.write(at, target, &rows);
        }
        while self.next < over {
            let rows = self.open.remove(&self.next).unwrap_or_default();
            let before = self.counts.disk.load(Ordering::Relaxed);
            self.write(at, target, &rows);
            // This thread alone counts what the disk did not take.
            let is_short = self.counts.disk.load(Ordering::Relaxed) > before;
            let is_dropped = is_short || self.dropped.contains(&self.next);
            add(&self.counts.windows, 1);
            add(&self.counts.windows_dropped, is_dropped.into());
            if let Some(day) = &mut self.day {
                day.writer.note_windows(1, is_dropped.into());
            }
            self.next += 1;
        }
        self.dropped = self.dropped.split_off(&self.next.saturating_sub(REMEMBERED));
    }

    fn write(&mut self, at: Moment, target: Option<&Target>, rows: &[(Teller, Told)]) {
        self.held -= rows.len();
        let Some(most) = rows.iter().map(|(_, copy)| replica_of(copy)).max() else { return };
        let Some(target) = target else { return };
        if !self.has_day(at, target, most + 1) {
            return add(&self.counts.disk, rows.len() as u64);
        }
        for (of, copy) in rows {
            let Some(day) = &mut self.day else {
                add(&self.counts.disk, 1);
                continue;
            };
            let Some(sent_ns) = copy.at().as_nanos().checked_sub(day.began_ns) else {
                add(&self.counts.late, 1);
                continue;
            };
            let row = row_of(*of, copy, self.about.policies.len());
            day.pushed += 1;
            add(&self.counts.pairs, (row.why == Why::Pair).into());
            add(&self.counts.explored, (row.policy > 0).into());
            let written = day.writer.push(sent_ns, &row);
            self.note(written);
        }
    }

    /// Whether there is a day for so many replicas, which is begun where there is none.
    fn has_day(&mut self, at: Moment, target: &Target, replicas: usize) -> bool {
        if self.day.as_ref().is_some_and(|day| day.replicas < replicas) {
            self.end_day();
        }
        if self.day.is_some() {
            return true;
        }
        if at.now < self.retry_at {
            return false;
        }
        match self.begin(at, target, replicas.max(self.about.replicas)) {
            Ok(day) => {
                self.day = Some(day);
                true
            }
            Err(error) => {
                self.retry_at = at.now + AGAIN_AFTER;
                self.say(&error);
                false
            }
        }
    }

    fn begin(&self, at: Moment, target: &Target, replicas: usize) -> Result<OpenDay, RecordsError> {
        let path = day::folder(&self.folder(&target.config.directory), at.wall);
        let policies = self.about.policies.clone();
        let pairs = self.about.pairs;
        let like = self.about.like.clone();
        let manifest = Manifest { pairs, like, ..Manifest::new(self.about.by, policies, replicas) };
        let limits = Limits {
            file_ns: nanos(target.config.rotate),
            bytes_max: target.bytes_max(),
            keep_ns: nanos(target.config.keep),
            ..Limits::default()
        };
        let writer = DayWriter::create(&path, &manifest, limits)?;
        let (began_ns, date) = (self.next * nanos(WINDOW), date_of(at.wall));
        let (target, told) = (target.clone(), writer.totals());
        Ok(OpenDay { writer, path, began_ns, replicas, target, date, pushed: 0, told })
    }

    fn folder(&self, directory: &Path) -> PathBuf {
        directory.join(&self.about.name)
    }

    fn end_day(&mut self) {
        let Some(day) = self.day.take() else { return };
        let OpenDay { writer, pushed, told, .. } = day;
        match writer.close() {
            Ok(totals) => self.count(told, totals),
            Err(error) => {
                let lost = pushed.saturating_sub(told.rows + told.lost_rows);
                add(&self.counts.disk, lost);
                self.say(&error);
            }
        }
    }

    /// What became of an attempt to write.
    fn note(&mut self, written: Result<(), RecordsError>) {
        let Some(day) = &mut self.day else { return };
        let (before, totals) = (day.told, day.writer.totals());
        day.told = totals;
        self.count(before, totals);
        let Err(error) = written else {
            if totals.files > before.files && std::mem::take(&mut self.is_failing) {
                tracing::info!(stream = self.about.name, "days are recorded again");
            }
            return;
        };
        self.say(&error);
        let is_gone = !self.day.as_ref().is_some_and(|day| day.path.exists());
        if is_gone {
            self.end_day(); // another one is begun
        }
    }

    fn count(&self, before: Totals, now: Totals) {
        add(&self.counts.rows, now.rows - before.rows);
        add(&self.counts.files, now.files - before.files);
        add(&self.counts.bytes, now.bytes - before.bytes);
        add(&self.counts.disk, now.lost_rows - before.lost_rows);
    }

    fn say(&mut self, error: &dyn std::error::Error) {
        add(&self.counts.failures, 1);
        if !std::mem::replace(&mut self.is_failing, true) {
            let stream = &self.about.name;
            tracing::error!(stream, %error, "copies are not recorded; requests go on");
        }
    }

    fn remove_old(&mut self, at: Moment, target: &Target) {
        let since = at.wall.checked_sub(target.config.keep).unwrap_or(SystemTime::UNIX_EPOCH);
        let written = self.day.as_ref().map(|day| day.path.as_path());
        let folder = self.folder(&target.config.directory);
        if folder.is_dir()
            && let Err(error) = day::remove_old(&folder, written, since, target.bytes_max())
        {
            let stream = &self.about.name;
            tracing::warn!(stream, %error, "old days cannot be removed; new ones are recorded");
        }
    }
}

/// Days since 1970, by the calendar of UTC.
fn date_of(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400
}

/// As files have it: no names, no addresses.
fn row_of(of: Teller, told: &Told, policies: usize) -> Row {
    match told {
        Told::Copy(copy) => row_of_copy(of, copy, policies),
        Told::Served(copy) => row_of_served(copy),
    }
}

const fn replica_of(told: &Told) -> usize {
    match told {
        Told::Copy(copy) => copy.replica.index(),
        Told::Served(_) => 0,
    }
}

const fn end_of(end: CopyEnd) -> End {
    match end {
        CopyEnd::Answered => End::Answered,
        CopyEnd::Failed => End::Failed,
        CopyEnd::Cancelled => End::Cancelled,
    }
}

/// What an agent saw of a copy: with the time of its arrival, and the dispatcher's number for its
/// client, as those are neighbours in a file, where neighbours should be alike.
const fn row_of_served(copy: &ServedRecord) -> Row {
    let &ServedRecord { wait_ns, service_ns, queue, is_full, .. } = copy;
    Row {
        request: copy.number,
        gap_ns: 0,
        after_ns: 0,
        latency_ns: wait_ns.saturating_add(service_ns),
        client: (copy.number >> REQUEST_BITS) as u16,
        replica: 0,
        group: 0,
        policy: 0,
        size: copy.size,
        why: Why::First,
        end: end_of(copy.end),
        served: Some(Served { wait_ns, service_ns, queue, is_full }),
    }
}

fn row_of_copy(of: Teller, copy: &CopyRecord, policies: usize) -> Row {
    Row {
        request: of.number(copy.request),
        gap_ns: 0,
        after_ns: copy.after_ns,
        latency_ns: copy.latency_ns,
        client: of.client,
        replica: copy.replica.index() as u16,
        group: copy.group.index().min(usize::from(u16::MAX)) as u16,
        policy: u8::from(copy.is_explored && policies > 1),
        size: copy.size,
        why: match copy.kind {
            Kind::First => Why::First,
            Kind::Retry => Why::Retry,
            Kind::Hedge => Why::Hedge,
            Kind::Moved => Why::Moved,
            Kind::Mirror => Why::Pair,
        },
        end: end_of(copy.end),
        served: None,
    }
}

#[cfg(test)]
mod tests;
