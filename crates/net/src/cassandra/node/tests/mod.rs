//! Fake nodes that do what real ones cannot be made to do: be slow, silent, wrong or gone in the
//! middle of a frame.

mod broken;
pub(in crate::cassandra) mod fake;
mod limited;
mod prepared;
mod shared;
mod tls;

/// Runs a test as a worker runs.
pub(in crate::cassandra) fn run(test: impl Future<Output = ()>) {
    crate::http::engine::worker_runtime().unwrap().block_on(async {
        let limit = std::time::Duration::from_secs(20);
        tokio::time::timeout(limit, test).await.expect("a test ends in time");
    });
}
