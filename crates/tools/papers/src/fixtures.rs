//! Reports made by hand, for tests.

use evenkeel_sim::report::RunReport;
use evenkeel_sim::sampler::WindowReport;

/// A run of one request that took a millisecond.
pub(crate) fn any_run() -> RunReport {
    RunReport {
        policy: "any".to_owned(),
        seed: 1,
        requests: 1,
        served: 1,
        failed: 0,
        timeouts: 0,
        optional: 0,
        served_ratio: 1.0,
        optional_ratio: 0.0,
        violations: None,
        mean_ms: 1.0,
        p50_ms: 1.0,
        p95_ms: 1.0,
        p99_ms: 1.0,
        p999_ms: 1.0,
        max_ms: 1.0,
        held: 0,
        retries: 0,
        hedges: 0,
        arrived: 1,
        probes: 0,
        extra_work_ratio: None,
        attempts: 1,
        virtual_s: 1.0,
        events: 1,
        digest: String::new(),
        requests_per_cpu_s: None,
        windows: vec![],
        tiers: vec![],
        moves: 0,
        load: None,
        redirect: None,
        priced: None,
        bill: None,
        placement: None,
        duplicates: None,
    }
}

/// A window that ends then, with calls served, of them with optional content, timed out, and too
/// late or not served.
pub(crate) fn window(
    until_s: f64,
    [served, optional, timeouts, violations]: [u64; 4],
) -> WindowReport {
    WindowReport {
        until_s,
        served,
        optional,
        timeouts,
        failed: 0,
        violations,
        dimmer: None,
        p50_ms: 1.0,
        p95_ms: 1.0,
        p99_ms: 1.0,
        p999_ms: 1.0,
        sites: vec![],
    }
}
