//! What the log says of an upstream's replicas, once for each change.
//!
//! A replica that fails now and then is not worth a line; one that gets no requests any more is,
//! and so is an upstream without any that may be used.

use evenkeel_settings::address::ServerAddress;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_core::request::safeguards::Distrust;

use super::ReplicaState;

/// What was said last of one upstream.
#[derive(Debug)]
pub(super) struct Said {
    upstream: String,
    is_usable: AtomicBool,
}

/// The slots of which a worker has changed its mind for good reason, and what it thinks now.
pub(super) fn changes(
    before: &[ReplicaState],
    now: &[ReplicaState],
) -> Vec<(usize, Option<Distrust>)> {
    // Suspicion for a single failure comes and goes within a second.
    let lasting = |state: &ReplicaState| state.distrust.filter(|it| *it != Distrust::Failing);
    let before = before.iter().map(lasting).chain(std::iter::repeat(None));
    let pairs = before.zip(now.iter().map(lasting)).enumerate();
    pairs.filter(|(_, (before, now))| before != now).map(|(slot, (_, now))| (slot, now)).collect()
}

impl Said {
    pub(super) fn new(upstream: &str) -> Self {
        Self { upstream: upstream.to_owned(), is_usable: AtomicBool::new(true) }
    }

    pub(super) fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Says what is new.
    pub(super) fn tell(
        &self,
        addresses: &[ServerAddress],
        changes: &[(usize, Option<Distrust>)],
        is_usable: bool,
    ) {
        let upstream = &*self.upstream;
        for (slot, distrust) in changes {
            let Some(replica) = addresses.get(*slot) else { continue }; // of another site
            match distrust {
                None => tracing::info!(upstream, %replica, "the replica gets requests again"),
                Some(why) => {
                    let why = words(*why);
                    tracing::warn!(upstream, %replica, "the replica gets no requests: {why}");
                }
            }
        }
        if self.is_usable.swap(is_usable, Ordering::Relaxed) == is_usable || addresses.is_empty() {
            return;
        }
        if is_usable {
            tracing::info!(upstream, "a replica may be used again");
        } else {
            let count = addresses.len();
            tracing::error!(
                upstream,
                "none of its {count} replicas is well: all are down, silent or failing"
            );
        }
    }
}

const fn words(distrust: Distrust) -> &'static str {
    match distrust {
        Distrust::Ejected => "it failed several times in a row",
        Distrust::Silent => "it owes responses and sends none",
        Distrust::Failing => "too many of its recent responses were failures",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_a_single_failure_not_at_all() {
        let state = |distrust| ReplicaState { distrust, ..ReplicaState::default() };
        let well = [state(None), state(None)];
        let failing = [state(Some(Distrust::Failing)), state(Some(Distrust::Silent))];
        assert_eq!(changes(&[], &well), []);
        assert_eq!(changes(&well, &failing), [(1, Some(Distrust::Silent))]);
        assert_eq!(changes(&failing, &failing), []);
        assert_eq!(changes(&failing, &well), [(1, None)]);
    }
}
