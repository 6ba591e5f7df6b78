//! Every estimator beside a made world whose truth is known. The world is a queue of this file's
//! own: first in, first out, in slots, with pauses and speeds.

use evenkeel_core::Rng;
use evenkeel_twin::pauses::{Pause, overlap_ns};
use evenkeel_twin::rows::{Day, End, Row, Served, Why};
use evenkeel_twin::slots;
use evenkeel_twin::twin::RebuildError;
use evenkeel_twin::visits::visits;
use evenkeel_twin::works::{Seen, Works};
use evenkeel_twin::{Rebuilder, Twin};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const WAY_NS: u64 = 100_000;

struct Made {
    slots: usize,
    replicas: usize,
    requests: u64,
    /// Share of the slots that are busy, without pauses.
    load: f64,
    sigma: f64,
    /// Part of the variance that is the request's own.
    own: f64,
    pairs: f64,
    pauses: Vec<Vec<Pause>>,
    /// Services take this many times as long in every other part of so many ns.
    slower: (f64, u64),
    has_agents: bool,
    all_at_once: bool,
}

impl Made {
    fn world() -> Self {
        Self {
            slots: 4,
            replicas: 3,
            requests: 40_000,
            load: 0.5,
            sigma: 1.0,
            own: 0.0,
            pairs: 0.0,
            pauses: vec![Vec::new(); 3],
            slower: (1.0, SECOND),
            has_agents: true,
            all_at_once: false,
        }
    }

    fn slowness(&self, replica: usize, at_ns: u64) -> f64 {
        if (at_ns / self.slower.1 + replica as u64) % 2 == 1 { self.slower.0 } else { 1.0 }
    }

    /// When work that begins at a time is done: it stands still in pauses.
    fn done_ns(&self, replica: usize, start_ns: u64, work_ns: u64) -> u64 {
        let mut left_ns = start_ns + work_ns;
        for pause in &self.pauses[replica] {
            if pause.to_ns > start_ns && pause.from_ns < left_ns {
                left_ns += pause.to_ns - pause.from_ns.max(start_ns);
            }
        }
        left_ns
    }

    /// The rows, and when each began.
    fn play(&self, seed: u64) -> (Day, Vec<u64>) {
        let mut rng = Rng::seeded(seed);
        let mut free = vec![vec![0_u64; self.slots]; self.replicas];
        let mut day = Day { strangers: vec![0; self.replicas], ..Day::default() };
        let mut starts = Vec::new();
        let mean_ns = 6e6 * (self.sigma * self.sigma / 2.0).exp() * (1.0 + self.slower.0) / 2.0;
        let gap_ns = mean_ns / (self.load * (self.slots * self.replicas) as f64);
        let (mut now, mut last) = (0_u64, 0_u64);
        for request in 0..self.requests {
            now += (rng.exponential() * gap_ns) as u64;
            let first = rng.below(self.replicas);
            let second = (first + 1 + rng.below(self.replicas - 1)) % self.replicas;
            let is_pair = rng.unit() < self.pairs;
            let own = rng.normal();
            for (replica, why) in [(first, Why::First), (second, Why::Pair)] {
                if why == Why::Pair && !is_pair {
                    continue;
                }
                let score = self.own.sqrt() * own + (1.0 - self.own).sqrt() * rng.normal();
                let at_ns = now + WAY_NS;
                let lines = &mut free[replica];
                let slot = (0..self.slots).min_by_key(|slot| lines[*slot]).unwrap_or(0);
                let start_ns = if self.all_at_once { at_ns } else { at_ns.max(lines[slot]) };
                let work_ns = 6e6 * (self.sigma * score).exp() * self.slowness(replica, start_ns);
                let left_ns = self.done_ns(replica, start_ns, work_ns as u64);
                free[replica][slot] = left_ns;
                let served = Served {
                    wait_ns: start_ns - at_ns,
                    service_ns: left_ns - start_ns,
                    queue: 0,
                    is_full: true,
                };
                day.rows.push(Row {
                    request,
                    gap_ns: now - last,
                    after_ns: 0,
                    latency_ns: left_ns + WAY_NS - now,
                    client: 0,
                    replica: replica as u16,
                    group: 0,
                    policy: 0,
                    size: 0,
                    why,
                    end: End::Answered,
                    served: self.has_agents.then_some(served),
                });
                starts.push(start_ns);
                last = now;
            }
        }
        (day, starts)
    }
}

/// A pause of 50 to 200 ms about every three seconds.
fn pauses(seed: u64, replicas: usize, until_ns: u64) -> Vec<Vec<Pause>> {
    let mut rng = Rng::seeded(seed);
    let mut of_one = |_| {
        let (mut pauses, mut at_ns) = (Vec::new(), (rng.unit() * 3.0 * SECOND as f64) as u64);
        while at_ns < until_ns {
            let length_ns = 50 * MS + (rng.unit() * 150.0 * MS as f64) as u64;
            pauses.push(Pause { from_ns: at_ns, to_ns: at_ns + length_ns });
            at_ns += length_ns + SECOND + (rng.exponential() * 2.0 * SECOND as f64) as u64;
        }
        pauses
    };
    (0..replicas).map(&mut of_one).collect()
}

#[test]
fn slots_and_starts_follow_from_departures_alone() {
    for (slots, sigma) in [(1, 1.0), (2, 0.3), (4, 1.0), (4, 1.5), (8, 1.0)] {
        for seed in 1..=2 {
            let made = Made {
                slots,
                sigma,
                load: 0.8,
                has_agents: false,
                requests: 15_000,
                pauses: pauses(seed, 3, 100 * SECOND),
                ..Made::world()
            };
            let (day, truth) = made.play(seed);
            let (replicas, _) = visits(&day);
            let (found, early) = slots::concurrency(&replicas, 1);
            assert_eq!(found as usize, slots, "sigma {sigma}, seed {seed}");
            assert_eq!(early, 0.0);
            for visits in &replicas {
                let starts = slots::starts(visits, found).at_ns;
                for (visit, start) in visits.iter().zip(starts) {
                    // Without agents the two ways count as part of the stay.
                    let off_ns = start.unwrap().abs_diff(truth[visit.row]);
                    assert!(off_ns <= WAY_NS, "{visit:?}");
                }
            }
        }
    }
}

/// Real servers read from connections in another order than requests were sent in: one in eighty of
/// those that wait is served in place of one that came up to four before it.
#[test]
fn who_overtakes_others_in_the_queue_does_not_make_another_slot() {
    for slots in [1, 2, 4] {
        let world = Made { slots, load: 0.7, requests: 12_000, ..Made::world() };
        let (mut day, truth) = Made { has_agents: false, ..world }.play(3);
        let mut rng = Rng::seeded(1);
        for visits in &visits(&day).0 {
            for four in visits.chunks_exact(4) {
                let [first, .., last] = four else { continue };
                if truth[first.row] > last.at_ns && rng.unit() < 0.05 {
                    day.rows[first.row].latency_ns = last.left_ns - first.at_ns;
                    day.rows[last.row].latency_ns = first.left_ns - last.at_ns;
                }
            }
        }
        let (replicas, _) = visits(&day);
        let (found, early) = slots::concurrency(&replicas, 1);
        assert_eq!(found as usize, slots);
        assert!(early > 0.001 || slots > 1, "{early}: they must overtake");
        for visits in &replicas {
            let starts = slots::starts(visits, found).at_ns;
            let known =
                visits.iter().zip(starts).filter_map(|(visit, start)| Some((start?, visit)));
            let known: Vec<(u64, u64)> =
                known.map(|(start, visit)| (start, visit.left_ns)).collect();
            for (start, _) in &known {
                let there = known.iter().filter(|(from, to)| from <= start && start < to).count();
                assert!(there <= slots, "{there} are served at once in {slots} slots");
            }
        }
    }
}

#[test]
fn who_serves_all_at_once_has_no_slots() {
    let (day, _) = Made { all_at_once: true, load: 0.9, ..Made::world() }.play(1);
    assert!(slots::concurrency(&visits(&day).0, 1).0 > 8);
}

/// How much of the pauses until the end of the day is found, and how much is found besides: shares
/// of the time that they take.
fn found_and_wrong(day: &Day, truth: &[Vec<Pause>], twin: &Twin) -> (f64, f64) {
    let end_ns = day.sent_ns().last().expect("a day has requests");
    let (mut there_ns, mut found_ns, mut wrong_ns) = (0, 0, 0);
    for (truth, found) in truth.iter().zip(&twin.pauses) {
        for pause in truth.iter().filter(|pause| pause.to_ns < end_ns) {
            there_ns += pause.to_ns - pause.from_ns;
            found_ns += overlap_ns(found, pause.from_ns, pause.to_ns);
        }
        for pause in found {
            let right_ns = overlap_ns(truth, pause.from_ns, pause.to_ns);
            wrong_ns += pause.to_ns - pause.from_ns - right_ns;
        }
    }
    (found_ns as f64 / there_ns as f64, wrong_ns as f64 / there_ns as f64)
}

#[test]
fn pauses_are_found_where_they_are_and_nowhere_else() {
    for (sigma, load, has_agents) in [(1.0, 0.6, true), (1.0, 0.4, false), (0.5, 0.8, true)] {
        let truth = pauses(7, 3, 40 * SECOND);
        let made = Made { sigma, load, has_agents, pauses: truth.clone(), ..Made::world() };
        let (day, _) = made.play(3);
        let twin = Twin::rebuild(&day, 1).unwrap();
        let (found, wrong) = found_and_wrong(&day, &truth, &twin);
        assert!(found > 0.85, "{found} found, {sigma} {load}");
        assert!(wrong < 0.08, "{wrong} wrong, {sigma} {load}");
        assert!(twin.pauses_shared < 0.1, "{}", twin.pauses_shared);
    }
}

/// Only one is in service then, and takes as long as the pause: as many take so long as there are
/// pauses, and a law of all would have no doubts.
#[test]
fn pauses_of_a_single_slot_are_found_by_the_body_of_the_law() {
    let truth = pauses(7, 3, 40 * SECOND);
    let made = Made { slots: 1, sigma: 0.5, load: 0.4, has_agents: false, ..Made::world() };
    let (day, _) = Made { requests: 15_000, pauses: truth.clone(), ..made }.play(3);
    let twin = Twin::rebuild(&day, 1).unwrap();
    let (found, wrong) = found_and_wrong(&day, &truth, &twin);
    assert!(found > 0.7, "{found} found");
    assert!(wrong < 0.08, "{wrong} wrong");
}

#[test]
fn long_services_are_no_pauses() {
    for (sigma, load) in [(1.5, 0.3), (1.0, 0.8), (0.2, 0.1)] {
        let made = Made { sigma, load, ..Made::world() };
        let (day, _) = made.play(5);
        let twin = Twin::rebuild(&day, 1).unwrap();
        // 40,000 gaps, each with a chance of 10^-5 at most.
        let found: usize = twin.pauses.iter().map(Vec::len).sum();
        assert!(found <= 4, "{found} with sigma {sigma}");
    }
}

#[test]
fn pauses_of_all_at_once_are_shared() {
    let one = pauses(9, 1, 60 * SECOND).remove(0);
    let made = Made { pauses: vec![one; 3], load: 0.7, ..Made::world() };
    let twin = Twin::rebuild(&made.play(4).0, 1).unwrap();
    assert!(twin.pauses_shared > 0.8, "{}", twin.pauses_shared);
}

#[test]
fn speeds_follow_what_changes_and_stay_where_nothing_does() {
    let made = Made { slower: (2.0, 2 * SECOND), load: 0.6, ..Made::world() };
    let (day, _) = made.play(6);
    let end_ns = day.sent_ns().last().unwrap();
    let speeds = Twin::rebuild(&day, 1).unwrap().speeds;
    assert!(speeds.width_ns <= 2 * SECOND, "{}", speeds.width_ns);
    let (mut sum, mut count) = (0.0, 0.0);
    for at_ns in (0..end_ns).step_by(50_000_000) {
        for replica in 0..3 {
            let truth = (6e6 * made.slowness(replica, at_ns)).ln();
            sum += (speeds.log(replica, at_ns) - truth).abs();
            count += 1.0;
        }
    }
    // A step of ln 2 = 0.69; windows that hold one are off by half of it.
    assert!(sum / count < 0.17, "{}", sum / count);

    let still = Twin::rebuild(&Made::world().play(6).0, 1).unwrap().speeds;
    let off = still.logs.iter().flatten().map(|log| (log - 6e6_f64.ln()).abs()).fold(0.0, f64::max);
    assert!(off < 0.1, "{off} without any change");
}

#[test]
fn what_copies_have_in_common_is_found_within_its_error() {
    for (own, seed) in [(0.0, 1), (0.5, 2), (0.9, 3), (1.0, 4)] {
        let made = Made { own, pairs: 0.02, slower: (2.0, 3 * SECOND), ..Made::world() };
        let twin = Twin::rebuild(&made.play(seed).0, 1).unwrap();
        let found = twin.correlation.unwrap();
        let miss = (found.value - own).abs();
        assert!(miss < 4.0 * found.error + 0.06, "{found:?} where {own} is true");
        assert!(found.error < 0.05, "800 pairs: {found:?}");
    }
    assert_eq!(Twin::rebuild(&Made::world().play(1).0, 1).unwrap().correlation, None);
}

#[test]
fn a_day_rebuilt_in_parts_is_the_world_of_the_whole_day() {
    let truth = pauses(7, 3, 60 * SECOND);
    let slower = (2.0, 2 * SECOND);
    let made = Made { own: 0.5, pairs: 0.05, slower, pauses: truth, ..Made::world() };
    let (day, _) = made.play(8);
    let whole = Twin::rebuild(&day, 1).unwrap();
    let mut rebuilder = Rebuilder::new(1);
    let mut rows = day.rows.clone();
    let later = rows.split_off(rows.len() / 2);
    let mut second = Day { rows: later, ..Day::default() };
    let first_ns: u64 = rows.iter().map(|row| row.gap_ns).sum();
    second.rows[0].gap_ns += first_ns;
    rebuilder.add(&Day { rows, ..day.clone() }).unwrap();
    rebuilder.add(&second).unwrap();
    let parts = rebuilder.finish().unwrap();
    assert_eq!((parts.slots, parts.requests.len()), (whole.slots, whole.requests.len()));
    let mut off = 0.0;
    for (one, other) in parts.requests.iter().zip(&whole.requests) {
        assert_eq!((one.at_ns, one.latency_ns), (other.at_ns, other.latency_ns));
        off += f64::from(one.score - other.score).abs() / whole.requests.len() as f64;
    }
    assert!(off < 0.1, "scores differ by {off}");
    let paused_ns = |twin: &Twin| -> u64 {
        twin.pauses.iter().flatten().map(|pause| pause.to_ns - pause.from_ns).sum()
    };
    let ratio = paused_ns(&parts) as f64 / paused_ns(&whole) as f64;
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
    let common = |twin: &Twin| twin.correlation.unwrap().value;
    assert!((common(&parts) - common(&whole)).abs() < 0.05);
    for at_ns in (0..day.sent_ns().last().unwrap()).step_by(500_000_000) {
        let logs = [&parts, &whole].map(|twin| twin.speeds.log(1, at_ns));
        assert!((logs[0] - logs[1]).abs() < 0.35, "{at_ns}: {logs:?}");
    }
    assert!((parts.works.mean() / whole.works.mean() - 1.0).abs() < 0.1);
}

#[test]
fn copies_that_were_given_up_count_for_what_they_exceed() {
    let mut rng = Rng::seeded(1);
    let (mut all, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..40_000 {
        let (log, limit) = (rng.normal(), rng.normal() + 1.0);
        all.push(log);
        seen.push(Seen { log: log.min(limit), is_cut: log > limit });
    }
    all.sort_by(f64::total_cmp);
    let works = Works::new(seen);
    for share in [0.5, 0.9, 0.97] {
        let truth = all[(share * 40_000.0) as usize];
        // Four standard errors of a share among those that are still there.
        assert!((works.share(truth) - share).abs() < 0.012, "{share}: {}", works.share(truth));
    }
    let mut scores: Vec<f32> = (0..5_000).map(|_| rng.normal() as f32).collect();
    let one_by_one: Vec<f32> =
        scores.iter().map(|log| works.score(f64::from(*log)) as f32).collect();
    works.score_all(&mut scores, |score| score);
    assert_eq!(scores, one_by_one);
    let table = works.table(1_000);
    assert!(table.is_sorted() && table.len() == 1_000);
    assert!((f64::from(table[500]).ln()).abs() < 0.03, "{}", table[500]);
    for _ in 0..100 {
        assert!(works.score_beyond(1.0, None, &mut rng) >= works.score(1.0) - 1e-9);
    }
}

#[test]
fn a_network_is_what_agents_do_not_account_for() {
    let (day, _) = Made::world().play(1);
    let network = Twin::rebuild(&day, 1).unwrap().network;
    assert_eq!((network.one_way_ns, network.jitter_ns), (WAY_NS as f64, 0.0));
}

/// Each takes longer by this share for every other one that is there when it comes.
fn shared(day: &mut Day, share: f64) {
    let (replicas, _) = visits(day);
    for visits in replicas {
        for (place, visit) in visits.iter().enumerate() {
            let before = &visits[place.saturating_sub(20)..place];
            let there = before.iter().filter(|other| other.left_ns > visit.at_ns).count();
            let row = &mut day.rows[visit.row];
            let served = row.served.as_mut().expect("agents saw it");
            let more = (served.service_ns as f64 * share * there as f64) as u64;
            served.service_ns += more;
            row.latency_ns += more;
        }
    }
}

#[test]
fn works_go_with_the_crowd_only_where_cores_are_shared() {
    // Long services make crowds for the next ones, and slow times have crowds: in slots both are no
    // reason to believe that crowds take longer, or less.
    let made = || Made { load: 0.8, ..Made::world() };
    let slow = || Made { load: 0.5, slower: (2.0, 300 * MS), ..Made::world() };
    // The mean of six days, and its error.
    let mean = |play: &dyn Fn(u64) -> Day| {
        let days = [1, 2, 3, 4, 5, 6].map(|seed| Twin::rebuild(&play(seed), seed).expect("a day"));
        let squares = days.iter().map(|twin| twin.crowding.error * twin.crowding.error);
        let value = days.iter().map(|twin| twin.crowding.value).sum::<f64>() / 6.0;
        (value, squares.sum::<f64>().sqrt() / 6.0)
    };
    for (name, world) in [("crowds", made as fn() -> Made), ("slow times", slow)] {
        let (value, error) = mean(&|seed| world().play(seed).0);
        assert!(value.abs() < 3.0 * error && error < 0.02, "{name}: {value} {error}");
    }
    let (value, error) = mean(&|seed| {
        let (mut day, _) = Made::world().play(seed);
        shared(&mut day, 0.1);
        day
    });
    assert!(value > 0.02 + 5.0 * error, "{value} {error}");
}

#[test]
fn days_that_are_none_are_refused() {
    assert_eq!(Twin::rebuild(&Day::default(), 1), Err(RebuildError::TooShort(0)));
    let (mut day, _) = Made { requests: 2_000, ..Made::world() }.play(1);
    day.rows[1_000].gap_ns = u64::MAX / 2;
    assert!(matches!(Twin::rebuild(&day, 1), Err(RebuildError::TooLong(_))));
}

#[test]
fn nonsense_in_rows_is_no_panic() {
    let mut rng = Rng::seeded(3);
    let (made, _) = Made { requests: 3_000, pairs: 0.1, ..Made::world() }.play(1);
    let mut rebuilt = 0;
    for round in 0..20 {
        let mut day = made.clone();
        // Times of up to an hour, which is no length of a day, and every second time of any length.
        let shift = if round % 2 == 0 { 22 } else { 0 };
        for row in &mut day.rows {
            match rng.below(40) {
                0 => row.latency_ns = rng.bits() >> shift >> rng.below(64 - shift),
                1 => row.served = None,
                2 => row.end = End::Failed,
                3 => row.request = rng.bits() % 3_000,
                4 => row.replica = (rng.bits() % 40) as u16,
                5 => row.after_ns = rng.bits(),
                6 => {
                    let wait_ns = rng.bits() >> shift >> rng.below(64 - shift);
                    row.served = row.served.map(|it| Served { wait_ns, ..it });
                }
                _ => {}
            }
        }
        rebuilt += usize::from(Twin::rebuild(&day, 1).is_ok());
        let _ = (day.latencies(0), day.unseen());
    }
    assert!(rebuilt > 5, "{rebuilt}: nonsense was refused for its length alone");
}

#[test]
fn what_an_agent_says_is_no_longer_than_a_day_either() {
    let (mut day, _) = Made { requests: 2_000, ..Made::world() }.play(1);
    let last = day.rows.last_mut().unwrap();
    last.served = last.served.map(|it| Served { wait_ns: 1 << 62, ..it });
    assert!(matches!(Twin::rebuild(&day, 1), Err(RebuildError::TooLong(_))));
}
