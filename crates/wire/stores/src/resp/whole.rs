//! Commands about all keys: cursors as clients send them, the question to one server, and what
//! removes everything.

use memchr::memmem;

use super::commands::integer;
use super::request::{Arguments, RequestParser};
use super::{databases, encode};

/// `COUNT` is how much a server does for one page, and a hint: no page may hold up others for long.
pub const COUNT_MAX: i64 = 10_000;
/// Redis's word for what [`cursor`] does not take.
pub const INVALID_CURSOR: &str = "ERR invalid cursor";

/// How commands that remove all keys begin in a log, and how others come behind them.
const FLUSHES: [&[u8]; 2] = [b"$8\r\nFLUSHALL\r\n", b"$7\r\nFLUSHDB\r\n"];

/// Bits of the cursor of one server: it has fewer buckets of keys than 2³⁰.
const OWN_BITS: u32 = 30;
/// Bits of who is asked.
const PIN_BITS: u32 = 12;
/// Layouts that are told apart, in five bits: 0 is none.
const LAYOUTS: u64 = 31;
const LAYOUT_BITS: u32 = 5;
/// Partitions with keys, at most: each has a server of its own.
const PARTITIONS: u64 = 64;

/// Where a scan over several servers is, as a cursor of 53 bits: some clients (JavaScript) know no
/// larger number exactly.
///
/// A server's cursor means something to that server alone, as long as it lives: so it is kept with
/// whom it is of (`pin`), and a scan whose keys may have gone elsewhere since (`layout`) begins
/// again. Of both numbers the lower part is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor {
    /// Which partition, among those of its layout that have keys.
    pub partition: usize,
    /// The version of the layout.
    pub layout: u64,
    /// A number of the server and its life.
    pub pin: u64,
    /// That server's cursor; 0 = it was not asked yet, and anyone may be.
    pub own: u64,
}

impl Cursor {
    /// The number that clients get, never 0; `None` when a part of it is too large.
    pub const fn pack(self) -> Option<u64> {
        let partition = self.partition as u64;
        if partition >= PARTITIONS || self.own >> OWN_BITS != 0 {
            return None;
        }
        let layout = partition << LAYOUT_BITS | (self.layout % LAYOUTS + 1);
        let pin = layout << PIN_BITS | self.pin & ((1 << PIN_BITS) - 1);
        Some(pin << OWN_BITS | self.own)
    }

    /// What [`Cursor::pack`] made a number of, as far as it tells; `None` of other numbers.
    pub fn unpack(packed: u64) -> Option<Self> {
        let take = |shift: u32, bits: u32| (packed >> shift) & ((1 << bits) - 1);
        let layout = take(OWN_BITS + PIN_BITS, LAYOUT_BITS).checked_sub(1)?;
        let partition = packed >> (OWN_BITS + PIN_BITS + LAYOUT_BITS);
        let (pin, own) = (take(OWN_BITS, PIN_BITS), take(0, OWN_BITS));
        let is_ours = partition < PARTITIONS;
        is_ours.then_some(Self { partition: partition as usize, layout, pin, own })
    }

    /// Whether it is of the layout of this version.
    pub const fn is_of(&self, layout: u64) -> bool {
        self.layout % LAYOUTS == layout % LAYOUTS
    }

    /// Whether it was this server's.
    pub const fn is_with(&self, pin: u64) -> bool {
        (self.pin ^ pin) & ((1 << PIN_BITS) - 1) == 0
    }
}

/// What a client sent as a cursor, read as Redis does (`strtoul`): a number that is too large for
/// any is an error, nothing at all is 0.
pub fn cursor(text: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match text {
        [] => return Some(0),
        [sign @ (b'+' | b'-'), digits @ ..] => (*sign == b'-', digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

/// Appends a command of the family of `SCAN` whose cursor is its argument `at`, with another cursor
/// and no larger `COUNT` than [`COUNT_MAX`].
pub fn write_scan(arguments: Arguments<'_>, at: usize, cursor: u64, out: &mut Vec<u8>) {
    let mut words: Vec<&[u8]> = arguments.iter().collect();
    let text = cursor.to_string();
    words[at] = text.as_bytes();
    let most = COUNT_MAX.to_string();
    let mut option = at + 1;
    while option + 1 < words.len() {
        let is_count = words[option].eq_ignore_ascii_case(b"COUNT");
        if is_count && integer(words[option + 1]).is_some_and(|count| count > COUNT_MAX) {
            words[option + 1] = most.as_bytes();
        }
        option += if words[option].eq_ignore_ascii_case(b"NOVALUES") { 1 } else { 2 };
    }
    encode::command(out, &words);
}

/// Appends the command that removes all keys, or all of this database; `how` is `ASYNC` or `SYNC`,
/// if it is said.
pub fn write_flush(database: Option<u8>, how: Option<&[u8]>, out: &mut Vec<u8>) {
    let name: &[u8] = if database.is_some() { b"FLUSHDB" } else { b"FLUSHALL" };
    let words = [name, how.unwrap_or_default()];
    databases::write_within(out, database.unwrap_or_default(), |out| {
        encode::command(out, &words[..1 + usize::from(how.is_some())]);
    });
}

/// Whether one of these commands, which lie one after the other, removes all keys, or may remove
/// all of database 0. They are as [`write_flush`] has them. Where there is one (`is_single`) it is
/// told by its first bytes.
#[inline]
pub fn empties(commands: &[u8], is_single: bool) -> bool {
    if is_single {
        return commands.get(4..).is_some_and(|it| FLUSHES.iter().any(|name| it.starts_with(name)));
    }
    FLUSHES.iter().any(|name| memmem::find(commands, name).is_some()) && has_flush(commands)
}

/// Whether one command removes all keys of all databases. It is as [`write_flush`] has it.
pub fn empties_everything(command: &[u8]) -> bool {
    command.get(4..).is_some_and(|it| it.starts_with(FLUSHES[0]))
}

/// The same bytes may be part of a value.
fn has_flush(commands: &[u8]) -> bool {
    let (mut parser, mut rest) = (RequestParser::default(), commands);
    while let Ok(Some(length)) = parser.parse(rest) {
        if !parser.is_empty() && matches!(parser.argument(rest, 0), b"FLUSHALL" | b"FLUSHDB") {
            return true;
        }
        rest = &rest[length..];
        parser.reset();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(words: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        encode::command(&mut out, words);
        out
    }

    #[test]
    fn a_cursor_is_read_as_by_the_server() {
        for (text, expected) in [
            (&b"0"[..], Some(0)),
            (b"", Some(0)),
            (b"00017", Some(17)),
            (b"+17", Some(17)),
            (b"-1", Some(u64::MAX)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b" 1", None),
            (b"1 ", None),
            (b"-", None),
            (b"0x1", None),
            (b"\xff", None),
        ] {
            assert_eq!(cursor(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_cursor_has_53_bits_and_tells_all_that_is_needed() {
        let largest = Cursor { partition: 63, layout: 30, pin: 4_095, own: (1 << 30) - 1 };
        assert_eq!(largest.pack(), Some((1 << 53) - 1));
        assert_eq!(Cursor { own: 1 << 30, ..largest }.pack(), None);
        assert_eq!(Cursor { partition: 64, ..largest }.pack(), None);
        let first = Cursor::default().pack();
        assert!(first.is_some_and(|first| first > 0), "0 is the end");
        for partition in [0, 1, 62, 63] {
            let cursor = Cursor { partition, layout: 77, pin: 9_999, own: 12_345 };
            let packed = cursor.pack().unwrap();
            assert!(packed < 1 << 53);
            let found = Cursor::unpack(packed).unwrap();
            assert!(found.is_of(77) && found.is_with(9_999));
            assert_eq!((found.partition, found.own), (partition, 12_345));
            assert!((1..31).all(|more| !found.is_of(77 + more)));
            assert!((1..4_096).all(|more| !found.is_with(9_999 + more)));
            assert_eq!(found.pack(), Some(packed));
        }
        for number in [0, 1, 17, 1 << 53, u64::MAX] {
            assert_eq!(Cursor::unpack(number), None, "{number}");
        }
    }

    #[test]
    fn a_page_is_asked_for_with_another_cursor_and_a_bounded_count() {
        let asked = |words: &[&[u8]], at| {
            let text = written(words);
            let mut parser = RequestParser::default();
            assert_eq!(parser.parse(&text), Ok(Some(text.len())));
            let mut out = Vec::new();
            write_scan(parser.arguments(&text), at, 42, &mut out);
            out
        };
        let all: [&[u8]; 6] = [b"scan", b"7", b"match", b"count", b"COUNT", b"999999"];
        let expected: [&[u8]; 6] = [b"scan", b"42", b"match", b"count", b"COUNT", b"10000"];
        assert_eq!(asked(&all, 1), written(&expected));
        let part: [&[u8]; 6] = [b"HSCAN", b"count", b"7", b"NOVALUES", b"count", b"10001"];
        let expected: [&[u8]; 6] = [b"HSCAN", b"count", b"42", b"NOVALUES", b"count", b"10000"];
        assert_eq!(asked(&part, 2), written(&expected));
        // What is wrong with it says the server.
        for last in [&b"x"[..], b"0", b"-5", b"10000"] {
            let words: [&[u8]; 4] = [b"SCAN", b"0", b"COUNT", last];
            let expected: [&[u8]; 4] = [b"SCAN", b"42", b"COUNT", last];
            assert_eq!(asked(&words, 1), written(&expected));
        }
        assert_eq!(asked(&[b"SCAN", b"0", b"COUNT"], 1), written(&[b"SCAN", b"42", b"COUNT"]));
    }

    #[test]
    fn what_removes_everything_is_found_and_nothing_else_is() {
        for (database, how) in [(None, None), (None, Some(&b"ASYNC"[..])), (Some(0), None)] {
            let mut flush = Vec::new();
            write_flush(database, how, &mut flush);
            assert!(empties(&flush, true) && empties(&flush, false));
            let group = [written(&[b"SET", b"a", b"1"]), flush.clone()].concat();
            assert!(empties(&group, false));
            let value = written(&[b"APPEND", b"a", &flush]);
            assert!(!empties(&value, true) && !empties(&value, false), "it is a value");
            let key = written(&[b"INCR", b"FLUSHALL"]);
            assert!(!empties(&key, true) && !empties(&key, false), "it is a key");
            assert!(empties(&[value, flush].concat(), false));
        }
        assert!(!empties(b"", true) && !empties(b"", false));
        let mut other = Vec::new();
        write_flush(Some(3), None, &mut other);
        assert!(!empties(&other, true), "marks of ours are in database 0");
    }
}
