//! How a listener ends under load, in virtual time and without sockets.

use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream};
use tokio::time::Instant;

use super::*;
use evenkeel_runtime::accept::{Dialer, ListenerFilters, Stage};

fn run_paused(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(Default::default());
    runtime.unwrap().block_on(test);
}

/// A service that takes so long for each request, or answers in the same moment.
fn service(takes: Duration, limits: ServerLimits) -> (Dialer, Stop, JoinHandle<Served>) {
    let ((listener, dialer), stop) = (Listener::memory(), Stop::new());
    let handler = move |_, _| async move {
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        Response::new(Body::full("hello"))
    };
    let serving = serve(listener, limits, handler, stop.signal());
    (dialer, stop, tokio::task::spawn_local(async { serving.await.unwrap() }))
}

/// The head of the next answer, whose body is read too; empty at the end.
async fn answer(client: &mut BufReader<DuplexStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if client.read_line(&mut head).await.unwrap() == 0 {
            return head;
        }
    }
    client.read_exact(&mut [0; 5]).await.unwrap();
    head
}

/// Asks again and again with pauses until it is told to close; the answers it got.
async fn ask(dialer: Dialer, pause: Duration) -> u32 {
    let mut client = BufReader::new(dialer.connect().unwrap());
    let mut answers = 0;
    loop {
        client.get_mut().write_all(GET.as_bytes()).await.unwrap();
        let head = answer(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "after {answers}: {head:?}");
        answers += 1;
        if head.contains("connection: close\r\n") {
            assert_eq!(answer(&mut client).await, "");
            return answers;
        }
        tokio::time::sleep(pause).await;
    }
}

#[test]
fn under_load_every_request_is_answered_and_every_client_told_to_go() {
    for takes_ms in [0, 1, 40] {
        run_paused(async {
            let (dialer, stop, serving) = service(Duration::from_millis(takes_ms), SERVER);
            let asking: Vec<_> = (0..50)
                .map(|n| {
                    tokio::task::spawn_local(ask(dialer.clone(), Duration::from_millis(1 + n)))
                })
                .collect();
            pause(1_000).await;
            let began = Instant::now();
            let stopping = tokio::task::spawn_local(async move { stop.stop(SERVER.drain).await });
            pause(30).await;
            let late = ask(dialer, Duration::ZERO);
            assert_eq!(late.await, 1, "a lame duck accepts");
            for client in asking {
                assert!(client.await.unwrap() > 1);
            }
            assert_eq!(serving.await.unwrap(), Served { accepted: 51, rejected: 0, cut_off: 0 });
            assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
            stopping.await.unwrap();
        });
    }
}

#[test]
fn a_client_in_every_phase_of_a_connection_is_drained_as_it_should_be() {
    run_paused(async {
        let server = ServerLimits { head: Duration::from_secs(60), ..SERVER };
        let (dialer, stop, serving) = service(Duration::from_secs(2), server);
        let [mut new, mut reading, mut served, mut idle, mut slow] =
            [(); 5].map(|()| BufReader::new(dialer.connect().unwrap()));
        idle.get_mut().write_all(GET.as_bytes()).await.unwrap();
        answer(&mut idle).await;
        served.get_mut().write_all(GET.as_bytes()).await.unwrap();
        for client in [&mut reading, &mut slow] {
            client.get_mut().write_all(&GET.as_bytes()[..20]).await.unwrap();
        }
        pause(10).await;
        let began = Instant::now();
        stop.enter(Stage::Draining { until: began + Duration::from_secs(4) });
        for client in [&mut new, &mut idle] {
            assert_eq!(answer(client).await, "");
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        reading.get_mut().write_all(&GET.as_bytes()[20..]).await.unwrap();
        for client in [&mut served, &mut reading] {
            assert!(answer(client).await.contains("connection: close\r\n"));
            assert_eq!(answer(client).await, "");
        }
        // Its head never ends.
        assert!(slow.read_u8().await.is_err());
        assert_eq!(began.elapsed(), Duration::from_secs(4));
        assert_eq!(serving.await.unwrap(), Served { accepted: 5, rejected: 0, cut_off: 1 });
    });
}

#[test]
fn an_old_connection_is_told_to_close_with_an_answer_and_no_request_is_lost() {
    let seconds = Duration::from_secs;
    let limits = ServerLimits { connection_age: seconds(20), ..SERVER };
    run_paused(async {
        let (dialer, _stop, _serving) = service(Duration::from_millis(300), limits);
        let began = Instant::now();
        let asking: Vec<_> = (0..20)
            .map(|n| tokio::task::spawn_local(ask(dialer.clone(), Duration::from_millis(1 + n))))
            .collect();
        for client in asking {
            let asked = tokio::time::timeout(seconds(60), client).await.expect("it is told");
            assert!(asked.unwrap() > 40, "it asked for 15 s at least");
        }
        assert!(began.elapsed() < seconds(23), "{:?}", began.elapsed());
    });
}

#[test]
fn each_phase_has_its_limit() {
    let seconds = Duration::from_secs;
    let limits = ServerLimits { head: seconds(4), idle: seconds(8), ..SERVER };
    run_paused(async {
        let (dialer, _stop, _serving) = service(seconds(60), limits);
        for (sent, limit) in [("", 4), (&GET[..20], 4), (GET, 60 + 8)] {
            let mut client = BufReader::new(dialer.connect().unwrap());
            client.get_mut().write_all(sent.as_bytes()).await.unwrap();
            let began = Instant::now();
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.unwrap();
            let (spent, limit) = (began.elapsed(), seconds(limit));
            assert!(spent >= limit && spent < limit + seconds(2), "{sent:?}: {spent:?}");
        }
    });
}

#[test]
fn limits_that_change_hold_for_clients_that_are_there() {
    let seconds = Duration::from_secs;
    let limits = ServerLimits { idle: seconds(60), ..SERVER };
    run_paused(async {
        let ((listener, dialer), stop) = (Listener::memory(), Stop::new());
        let (live, signal) = (LiveLimits::new(limits, ListenerFilters::NONE), stop.signal());
        let its = live.clone();
        let _serving = tokio::task::spawn_local(async move {
            let handler = |_, _| std::future::ready(Response::new(Body::full("hello")));
            serve_within(listener, &its, handler, signal).await.unwrap()
        });
        let mut client = BufReader::new(dialer.connect().unwrap());
        let post = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody";
        client.get_mut().write_all(post.as_bytes()).await.unwrap();
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 200 OK\r\n"));
        let mut idle = BufReader::new(dialer.connect().unwrap());
        idle.get_mut().write_all(GET.as_bytes()).await.unwrap();
        answer(&mut idle).await;
        live.set(
            ServerLimits { idle: seconds(4), body_bytes_max: 3, ..limits },
            ListenerFilters::NONE,
        );
        client.get_mut().write_all(post.as_bytes()).await.unwrap();
        let mut head = String::new();
        client.read_line(&mut head).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 413 "), "the next request: {head}");
        let began = Instant::now();
        assert_eq!(answer(&mut idle).await, "");
        let spent = began.elapsed();
        assert!(spent >= seconds(4) && spent < seconds(6), "{spent:?}");
    });
}

#[test]
fn a_client_that_takes_its_answer_slowly_is_not_cut_off() {
    if ENGINE == Engine::Hyper {
        return; // it takes the whole body into its buffer, and the client counts as idle then
    }
    run_paused(async {
        let ((listener, dialer), stop) = (Listener::memory(), Stop::new());
        let handler = |_, _| async { Response::new(Body::full(vec![b'x'; 1 << 20])) };
        let limits = ServerLimits { write: Duration::from_secs(3), ..SERVER };
        let _serving = tokio::task::spawn_local(serve(listener, limits, handler, stop.signal()));
        let mut client = dialer.connect().unwrap();
        client.write_all(GET.as_bytes()).await.unwrap();
        let mut taken = 0;
        while taken < 1 << 20 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut some = [0; 16 << 10];
            let count = client.read(&mut some).await.unwrap();
            assert!(count > 0, "it ends after {taken} bytes");
            taken += count;
        }
    });
}

#[test]
fn a_client_whose_upload_nobody_reads_may_go_on_if_the_rest_is_here() {
    if ENGINE == Engine::Hyper {
        return; // it tells the client to come back on another connection
    }
    run_paused(async {
        let ((listener, dialer), stop) = (Listener::memory(), Stop::new());
        let handler = |request: Request<Body>, _| async move {
            let is_refused = request.method() == http::Method::POST;
            drop(request);
            tokio::time::sleep(Duration::from_millis(10)).await;
            let status = if is_refused { 503 } else { 200 };
            let response = http::Response::builder().status(status);
            Response::from(response.body(Body::full("hello")).unwrap())
        };
        let _serving = tokio::task::spawn_local(serve(listener, SERVER, handler, stop.signal()));
        let mut client = BufReader::new(dialer.connect().unwrap());
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n";
        client.get_mut().write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        client.get_mut().write_all(b"body").await.unwrap();
        let refused = answer(&mut client).await;
        assert!(refused.starts_with("HTTP/1.1 503 ") && !refused.contains("close"), "{refused}");
        client.get_mut().write_all(GET.as_bytes()).await.unwrap();
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 200 "));
    });
}
