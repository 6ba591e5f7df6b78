//! Groups of partitions that three processes lead: clients of Redis Cluster while groups are
//! spread, while the process that leads most is killed or wakes, and while processes are replaced.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_testkit::caching::CachingClient;
use evenkeel_testkit::redis::{Client, Reply, encoded};
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::{OverAtEnd, block_until as until};

use super::leadership::Etcd;
use super::libraries::{self, How, Load};
use super::world::{Front, World};

pub(crate) const GROUPS: usize = 4;
pub(crate) const FRONTS: usize = 3;
/// Keys of the first to the last quarter of slots: 3,300, 7,365, 11,298 and 15,495.
pub(crate) const KEYS: [&str; GROUPS] = ["b", "c", "d", "a"];
/// Redirections that one command may follow beside its attempts, as with redis-py.
const REDIRECTIONS: u32 = 16;
/// As Jedis tries; go-redis pauses so between attempts, from 8 ms on.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(8);

/// Three fronts before as many partitions as groups; the first leads all of these.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) fronts: Vec<Front>,
    /// The first door of each front.
    pub(crate) doors: Vec<SocketAddr>,
    groups: usize,
    etcd: Etcd,
}

impl Scene {
    /// With so many duplicates of each partition.
    pub(crate) fn set(name: &str, groups: usize, duplicates: usize) -> Option<Self> {
        Self::with_lease(name, groups, duplicates, "2s")
    }

    pub(crate) fn with_lease(
        name: &str,
        groups: usize,
        duplicates: usize,
        lease: &str,
    ) -> Option<Self> {
        let mut etcd = Etcd::start(name)?;
        etcd.settings = etcd.settings.replace("\"2s\"", &format!("{lease:?}"));
        let settings = format!(
            "consistency = \"strong\"\nlog_sync = \"never\"\ngroups = {groups}\n\
             cluster = \"DOOR\"\n{}",
            etcd.settings
        );
        let world = World::of(name, &settings, &vec![duplicates; groups], 0)?;
        let mut fronts: Vec<Front> =
            (0..FRONTS).map(|number| world.other_front(&format!("front-{number}"))).collect();
        let doors: Vec<SocketAddr> = (0..FRONTS).map(|_| free_run(groups)).collect();
        for (front, door) in fronts.iter().zip(&doors) {
            front.replace_words("DOOR", &door.to_string());
        }
        fronts[0].start();
        until("the first leads all groups", || led_by(&fronts[0], groups).len() == groups);
        fronts[1..].iter_mut().for_each(Front::start);
        Some(Self { world, fronts, doors, groups, etcd })
    }

    /// A client that keeps the key of a group, at the door that a front has for that.
    fn keeping(&self, front: usize, group: usize) -> CachingClient {
        let mut door = self.doors[front];
        door.set_port(door.port() + group as u16);
        let mut client = CachingClient::connect(door, &[]);
        client.get(KEYS[group]);
        let elsewhere = client.get(KEYS[(group + 1) % self.groups]);
        assert!(matches!(elsewhere, Reply::Error(text) if text.starts_with("MOVED ")));
        assert_eq!(client.keeps.len(), 1, "a key of another group is kept by nobody here");
        client
    }

    /// By front, the groups that it leads.
    pub(crate) fn led(&self) -> Vec<Vec<usize>> {
        self.fronts.iter().map(|front| led_by(front, self.groups)).collect()
    }

    /// Waits until all groups are led, and nobody leads two more than another one.
    pub(crate) fn wait_spread(&self) {
        let is_even = || {
            let counts: Vec<usize> = self.led().iter().map(Vec::len).collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            counts.iter().sum::<usize>() == self.groups && most - least < 2
        };
        let begun = Instant::now();
        while !is_even() {
            let said: Vec<String> = self.fronts.iter().map(Front::journal).collect();
            let led = self.led();
            assert!(begun.elapsed() < Duration::from_secs(180), "{led:?}\n{}", said.join("\n\n"));
            sleep(Duration::from_millis(50));
        }
    }
}

/// A port with free ones behind it, one for each group.
pub(crate) fn free_run(groups: usize) -> SocketAddr {
    let mut run: Vec<SocketAddr> = Vec::new();
    while run.len() < groups {
        let next = nobody();
        if run.last().is_some_and(|last| last.port() + 1 != next.port()) {
            run.clear();
        }
        run.push(next);
    }
    run[0]
}

/// The groups that a front leads.
fn led_by(front: &Front, groups: usize) -> Vec<usize> {
    let said = front.api();
    let states = said
        .split_once("\r\n\r\n")
        .and_then(|(_, json)| serde_json::from_str::<Vec<serde_json::Value>>(json).ok());
    let leads = |(number, state): (usize, serde_json::Value)| {
        let name = format!("chaos.{number}of{groups}");
        assert_eq!(state["name"], serde_json::Value::String(name));
        (state["role"] == "leads").then_some(number)
    };
    states.into_iter().flatten().enumerate().filter_map(leads).collect()
}

/// What befell the commands of one key.
#[derive(Default)]
struct Record {
    /// When each was acknowledged, and what it said.
    done: Vec<(Instant, i64)>,
    /// Attempts that were answered by an error that is no redirection, or not at all.
    troubles: Vec<(Instant, String)>,
    /// Commands that no attempt has done.
    failed: Vec<String>,
}

/// Counts at one key until told to stop, as libraries of Redis Cluster do.
fn count(key: &str, doors: &[SocketAddr], record: &Mutex<Record>, stop: &AtomicBool) {
    let mut clients: BTreeMap<SocketAddr, Client> = BTreeMap::new();
    let (mut at, mut next) = (doors[0], 0);
    while !stop.load(Ordering::Relaxed) {
        let (mut attempt, mut redirections, mut words) = (0, 0, String::new());
        let is_done = loop {
            let said = ask(&mut clients, at, key);
            let trouble = match said {
                Ok(Reply::Integer(value)) => {
                    record.lock().unwrap().done.push((Instant::now(), value));
                    break true;
                }
                Ok(Reply::Error(text)) if text.starts_with("MOVED ") => {
                    at = text.rsplit(' ').next().unwrap().parse().unwrap();
                    redirections += 1;
                    words.push_str(&format!("{text}; "));
                    if redirections > REDIRECTIONS {
                        break false;
                    }
                    continue;
                }
                said => format!("{at}: {said:?}; "),
            };
            words.push_str(&trouble);
            record.lock().unwrap().troubles.push((Instant::now(), trouble));
            clients.remove(&at);
            at = doors[next % doors.len()]; // who else is there says where it is now
            next += 1;
            sleep(PAUSE * 2_u32.pow(attempt));
            attempt += 1;
            if attempt == ATTEMPTS {
                break false;
            }
        };
        if !is_done {
            record.lock().unwrap().failed.push(words);
        }
        sleep(Duration::from_millis(2));
    }
}

fn ask(
    clients: &mut BTreeMap<SocketAddr, Client>,
    at: SocketAddr,
    key: &str,
) -> std::io::Result<Reply> {
    // What was closed while it was idle is opened anew, as libraries do.
    let client = match clients.remove(&at).filter(|client| !client.has_ended()) {
        Some(client) => clients.entry(at).or_insert(client),
        None => clients.entry(at).or_insert(Client::try_connect(at, Duration::from_secs(3))?),
    };
    client.try_ask(&["INCR", key])
}

/// Does something while every group's key is counted; what befell each. Nothing is lost.
fn under_load(scene: &mut Scene, act: impl FnOnce(&mut Scene, &[Mutex<Record>])) -> Vec<Record> {
    let (records, stop) = (KEYS.map(|_| Mutex::<Record>::default()), AtomicBool::new(false));
    let doors = scene.doors.clone();
    std::thread::scope(|scope| {
        let _over = OverAtEnd(&stop);
        for (key, record) in KEYS.iter().zip(&records) {
            let (doors, stop) = (&doors, &stop);
            scope.spawn(move || count(key, doors, record, stop));
        }
        wait_served(&records);
        act(scene, &records);
        wait_served(&records);
    });
    let records = records.map(|record| record.into_inner().unwrap());
    for (key, record) in KEYS.iter().zip(&records) {
        let is_rising = record.done.windows(2).all(|pair| pair[0].1 < pair[1].1);
        assert!(is_rising, "{key}: an acknowledged write was lost");
    }
    records.into()
}

/// Waits until further commands of every key are acknowledged.
fn wait_served(records: &[Mutex<Record>]) {
    let done = || records.iter().map(|it| it.lock().unwrap().done.len()).collect::<Vec<_>>();
    let before = done();
    until("every group serves", || done().iter().zip(&before).all(|(now, then)| *now > then + 5));
}

/// Each process leads some; the one that is killed takes its groups alone with it, and they are led
/// elsewhere.
pub(crate) fn a_process_is_killed() {
    let Some(mut scene) = Scene::set("groups-killed", GROUPS, 2) else { return };
    // Until then groups are handed over under load, and nobody notices but by a redirection.
    let spread = under_load(&mut scene, |scene, _| scene.wait_spread());
    let failed: Vec<&String> = spread.iter().flat_map(|it| &it.failed).collect();
    assert!(failed.is_empty(), "{failed:?}");
    tells_of_all_groups(&scene);
    let led = scene.led();
    let killed = (0..FRONTS).max_by_key(|front| led[*front].len()).unwrap();
    let mut begun = Instant::now();
    let records = under_load(&mut scene, |scene, records| {
        begun = Instant::now();
        scene.fronts[killed].process.kill();
        until("its groups serve", || {
            led[killed].iter().all(|group| {
                let record = records[*group].lock().unwrap();
                // Answers may have been on their way.
                record.done.iter().any(|(at, _)| *at > begun + Duration::from_millis(200))
            })
        });
    });
    for (group, record) in records.iter().enumerate() {
        let troubles: Vec<_> = record.troubles.iter().filter(|(at, _)| *at > begun).collect();
        if !led[killed].contains(&group) {
            assert!(troubles.is_empty(), "group {group} was harmed: {troubles:?}");
            continue;
        }
        let mut after = record.done.iter().map(|(at, _)| *at).filter(|at| *at > begun);
        let late = begun + Duration::from_millis(200);
        let served = after.find(|at| *at > late).unwrap() - begun;
        println!("group {group}: its leader was killed, it served after {served:?}");
        assert!(served < Duration::from_secs(5), "{served:?}");
    }
    scene.fronts[killed].start();
    scene.wait_spread();
    let parts: Vec<Vec<SocketAddr>> = scene.world.partitions.clone();
    let state = scene.world.converged_in(&parts);
    assert!(KEYS.iter().all(|key| state.contains_key(*key)), "{state:?}");
}

/// Any door tells of all groups, each at its leader.
fn tells_of_all_groups(scene: &Scene) {
    let mut client = Client::connect(scene.doors[1]);
    let nodes = client.ask(&["CLUSTER", "NODES"]);
    let nodes = nodes.text().unwrap();
    let led = scene.led();
    for (front, door) in scene.doors.iter().enumerate() {
        for group in 0..GROUPS {
            let at = format!("{}:{}@0 ", door.ip(), door.port() + group as u16);
            let line = nodes.lines().find(|line| line.contains(&at)).unwrap_or(nodes);
            assert_eq!(line.contains("master"), led[front].contains(&group), "{nodes}");
        }
    }
    for (door, group) in scene.doors.iter().flat_map(|door| (0..GROUPS).map(move |it| (door, it))) {
        let mut client = Client::connect((door.ip(), door.port() + group as u16).into());
        let told = client.ask(&["SUBSCRIBE", "channel"]);
        assert!(matches!(&told, Reply::Error(text) if text.contains("SSUBSCRIBE")), "{told:?}");
    }
    let crossing = client.ask(&["MGET", "a", "b"]);
    assert!(matches!(&crossing, Reply::Error(text) if text.starts_with("CROSSSLOT ")));
}

/// Processes are told to end and started anew, one after the other; no command fails for a client
/// that tries again as libraries do. No lease ends here, so it may last longer: on a busy machine
/// one of two seconds is lost now and then.
pub(crate) fn processes_are_replaced() {
    let scene = Scene::with_lease("groups-replaced", GROUPS, 2, "4s");
    let Some(mut scene) = scene else { return };
    scene.wait_spread();
    let records = under_load(&mut scene, |scene, records| {
        for number in 0..FRONTS {
            scene.fronts[number].process.signal("-TERM");
            until("it has ended", || scene.fronts[number].process.has_ended());
            wait_served(records);
            scene.fronts[number].start();
            scene.wait_spread();
        }
    });
    for (group, record) in records.iter().enumerate() {
        let gaps = record.done.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let (done, troubles) = (record.done.len(), record.troubles.len());
        let longest = gaps.max().unwrap();
        println!("group {group}: {done} commands, {troubles} tried again, longest {longest:?}");
        assert!(record.failed.is_empty(), "{:#?}", record.failed);
    }
}

/// A process that stands still for longer than its leases wakes: it writes nothing any more, but it
/// goes on, and leads again when it is its turn.
pub(crate) fn a_process_wakes() {
    let Some(mut scene) = Scene::set("groups-woken", GROUPS, 2) else { return };
    scene.wait_spread();
    let led = scene.led();
    let stopped = (0..FRONTS).max_by_key(|front| led[*front].len()).unwrap();
    let mut keeping: Vec<_> =
        led[stopped].iter().map(|group| scene.keeping(stopped, *group)).collect();
    under_load(&mut scene, |scene, records| {
        scene.fronts[stopped].process.signal("-STOP");
        until("its groups are led elsewhere", || {
            let others = (0..FRONTS).filter(|front| *front != stopped);
            others.map(|front| led_by(&scene.fronts[front], GROUPS).len()).sum::<usize>() == GROUPS
        });
        wait_served(records);
        scene.fronts[stopped].process.signal("-CONT");
        let journal = || scene.fronts[stopped].journal();
        until("it knows", || journal().contains("another process has taken over"));
        until("nobody keeps what it was told", || keeping.iter_mut().all(CachingClient::has_ended));
        scene.wait_spread();
    });
    assert!(!scene.fronts[stopped].process.has_ended());
    let parts: Vec<Vec<SocketAddr>> = scene.world.partitions.clone();
    scene.world.converged_in(&parts);
}

/// Two groups of one process have all of the load: one of them is handed over, though every process
/// leads its share of groups.
pub(crate) fn a_hot_process_hands_over() {
    let Some(scene) = Scene::set("groups-hot", GROUPS, 1) else { return };
    scene.wait_spread();
    let led = scene.led();
    let hot = led.iter().find(|groups| groups.len() > 1).unwrap().clone();
    assert_eq!(hot.len(), 2, "{led:?}");
    let front = led.iter().position(|groups| *groups == hot).unwrap();
    let mut keeping: Vec<_> = hot.iter().map(|group| scene.keeping(front, *group)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = OverAtEnd(&stop);
        for group in &hot {
            scope.spawn(|| keep_hot(KEYS[*group], scene.doors[0], &stop));
        }
        let begun = Instant::now();
        let are_apart = || {
            let led = scene.led();
            let by = hot.iter().map(|group| led.iter().position(|it| it.contains(group)));
            by.collect::<Vec<_>>().windows(2).all(|pair| pair[0].is_some() && pair[0] != pair[1])
        };
        while !are_apart() {
            let said: Vec<String> = scene.fronts.iter().map(Front::journal).collect();
            assert!(begun.elapsed() < Duration::from_secs(180), "{hot:?}\n{}", said.join("\n\n"));
            sleep(Duration::from_millis(200));
        }
        println!("groups {hot:?} are led apart after {:?}", begun.elapsed());
    });
    let led = scene.led();
    for (group, client) in hot.iter().zip(&mut keeping) {
        if !led[front].contains(group) {
            until("who keeps what was handed over is let go", || client.has_ended());
        }
    }
    let counts: Vec<usize> = led.iter().map(Vec::len).collect();
    assert!(counts.iter().all(|count| (1..=2).contains(count)), "{counts:?}");
}

/// Some thousands of commands a second, wherever the key is, until told to stop.
fn keep_hot(key: &str, door: SocketAddr, stop: &AtomicBool) {
    const BATCH: usize = 100;
    let (batch, mut at) = (encoded(&["GET", key]).repeat(BATCH), door);
    let mut client = Client::connect(at);
    while !stop.load(Ordering::Relaxed) {
        let sent = client.try_send(&batch);
        let said = sent.and_then(|()| (0..BATCH).map(|_| client.try_read()).collect());
        let replies: Vec<Reply> = said.unwrap_or_default();
        if let Some(Reply::Error(text)) = replies.last()
            && text.starts_with("MOVED ")
        {
            at = text.rsplit(' ').next().unwrap().parse().unwrap();
        }
        if !matches!(replies.last(), Some(Reply::Bulk(_) | Reply::Null)) {
            client = Client::connect(at);
        }
        sleep(Duration::from_millis(20));
    }
}

/// etcd refuses connections until no lease is valid: writes of every group wait or are refused, no
/// process ends, and all goes on when it is back.
pub(crate) fn etcd_refuses() {
    let Some(mut scene) = Scene::set("groups-etcd", GROUPS, 2) else { return };
    scene.wait_spread();
    under_load(&mut scene, |scene, records| {
        scene.etcd.kill();
        until("nobody may write", || {
            let latest = |record: &Mutex<Record>| {
                let record = record.lock().unwrap();
                let done = record.done.last().map(|(at, _)| *at);
                record.troubles.last().is_some_and(|(at, why)| {
                    Some(*at) > done && why.contains("was not renewed in time")
                })
            };
            records.iter().all(latest)
        });
        scene.etcd.start_again();
        wait_served(records);
        scene.wait_spread();
    });
    for front in &mut scene.fronts {
        assert!(!front.process.has_ended(), "{}", front.journal());
    }
    let parts: Vec<Vec<SocketAddr>> = scene.world.partitions.clone();
    scene.world.converged_in(&parts);
}

/// Real libraries of Redis Cluster, while groups are handed over, a process is killed, and all are
/// replaced one by one.
pub(crate) fn libraries_go_on() {
    let Some(folder) = libraries::folder() else { return };
    let Some(mut scene) = Scene::set("groups-libraries", GROUPS, 2) else { return };
    // The first script of a partition waits for a stream, longer than libraries wait.
    let mut client = scene.fronts[0].client();
    for key in ["a", "b", "c", "d", "e", "f"] {
        client.ask(&["EVAL", "return redis.call('set', KEYS[1], 1)", "1", key]);
    }
    // Plain channels are refused.
    let mut loads =
        libraries::loads(&folder, How::Cluster, &scene.doors, &[("EVENKEEL_GROUPS", "1")]);
    loads.iter().for_each(Load::wait_ready);
    let most = Duration::from_secs(30);
    let before = libraries::failures(&loads);
    scene.wait_spread();
    libraries::wait_served(&loads, Instant::now(), "spread", most);
    libraries::told("spread", &loads, &before);

    let before = libraries::failures(&loads);
    for number in 0..FRONTS {
        scene.fronts[number].process.signal("-TERM");
        until("it has ended", || scene.fronts[number].process.has_ended());
        scene.fronts[number].start();
        scene.wait_spread();
        libraries::wait_served(&loads, Instant::now(), "replaced", most);
    }
    libraries::told("replaced", &loads, &before);

    let before = libraries::failures(&loads);
    let led = scene.led();
    let killed = (0..FRONTS).max_by_key(|front| led[*front].len()).unwrap();
    let begun = Instant::now();
    scene.fronts[killed].process.kill();
    until("its groups are led elsewhere", || {
        scene.led().iter().map(Vec::len).sum::<usize>() == GROUPS
    });
    println!("killed: all groups are led after {:?}", begun.elapsed());
    scene.fronts[killed].start();
    libraries::wait_served(&loads, begun, "killed", most);
    libraries::told("killed", &loads, &before);
    loads.iter_mut().for_each(Load::end);
    for load in &loads {
        load.check_lost(|key| libraries::value(scene.doors[0], key));
        println!("{}: {} acknowledged", load.name, load.acknowledged());
    }
}
