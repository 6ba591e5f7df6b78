//! Replicas that speak HTTP/2: how requests share their connections, and what is tried again.

use std::future::poll_fn;

use bytes::Bytes;
use h2::Reason;
use h2::server::{Connection, SendResponse};
use http::Method;
use tokio::task::spawn_local;

use super::*;
use evenkeel_runtime::limits::Http2;

/// What a replica has seen.
#[derive(Default)]
struct Seen {
    connections: Cell<usize>,
    streams: Cell<usize>,
    most: Cell<usize>,
    at_work: Cell<usize>,
    resets: Cell<usize>,
    /// Connections that ended with an error.
    errors: RefCell<Vec<String>>,
}

struct Streams {
    address: SocketAddr,
    seen: Rc<Seen>,
    _task: Replica,
}

/// The replica's side of a connection.
type Speaking = Connection<TcpStream, Bytes>;

/// A replica that answers each stream after so long. `script` may end a connection after a stream
/// came, or answer it itself.
async fn streams(
    takes: Duration,
    script: impl Fn(&mut Speaking, &mut SendResponse<Bytes>, usize) + Copy + 'static,
) -> Streams {
    let seen = Rc::<Seen>::default();
    let its = Rc::clone(&seen);
    let task = replica(move |peer, _| serve_streams(peer, Rc::clone(&its), takes, script)).await;
    Streams { address: task.address, seen, _task: task }
}

async fn serve_streams(
    peer: Peer,
    seen: Rc<Seen>,
    takes: Duration,
    script: impl Fn(&mut Speaking, &mut SendResponse<Bytes>, usize),
) {
    seen.connections.set(seen.connections.get() + 1);
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(100).max_concurrent_reset_streams(2_000);
    let mut connection = builder.handshake(peer.stream).await.unwrap();
    let mut of_this = 0;
    while let Some(accepted) = poll_fn(|cx| connection.poll_accept(cx)).await {
        let (request, mut respond) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                seen.errors.borrow_mut().push(error.to_string());
                return;
            }
        };
        of_this += 1;
        seen.streams.set(seen.streams.get() + 1);
        script(&mut connection, &mut respond, of_this);
        spawn_local(answer(request, respond, Rc::clone(&seen), takes));
    }
}

async fn answer(
    request: http::Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    seen: Rc<Seen>,
    takes: Duration,
) {
    seen.at_work.set(seen.at_work.get() + 1);
    seen.most.set(seen.most.get().max(seen.at_work.get()));
    let mut body = request.into_body();
    let work = async {
        let mut all = Vec::new();
        while let Some(Ok(piece)) = body.data().await {
            let _ = body.flow_control().release_capacity(piece.len());
            all.extend_from_slice(&piece);
        }
        tokio::time::sleep(takes).await;
        all
    };
    let mut work = std::pin::pin!(work);
    let done = poll_fn(|cx| match work.as_mut().poll(cx) {
        std::task::Poll::Ready(all) => std::task::Poll::Ready(Some(all)),
        std::task::Poll::Pending => respond.poll_reset(cx).map(|_| None),
    });
    let done = done.await;
    seen.at_work.set(seen.at_work.get() - 1);
    match done {
        None => seen.resets.set(seen.resets.get() + 1),
        Some(all) => {
            if let Ok(mut stream) = respond.send_response(http::Response::new(()), false) {
                let _ = stream.send_data(all.into(), true);
            }
        }
    }
}

fn upstream(address: SocketAddr) -> Upstream {
    Upstream::new(address, UpstreamLimits { http2: Http2::Always, ..UPSTREAM })
}

fn post(body: &str) -> Request<Body> {
    let mut request = get("/");
    *request.method_mut() = Method::POST;
    *request.body_mut() = Body::full(body.to_owned());
    request
}

fn get(path: &str) -> Request<Body> {
    let host = (http::header::HOST, "a.example");
    let request = http::Request::builder().uri(path).header(host.0, host.1);
    request.body(Body::empty()).unwrap().into()
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect(1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn requests_share_connections_and_a_few_more_are_opened_when_they_are_many() {
    run(async {
        let replica = streams(Duration::from_millis(100), |_, _, _| {}).await;
        let upstream = upstream(replica.address);
        let one = |number: usize| {
            let upstream = upstream.clone();
            async move {
                let word = number.to_string();
                assert_eq!(text(upstream.send(post(&word)).await.unwrap()).await, word);
            }
        };
        one(0).await;
        assert_eq!(replica.seen.connections.get(), 1);
        let all: Vec<_> = (0..96).map(|number| spawn_local(one(number))).collect();
        for one in all {
            one.await.unwrap();
        }
        let connections = replica.seen.connections.get();
        assert!((2..=4).contains(&connections), "{connections}");
        assert_eq!(replica.seen.most.get(), 96);
        let open = upstream.connections();
        assert_eq!(open, connections);
        upstream.close_idle();
        until("they are closed", || upstream.connections() == 0).await;
    });
}

#[test]
fn idle_connections_time_out() {
    run(async {
        let replica = streams(Duration::ZERO, |_, _, _| {}).await;
        let limits = UpstreamLimits { idle: Duration::from_millis(40), ..UPSTREAM };
        let limits = UpstreamLimits { http2: Http2::Always, ..limits };
        let upstream = Upstream::new(replica.address, limits);
        upstream.send(get("/")).await.unwrap();
        until("it is closed", || upstream.connections() == 0).await;
    });
}

#[test]
fn no_request_is_lost_when_a_replica_ends_connections_again_and_again() {
    run(async {
        // Requests that may be sent only once, in streams that the replica says it left out.
        let goodbye = |connection: &mut Speaking, _: &mut SendResponse<Bytes>, number: usize| {
            if number == 10 {
                connection.graceful_shutdown();
            }
        };
        let replica = streams(Duration::from_millis(2), goodbye).await;
        let upstream = upstream(replica.address);
        let one = |number: usize| {
            let upstream = upstream.clone();
            async move {
                for turn in 0..40 {
                    let word = format!("{number}/{turn}");
                    assert_eq!(text(upstream.send(post(&word)).await.unwrap()).await, word);
                }
            }
        };
        let all: Vec<_> = (0..20).map(|number| spawn_local(one(number))).collect();
        for one in all {
            one.await.unwrap();
        }
        assert_eq!(replica.seen.streams.get(), 20 * 40, "each was processed once");
        assert!(replica.seen.connections.get() > 5);
    });
}

#[test]
fn a_stream_left_out_by_goaway_is_sent_again_with_its_streaming_body() {
    run(async {
        // The first connection says that it has processed nothing, whatever comes.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
            let mut came = Vec::new();
            while !came.windows(5).any(|piece| piece == b"first") {
                assert!(stream.read_buf(&mut came).await.unwrap() > 0);
            }
            let goodbye = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            stream.write_all(&goodbye).await.unwrap();
            let (next, _) = listener.accept().await.unwrap();
            serve_streams(Peer::new(next), Rc::default(), Duration::ZERO, |_, _, _| {}).await;
        });
        let (proxy, go_on) = streaming_proxy(address).await;
        let mut client = Peer::connect(proxy).await;
        client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
        client.send("5\r\nfirst\r\n").await;
        pause(50).await;
        client.send("4\r\nlast\r\n0\r\n\r\n").await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(client.read_to("0\r\n\r\n").await.contains("firstlast"));
        drop(go_on);
    });
}

/// A listener of HTTP/1.1 before a replica of HTTP/2.
async fn streaming_proxy(replica: SocketAddr) -> (SocketAddr, Stop) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (listener, stop) = (Listener::bind(address).unwrap(), Stop::new());
    let upstream = upstream(replica);
    let handler = move |mut request: Request<Body>, client: Rc<Client>| {
        let upstream = upstream.clone();
        async move {
            let forwarding = Forwarding {
                trusted_proxies: None,
                append_forwarded_for: true,
                is_https: false,
                host_default: HeaderValue::from_static("a"),
            };
            prepare_request(&mut request, &client, &forwarding).unwrap();
            let mut response = upstream.send(request).await.unwrap();
            prepare_response(&mut response).unwrap();
            response
        }
    };
    let signal = stop.signal();
    spawn_local(async move { serve(listener, SERVER, handler, signal).await });
    (address, stop)
}

#[test]
fn a_refused_stream_comes_back_unsent_and_other_resets_do_not() {
    for reason in [Reason::REFUSED_STREAM, Reason::INTERNAL_ERROR] {
        run(async {
            let refuse = move |_: &mut Speaking, respond: &mut SendResponse<Bytes>, _: usize| {
                respond.send_reset(reason);
            };
            let replica = streams(Duration::ZERO, refuse).await;
            let error = upstream(replica.address).send(post("once")).await.unwrap_err();
            assert_eq!(error.kind(), SendErrorKind::Reset, "{error}");
            let is_refused = reason == Reason::REFUSED_STREAM;
            assert_eq!(error.was_sent(), !is_refused, "{error}");
            let tries = if is_refused { 2 } else { 1 };
            assert_eq!(replica.seen.streams.get(), tries);
            if is_refused {
                assert_eq!(error.into_request().unwrap().method(), Method::POST);
            }
        });
    }
}

#[test]
fn a_storm_of_cancelled_copies_ends_no_connection() {
    run(async {
        let replica = streams(Duration::from_millis(50), |_, _, _| {}).await;
        let upstream = upstream(replica.address);
        upstream.send(get("/")).await.unwrap();
        // A thousand within a second or so, each given up on its way.
        for _ in 0..100 {
            for _ in 0..10 {
                let upstream = upstream.clone();
                let copy = async move { upstream.send(get("/")).await.map(drop) };
                spawn_local(tokio::time::timeout(Duration::from_millis(5), copy));
            }
            pause(10).await;
        }
        until("all have ended", || replica.seen.at_work.get() == 0).await;
        assert_eq!(*replica.seen.errors.borrow(), Vec::<String>::new());
        assert_eq!(text(upstream.send(post("still here")).await.unwrap()).await, "still here");
        let (streams, resets) = (replica.seen.streams.get(), replica.seen.resets.get());
        let connections = replica.seen.connections.get();
        assert!(streams > 900, "{streams}");
        // A burst for each connection, and as many per second for as long as it took.
        assert!(resets < streams / 2, "{resets} resets of {streams}");
        assert!(connections < 20, "{connections}");
    });
}

#[test]
fn a_replica_that_does_not_speak_it_is_an_error_that_says_so() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            peer.send("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
            peer.rest().await;
        })
        .await;
        let error = upstream(replica.address).send(get("/")).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Malformed, "{error}");
    });
}

#[test]
fn a_connection_that_does_not_answer_is_left_and_then_closed() {
    run(async {
        // The first connection answers one request; then its process stands still.
        let replica = replica(|peer, number| async move {
            let still = Rc::new(Cell::new(false));
            let its = Rc::clone(&still);
            let serving = serve_streams(peer, Rc::default(), Duration::ZERO, |_, _, _| {});
            let mut serving = Box::pin(serving);
            poll_fn(|cx| match number == 1 && its.get() {
                true => std::task::Poll::Pending,
                false => {
                    its.set(number == 1 && ANSWERED.get());
                    serving.as_mut().poll(cx)
                }
            })
            .await;
        })
        .await;
        ANSWERED.set(false);
        let limits = UpstreamLimits { idle: Duration::from_secs(60), ..UPSTREAM };
        let limits = UpstreamLimits { http2: Http2::Always, ..limits };
        let upstream = Upstream::new(replica.address, limits);
        upstream.send(get("/")).await.unwrap();
        ANSWERED.set(true);
        pause(20).await;
        // What nobody reads is given up, and was long silent by then.
        let unread = tokio::time::timeout(Duration::from_millis(1_100), upstream.send(get("/")));
        assert!(unread.await.is_err());
        assert_eq!(text(upstream.send(post("another")).await.unwrap()).await, "another");
        assert_eq!((replica.accepted.get(), upstream.connections()), (2, 2));
        tokio::time::pause(); // nothing comes from there: only time passes
        pause(11_000).await;
        until("the first one is closed", || upstream.connections() == 1).await;
    });
}

thread_local! {
    /// Whether the first connection of a test stands still from now on.
    static ANSWERED: Cell<bool> = const { Cell::new(false) };
}
