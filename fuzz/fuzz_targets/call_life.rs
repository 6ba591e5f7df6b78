//! Any bytes as the operations of a driver on a dispatcher, three bytes each; the first byte of
//! all chooses the policy.
//!
//! Promise: a driver that obeys the protocol sees no panic; what is in flight is what was sent and
//! not finished; every call comes to rest; when all calls end, nothing is in flight and none held.

#![no_main]

use evenkeel_core::request::select::{Policy, registry};
use evenkeel_fuzz::Life;
use libfuzzer_sys::fuzz_target;

/// A policy with so few tokens that calls are held most of the time.
const SCARCE: &str = "c3:rate_control=on,tokens_max=1,rate_initial=2,step_max=0.1,rate_min=0.01";

fuzz_target!(|data: &[u8]| {
    let Some((&first, moments)) = data.split_first() else { return };
    let policy = registry::NAMES.get(usize::from(first) % 16).copied().unwrap_or(SCARCE);
    let policy: Policy = policy.parse().expect("it is in the registry");
    let mut life = Life::new(policy.make(u32::from(first)), first.into());
    let (moments, _) = moments.as_chunks();
    moments.iter().for_each(|&moment| life.live(moment));
    life.end_all();
});
