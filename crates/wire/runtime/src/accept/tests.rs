//! A protocol of lines, in virtual time and in memory.

mod sockets;

use std::future::poll_fn;
use std::pin::Pin;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::io::{BufReader, DuplexStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::places::ACCEPT_PAUSE;
use super::*;
use crate::tls::{Identity, ServerTls, ServerTlsFiles};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn config() -> AcceptConfig {
    AcceptConfig {
        connections_max: 100,
        handshake: 2 * SECOND,
        first: 4 * SECOND,
        idle: 8 * SECOND,
        write: 6 * SECOND,
        age: Duration::MAX,
        drain: 10 * SECOND,
        filters: ListenerFilters::NONE,
    }
}

/// The sweep's tick with these limits, by which they are exceeded at most twice.
const TICK: Duration = Duration::from_millis(250);

/// Every line is a request and answered with "ok", or "last" where no other is taken. "hold" is
/// answered when it is released, "flood" with more than fits into the pipe.
#[derive(Default)]
struct Lines {
    release: Notify,
    holds: Cell<usize>,
    events: RefCell<Vec<Event>>,
    admitted: Cell<Option<usize>>,
}

impl ServeConnection for Lines {
    async fn serve(self: Rc<Self>, stream: Stream, _peer: Peer, link: Rc<Link>) {
        let mut stream = BufReader::new(stream);
        loop {
            let begun = async { stream.fill_buf().await.is_ok_and(|bytes| !bytes.is_empty()) };
            let drained = async {
                link.ordered(Order::Drain).await;
                false
            };
            if !first(begun, drained).await {
                return;
            }
            link.enter(Phase::Reading);
            let mut line = String::new();
            if stream.read_line(&mut line).await.is_err() || !line.ends_with('\n') {
                return;
            }
            link.enter(Phase::Serving);
            if line == "hold\n" {
                self.holds.set(self.holds.get() + 1);
                self.release.notified().await;
            }
            let is_last = !link.takes_more();
            let flood = if line == "flood\n" { "x".repeat(1 << 20) } else { String::new() };
            let answer = format!("{flood}{}\n", if is_last { "last" } else { "ok" });
            write(stream.get_mut(), &link, answer.as_bytes()).await;
            if is_last || line == "quit\n" {
                let linger = Linger::UntilClosed;
                let _ =
                    poll_fn(|cx| poll_leave(Pin::new(stream.get_mut()), &link, linger, cx)).await;
                return;
            }
            link.enter(Phase::Idle);
        }
    }

    async fn admit(&self, _peer: &Peer) -> bool {
        let Some(left) = self.admitted.get() else { return true };
        self.admitted.set(Some(left.saturating_sub(1)));
        left > 0
    }

    fn count(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }
}

/// The same where a client may be told to leave between requests.
struct Evicting(Rc<Lines>);

impl ServeConnection for Evicting {
    const MAY_EVICT: bool = true;

    async fn serve(self: Rc<Self>, stream: Stream, peer: Peer, link: Rc<Link>) {
        Rc::clone(&self.0).serve(stream, peer, link).await;
    }
}

impl Lines {
    fn counted(&self, event: Event) -> usize {
        self.events.borrow().iter().filter(|it| **it == event).count()
    }
}

async fn write(stream: &mut Stream, link: &Link, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| {
            let poll = Pin::new(&mut *stream).poll_write(cx, bytes);
            link.write_blocked(poll.is_pending());
            poll
        });
        match written.await {
            Ok(count) => bytes = &bytes[count..],
            Err(_) => return,
        }
    }
}

/// A listener in memory, and who listens.
struct World {
    lines: Rc<Lines>,
    dialer: Dialer,
    stop: Stop,
    limits: watch::Sender<Arc<AcceptConfig>>,
    serving: JoinHandle<io::Result<Served>>,
}

impl World {
    fn new(config: AcceptConfig) -> Self {
        Self::of(config, |lines| lines)
    }

    fn evicting(config: AcceptConfig) -> Self {
        Self::of(config, |lines| Rc::new(Evicting(lines)))
    }

    fn of<H: ServeConnection>(config: AcceptConfig, of: impl FnOnce(Rc<Lines>) -> Rc<H>) -> Self {
        let ((listener, dialer), stop, lines) = (Listener::memory(), Stop::new(), Rc::default());
        let limits = watch::Sender::new(Arc::new(config));
        let handler = of(Rc::clone(&lines));
        let accepting = accept(listener, limits.subscribe(), handler, stop.signal());
        Self { lines, dialer, stop, limits, serving: tokio::task::spawn_local(accepting) }
    }

    fn client(&self) -> Client {
        Client(BufReader::new(self.dialer.connect().unwrap()))
    }

    async fn stopped(self, drain: Duration) -> Served {
        self.stop.stop(drain).await;
        self.serving.await.unwrap().unwrap()
    }
}

struct Client(BufReader<DuplexStream>);

impl Client {
    async fn say(&mut self, words: &str) {
        self.0.get_mut().write_all(words.as_bytes()).await.unwrap();
    }

    /// The next line; empty at the end.
    async fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line
    }

    async fn ask(&mut self, words: &str) -> String {
        self.say(words).await;
        self.hear().await
    }

    /// How long it takes until the other side closes.
    async fn closed_after(&mut self) -> Duration {
        let began = Instant::now();
        assert_eq!(self.hear().await, "");
        began.elapsed()
    }
}

/// In virtual time: it jumps to the next deadline whenever nobody has anything to do.
fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(Default::default()).unwrap();
    runtime.block_on(async { tokio::time::timeout(24 * HOUR, test).await.expect("it ends") });
}

fn assert_about(spent: Duration, limit: Duration) {
    assert!(spent >= limit && spent <= limit + 2 * TICK, "{spent:?}, expected {limit:?}");
}

#[test]
fn a_client_that_asks_nothing_is_cut_off() {
    run(async {
        let world = World::new(config());
        assert_about(world.client().closed_after().await, 4 * SECOND);
        assert_eq!(*world.lines.events.borrow(), [Event::Accepted, Event::TimedOut, Event::Gone]);
    });
}

#[test]
fn a_request_that_trickles_in_does_not_renew_its_time() {
    run(async {
        let world = World::new(config());
        let mut client = world.client();
        assert_eq!(client.ask("one\n").await, "ok\n");
        sleep(2 * SECOND).await;
        let began = Instant::now();
        let (mut read, mut write) = tokio::io::split(client.0.into_inner());
        let trickling = tokio::task::spawn_local(async move {
            while write.write_all(b"x").await.is_ok() {
                sleep(100 * MS).await;
            }
        });
        assert_eq!(read.read(&mut [0]).await.unwrap(), 0);
        assert_about(began.elapsed(), 4 * SECOND);
        trickling.await.unwrap();
    });
}

#[test]
fn an_idle_client_is_cut_off_and_one_that_waits_for_its_answer_is_not() {
    run(async {
        let world = World::new(config());
        let (mut idle, mut waiting) = (world.client(), world.client());
        waiting.say("hold\n").await;
        for _ in 0..3 {
            assert_eq!(idle.ask("one\n").await, "ok\n");
            sleep(7 * SECOND).await; // its idle time begins anew with every request
        }
        assert_eq!(idle.ask("one\n").await, "ok\n");
        assert_about(idle.closed_after().await, 8 * SECOND);
        sleep(HOUR).await;
        world.lines.release.notify_one();
        assert_eq!(waiting.hear().await, "ok\n");
        assert_eq!(world.lines.counted(Event::TimedOut), 1);
    });
}

/// Nobody is cut off: who asks goes on asking elsewhere, who waits gets its answer.
#[test]
fn old_connections_are_told_to_come_back_at_different_times() {
    run(async {
        let world = World::new(AcceptConfig { age: 100 * SECOND, ..config() });
        let mut waiting = world.client();
        waiting.say("hold\n").await;
        let began = Instant::now();
        let busy = |mut client: Client| async move {
            while client.ask("one\n").await == "ok\n" {
                assert!(began.elapsed() < 200 * SECOND, "it was never told");
                sleep(100 * MS).await;
            }
            assert_eq!(client.hear().await, "", "it was the last answer");
            began.elapsed()
        };
        let busy: Vec<_> =
            (0..50).map(|_| tokio::task::spawn_local(busy(world.client()))).collect();
        let mut ages = Vec::new();
        for client in busy {
            ages.push(client.await.unwrap());
        }
        ages.sort_unstable();
        assert!(ages[0] >= 75 * SECOND && ages[49] <= 101 * SECOND, "{ages:?}");
        // Of fifty that are drawn from 25 s no half is within 6 s but once in a million tests.
        assert!(ages.windows(25).all(|ages| ages[24] - ages[0] > 6 * SECOND), "{ages:?}");
        sleep(HOUR).await;
        world.lines.release.notify_one();
        assert_eq!(waiting.hear().await, "last\n");
        assert_eq!(world.lines.counted(Event::TimedOut), 0);
    });
}

#[test]
fn a_client_that_takes_nothing_is_cut_off_and_a_slow_one_is_not() {
    run(async {
        let world = World::new(config());
        let (mut stuck, mut slow) = (world.client(), world.client());
        stuck.say("flood\n").await;
        slow.say("flood\n").await;
        let began = Instant::now();
        let mut taken = 0;
        while taken < 1 << 20 {
            sleep(SECOND).await;
            taken += slow.0.get_mut().read(&mut [0; 32 << 10]).await.unwrap();
        }
        assert!(began.elapsed() > 30 * SECOND, "{:?}", began.elapsed());
        assert_eq!(slow.hear().await, "ok\n");
        assert_eq!(world.lines.counted(Event::TimedOut), 1);
        let mut rest = Vec::new();
        stuck.0.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() < 1 << 20, "cut off in the middle");
    });
}

#[test]
fn a_client_that_does_not_leave_is_cut_off_but_not_counted_as_such() {
    run(async {
        let world = World::new(config());
        let mut client = world.client();
        assert_eq!(client.ask("quit\n").await, "ok\n");
        let began = Instant::now();
        while world.lines.counted(Event::Gone) == 0 {
            client.0.get_mut().write_all(b"and another thing").await.unwrap();
            sleep(10 * MS).await;
        }
        assert_about(began.elapsed(), 2 * SECOND);
        let mut client = world.client();
        assert_eq!(client.ask("quit\n").await, "ok\n");
        assert_eq!(world.stopped(SECOND).await.cut_off, 0);
    });
}

#[test]
fn a_client_that_does_not_begin_tls_is_cut_off() {
    run(async {
        let named = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = std::env::temp_dir().join(format!("evenkeel-accept-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let identity = Identity { certificate: folder.join("c.pem"), key: folder.join("k.pem") };
        std::fs::write(&identity.certificate, named.cert.pem()).unwrap();
        std::fs::write(&identity.key, named.signing_key.serialize_pem()).unwrap();
        let files = ServerTlsFiles {
            identities: vec![identity],
            client_ca: None,
            is_client_optional: false,
        };
        let tls = ServerTls::load(&files, &[]).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let world =
            World::new(AcceptConfig { filters: ListenerFilters::of_tls(Some(tls)), ..config() });
        assert_about(world.client().closed_after().await, 2 * SECOND);
        let mut nonsense = world.client();
        nonsense.say("one\n").await;
        let mut reported = Vec::new();
        nonsense.0.read_to_end(&mut reported).await.unwrap(); // an alert, at once
        assert_eq!(world.lines.counted(Event::TimedOut), 1);
        let _silent = world.client();
        assert_eq!(world.stopped(10 * SECOND).await.cut_off, 0, "it was told to drain");
    });
}

#[test]
fn clients_beyond_the_limit_wait_until_one_leaves_or_the_limit_rises() {
    run(async {
        let world = World::new(AcceptConfig { connections_max: 2, ..config() });
        let mut clients: Vec<Client> = (0..4).map(|_| world.client()).collect();
        for client in &mut clients {
            client.say("hold\n").await;
        }
        sleep(HOUR).await;
        assert_eq!(world.lines.holds.get(), 2);
        drop(clients.remove(0)); // it is in the middle of a request: nobody notices
        world.lines.release.notify_waiters();
        assert_eq!(clients[0].hear().await, "ok\n");
        while world.lines.holds.get() < 3 {
            sleep(MS).await;
        }
        assert_eq!(world.lines.holds.get(), 3);
        world.limits.send_replace(Arc::new(AcceptConfig { connections_max: 3, ..config() }));
        while world.lines.holds.get() < 4 {
            sleep(MS).await;
        }
    });
}

#[test]
fn the_longest_idle_client_leaves_for_one_who_waits() {
    run(async {
        let world = World::evicting(AcceptConfig { connections_max: 3, ..config() });
        let [mut held, mut first, mut second] = [(); 3].map(|()| world.client());
        held.say("hold\n").await;
        assert_eq!(first.ask("one\n").await, "ok\n");
        sleep(4 * TICK).await;
        assert_eq!(second.ask("one\n").await, "ok\n");
        let mut waiting = world.client();
        assert_eq!(waiting.ask("one\n").await, "ok\n");
        assert_eq!(first.closed_after().await, Duration::ZERO);
        // Now nobody has been idle for long.
        let began = Instant::now();
        assert_eq!(world.client().ask("one\n").await, "ok\n");
        let spent = began.elapsed();
        assert!((TICK..=4 * TICK).contains(&spent), "{spent:?}");
        assert_eq!(second.closed_after().await, Duration::ZERO);
        world.lines.release.notify_one();
        assert_eq!(held.hear().await, "ok\n");
    });
}

#[test]
fn clients_that_say_nothing_leave_before_those_that_were_served() {
    run(async {
        let world = World::evicting(AcceptConfig { connections_max: 3, ..config() });
        let [mut served, mut silent, mut other] = [(); 3].map(|()| world.client());
        assert_eq!(served.ask("one\n").await, "ok\n");
        sleep(4 * TICK).await;
        let mut waiting = world.client();
        assert_eq!(waiting.ask("one\n").await, "ok\n");
        assert_eq!(silent.closed_after().await, Duration::ZERO);
        for client in [&mut served, &mut other] {
            assert_eq!(client.ask("one\n").await, "ok\n");
        }
    });
}

#[test]
fn who_waits_for_another_to_leave_when_draining_begins_is_served_once() {
    run(async {
        let world = World::evicting(AcceptConfig { connections_max: 1, ..config() });
        let mut held = world.client();
        held.say("hold\n").await;
        let mut waiting = world.client();
        waiting.say("one\n").await;
        sleep(SECOND).await;
        world.stop.enter(Stage::Draining { until: Instant::now() + 5 * SECOND });
        assert_eq!(waiting.hear().await, "last\n");
        world.lines.release.notify_one();
        assert_eq!(held.hear().await, "last\n");
    });
}

#[test]
fn a_client_that_is_not_admitted_is_closed_and_counted() {
    run(async {
        let world = World::new(config());
        world.lines.admitted.set(Some(1));
        let mut admitted = world.client();
        assert_eq!(admitted.ask("one\n").await, "ok\n");
        assert_eq!(world.client().closed_after().await, Duration::ZERO);
        let served = world.stopped(SECOND).await;
        assert_eq!(served, Served { accepted: 1, rejected: 1, cut_off: 0 });
    });
}

#[test]
fn out_of_descriptors_it_rests_and_after_a_client_that_gave_up_it_does_not() {
    run(async {
        let world = World::new(config());
        let mut began = Instant::now();
        world.dialer.fail(io::Error::other("too many open files"));
        assert_eq!(world.client().ask("one\n").await, "ok\n");
        assert_eq!(began.elapsed(), ACCEPT_PAUSE);
        began = Instant::now();
        world.dialer.fail(io::ErrorKind::ConnectionAborted.into());
        assert_eq!(world.client().ask("one\n").await, "ok\n");
        assert_eq!(began.elapsed(), Duration::ZERO);
    });
}

#[test]
fn a_lame_duck_accepts_and_tells_its_clients_to_go() {
    run(async {
        let world = World::new(config());
        let mut kept = world.client();
        assert_eq!(kept.ask("one\n").await, "ok\n");
        world.stop.enter(Stage::LameDuck);
        sleep(HOUR / 2_000).await; // 1.8 s, less than it may idle
        let mut late = world.client();
        assert_eq!(late.ask("one\n").await, "last\n");
        assert_eq!(late.closed_after().await, Duration::ZERO);
        assert_eq!(kept.ask("two\n").await, "last\n");
        assert_eq!(kept.closed_after().await, Duration::ZERO);
        drop((kept, late));
        // Nobody is left to be told.
        assert_eq!(world.serving.await.unwrap().unwrap().accepted, 2);
        world.dialer.connect().unwrap_err();
    });
}

#[test]
fn draining_answers_what_was_asked_or_begun_and_closes_what_is_idle() {
    run(async {
        let world = World::new(config());
        let [mut silent, mut idle, mut begun, mut held] = [(); 4].map(|()| world.client());
        assert_eq!(idle.ask("one\n").await, "ok\n");
        begun.say("on").await;
        held.say("hold\n").await;
        sleep(BACKLOG_GRACE).await;
        let [mut new, mut new_too] = [(); 2].map(|()| world.client());
        sleep(MS).await;
        world.stop.enter(Stage::Draining { until: Instant::now() + 5 * SECOND });
        assert_eq!(silent.closed_after().await, Duration::ZERO);
        assert_eq!(idle.closed_after().await, Duration::ZERO);
        // Who has just come is about to ask.
        sleep(BACKLOG_GRACE / 2).await;
        assert_eq!(new.ask("one\n").await, "last\n");
        drop(new);
        assert_eq!(new_too.closed_after().await, BACKLOG_GRACE / 2);
        assert_eq!(begun.ask("e\n").await, "last\n");
        sleep(3 * SECOND).await;
        world.lines.release.notify_one();
        assert_eq!(held.hear().await, "last\n");
        drop((begun, held));
        let served = world.serving.await.unwrap().unwrap();
        assert_eq!(served, Served { accepted: 6, rejected: 0, cut_off: 0 });
    });
}

#[test]
fn who_is_not_done_when_the_drain_is_over_is_cut_off_and_counted() {
    for (reported, own) in [(3 * SECOND, 10 * SECOND), (10 * SECOND, 3 * SECOND)] {
        run(async {
            let world = World::new(AcceptConfig { drain: own, ..config() });
            let [mut begun, mut held] = [(); 2].map(|()| world.client());
            begun.say("on").await;
            held.say("hold\n").await;
            sleep(MS).await;
            let began = Instant::now();
            world.stop.enter(Stage::Draining { until: began + reported });
            assert_eq!(held.closed_after().await, 3 * SECOND);
            assert_eq!(begun.closed_after().await, Duration::ZERO);
            let served = world.serving.await.unwrap().unwrap();
            assert_eq!(served, Served { accepted: 2, rejected: 0, cut_off: 2 });
        });
    }
}

#[test]
fn closing_does_not_wait_for_the_end_of_the_drain() {
    run(async {
        let world = World::new(config());
        let mut held = world.client();
        held.say("hold\n").await;
        sleep(MS).await;
        world.stop.enter(Stage::Draining { until: Instant::now() + HOUR });
        sleep(SECOND).await;
        world.stop.enter(Stage::Closing);
        assert_eq!(held.closed_after().await, Duration::ZERO);
        assert_eq!(world.serving.await.unwrap().unwrap().cut_off, 1);
    });
}

#[test]
fn who_waited_to_be_accepted_when_draining_begins_is_served_once() {
    run(async {
        let world = World::new(AcceptConfig { connections_max: 1, ..config() });
        let mut held = world.client();
        held.say("hold\n").await;
        let (mut waiting, mut silent) = (world.client(), world.client());
        waiting.say("one\n").await;
        sleep(MS).await;
        let began = Instant::now();
        world.stop.enter(Stage::Draining { until: began + 5 * SECOND });
        assert_eq!(waiting.hear().await, "last\n");
        assert_eq!(silent.closed_after().await, BACKLOG_GRACE);
        world.lines.release.notify_one();
        assert_eq!(held.hear().await, "last\n");
        drop((waiting, held));
        assert_eq!(world.serving.await.unwrap().unwrap().cut_off, 0);
    });
}

#[test]
fn stopping_goes_through_its_stages_and_ends_early_when_all_is_done() {
    run(async {
        let world = World::new(config());
        let (began, mut held) = (Instant::now(), world.client());
        held.say("hold\n").await;
        let lines = Rc::clone(&world.lines);
        let stopping = tokio::task::spawn_local(world.stopped(8 * SECOND));
        sleep(2 * SECOND).await;
        lines.release.notify_one();
        assert_eq!(held.hear().await, "last\n");
        drop(held);
        assert_eq!(stopping.await.unwrap().cut_off, 0);
        assert_eq!(began.elapsed(), 2 * SECOND);
    });
}

#[test]
fn a_process_that_forgets_its_listeners_drains_them_within_their_own_limit() {
    run(async {
        let world = World::new(config());
        let mut held = world.client();
        held.say("hold\n").await;
        sleep(MS).await;
        drop(world.stop);
        assert_eq!(held.closed_after().await, 10 * SECOND);
        assert_eq!(world.serving.await.unwrap().unwrap().cut_off, 1);
    });
}

/// A part of a whole, and what closes it by being dropped.
fn part(whole: &Stop) -> (StopSignal, oneshot::Sender<()>, JoinHandle<()>) {
    let ((close, closed), stop) = (oneshot::channel(), Stop::new());
    let closed = async {
        let _ = closed.await;
    };
    let signal = stop.signal();
    let stopping = stop.stop_with(whole.signal(), closed, 8 * SECOND);
    (signal, close, tokio::task::spawn_local(stopping))
}

#[test]
fn a_part_that_is_closed_stops_alone_within_its_own_time() {
    run(async {
        let whole = Stop::new();
        let (mut signal, close, stopping) = part(&whole);
        sleep(SECOND).await;
        assert_eq!(signal.stage(), Stage::Running);
        let began = Instant::now();
        drop(close);
        signal.stopping().await;
        assert_eq!((signal.stage(), began.elapsed()), (Stage::LameDuck, Duration::ZERO));
        signal.accepting_ends().await;
        assert_eq!(began.elapsed(), 250 * MS);
        signal.over().await;
        assert_eq!((began.elapsed(), whole.stage()), (8 * SECOND, Stage::Running));
        stopping.await.unwrap();
    });
}

#[test]
fn a_part_stops_with_the_whole_stage_by_stage_also_when_it_is_closed_already() {
    run(async {
        for is_closed in [false, true] {
            let whole = Stop::new();
            let (signal, close, stopping) = part(&whole);
            let close = Some(close).filter(|_| !is_closed);
            let until = Instant::now() + 20 * SECOND;
            for stage in [Stage::LameDuck, Stage::Draining { until }, Stage::Closing] {
                whole.enter(stage);
                sleep(MS).await;
                assert_eq!(signal.stage(), stage);
            }
            drop((signal, close));
            stopping.await.unwrap();
        }
    });
}

#[test]
fn a_part_that_has_ended_keeps_the_whole_from_nothing() {
    run(async {
        let whole = Stop::new();
        let (signal, close, stopping) = part(&whole);
        drop(signal);
        stopping.await.unwrap();
        let began = Instant::now();
        whole.stop(8 * SECOND).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        drop(close);
        let whole = Stop::new();
        let (mut signal, _close, stopping) = part(&whole);
        drop(whole);
        signal.stopping().await; // forgotten, as the whole was
        assert_eq!(signal.stage(), Stage::Running);
        stopping.await.unwrap();
    });
}

#[test]
fn accepting_that_is_dropped_closes_its_connections() {
    run(async {
        let world = World::new(config());
        let mut held = world.client();
        held.say("hold\n").await;
        sleep(MS).await;
        world.serving.abort();
        assert_eq!(held.closed_after().await, Duration::ZERO);
    });
}

#[test]
fn without_connections_nothing_ticks() {
    run(async {
        let worker = Rc::new(Worker::new(config().fixed(), Rc::new(Lines::default()), false));
        let sweep = tokio::task::spawn_local(Rc::clone(&worker).sweep());
        sleep(HOUR).await;
        assert_eq!(worker.ticks.get(), 0);
        let (listener, dialer) = Listener::memory();
        let mut source = listener.open().unwrap();
        let mut client = Client(BufReader::new(dialer.connect().unwrap()));
        let (stream, peer) = source.next().await.unwrap();
        worker.welcome(stream, peer, None);
        assert_about(client.closed_after().await, 4 * SECOND);
        let ticks = worker.ticks.get();
        assert!(ticks >= 16, "{ticks}");
        sleep(HOUR).await;
        assert!(worker.ticks.get() <= ticks + 1, "{} after {ticks}", worker.ticks.get());
        sweep.abort();
    });
}

#[test]
#[should_panic(expected = "stopping goes forward")]
fn stopping_does_not_go_back() {
    let stop = Stop::new();
    stop.enter(Stage::Closing);
    stop.enter(Stage::LameDuck);
}
