//! What a replica can do, learnt from what it completes, where nobody told its cores.
//!
//! **Signal**: work completed per second, in full requests, while a backlog grows. More comes in
//! than goes out: then what goes out is what the replica can do. At all other times completions are
//! only a lower bound, because they follow the arrivals: they raise the capacity and never lower
//! it. So idle times say nothing.
//! **Statistic**: windows of fifty completions or more. Two windows in a row must show a backlog
//! that grows, and the better of the two counts. A pause, a batch of answers or the start of a slow
//! downstream spoils one window, not two. While all stands still nothing completes, no window
//! ends and nothing is learnt. A machine that shrinks is followed within some two windows. One that
//! grows is found step by step: the law admits a tenth more than it knows whenever nothing waits,
//! and two windows in a row that complete more than is known, while more is asked for, raise it.
//! **Backlog**: more requests are present than Little's law explains with the time that a request
//! takes in calm ([`Capacity::calm_s`]). Waiting for a downstream is part of this time, so the
//! capacity times this time is the number of requests that may be present at once: what the cores
//! are to the law. A downstream that becomes slow holds more requests, but completions come up to
//! the arrivals again, and the backlog does not grow any more.
//! **Lean over full work** is how much sooner lean requests end than full ones that end *next to
//! them*, over the time in calm. Neighbours have waited equally long. Over longer times the dimmer
//! changes with the backlog, and lean requests would seem to be the slow ones. Where all requests
//! share the cores at once the difference is overstated: lean work is then taken for cheaper than
//! it is, the dimming is too timid, and the backlog corrects it.
//! **When it misleads**: a service of which fewer than five requests per second end is never
//! measured and keeps the published law. A replica at which nearly everything is lean teaches
//! nothing: there the capacity stays what it was.

/// Completions that make a window: a rate of them is known to some 14 %, by variation of the work.
const COMPLETIONS: f64 = 50.0;
/// With so few the window ends when it is old, and with fewer it says nothing.
const COMPLETIONS_MIN: f64 = 20.0;
/// Periods after which a window is old.
const PERIODS_MAX: u32 = 16;
/// What the time in calm may rise by in a window: a release that takes longer is believed in time.
const CALM_RISE: f64 = 1.01;
/// Requests present, over those that Little's law explains, that are a backlog.
const CROWDED: f64 = 2.0;
/// Standard deviations that are no chance.
const SIGNIFICANT: f64 = 3.0;
/// Neighbours of different content after which its effect is known, and their memory.
const SQUARES_MIN: f64 = 10.0;
const SQUARES_KEPT: f64 = 1.0 - 1.0 / 500.0;
/// Until then a window with less optional content than this says nothing of full requests, and
/// after it one in which lean requests are most of the work: an error of the ratio would be one of
/// the capacity.
const SHARE_MIN: f64 = 0.5;
/// As in the model of work: what gains nothing from dimming.
const LEAN_RATIO_MAX: f64 = 0.95;

/// What is known of a replica's capacity.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    window: Window,
    /// Completed per second in the last window, where a backlog grew and where it was more than is
    /// known.
    grew_at: Option<f64>,
    rose_to: Option<f64>,
    per_s: Option<f64>,
    calm_s: Option<f64>,
    /// The last that ended: its share of optional content and its time, seconds.
    neighbour: Option<(f64, f64)>,
    /// Differences between neighbours: of the shares, squared, and their products with those of
    /// the times.
    squares: f64,
    products: f64,
}

/// The completions of some periods.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    periods: u32,
    seconds: f64,
    /// Requests present when it began.
    present: f64,
    arrived: f64,
    count: f64,
    share: f64,
    time_s: f64,
}

/// What a control step sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Length of the period.
    pub(super) seconds: f64,
    /// Requests that arrived in it, without those that left at once.
    pub(super) arrived: u32,
    /// Requests present at its end, and their mean share of optional content.
    pub(super) present: u32,
    pub(super) share: f64,
    /// Whether everything is served in full.
    pub(super) is_full: bool,
}

impl Capacity {
    /// A request was answered this long after its arrival.
    #[inline]
    pub(super) fn answered(&mut self, share: f64, time_s: f64) {
        let window = &mut self.window;
        window.count += 1.0;
        window.share += share;
        window.time_s += time_s;
        let Some((share_before, time_before_s)) = self.neighbour.replace((share, time_s)) else {
            return;
        };
        let (more, longer_s) = (share - share_before, time_s - time_before_s);
        if more != 0.0 {
            self.squares = self.squares.mul_add(SQUARES_KEPT, more * more);
            self.products = self.products.mul_add(SQUARES_KEPT, more * longer_s);
        }
    }

    /// A period ends.
    pub(super) fn end_period(&mut self, seen: &Seen) {
        let window = &mut self.window;
        window.periods += 1;
        window.seconds += seen.seconds;
        window.arrived += f64::from(seen.arrived);
        let is_old = window.periods >= PERIODS_MAX;
        if window.count >= COMPLETIONS || (is_old && window.count >= COMPLETIONS_MIN) {
            let window = *window;
            self.learn(&window, seen);
            self.begin(seen.present);
        } else if is_old {
            (self.grew_at, self.rose_to) = (None, None);
            self.begin(seen.present);
        }
    }

    /// Nothing that is going on is to be looked at: the replica was restarted, or was silent.
    pub(super) fn begin(&mut self, present: u32) {
        self.window = Window { present: f64::from(present), ..Window::default() };
    }

    fn learn(&mut self, window: &Window, seen: &Seen) {
        self.learn_calm(window, seen.is_full);
        let lean = self.lean_ratio();
        let (before, rose_to) = (self.grew_at.take(), self.rose_to.take());
        let share = window.share / window.count;
        if share < lean.map_or(SHARE_MIN, |lean| lean * (1.0 - share)) {
            return;
        }
        let lean = lean.unwrap_or(0.0);
        let completed = (1.0 - lean).mul_add(window.share, lean * window.count) / window.seconds;
        let growth = f64::from(seen.present) - window.present;
        if growth > window.arrived.sqrt() && self.is_crowded(window, seen) {
            self.grew_at = Some(completed);
            self.per_s = before.map(|before| before.max(completed)).or(self.per_s);
        } else if let Some(known) = self.per_s
            && completed.min(window.arrived / window.seconds) > known
        {
            self.rose_to = Some(completed);
            self.per_s = Some(rose_to.map_or(known, |rose_to| rose_to.min(completed).max(known)));
        }
    }

    fn learn_calm(&mut self, window: &Window, is_full: bool) {
        let mean_s = window.time_s / window.count;
        self.calm_s = match self.calm_s {
            None => Some(mean_s),
            Some(known) if is_full => Some(mean_s.min(known * CALM_RISE)),
            known => known,
        };
    }

    /// Whether more are present than there would be in calm.
    fn is_crowded(&self, window: &Window, seen: &Seen) -> bool {
        let lean = self.lean_ratio().unwrap_or(0.0);
        let content = (1.0 - lean).mul_add(seen.share, lean);
        let calm_s = self.calm_s.unwrap_or(0.0) * content;
        let usual = window.arrived / window.seconds * calm_s;
        f64::from(seen.present) > CROWDED.mul_add(usual, SIGNIFICANT * usual.sqrt()) + 1.0
    }

    /// Full requests per second that the replica can do; `None` until a backlog was seen to grow.
    pub(super) fn per_s(&self) -> Option<f64> {
        self.per_s.filter(|per_s| *per_s > 0.0)
    }

    /// Mean time of a full request, from arrival to end, while nothing waits.
    pub(super) fn calm_s(&self) -> Option<f64> {
        self.calm_s.filter(|calm_s| *calm_s > 0.0)
    }

    /// Lean over full work; `None` until enough lean requests were seen beside full ones.
    pub(super) fn lean_ratio(&self) -> Option<f64> {
        let calm_s = self.calm_s().filter(|_| self.squares >= SQUARES_MIN)?;
        Some((1.0 - self.products / self.squares / calm_s).clamp(0.0, LEAN_RATIO_MAX))
    }
}
