//! The followers of a site: further processes before the same replicas, as its controller knows
//! them.
//!
//! What a follower counted since it began to be heard is added to what the controller's own workers
//! counted: its workers are further workers of the site, with places of their own. A follower that
//! is gone gives up its places at once, so that its last counts are no demand any more; what it
//! counted of answers stays in the sums, which are used by their growth only and must not fall.
//! Places are given anew only when nobody remembers what was counted there before.
//!
//! This file knows no sockets; [`controller`](super::controller) has the conversations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::units::Probability;
use evenkeel_geo::epoch::RATE_MAX;
use evenkeel_geo::split::{SplitWindow, parts};
use tokio::sync::watch;

use super::message::{Counts, Hello, PlanPart, WORKERS_MAX};
use evenkeel_geo::demand::{SiteTally, SplitTally};
use evenkeel_geo::traffic::Ended;

/// Followers at once.
pub(super) const FOLLOWERS_MAX: usize = 64;
/// Whoever measures demand looks back for less than so many epochs, and less than so long.
const REMEMBERED_EPOCHS: u32 = 8;
const REMEMBERED: Duration = Duration::from_secs(5);
/// Places at most, those included that nobody may have yet.
const PLACES_MAX: usize = 4 * WORKERS_MAX;
/// Counts of this much time may come at once, beyond the time there was.
const BURST: Duration = Duration::from_secs(2);

/// Why counts are not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Unbelieved {
    #[error("a message in which {0} was expected (is it another release?)")]
    Malformed(&'static str),
    #[error("counts below those before (is the process broken?)")]
    Backwards,
    /// More than any site has, or than can be: more misses than ends, more workers than announced.
    #[error("counts that cannot be (is the process broken?)")]
    OutOfRange,
    #[error("it has other settings")]
    OtherSettings,
}

impl Unbelieved {
    /// The words, by place.
    pub(super) const NAMES: [&str; 4] =
        ["malformed", "backwards", "out-of-range", "other-settings"];

    pub(super) const fn place(self) -> usize {
        match self {
            Self::Malformed(_) => 0,
            Self::Backwards => 1,
            Self::OutOfRange => 2,
            Self::OtherSettings => 3,
        }
    }
}

evenkeel_core::named! {
    /// Why a follower is gone.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum Gone {
        /// It, or the network, closed the connection, or it spoke nonsense.
        Left = "left",
        /// Nothing came from it for an epoch.
        Silent = "silent",
        /// The same process made another connection.
        Replaced = "replaced",
    }
}

/// One follower.
pub(super) struct Follower {
    pub(super) address: SocketAddr,
    run: u64,
    /// Of its workers, by their number there.
    places: Vec<usize>,
    /// The first counts that came, where its counting begins here, and the newest.
    counted: Option<(Counts, Counts)>,
    heard_at: Instant,
    reported: watch::Sender<Option<PlanPart>>,
    /// The sum of its parts of the caps, and its share of the requests that came lately.
    part: f64,
    share: f64,
}

impl Follower {
    /// A name for people that tells runs apart.
    pub(super) fn name(&self) -> String {
        format!("{}/{:04x}", self.address.ip(), self.run >> 48)
    }

    pub(super) const fn part(&self) -> f64 {
        self.part
    }

    pub(super) const fn share(&self) -> f64 {
        self.share
    }

    /// The epoch it was told of last.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.reported.borrow().as_ref().map(|reported| reported.row.epoch)
    }

    pub(super) fn workers(&self) -> usize {
        self.counted.as_ref().map_or(0, |(_, last)| last.workers.len())
    }

    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// Places of the workers that exist.
    fn live(&self) -> impl Iterator<Item = usize> {
        self.places.iter().take(self.workers()).copied()
    }
}

#[derive(Clone, Copy)]
struct Place {
    is_taken: bool,
    /// When it was given up.
    free_since: Instant,
}

/// All followers of a site.
pub(super) struct Followers {
    home: usize,
    sites: usize,
    period: Duration,
    /// The places of this process's own workers: as many as there ever were.
    own: usize,
    places: Vec<Place>,
    present: BTreeMap<u64, Follower>,
    next: u64,
    /// What those that are gone had counted of answers.
    past: Sums,
    pub(super) joined: u64,
    pub(super) gone: [u64; Gone::ALL.len()],
    pub(super) rejected: [u64; Unbelieved::NAMES.len()],
}

/// Counts that are used by their growth only.
#[derive(Clone)]
struct Sums {
    by_site: Vec<SiteTally>,
    returned: SiteTally,
    foreign: SiteTally,
    inflow: u64,
}

impl Followers {
    pub(super) fn new(home: usize, sites: usize, period: Duration) -> Self {
        let none = SiteTally::default();
        let past = Sums { by_site: vec![none; sites], returned: none, foreign: none, inflow: 0 };
        Self {
            home,
            sites,
            period,
            own: 0,
            places: Vec::new(),
            present: BTreeMap::new(),
            next: 0,
            past,
            joined: 0,
            gone: [0; Gone::ALL.len()],
            rejected: [0; Unbelieved::NAMES.len()],
        }
    }

    /// How long a follower may be silent: an epoch, and a second at least, which are five of its
    /// messages.
    pub(super) fn silent_max(&self) -> Duration {
        self.period.max(Duration::from_secs(1))
    }

    pub(super) fn present(&self) -> impl Iterator<Item = &Follower> {
        self.present.values()
    }

    /// The name of one for people.
    pub(super) fn name(&self, id: u64) -> String {
        self.present.get(&id).map_or_else(|| "that is gone".to_owned(), Follower::name)
    }

    /// Whether this is still one of them.
    pub(super) fn has(&self, id: u64) -> bool {
        self.present.contains_key(&id)
    }

    /// Takes one in; `None` when there are as many of them, or of their workers, as are taken.
    /// Gives what it is called, and what it is to be told as it comes.
    pub(super) fn join(
        &mut self,
        now: Instant,
        address: SocketAddr,
        hello: &Hello,
    ) -> Option<(u64, watch::Receiver<Option<PlanPart>>)> {
        let same = self.present.iter().find(|(_, known)| known.run == hello.run);
        if let Some(id) = same.map(|(id, _)| *id) {
            self.remove(now, id, Gone::Replaced);
        }
        let taken = self.places.iter().filter(|place| place.is_taken).count();
        if self.present.len() >= FOLLOWERS_MAX || taken + hello.workers > WORKERS_MAX {
            return None;
        }
        let places = self.take_places(now, hello.workers)?;
        let (reported, telling) = watch::channel(None);
        let follower = Follower {
            address,
            run: hello.run,
            places,
            counted: None,
            heard_at: now,
            reported,
            part: 0.0,
            share: 0.0,
        };
        let id = self.next;
        self.next += 1;
        self.joined += 1;
        self.present.insert(id, follower);
        Some((id, telling))
    }

    fn take_places(&mut self, now: Instant, count: usize) -> Option<Vec<usize>> {
        let forgotten = REMEMBERED.max(self.period * REMEMBERED_EPOCHS);
        let is_free = |place: &Place| !place.is_taken && now.since(place.free_since) >= forgotten;
        let free = self.places.iter().enumerate().filter(|(_, place)| is_free(place));
        let mut taken: Vec<usize> = free.map(|(index, _)| index).take(count).collect();
        let more = count - taken.len();
        if self.places.len() + more > PLACES_MAX {
            return None;
        }
        taken.extend(self.places.len()..self.places.len() + more);
        let new = Place { is_taken: false, free_since: Instant::ZERO };
        self.places.resize(self.places.len() + more, new);
        taken.iter().for_each(|index| self.places[*index].is_taken = true);
        Some(taken)
    }

    /// Takes what a follower counted.
    pub(super) fn note(&mut self, now: Instant, id: u64, message: &[u8]) -> Result<(), Unbelieved> {
        let counts = Counts::read(message, self.sites).map_err(Unbelieved::Malformed)?;
        let Some(follower) = self.present.get_mut(&id) else { return Ok(()) };
        let tallies = counts.by_site.iter().chain([&counts.returned, &counts.foreign]);
        let is_sound = tallies.into_iter().all(|tally| tally.missed <= tally.ended)
            && counts.workers.iter().all(|worker| worker.writes <= worker.arrived)
            && (1..=follower.places.len()).contains(&counts.workers.len());
        if !is_sound {
            return Err(Unbelieved::OutOfRange);
        }
        let Some((_, last)) = &mut follower.counted else {
            follower.heard_at = now;
            follower.counted = Some((counts.clone(), counts));
            return Ok(());
        };
        if counts.workers.len() < last.workers.len() {
            return Err(Unbelieved::Backwards);
        }
        let is_new_sound = |most: f64| {
            let new = counts.workers.iter().skip(last.workers.len());
            new.into_iter().all(|worker| worker.arrived.max(worker.sent_home) as f64 <= most)
        };
        let most = RATE_MAX as f64 * 1e-3 * (now.since(follower.heard_at) + BURST).as_secs_f64();
        if !is_new_sound(most) {
            return Err(Unbelieved::OutOfRange);
        }
        for (after, before) in counts.growing().zip(last.growing()) {
            match after.checked_sub(before) {
                None => return Err(Unbelieved::Backwards),
                Some(more) if more as f64 > most => return Err(Unbelieved::OutOfRange),
                Some(_) => {}
            }
        }
        let time = |counts: &Counts| counts.workers.iter().map(|worker| worker.at).collect();
        let (after, before): (Vec<_>, Vec<_>) = (time(&counts), time(last));
        if after.iter().zip(&before).any(|(after, before)| after < before) {
            return Err(Unbelieved::Backwards);
        }
        follower.heard_at = now;
        *last = counts;
        Ok(())
    }

    /// Gives up those from which nothing came for too long; tells their names.
    pub(super) fn drop_silent(&mut self, now: Instant) -> Vec<String> {
        let limit = self.silent_max();
        let is_silent = |follower: &Follower| now.since(follower.heard_at) > limit;
        let silent: Vec<u64> = self
            .present
            .iter()
            .filter(|(_, follower)| is_silent(follower))
            .map(|(id, _)| *id)
            .collect();
        silent.into_iter().filter_map(|id| self.remove(now, id, Gone::Silent)).collect()
    }

    /// Gives one up, if it is still there; tells its name.
    pub(super) fn remove(&mut self, now: Instant, id: u64, gone: Gone) -> Option<String> {
        let follower = self.present.remove(&id)?;
        for place in &follower.places {
            self.places[*place] = Place { is_taken: false, free_since: now };
        }
        self.past.grow(&follower);
        self.gone[gone as usize] += 1;
        Some(follower.name())
    }

    /// Adds what followers counted to what the workers of this process counted.
    pub(super) fn add_to(&mut self, tally: &mut SplitTally) {
        self.own = self.own.max(tally.workers.len()).max(tally.counted_at.len());
        if self.places.is_empty() {
            return;
        }
        let nothing = SplitWindow::empty(self.sites);
        tally.workers.resize(self.own, nothing.clone());
        tally.workers.resize(self.own + self.places.len(), nothing);
        tally.counted_at.resize(self.own + self.places.len(), None);
        let mut sums = self.past.clone();
        for follower in self.present.values() {
            sums.grow(follower);
            let Some((first, last)) = &follower.counted else { continue };
            tally.waiting += last.waiting;
            for ((place, worker), number) in follower.live().zip(&last.workers).zip(0..) {
                let began = first.workers.get(number).copied().unwrap_or_default();
                let window = &mut tally.workers[self.own + place];
                window.arrived = worker.arrived - began.arrived;
                window.writes = worker.writes - began.writes;
                window.by_site[self.home].sent = worker.sent_home - began.sent_home;
                tally.counted_at[self.own + place] = worker.at;
            }
        }
        tally.by_site.iter_mut().zip(&sums.by_site).for_each(|(mine, theirs)| mine.add(*theirs));
        tally.returned.add(sums.returned);
        tally.foreign.add(sums.foreign);
        tally.inflow += sums.inflow;
    }

    /// Divides the caps of a plan among all workers by what came to each lately, and tells every
    /// follower its part. Gives those of this process, which has `own` workers.
    pub(super) fn divide(
        &mut self,
        arrived: &[u64],
        own: usize,
        reported: &dyn Fn(Vec<Probability>) -> PlanPart,
    ) -> Vec<Probability> {
        let of = |place: usize| arrived.get(place).copied().unwrap_or(0);
        let theirs = self.present.values().flat_map(Follower::live);
        let all = (0..own).chain(theirs.map(|place| self.own + place));
        let arrived: Vec<u64> = all.map(of).collect();
        let sum = arrived.iter().sum::<u64>().max(1) as f64;
        let parts = parts(&arrived);
        let (ours, mut rest) = parts.split_at(own);
        let mut counts = arrived[own..].iter();
        for follower in self.present.values_mut() {
            let (theirs, others) = rest.split_at(follower.workers());
            rest = others;
            follower.share = counts.by_ref().take(theirs.len()).sum::<u64>() as f64 / sum;
            follower.part = theirs.iter().map(|part| part.value()).sum();
            if !theirs.is_empty() {
                follower.reported.send_replace(Some(reported(theirs.to_vec())));
            }
        }
        ours.to_vec()
    }

    /// What all processes together did in the epoch that ended for this one, and how many they are.
    pub(super) fn ended(&self, own: &Ended) -> (SplitWindow, usize) {
        let mut window = own.window.clone();
        let ended = self.present.values().filter_map(|follower| {
            let ended = follower.counted.as_ref()?.1.ended.as_ref()?;
            (ended.epoch == own.epoch).then_some(&ended.window)
        });
        let processes = ended.map(|theirs| window.merge(theirs)).count();
        (window, 1 + processes)
    }
}

impl Sums {
    /// Adds what a follower counted since it began to be heard.
    fn grow(&mut self, follower: &Follower) {
        let Some((first, last)) = &follower.counted else { return };
        let more = |after: SiteTally, before: SiteTally| SiteTally {
            ended: after.ended - before.ended,
            missed: after.missed - before.missed,
        };
        let by_site = last.by_site.iter().zip(&first.by_site);
        for (sum, (after, before)) in self.by_site.iter_mut().zip(by_site) {
            sum.add(more(*after, *before));
        }
        self.returned.add(more(last.returned, first.returned));
        self.foreign.add(more(last.foreign, first.foreign));
        self.inflow += last.inflow - first.inflow;
    }
}

#[cfg(test)]
#[path = "followers_tests.rs"]
mod tests;
