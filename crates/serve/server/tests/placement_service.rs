//! The placement of a running process: configuration, counting, deciding, telling.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evenkeel_placement::PlacementState;
use evenkeel_placement::config::{PlacementConfig, PlacementTier, StoreConfig};
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::{Node, Problems};
use evenkeel_testkit::story::MS;
use evenkeel_testkit::wait::block_state;
use evenkeel_testkit::{folder, http};
use serde_json::{Value, json};

const GUIDE: &str = include_str!("../../../../docs/placement.md");

/// Three sites: `west` and `east` are 80 ms apart, `mid` is 30 ms from the one and 60 from the
/// other.
const ROUND_TRIPS: &str =
    "from\\to_rtt_ms,west,mid,east\nwest,0.5,30,80\nmid,30,0.5,60\neast,80,60,0.5\n";

/// A folder with round trips.
struct Folder(folder::Folder);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = folder::Folder::new(name);
        std::fs::write(folder.file("rtt.csv"), ROUND_TRIPS).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.file(name), text).unwrap();
    }

    fn read(&self, text: &str) -> Result<PlacementConfig, Problems> {
        let file = self.0.file("run.toml");
        let node = Node::parse(text, &file.display().to_string())?;
        Config::read(&node).map(|config| config.placement.unwrap())
    }

    fn problems(&self, text: &str) -> Vec<String> {
        let found = self.read(text).unwrap_err();
        let file = format!("{}/", self.0.path().display());
        found.iter().map(|problem| problem.to_string().replace(&file, "")).collect()
    }

    fn one_problem(&self, text: &str, line: usize, says: &str) {
        let found = self.problems(text);
        assert_eq!(found.len(), 1, "{found:#?}\nin\n{text}");
        assert!(found[0].starts_with(&format!("run.toml:{line}:")), "{}\nin\n{text}", found[0]);
        assert!(found[0].contains(says), "{}\nlacks {says:?}", found[0]);
    }
}

const HEAD: &str = "[placement]\nround_trips = 'rtt.csv'\n";
const DATABASE: &str = "[[placement.databases]]\nname = 'orders'\n\
                        operations = { csv = 'counts.csv' }\n";
const TODAY: &str = "today = { leader = 'west', voters = ['west', 'mid', 'east'] }\n";

#[test]
fn a_small_table_has_the_defaults_of_the_paper() {
    let folder = Folder::new("placement-defaults");
    let config = folder.read(&format!("{HEAD}{DATABASE}{TODAY}")).unwrap();
    assert_eq!(config.interval, Duration::from_secs(1_800));
    assert_eq!((config.tier, config.tau, config.dry_run), (PlacementTier::Leader, 2.0, true));
    assert_eq!(
        (config.steady.intervals, config.steady.cooldown),
        (3, Duration::from_secs(4 * 1_800))
    );
    assert_eq!((config.steady.gain_min, config.steady.payback_intervals), (0.02, 8.0));
    let [orders] = config.databases.as_slice() else { panic!("{config:?}") };
    assert_eq!(orders.sites.as_ref(), ["west", "mid", "east"]);
    assert_eq!(
        orders.trips.as_ref().unwrap().from_site(0),
        [0.0, 30.0, 80.0],
        "a leader's own vote takes no time"
    );
    assert_eq!(orders.trips.as_ref().unwrap().from_client(2), [80.0, 60.0, 0.5]);
    assert_eq!(orders.today.as_ref().unwrap().replicas(), [0, 1, 2]);
    let hourly = format!("{HEAD}interval = '1h'\ncooldown = '90m'\n{DATABASE}{TODAY}");
    assert_eq!(folder.read(&hourly).unwrap().steady.cooldown, Duration::from_secs(5_400));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_cause() {
    let folder = Folder::new("placement-problems");
    let whole = |head: &str, database: &str, today: &str| {
        format!("{HEAD}{head}[[placement.databases]]\nname = 'orders'\n{database}{today}")
    };
    let csv = "operations = { csv = 'counts.csv' }\n";
    folder.one_problem(&whole("zz = 4\n", csv, TODAY), 3, "zz");
    folder.one_problem(&whole("tier = 4\n", csv, TODAY), 3, "from 1 to 3");
    folder.one_problem(&whole("dry_run = false\n", csv, TODAY), 3, "an audit log");
    folder.one_problem(&whole("window = '2-4'\n", csv, TODAY), 3, "02:00-04:00");
    folder.one_problem(&whole("window = 'funday 02:00-04:00'\n", csv, TODAY), 3, "funday");
    folder.one_problem(&whole("voter_domains = 2\n", csv, TODAY), 3, "domains too");
    folder.one_problem(&whole("", csv, ""), 3, "neither today nor system");
    folder.one_problem(&whole("", "operations = {}\n", TODAY), 5, "neither of them");
    let no_port = "operations = { prometheus = 'http://localhost' }\n";
    folder.one_problem(&whole("", no_port, TODAY), 5, "http://host:port");
    let secure = no_port.replace("http://localhost", "https://localhost:9090");
    folder.one_problem(&whole("", &secure, TODAY), 5, "ca_file");
    let unknown = TODAY.replace("leader = 'west'", "leader = 'wset'");
    folder.one_problem(&whole("", csv, &unknown), 6, "did you mean \"west\"?");
    let no_voter = TODAY.replace("['west', 'mid', 'east']", "['mid', 'east']");
    folder.one_problem(&whole("", csv, &no_voter), 6, "not among the voters");
    let limits = format!("{csv}replicas = 4\n");
    folder.one_problem(&whole("", &limits, TODAY), 6, "which is 3");
    let twice = format!("{HEAD}{DATABASE}{TODAY}{DATABASE}{TODAY}");
    folder.one_problem(&twice, 7, "\"orders\" twice");
    folder.one_problem(&whole("", csv, TODAY).replace("'rtt.csv'", "'tt.csv'"), 2, "no readable");
    folder.write("rtt.csv", &ROUND_TRIPS.replace("60,0.5", ",0.5"));
    folder.one_problem(&whole("", csv, TODAY), 2, "rtt.csv:4:");
}

const MEMBERS: &str = "[placement.databases.system.members.west]\nclient = 'http://127.0.0.1:1'\n\
                       peer = 'http://127.0.0.1:2'\n[placement.databases.system.members.east]\n\
                       client = 'http://127.0.0.1:3'\npeer = 'http://127.0.0.1:4'\n";

#[test]
fn a_system_names_its_members_by_their_sites() {
    let folder = Folder::new("placement-systems");
    let system = "[placement.databases.system]\nkind = 'etcd'\n";
    let config = folder.read(&format!("{HEAD}{DATABASE}{system}{MEMBERS}")).unwrap();
    let [orders] = config.databases.as_slice() else { panic!("{config:?}") };
    let StoreConfig::Etcd(settings) = &orders.system.as_ref().unwrap().store else { panic!() };
    let names: Vec<&str> = settings.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(
        (orders.sites.as_ref(), names),
        (&["east", "west"].map(String::from)[..], vec!["east", "west"])
    );
    assert_eq!(orders.trips.as_ref().unwrap().from_site(0), [0.0, 80.0]);
    let with = |system: &str, members: &str| format!("{HEAD}{DATABASE}{system}{members}");
    folder.one_problem(&with(&system.replace("etcd", "etc"), MEMBERS), 7, "did you mean \"etcd\"?");
    let elsewhere = MEMBERS.replace("members.west", "members.wst");
    folder.one_problem(&with(system, &elsewhere), 8, "unknown site \"wst\"");
    folder.one_problem(
        &with(system, &MEMBERS.replace("peer = 'http://127.0.0.1:4'", "")),
        11,
        "peer",
    );
    let foreign = format!("{system}switchover = '5s'\n");
    folder.one_problem(&with(&foreign, MEMBERS), 8, "no such key");
    let user = format!("{system}user = 'root'\n");
    folder.one_problem(&with(&user, MEMBERS), 8, "password_file together");
    // Patroni moves the leader only, whatever tier is asked for.
    let patroni = "[placement.databases.system]\nkind = 'patroni'\n\
                   members.west.api = 'http://127.0.0.1:1'\n\
                   members.mid.api = 'http://127.0.0.1:2'\n";
    let config = folder.read(&format!("{HEAD}tier = 3\n{DATABASE}{patroni}")).unwrap();
    assert_eq!(config.databases[0].tier, PlacementTier::Leader);
}

#[test]
fn zookeeper_and_nats_are_named_by_addresses() {
    let folder = Folder::new("placement-addresses");
    let with = |system: &str| format!("{HEAD}{DATABASE}[placement.databases.system]\n{system}");
    let zookeeper = "kind = 'zookeeper'\n\
                     members.west = { id = 1, client = 'a:2181', peer = 'a:2888:3888' }\n\
                     members.east = { id = 2, client = 'b:2181', peer = 'b:2888:3888', \
                     listen = '2182', name = 'z-2' }\n";
    let config = folder.read(&with(zookeeper)).unwrap();
    let [orders] = config.databases.as_slice() else { panic!("{config:?}") };
    let system = orders.system.as_ref().unwrap();
    let StoreConfig::ZooKeeper(settings) = &system.store else { panic!("{system:?}") };
    let [east, west] = settings.sites.as_slice() else { panic!("{settings:?}") };
    assert_eq!((east.name.as_str(), east.id, east.listen.as_str()), ("z-2", 2, "2182"));
    assert_eq!((west.name.as_str(), west.peer.as_str()), ("west", "a:2888:3888"));
    assert_eq!(west.listen, "a:2181", "where clients reach it");
    // Its servers elect their leader: votes are all that can be moved, whatever is not written.
    assert_eq!((orders.tier, system.lag_max), (PlacementTier::Voters, 1_000));
    let three = format!("{HEAD}tier = 3\n{DATABASE}[placement.databases.system]\n{zookeeper}");
    assert_eq!(folder.read(&three).unwrap().databases[0].tier, PlacementTier::Voters);
    let one = three.replace("tier = 3", "tier = 1");
    folder.one_problem(&one, 4, "tier 1 for ZooKeeper");
    let same = zookeeper.replace("id = 2", "id = 1");
    folder.one_problem(&with(&same), 8, "z-2 and west are both 1");
    folder.one_problem(&with(&zookeeper.replace("id = 2, ", "")), 9, "id");
    folder.one_problem(&with(&zookeeper.replace("'b:2181'", "'b'")), 9, "host:port");
    folder.one_problem(&with(&zookeeper.replace("b:2888:3888", "b:2888")), 9, "host:port:port");
    let tls = format!("{zookeeper}ca_file = 'a.pem'\n");
    folder.one_problem(&with(&tls), 10, "no such key");

    let nats = "kind = 'nats'\nstream = 'ORDERS'\nmembers.west = { client = 'a:4222' }\n\
                members.east = { client = 'b:4222', name = 'n2' }\n";
    let config = folder.read(&with(nats)).unwrap();
    let system = config.databases[0].system.as_ref().unwrap();
    let StoreConfig::Nats(settings) = &system.store else { panic!("{system:?}") };
    assert_eq!((settings.stream.as_str(), settings.sites[0].name.as_str()), ("ORDERS", "n2"));
    assert_eq!(settings.lock, folder.0.file("orders.lock"));
    assert_eq!(config.databases[0].tier, PlacementTier::Leader);
    folder.one_problem(&with(&nats.replace("ORDERS", "OR DERS")), 8, "without blanks");
    folder.one_problem(&with(&nats.replace("'n2'", "'west'")), 9, "two sites are called west");
    folder.one_problem(&with(&format!("{nats}hold = '9s'\n")), 11, "no such key");
}

#[test]
fn percentiles_distributions_and_the_mesh_are_checked() {
    let folder = Folder::new("placement-percentile");
    let whole = |head: &str| format!("{HEAD}{head}{DATABASE}{TODAY}");
    let config = folder.read(&whole("percentile = 99.9\n")).unwrap();
    assert!((config.percentile.unwrap().value() - 0.999).abs() < 1e-12);
    assert!(config.databases[0].tails.is_some(), "constant ones");
    folder.one_problem(&whole("percentile = 0.99\n"), 3, "from 50");
    folder.one_problem(&whole("distributions = 'd.csv'\n"), 3, "percentile too");
    let both = whole("percentile = 99\ndistributions = 'd.csv'\n");
    folder.one_problem(&both, 4, "no readable file");
    folder.write("d.csv", "from,to,rtt_ms\nwest,mid,30\n");
    folder.one_problem(&both, 4, "no row from \"west\" to \"west\"");
    let mesh = whole("").replace("'rtt.csv'", "'mesh'");
    folder.one_problem(&mesh, 2, "the mesh without [redirect]");
}

#[test]
fn the_example_of_the_guide_is_a_configuration() {
    let folder = Folder::new("placement-guide");
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../plans");
    for (from, to) in [
        ("placement-aws-2020-rtt.csv", "rtt.csv"),
        ("placement-follow-the-sun-domains.csv", "domains.csv"),
    ] {
        std::fs::copy(plans.join(from), folder.0.file(to)).unwrap();
    }
    let examples: Vec<&str> = GUIDE.split("```toml\n").skip(1).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let text = example.split("```").next().unwrap();
        let read = folder.read(text);
        read.unwrap_or_else(|problems| panic!("{problems}\nin\n{text}"));
    }
}

/// A Prometheus that knows what it is told: the increase of every series in the last interval.
struct Prometheus {
    address: SocketAddr,
    series: Arc<Mutex<Told>>,
}

#[derive(Default)]
struct Told {
    /// `datacenter`, `operation` and the increase; `None` is a failure.
    series: Option<Vec<(String, String, f64)>>,
    asked: Vec<String>,
}

impl Prometheus {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let series = Arc::<Mutex<Told>>::default();
        let reported = Arc::clone(&series);
        std::thread::spawn(move || {
            listener.incoming().for_each(|stream| drop(answer(&stream.unwrap(), &reported)));
        });
        Self { address, series }
    }

    fn tell(&self, series: &[(&str, &str, f64)]) {
        let owned = series.iter().map(|(at, of, many)| (at.to_string(), of.to_string(), *many));
        self.series.lock().unwrap().series = Some(owned.collect());
    }

    fn break_down(&self) {
        self.series.lock().unwrap().series = None;
    }
}

fn answer(mut stream: &TcpStream, reported: &Mutex<Told>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap()?;
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let mut reported = reported.lock().unwrap();
    let end: f64 =
        request.split("&end=").nth(1).unwrap().split('&').next().unwrap().parse().unwrap();
    reported.asked.push(request);
    let (status, body) = match &reported.series {
        None => ("503 Service Unavailable", json!({"status": "error", "error": "it is down"})),
        Some(series) => {
            let one = |(at, of, many): &(String, String, f64)| {
                let values = json!([[end, many.to_string()]]);
                json!({"metric": {"datacenter": at, "operation": of}, "values": values})
            };
            let result: Vec<Value> = series.iter().map(one).collect();
            let data = json!({"resultType": "matrix", "result": result});
            ("200 OK", json!({"status": "success", "data": data}))
        }
    };
    let body = body.to_string();
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// A process with only a placement and administration, whose interval is short.
fn start(folder: &Folder, prometheus: SocketAddr, head: &str, interval: Duration) -> Process {
    let operations = format!("operations = {{ prometheus = 'http://{prometheus}' }}\n");
    let database = DATABASE.replace("operations = { csv = 'counts.csv' }\n", &operations);
    let text = format!("[admin]\naddress = '127.0.0.1:0'\n{HEAD}{head}{database}{TODAY}");
    start_with(folder, &text, interval)
}

fn start_with(folder: &Folder, text: &str, interval: Duration) -> Process {
    let file = folder.0.file("run.toml").display().to_string();
    let mut config = Config::read(&Node::parse(text, &file).unwrap())
        .unwrap_or_else(|problems| panic!("{problems}"));
    config.placement.as_mut().unwrap().interval = interval;
    Process::start(config).unwrap()
}

/// Waits until the state is as wanted, and returns it.
fn until(process: &Process, wanted: impl Fn(&PlacementState) -> bool) -> Arc<PlacementState> {
    block_state(process.placement().unwrap(), wanted)
}

fn get(address: SocketAddr, path: &str) -> String {
    http::body(&http::get(address, path)).to_owned()
}

#[test]
fn load_that_shifts_is_followed_after_three_intervals_and_explained() {
    let (folder, prometheus) = (Folder::new("placement-story"), Prometheus::start());
    prometheus.tell(&[("west", "single-group", 9e5), ("east", "single-group", 1e5)]);
    let process = start(&folder, prometheus.address, "intervals = 3\n", 300 * MS);
    // Led from the west: 0.9 (0.5 + 30) + 0.1 (80 + 30) = 38.45 ms; nobody is faster.
    let state = until(&process, |state| state.rounds >= 2);
    let orders = &state.databases[0];
    assert_eq!((orders.verdict, orders.now_ms), ("stay", Some(38.45)), "{orders:#?}");
    assert!(orders.why.contains("no other layout"), "{}", orders.why);
    assert!(orders.goal.is_none());

    // In the morning of the east.
    prometheus.tell(&[("west", "single-group", 1e5), ("east", "single-group", 9e5)]);
    let shifted = until(&process, |state| state.databases[0].goal.is_some());
    let orders = &shifted.databases[0];
    assert_eq!(orders.verdict, "stay", "one interval is no evidence: {}", orders.why);
    assert!(orders.why.contains("of the last 3 intervals"), "{}", orders.why);
    let first = shifted.rounds;
    let state = until(&process, |state| state.databases[0].verdict == "move");
    assert!((first + 1..=first + 2).contains(&state.rounds), "{first} {}", state.rounds);
    let orders = &state.databases[0];
    let goal = orders.goal.as_ref().unwrap();
    let words = &orders.why;
    assert_eq!(orders.layout.as_ref().unwrap().leader, "west", "nobody moved it");
    assert!(words.starts_with(&format!("Move the leader from west to {}", goal.leader)), "{words}");
    assert!(words.contains(" east makes ") && words.contains("of all operations"), "{words}");
    // By the formula, with every layout's leader: what the table says of the newest interval.
    let newest = &orders.intervals[0];
    assert_eq!(newest.best.len(), 3);
    assert_eq!(newest.best[0].overhead, 0.0);
    let over = newest.today.latency_ms / newest.best[0].latency_ms - 1.0;
    assert!((newest.today.overhead - over).abs() < 1e-5);

    let asked = prometheus.series.lock().unwrap().asked.clone();
    let first = &asked[0];
    assert!(first.contains("evenkeel_operations_total%7Bdatabase%3D%22orders%22%7D%5B300ms%5D"));
    process.stop().unwrap();
}

#[test]
fn tier_3_lets_learners_crowd_and_spreads_voters_as_far_as_today() {
    // Three sites of domain a are 2 ms apart, and 20 ms from one of domain b; all else is 50 ms.
    let sites = ["a1", "a2", "a3", "a4", "b1", "b2", "b3"];
    let mut table = format!("from\\to_rtt_ms,{}\n", sites.join(","));
    for (row, from) in sites.iter().enumerate() {
        let way = |column: usize| match (row.min(column), row.max(column)) {
            (one, other) if one == other => 0.0,
            (0..=2, 0..=2) => 2.0,
            (0..=2, 4) => 20.0,
            _ => 50.0,
        };
        let ways: Vec<String> = (0..sites.len()).map(|column| way(column).to_string()).collect();
        table.push_str(&format!("{from},{}\n", ways.join(",")));
    }
    let folder = Folder::new("placement-crowd");
    folder.write("rtt.csv", &table);
    let domains = sites.map(|site| format!("{site},{}\n", &site[..1])).concat();
    folder.write("domains.csv", &format!("site,domain\n{domains}"));
    let prometheus = Prometheus::start();
    prometheus.tell(&[("a1", "single-group", 9e5), ("a3", "weak-read", 9e5)]);
    let operations = format!("operations = {{ prometheus = 'http://{}' }}\n", prometheus.address);
    let text = format!(
        "[admin]\naddress = '127.0.0.1:0'\n{HEAD}tier = 3\nintervals = 1\n\
         domains = 'domains.csv'\n[[placement.databases]]\nname = 'orders'\n{operations}\
         replicas = 5\ntoday = {{ leader = 'b2', voters = ['a3', 'a4', 'b2', 'b3'], \
         replicas = ['a3', 'a4', 'b2', 'b3', 'b1'] }}\n"
    );
    let process = start_with(&folder, &text, 100 * MS);
    let state = until(&process, |state| state.databases[0].now_ms.is_some());
    process.stop().unwrap();
    let orders = &state.databases[0];
    // Today two of four voters are in each domain. A third vote of four comes from a site of b, at
    // best 20 ms away; reads find a replica at home. Three votes in a would take 2 ms, and are not
    // allowed; without a learner in a, who writes or who reads would go 2 ms further.
    let goal = orders.goal.as_ref().unwrap();
    assert_eq!(orders.goal_ms, Some(10.0), "{orders:#?}");
    assert_eq!(goal.leader, "a1");
    let in_a = |sites: &[String]| sites.iter().filter(|site| site.starts_with('a')).count();
    assert_eq!(in_a(&goal.voters), 2, "{goal:?}");
    assert!(goal.replicas.contains(&"a3".to_owned()), "{goal:?}");
}

#[test]
fn a_percentile_leads_elsewhere_than_the_mean() {
    // Strong reads: by the mean the west is best, 0.97 · 0.5 + 0.03 · 80 = 2.885 ms; but 3 % of all
    // take 80 ms, and led from the mid 99 % take 60 ms at most.
    let series = [("west", "strong-read", 97e4), ("east", "strong-read", 3e4)];
    let reported = |head: &str, distributions: Option<&str>| {
        let folder = Folder::new(&format!("placement-tail-{}", head.len()));
        if let Some(text) = distributions {
            folder.write("d.csv", text);
        }
        let prometheus = Prometheus::start();
        prometheus.tell(&series);
        let head = format!("intervals = 1\n{head}");
        let process = start(&folder, prometheus.address, &head, 100 * MS);
        let state = until(&process, |state| state.databases[0].now_ms.is_some());
        process.stop().unwrap();
        let orders = state.databases[0].clone();
        (state.objective.clone(), orders.now_ms.unwrap(), orders.verdict, orders.why)
    };
    let (objective, now_ms, verdict, _) = reported("", None);
    assert_eq!((objective.as_str(), now_ms, verdict), ("mean", 2.885, "stay"));
    let (objective, now_ms, verdict, why) = reported("percentile = 99\n", None);
    assert_eq!((objective.as_str(), now_ms, verdict), ("p99", 80.0, "move"), "{why}");
    assert!(why.contains("the leader from west to mid"), "{why}");
    assert!(
        why.contains("99 % of operations take at most 80.0 ms now and would take 60.0"),
        "{why}"
    );
    // One in ten of the ways from the mid is slow: then the east is as good as any, and none pays.
    let mut samples = "from,to,rtt_ms\n".to_owned();
    for (from, row) in ["west", "mid", "east"].iter().zip([[1, 30, 80], [30, 1, 60], [80, 60, 1]]) {
        for (to, ms) in ["west", "mid", "east"].iter().zip(row) {
            for sample in 0..10 {
                let slow = if *to == "mid" && sample == 0 { 200 } else { 0 };
                samples.push_str(&format!("{from},{to},{}\n", ms + slow));
            }
        }
    }
    let head = "percentile = 99\ndistributions = 'd.csv'\n";
    let (_, now_ms, verdict, why) = reported(head, Some(&samples));
    assert_eq!((now_ms, verdict), (80.0, "stay"), "{why}");
}

#[test]
fn a_failing_collector_is_counted_told_and_forgotten_when_it_is_back() {
    let (folder, prometheus) = (Folder::new("placement-failing"), Prometheus::start());
    let process = start(&folder, prometheus.address, "", 100 * MS);
    let state = until(&process, |state| state.rounds >= 2);
    let orders = &state.databases[0];
    assert_eq!((orders.verdict, orders.counts.collected), ("undecided", 0));
    assert!(orders.counts.collect_failures >= 2 && orders.counts.undecided >= 2);
    assert!(orders.problem.as_ref().unwrap().contains("it is down"), "{orders:#?}");
    prometheus.tell(&[("west", "weak-read", 1e5), ("wset", "weak-read", 7.0)]);
    let state = until(&process, |state| state.databases[0].counts.collected >= 1);
    let orders = &state.databases[0];
    assert_eq!((orders.verdict, &orders.problem), ("stay", &None), "{orders:#?}");
    assert!(orders.warnings.iter().any(|words| words.contains("\"wset\"")), "{orders:#?}");
    prometheus.break_down();
    let before = orders.counts.collect_failures;
    let state = until(&process, |state| state.databases[0].counts.collect_failures > before);
    assert_eq!(state.databases[0].verdict, "undecided");
    process.stop().unwrap();
}

#[test]
fn the_interface_and_the_metrics_say_the_same() {
    let (folder, prometheus) = (Folder::new("placement-api"), Prometheus::start());
    prometheus.tell(&[("east", "single-group", 1e6)]);
    let process = start(&folder, prometheus.address, "intervals = 1\n", 200 * MS);
    until(&process, |state| state.databases[0].verdict == "move");
    let admin = process.admin().unwrap();
    let state: Value = serde_json::from_str(&get(admin, "/api/v1/placement")).unwrap();
    for key in
        ["interval_s", "dry_run", "objective", "window", "rounds", "decided_unix_ms", "round_ms"]
    {
        assert!(state.get(key).is_some(), "{key} is missing in {state}");
    }
    let orders = &state["databases"][0];
    let keys = [
        "name",
        "system",
        "tier",
        "layout",
        "goal",
        "now_ms",
        "goal_ms",
        "verdict",
        "why",
        "waits_for",
        "would_do",
        "intervals",
        "clients",
        "operations",
        "moves",
        "problem",
        "warnings",
        "counts",
    ];
    for key in keys {
        assert!(orders.get(key).is_some(), "{key} is missing in {orders}");
    }
    // From the west: 80 + 30; from the mid: 60 + 30; from the east: 0.5 + 60 ms.
    assert_eq!((&orders["now_ms"], &orders["goal_ms"]), (&json!(110.0), &json!(60.5)));
    let best: Vec<&Value> = orders["intervals"][0]["best"].as_array().unwrap().iter().collect();
    let listing: Vec<_> =
        best.iter().map(|option| (&option["leader"], &option["latency_ms"])).collect();
    let expected =
        [("east", 60.5), ("mid", 90.0), ("west", 110.0)].map(|(at, ms)| (json!(at), json!(ms)));
    assert_eq!(listing, expected.iter().map(|(at, ms)| (at, ms)).collect::<Vec<_>>());
    assert_eq!(best[1]["overhead"], json!(0.487603), "90 / 60.5 - 1");
    let metrics = get(admin, "/metrics");
    for line in [
        "evenkeel_placement_latency_seconds{database=\"orders\",layout=\"now\"} 0.11",
        "evenkeel_placement_latency_seconds{database=\"orders\",layout=\"goal\"} 0.0605",
        "evenkeel_placement_moves_total{database=\"orders\"} 0",
        "evenkeel_placement_collect_failures_total{database=\"orders\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    assert!(get(admin, "/").contains("id=\"placement\""));
    process.stop().unwrap();
}

#[test]
fn a_process_stops_at_once_while_nobody_answers_its_questions() {
    let folder = Folder::new("placement-silent");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap(); // connects, and never answers
    let process = start(&folder, silent.local_addr().unwrap(), "", 100 * MS);
    let (stream, _) = silent.accept().unwrap();
    let began = Instant::now();
    process.stop().unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "a question takes ten");
    drop(stream);
}
