//! Servers that are one each and known by a name: they are looked up as a connection is opened, and
//! stay who they are wherever the name leads.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::rc::Rc;

use evenkeel_dns::{Lookups, Names, Resolver};
use evenkeel_server::process::Process;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::redis::{self, Client, Reply};
use evenkeel_testkit::story::{nobody, possible_story, story_within};
use evenkeel_testkit::wait::{found, found_within, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::dns::{Manner, Server};
use crate::{LIMIT, get, ip, log, start, stop};

/// Applications that close every connection behind their answer, which is their number.
struct Apps {
    port: u16,
    running: Vec<AbortHandle>,
    served: Rc<Cell<u64>>,
}

impl Apps {
    async fn start(count: usize) -> Self {
        let first = TcpListener::bind((ip(0), 0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let mut apps = Self { port, running: Vec::new(), served: Rc::default() };
        apps.serve(first, 0);
        for number in 1..count {
            let listener = TcpListener::bind((ip(number), port)).await.unwrap();
            apps.serve(listener, number);
        }
        apps
    }

    fn serve(&mut self, listener: TcpListener, number: usize) {
        let served = Rc::clone(&self.served);
        let running = tokio::task::spawn_local(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4_096];
                if stream.read(&mut request).await.is_ok_and(|length| length > 0) {
                    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\n";
                    let _ = stream.write_all(format!("{head}app {number}").as_bytes()).await;
                    served.set(served.get() + 1);
                }
            }
        });
        self.running.push(running.abort_handle());
    }
}

fn agent(resolver: SocketAddr, app: &str) -> Process {
    start(&format!(
        "[process]\nworkers = 1\ndrain = '3s'\nresolvers = ['{resolver}']\n\
         [[agent]]\nlisten = '127.0.0.1:0'\napp = '{app}'\n"
    ))
}

#[test]
fn an_application_is_found_wherever_its_name_leads_and_dns_may_fail() {
    log::keep();
    story_within(LIMIT, async {
        let (apps, server) = (Apps::start(2).await, Server::start());
        server.host("app.test", &[ip(0)]);
        let process = agent(server.address, &format!("app.test:{}", apps.port));
        let at = process.agents()[0];
        assert!(get(at, "/").await.ends_with("app 0"));
        // Answers are good for a second here. Every connection from now on finds that they are not
        // any more.
        for manner in [Manner::ServFail, Manner::Empty, Manner::NoSuchName, Manner::Silent] {
            server.set(|zone| zone.manner = manner);
            let before = server.asked("app.test");
            found_within(LIMIT, "it was asked, and the last address serves", async || {
                assert!(get(at, "/").await.ends_with("app 0"), "{manner:?}");
                (server.asked("app.test") > before + 1).then_some(())
            })
            .await;
        }
        let of_name = || evenkeel_testkit::log::lines("host=\"app.test\"");
        let told = of_name().iter().filter(|line| line.contains("last addresses stay")).count();
        assert_eq!(told, 1, "once, not per request: {:?}", of_name());
        // The first of two addresses has nobody: the next one is tried.
        server.set(|zone| zone.manner = Manner::Honest);
        server.host("app.test", &[Ipv4Addr::new(127, 0, 0, 1), ip(1)]);
        found_within(LIMIT, "it is found where the name leads now", async || {
            let answer = get(at, "/").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            answer.ends_with("app 1").then_some(())
        })
        .await;
        assert!(of_name().iter().any(|line| line.contains("known again")), "{:?}", of_name());
        stop(process).await;
    });
}

#[test]
fn a_name_that_leads_nowhere_is_a_server_that_cannot_be_reached() {
    log::keep();
    story_within(LIMIT, async {
        let (apps, server) = (Apps::start(1).await, Server::start());
        let process = agent(server.address, &format!("nowhere.test:{}", apps.port));
        let at = process.agents()[0];
        for _ in 0..20 {
            let answer = get(at, "/").await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
            assert!(answer.contains("nowhere.test"), "{answer}");
        }
        let told = evenkeel_testkit::log::count("host=\"nowhere.test\"", "nobody can connect");
        assert_eq!((told, apps.served.get()), (1, 0));
        server.host("nowhere.test", &[ip(0)]);
        found("it is found at last", async || get(at, "/").await.ends_with("app 0").then_some(()))
            .await;
        stop(process).await;
    });
}

/// It moves before its answer has run out.
#[test]
fn nobody_at_the_known_addresses_is_a_reason_to_ask_again() {
    story_within(LIMIT, async {
        let (apps, server) = (Apps::start(2).await, Server::start());
        server.set(|zone| zone.ttl = 3_600);
        server.host("moved.test", &[ip(0)]);
        let process = agent(server.address, &format!("moved.test:{}", apps.port));
        let at = process.agents()[0];
        assert!(get(at, "/").await.ends_with("app 0"));
        server.host("moved.test", &[ip(1)]);
        apps.running[0].abort();
        found("the other one answers", async || {
            get(at, "/").await.ends_with("app 1").then_some(())
        })
        .await;
        stop(process).await;
    });
}

#[test]
fn whoever_waits_for_the_first_answer_gets_it_and_it_is_asked_for_once() {
    story_within(LIMIT, async {
        let server = Server::start();
        server.set(|zone| zone.ttl = 3_600);
        server.host("many.test", &[ip(0), ip(1)]);
        let names = Names::new(Resolver::new(vec![server.address]));
        let (one, other, third) = tokio::join!(
            names.addresses("many.test"),
            names.addresses("many.test"),
            names.addresses("many.test"),
        );
        let both = [ip(0).into(), ip(1).into()];
        assert_eq!((&one.unwrap()[..], &other.unwrap()[..]), (&both[..], &both[..]));
        assert_eq!((third.unwrap().len(), server.asked("many.test")), (2, 1));
        names.prefer("many.test", both[1]);
        assert_eq!(names.addresses("many.test").await.unwrap(), [both[1], both[0]]);
        assert_eq!(server.asked("many.test"), 1, "it is good for an hour");
        let whole = Lookups { whole: 1, ..Lookups::default() };
        assert_eq!(names.lookups(), whole);
        assert!(names.addresses("nobody.test").await.is_err());
        assert_eq!(names.lookups(), Lookups { failed: 1, failing: 1, ..whole });
    });
}

/// A Redis that keeps nothing, at one of several addresses.
fn redis_at(number: usize, port: u16) -> (Program, SocketAddr) {
    let address = SocketAddr::from((ip(number), port));
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", &ip(number).to_string(), "--save", ""]);
    let mut server = Program::start(command.stdout(Stdio::null()));
    server.wait_listening(address);
    (server, address)
}

/// Its name is who it is: where that leads to an empty server it is filled, and nobody reads there
/// before it has everything.
#[test]
fn a_duplicate_whose_name_leads_to_another_server_is_filled_there() {
    possible_story(redis::possible(), LIMIT, async || {
        let (server, folder, port) = (Server::start(), Folder::new("names"), nobody().port());
        let mut redises: Vec<_> = (0..3).map(|number| redis_at(number, port)).collect();
        server.host("one.test", &[ip(0)]);
        server.host("two.test", &[ip(1)]);
        let process = start(&format!(
            "[process]\nworkers = 1\nresolvers = ['{}']\n[duplicates.cart]\n\
             listen = '127.0.0.1:0'\ndirectory = '{}'\nstore = 'redis'\n\
             partitions = [['one.test:{port}', 'two.test:{port}']]\n",
            server.address,
            folder.path().display()
        ));
        let (at, state) = process.duplicates()[0].clone();
        let live = |count: usize| {
            let state = state.borrow();
            let all = state.partitions.iter().flat_map(|partition| &partition.duplicates);
            let live: Vec<_> = all.filter(|it| it.state == "in-sync").collect();
            assert!(live.iter().all(|it| it.address.contains(".test:")), "{live:?}");
            live.len() == count
        };
        until("both are live", || live(2)).await;
        let mut client = Client::connect(at);
        assert_eq!(client.ask(&["SET", "a", "1"]), Reply::Simple("OK".to_owned()));
        server.host("two.test", &[ip(2)]);
        redises[1].0.kill();
        let mut elsewhere = Client::connect(redises[2].1);
        until("it is filled elsewhere", || elsewhere.ask(&["GET", "a"]) == Reply::bulk("1")).await;
        until("it is live there", || live(2)).await;
        stop(process).await;
    });
}
