//! From the file people write to the state of upstreams: what a process does with `[envoy]`.

use std::path::Path;
use std::time::Duration;

use evenkeel_core::units::Probability;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::split::PlanRow;
use evenkeel_settings::{Node, Problems};

use super::*;
use evenkeel_geo::demand::SiteTally;
use evenkeel_geo::traffic::Directive;
use evenkeel_mesh::envoy::{self, LocalityReport, Report};
use evenkeel_runtime::accept::worker_runtime;
use evenkeel_runtime::metrics::{Format, Scrape};

/// A site without a proxy of its own: only Envoys send requests.
const REDIRECT: &str = "
    [process]
    workers = 2
    [upstream.shop]
    replicas = ['127.0.0.1:9001', '127.0.0.1:9002']
    [upstream.shop.sites]
    ireland = ['127.0.0.1:9011']
    [redirect]
    upstream = 'shop'
    site = 'london'
    objective = '100ms'
    listen = '127.0.0.1:0'
    certificate = 'london.pem'
    key = 'london.key'
    ca_file = 'authority.pem'
    [[redirect.sites]]
    name = 'ireland'
    peer = '127.0.0.1:7001'
    curves = ['ireland.json']
    [[redirect.sites]]
    name = 'london'
    peer = '127.0.0.1:7002'
    curves = ['london.json']
";

fn read(envoy: &str) -> Result<Config, Problems> {
    Node::parse(&format!("{REDIRECT}\n{envoy}"), "/etc/run.toml")
        .and_then(|node| Config::read(&node))
}

fn states_of(config: &Config) -> Arc<UpstreamStates> {
    let upstreams = config.upstreams.iter().map(|upstream| &upstream.common);
    Arc::new(UpstreamStates::new(upstreams, config.process.workers))
}

fn problem(envoy: &str) -> String {
    let problems = read(envoy).expect_err("it is wrong");
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_table_has_defaults_and_needs_a_way_to_envoy() {
    let config = read("[envoy]\ndirectory = 'eds'").unwrap();
    let envoy = config.envoy.unwrap();
    assert_eq!(envoy.directory.as_deref(), Some(Path::new("/etc/eds")), "beside the file");
    assert_eq!((envoy.listen, envoy.report_interval), (None, Duration::from_secs(1)));
    let config = read("[envoy]\nlisten = '[::1]:18000'\nreport_interval = '250ms'").unwrap();
    assert_eq!(config.envoy.unwrap().report_interval, Duration::from_millis(250));

    assert!(problem("[envoy]").contains("neither directory nor listen"));
    let open = problem("[envoy]\nlisten = '0.0.0.0:18000'");
    assert!(open.contains("a loopback address"), "{open}");
    let taken = problem("[admin]\naddress = '127.0.0.1:9901'\n[envoy]\nlisten = '127.0.0.1:9901'");
    assert!(taken.contains("an address of its own"), "{taken}");
}

#[test]
fn without_a_plan_there_is_nothing_to_tell() {
    let node = Node::parse("[envoy]\ndirectory = 'eds'", "run.toml").unwrap();
    let problems = Config::read(&node).expect_err("there is no [redirect]").to_string();
    assert!(problems.contains("[redirect] too"), "{problems}");
}

fn issued(home: u64, away: u64) -> Report {
    let locality = |issued| LocalityReport { issued, succeeded: issued, failed: 0 };
    // In the order of the sites: ireland, london.
    let localities = vec![locality(away), locality(home)];
    Report { over: Duration::from_secs(1), localities, dropped: 2 }
}

#[test]
fn plans_go_from_the_board_to_envoy_and_reports_back() {
    let directory = std::env::temp_dir().join(format!("evenkeel-plane-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let config = read(&format!("[envoy]\ndirectory = '{}'", directory.display())).unwrap();
    worker_runtime().unwrap().block_on(async {
        let (states, clock) = (states_of(&config), Clock::start());
        let side = open(&config, &states).unwrap().unwrap();
        let plane = &Arc::clone(side.plane());
        side.spawn(&config, &states, clock);
        let feed = &plane.feeds()[0];
        let row = PlanRow {
            epoch: 5,
            origin: SiteId::new(1),
            demand_per_1000_s: 1_000,
            rates_per_1000_s: vec![250, 750],
        };
        let good_until = clock.now() + Duration::from_secs(60);
        states.direct(
            0,
            Directive {
                row,
                parts: vec![Probability::ONE; 2],
                good_until,
                spare_per_1000_s: Vec::new(),
                hedges: evenkeel_geo::epoch::SiteSet::first(2),
                inflow: None,
            },
        );
        let path = directory.join("shop.json");
        let is_told = || std::fs::read_to_string(&path).is_ok_and(|text| text.contains("\"5.1\""));
        for _ in 0..500 {
            if is_told() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(is_told(), "{:?}", feed.assignment());
        let reported = feed.assignment();
        let reported = reported.localities.iter();
        let reported: Vec<_> =
            reported.map(|one| (&*one.name, one.weight, one.endpoints.len())).collect();
        assert_eq!(reported, [("ireland", 250_000, 1), ("london", 750_000, 2)]);

        plane.report(feed, 1, &issued(60, 20));
        plane.report(feed, 2, &issued(15, 5));
        let tally = states.split_tally(0);
        assert_eq!(tally.workers.len(), 3, "two workers, and what came through Envoys");
        assert_eq!((tally.workers[0].arrived, tally.workers[2].arrived), (0, 104));
        assert_eq!(tally.by_site[0], SiteTally { ended: 25, missed: 0 });
        assert_eq!(tally.by_site[1], SiteTally { ended: 79, missed: 4 });
        let mut scrape = Scrape::default();
        envoy::metrics::collect(&mut scrape, plane);
        let text = scrape.text(Format::Text);
        for line in [
            "evenkeel_envoy_weight{upstream=\"shop\",datacenter=\"ireland\"} 250000\n",
            "evenkeel_envoy_reporters{upstream=\"shop\"} 2\n",
            "evenkeel_envoy_requests_per_second{upstream=\"shop\",datacenter=\"london\"} 75\n",
            "evenkeel_envoy_refused_total 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    });
    std::fs::remove_dir_all(&directory).unwrap();
}
