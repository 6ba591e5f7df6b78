//! The demo's live view: a few lines that are drawn over themselves, if somebody is looking.

use std::net::SocketAddr;

use evenkeel_load::Progress;
use evenkeel_proxy::upstream_state::UpstreamStats;
use evenkeel_sim::Scenario;

use crate::terminal::{Canvas, ms_if_known, sparkline};

const HISTORY: usize = 48;
const SHARE_WIDTH: f64 = 40.0;

/// Draws on stderr; silent when stderr is no terminal, except for the lines to keep.
#[derive(Debug)]
pub(crate) struct Live {
    canvas: Canvas,
    policy: String,
    dashboard: Option<SocketAddr>,
    p99_ms: Vec<f64>,
    sent: Vec<u64>,
    requests: u64,
}

impl Live {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        eprintln!("{}", scenario.description);
        Self {
            canvas: Canvas::new(),
            policy: String::new(),
            dashboard: None,
            p99_ms: Vec::new(),
            sent: vec![0; scenario.cluster.servers],
            requests: scenario.workload.requests,
        }
    }

    /// A policy's turn begins.
    pub(crate) fn begin(&mut self, policy: &str, dashboard: Option<SocketAddr>) {
        policy.clone_into(&mut self.policy);
        self.dashboard = dashboard;
        self.p99_ms.clear();
        self.sent.fill(0);
    }

    /// Draws how it goes.
    pub(crate) fn show(&mut self, progress: &Progress, stats: &UpstreamStats) {
        if let Some(p99_ms) = progress.recent_p99_ms {
            self.p99_ms.push(p99_ms);
        }
        if !self.canvas.is_seen() {
            return;
        }
        let done = progress.due as f64 / self.requests as f64 * 100.0;
        let p50 = ms_if_known(progress.recent_p50_ms);
        let p99 = ms_if_known(progress.recent_p99_ms);
        let mut lines = vec![
            format!("\x1b[1m{}\x1b[0m  {done:.0} %", self.policy),
            format!("  p50 {p50:>5} ms   p99 {p99:>5} ms   {}", self.sparkline()),
        ];
        lines.extend(self.shares(stats));
        if let Some(address) = self.dashboard {
            lines.push(format!("  \x1b[2mdashboard: http://{address}/\x1b[0m"));
        }
        self.canvas.draw(&lines);
    }

    /// Writes a line that stays.
    pub(crate) fn keep(&mut self, line: &str) {
        self.canvas.keep(line);
    }

    /// Removes what was drawn.
    pub(crate) fn clear(&mut self) {
        self.canvas.clear();
    }

    /// The last p99s, the highest filling the line.
    fn sparkline(&self) -> String {
        let recent = &self.p99_ms[self.p99_ms.len().saturating_sub(HISTORY)..];
        let highest = recent.iter().copied().fold(1.0, f64::max);
        sparkline(recent.iter().copied(), highest)
    }

    /// Each replica's share of what was sent since the last drawing, and what is in flight there.
    fn shares(&mut self, stats: &UpstreamStats) -> Vec<String> {
        let counts = &stats.total.replicas;
        let new: Vec<u64> =
            counts.iter().zip(&self.sent).map(|(now, before)| now.sent - before).collect();
        let all = new.iter().sum::<u64>();
        let line = |(slot, &sent): (usize, &u64)| {
            let share = if all == 0 { 0.0 } else { sent as f64 / all as f64 };
            let bar = "█".repeat((share * SHARE_WIDTH).round() as usize);
            let in_flight = stats.replica(slot).in_flight;
            format!("  replica {slot}  {:>3.0} %  {in_flight:>3} in flight  {bar}", share * 100.0)
        };
        let lines = new.iter().enumerate().map(line).collect();
        if all > 0 {
            self.sent = counts.iter().map(|replica| replica.sent).collect();
        }
        lines
    }
}
