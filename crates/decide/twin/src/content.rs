//! Content: requests that were served with something left out, by which law they took less.
//!
//! Who leaves content out does so in crowded moments, and speeds differ over time too: so services
//! with and without are compared within a second of one replica, where its speed is the same (a
//! regression with a constant for each window; Frisch and Waugh, 1933).

use crate::speeds::Service;
use crate::works::{Seen, Works};

/// Services of a replica in so much time have the same speed, ns.
const WINDOW_NS: u64 = 1_000_000_000;
/// Fewer services of either kind have no law of their own.
const LAW_MIN: usize = 200;

/// What is left out, and what that saves.
#[derive(Clone, PartialEq, Debug)]
pub struct Content {
    /// By how much the logarithm of a work is less without it, in the mean.
    pub lighter: f64,
    /// The law of works without it, each made this much heavier.
    pub lean: Works,
    /// Share of answers with all content: 0 to 1.
    pub full: f64,
}

impl Content {
    /// Works without content of normal scores, as [`Works::table`] has those with it.
    pub fn table(&self, count: usize) -> Vec<f32> {
        let factor = (-self.lighter).exp() as f32;
        self.lean.table(count).into_iter().map(|work| work * factor).collect()
    }
}

/// By how much services without content take less, as a logarithm, from services of each replica in
/// the order in which they began, with whether they were without; `None` where no window has both.
pub(crate) fn lighter(replicas: &[Vec<(Service, bool)>]) -> Option<f64> {
    let (mut sum, mut weight) = (0.0, 0.0);
    for services in replicas {
        let window = |one: &(Service, bool)| one.0.0 / WINDOW_NS;
        for of_one in services.chunk_by(|a, b| window(a) == window(b)) {
            let mut kinds = [(0.0, 0.0); 2];
            for ((_, log), is_lean) in of_one {
                let (count, logs) = &mut kinds[usize::from(*is_lean)];
                *count += 1.0;
                *logs += log;
            }
            let [(full, full_logs), (lean, lean_logs)] = kinds;
            if full > 0.0 && lean > 0.0 {
                let own = full * lean / (full + lean);
                sum += own * (full_logs / full - lean_logs / lean);
                weight += own;
            }
        }
    }
    (weight > 0.0).then(|| sum / weight)
}

/// The laws of works with and without content; one for both where either has too few.
pub(crate) fn laws(mut full: Vec<Seen>, mut lean: Vec<Seen>) -> (Works, Works) {
    if full.len().min(lean.len()) < LAW_MIN {
        full.append(&mut lean);
        let both = Works::new(full);
        return (both.clone(), both);
    }
    (Works::new(full), Works::new(lean))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Rng;

    /// A replica that is slow in every other second, and leaves content out then.
    #[test]
    fn what_content_costs_is_told_apart_from_the_speed_of_who_leaves_it_out() {
        let mut rng = Rng::seeded(1);
        let service = |number: u64| {
            let (at_ns, is_slow) = (number * 1_000_000, number / 1_000 % 2 == 1);
            let is_lean = rng.unit() < if is_slow { 0.8 } else { 0.1 };
            let log = 15.0 + f64::from(u8::from(is_slow)) - 2.0 * f64::from(u8::from(is_lean));
            ((at_ns, log + 0.5 * rng.normal()), is_lean)
        };
        let services: Vec<(Service, bool)> = (0..40_000).map(service).collect();
        let found = lighter(&[services.clone(), Vec::new()]).unwrap();
        // Five standard errors: 0.5 / sqrt(40,000 x 0.12).
        assert!((found - 2.0).abs() < 0.04, "{found}");
        let full: Vec<_> = services.into_iter().filter(|(_, is_lean)| !is_lean).collect();
        assert_eq!(lighter(&[full]), None);
    }

    #[test]
    fn few_have_the_law_of_all() {
        let seen = |log: f64| Seen { log, is_cut: false };
        let all: Vec<Seen> = (0..500).map(|log| seen(f64::from(log))).collect();
        let (full, lean) = laws(all.clone(), all[..10].to_vec());
        assert_eq!(full, lean);
        let (full, lean) = laws(all.clone(), all[..200].to_vec());
        assert_ne!(full, lean);
    }
}
