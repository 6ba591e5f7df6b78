//! Replies of every type, nested and in any pieces, beside a model that is a tree.

use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};

use super::runner;
use crate::resp::reply::{
    Blame, Kind, ReplyLimits, ReplyScanner, Shape, blame, down_convert, elements, integer, payload,
    strip_attributes,
};
use crate::resp::{Protocol, ProtocolError, encode};

/// A reply as a tree.
#[derive(Clone, Debug)]
enum Value {
    Simple(String),
    Error(String),
    BlobError(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    NullBulk,
    NullArray,
    Double(&'static str),
    Boolean(bool),
    Big(&'static str),
    Verbatim(Vec<u8>),
    Array(Vec<Value>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Map(Vec<(Value, Value)>),
    /// A value with an attribute before it.
    Attributed(Vec<(Value, Value)>, Box<Value>),
}

fn line(tag: char, text: &str) -> Vec<u8> {
    format!("{tag}{text}\r\n").into_bytes()
}

fn blob(tag: char, bytes: &[u8]) -> Vec<u8> {
    [format!("{tag}{}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn many(tag: char, values: &[Value], write: impl Fn(&Value) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = line(tag, &values.len().to_string());
    bytes.extend(values.iter().flat_map(write));
    bytes
}

fn flat(pairs: &[(Value, Value)]) -> Vec<Value> {
    pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect()
}

impl Value {
    /// In RESP3; with or without attributes.
    fn wire(&self, with_attributes: bool) -> Vec<u8> {
        let write = |value: &Self| value.wire(with_attributes);
        let pairs = |tag, pairs: &[(Self, Self)]| {
            let mut bytes = line(tag, &pairs.len().to_string());
            bytes.extend(flat(pairs).iter().flat_map(write));
            bytes
        };
        match self {
            Self::Simple(text) => line('+', text),
            Self::Error(text) => line('-', text),
            Self::BlobError(bytes) => blob('!', bytes),
            Self::Integer(value) => line(':', &value.to_string()),
            Self::Bulk(bytes) => blob('$', bytes),
            Self::Null => line('_', ""),
            Self::NullBulk => line('$', "-1"),
            Self::NullArray => line('*', "-1"),
            Self::Double(text) => line(',', text),
            Self::Boolean(value) => line('#', if *value { "t" } else { "f" }),
            Self::Big(text) => line('(', text),
            Self::Verbatim(bytes) => blob('=', &[b"txt:", &bytes[..]].concat()),
            Self::Array(values) => many('*', values, write),
            Self::Set(values) => many('~', values, write),
            Self::Push(values) => many('>', values, write),
            Self::Map(map) => pairs('%', map),
            Self::Attributed(attribute, value) if with_attributes => {
                [pairs('|', attribute), write(value)].concat()
            }
            Self::Attributed(_, value) => write(value),
        }
    }

    /// In RESP2, where a null is this one.
    fn old(&self, null: &str) -> Vec<u8> {
        let write = |value: &Self| value.old(null);
        match self {
            Self::BlobError(bytes) => {
                let text = String::from_utf8(bytes.clone()).unwrap();
                line('-', &text.replace(['\r', '\n'], " "))
            }
            Self::Null => null.into(),
            Self::Double(text) | Self::Big(text) => blob('$', text.as_bytes()),
            Self::Boolean(value) => line(':', if *value { "1" } else { "0" }),
            Self::Verbatim(bytes) => blob('$', bytes),
            Self::Array(values) | Self::Set(values) | Self::Push(values) => {
                many('*', values, write)
            }
            Self::Map(map) => many('*', &flat(map), write),
            Self::Attributed(_, value) => write(value),
            same => same.wire(false),
        }
    }

    /// Whether attributes stand anywhere but right before the whole.
    fn has_attributes_within(&self) -> bool {
        let is_or_has =
            |value: &Self| matches!(value, Self::Attributed(..)) || value.has_attributes_within();
        match self {
            Self::Array(values) | Self::Set(values) | Self::Push(values) => {
                values.iter().any(is_or_has)
            }
            Self::Map(pairs) => flat(pairs).iter().any(is_or_has),
            Self::Attributed(pairs, value) => {
                flat(pairs).iter().any(is_or_has) || value.has_attributes_within()
            }
            _ => false,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Simple(_) => Kind::Simple,
            Self::Error(_) | Self::BlobError(_) => Kind::Error,
            Self::Integer(_) => Kind::Integer,
            Self::Bulk(_) => Kind::Bulk,
            Self::Null | Self::NullBulk | Self::NullArray => Kind::Null,
            Self::Double(_) => Kind::Double,
            Self::Boolean(_) => Kind::Boolean,
            Self::Big(_) => Kind::BigNumber,
            Self::Verbatim(_) => Kind::Verbatim,
            Self::Array(_) | Self::Set(_) | Self::Map(_) => Kind::Aggregate,
            Self::Push(_) => Kind::Push,
            Self::Attributed(_, value) => value.kind(),
        }
    }
}

fn values() -> BoxedStrategy<Value> {
    let text = || "[ -~]{0,12}";
    let scalar = prop_oneof![
        text().prop_map(Value::Simple),
        text().prop_map(Value::Error),
        "[a-z\r\n]{0,12}".prop_map(|text| Value::BlobError(text.into_bytes())),
        any::<i64>().prop_map(Value::Integer),
        vec(any::<u8>(), 0..20).prop_map(Value::Bulk),
        Just(Value::Null),
        Just(Value::NullBulk),
        Just(Value::NullArray),
        proptest::sample::select(vec!["1.5", "inf", "-inf", "nan", "1e-7", "-0", "10"])
            .prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        proptest::sample::select(vec!["3492890328409238509324850943850943825024385", "-1", "0"])
            .prop_map(Value::Big),
        vec(any::<u8>(), 0..10).prop_map(Value::Verbatim),
    ];
    scalar
        .prop_recursive(4, 40, 5, |inner| {
            let pairs = vec((inner.clone(), inner.clone()), 0..3);
            prop_oneof![
                vec(inner.clone(), 0..5).prop_map(Value::Array),
                vec(inner.clone(), 0..5).prop_map(Value::Set),
                vec(inner.clone(), 0..5).prop_map(Value::Push),
                pairs.clone().prop_map(Value::Map),
                (pairs, inner).prop_map(|(pairs, it)| Value::Attributed(pairs, Box::new(it))),
            ]
        })
        .boxed()
}

/// Lengths and kinds of the replies in these bytes, in pieces that end at these places.
fn scan(
    limits: ReplyLimits,
    bytes: &[u8],
    ends: &[usize],
) -> (Vec<(usize, Kind)>, Option<ProtocolError>) {
    let mut scanner = ReplyScanner::new(limits);
    let (mut found, mut start) = (Vec::new(), 0);
    let mut ends: Vec<usize> = ends.iter().map(|end| end % (bytes.len() + 1)).collect();
    ends.sort_unstable();
    for end in ends.into_iter().chain([bytes.len()]) {
        loop {
            match scanner.scan(&bytes[start..end]) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    found.push((length, scanner.kind().unwrap()));
                    assert_eq!(scanner.body().end, length);
                    start += length;
                }
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

#[test]
fn replies_are_the_same_in_any_pieces() {
    let cases = (vec(values(), 0..4), vec(any::<usize>(), 0..12));
    runner(600)
        .run(&cases, |(values, ends)| {
            let wires: Vec<Vec<u8>> = values.iter().map(|value| value.wire(true)).collect();
            let kinds = values.iter().map(Value::kind);
            let expected = (wires.iter().map(Vec::len).zip(kinds).collect(), None);
            let bytes = wires.concat();
            assert_eq!(scan(ReplyLimits::default(), &bytes, &ends), expected);
            let single: Vec<usize> = (0..bytes.len()).collect();
            assert_eq!(scan(ReplyLimits::default(), &bytes, &single), expected);
            Ok(())
        })
        .unwrap();
}

/// A client decides how deep a script's reply is: the connection has to stay of use.
#[test]
fn the_deepest_reply_of_a_script_is_read() {
    let Some(server) = super::server::Server::start(&[]) else { return };
    let script = "local a = {}; local b = {a}; a[1] = b; return a";
    let replies = [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
        let reply = server.connect(protocol).ask(&["EVAL", script, "0"]);
        assert!(reply.ends_with(b"*1\r\n-ERR reached lua stack limit\r\n"), "{}", reply.len());
        reply
    });
    let mut out = Vec::new();
    down_convert(&replies[1], Shape::Plain, &mut out);
    assert_eq!(out, replies[0]);
}

#[test]
fn any_bytes_are_the_same_in_any_pieces() {
    let change =
        (any::<proptest::sample::Index>(), proptest::sample::select(b"*$%|>_:-1209\r\n?".to_vec()));
    let cases = (values(), vec(change, 0..3), vec(any::<usize>(), 0..8));
    let limits = ReplyLimits { bytes_max: 120, depth_max: 3 };
    runner(4_000)
        .run(&cases, |(value, changes, ends)| {
            let mut bytes = value.wire(true);
            for (index, byte) in changes {
                let index = index.index(bytes.len());
                bytes[index] = byte;
            }
            // Which of two errors is said may depend on which is seen first; that one is, may not.
            let seen = |ends: &[usize]| {
                let (found, error) = scan(limits, &bytes, ends);
                (found, error.is_some())
            };
            let single: Vec<usize> = (0..bytes.len()).collect();
            assert_eq!((seen(&ends), seen(&single)), (seen(&[]), seen(&[])));
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_is_converted_is_resp2_and_says_the_same() {
    runner(1_000)
        .run(&values(), |value| {
            let wire = value.wire(true);
            for (shape, null) in [(Shape::Plain, "$-1\r\n"), (Shape::NullArray, "*-1\r\n")] {
                let mut out = b"before".to_vec();
                down_convert(&wire, shape, &mut out);
                assert_eq!(out[6..], value.old(null), "{value:?}");
                let (found, error) = scan(ReplyLimits::default(), &out[6..], &[]);
                assert_eq!((found.len(), error), (1, None));
                assert_is_resp2(&out[6..]);
                let mut again = Vec::new();
                down_convert(&out[6..], shape, &mut again);
                assert_eq!(again, out[6..], "RESP2 stays as it is");
            }
            for shape in [Shape::Pairs, Shape::Streams] {
                let mut out = Vec::new();
                down_convert(&wire, shape, &mut out);
                assert_eq!(scan(ReplyLimits::default(), &out, &[]).0.len(), 1, "{shape:?}");
                assert_is_resp2(&out);
            }
            Ok(())
        })
        .unwrap();
}

/// Walks a reply by a way of its own.
fn assert_is_resp2(reply: &[u8]) {
    assert!(b"+-:$*".contains(&reply[0]), "{}", String::from_utf8_lossy(reply));
    elements(reply).for_each(assert_is_resp2);
}

#[test]
fn attributes_are_offered_apart_and_taken_out() {
    runner(600)
        .run(&values(), |value| {
            let wire = value.wire(true);
            let mut scanner = ReplyScanner::default();
            assert_eq!(scanner.scan(&wire), Ok(Some(wire.len())));
            let (mut attributes, mut body) = (Vec::new(), &value);
            while let Value::Attributed(pairs, value) = body {
                let it = Value::Attributed(pairs.clone(), Box::new(Value::Null)).wire(true);
                attributes.extend_from_slice(&it[..it.len() - 3]);
                body = value;
            }
            assert_eq!(wire[scanner.attribute()], attributes);
            assert_eq!(wire[scanner.body()], body.wire(true));
            let mut stripped = Vec::new();
            strip_attributes(&wire, &mut stripped);
            assert_eq!(stripped, value.wire(false));
            assert_eq!(scanner.has_nested_attributes(), value.has_attributes_within());
            Ok(())
        })
        .unwrap();
}

#[test]
fn elements_are_replies_of_their_own() {
    let reply = b"%2\r\n+a\r\n|1\r\n+ttl\r\n:5\r\n*2\r\n:1\r\n:2\r\n$1\r\nb\r\n_\r\n";
    let found: Vec<&[u8]> = elements(reply).collect();
    let expected: [&[u8]; 4] =
        [b"+a\r\n", b"|1\r\n+ttl\r\n:5\r\n*2\r\n:1\r\n:2\r\n", b"$1\r\nb\r\n", b"_\r\n"];
    assert_eq!(found, expected);
    assert_eq!(
        (payload(b"$1\r\nb\r\n"), payload(b"_\r\n"), payload(reply)),
        (Some(&b"b"[..]), None, None)
    );
    assert_eq!((integer(b":-42\r\n"), integer(b"$1\r\n1\r\n")), (Some(-42), None));
}

#[test]
fn what_is_no_reply_is_refused() {
    let deep = b"*1\r\n".repeat(8_193);
    let cases: [(&[u8], ProtocolError); 16] = [
        (b"HTTP/1.1 400\r\n", ProtocolError::UnknownReply(b'H')),
        (b"$?\r\n", ProtocolError::StreamedReply),
        (b"*?\r\n", ProtocolError::StreamedReply),
        (b"$-2\r\n", ProtocolError::MalformedReply(b'$')),
        (b"%-1\r\n", ProtocolError::MalformedReply(b'%')),
        (b"$1\r\nabc\r\n", ProtocolError::MalformedReply(b'$')),
        (b"=2\r\nab\r\n", ProtocolError::MalformedReply(b'=')),
        (b":\r\n", ProtocolError::MalformedReply(b':')),
        (b":1x\r\n", ProtocolError::MalformedReply(b':')),
        (b",x\r\n", ProtocolError::MalformedReply(b',')),
        (b"#x\r\n", ProtocolError::MalformedReply(b'#')),
        (b"_x\r\n", ProtocolError::MalformedReply(b'_')),
        (b"+a\nb\r\n", ProtocolError::MalformedReply(b'+')),
        (b"+a\rb\r\n", ProtocolError::MalformedReply(b'+')),
        (b"$536870913\r\n", ProtocolError::TooBigReply),
        (&deep, ProtocolError::TooDeepReply),
    ];
    for (bytes, error) in cases {
        let (found, came) = scan(ReplyLimits::default(), bytes, &[]);
        assert_eq!((found.len(), came), (0, Some(error)), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn errors_tell_of_the_command_or_of_the_server() {
    let of = |text: &str| blame(format!("-{text}\r\n").as_bytes());
    assert_eq!(blame(b"+OK\r\n"), None);
    for text in [
        "ERR syntax error",
        "WRONGTYPE Operation",
        "BUSYKEY Target",
        "BUSYGROUP x",
        "ERR",
        "CROSSSLOT x",
    ] {
        assert_eq!(of(text), Some(Blame::Command), "{text}");
    }
    let servers = [
        "OOM command",
        "MISCONF Redis",
        "LOADING",
        "READONLY You",
        "BUSY Redis is",
        "NOPERM x",
        "ERR unknown command 'x'",
    ];
    for text in servers {
        assert_eq!(of(text), Some(Blame::Server), "{text}");
    }
}

#[test]
fn what_is_written_here_is_read_as_the_same() {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut out = Vec::new();
        encode::map(&mut out, 1, protocol);
        encode::simple(&mut out, "a\r\nb");
        encode::array(&mut out, 5);
        encode::integer(&mut out, i64::MIN);
        encode::null(&mut out, protocol);
        encode::null_array(&mut out, protocol);
        encode::double(&mut out, f64::NEG_INFINITY, protocol);
        encode::error(&mut out, "ERR x\ny");
        assert_eq!(
            scan(ReplyLimits::default(), &out, &[]),
            (vec![(out.len(), Kind::Aggregate)], None)
        );
        assert!(memchr::memmem::find(&out, b"+a  b\r\n").is_some());
        assert!(memchr::memmem::find(&out, b":-9223372036854775808\r\n").is_some());
        if protocol == Protocol::Resp2 {
            assert_is_resp2(&out);
        }
    }
    let mut out = Vec::new();
    encode::attribute(&mut out, 1);
    encode::bulk(&mut out, b"evenkeel.queue");
    encode::integer(&mut out, 3);
    encode::command(&mut out, &[b"GET", b"k"]);
    let mut scanner = ReplyScanner::default();
    assert_eq!(scanner.scan(&out), Ok(Some(out.len())));
    assert_eq!(&out[scanner.body()], b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
}
