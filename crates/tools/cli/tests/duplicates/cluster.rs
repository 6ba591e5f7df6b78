//! Clients of Redis Cluster: told where slots are, by two processes of which one leads; and real
//! libraries, while the one that leads is killed, and another told to end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use evenkeel_testkit::caching::CachingClient;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::block_until as until;

use super::leadership::Etcd;
use super::libraries::{self, How, Load, loads, wait_served};
use super::strong::STRONG;
use super::world::{Front, World};

/// Two fronts with doors for clients of Redis Cluster; the second stands by.
struct Scene {
    world: World,
    other: Front,
    /// Where the doors of both are.
    doors: [SocketAddr; 2],
    etcd: Etcd,
}

impl Scene {
    fn set(name: &str, settings: &str) -> Option<Self> {
        let etcd = Etcd::start(name)?;
        let settings = format!("{STRONG}\n{settings}\ncluster = \"DOOR\"\n{}", etcd.settings);
        let mut world = World::of(name, &settings, &[2, 2], 0)?;
        let mut other = world.other_front("two");
        let doors = [nobody(), nobody()];
        for (front, door) in [&world.front, &other].into_iter().zip(doors) {
            front.replace_words("DOOR", &door.to_string());
        }
        world.front.start();
        until("the first leads", || world.front.has_role("leads"));
        other.start();
        until("the second stands by", || other.has_role("stands by"));
        let known = |door| nodes(door).is_some_and(|it| it.lines().count() == 2);
        until("both know both", || doors.into_iter().all(known));
        Some(Self { world, other, doors, etcd })
    }
}

/// What a process says of the nodes.
fn nodes(door: SocketAddr) -> Option<String> {
    let mut client = Client::try_connect(door, Duration::from_secs(2)).ok()?;
    client.try_ask(&["AUTH", "secret"]).ok()?; // an error where there is none
    Some(client.try_ask(&["CLUSTER", "NODES"]).ok()?.text()?.to_owned())
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn error(reply: Reply) -> String {
    let Reply::Error(text) = reply else { panic!("{reply:?} is no error") };
    text
}

/// Whatever each door says, keys are served by the one that leads, which is told; and when it was
/// killed and comes back, it sends its clients on.
pub(crate) fn doors_tell_who_leads() {
    let Some(mut scene) = Scene::set("cluster", "") else { return };
    let [first, second] = scene.doors;
    let (mut leader, mut replica) = (Client::connect(first), Client::connect(second));
    assert_eq!(leader.ask(&["SET", "foo", "1"]), ok());
    assert_eq!(leader.ask(&["MSET", "{foo}a", "1", "{foo}b", "2"]), ok());
    let said = error(leader.ask(&["MGET", "foo", "bar"]));
    assert_eq!(said, "CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(error(leader.ask(&["SELECT", "1"])), "ERR SELECT is not allowed in cluster mode");
    assert_eq!(leader.ask(&["CLUSTER", "COUNTKEYSINSLOT", "12182"]), Reply::Integer(3));
    let Reply::Array(listed) = leader.ask(&["CLUSTER", "GETKEYSINSLOT", "12182", "2"]) else {
        panic!("no list")
    };
    assert_eq!(listed.len(), 2);
    let info = leader.ask(&["INFO"]);
    assert!(info.text().unwrap().contains("cluster_enabled:1\r\n"));
    for command in [&["MULTI"][..], &["SET", "foo", "2"], &["SET", "bar", "2"]] {
        leader.ask(command);
    }
    assert!(error(leader.ask(&["EXEC"])).starts_with("CROSSSLOT "));
    assert_eq!(leader.ask(&["GET", "foo"]), Reply::bulk("1"), "nothing was done");

    // Who stands by tells the other one, and passes on what is no slot's.
    let moved = format!("MOVED 12182 {}:{}", first.ip(), first.port());
    assert_eq!(error(replica.ask(&["GET", "foo"])), moved);
    assert_eq!(replica.ask(&["MULTI"]), ok());
    assert_eq!(error(replica.ask(&["SET", "foo", "3"])), moved);
    assert!(error(replica.ask(&["EXEC"])).starts_with("EXECABORT "));
    let info = replica.ask(&["INFO"]);
    let port = format!("master_port:{}\r\n", first.port());
    assert!(info.text().unwrap().contains(&port) && info.text().unwrap().contains("role:slave"));
    let id = replica.ask(&["CLUSTER", "MYID"]);
    assert!(nodes(first).unwrap().contains(&format!("{} {second}@0 slave", id.text().unwrap())));
    let Reply::Integer(keys) = replica.ask(&["DBSIZE"]) else { panic!("it is not passed on") };
    assert_eq!(keys, 3);
    let mut reader = Client::connect(second);
    assert_eq!(reader.ask(&["READONLY"]), ok());
    assert_eq!(reader.ask(&["GET", "foo"]), Reply::bulk("1"));
    // Who tracks is told, whichever door it came to; a number of this door is nobody at the leader.
    let mut keeping = [first, second].map(|door| CachingClient::connect(door, &[]));
    for one in &mut keeping {
        assert_eq!(one.get("foo"), Reply::bulk("1"));
    }
    assert_eq!(leader.ask(&["SET", "foo", "1"]), ok());
    keeping.iter_mut().for_each(CachingClient::hear_message);
    let Reply::Integer(number) = Client::connect(second).ask(&["CLIENT", "ID"]) else {
        panic!("it has no number")
    };
    let mut other = Client::connect(first);
    let said = other.ask(&["CLIENT", "TRACKING", "ON", "REDIRECT", &number.to_string()]);
    assert_eq!(error(said), "ERR The client ID you want redirect to does not exist");
    // The plain doors are what they were.
    for front in [&scene.world.front, &scene.other] {
        let mut plain = front.client();
        let both = Reply::Array(vec![Reply::bulk("1"), Reply::Null]);
        assert_eq!(plain.ask(&["MGET", "foo", "bar"]), both);
        assert!(error(plain.ask(&["CLUSTER", "SLOTS"])).contains("cluster support disabled"));
    }

    scene.world.front.process.kill();
    until("the second leads", || scene.other.has_role("leads"));
    until("who tracked is let go", || keeping.iter_mut().all(CachingClient::has_ended));
    until("it serves", || {
        let asked = Client::try_connect(second, Duration::from_secs(2));
        asked.is_ok_and(|mut it| it.try_ask(&["GET", "foo"]).is_ok_and(|it| it == Reply::bulk("1")))
    });
    scene.world.front.start();
    let moved = format!("MOVED 12182 {}:{}", second.ip(), second.port());
    until("the first sends on", || {
        let asked = Client::try_connect(first, Duration::from_secs(2));
        asked.is_ok_and(|mut it| {
            it.try_ask(&["GET", "foo"]).is_ok_and(|it| it == Reply::Error(moved.clone()))
        })
    });
    let mut same = Client::connect(second);
    assert_eq!(same.ask(&["CLUSTER", "MYID"]), id, "a node keeps its name");
}

/// Behind a password, and while nobody can lead.
pub(crate) fn nobody_is_let_in_or_answered_too_early() {
    let Some(scene) = Scene::set("cluster-password", "password = \"secret\"") else { return };
    let [first, second] = scene.doors;
    let mut replica = Client::connect(second);
    assert!(error(replica.ask(&["CLUSTER", "SLOTS"])).starts_with("NOAUTH "));
    assert!(error(replica.ask(&["GET", "foo"])).starts_with("NOAUTH "));
    assert!(error(replica.ask(&["DBSIZE"])).starts_with("NOAUTH "), "it is not passed on either");
    assert!(error(replica.ask(&["AUTH", "wrong"])).starts_with("WRONGPASS "));
    assert_eq!(replica.ask(&["AUTH", "secret"]), ok());
    assert_eq!(replica.ask(&["CLIENT", "SETNAME", "far"]), ok());
    assert!(error(replica.ask(&["GET", "foo"])).starts_with("MOVED "));
    assert_eq!(replica.ask(&["DBSIZE"]), Reply::Integer(0), "the leader knows it");
    assert_eq!(replica.ask(&["CLIENT", "GETNAME"]), Reply::bulk("far"));

    let mut leader = Client::connect(first);
    assert_eq!(leader.ask(&["AUTH", "secret"]), ok());
    scene.etcd.signal("-STOP");
    until("it may not lead any more", || {
        let told = leader.ask(&["SET", "foo", "1"]);
        match told {
            Reply::Error(text) => text.starts_with("CLUSTERDOWN the lease in etcd"),
            _ => false,
        }
    });
    scene.etcd.signal("-CONT");
}

/// Real libraries of Redis Cluster go on when the process that leads is killed, and when one is
/// told to end; nothing that was acknowledged is lost. A supervisor starts a process again.
pub(crate) fn libraries_go_on() {
    let Some(folder) = libraries::folder() else { return };
    let Some(mut scene) = Scene::set("libraries", "") else { return };
    // The first script of a partition waits for a stream, longer than libraries wait.
    let mut client = scene.world.front.client();
    for key in ["a", "b", "c", "d", "e", "f"] {
        client.ask(&["EVAL", "return redis.call('set', KEYS[1], 1)", "1", key]);
    }
    let mut loads = loads(&folder, How::Cluster, &scene.doors, &[]);
    loads.iter().for_each(Load::wait_ready);
    wait_served(&loads, Instant::now(), "at first", Duration::from_secs(30));

    let most = Duration::from_secs(30);
    let begun = Instant::now();
    scene.world.front.process.kill();
    let stays_away = std::env::var_os("EVENKEEL_STAYS_AWAY").is_some();
    until("the second leads", || scene.other.has_role("leads"));
    println!("killed: the second leads after {:?}", begun.elapsed());
    if !stays_away {
        scene.world.front.start();
    }
    wait_served(&loads, begun, "killed", if stays_away { 4 * most } else { most });
    if stays_away {
        scene.world.front.start();
    }
    until("the first stands by", || scene.world.front.has_role("stands by"));

    let begun = Instant::now();
    scene.other.process.signal("-TERM");
    until("the first leads", || scene.world.front.has_role("leads"));
    println!("told to end: the first leads after {:?}", begun.elapsed());
    until("the second has ended", || scene.other.process.has_ended());
    scene.other.start();
    wait_served(&loads, begun, "told to end", most);

    loads.iter_mut().for_each(Load::end);
    for load in &loads {
        load.check_lost(|key| libraries::value(scene.doors[0], key));
        let errors = load.failed().len();
        println!("{}: {} acknowledged, {errors} errors", load.name, load.acknowledged());
    }
}
