//! Commands that only servers know, by what they say.

use std::collections::BTreeMap;

use super::server::Server;
use super::with_arguments;
use crate::resp::Protocol;
use crate::resp::commands::newer::{self, Said};
use crate::resp::commands::{COMMANDS, Class, Keys, keys, known, lookup, refusals};
use crate::resp::reply::{elements, payload};

/// What a server says of its own commands, under names that our table does not have.
fn renamed(reply: &[u8]) -> Vec<u8> {
    let mut all = format!("*{}\r\n", elements(reply).count()).into_bytes();
    for entry in elements(reply) {
        let name = String::from_utf8_lossy(payload(elements(entry).next().unwrap()).unwrap());
        let name = format!("new.{name}");
        all.extend(format!("*10\r\n${}\r\n{name}\r\n", name.len()).bytes());
        elements(entry).skip(1).for_each(|part| all.extend_from_slice(part));
    }
    all
}

fn text(flags: &str, keys: &str, specs: &str) -> Vec<u8> {
    let flags: Vec<String> = flags.split_whitespace().map(|it| format!("+{it}\r\n")).collect();
    let flags = format!("~{}\r\n{}", flags.len(), flags.concat());
    format!("*1\r\n*10\r\n$7\r\nhgetdel\r\n:-5\r\n{flags}{keys}~0\r\n*0\r\n{specs}*0\r\n").into()
}

const FIRST: &str = ":1\r\n:1\r\n:1\r\n";
const ANY_SPEC: &str = "*1\r\n%1\r\n+flags\r\n~2\r\n+RW\r\n+access\r\n";

fn judged(reply: &[u8]) -> Result<&'static str, &'static str> {
    let said = newer::read(reply);
    newer::note(said.values().next().expect("it is read")).map(|command| command.name)
}

#[test]
fn what_a_server_says_of_known_commands_puts_them_where_our_table_has_them() {
    let Some(server) = Server::start(&[]) else { return };
    let reply = server.connect(Protocol::Resp3).ask(&["COMMAND"]);
    assert_eq!(newer::read(&reply), BTreeMap::new(), "our table has all of them");
    let said: BTreeMap<String, Said> = newer::read(&renamed(&reply));
    assert!(said.len() >= 240, "{} commands", said.len());
    let (mut reads, mut effects) = (0, 0);
    for command in COMMANDS.iter().filter(|command| !command.name.starts_with("ek.")) {
        let name = format!("new.{}", command.name);
        let noted = newer::note(&said[&name]);
        let is_span = matches!(command.keys, Keys::Span { .. });
        match (command.class, noted) {
            (Class::Read, Ok(noted)) => {
                assert!(matches!(noted.class, Class::Read | Class::Effects), "{name}");
                reads += usize::from(noted.class == Class::Read);
            }
            (Class::Write(_) | Class::Rewritten(..) | Class::Effects, Ok(noted)) => {
                assert_eq!(noted.class, Class::Effects, "{name}");
                effects += 1;
            }
            // Which keys it uses is not said, or it has parts.
            (Class::Read | Class::Write(_) | Class::Rewritten(..) | Class::Effects, Err(_)) => {}
            (Class::Waits(_) | Class::Refused(_), noted) => {
                assert!(noted.is_err() || command.name == "restore-asking", "{name}: {noted:?}");
            }
            // What is answered here, or is about all keys, names none; cursors are another matter.
            (Class::Local(_) | Class::Whole(_), noted) => {
                assert!(noted.is_err() || command.name.ends_with("scan"), "{name}: {noted:?}");
            }
        }
        if let (true, Ok(noted)) = (is_span, noted) {
            assert_eq!(noted.keys, command.keys, "{name}");
        }
    }
    assert!(reads > 60 && effects > 60, "{reads} {effects}");
    // Counted keys are found, too.
    let found = known(b"NEW.SINTERCARD").expect("it was noted");
    let count = with_arguments(&["new.sintercard", "2", "a", "b", "limit", "1"], |arguments| {
        keys(found, arguments).unwrap().collect::<Vec<usize>>()
    });
    assert_eq!(count, [2, 3]);
    assert_eq!(lookup(b"new.sintercard"), None, "our table stays as it is");
}

#[test]
fn what_is_not_said_or_not_safe_is_refused_with_the_reason() {
    for (flags, keys, specs, expected) in [
        ("write admin", FIRST, ANY_SPEC, refusals::NEWER_BARRED),
        ("write blocking", FIRST, ANY_SPEC, refusals::NEWER_BARRED),
        ("readonly pubsub", FIRST, ANY_SPEC, refusals::NEWER_BARRED),
        ("fast", FIRST, ANY_SPEC, refusals::NEWER_NEITHER),
        ("write", ":0\r\n:0\r\n:0\r\n", "*0\r\n", refusals::NEWER_KEYS),
        ("write", ":0\r\n:0\r\n:0\r\n", ANY_SPEC, refusals::NEWER_KEYS),
        ("write movablekeys", FIRST, ANY_SPEC, refusals::NEWER_KEYS),
        ("write", FIRST, &ANY_SPEC.replace("access", "incomplete"), refusals::NEWER_KEYS),
        ("readonly", FIRST, &ANY_SPEC.replace("access", "not_key"), refusals::NEWER_KEYS),
    ] {
        assert_eq!(judged(&text(flags, keys, specs)), Err(expected), "{flags} {keys:?}");
    }
    let with_parts = text("write", FIRST, ANY_SPEC);
    let with_parts = String::from_utf8(with_parts).unwrap();
    let with_parts = format!("{}*1\r\n*0\r\n", with_parts.strip_suffix("*0\r\n").unwrap());
    assert_eq!(judged(with_parts.as_bytes()), Err(refusals::NEWER_PARTS));
    let other = |name: &str| {
        let said = String::from_utf8(text("write", FIRST, ANY_SPEC)).unwrap();
        said.replace("$7\r\nhgetdel", &format!("${}\r\n{name}", name.len())).into_bytes()
    };
    assert_eq!(judged(&other("HPExpire")), Err(refusals::FIELD_DEADLINES));
    assert_eq!(judged(&other("msetex")), Err(refusals::KEY_DEADLINES));
    // It is known as it was said first.
    assert_eq!(judged(&other("test.first")), Ok("test.first"));
    let changed = String::from_utf8(other("test.first")).unwrap().replace("+write", "+readonly");
    assert_eq!(judged(changed.as_bytes()), Err(refusals::NEWER_CHANGED));
}

#[test]
fn what_is_no_description_is_left_out() {
    for reply in ["+OK\r\n", "*0\r\n", "*1\r\n_\r\n", "*1\r\n*0\r\n", "*1\r\n:5\r\n", "%0\r\n"] {
        assert_eq!(newer::read(reply.as_bytes()), BTreeMap::new(), "{reply:?}");
    }
    let said = String::from_utf8(text("write", FIRST, ANY_SPEC)).unwrap();
    for (from, to) in [
        (":-5\r\n", ":0\r\n"),
        (":-5\r\n", ":1000\r\n"),
        (":-5\r\n", "+x\r\n"),
        ("$7\r\nhgetdel", "$7\r\nhget el"),
        ("$7\r\nhgetdel", "$7\r\nhget|el"),
        ("$7\r\nhgetdel", "$0\r\n"),
    ] {
        let reply = said.replace(from, to);
        assert_eq!(newer::read(reply.as_bytes()), BTreeMap::new(), "{to:?}");
    }
}
