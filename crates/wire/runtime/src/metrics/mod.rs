//! Metrics: what each component counts, gathered when somebody asks.
//!
//! A component describes its families in tables of [`Metric`]s, functions from a snapshot of its
//! state to a number, and hands them over as a [`Collect`]. The [`Registry`] of the process asks
//! all of them at every scrape and writes the answer ([`Format`]). Nothing is counted twice:
//! values stay where they are until a scrape, so a metric costs nothing on the request path.
//! An unknown value has no sample; zero means that it was measured.
//!
//! | word | meaning |
//! |---|---|
//! | [`Metric`] | a family: name, kind, help, and how to read it from a `T` |
//! | [`Collect`] | a component's tables and the things they are read from |
//! | [`Scrape`] | the samples of one moment, by family |
//! | [`Registry`] | all collectors of the process |

mod encode;
mod protobuf;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use evenkeel_core::distribution::Recorder;

pub use encode::Format;

/// The kind of a family, in the words of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from the start of the process. Its name ends with `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by upper bounds, in seconds.
    Histogram,
    /// A sum and a count.
    Summary,
}

/// What a family is called and means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desc {
    /// With the unit at its end, before `_total`.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// One sentence for people.
    pub help: &'static str,
}

impl Desc {
    /// The name of the family in OpenMetrics.
    fn open_name(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            _ => self.name,
        }
    }
}

/// A number of a sample, or none where it is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value(Option<f64>);

macro_rules! values {
    ($($from:ty: $number:expr),+ $(,)?) => {
        $(impl From<$from> for Value {
            fn from(from: $from) -> Self {
                let number: fn($from) -> f64 = $number;
                Self(Some(number(from)))
            }
        })+
    };
}

values! {
    f64: |it| it,
    u64: |it| it as f64,
    u32: f64::from,
    usize: |it| it as f64,
    bool: |it| f64::from(u8::from(it)),
    Duration: |it| it.as_secs_f64(),
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(from: Option<T>) -> Self {
        from.map_or(Self(None), Into::into)
    }
}

/// Values by one more label, each with that label's value.
pub type Split<'a> = Vec<(&'a str, Value)>;

/// A family of one series or several for every thing of one kind.
pub struct Metric<T: 'static> {
    desc: Desc,
    read: Read<T>,
}

enum Read<T> {
    One(fn(&T) -> Value),
    By(&'static str, fn(&T) -> Split<'_>),
    Histogram(fn(&T) -> Option<&Recorder>),
    Buckets(fn(&T) -> Buckets<'_>),
    Summary(fn(&T) -> (Duration, u64)),
}

/// A number that goes up and down.
pub const fn gauge<T>(name: &'static str, help: &'static str, value: fn(&T) -> Value) -> Metric<T> {
    Metric { desc: Desc { name, kind: Kind::Gauge, help }, read: Read::One(value) }
}

/// A number that only grows.
pub const fn counter<T>(
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> Value,
) -> Metric<T> {
    Metric { desc: Desc { name, kind: Kind::Counter, help }, read: Read::One(value) }
}

/// Numbers that go up and down, by one more label.
pub const fn gauge_by<T>(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    values: fn(&T) -> Split<'_>,
) -> Metric<T> {
    Metric { desc: Desc { name, kind: Kind::Gauge, help }, read: Read::By(label, values) }
}

/// Numbers that only grow, by one more label.
pub const fn counter_by<T>(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    values: fn(&T) -> Split<'_>,
) -> Metric<T> {
    Metric { desc: Desc { name, kind: Kind::Counter, help }, read: Read::By(label, values) }
}

/// A distribution of durations; `None` where nothing was recorded yet.
pub const fn histogram<T>(
    name: &'static str,
    help: &'static str,
    of: fn(&T) -> Option<&Recorder>,
) -> Metric<T> {
    Metric { desc: Desc { name, kind: Kind::Histogram, help }, read: Read::Histogram(of) }
}

/// Counts of durations by bucket.
#[derive(Clone, Copy, Debug)]
pub struct Buckets<'a> {
    /// Upper ends in microseconds, in order.
    pub bounds_us: &'a [u64],
    /// One more than those: the last has no upper end.
    pub counts: &'a [u64],
    /// The sum of all durations.
    pub sum: Duration,
}

/// A distribution of durations that was counted in buckets.
pub const fn histogram_of<T>(
    name: &'static str,
    help: &'static str,
    of: fn(&T) -> Buckets<'_>,
) -> Metric<T> {
    Metric { desc: Desc { name, kind: Kind::Histogram, help }, read: Read::Buckets(of) }
}

/// A sum of durations and their count.
pub const fn summary<T>(
    name: &'static str,
    help: &'static str,
    of: fn(&T) -> (Duration, u64),
) -> Metric<T> {
    Metric { desc: Desc { name, kind: Kind::Summary, help }, read: Read::Summary(of) }
}

/// Counts by reason, as [`counter_by`] wants them.
#[must_use]
pub fn by_reason<'a>(counts: &BTreeMap<&'a str, u64>) -> Split<'a> {
    counts.iter().map(|(reason, count)| (*reason, (*count).into())).collect()
}

/// A label and its value.
pub type Label<'a> = (&'static str, &'a str);

/// Somebody who has metrics.
pub trait Collect: Send + Sync {
    /// Adds all of them as they are now. A table without things still declares its families.
    fn collect(&self, scrape: &mut Scrape);
}

impl<F: Fn(&mut Scrape) + Send + Sync> Collect for F {
    fn collect(&self, scrape: &mut Scrape) {
        self(scrape);
    }
}

/// The samples of one moment, by family.
#[derive(Debug, Default)]
pub struct Scrape {
    families: Vec<Family>,
    by_name: BTreeMap<&'static str, usize>,
    clash: Option<Clash>,
    wants_exemplars: bool,
    wants_native: bool,
}

#[derive(Debug)]
struct Family {
    desc: Desc,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    measured: Measured,
}

#[derive(Debug)]
enum Measured {
    Number(f64),
    Summary(Duration, u64),
    Histogram {
        within: Vec<(Duration, u64)>,
        sum: Duration,
        count: u64,
        exemplars: Exemplars,
        /// The same in finer buckets, for who reads them and where they are known.
        native: Option<protobuf::Native>,
    },
}

/// By bucket.
type Exemplars = BTreeMap<usize, Exemplar>;

/// One of the durations of a histogram, and the trace that tells more of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exemplar {
    /// The trace.
    pub trace_id: u128,
    /// The duration.
    pub value: Duration,
    /// When it was.
    pub at: SystemTime,
}

/// Upper ends of the histogram's buckets: six to the decade, so that a quantile read from it is
/// within a factor of 1.5 or so of the truth wherever the objective lies.
const BUCKETS_US: [u64; 30] = [
    500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000, 50_000,
    75_000, 100_000, 150_000, 200_000, 300_000, 500_000, 750_000, 1_000_000, 1_500_000, 2_000_000,
    3_000_000, 5_000_000, 7_500_000, 10_000_000, 15_000_000, 20_000_000, 30_000_000,
];

impl Scrape {
    /// Every family of a table, each with the samples of every thing.
    pub fn table<'a, T: 'static>(
        &mut self,
        table: &[Metric<T>],
        things: impl IntoIterator<Item = (Vec<Label<'a>>, &'a T)>,
    ) {
        let at: Vec<usize> = table.iter().map(|metric| self.family(&metric.desc)).collect();
        let wants_native = self.wants_native;
        for (labels, thing) in things {
            for (metric, at) in table.iter().zip(&at) {
                let samples = &mut self.families[*at].samples;
                metric.read.samples(thing, (&labels, wants_native), |it| samples.push(it));
            }
        }
    }

    /// The samples of the one thing there is.
    pub fn single<T: 'static>(&mut self, table: &[Metric<T>], thing: &T) {
        self.table(table, [(Vec::new(), thing)]);
    }

    /// Whether whoever scrapes reads exemplars.
    #[must_use]
    pub const fn wants_exemplars(&self) -> bool {
        self.wants_exemplars
    }

    /// Adds an exemplar to the series of a histogram that have these labels, among others. The
    /// latest of a bucket stays.
    pub fn exemplify(&mut self, name: &'static str, labels: &[Label<'_>], exemplar: Exemplar) {
        let Some(family) = self.by_name.get(name).and_then(|at| self.families.get_mut(*at)) else {
            return;
        };
        let has = |sample: &Sample, (name, value): &Label<'_>| {
            sample.labels.iter().any(|(label, its)| label == name && its == value)
        };
        for sample in family.samples.iter_mut() {
            let is_meant = labels.iter().all(|label| has(sample, label));
            if let (true, Measured::Histogram { within, exemplars, .. }) =
                (is_meant, &mut sample.measured)
            {
                let bucket = within.partition_point(|(at, _)| *at < exemplar.value);
                let latest = exemplars.entry(bucket).or_insert(exemplar);
                if latest.at < exemplar.at {
                    *latest = exemplar;
                }
            }
        }
    }

    /// All of it as text; a format that is none is written as Prometheus' own.
    #[must_use]
    pub fn text(&self, format: Format) -> String {
        encode::encode(self, format)
    }

    /// Where the samples of a family go. Collectors may share one that they describe alike.
    ///
    /// OpenMetrics names a counter without `_total`, so a gauge of that name would be the same
    /// family there.
    fn family(&mut self, desc: &Desc) -> usize {
        let at = *self.by_name.entry(desc.open_name()).or_insert(self.families.len());
        match self.families.get(at) {
            None => self.families.push(Family { desc: *desc, samples: Vec::new() }),
            Some(family) if family.desc != *desc => {
                self.clash.get_or_insert(Clash { first: family.desc, second: *desc });
            }
            Some(_) => {}
        }
        at
    }
}

impl<T> Read<T> {
    fn samples(
        &self,
        thing: &T,
        (labels, wants_native): (&[Label<'_>], bool),
        mut add: impl FnMut(Sample),
    ) {
        let mut push = |more: Option<Label<'_>>, measured| {
            let labels = labels.iter().chain(&more);
            let labels = labels.map(|(name, value)| (*name, (*value).to_owned())).collect();
            add(Sample { labels, measured });
        };
        match self {
            Self::One(value) => {
                if let Value(Some(value)) = value(thing) {
                    push(None, Measured::Number(value));
                }
            }
            Self::By(label, values) => {
                for (value, Value(number)) in values(thing) {
                    if let Some(number) = number {
                        push(Some((label, value)), Measured::Number(number));
                    }
                }
            }
            Self::Histogram(of) => push(None, Measured::of(of(thing), wants_native)),
            Self::Buckets(of) => push(None, Measured::counted(of(thing))),
            Self::Summary(of) => {
                let (sum, count) = of(thing);
                push(None, Measured::Summary(sum, count));
            }
        }
    }
}

impl Measured {
    fn of(recorder: Option<&Recorder>, wants_native: bool) -> Self {
        let nothing = Recorder::default();
        let recorder = recorder.unwrap_or(&nothing);
        let within = BUCKETS_US.map(|us| {
            let at = Duration::from_micros(us);
            (at, recorder.count_within(at))
        });
        Self::Histogram {
            within: within.into(),
            sum: recorder.sum(),
            count: recorder.count(),
            exemplars: Exemplars::new(),
            native: wants_native.then(|| protobuf::native(recorder)),
        }
    }

    fn counted(Buckets { bounds_us, counts, sum }: Buckets<'_>) -> Self {
        let mut count = 0;
        let within = bounds_us.iter().zip(counts).map(|(us, one)| {
            count += one;
            (Duration::from_micros(*us), count)
        });
        let within = within.collect();
        let count = counts.iter().sum();
        Self::Histogram { within, sum, count, exemplars: Exemplars::new(), native: None }
    }
}

/// All collectors of a process.
#[derive(Default)]
pub struct Registry {
    collectors: Vec<Arc<dyn Collect>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry of {} collectors", self.collectors.len())
    }
}

impl Registry {
    /// Adds a collector, whose families come after those of the others.
    ///
    /// # Errors
    /// When it describes a family otherwise than another collector does. It is not added then.
    pub fn register(&mut self, collector: Arc<dyn Collect>) -> Result<(), Clash> {
        self.collectors.push(collector);
        match self.scrape(Format::Text).clash {
            None => Ok(()),
            Some(clash) => {
                self.collectors.pop();
                Err(clash)
            }
        }
    }

    /// Everything as it is now, as [`Scrape::text`].
    #[must_use]
    pub fn text(&self, format: Format) -> String {
        self.scrape(format).text(format)
    }

    /// The same in the bytes of this format.
    #[must_use]
    pub fn encode(&self, format: Format) -> Vec<u8> {
        let scrape = self.scrape(format);
        match format {
            Format::Protobuf => protobuf::encode(&scrape),
            Format::Text | Format::OpenMetrics => scrape.text(format).into_bytes(),
        }
    }

    fn scrape(&self, format: Format) -> Scrape {
        let (wants_exemplars, wants_native) = (format != Format::Text, format == Format::Protobuf);
        let mut scrape = Scrape { wants_exemplars, wants_native, ..Scrape::default() };
        self.collectors.iter().for_each(|collector| collector.collect(&mut scrape));
        scrape
    }
}

/// Two collectors describe one family in two ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// As the first one does.
    pub first: Desc,
    /// As the second one does.
    pub second: Desc,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second } = self;
        write!(
            f,
            "a metric is described twice: {} as a {:?} ({}) and {} as a {:?} ({})",
            first.name, first.kind, first.help, second.name, second.kind, second.help
        )
    }
}

impl std::error::Error for Clash {}

#[cfg(test)]
mod tests;
