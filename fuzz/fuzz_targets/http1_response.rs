//! Any bytes as the head of a replica's response, read by the engine `native`.
//!
//! Promise: a head, none yet or a refusal, never a panic; the same however much came at first; what
//! is passed on is one head with the same fields.

#![no_main]

use evenkeel_http::promises::of_a_response_head;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| of_a_response_head(data));
