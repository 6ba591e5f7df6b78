//! What befalls a run's replicas and what its requests cost, drawn from the seed before anybody
//! decides anything. Every policy meets the same, and so do the simulator and real sockets, whose
//! servers follow it by the clock (`evenkeel demo`).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use evenkeel_core::{Duration, Instant, Rng};

use crate::fault::{Fault, Target, What};
use crate::scenario::{Cluster, Fluctuation, Scenario};
use crate::script::Script;
pub use crate::script::{Effect, Strike};
use crate::workload::{self, Arriving, CoreTime};

/// The strikes of a run in the order of time; without end where the scenario repeats anything.
#[derive(Clone, Debug)]
pub struct Weather {
    servers: usize,
    racks: usize,
    fluctuation: Fluctuation,
    faults: Vec<Fault>,
    speeds: Rng,
    draws: Rng,
    /// What comes next of each source; equal times in the order in which they were drawn.
    due: BinaryHeap<Reverse<(Instant, u64, Source)>>,
    drawn: u64,
    /// What was recorded, in place of what is drawn, and how much of it was told.
    script: Option<(Arc<Script>, usize)>,
    /// Strikes of the moment that is being told.
    ready: VecDeque<Strike>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Speeds,
    /// A fault, by number.
    Fault(usize),
    /// A fault that strikes each replica or rack by itself, and one of them.
    FaultOf(usize, usize),
}

impl Weather {
    /// The weather of a scenario at a seed.
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut weather = Self {
            servers: scenario.cluster.servers,
            racks: scenario.cluster.racks,
            fluctuation: scenario.fluctuation.clone(),
            faults: scenario.faults.clone(),
            speeds: Rng::stream(seed, "fluctuation"),
            draws: Rng::stream(seed, "faults"),
            due: BinaryHeap::new(),
            drawn: 0,
            script: scenario.script.clone().map(|script| (script, 0)),
            ready: VecDeque::new(),
        };
        if !weather.fluctuation.interval.is_zero() {
            weather.schedule(Instant::ZERO, Source::Speeds);
        }
        for (number, fault) in scenario.faults.iter().enumerate() {
            let start = Instant::ZERO + fault.at;
            let each = match fault.target {
                Target::Each => weather.servers,
                Target::EachRack => weather.racks,
                _ => 0,
            };
            if each > 0 && !fault.every.is_zero() {
                for one in 0..each {
                    let at = start + fault.every.mul_f64(weather.draws.exponential());
                    weather.schedule(at, Source::FaultOf(number, one));
                }
            } else {
                weather.schedule(start, Source::Fault(number));
            }
        }
        weather
    }

    fn schedule(&mut self, at: Instant, source: Source) {
        self.drawn += 1;
        self.due.push(Reverse((at, self.drawn, source)));
    }

    fn fluctuate(&mut self, at: Instant) {
        let by_rack = self.fluctuation.by_rack;
        for one in 0..if by_rack { self.racks } else { self.servers } {
            let factor = if self.speeds.unit() < 0.5 { 1.0 } else { self.fluctuation.range };
            self.ready.extend(self.members(one, by_rack).map(|server| Strike {
                at,
                server,
                effect: Effect::Speed(factor),
            }));
        }
        self.schedule(at + self.fluctuation.interval, Source::Speeds);
    }

    /// A server by itself, or all of a rack.
    fn members(&self, number: usize, is_rack: bool) -> impl Iterator<Item = usize> + use<> {
        match is_rack {
            true => (number..self.servers).step_by(self.racks),
            false => (number..number + 1).step_by(1),
        }
    }

    fn strike(&mut self, at: Instant, number: usize, only: Option<usize>) {
        let Fault { every, target, what, .. } = self.faults[number];
        let one = |number: usize| number..number + 1;
        let struck = match (target, only) {
            (_, Some(number)) => one(number),
            (Target::Server(number) | Target::Rack(number), None) => one(number),
            (Target::Random, None) => one(self.draws.below(self.servers)),
            (Target::RandomRack, None) => one(self.draws.below(self.racks)),
            (Target::Each, None) => 0..self.servers,
            (Target::EachRack, None) => 0..self.racks,
        };
        for number in struck {
            let effect = match what {
                What::Pause { shortest, longest } => {
                    Effect::Pause(shortest + (longest - shortest).mul_f64(self.draws.unit()))
                }
                what => Effect::Fault(what),
            };
            let members = self.members(number, target.is_of_racks());
            self.ready.extend(members.map(|server| Strike { at, server, effect }));
        }
        if !every.is_zero() {
            let source = only.map_or(Source::Fault(number), |one| Source::FaultOf(number, one));
            let next = at + every.mul_f64(self.draws.exponential());
            self.schedule(next, source);
        }
    }
}

impl Iterator for Weather {
    type Item = Strike;

    fn next(&mut self) -> Option<Strike> {
        if let Some((script, told)) = &mut self.script {
            *told += 1;
            return script.strikes.get(*told - 1).copied();
        }
        while self.ready.is_empty() {
            let Reverse((at, _, source)) = self.due.pop()?;
            match source {
                Source::Speeds => self.fluctuate(at),
                Source::Fault(number) => self.strike(at, number, None),
                Source::FaultOf(number, server) => self.strike(at, number, Some(server)),
            }
        }
        self.ready.pop_front()
    }
}

/// What the requests of a run cost, by their number.
#[derive(Clone, Debug)]
pub struct RequestDraws {
    seeds: Vec<u64>,
    cluster: Cluster,
    core_time: Option<CoreTime>,
}

impl RequestDraws {
    /// Of all requests of a scenario at a seed, where one generator sends them.
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut arriving = Arriving::new(scenario, seed);
        let seeds = (0..scenario.workload.requests).map(|_| arriving.draw(0).work_seed).collect();
        let core_time = scenario.work.as_ref().map(CoreTime::new);
        Self { seeds, cluster: scenario.cluster.clone(), core_time }
    }

    /// What a request takes of a core on shared cores: in full, and without optional content.
    pub fn core_times(&self, request: u64) -> Option<[Duration; 2]> {
        let seed = *self.seeds.get(usize::try_from(request).ok()?)?;
        let core_time = self.core_time.as_ref()?;
        let time = |is_full| Duration::from_nanos(core_time.nanos(seed, 0, is_full) as u64);
        Some([true, false].map(time))
    }

    /// In slots, the n-th copy of a request: its work as a multiple of the mean, and its luck in
    /// [0, 1), by which a share of requests fails. `None` beyond the last request.
    pub fn of(&self, request: u64, copy: u32) -> Option<(f64, f64)> {
        let seed = *self.seeds.get(usize::try_from(request).ok()?)?;
        let luck = workload::luck(seed, copy, workload::FAILS);
        Some((workload::work_in_slot(&self.cluster, seed, copy), luck))
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_settings::Node;

    use super::*;

    fn weather(text: &str, seed: u64) -> Weather {
        let node = Node::parse(text, "scenario.toml").unwrap();
        Weather::new(&Scenario::read(&node).unwrap(), seed)
    }

    const STORMY: &str = "[cluster]\nservers = 3\n[fluctuation]\ninterval = '100ms'\nrange = 2\n\
        [[faults]]\nat = '50ms'\nevery = '70ms'\npause = 'each'\nfor = '5ms'\nfor_max = '9ms'\n\
        [[faults]]\nat = '100ms'\nevery = '30ms'\nslow = 'random'\nfactor = 4\n\
        [[faults]]\nat = '400ms'\nfail = 1\nshare = 0.5\n";

    #[test]
    fn strikes_come_in_order_the_same_for_the_same_seed() {
        let first: Vec<_> = weather(STORMY, 7).take(2_000).collect();
        assert!(first.is_sorted_by_key(|strike| strike.at));
        assert!(first.iter().eq(weather(STORMY, 7).take(2_000).collect::<Vec<_>>().iter()));
        assert_ne!(first, weather(STORMY, 8).take(2_000).collect::<Vec<_>>());
        let lengths = first.iter().filter_map(|strike| match strike.effect {
            Effect::Pause(length) => Some(length),
            _ => None,
        });
        let (least, most) = (Duration::from_millis(5), Duration::from_millis(9));
        assert!(lengths.clone().all(|length| (least..=most).contains(&length)));
        assert!(lengths.count() > 100);
    }

    #[test]
    fn repeated_faults_come_as_often_as_was_asked() {
        let until = Instant::from_millis(100_000);
        let storm: Vec<_> = weather(STORMY, 3).take_while(|strike| strike.at < until).collect();
        let count = |is_it: fn(&Effect) -> bool| {
            storm.iter().filter(|strike| is_it(&strike.effect)).count() as f64
        };
        let pauses = count(|effect| matches!(effect, Effect::Pause(_)));
        let slows = count(|effect| matches!(effect, Effect::Fault(What::Slow { .. })));
        // Poisson: 3 × 99 950 / 70 and 99 900 / 30 with four standard deviations.
        assert!((pauses - 4_283.0).abs() < 4.0 * 66.0, "{pauses}");
        assert!((slows - 3_330.0).abs() < 4.0 * 58.0, "{slows}");
        assert_eq!(count(|effect| matches!(effect, Effect::Speed(_))), 3_000.0);
        assert_eq!(count(|effect| matches!(effect, Effect::Fault(What::Fail { .. }))), 1.0);
    }

    #[test]
    fn weather_that_repeats_nothing_ends() {
        let text = "[cluster]\nservers = 3\n[[faults]]\nat = '1s'\ncrash = 'each'\n";
        assert_eq!(weather(text, 1).count(), 3);
        assert_eq!(weather("", 1).count(), 0);
    }
}
