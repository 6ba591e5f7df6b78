//! Shares of a plan as whole numbers, for whoever takes nothing else.

use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::split::PlanRow;

/// By site, its parts of `total`: the plan's share, what an unusable site should have had at home.
/// Without a plan all of it is at home.
///
/// Whole numbers by largest remainder (Hamilton's method), ties to the lower index: the sum is
/// `total`, and every number is within 1 of the share's exact part of it.
pub(crate) fn parts(
    row: Option<&PlanRow>,
    home: SiteId,
    is_usable: &[bool],
    total: u32,
) -> Vec<u32> {
    let whole = row.map_or(0, PlanRow::whole_per_1000_s);
    let rate = |site: usize| {
        let can = site != home.index() && is_usable[site];
        row.filter(|_| can).and_then(|row| row.rates_per_1000_s.get(site)).copied().unwrap_or(0)
    };
    let mut rates: Vec<u64> = (0..is_usable.len()).map(rate).collect();
    let elsewhere: u64 = rates.iter().sum();
    // Without a plan, or with one for no demand, home is all there is.
    rates[home.index()] = (whole - elsewhere).max(u64::from(whole == 0));
    let whole = u128::from(whole.max(1));
    let exact = |rate: &u64| u128::from(*rate) * u128::from(total);
    let mut parts: Vec<u32> =
        rates.iter().map(|rate| u32::try_from(exact(rate) / whole).unwrap_or(total)).collect();
    let mut by_remainder: Vec<usize> = (0..rates.len()).collect();
    by_remainder.sort_by_key(|&site| std::cmp::Reverse(exact(&rates[site]) % whole));
    let missing = total - parts.iter().sum::<u32>();
    for site in by_remainder.into_iter().take(missing as usize) {
        parts[site] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(demand: u64, rates: &[u64]) -> PlanRow {
        let origin = SiteId::new(0);
        let rates_per_1000_s = rates.to_vec();
        PlanRow { epoch: 7, origin, demand_per_1000_s: demand, rates_per_1000_s }
    }

    proptest! {
        #[test]
        fn every_share_is_kept_to_within_one_part(
            demand in 0_u64..=1 << 40,
            rates in prop::collection::vec(prop_oneof![Just(0), 0_u64..1 << 36], 2..=16),
            home in 0_usize..2,
            total in prop_oneof![Just(100_u32), Just(1_000_000)],
            usable in prop::collection::vec(any::<bool>(), 16),
        ) {
            let sites = rates.len();
            let home = SiteId::new(home);
            let mut is_usable = usable[..sites].to_vec();
            is_usable[home.index()] = true;
            let plan = PlanRow { origin: home, ..row(demand, &rates) };
            let parts = parts(Some(&plan), home, &is_usable, total);
            prop_assert_eq!(parts.iter().map(|one| u64::from(*one)).sum::<u64>(),
                u64::from(total));
            // The splitter's own shares are the model; those of unusable sites are home's.
            let share = |site: usize| plan.share(SiteId::new(site)).value();
            for site in 0..sites {
                let expected = if plan.whole_per_1000_s() == 0 {
                    f64::from(u8::from(site == home.index()))
                } else if site == home.index() {
                    let others = (0..sites).filter(|&other| other != site && is_usable[other]);
                    1.0 - others.map(share).sum::<f64>()
                } else if is_usable[site] {
                    share(site)
                } else {
                    0.0
                };
                let got = f64::from(parts[site]) / f64::from(total);
                let part = 1.0 / f64::from(total);
                prop_assert!((got - expected).abs() <= part * 1.001, "{site}: {got} {expected}");
                prop_assert!(is_usable[site] || parts[site] == 0);
            }
        }
    }
}
