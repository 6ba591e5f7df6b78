//! Probes between a real proxy and real agents, through a relay that does to datagrams what
//! networks do.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Rng;
use evenkeel_http::{Body, Client, Fields, Response, Upstream, serve};
use evenkeel_http_proxy::agent_state::AgentProbes;
use evenkeel_http_proxy::config::AgentConfig;
use evenkeel_http_proxy::replica::{Agent, PROBE_PATH};
use evenkeel_http_proxy::route::Route;
use evenkeel_proxy::upstream_state::ProbeCounts;
use evenkeel_runtime::accept::{Listener, StopSignal};
use evenkeel_runtime::clock::Clock;
use evenkeel_testkit::relay::Relay;
use evenkeel_testkit::story::{LIMITS, MS, UPSTREAM, skipped, story};
use evenkeel_testkit::wait::until;
use http::StatusCode;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use self::common::proxy_before;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// By which keys are asked for and told.
const HEADER: &str = "evenkeel-probe";

/// An agent before an application that answers at once. Dropping it kills it.
struct Replica {
    agent: Rc<Agent>,
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Replica {
    fn start(ip: IpAddr) -> Self {
        Self::at(Listener::bind((ip, 0).into()).unwrap(), true)
    }

    fn at(listener: Listener, udp_probes: bool) -> Self {
        let mut tasks = JoinSet::new();
        let app = Listener::bind((V4, 0).into()).unwrap();
        let (address, app_address) = (listener.address().unwrap(), app.address().unwrap());
        let config = AgentConfig {
            address,
            app: app_address.into(),
            concurrency: Some(4),
            queue_max: 100,
            queue_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            dimmer: None,
            udp_probes,
            limits: LIMITS,
            upstream_limits: UPSTREAM,
            tls: None,
            app_tls: None,
        };
        let answer = |_, _: Rc<Client>| async { Response::new(Body::full("hello")) };
        tasks.spawn_local(
            async move { drop(serve(app, LIMITS, answer, StopSignal::never()).await) },
        );
        let agent = Agent::new(&config, Clock::start());
        let its = Rc::clone(&agent);
        tasks.spawn_local(async move { drop(its.serve(listener, StopSignal::never()).await) });
        Self { agent, address, _tasks: tasks }
    }

    fn probes(&self) -> AgentProbes {
        self.agent.state().probes
    }
}

/// A proxy whose policy asks three agents with every request, and a client of it.
struct Proxy {
    route: Rc<Route>,
    client: Upstream,
    counted: Cell<ProbeCounts>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    fn before(replicas: &[SocketAddr]) -> Self {
        let (route, client, tasks) = proxy_before(replicas, "policy = 'prequal'\n", |_| ());
        Self { route, client, counted: Cell::default(), _tasks: tasks }
    }

    /// What became of questions so far.
    fn counts(&self) -> ProbeCounts {
        let mut counts = self.counted.get();
        counts.merge(&self.route.observe().probes);
        self.counted.set(counts);
        counts
    }

    /// Sends requests, which are all answered, until what became of questions is as wanted.
    async fn until(&self, what: &str, wanted: impl Fn(&ProbeCounts) -> bool) -> ProbeCounts {
        for _ in 0..20_000 {
            let answer = ask(&self.client, "/").await;
            assert_eq!((answer.0, &*answer.2), (StatusCode::OK, "hello"));
            let counts = self.counts();
            if wanted(&counts) {
                return counts;
            }
            tokio::time::sleep(MS).await;
        }
        panic!("not {what}: {:?}", self.counts());
    }

    /// A later probe of every agent goes in a datagram and is answered.
    async fn until_more(&self, replicas: &[&Replica]) {
        let before: Vec<u64> = replicas.iter().map(|it| it.probes().answered).collect();
        let is_asked = |(it, before): (&&Replica, &u64)| it.probes().answered > before + 5;
        let all_asked = |_: &ProbeCounts| replicas.iter().zip(&before).all(is_asked);
        self.until("asked in datagrams again", all_asked).await;
    }
}

async fn ask(client: &Upstream, path: &str) -> (StatusCode, Fields, String) {
    let request = http::Request::get(path).header("host", "web").header(HEADER, "1");
    let answer = client.send(request.body(Body::empty()).unwrap().into()).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect(1 << 20).await.unwrap();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn probes_go_over_http_once_and_then_in_datagrams() {
    story(async {
        for ip in [V4, IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            if let Err(error) = std::net::TcpListener::bind((ip, 0)) {
                skipped(&format!("addresses of version 6: {error}"));
                continue;
            }
            let replicas = [(); 3].map(|()| Replica::start(ip));
            let proxy = Proxy::before(&replicas.each_ref().map(|it| it.address));
            let counts = proxy.until("asked", |counts| counts.udp.answered >= 100).await;
            assert_eq!((counts.http.answered, counts.http.unanswered), (3, 0), "{counts:?}");
            assert_eq!(counts.invalid, 0);
            for replica in &replicas {
                let AgentProbes { answered_http, answered, foreign, malformed, .. } =
                    replica.probes();
                assert_eq!((answered_http, foreign, malformed), (1, 0, 0));
                assert!(answered >= 20, "{answered}");
            }
            let known = proxy.route.observe().replicas;
            assert!(known.iter().any(|it| it.queue_length == Some(0)), "{known:?}");
        }
    });
}

#[test]
fn lost_late_reordered_and_doubled_datagrams_harm_nobody() {
    story(async {
        let replica = Replica::start(V4);
        let relay = Relay::before(replica.address).await;
        let proxy = Proxy::before(&[relay.address()]);
        proxy.until("asked", |counts| counts.udp.answered > 5).await;
        let rng = RefCell::new(Rng::seeded(7));
        relay.change(move |_, bytes| {
            let mut rng = rng.borrow_mut();
            let copies = [0, 1, 1, 1, 2][(rng.unit() * 5.0) as usize];
            (0..copies).map(|_| (6 * MS.mul_f64(rng.unit()), bytes.clone())).collect()
        });
        let is_all_seen = |counts: &ProbeCounts| {
            counts.udp.answered > 50 && counts.udp.unanswered > 20 && counts.unexpected > 10
        };
        let counts = proxy.until("lost and late", is_all_seen).await;
        assert!(replica.probes().replayed > 0, "{:?}", replica.probes());
        assert_eq!((counts.invalid, replica.probes().foreign), (0, 0));
        relay.change(|_, bytes| vec![(Duration::ZERO, bytes)]);
        proxy.until_more(&[&replica]).await;
    });
}

#[test]
fn answers_that_always_come_late_are_dropped_and_probes_go_over_http() {
    story(async {
        let replica = Replica::start(V4);
        let relay = Relay::before(replica.address).await;
        relay.change(|_, bytes| vec![(200 * MS, bytes)]);
        let proxy = Proxy::before(&[relay.address()]);
        let is_late = |counts: &ProbeCounts| counts.unexpected >= 3 && counts.http.answered > 20;
        let counts = proxy.until("late", is_late).await;
        assert_eq!((counts.udp.answered, counts.invalid), (0, 0));
    });
}

#[test]
fn where_no_datagram_gets_through_probes_go_over_http_and_nothing_else_changes() {
    story(async {
        let replica = Replica::start(V4);
        let relay = Relay::before(replica.address).await;
        relay.change(|_, _| Vec::new());
        let proxy = Proxy::before(&[relay.address()]);
        let counts = proxy.until("asked", |counts| counts.http.answered > 100).await;
        assert_eq!((counts.udp.answered, counts.http.unanswered), (0, 0));
        assert!((3..=12).contains(&counts.udp.unanswered), "given up soon: {counts:?}");
        relay.change(|_, bytes| vec![(Duration::ZERO, bytes)]);
        proxy.until_more(&[&replica]).await;
    });
}

#[test]
fn an_agent_whose_port_is_taken_or_that_wants_no_datagrams_is_asked_over_http() {
    story(async {
        let listener = Listener::bind((V4, 0).into()).unwrap();
        let taken = UdpSocket::bind(listener.address().unwrap()).await.unwrap();
        let without = Listener::bind((V4, 0).into()).unwrap();
        let replicas = [Replica::at(listener, true), Replica::at(without, false)];
        let proxy = Proxy::before(&replicas.each_ref().map(|it| it.address));
        let counts = proxy.until("asked", |counts| counts.http.answered > 50).await;
        assert_eq!(counts, ProbeCounts { http: counts.http, ..ProbeCounts::default() });
        assert!(taken.try_recv(&mut [0]).is_err(), "nobody sends there");
        drop(taken); // as a process does that this one has replaced
        let is_taken = || std::net::UdpSocket::bind(replicas[0].address).is_err();
        until("the port is tried again", is_taken).await;
    });
}

#[test]
fn a_restarted_agent_knows_no_key_and_tells_another() {
    story(async {
        let first = Replica::start(V4);
        let address = first.address;
        let proxy = Proxy::before(&[address]);
        let before = proxy.until("asked", |counts| counts.udp.answered > 10).await;
        drop(first);
        tokio::time::sleep(10 * MS).await; // its sockets close
        let second = Replica::at(Listener::bind(address).unwrap(), true);
        let is_asked = |counts: &ProbeCounts| counts.udp.answered > before.udp.answered + 10;
        let counts = proxy.until("asked again", is_asked).await;
        assert!((3..9).contains(&counts.udp.unanswered), "{counts:?}");
        assert!(second.probes().foreign >= 3 && second.probes().answered > 0);
    });
}

#[test]
fn forged_and_strange_answers_end_no_question() {
    story(async {
        let replica = Replica::start(V4);
        let relay = Relay::before(replica.address).await;
        let proxy = Proxy::before(&[relay.address()]);
        relay.change(|is_question, bytes| {
            let change = |place: usize| {
                let mut changed = bytes.clone();
                changed[place] ^= 4;
                (Duration::ZERO, changed)
            };
            let mut sent = Vec::new();
            if !is_question {
                // Another version, another key, another report, another tag; too short, too long.
                sent.extend([2, 5, 30, 80].map(change));
                let short = bytes[..bytes.len() - 1].to_vec();
                let long = [&bytes[..], b"x"].concat();
                sent.extend([short, long, Vec::new()].map(|bytes| (Duration::ZERO, bytes)));
            }
            sent.push((MS, bytes.clone()));
            sent
        });
        let counts = proxy.until("asked", |counts| counts.udp.answered > 20).await;
        assert!(counts.invalid >= 7 * 20, "{counts:?}");
    });
}

#[test]
fn strangers_and_replays_get_no_answer() {
    story(async {
        let replica = Replica::start(V4);
        let relay = Relay::before(replica.address).await;
        let seen = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&seen);
        relay.change(move |is_question, bytes| {
            kept.borrow_mut().push((is_question, bytes.clone()));
            vec![(Duration::ZERO, bytes)]
        });
        let proxy = Proxy::before(&[relay.address()]);
        proxy.until("asked", |counts| counts.udp.answered > 10).await;
        let seen = seen.take();
        let question = seen.iter().find(|(is_question, _)| *is_question).unwrap().1.clone();
        let answer = seen.iter().find(|(is_question, _)| !*is_question).unwrap().1.clone();
        let stranger = UdpSocket::bind((V4, 0)).await.unwrap();
        let changed = |place: usize| {
            let mut changed = question.clone();
            changed[place] ^= 1;
            changed
        };
        let before = replica.probes();
        let wrong = [
            question.clone(), // replayed
            changed(87),      // forged: tag, nonce, key
            changed(15),
            changed(7),
            changed(2), // another version
            answer,     // the agent's own words
            question[..60].to_vec(),
            [question.clone(), question.clone()].concat(),
            Vec::new(),
        ];
        for bytes in &wrong {
            stranger.send_to(bytes, replica.address).await.unwrap();
        }
        // Of the proxy's own questions some are answered meanwhile.
        let dropped = |of: AgentProbes| (of.replayed, of.foreign, of.malformed);
        let expected = (before.replayed + 1, before.foreign + 3, before.malformed + 5);
        until("all are counted", || dropped(replica.probes()) == expected).await;
        tokio::time::sleep(5 * MS).await;
        assert!(stranger.try_recv(&mut [0]).is_err(), "nobody is answered");
        proxy.until_more(&[&replica]).await;
    });
}

#[test]
fn a_flood_of_datagrams_holds_up_no_request() {
    story(async {
        let replica = Replica::start(V4);
        let proxy = Proxy::before(&[replica.address]);
        proxy.until("asked", |counts| counts.udp.answered > 5).await;
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let to = replica.address;
        let flood = std::thread::spawn(move || {
            let socket = std::net::UdpSocket::bind((V4, 0)).unwrap();
            let mut sent = 0_u64;
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let _ = socket.send_to(&[0; 88], to);
                sent += 1;
            }
            sent
        });
        until("the flood is there", || replica.probes().malformed > 1_000).await;
        for _ in 0..50 {
            assert_eq!(ask(&proxy.client, "/").await.0, StatusCode::OK);
        }
        let read = replica.probes().malformed;
        drop(stop);
        let sent = flood.join().unwrap();
        assert!(sent > read, "{sent} sent, {read} read");
        proxy.until_more(&[&replica]).await;
    });
}

#[test]
fn keys_are_for_proxies_and_not_for_their_clients() {
    story(async {
        let replica = Replica::start(V4);
        let proxy = Proxy::before(&[replica.address]);
        let agent = Upstream::new(replica.address, UPSTREAM);
        let (status, headers, _) = ask(&agent, PROBE_PATH).await;
        assert_eq!((status, headers.contains(HEADER)), (StatusCode::NO_CONTENT, true));
        let (status, headers, _) = ask(&proxy.client, PROBE_PATH).await;
        assert_eq!((status, headers.contains(HEADER)), (StatusCode::NO_CONTENT, false));
        let (_, headers, _) = ask(&agent, "/").await;
        assert!(!headers.contains(HEADER), "an answer to a request tells none");
    });
}
