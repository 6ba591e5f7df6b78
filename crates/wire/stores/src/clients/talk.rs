//! What conversations with a store over a connection of our own share.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::clients::error::RemoteError;

/// A connection that broke: the next one may not.
pub(super) fn lost(server: &str, error: &dyn fmt::Display) -> RemoteError {
    RemoteError::passing(format!("{server}: {error} (did the connection break?)"))
}

/// Work that ends in time, or an error that may pass.
pub(super) async fn within<T>(
    server: &str,
    deadline: Duration,
    work: impl Future<Output = Result<T, RemoteError>>,
) -> Result<T, RemoteError> {
    let late = || RemoteError::passing(format!("{server}: no answer within {deadline:?}"));
    tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| Err(late()))
}
