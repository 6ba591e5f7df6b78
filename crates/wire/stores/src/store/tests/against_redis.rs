//! Random commands to the embedded store and to a real Redis: equal replies.

use std::time::Duration;

use evenkeel_core::Rng;
use evenkeel_testkit::redis;
use tokio::net::UnixStream;

use super::super::embedded::{Durability, Embedded, EmbeddedSettings};
use super::Place;
use super::wire::{Client, Reply};

/// Commands: `k` a key, `f` a field or member, `v` a value, `n` a number, `p` a time from now, `t`
/// one far away; `?` before a word = sometimes, `+` = once or more often.
const FORMS: [&str; 62] = [
    "GET k",
    "SET k v",
    "SET k v ?NX ?XX ?GET ?KEEPTTL",
    "SET k v ?PXAT t ?GET",
    "SET k v EXAT n",
    "SET k v PX p",
    "SETNX k v",
    "SETEX k 1000000 v",
    "PSETEX k p v",
    "GETSET k v",
    "GETDEL k",
    "MGET +k",
    "MSET k v ?k v",
    "MSETNX k v k v",
    "APPEND k v",
    "STRLEN k",
    "GETRANGE k n n",
    "SETRANGE k 3 v",
    "SUBSTR k n n",
    "INCR k",
    "DECR k",
    "INCRBY k n",
    "DECRBY k n",
    "GETEX k PXAT t",
    "GETEX k ?PERSIST",
    "DEL +k",
    "UNLINK +k",
    "EXISTS +k",
    "TOUCH +k",
    "TYPE k",
    "PEXPIREAT k t ?NX ?XX ?GT ?LT",
    "EXPIREAT k n",
    "EXPIRE k -5",
    "PEXPIRE k p ?QX",
    "PERSIST k",
    "PEXPIRETIME k",
    "EXPIRETIME k",
    "RESTORE k 0 v ?REPLACE",
    "RESTORE k n v ABSTTL",
    "DUMP nothing",
    "TTL nothing",
    "HSET k f v ?f v",
    "HSET k f",
    "HMSET k f v",
    "HSETNX k f v",
    "HGET k f",
    "HDEL k +f",
    "HGETALL k",
    "HKEYS k",
    "HVALS k",
    "HMGET k +f",
    "HEXISTS k f",
    "HLEN k",
    "HSTRLEN k f",
    "HINCRBY k f n",
    "SADD k +f",
    "SREM k +f",
    "SMEMBERS k",
    "SISMEMBER k f",
    "SMISMEMBER k +f",
    "SCARD k",
    "GET",
];

/// None of them ends while the test runs.
const PERIODS: [&str; 6] = ["0", "-1", "01", "", "1000000000", "9223372036854775807"];
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "2",
    "10",
    "-3",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "01",
    "+1",
    " 1",
    "1.5",
    "",
];

fn word(rng: &mut Rng, kind: &str) -> Vec<u8> {
    let text = match kind {
        "k" => format!("key{}", rng.below(5)),
        "f" => format!("field{}", rng.below(6)),
        "t" => format!("{}", 9_000_000_000_000_u64 + 1000 * rng.below(4) as u64),
        "n" => NUMBERS[rng.below(NUMBERS.len())].to_owned(),
        "p" => PERIODS[rng.below(PERIODS.len())].to_owned(),
        "v" => match rng.below(3) {
            0 => NUMBERS[rng.below(NUMBERS.len())].to_owned(),
            1 => "\r\n$5\0".to_owned(),
            _ => rng.bits().to_string(),
        },
        other => other.to_owned(),
    };
    text.into_bytes()
}

fn command(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut leaves_out = false;
    for form in FORMS[rng.below(FORMS.len())].split(' ') {
        let (sign, kind) = match form.split_at(1) {
            ("?", kind) => ("?", kind),
            ("+", kind) => ("+", kind),
            _ => ("", form),
        };
        // What stands behind a word that is left out goes with it.
        let follows = leaves_out && matches!(kind, "t" | "v");
        leaves_out = sign == "?" && rng.below(3) > 0 || follows && sign.is_empty();
        if leaves_out {
            continue;
        }
        words.push(word(rng, kind));
        while sign == "+" && rng.below(2) > 0 {
            words.push(word(rng, kind));
        }
    }
    words
}

/// Up to ten commands, some of them in a transaction.
fn commands(rng: &mut Rng) -> Vec<Vec<Vec<u8>>> {
    let mut commands: Vec<_> = (0..=rng.below(10)).map(|_| command(rng)).collect();
    if rng.below(3) == 0 {
        let at = rng.below(commands.len());
        commands.insert(at, vec![b"MULTI".to_vec()]);
        let end = if rng.below(5) == 0 { "DISCARD" } else { "EXEC" };
        commands.push(vec![end.into()]);
    }
    commands
}

/// Replies as they are to be compared: of some commands the order is not promised.
fn comparable(commands: &[Vec<Vec<u8>>], replies: Vec<Reply>) -> Vec<Reply> {
    let sorted = |command: &[Vec<u8>], reply: Reply| match command[0].as_slice() {
        b"HGETALL" => reply.sorted(true),
        // One that was given from now on is a moment later at the second server.
        b"PEXPIRETIME" | b"EXPIRETIME" => match reply {
            Reply::Line(line) if line.len() > 8 && line[1] != b'9' => Reply::line(":some"),
            reply => reply,
        },
        b"SMEMBERS" | b"HKEYS" | b"HVALS" => reply.sorted(false),
        _ => reply,
    };
    let mut queued: Vec<&[Vec<u8>]> = Vec::new();
    let pairs = commands.iter().zip(replies).map(|(command, reply)| {
        if reply == Reply::line("+QUEUED") {
            queued.push(command);
        }
        match reply {
            Reply::Many(tag, many) if command[0] == b"EXEC" => {
                let queued = std::mem::take(&mut queued);
                let many = queued.iter().zip(many).map(|(command, reply)| sorted(command, reply));
                Reply::Many(tag, many.collect())
            }
            reply => sorted(command, reply),
        }
    });
    pairs.collect()
}

fn shown(words: &[Vec<u8>]) -> String {
    let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    words.join(" ").escape_debug().to_string()
}

#[test]
fn the_embedded_store_answers_as_redis() {
    let place = Place::new();
    let Some((_redis, socket)) = redis::on_socket(&place.0, &[]) else { return };
    let every = Durability::Every(Duration::from_secs(3600));
    let settings =
        EmbeddedSettings { durability: every, ..EmbeddedSettings::at(&place.0.join("store")) };
    let host = Embedded::start("compared", settings, None).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for (protocol, seed) in [("2", 1), ("3", 2), ("3", 3)] {
            let mut theirs = Client::new(UnixStream::connect(&socket).await.unwrap());
            let mut ours = Client::new(host.connect().unwrap());
            theirs.ask("FLUSHALL").await;
            assert_eq!(ours.ask("FLUSHALL").await, Reply::line("+OK"));
            let hello = format!("HELLO {protocol}");
            theirs.ask(&hello).await;
            ours.ask(&hello).await;
            let mut rng = Rng::seeded(seed);
            for round in 0..1500 {
                let commands = commands(&mut rng);
                let expected = comparable(&commands, theirs.ask_all(&commands).await);
                let came = comparable(&commands, ours.ask_all(&commands).await);
                let sent: Vec<_> = commands.iter().map(|words| shown(words)).collect();
                assert_eq!(expected, came, "seed {seed}, round {round}: {sent:#?}");
            }
        }
    });
}
