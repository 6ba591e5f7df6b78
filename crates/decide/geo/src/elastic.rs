//! How many servers each data centre should have, when they can share load.
//!
//! A threshold controller: it adds a server where violations would pass a threshold, and gives one
//! back when they would stay below a lower one without it. What is new against the controllers of
//! the clouds is the question it asks first: *would violations pass the threshold after
//! redirecting?* So a data centre with spare servers delays the next one's scale-out ([`Outlook`]
//! answers, with [`solve`](super::solve) or for one data centre alone).
//!
//! **Signal.** Predicted violations at the present demand, from curves: not utilisation (it means
//! something else on every service) and not measured latency (it comes after the harm, and
//! redirects change it).
//!
//! **Who grows.** The data centre whose own demand exceeds its own servers the most: the rule of
//! the paper's simulation. Redirects then shrink rather than shift, and nobody grows beyond what
//! it would need alone.
//!
//! **Who shrinks.** Whoever has most room first, if its own requests would then keep the lower
//! threshold and everybody else's the upper one: one data centre between the thresholds does not
//! hold the servers of all.
//!
//! **No flapping.** With constant demand and `in_ppm <= out_ppm` a second step changes nothing:
//! what was given back left the upper threshold kept, so nothing is added; what could not be given
//! back still cannot (`tests`, over random demands).
//!
//! **When it misleads.** It sees only the present: demand that rises faster than servers boot is
//! late everywhere, redirects or not. A server counts as soon as it is ordered, so that a slow boot
//! does not order more and more.
//!
//! Source: Bogdanov et al., "Fast and accurate load balancing for geo-distributed storage
//! systems" (Kurma), SoCC 2018, section 7.2; the clouds' controllers act on one data centre.

/// What the controller asks before it changes anything.
pub trait Outlook {
    /// Whether these servers, all of them serving, keep violations of each data centre's own
    /// requests, wherever they are served, within its parts per million at the present demand.
    /// More servers must never turn a yes into a no.
    fn keeps(&mut self, servers: &[u32], targets_ppm: &[u32]) -> bool;

    /// The load that data centre `site` would have to give away with so many servers to keep this
    /// target alone, in any unit that is the same for all; negative when it has room.
    fn lack(&mut self, site: usize, servers: u32, target_ppm: u32) -> i64;
}

/// Thresholds of an elastic controller, the same for every data centre.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elastic {
    /// A server is added while more violations than this are expected, in parts per million.
    pub out_ppm: u32,
    /// A server is given back when no more violations than this are expected without it; at most
    /// `out_ppm`. The distance of the two is the hysteresis.
    pub in_ppm: u32,
    /// Servers that every data centre keeps.
    pub servers_min: u32,
    /// Servers that no data centre exceeds; at least `servers_min`.
    pub servers_max: u32,
}

impl Elastic {
    /// How many servers each data centre should have now.
    ///
    /// `servers` are those it has, ordered ones included; of them `free[site]` may be given back
    /// now (those that boot may not, nor those that are paid for longer). All ties go to the data
    /// centre with the lowest number.
    ///
    /// # Panics
    /// When `servers` and `free` differ in length.
    pub fn step(&self, servers: &[u32], free: &[u32], outlook: &mut impl Outlook) -> Vec<u32> {
        assert_eq!(servers.len(), free.len(), "one number of free servers for each data centre");
        let mut wanted: Vec<u32> =
            servers.iter().map(|&now| now.clamp(self.servers_min, self.servers_max)).collect();
        self.grow(&mut wanted, outlook);
        // What was added may turn out to be too much when it came for several data centres.
        let left = wanted.iter().zip(servers).zip(free);
        let left = left.map(|((&wanted, &now), &free)| free + wanted.saturating_sub(now)).collect();
        self.release(&mut wanted, left, outlook);
        wanted
    }

    /// Adds servers until the upper threshold is kept or nobody who lacks some may have more.
    fn grow(&self, wanted: &mut [u32], outlook: &mut impl Outlook) {
        let targets = vec![self.out_ppm; wanted.len()];
        while !outlook.keeps(wanted, &targets) {
            let mut most = (0, None);
            for (site, &servers) in wanted.iter().enumerate() {
                let lack = outlook.lack(site, servers, self.out_ppm);
                if servers < self.servers_max && lack > most.0 {
                    most = (lack, Some(site));
                }
            }
            let (_, Some(site)) = most else { return };
            wanted[site] += 1;
        }
    }

    /// Gives servers back, where there is most room first; `left` are those that may go.
    fn release(&self, wanted: &mut [u32], mut left: Vec<u32>, outlook: &mut impl Outlook) {
        let mut targets = vec![self.out_ppm; wanted.len()];
        while let Some(site) = self.roomiest(wanted, &left, outlook) {
            wanted[site] -= 1;
            targets[site] = self.in_ppm;
            if outlook.keeps(wanted, &targets) {
                left[site] -= 1;
            } else {
                // With fewer servers elsewhere it would be no better.
                wanted[site] += 1;
                left[site] = 0;
            }
            targets[site] = self.out_ppm;
        }
    }

    fn roomiest(&self, wanted: &[u32], left: &[u32], outlook: &mut impl Outlook) -> Option<usize> {
        let may = (0..wanted.len()).filter(|&site| left[site] > 0);
        let may = may.filter(|&site| wanted[site] > self.servers_min);
        may.min_by_key(|&site| outlook.lack(site, wanted[site], self.in_ppm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::rng::Rng;

    /// Data centres that serve 10 each per server within 5 %, 8 within 1 %; those who `share` may
    /// use each other's room.
    struct Simple {
        demand: Vec<i64>,
        share: bool,
    }

    impl Outlook for Simple {
        fn keeps(&mut self, servers: &[u32], targets_ppm: &[u32]) -> bool {
            let each = servers.iter().zip(targets_ppm).enumerate();
            let lacks: Vec<i64> =
                each.map(|(site, (&servers, &ppm))| self.lack(site, servers, ppm)).collect();
            if self.share { lacks.iter().sum::<i64>() <= 0 } else { lacks.iter().all(|&l| l <= 0) }
        }

        fn lack(&mut self, site: usize, servers: u32, target_ppm: u32) -> i64 {
            let each = if target_ppm >= 50_000 { 10 } else { 8 };
            self.demand[site] - each * i64::from(servers)
        }
    }

    const PAPER: Elastic =
        Elastic { out_ppm: 50_000, in_ppm: 10_000, servers_min: 1, servers_max: 20 };

    fn step(elastic: Elastic, demand: [i64; 2], servers: [u32; 2], share: bool) -> Vec<u32> {
        elastic.step(&servers, &servers, &mut Simple { demand: demand.to_vec(), share })
    }

    #[test]
    fn between_the_thresholds_nothing_changes() {
        // 2 servers: out above 20; in when 1 server keeps 1 %, which is up to 8.
        for demand in 9..=20 {
            assert_eq!(step(PAPER, [demand, 0], [2, 1], false), [2, 1], "{demand}");
            // Who is between them does not hold the servers of others.
            assert_eq!(step(PAPER, [demand, 0], [2, 9], false), [2, 1], "{demand}");
        }
        assert_eq!(step(PAPER, [21, 0], [2, 1], false), [3, 1]);
        assert_eq!(step(PAPER, [8, 0], [2, 1], false), [1, 1]);
    }

    #[test]
    fn a_jump_is_followed_at_once_and_bounds_are_kept() {
        assert_eq!(step(PAPER, [95, 0], [2, 5], false), [10, 1]);
        assert_eq!(step(PAPER, [1_000, 0], [2, 1], false), [20, 1]);
        assert_eq!(step(PAPER, [0, 0], [0, 30], false), [1, 1]);
    }

    #[test]
    fn room_elsewhere_delays_growth_when_load_is_shared() {
        assert_eq!(step(PAPER, [25, 14], [2, 2], true), [2, 2]);
        assert_eq!(step(PAPER, [25, 14], [2, 2], false), [3, 2]);
        // The one with the greatest lack grows.
        assert_eq!(step(PAPER, [28, 19], [2, 2], true), [3, 2]);
    }

    #[test]
    fn servers_that_are_not_free_stay() {
        let mut outlook = Simple { demand: vec![0, 0], share: false };
        assert_eq!(PAPER.step(&[5, 5], &[2, 0], &mut outlook), [3, 5]);
    }

    #[test]
    fn a_second_step_at_the_same_demand_changes_nothing() {
        let mut rng = Rng::seeded(4);
        for _ in 0..2_000 {
            let demand: Vec<i64> = (0..3).map(|_| rng.below(120) as i64).collect();
            let servers: Vec<u32> = (0..3).map(|_| rng.below(21) as u32).collect();
            let share = rng.below(2) == 1;
            let mut outlook = Simple { demand: demand.clone(), share };
            let first = PAPER.step(&servers, &servers, &mut outlook);
            let second = PAPER.step(&first, &first, &mut outlook);
            assert_eq!(first, second, "demand {demand:?}, servers {servers:?}, share {share}");
        }
    }
}
