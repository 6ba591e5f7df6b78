//! How many entries a consumer group has read (`XINFO`: `entries-read`, `lag`), alike at all
//! duplicates.
//!
//! What `XREADGROUP` does comes by the executor's replication stream without that number, as to a
//! replica of Redis 7.0. So the executor is asked for it in the same transaction, behind the
//! command, and the others are told: `XGROUP SETID key group id ENTRIESREAD n`. What a script
//! delivers is not looked into: there the number stays what it was at the others.

use evenkeel_stores::resp::commands;
use evenkeel_stores::resp::databases::{self, count_within, write_within};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::replication::Group;
use evenkeel_stores::resp::reply::{elements, field, integer, payload};

/// A group that entries may be delivered of.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    database: u8,
    key: Box<[u8]>,
    group: Box<[u8]>,
    /// The command that tells the others.
    told: Vec<u8>,
}

/// The groups of these commands, each once.
pub fn of(commands: &[u8]) -> Vec<Read> {
    let mut found: Vec<Read> = Vec::new();
    databases::for_each(commands, |known| {
        let Some((database, command, arguments)) = known else { return };
        let words = (1..arguments.len()).find(|&at| arguments.is(at, "group"));
        let group = words.and_then(|at| arguments.get(at + 1));
        let Some(group) = group.filter(|_| command.name == "xreadgroup") else { return };
        for at in commands::keys(command, arguments).into_iter().flatten() {
            let (key, group) = (Box::from(arguments.at(at)), Box::from(group));
            let read = Read { database, key, group, told: Vec::new() };
            if !found.contains(&read) {
                found.push(read);
            }
        }
    });
    found
}

/// Asks for all of them behind what was written; how many answers come.
pub fn ask(reads: &[Read], out: &mut Vec<u8>) -> u32 {
    for read in reads {
        write_within(out, read.database, |out| {
            encode::command(out, &[b"XINFO", b"GROUPS", &read.key]);
        });
    }
    answers(reads)
}

fn answers(reads: &[Read]) -> u32 {
    reads.iter().map(|read| count_within(read.database)).sum()
}

/// Takes these answers out of that to `EXEC`, where they stand before the last.
pub fn take(reads: &mut [Read], reply: &[u8]) -> Vec<u8> {
    let all: Vec<&[u8]> = elements(reply).collect();
    let Some(first) = all.len().checked_sub(1 + answers(reads) as usize) else {
        return reply.to_vec(); // it is taken for what it is not, and given up
    };
    let mut at = first;
    for read in reads {
        let inner = usize::from(read.database > 0); // behind SELECT
        read.told = tell(read, all[at + inner]).unwrap_or_default();
        at += count_within(read.database) as usize;
    }
    let mut out = Vec::with_capacity(reply.len());
    encode::array(&mut out, first + 1);
    all[..first].iter().chain(all.last()).for_each(|it| out.extend_from_slice(it));
    out
}

/// What the others are told of what was answered; none where there is no such group.
fn tell(read: &Read, answer: &[u8]) -> Option<Vec<u8>> {
    let is_it = |group: &&[u8]| field(group, b"name").and_then(payload) == Some(&*read.group);
    let group = elements(answer).find(is_it)?;
    let id = field(group, b"last-delivered-id").and_then(payload)?;
    // An older Redis does not count, and one that does not know says so.
    let count = field(group, b"entries-read")?;
    let count = integer(count).unwrap_or(-1).to_string();
    let mut told = Vec::new();
    write_within(&mut told, read.database, |out| {
        let words: [&[u8]; 7] =
            [b"XGROUP", b"SETID", &read.key, &read.group, id, b"ENTRIESREAD", count.as_bytes()];
        encode::command(out, &words);
    });
    Some(told)
}

/// Has the others count what a command has delivered, if it did anything.
pub fn restate(reads: &[Read], group: &mut Group) {
    let is_any = group.count > 0;
    for read in reads.iter().filter(|read| !read.told.is_empty() && is_any) {
        group.commands.extend_from_slice(&read.told);
        group.count += count_within(read.database);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(all: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in all {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            encode::command(&mut out, &words);
        }
        out
    }

    fn group(name: &str, id: &str, count: &str) -> String {
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        format!(
            "%3\r\n{}{}{}{}{}{count}\r\n",
            bulk("name"),
            bulk(name),
            bulk("last-delivered-id"),
            bulk(id),
            bulk("entries-read")
        )
    }

    #[test]
    fn groups_that_are_read_are_asked_for_once_and_told_to_the_others() {
        let read = commands(&[
            "XREADGROUP GROUP g c STREAMS x y > >",
            "XREADGROUP GROUP g d COUNT 1 STREAMS x >",
            "SELECT 3",
            "XREADGROUP GROUP h c STREAMS x >",
            "SELECT 0",
            "EVAL xreadgroup 0",
        ]);
        let mut reads = of(&read);
        let mut asked = Vec::new();
        assert_eq!(ask(&reads, &mut asked), 5);
        let expected =
            ["XINFO GROUPS x", "XINFO GROUPS y", "SELECT 3", "XINFO GROUPS x", "SELECT 0"];
        assert_eq!(asked, commands(&expected));
        let reply = format!(
            "*8\r\n:1\r\n:2\r\n*2\r\n{}{}-ERR no such key\r\n+OK\r\n*1\r\n{}+OK\r\n+OK\r\n",
            group("other", "9-9", ":9"),
            group("g", "1-1", ":7"),
            group("h", "2-0", "_")
        );
        assert_eq!(take(&mut reads, reply.as_bytes()), b"*3\r\n:1\r\n:2\r\n+OK\r\n");
        let mut done = Group { commands: commands(&["XACK x g 0"]), count: 1, ..Group::default() };
        restate(&reads, &mut done);
        let expected = [
            "XACK x g 0",
            "XGROUP SETID x g 1-1 ENTRIESREAD 7",
            "SELECT 3",
            "XGROUP SETID x h 2-0 ENTRIESREAD -1",
            "SELECT 0",
        ];
        assert_eq!((done.commands, done.count), (commands(&expected), 5));
        let mut nothing = Group::default();
        restate(&reads, &mut nothing);
        assert_eq!(nothing.count, 0, "nothing was delivered");
    }

    #[test]
    fn an_answer_that_is_too_short_is_left_as_it_is() {
        let mut reads = of(&commands(&["XREADGROUP GROUP g c STREAMS x >"]));
        for reply in ["*1\r\n+OK\r\n", "_\r\n", "-ERR no\r\n"] {
            assert_eq!(take(&mut reads, reply.as_bytes()), reply.as_bytes());
        }
    }
}
