//! A request that is recorded allocates nothing, at the proxy and at the agent.
#![expect(unsafe_code, reason = "counting allocations takes a global allocator of our own")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use evenkeel_core::request::copies::{CopyEnd, ServedRecord, ServedSink};
use evenkeel_core::request::redundancy::Single;
use evenkeel_core::request::select::Policy;
use evenkeel_core::request::{
    BodyEnd, CallId, Dispatcher, DispatcherConfig, Outcome, Replay, Request, Step,
};
use evenkeel_core::units::Probability;
use evenkeel_core::{Fleet, GroupId, Instant};
use evenkeel_record::recorder;
use evenkeel_record::{BY_RUN, Stream};

thread_local! {
    /// Allocations of this thread: the test harness has threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about the layout are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, that is, from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// More than a lane holds: nobody empties it here.
const REQUESTS: u64 = 20_000;
const WARM_UP: u64 = 2_000;

/// A request each millisecond, answered after two; how many copies were sent.
fn request(dispatcher: &mut Dispatcher, n: u64) -> u64 {
    let now = Instant::from_millis(n);
    let mut call = dispatcher.open(now, CallId(n), Request::new(GroupId::new(0), Replay::Always));
    let Step::Send(mut first) = dispatcher.step(now, &mut call) else {
        panic!("somebody is up");
    };
    let pair = dispatcher.pair(now, &call);
    let then = Instant::from_millis(n + 2);
    first.note_size(1_000);
    assert!(dispatcher.number(&call).is_some());
    let settled = dispatcher.learn(then, &mut first, &Outcome::Replied(None));
    call.settle(settled);
    assert!(matches!(dispatcher.step(then, &mut call), Step::Answered(0)));
    dispatcher.finish(then, first, BodyEnd::Complete);
    dispatcher.close(then, call);
    let Some(mut pair) = pair else { return 1 };
    let _ = dispatcher.learn(then, &mut pair, &Outcome::Replied(None));
    dispatcher.finish(then, pair, BodyEnd::Complete);
    2
}

#[test]
fn a_request_that_is_recorded_allocates_nothing() {
    let (recorder, _control, _writer) = recorder::open(None);
    let stream = Arc::new(Stream {
        name: "upstream.shop".to_owned(),
        by: BY_RUN,
        policies: Vec::new(),
        pairs: 0.05,
        like: String::new(),
        replicas: 3,
    });
    let policy: Policy = "c3".parse().expect("a policy");
    let fleet = Fleet::single_group(3);
    let dispatcher = Dispatcher::new(fleet, policy.make(1), DispatcherConfig::default());
    let mut dispatcher = dispatcher.with_redundancy(Box::new(Single));
    dispatcher.record(recorder.sink(&stream, 0), Probability::clamped(0.05));
    let mut agent: Box<dyn ServedSink> = recorder.served_sink(&stream);
    let mut copies = 0;
    let mut at = |n| {
        copies += request(&mut dispatcher, n);
        agent.copy_left(&ServedRecord {
            number: n,
            arrived_at: Instant::from_millis(n),
            wait_ns: 0,
            service_ns: 1_000,
            queue: 0,
            is_full: true,
            end: CopyEnd::Answered,
            size: 10,
        });
    };
    (1..WARM_UP).for_each(&mut at);
    let before = ALLOCATIONS.get();
    (WARM_UP..REQUESTS).for_each(&mut at);
    let allocated = ALLOCATIONS.get() - before;
    assert_eq!(allocated, 0, "by {} requests", REQUESTS - WARM_UP);
    assert!(copies > REQUESTS + 100, "pairs were sent, too: {copies}");
}
