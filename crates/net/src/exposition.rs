//! Metrics as text for Prometheus (text exposition format 0.0.4).
//!
//! The format is a dozen lines to write, so it is written here. What is not known has no sample
//! rather than a zero.

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_core::distribution::Recorder;

/// Upper ends of the histogram's buckets: six to the decade, so that a quantile read from it is
/// within a factor of 1.5 or so of the truth wherever the objective lies.
const BUCKETS_MS: [f64; 30] = [
    0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0,
    200.0, 300.0, 500.0, 750.0, 1e3, 1.5e3, 2e3, 3e3, 5e3, 7.5e3, 1e4, 1.5e4, 2e4, 3e4,
];

/// A family of one or several series for every thing of one kind.
pub(crate) struct Metric<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) help: &'static str,
    pub(crate) series: &'static [Series<T>],
}

/// One of the series of a [`Metric`].
pub(crate) struct Series<T> {
    pub(crate) suffix: &'static str,
    /// A label beside those of the thing.
    pub(crate) label: Option<(&'static str, &'static str)>,
    pub(crate) value: fn(&T) -> Option<f64>,
}

/// A family of one number for every thing of one kind.
pub(crate) struct Number<T> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<f64>,
}

/// A number that goes up and down.
pub(crate) const fn gauge<T>(
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<f64>,
) -> Number<T> {
    Number { name, kind: "gauge", help, value }
}

/// A number that only grows.
pub(crate) const fn counter<T>(
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<f64>,
) -> Number<T> {
    Number { name, kind: "counter", help, value }
}

const INFALLIBLE: &str = "writing to a string cannot fail";

/// A text that grows by families and their samples.
pub(crate) struct Exposition<'a>(pub(crate) &'a mut String);

impl Exposition<'_> {
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(INFALLIBLE);
    }

    /// Every family of a table, with a sample for each thing of which the number is known.
    pub(crate) fn table<const LABELS: usize, T>(
        &mut self,
        table: &[Number<T>],
        things: &[([(&str, &str); LABELS], &T)],
    ) {
        for number in table {
            self.family(number.name, number.kind, number.help);
            for (labels, thing) in things {
                if let Some(value) = (number.value)(thing) {
                    self.sample(number.name, labels, value);
                }
            }
        }
    }

    pub(crate) fn series<T>(&mut self, metric: &Metric<T>, of: &T, labels: &[(&str, &str)]) {
        for series in metric.series {
            let Some(value) = (series.value)(of) else { continue };
            let mut labels = labels.to_vec();
            labels.extend(series.label);
            self.sample(&format!("{}{}", metric.name, series.suffix), &labels, value);
        }
    }

    pub(crate) fn histogram(&mut self, name: &str, labels: [(&str, &str); 2], of: &Recorder) {
        let [first, second] = labels;
        let (buckets, all) = (format!("{name}_bucket"), of.count() as f64);
        for at_ms in BUCKETS_MS {
            let within = of.count_within(Duration::from_micros((at_ms * 1e3) as u64));
            let at = (at_ms / 1e3).to_string();
            self.sample(&buckets, &[first, second, ("le", &at)], within as f64);
        }
        self.sample(&buckets, &[first, second, ("le", "+Inf")], all);
        self.sample(&format!("{name}_sum"), &labels, of.sum().as_secs_f64());
        self.sample(&format!("{name}_count"), &labels, all);
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.0, "{open}{label}=\"{value}\"").expect(INFALLIBLE);
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{close} {}", text(value)).expect(INFALLIBLE);
    }
}

/// Rust writes infinity as `inf`, the format as `+Inf`.
fn text(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    value.to_string()
}
