//! `COMMAND` as a real server answers it, cut to what is taken, and our own table beside it.

use super::server::Server;
use crate::resp::Protocol;
use crate::resp::commands::described::{Described, cut, is_taken, own};
use crate::resp::reply::{ReplyScanner, elements, integer, payload};

fn names(reply: &[u8]) -> Vec<String> {
    let name = |entry| elements(entry).next().and_then(payload).unwrap_or_default();
    let text = |entry| String::from_utf8_lossy(name(entry)).into_owned();
    elements(reply).map(text).collect()
}

#[test]
fn what_is_refused_is_left_out_of_what_a_server_says() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp3);
    let cut_of = |reply: &[u8], described| {
        let mut out = Vec::new();
        cut(reply, described, |_| false, &mut out);
        assert_eq!(ReplyScanner::default().scan(&out), Ok(Some(out.len())), "{described:?}");
        out
    };
    let whole = connection.ask(&["COMMAND"]);
    let all = cut_of(&whole, Described::All);
    let taken = names(&all);
    let expected: Vec<String> =
        names(&whole).into_iter().filter(|name| is_taken(name.as_bytes())).collect();
    assert!(taken == expected && taken.len() < names(&whole).len());
    assert!(taken.contains(&"get".to_owned()) && !taken.contains(&"debug".to_owned()));
    let named = connection.ask(&["COMMAND", "INFO", "get", "debug", "nosuch"]);
    let named = cut_of(&named, Described::Named);
    let nulls: Vec<bool> = elements(&named).map(|it| it == b"_\r\n").collect();
    assert_eq!(nulls, [false, true, true]);
    let docs = cut_of(&connection.ask(&["COMMAND", "DOCS"]), Described::Docs);
    assert_eq!(elements(&docs).count(), 2 * taken.len());
    let list = connection.ask(&["COMMAND", "LIST"]);
    let listed = cut_of(&list, Described::Names);
    let is_there = |name: &&[u8]| payload(name) == Some(b"config|get");
    assert!(elements(&listed).any(|name| is_there(&name)), "with subcommands");
    let count = cut_of(&list, Described::Count);
    assert_eq!(integer(&count), Some(taken.len() as i64));
}

#[test]
fn our_table_says_the_same_of_keys_as_a_server() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp3);
    for command in ["get", "mset", "del", "copy", "zunionstore", "georadius", "sort", "nosuch"] {
        let theirs = connection.ask(&["COMMAND", "INFO", command]);
        let mut ours = Vec::new();
        own(Described::Named, &[command.as_bytes()], &mut ours);
        let first = |reply| elements(reply).next().map(<[u8]>::to_vec).unwrap_or_default();
        let (theirs, ours) = (first(&theirs), first(&ours));
        let parts = |entry| elements(entry).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (theirs, ours) = (parts(&theirs), parts(&ours));
        assert_eq!(theirs.len(), ours.len(), "{command}");
        for place in [0, 1, 3, 4, 5].into_iter().filter(|&place| place < ours.len()) {
            assert_eq!(theirs[place], ours[place], "{command} {place}");
        }
    }
    for described in [Described::All, Described::Docs, Described::Names, Described::Count] {
        let mut out = Vec::new();
        own(described, &[], &mut out);
        assert_eq!(ReplyScanner::default().scan(&out), Ok(Some(out.len())), "{described:?}");
    }
}
