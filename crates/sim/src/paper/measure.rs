//! What is measured in a run: latencies, shares of requests, and either of them for a while.
//!
//! A measure is of the whole run (after the warm-up), or of a [`Span`] of it, taken over the
//! windows (`run.window`) that lie wholly inside: shares from the sums of their counts,
//! percentiles as their average. A call belongs to the window in which it ended.

use core::time::Duration;

use evenkeel_settings::{Mismatch, Table, parse_duration};
use serde::Serialize;

use crate::paper::zoolander::measure::Duplicated;
use crate::placement::day::PlacementReport;
use crate::redirect::{SiteReport, SiteWindow};
use crate::report::RunReport;
use crate::sampler::WindowReport;

/// What is measured in a run, or in the runs along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Mean latency, milliseconds.
    MeanMs,
    /// Median.
    P50Ms,
    /// 95th percentile.
    P95Ms,
    /// 99th percentile.
    P99Ms,
    /// 99.9th percentile.
    P999Ms,
    /// 99.9th percentile over median.
    TailOverMedian,
    /// Share of the requests that were answered.
    ServedRatio,
    /// Share that was answered with all optional content.
    OptionalRatio,
    /// Share that was answered later than the objective or not at all.
    ViolationRatio,
    /// Requests that the caller gave up, per second.
    TimeoutsPerS,
    /// Mean dimmer of the living replicas.
    Dimmer,
    /// Seconds from the start of the span until the optional ratio of a window was below a level
    /// for the last time; the whole span when it still was at the end.
    FullAfterS,
    /// Deviation over mean of a replica's load in time.
    LoadVariation,
    /// Load of the first replica over load of the second.
    QueueRatio,
    /// 99th percentile of a window, averaged over the windows before the first phase.
    BeforeP99Ms,
    /// The same, after the phase.
    AfterP99Ms,
    /// After over before.
    AfterOverBefore,
    /// Requests per second at which as many are in the system as a closed loop has threads.
    ClosedThroughput,
    /// 99.9th percentile at that rate.
    ClosedP999Ms,
    /// 99.9th percentile over median at that rate.
    ClosedTailOverMedian,
    /// Share of the requests that another data centre served.
    RedirectedRatio,
    /// Share of violations among those.
    AwayViolationRatio,
    /// Share of violations among the others.
    HomeViolationRatio,
    /// What plans predicted of the former, less what happened.
    AwayPredictionError,
    /// What plans predicted of the latter, less what happened.
    HomePredictionError,
    /// Share of violations among requests of the first data centre's users.
    FirstSiteViolationRatio,
    /// Of the second's.
    SecondSiteViolationRatio,
    /// Of the third's.
    ThirdSiteViolationRatio,
    /// Share of the first data centre's users' requests that another one served.
    FirstSiteRedirectedRatio,
    /// Of the third's.
    ThirdSiteRedirectedRatio,
    /// When a data centre first replaced its curves, seconds.
    CurveChangedS,
    /// Cost of 24 hours, in the currency of the prices.
    CostPerDay,
    /// Share of minutes in which a data centre kept its target.
    WithinTarget,
    /// Geometric mean over databases of their mean latency.
    PlacementLatencyMs,
    /// Latency of an interval over the oracle's, less one.
    PlacementOverhead,
    /// Share of the latency by hand that is saved.
    PlacementReduction,
    /// The most that a database saves of it.
    PlacementReductionMax,
    /// Share of databases that save at least half.
    PlacementHalved,
    /// Share of databases that save at least a tenth.
    PlacementTenth,
    /// Share of databases that save less than a hundredth.
    PlacementHundredth,
    /// How often a leader moves in a day.
    PlacementMoves,
    /// Share of intervals in which the leader is where most operations are.
    PlacementBusierSide,
    /// Latency over the optimum with 13 replicas, less one.
    PlacementOverThirteen,
    /// Share of databases with a proven optimum.
    PlacementProven,
    /// Of duplicated stores.
    Duplicates(Duplicated),
}

/// What a measure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// One over another of the same unit.
    Times,
    /// Deviation over mean.
    Deviations,
    /// Per second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// A part of a whole, 0 to 1; shown as a percentage.
    Share,
    /// Of the prices' currency.
    Dollars,
    /// Per day.
    PerDay,
    /// `-log10` of a share of violations.
    Nines,
    /// Windows of samples.
    Windows,
}

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
    pub const NAMED: [(&'static str, Self); 70] = [
        ("mean_ms", Self::MeanMs),
        ("p50_ms", Self::P50Ms),
        ("p95_ms", Self::P95Ms),
        ("p99_ms", Self::P99Ms),
        ("p999_ms", Self::P999Ms),
        ("tail_over_median", Self::TailOverMedian),
        ("served_ratio", Self::ServedRatio),
        ("optional_ratio", Self::OptionalRatio),
        ("violation_ratio", Self::ViolationRatio),
        ("timeouts_per_s", Self::TimeoutsPerS),
        ("dimmer", Self::Dimmer),
        ("full_after_s", Self::FullAfterS),
        ("load_variation", Self::LoadVariation),
        ("queue_ratio", Self::QueueRatio),
        ("before_p99_ms", Self::BeforeP99Ms),
        ("after_p99_ms", Self::AfterP99Ms),
        ("after_over_before", Self::AfterOverBefore),
        ("closed_throughput", Self::ClosedThroughput),
        ("closed_p999_ms", Self::ClosedP999Ms),
        ("closed_tail_over_median", Self::ClosedTailOverMedian),
        ("redirected_ratio", Self::RedirectedRatio),
        ("away_violation_ratio", Self::AwayViolationRatio),
        ("home_violation_ratio", Self::HomeViolationRatio),
        ("away_prediction_error", Self::AwayPredictionError),
        ("home_prediction_error", Self::HomePredictionError),
        ("first_site_violation_ratio", Self::FirstSiteViolationRatio),
        ("second_site_violation_ratio", Self::SecondSiteViolationRatio),
        ("third_site_violation_ratio", Self::ThirdSiteViolationRatio),
        ("first_site_redirected_ratio", Self::FirstSiteRedirectedRatio),
        ("third_site_redirected_ratio", Self::ThirdSiteRedirectedRatio),
        ("curve_changed_s", Self::CurveChangedS),
        ("cost_per_day", Self::CostPerDay),
        ("within_target", Self::WithinTarget),
        ("placement_latency_ms", Self::PlacementLatencyMs),
        ("placement_overhead", Self::PlacementOverhead),
        ("placement_reduction", Self::PlacementReduction),
        ("placement_reduction_max", Self::PlacementReductionMax),
        ("placement_halved", Self::PlacementHalved),
        ("placement_tenth", Self::PlacementTenth),
        ("placement_hundredth", Self::PlacementHundredth),
        ("placement_moves", Self::PlacementMoves),
        ("placement_busier_side", Self::PlacementBusierSide),
        ("placement_over_thirteen", Self::PlacementOverThirteen),
        ("placement_proven", Self::PlacementProven),
        ("duplicates_nines", Self::Duplicates(Duplicated::Nines)),
        ("duplicates_paper", Self::Duplicates(Duplicated::Paper)),
        ("duplicates_lindley", Self::Duplicates(Duplicated::Lindley)),
        ("duplicates_paper_nines", Self::Duplicates(Duplicated::PaperNines)),
        ("duplicates_lindley_nines", Self::Duplicates(Duplicated::LindleyNines)),
        ("duplicates_single_error", Self::Duplicates(Duplicated::SingleError)),
        ("duplicates_series_error", Self::Duplicates(Duplicated::SeriesError)),
        ("duplicates_window_error", Self::Duplicates(Duplicated::WindowError)),
        ("duplicates_paper_error", Self::Duplicates(Duplicated::PaperError)),
        ("duplicates_lindley_error", Self::Duplicates(Duplicated::LindleyError)),
        ("duplicates_paper_nines_over", Self::Duplicates(Duplicated::PaperNinesOver)),
        ("duplicates_lindley_nines_over", Self::Duplicates(Duplicated::LindleyNinesOver)),
        ("duplicates_paper_ratio", Self::Duplicates(Duplicated::PaperRatio)),
        ("duplicates_lindley_ratio", Self::Duplicates(Duplicated::LindleyRatio)),
        ("duplicates_cost", Self::Duplicates(Duplicated::Cost)),
        ("duplicates_paper_cost", Self::Duplicates(Duplicated::PaperCost)),
        ("duplicates_body_variation", Self::Duplicates(Duplicated::BodyVariation)),
        ("duplicates_variation", Self::Duplicates(Duplicated::Variation)),
        ("duplicates_within_three_means", Self::Duplicates(Duplicated::WithinThreeMeans)),
        ("duplicates_last_over_mean", Self::Duplicates(Duplicated::LastOverMean)),
        ("duplicates_emptiest_quarter", Self::Duplicates(Duplicated::EmptiestQuarter)),
        ("duplicates_slow_on_both", Self::Duplicates(Duplicated::SlowOnBoth)),
        ("duplicates_diverges_calmly", Self::Duplicates(Duplicated::DivergesCalmly)),
        ("duplicates_divergence_found", Self::Duplicates(Duplicated::DivergenceFound)),
        ("duplicates_divergence_lasts", Self::Duplicates(Duplicated::DivergenceLasts)),
        ("duplicates_utilisation", Self::Duplicates(Duplicated::Utilisation)),
    ];

    /// The measure in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::MeanMs => "mean latency",
            Self::P50Ms => "median latency",
            Self::P95Ms => "p95 latency",
            Self::P99Ms => "p99 latency",
            Self::P999Ms => "p99.9 latency",
            Self::TailOverMedian => "p99.9 over median",
            Self::ServedRatio => "requests served",
            Self::OptionalRatio => "with optional content",
            Self::ViolationRatio => "too late or not served",
            Self::TimeoutsPerS => "timeouts",
            Self::Dimmer => "mean dimmer",
            Self::FullAfterS => "time until all content is back",
            Self::LoadVariation => "variation of a replica's load",
            Self::QueueRatio => "queue of the fast over the slow server",
            Self::BeforeP99Ms => "p99 before the others join",
            Self::AfterP99Ms => "p99 after they joined",
            Self::AfterOverBefore => "p99 after over before",
            Self::ClosedThroughput => "closed-loop throughput",
            Self::ClosedP999Ms => "p99.9 at the closed loop's rate",
            Self::ClosedTailOverMedian => "p99.9 over median at that rate",
            Self::RedirectedRatio => "served elsewhere",
            Self::AwayViolationRatio => "too late, of those served elsewhere",
            Self::HomeViolationRatio => "too late, of those served at home",
            Self::AwayPredictionError => "predicted less measured, served elsewhere",
            Self::HomePredictionError => "predicted less measured, served at home",
            Self::FirstSiteViolationRatio => "too late at the first site",
            Self::SecondSiteViolationRatio => "too late at the second site",
            Self::ThirdSiteViolationRatio => "too late at the third site",
            Self::FirstSiteRedirectedRatio => "the first site's, served elsewhere",
            Self::ThirdSiteRedirectedRatio => "the third site's, served elsewhere",
            Self::CurveChangedS => "when curves were replaced",
            Self::CostPerDay => "cost of a day",
            Self::WithinTarget => "minutes within the target",
            Self::PlacementLatencyMs => "mean latency of a database",
            Self::PlacementOverhead => "over the oracle",
            Self::PlacementReduction => "saved of the latency by hand",
            Self::PlacementReductionMax => "saved of the latency by hand, at most",
            Self::PlacementHalved => "databases that save at least half",
            Self::PlacementTenth => "databases that save at least a tenth",
            Self::PlacementHundredth => "databases that save less than a hundredth",
            Self::PlacementMoves => "moves of a leader in a day",
            Self::PlacementBusierSide => "intervals with the leader on the busier side",
            Self::PlacementOverThirteen => "over the optimum with 13 replicas",
            Self::PlacementProven => "databases with a proven optimum",
            Self::Duplicates(of) => of.words(),
        }
    }

    /// What it is counted in.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::ServedRatio | Self::OptionalRatio | Self::ViolationRatio | Self::Dimmer => {
                Unit::Share
            }
            Self::TailOverMedian
            | Self::QueueRatio
            | Self::AfterOverBefore
            | Self::ClosedTailOverMedian => Unit::Times,
            Self::LoadVariation => Unit::Deviations,
            Self::TimeoutsPerS | Self::ClosedThroughput => Unit::PerSecond,
            Self::FullAfterS | Self::CurveChangedS => Unit::Seconds,
            Self::RedirectedRatio
            | Self::AwayViolationRatio
            | Self::HomeViolationRatio
            | Self::AwayPredictionError
            | Self::HomePredictionError
            | Self::FirstSiteViolationRatio
            | Self::SecondSiteViolationRatio
            | Self::ThirdSiteViolationRatio
            | Self::FirstSiteRedirectedRatio
            | Self::ThirdSiteRedirectedRatio
            | Self::WithinTarget
            | Self::PlacementOverhead
            | Self::PlacementReduction
            | Self::PlacementReductionMax
            | Self::PlacementHalved
            | Self::PlacementTenth
            | Self::PlacementHundredth
            | Self::PlacementBusierSide
            | Self::PlacementOverThirteen
            | Self::PlacementProven => Unit::Share,
            Self::PlacementMoves => Unit::PerDay,
            Self::CostPerDay => Unit::Dollars,
            Self::Duplicates(of) => of.unit(),
            _ => Unit::Ms,
        }
    }

    /// Whether it takes the runs along the whole axis.
    #[must_use]
    pub const fn is_along_axis(self) -> bool {
        matches!(self, Self::ClosedThroughput | Self::ClosedP999Ms | Self::ClosedTailOverMedian)
    }

    /// Whether its values are averaged as they are: those that may be 0 or have an upper bound.
    /// Of the others, latencies and ratios, the logarithms are.
    #[must_use]
    pub const fn is_additive(self) -> bool {
        matches!(
            self.unit(),
            Unit::Share | Unit::Seconds | Unit::PerDay | Unit::Nines | Unit::Windows
        ) || matches!(self, Self::TimeoutsPerS)
    }

    /// Its value in one window; `None` when it has none there.
    #[must_use]
    pub fn of_window(self, window: &WindowReport, length_s: f64) -> Option<f64> {
        match self {
            Self::P50Ms => Some(window.p50_ms),
            Self::P95Ms => Some(window.p95_ms),
            Self::P99Ms => Some(window.p99_ms),
            Self::P999Ms => Some(window.p999_ms),
            Self::TimeoutsPerS => Some(window.timeouts as f64 / length_s),
            Self::Dimmer => window.dimmer,
            _ => share([window].into_iter(), self.counted()?),
        }
    }

    /// The calls of a window that a share counts, and of how many.
    fn counted(self) -> Option<Counted> {
        match self {
            Self::ServedRatio => Some(|window| (window.served, window.all())),
            Self::OptionalRatio => Some(|window| (window.optional, window.all())),
            Self::ViolationRatio => Some(|window| (window.violations, window.all())),
            Self::RedirectedRatio => Some(|window| {
                let all = window.sites.iter();
                all.fold((0, 0), |(away, all), of| (away + of.away, all + of.requests))
            }),
            Self::AwayViolationRatio => Some(|window| {
                let all = window.sites.iter();
                all.fold((0, 0), |(late, all), of| (late + of.away_violations, all + of.away))
            }),
            Self::FirstSiteViolationRatio => Some(|window| window.of_site(0, violations)),
            Self::SecondSiteViolationRatio => Some(|window| window.of_site(1, violations)),
            Self::ThirdSiteViolationRatio => Some(|window| window.of_site(2, violations)),
            Self::FirstSiteRedirectedRatio => Some(|window| window.of_site(0, |of| of.away)),
            Self::ThirdSiteRedirectedRatio => Some(|window| window.of_site(2, |of| of.away)),
            _ => None,
        }
    }
}

/// How many calls of a window, of how many.
type Counted = fn(&WindowReport) -> (u64, u64);

const fn violations(of: &SiteWindow) -> u64 {
    of.violations
}

impl WindowReport {
    const fn all(&self) -> u64 {
        self.served + self.timeouts + self.failed
    }

    fn of_site(&self, site: usize, counted: fn(&SiteWindow) -> u64) -> (u64, u64) {
        self.sites.get(site).map_or((0, 0), |of| (counted(of), of.requests))
    }
}

impl Unit {
    /// The unit as it stands behind a number.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Ms => "ms",
            Self::Times => "times",
            Self::Deviations => "deviation / mean",
            Self::PerSecond => "/s",
            Self::Seconds => "s",
            Self::Share => "%",
            Self::Dollars => "US$",
            Self::PerDay => "/day",
            Self::Nines => "nines",
            Self::Windows => "windows",
        }
    }
}

impl Asked {
    /// The measure of a whole run.
    #[must_use]
    pub const fn of(measure: Measure) -> Self {
        Self { measure, during: None, threads: 1.0, level: 1.0 }
    }

    /// Reads `measure`, `during`, `threads`, `level`.
    pub(crate) fn read(table: &mut Table<'_>) -> Self {
        let all = Span { from: Duration::ZERO, to: Duration::MAX };
        Self {
            measure: table.key("measure").variant(&Measure::NAMED).or(Measure::P99Ms),
            during: table
                .key("during")
                .parsed("a span such as 300s..400s", all, Span::parse)
                .optional(),
            threads: table.key("threads").number().between(1.0..=1e6).or(1.0),
            level: table.key("level").probability().or(1.0),
        }
    }

    /// In words, with its unit and its time.
    #[must_use]
    pub fn words(&self) -> String {
        let (words, unit) = (self.measure.words(), self.measure.unit().words());
        let when = self.during.map_or_else(String::new, |span| format!(", {}", span.words()));
        format!("{words}, {unit}{when}")
    }

    /// Its value in one run, of which the first phase begins at `joins_at`; `None` when it has
    /// none.
    #[must_use]
    pub fn of_run(&self, run: &RunReport, joins_at: Duration) -> Option<f64> {
        match self.during {
            None => of_run(run, self.measure, joins_at),
            Some(span) => self.of_span(run, span),
        }
    }

    fn of_span(&self, run: &RunReport, span: Span) -> Option<f64> {
        let within = || Timed::of(run).filter(move |timed| timed.lies_in(span));
        if self.measure == Measure::FullAfterS {
            return full_after_s(within(), self.level, span.from.as_secs_f64());
        }
        if let Some(counted) = self.measure.counted() {
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
        let optional = Measure::OptionalRatio.of_window(window, 1.0).unwrap_or(0.0);
        let until_s = window.until_s - from_s;
        seen = Some(if optional < level { until_s } else { seen.unwrap_or(0.0) });
    }
    seen
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A measure of placed databases.
const fn of_placement(of: &PlacementReport, measure: Measure) -> Option<f64> {
    match measure {
        Measure::PlacementLatencyMs => Some(of.latency_ms),
        Measure::PlacementOverhead => Some(of.overhead_ratio),
        Measure::PlacementReduction => Some(of.reduction_ratio),
        Measure::PlacementReductionMax => Some(of.reduction_max_ratio),
        Measure::PlacementHalved => Some(of.halved_share),
        Measure::PlacementTenth => Some(of.tenth_share),
        Measure::PlacementHundredth => Some(of.hundredth_share),
        Measure::PlacementMoves => Some(of.moves_per_day),
        Measure::PlacementBusierSide => of.busier_side_share,
        Measure::PlacementOverThirteen => of.over_thirteen_ratio,
        Measure::PlacementProven => of.proven_share,
        _ => None,
    }
}

/// A measure of one whole run.
fn of_run(run: &RunReport, measure: Measure, joins_at: Duration) -> Option<f64> {
    let before = || window_p99_ms(run, Duration::ZERO, joins_at);
    let after = || window_p99_ms(run, joins_at, Duration::MAX);
    match measure {
        Measure::MeanMs => Some(run.mean_ms),
        Measure::P50Ms => Some(run.p50_ms),
        Measure::P95Ms => Some(run.p95_ms),
        Measure::P99Ms => Some(run.p99_ms),
        Measure::P999Ms => Some(run.p999_ms),
        Measure::TailOverMedian => Some(run.p999_ms / run.p50_ms),
        Measure::ServedRatio => Some(run.served_ratio),
        Measure::OptionalRatio => Some(run.optional_ratio),
        Measure::ViolationRatio => Some(run.violations? as f64 / run.requests as f64),
        Measure::TimeoutsPerS => Some(run.timeouts as f64 / run.virtual_s),
        Measure::LoadVariation => run.load.as_ref().map(|load| load.variation),
        Measure::QueueRatio => {
            let means = &run.load.as_ref()?.means;
            Some(means.first()? / means.get(1)?)
        }
        Measure::BeforeP99Ms => before(),
        Measure::AfterP99Ms => after(),
        Measure::AfterOverBefore => Some(after()? / before()?),
        Measure::Dimmer => mean(run.windows.iter().map(|window| window.dimmer)),
        Measure::RedirectedRatio => Some(run.redirect.as_ref()?.redirected_ratio),
        Measure::AwayViolationRatio => run.redirect.as_ref()?.away_violation_ratio,
        Measure::HomeViolationRatio => run.redirect.as_ref()?.home_violation_ratio,
        Measure::AwayPredictionError => {
            let of = run.redirect.as_ref()?;
            Some(of.away_predicted_ratio? - of.away_violation_ratio?)
        }
        Measure::HomePredictionError => {
            let of = run.redirect.as_ref()?;
            Some(of.home_predicted_ratio? - of.home_violation_ratio?)
        }
        Measure::FirstSiteViolationRatio => of_site(run, 0, |of, _| of.violations),
        Measure::SecondSiteViolationRatio => of_site(run, 1, |of, _| of.violations),
        Measure::ThirdSiteViolationRatio => of_site(run, 2, |of, _| of.violations),
        Measure::FirstSiteRedirectedRatio => of_site(run, 0, away),
        Measure::ThirdSiteRedirectedRatio => of_site(run, 2, away),
        Measure::CurveChangedS => run.redirect.as_ref()?.curve_changes.first().map(|at| at.0),
        Measure::CostPerDay => run.bill.as_ref().map(|bill| bill.cost_per_day),
        Measure::WithinTarget => run.bill.as_ref().map(|bill| bill.steps_within_target),
        Measure::Duplicates(measure) => measure.of(run.duplicates.as_ref()?),
        _ => of_placement(run.placement.as_ref()?, measure),
    }
}

/// What is counted of one site's users, over all their requests.
fn of_site(run: &RunReport, site: usize, counted: fn(&SiteReport, usize) -> u64) -> Option<f64> {
    let of = run.redirect.as_ref()?.sites.get(site)?;
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
    match measure {
        Measure::ClosedThroughput => Some(low.0 + (high.0 - low.0) * share),
        Measure::ClosedP999Ms => Some(p999_ms),
        Measure::ClosedTailOverMedian => Some(p999_ms / p50_ms),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::fixtures::{any_run, window};

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
        let told = of(Measure::ClosedThroughput);
        assert!((told / truth - 1.0).abs() < 0.02, "{told} for {truth}");
        assert!((of(Measure::ClosedP999Ms) / (6.9 * 1e3 / (service - truth)) - 1.0).abs() < 0.05);
        assert!((of(Measure::ClosedTailOverMedian) - 10.0).abs() < 1e-9);
        assert_eq!(of_closed_loop(&curve, Measure::ClosedThroughput, 1e4), None);
        assert_eq!(of_closed_loop(&curve, Measure::ClosedThroughput, 1e-4), None);
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
        assert_eq!(of(Measure::BeforeP99Ms), Some(20.0));
        assert_eq!(of(Measure::AfterP99Ms), Some(60.0));
        assert_eq!(of(Measure::AfterOverBefore), Some(3.0));
        let run = any_run();
        assert_eq!(Asked::of(Measure::AfterOverBefore).of_run(&run, Duration::ZERO), None);
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
        assert_eq!(of(during(Measure::OptionalRatio, "0.5s..1.5s")), Some(60.0 / 400.0));
        assert_eq!(of(during(Measure::ServedRatio, "0.5s..1.5s")), Some(360.0 / 400.0));
        assert_eq!(of(during(Measure::ViolationRatio, "0.2s..1.1s")), Some(50.0 / 100.0));
        assert_eq!(of(during(Measure::TimeoutsPerS, "0.5s..1.5s")), Some(40.0));
        assert_eq!(of(during(Measure::ServedRatio, "1.1s..1.4s")), None, "no whole window");
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
        let of = |span| during(Measure::FullAfterS, span).of_run(&run, Duration::ZERO);
        assert_eq!(of("0s..2.5s"), Some(1.5));
        assert_eq!(of("0.5s..2.5s"), Some(1.0));
        assert_eq!(of("1.5s..2.5s"), Some(0.0));
        assert_eq!(of("0s..1.5s"), Some(1.5), "still without at the end");
        assert_eq!(of("7s..8s"), None);
    }

    #[test]
    fn a_span_has_two_ends_in_order() {
        for text in ["3s", "3s..", "4s..3s", "3..4"] {
            let told = format!("{:?}", Span::parse(text).unwrap_err());
            assert!(told.contains("300s..400s"), "{told}");
        }
    }
}
