//! A duplicate that is emptied between a question and its answer.

use evenkeel_core::Instant;
use evenkeel_ordered::{Acknowledge, Consistency, ReplicaState};

use super::super::world::World;
use super::*;

const ORDERED: ConnectionKind = ConnectionKind::Ordered;
const FREE: ConnectionKind = ConnectionKind::Free;
const EMPTIED: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";
const SIGNED: &str = "GET evenkeel:epoch";

/// Three duplicates, of which one answers a strong read alone.
fn leased() -> World {
    let world = World::start(3, |config| {
        config.members.acknowledge = Acknowledge::Majority;
        config.consistency = Consistency::Strong;
    });
    world.engine.borrow().strong.lease_until = Some(Instant::from_millis(60_000));
    world
}

/// What a duplicate says beside its answers.
fn push(world: &World, server: usize, kind: ConnectionKind, push: &str) {
    let mut inner = world.engine.borrow();
    let connection = inner.servers[server].connection;
    assert_eq!(inner.answered(server, connection, kind, push.as_bytes()), Ok(()));
}

fn say(world: &mut World, server: usize, kind: ConnectionKind, reply: &str) {
    world.fetch();
    let _ = world.sent[server][kind as usize].pop_front();
    let mut inner = world.engine.borrow();
    let connection = inner.servers[server].connection;
    let _ = inner.answered(server, connection, kind, reply.as_bytes());
}

/// Reads what a majority has; who was asked, by whom.
fn read(world: &mut World) -> (super::super::ClientId, usize) {
    let writer = world.client();
    assert!(world.tell(writer, &["SET", "k", "1"]));
    world.serve_all();
    assert_eq!(world.heard(writer), "+OK\r\n");
    let reader = world.client();
    assert!(world.tell(reader, &["GET", "k"]));
    let asked: Vec<usize> = (0..3).filter(|&server| world.waiting(server)[1] > 0).collect();
    let [one] = asked[..] else { panic!("one is asked, and not {asked:?}") };
    (reader, one)
}

#[test]
fn only_the_loss_of_all_keys_is_meant() {
    assert!(is_emptying(EMPTIED.as_bytes()));
    for other in [
        ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
        ">2\r\n$7\r\nmessage\r\n_\r\n",
        ">1\r\n$10\r\ninvalidate\r\n",
        ">0\r\n",
    ] {
        assert!(!is_emptying(other.as_bytes()), "{other}");
    }
}

/// Without the word of the emptying the reader is told that there is no key.
#[test]
fn who_was_emptied_before_it_answered_is_not_believed_and_another_is_asked() {
    let mut world = leased();
    let (reader, one) = read(&mut world);
    push(&world, one, FREE, EMPTIED);
    say(&mut world, one, FREE, "_\r\n");
    assert_eq!(world.heard(reader), "", "it may be emptied");
    assert_eq!(world.asked(one, FREE), [SIGNED]);
    say(&mut world, one, FREE, "_\r\n");
    assert_eq!(world.heard(reader), "", "nobody has answered yet");
    {
        let inner = world.engine.borrow();
        assert_eq!(inner.members.state(one), ReplicaState::Disconnected);
        assert!(inner.servers[one].quarantine.is_some(), "it is filled anew");
    }
    let other = (0..3).find(|&server| world.waiting(server)[1] > 0).expect("another is asked");
    assert!(world.serve(other, FREE));
    assert_eq!(world.heard(reader), "$1\r\n1\r\n");
}

/// A client of ours empties it and signs it at once: both connections are told of that.
#[test]
fn what_was_answered_behind_a_flush_of_ours_is_told_once_it_is_known_to_be_signed() {
    let mut world = leased();
    let (reader, one) = read(&mut world);
    push(&world, one, FREE, EMPTIED);
    push(&world, one, FREE, EMPTIED);
    say(&mut world, one, FREE, "_\r\n");
    assert_eq!(world.asked(one, FREE), [SIGNED], "once");
    assert_eq!(world.heard(reader), "");
    say(&mut world, one, FREE, "$1\r\n1\r\n");
    assert_eq!(world.heard(reader), "$-1\r\n");
    let inner = world.engine.borrow();
    assert_eq!(inner.members.state(one), ReplicaState::InSync);
    assert_eq!(inner.members.owed(one), 0);
}

/// What it wrote on nothing would be logged and done by all.
#[test]
fn what_an_emptied_executor_has_done_is_done_again_by_another() {
    let mut world = leased();
    let client = world.client();
    assert!(world.tell(client, &["EVAL", "script", "1", "k"]));
    let follow = |world: &World| {
        let mut inner = world.engine.borrow();
        let wanted = inner.take_wanted_streams();
        let &[(server, connection)] = &wanted[..] else { panic!("{wanted:?}") };
        inner.stream_opened(server, connection);
        server
    };
    let one = follow(&world);
    push(&world, one, ORDERED, EMPTIED);
    for reply in ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n:5\r\n+OK\r\n"] {
        push(&world, one, ORDERED, reply);
    }
    let (mark, count) = (b"ahead 1 1".to_vec(), 1);
    let mut commands = Vec::new();
    encode::command(&mut commands, &[b"INCRBY", b"k", b"5"]);
    let group =
        evenkeel_stores::resp::replication::Group { mark, commands, count, ..Default::default() };
    let connection = world.engine.borrow().servers[one].connection;
    world.engine.borrow().effects_came(one, connection, group);
    assert_eq!(world.engine.borrow().history.last().sequence.0, 0, "it is not logged");
    world.sent[one][0].clear();
    say(&mut world, one, ORDERED, "_\r\n");
    assert_ne!(follow(&world), one, "another does it");
    assert_eq!(world.heard(client), "");
}

/// A pair of answers belongs together: the value of a key and its deadline.
#[test]
fn what_is_held_comes_in_its_order_and_is_lost_with_the_connection() {
    let mut world = leased();
    let (reader, one) = read(&mut world);
    let other = world.client();
    assert!(world.tell(other, &["GET", "k"]));
    push(&world, one, FREE, EMPTIED);
    say(&mut world, one, FREE, "$1\r\n1\r\n");
    world.lose(one, Dropped::Lost);
    world.serve_all();
    assert_eq!(world.heard(reader), "$1\r\n1\r\n", "another has answered");
    assert_eq!(world.heard(other), "$1\r\n1\r\n");
    let inner = world.engine.borrow();
    assert!(inner.calls.is_empty() && inner.members.owed(one) == 0);
}

/// It is busy with a script for longer than Redis waits: who was emptied is not believed for that.
#[test]
fn who_is_too_busy_to_say_whether_it_was_emptied_is_asked_again() {
    let mut world = leased();
    let (reader, one) = read(&mut world);
    push(&world, one, FREE, EMPTIED);
    say(&mut world, one, FREE, "_\r\n");
    say(&mut world, one, FREE, "-BUSY Redis is busy running a script\r\n");
    assert_eq!((world.heard(reader).as_str(), world.asked(one, FREE).len()), ("", 0));
    world.engine.borrow().keep();
    assert_eq!(world.asked(one, FREE), [SIGNED]);
    say(&mut world, one, FREE, "$1\r\n1\r\n");
    assert_eq!(world.heard(reader), "$-1\r\n", "a client of ours emptied it");
}

/// Its data come from somebody else.
#[test]
fn who_cannot_say_whether_it_was_emptied_is_dropped() {
    let mut world = leased();
    let (reader, one) = read(&mut world);
    push(&world, one, FREE, EMPTIED);
    say(&mut world, one, FREE, "_\r\n");
    {
        let mut inner = world.engine.borrow();
        let connection = inner.servers[one].connection;
        let why = inner.answered(one, connection, FREE, b"-LOADING it is\r\n").unwrap_err();
        inner.drop_server(one, why.expect("it is dropped"));
    }
    let other = (0..3).find(|&server| world.waiting(server)[1] > 0).expect("another is asked");
    assert!(world.serve(other, FREE));
    assert_eq!(world.heard(reader), "$1\r\n1\r\n");
}
