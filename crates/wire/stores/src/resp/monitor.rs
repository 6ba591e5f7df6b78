//! `MONITOR`: a command as one line.
//!
//! `+1700000000.123456 [0 10.0.0.7:40312] "set" "key" "a\x01"`: the time, database and client, the
//! words, quoted as C does it. **Source**: `replicationFeedMonitors` of Redis 7.0.15.

use super::commands::Command;
use super::request::Arguments;

const REDACTED: &[u8] = b"(redacted)";

/// Whether a command is shown: those that administer a server are not.
pub fn is_shown(command: &Command, arguments: Arguments<'_>) -> bool {
    match command.name {
        "client" => {
            let is = |word| arguments.is(1, word);
            !["kill", "list", "no-evict", "pause", "unpause"].into_iter().any(is)
        }
        "acl" | "cluster" | "config" | "ek.relayed" | "latency" | "module" | "monitor"
        | "replicaof" | "slaveof" | "slowlog" => false,
        _ => true,
    }
}

/// Writes whose command it is and its words, without passwords.
pub fn describe(
    command: &Command,
    arguments: Arguments<'_>,
    (database, client): (u8, &str),
    out: &mut Vec<u8>,
) {
    // A name may be "auth", and a password may follow another one: all that is behind is hidden.
    let from = match command.name {
        "auth" => Some(1),
        "hello" => (1..arguments.len()).find(|&at| arguments.is(at, "auth")).map(|at| at + 1),
        _ => None,
    };
    let is_secret = |at: usize| from.is_some_and(|from| at >= from);
    out.extend_from_slice(format!("[{database} {client}]").as_bytes());
    for (at, word) in arguments.iter().enumerate() {
        out.push(b' ');
        quote(if is_secret(at) { REDACTED } else { word }, out);
    }
}

/// Writes a whole line: of this time, in µs since 1970, and with what [`describe`] wrote.
pub fn line(unix_us: u64, described: &[u8], out: &mut Vec<u8>) {
    let (seconds, micros) = (unix_us / 1_000_000, unix_us % 1_000_000);
    out.extend_from_slice(format!("+{seconds}.{micros:06} ").as_bytes());
    out.extend_from_slice(described);
    out.extend_from_slice(b"\r\n");
}

fn quote(word: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in word {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            7 => out.extend(b"\\a"),
            8 => out.extend(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::commands::lookup;
    use crate::resp::tests::with_arguments;

    fn described(words: &[&[u8]]) -> Option<String> {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
        with_arguments(&words, |arguments| {
            let command = lookup(arguments.at(0)).unwrap();
            let mut out = Vec::new();
            describe(command, arguments, (3, "10.0.0.7:40312"), &mut out);
            is_shown(command, arguments).then(|| String::from_utf8(out).unwrap())
        })
    }

    #[test]
    fn a_command_is_shown_as_redis_shows_it() {
        let said = described(&[b"SET", b"a \"b\"\\", b"\x00\r\n\t\x07\x08\xff"]).unwrap();
        assert_eq!(said, r#"[3 10.0.0.7:40312] "SET" "a \"b\"\\" "\x00\r\n\t\a\b\xff""#);
        let mut out = Vec::new();
        line(1_700_000_000_000_042, b"[0 a]", &mut out);
        assert_eq!(out, b"+1700000000.000042 [0 a]\r\n");
    }

    #[test]
    fn no_password_is_shown_and_nothing_that_administers() {
        let said = described(&[b"AUTH", b"shop", b"secret"]).unwrap();
        assert_eq!(said, r#"[3 10.0.0.7:40312] "AUTH" "(redacted)" "(redacted)""#);
        let greetings: [&[&[u8]]; 3] = [
            &[b"HELLO", b"3", b"AUTH", b"shop", b"secret", b"SETNAME", b"x"],
            &[b"HELLO", b"3", b"SETNAME", b"auth", b"AUTH", b"shop", b"secret"],
            &[b"HELLO", b"3", b"AUTH", b"a", b"b", b"AUTH", b"shop", b"secret"],
        ];
        for words in greetings {
            let said = described(words).unwrap();
            assert!(said.contains("(redacted)") && !said.contains("secret"), "{said}");
        }
        assert_eq!(described(&[b"CONFIG", b"SET", b"requirepass", b"x"]), None);
        assert_eq!(described(&[b"CLIENT", b"LIST"]), None);
        assert!(described(&[b"CLIENT", b"SETNAME", b"x"]).is_some());
    }
}
