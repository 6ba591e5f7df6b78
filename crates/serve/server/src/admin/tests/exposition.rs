//! The exposition format of metrics, read strictly.

use std::collections::{BTreeMap, BTreeSet};

pub(super) type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(super) struct Exposed {
    kinds: BTreeMap<String, String>,
    samples: Vec<(String, Labels, f64)>,
}

impl Exposed {
    /// Reads a text by the rules of the format 0.0.4, and of what Prometheus asks of names.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut exposed = Self::default();
        let (mut family, mut helped) = (String::new(), BTreeSet::new());
        let body = text.strip_suffix('\n').ok_or("the last line has no end")?;
        for line in body.split('\n') {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').ok_or("HELP without a text")?;
                check_escapes(help, "\\n")?;
                family = name.to_owned();
                if !helped.insert(family.clone()) {
                    return Err(format!("second HELP of {name}"));
                }
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or("TYPE without a kind")?;
                if name != family || !["counter", "gauge", "histogram", "summary"].contains(&kind) {
                    return Err(format!("unexpected {line}"));
                }
                if exposed.kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                    return Err(format!("second TYPE of {name}"));
                }
                if (kind == "counter") != name.ends_with("_total") {
                    return Err(format!("{name} is a {kind}"));
                }
            } else {
                let sample = read_sample(line)?;
                exposed.check_family(&family, &sample.0)?;
                exposed.samples.push(sample);
            }
        }
        exposed.check_unique()?;
        exposed.check_histograms()?;
        Ok(exposed)
    }

    fn check_family(&self, family: &str, name: &str) -> Result<(), String> {
        let kind = self.kinds.get(family).ok_or(format!("{name} before its TYPE"))?;
        let suffixes: &[&str] = match kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["_sum", "_count"],
            _ => &[""],
        };
        let belongs = suffixes.iter().any(|suffix| name == format!("{family}{suffix}"));
        belongs.then_some(()).ok_or(format!("{name} among the samples of {family}"))
    }

    fn check_unique(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        let mut series = self.samples.iter().map(|(name, labels, _)| (name, labels));
        let twice = series.find(|series| !seen.insert(*series));
        twice.map_or(Ok(()), |series| Err(format!("twice: {series:?}")))
    }

    fn check_histograms(&self) -> Result<(), String> {
        let of_kind =
            |(name, kind): (&String, &String)| (kind == "histogram").then(|| name.clone());
        for name in self.kinds.iter().filter_map(of_kind) {
            for (of, labels, count) in &self.samples {
                if *of != format!("{name}_count") {
                    continue;
                }
                let buckets = self.buckets(&name, labels);
                let is_sorted = buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
                if !is_sorted || buckets.last() != Some(&(f64::INFINITY, *count)) {
                    return Err(format!("buckets of {name}: {buckets:?}, count {count}"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn buckets(&self, name: &str, labels: &Labels) -> Vec<(f64, f64)> {
        let bucket = |(of, with, value): &(String, Labels, f64)| {
            let mut with = with.clone();
            let le = with.remove("le")?.parse().ok()?;
            (*of == format!("{name}_bucket") && with == *labels).then_some((le, *value))
        };
        self.samples.iter().filter_map(bucket).collect()
    }

    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let own = |(label, value): &(&str, &str)| ((*label).to_owned(), (*value).to_owned());
        let labels: Labels = labels.iter().map(own).collect();
        let found = self.samples.iter().find(|(of, with, _)| of == name && *with == labels);
        found.map(|(_, _, value)| *value)
    }
}

fn read_sample(line: &str) -> Result<(String, Labels, f64), String> {
    let wrong = |what: &str| format!("{what} in {line:?}");
    let end = line.find(['{', ' ']).ok_or(wrong("no value"))?;
    let name = &line[..end];
    check_name(name, ":_")?;
    let (labels, value) = match line[end..].strip_prefix('{') {
        Some(rest) => read_labels(rest)?,
        None => (Labels::new(), &line[end..]),
    };
    let value = value.strip_prefix(' ').ok_or(wrong("no space before the value"))?;
    let number = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        value if value.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            value.parse().map_err(|_| wrong("not a number"))?
        }
        _ => return Err(wrong("not a number")),
    };
    Ok((name.to_owned(), labels, number))
}

/// Reads `label="value",…}`; hands back what follows.
fn read_labels(mut rest: &str) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    loop {
        let (label, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        check_name(label, "_")?;
        let mut is_escaped = false;
        let closes = |c: char| {
            let closes = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            closes
        };
        let end = after.find(closes).ok_or("an open label value")?;
        check_escapes(&after[..end], "\\n\"")?;
        if labels.insert(label.to_owned(), unescaped(&after[..end])).is_some() {
            return Err(format!("label {label} twice"));
        }
        rest = &after[end + 1..];
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        rest = rest.strip_prefix(',').ok_or("no comma between labels")?;
    }
}

fn check_name(name: &str, beside: &str) -> Result<(), String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || beside.contains(c);
    let is_well = name.chars().all(is_fit) && !name.starts_with(|c: char| c.is_ascii_digit());
    (is_well && !name.is_empty()).then_some(()).ok_or(format!("{name:?} is no name"))
}

fn check_escapes(text: &str, after_backslash: &str) -> Result<(), String> {
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        let escaped = (c == '\\').then(|| characters.next());
        if escaped.is_some_and(|next| !next.is_some_and(|next| after_backslash.contains(next))) {
            return Err(format!("unknown escape in {text:?}"));
        }
    }
    Ok(())
}

fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        plain.extend(match (c, c == '\\') {
            (_, true) => characters.next().map(|next| if next == 'n' { '\n' } else { next }),
            (c, false) => Some(c),
        });
    }
    plain
}

#[test]
fn the_reader_of_metrics_is_strict() {
    let head = "# HELP a_total A.\n# TYPE a_total counter\n";
    let read = |body: &str| Exposed::read(&format!("{head}{body}"));
    assert!(read("a_total{x=\"1\"} 5\na_total{x=\"\\\"\\\\\\n\"} +Inf\n").is_ok());
    for wrong in [
        "a_total 5",
        "a_total{} 5\n",
        "a_total{x=\"1\"}5\n",
        "a_total{x=\"1\",x=\"2\"} 5\n",
        "a_total{x=\"1\"} 5\na_total{x=\"1\"} 6\n",
        "a_total{x=\"1} 5\n",
        "a_total{x=\"\\t\"} 5\n",
        "a_total{1x=\"1\"} 5\n",
        "a_total inf\n",
        "a_total 5\n\n",
        "b_total 5\n",
        "# TYPE a_total counter\n",
        "# HELP b B.\nb 5\n",
        "# HELP b B.\n# TYPE b counter\nb 5\n",
        "# HELP b_total B.\n# TYPE b_total gauge\nb_total 5\n",
    ] {
        assert!(read(wrong).is_err(), "{wrong:?} passed");
    }
    let histogram = |buckets: &str| {
        Exposed::read(&format!("# HELP h H.\n# TYPE h histogram\n{buckets}h_sum 1\nh_count 2\n"))
    };
    let bucket = |le: &str, count: u8| format!("h_bucket{{le=\"{le}\"}} {count}\n");
    assert!(histogram(&[bucket("1", 1), bucket("+Inf", 2)].concat()).is_ok());
    assert!(histogram(&bucket("1", 2)).is_err(), "no +Inf");
    assert!(histogram(&[bucket("1", 3), bucket("+Inf", 2)].concat()).is_err(), "falls");
    assert!(histogram(&[bucket("2", 1), bucket("1", 1), bucket("+Inf", 2)].concat()).is_err());
    assert!(histogram(&[bucket("1", 1), bucket("+Inf", 1)].concat()).is_err(), "not the count");
}
