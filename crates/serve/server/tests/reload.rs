//! A process that is given other configurations while it serves: what changes, what stays, and that
//! no request is lost.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::cell::Cell;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_http as engine;
use evenkeel_load::{Arrivals, Load, Stop, Target};
use evenkeel_runtime::accept::{Listener, StopSignal};
use evenkeel_runtime::component::ReloadError;
use evenkeel_server::config::Config;
use evenkeel_server::process::{Process, Reloaded};
use evenkeel_settings::Node;
use evenkeel_testkit::story::{LIMITS, nobody, story};
use evenkeel_testkit::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A replica on the test's own thread; `/slow` takes 40 ms longer.
struct Replica {
    address: SocketAddr,
    served: Rc<Cell<u64>>,
}

impl Replica {
    fn start(takes: Duration) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, served) = (listener.address().unwrap(), Rc::<Cell<u64>>::default());
        let count = Rc::clone(&served);
        let handler = move |request: engine::Request<engine::Body>, _| {
            count.set(count.get() + 1);
            let is_slow = request.uri().path() == "/slow";
            let takes = takes + Duration::from_millis(if is_slow { 40 } else { 0 });
            async move {
                tokio::time::sleep(takes).await;
                engine::Response::new(engine::Body::full("served"))
            }
        };
        tokio::task::spawn_local(engine::serve(listener, LIMITS, handler, StopSignal::never()));
        Self { address, served }
    }
}

fn read(text: &str) -> Config {
    let node = Node::parse(text, "reload.toml").unwrap_or_else(|found| panic!("{found}\n{text}"));
    Config::read(&node).unwrap_or_else(|found| panic!("{found}\n{text}"))
}

/// A configuration of one upstream; `more` follows its first lines.
fn text(replicas: &[SocketAddr], more: &str) -> String {
    let replicas: Vec<String> = replicas.iter().map(ToString::to_string).collect();
    format!(
        "[process]\nworkers = 2\ndrain = '3s'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         [upstream.web]\nreplicas = {replicas:?}\n{more}"
    )
}

/// Beside the test's own tasks, which play the replicas.
async fn reload(process: &Process, text: &str) -> Result<Reloaded, ReloadError> {
    let (reloader, config) = (process.reloader().clone(), read(text));
    tokio::task::spawn_blocking(move || reloader.reload(config)).await.unwrap()
}

async fn stop(process: Process) {
    tokio::task::spawn_blocking(move || process.stop().unwrap()).await.unwrap();
}

/// Sends a request whose answer is read later.
async fn ask(to: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

async fn get(to: SocketAddr, path: &str) -> String {
    answer(ask(to, path).await).await
}

async fn post(to: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    answer(stream).await
}

/// The n-th of many configurations: all that can be changed is changed now and then.
fn nth(n: usize, replicas: &[&Replica; 4], door: SocketAddr) -> String {
    let [a, b, c, d] = replicas.map(|replica| replica.address);
    let members = [vec![a, b], vec![a, b, c], vec![c, b, d], vec![b, d]];
    let policy = ["c3", "least-outstanding", "c3:weight=3", "peak-ewma", "prequal"][n % 5];
    let mut more = format!(
        "policy = '{policy}'\nretries_max = {}\nretry_budget = {}\n\
         timeouts = {{ attempt = '{}s' }}\n",
        1 + n % 2,
        0.1 + 0.1 * (n % 3) as f64,
        4 + n % 3
    );
    more += ["", "hedge = { quantile = 0.9 }\n", "hedge = { objective = '20ms' }\n"][n % 3];
    more += ["", "pool = { connections_max = 900 }\n"][n / 2 % 2];
    // A copy beside a replica that a busy machine keeps silent is no loss; it would hide one.
    more += [
        "safeguards = { silence_min = '0s', slow_start = '1s' }\n",
        "safeguards = { silence_min = '0s' }\n",
    ][n / 3 % 2];
    more += ["", "health = { interval = '20ms', fall = 5 }\n"][n / 4 % 2];
    let mut text = text(&members[n % 4], &more);
    if n % 4 < 2 {
        let (other, max) = (a, 500 + n);
        write!(
            text,
            "[[listen]]\naddress = '{door}'\nupstream = 'other'\n\
             limits = {{ connections_max = {max} }}\n\
             [upstream.other]\nreplicas = ['{other}', '{b}']\n"
        )
        .unwrap();
    }
    let limits = format!("upstream = 'web'\nlimits = {{ connections_max = {} }}\n", 800 + n % 2);
    text.replacen("upstream = 'web'\n", &limits, 1)
}

#[test]
fn a_hundred_reloads_under_load_lose_no_request() {
    story(async {
        let replicas = [1, 2, 2, 3].map(|ms| Replica::start(Duration::from_millis(ms)));
        let replicas = &replicas.each_ref();
        let door = nobody();
        let process = Process::start(read(&nth(0, replicas, door))).unwrap();
        let main = process.listens()[0];
        let url = format!("http://{main}/");
        let mut load =
            Load::new(Target::new([url.as_str()]).unwrap(), Arrivals::poisson(400.0).unwrap());
        load.plan.duration = None;
        let done = Stop::new();
        let over = done.clone();
        let running = tokio::task::spawn_blocking(move || load.run(&over, |_| ()));
        let mut slow = None;
        for n in 1..=100 {
            if n % 4 == 2 {
                // The door closes while this one is inside.
                slow = Some(ask(door, "/slow").await);
                until("it is inside", || replicas[0].served.get() + replicas[1].served.get() > 0)
                    .await;
            }
            let reloaded = reload(&process, &nth(n, replicas, door)).await.unwrap();
            assert_eq!(reloaded.generation, n as u64 + 1);
            assert!(!reloaded.changed.is_empty());
            assert_eq!(process.listens()[0], main, "it stays where it is");
            if n % 4 < 2 {
                let reported = get(door, "/").await;
                assert!(reported.starts_with("HTTP/1.1 200"), "{reported}");
            }
            if let Some(slow) = slow.take() {
                let reported = answer(slow).await;
                assert!(
                    reported.starts_with("HTTP/1.1 200") && reported.ends_with("served"),
                    "{reported}"
                );
                // As a lame duck it accepts until its clients have gone.
                let is_closed = || std::net::TcpStream::connect(door).is_err();
                until("the door is closed", is_closed).await;
            }
        }
        done.stop();
        let report = running.await.unwrap().unwrap().report;
        assert!(report.served > 300, "{report:?}");
        assert_eq!((report.failed, report.timeouts), (0, 0), "{report:?}");
        // Nor is one saved by another try: nothing breaks that would need it.
        for upstream in 0..2 {
            let total = process.upstreams().stats(upstream).total;
            let failed: u64 = total.replicas.iter().map(|replica| replica.failed).sum();
            assert_eq!((total.refused, total.retries, failed), (0, 0, 0), "{total:?}");
        }
        let all: u64 = replicas.iter().map(|replica| replica.served.get()).sum();
        assert!(replicas.iter().all(|replica| replica.served.get() > all / 50), "all took part");
        stop(process).await;
    });
}

#[test]
fn a_replica_that_returns_has_its_slot_its_counts_and_its_estimates() {
    story(async {
        let quick = [1, 1].map(|ms| Replica::start(Duration::from_millis(ms)));
        let slow = Replica::start(Duration::from_millis(150)); // by far, also on a busy machine
        let [a, b, c] = [quick[0].address, quick[1].address, slow.address];
        let safeguards = "safeguards = { slow_start = '0s' }\n";
        let process = Process::start(read(&text(&[a, b, c], safeguards))).unwrap();
        let (states, main) = (std::sync::Arc::clone(process.upstreams()), process.listens()[0]);
        let total =
            |slot: usize| states.stats(0).total.replicas.get(slot).map_or(0, |it| it.succeeded);
        while total(2) < 2 {
            let asked = futures(main, 8).await;
            assert!(asked.iter().all(|reported| reported.starts_with("HTTP/1.1 200")));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let cost = |slot: usize| states.stats(0).replica(slot).cost.unwrap_or_default();
        until("nothing is in flight", || states.stats(0).replica(2).in_flight == 0).await;
        let known = total(2);
        until("it is known as slow", || cost(2) > 3.0 * cost(0).max(cost(1))).await;

        reload(&process, &text(&[a, b], safeguards)).await.unwrap();
        let seen = slow.served.get();
        for _ in 0..5 {
            futures(main, 8).await;
        }
        assert_eq!(slow.served.get(), seen, "it has left");
        reload(&process, &text(&[b, c, a], safeguards)).await.unwrap();
        assert_eq!(*states.home(0), [a, b, c], "each has its slot");
        // What workers told last may be of the burst above.
        let is_known = || cost(2) > 3.0 * cost(0).max(cost(1));
        until("the workers tell what was known of it", is_known).await;
        assert_eq!(slow.served.get(), seen, "nothing is learnt anew");
        assert!(total(2) >= known, "{} {known}", total(2));
        while slow.served.get() == seen {
            futures(main, 40).await;
        }
        until("it is counted on", || total(2) > known).await;
        stop(process).await;
    });
}

/// So many requests at once.
async fn futures(to: SocketAddr, count: usize) -> Vec<String> {
    let mut asked = Vec::new();
    for _ in 0..count {
        asked.push(ask(to, "/").await);
    }
    let mut reported = Vec::new();
    for stream in asked {
        reported.push(answer(stream).await);
    }
    reported
}

/// A file of its own that goes with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("evenkeel-reload-{name}-{}.toml", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_that_is_wrong_changes_nothing_and_every_problem_of_it_is_told() {
    story(async {
        let replica = Replica::start(Duration::ZERO);
        let file = File::new("wrong");
        let admin = "[admin]\naddress = '127.0.0.1:0'\n";
        let sound =
            |policy: &str| text(&[replica.address], &format!("policy = '{policy}'\n{admin}"));
        file.write(&sound("c3"));
        let process = Process::start_from(&file.0, Config::load(&file.0).unwrap()).unwrap();
        let (main, desk) = (process.listens()[0], process.admin().unwrap());
        file.write(&sound("c33").replace("drain = '3s'", "drain = 3"));
        let reported = post(desk, "/api/v1/reload").await;
        assert!(reported.starts_with("HTTP/1.1 422"), "{reported}");
        let file_name = file.0.display();
        for words in [
            "\"applied\":false,\"generation\":1",
            "\"key\":\"process.drain\"",
            &format!("\"at\":\"{file_name}:3:9\""),
            "\"key\":\"upstream.web.policy\"",
            "did you mean",
        ] {
            assert!(reported.contains(words), "{words} in {reported}");
        }
        assert!(get(main, "/").await.starts_with("HTTP/1.1 200"), "it runs as before");
        std::fs::remove_file(&file.0).unwrap();
        assert!(post(desk, "/api/v1/reload").await.contains("no readable file"));
        let status = get(desk, "/api/v1/status").await;
        assert!(status.contains("\"policy\":\"c3\""), "{status}");

        file.write(&sound("round-robin"));
        let reported = post(desk, "/api/v1/reload").await;
        let changed = "\"applied\":true,\"generation\":2,\"changed\":[\"upstream.web.policy\"]";
        assert!(reported.starts_with("HTTP/1.1 200") && reported.contains(changed), "{reported}");
        let status = get(desk, "/api/v1/status").await;
        assert!(status.contains("\"policy\":\"round-robin\""), "{status}");
        let again = post(desk, "/api/v1/reload").await;
        assert!(again.contains("\"generation\":2,\"changed\":[]"), "nothing has changed: {again}");
        let metrics = get(desk, "/metrics").await;
        for line in [
            "evenkeel_config_generation 2\n",
            "evenkeel_config_reloads_total{result=\"applied\"} 2\n",
            "evenkeel_config_reloads_total{result=\"invalid\"} 2\n",
            "evenkeel_config_reloads_total{result=\"needs_restart\"} 0\n",
            "evenkeel_config_last_reload_timestamp_seconds 1",
        ] {
            assert!(metrics.contains(line), "{line} in {metrics}");
        }
        stop(process).await;
    });
}

#[test]
fn one_part_that_refuses_keeps_all_others_as_they_were() {
    story(async {
        let (replica, other) = (Replica::start(Duration::ZERO), Replica::start(Duration::ZERO));
        let agent = |timeout: &str| {
            let app = replica.address;
            format!("[[agent]]\nlisten = '127.0.0.1:0'\napp = '{app}'\ntimeout = '{timeout}'\n")
        };
        let first = text(&[replica.address], &agent("5s"));
        let process = Process::start(read(&first)).unwrap();
        let (main, door) = (process.listens(), nobody());
        let listen = format!("[[listen]]\naddress = '{door}'\nupstream = 'web'\n");
        let changed = |more: &str| text(&[other.address], &format!("policy = 'random'\n{more}"));
        for (next, key) in [
            (changed(&(agent("6s") + &listen)), "agent.0.timeout"),
            (changed(&listen), "agent"),
            (changed(&agent("5s")).replace("workers = 2", "workers = 3"), "process.workers"),
            (changed(&agent("5s")) + "[admin]\naddress = '127.0.0.1:0'\n", "admin"),
            (
                changed(&agent("5s")).replace("[upstream.web]", "[upstream.web]\nprotocol = 'cql'"),
                "upstream.web",
            ),
        ] {
            match reload(&process, &next).await {
                Err(ReloadError::NeedsRestart { key: named }) => assert_eq!(named, key),
                other => panic!("{key}: {other:?}"),
            }
            assert!(get(main[0], "/").await.ends_with("served"));
            assert!(TcpStream::connect(door).await.is_err(), "{key}: nobody listens there");
            assert_eq!((process.listens(), other.served.get()), (main.clone(), 0), "{key}");
        }
        let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = occupied.local_addr().unwrap();
        let unusable = changed(&agent("5s")).replace(
            "[upstream.web]",
            &format!("[[listen]]\naddress = '{taken}'\nupstream = 'web'\n[upstream.web]"),
        );
        let error = reload(&process, &unusable).await.unwrap_err();
        assert!(matches!(error, ReloadError::Unusable(_)), "{error:?}");
        assert!(error.to_string().contains(&taken.to_string()), "{error}");
        assert_eq!(process.reloader().status().generation, 1);
        // Where no part objects, the same changes are taken over.
        let reloaded = reload(&process, &changed(&agent("5s"))).await.unwrap();
        assert_eq!(reloaded.changed, ["upstream.web.policy", "upstream.web.replicas"]);
        assert!(get(main[0], "/").await.ends_with("served"));
        assert_eq!(other.served.get(), 1);
        stop(process).await;
    });
}

#[test]
fn an_upstream_that_returns_has_its_counts_and_readiness_asks_only_who_is_named() {
    story(async {
        let replica = Replica::start(Duration::ZERO);
        let admin = "[admin]\naddress = '127.0.0.1:0'\n";
        let (gone, door) = (nobody(), nobody());
        let dead = format!(
            "[[listen]]\naddress = '{door}'\nupstream = 'alpha'\n[upstream.alpha]\n\
             replicas = ['{gone}']\nhealth = {{ interval = '10ms' }}\n"
        );
        let both = text(&[replica.address], &(admin.to_owned() + &dead));
        let process = Process::start(read(&both)).unwrap();
        let desk = process.admin().unwrap();
        let states = std::sync::Arc::clone(process.upstreams());
        until("the check has found it dead", || states.home_up(0) == 0).await;
        assert!(get(desk, "/readyz").await.contains("upstream alpha has no replica up"));
        assert!(get(door, "/").await.starts_with("HTTP/1.1 50"));
        until("it is counted", || states.stats(0).total.opened == 1).await;

        reload(&process, &text(&[replica.address], admin)).await.unwrap();
        assert!(get(desk, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(!get(desk, "/metrics").await.contains("alpha"), "it is named no more");
        assert!(get(process.listens()[0], "/").await.ends_with("served"), "web is where it was");

        let alive = both.replace(&gone.to_string(), &replica.address.to_string());
        reload(&process, &alive).await.unwrap();
        assert!(get(door, "/").await.ends_with("served"));
        until("it counts on", || states.stats(0).total.opened == 2).await;
        stop(process).await;
    });
}

#[test]
fn without_checks_nobody_stays_down() {
    story(async {
        let gone = nobody();
        let with = |checks: &str| text(&[gone, nobody()], checks);
        let process = Process::start(read(&with("health = { interval = '10ms' }\n"))).unwrap();
        let states = std::sync::Arc::clone(process.upstreams());
        until("the checks have found both dead", || states.home_up(0) == 0).await;
        // Other settings take over the verdict in force.
        reload(&process, &text(&[gone], "health = { interval = '11ms', fall = 9 }\n"))
            .await
            .unwrap();
        assert_eq!(states.home_up(0), 0);
        reload(&process, &text(&[gone], "")).await.unwrap();
        until("nothing says that it is down", || states.home_up(0) == 1).await;
        stop(process).await;
    });
}

#[test]
fn reloads_come_one_after_the_other_and_none_while_the_process_stops() {
    story(async {
        let replica = Replica::start(Duration::ZERO);
        let of = |n: usize| text(&[replica.address], &format!("queue_max = {n}\n"));
        let process = Process::start(read(&of(1))).unwrap();
        let at_once: Vec<_> = (2..10)
            .map(|n| {
                let (reloader, config) = (process.reloader().clone(), read(&of(n)));
                tokio::task::spawn_blocking(move || reloader.reload(config).unwrap().generation)
            })
            .collect();
        let mut generations = Vec::new();
        for reload in at_once {
            generations.push(reload.await.unwrap());
        }
        generations.sort_unstable();
        assert_eq!(generations, (2..10).collect::<Vec<u64>>(), "each has come after another");
        let reloader = process.reloader().clone();
        stop(process).await;
        let refused = reloader.reload(read(&of(11)));
        assert!(matches!(refused, Err(ReloadError::Stopping)), "{refused:?}");
        assert_eq!(reloader.status().generation, 9);
    });
}

#[test]
fn an_access_log_that_has_no_folder_keeps_a_reload_from_being_applied() {
    story(async {
        let process = Process::start(read(&text(&[nobody()], ""))).unwrap();
        let log = "[log]\naccess = { path = '/no/such/folder/access.log' }\n";
        let error = reload(&process, &text(&[nobody()], log)).await.unwrap_err();
        let says = "[log] access: got /no/such/folder/access.log";
        assert!(matches!(error, ReloadError::Unusable(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
        stop(process).await;
    });
}
