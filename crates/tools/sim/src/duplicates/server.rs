//! One duplicate: a queue, one access in service, pauses.

use std::collections::VecDeque;

use evenkeel_core::Instant;

/// A copy that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// Which access.
    pub(super) access: usize,
    /// How long it takes.
    pub(super) service_nanos: u64,
}

/// The copy in service.
#[derive(Clone, Copy, Debug)]
struct Serving {
    copy: Copy,
    began: Instant,
    ends: Instant,
}

/// When an end is due, if nothing stops the server before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) at: Instant,
    /// Which of the server's plans this is: an older one is void.
    pub(super) turn: u32,
}

/// A copy that was served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) access: usize,
    /// From the beginning of its service to the end, pauses included.
    pub(super) took_nanos: u64,
}

/// One duplicate of a partition.
#[derive(Debug, Default)]
pub(super) struct Server {
    waiting: VecDeque<Copy>,
    serving: Option<Serving>,
    turn: u32,
    stopped_until: Instant,
    busy_nanos: u64,
}

impl Server {
    /// A copy comes; the end of its service, if that begins now.
    pub(super) fn enqueue(&mut self, now: Instant, copy: Copy) -> Option<Due> {
        self.waiting.push_back(copy);
        if self.serving.is_some() { None } else { self.begin(now, |_| false).1 }
    }

    /// The service that was due ends, if it is still due.
    pub(super) fn end(&mut self, now: Instant, turn: u32) -> Option<Served> {
        if turn != self.turn {
            return None;
        }
        let serving = self.serving.take()?;
        assert_eq!(serving.ends, now, "an end that is due is when it was planned");
        let took_nanos = now.nanos_since(serving.began);
        self.busy_nanos += took_nanos;
        Some(Served { access: serving.copy.access, took_nanos })
    }

    /// Takes the next copy into service; those skipped are returned.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        is_cancelled: impl Fn(usize) -> bool,
    ) -> (Vec<usize>, Option<Due>) {
        assert!(self.serving.is_none(), "one access at a time");
        let mut skipped = Vec::new();
        while let Some(copy) = self.waiting.pop_front() {
            if is_cancelled(copy.access) {
                skipped.push(copy.access);
                continue;
            }
            let began = now.max(self.stopped_until);
            let ends = began.plus_nanos(copy.service_nanos);
            self.serving = Some(Serving { copy, began, ends });
            return (skipped, Some(self.plan(ends)));
        }
        (skipped, None)
    }

    /// The server stops for a while; when the service that was going on now ends.
    pub(super) fn stop(&mut self, now: Instant, pause_nanos: u64) -> Option<Due> {
        self.stopped_until = now.max(self.stopped_until).plus_nanos(pause_nanos);
        let serving = self.serving.as_mut()?;
        serving.ends = serving.ends.plus_nanos(pause_nanos);
        let ends = serving.ends;
        Some(self.plan(ends))
    }

    /// Time in service so far, of what has ended.
    pub(super) const fn busy_nanos(&self) -> u64 {
        self.busy_nanos
    }

    fn plan(&mut self, at: Instant) -> Due {
        self.turn = self.turn.wrapping_add(1);
        Due { at, turn: self.turn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn copy(access: usize, service_nanos: u64) -> Copy {
        Copy { access, service_nanos }
    }

    #[test]
    fn copies_are_served_in_order_one_at_a_time() {
        let mut server = Server::default();
        let first = server.enqueue(at(10), copy(1, 5)).unwrap();
        assert_eq!(server.enqueue(at(11), copy(2, 7)), None);
        assert_eq!(server.enqueue(at(12), copy(3, 1)), None);
        assert_eq!(first.at, at(15));
        assert_eq!(server.end(at(15), first.turn).unwrap().access, 1);
        let (skipped, second) = server.begin(at(15), |access| access == 2);
        assert_eq!((skipped, second.unwrap().at), (vec![2], at(16)));
    }

    #[test]
    fn a_pause_delays_what_is_served_and_what_comes() {
        let mut server = Server::default();
        let planned = server.enqueue(at(0), copy(1, 10)).unwrap();
        let later = server.stop(at(4), 100).unwrap();
        assert_eq!(later.at, at(110));
        assert!(server.end(at(10), planned.turn).is_none(), "void");
        assert_eq!(server.end(at(110), later.turn).unwrap().took_nanos, 110);
        assert!(server.stop(at(120), 30).is_none(), "idle");
        assert_eq!(server.stop(at(130), 30), None);
        // Stopped until 180: the two pauses do not overlap, work lost is work lost.
        assert_eq!(server.enqueue(at(140), copy(2, 5)).unwrap().at, at(185));
    }
}
