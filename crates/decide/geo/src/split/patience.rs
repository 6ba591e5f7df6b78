//! How long a request waits at another data centre before it is given up and comes home.
//!
//! **Signal**: how long it has been on its way, beside the objective and the slowest recent
//! replies of that data centre and of home. **Rule**: it is given up so long before the objective
//! that home can still keep it, but no sooner than after twice the slowest recent reply from there,
//! and at the objective at the latest: then it is kept nowhere, and a site that lost the request
//! would never answer. **Why so late**: a request that is given up has cost both sites work.
//! **When it misleads**: a site that suddenly takes longer is given up on before its first reply;
//! so each one given up doubles what is waited for, and all of them are at most a tenth of what is
//! sent away, and 20. Silence of all who work on a request (core's `silent_at`) needs no such
//! bounds: it is of the site, and it is over with the first word. **Cold start**: before the first
//! reply of a site, the objective.

use super::super::epoch::SiteId;
use evenkeel_core::request::redundancy::Budget;
use evenkeel_core::time::{Duration, Instant, nanos};

/// How many times its slowest recent reply a site is waited for in any case.
const TIMES_SLOWEST: u64 = 2;
/// What each reply takes off the slowest known, as in core's silence: what is left is near the
/// 99.8th percentile.
const FORGET: u64 = 512;
/// Requests that may be given up for being late, as a share of those that are sent away.
const SHARE: f64 = 0.1;

/// Until when a request waits where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// Then it is to be asked again; `None` for as long as it takes.
    Until(Option<Instant>),
    /// It is to be given up there and to come home: all who work on it are silent.
    NotForSilent,
    /// The same: the objective can no longer be kept there.
    NotForLate,
}

/// A request that another site was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// That site.
    pub to: SiteId,
    /// When the request came, to home.
    pub arrived_at: Instant,
    /// Whether it waits for as long as it takes unless all who work on it fall silent.
    pub waits_on: bool,
}

/// What is known of how long sites take, and how many requests may still be given up.
#[derive(Clone, Debug)]
pub struct Patience {
    home: SiteId,
    objective_ns: u64,
    /// By site, the slowest recent reply from arrival to head; 0 before the first.
    slowest_ns: Vec<u64>,
    budget: Budget,
}

impl Patience {
    /// Of requests that are sent from `home` to one of so many sites.
    pub fn new(home: SiteId, sites: usize, objective: Duration) -> Self {
        let budget = Budget::of_retries(SHARE);
        Self { home, objective_ns: nanos(objective), slowest_ns: vec![0; sites], budget }
    }

    /// A request leaves for another site.
    #[inline]
    pub fn sent(&mut self, now: Instant) {
        self.budget.deposit(now);
    }

    /// A site's answer to a request began so long after that came.
    #[inline]
    pub fn replied(&mut self, site: SiteId, latency: Duration) {
        let slowest = &mut self.slowest_ns[site.index()];
        *slowest = nanos(latency).max(*slowest - *slowest / FORGET);
    }

    /// Until when a request that may be sent again waits for another site. `silent_at` is when all
    /// who work on it there fall silent.
    pub fn waits(
        &mut self,
        now: Instant,
        sent: &mut Sent,
        silent_at: Option<Instant>,
        is_home_usable: bool,
    ) -> Waits {
        if !is_home_usable || sent.to == self.home {
            return Waits::Until(None); // it would be answered nowhere else
        }
        if silent_at.is_some_and(|at| at <= now) {
            return Waits::NotForSilent;
        }
        let ends_at = self.ends_at(sent);
        if !sent.waits_on && ends_at <= now {
            if self.give_up(sent.to, now.since(sent.arrived_at)) {
                return Waits::NotForLate;
            }
            sent.waits_on = true;
        }
        let ends_at = Some(ends_at).filter(|_| !sent.waits_on);
        Waits::Until([silent_at, ends_at].into_iter().flatten().min())
    }

    /// When a request is given up if nothing was heard of it.
    fn ends_at(&self, sent: &Sent) -> Instant {
        let [home, there] = [self.home, sent.to].map(|site| self.slowest_ns[site.index()]);
        let in_time = self.objective_ns.checked_sub(home).filter(|_| there > 0);
        let wait = in_time.map_or(self.objective_ns, |in_time| {
            in_time.max(there.saturating_mul(TIMES_SLOWEST)).min(self.objective_ns)
        });
        sent.arrived_at.plus_nanos(wait)
    }

    /// A request is to be given up after so long at a site; false when it has to wait on.
    fn give_up(&mut self, at: SiteId, waited: Duration) -> bool {
        let is_granted = self.budget.withdraw();
        if is_granted {
            let slowest = &mut self.slowest_ns[at.index()];
            *slowest = nanos(waited).max(*slowest);
        }
        is_granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: SiteId = SiteId::new(0);
    const AWAY: SiteId = SiteId::new(1);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn after(patience: &Patience) -> u128 {
        let arrived_at = Instant::from_millis(7_000);
        let sent = Sent { to: AWAY, arrived_at, waits_on: false };
        patience.ends_at(&sent).since(arrived_at).as_millis()
    }

    #[test]
    fn a_request_is_given_up_while_home_can_keep_the_objective_but_not_before_its_time() {
        // Slowest reply at home and away, and when it ends of an objective of 800 ms.
        for (home, away, ends) in [
            (0, 0, 800),
            (50, 0, 800), // nothing is known of the site
            (50, 30, 750),
            (0, 30, 800),    // nothing is known of home
            (300, 300, 600), // twice what the site takes
            (300, 500, 800),
            (799, 100, 200),
            (900, 30, 800), // home would be late as well
        ] {
            let mut patience = Patience::new(HOME, 2, ms(800));
            for (site, slowest) in [(HOME, home), (AWAY, away)] {
                patience.replied(site, ms(slowest));
            }
            assert_eq!(after(&patience), ends, "{home} ms at home, {away} ms away");
        }
    }

    #[test]
    fn a_site_that_takes_longer_than_before_is_not_given_up_for_good() {
        let mut patience = Patience::new(HOME, 2, ms(800));
        (patience.replied(HOME, ms(790)), patience.replied(AWAY, ms(20)));
        let mut waits = Vec::new();
        for _ in 0..6 {
            waits.push(after(&patience));
            assert!(patience.give_up(AWAY, ms(after(&patience) as u64)));
        }
        assert_eq!(waits, [40, 80, 160, 320, 640, 800]);
        (0..3_000).for_each(|_| patience.replied(AWAY, ms(20)));
        assert_eq!(after(&patience), 40, "and it is forgotten");
    }

    #[test]
    fn few_are_given_up_and_the_rest_waits() {
        let mut patience = Patience::new(HOME, 2, ms(800));
        let mut given_up = 0;
        for n in 0..1_000 {
            patience.sent(Instant::from_millis(n));
            given_up += u32::from(patience.give_up(AWAY, ms(800)));
        }
        assert!((100..=120).contains(&given_up), "{given_up} of 1,000");
    }
}
