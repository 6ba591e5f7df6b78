//! The shape of service times in slots, as multiples of their mean.

use std::fs;
use std::io::Read as _;
use std::sync::Arc;

use evenkeel_settings::{Mismatch, Table};
use serde::{Serialize, Serializer};

/// A file of samples: ten million of them.
const BYTES_MAX: u64 = 100_000_000;

/// A law of service times with mean 1, where their coefficient of variation does not tell enough.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceLaw {
    /// A tail that falls as a power, `P(T > t) ~ t^-shape`, up to `ratio` times the shortest.
    Pareto {
        /// The exponent: with 1.5 the variance comes from the longest.
        shape: f64,
        /// The longest over the shortest.
        ratio: f64,
    },
    /// Exponential with one of two means: most requests are light, some heavy.
    Bimodal {
        /// Share of the heavy ones.
        share: f64,
        /// Mean of the heavy ones over that of the others.
        factor: f64,
    },
    /// As they were measured.
    Samples(Samples),
}

/// Measured service times, sorted, scaled to mean 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples(Arc<[f64]>);

impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{} samples", self.0.len()))
    }
}

impl ServiceLaw {
    /// The value that the share `u` in [0, 1) of all service times does not exceed; `v` is a second
    /// number of that kind, for laws that need two.
    #[inline]
    pub fn quantile(&self, u: f64, v: f64) -> f64 {
        match self {
            Self::Pareto { shape, ratio } => {
                let below = 1.0 - ratio.powf(-shape);
                shortest(*shape, *ratio) * (1.0 - u * below).powf(-1.0 / shape)
            }
            Self::Bimodal { share, factor } => {
                let light = 1.0 / (share * factor + (1.0 - share));
                let mean = if v < *share { light * factor } else { light };
                -mean * (-u).ln_1p()
            }
            Self::Samples(Samples(sorted)) => sorted[(u * sorted.len() as f64) as usize],
        }
    }

    /// Reads a table with one law: `{ pareto = { shape = 1.5, ratio = 100 } }`,
    /// `{ bimodal = { share = 0.1, factor = 10 } }` or `{ samples = "a/file.csv" }`.
    pub(super) fn read(table: &mut Table<'_>) -> Option<Self> {
        const LAWS: [&str; 3] = ["pareto", "bimodal", "samples"];
        let named: Vec<_> =
            LAWS.into_iter().filter(|law| table.key(law).value().is_some()).collect();
        match named[..] {
            ["pareto"] => Some(table.key("pareto").section(|law| Self::Pareto {
                shape: law.key("shape").number().between(0.1..=10.0).or(1.5),
                ratio: law.key("ratio").number().between(1.1..=1e6).or(100.0),
            })),
            ["bimodal"] => Some(table.key("bimodal").section(|law| Self::Bimodal {
                share: law.key("share").number().between(1e-6..=0.999).or(0.1),
                factor: law.key("factor").number().between(1.0..=1e6).or(10.0),
            })),
            ["samples"] => {
                let unread = Samples([1.0].into());
                let expected =
                    "the name of a file with a service time in milliseconds in each line";
                let read = table.key("samples").parsed(expected, unread, Samples::load);
                Some(Self::Samples(read.required()))
            }
            [] => None,
            [_, second, ..] => {
                table.problem(second, Mismatch::new("a second law", "one of them"));
                None
            }
            [other] => unreachable!("`{other}` is no law"),
        }
    }
}

/// The shortest of a bounded Pareto law with mean 1.
fn shortest(shape: f64, ratio: f64) -> f64 {
    let below = 1.0 - ratio.powf(-shape);
    let mean = if (shape - 1.0).abs() < 1e-9 {
        ratio.ln() / below
    } else {
        shape / (shape - 1.0) * (1.0 - ratio.powf(1.0 - shape)) / below
    };
    1.0 / mean
}

impl Samples {
    /// Reads a file with a number in each line; what comes behind a comma is not looked at, nor is
    /// a first line without a number.
    fn load(file: &str) -> Result<Self, Mismatch> {
        let wrong = |what: String| Mismatch::new(what, "a service time in milliseconds above 0");
        let mut text = String::new();
        fs::File::open(file)
            .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| Mismatch::new(format!("{file}: {error}"), "a file to read"))?;
        if text.len() as u64 > BYTES_MAX {
            return Err(wrong(format!("more than {BYTES_MAX} bytes in {file}")));
        }
        let mut times = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let word = line.split(',').next().unwrap_or_default().trim();
            match word.parse::<f64>() {
                Ok(time) if time > 0.0 && time.is_finite() => times.push(time),
                Err(_) if number == 0 => {} // what the column is
                _ if word.is_empty() => {}
                _ => return Err(wrong(format!("{word:?} in line {} of {file}", number + 1))),
            }
        }
        if times.is_empty() {
            return Err(wrong(format!("none of them in {file}")));
        }
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        Ok(Self(times.into_iter().map(|time| time / mean).collect()))
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_settings::Node;

    use super::*;
    use crate::scenario::Scenario;
    use crate::workload::work_by;

    /// Mean and the share above ten times the mean.
    fn of(law: &ServiceLaw) -> (f64, f64) {
        let count = 2_000_000_u64;
        let draws = (0..count).map(|n| work_by(law, n.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0));
        let (sum, above) =
            draws.fold((0.0, 0), |(sum, above), draw| (sum + draw, above + u64::from(draw > 10.0)));
        (sum / count as f64, above as f64 / count as f64)
    }

    #[test]
    fn laws_have_mean_one_and_the_tails_they_are_named_for() {
        let (mean, above) = of(&ServiceLaw::Pareto { shape: 1.5, ratio: 100.0 });
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        // L = (1 - 100^-1.5) / (3 (1 - 100^-0.5)) = 0.37; P(T > 10) = (0.37/10)^1.5 - 100^-1.5.
        assert!((above - 0.006_12).abs() < 0.000_4, "{above}");
        let (mean, above) = of(&ServiceLaw::Bimodal { share: 0.1, factor: 10.0 });
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        // Means 0.526 and 5.26: 0.1 exp(-10 / 5.26) and next to nothing.
        assert!((above - 0.014_95).abs() < 0.000_5, "{above}");
        let (mean, _) = of(&ServiceLaw::Pareto { shape: 1.0, ratio: 1_000.0 });
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
    }

    #[test]
    fn a_scenario_names_one_law() {
        let read = |law: &str| {
            let text = format!("[cluster]\n{law}\n");
            Scenario::read(&Node::parse(&text, "scenario.toml").unwrap())
        };
        let law = read("service_law = { pareto = { ratio = 50 } }").unwrap().cluster.service_law;
        assert_eq!(law, Some(ServiceLaw::Pareto { shape: 1.5, ratio: 50.0 }));
        for (law, word) in [
            ("service_law = { pareto = {}, bimodal = {} }", "a second law"),
            ("service_law = { bimodal = {} }\nservice_cv = 2", "service_cv beside service_law"),
            ("service_law = { zipf = {} }", "zipf"),
            ("service_law = { samples = 'no/such.csv' }", "no/such.csv"),
        ] {
            let error = read(law).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn samples_keep_their_shape_and_what_is_none_is_named() {
        let folder = std::env::temp_dir().join(format!("evenkeel-law-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("samples.csv");
        let load = |text: &str| {
            fs::write(&file, text).unwrap();
            Samples::load(file.to_str().unwrap())
        };
        let law = ServiceLaw::Samples(load("ms,path\n1,/a\n\n3,/b\n").unwrap());
        assert_eq!([0.0, 0.49, 0.5, 0.999].map(|u| law.quantile(u, 0.0)), [0.5, 0.5, 1.5, 1.5]);
        for (text, word) in [("1\nsoon\n", "line 2"), ("1\n-1\n", "-1"), ("ms\n", "none of them")] {
            let error = format!("{:?}", load(text).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
        fs::remove_dir_all(&folder).unwrap();
        let error = format!("{:?}", Samples::load(file.to_str().unwrap()).unwrap_err());
        assert!(error.contains("samples.csv"), "{error}");
    }
}
