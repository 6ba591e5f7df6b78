//! What clients do to us: stall, vanish, send too much, or too slowly.

use super::*;

/// A replica that sends on a channel of its own what it receives, and never answers.
async fn silent_replica() -> (Replica, Rc<RefCell<String>>, Rc<Cell<bool>>) {
    let received = Rc::<RefCell<String>>::default();
    let is_closed = Rc::<Cell<bool>>::default();
    let (text, closed) = (Rc::clone(&received), Rc::clone(&is_closed));
    let replica = replica(move |mut peer, _| {
        let (text, closed) = (Rc::clone(&text), Rc::clone(&closed));
        async move {
            while let Ok(1..) = peer.stream.read_buf(&mut peer.unread).await {
                text.borrow_mut().push_str(&String::from_utf8_lossy(&peer.unread));
                peer.unread.clear();
            }
            closed.set(true);
        }
    })
    .await;
    (replica, received, is_closed)
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    run(async {
        let (replica, received, is_closed) = silent_replica().await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        client.send(GET).await;
        until("the replica has the request", || !received.borrow().is_empty()).await;
        assert_eq!(proxy.upstream.connections(), 1);
        drop(client);
        until("the replica sees the end", || is_closed.get()).await;
        assert_eq!(proxy.upstream.connections(), 0);
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_of_the_answer_cancels_the_rest() {
    run(async {
        let is_closed = Rc::<Cell<bool>>::default();
        let closed = Rc::clone(&is_closed);
        let replica = replica(move |mut peer, _| {
            let closed = Rc::clone(&closed);
            async move {
                peer.head().await;
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhello").await;
                closed.set(peer.is_closed().await);
            }
        })
        .await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        client.ask(GET, "hello").await;
        drop(client);
        until("the replica sees the end", || is_closed.get()).await;
        assert_eq!(*proxy.ends.borrow(), [End::Abandoned]);
        assert_eq!(proxy.upstream.connections(), 0);
    });
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_is_cut_off() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n").await;
            let piece = vec![b'x'; 1 << 16];
            while peer.stream.write_all(&piece).await.is_ok() {}
        })
        .await;
        let server = ServerLimits { write: Duration::from_millis(100), ..SERVER };
        let proxy = proxy_with(replica.address, server, UPSTREAM);
        let mut client = proxy.client().await;
        client.send(GET).await;
        until("the attempt is abandoned", || *proxy.ends.borrow() == [End::Abandoned]).await;
        assert_eq!(proxy.upstream.connections(), 0);
    });
}

#[test]
fn request_bodies_stream_with_either_framing() {
    run(async {
        let (replica, received, _) = silent_replica().await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
        client.send("5\r\nfirst\r\n").await;
        until("the first piece is there", || received.borrow().ends_with("5\r\nfirst\r\n")).await;
        client.send("6\r\nsecond\r\n0\r\n\r\n").await;
        let end = "6\r\nsecond\r\n0\r\n\r\n";
        until("the second piece is there", || received.borrow().ends_with(end)).await;
        assert!(received.borrow().contains("transfer-encoding: chunked\r\n"));
        received.borrow_mut().clear();
        let mut client = proxy.client().await;
        client.send("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\nfirst").await;
        until("the first piece is there", || received.borrow().ends_with("\r\n\r\nfirst")).await;
        client.send("second").await;
        until("the rest is there", || received.borrow().ends_with("firstsecond")).await;
        assert!(received.borrow().contains("content-length: 11\r\n"));
    });
}

#[test]
fn a_chunked_body_of_a_get_is_not_lost() {
    run(async {
        let (replica, received, _) = silent_replica().await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        client.send("GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
        client.send("2\r\nhi\r\n0\r\n\r\n").await;
        until("it is there", || received.borrow().ends_with("2\r\nhi\r\n0\r\n\r\n")).await;
    });
}

#[test]
fn heads_too_long_are_refused() {
    run(async {
        let replica = polite_replica().await;
        let proxy = proxy(replica.address);
        let long = format!("x-long: {}\r\n", "x".repeat(9000));
        let many: String = (0..101).map(|i| format!("x-{i}: 1\r\n")).collect();
        for lines in [long, many] {
            let mut client = proxy.client().await;
            client.send(format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n")).await;
            let answer = client.rest().await;
            assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        }
        assert_eq!(replica.accepted.get(), 0);
    });
}

#[test]
fn bodies_too_long_are_refused_declared_or_not() {
    run(async {
        let (replica, ..) = silent_replica().await;
        let server = ServerLimits { body_bytes_max: 10, ..SERVER };
        let proxy = proxy_with(replica.address, server, UPSTREAM);
        let declared = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\n";
        let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                       6\r\nsix is\r\n6\r\nless t\r\n";
        for request in [declared, chunked] {
            let mut client = proxy.client().await;
            let answer = client.ask(request, "limit of 10 bytes").await;
            assert!(answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "{answer}");
        }
        until("nothing is left open", || proxy.upstream.connections() == 0).await;
    });
}

#[test]
fn a_client_in_the_middle_of_a_long_upload_still_reads_its_refusal() {
    run(async {
        let replica = polite_replica().await;
        let server = ServerLimits { head: Duration::from_millis(300), ..SERVER };
        let proxy = proxy_with(replica.address, server, UPSTREAM);
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 20000000\r\n\r\n";
        let mut client = proxy.client().await;
        client.send(head).await;
        client.send(vec![b'x'; 20_000_000]).await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        let mut endless = proxy.client().await;
        endless.send(head).await;
        let started = std::time::Instant::now();
        while endless.stream.write_all(b"x").await.is_ok() {
            assert!(started.elapsed() < Duration::from_secs(2), "still listening");
            pause(10).await;
        }
        assert_eq!(replica.accepted.get(), 0);
    });
}

#[test]
fn slow_heads_and_idle_connections_are_closed_in_time() {
    run(async {
        let replica = polite_replica().await;
        let (head, idle) = (Duration::from_millis(100), Duration::from_secs(1));
        let server = ServerLimits { head, idle, ..SERVER };
        let proxy = proxy_with(replica.address, server, UPSTREAM);
        let started = std::time::Instant::now();
        let mut silent = proxy.client().await;
        let mut slow = proxy.client().await;
        slow.send("GET / HTTP/1.1\r\nhost:").await;
        let mut idle_client = proxy.client().await;
        idle_client.ask(GET, "hello").await;
        assert!(silent.is_closed().await);
        assert!(slow.is_closed().await);
        let spent = started.elapsed();
        assert!(spent >= head && spent < idle, "{spent:?}");
        idle_client.ask(GET, "hello").await; // still open, and its idle time starts anew
        let used = std::time::Instant::now();
        assert!(idle_client.is_closed().await);
        assert!(used.elapsed() >= idle, "{:?}", used.elapsed());
    });
}

#[test]
fn a_trickling_head_does_not_renew_its_time() {
    run(async {
        let replica = polite_replica().await;
        let server = ServerLimits { head: Duration::from_millis(100), ..SERVER };
        let proxy = proxy_with(replica.address, server, UPSTREAM);
        let mut client = proxy.client().await;
        client.ask(GET, "hello").await; // also between requests on a kept connection
        let started = std::time::Instant::now();
        for byte in GET.bytes().cycle() {
            if client.stream.write_all(&[byte]).await.is_err() {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(1), "still open");
            pause(20).await;
        }
    });
}

#[test]
fn clients_beyond_the_limit_wait_their_turn() {
    run(async {
        let replica = polite_replica().await;
        let server = ServerLimits { connections_max: 2, ..SERVER };
        let proxy = proxy_with(replica.address, server, UPSTREAM);
        let mut first = proxy.client().await;
        first.ask(GET, "hello").await;
        let mut second = proxy.client().await;
        second.ask(GET, "hello").await;
        let mut third = proxy.client().await;
        third.send(GET).await;
        let early = tokio::time::timeout(Duration::from_millis(50), third.read_to("hello")).await;
        assert!(early.is_err(), "served while two others are connected");
        drop(first);
        third.read_to("hello").await;
    });
}

#[test]
fn expect_continue_is_answered_here() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            let head = peer.head().await;
            assert!(!head.contains("expect"), "{head}");
            assert_eq!(peer.read_to("body").await, "body");
            peer.send(OK).await;
            peer.rest().await;
        })
        .await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        let head =
            "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
        assert_eq!(client.ask(head, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
        let answer = client.ask("body", "hello").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    });
}

#[test]
fn old_clients_get_old_answers() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            let head = peer.head().await;
            assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("host: default\r\n"), "{head}");
            peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            peer.send("5\r\nhello\r\n0\r\n\r\n").await;
            peer.rest().await;
        })
        .await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        client.send("GET / HTTP/1.0\r\n\r\n").await;
        let answer = client.rest().await; // ends with the connection
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
        assert!(!answer.contains("transfer-encoding"), "{answer}");
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            loop {
                let head = peer.head().await;
                let path = head.split(' ').nth(1).unwrap();
                let length = path.len();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                peer.send(format!("{head}{path}")).await;
            }
        })
        .await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        let requests: String =
            (0..20).map(|i| format!("GET /{i} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
        client.send(requests).await;
        for i in 0..20 {
            client.head().await;
            let path = format!("/{i}");
            assert_eq!(client.read_to(&path).await, path);
        }
        assert_eq!(replica.accepted.get(), 1);
    });
}

#[test]
fn draining_finishes_what_is_in_flight_and_closes_what_is_idle() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            loop {
                peer.head().await;
                pause(100).await;
                peer.send(OK).await;
            }
        })
        .await;
        let proxy = proxy(replica.address);
        let (mut idle, mut busy) = (proxy.client().await, proxy.client().await);
        idle.ask(GET, "hello").await;
        busy.send(GET).await;
        pause(30).await;
        let address = proxy.address;
        // Connected by the kernel; the worker has no chance to accept before it is stopped.
        let queued = std::net::TcpStream::connect(address).unwrap();
        std::io::Write::write_all(&mut &queued, GET.as_bytes()).unwrap();
        queued.set_nonblocking(true).unwrap();
        let mut queued = Peer::new(TcpStream::from_std(queued).unwrap());
        let started = std::time::Instant::now();
        let stopping = tokio::task::spawn_local(proxy.stopped());
        assert!(idle.is_closed().await);
        for client in [&mut busy, &mut queued] {
            let answer = client.rest().await;
            assert!(answer.contains("connection: close\r\n"), "{answer}");
            assert!(answer.ends_with("hello"), "{answer}");
        }
        assert_eq!(stopping.await.unwrap(), Served { accepted: 3, rejected: 0, cut_off: 0 });
        assert!(started.elapsed() < Duration::from_secs(1));
        assert!(TcpStream::connect(address).await.is_err(), "still listening");
    });
}

/// The client cannot know that the server is about to close: what it sends then is answered.
#[test]
fn a_request_that_crosses_the_drain_on_a_kept_connection_is_answered() {
    run(async {
        let replica = polite_replica().await;
        let proxy = proxy(replica.address);
        let (mut kept, mut slow) = (proxy.client().await, proxy.client().await);
        let mut silent = proxy.client().await;
        for client in [&mut kept, &mut slow] {
            client.ask(GET, "hello").await;
        }
        let started = std::time::Instant::now();
        let stopping = tokio::task::spawn_local(proxy.stopped());
        slow.send(&GET[..20]).await;
        pause(30).await; // the order to stop has long been given
        let answer = kept.ask(GET, "hello").await;
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        assert!(kept.is_closed().await && silent.is_closed().await);
        slow.send(&GET[20..]).await;
        let answer = slow.rest().await;
        assert!(answer.ends_with("hello"), "a head that had begun: {answer:?}");
        assert_eq!(stopping.await.unwrap(), Served { accepted: 3, rejected: 0, cut_off: 0 });
        assert!(started.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn draining_ends_at_its_deadline() {
    run(async {
        let (replica, received, is_closed) = silent_replica().await;
        let server = ServerLimits { drain: Duration::from_millis(100), ..SERVER };
        let proxy = proxy_with(replica.address, server, UPSTREAM);
        let mut client = proxy.client().await;
        client.send(GET).await;
        until("the replica has the request", || !received.borrow().is_empty()).await;
        let started = std::time::Instant::now();
        assert_eq!(proxy.stopped().await, Served { accepted: 1, rejected: 0, cut_off: 1 });
        let spent = started.elapsed();
        assert!(spent >= Duration::from_millis(100) && spent < Duration::from_secs(1));
        until("the attempt is cancelled", || is_closed.get()).await;
    });
}

#[test]
fn two_listeners_share_an_address_and_say_why_they_cannot() {
    let first = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = first.address().unwrap();
    assert_eq!(Listener::bind(address).unwrap().address().unwrap(), address);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = Listener::bind(taken.local_addr().unwrap()).unwrap_err().to_string();
    assert!(error.contains("cannot listen on 127.0.0.1:"), "{error}");
    assert!(error.contains("is another server running there?"), "{error}");
}

/// An attempt may outlive its request, and with it the client's body.
#[test]
fn a_connection_ends_although_somebody_still_holds_the_body_of_a_request() {
    run(async {
        let held = Rc::<RefCell<Vec<Body>>>::default();
        let (listener, stop) =
            (Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap(), Stop::new());
        let (address, keep) = (listener.address().unwrap(), Rc::clone(&held));
        let handler = move |request: Request<Body>, _| {
            keep.borrow_mut().push(request.into_body());
            async { Response::new(Body::full("enough")) }
        };
        let serving = serve(listener, SERVER, handler, stop.signal());
        let _serving = tokio::task::spawn_local(serving);
        let mut client = Peer::connect(address).await;
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nmore").await;
        assert!(client.rest().await.ends_with("enough"), "and then it ends");
        let body = held.borrow_mut().pop().unwrap();
        assert!(body.collect(100).await.is_err(), "nothing more comes of it");
    });
}

#[test]
fn a_body_may_go_back_as_it_comes() {
    run(async {
        let (listener, stop) =
            (Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap(), Stop::new());
        let address = listener.address().unwrap();
        let handler = |request: Request<Body>, _| async { Response::new(request.into_body()) };
        let _serving = tokio::task::spawn_local(serve(listener, SERVER, handler, stop.signal()));
        let mut client = Peer::connect(address).await;
        for framing in ["content-length: 10\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"] {
            let is_chunked = framing.starts_with("transfer");
            client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}")).await;
            assert!(client.head().await.contains(framing.trim_end()));
            for piece in ["first", "again"] {
                let sent = if is_chunked { format!("5\r\n{piece}\r\n") } else { piece.into() };
                assert_eq!(client.ask(&sent, &sent).await, sent);
            }
            if is_chunked {
                client.ask("0\r\n\r\n", "0\r\n\r\n").await;
            }
        }
    });
}
