//! Services that a request goes through: how many partitions it asks of each, and with how many
//! servers each serves.

use evenkeel_settings::{Mismatch, Setting, Table};
use serde::Serialize;

use super::{SERVERS_MAX, Scenario};

/// A service of partitions, each with a replica group of its own on the service's ring of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tier {
    /// Different partitions that are asked at once; the slowest answer counts.
    pub parts: usize,
    /// Servers, as many as partitions.
    pub servers: usize,
}

/// Parts of all tiers that one request may come to.
const PARTS_MAX: usize = 10_000;
const TIERS_MAX: usize = 8;

impl Tier {
    pub(super) fn read_all(setting: Setting<'_>) -> Vec<Self> {
        let tiers = setting.list(|item| item.table(Self::read).required());
        let expected = format!("1 to {TIERS_MAX} tiers");
        tiers.check(&expected, |all| (1..=TIERS_MAX).contains(&all.len())).or(Vec::new())
    }

    fn read(table: &mut Table<'_>) -> Self {
        Self {
            parts: table.key("parts").integer().between(1..=PARTS_MAX).required(),
            servers: table.key("servers").integer().between(1..=SERVERS_MAX).required(),
        }
    }
}

impl Scenario {
    /// A tier's first server, and the one after its last.
    pub(crate) fn tier_servers(&self, tier: usize) -> (usize, usize) {
        let first = self.tiers[..tier].iter().map(|tier| tier.servers).sum::<usize>();
        (first, first + self.tiers[tier].servers)
    }

    /// The tier that a server is of.
    pub(crate) fn tier_of(&self, server: usize) -> usize {
        let is_of = |tier: &usize| server < self.tier_servers(*tier).1;
        (0..self.tiers.len()).find(is_of).expect("every server is of a tier")
    }

    /// Servers that call on to another tier, which makes them clients of it.
    pub fn callers(&self) -> usize {
        self.tiers.iter().rev().skip(1).map(|tier| tier.servers).sum()
    }

    /// Parts of each tier that one request comes to.
    fn parts(&self) -> impl Iterator<Item = (Tier, usize)> + '_ {
        self.tiers.iter().scan(1_usize, |parts, tier| {
            *parts = parts.saturating_mul(tier.parts);
            Some((*tier, *parts))
        })
    }

    /// Parts of all tiers that one request comes to; itself where there are no tiers.
    pub(super) fn parts_in_all(&self) -> usize {
        self.parts().fold(0_usize, |sum, (_, parts)| sum.saturating_add(parts)).max(1)
    }

    /// Servers that a request takes to itself: those of the tier that is full first, over its parts
    /// there.
    pub(super) fn servers_for_a_request(&self) -> f64 {
        let servers = self.parts().map(|(tier, parts)| tier.servers as f64 / parts as f64);
        servers.reduce(f64::min).unwrap_or(self.cluster.servers as f64)
    }

    pub(super) fn resolve_tiers(&mut self) {
        if !self.tiers.is_empty() {
            self.cluster.servers = self.tiers.iter().map(|tier| tier.servers).sum();
        }
    }

    pub(super) fn check_tiers(&self, root: &mut Table<'_>) {
        if self.tiers.is_empty() {
            return;
        }
        let mut problem = |came: String, expected: String| {
            root.problem("tiers", Mismatch::new(came, expected));
        };
        for Tier { parts, servers } in &self.tiers {
            let least = self.cluster.replication_factor.max(*parts);
            if *servers < least {
                let came = format!("a tier of {servers} servers");
                let factor = self.cluster.replication_factor;
                let expected = format!("{least} or more for {parts} parts in groups of {factor}");
                problem(came, expected);
            }
        }
        let all = self.parts_in_all();
        if all > PARTS_MAX {
            problem(format!("{all} parts of a request"), format!("at most {PARTS_MAX}"));
        }
        let workload = &self.workload;
        let writes = workload.phases.iter().map(|phase| phase.writes);
        let writes = writes.fold(workload.writes + workload.read_repair, f64::max);
        for (is_there, other) in [
            (!self.replicas.is_empty(), "replicas"),
            (self.geography.is_some(), "sites"),
            (writes > 0.0, "writes or read_repair"),
        ] {
            if is_there {
                problem(format!("tiers beside {other}"), "tiers of slots, one site, reads".into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_settings::Node;

    use super::*;

    fn read(text: &str) -> Result<Scenario, String> {
        let node = Node::parse(text, "x.toml").unwrap();
        Scenario::read(&node).map_err(|problems| problems.to_string())
    }

    #[test]
    fn the_tier_that_is_full_first_bounds_the_requests() {
        let text = "cluster = { concurrency = 4, service_mean = '4ms' }\n\
            tiers = [{ parts = 5, servers = 20 }, { parts = 3, servers = 30 }]";
        let scenario = read(text).unwrap();
        // 20 × 4 / 4 ms over 5 parts would be 4 000, 30 × 4 / 4 ms over 15 parts are 2 000.
        assert!((scenario.capacity() - 2_000.0).abs() < 1e-6, "{}", scenario.capacity());
        assert_eq!((scenario.cluster.servers, scenario.callers()), (50, 20));
        assert_eq!([19, 20, 49].map(|server| scenario.tier_of(server)), [0, 1, 1]);
    }

    #[test]
    fn tiers_that_cannot_be_are_refused() {
        for (text, said) in [
            ("tiers = [{ parts = 5, servers = 4 }]", "a tier of 4 servers"),
            ("tiers = [{ parts = 1, servers = 2 }]", "3 or more for 1 parts in groups of 3"),
            ("tiers = []", "1 to 8 tiers"),
            ("tiers = [{ parts = 2 }]", "servers"),
            (
                "tiers = [{ parts = 200, servers = 200 }, { parts = 200, servers = 200 }]",
                "40200 parts of a request",
            ),
            (
                "tiers = [{ parts = 2, servers = 4 }]\nworkload = { writes = 0.1 }",
                "tiers beside writes",
            ),
            (
                "tiers = [{ parts = 2, servers = 4 }]\ncluster = { servers = 4 }",
                "servers beside tiers",
            ),
            (
                "replicas = [4, 4]\nwork = { optional = '10ms', mandatory = '4ms' }\n\
                 tiers = [{ parts = 1, servers = 4 }]",
                "tiers beside replicas",
            ),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(said), "{said}:\n{refused}");
        }
    }
}
