//! Shards, duplicates and partitions that come and go while clients write, over every store that is
//! no Redis.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel_duplicates::changes::ChangeRequest;
use evenkeel_duplicates::{DuplicatesConfig, Target};
use evenkeel_stores::store::embedded::EmbeddedSettings;
use evenkeel_stores::store::zookeeper::ZooKeeperSettings;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::PATIENCE;

use super::acting::{BUSY, slow};
use super::stores::{State, free_port, memcached, read, state, zookeeper};
use super::world::World;
use super::{bulk, ok};

type Model = BTreeMap<String, String>;

/// Two partitions of two duplicates; those that come, with their places as an order has them.
pub(super) struct Scene<'a> {
    pub(super) targets: [Target; 4],
    /// None: the service makes them.
    pub(super) spares: Option<[(Target, String); 2]>,
    /// The store of a place that the service made.
    pub(super) made: &'a dyn Fn(&str) -> Target,
    /// What the store refuses as a place, and words of the error.
    pub(super) no_place: (&'a str, &'a str),
    /// Rounds of writes at least while things move, so that a store that is slow is not waited for.
    pub(super) rounds: usize,
}

/// Writes and reads its own keys until it is told to stop: every answer is exactly what it must be.
fn work(address: SocketAddr, id: usize, stop: &AtomicBool, rounds: &AtomicUsize) -> Model {
    let (mut client, mut model) = (Client::connect(address), Model::new());
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        for n in 0..40 {
            let (text, count) = (format!("text:{id}:{n}"), format!("count:{id}:{}", n % 8));
            assert_eq!(client.ask(&["SET", &text, &format!("{round}-{n}")]), ok());
            model.insert(text.clone(), format!("{round}-{n}"));
            let now = model.get(&count).map_or(0, |now| now.parse().unwrap()) + 1;
            assert_eq!(client.ask(&["INCR", &count]), Reply::Integer(now), "{count}");
            model.insert(count.clone(), now.to_string());
            if n % 3 == round % 3 {
                assert_eq!(client.ask(&["DEL", &text]), Reply::Integer(1));
                model.remove(&text);
                assert_eq!(client.ask(&["GET", &text]), Reply::Null, "{text}");
            } else {
                let value = model.get_mut(&text).unwrap();
                value.push_str("-more");
                let length = value.len() as i64;
                assert_eq!(client.ask(&["APPEND", &text, "-more"]), Reply::Integer(length));
                assert_eq!(client.ask(&["GET", &text]), bulk(value), "{text}");
            }
        }
        round += 1;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    model
}

impl Scene<'_> {
    /// The whole story. What was acknowledged is there, once, in one partition, at all duplicates.
    pub(super) fn play(&self, name: &str) {
        let partitions = self.targets.chunks(2).map(<[Target]>::to_vec).collect();
        let mut world = World::over(name, partitions, 4, |config| {
            config.shards = 8;
            // Nobody is silent here, but the disk of a busy machine may take a second.
            config.members.silence_max = Duration::from_secs(30);
        });
        let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
        let address = world.address;
        let model: Model = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..2)
                .map(|id| {
                    let (stop, rounds) = (&stop, &rounds);
                    scope.spawn(move || work(address, id, stop, rounds))
                })
                .collect();
            let reported =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.changes(&world)));
            while reported.is_ok()
                && rounds.load(Ordering::Relaxed) < self.rounds
                && !clients.iter().any(std::thread::ScopedJoinHandle::is_finished)
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
            reported.unwrap_or_else(|failed| std::panic::resume_unwind(failed));
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        read(&mut world.client(), &model);
        let owners = world.owners();
        world.restart();
        assert_eq!(world.owners(), owners);
        read(&mut world.client(), &model);
        world.settle();
        assert_eq!(world.state().disagreements, 0);
        world.stop();
        let states: Vec<State> = self.targets.iter().map(state).collect();
        assert_eq!(states[0], states[1], "duplicates of the first partition differ");
        assert_eq!(states[2], states[3], "duplicates of the second partition differ");
        let both = states[0].keys().find(|&key| states[2].contains_key(key));
        assert_eq!(both, None, "a key is in both partitions");
        let together: State = states[0].iter().chain(&states[2]).map(own).collect();
        let expected = model.into_iter().map(|(key, value)| (key.into_bytes(), value.into_bytes()));
        assert_eq!(together, expected.collect());
    }

    fn changes(&self, world: &World) {
        let order = |order: ChangeRequest| {
            let reported = format!("{order:?}");
            world.request_change(order).unwrap_or_else(|why| panic!("{reported}: {why}"));
        };
        let owner = |shard: usize| usize::from(world.owners()[shard]);
        for shard in [0, 1, 6, 7, 0] {
            let to = 1 - owner(shard);
            order(ChangeRequest::MoveShard { shard, to });
            assert_eq!(owner(shard), to);
        }
        // A partition of one, then of two, then of the second alone.
        let (addresses, duplicates) = match &self.spares {
            Some([(_, first), _]) => (vec![first.clone()], None),
            None => (Vec::new(), Some(1)),
        };
        let shard = 2;
        order(ChangeRequest::AddPartition { addresses, duplicates, shard: Some(shard) });
        assert_eq!(owner(shard), 2);
        let place_of = |n: usize| world.state().partitions[2].duplicates[n].address.clone();
        let first = place_of(0);
        let address = self.spares.as_ref().map(|[_, (_, second)]| second.clone());
        order(ChangeRequest::AddDuplicate { partition: 2, address });
        world.wait_live(6, 2 * PATIENCE);
        let second = place_of(1);
        order(ChangeRequest::RemoveDuplicate { partition: 2, address: first.clone() });
        for shard in [3, 4] {
            order(ChangeRequest::MoveShard { shard, to: 2 });
        }
        world.settle();
        let only = match &self.spares {
            Some([_, (target, _)]) => target.clone(),
            None => (self.made)(&second),
        };
        self.refusals(world, &second);
        for shard in [2, 3, 4] {
            order(ChangeRequest::MoveShard { shard, to: shard % 2 });
        }
        order(ChangeRequest::RemovePartition { partition: 2 });
        if self.spares.is_some() {
            // Nothing is left where shards moved away.
            assert_eq!(state(&only), State::new());
        }
    }

    fn refusals(&self, world: &World, second: &str) {
        let (place, words) = self.no_place;
        let address = Some(place.to_owned());
        let taken = self.targets[3].clone();
        let there = world.state().partitions[1].duplicates[1].address.clone();
        for (order, words) in [
            (ChangeRequest::AddDuplicate { partition: 0, address }, words),
            (
                ChangeRequest::RemoveDuplicate { partition: 2, address: second.to_owned() },
                "the last one",
            ),
            (ChangeRequest::RemoveDuplicate { partition: 0, address: there }, "is no duplicate of"),
            (ChangeRequest::MoveShard { shard: 0, to: 3 }, "there is no partition 3"),
            (ChangeRequest::RemovePartition { partition: 2 }, "holds 3 shards"),
        ] {
            let reported = format!("{order:?} beside {taken}");
            let why = world.request_change(order).expect_err(&reported);
            assert!(why.contains(words), "{reported}: {why}");
        }
    }
}

fn own((key, value): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), value.clone())
}

fn nobody(place: &str) -> Target {
    panic!("nobody makes {place}")
}

#[test]
fn shards_move_between_embedded_stores() {
    let folder = Folder::new("stores-online-embedded");
    let target = |path: std::path::PathBuf| Target::Embedded {
        settings: EmbeddedSettings::at(&path),
        pauses: None,
    };
    let targets = [0, 1, 2, 3].map(|n| target(folder.file(&format!("{n}.redb"))));
    let made = |path: &str| target(path.into());
    let no_place = ("/tmp/x.redb", "embedded duplicates have no address");
    Scene { targets, spares: None, made: &made, no_place, rounds: 20 }.play("online-embedded");
}

#[test]
fn shards_move_between_memcacheds() {
    let ports = [(); 6].map(|()| free_port());
    let Some(_servers) = ports.iter().map(|&port| memcached(port)).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let target = |port: u16| Target::Memcached { address: address(port).into() };
    let [one, two, three, four, five, six] = ports;
    let spares = Some([five, six].map(|port| (target(port), address(port).to_string())));
    let targets = [one, two, three, four].map(target);
    let no_place = ("10.0.0.1/evenkeel", "expected an address or name with a port such as");
    Scene { targets, spares, made: &nobody, no_place, rounds: 20 }.play("online-memcached");
}

#[test]
fn shards_move_between_nodes_of_zookeeper() {
    let Some((_server, port, _folder)) = zookeeper("online-zookeeper") else { return };
    let root = |n: usize| format!("/evenkeel/online-{n}");
    let servers = vec![format!("127.0.0.1:{port}")];
    let target = |n: usize| Target::ZooKeeper {
        settings: ZooKeeperSettings { servers: servers.clone(), root: root(n) },
    };
    let spares = Some([4, 5].map(|n| (target(n), format!("127.0.0.1:{port}{}", root(n)))));
    let targets = [0, 1, 2, 3].map(target);
    let no_place = ("10.0.0.1:2181/a b", "expected the servers of one ensemble");
    Scene { targets, spares, made: &nobody, no_place, rounds: 4 }.play("online-zookeeper");
}

/// Reads that were sent to where a shard was before it moved are answered before it is removed
/// there, however long they take.
#[test]
fn a_read_that_is_slow_finds_its_key_where_it_was() {
    let behind = |config: &mut DuplicatesConfig| {
        let Target::Tcp { address, .. } = config.partitions[0][0] else { unreachable!("a Redis") };
        let address = slow(address.inet().unwrap(), b"GET", Duration::from_millis(100)).into();
        config.partitions[0][0] = Target::Tcp { address, access: std::sync::Arc::default() };
        config.partitions.push(vec![config.spares.pop().unwrap()]);
        config.shards = 8;
    };
    let Some(world) = World::with_spares("slow-reads", 1, 1, behind) else { return };
    world.wait_live(2, 2 * PATIENCE);
    let (mut client, mut reader) = (world.client(), world.client());
    assert_eq!(client.ask(&["SET", BUSY[3], "1"]), ok());
    (0..8).for_each(|_| reader.tell(&["GET", BUSY[3]]));
    // Answered is what is behind them.
    assert_eq!(client.ask(&["SET", BUSY[2], "1"]), ok());
    assert_eq!(world.owners()[3], 0);
    world.request_change(ChangeRequest::MoveShard { shard: 3, to: 1 }).unwrap();
    (0..8).for_each(|_| assert_eq!(reader.read(), bulk("1")));
    assert_eq!(client.ask(&["GET", BUSY[3]]), bulk("1"));
}

/// Nobody would remove them any more: that a shard has left nothing is written down only when its
/// keys are gone from where it was.
#[test]
fn a_move_ends_when_the_keys_are_gone_from_where_they_were() {
    let behind = |config: &mut DuplicatesConfig| {
        let Target::Tcp { address, .. } = config.partitions[0][0] else { unreachable!("a Redis") };
        let address = slow(address.inet().unwrap(), b"DEL", Duration::from_millis(400)).into();
        config.partitions[0][0] = Target::Tcp { address, access: std::sync::Arc::default() };
        config.partitions.push(vec![config.spares.pop().unwrap()]);
        config.shards = 8;
    };
    let Some(world) = World::with_spares("slow-removal", 1, 1, behind) else { return };
    world.wait_live(2, 2 * PATIENCE);
    assert_eq!(world.client().ask(&["SET", BUSY[3], "1"]), ok());
    assert_eq!(world.owners()[3], 0);
    world.request_change(ChangeRequest::MoveShard { shard: 3, to: 1 }).unwrap();
    assert_eq!(world.redises[0].client().ask(&["GET", BUSY[3]]), Reply::Null);
    assert_eq!(world.redises[1].client().ask(&["GET", BUSY[3]]), bulk("1"));
}
