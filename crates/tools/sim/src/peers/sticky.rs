//! A plan, followed as slowly as clients follow DNS.
//!
//! Clients stay with the address they have until their session ends, so that only some of them can
//! be sent elsewhere: 1.3 % of a site's demand per second in the paper (Kurma, section 7.1.2, after
//! measurements of sessions).

use evenkeel_geo::split::PlanRow;

/// The shares of one site's requests, as they follow its plans.
#[derive(Clone, Debug)]
pub struct Sticky {
    home: usize,
    shares: Vec<f64>,
}

impl Sticky {
    /// All at home, of so many sites.
    pub fn new(home: usize, sites: usize) -> Self {
        let mut shares = vec![0.0; sites];
        shares[home] = 1.0;
        Self { home, shares }
    }

    /// What becomes of a plan when at most this share of the demand changes its destination.
    #[must_use]
    pub fn follow(&mut self, plan: &PlanRow, share_max: f64) -> PlanRow {
        let whole = plan.whole_per_1000_s() as f64;
        if whole == 0.0 {
            return plan.clone();
        }
        let mut wanted: Vec<f64> =
            plan.rates_per_1000_s.iter().map(|rate| *rate as f64 / whole).collect();
        wanted[self.home] += 1.0 - wanted.iter().sum::<f64>();
        let change: f64 =
            wanted.iter().zip(&self.shares).map(|(wanted, now)| (wanted - now).max(0.0)).sum();
        let part = if change > share_max { share_max / change } else { 1.0 };
        for (now, wanted) in self.shares.iter_mut().zip(&wanted) {
            *now += part * (wanted - *now);
        }
        let demand = plan.demand_per_1000_s as f64;
        let rates = self.shares.iter().map(|share| (share * demand) as u64).collect();
        PlanRow { rates_per_1000_s: rates, ..plan.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_geo::epoch::SiteId;

    #[test]
    fn shares_move_by_no_more_than_the_limit_and_arrive() {
        let plan = |rates: [u64; 3]| PlanRow {
            epoch: 1,
            origin: SiteId::new(0),
            demand_per_1000_s: 1_000,
            rates_per_1000_s: rates.to_vec(),
        };
        let mut sticky = Sticky::new(0, 3);
        let first = sticky.follow(&plan([700, 200, 100]), 0.1);
        // A tenth moves, in the proportion of the plan.
        assert!(first.rates_per_1000_s[1].abs_diff(66) <= 1, "{first:?}");
        let second = sticky.follow(&plan([700, 200, 100]), 0.1);
        let third = sticky.follow(&plan([700, 200, 100]), 0.11);
        assert!(second.rates_per_1000_s[2].abs_diff(66) <= 1, "{second:?}");
        for (rate, planned) in third.rates_per_1000_s.iter().zip([700_u64, 200, 100]) {
            assert!(rate.abs_diff(planned) <= 1, "{third:?}");
        }
    }
}
