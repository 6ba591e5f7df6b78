//! What is measured in a run: latencies, shares of requests, and either of them for a while.
//!
//! A measure is of the whole run (after the warm-up), or of a [`Span`] of it, taken over the
//! windows (`run.window`) that lie wholly inside: shares from the sums of their counts,
//! percentiles as their average. A call belongs to the window in which it ended.

pub(crate) mod row;

use core::time::Duration;

use evenkeel_settings::{Mismatch, Table, parse_duration};
use serde::{Serialize, Serializer};

use crate::unit::Unit;
use crate::zoolander::measure::DUPLICATED;
use evenkeel_sim::redirect::{RedirectReport, SiteReport, SiteWindow};
use evenkeel_sim::report::RunReport;
use evenkeel_sim::sampler::WindowReport;
use row::{Counted, Row, Take, Within, ms, row, share_of};

/// What is measured in a run, or in the runs along an axis.
#[derive(Clone, Copy, Debug)]
pub struct Measure(&'static Row);

static ROWS: [Row; 47] = [
    ms("mean_ms", "mean latency").run(|run| Some(run.mean_ms)),
    ms("p50_ms", "median latency")
        .run(|run| Some(run.p50_ms))
        .seen(|window, _| Some(window.p50_ms)),
    ms("p95_ms", "p95 latency").run(|run| Some(run.p95_ms)).seen(|window, _| Some(window.p95_ms)),
    ms("p99_ms", "p99 latency").run(|run| Some(run.p99_ms)).seen(|window, _| Some(window.p99_ms)),
    ms("p999_ms", "p99.9 latency")
        .run(|run| Some(run.p999_ms))
        .seen(|window, _| Some(window.p999_ms)),
    row("tail_over_median", "p99.9 over median", Unit::Times)
        .run(|run| Some(run.p999_ms / run.p50_ms)),
    // Of the requests.
    share_of("served_ratio", "requests served")
        .run(|run| Some(run.served_ratio))
        .counting(|window| (window.served, window.calls())),
    // All of it.
    share_of("optional_ratio", "with optional content")
        .run(|run| Some(run.optional_ratio))
        .counting(|window| (window.optional, window.calls())),
    // Answered later than the objective, or not at all.
    share_of("violation_ratio", "too late or not served")
        .run(|run| Some(run.violations? as f64 / run.requests as f64))
        .counting(|window| (window.violations, window.calls())),
    // Requests that the caller gave up.
    row("timeouts_per_s", "timeouts", Unit::PerSecond)
        .run(|run| Some(run.timeouts as f64 / run.virtual_s))
        .seen(|window, length_s| Some(window.timeouts as f64 / length_s)),
    // Of the living replicas.
    share_of("dimmer", "mean dimmer")
        .run(|run| mean(run.windows.iter().map(|window| window.dimmer)))
        .seen(|window, _| window.dimmer),
    // From the start of the span until the optional ratio of a window was below a level for the
    // last time; the whole span when it still was at the end.
    row("full_after_s", "time until all content is back", Unit::Seconds),
    // Deviation over mean of a replica's load in time.
    row("load_variation", "variation of a replica's load", Unit::Deviations)
        .run(|run| run.load.as_ref().map(|load| load.variation)),
    // Load of the first replica over load of the second.
    row("queue_ratio", "queue of the fast over the slow server", Unit::Times).run(queue_ratio),
    // 99th percentile of a window, averaged over the windows before the first phase, and after it.
    ms("before_p99_ms", "p99 before the others join").joined(before_p99_ms),
    ms("after_p99_ms", "p99 after they joined").joined(after_p99_ms),
    row("after_over_before", "p99 after over before", Unit::Times)
        .joined(|run, at| Some(after_p99_ms(run, at)? / before_p99_ms(run, at)?)),
    // Requests per second at which as many are in the system as a closed loop has threads.
    row("closed_throughput", "closed-loop throughput", Unit::PerSecond).along_axis(),
    ms("closed_p999_ms", "p99.9 at the closed loop's rate").along_axis(),
    row("closed_tail_over_median", "p99.9 over median at that rate", Unit::Times).along_axis(),
    share_of("redirected_ratio", "served elsewhere")
        .redirected(|of| Some(of.redirected_ratio))
        .counting(|window| at_sites(window, |of| (of.away, of.requests))),
    share_of("away_violation_ratio", "too late, of those served elsewhere")
        .redirected(|of| of.away_violation_ratio)
        .counting(|window| at_sites(window, |of| (of.away_violations, of.away))),
    share_of("home_violation_ratio", "too late, of those served at home")
        .redirected(|of| of.home_violation_ratio),
    share_of("away_prediction_error", "predicted less measured, served elsewhere")
        .redirected(|of| Some(of.away_predicted_ratio? - of.away_violation_ratio?)),
    share_of("home_prediction_error", "predicted less measured, served at home")
        .redirected(|of| Some(of.home_predicted_ratio? - of.home_violation_ratio?)),
    share_of("first_site_violation_ratio", "too late at the first site")
        .redirected(|of| of_site(of, 0, |of, _| of.violations))
        .counting(|window| at_site(window, 0, |of| of.violations)),
    share_of("second_site_violation_ratio", "too late at the second site")
        .redirected(|of| of_site(of, 1, |of, _| of.violations))
        .counting(|window| at_site(window, 1, |of| of.violations)),
    share_of("third_site_violation_ratio", "too late at the third site")
        .redirected(|of| of_site(of, 2, |of, _| of.violations))
        .counting(|window| at_site(window, 2, |of| of.violations)),
    share_of("first_site_redirected_ratio", "the first site's, served elsewhere")
        .redirected(|of| of_site(of, 0, away))
        .counting(|window| at_site(window, 0, |of| of.away)),
    share_of("third_site_redirected_ratio", "the third site's, served elsewhere")
        .redirected(|of| of_site(of, 2, away))
        .counting(|window| at_site(window, 2, |of| of.away)),
    // When a data centre first replaced its curves.
    row("curve_changed_s", "when curves were replaced", Unit::Seconds)
        .redirected(|of| of.curve_changes.first().map(|at| at.0)),
    row("cost_per_day", "cost of a day", Unit::Dollars)
        .run(|run| run.bill.as_ref().map(|bill| bill.cost_per_day)),
    // In which a data centre kept its target.
    share_of("within_target", "minutes within the target")
        .run(|run| run.bill.as_ref().map(|bill| bill.steps_within_target)),
    // Geometric mean over databases of their mean latency.
    ms("placement_latency_ms", "mean latency of a database").placed(|of| Some(of.latency_ms)),
    // Latency of an interval over the oracle's, less one.
    share_of("placement_overhead", "over the oracle").placed(|of| Some(of.overhead_ratio)),
    share_of("placement_reduction", "saved of the latency by hand")
        .placed(|of| Some(of.reduction_ratio)),
    share_of("placement_reduction_max", "saved of the latency by hand, at most")
        .placed(|of| Some(of.reduction_max_ratio)),
    share_of("placement_halved", "databases that save at least half")
        .placed(|of| Some(of.halved_share)),
    share_of("placement_tenth", "databases that save at least a tenth")
        .placed(|of| Some(of.tenth_share)),
    share_of("placement_hundredth", "databases that save less than a hundredth")
        .placed(|of| Some(of.hundredth_share)),
    // Of all copies that were sent for nothing, over that of answers.
    share_of("extra_work_ratio", "extra work").run(|run| run.extra_work_ratio),
    // Of the requests.
    share_of("failed_ratio", "failed").run(|run| Some(run.failed as f64 / run.requests as f64)),
    // With those of the warm-up, as probes are counted.
    row("probes_per_request", "probes per request", Unit::PerRequest)
        .run(|run| Some(run.probes as f64 / run.arrived as f64)),
    row("placement_moves", "moves of a leader in a day", Unit::PerDay)
        .placed(|of| Some(of.moves_per_day)),
    // Where most operations are.
    share_of("placement_busier_side", "intervals with the leader on the busier side")
        .placed(|of| of.busier_side_share),
    // Less one.
    share_of("placement_over_thirteen", "over the optimum with 13 replicas")
        .placed(|of| of.over_thirteen_ratio),
    share_of("placement_proven", "databases with a proven optimum").placed(|of| of.proven_share),
];

/// A measure with all it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// The measure.
    pub measure: Measure,
    /// When; the whole run without.
    pub during: Option<Span>,
    /// Threads of the closed loop, where the measure asks for one.
    pub threads: f64,
    /// The optional ratio that counts as full, where the measure asks for one.
    pub level: f64,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub from: Duration,
    /// Where it ends.
    pub to: Duration,
}

impl Measure {
    /// The measures by the names that people write.
    pub fn named() -> Vec<(&'static str, Self)> {
        ROWS.iter().chain(&DUPLICATED).map(|row| (row.name, Self(row))).collect()
    }

    /// The measure of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn of(name: &str) -> Self {
        let mut all = ROWS.iter().chain(&DUPLICATED);
        Self(all.find(|row| row.name == name).expect("the name of a measure"))
    }

    /// The measure in words.
    pub const fn words(self) -> &'static str {
        self.0.words
    }

    /// What it is counted in.
    pub const fn unit(self) -> Unit {
        self.0.unit
    }

    /// Whether it takes the runs along the whole axis.
    pub const fn is_along_axis(self) -> bool {
        matches!(self.0.take, Take::AlongAxis)
    }

    /// Whether its values are averaged as they are: those that may be 0 or have an upper bound.
    /// Of the others, latencies and ratios, the logarithms are.
    pub fn is_additive(self) -> bool {
        matches!(
            self.unit(),
            Unit::Share
                | Unit::Seconds
                | Unit::PerRequest
                | Unit::PerDay
                | Unit::Nines
                | Unit::Windows
        ) || self.0.name == "timeouts_per_s"
    }

    /// Its value in one window; `None` when it has none there.
    pub fn of_window(self, window: &WindowReport, length_s: f64) -> Option<f64> {
        match self.0.within {
            Within::Nothing => None,
            Within::Value(value) => value(window, length_s),
            Within::Counted(counted) => share([window].into_iter(), counted),
        }
    }

    fn of_run(self, run: &RunReport, joins_at: Duration) -> Option<f64> {
        match self.0.take {
            Take::Run(of) => of(run),
            Take::Joined(of) => of(run, joins_at),
            Take::Sites(of) => of(run.redirect.as_ref()?),
            Take::Placement(of) => of(run.placement.as_ref()?),
            Take::Duplicates(of) => of(run.duplicates.as_ref()?),
            Take::UntilFull | Take::AlongAxis => None,
        }
    }
}

impl PartialEq for Measure {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.name.strip_prefix("duplicates_") {
            None => serializer.serialize_str(self.0.name),
            Some(of) => serializer.serialize_newtype_variant("Measure", 0, "duplicates", of),
        }
    }
}

/// Calls of all sites' users.
fn at_sites(window: &WindowReport, of: fn(&SiteWindow) -> (u64, u64)) -> (u64, u64) {
    window.sites.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// How many calls of one site's users, of how many.
fn at_site(window: &WindowReport, site: usize, counted: fn(&SiteWindow) -> u64) -> (u64, u64) {
    window.sites.get(site).map_or((0, 0), |of| (counted(of), of.requests))
}

impl Asked {
    /// The measure of a whole run.
    pub const fn of(measure: Measure) -> Self {
        Self { measure, during: None, threads: 1.0, level: 1.0 }
    }

    /// Reads `measure`, `during`, `threads`, `level`.
    pub(crate) fn read(table: &mut Table<'_>) -> Self {
        let all = Span { from: Duration::ZERO, to: Duration::MAX };
        Self {
            measure: table.key("measure").variant(&Measure::named()).or(Measure::of("p99_ms")),
            during: table
                .key("during")
                .parsed("a span such as 300s..400s", all, Span::parse)
                .optional(),
            threads: table.key("threads").number().between(1.0..=1e6).or(1.0),
            level: table.key("level").probability().or(1.0),
        }
    }

    /// In words, with its unit and its time.
    pub fn words(&self) -> String {
        let (words, unit) = (self.measure.words(), self.measure.unit().name());
        let when = self.during.map_or_else(String::new, |span| format!(", {}", span.words()));
        format!("{words}, {unit}{when}")
    }

    /// Its value in one run, of which the first phase begins at `joins_at`; `None` when it has
    /// none.
    pub fn of_run(&self, run: &RunReport, joins_at: Duration) -> Option<f64> {
        match self.during {
            None => self.measure.of_run(run, joins_at),
            Some(span) => self.of_span(run, span),
        }
    }

    fn of_span(&self, run: &RunReport, span: Span) -> Option<f64> {
        let within = || Timed::of(run).filter(move |timed| timed.lies_in(span));
        if matches!(self.measure.0.take, Take::UntilFull) {
            return full_after_s(within(), self.level, span.from.as_secs_f64());
        }
        if let Within::Counted(counted) = self.measure.0.within {
            return share(within().map(|timed| timed.window), counted);
        }
        mean(within().map(|timed| self.measure.of_window(timed.window, timed.length_s())))
    }
}

impl Span {
    /// Reads `300s..400s`.
    fn parse(text: &str) -> Result<Self, Mismatch> {
        let wrong = || Mismatch::new(format!("{text:?}"), "a span such as 300s..400s");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let [from, to] = [from, to].map(|end| parse_duration(end.trim()));
        match (from, to) {
            (Ok(from), Ok(to)) if from < to => Ok(Self { from, to }),
            _ => Err(wrong()),
        }
    }

    fn words(self) -> String {
        format!("from {} to {} s", self.from.as_secs_f64(), self.to.as_secs_f64())
    }
}

/// A window with its beginning.
#[derive(Clone, Copy)]
struct Timed<'a> {
    from_s: f64,
    window: &'a WindowReport,
}

impl<'a> Timed<'a> {
    fn of(run: &'a RunReport) -> impl Iterator<Item = Self> {
        let ends = run.windows.iter().map(|window| window.until_s);
        let starts = core::iter::once(0.0).chain(ends);
        run.windows.iter().zip(starts).map(|(window, from_s)| Self { from_s, window })
    }

    fn lies_in(&self, span: Span) -> bool {
        // Ends are sums of window lengths: a nanosecond is no difference.
        const CLOSE_S: f64 = 1e-9;
        let (from, to) = (span.from.as_secs_f64(), span.to.as_secs_f64());
        self.from_s >= from - CLOSE_S && self.window.until_s <= to + CLOSE_S
    }

    fn length_s(&self) -> f64 {
        self.window.until_s - self.from_s
    }
}

/// What is counted over all calls that ended in these windows; `None` when none did.
fn share<'a>(windows: impl Iterator<Item = &'a WindowReport>, counted: Counted) -> Option<f64> {
    let add = |(part, whole): (u64, u64), (counted, of)| (part + counted, whole + of);
    let (part, whole) = windows.map(counted).fold((0, 0), add);
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn full_after_s<'a>(
    windows: impl Iterator<Item = Timed<'a>>,
    level: f64,
    from_s: f64,
) -> Option<f64> {
    let mut seen = None;
    for Timed { window, .. } in windows {
        // A window in which nothing ended is not full.
        let optional = Measure::of("optional_ratio").of_window(window, 1.0).unwrap_or(0.0);
        let until_s = window.until_s - from_s;
        seen = Some(if optional < level { until_s } else { seen.unwrap_or(0.0) });
    }
    seen
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn queue_ratio(run: &RunReport) -> Option<f64> {
    let means = &run.load.as_ref()?.means;
    Some(means.first()? / means.get(1)?)
}

fn before_p99_ms(run: &RunReport, joins_at: Duration) -> Option<f64> {
    window_p99_ms(run, Duration::ZERO, joins_at)
}

fn after_p99_ms(run: &RunReport, joins_at: Duration) -> Option<f64> {
    window_p99_ms(run, joins_at, Duration::MAX)
}

/// What is counted of one site's users, over all their requests.
fn of_site(
    redirect: &RedirectReport,
    site: usize,
    counted: fn(&SiteReport, usize) -> u64,
) -> Option<f64> {
    let of = redirect.sites.get(site)?;
    (of.requests > 0).then(|| counted(of, site) as f64 / of.requests as f64)
}

fn away(of: &SiteReport, site: usize) -> u64 {
    of.requests - of.served_at.get(site).copied().unwrap_or_default()
}

/// The mean over the windows that lie within a time; the first window is of the start.
fn window_p99_ms(run: &RunReport, from: Duration, to: Duration) -> Option<f64> {
    let span = Span { from, to };
    let within = Timed::of(run).skip(1).filter(|timed| timed.lies_in(span));
    mean(within.map(|timed| Some(timed.window.p99_ms)))
}

/// What a closed loop of `threads` without pauses would see, read off runs at rising rates.
///
/// By Little's law as many requests are in the system as come per second times the seconds each
/// stays; the loop settles where that number is its threads. Between two rates the number grows
/// about exponentially, and so do the percentiles. `None` when the runs do not enclose that rate.
/// It is an approximation: a closed loop also sends less while it waits, which spares its tail.
pub(crate) fn of_closed_loop(
    curve: &[(f64, &RunReport)],
    measure: Measure,
    threads: f64,
) -> Option<f64> {
    let inside = |(rate, run): (f64, &RunReport)| rate * run.mean_ms / 1e3;
    let step =
        curve.windows(2).find(|pair| inside(pair[0]) <= threads && threads < inside(pair[1]));
    let &[low, high] = step? else { return None };
    let share = (threads / inside(low)).ln() / (inside(high) / inside(low)).ln();
    let between = |low: f64, high: f64| low * (high / low).powf(share);
    let p50_ms = between(low.1.p50_ms, high.1.p50_ms);
    let p999_ms = between(low.1.p999_ms, high.1.p999_ms);
    match measure.0.name {
        "closed_throughput" => Some(low.0 + (high.0 - low.0) * share),
        "closed_p999_ms" => Some(p999_ms),
        "closed_tail_over_median" => Some(p999_ms / p50_ms),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{any_run, window};

    /// An M/M/1 server at rate λ with service rate µ holds λ/(µ−λ): a closed loop of n threads
    /// runs at µ·n/(n+1).
    #[test]
    fn a_closed_loop_settles_where_littles_law_says() {
        let (service, threads) = (1_000.0, 4.0);
        let rates: Vec<f64> = (1..=18).map(|n| 50.0 * f64::from(n)).collect();
        let runs: Vec<RunReport> = rates
            .iter()
            .map(|rate| {
                let mean_ms = 1e3 / (service - rate);
                RunReport { mean_ms, p999_ms: mean_ms * 6.9, p50_ms: mean_ms * 0.69, ..any_run() }
            })
            .collect();
        let curve: Vec<_> = rates.iter().copied().zip(&runs).collect();
        let of = |measure| of_closed_loop(&curve, measure, threads).unwrap();
        let truth = service * threads / (threads + 1.0);
        let reported = of(Measure::of("closed_throughput"));
        assert!((reported / truth - 1.0).abs() < 0.02, "{reported} for {truth}");
        assert!(
            (of(Measure::of("closed_p999_ms")) / (6.9 * 1e3 / (service - truth)) - 1.0).abs()
                < 0.05
        );
        assert!((of(Measure::of("closed_tail_over_median")) - 10.0).abs() < 1e-9);
        assert_eq!(of_closed_loop(&curve, Measure::of("closed_throughput"), 1e4), None);
        assert_eq!(of_closed_loop(&curve, Measure::of("closed_throughput"), 1e-4), None);
    }

    #[test]
    fn before_and_after_leave_the_start_and_the_window_of_the_change_out() {
        let window = |until_s: f64, p99_ms: f64| WindowReport { p99_ms, ..window(until_s, [1; 4]) };
        let windows = vec![
            window(1.0, 900.0),
            window(2.0, 10.0),
            window(3.0, 30.0),
            window(4.0, 777.0), // the change is within it
            window(5.0, 60.0),
        ];
        let run = RunReport { windows, ..any_run() };
        let of = |measure| Asked::of(measure).of_run(&run, Duration::from_millis(3_500));
        assert_eq!(of(Measure::of("before_p99_ms")), Some(20.0));
        assert_eq!(of(Measure::of("after_p99_ms")), Some(60.0));
        assert_eq!(of(Measure::of("after_over_before")), Some(3.0));
        let run = any_run();
        assert_eq!(Asked::of(Measure::of("after_over_before")).of_run(&run, Duration::ZERO), None);
    }

    fn during(measure: Measure, span: &str) -> Asked {
        Asked { during: Some(Span::parse(span).unwrap()), level: 0.9, ..Asked::of(measure) }
    }

    /// Served, with optional content, timed out, too late or not at all.
    #[test]
    fn a_span_sums_the_windows_that_lie_in_it() {
        let windows = vec![
            window(0.5, [100, 100, 0, 0]),
            window(1.0, [60, 30, 40, 50]),
            window(1.5, [300, 30, 0, 10]),
            window(2.0, [100, 95, 0, 0]),
        ];
        let run = RunReport { windows, ..any_run() };
        let of = |asked: Asked| asked.of_run(&run, Duration::ZERO);
        assert_eq!(of(during(Measure::of("optional_ratio"), "0.5s..1.5s")), Some(60.0 / 400.0));
        assert_eq!(of(during(Measure::of("served_ratio"), "0.5s..1.5s")), Some(360.0 / 400.0));
        assert_eq!(of(during(Measure::of("violation_ratio"), "0.2s..1.1s")), Some(50.0 / 100.0));
        assert_eq!(of(during(Measure::of("timeouts_per_s"), "0.5s..1.5s")), Some(40.0));
        assert_eq!(of(during(Measure::of("served_ratio"), "1.1s..1.4s")), None, "no whole window");
    }

    #[test]
    fn all_content_is_back_after_the_last_window_without() {
        let windows = vec![
            window(0.5, [100, 10, 0, 0]),
            window(1.0, [100, 99, 0, 0]),
            window(1.5, [100, 80, 0, 0]),
            window(2.0, [100, 95, 0, 0]),
            window(2.5, [100, 91, 0, 0]),
        ];
        let run = RunReport { windows, ..any_run() };
        let of = |span| during(Measure::of("full_after_s"), span).of_run(&run, Duration::ZERO);
        assert_eq!(of("0s..2.5s"), Some(1.5));
        assert_eq!(of("0.5s..2.5s"), Some(1.0));
        assert_eq!(of("1.5s..2.5s"), Some(0.0));
        assert_eq!(of("0s..1.5s"), Some(1.5), "still without at the end");
        assert_eq!(of("7s..8s"), None);
    }

    #[test]
    fn a_span_has_two_ends_in_order() {
        for text in ["3s", "3s..", "4s..3s", "3..4"] {
            let reported = format!("{:?}", Span::parse(text).unwrap_err());
            assert!(reported.contains("300s..400s"), "{reported}");
        }
    }
}
