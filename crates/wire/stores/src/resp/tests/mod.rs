//! What real servers say, models that are slow and obvious, and how fast it is.

mod cluster;
mod corpus;
mod described;
mod differential;
mod document;
mod globs;
mod newer;
mod pausing;
mod repeats;
mod replication;
mod replies;
mod requests;
mod rewriting;
mod server;
mod table;
mod timing;
mod waiting;

use proptest::test_runner::{Config, TestRunner};

use super::request::{Arguments, RequestParser};

/// A runner whose cases are the same every time.
fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let seed = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
    TestRunner::new_with_rng(config, seed)
}

/// A command as an array, written without the code under test.
fn array<T: AsRef<[u8]>>(arguments: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
        bytes.extend(argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Does something with the arguments of a command that is given as words.
pub(super) fn with_arguments<T, R>(words: &[T], act: impl FnOnce(Arguments<'_>) -> R) -> R
where
    T: AsRef<[u8]>,
{
    let bytes = array(words);
    let mut parser = RequestParser::default();
    assert_eq!(parser.parse(&bytes).unwrap(), Some(bytes.len()));
    act(parser.arguments(&bytes))
}

pub(super) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}
