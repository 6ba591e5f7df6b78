//! Users with rules of their own: beside a Redis, when their file changes, and towards duplicates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_duplicates::config::RedisAccess;
use evenkeel_duplicates::config::access::{ClientAccess, Secret, StoreLogin};
use evenkeel_duplicates::{Service, Target};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Redis, Reply};

use super::world::World;
use super::{bulk, ok};

const USERS: &[&str] = &[
    "user default off resetpass",
    "user all on >everything ~* &* +@all",
    "user reader on >look ~app:* %R~shared:* +@read +@connection +multi +exec +discard",
    "user writer on >write ~app:* %W~shared:* &news:* +@all -@admin -@dangerous",
    "user half on >open -@all +multi +get ~a",
    "user two on >both -@all +get ~a:* (+set ~b:*)",
];

fn file_of(folder: &Folder, lines: &[&str]) -> PathBuf {
    let path = folder.file("users.acl");
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

fn world(name: &str, folder: &Folder) -> Option<World> {
    // Until all duplicates are live the test asks without a password.
    let path = file_of(folder, &["user default on nopass ~* &* +@all"]);
    let world = World::start(name, 2, |config| {
        config.access = ClientAccess { password: None, acl_file: Some(path) };
    })?;
    file_of(folder, USERS);
    assert_eq!(world.client().ask(&["ACL", "LOAD"]), ok());
    Some(world)
}

fn is_denied(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOPERM"))
}

/// What each says before anything, then what both servers must answer alike.
const SAID: &[(&str, &[&str])] = &[
    ("", &["GET app:1", "PING", "AUTH x", "AUTH nobody x", "AUTH reader wrong"]),
    (
        "reader look",
        &[
            "ACL WHOAMI",
            "GET app:1",
            "GET shared:1",
            "GET other",
            "MGET app:1 other",
            "SET app:1 x",
            "CONFIG GET port",
            "FLUSHALL",
            "SUBSCRIBE news:a",
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
            "MULTI",
            "GET app:1",
            "SET app:1 y",
            "EXEC",
            "MULTI",
            "GET app:1",
            "EXEC",
            "SORT app:list BY w*",
            "PING",
        ],
    ),
    (
        "writer write",
        &[
            "SET app:1 x",
            "GET app:1",
            "SET shared:1 x",
            "SET shared:1 x GET",
            "GET shared:1",
            "RENAME app:1 shared:2",
            "RENAME shared:2 app:1",
            "COPY app:1 shared:3",
            "KEYS *",
            "FLUSHALL",
            "CLIENT ID extra",
            "CONFIG SET timeout 1",
            "PUBLISH news:a x",
            "PUBLISH other x",
            "PSUBSCRIBE news:*",
        ],
    ),
    ("half open", &["MULTI", "GET a", "EXEC", "GET a", "MULTI", "GET b", "DISCARD", "GET a"]),
    ("two both", &["GET a:1", "SET b:1 x", "GET b:1", "SET a:1 x", "DEL a:1"]),
    ("all everything", &["GET app:1", "GET shared:1", "DBSIZE", "ACL DRYRUN reader GET app:1"]),
];

#[test]
fn users_may_do_what_they_may_at_a_redis() {
    let folder = Folder::new("users-beside");
    let Some(world) = world("users-beside", &folder) else { return };
    let plain = Redis::new(folder.file("plain"));
    let mut administrator = plain.client();
    for line in USERS.iter().rev() {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let words = [vec!["ACL", "SETUSER"], words].concat();
        assert_eq!(administrator.ask(&words), ok(), "{line}");
    }
    for (login, lines) in SAID {
        let (mut ours, mut theirs) = (world.client(), Client::connect(plain.address));
        if let Some((user, password)) = login.split_once(' ') {
            assert_eq!(theirs.ask(&["AUTH", user, password]), ok());
            assert_eq!(ours.ask(&["AUTH", user, password]), ok());
        }
        for line in *lines {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(ours.ask(&words), theirs.ask(&words), "{login}: {line}");
        }
    }
}

#[test]
fn scripts_need_everything_that_a_script_may_do() {
    let folder = Folder::new("users-scripts");
    let Some(world) = world("users-scripts", &folder) else { return };
    let (mut writer, mut all) = (world.client(), world.client());
    assert_eq!(writer.ask(&["AUTH", "writer", "write"]), ok());
    assert_eq!(all.ask(&["AUTH", "all", "everything"]), ok());
    let script = ["EVAL", "return redis.call('SET', 'other', 'x')", "0"];
    assert!(is_denied(&writer.ask(&script)));
    assert_eq!(all.ask(&["EXISTS", "other"]), Reply::Integer(0));
    assert_eq!(all.ask(&script), ok());
    let Reply::Array(log) = all.ask(&["ACL", "LOG"]) else { panic!("a list") };
    assert_eq!(log.len(), 1, "{log:?}");
}

#[test]
fn a_file_that_changed_is_loaded_and_its_users_leave() {
    let folder = Folder::new("users-load");
    let Some(world) = world("users-load", &folder) else { return };
    let (mut all, mut reader, mut writer) = (world.client(), world.client(), world.client());
    assert_eq!(all.ask(&["HELLO", "2", "AUTH", "all", "everything"]).text(), None);
    assert_eq!(reader.ask(&["AUTH", "reader", "look"]), ok());
    assert_eq!(writer.ask(&["AUTH", "writer", "write"]), ok());
    // Nothing changes by a file that is wrong.
    file_of(
        &folder,
        &["user default off", "user all on >everything ~* &* +@all", "user reader +nope"],
    );
    let Reply::Error(said) = all.ask(&["ACL", "LOAD"]) else { panic!("it is wrong") };
    assert!(said.contains("line 3: rule '+nope'") && said.contains("stay as they are"), "{said}");
    assert_eq!(reader.ask(&["PING"]), Reply::Simple("PONG".to_owned()));
    // The writer is as it was, the reader is another one, and the last one is gone.
    let mut lines = USERS.to_vec();
    lines[2] = "user reader on >look ~* +@read";
    lines.pop();
    file_of(&folder, &lines);
    assert_eq!(all.ask(&["ACL", "LOAD"]), ok());
    assert!(reader.try_ask(&["PING"]).is_err(), "its connection has ended");
    assert_eq!(writer.ask(&["ACL", "WHOAMI"]), bulk("writer"));
    let mut reader = world.client();
    assert_eq!(reader.ask(&["AUTH", "reader", "look"]), ok());
    assert_eq!(reader.ask(&["GET", "other"]), Reply::Null);
    let users = all.ask(&["ACL", "USERS"]);
    assert_eq!(
        users,
        Reply::Array(["all", "default", "half", "reader", "writer"].map(bulk).to_vec())
    );
    let Reply::Error(said) = all.ask(&["ACL", "SETUSER", "x"]) else { panic!("it is refused") };
    assert!(said.contains("acl_file"), "{said}");
    assert_eq!(all.ask(&["CLIENT", "KILL", "USER", "writer"]), Reply::Integer(1));
    assert!(writer.try_ask(&["PING"]).is_err());
}

#[test]
fn duplicates_are_logged_in_to_as_a_user_with_a_password_of_a_file() {
    let folder = Folder::new("users-store");
    let password = folder.file("password");
    std::fs::write(&password, "to the store\n").unwrap();
    let access = Arc::new(RedisAccess {
        login: Some(StoreLogin { user: "service".to_owned(), password: Secret::File(password) }),
        ..RedisAccess::default()
    });
    let Some(world) = World::start("users-store", 2, |config| {
        for target in config.partitions.iter_mut().flatten() {
            let Target::Tcp { address, access: of } = target else { panic!("it is a Redis") };
            let mut client = Client::connect(address.to_string().parse().unwrap());
            let rules = "ACL SETUSER service on >to_the_store ~* &* +@all";
            let mut words: Vec<&str> = rules.split(' ').collect();
            words[4] = ">to the store";
            assert_eq!(client.ask(&words), ok());
            assert_eq!(client.ask(&["ACL", "SETUSER", "default", "off"]), ok());
            *of = Arc::clone(&access);
        }
    }) else {
        return;
    };
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "k", "1"]), ok());
    assert_eq!(client.ask(&["EVAL", "return redis.call('INCR', 'k')", "0"]), Reply::Integer(2));
}

#[test]
fn a_service_does_not_begin_with_a_file_that_is_wrong() {
    let folder = Folder::new("users-wrong");
    let mut config = super::config::config("users-wrong", Vec::new(), folder.path());
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let target = Target::Tcp { address: nobody.into(), access: Arc::default() };
    config.partitions = vec![vec![target]];
    for (lines, expected) in [
        (&["user default off", "user a foo"][..], "line 2: rule 'foo': syntax error"),
        (&["user a on >x"][..], "no user 'default'"),
    ] {
        config.access.acl_file = Some(file_of(&folder, lines));
        let error = Service::open(&config).expect_err("it is wrong").to_string();
        assert!(error.contains(expected) && error.contains("users.acl"), "{error}");
        assert!(error.starts_with("duplicates.users-wrong"), "{error}");
    }
}
