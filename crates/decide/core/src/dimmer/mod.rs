//! How many requests of a replica get their optional content.
//!
//! A [`Brownout`] stands before one replica and is told of every request: it arrives, it enters
//! service, it ends. On arrival it decides what the request is served; once in a period a law sets
//! the *dimmer*, the share of optional content, so that a percentile of the response times stays at
//! its setpoint. The agent, the tower layer and the simulator drive the same lines.
//!
//! | room | does |
//! |---|---|
//! | `capacity` | what the replica can do, where its cores are not told |
//! | `content` | what one request gets: parts in order, coin or session |
//! | `feed_forward` | the default law: make the work of the next moment fit |
//! | `published` | the paper's law, exact and within bounds |
//! | `inflow` | what a plan brings before it comes |
//! | `share` | work of full and lean requests, measured from outside |
//! | `crowd` | who is there now, and for how long |
//! | [`wire`] | the decision in a header's words |
//!
//! **Samples.** The response time of every answered request counts, from arrival. A replica that
//! hangs answers nothing and must dim all the same, so a request that is still there after three
//! setpoints counts then, once: counted again in each period, one slow request would outweigh many
//! quick ones. Only where most of those who are here are late do their ages count every time.
//! Periods with fewer than twenty samples are taken together, five at most: the 95th percentile of
//! seven samples is their maximum.

mod capacity;
mod content;
mod crowd;
mod feed_forward;
mod inflow;
mod published;
mod share;
pub mod wire;

use crate::rng::Rng;
use crate::time::{Duration, Instant, from_millis_f64};
use crate::units::{Dimmer, Probability};

use capacity::{Capacity, Sample, Seen, Serves};
pub use content::{Choice, Content, PARTS_MAX, place_of};
use crowd::Crowd;
use feed_forward::{Demand, FeedForward};
pub use inflow::Inflow;
use inflow::{Expected, Over};
use published::Published;
use share::{CoresCheck, Entry, Served, ShareClock, WorkModel};

/// How a replica dims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// From arrivals, backlog, cores and measured work. Without cores from the capacity, which is
    /// learnt at the first overload; while it or the work is unknown, as [`Law::Published`].
    FeedForward,
    /// The paper's controller, kept within bounds.
    Published,
    /// The paper's controller as its code has it, defects included: for reproductions.
    PublishedExact,
}

/// How one replica dims.
#[derive(Clone, Debug, PartialEq)]
pub struct BrownoutConfig {
    /// The law.
    pub law: Law,
    /// The response time that the percentile is kept at; default 1 s.
    pub setpoint: Duration,
    /// The percentile; default 0.95.
    pub percentile: Probability,
    /// Time between control steps, 10 ms or more; default 250 ms.
    pub period: Duration,
    /// Requests the replica works on at once without slowing down: its cores, or the
    /// application's workers. `None` when unknown.
    pub cores: Option<f64>,
    /// Optional parts of a page, in order, 1 to [`PARTS_MAX`].
    pub parts: u8,
}

impl Default for BrownoutConfig {
    fn default() -> Self {
        Self {
            law: Law::FeedForward,
            setpoint: Duration::from_secs(1),
            percentile: Probability::clamped(0.95),
            period: Duration::from_millis(250),
            cores: None,
            parts: 1,
        }
    }
}

impl BrownoutConfig {
    /// The published law as it begins.
    fn published(&self) -> Published {
        match self.law {
            Law::PublishedExact => Published::exact(self.setpoint),
            Law::FeedForward | Law::Published => Published::hardened(self.setpoint),
        }
    }
}

/// One request at the replica. It ends once, in [`Brownout::end`].
#[derive(Debug)]
#[must_use = "a request that does not end is there for ever"]
pub struct Ticket {
    number: u64,
    arrived_at: Instant,
    content: Content,
    /// Others who were present when it arrived.
    company: u32,
    /// Reading of the share clock when it entered service.
    began: Option<Entry>,
}

impl Ticket {
    /// What the request is to be served.
    #[inline]
    pub const fn content(&self) -> Content {
        self.content
    }
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum End {
    /// The application answered; with what was really served if it said so.
    Answered(Option<Content>),
    /// The client gave up, or a time limit passed.
    GivenUp,
    /// The application refused or failed: neither its time nor its work tells anything.
    Failed,
}

/// What a replica's brownout knows and does, for people and dashboards.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DimmerState {
    /// The dimmer in force.
    pub dimmer: Dimmer,
    /// Whether somebody holds it there by hand.
    pub is_held: bool,
    /// The law that set it last.
    pub law: Law,
    /// The percentile of the last samples; `None` before there were any.
    pub percentile: Option<Duration>,
    /// Requests decided to be served in full since the start.
    pub full: u64,
    /// Requests decided to be served with something left out since the start.
    pub reduced: u64,
    /// Requests at the replica.
    pub present: u32,
    /// Mean work of a full request, when measured.
    pub full_work: Option<Duration>,
    /// Lean over full work; 0 until a lean request was seen.
    pub lean_ratio: f64,
    /// Requests that come per second.
    pub asked_per_s: f64,
    /// Cores it would take to serve every request in full, when measured.
    pub asked_cores: Option<f64>,
    /// Cores there are, when told.
    pub cores: Option<f64>,
    /// Cores there seem to be, where so many as was told cannot be.
    pub cores_seen: Option<f64>,
    /// Full requests per second that the replica can do, where cores were not told and this was
    /// learnt.
    pub capacity_per_s: Option<f64>,
    /// The backlog the feed-forward law tolerates: seconds of work per core.
    pub tolerated_backlog: Duration,
}

/// Decides what each request of one replica is served.
#[derive(Clone, Debug)]
pub struct Brownout {
    config: BrownoutConfig,
    rng: Rng,
    dimmer: Dimmer,
    held_at: Option<Dimmer>,
    in_force: Law,
    step_at: Instant,
    crowd: Crowd,
    samples_s: Vec<f64>,
    /// Periods whose samples are in `samples_s`.
    periods: u32,
    percentile_s: Option<f64>,
    /// Whether more were late than may be, when that was last measured.
    is_late: bool,
    /// Whether somebody left since the last percentile, before it could be said how long it takes.
    left_early: bool,
    arrivals: Arrivals,
    /// What plans bring that arrivals do not show yet.
    expected: Expected,
    clock: Option<ShareClock>,
    work: WorkModel,
    cores_check: CoresCheck,
    capacity: Capacity,
    /// When the last request ended.
    ended_at: Instant,
    feed_forward: FeedForward,
    published: Published,
    full: u64,
    reduced: u64,
}

/// Samples below which a percentile waits for more.
const SAMPLES_MIN: usize = 20;
/// Periods after which a percentile waits no longer.
const PERIODS_MAX: u32 = 5;
/// Samples kept for one percentile; a service with more is known well enough.
const SAMPLES_MAX: usize = 1 << 16;
/// Setpoints after which a request that is still there counts as a sample.
const OVERDUE: u32 = 3;
/// Late requests, beyond one for each core, that may have reasons of their own.
const LATE_MIN: f64 = 10.0;
/// Capacity, over what is asked, up to which it is tried whether there is more.
const HEADROOM: f64 = 1.3;
/// Periods of silence after which nothing is known any more.
const PERIODS_REMEMBERED: u64 = 16;

impl Brownout {
    /// A brownout that begins at `now`, with full content (the exact published law: half).
    pub fn new(config: BrownoutConfig, now: Instant, seed: u64) -> Self {
        let published = config.published();
        Self {
            rng: Rng::stream(seed, "brownout"),
            dimmer: published.dimmer(),
            held_at: None,
            in_force: config.law,
            step_at: now + config.period,
            crowd: Crowd::default(),
            samples_s: Vec::new(),
            periods: 0,
            percentile_s: None,
            is_late: false,
            left_early: false,
            arrivals: Arrivals::default(),
            expected: Expected::nothing(),
            clock: config.cores.map(|cores| ShareClock::new(cores, now)),
            work: WorkModel::default(),
            cores_check: CoresCheck::default(),
            capacity: Capacity::new(config.setpoint.as_secs_f64()),
            ended_at: now,
            feed_forward: FeedForward::new(config.setpoint),
            published,
            full: 0,
            reduced: 0,
            config,
        }
    }

    /// A request arrives: decides what it is served.
    #[inline]
    pub fn arrive(&mut self, now: Instant, choice: Choice) -> Ticket {
        self.tick(now);
        self.arrivals.count();
        let content = choice.content(self.dimmer(), self.config.parts, &mut self.rng);
        if content.is_full() {
            self.full += 1;
        } else {
            self.reduced += 1;
        }
        let company = self.crowd.present();
        let number = self.crowd.enter(now, content.share());
        Ticket { number, arrived_at: now, content, company, began: None }
    }

    /// The request enters service; until then it waits where nobody works on it.
    #[inline]
    pub fn begin(&mut self, now: Instant, ticket: &mut Ticket) {
        if let (Some(clock), None) = (&mut self.clock, ticket.began) {
            ticket.began = Some(clock.enter(now));
        }
    }

    /// The request ends.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "a request ends once")]
    pub fn end(&mut self, now: Instant, ticket: Ticket, end: End) {
        self.tick(now);
        let is_new = !self.crowd.was_overdue(ticket.number);
        self.crowd.leave(ticket.number, ticket.content.share());
        let given = match (&mut self.clock, ticket.began) {
            (Some(clock), Some(entry)) => Some(clock.leave(now, &entry)),
            _ => None,
        };
        let age = now.since(ticket.arrived_at);
        self.learn_capacity(&ticket, age, end);
        match end {
            End::Answered(served) => {
                if is_new {
                    self.sample(age);
                }
                if let Some(given) = given {
                    self.learn_work(now, served.unwrap_or(ticket.content).share(), &given);
                }
            }
            // It would have taken at least as long; if that is late already, it says enough.
            End::GivenUp if is_new && self.counts_late() && age > self.config.setpoint => {
                self.sample(age);
            }
            // Nobody asks any more for what was not given: no demand.
            End::GivenUp if age <= self.config.setpoint => self.leave_early(),
            End::GivenUp | End::Failed => {}
        }
    }

    fn learn_work(&mut self, now: Instant, share: f64, given: &Served) {
        self.work.add(share, given.work_ms);
        let (Some(told), lean) = (self.config.cores, self.work.lean_ratio()) else { return };
        let content = (1.0 - lean).mul_add(share, lean).max(0.01);
        let before = self.cores_check.seen();
        self.cores_check.add(told, given, content);
        let seen = self.cores_check.seen();
        if seen != before
            && let Some(clock) = &mut self.clock
        {
            clock.set_cores(now, seen.unwrap_or(told));
        }
    }

    /// Only one law goes by a capacity, and only where nobody tells it.
    fn learns_capacity(&self) -> bool {
        self.config.cores.is_none() && self.config.law == Law::FeedForward
    }

    #[inline]
    fn learn_capacity(&mut self, ticket: &Ticket, age: Duration, end: End) {
        if !self.learns_capacity() {
            return;
        }
        // Who gives up says nothing of when the replica ends something.
        if !matches!(end, End::GivenUp) {
            self.ended_at = ticket.arrived_at + age;
        }
        match end {
            End::Answered(served) => self.capacity.answered(Sample {
                share: served.unwrap_or(ticket.content).share(),
                time_s: age.as_secs_f64(),
                company: ticket.company,
            }),
            End::Failed => self.capacity.failed(ticket.content.share()),
            End::GivenUp => {}
        }
    }

    /// From now on a plan brings so many times as many requests, in full requests; false where this
    /// was told before, or is of an older plan than the last.
    pub fn expect(&mut self, now: Instant, inflow: Inflow) -> bool {
        self.tick(now);
        let measured_until = self.step_at.minus(self.config.period);
        let over = self.arrivals.over(measured_until, self.config.period);
        if !self.expected.take(now, inflow, over) {
            return false;
        }
        if self.in_force == Law::FeedForward && !self.hangs(now) {
            let demand = self.basis().map(|basis| self.demand(measured_until, &basis));
            self.dimmer = demand.map_or(self.dimmer, |demand| self.feed_forward.dimmer(demand));
            self.published.follow(self.dimmer);
        }
        true
    }

    /// What the feed-forward law goes by, as far as it is known.
    fn basis(&self) -> Option<Basis> {
        if let Some(told) = self.config.cores {
            let cores = self.cores_check.seen().unwrap_or(told);
            let lean_ratio = self.work.lean_ratio();
            return self.work.full_ms().map(|full_ms| Basis { cores, full_ms, lean_ratio });
        }
        // Requests that may be present at once are the cores, and what they take is their work.
        let (per_s, calm_s) = (self.capacity.per_s()?, self.capacity.calm_s()?);
        let lean_ratio = self.capacity.lean_ratio();
        Some(Basis { cores: per_s * calm_s, full_ms: calm_s * 1e3, lean_ratio })
    }

    /// Does the control step if its time has come. Every other method does it too; call this from
    /// a timer at [`Brownout::due`] only where somebody reads the dimmer of an idle replica.
    #[inline]
    pub fn tick(&mut self, now: Instant) {
        if now >= self.step_at {
            self.catch_up(now);
        }
    }

    /// When the next control step is due.
    pub const fn due(&self) -> Instant {
        self.step_at
    }

    /// The dimmer in force.
    #[inline]
    pub fn dimmer(&self) -> Dimmer {
        self.held_at.unwrap_or(self.dimmer)
    }

    /// Holds the dimmer by hand (full content is the kill switch), or lets it go.
    pub fn hold(&mut self, at: Option<Dimmer>) {
        self.held_at = at;
    }

    /// The application was restarted: what was learnt of its state is void, what was learnt of its
    /// requests is not.
    pub fn restarted(&mut self, now: Instant) {
        self.begin_anew();
        self.capacity.begin(self.crowd.present());
        self.step_at = now + self.config.period;
    }

    fn begin_anew(&mut self) {
        self.published = self.config.published();
        self.feed_forward = FeedForward::new(self.config.setpoint);
        self.dimmer = self.published.dimmer();
        self.percentile_s = None;
        self.samples_s.clear();
        self.periods = 0;
        self.left_early = false;
    }

    /// What it knows and does.
    pub fn state(&self) -> DimmerState {
        DimmerState {
            dimmer: self.dimmer(),
            is_held: self.held_at.is_some(),
            law: self.in_force,
            percentile: self.percentile_s.map(Duration::from_secs_f64),
            full: self.full,
            reduced: self.reduced,
            present: self.crowd.present(),
            full_work: self.work.full_ms().map(from_millis_f64),
            lean_ratio: self.basis().map_or(self.work.lean_ratio(), |basis| basis.lean_ratio),
            asked_per_s: self.arrivals.per_second(self.config.period),
            asked_cores: self.work.full_ms().map(|full_ms| self.asked_cores(Instant::FAR, full_ms)),
            cores: self.config.cores,
            cores_seen: self.cores_check.seen(),
            capacity_per_s: self.capacity.per_s(),
            tolerated_backlog: Duration::from_secs_f64(self.feed_forward.tolerated_s()),
        }
    }

    fn leave_early(&mut self) {
        self.arrivals.uncount();
        self.left_early = true;
    }

    #[inline]
    fn sample(&mut self, response_time: Duration) {
        if self.samples_s.len() < SAMPLES_MAX {
            self.samples_s.push(response_time.as_secs_f64());
        }
    }
}

/// The control step.
impl Brownout {
    /// Takes the steps that are due, each as of the end of its period. Periods in which nobody came
    /// or went are alike: after a silence too long to remember the law begins anew.
    fn catch_up(&mut self, now: Instant) {
        let period = crate::time::nanos(self.config.period).max(1);
        let due = now.nanos_since(self.step_at) / period + 1;
        for _ in 0..due.min(PERIODS_REMEMBERED) {
            self.step(self.step_at);
            self.step_at = self.step_at.plus_nanos(period);
        }
        if due > PERIODS_REMEMBERED {
            let rest = (due - PERIODS_REMEMBERED).saturating_mul(period);
            self.step_at = self.step_at.plus_nanos(rest);
            self.capacity.begin(self.crowd.present());
            if self.config.law != Law::PublishedExact && self.crowd.present() == 0 {
                self.begin_anew();
            }
        }
    }

    fn step(&mut self, at: Instant) {
        if self.learns_capacity() {
            self.capacity.end_period(&Seen {
                seconds: self.config.period.as_secs_f64(),
                since_last_s: at.since(self.ended_at).as_secs_f64(),
                arrived: self.arrivals.running(),
                present: self.crowd.present(),
                is_well: self.dimmer() == Dimmer::FULL || !self.is_late,
            });
        }
        self.arrivals.end_period();
        self.periods = self.periods.saturating_add(1);
        match self.config.law {
            Law::PublishedExact => self.step_exact(),
            Law::Published => self.step_published(at),
            Law::FeedForward => self.step_forward(at),
        }
    }

    fn step_exact(&mut self) {
        self.periods = 0;
        if self.samples_s.is_empty() {
            return;
        }
        let percentile_s = percentile(&mut self.samples_s, self.config.percentile);
        self.samples_s.clear();
        self.percentile_s = Some(percentile_s);
        self.published.step(self.config.period, percentile_s);
        self.dimmer = self.published.dimmer();
    }

    fn step_published(&mut self, at: Instant) {
        self.in_force = Law::Published;
        let Some(Measured { over, percentile_s, .. }) = self.measure(at) else { return };
        self.published.step(over, percentile_s);
        self.dimmer = self.published.dimmer();
    }

    fn step_forward(&mut self, at: Instant) {
        let Some(basis) = self.basis() else {
            return self.step_published(at);
        };
        self.in_force = Law::FeedForward;
        if let Some(Measured { over, late, .. }) = self.measure(at) {
            let allowed = self.config.percentile.complement().value();
            self.feed_forward.trim(over, late, allowed, self.dimmer);
        }
        if self.hangs(at) {
            self.dimmer = Dimmer::LEAN;
            return self.published.follow(self.dimmer);
        }
        let demand = self.demand(at, &basis);
        self.try_capacity(demand.backlog_s, demand.full_cores / demand.cores);
        self.dimmer = self.feed_forward.dimmer(demand);
        self.published.follow(self.dimmer);
    }

    /// What is asked of the replica, by the arrivals until then, and what waits there.
    fn demand(&self, measured_until: Instant, basis: &Basis) -> Demand {
        let &Basis { cores, full_ms, lean_ratio } = basis;
        let expected = (1.0 - lean_ratio).mul_add(self.crowd.mean_share(), lean_ratio) * full_ms;
        let waiting = (f64::from(self.crowd.present()) - cores).max(0.0);
        let backlog_s = waiting * expected * 1e-3 / cores;
        let full_cores = self.asked_cores(measured_until, full_ms);
        Demand { full_cores, cores, lean_ratio, backlog_s }
    }

    /// Tries whether there is more capacity than is believed, where that matters.
    fn try_capacity(&mut self, backlog_s: f64, asked: f64) {
        if self.held_at.is_some() {
            return; // what is served is not what this law says
        }
        let serves = match self.dimmer {
            Dimmer::FULL if asked * HEADROOM < 1.0 => return,
            Dimmer::FULL if !self.is_late => Serves::AllAndIsWell,
            Dimmer::LEAN => Serves::Nothing,
            _ => Serves::Some,
        };
        let period_s = self.config.period.as_secs_f64();
        self.capacity.regulate(period_s, backlog_s, self.feed_forward.tolerated_s(), serves);
    }

    /// Whether most of those who are here have been here for longer than the setpoint: then nothing
    /// is served in time, however little work they seem to be. A few long requests are no hang.
    fn hangs(&self, at: Instant) -> bool {
        let late = self.crowd.older_than(at, self.config.setpoint).count();
        let expected = self.basis().map_or(0.0, |basis| basis.cores) + LATE_MIN;
        late as f64 > expected && late * 2 > self.crowd.present() as usize
    }

    /// By the arrivals until then, and what a plan brings that these do not show.
    fn asked_cores(&self, measured_until: Instant, full_ms: f64) -> f64 {
        let period = self.config.period;
        let factor = self.expected.left(self.arrivals.over(measured_until, period));
        factor * self.arrivals.per_second(period) * full_ms * 1e-3
    }

    /// The published code knows only what was answered.
    fn counts_late(&self) -> bool {
        self.config.law != Law::PublishedExact
    }

    /// What the last periods show, once there are enough samples.
    fn measure(&mut self, at: Instant) -> Option<Measured> {
        let limit = self.config.setpoint * OVERDUE;
        while let Some(age) = self.crowd.next_overdue(at, limit) {
            self.sample(age);
        }
        let ended = self.samples_s.len();
        if self.hangs(at) {
            let late = self.crowd.older_than(at, self.config.setpoint).take(SAMPLES_MAX);
            self.samples_s.extend(late.map(|age| age.as_secs_f64()));
        }
        let count = self.samples_s.len();
        // Where nobody came for five periods there is no response time to keep; where people come
        // and leave at once there is one that nobody knows.
        let is_idle = self.crowd.present() == 0 && !self.left_early;
        if (count < SAMPLES_MIN && self.periods < PERIODS_MAX) || (count == 0 && !is_idle) {
            self.samples_s.truncate(ended); // who is still here is older the next time
            if count == 0 && self.crowd.present() == 0 && self.periods >= PERIODS_MAX {
                // Who left early was asked about for long enough: five periods more without anybody
                // are idle ones.
                (self.left_early, self.periods) = (false, 0);
            }
            return None;
        }
        let over = self.config.period * self.periods.min(PERIODS_MAX);
        let setpoint_s = self.config.setpoint.as_secs_f64();
        let late = self.samples_s.iter().filter(|time_s| **time_s > setpoint_s).count();
        let late = late as f64 / count.max(1) as f64;
        let percentile_s =
            if count == 0 { 0.0 } else { percentile(&mut self.samples_s, self.config.percentile) };
        self.samples_s.clear();
        self.periods = 0;
        self.left_early = false;
        self.is_late = late > self.config.percentile.complement().value();
        self.percentile_s = (count > 0).then_some(percentile_s).or(self.percentile_s);
        Some(Measured { over, percentile_s, late })
    }
}

/// What the feed-forward law goes by.
struct Basis {
    /// Requests that can be worked on at once.
    cores: f64,
    /// Work of a full request.
    full_ms: f64,
    lean_ratio: f64,
}

/// What some periods showed.
struct Measured {
    /// Their length together.
    over: Duration,
    /// The percentile of the response times; 0 when nobody came.
    percentile_s: f64,
    /// Share of them beyond the setpoint.
    late: f64,
}

/// The percentile by linear interpolation between the two samples around it (as NumPy does).
fn percentile(samples: &mut [f64], percentile: Probability) -> f64 {
    let place = percentile.value() * (samples.len() - 1) as f64;
    let below = place.floor();
    let (_, low, above) = samples.select_nth_unstable_by(below as usize, f64::total_cmp);
    let low = *low;
    let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
    (place - below).mul_add(high - low, low)
}

/// Arrivals of the last periods.
#[derive(Clone, Debug, Default)]
struct Arrivals {
    counts: [u32; Self::PERIODS],
    /// The period that runs, modulo their number.
    now: usize,
    ended: usize,
}

impl Arrivals {
    const PERIODS: usize = 9;
    /// Arrivals after which a rate is known to a tenth.
    const ENOUGH: u32 = 100;

    #[inline]
    fn count(&mut self) {
        self.counts[self.now] = self.counts[self.now].saturating_add(1);
    }

    /// One of those who came is gone, and does not count as having come.
    #[inline]
    fn uncount(&mut self) {
        self.counts[self.now] = self.counts[self.now].saturating_sub(1);
    }

    /// Those of the period that runs.
    const fn running(&self) -> u32 {
        self.counts[self.now]
    }

    fn end_period(&mut self) {
        self.now = (self.now + 1) % Self::PERIODS;
        self.counts[self.now] = 0;
        self.ended = (self.ended + 1).min(Self::PERIODS - 1);
    }

    /// The rate over as few of the last periods as have enough arrivals: a step must show at once
    /// where there is much traffic, and noise must not where there is little.
    fn per_second(&self, period: Duration) -> f64 {
        let (arrivals, periods) = self.enough();
        f64::from(arrivals) / (period.as_secs_f64() * f64::from(periods.max(1)))
    }

    /// The time over which that is, where the last period ended then.
    fn over(&self, until: Instant, period: Duration) -> Over {
        Over { until, length: period * self.enough().1.max(1) }
    }

    /// The arrivals of so many of the last periods.
    fn enough(&self) -> (u32, u32) {
        let mut arrivals = 0_u32;
        let mut periods = 0_u32;
        for back in 1..=self.ended {
            let count = self.counts[(self.now + Self::PERIODS - back) % Self::PERIODS];
            arrivals = arrivals.saturating_add(count);
            periods += 1;
            if arrivals >= Self::ENOUGH {
                break;
            }
        }
        (arrivals, periods)
    }
}

#[cfg(test)]
mod fights;
#[cfg(test)]
mod forecasts;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unknown_cores;
#[cfg(test)]
mod world;
