//! Clients that come to a process that stands by, and clients that ask by Sentinel's protocol.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use evenkeel_testkit::caching::CachingClient;
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::block_until as until;

use super::leadership::Etcd;
use super::libraries::{self, How, Load, loads, wait_served};
use super::strong::STRONG;
use super::world::{Front, World};

/// Two fronts, the second stands by; each answers by Sentinel's protocol too.
struct Scene {
    world: World,
    other: Front,
    sentinels: [SocketAddr; 2],
    _etcd: Etcd,
}

impl Scene {
    fn set(name: &str, change: impl Fn(&Front, &Front)) -> Option<Self> {
        let etcd = Etcd::start(name)?;
        let settings = format!("{STRONG}\nsentinel = \"SENTINEL\"\n{}", etcd.settings);
        let mut world = World::of(name, &settings, &[3], 0)?;
        let mut other = world.other_front("two");
        let sentinels = [nobody(), nobody()];
        for (front, sentinel) in [&world.front, &other].into_iter().zip(sentinels) {
            front.replace_words("SENTINEL", &sentinel.to_string());
        }
        change(&world.front, &other);
        world.front.start();
        world.front.wait_live(3);
        other.start();
        until("the second stands by", || other.has_role("stands by"));
        Some(Self { world, other, sentinels, _etcd: etcd })
    }
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn pair(address: SocketAddr) -> Reply {
    Reply::Array(vec![
        Reply::bulk(&address.ip().to_string()),
        Reply::bulk(&address.port().to_string()),
    ])
}

/// Connections that a front has taken, as Linux tells; elsewhere none.
fn taken(front: &Front) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let (its, established) = (format!(":{:04X}", front.address.port()), "01");
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|it| it[1].ends_with(&its) && it[3] == established).count()
}

/// Who is told to lead.
fn told(sentinel: SocketAddr) -> Option<Reply> {
    let mut client = Client::try_connect(sentinel, Duration::from_secs(2)).ok()?;
    client.try_ask(&["SENTINEL", "get-master-addr-by-name", "chaos"]).ok()
}

/// A client of the second process is one of the first; when that dies, it waits for the second.
pub(crate) fn any_front_serves_any_client() {
    let Some(mut scene) = Scene::set("relay", |_, _| {}) else { return };
    let mut direct = scene.world.front.client();
    let mut relayed = scene.other.client();
    assert_eq!(relayed.ask(&["SET", "k", "1"]), ok());
    assert_eq!(direct.ask(&["GET", "k"]), Reply::bulk("1"));
    assert_eq!(direct.ask(&["SET", "k", "2"]), ok());
    assert_eq!(relayed.ask(&["GET", "k"]), Reply::bulk("2"));
    let long = "x".repeat(3 << 20);
    assert_eq!(relayed.ask(&["SET", "long", &long]), ok());
    assert_eq!(relayed.ask(&["GET", "long"]), Reply::bulk(&long));
    // A client that says nothing, or half a command, has no connection to the leader yet.
    let silent = scene.other.client();
    let mut slow = scene.other.client();
    slow.send(b"*2\r\n$10\r\nEK.REL");
    slow.send(b"ATED\r\n$1\r\nx\r\n");
    let Reply::Error(said) = slow.read() else { panic!("nobody says so") };
    assert!(said.starts_with("ERR unknown command"), "{said}");
    // As the leader knows it, it is the client's own address.
    let mut named = scene.other.client();
    assert_eq!(named.ask(&["CLIENT", "SETNAME", "far"]), ok());
    let own = named.local().to_string();
    let list = direct.ask(&["CLIENT", "LIST"]);
    let list = list.text().unwrap();
    let line = list.lines().find(|line| line.contains("name=far")).unwrap();
    assert!(line.contains(&format!("addr={own} ")), "{line}");
    drop(silent);

    scene.world.front.process.kill();
    assert!(relayed.try_ask(&["GET", "k"]).is_err(), "it ended with the leader");
    let begun = Instant::now();
    let answer = loop {
        // Held until somebody leads; cut off, and not refused, when that is the second one.
        let mut client = scene.other.client();
        match client.try_ask(&["GET", "k"]) {
            Ok(answer) => break answer,
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(20), "nobody leads"),
        }
    };
    println!("a client that came while nobody led had its answer after {:?}", begun.elapsed());
    assert_eq!(answer, Reply::bulk("2"), "no error");
    until("it is known as the leader", || scene.other.has_role("leads"));
}

/// A leader that is stopped keeps its connections: clients that were passed on to it are freed when
/// another one leads. And a process that is told to end lets its clients finish.
pub(crate) fn no_client_stays_with_a_former_leader() {
    let Some(mut scene) = Scene::set("former", |_, _| {}) else { return };
    let mut third = scene.world.other_front("three");
    third.replace_words("SENTINEL", &nobody().to_string());
    third.start();
    until("the third stands by", || third.has_role("stands by"));
    let mut relayed = third.client();
    assert_eq!(relayed.ask(&["SET", "k", "1"]), ok());
    // One of the two that stand by ends; its client has the answer that it is owed.
    let mut waiting = scene.other.client();
    assert_eq!(waiting.ask(&["GET", "k"]), Reply::bulk("1"));
    waiting.tell(&["BLPOP", "queue", "30"]);
    until("it waits", || scene.world.front.info().contains("blocked_clients:1\r\n"));
    scene.other.process.signal("-TERM");
    let told = waiting.try_read();
    assert!(matches!(&told, Ok(Reply::Error(_) | Reply::Null) | Err(_)), "{told:?}");
    until("it ends", || scene.other.process.has_ended());

    scene.world.front.process.signal("-STOP");
    relayed.tell(&["GET", "k"]);
    assert!(relayed.try_read().is_err(), "it was with a process that answers nobody");
    let begun = Instant::now();
    let answer = loop {
        let mut client = third.client();
        match client.try_ask(&["GET", "k"]) {
            Ok(answer) => break answer,
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(20), "nobody leads"),
        }
    };
    assert_eq!(answer, Reply::bulk("1"));
}

/// Clients that keep what they read are told by way of a process that stands by too. When another
/// one leads, nobody tells them any more: those that were passed on are let go at once, those of
/// the former leader when it wakes.
pub(crate) fn nobody_keeps_what_a_former_leader_answered() {
    let Some(scene) = Scene::set("keeping", |_, _| {}) else { return };
    let (former, next) = (&scene.world.front, &scene.other);
    let mut keeping = [
        CachingClient::connect(next.address, &[]),
        CachingClient::connect(former.address, &[]),
        CachingClient::connect(former.address, &["BCAST", "PREFIX", "k"]),
    ];
    let mut writer = next.client();
    for one in &mut keeping {
        assert_eq!(one.get("k"), Reply::Null);
    }
    assert_eq!(writer.ask(&["SET", "k", "1"]), ok());
    for one in &mut keeping {
        one.hear_message();
        assert!(one.keeps.is_empty());
        assert_eq!(one.get("k"), Reply::bulk("1"));
    }
    former.process.signal("-STOP");
    until("the second leads", || next.has_role("leads"));
    assert_eq!(next.client().ask(&["SET", "k", "2"]), ok());
    let [passed_on, others @ ..] = &mut keeping;
    until("who was passed on is let go", || passed_on.has_ended());
    former.process.signal("-CONT");
    until("the others are let go", || others.iter_mut().all(CachingClient::has_ended));
    let mut again = CachingClient::connect(next.address, &[]);
    assert_eq!(again.get("k"), Reply::bulk("2"));
}

/// TLS ends at the process that the client reaches; the leader is believed by `relay_tls`.
pub(crate) fn behind_tls() {
    let Some(etcd) = Etcd::start("relay-tls") else { return };
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["127.0.0.1"]);
    let [ca, one, its_key] = ["ca.pem", "one.pem", "one.key"].map(|it| etcd.folder.file(it));
    for (file, text) in [(&ca, authority.pem()), (&one, certificate), (&its_key, key)] {
        std::fs::write(file, text).unwrap();
    }
    let settings = format!(
        "{STRONG}\ntls = {{certificate = \"{}\", key = \"{}\"}}\nrelay_tls = {{ca = \"{}\"}}\n{}",
        one.display(),
        its_key.display(),
        ca.display(),
        etcd.settings
    );
    let Some(mut world) = World::of("relay-tls", &settings, &[3], 0) else { return };
    let mut other = world.other_front("two");
    world.front.start();
    until("the first leads", || world.front.has_role("leads"));
    other.start();
    until("the second stands by", || other.has_role("stands by"));
    let asked = |port: u16, command: &[&str]| {
        let mut cli = Command::new("redis-cli");
        cli.args(["--tls", "--cacert"]).arg(&ca).args(["-p", &port.to_string()]).args(command);
        let output = cli.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        String::from_utf8_lossy(&output.stdout).into_owned() + &errors
    };
    assert_eq!(asked(other.address.port(), &["SET", "k", "1"]), "OK\n");
    assert_eq!(asked(world.front.address.port(), &["GET", "k"]), "1\n");
    // Who does not believe the leader passes no client on.
    let stranger = etcd.folder.file("stranger.pem");
    std::fs::write(&stranger, Authority::new().pem()).unwrap();
    other.process.kill();
    other.replace_words(
        &format!("relay_tls = {{ca = \"{}", ca.display()),
        &format!("relay_tls = {{ca = \"{}", stranger.display()),
    );
    other.start();
    until("it stands by again", || other.has_role("stands by"));
    let said = asked(other.address.port(), &["GET", "k"]);
    assert!(said.contains("UNAVAILABLE this process stands by"), "{said}");
}

/// Two processes that take each other for the leader pass a client on once.
pub(crate) fn no_client_goes_round_in_circles() {
    // The first one says that it is where the second one is.
    let listens = |first: &Front, second: &Front| {
        let words = "sentinel = ";
        first.replace_words(words, &format!("advertise = \"{}\"\n{words}", second.address));
    };
    let Some(scene) = Scene::set("circles", listens) else { return };
    let mut client = scene.other.client();
    let begun = Instant::now();
    client.tell(&["GET", "k"]);
    let mut most = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        most = most.max(taken(&scene.other));
    }
    assert!(most <= 2, "{most} connections: a client, and the same passed on once, are two");
    let Reply::Error(said) = client.read() else { panic!("somebody answers") };
    assert!(said.starts_with("UNAVAILABLE this process stands by") && said.contains("not lead"));
    assert!(begun.elapsed() >= Duration::from_secs(4), "it was held for two leases");
    assert_eq!(scene.world.front.client().ask(&["SET", "k", "1"]), ok(), "the first one leads");
}

/// Both tell who leads, and those who listen when that changes.
pub(crate) fn sentinel_tells_who_leads() {
    let Some(mut scene) = Scene::set("sentinel", |_, _| {}) else { return };
    let (first, second) = (scene.world.front.address, scene.other.address);
    for sentinel in scene.sentinels {
        until("it tells the first", || told(sentinel) == Some(pair(first)));
    }
    let mut client = Client::connect(scene.sentinels[1]);
    let unknown = client.ask(&["SENTINEL", "get-master-addr-by-name", "other"]);
    assert_eq!(unknown, Reply::Null);
    let Reply::Error(said) = client.ask(&["SENTINEL", "failover", "chaos"]) else {
        panic!("nothing is changed here")
    };
    assert!(said.contains("the lease decides"), "{said}");
    let Reply::Array(masters) = client.ask(&["SENTINEL", "MASTERS"]) else { panic!("no list") };
    let Reply::Array(fields) = &masters[0] else { panic!("{masters:?}") };
    let value = |name: &str| {
        let at = fields.iter().position(|field| field.text() == Some(name)).unwrap();
        fields[at + 1].text().unwrap().to_owned()
    };
    assert_eq!((value("name"), value("flags")), ("chaos".to_owned(), "master".to_owned()));
    assert_eq!(value("port"), first.port().to_string());

    let mut listener = Client::connect(scene.sentinels[1]);
    let confirmed = listener.ask(&["SUBSCRIBE", "+switch-master"]);
    let parts = |texts: [&str; 2]| texts.map(Reply::bulk).to_vec();
    let mut expected = parts(["subscribe", "+switch-master"]);
    expected.push(Reply::Integer(1));
    assert_eq!(confirmed, Reply::Array(expected));
    scene.world.front.process.kill();
    let switched =
        format!("chaos {} {} {} {}", first.ip(), first.port(), second.ip(), second.port());
    let mut expected = parts(["message", "+switch-master"]);
    expected.push(Reply::bulk(&switched));
    assert_eq!(listener.read(), Reply::Array(expected));
    assert_eq!(told(scene.sentinels[1]), Some(pair(second)));
    scene.world.front.start();
    until("the first one tells it too", || told(scene.sentinels[0]) == Some(pair(second)));
}

/// Libraries that send a command again by themselves when its connection has ended.
const RETRY: [&str; 4] = ["redis-py", "go-redis", "ioredis", "lettuce"];

/// Limits of a machine that runs six libraries and all their servers at once: a lease that is late
/// or a duplicate that is slow would be a failure that nobody asked for.
fn is_busy(first: &Front, second: &Front) {
    for front in [first, second] {
        front.replace_words("lease = \"2s\"", "lease = \"6s\"");
        front.replace_words("reply_timeout = \"300ms\"", "reply_timeout = \"2s\"");
    }
}

/// Real libraries, as plain clients of the second process or as clients of Sentinel: what they must
/// be able to do, then counters, messages and pops. The first process leads and is told to end; the
/// second one is killed, and a supervisor starts it again; the first one is told to end again.
/// Nothing that was acknowledged is lost, and whoever retries sees no error when a leader ends.
pub(crate) fn libraries_go_on(how: How) {
    let Some(folder) = libraries::folder() else { return };
    let Some(mut scene) = Scene::set("plain-libraries", is_busy) else { return };
    // The first script of a partition waits for a stream, longer than libraries wait.
    let mut client = scene.world.front.client();
    client.ask(&["EVAL", "return redis.call('set', KEYS[1], 1)", "1", "a"]);
    let plain = [scene.other.address];
    let addresses = if how == How::Sentinel { &scene.sentinels[..] } else { &plain };
    let mut loads = loads(&folder, how, addresses, &[]);
    loads.iter().for_each(Load::wait_ready);
    let most = Duration::from_secs(60);
    wait_served(&loads, Instant::now(), "at first", most);

    told_to_end(&mut scene, &loads, most);

    let failed = libraries::failures(&loads);
    let begun = Instant::now();
    scene.other.process.kill();
    until("the first leads", || scene.world.front.has_role("leads"));
    println!("killed: the first leads after {:?}", begun.elapsed());
    scene.other.start();
    wait_served(&loads, begun, "killed", most);
    libraries::told("killed", &loads, &failed);
    until("the second stands by", || scene.other.has_role("stands by"));

    told_to_end(&mut scene, &loads, most);

    loads.iter_mut().for_each(Load::end);
    for load in &loads {
        load.check_lost(|key| libraries::value(scene.other.address, key));
        println!("{}: {} acknowledged", load.name, load.acknowledged());
    }
    scene.other.settle(3);
    scene.world.converged();
}

/// The first process leads, is told to end and is started again; whoever retries has no error.
fn told_to_end(scene: &mut Scene, loads: &[Load], most: Duration) {
    let failed = libraries::failures(loads);
    let begun = Instant::now();
    scene.world.front.process.signal("-TERM");
    until("the second leads", || scene.other.has_role("leads"));
    println!("told to end: the second leads after {:?}", begun.elapsed());
    until("the first has ended", || scene.world.front.process.has_ended());
    scene.world.front.start();
    wait_served(loads, begun, "told to end", most);
    until("the first stands by", || scene.world.front.has_role("stands by"));
    for (name, errors) in libraries::told("told to end", loads, &failed) {
        assert!(errors.is_empty() || !RETRY.contains(&name), "{name}: {errors:?}");
    }
}
