//! Decisions beside those of a real server; files beside what is wrong with them.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use evenkeel_stores::resp::commands::{Command, lookup};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::{ReplyScanner, elements, payload};
use evenkeel_stores::resp::request::{Arguments, Limits, RequestParser};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis;

use super::table::{Access, NONE, READ, ROWS, Row, WRITE};
use super::user::User;
use super::{Denied, Users};

struct Connection {
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Connection {
    fn ask(&mut self, words: &[&str]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut command = Vec::new();
        encode::command(&mut command, &words);
        self.stream.write_all(&command).unwrap();
        let mut scanner = ReplyScanner::default();
        loop {
            if let Some(length) = scanner.scan(&self.bytes).unwrap() {
                return self.bytes.drain(..length).collect();
            }
            let mut came = [0; 65_536];
            let count = self.stream.read(&mut came).unwrap();
            assert!(count > 0, "the server has closed");
            self.bytes.extend(&came[..count]);
        }
    }
}

/// Asks a real server, if there is one here.
fn with_server(name: &str, act: impl FnOnce(&mut Connection)) {
    let folder = Folder::new(name);
    let Some((_program, socket)) = redis::on_socket(folder.path(), &[]) else { return };
    let stream = UnixStream::connect(socket).unwrap();
    act(&mut Connection { stream, bytes: Vec::new() });
}

fn text(reply: &[u8]) -> String {
    String::from_utf8(payload(reply).unwrap().to_vec()).unwrap()
}

/// What a description of keys (`COMMAND`, place 8) says is done to them.
fn access_of(specification: &[u8]) -> Access {
    let words: Vec<&[u8]> = elements(specification).collect();
    let flags = words.chunks(2).find(|pair| payload(pair[0]) == Some(b"flags")).unwrap()[1];
    let flags: Vec<String> = elements(flags).map(text).collect();
    let has = |flag: &str| flags.iter().any(|it| it == flag);
    let read = if has("access") { READ } else { NONE };
    let write = if has("insert") || has("update") || has("delete") { WRITE } else { NONE };
    read | write
}

/// Every row of one entry of `COMMAND` and of its subcommands.
fn compare(entry: &[u8], seen: &mut BTreeSet<String>) {
    let parts: Vec<&[u8]> = elements(entry).collect();
    let name = text(parts[0]);
    let row = ROWS.iter().find(|row| row.name == name);
    let row = row.unwrap_or_else(|| panic!("the table has no {name}"));
    let flags: Vec<String> = elements(parts[2]).map(text).collect();
    assert_eq!(row.is_in_scripts, !flags.iter().any(|flag| flag == "noscript"), "{name}");
    let categories: Vec<String> = elements(parts[6]).map(text).collect();
    for category in &categories {
        assert!(row.is_of(category.strip_prefix('@').unwrap()), "{name} is of {category}");
    }
    let of = ROWS.iter().flat_map(Row::categories).collect::<BTreeSet<_>>();
    assert_eq!(of.iter().filter(|it| row.is_of(it)).count(), categories.len(), "{name}");
    let access: Vec<Access> = elements(parts[8]).map(access_of).collect();
    assert_eq!(row.first, access.first().copied().unwrap_or(NONE), "{name}");
    // Of SORT the server does not say where the further keys are.
    if access.len() > 1 && name != "sort" && name != "migrate" {
        assert_eq!(row.rest, access[1], "{name}");
    }
    seen.insert(name);
    elements(parts[9]).for_each(|sub| compare(sub, seen));
}

#[test]
fn every_row_is_what_the_server_says() {
    with_server("acl-table", |server| {
        let mut seen = BTreeSet::new();
        elements(&server.ask(&["COMMAND"])).for_each(|entry| compare(entry, &mut seen));
        let known: BTreeSet<String> = ROWS.iter().map(|row| row.name.to_owned()).collect();
        assert_eq!(seen, known);
        assert!(ROWS.is_sorted_by_key(|row| row.name));
    });
}

fn parsed<T>(line: &str, act: impl FnOnce(&'static Command, Arguments<'_>) -> T) -> T {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut bytes = Vec::new();
    encode::command(&mut bytes, &words);
    let mut parser = RequestParser::new(Limits::MAX);
    parser.parse(&bytes).unwrap().expect("it is whole");
    let arguments = parser.arguments(&bytes);
    act(lookup(arguments.at(0)).unwrap(), arguments)
}

fn check(user: &User, line: &str) -> Result<(), Denied> {
    parsed(line, |command, words| user.check(command, words))
}

const RULES: &[&str] = &[
    "+get",
    "-get",
    "+set",
    "-set",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@all",
    "-@all",
    "allcommands",
    "nocommands",
    "+config",
    "-config",
    "+config|get",
    "-config|get",
    "+config|set",
    "+client",
    "-client|kill",
    "+client|id",
    "+@dangerous",
    "-@dangerous",
    "+@admin",
    "-@fast",
    "+select|0",
    "+select|1",
    "-select",
    "+select",
    "+@pubsub",
    "+publish",
    "-publish",
    "+xgroup",
    "-xgroup|create",
    "+@scripting",
    "+sort",
    "+sort_ro",
    "+@keyspace",
    "-@keyspace",
    "~*",
    "allkeys",
    "resetkeys",
    "~a",
    "~a*",
    "%R~b",
    "%W~b",
    "%R~*",
    "%W~c*",
    "%RW~*",
    "~[ab]",
    "&*",
    "allchannels",
    "resetchannels",
    "&ch",
    "&ch*",
    "&*1",
    "(+get ~b)",
    "(+@all ~c* &ch)",
    "(+set %W~a)",
    "clearselectors",
    "reset",
    "on",
    "off",
    "nopass",
    "resetpass",
    "sanitize-payload",
    // Wrong ones.
    "+nope",
    "+@nope",
    "-select|0",
    "+config|nope",
    "%~x",
    "%RR~x",
    "foo",
    "+",
    "+set|a|b",
    "(foo)",
    "+@",
    "-",
    "#12",
    "<none",
    "+select|",
];

const LINES: &[&str] = &[
    "get a",
    "get b",
    "get abc",
    "set a 1",
    "set b 1 get",
    "set a 1 ex 5 get",
    "set get 1",
    "mget a b c",
    "mset a 1 b 2",
    "config get x",
    "config set x y",
    "config resetstat",
    "client id",
    "client kill x",
    "select 0",
    "select 1",
    "rename a b",
    "rename b a",
    "copy a b",
    "copy b c",
    "bitfield a get u8 0",
    "bitfield a set u8 0 1",
    "bitfield b get u8 0 get u8 1",
    "bitfield b get u8 0 set u8 0 1",
    "zunionstore a 2 b c",
    "zunionstore c 2 a b",
    "sdiffstore c a b",
    "xread streams a b 0 0",
    "xadd b * f v",
    "xgroup create a g 0",
    "xgroup destroy b g",
    "xreadgroup group g c streams b >",
    "sort a",
    "sort a store b",
    "sort a limit 0 1 store c",
    "georadius a 0 0 1 m store b",
    "georadius_ro b 0 0 1 m",
    "lmove a b left left",
    "blpop a b 0",
    "exists a b",
    "type b",
    "ttl a",
    "object encoding b",
    "ping",
    "dbsize",
    "keys *",
    "flushall",
    "publish ch m",
    "publish ch1 m",
    "spublish x m",
    "subscribe ch ch1",
    "psubscribe ch*",
    "psubscribe ch c*",
    "unsubscribe",
    "multi",
    "auth x",
    "hello 3",
    "acl whoami",
    "info",
    "debug sleep 0",
    "del c c1",
    "incr b",
    "append a x",
    "getex a",
    "getdel b",
    "lcs a b",
    "pfmerge a b c",
    "bitop and a b c",
];

/// What the server says of a line: whether, and otherwise what of it is not permitted.
fn kind(said: &str) -> &'static str {
    match said {
        "OK" => "permitted",
        _ if said.contains("permissions to run") => "command",
        _ if said.contains("' key") => "key",
        _ if said.contains("' channel") => "channel",
        other => panic!("{other}"),
    }
}

#[test]
fn rules_permit_what_they_do_at_the_server() {
    with_server("acl-rules", |server| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let mut kinds = BTreeSet::new();
        for round in 0..400 {
            let mut user = User::new("u");
            server.ask(&["ACL", "DELUSER", "u"]);
            server.ask(&["ACL", "SETUSER", "u"]);
            let mut rules = Vec::new();
            for _ in 0..1 + next(8) {
                let rule = RULES[next(RULES.len())];
                let theirs = server.ask(&["ACL", "SETUSER", "u", rule]);
                let ours = user.take(rule);
                let said = String::from_utf8_lossy(&theirs).into_owned();
                rules.push(rule);
                assert_eq!(theirs[0] != b'-', ours.is_ok(), "{round}: {rules:?}: {ours:?} {said}");
            }
            user.settle();
            for line in LINES {
                let words: Vec<&str> =
                    ["ACL", "DRYRUN", "u"].into_iter().chain(line.split(' ')).collect();
                let said = text(&server.ask(&words));
                let ours = match check(&user, line) {
                    Ok(()) => "permitted",
                    // The server says it when the command is carried out.
                    Err(Denied::Sort(_)) => "permitted",
                    Err(denied) => denied.kind(),
                };
                assert_eq!(ours, kind(&said), "{round}: {rules:?}: {line}: {said}");
                kinds.insert(ours);
            }
            // What is shown makes the same of nothing.
            let described = user.describe();
            let again = Users::parse(&described, Some("x")).unwrap();
            assert_eq!(again.get(b"u").unwrap().describe(), described);
            for line in LINES {
                let again = check(again.get(b"u").unwrap(), line);
                assert_eq!(again, check(&user, line), "{rules:?}, {described}: {line}");
            }
        }
        assert_eq!(kinds.len(), 4, "{kinds:?}");
    });
}

fn user(line: &str) -> User {
    let users = Users::parse(&format!("user u {line}"), Some("x")).unwrap();
    User::clone(users.get(b"u").unwrap())
}

#[test]
fn who_runs_scripts_needs_all_that_a_script_may_do() {
    for (rules, may) in [
        ("~* &* +@all", true),
        ("~* &* +@all -subscribe -multi -blpop", true), // which no script may call
        ("~* &* +@all -flushall", false),
        ("~* +@all", false),
        ("~a* &* +@all", false),
        ("~* &* +eval", false),
        ("+eval ~a (~* &* +@all)", true),
    ] {
        for line in ["eval x 0", "evalsha x 0", "fcall_ro f 0"] {
            let said = check(&user(rules), line);
            assert_eq!(said.is_ok(), may, "{rules}: {said:?}");
        }
    }
    assert_eq!(check(&user("~* &* +@all -eval"), "eval x 0"), Err(Denied::Command("eval".into())));
    assert_eq!(check(&user("~a &* +@all"), "eval x 0"), Err(Denied::Script));
    let reply = Denied::Script.reply();
    assert!(reply.starts_with("NOPERM scripts"), "{reply}");
}

#[test]
fn what_is_of_our_own_is_for_everybody() {
    for line in ["ek.token", "ek.relayed 127.0.0.1:1", "ek.session strong"] {
        assert_eq!(check(&user("-@all +get"), line), Ok(()), "{line}");
    }
}

#[test]
fn a_sort_reads_keys_that_it_does_not_name() {
    let (some, all) = (user("+sort ~a"), user("+sort ~a %R~*"));
    for (line, option) in [("sort a by w*", "BY"), ("sort a get b", "GET")] {
        assert_eq!(check(&some, line), Err(Denied::Sort(option)));
        assert_eq!(check(&all, line), Ok(()));
    }
    assert_eq!(check(&some, "sort a by nosort limit 0 1"), Ok(()));
    with_server("acl-sort", |server| {
        server.ask(&["ACL", "SETUSER", "u", "on", "nopass", "+sort", "+auth", "~a"]);
        server.ask(&["RPUSH", "a", "1"]);
        server.ask(&["AUTH", "u", "x"]);
        let said = server.ask(&["SORT", "a", "BY", "w*"]);
        let ours = format!("-{}\r\n", Denied::Sort("BY").reply());
        assert_eq!(String::from_utf8_lossy(&said), ours);
        for (line, denied) in [
            ("get a", Denied::Command("get".into())),
            ("config get x", Denied::Command("config|get".into())),
            ("sort b", Denied::Key("b".into())),
        ] {
            assert_eq!(check(&some, line), Err(denied.clone()));
            let said = server.ask(&line.split(' ').collect::<Vec<_>>());
            assert_eq!(String::from_utf8_lossy(&said), format!("-{}\r\n", denied.reply()));
        }
    });
}

#[test]
fn passwords_are_compared_by_their_hashes() {
    let hash = "#2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"; // of x
    for line in ["on >x >y", &format!("on {hash} >y"), "on nopass >x >y"] {
        let user = user(line);
        let said = [user.is(b"x"), user.is(b"y"), user.is(b""), user.is(b"xy")];
        assert_eq!(said, [true, true, false, false], "{line}");
        assert!(user.describe().contains(hash), "{}", user.describe());
    }
    assert!(!user("off >x").is(b"x"), "who is off is nobody");
    assert!(!user("on >x <x").is(b"x"));
    assert!(!user("on").is(b""), "without a password nobody is it");
    assert!(user("on nopass").is(b"anything"));
    let users = Users::parse("user default off\nuser u on >x +@all ~*", None).unwrap();
    assert!(users.nobody().is_none());
    assert!(users.who(b"u", b"x").is_some() && users.who(b"u", b"y").is_none());
    assert!(users.who(b"v", b"x").is_none() && users.who(b"default", b"").is_none());
    assert!(Users::alone(None).nobody().is_some() && Users::alone(Some("x")).nobody().is_none());
}

#[test]
fn all_that_is_wrong_with_a_file_is_said_with_its_line_and_without_passwords() {
    let file = "user a on >secret +get ~x\n\nnobody b\nuser\nuser a\nuser c +nope <secret\n\
                user d (+get\nuser e #12";
    let said: Vec<String> =
        Users::parse(file, Some("x")).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "line 3: it does not begin with 'user' (expected: user NAME rule…)",
            "line 4: 'user' without a name",
            "line 5: user 'a' stands there twice",
            "line 6: rule '+nope': there is no such command (expected one of Redis 7.0)",
            "line 7: rule '(+get': a parenthesis is not closed",
            "line 8: rule '#12': a hash has 64 digits of 0-9 and a-f",
        ]
    );
    let said = |file: &str, password| Users::parse(file, password).unwrap_err()[0].to_string();
    assert!(said("user d <secret", Some("x")).starts_with("line 1: rule '<': the user has no"));
    assert!(said("user a on", None).starts_with("it has no user 'default'"));
    assert!(said("user default on", Some("x")).starts_with("it has a user 'default'"));
}
