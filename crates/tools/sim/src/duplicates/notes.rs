//! What is written down while it happens.

use evenkeel_core::distribution::{Divergence, Recorder};
use evenkeel_core::{Duration, Instant};

use super::deployment::Deployment;

/// Service times that are kept for the models at most.
const SERVICES_MAX: usize = 200_000;

/// What was written down.
#[derive(Debug)]
pub(crate) struct Notes {
    bound: Duration,
    /// The first batch that counts.
    counted_from: u64,
    pub(crate) latency: Recorder,
    pub(crate) batches: u64,
    pub(crate) violations: u64,
    pub(crate) skipped: u64,
    pub(crate) served: u64,
    /// Service times as servers had them, where there are pauses: nanoseconds.
    pub(crate) services: Vec<u64>,
    keeps_services: bool,
    /// What the first accesses took on the first two duplicates of their partition, nanoseconds;
    /// 0 where there is none.
    pub(crate) pairs: Vec<[u64; 2]>,
    pub(crate) monitor: Option<Monitor>,
    pub(crate) events: u64,
    digest: u64,
    pub(crate) end: Instant,
    pub(crate) busy_nanos: Vec<u64>,
}

impl Notes {
    pub(crate) fn new(deployment: &Deployment) -> Self {
        let workload = &deployment.workload;
        let batches = workload.accesses.div_ceil(workload.batch as u64);
        Self {
            bound: deployment.bound,
            counted_from: (batches as f64 * workload.warmup) as u64,
            latency: Recorder::new(3).expect("3 digits are possible"),
            batches: 0,
            violations: 0,
            skipped: 0,
            served: 0,
            services: Vec::new(),
            keeps_services: deployment.pauses.is_some(),
            pairs: vec![[0; 2]; deployment.compared],
            monitor: (deployment.window > 0).then(|| Monitor::new(deployment.window)),
            events: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            end: Instant::ZERO,
            busy_nanos: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn note_event(&mut self, at: Instant, kind: u64) {
        for word in [at.as_nanos(), kind] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        self.events += 1;
    }

    /// An access was served by a duplicate of its partition, counted from 0.
    pub(crate) fn note_service(&mut self, access: u64, duplicate: usize, took_nanos: u64) {
        self.served += 1;
        if let Some(pair) = self.pairs.get_mut(access as usize)
            && let Some(took) = pair.get_mut(duplicate)
        {
            *took = took_nanos;
        }
        if self.keeps_services && self.services.len() < SERVICES_MAX {
            self.services.push(took_nanos);
        }
        if let Some(monitor) = &mut self.monitor {
            monitor.note(took_nanos);
        }
    }

    pub(crate) const fn note_skipped(&mut self) {
        self.skipped += 1;
    }

    pub(crate) fn note_batch(&mut self, number: u64, latency: Duration) {
        if number < self.counted_from {
            return;
        }
        self.batches += 1;
        self.violations += u64::from(latency > self.bound);
        self.latency.record(latency);
    }

    pub(crate) fn close(&mut self, end: Instant, busy_nanos: Vec<u64>) {
        self.end = end;
        self.busy_nanos = busy_nanos;
    }

    /// Equal runs have equal digests.
    pub(crate) fn digest(&self) -> String {
        format!("{:016x}", self.digest)
    }
}

/// Windows of service times, each compared with the one before: figure 5 (B).
#[derive(Debug)]
pub(crate) struct Monitor {
    size: usize,
    running: Recorder,
    before: Option<Recorder>,
    /// Of every window but the first.
    pub(crate) divergences: Vec<Divergence>,
}

impl Monitor {
    fn new(size: usize) -> Self {
        Self { size, running: Recorder::default(), before: None, divergences: Vec::new() }
    }

    fn note(&mut self, took_nanos: u64) {
        self.running.record(Duration::from_nanos(took_nanos));
        if self.running.count() < self.size as u64 {
            return;
        }
        let full = core::mem::take(&mut self.running);
        if let Some(before) = &self.before {
            self.divergences.extend(Divergence::between(before.buckets(), full.buckets()));
        }
        self.before = Some(full);
    }
}
