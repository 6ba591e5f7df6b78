//! What others are told, by which form, and what becomes of it when something fails.

mod bind;
mod objects;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use evenkeel_geo::demand::SplitTally;
use evenkeel_geo::traffic::Directive;
use evenkeel_testkit::disk::SmallDisk;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::wait::{PATIENCE, until};
use serde_json::{Value, json};

use super::config::{DnsConfig, IstioConfig, KubernetesConfig, ZONES_MAX};
use super::*;

const NAMES: [&str; 3] = ["london", "ireland", "frankfurt"];

/// A site whose replicas are as they are said to be.
struct Fixed(RefCell<Vec<Standing>>);

impl Home for Fixed {
    fn counts(&self) -> SplitTally {
        SplitTally::default()
    }

    fn replicas_up(&self) -> u32 {
        0
    }

    fn direct(&self, _: Directive) {}

    fn standing(&self) -> Vec<Standing> {
        self.0.borrow().clone()
    }
}

/// So many replicas at each site.
fn standing(counts: [u8; 3]) -> Vec<Standing> {
    let site = |(site, count): (usize, u8)| {
        let all = |it| SocketAddr::from(([10, 0, site as u8, it], 8080));
        let up: Vec<_> = (0..count).map(all).collect();
        Standing { is_usable: count > 0, all: up.clone(), up }
    };
    counts.into_iter().enumerate().map(|(place, count)| site((place, count))).collect()
}

/// By origin, what it sends where, in requests per 1,000 s.
fn rows(rates: [[u64; 3]; 3]) -> Vec<PlanRow> {
    let row = |(origin, rates): (usize, [u64; 3])| PlanRow {
        epoch: 7,
        origin: SiteId::new(origin),
        demand_per_1000_s: rates.iter().sum(),
        rates_per_1000_s: rates.to_vec(),
    };
    rates.into_iter().enumerate().map(row).collect()
}

/// London sends a tenth to Ireland and a twentieth to Frankfurt.
fn plan() -> Vec<PlanRow> {
    rows([[850, 100, 50], [0, 400, 0], [0, 0, 400]])
}

fn istio(folder: &Path) -> IstioConfig {
    IstioConfig {
        file: folder.join("shop.json"),
        host: "shop.default.svc.cluster.local".to_owned(),
        name: "shop".to_owned(),
        namespace: "default".to_owned(),
        localities: ["eu-west-2/*", "eu-west-1/*", "eu-central-1/*"].map(str::to_owned).into(),
    }
}

fn kubernetes(folder: &Path) -> KubernetesConfig {
    KubernetesConfig {
        file: folder.join("slices.json"),
        service: "shop".to_owned(),
        namespace: "default".to_owned(),
        port_name: "http".to_owned(),
        zones: NAMES.map(str::to_owned).into(),
    }
}

fn dns(server: SocketAddr, key: Option<(String, PathBuf)>) -> DnsConfig {
    DnsConfig {
        server,
        zone: "shop.test".to_owned(),
        name: "_http._tcp.shop.test".to_owned(),
        ttl: Duration::from_secs(5),
        timeout: Duration::from_millis(500),
        key,
        targets: NAMES.map(|site| (format!("{site}.shop.test"), 443)).into(),
    }
}

fn now<'a>(rows: Option<&'a [PlanRow]>, sites: &'a [Standing]) -> Now<'a> {
    Now { home: SiteId::new(0), rows, sites }
}

/// What runs, and what people were told.
struct World {
    exports: Rc<Exports>,
    here: Rc<Here>,
    words: Rc<RefCell<Vec<String>>>,
}

impl World {
    /// Call it in a worker runtime.
    fn start(config: &ExportsConfig) -> Self {
        let exports = Rc::new(Exports::open(config).unwrap());
        let words: Rc<RefCell<Vec<String>>> = Rc::default();
        let told = Rc::clone(&words);
        let here = Rc::new(Here {
            clock: Clock::start(),
            site: SiteId::new(0),
            sites: 3,
            home: Rc::new(Fixed(RefCell::new(standing([4, 4, 4])))),
            tell: Box::new(move |words| told.borrow_mut().push(words)),
        });
        tokio::task::spawn_local(Rc::clone(&exports).keep(Rc::clone(&here)));
        Self { exports, here, words }
    }

    fn plan(&self, rows: Vec<PlanRow>, lasts: Duration) {
        let good_until = self.here.clock.now() + lasts;
        self.exports.plan(Planned { rows, good_until });
    }

    fn state(&self, to: &str) -> ExportState {
        self.exports.states().into_iter().find(|state| state.to == to).unwrap()
    }
}

fn on_one_thread<T>(test: impl Future<Output = T>) -> T {
    evenkeel_runtime::accept::worker_runtime().unwrap().block_on(test)
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

/// Where London's requests go, by the rule in a file.
fn distributed(path: &Path) -> Option<Value> {
    let pointer = "/spec/trafficPolicy/loadBalancer/localityLbSetting/distribute/0/to";
    read(path)?.pointer(pointer).cloned()
}

/// Every key of an object is one that the published schema has, and those that it requires are
/// there.
fn conforms(value: &Value, keys: &[&str], required: &[&str], place: &str) {
    let object = value.as_object().unwrap_or_else(|| panic!("{place}: {value}"));
    for key in object.keys() {
        assert!(keys.contains(&key.as_str()), "{place} has no {key}: {value}");
    }
    for key in required {
        assert!(object.contains_key(*key), "{place} needs {key}: {value}");
    }
}

/// `istio/api`, `networking/v1alpha3/destination_rule.gen.json`: `LocalityLoadBalancerSetting`;
/// weights as `ValidateLocalityLbSetting` of `istio/istio` wants them.
#[test]
fn the_rule_of_istio_has_the_form_of_its_schema_and_the_shares_of_the_plan() {
    let (plan, sites) = (plan(), standing([4, 4, 4]));
    let text = istio::rule(&istio(Path::new("/")), &now(Some(&plan), &sites));
    let rule: Value = serde_json::from_str(&text).unwrap();
    conforms(
        &rule,
        &["apiVersion", "kind", "metadata", "spec"],
        &["apiVersion", "kind", "spec"],
        "it",
    );
    assert_eq!(
        (&rule["kind"], &rule["apiVersion"]),
        (&json!("DestinationRule"), &json!("networking.istio.io/v1"))
    );
    let spec_keys = ["host", "trafficPolicy", "subsets", "exportTo", "workloadSelector"];
    conforms(&rule["spec"], &spec_keys, &["host"], "spec");
    let setting = &rule["spec"]["trafficPolicy"]["loadBalancer"]["localityLbSetting"];
    conforms(setting, &["distribute", "failover", "failoverPriority", "enabled"], &[], "setting");
    let distribute = &setting["distribute"][0];
    conforms(distribute, &["from", "to"], &["from", "to"], "distribute");
    assert_eq!(distribute["from"], "eu-west-2/*");
    let to = json!({"eu-west-2/*": 85, "eu-west-1/*": 10, "eu-central-1/*": 5});
    assert_eq!(distribute["to"], to);
    // A weight of 0 is refused, and the sum must be 100.
    let dead = standing([4, 0, 4]);
    let text = istio::rule(&istio(Path::new("/")), &now(Some(&plan), &dead));
    let rule: Value = serde_json::from_str(&text).unwrap();
    let to = &rule["spec"]["trafficPolicy"]["loadBalancer"]["localityLbSetting"]["distribute"][0];
    assert_eq!(to["to"], json!({"eu-west-2/*": 95, "eu-central-1/*": 5}));
}

/// `kubernetes/kubernetes`, `api/openapi-spec/v3/apis__discovery.k8s.io__v1_openapi.json`.
#[test]
fn slices_have_the_form_of_their_schema_and_every_endpoint_has_hints() {
    let (plan, sites) = (rows([[3, 1, 0], [0, 4, 0], [0, 0, 0]]), standing([3, 3, 2]));
    let text = kubernetes::slices(&kubernetes(Path::new("/")), &now(Some(&plan), &sites));
    let list: Value = serde_json::from_str(&text).unwrap();
    let [slice] = list["items"].as_array().unwrap().as_slice() else { panic!("{text}") };
    let keys = ["apiVersion", "kind", "metadata", "addressType", "endpoints", "ports"];
    conforms(slice, &keys, &["addressType", "endpoints"], "slice");
    assert_eq!((&slice["kind"], &slice["addressType"]), (&json!("EndpointSlice"), &json!("IPv4")));
    conforms(&slice["ports"][0], &["name", "protocol", "port", "appProtocol"], &[], "port");
    let endpoint_keys = [
        "addresses",
        "conditions",
        "deprecatedTopology",
        "hints",
        "hostname",
        "nodeName",
        "targetRef",
        "zone",
    ];
    let serves = |zone: &str, of: &str| {
        let endpoints = slice["endpoints"].as_array().unwrap();
        let zones = |endpoint: &&Value| {
            conforms(endpoint, &endpoint_keys, &["addresses"], "endpoint");
            let zones = endpoint["hints"]["forZones"].as_array().unwrap();
            assert!((1..=ZONES_MAX).contains(&zones.len()), "{endpoint}");
            zones.iter().for_each(|zone| conforms(zone, &["name"], &["name"], "zone"));
            endpoint["zone"] == of && zones.contains(&json!({"name": zone}))
        };
        endpoints.iter().filter(zones).count()
    };
    // A quarter of London's requests goes to one of four endpoints, which is Ireland's.
    assert_eq!((serves("london", "london"), serves("london", "ireland")), (3, 1));
    assert_eq!((serves("ireland", "ireland"), serves("frankfurt", "frankfurt")), (3, 2));
    assert_eq!(serves("ireland", "london"), 0);
}

#[test]
fn what_two_zones_send_to_a_third_goes_to_different_endpoints() {
    let (plan, sites) = (rows([[3, 0, 1], [0, 3, 1], [0, 0, 1]]), standing([3, 3, 2]));
    let text = kubernetes::slices(&kubernetes(Path::new("/")), &now(Some(&plan), &sites));
    let list: Value = serde_json::from_str(&text).unwrap();
    let endpoints = list["items"][0]["endpoints"].as_array().unwrap();
    let foreign = |endpoint: &&Value| {
        let zones = endpoint["hints"]["forZones"].as_array().unwrap();
        endpoint["zone"] == "frankfurt" && zones.iter().any(|zone| zone["name"] != "frankfurt")
    };
    assert_eq!(endpoints.iter().filter(foreign).count(), 2, "{text}");
}

#[test]
fn a_plan_that_is_too_old_is_taken_back_and_so_is_one_when_the_process_ends() {
    on_one_thread(async {
        let folder = Folder::new("exports-old");
        let file = istio(folder.path()).file;
        let config = ExportsConfig { istio: Some(istio(folder.path())), ..Default::default() };
        let world = World::start(&config);
        let home = json!({"eu-west-2/*": 100});
        until("all stays at home before there is a plan", || {
            distributed(&file).as_ref() == Some(&home)
        })
        .await;
        world.plan(plan(), Duration::from_millis(1_500));
        until("the plan is told", || distributed(&file).is_some_and(|to| to["eu-west-1/*"] == 10))
            .await;
        until("it is taken back when it is old", || distributed(&file).as_ref() == Some(&home))
            .await;
        world.plan(plan(), PATIENCE);
        until("the next one is told", || {
            distributed(&file).is_some_and(|to| to["eu-west-1/*"] == 10)
        })
        .await;
        world.exports.withdraw(&world.here).await;
        assert_eq!(distributed(&file), Some(home));
        assert_eq!(world.state("istio").problem, None);
    });
}

#[test]
fn a_full_disk_keeps_the_last_plan_and_is_told_once() {
    on_one_thread(async {
        let folder = Folder::new("exports-full");
        let Some(disk) = SmallDisk::mount(folder.path(), 1) else {
            return; // it takes root
        };
        let file = kubernetes(folder.path()).file;
        let config =
            ExportsConfig { kubernetes: Some(kubernetes(folder.path())), ..Default::default() };
        let world = World::start(&config);
        until("the first one is written", || read(&file).is_some()).await;
        let before = std::fs::read(&file).unwrap();
        disk.fill(0);
        world.plan(rows([[3, 1, 0], [0, 4, 0], [0, 0, 4]]), PATIENCE);
        until("that it is full is told", || world.state("kubernetes").failed >= 2).await;
        assert_eq!(std::fs::read(&file).unwrap(), before, "the last one is still there, whole");
        assert!(world.state("kubernetes").problem.unwrap().contains("No space left"));
        assert!(world.words.borrow().len() <= 2, "{:?}", world.words.borrow());
        disk.clear();
        until("it is written when there is room", || {
            world.state("kubernetes").problem.is_none() && std::fs::read(&file).unwrap() != before
        })
        .await;
    });
}

#[test]
fn a_dns_server_that_hangs_holds_up_no_file() {
    on_one_thread(async {
        let folder = Folder::new("exports-hung");
        // Connections are made, and nobody ever answers.
        let hung = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ExportsConfig {
            istio: Some(istio(folder.path())),
            dns: Some(dns(hung.local_addr().unwrap(), None)),
            kubernetes: None,
        };
        let world = World::start(&config);
        until("that it hangs is told", || world.state("dns").failed >= 1).await;
        let problem = world.state("dns").problem.unwrap();
        assert!(problem.ends_with("sent no answer within 0.5 s"), "{problem}");
        world.plan(plan(), PATIENCE);
        until("the file follows", || {
            distributed(&istio(folder.path()).file).is_some_and(|to| to["eu-west-1/*"] == 10)
        })
        .await;
        assert_eq!((world.state("dns").told, world.state("istio").failed), (0, 0));
    });
}

#[test]
fn a_secret_that_is_none_is_told_before_anything_runs() {
    let folder = Folder::new("exports-secret");
    for text in ["", "not base64!", "key \"k\" { secret \"c2VjcmV0\"; };"] {
        std::fs::write(folder.file("key"), text).unwrap();
        let key = Some(("k".to_owned(), folder.file("key")));
        let dns = Some(dns(SocketAddr::from(([127, 0, 0, 1], 53)), key));
        let error = Exports::open(&ExportsConfig { dns, ..Default::default() }).unwrap_err();
        assert!(error.to_string().contains("expected base64 alone"), "{error}");
    }
}

fn slices(sites: &[Standing]) -> Vec<(String, usize)> {
    let text = kubernetes::slices(&kubernetes(Path::new("/")), &now(None, sites));
    let list: Value = serde_json::from_str(&text).unwrap();
    let of = |slice: &Value| {
        let name = slice["metadata"]["name"].as_str().unwrap().to_owned();
        (name, slice["endpoints"].as_array().unwrap().len())
    };
    list["items"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn slices_whose_endpoints_are_down_are_empty_and_a_thousand_and_one_make_two() {
    let mut sites = standing([3, 0, 0]);
    sites[0].all.push(SocketAddr::from(([10, 0, 0, 9], 9_090)));
    sites[1].all.push("[fd00::1]:8080".parse().unwrap());
    let named = |name: &str, count| (format!("shop-evenkeel-{name}"), count);
    assert_eq!(slices(&sites), [named("8080", 3), named("9090", 0), named("8080-v6", 0)]);
    let many = (0..1_001_u32).map(|it| SocketAddr::from(((0x0a00_0000 + it).to_be_bytes(), 8_080)));
    sites = standing([0, 0, 0]);
    (sites[0].all, sites[0].up) = (many.clone().collect(), many.collect());
    assert_eq!(slices(&sites), [named("8080", 1_000), named("8080-2", 1)]);
    sites[0].up.truncate(5);
    assert_eq!(slices(&sites), [named("8080", 5), named("8080-2", 0)], "the second is emptied");
}

#[test]
fn sites_that_others_could_not_tell_apart_are_refused() {
    let read = |text: &str| {
        let node = evenkeel_settings::Node::parse(text, "run.toml").unwrap();
        let read = node.read(|table| config::read(table, &["london", "ireland"], None));
        read.map(|_| ()).map_err(|problems| problems.to_string())
    };
    let istio = |localities: &str| {
        format!(
            "[istio]\nfile = 'i'\nhost = 'shop'\nname = 'shop'\nlocalities = {{ {localities} }}"
        )
    };
    let zones =
        |zones: &str| format!("[kubernetes]\nfile = 'k'\nservice = 'shop'\nzones = {{ {zones} }}");
    let targets = |targets: &str| {
        format!(
            "[dns]\nserver = '127.0.0.1:53'\nzone = 'shop.test'\nname = 'a.shop.test'\n\
             targets = {{ {targets} }}"
        )
    };
    for good in [
        istio("london = 'eu/a/*', ireland = 'eu/b'"),
        zones("london = 'a', ireland = 'b'"),
        targets("london = 'a.test:1', ireland = 'a.test:2'"),
    ] {
        assert_eq!(read(&good), Ok(()));
    }
    for (bad, key) in [
        (istio("london = 'eu', ireland = 'eu'"), "istio.localities"),
        (istio("london = 'eu/*', ireland = 'eu/b'"), "istio.localities"),
        (istio("london = 'ireland'"), "istio.localities"),
        (zones("london = 'a', ireland = 'a'"), "kubernetes.zones"),
        (targets("london = 'a.test:1', ireland = 'A.test.:1'"), "dns.targets"),
    ] {
        let problem = read(&bad).unwrap_err();
        assert!(problem.contains(key) && problem.contains("what one of them is sent"), "{problem}");
    }
}

/// Nobody reads: who writes the file waits.
fn hang(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap().to_str().unwrap();
    let beside = file.with_file_name(format!(".{name}.new"));
    assert!(Command::new("mkfifo").arg(&beside).status().unwrap().success());
    beside
}

#[test]
fn a_disk_that_hangs_holds_up_no_other_file_and_no_dns_server() {
    let folder = Folder::new("exports-disk-hangs");
    let beside = hang(&istio(folder.path()).file);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let config = ExportsConfig {
        istio: Some(istio(folder.path())),
        kubernetes: Some(kubernetes(folder.path())),
        dns: None,
    };
    let file = kubernetes(folder.path()).file;
    let (hangs, is_over) = std::sync::mpsc::channel::<()>();
    let freeing = std::thread::spawn(move || {
        let _ = is_over.recv();
        std::fs::read(beside)
    });
    on_one_thread(async move {
        let _until_the_end = hangs; // also of a test that fails
        let world = World::start(&config);
        until("the other file is written", || read(&file).is_some()).await;
        let dns = Some(dns(server.local_addr().unwrap(), None));
        let config = ExportsConfig { kubernetes: None, dns, ..config };
        let exports = Rc::new(Exports {
            targets: vec![
                Told {
                    writing: Arc::clone(&world.exports.targets[0].writing),
                    ..Told::new(Target::Istio(config.istio.clone().unwrap()))
                },
                Told::new(Target::Dns(Box::new(dns::Dns::open(&config.dns.unwrap()).unwrap()))),
            ],
            ..Exports::default()
        });
        exports.withdraw(&world.here).await;
        assert!(server.accept().is_ok(), "the server is told");
    });
    assert!(freeing.join().unwrap().is_ok());
}
