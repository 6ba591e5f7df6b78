//! Who is ahead of the log, told step by step.

use evenkeel_core::Instant;
use evenkeel_ordered::{Acknowledge, ConnectionKind, Dropped, Sequence};
use evenkeel_stores::resp::replication::Group;
use evenkeel_wal::LogError;

use super::super::types::ClientId;
use super::super::world::World;

const ORDERED: usize = ConnectionKind::Ordered as usize;

fn majority(servers: usize) -> World {
    World::start(servers, |config| config.members.acknowledge = Acknowledge::Majority)
}

fn answer(world: &World, server: usize, replies: &[&str]) {
    let mut inner = world.engine.borrow();
    let connection = inner.servers[server].connection;
    for reply in replies {
        let kind = ConnectionKind::Ordered;
        if let Err(why) = inner.answered(server, connection, kind, reply.as_bytes()) {
            return inner.drop_server(server, why.expect("the connection is the present one"));
        }
    }
}

/// Follows the stream that is wanted; whose it is.
fn follow(world: &World) -> usize {
    let mut inner = world.engine.borrow();
    let wanted = inner.take_wanted_streams();
    let &[(server, connection)] = &wanted[..] else { panic!("{wanted:?}") };
    inner.stream_opened(server, connection);
    server
}

/// What an attempt has done comes by the stream.
fn stream(world: &World, server: usize, mark: &str, effects: &[&[&str]]) {
    let mut commands = Vec::new();
    for effect in effects {
        let words: Vec<&[u8]> = effect.iter().map(|it| it.as_bytes()).collect();
        evenkeel_stores::resp::encode::command(&mut commands, &words);
    }
    let mut inner = world.engine.borrow();
    let connection = inner.servers[server].connection;
    let (mark, count) = (mark.as_bytes().to_vec(), effects.len() as u32);
    inner.effects_came(server, connection, Group { mark, commands, count, ..Group::default() });
}

const QUEUED: [&str; 3] = ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n"];
const EVAL: [&str; 4] = ["EVAL", "script", "1", "k"];
const DONE: &str = "*2\r\n:5\r\n+OK\r\n";

/// A script that was sent; its client and its executor.
fn begun(world: &mut World, attempt: u64) -> (ClientId, usize) {
    let id = world.client();
    assert!(world.tell(id, &EVAL));
    let executor = follow(world);
    let mark = format!("SET evenkeel:watermark ahead 1 {attempt}");
    let mut sent = pending(world, executor);
    if sent.first().is_some_and(|it| it.starts_with("SET evenkeel:watermark 1 ")) {
        sent.remove(0); // so its stream is known to be in database 0
        answer(world, executor, &["+OK\r\n"]);
    }
    assert_eq!(sent, ["MULTI", "EVAL script 1 k", &mark, "EXEC"]);
    (id, executor)
}

/// What the engine would send now.
fn pending(world: &mut World, server: usize) -> Vec<String> {
    world.fetch();
    let text = |words: Vec<Vec<u8>>| {
        let words: Vec<_> = words.iter().map(|it| String::from_utf8_lossy(it)).collect();
        words.join(" ")
    };
    world.sent[server][ORDERED].drain(..).map(text).collect()
}

fn is_held(world: &World, id: ClientId) -> bool {
    world.engine.borrow().client(id).unwrap().is_held()
}

fn last(world: &World) -> u64 {
    world.engine.borrow().history.last().sequence.0
}

#[test]
fn effects_are_logged_when_answer_and_effects_are_known_and_told_when_enough_have_them() {
    for answer_comes_first in [true, false] {
        let mut world = majority(3);
        let (id, executor) = begun(&mut world, 1);
        let others: Vec<usize> = (0..3).filter(|&it| it != executor).collect();
        let answer_it = |world: &World| {
            answer(world, executor, &QUEUED);
            answer(world, executor, &[DONE]);
        };
        let stream_it =
            |world: &World| stream(world, executor, "ahead 1 1", &[&["INCRBY", "k", "5"]]);
        stream(&world, executor, "ahead 1 7", &[&["INCRBY", "k", "7"]]); // of another attempt
        match answer_comes_first {
            true => answer_it(&world),
            false => stream_it(&world),
        }
        assert_eq!(last(&world), 0, "half of it is known");
        assert!(is_held(&world, id));
        match answer_comes_first {
            true => stream_it(&world),
            false => answer_it(&world),
        }
        assert_eq!(last(&world), 1);
        assert!(!is_held(&world, id));
        assert_eq!(world.heard(id), "", "a majority is two");
        assert!(!world.engine.borrow().log.is_dirty(), "it is in the log before it is sent");
        let call = world.engine.borrow().calls.iter().next().unwrap().1.copies;
        assert_eq!(call.owed(), others.iter().copied().collect());
        answer(&world, others[0], &QUEUED);
        answer(&world, others[0], &["*2\r\n:5\r\n+OK\r\n"]);
        assert_eq!(world.heard(id), ":5\r\n");
    }
}

#[test]
fn what_could_show_what_is_not_logged_waits_and_nothing_else_does() {
    let mut world = majority(3);
    let [writer, strong, reader, other] = [(); 4].map(|()| world.client());
    assert!(world.tell(strong, &["EK.SESSION", "strong"]));
    let (_, executor) = begun(&mut world, 1);
    assert!(!world.tell(writer, &["SET", "a", "1"]));
    assert!(!world.tell(strong, &["GET", "k"]));
    assert!(!world.tell(other, &EVAL));
    assert!(world.tell(reader, &["GET", "k"]), "it overtakes writes anyway");
    let holds = |world: &World, kind| world.engine.borrow().holds_answers(executor, kind);
    assert!(holds(&world, ConnectionKind::Free) && !holds(&world, ConnectionKind::Ordered));
    answer(&world, executor, &QUEUED);
    answer(&world, executor, &[DONE]);
    assert!(holds(&world, ConnectionKind::Ordered), "what stands behind it may show it");
    {
        let inner = world.engine.borrow();
        assert!(!inner.holds_answers((executor + 1) % 3, ConnectionKind::Free));
        assert!(inner.choose_executor(0, None).is_some() && inner.is_executor(executor));
    }
    stream(&world, executor, "ahead 1 1", &[]);
    assert!(!holds(&world, ConnectionKind::Free));
    for id in [writer, strong, other] {
        assert!(!is_held(&world, id));
    }
    assert!(world.tell(writer, &["SET", "a", "1"]));
    assert_eq!(last(&world), 2, "what has no effects has a place too");
}

/// Who returns with the watermark of an attempt is filled anew, so its attempt never was.
#[test]
fn another_does_what_was_lost_with_its_executor() {
    for is_answered in [false, true] {
        let mut world = majority(3);
        let (id, first) = begun(&mut world, 1);
        if is_answered {
            answer(&world, first, &QUEUED);
            answer(&world, first, &[DONE]);
        }
        world.lose(first, Dropped::Lost);
        assert_eq!((last(&world), world.heard(id).as_str()), (0, ""));
        let second = follow(&world);
        assert_ne!(first, second);
        assert_eq!(pending(&mut world, second).len(), 4);
        stream(&world, first, "ahead 1 1", &[&["SET", "k", "5"]]); // too late
        answer(&world, second, &QUEUED);
        answer(&world, second, &["*2\r\n:6\r\n+OK\r\n"]);
        stream(&world, second, "ahead 1 2", &[&["SET", "k", "6"]]);
        assert_eq!(last(&world), 1);
        let third = (0..3).find(|it| ![first, second].contains(it)).unwrap();
        answer(&world, third, &QUEUED);
        answer(&world, third, &["*2\r\n+OK\r\n+OK\r\n"]);
        assert_eq!(world.heard(id), ":6\r\n");
    }
}

#[test]
fn what_nobody_else_can_do_was_not_done() {
    let mut world = majority(3);
    let (id, first) = begun(&mut world, 1);
    let waiting = world.client();
    assert!(!world.tell(waiting, &["SET", "a", "1"]));
    world.lose((first + 1) % 3, Dropped::Lost);
    world.lose(first, Dropped::Lost);
    assert!(world.heard(id).starts_with("-UNAVAILABLE"), "one is no majority");
    assert!(!is_held(&world, id) && !is_held(&world, waiting));
    assert_eq!(last(&world), 0);
}

#[test]
fn too_few_are_left_when_it_is_known_so_it_is_in_doubt() {
    let mut world = majority(3);
    let (id, executor) = begun(&mut world, 1);
    answer(&world, executor, &QUEUED);
    answer(&world, executor, &[DONE]);
    world.lose((executor + 1) % 3, Dropped::Lost);
    world.lose((executor + 2) % 3, Dropped::Lost);
    stream(&world, executor, "ahead 1 1", &[&["SET", "k", "5"]]);
    assert_eq!(last(&world), 1);
    assert!(world.heard(id).starts_with("-UNCERTAIN"));
}

#[test]
fn an_executor_that_did_what_must_not_be_is_dropped() {
    for effect in [&["SET", "evenkeel:epoch", "9"][..], &["FLUSHALL"], &["SELECT", "300"], &["X"]] {
        let mut world = majority(3);
        let (id, executor) = begun(&mut world, 1);
        answer(&world, executor, &QUEUED);
        answer(&world, executor, &[DONE]);
        stream(&world, executor, "ahead 1 1", &[effect]);
        let heard = world.heard(id);
        assert!(heard.starts_with("-ERR") && heard.contains("undone"), "{heard}");
        assert_eq!(last(&world), 0);
        let inner = world.engine.borrow();
        assert!(!inner.members.live(0).contains(executor) && inner.members.live(0).len() == 2);
    }
}

#[test]
fn what_cannot_be_queued_was_not_done_and_changes_nobody() {
    let mut world = majority(3);
    let (id, executor) = begun(&mut world, 1);
    answer(&world, executor, &["+OK\r\n", "-ERR no\r\n", "+QUEUED\r\n", "-EXECABORT no\r\n"]);
    assert_eq!(world.heard(id), "-ERR no\r\n");
    assert!(!is_held(&world, id));
    assert_eq!((last(&world), world.engine.borrow().members.live(0).len()), (0, 3));
}

#[test]
fn the_log_fails_while_a_duplicate_is_ahead() {
    let mut world = majority(3);
    let (id, executor) = begun(&mut world, 1);
    answer(&world, executor, &QUEUED);
    answer(&world, executor, &[DONE]);
    world.engine.borrow().fail(&LogError::TooLong { bytes: 2, bytes_max: 1 });
    let heard = world.heard(id);
    assert!(heard.starts_with("-UNAVAILABLE the log") && heard.contains("not done"), "{heard}");
    assert!(!is_held(&world, id));
}

#[test]
fn a_client_that_leaves_in_the_middle_changes_nothing() {
    let mut world = majority(3);
    let (id, executor) = begun(&mut world, 1);
    let other = world.client();
    assert!(!world.tell(other, &["SET", "a", "1"]));
    world.engine.borrow().dismiss(id);
    answer(&world, executor, &QUEUED);
    answer(&world, executor, &[DONE]);
    stream(&world, executor, "ahead 1 1", &[&["SET", "k", "5"]]);
    assert_eq!(last(&world), 1);
    assert!(!is_held(&world, other));
}

#[test]
fn a_stream_that_cannot_be_had_or_breaks() {
    let mut world = majority(3);
    let id = world.client();
    assert!(world.tell(id, &EVAL));
    let wanted = world.engine.borrow().take_wanted_streams();
    let (server, connection) = wanted[0];
    world.engine.borrow().stream_failed((server, connection), "NOPERM", true);
    let heard = world.heard(id);
    assert!(heard.contains("NOPERM") && heard.contains("+psync"), "{heard}");
    assert_eq!(world.engine.borrow().members.live(0).len(), 3, "it is as good as before");
    let (id, executor) = begun(&mut world, 1);
    let connection = world.engine.borrow().servers[executor].connection;
    world.engine.borrow().stream_failed((executor, connection), "it broke", false);
    assert!(!world.engine.borrow().members.live(0).contains(executor), "it did who knows what");
    assert_ne!(follow(&world), executor);
    assert_eq!(world.heard(id), "");
}

#[test]
fn what_takes_too_long_is_given_up() {
    let mut world = majority(3);
    let (id, executor) = begun(&mut world, 1);
    let command_max = world.engine.borrow().config.members.command_max;
    world.pass(command_max);
    world.engine.borrow().look_at_effects();
    let heard = world.heard(id);
    assert!(heard.contains("took longer than 60 s"), "{heard}");
    assert!(!world.engine.borrow().members.live(0).contains(executor));
    let id = world.client();
    assert!(world.tell(id, &EVAL));
    for _ in 0..super::ATTEMPTS_MAX {
        assert_eq!(world.heard(id), "");
        world.pass(super::ATTACH_MAX);
        world.engine.borrow().look_at_effects();
    }
    assert!(world.heard(id).contains("it did not begin"));
}

/// It could not be filled again, should it end now, but from a log that has everything.
#[test]
fn the_only_live_duplicate_does_nothing_that_is_not_logged_before() {
    let mut world = World::start(2, |_| {});
    let id = world.client();
    assert!(world.tell(id, &["SET", "a", "1"]));
    world.lose(0, Dropped::Lost);
    assert!(world.tell(id, &EVAL));
    assert!(is_held(&world, id), "it goes on");
    world.lose(1, Dropped::Lost);
    world.reach(1);
    world.engine.borrow().history.forget_before(Sequence(2));
    let id = world.client();
    assert!(world.tell(id, &EVAL));
    assert!(world.heard(id).contains("one duplicate is live"));
}

#[test]
fn nothing_is_begun_where_a_shard_moves() {
    let mut world = majority(3);
    let id = world.client();
    world.engine.borrow().begin_move(0, 1);
    assert!(world.tell(id, &EVAL));
    assert!(world.heard(id).starts_with("-TRYAGAIN a shard moves"));
    world.engine.borrow().moving = None;
    let source = world.engine.borrow().begin_pass(0).unwrap();
    assert!(world.tell(id, &EVAL));
    assert_ne!(follow(&world), source, "it is copied from");
}

/// Two partitions of two; `a` and `b` are not in the same.
fn halves() -> World {
    World::start(4, |config| {
        let targets = config.partitions.remove(0);
        config.partitions = targets.chunks(2).map(<[_]>::to_vec).collect();
    })
}

/// The script of the first attempt is done.
fn finish(world: &World, executor: usize, effects: &[&[&str]]) {
    answer(world, executor, &QUEUED);
    answer(world, executor, &[DONE]);
    stream(world, executor, "ahead 1 1", effects);
}

#[test]
fn what_concerns_all_partitions_waits_until_nobody_is_ahead_in_any() {
    let mut world = halves();
    let [script, parts, flush, exec, other, reader] = [(); 6].map(|()| world.client());
    assert!(world.tell(script, &["EVAL", "script", "1", "a"]));
    let executor = follow(&world);
    for words in [&["MULTI"][..], &["FLUSHALL"], &["SET", "b", "1"]] {
        assert!(world.tell(exec, words));
    }
    assert!(!world.tell(parts, &["MSET", "a", "1", "b", "2"]));
    assert!(!world.tell(flush, &["FLUSHALL"]));
    assert!(!world.tell(exec, &["EXEC"]));
    assert!(world.tell(reader, &["MGET", "a", "b"]), "it overtakes writes anyway");
    assert!(world.tell(other, &["SET", "b", "1"]), "nobody is ahead there");
    let script_of_b = ["EVAL", "script", "1", "b"];
    assert!(!world.tell(other, &script_of_b), "FLUSHALL would wait for one or the other for ever");
    assert_eq!(last(&world), 1);
    finish(&world, executor, &[&["SET", "a", "5"]]);
    assert_eq!(last(&world), 2);
    for id in [parts, flush, exec, other] {
        assert!(!is_held(&world, id));
    }
    assert!(world.tell(flush, &["FLUSHALL"]));
    assert_eq!(last(&world), 4, "one for each partition");
    assert!(world.tell(other, &script_of_b));
    assert_ne!(follow(&world), executor);
}

#[test]
fn what_a_script_does_serves_who_waits_and_breaks_what_is_watched() {
    let mut world = World::start(2, |_| {});
    let (waiting, watching) = (world.client(), world.client());
    let pop = ["MULTI", "BLPOP l 0", "SET evenkeel:watermark 1 1", "EXEC"];
    assert!(world.tell(waiting, &["BLPOP", "l", "0"]));
    for server in 0..2 {
        assert_eq!(pending(&mut world, server), pop);
        answer(&world, server, &QUEUED);
        answer(&world, server, &["*2\r\n_\r\n+OK\r\n"]);
    }
    assert!(world.tell(watching, &["WATCH", "k"]));
    let asked = (0..2).find(|&it| pending(&mut world, it) == ["PEXPIRETIME k"]).unwrap();
    answer(&world, asked, &[":-1\r\n"]);
    assert_eq!(world.heard(watching), "+OK\r\n");
    let (_, executor) = begun(&mut world, 1);
    finish(&world, executor, &[&["RPUSH", "l", "x"], &["INCRBY", "k", "5"]]);
    let pop = ["MULTI", "BLPOP l 0", "SET evenkeel:watermark 1 3", "EXEC"];
    // It has the rest; the number of that comes before the pop's, so that its stream tells both.
    let marked = [&["SET evenkeel:watermark 1 2"], &pop[..]].concat();
    assert_eq!(pending(&mut world, executor), marked);
    let done = ["MULTI", "RPUSH l x", "INCRBY k 5", "SET evenkeel:watermark 1 2", "EXEC"];
    assert_eq!(pending(&mut world, 1 - executor), [&done[..], &pop].concat());
    answer(&world, executor, &["+OK\r\n"]);
    answer(&world, executor, &QUEUED);
    answer(&world, executor, &["*2\r\n*2\r\n$1\r\nl\r\n$1\r\nx\r\n+OK\r\n"]);
    assert_eq!(world.heard(waiting), "*2\r\n$1\r\nl\r\n$1\r\nx\r\n");
    for words in [&["MULTI"][..], &["SET", "k", "1"], &["EXEC"]] {
        assert!(world.tell(watching, words));
    }
    assert_eq!(world.heard(watching), "+OK\r\n+QUEUED\r\n*-1\r\n");
    assert_eq!(last(&world), 3);
}

/// Its partition is the only one here, so only its slot tells that.
#[test]
fn what_a_script_writes_of_another_group_is_removed_and_said() {
    let first = evenkeel_leadership::Group { number: 0, of: 2 };
    let mut world = World::start(2, |config| config.group = first);
    let (id, executor) = begun(&mut world, 1);
    // Slots 7,629 and 15,495, of 8,192 that the group has.
    finish(&world, executor, &[&["SET", "k", "1"], &["SET", "a", "5"]]);
    for server in 0..2 {
        let asked = pending(&mut world, server);
        let removes = |key: &str| asked.iter().any(|it| *it == format!("DEL {key}"));
        assert!(removes("a") && !removes("k"), "{asked:?}");
    }
    let other = 1 - executor;
    answer(&world, other, &QUEUED);
    answer(&world, other, &["+QUEUED\r\n", "*3\r\n+OK\r\n+OK\r\n+OK\r\n"]);
    let said = world.heard(id);
    assert!(said.starts_with("-ERR undeclared key"), "{said}");
    assert_eq!(last(&world), 2, "the script, and what removes the key");
}

/// A move fills a list while a script runs: who waits for that is tried behind the script.
#[test]
fn who_is_to_be_tried_again_waits_while_somebody_is_ahead() {
    let mut world = World::start(2, |_| {});
    let (waiting, moving) = (world.client(), world.client());
    assert!(world.tell(waiting, &["BLPOP", "{k}d", "0"]));
    for server in 0..2 {
        assert_eq!(pending(&mut world, server).len(), 4);
        answer(&world, server, &QUEUED);
        answer(&world, server, &["*2\r\n_\r\n+OK\r\n"]);
    }
    assert!(world.tell(moving, &["BLMOVE", "{k}s", "{k}d", "LEFT", "RIGHT", "0"]));
    assert_eq!([pending(&mut world, 0).len(), pending(&mut world, 1).len()], [4, 4]);
    let script = world.client();
    assert!(world.tell(script, &EVAL));
    let executor = follow(&world);
    let sent = pending(&mut world, executor);
    assert_eq!(sent[..2], ["SET evenkeel:watermark 1 2", "MULTI"]);
    for server in 0..2 {
        answer(&world, server, &QUEUED);
        answer(&world, server, &["*2\r\n$1\r\nx\r\n+OK\r\n"]);
    }
    answer(&world, executor, &["+OK\r\n"]);
    assert_eq!(world.heard(moving), "$1\r\nx\r\n");
    world.engine.borrow().flush();
    assert_eq!(last(&world), 2, "nothing gets a place now");
    finish(&world, executor, &[]);
    world.engine.borrow().flush();
    assert_eq!(last(&world), 4);
    assert!(pending(&mut world, executor).contains(&"BLPOP {k}d 0".to_owned()));
}

/// Redis Cluster has database 0 alone, and others have as many as every duplicate.
#[test]
fn a_script_stays_in_the_databases_that_its_client_has() {
    for (is_of_cluster, chosen, is_done) in
        [(false, "3", true), (false, "16", false), (true, "3", false), (true, "0", true)]
    {
        let mut world = World::start(2, |_| {});
        let (id, executor) = begun(&mut world, 1);
        world.engine.borrow().client(id).unwrap().is_of_cluster = is_of_cluster;
        answer(&world, executor, &QUEUED);
        answer(&world, executor, &[DONE]);
        let back: &[&str] = &["SELECT", "0"];
        let effects = [&["SELECT", chosen][..], &["INCRBY", "k", "5"], back];
        stream(&world, executor, "ahead 1 1", &effects);
        assert_eq!(last(&world), u64::from(is_done));
        let other = 1 - executor;
        let written = ["MULTI".to_owned(), format!("SELECT {chosen}")];
        assert_eq!(pending(&mut world, other).starts_with(&written), is_done);
        let undone = "-ERR a script has chosen a database that is not served, and was undone\r\n";
        assert_eq!(world.heard(id) == undone, !is_done, "{chosen}");
    }
}

#[test]
fn exec_with_a_script_does_nothing_if_a_key_elsewhere_is_written_before_it_is_logged() {
    for is_written in [false, true] {
        let mut world = halves();
        let (id, other) = (world.client(), world.client());
        assert!(world.tell(id, &["WATCH", "b"]));
        let asked = (2..4).chain(0..2).find(|&it| !pending(&mut world, it).is_empty()).unwrap();
        answer(&world, asked, &[":-1\r\n"]);
        for words in [&["MULTI"][..], &["PING"], &["EVAL", "script", "1", "a"], &["EXEC"]] {
            assert!(world.tell(id, words));
        }
        let executor = follow(&world);
        assert_ne!(executor / 2, asked / 2, "another partition");
        if is_written {
            assert!(world.tell(other, &["SET", "b", "1"]));
        }
        let told = world.heard(id);
        assert_eq!(told, "+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n");
        finish(&world, executor, &[&["SET", "a", "5"]]);
        let expected = if is_written { "*-1\r\n" } else { "*2\r\n+PONG\r\n:5\r\n" };
        assert_eq!(world.heard(id), expected);
        assert!(!is_held(&world, id));
        let inner = world.engine.borrow();
        assert!(!inner.watches.is_watched(), "nobody watches any more");
        assert_eq!(inner.history.last().sequence.0, 1, "the one or the other");
        let live = inner.members.live(executor / 2);
        assert_eq!(live.contains(executor), !is_written, "it did what is not to be");
    }
}

/// Its place comes when its question is answered, and that may be within a script.
#[test]
fn exec_that_was_held_by_a_question_waits_for_the_script_as_well() {
    let mut world = World::start(2, |_| {});
    let id = world.client();
    for words in [&["MULTI"][..], &["INFO"], &["SET", "k", "1"], &["EXEC"]] {
        assert!(world.tell(id, words));
    }
    let is_asked = |server: &usize| !world.asked(*server, ConnectionKind::Free).is_empty();
    let asked = (0..2).find(is_asked).unwrap();
    let (_, executor) = begun(&mut world, 1);
    world.say(asked, ConnectionKind::Free, "$1\r\nx\r\n");
    world.engine.borrow().flush();
    assert_eq!(last(&world), 0);
    finish(&world, executor, &[&["SET", "k", "5"]]);
    world.engine.borrow().flush();
    assert_eq!(last(&world), 2);
    assert!(pending(&mut world, executor).contains(&"SET k 1".to_owned()));
}

#[test]
fn scripts_and_flushall_are_not_in_one_transaction() {
    let mut world = World::start(2, |_| {});
    for words in [[&["FLUSHALL"][..], &EVAL], [&EVAL, &["FLUSHDB"]]] {
        let id = world.client();
        assert!(world.tell(id, &["MULTI"]) && world.tell(id, words[0]));
        assert_eq!(world.heard(id), "+OK\r\n+QUEUED\r\n");
        assert!(world.tell(id, words[1]) && world.tell(id, &["EXEC"]));
        let heard = world.heard(id);
        assert!(heard.starts_with("-ERR FLUSHALL") && heard.contains("-EXECABORT"), "{heard}");
    }
    assert_eq!(last(&world), 0);
}

/// Without the look at the lease before effects are logged, the client is told 5. A library takes
/// an error for what the script came to (BullMQ: the job has failed), and tries again where a
/// connection ends; one of Redis Cluster tries again at an error.
#[test]
fn a_lease_that_ends_within_a_script_leaves_nothing_of_it() {
    for is_of_cluster in [false, true] {
        lease_ends_within_a_script(is_of_cluster);
    }
}

fn lease_ends_within_a_script(is_of_cluster: bool) {
    let mut world = majority(3);
    world.engine.borrow().strong.lease_until = Some(Instant::from_millis(1_000));
    let (id, executor) = begun(&mut world, 1);
    world.engine.borrow().client(id).unwrap().is_of_cluster = is_of_cluster;
    answer(&world, executor, &QUEUED);
    answer(&world, executor, &[DONE]);
    world.at(1_000);
    stream(&world, executor, "ahead 1 1", &[&["INCRBY", "k", "5"]]);
    assert_eq!(world.engine.borrow().client(id).is_some(), is_of_cluster, "its connection ends");
    if is_of_cluster {
        let told = world.heard(id);
        assert!(told.starts_with("-CLUSTERDOWN") && told.contains("it was not done"), "{told}");
        assert!(!is_held(&world, id));
    }
    assert_eq!(last(&world), 0, "nothing is logged");
    let inner = world.engine.borrow();
    assert!(!inner.members.live(0).contains(executor), "what it has done is undone");
}

/// Without the note of which keys its effects are of, the reader is told what may be lost.
#[test]
fn a_strong_read_of_what_a_script_did_waits_until_a_majority_has_it() {
    let mut world = majority(3);
    world.engine.borrow().strong.lease_until = Some(Instant::from_millis(60_000));
    let reader = world.client();
    assert!(world.tell(reader, &["EK.SESSION", "strong"]));
    assert_eq!(world.heard(reader), "+OK\r\n");
    let (_, executor) = begun(&mut world, 1);
    answer(&world, executor, &QUEUED);
    answer(&world, executor, &[DONE]);
    stream(&world, executor, "ahead 1 1", &[&["INCRBY", "k", "5"]]);
    assert!(world.tell(reader, &["GET", "k"]));
    let asked: Vec<usize> = (0..3).filter(|&server| world.waiting(server)[1] > 0).collect();
    let [one] = asked[..] else { panic!("{asked:?}") };
    {
        let mut inner = world.engine.borrow();
        let connection = inner.servers[one].connection;
        inner.answered(one, connection, ConnectionKind::Free, b"$1\r\n5\r\n").unwrap();
    }
    assert_eq!(world.heard(reader), "", "the executor alone has it");
    let other = (0..3).find(|&it| it != executor).unwrap();
    answer(&world, other, &QUEUED);
    answer(&world, other, &["*2\r\n:5\r\n+OK\r\n"]);
    assert_eq!(world.heard(reader), "$1\r\n5\r\n");
}

#[test]
fn a_script_that_could_hide_writes_from_the_stream_is_refused() {
    let mut world = majority(3);
    for command in ["EVAL", "EVAL_RO"] {
        let id = world.client();
        let text = "redis.set_repl(redis.REPL_NONE) return redis.call('INCR', KEYS[1])";
        assert!(world.tell(id, &[command, text, "1", "k"]));
        assert!(world.heard(id).starts_with("-ERR redis.set_repl"), "{command}");
    }
    assert_eq!(last(&world), 0);
}

#[test]
fn others_go_on_until_a_duplicate_is_ahead() {
    let mut world = majority(3);
    let [script, writer, strong, other] = [(); 4].map(|()| world.client());
    assert!(world.tell(strong, &["EK.SESSION", "strong"]));
    assert!(world.tell(script, &EVAL));
    assert!(world.tell(writer, &["SET", "a", "1"]), "its stream may take 20 s to begin");
    assert!(world.tell(strong, &["GET", "a"]));
    assert!(!world.tell(other, &EVAL), "one after the other");
    assert_eq!(last(&world), 1);
    let executor = follow(&world);
    let sent = pending(&mut world, executor);
    let begins = sent.iter().position(|it| it == "EVAL script 1 k");
    assert!(begins > sent.iter().position(|it| it == "SET a 1"), "{sent:?}");
    assert!(!world.tell(writer, &["SET", "a", "2"]), "now it waits");
}

#[test]
fn who_is_alone_when_its_stream_begins_does_nothing() {
    let mut world = majority(3);
    let id = world.client();
    assert!(world.tell(id, &EVAL));
    let (server, connection) = world.engine.borrow().take_wanted_streams()[0];
    let writer = world.client();
    assert!(world.tell(writer, &["SET", "a", "1"]));
    world.engine.borrow().history.forget_before(Sequence(9)); // the log alone fills nobody
    (0..3).filter(|&it| it != server).for_each(|it| world.lose(it, Dropped::Lost));
    world.engine.borrow().stream_opened(server, connection);
    let heard = world.heard(id);
    assert!(heard.starts_with("-UNAVAILABLE one duplicate is live"), "{heard}");
    assert!(!pending(&mut world, server).contains(&"EVAL script 1 k".to_owned()));
}

/// Three duplicates, a script under way, and a client whose FLUSHALL waits for it.
fn flushing() -> (World, [ClientId; 2], usize) {
    let mut world = majority(3);
    let (script, executor) = begun(&mut world, 1);
    let flush = world.client();
    assert!(!world.tell(flush, &["FLUSHALL"]));
    (world, [script, flush], executor)
}

#[test]
fn flushall_comes_before_scripts_that_come_behind_it() {
    let (mut world, [script, flush], executor) = flushing();
    finish(&world, executor, &[]);
    assert!(!world.tell(script, &EVAL), "its client sends one after the other");
    assert!(is_held(&world, script) && !is_held(&world, flush));
    assert!(world.tell(flush, &["FLUSHALL"]));
    assert!(!is_held(&world, script));
    assert!(world.tell(script, &EVAL));
}

#[test]
fn a_flushall_that_does_not_come_keeps_scripts_out_for_a_second() {
    let (mut world, [script, flush], executor) = flushing();
    finish(&world, executor, &[]);
    assert!(!world.tell(script, &EVAL));
    world.engine.borrow().dismiss(flush);
    assert!(!is_held(&world, script), "nobody waits any more");
    let (mut world, [script, flush], executor) = flushing();
    world.pass(super::TAKE_MAX);
    world.engine.borrow().look_at_effects();
    assert!(!world.tell(world.client(), &EVAL), "it cannot be taken yet, so its time is not over");
    finish(&world, executor, &[]);
    assert!(!world.tell(script, &EVAL));
    world.engine.borrow().look_at_effects();
    assert!(is_held(&world, script));
    world.pass(super::TAKE_MAX);
    world.engine.borrow().look_at_effects();
    assert!(!is_held(&world, script), "its client is not asked for it: it may not read");
    assert!(world.tell(script, &EVAL));
    assert!(!world.tell(flush, &["FLUSHALL"]), "then it waits again");
}

#[test]
fn reads_are_not_sent_to_who_is_ahead_where_another_can_answer() {
    let mut world = majority(3);
    let (_, executor) = begun(&mut world, 1);
    for n in 0..30 {
        world.at(n);
        let reader = world.client();
        assert!(world.tell(reader, &["GET", "k"]));
        assert_eq!(world.waiting(executor)[1], 0, "its answers are held");
        (0..3).for_each(|server| while world.serve(server, ConnectionKind::Free) {});
        world.engine.borrow().dismiss(reader);
    }
    (0..3).filter(|&it| it != executor).for_each(|it| world.lose(it, Dropped::Lost));
    let reader = world.client();
    assert!(world.tell(reader, &["GET", "k"]));
    assert_eq!(world.waiting(executor)[1], 1, "it is the last one");
}

/// A message tells of what nobody has, or not for certain, never.
#[test]
fn what_a_script_publishes_is_told_when_it_is_acknowledged_and_not_where_it_is_in_doubt() {
    for is_in_doubt in [false, true] {
        let mut world = majority(3);
        let listener = world.client();
        assert!(world.tell(listener, &["SUBSCRIBE", "c"]));
        world.heard(listener);
        let (id, executor) = begun(&mut world, 1);
        let others: Vec<usize> = (0..3).filter(|&it| it != executor).collect();
        answer(&world, executor, &QUEUED);
        answer(&world, executor, &[DONE]);
        {
            let mut inner = world.engine.borrow();
            let connection = inner.servers[executor].connection;
            let (mut commands, mut published) = (Vec::new(), Vec::new());
            evenkeel_stores::resp::encode::command(&mut commands, &[b"SET", b"k", b"5"]);
            evenkeel_stores::resp::encode::command(&mut published, &[b"PUBLISH", b"c", b"x"]);
            let (mark, count) = (b"ahead 1 1".to_vec(), 1);
            let group = Group { mark, commands, count, published, ..Group::default() };
            inner.effects_came(executor, connection, group);
        }
        assert_eq!(last(&world), 1);
        assert_eq!(world.heard(listener), "", "a majority is two");
        if is_in_doubt {
            others.iter().for_each(|&server| world.lose(server, Dropped::Lost));
            assert!(world.heard(id).starts_with("-UNCERTAIN"));
            assert_eq!(world.heard(listener), "");
        } else {
            answer(&world, others[0], &QUEUED);
            answer(&world, others[0], &["*2\r\n+OK\r\n+OK\r\n"]);
            assert_eq!(world.heard(id), ":5\r\n");
            assert_eq!(world.heard(listener), "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
        }
        assert!(world.engine.borrow().published.is_empty());
    }
}

#[test]
fn a_script_that_says_it_writes_nothing_is_read_from_one_duplicate() {
    let mut world = majority(3);
    let id = world.client();
    let text = "#!lua flags=no-writes\nreturn 1";
    assert!(world.tell(id, &["EVAL", text, "1", "k"]));
    let name = "77f21361171213377cb083e2ffc2ae24ffdff8fb";
    assert!(world.tell(id, &["EVALSHA", name, "1", "k"]));
    assert!(world.engine.borrow().take_wanted_streams().is_empty(), "nobody executes anything");
    let asked: Vec<String> = (0..3).flat_map(|it| world.asked(it, ConnectionKind::Free)).collect();
    let read = format!("eval_ro {text} 1 k");
    assert_eq!(asked, [read.clone(), read]);
}

#[test]
fn only_exec_ends_what_its_client_watches() {
    let mut world = majority(3);
    let (watching, other) = (world.client(), world.client());
    assert!(world.tell(watching, &["WATCH", "w"]));
    let asked = (0..3).find(|&it| pending(&mut world, it) == ["PEXPIRETIME w"]).unwrap();
    answer(&world, asked, &[":-1\r\n"]);
    assert_eq!(world.heard(watching), "+OK\r\n");
    assert!(world.tell(other, &["SET", "w", "1"]));
    assert!(world.tell(watching, &EVAL), "its key has changed, and it is no EXEC");
    let executor = follow(&world);
    assert!(pending(&mut world, executor).contains(&"EVAL script 1 k".to_owned()));
    world.engine.borrow().drop_server(executor, Dropped::Lost);
    let next = follow(&world);
    world.engine.borrow().drop_server(next, Dropped::Lost);
    assert!(world.heard(watching).starts_with("-UNAVAILABLE"), "it was not done");
    for words in [&["MULTI"][..], &["SET", "z", "1"], &["EXEC"]] {
        world.tell(watching, words);
    }
    let heard = world.heard(watching);
    assert!(heard.ends_with("*-1\r\n"), "it watches still: {heard}");
}

#[test]
fn a_transaction_that_publishes_waits_for_what_its_client_sent_before() {
    let mut world = majority(3);
    let id = world.client();
    assert!(world.tell(id, &["SET", "a", "1"]));
    for words in [&["MULTI"][..], &["PUBLISH", "c", "x"]] {
        assert!(world.tell(id, words));
    }
    assert!(!world.tell(id, &["EXEC"]), "its write is not acknowledged");
    world.serve_all();
    assert!(world.tell(id, &["EXEC"]));
    let heard = world.heard(id);
    assert!(heard.ends_with("*1\r\n:0\r\n"), "{heard}");
}
