//! Processes of several data centres, as their configuration files say: slots and followers.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::time::Duration;

use evenkeel_core::distribution::Recorder;
use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::curve::{LoadStep, Profile, Saturation};
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::{Node, profile};
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http::get;
use evenkeel_testkit::story::free_addresses;
use evenkeel_testkit::wait::block_until;

const NAMES: [&str; 3] = ["london", "ireland", "frankfurt"];

/// A profile of four servers: of 1,000 requests at each load most take 20 ms, more and more 200 ms.
fn profile() -> Profile {
    profile_times(1.0)
}

/// The same at so many times the loads.
fn profile_times(factor: f64) -> Profile {
    let step = |(per_s, late): (f64, u64)| {
        let mut latencies = Recorder::default();
        (0..1_000 - late).for_each(|_| latencies.record(Duration::from_millis(20)));
        (0..late).for_each(|_| latencies.record(Duration::from_millis(200)));
        LoadStep {
            load: Rate::new(per_s * factor).unwrap(),
            write_share: Probability::ZERO,
            latencies: latencies.buckets().collect(),
            unanswered: 0,
        }
    };
    let steps = [(50.0, 1), (100.0, 10), (150.0, 100), (190.0, 500)].map(step).into();
    let load = Rate::new(200.0 * factor).unwrap();
    let saturations = vec![Saturation { write_share: Probability::ZERO, load }];
    Profile { servers: 4.try_into().unwrap(), steps, saturations }
}

fn configuration(site: usize, ports: &[u16]) -> String {
    let (name, other) = (NAMES[site], NAMES[1 - site]);
    let sites = NAMES.iter().zip(ports).map(|(name, port)| {
        format!(
            "[[redirect.sites]]\nname = '{name}'\npeer = 'localhost:{port}'\n\
             curves = ['four.toml']\n"
        )
    });
    format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'shop'\n\
         [upstream.shop]\nreplicas = ['127.0.0.1:9', '127.0.0.1:10']\n\
         [upstream.shop.sites]\n{other} = ['localhost:11']\n\
         [admin]\naddress = '127.0.0.1:0'\n\
         [redirect]\nupstream = 'shop'\nsite = '{name}'\nobjective = '100ms'\nperiod = '400ms'\n\
         listen = '127.0.0.1:{}'\ncertificate = '{name}/site.pem'\nkey = '{name}/site.key'\n\
         ca_file = '{name}/authority.pem'\n{}",
        ports[site],
        sites.collect::<String>()
    )
}

#[test]
fn two_processes_of_a_configuration_file_plan_together() {
    let (folder, authority) = (Folder::new("redirect-process"), Authority::new());
    std::fs::write(folder.file("four.toml"), profile::write(&profile())).unwrap();
    let ports = free_addresses::<2>().map(|free| free.port());
    let start = |site: usize| {
        authority.write(&folder.file(NAMES[site]), &[NAMES[site]]);
        let path = folder.file(&format!("{}.toml", NAMES[site]));
        std::fs::write(&path, configuration(site, &ports)).unwrap();
        let config = Config::load(&path).unwrap_or_else(|problems| panic!("{problems}"));
        Process::start(config).unwrap()
    };
    let processes = [start(0), start(1)];
    let hashes = |process: &Process| -> Option<(Vec<String>, u64, String)> {
        let state = process.redirect().unwrap().borrow().clone();
        let plan = state.plan.as_ref()?;
        Some((plan.members.clone(), plan.epoch, plan.hash.clone()))
    };
    block_until("both have the same plan of both", || {
        let [ours, theirs] = processes.each_ref().map(hashes);
        ours.is_some() && ours == theirs && ours.unwrap().0 == NAMES[..2]
    });
    let admin = processes[0].admin().unwrap();
    let json = get(admin, "/api/v1/redirect");
    assert!(json.starts_with("HTTP/1.1 200 ") && json.contains("\"site\":\"london\""), "{json}");
    // Two replicas of a profile whose four serve 200 requests/s.
    let metrics = get(admin, "/metrics");
    let line = "evenkeel_redirect_capacity_per_second{datacenter=\"ireland\"} 100\n";
    assert!(metrics.contains(line), "{metrics}");
    assert!(metrics.contains("evenkeel_redirect_member{datacenter=\"ireland\"} 1\n"), "{metrics}");
    for process in processes {
        process.stop().unwrap();
    }
}

/// A process of the same site that takes part through the first one.
fn of_follower(site: usize, ports: &[u16]) -> String {
    let controller = format!("listen = '127.0.0.1:{}'", ports[site]);
    let through = format!("controller = '127.0.0.1:{}'", ports[site]);
    let text = configuration(site, ports).replace(&controller, &through);
    // It needs the names of the sites only.
    let needed = |line: &&str| !line.starts_with("peer") && !line.starts_with("curves");
    text.lines().filter(needed).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_companion_of_a_configuration_file_follows_the_plans_of_its_slot() {
    let (folder, authority) = (Folder::new("redirect-through"), Authority::new());
    std::fs::write(folder.file("four.toml"), profile::write(&profile())).unwrap();
    let ports = free_addresses::<2>().map(|free| free.port());
    authority.write(&folder.file(NAMES[0]), &[NAMES[0]]);
    let load = |name: &str, text: String| {
        let path = folder.file(name);
        std::fs::write(&path, text).unwrap();
        Config::load(&path).unwrap_or_else(|problems| panic!("{problems}"))
    };
    let config = load("follower.toml", of_follower(0, &ports));
    let note = config.notes().pop().unwrap();
    assert!(
        note.contains(&format!("controller 127.0.0.1:{}: this process is a follower", ports[0])),
        "{note}"
    );
    assert_eq!(evenkeel_mesh::check(config.redirect.as_ref().unwrap()).unwrap(), [""; 0]);
    let follower = Process::start(config).unwrap();
    let controller = Process::start(load("controller.toml", configuration(0, &ports))).unwrap();
    let epoch = |process: &Process| {
        let split = process.upstreams().split_stats(0).unwrap();
        split.following[0]
    };
    block_until("the follower follows the controller", || {
        epoch(&follower).is_some() && epoch(&follower) == epoch(&controller)
    });
    let json = get(follower.admin().unwrap(), "/api/v1/redirect");
    assert!(json.contains("\"is_heard\":true,\"epoch\":"), "{json}");
    let metrics = get(controller.admin().unwrap(), "/metrics");
    assert!(metrics.contains("evenkeel_redirect_follower_workers{follower="), "{metrics}");
    for process in [follower, controller] {
        process.stop().unwrap();
    }
}

#[test]
fn mistakes_in_the_configuration_of_sites_are_told_with_their_lines() {
    let good = configuration(0, &[1, 2]);
    let problems = |text: &str| -> Vec<String> {
        let node = Node::parse(text, "run.toml").unwrap();
        let problems = Config::read(&node).err();
        problems.iter().flat_map(|found| found.iter().map(ToString::to_string)).collect()
    };
    assert_eq!(problems(&good), [""; 0]);
    for (from, to, says) in [
        ("site = 'london'", "site = 'paris'", "expected one of london, ireland"),
        ("name = 'ireland'", "name = 'london'", "the site \"london\" twice"),
        ("name = 'ireland'", "name = 'Ireland'", "a name as in a certificate"),
        ("period = '400ms'", "period = '400ms'\nmargin = '101ms'", "a quarter of the period"),
        ("period = '400ms'", "clock_offset_max = '200ms'", "a sixteenth of the period"),
        ("period = '400ms'", "target = 0.1", "aim = \"cost\" too"),
        ("period = '400ms'", "overload_price = 0.1", "overload = \"priced\" too"),
        ("ireland = ['localhost:11']", "paris = ['127.0.0.1:11']", "a site \"paris\""),
        ("ireland = ['localhost:11']", "", "the proxies of the site \"ireland\""),
        (
            "[redirect]\n",
            "[envoy]\ndirectory = 'e'\n[redirect]\n",
            "tells others where requests go",
        ),
        ("curves = ['four.toml']", "curves = 7", "curves"),
        ("objective = '100ms'\n", "", "objective"),
        ("listen = '127.0.0.1:1'", "", "listen"),
        ("period = '400ms'", "controller = '127.0.0.1:7'", "one of them: with controller, another"),
        ("listen = '127.0.0.1:1'", "controller = '127.0.0.1:0'", "with a port to connect to"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let found = problems(&text);
        assert!(found.iter().any(|problem| problem.contains(says)), "{to}: {found:#?}");
    }
}

#[test]
fn profiles_that_do_not_fit_together_are_told_with_their_sites() {
    let (folder, authority) = (Folder::new("redirect-unequal"), Authority::new());
    authority.write(&folder.file(NAMES[0]), &[NAMES[0]]);
    std::fs::write(folder.file("four.toml"), profile::write(&profile())).unwrap();
    let check = |factor: f64| {
        std::fs::write(folder.file("other.toml"), profile::write(&profile_times(factor))).unwrap();
        let text = configuration(0, &[1, 2]);
        let (london, ireland) = text.rsplit_once("four.toml").unwrap();
        let path = folder.file("run.toml");
        std::fs::write(&path, format!("{london}other.toml{ireland}")).unwrap();
        evenkeel_mesh::check(Config::load(&path).unwrap().redirect.as_ref().unwrap())
    };
    assert_eq!(check(10.0).unwrap(), [""; 0]);
    let doubts = check(2_000.0).unwrap();
    let [unit, coarse] = doubts.as_slice() else { panic!("{doubts:?}") };
    assert!(unit.starts_with("ireland: by its profile one server serves 100000/s"), "{unit}");
    assert!(coarse.starts_with("london: what its profile serves is 10 of the quanta"), "{coarse}");
    let refused = format!("{:?}", check(1e6).unwrap_err());
    assert!(refused.contains("redirect of ireland: curves of site 1: 50000000 is"), "{refused}");
}
