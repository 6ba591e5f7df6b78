//! Copies of requests for an upstream whose answers nobody sees: a new version under real load.
//!
//! A copy never delays its request, and costs it nothing when the mirror is slow: at most
//! [`COPIES_MAX`] are on their way, and what comes beyond is not copied, which is counted.

use std::cell::Cell;
use std::rc::Rc;

use evenkeel_core::turns::Share;

use crate::config::MirrorConfig;
use crate::context::Trace;
use crate::protocol::{Http, Message};
use crate::route::Route;
use evenkeel_http::{Body, Request, grpc};
use evenkeel_proxy::calls::exchange::Exchange;
use evenkeel_proxy::calls::observer::Record;

/// Copies on their way at once, for each route and worker.
const COPIES_MAX: u32 = 128;
/// Bytes of an answer that are read: its connection can be used again then.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Who gets copies, and of how many requests.
#[derive(Debug)]
pub(crate) struct Mirror {
    route: Rc<Route>,
    share: f64,
    taken: Cell<Share>,
    on_their_way: Cell<u32>,
}

impl Mirror {
    pub(crate) fn new(route: Rc<Route>, config: MirrorConfig) -> Self {
        let (taken, on_their_way) = (Cell::default(), Cell::new(0));
        Self { route, share: config.share, taken, on_their_way }
    }

    /// Whether the next request is to be copied.
    pub(crate) fn wants_next(&self) -> bool {
        let mut taken = self.taken.get();
        let takes = taken.takes(self.share);
        self.taken.set(taken);
        takes
    }

    /// Sends a copy of a request whose body is at hand; of others there is none.
    pub(crate) fn copy(self: &Rc<Self>, request: &Request<Body>, trace: Trace) {
        let body = request.body().try_clone();
        let Some(body) = body.filter(|_| self.on_their_way.get() < COPIES_MAX) else {
            self.route.calls.note_mirrored(false);
            return;
        };
        self.route.calls.note_mirrored(true);
        let mut copy = Request::new(body);
        copy.method_mut().clone_from(request.method());
        copy.uri_mut().clone_from(request.uri());
        copy.headers_mut().clone_from(request.headers());
        self.on_their_way.set(self.on_their_way.get() + 1);
        let way = OnItsWay(Rc::clone(self));
        tokio::task::spawn_local(async move {
            let is_grpc = grpc::is_grpc(copy.headers());
            let (route, message) =
                (Rc::clone(&way.0.route), Message::of(copy, is_grpc, trace.of_copy()));
            let record = Record::default(); // nobody asks why a copy was slow
            route.calls.tick();
            let limit = route.config.timeouts.total;
            // A copy is no demand of our users: it stays in this data centre and is not counted.
            let exchange = Exchange::<Http>::open(route, message, None, record);
            let answer = exchange.run().await;
            let reading = answer.into_body().collect(ANSWER_BYTES_MAX);
            let _ = tokio::time::timeout(limit, reading).await; // nobody asks how it ended
        });
    }
}

/// A copy on its way.
struct OnItsWay(Rc<Mirror>);

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.on_their_way.set(self.0.on_their_way.get() - 1);
    }
}
