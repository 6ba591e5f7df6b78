//! The agent before real applications on loopback sockets.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use evenkeel_core::Feedback;
use evenkeel_http::{Body, Client, Fields, Request, Response, SendError, Upstream, serve};
use evenkeel_http_proxy::config::AgentConfig;
use evenkeel_http_proxy::orca;
use evenkeel_http_proxy::replica::{PROBE_PATH, serve_agent};
use evenkeel_runtime::accept::Listener;
use evenkeel_runtime::accept::{Stop, StopSignal};
use evenkeel_runtime::clock::Clock;
use evenkeel_testkit::story::{LIMITS, MS, UPSTREAM, story};
use evenkeel_testkit::wait::{found, until};
use http::header::RETRY_AFTER;
use http::{HeaderName, Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

fn loopback() -> (Listener, SocketAddr) {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.address().unwrap();
    (listener, address)
}

/// An application that answers when it is allowed to, with the path as the body.
#[derive(Clone)]
struct App(Rc<AppState>);

struct AppState {
    address: SocketAddr,
    came: RefCell<Vec<String>>,
    allowed: Semaphore,
    given_up: Cell<u32>,
    pause: Duration,
}

impl App {
    fn start(pause: Duration) -> App {
        let (listener, address) = loopback();
        let (came, given_up) = (RefCell::default(), Cell::new(0));
        let allowed = Semaphore::new(0);
        let app = App(Rc::new(AppState { address, came, allowed, given_up, pause }));
        let state = Rc::clone(&app.0);
        let handler = move |request, _: Rc<Client>| Rc::clone(&state).answer(request);
        tokio::task::spawn_local(serve(listener, LIMITS, handler, StopSignal::never()));
        app
    }

    fn allow(&self, answers: usize) {
        self.0.allowed.add_permits(answers);
    }

    fn came(&self) -> Vec<String> {
        self.0.came.borrow().clone()
    }

    async fn until_came(&self, requests: usize) {
        until("requests come", || self.0.came.borrow().len() >= requests).await;
    }
}

impl AppState {
    async fn answer(self: Rc<Self>, request: Request<Body>) -> Response<Body> {
        struct GivenUp<'a>(&'a Cell<u32>);
        impl Drop for GivenUp<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let path = request.uri().path().to_owned();
        self.came.borrow_mut().push(path.clone());
        let given_up = GivenUp(&self.given_up);
        self.allowed.acquire().await.unwrap().forget();
        tokio::time::sleep(self.pause).await;
        std::mem::forget(given_up);
        let mut response = Response::new(Body::full(path.clone()));
        if path == "/broken" {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        response
    }
}

/// The agent's clients.
#[derive(Clone)]
struct Proxy(Upstream);

impl Proxy {
    /// Starts an agent before the application.
    fn before(
        app: SocketAddr,
        concurrency: Option<u32>,
        change: impl Fn(&mut AgentConfig),
    ) -> Proxy {
        let (listener, address) = loopback();
        let mut config = AgentConfig {
            address,
            app: app.into(),
            concurrency,
            queue_max: 100,
            queue_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            dimmer: None,
            udp_probes: true,
            limits: LIMITS,
            upstream_limits: UPSTREAM,
            tls: None,
            app_tls: None,
        };
        change(&mut config);
        tokio::task::spawn_local(async move {
            serve_agent(&config, listener, Clock::start(), StopSignal::never()).await
        });
        Proxy(Upstream::new(address, UPSTREAM))
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let answer: Result<Response<Body>, SendError> = self.0.send(request).await;
        let mut response = answer.unwrap();
        let feedback = orca::take_feedback(response.headers_mut()).unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect(1 << 20).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Answer { status: head.status, headers: head.headers, body, feedback }
    }

    async fn ask(&self, path: &str) -> Answer {
        self.send(get(path)).await
    }

    fn spawn(&self, path: &str) -> JoinHandle<Answer> {
        let (proxy, path) = (self.clone(), path.to_owned());
        tokio::task::spawn_local(async move { proxy.ask(&path).await })
    }

    /// Requests that wait and that are in service, as a probe tells.
    async fn load(&self) -> (u32, u32) {
        self.ask(PROBE_PATH).await.feedback.map_or((0, 0), load)
    }

    async fn until_load(&self, waiting: u32, in_service: u32) {
        let is_so = async || (self.load().await == (waiting, in_service)).then_some(());
        found("so many wait and are in service", is_so).await;
    }
}

struct Answer {
    status: StatusCode,
    headers: Fields,
    body: String,
    feedback: Option<Feedback>,
}

fn get(path: &str) -> Request<Body> {
    http::Request::get(path).header("host", "app").body(Body::empty()).unwrap().into()
}

fn load(feedback: Feedback) -> (u32, u32) {
    (feedback.queue_length, feedback.in_service)
}

#[test]
fn what_waits_and_what_is_in_service_is_counted() {
    story(async {
        let app = App::start(Duration::ZERO);
        let proxy = Proxy::before(app.0.address, Some(2), |_| ());
        let before = proxy.ask(PROBE_PATH).await;
        assert_eq!(before.status, StatusCode::NO_CONTENT);
        let told = before.feedback.unwrap().service_time;
        assert_eq!(told, None, "nobody has measured a service time yet");
        let asked: Vec<_> = (0..5).map(|n| proxy.spawn(&format!("/{n}"))).collect();
        proxy.until_load(3, 2).await;
        app.until_came(2).await;
        let report = proxy.ask(PROBE_PATH).await.feedback.unwrap();
        assert_eq!(report.concurrency, Some(2));
        assert_eq!(app.came().len(), 2, "the others are not with the application");
        let mut reports = Vec::new();
        for (answered, answer) in asked.into_iter().enumerate() {
            app.allow(1);
            let answer = answer.await.unwrap();
            assert_eq!((answer.status, answer.body), (StatusCode::OK, format!("/{answered}")));
            reports.push(answer.feedback.unwrap());
        }
        // Each answer counts without itself, and its slot went to the next.
        let loads: Vec<_> = reports.iter().copied().map(load).collect();
        assert_eq!(loads, [(2, 2), (1, 2), (0, 2), (0, 1), (0, 0)]);
        let times: Vec<_> = reports.iter().map(|report| report.reported_at.unwrap()).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(reports.iter().all(|report| report.arrival_rate.unwrap().value() >= 20.0));
        assert_eq!(proxy.load().await, (0, 0));
    });
}

#[test]
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    story(async {
        let app = App::start(Duration::ZERO);
        let proxy = Proxy::before(app.0.address, Some(1), |_| ());
        let mut asked = Vec::new();
        for n in 0..20 {
            asked.push(proxy.spawn(&format!("/{n}")));
            proxy.until_load(n, 1).await;
        }
        app.allow(20);
        for answer in asked {
            answer.await.unwrap();
        }
        assert_eq!(app.came(), (0..20).map(|n| format!("/{n}")).collect::<Vec<_>>());
    });
}

#[test]
fn service_time_does_not_contain_waiting() {
    story(async {
        let app = App::start(30 * MS);
        app.allow(100);
        let proxy = Proxy::before(app.0.address, Some(1), |_| ());
        let began = Instant::now();
        let asked: Vec<_> = (0..4).map(|n| proxy.spawn(&format!("/{n}"))).collect();
        let mut service_times = Vec::new();
        for answer in asked {
            service_times.push(answer.await.unwrap().feedback.unwrap().service_time.unwrap());
        }
        let total = began.elapsed();
        assert!(total >= 120 * MS, "one after the other: {total:?}");
        assert!(service_times.iter().all(|time| *time >= 30 * MS), "{service_times:?}");
        let sum: Duration = service_times.iter().sum();
        assert!(sum <= total, "{service_times:?} of {total:?}");
        // A failure is answered with the usual time, not with its own.
        let before = proxy.ask(PROBE_PATH).await.feedback.unwrap().service_time;
        let failure = proxy.ask("/broken").await;
        assert_eq!(failure.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(failure.feedback.unwrap().service_time, before);
    });
}

#[test]
fn a_full_queue_refuses_with_a_report() {
    story(async {
        let app = App::start(Duration::ZERO);
        let proxy = Proxy::before(app.0.address, Some(1), |config| config.queue_max = 1);
        let asked = [proxy.spawn("/0"), proxy.spawn("/1")];
        proxy.until_load(1, 1).await;
        let refused = proxy.ask("/2").await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers.get("retry-after").unwrap(), "1");
        assert!(refused.body.contains("1 requests wait already"), "{}", refused.body);
        assert_eq!(refused.feedback.map(load), Some((1, 1)));
        assert_eq!(proxy.ask(PROBE_PATH).await.status, StatusCode::NO_CONTENT);
        app.allow(2);
        for answer in asked {
            assert_eq!(answer.await.unwrap().status, StatusCode::OK);
        }
        assert_eq!(app.came(), ["/0", "/1"], "the refused one never came to the application");
    });
}

#[test]
fn clients_that_leave_take_their_requests_along() {
    story(async {
        let app = App::start(Duration::ZERO);
        let proxy = Proxy::before(app.0.address, Some(1), |_| ());
        let in_service = proxy.spawn("/0");
        proxy.until_load(0, 1).await;
        let waiting = proxy.spawn("/1");
        proxy.until_load(1, 1).await;
        let patient = proxy.spawn("/2");
        proxy.until_load(2, 1).await;
        waiting.abort();
        proxy.until_load(1, 1).await;
        in_service.abort();
        proxy.until_load(0, 1).await;
        until("the application learns it too", || app.0.given_up.get() > 0).await;
        app.allow(1);
        assert_eq!(patient.await.unwrap().body, "/2");
        assert_eq!(app.came(), ["/0", "/2"]);
        assert_eq!(proxy.load().await, (0, 0));
    });
}

#[test]
fn an_application_that_does_not_answer_is_given_up() {
    story(async {
        let app = App::start(Duration::ZERO);
        let proxy = Proxy::before(app.0.address, Some(1), |config| config.timeout = 300 * MS);
        let late = proxy.ask("/0").await;
        assert_eq!(late.status, StatusCode::GATEWAY_TIMEOUT);
        assert!(late.body.contains("did not answer within 300ms"), "{}", late.body);
        let report = late.feedback.unwrap();
        assert_eq!(load(report), (0, 0), "its slot is free");
        assert!(report.service_time >= Some(300 * MS), "it takes at least that long: {report:?}");
        app.allow(1);
        assert_eq!(proxy.ask("/1").await.status, StatusCode::OK);
    });
}

#[test]
fn an_application_that_is_not_there_is_named() {
    story(async {
        let (listener, nobody) = loopback();
        drop(listener);
        let proxy = Proxy::before(nobody, Some(1), |_| ());
        for _ in 0..3 {
            let answer = proxy.ask("/").await;
            assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
            let expected = format!("{nobody}: connection refused (is it running?)");
            assert!(answer.body.contains(&expected), "{}", answer.body);
            assert_eq!(answer.feedback.map(load), Some((0, 0)));
        }
    });
}

#[test]
fn without_a_limit_everything_is_with_the_application() {
    story(async {
        let app = App::start(Duration::ZERO);
        let proxy = Proxy::before(app.0.address, None, |_| ());
        let asked: Vec<_> = (0..50).map(|n| proxy.spawn(&format!("/{n}"))).collect();
        proxy.until_load(0, 50).await;
        app.until_came(50).await;
        app.allow(50);
        for answer in asked {
            assert_eq!(answer.await.unwrap().feedback.unwrap().concurrency, None);
        }
    });
}

/// An application written byte by byte: what it reads of a request, as text, up to this end.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1, "closed in {text:?}");
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

async fn plain_listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn requests_and_answers_pass_unchanged_but_for_the_report() {
    story(async {
        let (listener, address) = plain_listener().await;
        let proxy = Proxy::before(address, Some(1), |_| ());
        let mut request = Request::new(Body::full("hello"));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "/cart?item=%20x".parse().unwrap();
        let headers = [("host", "shop.test"), ("x-forwarded-for", "10.1.2.3"), ("x-y", "z")];
        for (name, value) in headers {
            request.headers_mut().append(HeaderName::from_static(name), &value.parse().unwrap());
        }
        let answer = tokio::task::spawn_local(async move { proxy.send(request).await });
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").await;
        let mut lines: Vec<&str> = head.trim_end().split("\r\n").collect();
        assert_eq!(lines.remove(0), "POST /cart?item=%20x HTTP/1.1");
        lines.sort_unstable();
        let mut expected = headers.map(|(name, value)| format!("{name}: {value}")).to_vec();
        expected.extend(["cdn-loop: evenkeel", "content-length: 5"].map(str::to_owned));
        expected.sort_unstable();
        assert_eq!(lines, expected);
        assert_eq!(read_until(&mut stream, "hello").await, "hello");
        let said = "HTTP/1.1 418 \r\nx-a: b\r\ncontent-length: 2\r\nkeep-alive: 5\r\n\
                    endpoint-load-metrics: TEXT cpu_utilization=0.9\r\n\
                    endpoint-load-metrics: TEXT named_metrics.evenkeel.queue=NaN\r\n\r\nhi";
        stream.write_all(said.as_bytes()).await.unwrap();
        let answer = answer.await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.body.as_str()), (418, "hi"));
        assert_eq!(answer.headers.get("x-a").unwrap(), "b");
        assert_eq!(answer.feedback.map(load), Some((0, 0)), "the agent's report, not the other");
    });
}

#[test]
fn a_body_that_streams_keeps_its_slot_until_its_end() {
    story(async {
        let (listener, address) = plain_listener().await;
        let proxy = Proxy::before(address, Some(1), |_| ());
        for is_abandoned in [false, true] {
            let asking = proxy.0.send(get("/stream"));
            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                read_until(&mut stream, "\r\n\r\n").await;
                let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
                stream.write_all(head).await.unwrap();
                stream
            };
            let (response, mut stream) = join(asking, serving).await;
            let mut response = response.unwrap();
            let report = orca::take_feedback(response.headers_mut()).unwrap().unwrap();
            assert_eq!(load(report), (0, 1), "it is still in service");
            let mut body = response.into_body();
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(first, "abc", "it arrives before the end is written");
            assert_eq!(proxy.load().await, (0, 1));
            if is_abandoned {
                drop(body);
                let end = stream.read(&mut [0]).await;
                assert!(matches!(end, Ok(0) | Err(_)), "the application hears of it: {end:?}");
            } else {
                stream.write_all(b"0\r\n\r\n").await.unwrap();
                assert!(body.frame().await.is_none_or(|frame| frame.is_ok()));
            }
            proxy.until_load(0, 0).await;
        }
    });
}

/// The application stands still in the middle of its bodies: their slots become free at the limit,
/// and who waits longer than it may is told.
#[test]
fn stalled_bodies_free_their_slots_and_waiting_has_an_end() {
    story(async {
        let (listener, address) = plain_listener().await;
        let proxy = Proxy::before(address, Some(1), |config| {
            config.upstream_limits.body.idle = 1_500 * MS;
            config.queue_timeout = 100 * MS;
        });
        let stalling = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_until(&mut stream, "\r\n\r\n").await;
            let some = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
            stream.write_all(some).await.unwrap();
            stream
        };
        let (response, stream) = join(proxy.0.send(get("/stalls")), stalling).await;
        let waiting = proxy.ask("/waits").await;
        assert_eq!(waiting.status, StatusCode::SERVICE_UNAVAILABLE, "{}", waiting.body);
        assert_eq!(waiting.headers.get(RETRY_AFTER).unwrap(), "1");
        assert!(waiting.body.contains("waited"), "{}", waiting.body);
        let stalled = response.unwrap().into_body().collect(100).await;
        assert!(stalled.is_err(), "the agent cuts it off: {stalled:?}");
        proxy.until_load(0, 0).await;
        drop(stream);
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_until(&mut stream, "\r\n\r\n").await;
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        };
        let (answer, ()) = join(proxy.ask("/next"), serving).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
    });
}

#[test]
fn a_request_that_died_with_a_kept_connection_is_sent_once_more_if_that_is_safe() {
    story(async {
        let (listener, address) = plain_listener().await;
        let proxy = Proxy::before(address, Some(1), |_| ());
        let answering = async |stream: &mut TcpStream| {
            let head = read_until(stream, "\r\n\r\n").await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            head
        };
        for (method, status) in [(Method::GET, 200), (Method::POST, 502)] {
            let (mut request, method_sent) = (get("/twice"), method.clone());
            *request.method_mut() = method;
            let asking = async {
                assert_eq!(proxy.ask("/first").await.status, StatusCode::OK);
                proxy.send(request).await
            };
            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                answering(&mut stream).await;
                // Reads the next request on the kept connection and closes without an answer.
                read_until(&mut stream, "\r\n\r\n").await;
                drop(stream);
                if method_sent == Method::GET {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let head = answering(&mut stream).await;
                    assert!(head.starts_with("GET /twice "), "{head}");
                }
            };
            let (answer, ()) = join(asking, serving).await;
            assert_eq!(answer.status.as_u16(), status, "{}", answer.body);
        }
    });
}

#[test]
fn the_end_waits_for_what_is_in_flight() {
    story(async {
        let app = App::start(Duration::ZERO);
        let (listener, address) = loopback();
        let config = AgentConfig {
            address,
            app: app.0.address.into(),
            concurrency: Some(1),
            queue_max: 10,
            queue_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            dimmer: None,
            udp_probes: true,
            limits: LIMITS,
            upstream_limits: UPSTREAM,
            tls: None,
            app_tls: None,
        };
        let stop = Stop::new();
        let signal = stop.signal();
        let agent = tokio::task::spawn_local(async move {
            serve_agent(&config, listener, Clock::start(), signal).await
        });
        let proxy = Proxy(Upstream::new(address, UPSTREAM));
        let asked = [proxy.spawn("/0"), proxy.spawn("/1")];
        proxy.until_load(1, 1).await;
        drop(stop);
        tokio::time::sleep(20 * MS).await;
        app.allow(2);
        for answer in asked {
            assert_eq!(answer.await.unwrap().status, StatusCode::OK);
        }
        assert_eq!(agent.await.unwrap().unwrap().cut_off, 0);
    });
}

/// Both results, when both are there.
async fn join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut a_done, mut b_done) = (None, None);
    std::future::poll_fn(|cx| {
        if a_done.is_none()
            && let std::task::Poll::Ready(value) = a.as_mut().poll(cx)
        {
            a_done = Some(value);
        }
        if b_done.is_none()
            && let std::task::Poll::Ready(value) = b.as_mut().poll(cx)
        {
            b_done = Some(value);
        }
        match a_done.is_some() && b_done.is_some() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    (a_done.expect("ready"), b_done.expect("ready"))
}
