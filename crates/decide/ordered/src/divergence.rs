//! Which duplicates differ from the others, and when keys are compared.
//!
//! **Signal**: what all live duplicates of a partition say of one key *at one position* in the
//! order of writes. Each has done the same writes in the same order, so what they say is equal; no
//! time passes between the questions as far as data is concerned. **Why not the answers that
//! clients get?** They come from different positions, in any order (`SMEMBERS`), or by chance
//! (`SRANDMEMBER`): such an answer that differs is only a reason to compare its key. **When it
//! misleads**: a deadline passes at each duplicate by its own clock, so keys whose deadline is near
//! tell nothing (`EXPIRING_WITHIN_MS`), nor do deadlines that differ a little. **Who is odd**: who
//! differs from a majority of those that were asked. Of two that differ nobody can tell. Who lost
//! the epoch that fences was emptied, whatever the others say. **Recovery**: who is odd is filled
//! again from the others.
//!
//! **Pace**: a number of keys per second while clients ask, and a batch now and then while nobody
//! does.
//!
//! **Source**: anti-entropy of Dynamo (DeCandia et al. 2007, section 4.7) and `nodetool repair`
//! compare trees of hashes, since their replicas are not at one position. These are, so a sample of
//! keys at a time will do.

use super::ServerSet;
use evenkeel_core::time::{Duration, Instant};

/// A deadline that is no further away, or past, tells nothing: clocks differ.
const EXPIRING_WITHIN_MS: i64 = 10_000;
/// Deadlines of one key that differ by no more are equal.
const DEADLINES_APART_MS_MAX: i64 = 1_000;
/// Keys that are asked for at once, so that no client waits long behind them.
pub const KEYS_AT_ONCE: u32 = 16;
/// How often keys are compared while nobody asks anything.
const IDLE_EVERY: Duration = Duration::from_secs(60);
/// Between two passes over all keys, at least.
const PASS_EVERY: Duration = Duration::from_secs(1);
/// After answers differed for nothing, so long for no other.
const QUIET: Duration = Duration::from_secs(1);

/// What one duplicate says of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Who.
    pub server: usize,
    /// What the key holds, in short.
    pub digest: u64,
    /// Its deadline, in ms since 1970; -1: none, -2: no such key.
    pub expires_unix_ms: i64,
}

/// What comes of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All say the same.
    Equal,
    /// It is about to expire: nothing can be told.
    Expiring,
    /// These differ from a majority.
    Odd(ServerSet),
    /// They differ, and nobody can tell who is right.
    Undecided,
}

impl Statement {
    fn is_expiring(&self, now_unix_ms: i64) -> bool {
        (0..=now_unix_ms.saturating_add(EXPIRING_WITHIN_MS)).contains(&self.expires_unix_ms)
    }

    fn agrees(&self, other: &Self) -> bool {
        let (one, two) = (self.expires_unix_ms, other.expires_unix_ms);
        let is_same_deadline =
            one == two || one.min(two) >= 0 && one.abs_diff(two) <= DEADLINES_APART_MS_MAX as u64;
        self.digest == other.digest && is_same_deadline
    }
}

/// Compares what duplicates said of a key at one position.
pub fn compare(statements: &[Statement], now_unix_ms: i64) -> Verdict {
    let agreeing = |one: &Statement| -> ServerSet {
        statements.iter().filter(|it| it.agrees(one)).map(|it| it.server).collect()
    };
    let all: ServerSet = statements.iter().map(|it| it.server).collect();
    let Some(most) = statements.iter().map(agreeing).max_by_key(|it| it.len()) else {
        return Verdict::Equal;
    };
    if most == all {
        return Verdict::Equal;
    }
    if statements.iter().any(|it| it.is_expiring(now_unix_ms)) {
        return Verdict::Expiring;
    }
    if most.len() > all.len() / 2 { Verdict::Odd(all.without(most)) } else { Verdict::Undecided }
}

/// What a client may be told of an access whose answers differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agreement {
    /// Nothing yet: others may still answer.
    Waits,
    /// What a majority says.
    Majority(u64),
    /// What most say, the first where equal: nobody else will answer.
    Most(u64),
}

/// Which of these answers to one access at one position is told, by their digests, in the order in
/// which they came first. So a client that waits for a majority never gets what only one says.
pub fn agree(answers: &[(ServerSet, u64)], owed: ServerSet, voters: ServerSet) -> Agreement {
    let count = |who: ServerSet| who.and(voters).len();
    let most = answers.iter().rev().max_by_key(|(who, _)| count(*who));
    match most {
        Some(&(who, digest)) if count(who) > voters.len() / 2 => Agreement::Majority(digest),
        Some(&(_, digest)) if owed.and(voters).is_empty() => Agreement::Most(digest),
        _ => Agreement::Waits,
    }
}

/// Who is to be filled again of those live that were `emptied`: all of them, as long as there is
/// something to fill them from, which is another one or the log.
pub fn refillable(live: ServerSet, emptied: ServerSet, is_log_whole: bool) -> ServerSet {
    let emptied = live.and(emptied);
    if is_log_whole || !live.without(emptied).is_empty() { emptied } else { ServerSet::EMPTY }
}

/// When keys are compared.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    keys_per_second: u32,
    next: Instant,
    /// Nobody asks anything: then so late.
    idle_next: Instant,
    accesses: u64,
    quiet_until: Instant,
}

impl Pace {
    /// So many keys per second; 0: none but those that answers differed in.
    pub const fn new(keys_per_second: u32) -> Self {
        Self {
            keys_per_second,
            next: Instant::ZERO,
            idle_next: Instant::ZERO,
            accesses: 0,
            quiet_until: Instant::ZERO,
        }
    }

    /// How long to wait for the next keys when there were so many `accesses` so far; `None`: until
    /// an answer differs.
    pub fn within(&self, now: Instant, accesses: u64) -> Option<Duration> {
        let next = if accesses == self.accesses { self.idle_next } else { self.next };
        (self.keys_per_second > 0).then(|| next.since(now))
    }

    /// So many keys are compared now, after so many accesses; with the last ones of all a pass
    /// ends.
    pub fn compared(&mut self, now: Instant, accesses: u64, keys: u32, is_last: bool) {
        let rate = self.keys_per_second.max(1);
        let least = if is_last { PASS_EVERY } else { Duration::ZERO };
        let pause = Duration::from_secs(1).saturating_mul(keys.max(KEYS_AT_ONCE)) / rate;
        self.next = now + pause.max(least);
        self.idle_next = now + IDLE_EVERY.max(pause);
        self.accesses = accesses;
    }

    /// Answers differed, and their keys were compared.
    pub fn suspected(&mut self, now: Instant, was_right: bool) {
        self.quiet_until = if was_right { now } else { now + QUIET };
    }

    /// How long keys whose answers differed wait until they are compared.
    pub fn quiet(&self, now: Instant) -> Duration {
        self.quiet_until.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn verdict(said: &[(u64, i64)]) -> Verdict {
        let statement =
            |(server, &(digest, expires_unix_ms))| Statement { server, digest, expires_unix_ms };
        compare(&said.iter().enumerate().map(statement).collect::<Vec<_>>(), NOW)
    }

    fn odd<const N: usize>(servers: [usize; N]) -> Verdict {
        Verdict::Odd(servers.into_iter().collect())
    }

    #[test]
    fn who_differs_from_a_majority_is_odd() {
        let far = NOW + EXPIRING_WITHIN_MS + 1;
        for (said, expected) in [
            (&[][..], Verdict::Equal),
            (&[(1, -1)], Verdict::Equal),
            (&[(1, -1), (1, -1), (1, -1)], Verdict::Equal),
            (&[(1, -1), (2, -1), (1, -1)], odd([1])),
            (&[(2, -1), (1, -1), (1, -1)], odd([0])),
            (&[(1, -1), (1, -1), (0, -2)], odd([2])),
            (&[(1, -1), (1, -1), (1, far)], odd([2])),
            (&[(1, -1), (1, -1), (1, -1), (2, -1), (3, -1)], odd([3, 4])),
            // Nobody can tell.
            (&[(1, -1), (2, -1)], Verdict::Undecided),
            (&[(1, -1), (1, -1), (2, -1), (2, -1)], Verdict::Undecided),
            (&[(1, -1), (2, -1), (3, -1)], Verdict::Undecided),
            // Deadlines by clocks that differ a little.
            (&[(1, far), (1, far + 1_000), (1, far)], Verdict::Equal),
            (&[(1, far), (1, far + 1_001), (1, far)], odd([1])),
        ] {
            assert_eq!(verdict(said), expected, "{said:?}");
        }
    }

    #[test]
    fn what_is_about_to_expire_tells_nothing() {
        let near = NOW + EXPIRING_WITHIN_MS;
        for deadline in [near, NOW, NOW - 5_000] {
            let gone_at_one = [(1, deadline), (1, deadline), (0, -2)];
            assert_eq!(verdict(&gone_at_one), Verdict::Expiring, "{deadline}");
        }
        assert_eq!(verdict(&[(1, near + 1), (1, near + 1), (0, -2)]), odd([2]));
    }

    #[test]
    fn what_only_one_says_is_not_told_while_others_may_answer() {
        let set = |servers: &[usize]| servers.iter().copied().collect::<ServerSet>();
        let voters = set(&[0, 1, 2]);
        for (answers, owed, expected) in [
            (&[(set(&[0]), 7), (set(&[1]), 8)][..], set(&[2]), Agreement::Waits),
            (&[(set(&[0]), 7), (set(&[1, 2]), 8)], set(&[]), Agreement::Majority(8)),
            (&[(set(&[0, 1]), 7)], set(&[2]), Agreement::Majority(7)),
            (&[(set(&[0]), 7), (set(&[1]), 8)], set(&[]), Agreement::Most(7)),
            // A guest does not count.
            (&[(set(&[0, 3]), 7), (set(&[1]), 8)], set(&[2]), Agreement::Waits),
            (&[(set(&[0]), 7), (set(&[1]), 8)], set(&[3]), Agreement::Most(7)),
        ] {
            assert_eq!(agree(answers, owed, voters), expected, "{answers:?} {owed:?}");
        }
    }

    #[test]
    fn who_was_emptied_is_filled_again_from_another_or_the_log() {
        let live: ServerSet = (0..3).collect();
        let one = ServerSet::only(1);
        assert_eq!(refillable(live, one, false), one);
        assert_eq!(refillable(live, live, false), ServerSet::EMPTY, "there is nothing else");
        assert_eq!(refillable(live, live, true), live);
        assert_eq!(refillable(live.without(one), one, false), ServerSet::EMPTY, "it is away");
    }

    #[test]
    fn keys_are_compared_at_their_pace_and_hardly_ever_while_nobody_asks() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut pace = Pace::new(100);
        assert_eq!(pace.within(at(0), 1), Some(ms(0)));
        pace.compared(at(1_000), 1, 16, false);
        assert_eq!(pace.within(at(1_000), 1), Some(ms(60_000)), "nobody asked anything");
        assert_eq!(pace.within(at(1_000), 2), Some(ms(160)));
        pace.compared(at(1_160), 2, 50, false);
        assert_eq!(pace.within(at(1_160), 3), Some(ms(500)), "more came than were asked for");
        pace.compared(at(2_000), 3, 2, true);
        assert_eq!(pace.within(at(2_100), 4), Some(ms(900)), "few keys, one pass per second");
        assert_eq!(Pace::new(0).within(at(9_000), 9), None);
    }

    #[test]
    fn answers_that_differ_for_nothing_are_not_followed_for_a_while() {
        let at = Instant::from_millis;
        let mut pace = Pace::new(0);
        assert_eq!(pace.quiet(at(500)), Duration::ZERO);
        pace.suspected(at(500), false);
        assert_eq!(pace.quiet(at(700)), Duration::from_millis(800));
        pace.suspected(at(1_500), true);
        assert_eq!(pace.quiet(at(1_500)), Duration::ZERO);
    }
}
