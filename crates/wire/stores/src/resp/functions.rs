//! Libraries of functions: what changes them, how they are copied and compared, and who is told
//! what of a script that is to be ended.
//!
//! A server has one set of libraries. It is copied and compared as one key is, under a name that no
//! key has ([`FUNCTIONS`]): `FUNCTION DUMP` in place of `DUMP`, `FUNCTION RESTORE … FLUSH` in place
//! of `RESTORE … REPLACE`. A server that has no such command, or may not say it, has no libraries.

use super::commands::{Refusal, refusals};
use super::encode;
use super::reply::{elements, field, payload};
use super::request::Arguments;
use crate::store::keys::FUNCTIONS;

/// How a command begins that gives a server all libraries.
pub const RESTORE: &[u8] = b"*4\r\n$8\r\nFUNCTION\r\n$7\r\nRESTORE\r\n";

/// The subcommands of `FUNCTION`, and how many arguments they take; negative: so many or more.
const ARITIES: [(&str, i8); 9] = [
    ("delete", 3),
    ("dump", 2),
    ("flush", -2),
    ("help", 2),
    ("kill", 2),
    ("list", -2),
    ("load", -3),
    ("restore", -3),
    ("stats", 2),
];

/// The error for a subcommand that is not known or has another number of arguments, in Redis's
/// words; none where it is right.
pub fn subcommand_error(arguments: Arguments<'_>) -> Option<String> {
    let known = ARITIES.iter().find(|(name, _)| arguments.is(1, name));
    let Some(&(name, arity)) = known else {
        let mut line = Vec::new();
        super::commands::unknown_subcommand("function", arguments.at(1), &mut line);
        let text = String::from_utf8_lossy(&line);
        return Some(text.trim_start_matches('-').trim_end().to_owned());
    };
    let least = usize::from(arity.unsigned_abs());
    let count = arguments.len();
    let is_right = if arity < 0 { count >= least } else { count == least };
    (!is_right).then(|| format!("ERR wrong number of arguments for 'function|{name}' command"))
}

/// Refuses a library whose text has what no script may say here. What `RESTORE` brings is packed,
/// and not looked at.
///
/// # Errors
/// What the client is told.
pub fn check_text(arguments: Arguments<'_>) -> Result<(), Refusal> {
    let text = arguments.get(arguments.len() - 1).filter(|_| arguments.is(1, "load"));
    match text {
        Some(text) if memchr::memmem::find(text, b"set_repl").is_some() => {
            Err(Refusal(refusals::SET_REPL))
        }
        _ => Ok(()),
    }
}

/// The command that gives a server what another has said of its libraries, and no other ones;
/// `None` where that one has said nothing.
pub fn restoring(dump: Option<&[u8]>) -> Option<Vec<u8>> {
    let dump = dump.filter(|reply| reply.first() == Some(&b'$')).and_then(payload)?;
    let mut command = Vec::new();
    encode::command(&mut command, &[b"FUNCTION", b"RESTORE", dump, b"FLUSH"]);
    Some(command)
}

/// Whether a server does not know such a command, or may not say it: then it has no libraries.
pub fn is_refused(reply: &[u8]) -> bool {
    reply.starts_with(b"-NOPERM") || reply.starts_with(b"-ERR unknown")
}

/// Whether this is the name under which libraries are copied.
pub fn is_name(key: &[u8]) -> bool {
    key == FUNCTIONS
}

/// `FUNCTION LIST WITHCODE` in one form: libraries and functions are listed in an order of chance.
pub fn listed(reply: &[u8]) -> Vec<u8> {
    let of_library = |library| {
        let mut parts = elements(library);
        let mut all = Vec::new();
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            // What functions there are follows from the text.
            if payload(name) != Some(b"functions") {
                all.extend_from_slice(name);
                all.extend_from_slice(value);
            }
        }
        all
    };
    let mut libraries: Vec<Vec<u8>> = elements(reply).map(of_library).collect();
    libraries.sort_unstable();
    libraries.concat()
}

/// The functions of `FUNCTION LIST` that write nothing (`no-writes`).
pub fn without_writes(reply: &[u8]) -> Vec<&[u8]> {
    let of_library = |library| field(library, b"functions").map(elements);
    let all = elements(reply).filter_map(of_library).flatten();
    let reads = all.filter(|function| {
        let flags = field(function, b"flags").map(elements);
        flags.into_iter().flatten().any(|flag| payload(flag) == Some(b"no-writes"))
    });
    reads.filter_map(|function| field(function, b"name").and_then(payload)).collect()
}

/// How much an answer of one server to `SCRIPT KILL`, `FUNCTION KILL` or `FUNCTION STATS` says of
/// all of them, which were asked: most is 0.
pub fn rank(reply: &[u8]) -> u8 {
    match reply.first() {
        Some(b'+') => 0,
        Some(b'-') if reply.starts_with(b"-UNKILLABLE") => 1,
        Some(b'-') if reply.starts_with(b"-BUSY") => 2,
        Some(b'%' | b'*') => {
            let mut parts = elements(reply);
            let is_running = parts.next().and_then(payload) == Some(b"running_script")
                && parts.next().is_some_and(|running| matches!(running.first(), Some(b'%' | b'*')));
            if is_running { 0 } else { 3 }
        }
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::tests::{with_arguments, words};

    fn checked(line: &str) -> Option<String> {
        with_arguments(&words(line), subcommand_error)
    }

    #[test]
    fn subcommands_have_their_arguments() {
        for line in
            ["FUNCTION LOAD x", "function load replace x", "FUNCTION FLUSH", "FUNCTION dump"]
        {
            assert_eq!(checked(line), None, "{line}");
        }
        let refused = checked("FUNCTION DELETE").unwrap();
        assert_eq!(refused, "ERR wrong number of arguments for 'function|delete' command");
        let unknown = checked("FUNCTION nothing x").unwrap();
        assert_eq!(unknown, "ERR unknown subcommand 'nothing'. Try FUNCTION HELP.");
    }

    #[test]
    fn libraries_are_compared_without_their_order() {
        let library = |name: &str, functions: &str, code: &str| {
            let field = |text: &str| format!("${}\r\n{text}\r\n", text.len());
            format!(
                "%3\r\n{}{}{}{functions}{}{}",
                field("library_name"),
                field(name),
                field("functions"),
                field("library_code"),
                field(code)
            )
        };
        let of = |libraries: &[String]| {
            listed(format!("*{}\r\n{}", libraries.len(), libraries.concat()).as_bytes())
        };
        let (one, two) = (library("a", "*0\r\n", "x"), library("b", "*0\r\n", "y"));
        assert_eq!(of(&[one.clone(), two.clone()]), of(&[two.clone(), one.clone()]));
        assert_eq!(of(&[library("a", "*1\r\n:1\r\n", "x")]), of(std::slice::from_ref(&one)));
        assert_ne!(of(&[one.clone(), two.clone()]), of(std::slice::from_ref(&one)));
        assert_ne!(of(&[library("a", "*0\r\n", "y")]), of(std::slice::from_ref(&one)));
        assert_ne!(
            of(&[library("a", "*0\r\n", "y"), library("b", "*0\r\n", "x")]),
            of(&[one, two])
        );
    }

    #[test]
    fn who_ended_a_script_is_believed_before_who_ran_none() {
        let notbusy: &[u8] = b"-NOTBUSY No scripts in execution right now.\r\n";
        let said = [b"+OK\r\n", &b"-UNKILLABLE Sorry\r\n"[..], b"-BUSY Redis\r\n", notbusy];
        assert!(said.iter().map(|it| rank(it)).eq(0..4));
        let running = b"%2\r\n$14\r\nrunning_script\r\n%1\r\n$4\r\nname\r\n$1\r\nf\r\n\
            $7\r\nengines\r\n%0\r\n";
        assert_eq!(rank(running), 0);
        assert_eq!(rank(b"%2\r\n$14\r\nrunning_script\r\n_\r\n$7\r\nengines\r\n%0\r\n"), 3);
    }

    #[test]
    fn who_says_nothing_of_libraries_has_none() {
        assert_eq!(restoring(None), None);
        assert_eq!(restoring(Some(b"-NOPERM no\r\n")), None);
        assert!(is_refused(b"-NOPERM no\r\n") && is_refused(b"-ERR unknown command\r\n"));
        assert!(!is_refused(b"-BUSY Redis is busy\r\n"), "it may have some");
        let command = restoring(Some(b"$2\r\nxy\r\n")).unwrap();
        assert!(command.starts_with(RESTORE));
        assert!(command.ends_with(b"$2\r\nxy\r\n$5\r\nFLUSH\r\n"));
    }
}
