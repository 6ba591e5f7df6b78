//! How long the path between two data centres takes: base propagation and residual latency.
//!
//! **Signal.** Round trips of probes over persistent connections, echoed next to the network; at
//! least three connections for each ordered pair, one probe each every 200 ms. Never response
//! times less service times (the Kurma paper's run-time estimate): the least service time rises
//! with the load of the receiver, so load would look like distance and shed traffic, a feedback
//! loop that nobody drew.
//!
//! **Statistic.** For each connection a *base*, the least round trip of its segment, and a
//! histogram of what exceeds it. The two age differently: the base changes by routing, in an
//! instant; residual latency changes slowly and needs thousands of samples. A sample far below the
//! base can only be a shorter path, so the base falls at once; samples above it are mostly queues,
//! so it rises only when a full window holds nothing else:
//!
//! | event | rule | recognised, at 5 probes/s on each of 3 connections |
//! |---|---|---|
//! | fall by more than 0.5 ms | one sample | at once |
//! | rise by 1 ms or more, everywhere | 1 s, at least 12 samples, all high | within a second |
//! | the same on one connection (ECMP) | the same on it alone | within three seconds |
//!
//! **Chance.** When three in ten meet a queue, the 5 samples of one connection's second are all
//! high in one window of 400. The samples of a run must therefore be unlikely as residuals: the
//! share of known residuals that reach the least of the run, to the power of their number, must be
//! below `e^-18`; with three connections that is by chance once in 300 000 runs (the least is the
//! run's own choice, so the evidence of each is exponential). On paths where 1 ms is nothing
//! unusual, a change of 1 ms takes longer to tell; one of 5 ms does not.
//!
//! A base that is wrong by less than a rise does no harm: residuals are measured from it, and the
//! sum of both is what curves use.
//!
//! Samples enter the histogram when their window has passed; those of the window in which the base
//! changed never do, they belong to neither path.
//!
//! **Standing queues.** A queue that lasts longer than the window looks like a longer path, and the
//! histogram already holds queueing: counted together, it would count twice. A base that lies a
//! rise above the least of ten minutes is therefore told as [`Estimate::standing`], and once it has
//! 60 samples of its own the residual comes from these alone. If the base falls back, it was a
//! queue and its samples join the histogram with their full excess; after ten minutes it is the
//! route.
//!
//! **ECMP.** Connections hash to different paths, and violations are averaged over connections,
//! not latencies: half of the requests at 22 ms and half at 27 ms are not all at 24.5 ms. Three
//! connections see few of many paths: add connections where paths differ by milliseconds.
//!
//! **Silence.** A connection that was not heard for a second is left out; when none is left there
//! is no estimate, and nothing must be sent there.
//!
//! **When it misleads.** 15 samples/s with 5 minutes of memory resolve the 99th percentile, not
//! retransmissions of one request in 10 000: [`WanConfig::beyond_floor_ppm`] stands for those.
//! Probes are small; a response beyond the initial congestion window takes several round trips
//! (see [`Class::round_trips`](super::curve::Class::round_trips)).

mod history;
mod path;

#[cfg(test)]
mod tests;

use path::{Path, Step};

use super::curve::NetworkPath;
use evenkeel_core::time::{Duration, Instant};
use evenkeel_core::units::OutOfRange;

/// Connections of a pair at most.
pub const CONNECTIONS_MAX: usize = 16;
/// Samples of a full window, all high, that raise a base at least.
const RISE_SAMPLES_MIN: u32 = 12;
/// Nats of evidence that raise a base.
const RISE_EVIDENCE_MIN: f64 = 18.0;

/// How paths are estimated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WanConfig {
    /// How long all samples must be high for the base to rise; default 1 s.
    pub window: Duration,
    /// A sample further below the base than this is another path; default 0.5 ms.
    pub drop: Duration,
    /// Samples at least this much above the base are high; default 1 ms.
    pub rise: Duration,
    /// The age at which a residual weighs `1/e`; default 5 min.
    pub memory: Duration,
    /// How long a connection may say nothing; default 1 s.
    pub silence: Duration,
    /// Round trips above this are not believed; default 10 s.
    pub round_trip_max: Duration,
    /// Requests that are assumed to be lost or retransmitted at least, in parts per million;
    /// default 100.
    pub beyond_floor_ppm: u32,
}

impl Default for WanConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(1),
            drop: Duration::from_micros(500),
            rise: Duration::from_millis(1),
            memory: Duration::from_secs(300),
            silence: Duration::from_secs(1),
            round_trip_max: Duration::from_secs(10),
            beyond_floor_ppm: 100,
        }
    }
}

/// One answered probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Over which connection, from 0.
    pub connection: usize,
    /// Its number on the connection; each is greater than the one before.
    pub sequence: u64,
    /// When it was sent, by the clock that also tells when the echo came.
    pub sent_at: Instant,
    /// When the echo came.
    pub received_at: Instant,
}

impl Probe {
    /// How long it took; zero when the echo came before it was sent.
    pub fn round_trip(&self) -> Duration {
        self.received_at.since(self.sent_at)
    }
}

/// Why a probe is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reject {
    /// Its echo came before it was sent.
    Negative,
    /// It took no time at all, or more than [`WanConfig::round_trip_max`].
    Absurd,
    /// Its number is that of the probe before.
    Duplicate,
    /// Its number or its time lies before the probe before: connections keep order.
    Reordered,
    /// There is no such connection.
    Connection,
}

/// How many probes were not believed, by reason.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// [`Reject::Negative`].
    pub negative: u64,
    /// [`Reject::Absurd`].
    pub absurd: u64,
    /// [`Reject::Duplicate`].
    pub duplicate: u64,
    /// [`Reject::Reordered`].
    pub reordered: u64,
    /// [`Reject::Connection`].
    pub connection: u64,
}

/// What a probe taught.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learnt {
    /// One sample more.
    Sample,
    /// The route of its connection has changed, and possibly that of others.
    Rerouted {
        /// The base of its connection before.
        from: Duration,
        /// Its base from now on.
        to: Duration,
    },
    /// Nothing.
    Rejected(Reject),
}

/// What is known about the way from one data centre to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// The way of each connection that is heard; never empty.
    pub paths: Vec<NetworkPath>,
    /// How far the most suspicious base lies above the least of ten minutes, when by a rise or
    /// more: a standing queue, or a route of the last ten minutes.
    pub standing: Option<Duration>,
    /// Samples in the histograms, over all time.
    pub samples: u64,
}

/// The estimator of one ordered pair of data centres.
///
/// Memory is bounded: 70 KiB for each connection, a few KiB on paths with residuals below 10 ms.
#[derive(Clone, Debug)]
pub struct Wan {
    config: WanConfig,
    paths: Vec<Path>,
    rejected: Rejected,
    reroutes: u64,
}

impl Wan {
    /// An estimator that knows nothing, for this many connections.
    ///
    /// # Errors
    /// When there are no connections or more than [`CONNECTIONS_MAX`], a duration is zero, or the
    /// floor is more than all requests.
    pub fn new(connections: usize, config: WanConfig) -> Result<Self, OutOfRange> {
        if !(1..=CONNECTIONS_MAX).contains(&connections) {
            let expected = "1 to 16 probe connections";
            return Err(OutOfRange { came: connections as f64, expected });
        }
        let WanConfig { window, drop, rise, memory, silence, round_trip_max, .. } = config;
        if [window, drop, rise, memory, silence, round_trip_max].iter().any(Duration::is_zero) {
            return Err(OutOfRange { came: 0.0, expected: "durations above zero for a way" });
        }
        if config.beyond_floor_ppm > super::ALL_PPM {
            let expected = "at most 1000000 parts per million";
            return Err(OutOfRange { came: f64::from(config.beyond_floor_ppm), expected });
        }
        let paths = (0..connections).map(|_| Path::new(&config)).collect();
        Ok(Self { config, paths, rejected: Rejected::default(), reroutes: 0 })
    }

    /// Learns one answered probe; what cannot be is counted and changes nothing.
    pub fn observe(&mut self, probe: &Probe) -> Learnt {
        let Some(path) = self.paths.get_mut(probe.connection) else {
            return self.reject(Reject::Connection);
        };
        if let Err(reject) = path.check(probe, &self.config) {
            return self.reject(reject);
        }
        match path.learn(probe, &self.config) {
            Step::Low => Learnt::Sample,
            Step::High => self.consider_rise(probe),
            Step::Fell { from, to } => {
                self.reroutes += 1;
                Learnt::Rerouted { from, to }
            }
        }
    }

    /// The connection was opened anew: its base is unknown, its numbers start over.
    ///
    /// # Panics
    /// When there is no such connection.
    pub fn reconnect(&mut self, connection: usize) {
        self.paths[connection].reconnect();
    }

    /// What is known at `now`; `None` while no connection is heard.
    pub fn estimate(&self, now: Instant) -> Option<Estimate> {
        let heard: Vec<&Path> = self.heard(now).collect();
        if heard.is_empty() {
            return None;
        }
        let floor_ppm = self.config.beyond_floor_ppm;
        let network_path = |path: &&Path| NetworkPath {
            base: path.base(),
            residual: path.residual().with_beyond_at_least(floor_ppm),
        };
        Some(Estimate {
            paths: heard.iter().map(network_path).collect(),
            standing: heard.iter().filter_map(|path| path.standing(&self.config)).max(),
            samples: heard.iter().map(|path| path.samples()).sum(),
        })
    }

    /// Whether no connection was heard for the time that is called silence.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.heard(now).next().is_none()
    }

    /// How many probes were not believed.
    pub fn rejected(&self) -> Rejected {
        self.rejected
    }

    /// How often the base of a connection fell or rose by a change of route.
    pub fn reroutes(&self) -> u64 {
        self.reroutes
    }

    fn heard(&self, now: Instant) -> impl Iterator<Item = &Path> + Clone {
        self.paths.iter().filter(move |path| !path.is_silent(now, &self.config))
    }

    fn reject(&mut self, reject: Reject) -> Learnt {
        let counter = match reject {
            Reject::Negative => &mut self.rejected.negative,
            Reject::Absurd => &mut self.rejected.absurd,
            Reject::Duplicate => &mut self.rejected.duplicate,
            Reject::Reordered => &mut self.rejected.reordered,
            Reject::Connection => &mut self.rejected.connection,
        };
        *counter += 1;
        Learnt::Rejected(reject)
    }

    fn consider_rise(&mut self, probe: &Probe) -> Learnt {
        let now = probe.received_at;
        if self.is_raised(self.heard(now), now) {
            let mut learnt = Learnt::Sample;
            for connection in 0..self.paths.len() {
                let risen = self.rise(connection, now);
                if connection == probe.connection {
                    learnt = risen;
                }
            }
            return learnt;
        }
        if self.is_raised(core::iter::once(&self.paths[probe.connection]), now) {
            return self.rise(probe.connection, now);
        }
        Learnt::Sample
    }

    /// Whether a full window held only high samples over these connections together, enough to
    /// be no chance.
    fn is_raised<'a>(&self, paths: impl Iterator<Item = &'a Path> + Clone, now: Instant) -> bool {
        let low_at = paths.clone().map(Path::low_at).max().unwrap_or(now);
        now.since(low_at) >= self.config.window
            && paths.clone().all(|path| path.run_samples() > 0)
            && paths.clone().map(Path::run_samples).sum::<u32>() >= RISE_SAMPLES_MIN
            && paths.map(Path::evidence).sum::<f64>() >= RISE_EVIDENCE_MIN
    }

    fn rise(&mut self, connection: usize, now: Instant) -> Learnt {
        match self.paths[connection].rise(now, &self.config) {
            Some((from, to)) => {
                self.reroutes += 1;
                Learnt::Rerouted { from, to }
            }
            None => Learnt::Sample,
        }
    }
}
