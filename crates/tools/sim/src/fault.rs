//! What goes wrong, and when.

use std::time::Duration;

use evenkeel_settings::{Mismatch, Setting, Table, Value};
use serde::Serialize;

use crate::millis;

/// Something that happens to a replica at a time, perhaps again and again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// When it happens first.
    #[serde(with = "millis", rename = "at_ms")]
    pub at: Duration,
    /// Mean time between repetitions (exponential); zero = it happens once.
    #[serde(with = "millis", rename = "every_ms")]
    pub every: Duration,
    /// Whom it happens to.
    pub target: Target,
    /// What happens.
    pub what: What,
}

/// Whom a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The replica with this number.
    Server(usize),
    /// A replica drawn anew each time.
    Random,
    /// Each replica, independently when repeated.
    Each,
    /// All replicas of the rack with this number at once, with one draw for all of them.
    Rack(usize),
    /// The same of a rack drawn anew each time.
    RandomRack,
    /// The same of each rack, independently when repeated.
    EachRack,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// It dies; what it holds is lost.
    Crash,
    /// It comes back, empty.
    Restore,
    /// Everything on it stops for a time drawn between the two.
    Pause {
        /// Shortest pause.
        #[serde(with = "millis", rename = "shortest_ms")]
        shortest: Duration,
        /// Longest pause.
        #[serde(with = "millis", rename = "longest_ms")]
        longest: Duration,
    },
    /// Service times are multiplied by this factor from now on; 1 ends it.
    Slow {
        /// The factor.
        factor: f64,
    },
    /// This share of requests is answered at once with "cannot serve" (HTTP 503); 0 ends it.
    Fail {
        /// The share.
        share: f64,
    },
    /// This share of requests is accepted and never answered: each attempt fails after the 15 s
    /// that the proxy waits by default. 0 ends it. (What is with the replica when it begins is
    /// still answered; a `pause` holds that up too.)
    Hang {
        /// The share.
        share: f64,
    },
    /// This share of answers breaks off after its head; 0 ends it. Nothing is sent again, and the
    /// user is not served.
    Break {
        /// The share.
        share: f64,
    },
    /// This share of answers stands still after its head, until the proxy gives up after the 60 s
    /// of its default; 0 ends it. The user is not served.
    Stall {
        /// The share.
        share: f64,
    },
}

const DAY: Duration = Duration::from_secs(86_400);
const KINDS: [&str; 8] = ["crash", "restore", "pause", "slow", "fail", "hang", "break", "stall"];

impl Fault {
    /// Reads `{at = "100s", crash = 0}` and its kin: the key names what happens, its value whom it
    /// strikes (a server's number, `"random"` or `"each"`; `"rack 0"`, `"random rack"` or
    /// `"each rack"`).
    pub(crate) fn read(table: &mut Table<'_>) -> Self {
        let at = table.key("at").duration().between(Duration::ZERO..=DAY).required();
        let every = table.key("every").duration().between(Duration::ZERO..=DAY).or(Duration::ZERO);
        let mut struck = None;
        for kind in KINDS {
            let setting = table.key(kind);
            if setting.value().is_none() {
                continue;
            }
            let target = Target::read(setting);
            let what = What::read(kind, table);
            if struck.is_some() {
                table.problem(kind, Mismatch::new("a second fault", "one fault in each entry"));
            }
            struck = Some((target, what));
        }
        let (target, what) = struck.unwrap_or_else(|| {
            let expected = format!("one of {}", KINDS.join(", "));
            table.problem("crash", Mismatch::new("no fault", expected));
            (Target::Random, What::Restore)
        });
        Self { at, every, target, what }
    }
}

const EXPECTED: &str =
    "the number of a server, random, each, rack NUMBER, random rack or each rack";

impl Target {
    fn read(setting: Setting<'_>) -> Self {
        if matches!(setting.value(), Some(Value::Text(_))) {
            return setting.parsed(EXPECTED, Self::Random, Self::parse).or(Self::Random);
        }
        Self::Server(setting.integer().required())
    }

    fn parse(text: &str) -> Result<Self, Mismatch> {
        match text {
            "random" => Ok(Self::Random),
            "each" => Ok(Self::Each),
            "random rack" => Ok(Self::RandomRack),
            "each rack" => Ok(Self::EachRack),
            _ => {
                let rack = text.strip_prefix("rack ").and_then(|number| number.parse().ok());
                rack.map(Self::Rack).ok_or_else(|| Mismatch::new(format!("{text:?}"), EXPECTED))
            }
        }
    }

    /// Whether it is racks that are struck.
    pub(crate) const fn is_of_racks(self) -> bool {
        matches!(self, Self::Rack(_) | Self::RandomRack | Self::EachRack)
    }
}

impl What {
    fn read(kind: &str, table: &mut Table<'_>) -> Self {
        match kind {
            "crash" => Self::Crash,
            "restore" => Self::Restore,
            "slow" => {
                Self::Slow { factor: table.key("factor").number().between(0.01..=1e4).or(5.0) }
            }
            "fail" => Self::Fail { share: share(table) },
            "hang" => Self::Hang { share: share(table) },
            "break" => Self::Break { share: share(table) },
            "stall" => Self::Stall { share: share(table) },
            _ => {
                let range = Duration::from_micros(1)..=DAY;
                let shortest = table.key("for").duration().between(range.clone()).required();
                let longest = table.key("for_max").duration().between(range).or(shortest);
                Self::Pause { shortest, longest: longest.max(shortest) }
            }
        }
    }
}

fn share(table: &mut Table<'_>) -> f64 {
    table.key("share").probability().or(1.0)
}
