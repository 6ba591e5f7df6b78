//! A replica: its life and death, and one of two ways of serving.
//!
//! | discipline | what it is | whose world |
//! |---|---|---|
//! | [`Slots`] | a queue in front of slots | data stores (C3) |
//! | [`Sharing`] | all requests share the cores | application servers (brownout) |

mod sharing;
mod slots;

use evenkeel_core::report::Estimates;
use evenkeel_core::{Duration, Feedback, Instant};

pub use sharing::Sharing;
pub use slots::{Slots, done_at};

/// A job's number in the world's table of jobs.
pub type JobId = u32;

/// How a replica serves.
#[derive(Clone, Debug)]
pub enum Discipline {
    /// First in, first out, in slots.
    Slots(Slots),
    /// All at once, on shared cores.
    Sharing(Sharing),
}

/// Shares of a replica's requests that something befalls, whatever its speed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ills {
    /// Answered at once with an error.
    pub fail: f64,
    /// Never answered.
    pub hang: f64,
    /// Answered with a body that breaks off.
    pub break_off: f64,
    /// Answered with a body that stands still.
    pub stall: f64,
}

/// A replica.
#[derive(Clone, Debug)]
pub struct Server {
    /// How it serves.
    pub discipline: Discipline,
    /// What its agent knows of it.
    pub estimates: Estimates,
    is_alive: bool,
    /// What befalls requests there.
    pub ills: Ills,
    /// Grows with every crash: jobs of an earlier life are lost.
    life: u32,
}

impl Server {
    /// A replica that lives and serves like this.
    pub fn new(discipline: Discipline) -> Self {
        let estimates = Estimates::default();
        Self { discipline, estimates, is_alive: true, ills: Ills::default(), life: 0 }
    }

    /// Mean service time of a request that starts now and has the replica for itself.
    #[inline]
    pub fn mean(&self) -> Duration {
        match &self.discipline {
            Discipline::Slots(slots) => slots.mean(),
            Discipline::Sharing(sharing) => sharing.mean(),
        }
    }

    /// Requests present.
    #[inline]
    pub fn load(&self) -> u32 {
        match &self.discipline {
            Discipline::Slots(slots) => slots.load(),
            Discipline::Sharing(sharing) => sharing.load(),
        }
    }

    /// What its agent reports to a request that took `service_time`, or to a probe.
    #[inline]
    pub fn report(&self, now: Instant, service_time: Option<Duration>) -> Feedback {
        let present = match &self.discipline {
            Discipline::Slots(slots) => slots.present(now),
            Discipline::Sharing(sharing) => sharing.present(now),
        };
        self.estimates.report(present, service_time)
    }

    /// What answering a probe takes from the requests.
    pub fn work_aside(&mut self, now: Instant, cost: Duration) {
        match &mut self.discipline {
            Discipline::Slots(slots) => slots.work_aside(now, cost),
            Discipline::Sharing(sharing) => sharing.work_aside(now, cost),
        }
    }

    /// When a request that arrives now can start.
    #[inline]
    pub fn starts_at(&self, now: Instant) -> Instant {
        match &self.discipline {
            Discipline::Slots(slots) => slots.starts_at(now),
            Discipline::Sharing(sharing) => sharing.works_at(now),
        }
    }

    /// Makes it `factor` times as fast as `base`, the mean service time it was made with.
    pub fn fluctuate(&mut self, now: Instant, base: Duration, factor: f64) {
        match &mut self.discipline {
            Discipline::Slots(slots) => slots.set_mean(base.div_f64(factor)),
            Discipline::Sharing(sharing) => sharing.set_fluctuation(now, factor),
        }
    }

    /// Degrades it by a factor; 1 ends it.
    pub fn slow(&mut self, now: Instant, factor: f64) {
        match &mut self.discipline {
            Discipline::Slots(slots) => slots.set_slowdown(factor),
            Discipline::Sharing(sharing) => sharing.set_slowdown(now, factor),
        }
    }

    /// Stops everything on it for a while; overlapping pauses end at the later end.
    pub fn pause(&mut self, now: Instant, length: Duration) {
        match &mut self.discipline {
            Discipline::Slots(slots) => slots.pause(now, length),
            Discipline::Sharing(sharing) => sharing.pause(now, length),
        }
    }

    /// Whether it answers at all.
    pub const fn is_alive(&self) -> bool {
        self.is_alive
    }

    /// How often it has died.
    pub const fn life(&self) -> u32 {
        self.life
    }

    /// It dies; what is on it must be taken from its discipline.
    pub fn die(&mut self) {
        self.is_alive = false;
        self.estimates = Estimates::default();
        self.life += 1;
    }

    /// It comes back, empty.
    pub const fn restore(&mut self) {
        self.is_alive = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Two replicas of which one gets ten times slower without a request being done on it.
    fn twins(discipline: Discipline) -> [Server; 2] {
        let mut server = Server::new(discipline);
        for at_ms in 0..8 {
            let now = Instant::from_millis(at_ms);
            server.estimates.arrived(now);
            server.estimates.sent(now);
            server.estimates.served(2 * MS);
        }
        let mut slow = server.clone();
        slow.slow(Instant::from_millis(8), 10.0);
        slow.fluctuate(Instant::from_millis(9), MS, 0.5);
        [server, slow]
    }

    #[test]
    fn a_replica_tells_only_what_its_agent_saw() {
        let disciplines = [
            Discipline::Slots(Slots::new(4, MS)),
            Discipline::Sharing(Sharing::new(4, 1.0, MS)),
            Discipline::Sharing(Sharing::new(4, 1.0, MS).with_workers(8)),
        ];
        for discipline in disciplines {
            let [usual, mut slow] = twins(discipline);
            let now = Instant::from_millis(10);
            assert!(slow.mean() > 10 * usual.mean());
            assert_eq!(slow.report(now, None), usual.report(now, None), "{slow:?}");
            slow.estimates.served(20 * MS);
            let latency = |server: &Server| server.report(now, None).latency;
            assert!(latency(&slow) > latency(&usual), "the first slow answer tells");
        }
    }

    #[test]
    fn who_dies_forgets_and_who_never_served_knows_nothing() {
        let [mut server, _] = twins(Discipline::Slots(Slots::new(4, MS)));
        server.die();
        server.restore();
        assert_eq!(server.report(Instant::from_millis(20), None).service_time, None);
    }
}
