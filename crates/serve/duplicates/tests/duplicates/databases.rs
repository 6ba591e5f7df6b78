//! Several databases: each key stays in its own, at every duplicate, whatever fails.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use evenkeel_duplicates::changes::ChangeRequest;
use evenkeel_ordered::Acknowledge;
use evenkeel_stores::resp::hash::slot;
use evenkeel_stores::resp::reply::ReplyScanner;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Redis, Reply, State, contents, encoded};
use evenkeel_testkit::wait::{OverAtEnd, PATIENCE, block_until};

use super::world::World;
use super::{bulk, ok};

/// As many as a Redis has.
const DATABASES: usize = 16;

/// A connection whose replies are taken as they come.
struct Raw(TcpStream, Vec<u8>);

impl Raw {
    fn connect(address: SocketAddr, protocol: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut raw = Self(stream, Vec::new());
        raw.ask(&["HELLO", protocol]);
        raw
    }

    fn ask(&mut self, words: &[&str]) -> String {
        self.0.write_all(&encoded(words)).unwrap();
        let mut scanner = ReplyScanner::default();
        loop {
            if let Some(length) = scanner.scan(&self.1).unwrap() {
                return self.1.drain(..length).collect::<Vec<u8>>().escape_ascii().to_string();
            }
            let mut came = [0; 65_536];
            let count = self.0.read(&mut came).unwrap();
            assert_ne!(count, 0, "{words:?}: it closed");
            self.1.extend_from_slice(&came[..count]);
        }
    }
}

/// What a server holds in each of its databases.
fn everything(redis: &Redis) -> Vec<State> {
    let mut client = redis.client();
    let of = |database: usize| {
        assert_eq!(client.ask(&["SELECT", &database.to_string()]), ok());
        contents(&mut client)
    };
    (0..DATABASES).map(of).collect()
}

fn assert_equal(world: &World) {
    world.settle();
    let states: Vec<Vec<State>> = world.redises.iter().map(everything).collect();
    for state in &states[1..] {
        for (database, (one, other)) in states[0].iter().zip(state).enumerate() {
            assert_eq!(one, other, "database {database} differs");
        }
    }
}

fn within(world: &World, database: usize) -> Client {
    within_at(world.address, database)
}

fn within_at(address: SocketAddr, database: usize) -> Client {
    let mut client = Client::connect(address);
    assert_eq!(client.ask(&["SELECT", &database.to_string()]), ok());
    client
}

const ALIKE: &[&str] = &[
    "FLUSHALL",
    "SELECT 16",
    "SELECT -1",
    "SELECT x",
    "SELECT 99999999999999999999",
    "SET a zero",
    "SELECT 1",
    "GET a",
    "SET a one",
    "SET b 5 EX 1000",
    "INCR b",
    "INCR a",
    "APPEND a x",
    "RPUSH list 3 1 2",
    "SORT list",
    "HSET hash f 1",
    "HGETALL hash",
    "MSET c 1 d 2",
    "MGET a b c d e",
    "DBSIZE",
    "KEYS a*",
    "SCAN 0 MATCH hash COUNT 100",
    "HSCAN hash 0",
    "TYPE hash",
    "OBJECT ENCODING hash",
    "SADD set only",
    "SPOP set",
    "SPOP set 2",
    "SADD set only",
    "SPOP set 3",
    "EXISTS set",
    "EVAL return{redis.call('INCR',KEYS[1]),redis.call('GET',KEYS[1])} 1 n",
    "EVAL redis.call('SELECT',3)return(redis.call('INCR',KEYS[1])) 1 n",
    "EVAL return(redis.call('GET',KEYS[1])) 1 n",
    "XADD stream 5-1 f v",
    "XGROUP CREATE stream g 0",
    "XREADGROUP GROUP g c STREAMS stream >",
    "XREAD BLOCK 1 STREAMS stream 0",
    "DEL stream",
    "BLPOP list 1",
    "BLPOP nothing list 1",
    "BLMOVE list other LEFT RIGHT 1",
    "SELECT 0",
    "GET a",
    "GET n",
    "EXISTS list",
    "DBSIZE",
    "MOVE a 0",
    "MOVE a 16",
    "MOVE a x",
    "MOVE nothing 2",
    "MOVE a 2",
    "MOVE a 2",
    "SET a again",
    "MOVE a 2",
    "COPY a z DB 2",
    "COPY a z DB 2",
    "COPY a z DB 2 REPLACE",
    "COPY a a DB 0",
    "COPY a y DB 16",
    "COPY a y DB x",
    "COPY a y DB",
    "SELECT 2",
    "GET a",
    "GET z",
    "DEL z",
    "RENAME a r",
    "RANDOMKEY",
    "MULTI",
    "SET a in2",
    "SELECT 3",
    "SET a in3",
    "GET n",
    "SELECT 99",
    "SET b in3",
    "SELECT 0",
    "GET a",
    "MOVE a 3",
    "EXEC",
    "GET a",
    "SELECT 3",
    "MGET a b",
    "MULTI",
    "SELECT 4",
    "DISCARD",
    "GET a",
    "MULTI",
    "SELECT 4",
    "EXEC",
    "SET a in4",
    "MULTI",
    "PING",
    "LPUSH l 1",
    "EVAL return(redis.call('LPUSH',KEYS[1],2)) 1 l",
    "LRANGE l 0 -1",
    "EXEC",
    "WATCH a",
    "MULTI",
    "GET a",
    "EXEC",
    "MULTI",
    "SET k 1",
    "FLUSHDB",
    "SET k 2",
    "EXEC",
    "KEYS *",
    "SELECT 3",
    "FLUSHDB",
    "DBSIZE",
    "RANDOMKEY",
    "SCAN 0",
    "SELECT 2",
    "GET r",
    "SELECT 0",
    "SET a 1",
    "FLUSHDB ASYNC",
    "DBSIZE",
    "SELECT 1",
    "GET a",
    "RESET",
    "HELLO 2",
    "GET c",
    "SELECT 1",
    "GET c",
];

#[test]
fn several_databases_answer_as_those_of_one_redis() {
    for protocol in ["2", "3"] {
        let Some(world) = World::start("databases-alike", 3, |_| {}) else { return };
        let folder = Folder::new(&format!("duplicates-databases-plain-{protocol}"));
        let plain = Redis::new(folder.file("redis"));
        let mut ours = Raw::connect(world.address, protocol);
        let mut theirs = Raw::connect(plain.address, protocol);
        let mut differences = Vec::new();
        for line in ALIKE {
            let words: Vec<&str> = line.split(' ').collect();
            let (ours, theirs) = (ours.ask(&words), theirs.ask(&words));
            if ours != theirs && !line.starts_with("HELLO") {
                differences.push(format!("{line}: {ours}, expected {theirs}"));
            }
        }
        assert!(differences.is_empty(), "RESP{protocol}\n{}", differences.join("\n"));
        assert_equal(&world);
    }
}

#[test]
fn keys_stay_in_their_databases_while_duplicates_fail_and_the_front_is_replaced() {
    let Some(mut world) = World::start("databases-faults", 3, |_| {}) else { return };
    let used = [0, 1, 5, 15];
    let counted: Vec<AtomicU64> = used.iter().map(|_| AtomicU64::new(0)).collect();
    for round in 0..2 {
        let (stop, address) = (AtomicBool::new(false), world.address);
        std::thread::scope(|scope| {
            let _over = OverAtEnd(&stop);
            for (database, counted) in used.iter().zip(&counted) {
                let stop = &stop;
                scope.spawn(move || {
                    let mut client = within_at(address, *database);
                    while !stop.load(Ordering::Relaxed) {
                        let next = counted.load(Ordering::Relaxed) + 1;
                        let (number, key) = (next.to_string(), format!("k{}", next % 50));
                        assert_eq!(client.ask(&["INCR", "n"]), Reply::Integer(next as i64));
                        assert_eq!(client.ask(&["SET", &key, &number]), ok());
                        assert_eq!(client.ask(&["GET", &key]), bulk(&number));
                        counted.store(next, Ordering::Relaxed);
                    }
                });
            }
            let more = |by: u64| {
                let until: Vec<u64> =
                    counted.iter().map(|it| it.load(Ordering::Relaxed) + by).collect();
                block_until("everybody goes on", || {
                    counted
                        .iter()
                        .zip(&until)
                        .all(|(it, until)| it.load(Ordering::Relaxed) >= *until)
                });
            };
            more(30);
            world.redises[0].kill();
            block_until("it is gone", || world.live() == 2);
            more(30);
            if round > 0 {
                world.redises[0].wipe();
            }
            world.redises[0].start();
            world.wait_live(3, 3 * PATIENCE);
            more(30);
            world.redises[1].program.signal("-STOP");
            block_until("it is told from the others", || world.live() == 2);
            more(30);
            world.redises[1].program.signal("-CONT");
            world.wait_live(3, 3 * PATIENCE);
            more(30);
            stop.store(true, Ordering::Relaxed);
        });
        assert_equal(&world);
        world.restart();
        world.wait_live(3, 3 * PATIENCE);
        for (database, counted) in used.iter().zip(&counted) {
            let n = counted.load(Ordering::Relaxed).to_string();
            assert_eq!(within(&world, *database).ask(&["GET", "n"]), bulk(&n));
        }
    }
    for database in (0..DATABASES).filter(|it| !used.contains(it)) {
        let mut client = within(&world, database);
        assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer(0), "database {database}");
    }
}

#[test]
fn who_waits_or_watches_does_so_in_one_database() {
    let Some(world) = World::start("databases-wait", 3, |_| {}) else { return };
    let (mut zero, mut one) = (within(&world, 0), within(&world, 1));
    let (mut waits, mut watches) = (within(&world, 1), within(&world, 1));
    std::thread::scope(|scope| {
        let popped = scope.spawn(|| waits.ask(&["BLPOP", "l", "20"]));
        let blocked = |client: &mut Client| {
            let info = client.ask(&["INFO", "clients"]);
            let Reply::Bulk(info) = info else { panic!("{info:?}") };
            String::from_utf8_lossy(&info).contains("blocked_clients:1")
        };
        block_until("it waits", || blocked(&mut zero));
        assert_eq!(zero.ask(&["RPUSH", "l", "of zero"]), Reply::Integer(1));
        assert_eq!(zero.ask(&["RPUSH", "m", "moved"]), Reply::Integer(1));
        assert!(blocked(&mut zero), "it was of another database");
        assert_eq!(zero.ask(&["RENAME", "m", "l"]), ok());
        assert_eq!(zero.ask(&["MOVE", "l", "1"]), Reply::Integer(1));
        let expected = Reply::Array(vec![bulk("l"), bulk("moved")]);
        assert_eq!(popped.join().unwrap(), expected);
    });
    for (of_one, expected) in [(false, Reply::Array(vec![Reply::Null])), (true, Reply::Null)] {
        assert_eq!(watches.ask(&["WATCH", "w"]), ok());
        let other = if of_one { &mut one } else { &mut zero };
        assert_eq!(other.ask(&["SET", "w", "1"]), ok());
        assert_eq!(watches.ask(&["MULTI"]), ok());
        watches.ask(&["GET", "w"]);
        assert_eq!(watches.ask(&["EXEC"]), expected, "of its own: {of_one}");
    }
    assert_equal(&world);
}

#[test]
fn a_shard_moves_with_all_its_databases() {
    let Some(world) = World::of_partitions("databases-move", 2, 2, |_| {}) else { return };
    for database in 0..3 {
        let mut client = within(&world, database);
        for n in 0..200 {
            let value = format!("{database}-{n}");
            assert_eq!(client.ask(&["SET", &format!("k{n}"), &value]), ok());
        }
    }
    let owners = world.owners();
    let shard = slot(b"k0") as usize % owners.len();
    let to = 1 - usize::from(owners[shard]);
    world.request_change(ChangeRequest::MoveShard { shard, to }).unwrap();
    block_until("it has moved", || usize::from(world.owners()[shard]) == to);
    for database in 0..3 {
        let mut client = within(&world, database);
        for n in 0..200 {
            let value = format!("{database}-{n}");
            assert_eq!(client.ask(&["GET", &format!("k{n}")]), bulk(&value), "{value}");
        }
        let mut is_all = || client.ask(&["DBSIZE"]) == Reply::Integer(200);
        block_until("nothing is left behind", &mut is_all);
    }
}

#[test]
fn the_log_brings_every_database_back() {
    let short = |config: &mut evenkeel_duplicates::DuplicatesConfig| {
        config.members.acknowledge = Acknowledge::All;
        config.log.segment_bytes = 16 << 10;
        config.log.bytes_max = 512 << 10;
    };
    let Some(mut world) = World::start("databases-log", 2, short) else { return };
    for n in 0..2_000 {
        let number = n.to_string();
        for (database, client) in [0, 1, 9].map(|it| (it, within(&world, it))).iter_mut() {
            client.ask(&["SET", &format!("k{}", n % 300), &number]);
            client.ask(&["INCR", &format!("n{}", n % 50)]);
            client.ask(&["RPUSH", &format!("l{database}"), &number]);
        }
        if n == 1_900 {
            assert_eq!(within(&world, 9).ask(&["FLUSHDB"]), ok());
            assert_eq!(within(&world, 0).ask(&["MOVE", "n1", "9"]), Reply::Integer(1));
        }
    }
    world.settle();
    let before = everything(&world.redises[0]);
    assert!([0, 1, 9].iter().all(|&it| before[it].len() > 50), "each has keys");
    let first = world.state().log.first_sequence;
    assert!(first > 1_000, "nothing was forgotten: the log begins with {first}");
    for redis in &mut world.redises {
        redis.kill();
        redis.wipe();
        redis.start();
    }
    world.wait_live(2, 3 * PATIENCE);
    world.settle();
    for redis in &world.redises {
        assert!(everything(redis) == before, "something was lost, or is elsewhere");
    }
}

/// Who follows a stream from the middle is not told in which database it is. This one was left in
/// 5 by somebody for whom the server keeps its stream.
#[test]
fn a_script_whose_stream_begins_in_another_database_stays_in_its_own() {
    let Some(world) = World::start("databases-stream", 3, |_| {}) else { return };
    let mut client = within(&world, 5);
    assert_eq!(client.ask(&["SET", "a", "1"]), ok());
    world.settle();
    let replicas: Vec<Client> = world.redises.iter().map(Redis::client).collect();
    let replicas = replicas.into_iter().map(|mut replica| {
        replica.tell(&["PSYNC", "?", "-1"]);
        replica
    });
    let replicas: Vec<Client> = replicas.collect();
    for redis in &world.redises {
        let mut direct = redis.client();
        let kept = |reply: &Reply| reply.text().unwrap().contains("connected_slaves:1");
        block_until("its stream is kept", || kept(&direct.ask(&["INFO", "replication"])));
        assert_eq!(direct.ask(&["SELECT", "5"]), ok());
        assert_eq!(direct.ask(&["SET", "b", "1"]), ok());
    }
    let incr = ["EVAL", "return redis.call('INCR', KEYS[1])", "1", "a"];
    assert_eq!(client.ask(&incr), Reply::Integer(2));
    assert_eq!(client.ask(&["GET", "a"]), bulk("2"));
    assert_equal(&world);
    assert_eq!(within(&world, 0).ask(&["EXISTS", "a"]), Reply::Integer(0));
    drop(replicas);
}

/// What is chosen within MULTI is where entries go that get their numbers here.
#[test]
fn an_entry_behind_select_in_a_transaction_is_of_that_database() {
    let Some(world) = World::start("databases-entries", 3, |_| {}) else { return };
    let mut client = within(&world, 0);
    let queued = Reply::Simple("QUEUED".to_owned());
    for round in 1..=3 {
        assert_eq!(client.ask(&["MULTI"]), ok());
        for words in [
            &["XADD", "s", "*", "f", "zero"][..],
            &["SELECT", "1"],
            &["XADD", "s", "*", "f", "one"],
            &["XADD", "s", "MAXLEN", "2", "*", "f", "one"],
        ] {
            assert_eq!(client.ask(words), queued, "{words:?}");
        }
        let Reply::Array(done) = client.ask(&["EXEC"]) else { panic!("it was not done") };
        let is_id = |at: usize| matches!(&done[at], Reply::Bulk(_));
        assert!(done.len() == 4 && is_id(0) && is_id(2) && is_id(3), "{done:?}");
        assert!(done[2].text() < done[3].text(), "{done:?}");
        // It stays there, as with Redis.
        assert_eq!(client.ask(&["XLEN", "s"]), Reply::Integer(2));
        assert_eq!(client.ask(&["SELECT", "0"]), ok());
        assert_eq!(client.ask(&["XLEN", "s"]), Reply::Integer(round));
    }
    assert_equal(&world);
}

#[test]
fn consumers_and_strong_reads_are_of_one_database_and_lists_say_which() {
    let Some(world) = World::start("databases-groups", 3, |_| {}) else { return };
    let (mut zero, mut one, mut waits) = (within(&world, 0), within(&world, 1), within(&world, 1));
    for client in [&mut zero, &mut one] {
        assert_eq!(client.ask(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]), ok());
        assert_eq!(client.ask(&["EK.SESSION", "strong"]), ok());
    }
    let line = |client: &mut Client, words: &[&str]| match client.ask(words) {
        Reply::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    };
    waits.tell(&["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"]);
    block_until("it waits", || line(&mut zero, &["INFO", "clients"]).contains("blocked_clients:1"));
    assert!(matches!(zero.ask(&["XADD", "s", "*", "f", "of zero"]), Reply::Bulk(_)));
    assert!(matches!(one.ask(&["XADD", "s", "*", "f", "of one"]), Reply::Bulk(_)));
    let came = waits.read();
    let fields = Reply::Array(vec![bulk("f"), bulk("of one")]);
    assert!(format!("{came:?}").contains(&format!("{fields:?}")), "{came:?}");
    assert_eq!(zero.ask(&["SET", "k", "zero"]), ok());
    assert_eq!(one.ask(&["SET", "k", "one"]), ok());
    assert_eq!([zero.ask(&["GET", "k"]), one.ask(&["GET", "k"])], [bulk("zero"), bulk("one")]);
    assert!(line(&mut one, &["CLIENT", "INFO"]).contains(" db=1 "));
    let keyspace = line(&mut one, &["INFO", "keyspace"]);
    assert!(keyspace.contains("db0:keys=2,") && keyspace.contains("db1:keys=2,"), "{keyspace}");
    assert_equal(&world);
}
