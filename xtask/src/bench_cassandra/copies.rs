//! Second copies of requests, as proxy and driver count them.

use anyhow::{Context as _, Result};

use crate::bench::process::{self, Workbench};

/// Second copies that something of ours has sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Copies {
    pub(crate) sent: f64,
    /// Whose answer was the first.
    pub(crate) won: f64,
    /// That were due and not sent, for the budget or the gate.
    pub(crate) denied: f64,
}

impl Copies {
    /// What the proxy's metrics say.
    pub(super) fn of_proxy(bench: &Workbench) -> Result<Self> {
        let text = process::get(bench.ports()[1], "/metrics").context("the proxy's metrics")?;
        Self::read(&text).with_context(|| format!("the proxy's metrics: got `{text}`"))
    }

    fn read(metrics: &str) -> Option<Self> {
        let value = |result| {
            let name = format!("evenkeel_hedges_total{{upstream=\"store\",result=\"{result}\"}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&name))?.trim().parse().ok()
        };
        Some(Self { sent: value("sent")?, won: value("won")?, denied: value("denied")? })
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            won: self.won - before.won,
            denied: self.denied - before.denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_read_and_counted_from_a_moment_on() {
        let line = |result, value| {
            format!("evenkeel_hedges_total{{upstream=\"store\",result=\"{result}\"}} {value}\r\n")
        };
        let text = [line("sent", 139), line("won", 25), line("denied", 26)].concat();
        let copies = Copies::read(&text).unwrap();
        let before = Copies { sent: 100.0, won: 20.0, denied: 26.0 };
        assert_eq!(copies.since(before), Copies { sent: 39.0, won: 5.0, denied: 0.0 });
        assert_eq!(Copies::read(&line("sent", 139)), None);
    }
}
