//! What was measured, as a table for people and as one JSON document.

use std::fmt::Write;

use super::proxies::{Clients, Suite};
use super::{Options, Recorded};
use crate::bench::{list, load_average, quoted, statistics};

/// One proxy under load once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    pub(super) requests: u64,
    pub(super) requests_per_second: f64,
    pub(super) cpu_us_per_request: f64,
}

/// All rounds of one proxy.
struct Series {
    proxy: &'static str,
    version: String,
    note: Option<String>,
    rounds: Vec<Measurement>,
}

/// A whole benchmark.
pub(super) struct Report {
    suite: &'static Suite,
    options: Options,
    load_average_before: String,
    series: Vec<Series>,
    /// What was recorded.
    files: Option<Recorded>,
}

impl Report {
    pub(super) fn new(suite: &'static Suite, options: Options) -> Self {
        Self {
            suite,
            options,
            load_average_before: load_average(),
            series: Vec::new(),
            files: None,
        }
    }

    /// Introduces a proxy; `note` is what a reader must know to judge its figures.
    pub(super) fn describe(&mut self, proxy: &'static str, version: String, note: Option<String>) {
        self.series.push(Series { proxy, version, note, rounds: Vec::new() });
    }

    /// Adds the next round of a proxy.
    ///
    /// # Panics
    /// When the proxy was not described.
    pub(super) fn add(&mut self, proxy: &str, measurement: Measurement) {
        let series = self.series.iter_mut().find(|series| series.proxy == proxy);
        series.expect("every proxy is described first").rounds.push(measurement);
    }

    /// What was recorded.
    pub(super) fn note_files(&mut self, files: Recorded) {
        self.files = Some(files);
    }

    /// The table with its reading aids.
    pub(super) fn table(&self) -> String {
        let Options { rounds, seconds, connections, streams, bytes, .. } = self.options;
        let streams = match self.suite.clients {
            Clients::Streams => format!(" x {streams} streams"),
            _ => String::new(),
        };
        let load_average = &self.load_average_before;
        let mut text = format!(
            "CPU {}: {rounds} rounds x {seconds} s, {connections} connections{streams}, {bytes} B \
             bodies, one worker each, load average {load_average}\n\n",
            self.suite.what
        );
        let _ = writeln!(
            text,
            "{:<10} {:>26} {:>28} {:>10}",
            "proxy",
            "CPU us/request (min-max)",
            format!("ratio to {} (95 %)", self.suite.reference),
            "requests/s"
        );
        for series in &self.series {
            let _ = writeln!(text, "{}", self.row(series));
        }
        text.push('\n');
        for series in &self.series {
            let note = series.note.as_ref().map_or(String::new(), |note| format!("; NOTE: {note}"));
            let _ = writeln!(text, "{}: {}{note}", series.proxy, series.version);
        }
        if let Some(Recorded { bytes_per_copy, lost, windows, dropped }) = self.files {
            let _ = writeln!(
                text,
                "files have {bytes_per_copy:.2} bytes per copy; {lost} copies are missing, \
                 {dropped} of {windows} windows lack some"
            );
        }
        text.push_str(
            "ratio: median over rounds of the ratio within a round; an interval that holds 1.00 is \
             a tie\n",
        );
        text
    }

    fn row(&self, series: &Series) -> String {
        let cost = statistics::spread(&series.cpu());
        let ratio = statistics::interval(&self.ratios(series), 3);
        let rate = statistics::median(&series.rates());
        format!("{:<10} {cost:>26} {ratio:>28} {rate:>10.0}", series.proxy)
    }

    /// One JSON document; every key carries its unit.
    pub(super) fn json(&self) -> String {
        let proxies: Vec<String> = self.series.iter().map(|one| self.json_of(one)).collect();
        format!(
            "{{\"benchmark\":\"{}\",\"rounds\":{},\"seconds\":{},\"connections\":{},\
             \"body_bytes\":{},\"file_bytes_per_copy\":{},\"load_average_before\":{},\
             \"proxies\":[{}]}}",
            self.suite.name,
            self.options.rounds,
            self.options.seconds,
            self.options.connections,
            self.options.bytes,
            self.files.map_or("null".to_owned(), |it| format!("{:.4}", it.bytes_per_copy)),
            quoted(&self.load_average_before),
            proxies.join(",")
        )
    }

    fn json_of(&self, series: &Series) -> String {
        let cpu = series.cpu();
        let (min, max) = statistics::range(&cpu);
        let ratios = self.ratios(series);
        let (low, high) = self.interval(series);
        let requests: u64 = series.rounds.iter().map(|round| round.requests).sum();
        let reference = self.suite.reference;
        let note = series.note.as_deref().map_or("null".to_owned(), quoted);
        format!(
            "{{\"proxy\":{},\"version\":{},\"note\":{note},\"requests\":{requests},\
             \"requests_per_s_median\":{:.0},\"cpu_us_per_request_median\":{:.4},\
             \"cpu_us_per_request_min\":{min:.4},\"cpu_us_per_request_max\":{max:.4},\
             \"ratio_to_{reference}_median\":{:.4},\"ratio_to_{reference}_95_low\":{low:.4},\
             \"ratio_to_{reference}_95_high\":{high:.4},\"cpu_us_per_request\":{}}}",
            quoted(series.proxy),
            quoted(&series.version),
            statistics::median(&series.rates()),
            statistics::median(&cpu),
            statistics::median(&ratios),
            list(&cpu)
        )
    }

    /// Per round: this proxy's CPU per request over the reference's.
    fn ratios(&self, series: &Series) -> Vec<f64> {
        let reference = self.series.iter().find(|series| series.proxy == self.suite.reference);
        let reference = reference.expect("options without the reference are refused").cpu();
        series.cpu().iter().zip(reference).map(|(cost, reference)| cost / reference).collect()
    }

    fn interval(&self, series: &Series) -> (f64, f64) {
        let interval = statistics::median_interval(&self.ratios(series));
        interval.expect("options with too few rounds are refused")
    }
}

impl Series {
    fn cpu(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.cpu_us_per_request).collect()
    }

    fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.requests_per_second).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::proxies::HTTP;
    use super::*;

    const REFERENCE: &str = HTTP.reference;

    fn report() -> Report {
        let words = ["--rounds", "6", "--proxies", "haproxy,nginx"];
        let options = Options::parse(&HTTP, &words).unwrap();
        let mut report = Report::new(&HTTP, options);
        report.describe(REFERENCE, "HAProxy \"x\"".to_owned(), None);
        report.describe("nginx", "nginx/1".to_owned(), Some("less work".to_owned()));
        for round in 0..6 {
            // The machine slows down round by round; within each, nginx costs 1.5 times as much.
            let cpu_us_per_request = 10.0 + f64::from(round);
            let one = Measurement { requests: 7, requests_per_second: 3.5, cpu_us_per_request };
            report.add(REFERENCE, one);
            let cpu_us_per_request = cpu_us_per_request * 1.5;
            report.add("nginx", Measurement { cpu_us_per_request, ..one });
        }
        report
    }

    #[test]
    fn the_ratio_is_taken_within_each_round() {
        let table = report().table();
        let row = table.lines().find(|line| line.starts_with("nginx ")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["nginx", "18.75", "(15.00-22.50)", "1.500", "(1.500-1.500)", "4"]);
        assert!(table.contains("nginx: nginx/1; NOTE: less work"), "{table}");
    }

    #[test]
    fn json_carries_units_and_escapes() {
        let json = report().json();
        for part in [
            "\"connections\":64,\"body_bytes\":150,",
            "\"version\":\"HAProxy \\\"x\\\"\"",
            "\"proxy\":\"nginx\",\"version\":\"nginx/1\",\"note\":\"less work\",\"requests\":42,",
            "\"cpu_us_per_request_median\":18.7500,",
            "\"ratio_to_haproxy_median\":1.5000,\"ratio_to_haproxy_95_low\":1.5000,",
        ] {
            assert!(json.contains(part), "{part} not in {json}");
        }
    }
}
