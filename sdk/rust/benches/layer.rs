//! What the layer costs a request: alone, and with more threads than cores.
//!
//! `cargo bench -p evenkeel-brownout` prints the time of one request on one thread. The service
//! below answers at once, so with two threads or more this is contention at its worst: a service
//! that does a microsecond of work between two requests meets the lock far less often.

use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use evenkeel_brownout::{Brownout, BrownoutLayer, Inbound, Settings};
use http::{HeaderValue, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

/// Requests per measured call of the closure.
const REQUESTS: usize = 1_000;
const THREADS: [usize; 3] = [1, 2, 4];

const IDLE: Page = Page { work: 0 };
/// Ten microseconds, as a small handler and its framework take.
const BUSY: Page = Page { work: 40_000 };

fn main() {
    divan::main();
}

#[derive(Clone)]
struct Page {
    /// Rounds of work between two requests.
    work: u32,
}

impl Service<Request<()>> for Page {
    type Response = Response<()>;
    type Error = ();
    type Future = Ready<Result<Response<()>, ()>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        black_box(Brownout::of(request.extensions()).optional("recommendations"));
        for round in 0..self.work {
            black_box(round);
        }
        ready(Ok(Response::new(())))
    }
}

#[divan::bench(threads = THREADS)]
fn without(bencher: Bencher<'_, '_>) {
    drive(bencher, &IDLE, None);
}

#[divan::bench(threads = THREADS)]
fn decide(bencher: Bencher<'_, '_>) {
    drive(bencher, &layer(Settings::new()).layer(IDLE), None);
}

#[divan::bench(threads = THREADS)]
fn decide_with_cores(bencher: Bencher<'_, '_>) {
    drive(bencher, &layer(Settings::new().cores(4.0)).layer(IDLE), None);
}

#[divan::bench(threads = THREADS)]
fn obey(bencher: Bencher<'_, '_>) {
    let settings = Settings::new().parts(["recommendations", "comments"]).inbound(Inbound::Obey);
    drive(bencher, &layer(settings).layer(IDLE), Some("?0;recommendations"));
}

#[divan::bench(threads = THREADS)]
fn busy_without(bencher: Bencher<'_, '_>) {
    drive(bencher, &BUSY, None);
}

#[divan::bench(threads = THREADS)]
fn busy_decide_with_cores(bencher: Bencher<'_, '_>) {
    drive(bencher, &layer(Settings::new().cores(4.0)).layer(BUSY), None);
}

fn layer(settings: Settings) -> BrownoutLayer {
    BrownoutLayer::new(settings).expect("settings in their ranges")
}

fn drive<S>(bencher: Bencher<'_, '_>, service: &S, decision: Option<&'static str>)
where
    S: Service<Request<()>, Response = Response<()>, Error = ()> + Clone + Sync,
{
    bencher.counter(ItemsCount::new(REQUESTS)).bench(|| {
        let mut service = service.clone();
        for _ in 0..REQUESTS {
            let mut request = Request::new(());
            if let Some(decision) = decision {
                let decision = HeaderValue::from_static(decision);
                request.headers_mut().insert(evenkeel_brownout::OPTIONAL, decision);
            }
            let response = pin!(service.call(request));
            let response = response.poll(&mut Context::from_waker(Waker::noop()));
            assert!(black_box(response).is_ready());
        }
    });
}
