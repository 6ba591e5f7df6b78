//! Settings that nobody chose: drawn from a seed by code, to see whether what was tuned on chosen
//! ones holds beside them.

use evenkeel_core::Rng;

/// A setting: its name, and what is set for it as `path=value`.
pub(crate) type Drawn = (String, Vec<String>);

/// This many settings of a replicated service, the same for the same seed.
pub(crate) fn settings(count: usize, seed: u64) -> Vec<Drawn> {
    let mut rng = Rng::stream(seed, "settings");
    (1..=count).map(|number| setting(number, &mut rng)).collect()
}

/// One in `low..=high`, whose logarithm is uniform: as many below 10 as between 10 and 100.
fn log_uniform(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.unit())
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len())]
}

fn setting(number: usize, rng: &mut Rng) -> Drawn {
    let servers = log_uniform(rng, 10.0, 100.0).round();
    let slots = one_of(rng, &[1, 2, 4, 4, 8]);
    let group = one_of(rng, &[2.0, 3.0, 3.0, 5.0, servers, servers, servers]);
    let clients = log_uniform(rng, 5.0, 1_000.0).round();
    let service_ms = log_uniform(rng, 1.0, 20.0).round();
    let one_way_us = (service_ms * 1e3 * log_uniform(rng, 0.03, 1.25)).round();
    let load = (40.0 + 50.0 * rng.unit()).round() / 100.0;
    let range = (2.0 + 2.0 * rng.unit()).round();
    let interval_ms = one_of(rng, &[0.0, 0.0, 1.0, 1.0, 1.0]) * log_uniform(rng, 10.0, 500.0);
    let interval_ms = interval_ms.round();
    let law = one_of(rng, &["", "", "", "", "pareto", "bimodal"]);
    let fault = one_of(rng, &["", "", "", "", "pause", "pause", "slow", "fail", "pause + slow"]);
    let skew = one_of(rng, &[0.0, 0.0, 0.0, 0.0, 0.2]);
    let read_repair = one_of(rng, &[0.0, 0.0, 0.0, 0.0, 0.0, 0.1]);
    let mut sets = vec![
        format!("cluster.servers={servers}"),
        format!("cluster.concurrency={slots}"),
        format!("cluster.replication_factor={group}"),
        format!("cluster.service_mean=\"{service_ms}ms\""),
        format!("network.one_way=\"{one_way_us}us\""),
        format!("fluctuation.interval=\"{interval_ms}ms\""),
        format!("fluctuation.range={range}"),
        format!("workload.clients={clients}"),
        format!("workload.utilisation={load}"),
        format!("workload.skew={skew}"),
        format!("workload.read_repair={read_repair}"),
    ];
    if !law.is_empty() {
        sets.push(format!("cluster.service_law={{{law}={{}}}}"));
    }
    if !fault.is_empty() {
        let all: Vec<String> = fault.split(" + ").map(|kind| self::fault(kind, rng)).collect();
        sets.push(format!("faults=[{}]", all.join(", ")));
    }
    let of = if group == servers { "any".to_owned() } else { format!("RF {group}") };
    let mut name = format!(
        "{number}: {of}, {servers} × {slots}, {clients} clients, {service_ms} ms, \
         RTT {} ms, load {load}",
        one_way_us / 500.0,
    );
    if interval_ms > 0.0 {
        name += &format!(", T {interval_ms} ms × {range}");
    }
    let is_skewed = if skew > 0.0 { "skew" } else { "" };
    let repairs = if read_repair > 0.0 { "read repair" } else { "" };
    for what in [law, fault, is_skewed, repairs].into_iter().filter(|what| !what.is_empty()) {
        name += &format!(", {what}");
    }
    (name, sets)
}

/// A fault as scenarios write it.
fn fault(kind: &str, rng: &mut Rng) -> String {
    match kind {
        "slow" => format!("{{ at = '0s', slow = 0, factor = {} }}", 3 + rng.below(6)),
        "fail" => "{ at = '0s', fail = 0 }".to_owned(),
        _ => format!(
            "{{ at = '0s', every = '{}ms', pause = 'each', for = '50ms', for_max = '200ms' }}",
            1_000 + 500 * rng.below(7)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_settings_and_another_seed_others() {
        let (one, again, other) = (settings(25, 1), settings(25, 1), settings(25, 2));
        assert_eq!(one, again);
        assert_ne!(one, other);
        assert_eq!(one[..10], settings(10, 1), "more settings do not change the first ones");
        let distinct: std::collections::BTreeSet<_> = one.iter().map(|(name, _)| name).collect();
        assert_eq!(distinct.len(), 25);
    }

    #[test]
    fn settings_reach_both_ends_of_what_they_are_drawn_from() {
        let all = settings(400, 3);
        let count = |word: &str| {
            all.iter().filter(|(_, sets)| sets.iter().any(|set| set.contains(word))).count()
        };
        // Shares of 400 with four standard deviations: 3 in 7, 2 in 9, 1 in 9, 1 in 6, 2 in 5.
        let groups = all.iter().filter(|(name, _)| name.contains(": any,")).count();
        assert!((131..=212).contains(&groups), "{groups}");
        for (word, least, most) in [
            ("pause = ", 97, 170), // 3 in 9
            ("slow = 0", 55, 122), // 2 in 9
            ("fail = 0", 19, 70),
            ("pareto", 36, 97),
            ("interval=\"0ms\"", 120, 200),
        ] {
            let found = count(word);
            assert!((least..=most).contains(&found), "{word}: {found}");
        }
    }
}
