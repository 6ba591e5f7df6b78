//! Updates as bytes, and servers that refuse, hang, lie or are dead.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::*;

const SOON: Duration = Duration::from_secs(10);

fn records() -> Update {
    let service = |host: &str, weight| Service {
        priority: 0,
        weight,
        port: 443,
        host: format!("{host}.shop.test"),
    };
    Update {
        zone: "shop.test".to_owned(),
        name: "_http._tcp.shop.test".to_owned(),
        ttl: Duration::from_secs(5),
        services: vec![service("london", 8_900), service("ireland", 1_100)],
    }
}

/// A server that makes an answer of a question, once.
fn server(answer: impl FnOnce(Vec<u8>) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut question = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut question).unwrap();
        if let Some(answer) = answer(question) {
            let length = (answer.len() as u16).to_be_bytes();
            stream.write_all(&[&length[..], &answer].concat()).unwrap();
        }
        let _ = stream.read(&mut [0]); // until the other end has had enough
    });
    address
}

/// The head of the answer to a question, with this code.
fn said(question: &[u8], code: u8) -> Vec<u8> {
    [&question[..2], &[0xa8, code], &[0; 8]].concat()
}

async fn told(server: SocketAddr, key: Option<&Key>, within: Duration) -> String {
    let told = update(server, &records(), key, within).await;
    told.map_or_else(|error| error.to_string(), |()| "done".to_owned())
}

/// The RFC's own layout, read by an independent parser.
#[test]
fn a_message_deletes_what_was_there_and_adds_all_records() {
    let (bytes, mac) = message(7, &records(), None, 0).unwrap();
    assert_eq!((bytes[2] >> 3, mac.len()), (5, 0), "the opcode of updates");
    let counts: Vec<u16> =
        bytes[4..12].chunks(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect();
    assert_eq!(counts, [1, 0, 3, 0]);
    let name = wire("_http._tcp.shop.test").unwrap();
    let places: Vec<usize> =
        (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&name)).collect();
    assert_eq!(places.len(), 3);
    let deletion = &bytes[places[0] + name.len()..places[1]];
    assert_eq!(deletion, [0, 33, 0, 255, 0, 0, 0, 0, 0, 0], "all SRV records: RFC 2136, 2.5.2");
    let first = &bytes[places[1] + name.len()..][..16];
    assert_eq!(first[..8], [0, 33, 0, 1, 0, 0, 0, 5]);
    assert_eq!(first[10..], [0, 0, 0x22, 0xc4, 0x01, 0xbb], "priority, weight 8900, port 443");
    // The sections of an update are where those of an answer are, and the parser knows no updates:
    // the deletion has a class that only they have.
    let mut as_answer = [&bytes[..places[0]], &bytes[places[1]..]].concat();
    as_answer[2..4].copy_from_slice(&[0x80, 0]);
    as_answer[8..10].copy_from_slice(&[0, 2]);
    let added = simple_dns::Packet::parse(&as_answer).unwrap().name_servers;
    let read = |record: &simple_dns::ResourceRecord<'_>| {
        let simple_dns::rdata::RData::SRV(srv) = &record.rdata else { panic!("{record:?}") };
        assert_eq!((record.name.to_string().as_str(), record.ttl), ("_http._tcp.shop.test", 5));
        (srv.target.to_string(), srv.priority, srv.weight, srv.port)
    };
    let of = |host: &str, weight| (format!("{host}.shop.test"), 0, weight, 443);
    let expected = [of("london", 8_900), of("ireland", 1_100)];
    assert_eq!(added.iter().map(read).collect::<Vec<_>>(), expected);
}

/// RFC 4231, test case 1, so that it is the hash that servers have.
#[test]
fn signatures_are_hmac_sha_256() {
    let key = Key::new("k", &[0x0b; 20]);
    let tag = hmac::sign(&key.secret, b"Hi There");
    assert_eq!(tag.as_ref()[..4], [0xb0, 0x34, 0x4c, 0x61]);
}

#[tokio::test]
async fn what_a_server_says_is_told_with_the_likely_cause() {
    assert_eq!(told(server(|it| Some(said(&it, 0))), None, SOON).await, "done");
    for (code, words) in [(5, "REFUSED (does"), (9, "NOTAUTH (is"), (10, "NOTZONE"), (2, "SERVF")] {
        let words_of = told(server(move |it| Some(said(&it, code))), None, SOON).await;
        assert!(words_of.contains(words), "{words_of}");
    }
}

#[tokio::test]
async fn a_dead_or_silent_server_and_nonsense_are_told_in_time() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = told(nobody, None, SOON).await;
    assert!(dead.contains("cannot be told"), "{dead}");
    let hung = told(server(|_| None), None, Duration::from_millis(200)).await;
    assert!(hung.ends_with("sent no answer within 0.2 s"), "{hung}");
    let other = |question: Vec<u8>| {
        let id = [question[0], question[1] ^ 1];
        Some([&id[..], &said(&question, 0)[2..]].concat())
    };
    let other = told(server(other), None, SOON).await;
    assert!(other.ends_with("sent the answer to something else"), "{other}");
    let short = told(server(|_| Some(vec![1, 2, 3])), None, SOON).await;
    assert!(short.ends_with("sent what is no DNS message"), "{short}");
}

#[tokio::test]
async fn who_does_not_know_the_key_cannot_say_that_it_is_done() {
    let key = || Key::new("evenkeel", b"a secret of thirty-two bytes 123");
    let bare = told(server(|it| Some(said(&it, 0))), Some(&key()), SOON).await;
    assert!(bare.ends_with("an answer without a signature"), "{bare}");
    // What the key signed as a question is no signature of an answer.
    let mirrored = |mut question: Vec<u8>| {
        question[2] |= 0x80;
        Some(question)
    };
    let mirrored = told(server(mirrored), Some(&key()), SOON).await;
    assert!(mirrored.ends_with("an answer that the key did not sign"), "{mirrored}");
    let refused = told(server(|it| Some(said(&it, 9))), Some(&key()), SOON).await;
    assert!(refused.contains("NOTAUTH"), "{refused}");
}

/// An answer to the question with the signature `MAC` as RFC 8945 (4.2, 4.3, 5.3) has it signed,
/// written out here; and where its time begins and its own signature ends.
fn signed_answer(secret: &[u8], mac: &[u8], at: u64) -> (Vec<u8>, std::ops::Range<usize>) {
    let (name, algorithm) = (b"\x08evenkeel\0", b"\x0bhmac-sha256\0");
    let (any, no_ttl) = ([0, 255], [0; 4]);
    let time = [&at.to_be_bytes()[2..], &[0x01, 0x2c]].concat(); // and 300 s
    let mut answer = said(&[0, 7], 0);
    let length = (mac.len() as u16).to_be_bytes();
    let parts: [&[u8]; 9] =
        [&length, mac, &answer, name, &any, &no_ttl, algorithm, &time, &[0, 0, 0, 0]];
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, &parts.concat());
    answer[11] = 1;
    answer.extend([&name[..], &[0, 250], &any, &no_ttl, &[0, 61], algorithm].concat());
    let begins = answer.len();
    answer.extend([&time[..], &[0, 32], tag.as_ref()].concat());
    let ends = answer.len();
    answer.extend([0, 7, 0, 0, 0, 0]);
    (answer, begins..ends)
}

#[test]
fn an_answer_that_the_key_signed_is_believed_and_none_with_another_bit_or_of_another_time() {
    let (secret, mac, at) = (b"a secret of thirty-two bytes 123", [9; 32], 1_800_000_000);
    let key = Key::new("evenkeel", secret);
    let (answer, signature) = signed_answer(secret, &mac, at);
    let verdict = |answer: &[u8], now_s| read(answer, 7, Some((&key, &mac)), now_s);
    for now_s in [at - 300, at, at + 300] {
        assert_eq!(verdict(&answer, now_s), Ok(Ok(())));
    }
    for now_s in [at - 301, at + 301] {
        assert_eq!(
            verdict(&answer, now_s),
            Err("an answer of another time (are both clocks right?)")
        );
    }
    for byte in (0..HEADER_BYTES).chain(signature) {
        for bit in 0..8 {
            let mut other = answer.clone();
            other[byte] ^= 1 << bit;
            assert_ne!(verdict(&other, at), Ok(Ok(())), "bit {bit} of byte {byte}");
        }
    }
    // What it signed for another question is no answer to this one.
    assert_eq!(
        read(&answer, 7, Some((&key, &[8; 32])), at),
        Err("an answer that the key did not sign")
    );
}

#[test]
fn what_can_be_no_name_is_told() {
    for name in ["", "a..b", &"a".repeat(64), &["abcdefghi"; 30].join(".")] {
        let update = Update { name: name.to_owned(), ..records() };
        assert!(matches!(message(1, &update, None, 0), Err(UpdateError::NoName(_))), "{name}");
    }
}

proptest::proptest! {
    /// Input of a server never causes a panic.
    #[test]
    fn any_bytes_are_an_answer_or_none(bytes in proptest::collection::vec(0_u8.., 0..200)) {
        let key = Key::new("evenkeel", b"secret");
        let mut bytes = bytes;
        if bytes.len() > 12 {
            bytes[..4].copy_from_slice(&[0, 1, 0xa8, 0]);
        }
        let _ = read(&bytes, 1, Some((&key, &[1; 32])), 0);
    }
}
