//! What Cassandra said, line by line.

use std::collections::BTreeMap;

use evenkeel_core::request::ring::{Node, Replication, Ring, Token, murmur};

const TOKENS: &str = include_str!("tokens.txt");
const RINGS: &str = include_str!("rings.txt");

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let pairs = (0..hexadecimal.len()).step_by(2).map(|at| &hexadecimal[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}

#[test]
fn keys_have_the_tokens_that_cassandra_gives_them() {
    for line in TOKENS.lines() {
        let (key, token) = line.split_once(' ').unwrap();
        assert_eq!(murmur::token(&bytes(key)), token.parse().unwrap(), "key {key}");
    }
    assert_eq!(TOKENS.lines().count(), 1_501);
}

#[test]
fn no_key_has_the_token_before_everything_but_the_empty_one() {
    let (least, _) = TOKENS.split_once(' ').unwrap();
    assert_eq!(murmur::token(&bytes(least)), Token(i64::MAX));
    assert_eq!(murmur::token(b""), Token(i64::MIN));
}

fn digit(text: &str, place: usize) -> usize {
    text[place..].parse().expect("a number at the end")
}

fn node(ring: usize, number: usize, text: &str) -> Node {
    let token = |each| murmur::token(format!("{ring}/node/{number}/{each}").as_bytes());
    let tokens = (0..digit(text, 2)).map(token).collect();
    Node { datacenter: text[..1].to_owned(), rack: text[1..2].to_owned(), tokens }
}

fn replication(text: &str) -> Replication {
    if let Ok(replicas) = text.parse() {
        return Replication::Simple { replicas };
    }
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    let datacenter = |pair: &str| (pair[..1].to_owned(), digit(pair, 1));
    Replication::NetworkTopology(pairs.map(datacenter).collect::<BTreeMap<_, _>>())
}

#[test]
fn keys_have_the_replicas_that_cassandra_gives_them_in_its_order() {
    let (mut simple, mut nobody, mut compared) = (0, 0, 0);
    for (number, line) in RINGS.lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let split = words.iter().position(|word| word.starts_with('=')).unwrap();
        let each = words[..split].iter().enumerate();
        let nodes: Vec<_> = each.map(|(place, text)| node(number, place, text)).collect();
        let replication = replication(&words[split][1..]);
        let replicas = Ring::new(&nodes).replicas(&replication);
        simple += usize::from(matches!(replication, Replication::Simple { .. }));
        for (key, expected) in words[split + 1..].iter().enumerate() {
            let token = murmur::token(format!("{number}/key/{key}").as_bytes());
            let letter = |&node: &usize| char::from_digit(node as u32, 36).unwrap();
            let ours: String = replicas.of(token).iter().map(letter).collect();
            let expected = expected.trim_matches('-');
            assert_eq!(ours, expected, "key {key} of ring {number}: {line}");
            nobody += usize::from(expected.is_empty());
            compared += 1;
        }
    }
    assert_eq!(compared, 16_000);
    assert!(simple > 200 && nobody > 200, "{simple} simple, {nobody} keys that nobody holds");
}
