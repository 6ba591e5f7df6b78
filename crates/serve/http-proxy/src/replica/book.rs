//! What an agent writes down of each request, for the record of a day: what the proxies' rows lack
//! is joined from it by the number that the proxy told ([`crate::recorded`]).

use std::cell::RefCell;
use std::rc::Rc;

use evenkeel_core::Instant;
use evenkeel_core::request::copies::{CopyEnd, ServedRecord, ServedSink, bits};
use evenkeel_http::{Body, End, Response};
use evenkeel_runtime::clock::Clock;
use http_body::Body as _;

/// Where it is written.
#[derive(Debug)]
pub(super) struct Book {
    sink: RefCell<Box<dyn ServedSink>>,
    clock: Clock,
}

impl Book {
    pub(super) fn new(sink: Box<dyn ServedSink>, clock: Clock) -> Rc<Self> {
        Rc::new(Self { sink: RefCell::new(sink), clock })
    }

    /// A request came with this number, if with any, and met so many others.
    pub(super) fn enter(
        self: &Rc<Self>,
        arrived_at: Instant,
        number: Option<u64>,
        queue: u32,
    ) -> Entry {
        let record = ServedRecord {
            number: number.unwrap_or(0),
            arrived_at,
            wait_ns: 0,
            service_ns: 0,
            queue,
            is_full: true,
            end: CopyEnd::Cancelled,
            size: 0,
        };
        Entry { book: Rc::clone(self), record, served_at: None }
    }
}

/// A request that is here. It is written down when it leaves, however that comes about: one of
/// which nothing else is told was given up by its client.
#[derive(Debug)]
pub(super) struct Entry {
    book: Rc<Book>,
    record: ServedRecord,
    served_at: Option<Instant>,
}

impl Entry {
    /// It goes to the application.
    pub(super) const fn sent(&mut self, now: Instant, is_full: bool) {
        (self.served_at, self.record.is_full) = (Some(now), is_full);
    }

    /// There is no answer of the application.
    pub(super) const fn failed(&mut self) {
        self.record.end = CopyEnd::Failed;
    }

    /// The head of its answer is here.
    pub(super) fn answered(&mut self, response: &Response<Body>) {
        let is_error = response.status().is_server_error();
        self.record.end = if is_error { CopyEnd::Failed } else { CopyEnd::Answered };
        self.record.size = response.body().size_hint().exact().map_or(0, bits);
    }

    /// The rest of its answer has come to this end.
    pub(super) fn ended(mut self, end: End) {
        match end {
            End::Complete | End::GrpcStatus(_) => {}
            End::Broken => self.record.end = CopyEnd::Failed,
            End::Abandoned => self.record.end = CopyEnd::Cancelled,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let (now, record) = (self.book.clock.now(), &mut self.record);
        let served_at = self.served_at.unwrap_or(now);
        record.wait_ns = served_at.nanos_since(record.arrived_at);
        record.service_ns = now.nanos_since(served_at);
        self.book.sink.borrow_mut().copy_left(record);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::StatusCode;

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Vec<ServedRecord>>>);

    impl ServedSink for Kept {
        fn copy_left(&mut self, copy: &ServedRecord) {
            self.0.lock().unwrap().push(*copy);
        }
    }

    fn response(status: StatusCode, body: &'static str) -> Response<Body> {
        let mut response = Response::new(Body::full(body));
        *response.status_mut() = status;
        response
    }

    #[test]
    fn whoever_leaves_is_written_down_with_what_it_waited_and_how_it_ended() {
        let (clock, kept) = (Clock::start(), Kept::default());
        let book = Book::new(Box::new(kept.clone()), clock);
        let last = || kept.0.lock().unwrap().last().copied().unwrap();
        let enter = |number| book.enter(clock.now(), number, 3);

        drop(enter(Some(7)));
        let record = last();
        assert_eq!((record.number, record.queue, record.end), (7, 3, CopyEnd::Cancelled));
        assert_eq!((record.service_ns, record.is_full), (0, true), "it never was served");
        assert!(record.wait_ns > 0);

        let mut failed = enter(None);
        failed.sent(clock.now(), false);
        failed.failed();
        drop(failed);
        let record = last();
        assert_eq!((record.number, record.end, record.is_full), (0, CopyEnd::Failed, false));
        assert!(record.service_ns > 0);

        let ends = [
            (StatusCode::OK, End::Complete, CopyEnd::Answered),
            (StatusCode::NOT_FOUND, End::Complete, CopyEnd::Answered),
            (StatusCode::BAD_GATEWAY, End::Complete, CopyEnd::Failed),
            (StatusCode::OK, End::Broken, CopyEnd::Failed),
            (StatusCode::OK, End::Abandoned, CopyEnd::Cancelled),
        ];
        for (status, end, expected) in ends {
            let mut entry = enter(None);
            entry.sent(clock.now(), true);
            entry.answered(&response(status, "twelve bytes"));
            entry.ended(end);
            assert_eq!((last().end, last().size), (expected, 4), "{status} {end:?}");
        }
    }
}
