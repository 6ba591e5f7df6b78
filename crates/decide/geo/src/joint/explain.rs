//! Why a plan by price sends requests from one data centre to another, in words.

use super::{Planned, Problem};
use crate::ALL_PPM;

impl Planned {
    /// A sentence for each flow between two data centres, the largest first: the last request that
    /// was sent costs no more there than one more would at home. `names` are theirs; one that is
    /// missing is numbered.
    ///
    /// `Paris sends 11 % to London: one more request costs 0.126 here, the last one 0.042 there.`
    pub fn sentences(&self, problem: &Problem, names: &[impl AsRef<str>]) -> Vec<String> {
        let rates = &self.answer.rates;
        let sites = 0..rates.len();
        let pairs = sites.clone().flat_map(|from| sites.clone().map(move |to| (from, to)));
        let mut pairs: Vec<_> = pairs.filter(|&(i, j)| i != j && rates[i][j] > 0).collect();
        pairs.sort_by_key(|&(from, to)| core::cmp::Reverse(rates[from][to]));
        let name = |site: usize| match names.get(site) {
            Some(name) => name.as_ref().to_owned(),
            None => format!("site {site}"),
        };
        let violations = |ppm: u64| ppm as f64 / f64::from(ALL_PPM);
        let sentence = |(from, to): (usize, usize)| {
            let demand = f64::from(problem.demand()[from].max(1));
            let sent = 100.0 * f64::from(rates[from][to]) / demand;
            format!(
                "{} sends {sent:.0} % to {}: one more request costs {:.3} here, the last one {:.3} \
                 there.",
                name(from),
                name(to),
                violations(self.more[from][from]),
                violations(self.last[from][to]),
            )
        };
        pairs.into_iter().map(sentence).collect()
    }
}
