//! Replicas that DNS, files and Kubernetes tell of, in a process that serves: what is followed,
//! what is not believed, and that no request is lost.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod dns;
mod dnsmasq;
mod files;
mod kubernetes;
mod log;
mod servers;
mod unix;

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dns::Manner;
use evenkeel_core::discovery::Standing;
use evenkeel_http as engine;
use evenkeel_load::{Arrivals, Load, Outcome, Stop, Target};
use evenkeel_proxy::upstream_state::{SourceState, UpstreamStates};
use evenkeel_runtime::accept::{Listener, StopSignal};
use evenkeel_server::config::Config;
use evenkeel_server::process::{Process, Reloaded};
use evenkeel_settings::Node;
use evenkeel_testkit::story::{LIMITS, story_within};
use evenkeel_testkit::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than the lookups of a story take together.
const LIMIT: Duration = Duration::from_secs(150);

/// Replicas at several addresses of this machine with one port, on the test's own thread.
struct Fleet {
    port: u16,
    served: Vec<Rc<Cell<u64>>>,
}

fn ip(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + number as u8)
}

impl Fleet {
    fn start(count: usize) -> Self {
        let bind = |number: usize, port: u16| Listener::bind((ip(number), port).into());
        let listeners = loop {
            let first = bind(0, 0).unwrap();
            let port = first.address().unwrap().port();
            let others = (1..count).map(|number| bind(number, port));
            if let Ok(others) = others.collect::<Result<Vec<_>, _>>() {
                break std::iter::once(first).chain(others).collect::<Vec<_>>();
            }
        };
        let port = listeners[0].address().unwrap().port();
        let served = listeners.into_iter().map(|listener| {
            let served = Rc::<Cell<u64>>::default();
            let count = Rc::clone(&served);
            let handler = move |_: engine::Request<engine::Body>, _| {
                count.set(count.get() + 1);
                async {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    engine::Response::new(engine::Body::full("served"))
                }
            };
            tokio::task::spawn_local(engine::serve(listener, LIMITS, handler, StopSignal::never()));
            served
        });
        Self { port, served: served.collect() }
    }

    fn addresses(&self, numbers: impl IntoIterator<Item = usize>) -> Vec<SocketAddr> {
        numbers.into_iter().map(|number| (ip(number), self.port).into()).collect()
    }

    /// Waits until those of these numbers have served something since now.
    async fn take_part(&self, numbers: std::ops::Range<usize>) {
        let before: Vec<u64> = self.served.iter().map(|count| count.get()).collect();
        until("all take part", || {
            numbers.clone().all(|number| self.served[number].get() > before[number])
        })
        .await;
    }
}

fn start(text: &str) -> Process {
    let node = Node::parse(text, "discovery.toml").unwrap();
    let config = Config::read(&node).unwrap_or_else(|found| panic!("{found}\n{text}"));
    Process::start(config).unwrap()
}

/// A configuration of one upstream; `more` is in its table.
fn text(name: &str, resolver: SocketAddr, more: &str) -> String {
    format!(
        "[process]\nworkers = 2\ndrain = '3s'\nresolvers = ['{resolver}']\n\
         [admin]\naddress = '127.0.0.1:0'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nupstream = '{name}'\n[upstream.{name}]\n{more}\n"
    )
}

async fn reload(process: &Process, text: &str) -> Reloaded {
    let node = Node::parse(text, "discovery.toml").unwrap();
    let (reloader, config) = (process.reloader().clone(), Config::read(&node).unwrap());
    tokio::task::spawn_blocking(move || reloader.reload(config)).await.unwrap().unwrap()
}

async fn stop(process: Process) {
    tokio::task::spawn_blocking(move || process.stop().unwrap()).await.unwrap();
}

async fn get(to: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Requests that come all the time, until they are stopped.
struct Requests(Stop, Option<tokio::task::JoinHandle<Outcome>>);

impl Drop for Requests {
    fn drop(&mut self) {
        self.0.stop(); // also of a test that fails, which else would wait for them
    }
}

impl Requests {
    fn start(to: SocketAddr) -> Self {
        let url = format!("http://{to}/");
        let mut load =
            Load::new(Target::new([url.as_str()]).unwrap(), Arrivals::poisson(300.0).unwrap());
        load.plan.duration = None;
        let done = Stop::new();
        let over = done.clone();
        let running = tokio::task::spawn_blocking(move || load.run(&over, |_| ()).unwrap());
        Self(done, Some(running))
    }

    /// None has failed.
    async fn all_are_served(mut self) {
        self.0.stop();
        let report = self.1.take().unwrap().await.unwrap().report;
        assert!(report.served > 20, "{report:?}");
        assert_eq!((report.failed, report.timeouts), (0, 0), "{report:?}");
    }

    /// None has failed, nor any attempt of one: nothing breaks that would need another try. (On a
    /// busy machine a replica may look silent, and a request go also to another.)
    async fn none_is_lost(self, states: &UpstreamStates) {
        self.all_are_served().await;
        let total = states.stats(0).total;
        let failed: u64 = total.replicas.iter().map(|replica| replica.failed).sum();
        assert_eq!((total.refused, failed), (0, 0));
    }
}

fn members(states: &UpstreamStates) -> Vec<SocketAddr> {
    let members = states.members(0).into_iter();
    let mut members: Vec<_> = members.filter_map(|(_, at, _)| at.inet()).collect();
    members.sort_unstable();
    members
}

fn source(states: &UpstreamStates) -> SourceState {
    states.sources(0).swap_remove(0)
}

#[test]
fn a_fleet_grows_and_shrinks_by_dns_and_a_server_that_dies_or_lies_loses_no_request() {
    log::keep();
    story_within(LIMIT, async {
        let (fleet, server) = (Fleet::start(9), dns::Server::start());
        let ips = |count: usize| (0..count).map(ip).collect::<Vec<_>>();
        server.host("grows.test", &ips(3));
        let port = fleet.port;
        let process = start(&text(
            "grows",
            server.address,
            &format!(
                "replicas = ['grows.test:{port}']\nhealth = {{ interval = '2s', rise = 1 }}\n\
                 safeguards = {{ slow_start = '1s' }}"
            ),
        ));
        let (states, main) = (Arc::clone(process.upstreams()), process.listens()[0]);
        assert_eq!(members(&states), fleet.addresses(0..3), "before the first request");
        let requests = Requests::start(main);
        fleet.take_part(0..3).await;
        server.host("grows.test", &ips(9));
        until("there are nine", || members(&states).len() == 9).await;
        fleet.take_part(0..9).await;
        server.host("grows.test", &ips(2));
        until("there are two", || members(&states).len() == 2).await;
        let counted: u64 = states.stats(0).total.replicas[0].succeeded;
        assert!(counted > 0, "who stays keeps its counts");
        // No answer and "nobody" in turn: each is seen in a count of its own.
        for (manner, is_empty) in [
            (Manner::ServFail, false),
            (Manner::NoSuchName, true),
            (Manner::Garbage, false),
            (Manner::Empty, true),
            (Manner::Silent, false),
        ] {
            let count = |it: SourceState| if is_empty { it.counts.empty } else { it.counts.failed };
            let before = count(source(&states));
            server.set(|zone| zone.manner = manner);
            until("it lies", || count(source(&states)) > before).await;
            fleet.take_part(0..2).await;
        }
        assert_eq!(source(&states).standing, Standing::Failing);
        assert_eq!(members(&states), fleet.addresses(0..2), "they stay");
        let metrics = get(process.admin().unwrap(), "/metrics").await;
        let labels = format!("{{upstream=\"grows\",source=\"grows.test:{port}\"");
        for line in [
            format!("evenkeel_discovery_stale{labels}}} 1\n"),
            format!("evenkeel_discovery_replicas{labels}}} 2\n"),
            format!("evenkeel_discovery_age_seconds{labels}}} "),
            format!("evenkeel_discovery_answers_total{labels},outcome=\"failed\"}} "),
        ] {
            assert!(metrics.contains(&line), "{line} in {metrics}");
        }
        let status = get(process.admin().unwrap(), "/api/v1/status").await;
        assert!(status.contains("\"standing\":\"failing\""), "{status}");

        // It is well again, and tells of a thousand that are nobody.
        let strangers = (0..1_200_u16).map(|n| Ipv4Addr::new(127, 9, (n >> 8) as u8, n as u8));
        let all: Vec<Ipv4Addr> = ips(2).into_iter().chain(strangers).collect();
        server.set(|zone| {
            zone.manner = Manner::Honest;
            zone.hosts.insert("grows.test".to_owned(), all);
        });
        until("there are a thousand", || members(&states).len() == 1_000).await;
        fleet.take_part(0..2).await;
        server.host("grows.test", &ips(2));
        until("there are two", || members(&states).len() == 2).await;
        until("it is called well", || log::count("grows", "answers well again") == 1).await;
        requests.none_is_lost(&states).await;
        assert_eq!(log::count("grows", "replicas stay"), 1, "said once: {:?}", log::all("grows"));
        assert_eq!(log::count("grows", "of no replicas"), 0, "{:?}", log::all("grows"));
        assert_eq!(log::count("grows", "at most 1000"), 1, "{:?}", log::all("grows"));
        stop(process).await;
    });
}

#[test]
fn a_name_that_nobody_knows_yet_keeps_a_process_from_nothing_but_being_ready() {
    log::keep();
    story_within(LIMIT, async {
        let (fleet, server) = (Fleet::start(3), dns::Server::start());
        let port = fleet.port;
        let by_name = text("later", server.address, &format!("replicas = ['later.test:{port}']"));
        let process = start(&by_name);
        let (states, main) = (Arc::clone(process.upstreams()), process.listens()[0]);
        let desk = process.admin().unwrap();
        let refused = get(main, "/").await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.contains("no replica may be used"), "{refused}");
        let ready = get(desk, "/readyz").await;
        let words = format!("it has 0 in all); later.test:{port} is empty");
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains(&words), "{ready}");
        server.host("later.test", &[ip(0), ip(1), ip(2)]);
        until("it is there", || members(&states).len() == 3).await;
        until("the workers have it", || states.home_up(0) == 3).await;
        let answer = evenkeel_testkit::wait::found("it is served", async || {
            Some(get(main, "/").await).filter(|it| it.starts_with("HTTP/1.1 200"))
        });
        assert!(answer.await.ends_with("served"));
        evenkeel_testkit::wait::found("it is ready", async || {
            Some(get(desk, "/readyz").await).filter(|it| it.starts_with("HTTP/1.1 200"))
        })
        .await;
        assert_eq!(log::count("later", "of no replicas"), 1, "{:?}", log::all("later"));

        // One leaves and returns: its slot, and what was counted of it.
        let home = states.home(0);
        let slot = home.iter().position(|at| at.host() == ip(1).to_string()).unwrap();
        let counted = || states.stats(0).total.replicas.get(slot).map_or(0, |it| it.succeeded);
        while counted() == 0 {
            get(main, "/").await;
        }
        server.host("later.test", &[ip(0), ip(2)]);
        until("it has left", || members(&states).len() == 2).await;
        let known = counted();
        server.host("later.test", &[ip(0), ip(1), ip(2)]);
        until("it has returned", || members(&states).len() == 3).await;
        assert_eq!(states.home(0), home, "each has its slot");
        assert!(known > 0 && counted() >= known);

        // From a name to an address and to another name, with requests all the time.
        let requests = Requests::start(main);
        let by_address = format!("replicas = ['{}:{port}']", ip(0));
        let reloaded = reload(&process, &text("later", server.address, &by_address)).await;
        assert_eq!(reloaded.changed, ["upstream.later.replicas"]);
        assert_eq!(members(&states), fleet.addresses(0..1));
        server.set(|zone| zone.manner = Manner::Silent);
        let other = format!("replicas = ['other.test:{port}']");
        reload(&process, &text("later", server.address, &other)).await;
        assert_eq!(members(&states), fleet.addresses(0..1), "until the other is known");
        server.host("other.test", &[ip(1)]);
        server.set(|zone| zone.manner = Manner::Honest);
        until("the other is known", || members(&states) == fleet.addresses(1..2)).await;
        fleet.take_part(1..2).await;
        requests.all_are_served().await;
        stop(process).await;
    });
}

#[test]
fn a_name_is_asked_once_for_all_upstreams_ports_and_workers() {
    story_within(LIMIT, async {
        let server = dns::Server::start();
        server.set(|zone| zone.ttl = 300);
        server.host("one.test", &[ip(0)]);
        let first = text("first", server.address, "replicas = ['one.test:1', 'one.test:2']");
        let more = "[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'second'\n\
                    [upstream.second]\nreplicas = ['ONE.test:3', 'localhost:4']\n";
        let process = start(&format!("{first}{more}"));
        let states = process.upstreams();
        let all = [0, 1].map(|place| states.members(place).len());
        assert_eq!(all, [2, 2], "both ports, and an address of localhost");
        assert!((1..=2).contains(&server.asked("one.test")), "{}", server.asked("one.test"));
        assert_eq!(server.asked("localhost"), 0, "that is in the hosts file");
        stop(process).await;
    });
}
