//! From what a site counts to what it tells of itself: demand, writes, what waits, what missed.
//!
//! Both drivers, on sockets and in the simulator, keep a [`SplitTally`] and measure with these
//! lines.
//!
//! **Signal**: requests counted where they arrive, whoever served them and with whatever content.
//! **Statistic**: demand and the share of writes are means over the last epochs, two unless said,
//! and over a second at least: one epoch of a small service is mostly chance, and many would be a
//! surge late. The paper has 5 s (section 7.1), which with its period of 2.5 s are two epochs. The
//! rest is of the last epoch. **Whose time**: workers hand up what they counted every now and then,
//! so each one's counts are divided by the time between *its* last hand-ups. By the time between
//! two looks at them, a demand would be off by up to 4 % with epochs of 2.5 s, and with the
//! shortest ones every other would be none.
//!
//! **What waits** are calls that a dispatcher holds back because no replica may have them yet.
//! What is in flight is not counted in: how much of that is too much would be known only from
//! measured latency, which plans may not follow; and clients that wait for news on purpose (long
//! polling) would look like a queue.
//!
//! **What a site serves in time** is the most of the last hour or so, as the sites say that sent
//! requests there: a profile says what it could serve, and may be wrong by any factor. Where most
//! requests miss, what is in time now counts and not what was, and for the next hour no more than
//! `COLLAPSED` of the load it was then: who was sent too much is not sent as much again and
//! again.
//!
//! **What is planned for** is not the mean but what it says of the next epoch
//! ([`forecast`]): a mean is half its time late, on average, and the plan another epoch.

pub mod forecast;

use std::collections::VecDeque;

use super::ALL_PPM;
use super::epoch::{COUNT_MAX, Path, Report, per_1000_s};
use super::learnt::Learnt;
use super::split::SplitWindow;
use evenkeel_core::time::{Duration, Instant};
use evenkeel_core::units::{Probability, Rate};
use forecast::{Choice, Forecaster};

/// Counts kept at most; with the shortest period of 100 ms they span 25 s.
const COUNTS_MAX: usize = 256;

/// A rate over less time than this is mostly chance, and workers hand up only now and then.
const EXPECTED_FROM: Duration = Duration::from_secs(1);
/// Time in which half of what a site once served in time is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(3_600);
/// The share of a load under which most requests missed that a site is believed to serve.
const COLLAPSED: f64 = 0.175;
/// Requests that must have ended for that to be said.
const COLLAPSED_REQUESTS_MIN: u64 = 20;
/// Time in which what is believed after that doubles, as long as more is served and all but a
/// twentieth of it in time: a pause or a queue that was gone in seconds is no reason for an hour.
const REGAINS: Duration = Duration::from_secs(60);

/// What was counted of a site's own users since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitTally {
    /// By worker; behind them, once there was one, what came through other data planes. `arrived`
    /// is the demand: requests of this site's own users, whoever served them.
    pub workers: Vec<SplitWindow>,
    /// Alike: until when that was counted, each on a clock that may be its own; `None` before
    /// anything was, and where nobody says.
    pub counted_at: Vec<Option<Instant>>,
    /// By the site that served.
    pub by_site: Vec<SiteTally>,
    /// Of those that home served, the ones that had been elsewhere first: how late they are says
    /// nothing of home.
    pub returned: SiteTally,
    /// Of those that home served, the ones that came through other data planes, which tell failures
    /// and no latencies: how many were late nobody knows.
    pub foreign: SiteTally,
    /// Requests of other sites' users that were served here.
    pub inflow: u64,
    /// Calls that wait for a replica now, over all workers.
    pub waiting: u64,
}

/// What became of requests of this site's users that one site served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteTally {
    /// Requests that ended: answered, refused, or given up by the client after the objective.
    pub ended: u64,
    /// Of these, the ones that failed or whose answer began later than the objective.
    pub missed: u64,
}

impl SiteTally {
    /// Adds what was counted elsewhere or later.
    pub const fn add(&mut self, other: Self) {
        self.ended += other.ended;
        self.missed += other.missed;
    }
}

/// Over how long demand is a mean: over so many epochs, and over more when they are short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandSpan {
    /// Epochs at least; default 2.
    pub epochs: usize,
    /// Time at least; default 1 s, several hand-ups of every worker.
    pub least: Duration,
}

impl Default for DemandSpan {
    fn default() -> Self {
        Self { epochs: 2, least: Duration::from_secs(1) }
    }
}

/// Counts at the ends of the last epochs, and what they say.
#[derive(Clone, Debug, Default)]
pub struct DemandMeter {
    span: DemandSpan,
    forecaster: Forecaster,
    kept: VecDeque<(Instant, SplitTally)>,
    served: Vec<Served>,
}

/// What one site was seen to serve of this site's requests, per second.
#[derive(Clone, Copy, Debug)]
struct Served {
    in_time: f64,
    /// What is not believed, since most missed.
    most: f64,
}

impl Served {
    const NOTHING: Self = Self { in_time: 0.0, most: f64::INFINITY };

    /// After so many seconds: how many requests ended in so many others.
    fn note(&mut self, since: f64, lately: SiteTally, over: f64) {
        let faded = libm::exp2(-since / HALF_LIFE.as_secs_f64());
        let in_time = per_second(lately.ended.saturating_sub(lately.missed), over);
        (self.in_time, self.most) = ((self.in_time * faded).max(in_time), self.most / faded);
        if in_time > self.most && lately.missed * 20 <= lately.ended {
            self.most *= libm::exp2(since / REGAINS.as_secs_f64());
        }
        if lately.missed * 2 > lately.ended && lately.ended >= COLLAPSED_REQUESTS_MIN {
            self.in_time = in_time;
            self.most = self.most.min(COLLAPSED * per_second(lately.ended, over));
        }
    }

    fn believed(self) -> f64 {
        self.in_time.min(self.most)
    }
}

/// What happened lately.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lately {
    /// Requests of the site's users, per second.
    pub demand: f64,
    /// The same as it is expected while the next plan is in force.
    pub expected: f64,
    /// The share of writes among them, in parts per million; 0 when none came.
    pub writes_ppm: u32,
    /// By worker, how many of them came to it in the time between the looks, as many as it counted
    /// over its own time: caps are divided by this.
    pub arrived: Vec<u64>,
    /// Calls that wait for a replica.
    pub waiting: u64,
    /// Requests of the site's users that ended in the last epoch.
    pub ended: u64,
    /// Of these, those that missed the objective.
    pub missed: u64,
    /// Those that ended, were served where they came, and had been nowhere else before; as far as
    /// it is known how late they were.
    pub local_ended: u64,
    /// Of these, those that missed the objective.
    pub local_missed: u64,
    /// What the site served in the last epoch, per second: its own users' requests and others'.
    pub load: f64,
    /// By site, what it was seen to serve in time of this site's users' requests, per second.
    pub in_time: Vec<f64>,
}

impl DemandMeter {
    /// A meter over this time that foretells so; by default, by the rule that was least wrong.
    pub fn new(span: DemandSpan, choice: Choice) -> Self {
        Self { span, forecaster: Forecaster::new(choice), ..Self::default() }
    }

    /// Takes the counts at the end of an epoch; the first ones are where counting begins. `home` is
    /// this site.
    pub fn note(&mut self, now: Instant, counts: SplitTally, home: usize) -> Lately {
        self.kept.push_back((now, counts));
        let epochs = self.span.epochs.max(1);
        while self.kept.len() > COUNTS_MAX
            || (self.kept.len() > epochs + 1 && now.since(self.kept[1].0) >= self.span.least)
        {
            self.kept.pop_front();
        }
        let expected = self.expect(now);
        let until = &self.kept[self.kept.len() - 1];
        let epoch = Between { until, since: &self.kept[self.kept.len().saturating_sub(2)] };
        let span = Between { until, since: &self.kept[0] };
        let sent_home =
            |window: &SplitWindow| window.by_site.get(home).map_or(0, |counts| counts.sent);
        let all = |tally: &SplitTally, count: fn(&SiteTally) -> u64| -> u64 {
            tally.by_site.iter().map(count).sum()
        };
        let local = |tally: &SplitTally, count: fn(&SiteTally) -> u64| {
            let here = tally.by_site.get(home).map_or(0, count);
            here.saturating_sub(count(&tally.returned) + count(&tally.foreign))
        };
        let ended = epoch.count(|tally| all(tally, |counts| counts.ended));
        let local_ended = epoch.count(|tally| local(tally, |counts| counts.ended));
        let from_elsewhere = epoch.count(|tally| tally.inflow + tally.returned.ended);
        // Counted as sent home, and served elsewhere.
        let failed_over =
            epoch.rate(|window| window.by_site.iter().map(|counts| counts.failed_over).sum());
        let demand = span.rate(|window| window.arrived);
        let since = epoch.until.0.since(epoch.since.0).as_secs_f64();
        self.served.resize(until.1.by_site.len(), Served::NOTHING);
        for (site, served) in self.served.iter_mut().enumerate() {
            served.note(since, span.ended_at(site), span.seconds());
        }
        let writes = span.rate(|window| window.writes);
        Lately {
            demand,
            expected,
            writes_ppm: ppm(if demand > 0.0 { writes / demand } else { 0.0 }),
            arrived: span.alike(|window| window.arrived),
            waiting: until.1.waiting,
            ended,
            missed: epoch.count(|tally| all(tally, |counts| counts.missed)).min(ended),
            local_ended,
            local_missed: epoch
                .count(|tally| local(tally, |counts| counts.missed))
                .min(local_ended),
            load: (epoch.rate(sent_home) + per_second(from_elsewhere, epoch.seconds())
                - failed_over)
                .max(0.0),
            in_time: self.served.iter().map(|served| served.believed()).collect(),
        }
    }
}

impl DemandMeter {
    /// Foretells the next epoch from the last one, or from the last second where epochs are short.
    fn expect(&mut self, now: Instant) -> f64 {
        let until = &self.kept[self.kept.len() - 1];
        let mut earlier = self.kept.iter().rev().skip(1);
        let is_long = |since: &&(Instant, SplitTally)| now.since(since.0) >= EXPECTED_FROM;
        let since = earlier.clone().find(is_long).or_else(|| earlier.next_back());
        let Some(since) = since else { return 0.0 };
        let rate = Between { until, since }.rate(|window| window.arrived);
        self.forecaster.next(now, now.since(since.0), rate)
    }
}

impl Lately {
    /// What the site served, as a rate.
    ///
    /// # Panics
    /// Never: counts over time are a rate.
    pub fn load(&self) -> Rate {
        Rate::new(self.load).expect("counts over time are a rate")
    }

    /// The share of writes, as it is told.
    pub fn writes(&self) -> Probability {
        Probability::clamped(f64::from(self.writes_ppm) * 1e-6)
    }

    /// What the site tells the others, with what its driver knows of itself.
    ///
    /// # Panics
    /// Never: counts over time are a rate.
    pub fn report(
        &self,
        capacity_per_1000_s: u64,
        (curve_version, learnt): (u32, Learnt),
        paths: Vec<Option<Path>>,
    ) -> Report {
        let rate = |per_s| per_1000_s(Rate::new(per_s).expect("counts over time are a rate"));
        let in_time = |site: usize| self.in_time.get(site).map_or(0, |per_s| rate(*per_s));
        let ended = self.ended.min(COUNT_MAX);
        Report {
            demand_per_1000_s: rate(self.expected),
            capacity_per_1000_s,
            backlog_requests: self.waiting.min(COUNT_MAX),
            writes_ppm: self.writes_ppm,
            ended_requests: ended,
            violations: self.missed.min(ended),
            curve_version,
            learnt,
            in_time_per_1000_s: (0..paths.len()).map(in_time).collect(),
            paths,
        }
    }
}

/// What was counted between two moments. Counts that begin anew are no counts.
struct Between<'a> {
    until: &'a (Instant, SplitTally),
    since: &'a (Instant, SplitTally),
}

impl Between<'_> {
    fn count(&self, of: impl Fn(&SplitTally) -> u64) -> u64 {
        of(&self.until.1).saturating_sub(of(&self.since.1))
    }

    /// What became of the requests that one site served.
    fn ended_at(&self, site: usize) -> SiteTally {
        let of = |count: fn(&SiteTally) -> u64| {
            self.count(|tally| tally.by_site.get(site).map_or(0, count))
        };
        SiteTally { ended: of(|counts| counts.ended), missed: of(|counts| counts.missed) }
    }

    fn by_worker(&self, of: impl Fn(&SplitWindow) -> u64) -> Vec<u64> {
        let before = |worker: usize| self.since.1.workers.get(worker).map_or(0, &of);
        let workers = self.until.1.workers.iter().enumerate();
        workers.map(|(worker, window)| of(window).saturating_sub(before(worker))).collect()
    }

    /// By worker, what it counted over its own time, over ours.
    fn alike(&self, of: impl Fn(&SplitWindow) -> u64) -> Vec<u64> {
        let ours = self.until.0.since(self.since.0).as_secs_f64();
        let counts = self.by_worker(of).into_iter().enumerate();
        let over = |(worker, count)| per_second(count, self.seconds_of(worker)) * ours;
        counts.map(|count| over(count).round() as u64).collect()
    }

    /// Of all workers together, per second.
    fn rate(&self, of: impl Fn(&SplitWindow) -> u64) -> f64 {
        let counts = self.by_worker(of).into_iter().enumerate();
        counts.map(|(worker, count)| per_second(count, self.seconds_of(worker))).sum()
    }

    /// How long a worker counted; by our own clock where it does not say.
    fn seconds_of(&self, worker: usize) -> f64 {
        let at = |tally: &SplitTally| tally.counted_at.get(worker).copied().flatten();
        match (at(&self.until.1), at(&self.since.1)) {
            (Some(until), Some(since)) => until.since(since).as_secs_f64(),
            _ => self.until.0.since(self.since.0).as_secs_f64(),
        }
    }

    /// How long the workers counted that counted at all, on average.
    fn seconds(&self) -> f64 {
        let all = (0..self.until.1.workers.len()).map(|worker| self.seconds_of(worker));
        let counted: Vec<f64> = all.filter(|seconds| *seconds > 0.0).collect();
        counted.iter().sum::<f64>() / counted.len().max(1) as f64
    }
}

fn ppm(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * f64::from(ALL_PPM)).round() as u32
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests;
