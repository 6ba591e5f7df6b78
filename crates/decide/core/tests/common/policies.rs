//! The policies under test: every name of the registry, and the variants that run other lines.

use evenkeel_core::request::select::{Policy, Selector, registry};

/// Every policy of the registry, then variants with parameters.
pub(crate) fn all() -> Vec<&'static str> {
    let variants = [
        "c3:rate_control=on",
        "c3:ranking=off,rate_control=on",
        "c3:random_ties=off,weight=150,exponent=2.5",
        "prequal:q_rif=0.84,reuse_max=1",
        "prequal:mode=sync",
        "adaptive:wait=0,spread=1,exponent=1.5",
        "dynamic-snitch:badness=0,reset_min=0.05",
        "peak-ewma:tau_ms=100",
        "pibh:empty_first=on,track=on,reset=off",
    ];
    registry::NAMES.into_iter().chain(variants).collect()
}

/// The policy of one client alone.
pub(crate) fn make(text: &str) -> Box<dyn Selector> {
    text.parse::<Policy>().expect("a policy of the registry").make(1)
}
