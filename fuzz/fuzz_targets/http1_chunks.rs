//! Any bytes as a body in chunks, read by the engine `native`; the first eight say where they are
//! cut.
//!
//! Promise: data, trailers, an end or a refusal, never a panic; the same however they are cut.

#![no_main]

use evenkeel_http::promises::of_chunks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((cuts, bytes)) = data.split_at_checked(8) else { return };
    of_chunks(bytes, cuts.iter().map(|&cut| usize::from(cut)));
});
