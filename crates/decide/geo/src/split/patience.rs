//! How long a request waits at another data centre before it is given up and comes home.
//!
//! **Signal**: how long it has been on its way, beside the objective and the slowest recent
//! replies of that data centre and of home. **Rule**: it is given up so long before the objective
//! that home can still keep it, where that leaves the other site twice the time of its slowest
//! reply. Otherwise nobody can keep the objective any more, and it is given up after that time, or
//! at the objective if that is later: a site that lost the request would never answer. **Why so
//! late**: a request that is given up has cost both sites work, and one that is late anyway is
//! answered soonest where it is. **When it misleads**: a site that suddenly takes longer is given
//! up on before its first reply; so each one given up counts as a reply that slow, and all of them
//! are at most a tenth of what is sent away, and 20. Silence of all who work on a request (core's
//! `silent_at`) needs no such bounds: it is of the site, and it is over with the first word. **Cold
//! start**: before the first reply of a site, the objective; what is late there is its failure.

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
    /// No longer: it is to be given up there, and to come home.
    NoLonger,
    /// The same, and it is a failure of those who work on it: the site never answered anything.
    InVain,
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
            return Waits::NoLonger;
        }
        let ends_at = self.ends_at(sent);
        if !sent.waits_on && ends_at <= now {
            if let Some(given_up) = self.give_up(sent.to, now.since(sent.arrived_at)) {
                return given_up;
            }
            sent.waits_on = true;
        }
        let ends_at = Some(ends_at).filter(|_| !sent.waits_on);
        Waits::Until([silent_at, ends_at].into_iter().flatten().min())
    }

    /// When a request is given up if nothing was heard of it.
    fn ends_at(&self, sent: &Sent) -> Instant {
        let [home, there] = [self.home, sent.to].map(|site| self.slowest_ns[site.index()]);
        let in_time = self.objective_ns.saturating_sub(home);
        let least = there.saturating_mul(TIMES_SLOWEST);
        let can_be_kept = there > 0 && least <= in_time;
        let wait = if can_be_kept { in_time } else { least.max(self.objective_ns) };
        sent.arrived_at.plus_nanos(wait)
    }

    /// Gives a request up after so long at a site; `None` when it has to wait on.
    fn give_up(&mut self, at: SiteId, waited: Duration) -> Option<Waits> {
        self.budget.withdraw().then(|| match &mut self.slowest_ns[at.index()] {
            0 => Waits::InVain,
            slowest => {
                *slowest = nanos(waited).max(*slowest);
                Waits::NoLonger
            }
        })
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
            (0, 30, 800), // nothing is known of home
            (300, 250, 500),
            (300, 251, 800), // twice what the site takes is too late for home
            (300, 500, 1_000),
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
        patience.replied(HOME, ms(50));
        patience.replied(AWAY, ms(20));
        let mut waits = Vec::new();
        for _ in 0..3 {
            waits.push(after(&patience));
            let given_up = patience.give_up(AWAY, ms(after(&patience) as u64));
            assert_eq!(given_up, Some(Waits::NoLonger));
        }
        assert_eq!(waits, [750, 1_500, 3_000]);
        (0..3_000).for_each(|_| patience.replied(AWAY, ms(20)));
        assert_eq!(after(&patience), 750, "and it is forgotten");
    }

    #[test]
    fn few_are_given_up_and_the_rest_waits() {
        let mut patience = Patience::new(HOME, 2, ms(800));
        let mut given_up = 0;
        for n in 0..1_000 {
            patience.sent(Instant::from_millis(n));
            let waits = patience.give_up(AWAY, ms(800));
            assert!(waits.is_none_or(|waits| waits == Waits::InVain), "it never answered");
            given_up += u32::from(waits.is_some());
        }
        assert!((100..=120).contains(&given_up), "{given_up} of 1,000");
    }
}
