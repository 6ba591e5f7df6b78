//! What the processors of this machine did, and whether they were ours.
//!
//! Checks with real servers and clocks say something only of a machine that runs them. A virtual
//! one may be robbed: its host runs somebody else, for a hundredth of the time or nearly all of it.
//! What fails meanwhile is judged again, and what fails while the machine is left alone has failed.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// All processors' ticks since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    at_work: u64,
    stolen: u64,
    all: u64,
}

/// Shares of all processors' time, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shares {
    pub(crate) at_work: f64,
    /// That somebody wanted and the machine's host gave to other machines.
    pub(crate) stolen: f64,
}

impl Ticks {
    pub(crate) fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat cannot be read")?;
        Self::read(&text).with_context(|| format!("/proc/stat: got `{text}`"))
    }

    fn read(text: &str) -> Option<Self> {
        let words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let numbers = words.map(|word| word.parse::<u64>().ok()).collect::<Option<Vec<_>>>()?;
        // user nice system idle iowait irq softirq steal; guests are in user.
        let all: u64 = numbers.iter().take(8).sum();
        let idle: u64 = numbers.get(3..5)?.iter().sum();
        let stolen = numbers.get(7).copied().unwrap_or_default();
        Some(Self { at_work: all - idle - stolen, stolen, all })
    }

    pub(crate) fn since(self, before: Self) -> Shares {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        // The kernel's counters may go back by a tick.
        let share =
            |ticks: fn(&Self) -> u64| ticks(&self).saturating_sub(ticks(&before)) as f64 / all;
        Shares { at_work: share(|ticks| ticks.at_work), stolen: share(|ticks| ticks.stolen) }
    }
}

/// How often the watch looks.
const NAP: Duration = Duration::from_millis(10);

/// Whoever sleeps most of the time is waked within a few slices of a millisecond or three: beside
/// 40 busy loops on two processors (Linux 6.18) never as late as this, beside 100 for 1 % of the
/// time. So what tests burn does not excuse them. Later than this something holds up the whole
/// machine: its host, a quota that is used up, memory or a disk.
const WAKED_LATE: Duration = Duration::from_millis(25);

/// A share of the time above which checks of real time say nothing against what they check.
const ROBBED: f64 = 0.01;

/// Sees what is taken from this machine: by the kernel's account of stolen time, and, where a host
/// gives no account or a quota is used up, by being waked late.
pub(crate) struct Watch {
    late_us: Arc<AtomicU64>,
}

/// A moment of a watch.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    at: Instant,
    late_us: u64,
    ticks: Option<Ticks>,
}

/// What was taken from the machine between two moments, as shares of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Taken {
    stolen: f64,
    late: f64,
}

impl Watch {
    /// Watches until it is dropped.
    pub(crate) fn start() -> Self {
        let late_us = Arc::new(AtomicU64::new(0));
        let weak = Arc::downgrade(&late_us);
        thread::spawn(move || look(&weak));
        Self { late_us }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            at: Instant::now(),
            late_us: self.late_us.load(Ordering::Relaxed),
            ticks: Ticks::now().ok(),
        }
    }

    pub(crate) fn since(&self, before: &Mark) -> Taken {
        let now = self.mark();
        let elapsed = (now.at - before.at).as_micros().max(1) as f64;
        let late = (now.late_us - before.late_us) as f64 / elapsed;
        let shares = now.ticks.zip(before.ticks).map(|(now, before)| now.since(before));
        Taken { stolen: shares.map_or(0.0, |shares| shares.stolen), late }
    }
}

fn look(late_us: &Weak<AtomicU64>) {
    loop {
        let asleep = Instant::now();
        thread::sleep(NAP);
        let Some(late_us) = late_us.upgrade() else { return };
        let late = asleep.elapsed().saturating_sub(NAP);
        if late > WAKED_LATE {
            late_us.fetch_add(late.as_micros() as u64, Ordering::Relaxed);
        }
    }
}

impl Taken {
    #[cfg(test)]
    pub(crate) const fn of(stolen: f64, late: f64) -> Self {
        Self { stolen, late }
    }

    pub(crate) fn is_much(self) -> bool {
        self.stolen > ROBBED || self.late > ROBBED
    }
}

impl std::fmt::Display for Taken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [stolen, late] = [self.stolen, self.late].map(|share| 100.0 * share);
        write!(formatter, "host took {stolen:.1} % of the processors, late {late:.1} % of the time")
    }
}

/// How often a check may fail on a robbed machine before it has failed.
const TRIES: u32 = 4;

/// How long a machine is waited for until it is left alone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `check`, and again when it failed while the machine was robbed.
///
/// # Errors
/// When it fails while the machine is left alone, or [`TRIES`] times.
pub(crate) fn judge(what: &str, mut check: impl FnMut() -> Result<()>) -> Result<()> {
    let watch = Watch::start();
    for attempt in 1.. {
        let began = watch.mark();
        let Err(error) = check() else { return Ok(()) };
        let taken = watch.since(&began);
        if !taken.is_much() || attempt == TRIES {
            return Err(error.context(format!("{what}, time {attempt} ({taken})")));
        }
        println!("=== {what} failed on a robbed machine and is judged again ({taken}): {error:#}");
        await_calm(&watch);
    }
    unreachable!("the loop ends by returning")
}

/// Waits until nothing is taken from this machine, for [`PATIENCE`] at most.
fn await_calm(watch: &Watch) {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let mark = watch.mark();
        thread::sleep(Duration::from_secs(2));
        if !watch.since(&mark).is_much() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_times_are_read() {
        let machine = "cpu  100 1 50 800 20 3 4 5 7 0\ncpu0 1 2 3";
        let ticks = Ticks::read(machine).unwrap();
        assert_eq!(ticks, Ticks { at_work: 158, stolen: 5, all: 983 });
        let later = Ticks { at_work: 168, stolen: 25, all: 1023 };
        assert_eq!(later.since(ticks), Shares { at_work: 0.25, stolen: 0.5 });
        assert_eq!(ticks.since(later), Shares { at_work: 0.0, stolen: 0.0 });
        assert_eq!(Ticks::read("cpu0 1 2 3"), None);
    }

    #[test]
    fn a_little_taken_excuses_nothing() {
        assert!(!Taken { stolen: 0.009, late: 0.0 }.is_much());
        assert!(Taken { stolen: 0.011, late: 0.0 }.is_much());
        assert!(Taken { stolen: 0.0, late: 0.02 }.is_much());
    }

    #[test]
    fn a_check_that_always_fails_fails() {
        let mut runs = 0;
        let error = judge("keel", || {
            runs += 1;
            anyhow::bail!("bent")
        });
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.starts_with("keel, time ") && error.ends_with(": bent"), "{error}");
        assert!((1..=TRIES).contains(&runs), "{runs}");
    }

    #[test]
    fn who_is_not_waked_is_seen() {
        let watch = Watch::start();
        let mark = watch.mark();
        // What a watcher adds that was waked 30 ms late of the 100 since.
        watch.late_us.fetch_add(30_000, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(100));
        let taken = watch.since(&mark);
        assert!(taken.is_much() && taken.late > 0.01, "{taken}");
    }
}
