//! `CLIENT PAUSE` beside a real server: what is refused, and which commands wait.

use std::time::Duration;

use super::server::Server;
use super::{with_arguments, words};
use crate::resp::Protocol;
use crate::resp::commands::{classify, lookup};
use crate::resp::pause::{Kept, keeps, parse};

fn kept_back(kept: Kept, line: &str, transaction: Option<bool>) -> bool {
    let words = words(line);
    let command = lookup(words[0].as_bytes()).unwrap();
    with_arguments(&words, |arguments| {
        keeps(kept, (command, classify(command, arguments)), arguments, transaction)
    })
}

#[test]
fn pauses_are_errors_where_they_are_at_the_server() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    for line in [
        "client pause 0",
        "client pause 1",
        "client pause 1 write",
        "client pause 1 All",
        "client pause 1 some",
        "client pause x some",
        "client pause x",
        "client pause 1.5",
        "client pause -1",
        "client pause 01",
        "client pause 9223372036854775808",
    ] {
        let theirs = String::from_utf8(connection.ask(&words(line))).unwrap();
        let ours = with_arguments(&words(line), parse);
        let ours = ours.map_or_else(|error| format!("-{error}\r\n"), |_| "+OK\r\n".to_owned());
        assert_eq!(ours, theirs, "{line}");
    }
    let parsed = with_arguments(&words("client pause 1500 write"), parse);
    assert_eq!(parsed, Ok((Kept::Writes, Duration::from_millis(1_500))));
}

/// Each is sent on a connection of its own; who is counted as blocked waits.
#[test]
fn what_waits_at_the_server_while_writes_are_paused_waits_here_too() {
    let Some(server) = Server::start(&[]) else { return };
    let mut operator = server.connect(Protocol::Resp2);
    operator.prepare(&["PFADD h a", "RPUSH l 1", "XADD x 1-1 f v", "CLIENT PAUSE 600000 WRITE"]);
    let mut blocked = || {
        let info = String::from_utf8(operator.ask(&["INFO", "clients"])).unwrap();
        let count = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        count.unwrap().parse::<usize>().unwrap()
    };
    let mut waiting = Vec::new();
    for line in [
        "SET k 1",
        "SET k 1 EX 10",
        "SETEX k 10 1",
        "FUNCTION FLUSH",
        "EXPIRE k 10",
        "INCR k",
        "DEL k",
        "GET k",
        "MGET k l",
        "XADD x * f v",
        "XREAD STREAMS x 0",
        "XREADGROUP GROUP g c STREAMS x >",
        "SPOP s",
        "BLPOP l 0",
        "LRANGE l 0 -1",
        "SORT l STORE m",
        "SORT_RO l",
        "PFCOUNT h",
        "PFADD h b",
        "PUBLISH c m",
        "SPUBLISH c m",
        "SUBSCRIBE c",
        "EVAL return(1) 0",
        "EVAL_RO return(1) 0",
        "FLUSHALL",
        "SCAN 0",
        "KEYS none",
        "PING",
        "INFO memory",
        "CONFIG GET port",
        "WATCH k",
        "MULTI",
        "HELLO 3",
    ] {
        let before = blocked();
        let mut connection = server.connect(Protocol::Resp2);
        connection.send(&super::array(&words(line)));
        let ours = kept_back(Kept::Writes, line, None);
        if ours {
            // It is answered or blocked by the time that a later question is answered.
            while blocked() == before {
                std::thread::yield_now();
            }
        } else {
            assert!(connection.reply().is_some(), "{line} waits at the server");
        }
        waiting.push(connection);
    }
}

#[test]
fn in_a_transaction_exec_alone_waits_and_in_a_full_pause_all_but_who_greets() {
    for (line, kept, transaction, expected) in [
        ("SET k 1", Kept::Writes, Some(false), false),
        ("EXEC", Kept::Writes, Some(false), false),
        ("EXEC", Kept::Writes, Some(true), true),
        ("DISCARD", Kept::Writes, Some(true), false),
        ("SET k 1", Kept::All, Some(false), true),
        ("EXEC", Kept::All, Some(false), true),
        ("PING", Kept::All, None, true),
        ("GET k", Kept::All, None, true),
        ("CLIENT LIST", Kept::All, None, true),
        ("CLIENT UNPAUSE", Kept::All, None, false),
        ("AUTH x", Kept::All, None, false),
        ("HELLO 3", Kept::All, None, false),
        ("EK.RELAYED 10.0.0.1:1", Kept::All, None, false),
    ] {
        assert_eq!(kept_back(kept, line, transaction), expected, "{line}");
    }
    assert!(Kept::All > Kept::Writes, "the later one includes the earlier");
}
