//! What all clients of a node have in flight together.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::report::{Estimates, Present};
use evenkeel_core::{Feedback, Instant, time};

use evenkeel_runtime::clock::Clock;

/// The counts of one node.
pub(super) struct Census {
    concurrency: Option<u32>,
    clock: Clock,
    in_flight: Cell<u32>,
    estimates: RefCell<Estimates>,
}

/// A request that the node has.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Instant,
    /// Requests in flight then, itself too.
    among: u32,
}

impl Census {
    pub(super) fn new(concurrency: Option<u32>, clock: Clock) -> Self {
        Self { concurrency, clock, in_flight: Cell::new(0), estimates: RefCell::default() }
    }

    /// Requests that wait, and those in service.
    pub(super) fn load(&self) -> (u32, u32) {
        let in_flight = self.in_flight.get();
        let in_service = in_flight.min(self.concurrency.unwrap_or(u32::MAX));
        (in_flight - in_service, in_service)
    }

    /// The report of this moment, with the service time of the request just answered or the usual
    /// one.
    pub(super) fn report(&self, service_time: Option<Duration>) -> Feedback {
        let (waiting, in_service) = self.load();
        let (now, concurrency) = (self.clock.now(), self.concurrency);
        let present = Present { now, waiting, in_service, concurrency };
        self.estimates.borrow().report(present, service_time)
    }

    fn begin(&self) -> Begun {
        let at = self.clock.now();
        let mut estimates = self.estimates.borrow_mut();
        estimates.arrived(at);
        estimates.sent(at);
        let among = self.in_flight.get() + 1;
        self.in_flight.set(among);
        Begun { at, among }
    }

    fn leave(&self, count: u32) {
        let in_flight = self.in_flight.get();
        assert!(count <= in_flight, "a request leaves once");
        self.in_flight.set(in_flight - count);
    }

    /// The service in the time that a request took: of `among` requests that the node had, it
    /// served `concurrency` at once, so the others were waited for.
    fn service_time(&self, begun: Begun) -> Duration {
        let took_ms = self.clock.now().millis_since(begun.at);
        let Some(concurrency) = self.concurrency else { return time::from_millis_f64(took_ms) };
        let share = f64::from(concurrency) / f64::from(begun.among.max(concurrency).max(1));
        time::from_millis_f64(took_ms * share.min(1.0))
    }
}

/// The requests of one connection, by stream. Those without an answer leave with it.
pub(super) struct Residents {
    census: Rc<Census>,
    begun: BTreeMap<i16, Begun>,
}

impl Residents {
    pub(super) fn new(census: &Rc<Census>) -> Self {
        Self { census: Rc::clone(census), begun: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// A request goes to the node.
    pub(super) fn begin(&mut self, stream: i16) {
        // A stream that is used twice is the client's mistake; it is one request to us.
        if let std::collections::btree_map::Entry::Vacant(place) = self.begun.entry(stream) {
            place.insert(self.census.begin());
        }
    }

    /// It is answered: the report to go with the answer, if it is one that is counted.
    pub(super) fn end(&mut self, stream: i16, is_measurement: bool) -> Option<Feedback> {
        let begun = self.begun.remove(&stream)?;
        self.census.leave(1);
        let service_time = is_measurement.then(|| self.census.service_time(begun));
        if let Some(service_time) = service_time {
            self.census.estimates.borrow_mut().served(service_time);
        }
        Some(self.census.report(service_time))
    }

    /// Nothing is known of the connection any more.
    pub(super) fn clear(&mut self) {
        let count = u32::try_from(self.begun.len()).unwrap_or(u32::MAX);
        self.begun.clear();
        self.census.leave(count);
    }
}

impl Drop for Residents {
    fn drop(&mut self) {
        self.clear();
    }
}
