//! A request ends on every path, and once.

use std::future::{Future, Ready, pending, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::loopback::{ask, send, serve};
use axum::Router;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get;
use evenkeel_brownout::{BrownoutHandle, BrownoutLayer, Settings};
use tower_layer::Layer;
use tower_service::Service;

/// Answers as its function says.
#[derive(Clone)]
struct Answers<F>(F);

impl<F, O> Service<Request<()>> for Answers<F>
where
    F: FnMut() -> O,
    O: Future<Output = Result<Response<()>, &'static str>>,
{
    type Response = Response<()>;
    type Error = &'static str;
    type Future = O;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> O {
        self.0()
    }
}

fn layer() -> (BrownoutLayer, BrownoutHandle) {
    let settings =
        Settings::new().setpoint(Duration::from_millis(20)).period(Duration::from_millis(10));
    let layer = BrownoutLayer::new(settings).unwrap();
    let handle = layer.handle();
    (layer, handle)
}

fn status(status: StatusCode) -> Ready<Result<Response<()>, &'static str>> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    ready(Ok(response))
}

fn call<O: Future<Output = Result<Response<()>, &'static str>>>(
    layer: &BrownoutLayer,
    answer: impl FnMut() -> O,
) -> Poll<Result<Response<()>, &'static str>> {
    let mut service = layer.layer(Answers(answer));
    let response = pin!(service.call(Request::new(())));
    response.poll(&mut Context::from_waker(Waker::noop()))
}

/// Whether the response times of thirty such answers are counted.
fn is_counted(answer: impl Fn(&BrownoutLayer)) -> bool {
    let (layer, handle) = layer();
    for _ in 0..30 {
        answer(&layer);
    }
    assert_eq!(handle.state().present, 0, "all of them have ended");
    std::thread::sleep(Duration::from_millis(11));
    handle.state().percentile.is_some()
}

#[test]
fn answers_are_counted_and_failures_are_not() {
    assert!(is_counted(|layer| assert!(call(layer, || status(StatusCode::OK)).is_ready())));
    let missing = StatusCode::NOT_FOUND;
    assert!(is_counted(|layer| assert!(call(layer, || status(missing)).is_ready())));
    let failing = StatusCode::SERVICE_UNAVAILABLE;
    assert!(!is_counted(|layer| assert!(call(layer, || status(failing)).is_ready())));
    assert!(!is_counted(|layer| {
        assert_eq!(call(layer, || ready(Err("broken"))).map(Result::unwrap_err), {
            Poll::Ready("broken")
        });
    }));
}

#[test]
fn who_is_dropped_at_once_says_nothing() {
    assert!(!is_counted(|layer| assert!(call(layer, pending).is_pending())));
}

#[test]
fn a_panic_in_the_service_ends_the_request_too() {
    let (layer, handle) = layer();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = call(&layer, || -> Ready<_> { panic!("in the service") });
    }));
    assert!(panicked.is_err());
    assert_eq!(handle.state().present, 0);
}

/// Clients that give up after the setpoint have waited that long: the percentile knows it.
#[tokio::test]
async fn clients_that_go_away_late_are_counted_with_the_time_they_waited() {
    let (layer, handle) = layer();
    let app = Router::new().route("/hangs", get(pending::<&str>)).layer(layer);
    let address = serve(app).await;
    let mut connections = Vec::new();
    for _ in 0..30 {
        connections.push(send(address, "/hangs", &[]).await);
    }
    until(|| handle.state().present == 30).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    drop(connections);
    until(|| handle.state().present == 0).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    let percentile = handle.state().percentile.expect("thirty samples");
    assert!(percentile >= Duration::from_millis(20), "{percentile:?}");
}

/// A service that answers nothing has no response times; those who wait dim it all the same.
#[tokio::test]
async fn a_service_that_hangs_is_dimmed() {
    let (layer, handle) = layer();
    let app = Router::new()
        .route("/hangs", get(pending::<&str>))
        .route("/well", get(async || "well"))
        .layer(layer);
    let address = serve(app).await;
    assert_eq!(ask(address, "/well", &[]).await.header("brownout-dimmer").unwrap(), "1.0");
    let mut connections = Vec::new();
    for _ in 0..30 {
        connections.push(send(address, "/hangs", &[]).await);
    }
    until(|| handle.dimmer().value() < 0.8).await;
    let dimmer = ask(address, "/well", &[]).await.header("brownout-dimmer").unwrap();
    assert!(dimmer.parse::<f64>().unwrap() < 0.85, "{dimmer}");
}

/// Waits until it is so, ten seconds at most.
async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it is not so after ten seconds");
}
