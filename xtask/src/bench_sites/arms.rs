//! The sites, and who says where a request is served.

use std::path::PathBuf;

/// Sites by their names for Evenkeel, and what the cluster calls them.
pub(super) const SITES: [(&str, &str); 3] =
    [("london", "east"), ("ireland", "west"), ("frankfurt", "far")];

/// A file of `evenkeel profile`, and what it says.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) path: PathBuf,
    /// The highest load at which most requests are in time. A profile's saturation is where queues
    /// grow within a step: ten seconds of a tenth too much look well, minutes do not.
    pub(super) capacity_per_s: f64,
    /// Load per second, and the share of late requests there.
    pub(super) curve: Vec<(f64, f64)>,
}

/// A way to share load.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    pub(super) sharing: Sharing,
    /// Whether it is measured unless words say otherwise.
    pub(super) is_usual: bool,
}

/// By what an arm divides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Every request is served where it comes.
    Local,
    /// Each site sends a third of its requests to each.
    Uniform,
    /// Fixed shares, from the profile and the demand.
    Split,
    /// Evenkeel's plans, with the profile.
    Plan,
    /// Evenkeel's plans, without.
    Blank,
    /// Evenkeel's plans by the profile as it is: `learn = false`.
    Fixed,
}

pub(super) const LOCAL: &str = "local";

pub(super) const ARMS: [Arm; 6] = [
    Arm { name: LOCAL, sharing: Sharing::Local, is_usual: true },
    Arm { name: "uniform", sharing: Sharing::Uniform, is_usual: true },
    Arm { name: "split", sharing: Sharing::Split, is_usual: true },
    Arm { name: "plan", sharing: Sharing::Plan, is_usual: true },
    Arm { name: "blank", sharing: Sharing::Blank, is_usual: false },
    Arm { name: "fixed", sharing: Sharing::Fixed, is_usual: true },
];

/// Which share of each site's requests each site serves.
pub(super) type Shares = [[f64; 3]; 3];

impl Arm {
    /// Whether sites themselves decide.
    pub(super) fn is_planned(&self) -> bool {
        matches!(self.sharing, Sharing::Plan | Sharing::Blank | Sharing::Fixed)
    }

    /// Whether users ask their own site alone.
    pub(super) fn is_at_home(&self) -> bool {
        matches!(self.sharing, Sharing::Local | Sharing::Plan)
    }

    /// Where users' requests go: with plans, to their own site, which sends them on.
    pub(super) fn shares(&self, split: &Shares) -> Shares {
        match self.sharing {
            Sharing::Local | Sharing::Plan | Sharing::Blank | Sharing::Fixed => {
                [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
            }
            Sharing::Uniform => [[1.0 / 3.0; 3]; 3],
            Sharing::Split => *split,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_served_once() {
        let split = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        for arm in &ARMS {
            for row in arm.shares(&split) {
                assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{}", arm.name);
            }
        }
    }
}
