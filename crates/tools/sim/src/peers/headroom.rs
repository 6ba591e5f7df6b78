//! Headroom of utilisation: Envoy's policy `load_aware_locality`, alpha in 1.40.
//!
//! **Signal**: utilisation of every locality's hosts, from ORCA reports. **Statistic**: a moving
//! average with a time constant of 5 s, updated every second. **Rule**: all traffic stays at home
//! while home is at most 0.1 above the others' average, but for 3 % that keep reports fresh;
//! otherwise each locality gets its part of `hosts × (1 − utilisation)`, home too. **When it
//! misleads**: it knows neither distance nor objective, every site acts alone on what the others
//! did before, and at the threshold it switches between almost all and an even spread.
//! **Source**: Envoy's documentation of that name, with its defaults.

const TIME_CONSTANT_S: f64 = 5.0;
const THRESHOLD: f64 = 0.1;
const PROBES: f64 = 0.03;

/// One site's view of all.
#[derive(Clone, Debug)]
pub struct Headroom {
    home: usize,
    hosts: Vec<f64>,
    utilisation: Option<Vec<f64>>,
}

impl Headroom {
    /// Time between two updates.
    pub const PERIOD: core::time::Duration = core::time::Duration::from_secs(1);

    /// The view from site `home`, of sites with so many hosts.
    pub const fn new(home: usize, hosts: Vec<f64>) -> Self {
        Self { home, hosts, utilisation: None }
    }

    /// Learns the utilisation of each site over the last period, and says which share of home's
    /// requests goes to each of them.
    pub fn update(&mut self, measured: &[f64]) -> Vec<f64> {
        let gain = 1.0 - (-Self::PERIOD.as_secs_f64() / TIME_CONSTANT_S).exp();
        let smoothed = match self.utilisation.take() {
            None => measured.to_vec(),
            Some(mut smoothed) => {
                for (smoothed, measured) in smoothed.iter_mut().zip(measured) {
                    *smoothed += gain * (measured - *smoothed);
                }
                smoothed
            }
        };
        let shares = shares(self.home, &self.hosts, &smoothed);
        self.utilisation = Some(smoothed);
        shares
    }
}

fn shares(home: usize, hosts: &[f64], utilisation: &[f64]) -> Vec<f64> {
    let sites = || 0..hosts.len();
    let others = || sites().filter(|&site| site != home);
    let other_hosts: f64 = others().map(|site| hosts[site]).sum();
    let headroom = |site: usize| hosts[site] * (1.0 - utilisation[site]).max(0.0);
    let mut weights: Vec<f64> = sites().map(headroom).collect();
    let total: f64 = weights.iter().sum();
    if total == 0.0 {
        weights = hosts.to_vec();
    } else if other_hosts > 0.0 {
        let average =
            others().map(|site| utilisation[site] * hosts[site]).sum::<f64>() / other_hosts;
        if utilisation[home] <= average + THRESHOLD {
            weights.fill(0.0);
            weights[home] = total;
        }
        let away: f64 = others().map(|site| weights[site]).sum();
        let missing = PROBES * weights.iter().sum::<f64>() - away;
        if missing > 0.0 {
            weights[home] = (weights[home] - missing).max(0.0);
            others().for_each(|site| weights[site] += missing * hosts[site] / other_hosts);
        }
    }
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(shares: &[f64], expected: &[f64]) {
        let far = shares.iter().zip(expected).any(|(a, b)| (a - b).abs() > 0.005);
        assert!(!far, "{shares:?} for {expected:?}");
    }

    /// The example of its documentation: 19, 44 and 37 %, and all but 3 % when all are alike.
    #[test]
    fn shares_are_those_of_the_documented_example() {
        let mut view = Headroom::new(0, vec![10.0; 3]);
        close(&view.update(&[0.7, 0.3, 0.4]), &[0.1875, 0.4375, 0.375]);
        let mut view = Headroom::new(0, vec![10.0; 3]);
        close(&view.update(&[0.45, 0.45, 0.45]), &[0.97, 0.015, 0.015]);
        let mut view = Headroom::new(0, vec![10.0; 3]);
        close(&view.update(&[1.0, 1.0, 1.2]), &[1.0 / 3.0; 3]);
    }

    #[test]
    fn a_step_in_utilisation_is_believed_within_its_time_constant() {
        let mut view = Headroom::new(0, vec![1.0; 2]);
        let _ = view.update(&[0.2, 0.2]);
        (0..5).for_each(|_| drop(view.update(&[0.9, 0.2])));
        // 0.9 − 0.7/e
        let smoothed = view.utilisation.as_ref().unwrap()[0];
        assert!((smoothed - (0.9 - 0.7 * (-1.0_f64).exp())).abs() < 1e-9, "{smoothed}");
    }
}
