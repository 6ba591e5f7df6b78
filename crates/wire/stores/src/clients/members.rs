//! Whichever member of a cluster answers.

use std::cell::Cell;

use super::error::RemoteError;

/// The members of a cluster, asked one after another, first the one that answered last.
#[derive(Debug, Default)]
pub struct Members {
    preferred: Cell<usize>,
}

impl Members {
    /// Something done at one of `count` members. One that cannot do it (it does not answer, is
    /// something else, wants TLS) is passed over; a no of the store ends it.
    ///
    /// # Errors
    /// The store's no, or what all of the members said.
    pub async fn any<T>(
        &self,
        count: usize,
        mut work: impl AsyncFnMut(usize) -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        let first = self.preferred.get();
        let mut said = Vec::new();
        for member in (0..count).map(|place| (first + place) % count) {
            match work(member).await {
                Err(error) if error.may_pass => said.push(error.message),
                done => {
                    self.preferred.set(member);
                    return done;
                }
            }
        }
        if said.is_empty() {
            return Err(RemoteError::lasting("there are no members to ask"));
        }
        Err(RemoteError::passing(said.join("; ")))
    }
}
