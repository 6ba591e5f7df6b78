//! Sessions: own writes, no way back, tokens carried to other connections; single writers of keys.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use evenkeel_testkit::redis::{Client, Reply};

use super::history::{Event, sessions_hold};
use super::outcome::Outcome;
use super::random::Random;
use super::trouble::Troubles;
use super::world::World;

const PATIENCE: Duration = Duration::from_millis(1_500);

/// What a writer tells its reader: a key, its value and the token that holds them.
type Told = (u64, u64, String);

/// Writes rising values, reads them, and tells another.
fn write(
    world: std::net::SocketAddr,
    session: usize,
    level: &str,
    end: Instant,
    to: &Sender<Told>,
) -> Vec<Event> {
    let (mut events, mut random) = (Vec::new(), Random(session as u64));
    let (mut client, mut key, mut value) = (None, session as u64 * 1_000_000, 0);
    while Instant::now() < end {
        // A connection is a session: with another one nothing is promised of the old keys.
        let Some(connected) = &mut client else {
            key += 1;
            value = 0;
            client = Client::try_connect(world, PATIENCE).ok();
            if let Some(connected) = &mut client
                && connected.try_ask(&["EK.SESSION", level]).is_err()
            {
                client = None;
            }
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        value += 1;
        let name = format!("s{key}");
        match Outcome::of(connected.try_ask(&["SET", &name, &value.to_string()])) {
            Outcome::Done(Reply::Simple(_)) => {
                events.push(Event::Wrote { session, key, value });
            }
            Outcome::Done(other) => panic!("{other:?}"),
            Outcome::Unknown => client = None,
            Outcome::Uncertain | Outcome::Refused(_) => {}
        }
        let Some(connected) = &mut client else { continue };
        if level != "eventual" {
            match Outcome::of(connected.try_ask(&["GET", &name])) {
                Outcome::Done(reply) => {
                    events.push(Event::Read { session, key, value: number(&reply) });
                }
                Outcome::Unknown => client = None,
                Outcome::Uncertain | Outcome::Refused(_) => {}
            }
        }
        let Some(connected) = &mut client else { continue };
        if random.below(4) == 0
            && let Ok(token) = connected.try_ask(&["EK.TOKEN"])
            && let Some(token) = token.text()
            && let Some(&Event::Wrote { value, .. }) = events
                .iter()
                .rev()
                .find(|event| matches!(event, Event::Wrote { key: wrote, .. } if *wrote == key))
        {
            let _ = to.send((key, value, token.to_owned()));
        }
        std::thread::sleep(Duration::from_micros(random.below(1_500) as u64));
    }
    events
}

/// Adopts tokens and must see what they hold.
fn read(
    world: std::net::SocketAddr,
    session: usize,
    end: Instant,
    from: &Receiver<Told>,
) -> Vec<Event> {
    let (mut events, mut client, mut count) = (Vec::new(), None, 0);
    let mut session = session;
    while Instant::now() < end {
        let Ok((key, value, token)) = from.recv_timeout(Duration::from_millis(50)) else {
            continue;
        };
        if client.is_none() {
            session += 1_000;
            client = Client::try_connect(world, PATIENCE).ok();
        }
        let Some(connected) = &mut client else { continue };
        match Outcome::of(connected.try_ask(&["EK.SESSION", &token])) {
            Outcome::Done(Reply::Simple(_)) => {}
            Outcome::Done(other) => panic!("{token}: {other:?}"),
            _ => {
                client = None;
                continue;
            }
        }
        // What it was handed counts as if it had been seen.
        events.push(Event::Wrote { session, key, value });
        match Outcome::of(connected.try_ask(&["GET", &format!("s{key}")])) {
            Outcome::Done(reply) => {
                events.push(Event::Read { session, key, value: number(&reply) });
                count += 1;
            }
            Outcome::Unknown => client = None,
            Outcome::Uncertain | Outcome::Refused(_) => {}
        }
    }
    assert!(count > 10, "hardly any token was carried: {count}");
    events
}

fn number(reply: &Reply) -> u64 {
    match reply {
        Reply::Null => 0,
        value @ Reply::Bulk(_) => value.text().unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn under_trouble(lasts: Duration, seed: u64) {
    let settings = "reply_timeout = \"300ms\"\nread_copies = 1\nlog_sync = \"never\"";
    let Some(mut world) = World::start(&format!("sessions-{seed}"), settings) else { return };
    let (address, end) = (world.front.address, Instant::now() + lasts);
    let mut troubles = Troubles::default();
    let histories = histories(address, end, || {
        let mut random = Random(seed);
        while Instant::now() < end {
            troubles.make(&mut world, &mut random);
        }
    });
    judge(&histories, &format!("sessions, seed {seed}, under {troubles:?}"));
    world.front.settle(3);
    world.converged();
    assert_eq!(world.front.disagreements(), 0);
}

/// What sessions of two levels did and saw until the end, while something goes on.
pub(crate) fn histories(
    address: std::net::SocketAddr,
    end: Instant,
    meanwhile: impl FnOnce(),
) -> Vec<Vec<Event>> {
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (n, level) in ["read-my-own-writes", "eventual"].into_iter().enumerate() {
            let (to, from) = channel();
            running.push(scope.spawn(move || write(address, n + 1, level, end, &to)));
            running.push(scope.spawn(move || read(address, n + 11, end, &from)));
        }
        meanwhile();
        running.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

pub(crate) fn judge(histories: &[Vec<Event>], what: &str) {
    let count: usize = histories.iter().map(Vec::len).sum();
    for history in histories {
        assert_eq!(sessions_hold(history), Ok(()));
    }
    println!("{what}: {count} events hold");
}
