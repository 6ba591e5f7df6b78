//! How much optional content a site's replicas left out during an epoch, and what work that was.
//!
//! Replicas tell their dimmers with their answers. They are looked at whenever the driver wakes, at
//! least once a second, and count by the time until the next look: what is told at the end of an
//! epoch says nothing of its beginning.
//!
//! **When nobody tells** although replicas can leave content out, nothing is known: so it is in a
//! process that others serve for. Then the epoch is not learnt from: as if all had been served in
//! full, an overload would look like capacity.

use evenkeel_core::Instant;
use evenkeel_core::units::Probability;
use evenkeel_geo::joint::Service;

/// The work of an epoch's requests, as a share of what it is with full content, and the share of
/// them that met a dimmer below full content.
pub(crate) type Content = (Probability, Probability);

/// Dimmers over an epoch.
#[derive(Debug)]
pub(crate) struct ContentMeter {
    /// Work without optional content, as a share of work with it; none where nobody said.
    lean: Option<f64>,
    last: Option<(Instant, Content)>,
    seconds: f64,
    content: f64,
    dimmed: f64,
}

impl ContentMeter {
    /// Of a site whose requests are so much work.
    pub(crate) fn new(work: Service) -> Self {
        let lean = f64::from(work.lean_us) / f64::from(work.full_us.max(1));
        let lean = (work.full_us > 0).then_some(lean);
        Self { lean, last: None, seconds: 0.0, content: 0.0, dimmed: 0.0 }
    }

    /// What replicas tell now: the mean dimmer, and which share of them leaves some out.
    pub(crate) fn look(&mut self, now: Instant, told: Option<Content>) {
        let before = self.last.take();
        self.last = told.map(|told| (now, told));
        if let Some((since, (content, dimmed))) = before {
            let lasted = now.since(since).as_secs_f64();
            self.seconds += lasted;
            self.content += lasted * content.value();
            self.dimmed += lasted * dimmed.value();
        }
    }

    /// The epoch that ends now; `None` where nobody told and somebody could.
    pub(crate) fn take(&mut self) -> Option<Content> {
        let [seconds, content, dimmed] =
            [&mut self.seconds, &mut self.content, &mut self.dimmed].map(core::mem::take);
        let is_told = seconds > 0.0;
        let can_dim = self.lean.is_some_and(|lean| lean < 1.0);
        match (is_told, can_dim) {
            (false, true) => None,
            (false, false) => Some((Probability::ONE, Probability::ZERO)),
            (true, _) => {
                // Where nobody said what lean work is, it counts as none: too little is believed
                // rather than too much.
                let lean = self.lean.unwrap_or(0.0);
                let work = (1.0 - lean).mul_add(content / seconds, lean);
                Some((Probability::clamped(work), Probability::clamped(dimmed / seconds)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const SERVICE: Service = Service { full_us: 10_000, lean_us: 2_000 };

    fn told(content: f64) -> Option<Content> {
        let dimmed = if content < 1.0 { 1.0 } else { 0.0 };
        Some((Probability::clamped(content), Probability::clamped(dimmed)))
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn what_was_left_out_before_the_end_counts_and_lean_work_is_work() {
        let mut meter = ContentMeter::new(SERVICE);
        meter.look(at(0), told(0.5));
        meter.look(at(2_200), told(1.0));
        meter.look(at(2_500), told(1.0));
        let (work, dimmed) = meter.take().unwrap();
        let content = (2.2 * 0.5 + 0.3) / 2.5;
        assert!((work.value() - (0.2 + 0.8 * content)).abs() < 1e-9, "{work:?}");
        assert!((dimmed.value() - 2.2 / 2.5).abs() < 1e-9, "{dimmed:?}");
        meter.look(at(5_000), told(1.0));
        assert_eq!(meter.take(), Some((Probability::ONE, Probability::ZERO)));
    }

    #[test]
    fn nobody_who_tells_is_not_everybody_in_full() {
        let mut meter = ContentMeter::new(SERVICE);
        meter.look(at(0), None);
        meter.look(at(2_500), None);
        assert_eq!(meter.take(), None);
        let nothing_optional = Service { full_us: 10_000, lean_us: 10_000 };
        for work in [nothing_optional, Service { full_us: 0, lean_us: 0 }] {
            let mut meter = ContentMeter::new(work);
            meter.look(at(2_500), None);
            assert_eq!(meter.take(), Some((Probability::ONE, Probability::ZERO)));
        }
    }

    /// A right profile was contradicted: at 1.5 times the capacity, half of the content is left
    /// out, and nothing of that was counted as work.
    #[test]
    fn where_lean_work_is_half_of_full_work_a_site_at_its_capacity_is_at_its_capacity() {
        let mut meter = ContentMeter::new(Service { full_us: 10_000, lean_us: 5_000 });
        let overload = 1.5;
        // All of the capacity is used: overload * (0.5 + 0.5 * content) = 1.
        let content = (1.0 / overload - 0.5) / 0.5;
        meter.look(at(0), told(content));
        meter.look(at(2_500), told(content));
        let (work, _) = meter.take().unwrap();
        assert!((overload * work.value() - 1.0).abs() < 1e-9);
    }
}
