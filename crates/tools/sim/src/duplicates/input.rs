//! Duplicated stores as a scenario file (`scenarios/duplicates.toml`).

use std::time::Duration;

use evenkeel_settings::{Mismatch, Node, Problems, Table};

use super::deployment::{Arrivals, Common, Copies, Cost, Deployment, Pauses, Workload};
use super::law::{Law, Shape};
use super::layout::Layout;

/// Copies of a run at most: in a run with too much load most of them wait, and that takes memory.
const COPIES_MAX: u64 = 100_000_000;
/// The longest service, delay and bound.
const LONG: Duration = Duration::from_secs(3_600);
/// The shortest mean: below it nanoseconds are coarse.
const SHORT: Duration = Duration::from_micros(1);
/// Shards at most.
const SHARDS_MAX: usize = 1_024;

/// A scenario file with a `[store]`.
#[derive(Clone, PartialEq, Debug)]
pub struct DuplicatesScenario {
    /// What is simulated.
    pub deployment: Deployment,
    /// The policies to compare, as `2p2d`.
    pub policies: Vec<String>,
    /// What it is about, in a sentence.
    pub description: String,
}

impl DuplicatesScenario {
    /// Whether a scenario file is one of these.
    pub fn is_meant(node: &Node) -> bool {
        node.has("store")
    }

    /// Reads `[store]`, `[workload]`, `[copies]`, `[pauses]`, `[common]`, `[cost]`, `[observe]` and
    /// `[run]`.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place.
    pub fn read(node: &Node) -> Result<Self, Problems> {
        node.read(|root| {
            let default = Deployment::default();
            let store = root.key("store").section(Store::read);
            let mut deployment = Deployment {
                phases: store.phases,
                reading: store.reading,
                known: store.known,
                workload: Workload::default(),
                copies: root.key("copies").section(copies),
                pauses: root.key("pauses").table(pauses).optional(),
                common: root.key("common").section(common),
                bound: store.bound,
                cost: root.key("cost").section(cost),
                ..default
            };
            root.key("observe").section(|table| observe(table, &mut deployment));
            let mean_s = deployment.mean_service_nanos() * 1e-9;
            deployment.workload = root.key("workload").section(|table| workload(table, mean_s));
            let shards = deployment.workload.shards;
            let policies = root.key("run").section(|table| policies(table, shards));
            if root.is_sound() {
                check_copies(root, &deployment.workload, &policies);
            }
            let description = root.key("description").text().or(String::new());
            Self { deployment, policies, description }
        })
    }
}

/// What `[store]` says.
struct Store {
    phases: Vec<(f64, Law)>,
    reading: Option<Law>,
    known: Option<Law>,
    bound: Duration,
}

impl Store {
    fn read(table: &mut Table<'_>) -> Self {
        let default = Deployment::default();
        let law = law(table);
        let later = table.key("phases").list(|item| item.table(phase).required()).or(Vec::new());
        let is_in_order = later.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if table.is_sound() && !is_in_order {
            let came = "phases that are not in order";
            table.problem("phases", Mismatch::new(came, "each `at` above the one before"));
        }
        Self {
            phases: core::iter::once((0.0, law)).chain(later).collect(),
            reading: table.key("reads").table(self::law).optional(),
            known: table.key("known").table(self::law).optional(),
            bound: table.key("bound").duration().between(SHORT..=LONG).or(default.bound),
        }
    }
}

/// `law` and `mean`.
fn law(table: &mut Table<'_>) -> Law {
    let shape = table.key("law").variant(&Shape::NAMED).or(Shape::ZookeeperWrite);
    let mean = table.key("mean").duration().between(SHORT..=Duration::from_secs(60));
    Law::new(shape, mean.or(Duration::from_millis(3)))
}

fn phase(table: &mut Table<'_>) -> (f64, Law) {
    (table.key("at").probability().required(), law(table))
}

fn workload(table: &mut Table<'_>, mean_service_s: f64) -> Workload {
    let default = Workload::default();
    let batch = table.key("batch").integer().between(1..=10_000).or(default.batch);
    let rate = table.key("rate").rate().between(1e-6..=1e9).optional();
    let utilisation = table.key("utilisation").number().between(1e-6..=10.0).optional();
    let nodes = table.key("nodes").number().between(1.0..=1e6).or(1.0);
    if rate.is_some() && utilisation.is_some() {
        let came = "`utilisation` beside `rate`";
        table.problem("utilisation", Mismatch::new(came, "one of the two"));
    }
    let of_nodes = utilisation.map(|share| share * nodes / mean_service_s);
    let factor =
        |item: evenkeel_settings::Setting<'_>| item.number().between(1e-3..=1e3).required();
    let read = Workload {
        arrivals: table.key("arrivals").variant(&Arrivals::NAMED).or(default.arrivals),
        rate: rate.or(of_nodes).unwrap_or(default.rate),
        batch,
        reads: table.key("reads").probability().or(default.reads),
        shards: table.key("shards").integer().between(1..=SHARDS_MAX).or(default.shards),
        accesses: table.key("accesses").integer().between(1..=COPIES_MAX).or(default.accesses),
        warmup: table.key("warmup").number().between(0.0..=0.9).or(default.warmup),
        factors: table.key("factors").list(factor).or(default.factors),
    };
    if table.is_sound() && read.arrivals != Arrivals::Poisson && read.batch > 1 {
        let came = format!("{:?} with batches of {}", read.arrivals.name(), read.batch);
        table.problem("arrivals", Mismatch::new(came, "\"poisson\", or batch = 1"));
    }
    read
}

fn copies(table: &mut Table<'_>) -> Copies {
    let default = Deployment::default().copies;
    let mut short = |key: &str, or| {
        table.key(key).duration().between(Duration::ZERO..=Duration::from_secs(60)).or(or)
    };
    Copies {
        one_way: short("one_way", default.one_way),
        repeat: short("repeat", default.repeat),
        prune: short("prune", default.prune),
        cancel: table.key("cancel").boolean().or(default.cancel),
    }
}

fn pauses(table: &mut Table<'_>) -> Pauses {
    let least = Duration::from_micros(1);
    let read = Pauses {
        every: table.key("every").duration().between(Duration::from_millis(1)..=LONG).required(),
        least: table.key("least").duration().between(least..=LONG).or(Duration::from_millis(10)),
        most: table.key("most").duration().between(least..=LONG).or(Duration::from_secs(1)),
        power: table.key("power").number().between(0.1..=100.0).or(1.5),
        together: table.key("together").probability().or(0.0),
    };
    in_order(table, read.least, read.most);
    read
}

fn common(table: &mut Table<'_>) -> Common {
    let default = Deployment::default().common;
    let mut long = |key: &str, or| table.key(key).duration().between(SHORT..=LONG).or(or);
    let (least, most) = (long("least", default.least), long("most", default.most));
    let read = Common { share: table.key("share").probability().or(default.share), least, most };
    in_order(table, least, most);
    read
}

fn in_order(table: &mut Table<'_>, least: Duration, most: Duration) {
    if table.is_sound() && most < least {
        let came = evenkeel_settings::format_duration(most);
        table.problem("most", Mismatch::new(came, "at least as long as `least`"));
    }
}

fn cost(table: &mut Table<'_>) -> Cost {
    let default = Deployment::default().cost;
    let mut price = |key: &str, or| table.key(key).number().between(0.0..=1e9).or(or);
    let per_node = price("per_node", default.per_node);
    Cost { per_node, per_violation: price("per_violation", default.per_violation) }
}

fn observe(table: &mut Table<'_>, deployment: &mut Deployment) {
    let accesses = table.key("lindley").integer().between(0..=10_000_000);
    deployment.lindley_accesses = accesses.or(deployment.lindley_accesses);
    deployment.window = table.key("window").integer().between(0..=10_000_000).or(0);
    deployment.compared = table.key("pairs").integer().between(0..=10_000_000).or(0);
}

fn policies(table: &mut Table<'_>, shards: usize) -> Vec<String> {
    let one = |item: evenkeel_settings::Setting<'_>| {
        item.parsed("a policy such as \"2p2d\"", String::new(), |text| {
            Layout::parse(text, shards).map(|_| text.to_owned())
        })
        .required()
    };
    let default = ["4p1d", "2p2d", "1p4d"].map(str::to_owned).to_vec();
    let all = table.key("policies").list(one);
    all.check("one policy or more", |all| !all.is_empty()).or(default)
}

fn check_copies(root: &mut Table<'_>, workload: &Workload, policies: &[String]) {
    for policy in policies {
        let Ok(layout) = Layout::parse(policy, workload.shards) else { continue };
        let most = layout.partitions.iter().map(|one| one.duplicates as u64).max().unwrap_or(1);
        if workload.accesses.saturating_mul(most) > COPIES_MAX {
            let came = format!("{} accesses with {most} copies of each", workload.accesses);
            let expected = format!("at most {COPIES_MAX} copies in a run");
            root.problem("workload", Mismatch::new(came, expected));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<DuplicatesScenario, String> {
        let node = Node::parse(text, "zoo.toml").map_err(|problems| problems.to_string())?;
        DuplicatesScenario::read(&node).map_err(|problems| problems.to_string())
    }

    #[test]
    fn what_a_file_says_is_what_is_simulated() {
        let text = "[store]\nlaw = \"cassandra\"\nmean = \"1ms\"\nbound = \"150ms\"\n\
                    [workload]\nutilisation = 0.5\nnodes = 4\nbatch = 20\nshards = 6\n\
                    [pauses]\nevery = \"10s\"\n[run]\npolicies = [\"3p1d\", \"2s1d+1s2d\"]";
        let scenario = read(text).unwrap();
        let deployment = &scenario.deployment;
        // Half of four nodes of a thousand accesses a second each.
        assert!((deployment.workload.rate - 2_000.0).abs() < 1e-9);
        assert_eq!(deployment.pauses.unwrap().every, Duration::from_secs(10));
        assert_eq!(scenario.policies, ["3p1d", "2s1d+1s2d"]);
        assert_eq!(read("[store]").unwrap().deployment, Deployment::default());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, reported) in [
            ("[store]\nlaw = \"zoo\"", "zookeeper-write"),
            ("[store]\nmean = \"0ms\"", "zoo.toml:2"),
            ("[store]\nphases = [{at = 0.5}, {at = 0.2}]", "above the one before"),
            ("[workload]\nrate = 5\nutilisation = 0.5", "one of the two"),
            ("[workload]\nbatch = 0", "from 1 to"),
            ("[workload]\narrivals = \"after-all\"\nbatch = 2", "batch = 1"),
            ("[workload]\nshards = 7\n[run]\npolicies = [\"2p1d\"]", "7 shards"),
            ("[run]\npolicies = [\"c3\"]", "2p2d"),
            ("[run]\npolicies = []", "one policy or more"),
            ("[pauses]\nevery = \"1s\"\nleast = \"2s\"\nmost = \"1s\"", "as long as `least`"),
            ("[store]\nwaits = 3", "unknown key"),
            ("[workload]\naccesses = 9e7\n[run]\npolicies = [\"1p2d\"]", "100000000 copies"),
        ] {
            let problem = read(text).expect_err(text);
            assert!(problem.contains(reported), "{text}: {problem}");
        }
    }
}
