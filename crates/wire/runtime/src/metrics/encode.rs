//! Text formats: Prometheus 0.0.4 and OpenMetrics 1.0.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use super::{Exemplar, Family, Kind, Measured, Sample, Scrape};

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text exposition format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' protobuf format.
    Protobuf,
}

impl Format {
    /// The best of the formats that a scraper accepts, by its `Accept` header: others than
    /// Prometheus' text only for who asks for them.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let weight = |media: &str, parameters: &[&str]| {
            let ranges = accept.split(',').map(|range| range.split(';').map(str::trim));
            let matching = ranges.filter_map(|mut parts| {
                let (kind, rest) = (parts.next()?, parts.collect::<Vec<_>>());
                let weight = rest.iter().find_map(|part| part.strip_prefix("q="));
                let is_meant = kind == media && parameters.iter().all(|it| rest.contains(it));
                is_meant.then(|| weight.map_or(1.0, |q| q.parse().unwrap_or(0.0)))
            });
            matching.fold(0.0, f32::max)
        };
        let family = ["proto=io.prometheus.client.MetricFamily", "encoding=delimited"];
        let protobuf = weight("application/vnd.google.protobuf", &family);
        let open_metrics = weight("application/openmetrics-text", &[]);
        let text = weight("text/plain", &[]);
        if protobuf > 0.0 && protobuf >= open_metrics.max(text) {
            Self::Protobuf
        } else if open_metrics > 0.0 && open_metrics >= text {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// The `Content-Type` of the text.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }
}

type Labels<'a> = &'a [(&'static str, String)];

const INFALLIBLE: &str = "writing to a string cannot fail";

pub(super) fn encode(scrape: &Scrape, format: Format) -> String {
    let mut text = Text { written: String::new(), format };
    scrape.families.iter().for_each(|family| text.family(family));
    if format == Format::OpenMetrics {
        text.written.push_str("# EOF\n");
    }
    text.written
}

struct Text {
    written: String,
    format: Format,
}

impl Text {
    fn family(&mut self, Family { desc, samples }: &Family) {
        let is_open = self.format == Format::OpenMetrics;
        let name = if is_open { desc.open_name() } else { desc.name };
        let mut help = desc.help.replace('\\', "\\\\").replace('\n', "\\n");
        if is_open {
            help = help.replace('"', "\\\"");
        }
        let kind = match desc.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        };
        writeln!(self.written, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(INFALLIBLE);
        for Sample { labels, measured } in samples {
            match measured {
                Measured::Number(value) => self.sample(desc.name, labels, *value),
                Measured::Summary(sum, count) => self.total(desc.name, labels, (*sum, *count)),
                Measured::Histogram { within, sum, count, exemplars, .. } => {
                    for (bucket, (at, within)) in within.iter().enumerate() {
                        let le = self.bound(at.as_secs_f64());
                        let told = exemplars.get(&bucket);
                        self.bucket(desc.name, labels, (&le, *within), told);
                    }
                    let told = exemplars.get(&within.len());
                    self.bucket(desc.name, labels, ("+Inf", *count), told);
                    self.total(desc.name, labels, (*sum, *count));
                }
            }
        }
    }

    /// OpenMetrics wants a bound to look like a float.
    fn bound(&self, le: f64) -> String {
        let text = le.to_string();
        match self.format {
            Format::OpenMetrics if !text.contains('.') => text + ".0",
            _ => text,
        }
    }

    fn total(&mut self, name: &str, labels: Labels<'_>, (sum, count): (Duration, u64)) {
        self.series((name, "_sum"), labels, None, sum.as_secs_f64());
        self.end(None);
        self.series((name, "_count"), labels, None, count as f64);
        self.end(None);
    }

    fn bucket(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        (le, count): (&str, u64),
        told: Option<&Exemplar>,
    ) {
        self.series((name, "_bucket"), labels, Some(le), count as f64);
        self.end(told);
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.series((name, ""), labels, None, value);
        self.end(None);
    }

    fn end(&mut self, told: Option<&Exemplar>) {
        if let Some(Exemplar { trace_id, value, at }) = told {
            let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let (value, at) = (value.as_secs_f64(), at.as_secs_f64());
            write!(self.written, " # {{trace_id=\"{trace_id:032x}\"}} {value} {at:.3}")
                .expect(INFALLIBLE);
        }
        self.written.push('\n');
    }

    fn series(
        &mut self,
        (name, suffix): (&str, &str),
        labels: Labels<'_>,
        le: Option<&str>,
        value: f64,
    ) {
        self.written.push_str(name);
        self.written.push_str(suffix);
        let labels = labels.iter().map(|(label, value)| (*label, value.as_str()));
        let mut open = '{';
        for (label, value) in labels.chain(le.map(|le| ("le", le))) {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.written, "{open}{label}=\"{value}\"").expect(INFALLIBLE);
            open = ',';
        }
        if open == ',' {
            self.written.push('}');
        }
        write!(self.written, " {}", number(value)).expect(INFALLIBLE);
    }
}

/// Rust writes infinity as `inf`, the formats as `+Inf`.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    value.to_string()
}
