//! A real server is asked in RESP3 and in RESP2: what is converted from one is the other.

use super::server::Server;
use super::{corpus, with_arguments, words};
use crate::resp::Protocol;
use crate::resp::commands::{lookup, shape};
use crate::resp::reply::{Shape, down_convert};

#[test]
fn converted_replies_are_those_of_resp2() {
    let Some(server) = Server::start(&[]) else { return };
    let mut old = server.connect(Protocol::Resp2);
    let mut new = server.connect(Protocol::Resp3);
    let mut differing = 0;
    for line in corpus::COMMANDS {
        let words = words(line);
        old.prepare(corpus::DATA);
        let expected = old.ask(&words);
        old.prepare(corpus::DATA);
        let reply = new.ask(&words);
        let command = lookup(words[0].as_bytes()).unwrap();
        let shape = with_arguments(&words, |arguments| shape(command, arguments));
        let mut converted = Vec::new();
        down_convert(&reply, shape, &mut converted);
        // Seconds pass between the two.
        let is_clock = line.contains("IDLETIME");
        let text = |bytes: &[u8]| match is_clock {
            true => (bytes[0] as char).to_string(),
            false => bytes.escape_ascii().to_string(),
        };
        assert_eq!(text(&converted), text(&expected), "{line}");
        let mut plain = Vec::new();
        down_convert(&reply, Shape::Plain, &mut plain);
        differing += usize::from(plain != expected);
    }
    assert!(differing > 20, "the shapes matter for {differing} commands of the corpus");
}
