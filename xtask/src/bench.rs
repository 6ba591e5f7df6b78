//! What the benchmarks of proxies share: servers as children, turns, summaries, words and figures
//! for people and for programs.

pub(crate) mod cassandra;
pub(crate) mod dialogue;
pub(crate) mod process;
pub(crate) mod statistics;

use std::path::PathBuf;

use crate::UsageError;

/// Fewer rounds cannot give a 95 % interval (see [`statistics::median_interval`]).
pub(crate) const ROUNDS_MIN: usize = 6;

/// The value of an option that is a whole number from `min` to `max`.
pub(crate) fn number<T: TryFrom<u64>>(
    option: &str,
    value: &str,
    min: u64,
    max: u64,
) -> Result<T, UsageError> {
    let parsed = value.parse().ok().filter(|number| (min..=max).contains(number));
    parsed.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        UsageError::new(format!("{option}: got `{value}`, expected a number from {min} to {max}"))
    })
}

/// Those of `known` that an option asks for, in its order.
pub(crate) fn some_of<T>(
    option: &str,
    value: &str,
    known: &'static [T],
    name: fn(&T) -> &'static str,
) -> Result<Vec<&'static T>, UsageError> {
    let find = |word| {
        known.iter().find(|one| name(one) == word).ok_or_else(|| {
            let known = known.iter().map(name).collect::<Vec<_>>().join(", ");
            UsageError::new(format!("{option}: got `{word}`, expected some of {known}"))
        })
    };
    value.split(',').map(find).collect()
}

/// The names of those that an option asks for, where the one that ratios are to must be among them.
///
/// # Errors
/// When it is not, or another is asked for.
pub(crate) fn with_reference<T>(
    option: &str,
    value: &str,
    known: &'static [T],
    name: fn(&T) -> &'static str,
    reference: &str,
) -> Result<Vec<&'static str>, UsageError> {
    let names: Vec<_> = some_of(option, value, known, name)?.into_iter().map(name).collect();
    if names.contains(&reference) {
        return Ok(names);
    }
    let what = format!("{option}: `{reference}` must be among them: ratios are to it");
    Err(UsageError::new(what))
}

/// The program that `option` names. Servers start in a folder of their own, so the path must not
/// be relative.
pub(crate) fn file(option: &str, value: &str) -> Result<PathBuf, UsageError> {
    std::fs::canonicalize(value).ok().filter(|path| path.is_file()).ok_or_else(|| {
        UsageError::new(format!("{option}: got `{value}`, expected the path of a program"))
    })
}

/// Who is measured when: each round begins one further, and every second turn runs backwards, so
/// that no proxy always follows the same neighbour.
pub(crate) fn order(round: usize, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).map(|place| (place + round) % count).collect();
    if (round / count) % 2 == 1 {
        order.reverse();
    }
    order
}

/// The machine's load when the benchmark began; figures under load compare only within a run.
pub(crate) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// What processors this machine has, by their maker's name.
pub(crate) fn processors() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    let model =
        model.map_or("processor of unknown make", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} x {model}")
}

/// A JSON list.
pub(crate) fn list(values: &[f64]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
    format!("[{}]", values.join(","))
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_proxy_takes_every_place_equally_often() {
        for count in 2..=7 {
            let rounds: Vec<Vec<usize>> = (0..2 * count).map(|round| order(round, count)).collect();
            for place in 0..count {
                for proxy in 0..count {
                    let times = rounds.iter().filter(|order| order[place] == proxy).count();
                    assert_eq!(times, 2, "proxy {proxy} of {count} at place {place}");
                }
            }
        }
    }

    #[test]
    fn json_is_escaped() {
        assert_eq!(quoted("a\n\"b\""), "\"a\\n\\\"b\\\"\"");
        assert_eq!(list(&[1.0, 0.25]), "[1.0000,0.2500]");
    }
}
