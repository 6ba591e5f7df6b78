//! Newer commands, with duplicates that say what they have when they are told to.

use std::time::Duration;

use evenkeel_ordered::ConnectionKind::{Free, Ordered};
use evenkeel_ordered::Dropped;

use super::super::world::World;
use super::*;

/// What a duplicate says of commands: name, flags, its first and last key.
fn described(commands: &[(&str, &str, u8)]) -> String {
    let mut all = format!("*{}\r\n", commands.len());
    for (name, flags, first) in commands {
        let flags: Vec<String> = flags.split(' ').map(|flag| format!("+{flag}\r\n")).collect();
        all += &format!("*10\r\n${}\r\n{name}\r\n:-3\r\n", name.len());
        all += &format!("~{}\r\n{}", flags.len(), flags.concat());
        all += &format!(":{first}\r\n:{first}\r\n:1\r\n~0\r\n*0\r\n");
        all += "*1\r\n%1\r\n+flags\r\n~1\r\n+RW\r\n*0\r\n";
    }
    all
}

/// A client asks for the first time: so do duplicates say what they have.
fn ask(world: &mut World, words: &[&str], said: &[&str]) -> ClientId {
    let client = world.client();
    assert!(!world.tell(client, words), "it waits");
    assert!(!world.would_take(client));
    for (server, said) in said.iter().enumerate() {
        assert_eq!(world.say(server, Free, said), ["COMMAND"]);
    }
    assert!(world.would_take(client));
    client
}

#[test]
fn a_command_that_all_duplicates_have_is_done_by_what_they_say_of_it() {
    let mut world = World::start(2, |_| {});
    let said = described(&[
        ("hgetdel", "write", 1),
        ("hexpire", "write", 1),
        ("new.get", "readonly", 1),
        ("new.wait", "write blocking", 1),
        ("get", "readonly", 1),
    ]);
    let client = ask(&mut world, &["HGETDEL", "h", "f"], &[&said, &said]);
    // By effects: the stream of one is asked for.
    assert!(world.tell(client, &["HGETDEL", "h", "f"]));
    let server = (0..2).find(|&server| world.engine.borrow().is_executor(server));
    assert!(server.is_some(), "one does it");
    let sent = [world.asked(0, Ordered), world.asked(1, Ordered)].concat();
    assert!(!sent.contains(&"HGETDEL h f".to_owned()), "not everywhere: {sent:?}");
    let other = world.client();
    assert!(world.tell(other, &["new.GET", "k", "x"]));
    let asked = [world.asked(0, Free), world.asked(1, Free)].concat();
    assert_eq!(asked, ["new.GET k x"], "a read of one");
    assert!(world.tell(other, &["NEW.WAIT", "k", "x"]));
    assert!(world.tell(other, &["HEXPIRE", "k", "x"]));
    assert!(world.tell(other, &["HGETDEL", "h"]));
    assert!(world.tell(other, &["NOSUCH"]));
    for server in 0..2 {
        while world.waiting(server)[1] > 0 {
            world.say(server, Free, "_\r\n");
        }
    }
    let heard = world.heard(other);
    let expected = [
        "$-1\r\n".to_owned(),
        format!("-{}\r\n", refusals::NEWER_BARRED),
        format!("-{}\r\n", refusals::FIELD_DEADLINES),
        "-ERR wrong number of arguments for 'hgetdel' command\r\n".to_owned(),
        "-ERR unknown command 'NOSUCH', with args beginning with: \r\n".to_owned(),
    ];
    assert_eq!(heard, expected.concat());
}

#[test]
fn what_one_lacks_or_says_otherwise_is_refused() {
    let mut world = World::start(2, |_| {});
    let first = described(&[("one.has", "readonly", 1), ("both.have", "readonly", 1)]);
    let second = described(&[("both.have", "readonly", 2)]);
    let client = ask(&mut world, &["ONE.HAS", "k", "x"], &[&first, &second]);
    assert!(world.tell(client, &["ONE.HAS", "k", "x"]));
    assert!(world.tell(client, &["BOTH.HAVE", "k", "x"]));
    let expected = format!("-{}\r\n-{}\r\n", refusals::NEWER_NOT_ALL, refusals::NEWER_DIFFERS);
    assert_eq!(world.heard(client), expected);
    // Who comes back with another version is asked, and so are the others.
    world.lose(1, Dropped::Lost);
    world.reach(1);
    let client = ask(&mut world, &["BOTH.HAVE", "k", "x"], &[&second, &second]);
    assert!(world.tell(client, &["BOTH.HAVE", "k", "x"]));
    assert_eq!(world.heard(client), "", "it is read");
}

#[test]
fn nobody_waits_for_one_that_is_silent_gone_or_may_not_say_it() {
    let mut world = World::start(2, |_| {});
    let said = described(&[("gone.get", "readonly", 1)]);
    let client = world.client();
    assert!(!world.tell(client, &["GONE.GET", "k", "x"]));
    world.say(0, Free, &said);
    world.pass(Duration::from_secs(1));
    world.engine.borrow().end_late_questions();
    assert!(world.tell(client, &["GONE.GET", "k", "x"]));
    assert_eq!(world.heard(client), format!("-{NOBODY}\r\n"), "one is silent");
    // A second later both are asked again, and one is lost before it answers.
    world.pass(AGAIN_AFTER);
    assert!(!world.tell(client, &["GONE.GET", "k", "x"]));
    world.say(0, Free, &said);
    world.lose(1, Dropped::Lost);
    assert!(world.tell(client, &["GONE.GET", "k", "x"]));
    world.say(0, Free, "_\r\n");
    assert_eq!(world.heard(client), "$-1\r\n", "who is live has it");
    // One that comes back while they are asked is asked too.
    world.reach(1);
    assert!(!world.tell(client, &["GONE.GET", "k", "x"]));
    world.lose(1, Dropped::Lost);
    world.reach(1);
    world.say(0, Free, &said);
    assert!(world.would_take(client) && !world.tell(client, &["GONE.GET", "k", "x"]));
    world.say(0, Free, &said);
    world.say(1, Free, "-NOPERM no\r\n");
    assert!(world.tell(client, &["GONE.GET", "k", "x"]));
    let text = format!("-{}\r\n", refusals::NEWER_NOT_ALL);
    assert_eq!(world.heard(client), text, "it says of none that it has it");
}
