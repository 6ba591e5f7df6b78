//! Load between data centres: what every site measures, exchanges and plans, in virtual time.
//!
//! The decisions are core's own: the exchange of rows, the estimator of ways, the planner, the
//! watch over curves and the splitter. What is here gives them their inputs.
//!
//! | file | does |
//! |---|---|
//! | this file | [`Mode`]: the ways to share load that scenarios compare |
//! | `planning` | what each mode asks of core's planner |
//! | `profile` | curves of one site, from its own simulation |
//! | `priced` | plans by price: what they need beside the curves |
//! | `control` | one site's control loop |
//! | `spread` | what a site does with a plan, its own or a peer's |
//! | `tally` | who served whom, and how late |

pub(crate) mod control;
pub(crate) mod learning;
mod planning;
pub(crate) mod priced;
pub(crate) mod profile;
pub(crate) mod spread;
pub(crate) mod tally;

pub use tally::{RedirectReport, SiteReport, SiteWindow};

evenkeel_core::named! {
    /// How load is shared between data centres: a policy's suffix, as in `least-outstanding+kurma`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Mode {
        /// Every request stays where it came (`AllLocal`).
        Local = "local",
        /// The replica policy chooses among the replicas of all sites.
        Everywhere = "everywhere",
        /// Every request stays where it came, unless its site is down: then it goes to the nearest
        /// other.
        Failover = "failover",
        /// Every request goes to the next site: for comparing predictions with measurements.
        Away = "away",
        /// The paper's KurmaPerf: fewest violations, curves as measured.
        Kurma = "kurma",
        /// The paper's KurmaCost: fewest redirects within the target.
        KurmaCost = "kurma-cost",
        /// KurmaPerf with the curves of an M/M/c queue.
        KurmaMmc = "kurma-mmc",
        /// KurmaPerf, followed as slowly as clients follow DNS.
        KurmaDns = "kurma-dns",
        /// KurmaPerf, planned every few minutes from a moving average (Donar).
        KurmaSlow = "kurma-slow",
        /// What Evenkeel does unless told otherwise: KurmaPerf with a cautious load, capped at
        /// saturation.
        Planned = "planned",
        /// The same, and sites may send and receive at once.
        Relayed = "relayed",
        /// The same as `Planned` at the least cost within the target.
        PlannedCost = "planned-cost",
        /// Redirects, dimmers and hedges by one price, curves and load as in `Relayed`.
        Joint = "joint",
        /// The same with the demand of each plan's time known.
        Hindsight = "hindsight",
        /// Each site up to its capacity, then the nearest with room (waterfall by capacity).
        Waterfall = "waterfall",
        /// By headroom of utilisation (Envoy's `load_aware_locality`).
        Headroom = "headroom",
    }
}

impl Mode {
    /// Whether sites exchange what they know.
    pub(crate) const fn is_exchanged(self) -> bool {
        !matches!(self, Self::Local | Self::Failover | Self::Everywhere | Self::Headroom)
    }

    /// Whether requests that another site does not answer come home: not in what was published.
    pub(crate) const fn comes_home(self) -> bool {
        matches!(self, Self::Planned | Self::Relayed | Self::PlannedCost) || self.is_priced()
    }

    /// Whether plans are for the demand that is expected: what was published plans for what was.
    pub(crate) const fn foretells(self) -> bool {
        self.comes_home()
    }

    /// Whether plans are by price.
    pub(crate) const fn is_priced(self) -> bool {
        matches!(self, Self::Joint | Self::Hindsight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_found_by_its_name() {
        for mode in Mode::ALL {
            assert_eq!(Mode::named(mode.name()), Some(mode));
        }
        assert_eq!(Mode::named("hedge"), None);
    }
}
