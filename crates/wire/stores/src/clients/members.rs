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

    /// The same for a question that only looks: what one member cannot tell, or tells of another
    /// cluster, the next one may know.
    ///
    /// # Errors
    /// What all of the members said.
    pub async fn look<T>(
        &self,
        count: usize,
        mut work: impl AsyncFnMut(usize) -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        let passing = |error| RemoteError { may_pass: true, ..error };
        self.any(count, async |member| work(member).await.map_err(passing)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of asking three members that say this, and who was asked.
    fn asked(members: &Members, says: &[Result<u8, RemoteError>; 3]) -> (String, Vec<usize>) {
        let mut order = Vec::new();
        let ask = async |member: usize| {
            order.push(member);
            says[member].clone()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let said = runtime.block_on(members.any(3, ask));
        (said.map_or_else(|error| error.message, |one| one.to_string()), order)
    }

    #[test]
    fn one_bad_member_is_passed_over_and_the_one_that_answered_is_asked_first() {
        let members = Members::default();
        let bad = || Err(RemoteError::passing("it wants TLS"));
        assert_eq!(asked(&members, &[bad(), bad(), Ok(2)]), ("2".to_owned(), vec![0, 1, 2]));
        assert_eq!(asked(&members, &[Ok(0), Ok(1), Ok(2)]), ("2".to_owned(), vec![2]));
        assert_eq!(asked(&members, &[Ok(0), bad(), bad()]), ("0".to_owned(), vec![2, 0]));
        let all = "it wants TLS; it wants TLS; it wants TLS".to_owned();
        assert_eq!(asked(&members, &[bad(), bad(), bad()]), (all, vec![0, 1, 2]));
    }

    #[test]
    fn a_no_of_the_store_ends_it_unless_it_is_only_looked() {
        let no = || Err(RemoteError::lasting("no"));
        let members = Members::default();
        assert_eq!(asked(&members, &[no(), Ok(1), Ok(2)]), ("no".to_owned(), vec![0]));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let look = async |member: usize| if member == 0 { no() } else { Ok(1) };
        assert_eq!(runtime.block_on(members.look(3, look)), Ok(1));
    }
}
