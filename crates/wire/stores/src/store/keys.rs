//! Keys that Evenkeel keeps in a store beside those of clients.

use crate::resp::commands;
use crate::resp::databases;
use crate::resp::encode;
use crate::resp::hash::slot;
use crate::resp::request::{Limits, RequestParser};

/// The key that tells what a duplicate has: `EPOCH SEQUENCE`.
pub const WATERMARK: &[u8] = b"evenkeel:watermark";
/// The key that tells whose writes a duplicate takes.
pub const EPOCH: &[u8] = b"evenkeel:epoch";
/// How the watermark of an attempt begins whose effects are not in the log yet. It is no number:
/// whoever has it is filled anew.
pub const AHEAD: &[u8] = b"ahead ";
/// In place of a key: the libraries of functions, which are copied and compared as a key is. No
/// store has a key of this name.
pub const FUNCTIONS: &[u8] = b"evenkeel:functions";
/// Keys of ours begin with this; clients may not write them.
pub const RESERVED: &[u8] = b"evenkeel:";

/// `SET evenkeel:watermark "EPOCH SEQUENCE"`
#[inline]
pub fn write_mark(out: &mut Vec<u8>, (epoch, sequence): (u64, u64)) {
    let mut digits = itoa::Buffer::new();
    let mut text = [0_u8; 41];
    let mut length = 0;
    for (number, end) in [(epoch, &b" "[..]), (sequence, b"")] {
        for part in [digits.format(number).as_bytes(), end] {
            text[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }
    }
    encode::command(out, &[b"SET", WATERMARK, &text[..length]]);
}

/// What sets keys of ours in a transaction of a node of Redis Cluster. Their slots are others than
/// that of the transaction's keys, and a script alone may reach those. The node may have lost the
/// slot of ours alone: that is its own condition, and told as such.
pub const SET_ACROSS_SLOTS: &[u8] = b"#!lua flags=allow-cross-slot-keys\n\
    for i = 1, #ARGV, 2 do \
    local said = redis.pcall('SET', ARGV[i], ARGV[i + 1]) \
    if said.err then return redis.error_reply('CLUSTERDOWN ' .. ARGV[i] .. ': ' .. said.err) end \
    end return redis.status_reply('OK')";
/// What does one command in a transaction there that has keys of several slots: scripts without a
/// first line of flags may write such, and what they did is one transaction for the others.
const DO_ACROSS_SLOTS: &[u8] =
    b"#!lua flags=allow-cross-slot-keys\nreturn redis.call(unpack(ARGV))";

/// Which servers take a write together with its watermark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Servers {
    /// They have no slots.
    #[default]
    Plain,
    /// Nodes of Redis Cluster, each with all slots: the keys of a transaction must have one.
    Nodes,
}

impl Servers {
    /// `MULTI`, the commands, the watermark, `EXEC`: applied with its watermark or not at all. What
    /// removes all keys is signed anew together with the watermark, with this stamp.
    pub fn write_group(
        self,
        out: &mut Vec<u8>,
        commands: &[u8],
        mark: (u64, u64),
        stamp: Option<&[u8]>,
    ) {
        if stamp.is_some() || self == Self::Nodes {
            let mark = format!("{} {}", mark.0, mark.1);
            return self.write_marked(out, commands, stamp, mark.as_bytes());
        }
        out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
        out.extend_from_slice(commands);
        write_mark(out, mark);
        out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
    }

    /// Whether keys at these places may be in one command, as far as their servers go.
    pub fn take_together(self, one: &[u8], other: &[u8]) -> bool {
        let ((here, one), (there, other)) = (databases::at(one), databases::at(other));
        here == there && (self == Self::Plain || slot(one) == slot(other))
    }

    /// The same with a watermark of any kind.
    pub fn write_marked(
        self,
        out: &mut Vec<u8>,
        commands: &[u8],
        stamp: Option<&[u8]>,
        mark: &[u8],
    ) {
        out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
        match self {
            Self::Plain => out.extend_from_slice(commands),
            Self::Nodes => write_across_slots(out, commands),
        }
        match (self, stamp) {
            (Self::Plain, None) => encode::command(out, &[b"SET", WATERMARK, mark]),
            (Self::Plain, Some(stamp)) => {
                encode::command(out, &[b"MSET", EPOCH, stamp, WATERMARK, mark]);
            }
            (Self::Nodes, None) => {
                encode::command(out, &[b"EVAL", SET_ACROSS_SLOTS, b"0", WATERMARK, mark]);
            }
            (Self::Nodes, Some(stamp)) => {
                let of_ours: [&[u8]; 7] =
                    [b"EVAL", SET_ACROSS_SLOTS, b"0", EPOCH, stamp, WATERMARK, mark];
                encode::command(out, &of_ours);
            }
        }
        out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
    }
}

/// These commands, each by a script if they have keys of several slots.
fn write_across_slots(out: &mut Vec<u8>, commands: &[u8]) {
    if has_one_slot(commands) {
        return out.extend_from_slice(commands);
    }
    let (mut parser, mut rest) = (RequestParser::new(Limits::MAX), commands);
    while let Ok(Some(length)) = parser.parse(rest) {
        let words = parser.arguments(rest).iter();
        let words: Vec<&[u8]> =
            [&b"EVAL"[..], DO_ACROSS_SLOTS, b"0"].into_iter().chain(words).collect();
        encode::command(out, &words);
        rest = &rest[length..];
        parser.reset();
    }
}

fn has_one_slot(commands: &[u8]) -> bool {
    let (mut parser, mut rest, mut first) = (RequestParser::new(Limits::MAX), commands, None);
    while let Ok(Some(length)) = parser.parse(rest) {
        let arguments = parser.arguments(rest);
        let command = arguments.get(0).and_then(commands::known);
        let keys = command.and_then(|command| commands::keys(command, arguments).ok());
        for at in keys.into_iter().flatten() {
            let slot = slot(arguments.at(at));
            if *first.get_or_insert(slot) != slot {
                return false;
            }
        }
        rest = &rest[length..];
        parser.reset();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands, word by word.
    fn words(bytes: &[u8]) -> Vec<Vec<String>> {
        let (mut parser, mut rest, mut all) = (RequestParser::default(), bytes, Vec::new());
        while let Ok(Some(length)) = parser.parse(rest) {
            let words = parser.arguments(rest).iter();
            all.push(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect());
            rest = &rest[length..];
        }
        all
    }

    fn commands(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            encode::command(&mut out, &words);
        }
        out
    }

    #[test]
    fn a_node_sets_the_watermark_by_a_script_whatever_the_slot_of_the_keys() {
        let write = |lines: &[&str], stamp| {
            let mut out = Vec::new();
            Servers::Nodes.write_group(&mut out, &commands(lines), (7, 42), stamp);
            words(&out)
        };
        let script = String::from_utf8_lossy(SET_ACROSS_SLOTS).into_owned();
        let mark = ["EVAL", &script, "0", "evenkeel:watermark", "7 42"];
        let lines = ["INCR {a}1", "PEXPIREAT {a}1 7", "MGET {a}1 {a}2"];
        let group = write(&lines, None);
        assert_eq!(group.len(), 6);
        assert_eq!(group[1], ["INCR", "{a}1"]);
        assert_eq!(group[4], mark);
        let signed = write(&["FLUSHALL"], Some(b"7 00ff cart"));
        assert_eq!(signed[1], ["FLUSHALL"]);
        let ours = ["evenkeel:epoch", "7 00ff cart", "evenkeel:watermark", "7 42"];
        assert_eq!(signed[2][3..], ours);
        let mut plain = Vec::new();
        Servers::Plain.write_group(&mut plain, &commands(&["INCR a", "INCR b"]), (7, 42), None);
        assert_eq!(words(&plain)[3], ["SET", "evenkeel:watermark", "7 42"]);
    }

    /// What a script wrote in several slots.
    #[test]
    fn commands_of_several_slots_are_each_done_by_a_script_at_a_node() {
        let mut out = Vec::new();
        let lines = commands(&["INCR a", "RPUSH b x y"]);
        Servers::Nodes.write_group(&mut out, &lines, (7, 42), None);
        let group = words(&out);
        assert_eq!(group.len(), 5, "as many as there were: {group:?}");
        for (command, expected) in group[1..3].iter().zip(["0 INCR a", "0 RPUSH b x y"]) {
            assert!(command[0] == "EVAL" && command[1].contains("allow-cross-slot-keys"));
            assert_eq!(command[2..].join(" "), expected);
        }
    }

    #[test]
    fn keys_of_one_command_have_one_slot_at_nodes_and_one_database() {
        let elsewhere = databases::place(1, b"{a}2");
        for (one, other, plain, nodes) in [
            (&b"{a}1"[..], &b"{a}2"[..], true, true),
            (b"a", b"b", true, false),
            (b"{a}1", &elsewhere, false, false),
        ] {
            let together = |servers: Servers| servers.take_together(one, other);
            assert_eq!((together(Servers::Plain), together(Servers::Nodes)), (plain, nodes));
        }
    }

    #[test]
    fn who_is_emptied_is_signed_and_marked_in_the_same_transaction() {
        let (mut plain, mut signed) = (Vec::new(), Vec::new());
        Servers::Plain.write_group(&mut plain, b"*1\r\n$1\r\nX\r\n", (7, 42), None);
        let expected = "*1\r\n$5\r\nMULTI\r\n*1\r\n$1\r\nX\r\n*3\r\n$3\r\nSET\r\n$18\r\n\
                        evenkeel:watermark\r\n$4\r\n7 42\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(String::from_utf8(plain).unwrap(), expected);
        let flush = b"*1\r\n$8\r\nFLUSHALL\r\n";
        Servers::Plain.write_group(&mut signed, flush, (7, 42), Some(b"7 00ff cart"));
        let expected = "*1\r\n$5\r\nMULTI\r\n*1\r\n$8\r\nFLUSHALL\r\n*5\r\n$4\r\nMSET\r\n$14\r\n\
                        evenkeel:epoch\r\n$11\r\n7 00ff cart\r\n$18\r\nevenkeel:watermark\r\n\
                        $4\r\n7 42\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(String::from_utf8(signed).unwrap(), expected);
    }
}
