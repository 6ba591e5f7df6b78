//! What the manager is told: a random sample of accesses, with the time at every duplicate.
//!
//! Zoolander's manager (section 3.2 of the paper) samples accesses into windows and chooses from
//! them a policy. Here it *advises*: it says what should be done and why; people do it, or the
//! service, where it is told to.
//!
//! **Signals.** Of a sampled access: when each duplicate answered after it was sent (*response*)
//! and what the duplicate worked on it (*service*): from the later of its sending and the
//! duplicate's answer before, until its answer, which for one server first in first out is
//! Lindley's recursion read backwards. A pause that meets many accesses is thus one long service of
//! the first and waits of the others, as in the model. Every access is counted for its shard, so
//! that rates are exact.
//!
//! **When it misleads.** A round trip to an idle duplicate counts as service, so the utilisation of
//! remote ones is that of the connection, not of the processor. Reads that go to fewer than all
//! duplicates make no row; where most do, rows are mostly writes.
//!
//! **Who computes.** Not the service's thread: it hands a full window over to a thread that has
//! nothing else to do (`advise.rs`) and asks now and then whether there is an answer.

mod advise;
mod night;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::time::Duration;

use evenkeel_core::units::Probability;
use evenkeel_core::{Instant, Rng};
use evenkeel_planner::duplicates::moves::Move;
use evenkeel_planner::duplicates::policy::Prices;
pub use evenkeel_planner::duplicates::quiet::Settings as NightSettings;

use advise::Adviser;
pub use advise::{Advice, OutliersAdvice, PolicyAdvice};
pub use night::{NightAdvice, SharedNights};

/// What the service promises, and how closely it is watched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ManagerSettings {
    /// An access whose first answer takes longer is late.
    pub objective: Duration,
    /// The share of accesses that must not be. Default 99.9 %.
    pub target: Probability,
    /// What nodes and late accesses cost.
    pub prices: Prices,
    /// How long a window is. Default 10 s.
    pub window: Duration,
    /// Samples of a window, about. Default 4,096.
    pub samples: usize,
    /// Whether it does what it advises. Default: people do it.
    pub acts: bool,
    /// When nodes may go for quiet hours; `None` (default): never.
    pub night: Option<NightSettings>,
}

impl ManagerSettings {
    /// The defaults for this objective.
    pub fn new(objective: Duration) -> Self {
        Self {
            objective,
            target: Probability::clamped(0.999),
            prices: Prices::default(),
            window: Duration::from_secs(10),
            samples: 4_096,
            acts: false,
            night: None,
        }
    }
}

/// What one duplicate took for one access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Took {
    /// From sending to the answer.
    pub response: Duration,
    /// What the duplicate worked on it, waits for those before it not counted.
    pub service: Duration,
}

/// One sampled access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Partitions and duplicates as they were then.
    pub arrangement: u64,
    /// Its place among the partitions that have duplicates.
    pub partition: usize,
    /// When the access was sent.
    pub sent: Instant,
    /// From the command to enough answers; `None` when they never came.
    pub client: Option<Duration>,
    /// By duplicate of the partition.
    pub times: Vec<Option<Took>>,
}

/// What came in a window.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// When it began.
    pub from: Instant,
    /// When it ended.
    pub until: Instant,
    /// All accesses, by shard.
    pub accesses: Vec<u64>,
    /// Copies that were sent, by partition.
    pub copies: Vec<u64>,
    /// Where each shard is.
    pub owners: Vec<usize>,
    /// A duplicate was away when it ended.
    pub is_away: bool,
    /// What was sampled, about as many as the settings say.
    pub samples: Vec<Sample>,
}

/// How a manager begins.
#[derive(Debug, Clone)]
pub struct Begun {
    /// When.
    pub at: Instant,
    /// Equal seeds sample alike.
    pub seed: u64,
    /// No other one has the same: what was sampled before is of other partitions or duplicates,
    /// though they may have the same numbers.
    pub arrangement: u64,
    /// Duplicates that it may take itself; `None`: as many as it likes.
    pub spares: Option<usize>,
    /// What is known of quiet hours, by the manager before this one.
    pub nights: Option<SharedNights>,
}

/// Takes samples, and keeps what was advised.
#[derive(Debug)]
pub struct Manager {
    settings: ManagerSettings,
    rng: Rng,
    /// One access of so many is sampled.
    one_in: u64,
    /// Names the partitions and duplicates there are.
    arrangement: u64,
    /// The servers of each partition that has some.
    partitions: Vec<Vec<usize>>,
    /// The numbers of those partitions.
    numbers: Vec<usize>,
    /// When each server answered last.
    answered: Vec<Instant>,
    window: Window,
    to: SyncSender<Window>,
    from: Receiver<Advice>,
    advice: Option<Advice>,
    nights: Option<SharedNights>,
    /// A window was handed over, and nothing has been advised since.
    is_awaited: bool,
}

impl Manager {
    /// Starts the thread that computes. `partitions` has the servers of each.
    pub fn start(
        settings: ManagerSettings,
        partitions: &[Vec<usize>],
        shards: usize,
        begun: Begun,
    ) -> io::Result<Self> {
        let Begun { at: now, seed, arrangement, spares, nights } = begun;
        let nights = settings.night.map(|night| nights.unwrap_or_else(|| SharedNights::new(night)));
        let (numbers, partitions): (Vec<usize>, Vec<Vec<usize>>) = (partitions.iter().cloned())
            .enumerate()
            .filter(|(_, servers)| !servers.is_empty())
            .unzip();
        let duplicates: Vec<usize> = partitions.iter().map(Vec::len).collect();
        // One window waits at most: an older one is worth nothing.
        let (to, windows) = sync_channel::<Window>(1);
        let (reported, from) = channel();
        let mut adviser = Adviser::new(settings, &duplicates, spares, nights.clone());
        std::thread::Builder::new().name("advice".to_owned()).spawn(move || {
            for window in windows {
                let reported = reported.send(adviser.learn(&window));
                if reported.is_err() {
                    return; // the service has ended
                }
            }
        })?;
        let servers = partitions.iter().flatten().max().map_or(0, |most| most + 1);
        let window = Window {
            from: now,
            until: now,
            accesses: vec![0; shards],
            copies: vec![0; duplicates.len()],
            ..Window::default()
        };
        Ok(Self {
            settings,
            rng: Rng::seeded(seed),
            one_in: 1,
            arrangement,
            answered: vec![now; servers],
            partitions,
            numbers,
            window,
            to,
            from,
            advice: None,
            nights,
            is_awaited: false,
        })
    }

    /// Counts an access that is sent to so many; the sample to fill, if it is one.
    pub fn sent(
        &mut self,
        now: Instant,
        (shard, partition): (usize, usize),
        copies: usize,
    ) -> Option<Box<Sample>> {
        let partition = self.numbers.iter().position(|&number| number == partition)?;
        self.window.accesses[shard] += 1;
        self.window.copies[partition] += copies as u64;
        let is_sampled = self.one_in == 1 || self.rng.bits().is_multiple_of(self.one_in);
        is_sampled.then(|| {
            let (arrangement, times) =
                (self.arrangement, vec![None; self.partitions[partition].len()]);
            Box::new(Sample { arrangement, partition, sent: now, client: None, times })
        })
    }

    /// A server answered an access, sampled or not.
    pub fn answered(
        &mut self,
        now: Instant,
        server: usize,
        sent: Instant,
        sample: Option<&mut Sample>,
    ) {
        let Some(before) = self.answered.get_mut(server) else { return };
        let before = std::mem::replace(before, now);
        if let Some(sample) = sample
            && sample.arrangement == self.arrangement
        {
            let (response, service) = (now.since(sent), now.since(sent.max(before)));
            let of = self.partitions.get(sample.partition);
            let place = of.and_then(|of| of.iter().position(|&it| it == server));
            if let Some(time) = place.and_then(|place| sample.times.get_mut(place)) {
                *time = Some(Took { response, service });
            }
        }
    }

    /// Nobody owes an answer to this access any more.
    pub fn learn(&mut self, sample: Sample) {
        if sample.arrangement != self.arrangement {
            return; // of partitions that are others now
        }
        self.window.samples.push(sample);
        if self.window.samples.len() >= 2 * self.settings.samples {
            // More than was expected: half as many, evenly over the window so far.
            let mut keep = false;
            self.window.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.one_in = self.one_in.saturating_mul(2);
        }
    }

    /// Once in a while: hands over a window that is full, takes what was advised. `is_away`: a
    /// duplicate does not serve now.
    pub fn tick(&mut self, now: Instant, is_away: bool, owner: impl Fn(usize) -> usize) {
        loop {
            match self.from.try_recv() {
                Ok(advice) => (self.advice, self.is_awaited) = (Some(advice), false),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.is_awaited = false;
                    break;
                }
            }
        }
        if now.since(self.window.from) < self.settings.window {
            return;
        }
        let shards = self.window.accesses.len();
        let next = Window {
            from: now,
            until: now,
            accesses: vec![0; shards],
            copies: vec![0; self.partitions.len()],
            ..Window::default()
        };
        let mut window = std::mem::replace(&mut self.window, next);
        (window.until, window.is_away) = (now, is_away);
        window.owners = (0..shards).map(|shard| self.place_of(owner(shard))).collect();
        let all: u64 = window.accesses.iter().sum();
        self.one_in = all.div_ceil(self.settings.samples.max(1) as u64).max(1);
        match self.to.try_send(window) {
            Ok(()) => self.is_awaited = true,
            Err(TrySendError::Full(_)) => tracing::debug!("advice takes longer than a window"),
            Err(TrySendError::Disconnected(_)) => tracing::debug!("nobody computes advice"),
        }
    }

    /// How long until there is something for [`Self::tick`] to do.
    pub fn tick_within(&self, now: Instant) -> Duration {
        match self.is_awaited {
            true => Duration::ZERO,
            false => self.settings.window.saturating_sub(now.since(self.window.from)),
        }
    }

    /// The place of a partition among those that have duplicates.
    fn place_of(&self, partition: usize) -> usize {
        self.numbers.iter().position(|&number| number == partition).unwrap_or(0)
    }

    /// What to do, in the order in which it is to be done; partitions by their numbers. Empty
    /// while nothing is to be done, or it is not yet certain enough.
    pub fn steps(&self) -> Vec<Move> {
        let number = |place: usize| self.numbers.get(place).copied().unwrap_or(usize::MAX);
        let steps = self.advice.iter().flat_map(|advice| &advice.steps);
        let steps = steps.map(|step| match *step {
            Move::Shard { shard, from, to } => {
                Move::Shard { shard, from: number(from), to: number(to) }
            }
            Move::Open { shard, from, duplicates } => {
                Move::Open { shard, from: number(from), duplicates }
            }
            Move::Add { partition } => Move::Add { partition: number(partition) },
            Move::Remove { partition } => Move::Remove { partition: number(partition) },
        });
        steps.collect()
    }

    /// What is known of quiet hours: for the manager after this one.
    pub fn nights(&self) -> Option<SharedNights> {
        self.nights.clone()
    }

    /// What was advised last.
    pub const fn advice(&self) -> Option<&Advice> {
        self.advice.as_ref()
    }
}
