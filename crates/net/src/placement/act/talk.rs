//! What conversations with a store over a connection of our own share.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::Trouble;

/// A connection that broke: the next one may not.
pub(super) fn lost(server: &str, error: &dyn fmt::Display) -> Trouble {
    Trouble::passing(format!("{server}: {error} (did the connection break?)"))
}

/// Work that ends in time, or trouble that may pass.
pub(super) async fn within<T>(
    server: &str,
    deadline: Duration,
    work: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let late = || Trouble::passing(format!("{server}: no answer within {deadline:?}"));
    tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| Err(late()))
}
