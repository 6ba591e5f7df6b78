//! What must be set alike, told once on every connection: a row's fingerprint says that two sites
//! differ, these say in what.

use evenkeel_core::time::nanos;
use evenkeel_geo::epoch::StableHash;
use evenkeel_geo::planner::{Planner, Setting, Writes};

use super::message::Hello;

/// Hashes of everything that must be set alike: the sites, then what the planner goes by, the
/// objective first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    names: Vec<String>,
    sites: u32,
    planner: Vec<(Setting, u32)>,
}

impl Settings {
    pub(super) fn new(names: &[String], planner: &Planner) -> Self {
        Self { names: names.to_vec(), sites: of_sites(names), planner: planner.settings() }
    }

    /// They as bytes: four for each.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let planner = self.planner.iter().map(|(_, hash)| *hash);
        [self.sites].into_iter().chain(planner).flat_map(u32::to_le_bytes).collect()
    }

    /// In what those of a peer differ, in words; `None` when the bytes are no settings.
    pub(super) fn differing(&self, theirs: &[u8]) -> Option<Vec<String>> {
        let (hashes, []) = theirs.as_chunks::<4>() else { return None };
        let mut hashes = hashes.iter().map(|hash| u32::from_le_bytes(*hash));
        let mut words = Vec::new();
        if hashes.next()? != self.sites {
            words.push("the sites or their order".to_owned());
        }
        let fixed = self.planner.iter().filter(|(of, _)| !matches!(of, Setting::Curves(_)));
        for (setting, hash) in fixed {
            if hashes.next()? != *hash {
                words.push(setting.words(&self.names));
            }
        }
        // Of other sites there are other curves: that says nothing.
        if words.iter().any(|word| word.starts_with("the sites")) {
            return Some(words);
        }
        let curves = self.planner.iter().filter(|(of, _)| matches!(of, Setting::Curves(_)));
        for (setting, hash) in curves {
            if hashes.next()? != *hash {
                words.push(setting.words(&self.names));
            }
        }
        Some(words)
    }

    /// The setting, if any, in which a follower differs; all others it takes from us.
    pub(super) fn unlike(&self, hello: &Hello) -> Option<Unlike> {
        let ours = |of: Setting| self.planner.iter().find(|(setting, _)| *setting == of);
        let differs = |of, theirs: u32| ours(of).is_none_or(|(_, hash)| *hash != theirs);
        if hello.sites != self.sites {
            return Some(Unlike::Sites);
        }
        if differs(Setting::Objective, hello.objective) {
            return Some(Unlike::Objective);
        }
        differs(Setting::Writes, hello.writes).then_some(Unlike::Writes)
    }
}

evenkeel_core::named! {
    /// In what a follower and its controller differ.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum Unlike {
        /// The names of the sites, or their order.
        Sites = "another list or order of [[redirect.sites]]",
        /// The objective.
        Objective = "another objective",
        /// Whether writes stay.
        Writes = "another writes_stay",
    }
}

impl Unlike {
    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A hash of the names of the sites in their order.
pub(super) fn of_sites(names: &[String]) -> u32 {
    let mut hash = StableHash::default();
    for name in names {
        hash.number(name.len() as u64);
        hash.bytes(name.to_ascii_lowercase().as_bytes());
    }
    short(&hash)
}

/// A hash of an objective, as the planner has it.
pub(super) fn of_objective(objective: std::time::Duration) -> u32 {
    of_number(nanos(objective))
}

/// A hash of whether writes stay, as the planner has it.
pub(super) fn of_writes(writes_stay: bool) -> u32 {
    of_number(if writes_stay { Writes::Home } else { Writes::Redirected } as u64)
}

fn of_number(number: u64) -> u32 {
    let mut hash = StableHash::default();
    hash.number(number);
    short(&hash)
}

fn short(hash: &StableHash) -> u32 {
    let hash = hash.finish();
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evenkeel_geo::curve::ResponseCurves;
    use evenkeel_geo::planner::{PlannerConfig, SiteCurves};

    use super::*;

    fn settings(names: &[&str], service_ms: [u64; 2], change: fn(&mut PlannerConfig)) -> Settings {
        let objective = Duration::from_millis(100);
        let curves = service_ms.map(|service| {
            let service = Duration::from_millis(service);
            let curves = ResponseCurves::markov(objective, 4.try_into().unwrap(), service);
            SiteCurves::single(curves.unwrap())
        });
        let mut config = PlannerConfig::new(Duration::from_millis(400));
        change(&mut config);
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Settings::new(&names, &Planner::new(config, curves.into()).unwrap())
    }

    #[test]
    fn every_difference_is_named() {
        let ours = settings(&["london", "ireland"], [20, 20], |_| {});
        let differing = |other: &Settings| ours.differing(&other.bytes()).unwrap();
        assert_eq!(differing(&ours), [""; 0]);
        let other = settings(&["london", "ireland"], [20, 21], |config| config.relay = true);
        assert_eq!(differing(&other), ["relay", "the curves of ireland"]);
        let other = settings(&["ireland", "london"], [20, 20], |_| {});
        assert_eq!(differing(&other), ["the sites or their order"]);
        let longer = |config: &mut PlannerConfig| {
            *config = PlannerConfig::new(Duration::from_millis(500));
        };
        let other = settings(&["london", "ireland"], [20, 20], longer);
        assert_eq!(differing(&other), ["period"]);
        assert_eq!(ours.differing(b"no settings"), None);
        assert_eq!(ours.differing(&[]), None);
    }

    #[test]
    fn a_follower_needs_the_sites_the_objective_and_where_writes_go() {
        let names = ["london".to_owned(), "ireland".to_owned()];
        let ours = settings(&["london", "ireland"], [20, 20], |_| {});
        let objective = of_objective(Duration::from_millis(100));
        let writes = of_writes(false);
        let alike = Hello { run: 1, workers: 1, sites: of_sites(&names), objective, writes };
        assert_eq!(ours.unlike(&alike), None);
        let other = Hello { sites: of_sites(&names[..1]), ..alike };
        assert_eq!(ours.unlike(&other), Some(Unlike::Sites));
        let other = Hello { objective: of_objective(Duration::from_millis(99)), ..alike };
        assert_eq!(ours.unlike(&other), Some(Unlike::Objective));
        let other = Hello { writes: of_writes(true), ..alike };
        assert_eq!(ours.unlike(&other), Some(Unlike::Writes));
        for unlike in [Unlike::Sites, Unlike::Objective, Unlike::Writes] {
            assert_eq!(Unlike::of(unlike.code()), Some(unlike));
        }
    }
}
