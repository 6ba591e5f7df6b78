//! What controllers ask, answered by curves and by core's solver.

use std::time::Duration;

use evenkeel_geo::{
    Answer, Effort, Objective, Outlook, Overload, Problem, Question, Target, solve,
};

use super::Capacity;
use super::curves::Curves;

/// A pool of servers that serves its own requests, and only those.
pub(super) struct Alone<'a, 'b> {
    curves: &'a mut Curves<'b>,
    demand: u32,
}

impl<'a, 'b> Alone<'a, 'b> {
    pub(super) fn new(curves: &'a mut Curves<'b>, demand: u32) -> Self {
        Self { curves, demand }
    }
}

impl Outlook for Alone<'_, '_> {
    fn keeps(&mut self, servers: &[u32], targets_ppm: &[u32]) -> bool {
        self.demand == 0 || self.curves.at_home_ppm(self.demand, servers[0]) <= targets_ppm[0]
    }

    fn lack(&mut self, _site: usize, servers: u32, target_ppm: u32) -> i64 {
        lack(self.curves, self.demand, servers, target_ppm)
    }
}

fn lack(curves: &mut Curves<'_>, demand: u32, servers: u32, target_ppm: u32) -> i64 {
    i64::from(demand) - i64::from(curves.room(servers, target_ppm))
}

/// What became of the requests of one step.
pub(super) struct Served {
    /// Of each site's own requests: quanta times parts per million.
    pub(super) violations: Vec<u64>,
    /// Quanta that crossed between sites.
    pub(super) redirected: u32,
}

impl Served {
    /// Nobody redirects.
    pub(super) fn at_home(curves: &mut Curves<'_>, demand: &[u32], serving: &[u32]) -> Self {
        let of_site = |(&demand, &servers): (&u32, &u32)| {
            u64::from(demand) * u64::from(curves.at_home_ppm(demand, servers))
        };
        Self { violations: demand.iter().zip(serving).map(of_site).collect(), redirected: 0 }
    }
}

/// Sites that redirect by a plan.
pub(super) struct Sharing<'a, 'b> {
    capacity: &'a Capacity,
    curves: &'a mut Curves<'b>,
    demand: &'a [u32],
    /// For the fewest violations, not for the fewest redirects.
    few_violations: bool,
}

impl<'a, 'b> Sharing<'a, 'b> {
    pub(super) fn new(
        capacity: &'a Capacity,
        curves: &'a mut Curves<'b>,
        demand: &'a [u32],
        few_violations: bool,
    ) -> Self {
        Self { capacity, curves, demand, few_violations }
    }

    /// How the present demand is served by these servers.
    pub(super) fn served(&mut self, serving: &[u32]) -> Served {
        let targets = vec![self.capacity.target_ppm; serving.len()];
        if !self.few_violations && self.keeps_at_home(serving, &targets) {
            return Served::at_home(self.curves, self.demand, serving);
        }
        let (problem, answer) = self.solved(serving, &targets);
        Served { violations: violations(&problem, &answer), redirected: answer.redirected }
    }

    fn keeps_at_home(&mut self, servers: &[u32], targets_ppm: &[u32]) -> bool {
        let mut sites = self.demand.iter().zip(servers).zip(targets_ppm);
        sites.all(|((&demand, &servers), &target)| {
            demand == 0 || self.curves.at_home_ppm(demand, servers) <= target
        })
    }

    /// Whether too much would have to be shed, whoever serves whom.
    fn is_hopeless(&mut self, servers: &[u32], targets_ppm: &[u32]) -> bool {
        let saturation = |(site, &servers): (usize, &u32)| {
            u64::from(self.curves.table(site, site, servers).saturation)
        };
        let most: u64 = servers.iter().enumerate().map(saturation).sum();
        let demand: u64 = self.demand.iter().map(|&demand| u64::from(demand)).sum();
        let target = targets_ppm.iter().max().copied().unwrap_or_default();
        demand.saturating_sub(most) * 1_000_000 > demand * u64::from(target)
    }

    fn solved(&mut self, servers: &[u32], targets_ppm: &[u32]) -> (Problem, Answer) {
        let problem = self.problem(servers);
        let objective = if self.few_violations {
            Objective::Violations
        } else {
            Objective::Cost(Target::Local(targets_ppm.to_vec()))
        };
        let effort = Effort::one_in_a_million(&problem);
        // A site beyond saturation would be a place to throw the target's share of requests away.
        let question = Question { objective, relay: false, overload: Overload::Capped, effort };
        let answer = solve(&problem, &question).expect("one target for each site");
        (problem, answer)
    }

    fn problem(&mut self, servers: &[u32]) -> Problem {
        let sites = servers.len();
        let levels = self.demand.iter().sum::<u32>() as usize + 1;
        let mut curves = Vec::with_capacity(sites);
        for from in 0..sites {
            let curve = |to: usize| {
                let table = self.curves.table(from, to, servers[to]);
                table.misses_ppm[..levels.min(table.misses_ppm.len())].to_vec()
            };
            curves.push((0..sites).map(curve).collect());
        }
        let saturation = |to: usize| self.curves.table(to, to, servers[to]).saturation;
        let saturation = (0..sites).map(saturation).collect();
        let micros = |trip: &Duration| u32::try_from(trip.as_micros()).unwrap_or(u32::MAX);
        let row = |row: &Vec<Duration>| row.iter().map(micros).collect();
        let distances: Vec<Vec<u32>> = self.capacity.round_trips.iter().map(row).collect();
        let problem = Problem::new(self.demand.to_vec(), curves);
        let problem = problem.and_then(|problem| problem.with_saturation(saturation));
        let problem = problem.and_then(|problem| problem.with_distances(&distances));
        problem.expect("checked when the input was, and when tables were made")
    }
}

impl Outlook for Sharing<'_, '_> {
    fn keeps(&mut self, servers: &[u32], targets_ppm: &[u32]) -> bool {
        if !self.few_violations && self.keeps_at_home(servers, targets_ppm) {
            return true;
        }
        if self.is_hopeless(servers, targets_ppm) {
            return false;
        }
        let (problem, answer) = self.solved(servers, targets_ppm);
        let violations = violations(&problem, &answer);
        let mut sites = violations.iter().zip(self.demand).zip(targets_ppm);
        sites.all(|((&violations, &demand), &target)| {
            violations <= u64::from(demand) * u64::from(target)
        })
    }

    fn lack(&mut self, site: usize, servers: u32, target_ppm: u32) -> i64 {
        lack(self.curves, self.demand[site], servers, target_ppm)
    }
}

/// Of each site's own requests, shed ones included: quanta times parts per million.
fn violations(problem: &Problem, answer: &Answer) -> Vec<u64> {
    let of_site = |(from, row): (usize, &Vec<u32>)| {
        let at = |(to, &quanta): (usize, &u32)| {
            u64::from(quanta) * u64::from(problem.violation_ppm(from, to, answer.loads[to]))
        };
        let served: u64 = row.iter().enumerate().map(at).sum();
        served + u64::from(answer.shed[from]) * 1_000_000
    };
    answer.rates.iter().enumerate().map(of_site).collect()
}
