//! Clients that speak HTTP/2, friendly and hostile ones.

use std::future::poll_fn;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, StatusCode};
use tokio::task::spawn_local;

use super::*;
use crate::{Counted, Fields, Side, grpc, http_counts};
use evenkeel_runtime::accept::{Dialer, Stage};

type Handled = std::pin::Pin<Box<dyn Future<Output = Response<Body>>>>;

/// A listener with this handler.
fn listen(
    limits: ServerLimits,
    handler: impl Fn(Request<Body>) -> Handled + 'static,
) -> (Dialer, Stop, JoinHandle<Served>) {
    let ((listener, dialer), stop) = (Listener::memory(), Stop::new());
    let serving = serve(listener, limits, move |request, _| handler(request), stop.signal());
    (dialer, stop, spawn_local(async { serving.await.unwrap() }))
}

/// A client, and how its connection ends.
async fn client(dialer: &Dialer) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(1 << 20); // one stream does not use it up
    let (sender, connection) = builder.handshake(dialer.connect().unwrap()).await.unwrap();
    (sender, spawn_local(connection))
}

fn request(method: Method, path: &str) -> http::Request<()> {
    let uri = format!("http://a.example{path}");
    http::Request::builder().method(method).uri(uri).body(()).unwrap()
}

async fn ask(
    sender: &mut SendRequest<Bytes>,
    request: http::Request<()>,
) -> http::Response<RecvStream> {
    poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
    sender.send_request(request, true).unwrap().0.await.unwrap()
}

async fn read(stream: &mut RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut all = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece.unwrap();
        stream.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    (all, stream.trailers().await.unwrap())
}

/// Answers with what came.
fn echo(request: Request<Body>) -> Handled {
    Box::pin(async move { Response::new(request.into_body()) })
}

#[test]
fn bodies_and_trailers_pass_while_both_sides_still_speak() {
    run(async {
        let (dialer, _stop, _serving) = listen(SERVER, echo);
        let (mut sender, _) = client(&dialer).await;
        poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
        let (response, mut upload) =
            sender.send_request(request(Method::POST, "/"), false).unwrap();
        let mut download = response.await.unwrap().into_body();
        for word in ["one", "two"] {
            upload.send_data(word.into(), false).unwrap();
            assert_eq!(download.data().await.unwrap().unwrap(), word);
        }
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        upload.send_trailers(trailers.clone()).unwrap();
        assert_eq!(read(&mut download).await, (Vec::new(), Some(trailers)));
    });
}

#[test]
fn large_bodies_pass_in_many_streams_at_once() {
    run(async {
        let (dialer, _stop, _serving) = listen(SERVER, echo);
        let (sender, _) = client(&dialer).await;
        let one = |seed: u8| {
            let mut sender = sender.clone();
            async move {
                poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
                let post = request(Method::POST, "/");
                let (response, mut upload) = sender.send_request(post, false).unwrap();
                let body = vec![seed; 300_000];
                upload.send_data(body.clone().into(), true).unwrap();
                let mut response = response.await.unwrap();
                assert!(read(response.body_mut()).await.0 == body);
            }
        };
        let all: Vec<_> = (0..20).map(|seed| spawn_local(one(seed))).collect();
        for one in all {
            one.await.unwrap();
        }
    });
}

/// Counts handlers that are at work.
fn counting() -> (Rc<()>, impl Fn(Request<Body>) -> Handled) {
    let (count, its) = (Rc::new(()), Rc::new(()));
    let counted = Rc::clone(&count);
    let handler = move |request: Request<Body>| -> Handled {
        let (counted, _its) = (Rc::clone(&counted), Rc::clone(&its));
        Box::pin(async move {
            if request.uri().path() == "/slow" {
                std::future::pending::<()>().await;
            }
            drop(counted);
            Response::new(Body::full("quick"))
        })
    };
    (count, handler)
}

#[test]
fn a_stream_that_is_reset_ends_its_handler_and_no_other() {
    run(async {
        let (count, handler) = counting();
        let (dialer, _stop, _serving) = listen(SERVER, handler);
        let (mut sender, connection) = client(&dialer).await;
        let (slow, mut upload) = sender.send_request(request(Method::GET, "/slow"), false).unwrap();
        let (other, _) = sender.send_request(request(Method::GET, "/slow"), true).unwrap();
        until("both are at work", || Rc::strong_count(&count) == 4).await;
        upload.send_reset(Reason::CANCEL);
        until("one is left", || Rc::strong_count(&count) == 3).await;
        let mut response = ask(&mut sender, request(Method::GET, "/")).await;
        assert_eq!(read(response.body_mut()).await.0, b"quick");
        drop((slow, upload, other, sender, response));
        connection.abort();
        until("none is left", || Rc::strong_count(&count) == 2).await;
    });
}

#[test]
fn one_who_drains_answers_what_is_on_its_way_and_says_goodbye() {
    run(async {
        let release = Rc::new(tokio::sync::Notify::new());
        let its = Rc::clone(&release);
        let handler = move |_| -> Handled {
            let release = Rc::clone(&its);
            Box::pin(async move {
                release.notified().await;
                Response::new(Body::full("late"))
            })
        };
        let (dialer, stop, serving) = listen(SERVER, handler);
        let (mut sender, connection) = client(&dialer).await;
        let (mut idle, its_end) = client(&dialer).await;
        poll_fn(|cx| idle.poll_ready(cx)).await.unwrap();
        let (response, _) = sender.send_request(request(Method::GET, "/"), true).unwrap();
        pause(20).await;
        stop.enter(Stage::LameDuck);
        // The client is told at once, and takes another connection for what comes next.
        while poll_fn(|cx| sender.poll_ready(cx)).await.is_ok() {
            pause(5).await;
        }
        assert!(its_end.await.unwrap().is_ok());
        let until = tokio::time::Instant::now() + SERVER.drain;
        stop.enter(Stage::Draining { until });
        release.notify_one();
        let mut response = response.await.unwrap();
        assert_eq!(read(response.body_mut()).await.0, b"late");
        drop(response);
        assert!(connection.await.unwrap().is_ok());
        assert_eq!(serving.await.unwrap().cut_off, 0);
    });
}

#[test]
fn an_old_connection_is_told_to_go_and_its_streams_are_answered() {
    run(async {
        let release = Rc::new(tokio::sync::Notify::new());
        let its = Rc::clone(&release);
        let handler = move |_| -> Handled {
            let release = Rc::clone(&its);
            Box::pin(async move {
                release.notified().await;
                Response::new(Body::full("late"))
            })
        };
        let limits = ServerLimits { connection_age: Duration::from_millis(400), ..SERVER };
        let (dialer, _stop, _serving) = listen(limits, handler);
        let (mut sender, connection) = client(&dialer).await;
        let (response, _) = sender.send_request(request(Method::GET, "/"), true).unwrap();
        while poll_fn(|cx| sender.poll_ready(cx)).await.is_ok() {
            pause(5).await;
        }
        release.notify_one();
        let mut response = response.await.unwrap();
        assert_eq!(read(response.body_mut()).await.0, b"late");
        drop(response);
        assert!(connection.await.unwrap().is_ok(), "it ends without an error");
        let (mut next, _connection) = client(&dialer).await;
        release.notify_one();
        assert_eq!(ask(&mut next, request(Method::GET, "/")).await.status(), 200);
    });
}

#[test]
fn rapid_resets_are_answered_with_enhance_your_calm() {
    run(async {
        let (_, handler) = counting();
        let (dialer, _stop, _serving) = listen(SERVER, handler);
        let before = http_counts(Side::Clients);
        let (mut sender, connection) = client(&dialer).await;
        for number in 0..10_000 {
            if poll_fn(|cx| sender.poll_ready(cx)).await.is_err() {
                break;
            }
            let sent = sender.send_request(request(Method::GET, "/slow"), true);
            let Ok((response, _)) = sent else { break };
            if number % 10 == 0 {
                pause(1).await; // some of them reach a handler
            }
            drop(response);
        }
        let error = connection.await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM), "{error}");
        // Of the whole process: other tests count as well.
        let after = http_counts(Side::Clients);
        let counted = |kind| after.of(kind) - before.of(kind);
        assert!(counted(Counted::Floods) >= 1 && counted(Counted::GoAwaysSent) >= 1);
        assert!(counted(Counted::ResetsReceived) >= 100 && counted(Counted::Streams) >= 1);
        assert!(counted(Counted::Http2) >= 1);
    });
}

/// A client that speaks bytes, after its preface.
async fn raw(dialer: &Dialer) -> tokio::io::DuplexStream {
    let mut client = dialer.connect().unwrap();
    client.write_all(crate::h2::PREFACE).await.unwrap();
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    client
}

#[test]
fn frames_that_ask_nothing_are_answered_with_enhance_your_calm() {
    let ping: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let window: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let unknown: &[u8] = &[0, 0, 0, 99, 0, 0, 0, 0, 0];
    for frame in [ping, settings, window, unknown] {
        run(async {
            let (dialer, _stop, _serving) = listen(SERVER, echo);
            let (mut reading, mut writing) = tokio::io::split(raw(&dialer).await);
            let flood = frame.repeat(2_000);
            let writing = spawn_local(async move { writing.write_all(&flood).await.is_ok() });
            let mut came = Vec::new();
            reading.read_to_end(&mut came).await.unwrap();
            let calm = [0, 0, 0, Into::<u32>::into(Reason::ENHANCE_YOUR_CALM) as u8];
            let is_told = came.windows(17).any(|at| at[3] == 7 && at[13..17] == calm);
            assert!(is_told, "{frame:?}");
            writing.abort();
        });
    }
}

#[test]
fn what_only_a_stream_can_say_wrong_is_refused() {
    run(async {
        let (dialer, _stop, _serving) = listen(SERVER, echo);
        let (mut sender, _) = client(&dialer).await;
        let mut two = request(Method::GET, "/");
        two.headers_mut().insert(http::header::HOST, HeaderValue::from_static("b.example"));
        assert_eq!(ask(&mut sender, two).await.status(), StatusCode::BAD_REQUEST);
        let mut long = request(Method::POST, "/");
        let headers = long.headers_mut();
        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(SERVER.body_bytes_max + 1));
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let (response, _upload) = sender.send_request(long, false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(
            grpc::status_in(&Fields::from(response.headers())),
            Some(8),
            "RESOURCE_EXHAUSTED"
        );
        let mut many = request(Method::GET, "/");
        for number in 0..101 {
            let name: http::HeaderName = format!("x-{number}").parse().unwrap();
            many.headers_mut().insert(name, HeaderValue::from_static(""));
        }
        let status = ask(&mut sender, many).await.status();
        assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    });
}

#[test]
fn a_client_that_takes_nothing_of_a_stream_loses_that_one_only() {
    run(async {
        let limits = ServerLimits { write: Duration::from_millis(300), ..SERVER };
        let handler = |request: Request<Body>| -> Handled {
            let length = if request.uri().path() == "/long" { 1_000_000 } else { 5 };
            Box::pin(async move { Response::new(Body::full(vec![b'x'; length])) })
        };
        let (dialer, _stop, _serving) = listen(limits, handler);
        let (mut sender, _) = client(&dialer).await;
        let long = ask(&mut sender, request(Method::GET, "/long")).await;
        let mut stalled = long.into_body();
        // Nothing is released: the window of the stream is soon used up.
        let error = loop {
            match stalled.data().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("all of it came"),
            }
        };
        assert_eq!(error.reason(), Some(Reason::CANCEL));
        let mut other = ask(&mut sender, request(Method::GET, "/")).await;
        assert_eq!(read(other.body_mut()).await.0, b"xxxxx");
    });
}
