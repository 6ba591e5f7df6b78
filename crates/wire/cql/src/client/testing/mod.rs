//! What tests of everything that speaks with nodes share: fake nodes, certificates.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test that uses it")]

pub mod fake;
pub mod tls;

/// Runs a test as a worker runs, for 20 s at most.
///
/// # Panics
/// When the test does, or is not done in time.
pub fn run(test: impl Future<Output = ()>) {
    evenkeel_runtime::accept::worker_runtime().unwrap().block_on(async {
        let limit = std::time::Duration::from_secs(20);
        tokio::time::timeout(limit, test).await.expect("a test ends in time");
    });
}
