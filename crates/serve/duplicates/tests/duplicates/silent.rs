//! Duplicates that say nothing: slow ones are waited for, dead ones are not.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_duplicates::{DuplicatesConfig, Target};
use evenkeel_ordered::Acknowledge;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::block_until;

use super::world::World;
use super::{bulk, ok};

const SILENCE: Duration = Duration::from_millis(400);
const MEMBERS: i64 = 10_000;

/// Three duplicates with two sets.
fn world(name: &str, change: impl FnOnce(&mut DuplicatesConfig)) -> Option<World> {
    let world = World::start(name, 3, |config| {
        config.members.silence_max = SILENCE;
        change(config);
    })?;
    let mut client = world.client();
    let members: Vec<String> = (0..MEMBERS).map(|n| format!("m{n}")).collect();
    for set in ["{t}s", "{t}t"] {
        let mut command = vec!["SADD", set];
        command.extend(members.iter().map(String::as_str));
        assert_eq!(client.ask(&command), Reply::Integer(MEMBERS));
    }
    assert_eq!(client.ask(&["SET", "a", "1"]), ok());
    world.settle();
    Some(world)
}

/// What takes Redis several times as long as it may be silent.
fn slow<'a>(command: &[&'a str]) -> Vec<&'a str> {
    let again = std::iter::repeat_n("{t}t", 3_000);
    command.iter().copied().chain(["{t}s"]).chain(again).collect()
}

fn dropped(world: &World) -> u64 {
    let state = world.state_now();
    state.partitions[0].duplicates.iter().map(|it| it.dropped.silent + it.dropped.lost).sum()
}

/// Asks this, and, while it lasts, something quick again and again: both are answered, and nobody
/// is dropped. How long it lasted.
fn lasts(world: &World, command: &[&str], expected: impl Fn(&Reply) -> bool) -> Duration {
    let mut slow = world.client();
    slow.tell(command);
    let begun = Instant::now();
    let answering = std::thread::spawn(move || slow.read());
    let mut quick = world.client();
    while !answering.is_finished() {
        assert_eq!(quick.ask(&["GET", "a"]), bulk("1"));
        assert_eq!(quick.ask(&["SET", "b", "1"]), ok());
    }
    let answer = answering.join().unwrap();
    let lasted = begun.elapsed();
    assert!(expected(&answer), "{command:?}: {:.200}", format!("{answer:?}"));
    world.settle();
    assert_eq!(dropped(world), 0, "somebody was dropped for {command:?}, which took {lasted:?}");
    lasted
}

fn slow_commands_drop_nobody(name: &str, read_copies: u8) -> Option<World> {
    let world = world(name, |config| config.read_copies = read_copies)?;
    let is_all = |reply: &Reply| *reply == Reply::Integer(MEMBERS);
    let lasted = lasts(&world, &slow(&["SINTERCARD", "3001"]), is_all);
    assert!(lasted > SILENCE, "too quick to tell anything: {lasted:?}");
    lasts(&world, &slow(&["SINTERSTORE", "{t}both"]), is_all);
    assert_eq!(world.states().len(), 1, "duplicates differ");
    Some(world)
}

#[test]
fn what_takes_long_everywhere_drops_nobody() {
    let Some(world) = slow_commands_drop_nobody("slow", 8) else { return };
    let long = "x".repeat(40 << 20);
    lasts(&world, &["SET", "long", &long], |reply| *reply == ok());
}

#[test]
fn what_takes_long_where_it_is_read_drops_nobody() {
    let _ = slow_commands_drop_nobody("slow-one", 1);
}

/// Reads and writes, until this is so.
fn busy_until(client: &mut Client, what: &str, is_so: impl Fn() -> bool) {
    block_until(what, || {
        assert_eq!(client.ask(&["GET", "a"]), bulk("1"));
        assert_eq!(client.ask(&["SET", "b", "1"]), ok());
        is_so()
    });
}

#[test]
fn what_stands_still_is_dropped_and_its_reads_go_elsewhere() {
    for read_copies in [1, 8] {
        let name = format!("still-{read_copies}");
        let Some(world) = world(&name, |config| config.read_copies = read_copies) else { return };
        let mut client = world.client();
        world.redises[1].program.signal("-STOP");
        busy_until(&mut client, "it is dropped", || world.live() == 2);
        assert_eq!(world.state_now().partitions[0].duplicates[1].dropped.silent, 1);
        world.redises[1].program.signal("-CONT");
        busy_until(&mut client, "it is live again", || world.live() == 3);
    }
}

/// A way to a server on which what it sends is lost while that is so.
fn cut(server: SocketAddr, is_cut: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, is_cut) = (listener.local_addr().unwrap(), Arc::clone(is_cut));
    let pass = |mut from: TcpStream, mut to: TcpStream, is_cut: Arc<AtomicBool>| {
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if !is_cut.load(Ordering::Relaxed) && to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(std::net::Shutdown::Both); // it may be gone
        })
    };
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
            let copies = (client.try_clone().unwrap(), server.try_clone().unwrap());
            pass(client, server, Arc::default());
            pass(copies.1, copies.0, Arc::clone(&is_cut));
        }
    });
    address
}

#[test]
fn whose_replies_are_lost_is_dropped_and_comes_back() {
    let is_cut = Arc::new(AtomicBool::new(false));
    let through = |config: &mut DuplicatesConfig| {
        let Target::Tcp { address, .. } = &mut config.partitions[0][1] else { return };
        *address = cut(address.inet().unwrap(), &is_cut).into();
    };
    let Some(world) = world("cut", through) else { return };
    let mut client = world.client();
    is_cut.store(true, Ordering::Relaxed);
    busy_until(&mut client, "it is dropped", || world.live() == 2);
    is_cut.store(false, Ordering::Relaxed);
    busy_until(&mut client, "it is live again", || world.live() == 3);
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// Nobody else can tell that the last one does not only take long; that it is gone, its machine
/// tells.
#[test]
fn the_last_one_is_waited_for() {
    let level = |config: &mut DuplicatesConfig| {
        config.members.silence_max = SILENCE;
        config.members.acknowledge = Acknowledge::One;
    };
    let Some(mut world) = World::start("last", 1, level) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "a", "1"]), ok());
    world.redises[0].program.signal("-STOP");
    client.tell(&["GET", "a"]);
    std::thread::sleep(5 * SILENCE);
    assert_eq!(world.live(), 1);
    world.redises[0].program.signal("-CONT");
    assert_eq!(client.read(), bulk("1"));
    world.redises[0].program.signal("-STOP");
    client.tell(&["GET", "a"]);
    world.redises[0].kill();
    assert!(matches!(client.read(), Reply::Error(_)), "it is gone");
}
