//! Commands in any pieces, and what a real server makes of the same bytes.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::TestCaseError;

use super::server::Server;
use super::{array, runner};
use crate::resp::encode;
use crate::resp::reply::{elements, payload};
use crate::resp::request::{Limits, RequestParser};
use crate::resp::{Protocol, ProtocolError};

/// What came of a stream of bytes: commands, and the error that ended it.
type Outcome = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>, usize);

/// Feeds a parser with pieces that end at these places, and keeps only what is not consumed.
fn parse(limits: Limits, bytes: &[u8], ends: &[usize]) -> Outcome {
    let mut parser = RequestParser::new(limits);
    let (mut commands, mut buffer) = (Vec::<Vec<Vec<u8>>>::new(), Vec::new());
    let (mut fed, mut consumed) = (0, 0);
    let mut ends: Vec<usize> = ends.iter().map(|end| end % (bytes.len() + 1)).collect();
    ends.sort_unstable();
    for end in ends.into_iter().chain([bytes.len()]) {
        buffer.extend(&bytes[fed..end]);
        fed = end;
        loop {
            match parser.parse(&buffer) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    assert!(length > 0 && length <= buffer.len());
                    let arguments = parser.arguments(&buffer);
                    assert_eq!(
                        (arguments.len(), arguments.is_empty()),
                        (parser.len(), parser.is_empty())
                    );
                    if !parser.is_empty() {
                        commands.push(arguments.iter().map(<[u8]>::to_vec).collect());
                        let mut canonical = Vec::new();
                        parser.write_canonical(&buffer, &mut canonical);
                        assert_eq!(canonical, array(commands.last().unwrap()));
                    }
                    buffer.drain(..length);
                    consumed += length;
                }
                Err(error) => return (commands, Some(error), consumed),
            }
        }
    }
    (commands, None, consumed)
}

/// An argument as a word in double quotes, every byte escaped.
fn quoted(argument: &[u8]) -> Vec<u8> {
    let bytes = argument.iter().map(|byte| format!("\\x{byte:02x}"));
    format!("\"{}\"", bytes.collect::<String>()).into_bytes()
}

fn small() -> Limits {
    Limits { argument_bytes_max: 20, arguments_max: 4, inline_bytes_max: 24, command_bytes_max: 60 }
}

#[test]
fn commands_are_the_same_in_any_pieces() {
    let command = vec(vec(any::<u8>(), 0..40), 1..8);
    let commands = vec((command, any::<bool>(), 0..4_usize), 0..6);
    let cases = (commands, vec(any::<usize>(), 0..12));
    runner(300)
        .run(&cases, |(commands, ends)| {
            let mut bytes = Vec::new();
            for (command, is_inline, empties) in &commands {
                bytes.extend([&b""[..], b"\r\n", b"*0\r\n", b"  \n"][*empties]);
                if *is_inline {
                    let words: Vec<Vec<u8>> = command.iter().map(|word| quoted(word)).collect();
                    bytes.extend(words.join(&b' '));
                    bytes.extend(b"\r\n");
                } else {
                    bytes.extend(array(command));
                }
            }
            let limits = Limits::default();
            let (came, error, consumed) = parse(limits, &bytes, &ends);
            let expected: Vec<Vec<Vec<u8>>> = commands.into_iter().map(|(it, ..)| it).collect();
            assert_eq!((came, error, consumed), (expected, None, bytes.len()));
            Ok(())
        })
        .unwrap();
}

/// Bytes that look like commands more often than chance would have it.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    let parts: Vec<&'static [u8]> = vec![
        b"*",
        b"$",
        b"\r\n",
        b"\r",
        b"\n",
        b"0",
        b"1",
        b"2",
        b"3",
        b"*1\r\n",
        b"*2\r\n",
        b"$1\r\n",
        b"$3\r\nabc\r\n",
        b"-",
        b"\"",
        b"'",
        b"\\",
        b" ",
        b"x",
        b"*1\r\n$4\r\nPING\r\n",
        b"\0",
        b"post ",
    ];
    let part = prop_oneof![
        8 => proptest::sample::select(parts).prop_map(<[u8]>::to_vec),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    vec(part, 0..14).prop_map(|parts| parts.concat())
}

#[test]
fn any_bytes_are_the_same_in_any_pieces() {
    let cases = (likely(), vec(any::<usize>(), 0..10), any::<bool>());
    runner(4_000)
        .run(&cases, |(bytes, ends, is_small)| {
            let limits = if is_small { small() } else { Limits::default() };
            let whole = parse(limits, &bytes, &[]);
            let pieces = parse(limits, &bytes, &ends);
            let single = parse(limits, &bytes, &(0..bytes.len()).collect::<Vec<_>>());
            if whole != pieces || whole != single {
                return Err(TestCaseError::fail(format!("{whole:?} {pieces:?} {single:?}")));
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_announced_costs_nothing_and_the_arrived_is_bounded() {
    let mut parser = RequestParser::default();
    let announced = b"*2147483647\r\n$536870912\r\nabc";
    assert_eq!(parser.parse(announced), Ok(None));
    assert!(size_of_val(&parser) < 200);
    let cases: [(&[u8], ProtocolError); 9] = [
        (b"*5\r\n", ProtocolError::InvalidMultibulkLength),
        (b"*1\r\n$21\r\n", ProtocolError::InvalidBulkLength),
        (
            b"*4\r\n$20\r\naaaaaaaaaaaaaaaaaaaa\r\n$20\r\naaaaaaaaaaaaaaaaaaaa\r\n$20\r\n",
            ProtocolError::TooBigRequest,
        ),
        (b"aaaaaaaaaaaaaaaaaaaaaaaaa", ProtocolError::TooBigInline),
        (b"a b c d e\r\n", ProtocolError::InvalidMultibulkLength),
        (b"*1\r\n$1\r\naXX", ProtocolError::UnendedBulk),
        (b"*1\r\n+1\r\n", ProtocolError::ExpectedDollar(b'+')),
        (b"a\0b\r\n", ProtocolError::NulInline),
        (b"POST / HTTP/1.1\r\n", ProtocolError::Http),
    ];
    for (bytes, error) in cases {
        let (_, came, _) = parse(small(), bytes, &[]);
        assert_eq!(came, Some(error), "{}", String::from_utf8_lossy(bytes));
    }
    let host = parse(Limits::default(), b"Host: localhost\r\n", &[]);
    assert_eq!(host.1, Some(ProtocolError::Http));
    let limits = Limits::unauthenticated();
    assert!(
        parse(limits, b"*11\r\n", &[]).1.is_some() && parse(limits, b"*10\r\n", &[]).1.is_none()
    );
}

#[test]
fn a_command_that_was_not_whole_can_be_forgotten() {
    let mut parser = RequestParser::default();
    assert_eq!(parser.parse(b"*2\r\n$3\r\nGET\r\n$1"), Ok(None));
    parser.reset();
    assert_eq!(parser.parse(b"PING\r\n"), Ok(Some(6)));
    assert!(parser.is_inline() && parser.argument(b"PING\r\n", 0) == b"PING");
}

#[test]
fn errors_are_those_of_the_server() {
    let Some(server) = Server::start(&[]) else { return };
    let long = [b'a'; 70_000];
    let cases: [&[u8]; 14] = [
        b"*abc\r\n",
        b"*3000000000\r\n",
        b"*\r\n",
        b"*01\r\n",
        b"*+1\r\n",
        b"*1\r\n:5\r\n",
        b"*1\r\nPING\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$abc\r\n",
        b"*1\r\n$99999999999\r\n",
        b"*1\r\n$\r\n",
        b"\"abc\r\n",
        b"'a'b\r\n",
        &long,
    ];
    for bytes in cases {
        let mut connection = server.connect(Protocol::Resp2);
        connection.send(bytes);
        let theirs = connection.reply().unwrap();
        let error = parse(Limits::default(), bytes, &[]).1.unwrap();
        let mut ours = Vec::new();
        encode::protocol_error(&mut ours, error);
        assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs));
        assert_eq!(connection.reply(), None, "the server closes too");
    }
}

#[test]
fn lines_are_split_as_the_server_does() {
    let Some(server) = Server::start(&[]) else { return };
    let byte = proptest::sample::select(b"ab \"'\\xn01f\t\x0b".to_vec());
    let escapes = br#" "\n\r\t\b\a\x4a\x4G\q\"\\" '\n\'\x41' a"b" c"#.to_vec();
    let lines = prop_oneof![1 => proptest::strategy::Just(escapes), 99 => vec(byte, 0..14)];
    let connection = std::cell::RefCell::new(server.connect(Protocol::Resp2));
    runner(1_500)
        .run(&lines, |line| {
            let mut connection = connection.borrow_mut();
            let bytes = [b"RPUSH k x ", &line[..], b"\r\n"].concat();
            let (commands, error, _) = parse(Limits::default(), &bytes, &[]);
            connection.ask(&["DEL", "k"]);
            connection.send(&bytes);
            let reply = connection.reply().unwrap();
            if let Some(error) = error {
                let mut ours = Vec::new();
                encode::protocol_error(&mut ours, error);
                assert_eq!(ours, reply, "{line:?}");
                *connection = server.connect(Protocol::Resp2);
                return Ok(());
            }
            assert_eq!(reply[0], b':', "{line:?}");
            let reply = connection.ask(&["LRANGE", "k", "0", "-1"]);
            let theirs: Vec<&[u8]> = elements(&reply).map(|it| payload(it).unwrap()).collect();
            assert_eq!(commands[0][2..], theirs, "{line:?}");
            Ok(())
        })
        .unwrap();
}
