//! A day of a fleet as a scenario file (`scenarios/leader-day.toml`).

use evenkeel_planner::model::Route;
use evenkeel_settings::{Mismatch, Node, Problems, Setting, Table};

use super::day::{Day, Strategy};
use super::fleet::{FleetSpec, MIXES, Mix};
use super::geography::Continent;

/// Databases of a fleet at most.
const DATABASES_MAX: usize = 10_000;
/// Intervals at most: thirty days.
const INTERVALS_MAX: usize = 30 * super::fleet::INTERVALS_PER_DAY;

/// A scenario file with a `[fleet]`.
#[derive(Clone, PartialEq, Debug)]
pub struct DayScenario {
    /// What is simulated.
    pub day: Day,
    /// The strategies to compare, by name.
    pub strategies: Vec<String>,
    /// What it is about, in a sentence.
    pub description: String,
}

impl DayScenario {
    /// Whether a scenario file is one of these.
    pub fn is_meant(node: &Node) -> bool {
        node.has("fleet")
    }

    /// Reads `[fleet]`, `[placement]` and `[run]`.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place.
    pub fn read(node: &Node) -> Result<Self, Problems> {
        node.read(|root| {
            let fleet = root.key("fleet").section(fleet);
            let default = Day::default();
            let (tau, route) = root.key("placement").section(|table| {
                let tau = table.key("tau").number().between(1.0..=f64::INFINITY).or(default.tau);
                (tau, table.key("route").variant(&Route::NAMED).or(default.route))
            });
            let strategies = root.key("run").section(|table| {
                let all: Vec<&str> = Strategy::NAMED.iter().map(|(name, _)| *name).collect();
                let one = |item: Setting<'_>| item.choice(&all).required().to_owned();
                table.key("policies").list(one).or(all.iter().map(|it| (*it).to_owned()).collect())
            });
            let description = root.key("description").text().or(String::new());
            Self { day: Day { fleet, tau, route }, strategies, description }
        })
    }
}

fn fleet(table: &mut Table<'_>) -> FleetSpec {
    let default = FleetSpec::default();
    let share = |setting: Setting<'_>, default| setting.probability().or(default);
    let mixes = table.key("mixes").list(|item| item.variant(&MIXES).required());
    let mixes = mixes.check("one mix or more", |list| !list.is_empty()).or(default.mixes);
    let own = table.key("mix").list(|item| item.number().between(0.0..=1.0).required());
    let own = own.check("five shares that add up to 1", |shares| is_mix(shares)).optional();
    let continents =
        table.key("continents").list(|item| item.variant(&Continent::NAMED).required());
    let continents =
        continents.check("one continent or more", |list| !list.is_empty()).or(default.continents);
    let spec = FleetSpec {
        databases: table
            .key("databases")
            .integer()
            .between(1..=DATABASES_MAX)
            .or(default.databases),
        intervals: table
            .key("intervals")
            .integer()
            .between(2..=INTERVALS_MAX)
            .or(default.intervals),
        spikes_per_day: table
            .key("spikes_per_day")
            .number()
            .between(0.0..=48.0)
            .or(default.spikes_per_day),
        mixes: own.map_or(mixes, |own| vec![mix(&own)]),
        continents,
        replicas: table.key("replicas").integer().between(3..=16).or(default.replicas),
        voters: table.key("voters").integer().between(1..=16).or(default.voters),
        spread: table.key("spread").number().between(0.001..=10.0).or(default.spread),
        sigma: table.key("sigma").number().between(0.0..=5.0).or(default.sigma),
        preferred_share: share(table.key("preferred_share"), default.preferred_share),
        voters_anywhere: table.key("voters_anywhere").boolean().or(default.voters_anywhere),
    };
    if table.is_sound() && spec.voters > spec.replicas {
        let expected = format!("at most as many as replicas, {}", spec.replicas);
        table.problem("voters", Mismatch::new(spec.voters.to_string(), expected));
    }
    spec
}

fn is_mix(shares: &[f64]) -> bool {
    shares.len() == Mix::default().len() && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-6
}

fn mix(shares: &[f64]) -> Mix {
    let mut mix = Mix::default();
    mix.iter_mut().zip(shares).for_each(|(into, share)| *into = *share);
    mix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<DayScenario, String> {
        let node = Node::parse(text, "day.toml").map_err(|problems| problems.to_string())?;
        DayScenario::read(&node).map_err(|problems| problems.to_string())
    }

    #[test]
    fn what_a_file_says_is_what_is_simulated() {
        let text = "[fleet]\ndatabases = 3\nmix = [0.5, 0.0, 0.2, 0.3, 0.0]\nvoters = 5\n\
                    [placement]\ntau = 4\nroute = \"bestpath\"\n[run]\npolicies = [\"qk\"]";
        let scenario = read(text).expect("it is sound");
        assert_eq!(scenario.day.fleet.mixes, [[0.5, 0.0, 0.2, 0.3, 0.0]]);
        assert_eq!((scenario.day.tau, scenario.day.route), (4.0, Route::BestPath));
        assert_eq!((scenario.day.fleet.databases, scenario.day.fleet.voters), (3, 5));
        assert_eq!(scenario.strategies, ["qk"]);
        assert_eq!(read("").expect("all has defaults").day, Day::default());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, reported) in [
            ("[fleet]\nmix = [0.5, 0.4]", "day.toml:2"),
            ("[fleet]\nvoters = 9", "as many as replicas, 7"),
            ("[fleet]\nmixes = [\"weird\"]", "strong-multi"),
            ("[placement]\ntau = 0.5", "placement.tau"),
            ("[run]\npolicies = [\"best-of\"]", "best"),
        ] {
            let problem = read(text).expect_err(text);
            assert!(problem.contains(reported), "{problem}");
        }
    }
}
