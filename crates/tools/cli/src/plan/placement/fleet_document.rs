//! What is told of many databases that share sites: where each goes, and how full sites become.

use serde::Serialize;

use super::asked::Line;
use super::text::aligned;
use crate::terminal::{count, ms, percent};

/// Databases that text and page show at most: those that give way most.
const SHOWN_MAX: usize = 100;

/// Operations per second: few of them with decimals.
pub(super) fn rate(per_s: f64) -> String {
    if per_s > 0.0 && per_s < 100.0 { ms(per_s) } else { count(per_s) }
}

/// One database as it was decided.
#[derive(Serialize)]
pub(super) struct Decided {
    pub(super) name: String,
    /// What site numbers stand for.
    pub(super) sites: Vec<String>,
    /// What its leader takes of a capacity, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load_per_s: Option<f64>,
    pub(super) today: Option<Line>,
    pub(super) result: Line,
    /// Where it would be if there were no capacities.
    pub(super) alone: Line,
}

impl Decided {
    /// What capacities cost it, as a share.
    pub(super) fn overhead(&self) -> f64 {
        if self.alone.mean_ms > 0.0 { self.result.mean_ms / self.alone.mean_ms - 1.0 } else { 0.0 }
    }
}

/// One site of all databases.
#[derive(Serialize)]
pub(super) struct SiteLoad {
    pub(super) site: String,
    /// None: no limit.
    pub(super) capacity_per_s: Option<f64>,
    pub(super) load_per_s: f64,
    pub(super) leaders: usize,
    /// What its load would be if there were no capacities.
    pub(super) alone_per_s: f64,
}

#[derive(Serialize)]
pub(super) struct Document {
    pub(super) title: String,
    pub(super) tier: u8,
    pub(super) route: &'static str,
    /// How far the sum of all latencies may be above the least that fits, as a share.
    pub(super) gap: f64,
    pub(super) databases: Vec<Decided>,
    /// Empty without capacities.
    pub(super) capacity: Vec<SiteLoad>,
}

impl Document {
    /// Databases in the order in which they are shown: those that give way most come first.
    pub(super) fn shown(&self) -> Vec<&Decided> {
        let mut shown: Vec<&Decided> = self.databases.iter().collect();
        if shown.len() > SHOWN_MAX {
            shown.sort_by(|one, other| other.overhead().total_cmp(&one.overhead()));
            shown.truncate(SHOWN_MAX);
        }
        shown
    }

    pub(super) fn about(&self) -> String {
        let many = self.databases.len();
        let moved = self.databases.iter().filter(|one| {
            one.today.as_ref().is_some_and(|today| today.layout != one.result.layout)
        });
        let gave_way = self.databases.iter().filter(|one| one.overhead() > 0.0).count();
        let mut text = format!("{many} databases, {} would move", moved.count());
        if !self.capacity.is_empty() {
            let verb = if gave_way == 1 { "gives" } else { "give" };
            text += &format!("; {gave_way} {verb} way to capacities");
            text += "; all latencies together are ";
            text += &match self.gap {
                0.0 => "the least that fits".to_owned(),
                gap => format!("at most {} above the least that fits", percent(gap / (1.0 - gap))),
            };
        }
        text
    }

    pub(super) fn describe(&self) -> String {
        let mut text = format!("{}: {}\n\n", self.title, self.about());
        let header = ["database", "today", "planned", "leader today", "leader", "gives way"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(self.shown().iter().map(|one| one.cells().to_vec()));
        text += &aligned(&rows, &[false, true, true, false, false, true]);
        let left = self.databases.len().saturating_sub(SHOWN_MAX);
        if left > 0 {
            text += &format!("and {left} more that give way less: --json has all\n");
        }
        if !self.capacity.is_empty() {
            let header = ["site", "leaders", "load/s", "capacity/s", "used", "alone/s"];
            let mut rows = vec![header.map(str::to_owned).to_vec()];
            rows.extend(self.capacity.iter().map(|site| site.cells().to_vec()));
            text += &format!("\n{}", aligned(&rows, &[false, true, true, true, true, true]));
        }
        text
    }
}

impl Decided {
    /// Name, latency today and planned, leader today and planned, what capacities cost it.
    pub(super) fn cells(&self) -> [String; 6] {
        let ms = |line: &Line| format!("{:.2} ms", line.mean_ms);
        let today = self.today.as_ref();
        let leader = |line: &Line| self.sites[line.leader].clone();
        let overhead = self.overhead();
        let gives =
            if overhead > 0.0 { format!("+{:.1} %", 100.0 * overhead) } else { String::new() };
        let (before, led) = (today.map_or(String::new(), ms), today.map_or(String::new(), leader));
        [self.name.clone(), before, ms(&self.result), led, leader(&self.result), gives]
    }
}

impl SiteLoad {
    /// Name, leaders, load, capacity, the share of it, load without capacities.
    pub(super) fn cells(&self) -> [String; 6] {
        let capacity = self.capacity_per_s.map_or_else(|| "-".to_owned(), rate);
        let used = self.used().map_or_else(|| "-".to_owned(), percent);
        let (load, alone) = (rate(self.load_per_s), rate(self.alone_per_s));
        [self.site.clone(), self.leaders.to_string(), load, capacity, used, alone]
    }

    pub(super) fn used(&self) -> Option<f64> {
        self.capacity_per_s.filter(|capacity| *capacity > 0.0).map(|all| self.load_per_s / all)
    }
}
