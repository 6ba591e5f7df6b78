//! What tests of the program share: the program.

#![allow(dead_code, clippy::unwrap_used, reason = "each test takes what it needs, and may fail")]

use std::process::{Command, Output};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_evenkeel");

/// The program with these arguments, to its end.
pub(crate) fn evenkeel(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

/// What was said in an output.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
