//! Redistribution problems as people and programs write them: one JSON object.
//!
//! `demand` (quanta that arrive at each data centre) and `curves_ppm`
//! (`[origin][destination][load]`) are needed, the rest is optional:
//!
//! | key | meaning |
//! |---|---|
//! | `target_ppm` | for `--objective cost`: parts per million, one for all or a list |
//! | `weights` | makes it one target for all together, with each data centre's weight |
//! | `saturation` | quanta from which on queues grow; unless given, capacity over quantum |
//! | `capacity_rps`, `quantum_rps` | of each data centre, and of one unit of load |
//! | `rtt_ms` | `[from][to]`; nearer ones are preferred among equally good answers |
//! | `prices` | `[from][to]` of one redirected quantum, 1 unless given |
//! | `limits` | `[from][to]` quanta at most; `null` where there is no limit |
//! | `work_ms` | `[full, lean]` of each data centre: work of a request, for `--price` |
//! | `hedged_curves_ppm`, `hedge_work` | curves with hedges, and the work of copies as a share |
//! | `name`, `names` | of the whole and of each data centre |
//! | `n`, `note`, `slo_ms`, `quantum_pct`, `down` | for people; `n` is checked |
//!
//! An unknown key is an error: it is a misspelt one.

use std::fmt;
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use evenkeel_geo::joint::{Hedged, Service};
use evenkeel_geo::{ALL_PPM, Objective, Problem, ProblemError, QUANTA_MAX, SITES_MAX, Target};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};

/// Files are not read further than this.
pub(crate) const BYTES_MAX: u64 = 64 << 20;
/// Longer round trips are none.
const RTT_MS_MAX: f64 = 60_000.0;
/// Values of one curve at most: no load is higher than all demand.
const LOADS_MAX: usize = QUANTA_MAX as usize + 1;

/// A problem and what a cost objective needs beside it.
#[derive(Debug)]
pub(crate) struct Instance {
    /// What is to be solved.
    pub(crate) problem: Problem,
    /// What people call it.
    pub(crate) title: Option<String>,
    /// What people call each data centre; `site 0` and so on where nobody said.
    pub(crate) names: Vec<String>,
    /// Requests per second of one quantum, when it says so.
    pub(crate) quantum_rps: Option<f64>,
    /// Round trips in microseconds, `[from][to]`, when it says so.
    pub(crate) rtt_us: Option<Vec<Vec<u32>>>,
    /// Work of requests at each; nothing can be left out where nobody says so.
    pub(crate) services: Vec<Service>,
    /// Curves with hedges, when it has them.
    pub(crate) hedged: Option<Hedged>,
    target_ppm: Option<OneOrEach>,
    weights: Option<Vec<u32>>,
}

/// A document as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    n: Option<usize>,
    demand: Sites<u32>,
    curves_ppm: Square<List<u32, LOADS_MAX>>,
    target_ppm: Option<OneOrEach>,
    weights: Option<Sites<u32>>,
    saturation: Option<Sites<u32>>,
    capacity_rps: Option<Sites<f64>>,
    quantum_rps: Option<f64>,
    rtt_ms: Option<Square<f64>>,
    prices: Option<Square<u32>>,
    limits: Option<Square<Option<u32>>>,
    work_ms: Option<Sites<[f64; 2]>>,
    hedged_curves_ppm: Option<Square<List<u32, LOADS_MAX>>>,
    hedge_work: Option<f64>,
    name: Option<String>,
    names: Option<Sites<String>>,
    #[serde(rename = "note")]
    _note: Option<String>,
    #[serde(rename = "slo_ms")]
    _slo_ms: Option<f64>,
    #[serde(rename = "quantum_pct")]
    _quantum_pct: Option<f64>,
    #[serde(rename = "down")]
    _down: Option<Sites<usize>>,
}

type Sites<T> = List<T, SITES_MAX>;
type Square<T> = Sites<Sites<T>>;

/// A list of at most `MAX` values; a longer one is refused before it is held.
#[derive(Debug)]
struct List<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor::<T, MAX>(PhantomData)).map(Self)
    }
}

struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while list.len() < MAX {
            match values.next_element()? {
                Some(value) => list.push(value),
                None => return Ok(list),
            }
        }
        match values.next_element::<IgnoredAny>()? {
            None => Ok(list),
            Some(_) => Err(A::Error::custom(format!(
                "a list of more than {MAX} values, expected at most {MAX}"
            ))),
        }
    }
}

/// One number for all data centres, or one for each.
#[derive(Clone, Debug)]
enum OneOrEach {
    One(u32),
    Each(Vec<u32>),
}

impl<'de> Deserialize<'de> for OneOrEach {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OneOrEach;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "parts per million, one for all or a list")
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<OneOrEach, E> {
                // Too large for any share: refused with the others that are.
                Ok(OneOrEach::One(u32::try_from(value).unwrap_or(u32::MAX)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<OneOrEach, A::Error> {
                let list = ListVisitor::<u32, SITES_MAX>(PhantomData);
                list.visit_seq(values).map(OneOrEach::Each)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Reads a file; the error says the place in it.
pub(crate) fn load(path: &Path) -> anyhow::Result<Instance> {
    let name = path.display();
    let file = std::fs::File::open(path)
        .map_err(|error| anyhow::anyhow!("cannot open {name}: {error}"))?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| anyhow::anyhow!("cannot read {name}: {error}"))?;
    if bytes.len() as u64 > BYTES_MAX {
        let expected = format!("at most {} MiB", BYTES_MAX >> 20);
        anyhow::bail!("{name}: got more than {expected}, expected {expected}");
    }
    parse(&bytes).map_err(|problem| anyhow::anyhow!("{name}:{problem}"))
}

/// Reads a document; the error begins with a place in it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Instance, InstanceError> {
    let document: Document = serde_json::from_slice(bytes).map_err(InstanceError::Form)?;
    document.into_instance().map_err(InstanceError::Content)
}

/// Why a document is no instance.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstanceError {
    /// It is no JSON, or not of this form.
    #[error("{}", place(.0))]
    Form(serde_json::Error),
    /// Its numbers are none to plan with.
    #[error(" {0}")]
    Content(ProblemError),
}

/// `LINE:COLUMN: came …, expected …`
fn place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    let message = message.replacen("invalid type: ", "", 1).replacen("invalid value: ", "", 1);
    let cause = if error.is_eof() { " (is the file cut off?)" } else { "" };
    let came = match error.classify() {
        serde_json::error::Category::Data => format!("got {message}"),
        _ => format!("got no JSON ({message}), expected one object{cause}"),
    };
    format!("{}:{}: {came}", error.line(), error.column())
}

impl Document {
    fn into_instance(self) -> Result<Instance, ProblemError> {
        let sites = self.demand.0.len();
        if let Some(n) = self.n.filter(|&n| n != sites) {
            return Err(mismatch("n", n, &format!("{sites}, the length of demand")));
        }
        let saturation = self.saturation()?;
        let services = self.services(sites)?;
        if self.hedged_curves_ppm.is_some() && self.work_ms.is_none() {
            return Err(mismatch("work_ms", "none", "it too: hedges are priced by their work"));
        }
        if self.hedge_work.is_some() && self.hedged_curves_ppm.is_none() {
            return Err(mismatch("hedge_work", "it alone", "hedged_curves_ppm too"));
        }
        let extra_ppm = self.hedge_work_ppm()?;
        let hedged = self.hedged_curves_ppm.map(|it| Hedged { curves: lists(it), extra_ppm });
        let demand = self.demand.0;
        let mut problem = Problem::new(demand, lists(self.curves_ppm))?;
        if let Some(saturation) = saturation {
            problem = problem.with_saturation(saturation)?;
        }
        let rtt_us = self.rtt_ms.map(|rtt_ms| microseconds(rows(rtt_ms))).transpose()?;
        if let Some(rtt_us) = &rtt_us {
            problem = problem.with_distances(rtt_us)?;
        }
        if let Some(prices) = self.prices {
            problem = problem.with_prices(&rows(prices))?;
        }
        if let Some(limits) = self.limits {
            let unlimited = |row: Vec<Option<u32>>| {
                row.into_iter().map(|limit| limit.unwrap_or(u32::MAX)).collect()
            };
            let limits: Vec<Vec<u32>> = rows(limits).into_iter().map(unlimited).collect();
            problem = problem.with_limits(&limits)?;
        }
        let names = match self.names {
            None => (0..sites).map(|site| format!("site {site}")).collect(),
            Some(names) if names.0.len() == sites => names.0,
            Some(names) => {
                let expected = format!("{sites}, one for each data centre");
                return Err(mismatch("names", format!("{} values", names.0.len()), &expected));
            }
        };
        let weights = self.weights.map(|weights| weights.0);
        Ok(Instance {
            problem,
            title: self.name,
            names,
            quantum_rps: self.quantum_rps.filter(|&rps| rps.is_finite() && rps > 0.0),
            rtt_us,
            services,
            hedged,
            target_ppm: self.target_ppm,
            weights,
        })
    }

    fn services(&self, sites: usize) -> Result<Vec<Service>, ProblemError> {
        let Some(List(rows)) = &self.work_ms else { return Ok(vec![Service::default(); sites]) };
        let us = |site: usize, ms: f64| {
            let expected = format!("milliseconds from 0 to {RTT_MS_MAX}");
            let is_time = (0.0..=RTT_MS_MAX).contains(&ms);
            let wrong = || mismatch(&format!("work_ms {site}"), ms, &expected);
            is_time.then(|| (1000.0 * ms).round() as u32).ok_or_else(wrong)
        };
        let service = |(site, &[full, lean]): (usize, &[f64; 2])| {
            Ok(Service { full_us: us(site, full)?, lean_us: us(site, lean)? })
        };
        rows.iter().enumerate().map(service).collect()
    }

    fn hedge_work_ppm(&self) -> Result<u32, ProblemError> {
        match self.hedge_work.unwrap_or(0.05) {
            share if (0.0..=1.0).contains(&share) => Ok((share * f64::from(ALL_PPM)) as u32),
            other => Err(mismatch("hedge_work", other, "a share from 0 to 1")),
        }
    }

    /// As given, or as many quanta as the capacity has.
    fn saturation(&self) -> Result<Option<Vec<u32>>, ProblemError> {
        if let Some(given) = &self.saturation {
            return Ok(Some(given.0.clone()));
        }
        let (Some(capacity), Some(quantum)) = (&self.capacity_rps, self.quantum_rps) else {
            return Ok(None);
        };
        if !(quantum.is_finite() && quantum > 0.0) {
            return Err(mismatch("quantum_rps", quantum, "requests per second, above 0"));
        }
        let quanta = |(site, &rate): (usize, &f64)| {
            if !(rate.is_finite() && rate >= 0.0) {
                let place = format!("capacity_rps {site}");
                return Err(mismatch(&place, rate, "requests per second, 0 or more"));
            }
            Ok((rate / quantum) as u32)
        };
        capacity.0.iter().enumerate().map(quanta).collect::<Result<_, _>>().map(Some)
    }
}

impl Instance {
    /// What a planner made.
    pub(crate) fn planned(problem: Problem, names: Vec<String>, quantum_rps: f64) -> Self {
        let quantum_rps = Some(quantum_rps);
        let (title, rtt_us, target_ppm, weights) = (None, None, None, None);
        let (services, hedged) = (Vec::new(), None);
        Self { problem, title, names, quantum_rps, rtt_us, services, hedged, target_ppm, weights }
    }

    /// The cost objective that the file asks for.
    pub(crate) fn cost(&self) -> Result<Objective, ProblemError> {
        let Some(target) = &self.target_ppm else {
            return Err(mismatch(
                "target_ppm",
                "nothing",
                "parts per million for a cost objective",
            ));
        };
        let target = match (target, &self.weights) {
            (&OneOrEach::One(ppm), Some(weights)) => {
                Target::Global { ppm, weights: weights.clone() }
            }
            (&OneOrEach::One(ppm), None) => Target::Local(vec![ppm; self.problem.sites()]),
            (OneOrEach::Each(ppm), None) => Target::Local(ppm.clone()),
            (OneOrEach::Each(_), Some(_)) => {
                return Err(mismatch("target_ppm", "a list", "one number, as there are weights"));
            }
        };
        Ok(Objective::Cost(target))
    }
}

fn lists(square: Square<List<u32, LOADS_MAX>>) -> Vec<Vec<Vec<u32>>> {
    let row = |row: Vec<List<u32, LOADS_MAX>>| row.into_iter().map(|list| list.0).collect();
    rows(square).into_iter().map(row).collect()
}

fn rows<T>(square: Square<T>) -> Vec<Vec<T>> {
    square.0.into_iter().map(|row| row.0).collect()
}

fn microseconds(rows: Vec<Vec<f64>>) -> Result<Vec<Vec<u32>>, ProblemError> {
    let cell = |from: usize, to: usize, ms: f64| {
        if (0.0..=RTT_MS_MAX).contains(&ms) {
            return Ok((1000.0 * ms).round() as u32);
        }
        let expected = format!("milliseconds from 0 to {RTT_MS_MAX}");
        Err(mismatch(&format!("rtt_ms {from} {to}"), ms, &expected))
    };
    let row = |(from, row): (usize, Vec<f64>)| {
        row.into_iter().enumerate().map(|(to, ms)| cell(from, to, ms)).collect()
    };
    rows.into_iter().enumerate().map(row).collect()
}

fn mismatch(place: &str, came: impl fmt::Display, expected: &str) -> ProblemError {
    ProblemError { place: place.to_owned(), came: came.to_string(), expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"demand":[2,0],"curves_ppm":[[[0,9],[5]],[[5],[0]]]"#;

    fn refused(rest: &str) -> String {
        parse(format!("{SMALL}{rest}").as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_needed_is_enough() {
        let instance = parse(format!("{SMALL}}}").as_bytes()).unwrap();
        assert_eq!(instance.problem.demand(), [2, 0]);
        assert_eq!(instance.problem.violation_ppm(0, 0, 7), 9);
        assert_eq!(instance.problem.saturation(), [u32::MAX; 2]);
        let error = instance.cost().unwrap_err().to_string();
        assert!(error.starts_with("target_ppm: got nothing"), "{error}");
    }

    #[test]
    fn saturation_is_capacity_in_whole_quanta() {
        let rest = r#","capacity_rps":[1000,99.5],"quantum_rps":50}"#;
        let instance = parse(format!("{SMALL}{rest}").as_bytes()).unwrap();
        assert_eq!(instance.problem.saturation(), [20, 1]);
    }

    #[test]
    fn targets_are_for_each_or_for_all() {
        let target = |rest: &str| {
            let instance = parse(format!("{SMALL}{rest}}}").as_bytes()).unwrap();
            instance.cost().map_err(|error| error.to_string())
        };
        let local = |ppm: Vec<u32>| Ok(Objective::Cost(Target::Local(ppm)));
        assert_eq!(target(r#","target_ppm":7"#), local(vec![7, 7]));
        assert_eq!(target(r#","target_ppm":[7,8]"#), local(vec![7, 8]));
        let global = Target::Global { ppm: 7, weights: vec![1, 2] };
        let weighted = target(r#","target_ppm":7,"weights":[1,2]"#);
        assert_eq!(weighted, Ok(Objective::Cost(global)));
        assert!(target(r#","target_ppm":[7,8],"weights":[1,2]"#).is_err());
    }

    #[test]
    fn errors_say_what_came_what_was_expected_and_where() {
        assert_eq!(
            refused(""),
            "1:52: got no JSON (EOF while parsing an object), \
             expected one object (is the file cut off?)"
        );
        assert_eq!(refused(r#","n":3}"#), " n: got 3, expected 2, the length of demand");
        assert!(refused(r#","curve":1}"#).starts_with("1:60: got unknown field `curve`, expected"));
        assert!(refused(r#","weights":[1,"x"]}"#).ends_with(r#": got string "x", expected u32"#));
        assert_eq!(
            refused(r#","rtt_ms":[[0,-1],[1,0]]}"#),
            " rtt_ms 0 1: got -1, expected milliseconds from 0 to 60000"
        );
        assert_eq!(
            refused(r#","capacity_rps":[1,1],"quantum_rps":0}"#),
            " quantum_rps: got 0, expected requests per second, above 0"
        );
        let many = format!(r#"{{"demand":[{}1]}}"#, "1,".repeat(SITES_MAX));
        let error = parse(many.as_bytes()).unwrap_err().to_string();
        assert!(error.ends_with("got a list of more than 64 values, expected at most 64"));
    }
}
