//! What a replica can do, where nobody told its cores: learnt from what it completes.
//!
//! **Signal**: work completed per second, in full requests, while a backlog grows that matters (a
//! quarter of the setpoint): more comes in than goes out, so what goes out is what the replica can
//! do. A window of completions begins that; the next must show the backlog still, and the better
//! of the two counts. If the next completes much more, that is no level but a rise (the first
//! moment of a slow downstream, the end of a pause), and the one after it decides. A period in
//! which nothing ends where much should is a pause, and tells nothing; where there are four such
//! silences in 32 periods the application answers in batches, and completions are counted from the
//! end of one batch to the end of another. What failed was work too.
//! **Never stuck**: what was learnt is only believed as long as it is seen. While the replica dims
//! and next to nothing waits the capacity rises by a fifth each second, until the dimming ends or
//! a backlog says what the capacity is; this needs no full request and no ratio of any kind. It
//! is never less than what is completed all the time. While something waits it moves slowly to
//! where as much waits as is tolerated ([`Capacity::regulate`]).
//! **Calm**: what waits is who is present beyond those that are served, and those are the capacity
//! times the time that a full request takes *in calm*: the mean over the quarter of each window
//! that found the fewest present, and of the last windows the lower quartile. Only windows count
//! in which no backlog grew or shrank, the work was below 0.8 of the capacity, and no more were
//! late than may be unless everything is served in full. So a wait for a downstream becomes part
//! of it, a wait for a worker does not, and one worker is known as well as sixty-four. It is at
//! most half a setpoint: what takes longer is late anyway.
//! **When it misleads**: lean work ([`LeanRatio`]) may be wrong by much. Capacity is in full
//! requests of the mixture in which it was learnt, so an overload is held all the same; what is
//! wrong is what the next other mixture gets, until it is learnt there. A service of which fewer
//! than five requests per second end is never measured and keeps the published law. Who waits for
//! a batch looks like a backlog: some optional content that could be served is not.

use std::collections::VecDeque;

/// Completions that make a window: a rate of them is known to some 14 %, by variation of the work.
const COMPLETIONS: usize = 50;
/// With so few the window ends when it is old, and with fewer it says nothing.
const COMPLETIONS_MIN: usize = 20;
/// Periods and seconds after which a window is old.
const PERIODS_MAX: u32 = 16;
const OLD_S: f64 = 4.0;
/// Samples kept of a window.
const SAMPLES_MAX: usize = 1 << 10;
/// Completions expected of a period from which on none at all is a pause.
const PAUSE_MIN: f64 = 8.0;
/// Calm windows of which the least counts.
const CALM_WINDOWS: usize = 8;
/// Work, as a share of the capacity, up to which a steady window is a calm one.
const CALM_LOAD: f64 = 0.8;
/// Setpoints that the time in calm takes at most, and those that a backlog must take to matter.
const CALM_MAX: f64 = 0.5;
const MATTERS: f64 = 0.25;
/// Rise of the capacity per second while the replica dims and next to nothing waits.
const RISE_PER_S: f64 = 0.2;
/// At least, where all is served in full and in time.
const WELL_RISE_PER_S: f64 = 0.05;
/// Change per second and per setpoint of what waits less than is tolerated, and its bounds.
const DRIFT_PER_S: f64 = 0.2;
const DRIFT: core::ops::RangeInclusive<f64> = -0.04..=0.1;
/// Times the completions of the window before that are no level but a rise.
const RAMP: f64 = 1.25;
/// Weight of a window in the mean of the work completed.
const FLOW_GAIN: f64 = 0.125;
/// Share of the tolerated backlog that is next to nothing.
const NOTHING: f64 = 0.25;

/// What is known of a replica's capacity.
#[derive(Clone, Debug)]
pub(super) struct Capacity {
    setpoint_s: f64,
    window: Window,
    /// Completions per second of the last window, and the work in it; the mean of such work.
    rate: f64,
    completed: f64,
    flow: f64,
    /// Work completed per second in the last window, if a backlog grew.
    grew_at: Option<f64>,
    per_s: Option<f64>,
    calm: VecDeque<f64>,
    /// The lower quartile of them; infinite until there is one.
    calm_s: f64,
    /// The capacity then.
    calm_per_s: Option<f64>,
    lean: LeanRatio,
    silences: Silences,
}

/// Silences of the last periods, which are usual where an application answers in batches.
#[derive(Clone, Copy, Debug, Default)]
struct Silences {
    /// A bit for each period, the last one the lowest; set where one was silent.
    periods: u32,
}

impl Silences {
    /// So many silences apart from each other, of 32 periods.
    const USUAL: u32 = 4;

    fn note(&mut self, is_silent: bool) {
        self.periods = self.periods << 1 | u32::from(is_silent);
    }

    /// Whether there were several of them lately.
    const fn are_usual(self) -> bool {
        // Where one begins.
        (self.periods & !(self.periods << 1)).count_ones() >= Self::USUAL
    }
}

/// The completions of some periods.
#[derive(Clone, Debug, Default)]
struct Window {
    periods: u32,
    seconds: f64,
    /// How long before it began the last request had ended; `None` after a pause or a silence.
    lead_s: Option<f64>,
    /// Requests present when it began.
    present: f64,
    arrived: f64,
    /// Completions, those of the last period, and their content.
    count: usize,
    before: usize,
    share: f64,
    samples: Vec<Sample>,
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Its share of optional content.
    pub(super) share: f64,
    /// From arrival to end.
    pub(super) time_s: f64,
    /// Others who were present when it arrived.
    pub(super) company: u32,
}

/// What a control step sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Length of the period.
    pub(super) seconds: f64,
    /// How long before its end the last request ended.
    pub(super) since_last_s: f64,
    /// Requests that arrived in it, without those that left at once.
    pub(super) arrived: u32,
    /// Requests present at its end.
    pub(super) present: u32,
    /// Whether everything is served in full, or no more are late than may be.
    pub(super) is_well: bool,
}

/// How much optional content is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Serves {
    /// All, and no more are late than may be.
    AllAndIsWell,
    /// All while some are late, or some.
    Some,
    /// None.
    Nothing,
}

impl Capacity {
    pub(super) fn new(setpoint_s: f64) -> Self {
        Self {
            setpoint_s,
            window: Window::default(),
            rate: 0.0,
            completed: 0.0,
            flow: 0.0,
            grew_at: None,
            per_s: None,
            calm: VecDeque::new(),
            calm_s: f64::INFINITY,
            calm_per_s: None,
            lean: LeanRatio::default(),
            silences: Silences::default(),
        }
    }

    /// A request was answered.
    #[inline]
    pub(super) fn answered(&mut self, sample: Sample) {
        self.failed(sample.share);
        if self.window.samples.len() < SAMPLES_MAX {
            self.window.samples.push(sample);
        }
        self.lean.add(sample.share, sample.time_s, self.calm_s);
    }

    /// A request failed: it was work, as far as is known, but its time tells nothing.
    #[inline]
    pub(super) fn failed(&mut self, share: f64) {
        self.window.count += 1;
        self.window.share += share;
    }

    /// A period ends.
    pub(super) fn end_period(&mut self, seen: &Seen) {
        let is_silent = self.window.count == self.window.before
            && seen.present > 0
            && self.rate * seen.seconds >= PAUSE_MIN;
        let is_pause = is_silent && !self.silences.are_usual();
        self.silences.note(is_silent);
        let window = &mut self.window;
        window.before = window.count;
        window.periods += 1;
        window.seconds += seen.seconds;
        window.arrived += f64::from(seen.arrived);
        let is_old = window.periods >= PERIODS_MAX && window.seconds >= OLD_S;
        if is_pause {
            self.begin(seen.present);
        } else if window.count >= COMPLETIONS || (is_old && window.count >= COMPLETIONS_MIN) {
            let window = core::mem::take(&mut self.window);
            self.learn(window, seen);
            self.window.present = f64::from(seen.present);
            self.window.lead_s = Some(seen.since_last_s);
        } else if is_old {
            self.begin(seen.present);
        }
    }

    /// What is going on says nothing: a pause, a restart, a silence.
    pub(super) fn begin(&mut self, present: u32) {
        self.grew_at = None;
        self.window = Window { present: f64::from(present), ..Window::default() };
    }

    fn learn(&mut self, mut window: Window, seen: &Seen) {
        let present = f64::from(seen.present);
        let lean = self.lean_ratio();
        let count = window.count as f64;
        // From the last end before it to the last within it: a batch is in one window or the next.
        let seconds = match (self.silences.are_usual(), window.lead_s) {
            (true, Some(lead_s)) => {
                (window.seconds + lead_s - seen.since_last_s).max(0.5 * seen.seconds)
            }
            _ => window.seconds,
        };
        let completed = (1.0 - lean).mul_add(window.share, lean * count) / seconds;
        self.rate = count / seconds;
        let (growth, noise) = (present - window.present, window.arrived.sqrt());
        self.flow = FLOW_GAIN.mul_add(completed - self.flow, self.flow);
        let most = self.flow.max(completed);
        let is_loaded = self.per_s.is_some_and(|per_s| most > CALM_LOAD * per_s);
        if self.calm.is_empty() || (seen.is_well && growth.abs() <= noise && !is_loaded) {
            self.learn_calm(core::mem::take(&mut window.samples), lean);
        }
        let content = completed / self.rate;
        let wait_s = present / self.rate - self.calm_s().unwrap_or(0.0) * content;
        if wait_s < MATTERS * self.setpoint_s || completed <= 0.0 {
            self.grew_at = None;
        } else if let Some(before) = self.grew_at.take() {
            if completed > RAMP * before {
                self.grew_at = Some(completed);
            } else {
                self.per_s = Some(before.max(completed));
            }
        } else if growth > noise {
            self.grew_at = Some(completed);
        }
        // What it does all the time it can do; more than came is a backlog of whatever kind.
        let before = core::mem::replace(&mut self.completed, completed);
        let came = window.arrived / window.seconds;
        let done = self.flow.min(completed).min(before).min(came);
        self.per_s = self.per_s.map(|per_s| per_s.max(done));
    }

    fn learn_calm(&mut self, mut samples: Vec<Sample>, lean: f64) {
        let quarter = samples.len() / 4;
        if quarter == 0 {
            return;
        }
        let (_, limit, _) = samples.select_nth_unstable_by_key(quarter, |it| it.company);
        let limit = limit.company;
        let alone = samples.iter().filter(|it| it.company <= limit);
        let (time_s, content) = alone.fold((0.0, 0.0), |(time_s, content), it| {
            (time_s + it.time_s, content + (1.0 - lean).mul_add(it.share, lean))
        });
        if self.calm.len() == CALM_WINDOWS {
            self.calm.pop_front();
        }
        self.calm.push_back((time_s / content).clamp(1e-6, CALM_MAX * self.setpoint_s));
        let mut calm: Vec<f64> = self.calm.iter().copied().collect();
        calm.sort_unstable_by(f64::total_cmp);
        self.calm_s = calm[calm.len() / 4];
        self.calm_per_s = self.per_s;
    }

    /// Tries what is known, over a period of so many seconds, with what waits and what is tolerated
    /// in seconds. Called while the replica dims, or could not serve much more than it is asked.
    pub(super) fn regulate(&mut self, seconds: f64, waits_s: f64, tolerated_s: f64, how: Serves) {
        let change = if waits_s <= NOTHING * tolerated_s {
            RISE_PER_S
        } else {
            let room = (tolerated_s - waits_s) / self.setpoint_s;
            (DRIFT_PER_S * room).clamp(*DRIFT.start(), *DRIFT.end())
        };
        let least = match how {
            Serves::AllAndIsWell => WELL_RISE_PER_S,
            Serves::Some => *DRIFT.start(),
            // What waits cannot be helped by leaving out more.
            Serves::Nothing => 0.0,
        };
        self.per_s = self.per_s.map(|per_s| per_s * change.max(least).mul_add(seconds, 1.0));
    }

    /// Full requests per second that the replica can do; `None` until a backlog was seen to grow.
    pub(super) const fn per_s(&self) -> Option<f64> {
        self.per_s
    }

    /// Time of a full request, from arrival to end, while nothing waits.
    pub(super) fn calm_s(&self) -> Option<f64> {
        Some(self.calm_s).filter(|calm_s| calm_s.is_finite())
    }

    /// Lean over full work.
    pub(super) fn lean_ratio(&self) -> f64 {
        let Some(calm_s) = self.calm_s() else { return LeanRatio::MIN };
        // A replica that has become quicker since is so for the same number of requests at once.
        let quicker = self.per_s.zip(self.calm_per_s).map_or(1.0, |(now, then)| now / then);
        self.lean.over(calm_s / quicker.max(1.0))
    }
}

/// Lean over full work, from how much longer full requests take than those beside them.
///
/// **Statistic**: the slope of the time over the share of optional content, by the difference of
/// each request to the one that ended before it: neighbours waited equally long. Only the *later*
/// request's share counts, against the mean share: with one worker a request also waits for the
/// one before it, whose share would count against its own. What was left out is random, so the
/// rest is not related to it. The slope is what optional content takes; relative to the time of a
/// full request in calm it is what dimming saves. **When it misleads**: where requests share the
/// cores, crowded times stretch the slope and lean work is taken for cheaper than it is: the
/// dimming is too timid, and the backlog corrects it.
#[derive(Clone, Debug, Default)]
struct LeanRatio {
    before_s: Option<f64>,
    mean_share: f64,
    mean_s: f64,
    near_s: f64,
    squares: f64,
    products: f64,
    /// The same, relative to the mean time.
    relative: f64,
    /// Of those that ended in crowded times, the share that can not have stood in line.
    overtaking: f64,
}

impl LeanRatio {
    const KEEP: f64 = 1.0 - 1.0 / 1_500.0;
    const MEAN_GAIN: f64 = 1.0 / 50.0;
    const NEAR_GAIN: f64 = 1.0 / 4.0;
    /// Squares of shares after which the slope is known.
    const ENOUGH: f64 = 5.0;
    /// Taken until then, and at least: the first dimming is then too timid.
    const MIN: f64 = 0.02;
    /// What gains nothing from dimming.
    const MAX: f64 = 0.9;
    /// Times in calm that crowded ones take, and by how much neighbours in line never differ.
    const CROWDED: f64 = 4.0;
    const DIFFERENT: f64 = 0.5;
    const OVERTAKING_MIN: f64 = 0.3;

    #[inline]
    fn add(&mut self, share: f64, time_s: f64, calm_s: f64) {
        let Some(before_s) = self.before_s.replace(time_s) else {
            (self.mean_share, self.mean_s, self.near_s) = (share, time_s, time_s);
            return;
        };
        let (mean_s, longer_s) = (f64::midpoint(before_s, time_s), time_s - before_s);
        if mean_s > Self::CROWDED * calm_s {
            let differ = longer_s.abs() > Self::DIFFERENT * mean_s;
            let change = f64::from(u8::from(differ)) - self.overtaking;
            self.overtaking = Self::MEAN_GAIN.mul_add(change, self.overtaking);
        }
        let more = share - self.mean_share;
        if more.abs() > 0.05 && self.mean_s > 0.0 {
            let product = more * (time_s - self.near_s);
            self.squares = self.squares.mul_add(Self::KEEP, more * more);
            self.products = self.products.mul_add(Self::KEEP, product);
            self.relative = self.relative.mul_add(Self::KEEP, product / self.mean_s);
        }
        self.mean_share = Self::MEAN_GAIN.mul_add(more, self.mean_share);
        self.mean_s = Self::MEAN_GAIN.mul_add(time_s - self.mean_s, self.mean_s);
        self.near_s = Self::NEAR_GAIN.mul_add(time_s - self.near_s, self.near_s);
    }

    fn over(&self, calm_s: f64) -> f64 {
        if self.squares < Self::ENOUGH {
            return Self::MIN;
        }
        let saved = if self.overtaking > Self::OVERTAKING_MIN {
            let slope = self.relative / self.squares;
            slope / slope.mul_add(1.0 - self.mean_share, 1.0)
        } else {
            self.products / self.squares / calm_s
        };
        (1.0 - saved).clamp(Self::MIN, Self::MAX)
    }
}
