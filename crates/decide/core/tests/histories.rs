//! Random lives: every policy is driven through histories of calls, failures, cancels, abandoned
//! clients, strays, mirrors and plans, beside a slow model that keeps its books in vectors.
//!
//! | module | holds |
//! |---|---|
//! | `moments` | what may befall a fleet |
//! | `history` | the driver, who does it and compares |
//! | `model` | the books of one call |
//! | `watched` | the policy as it is watched |
//! | `fallback` | who is asked when nobody of a group can be |
//! | `moves` | requests whose replica says that they must wait |
//! | `rescues` | requests at replicas that say nothing |
//! | `promises` | what deserves a test of its own |
//!
//! `PROPTEST_CASES` sets the number of histories per policy.

#[path = "histories/fallback.rs"]
mod fallback;
#[path = "histories/history.rs"]
mod history;
#[path = "histories/model.rs"]
mod model;
#[path = "histories/moments.rs"]
mod moments;
#[path = "histories/moves.rs"]
mod moves;
#[path = "common/policies.rs"]
mod policies;
#[path = "histories/promises.rs"]
mod promises;
#[path = "histories/rescues.rs"]
mod rescues;
#[path = "histories/watched.rs"]
mod watched;

use std::cell::Cell;

use history::History;
use moments::moments;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const HISTORIES: u32 = 64;
/// Policies with so few tokens that calls are held most of the time.
const SCARCE: [&str; 3] = [
    "c3:rate_control=on,tokens_max=1,rate_initial=2,step_max=0.1,rate_min=0.01",
    "c3:ranking=off,rate_control=on,tokens_max=2,rate_initial=1,step_max=0.1,rate_min=0.01",
    "c3-absim:tokens_max=1,rate_initial=2,step_max=0.1,rate_min=0.01",
];

fn histories(hedging: bool) {
    let from_environment = ProptestConfig::default().cases;
    let untouched = 256;
    let cases = if from_environment == untouched { HISTORIES } else { from_environment };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    for policy in policies() {
        // Few calls are at a replica that is worse than others which are known: it takes more.
        let may_move = policy == "adaptive";
        let config = ProptestConfig { cases: cases << (u32::from(may_move) * 2), ..config.clone() };
        let mut runner = TestRunner::new(config);
        let (seen, moves) = (Cell::new((0, 0, 0)), Cell::new(0));
        let others: Vec<_> = policies().collect();
        let lived = runner.run(&prop::collection::vec(moments(), 1..250), |moments| {
            let mut history = History::new(policy, hedging, others.clone());
            moments.iter().for_each(|moment| history.live(moment));
            let counted = history.drain();
            let (held, retries, hedges) = seen.get();
            moves.set(moves.get() + counted.moves);
            seen.set((held + counted.held, retries + counted.retries, hedges + counted.hedges));
            Ok(())
        });
        if let Err(failure) = lived {
            panic!("{policy}: {failure}");
        }
        let (held, retries, hedges) = seen.get();
        let cases = u64::from(cases);
        let moves = moves.get();
        assert!(!may_move || moves > cases / 16, "{policy}: {moves} moves");
        assert!(retries > cases / 4, "{policy}: {retries} retries were put to the test");
        assert!(hedges > cases / 8 || !hedging, "{policy}: {hedges} hedges");
        assert!(held > cases / 8 || !SCARCE.contains(&policy), "{policy}: {held} were held");
    }
}

/// All that are put to the test, and that any of them may be replaced by.
fn policies() -> impl Iterator<Item = &'static str> {
    policies::all().into_iter().chain(SCARCE)
}

#[test]
fn every_policy_keeps_its_books_through_random_histories() {
    histories(false);
}

#[test]
fn every_policy_keeps_its_books_when_requests_are_hedged() {
    histories(true);
}
