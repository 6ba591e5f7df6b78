//! What replicas do to us: close, refuse, break off, dawdle, talk nonsense.

use tokio::sync::Notify;

use super::*;

#[test]
fn a_connection_is_kept_and_reused() {
    run(async {
        let replica = polite_replica().await;
        let proxy = proxy(replica.address);
        for _ in 0..3 {
            let mut client = proxy.client().await;
            for _ in 0..3 {
                let answer = client.ask(GET, "hello").await;
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
                assert!(answer.contains("content-length: 5\r\n"), "{answer}");
            }
        }
        assert_eq!(replica.accepted.get(), 1);
        assert_eq!((proxy.upstream.connections(), proxy.upstream.connections_idle()), (1, 1));
        assert_eq!(*proxy.ends.borrow(), [End::Complete; 9]);
    });
}

#[test]
fn the_connection_that_became_idle_last_is_reused_first() {
    run(async {
        let replica = replica(|mut peer, number| async move {
            loop {
                peer.head().await;
                pause(if number == 1 { 100 } else { 10 }).await;
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
                peer.send(answer).await;
            }
        })
        .await;
        let upstream = Upstream::new(replica.address, UPSTREAM);
        let other = upstream.clone();
        let slow = tokio::task::spawn_local(async move { other.send(get()).await.map(drop) });
        until("number 1 is asked", || replica.accepted.get() == 1).await;
        upstream.send(get()).await.unwrap(); // number 2, idle first
        slow.await.unwrap().unwrap(); // number 1, idle last
        let body = upstream.send(get()).await.unwrap().into_body();
        assert_eq!(body.collect(10).await.unwrap(), "1");
        assert_eq!(replica.accepted.get(), 2);
    });
}

#[test]
fn a_connection_closed_while_idle_is_replaced_without_notice() {
    run(async {
        // Replicas hang up when they are told, and say when they have.
        let (reported, closed) = (Rc::new(Notify::new()), Rc::new(Cell::new(0)));
        let (tell, has_closed) = (Rc::clone(&reported), Rc::clone(&closed));
        let replica = replica(move |mut peer, _| {
            let (reported, closed) = (Rc::clone(&reported), Rc::clone(&closed));
            async move {
                peer.head().await;
                peer.send(OK).await;
                reported.notified().await;
                drop(peer);
                closed.set(closed.get() + 1);
            }
        })
        .await;
        let upstream = Upstream::new(replica.address, UPSTREAM);
        for round in 1..=4 {
            let request = http::Request::post("/").header("host", "service");
            let request = request.body(Body::full("never written to a dead end")).unwrap();
            let (head, body) = Request::from(request).into_parts();
            let response = match round {
                1 | 2 => upstream.send(Request::from_parts(head, body)).await,
                _ => upstream.send_out(Outgoing::Copy(&head, body)).await,
            };
            let response = response.unwrap();
            assert_eq!(response.into_body().collect(10).await.unwrap(), "hello");
            assert_eq!(replica.accepted.get(), round);
            assert_eq!(upstream.connections_idle(), 1);
            tell.notify_one();
            until("the replica hung up", || has_closed.get() == round).await;
            pause(30).await; // the close arrives
        }
        assert_eq!(upstream.connections(), 1);
    });
}

#[test]
fn a_close_that_crosses_the_request_is_reported_as_such() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            peer.head().await;
            peer.send(OK).await;
            peer.head().await; // and closes instead of an answer
        })
        .await;
        let upstream = Upstream::new(replica.address, UPSTREAM);
        upstream.send(get()).await.unwrap();
        let error = upstream.send(get()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Reset);
        assert!(error.was_sent() && error.was_reused());
        assert_eq!(upstream.connections(), 0);
        let text = error.to_string();
        let expected = format!("replica {}: a kept connection broke", replica.address);
        assert!(text.starts_with(&expected), "{text}");
    });
}

#[test]
fn refused_connections_give_the_request_back() {
    run(async {
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = unused.local_addr().unwrap();
        drop(unused);
        let upstream = Upstream::new(address, UPSTREAM);
        let error = upstream.send(get()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Connect);
        assert_eq!(error.status(), 502);
        let text = error.to_string();
        assert_eq!(text, format!("replica {address}: connection refused (is it running?)"));
        assert!(!error.was_sent());
        let request = error.into_request().unwrap();
        assert_eq!(request.headers().get("host").unwrap(), "service");
        assert_eq!(upstream.connections(), 0);
    });
}

#[test]
fn a_connection_that_does_not_open_in_time_is_given_up() {
    run(async {
        // A full accept queue makes Linux ignore further connection requests.
        let (domain, kind) = (socket2::Domain::IPV4, socket2::Type::STREAM);
        let full = socket2::Socket::new(domain, kind, None).unwrap();
        full.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        full.listen(0).unwrap();
        let address = full.local_addr().unwrap().as_socket().unwrap();
        let _queued = TcpStream::connect(address).await.unwrap();
        let limits = UpstreamLimits { connect: Duration::from_millis(50), ..UPSTREAM };
        let upstream = Upstream::new(address, limits);
        let error = upstream.send(get()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::ConnectTimeout, "{error}");
        assert_eq!(error.status(), 504);
        assert!(error.to_string().contains("no connection within 50ms"), "{error}");
        assert_eq!(upstream.connections(), 0);
    });
}

#[test]
fn one_connection_too_many_is_refused_not_awaited() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            peer.head().await;
            pause(100).await;
            peer.send(OK).await;
            peer.rest().await;
        })
        .await;
        let limits = UpstreamLimits { connections_max: 1, ..UPSTREAM };
        let upstream = Upstream::new(replica.address, limits);
        let other = upstream.clone();
        let first = tokio::task::spawn_local(async move { other.send(get()).await.map(drop) });
        until("the connection is taken", || replica.accepted.get() == 1).await;
        let error = upstream.send(get()).await.unwrap_err();
        assert_eq!((error.kind(), error.status().as_u16()), (SendErrorKind::Busy, 503));
        assert!(error.to_string().contains("all 1 connections"), "{error}");
        assert!(error.into_request().is_some());
        first.await.unwrap().unwrap();
    });
}

#[test]
fn a_body_that_breaks_off_breaks_off_for_the_client_too() {
    run(async {
        let replica = replica(|mut peer, number| async move {
            peer.head().await;
            let framing =
                if number == 1 { "content-length: 100" } else { "transfer-encoding: chunked" };
            peer.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n5\r\nhello\r\n")).await;
        })
        .await;
        let proxy = proxy(replica.address);
        for _ in 0..2 {
            let mut client = proxy.client().await;
            client.send(GET).await;
            let answer = client.rest().await;
            assert!(answer.contains("hello") && !answer.ends_with("0\r\n\r\n"), "{answer}");
        }
        assert_eq!(*proxy.ends.borrow(), [End::Broken; 2]);
        assert_eq!(proxy.upstream.connections(), 0);
    });
}

/// The client is not told that such an answer has come to its end.
#[test]
fn a_chunk_that_is_none_ends_the_answer() {
    for wrong in ["five\r\nhello\r\n", "5\r\nhello world\r\n", "fffffffffffffffff\r\nhello"] {
        run(async move {
            let replica = replica(move |mut peer, _| async move {
                peer.head().await;
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n";
                peer.send(format!("{head}{wrong}0\r\n\r\n")).await;
                peer.rest().await;
            })
            .await;
            let proxy = proxy(replica.address);
            let mut client = proxy.client().await;
            client.send(GET).await;
            let answer = client.rest().await;
            assert!(answer.contains("2\r\nhi\r\n") && !answer.ends_with("0\r\n\r\n"), "{answer}");
            assert_eq!(*proxy.ends.borrow(), [End::Broken]);
            assert_eq!(proxy.upstream.connections(), 0);
        });
    }
}

#[test]
fn a_streaming_response_is_passed_on_piece_by_piece_with_its_trailers() {
    run(async {
        let go_on = Rc::new(Notify::new());
        let signal = Rc::clone(&go_on);
        let replica = replica(move |mut peer, _| {
            let signal = Rc::clone(&signal);
            async move {
                loop {
                    peer.head().await;
                    let head =
                        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: sum\r\n\r\n";
                    peer.send(head).await;
                    signal.notified().await;
                    peer.send("5\r\nfirst\r\n").await;
                    signal.notified().await;
                    peer.send("6\r\nsecond\r\n0\r\nsum: 42\r\n\r\n").await;
                }
            }
        })
        .await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        for _ in 0..2 {
            client
                .send("GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te\r\n\r\n")
                .await;
            let head = client.head().await; // before any body exists
            assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
            go_on.notify_one();
            client.read_to("5\r\nfirst\r\n").await; // before the second piece exists
            go_on.notify_one();
            client.read_to("6\r\nsecond\r\n0\r\nsum: 42\r\n\r\n").await;
        }
        assert_eq!(*proxy.ends.borrow(), [End::Complete; 2]);
        assert_eq!((replica.accepted.get(), proxy.upstream.connections_idle()), (1, 1));
    });
}

#[test]
fn whoever_asks_late_how_a_body_ended_is_told() {
    run(async {
        let replica = replica(|mut peer, number| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
            peer.send(if number == 1 { "0\r\n\r\n" } else { "nonsense\r\n" }).await;
        })
        .await;
        let upstream = Upstream::new(replica.address, UPSTREAM);
        for expected in [End::Complete, End::Broken] {
            let mut body = upstream.send(get()).await.unwrap().into_body();
            while body.frame().await.is_some() {}
            let reported = Rc::new(Cell::new(None));
            let end = Rc::clone(&reported);
            drop(body.on_end(move |how| end.set(Some(how))));
            assert_eq!(reported.get(), Some(expected));
        }
    });
}

#[test]
fn a_large_body_arrives_whole() {
    run(async {
        let body: String = (0..300_000).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
        let sent = body.clone();
        let replica = replica(move |mut peer, _| {
            let body = sent.clone();
            async move {
                loop {
                    peer.head().await;
                    let length = body.len();
                    peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")).await;
                    peer.send(&body).await;
                }
            }
        })
        .await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        for _ in 0..3 {
            client.send(GET).await;
            assert!(client.head().await.contains("content-length: 300000\r\n"));
            while client.unread.len() < body.len() {
                client.stream.read_buf(&mut client.unread).await.unwrap();
            }
            assert!(std::mem::take(&mut client.unread) == body.as_bytes());
        }
        assert_eq!(replica.accepted.get(), 1);
        assert_eq!(*proxy.ends.borrow(), [End::Complete; 3]);
    });
}

/// The long body of this number: a wrong order of pages shows, as does another one's.
fn long_body(number: usize, length: usize) -> Vec<u8> {
    let part: Vec<u8> = (0..251).map(|place| (place + number * 31) as u8).collect();
    let mut body = part.repeat(length.div_ceil(part.len()));
    body.truncate(length);
    body
}

/// Answers each connection with a long body of its own, of which this much is sent.
async fn long_bodies(length: usize, sent: usize) -> Replica {
    let script = move |mut peer: Peer, number| async move {
        peer.head().await;
        let head = format!("HTTP/1.1 200 OK\r\nnumber: {number}\r\ncontent-length: {length}\r\n");
        peer.send(format!("{head}\r\n")).await;
        let _ = peer.stream.write_all(&long_body(number, sent)).await;
    };
    replica(script).await
}

/// Reads a long body as far as it comes, and compares it: its length.
async fn read_long(client: &mut Peer, length: usize) -> usize {
    let head = client.head().await;
    let number = head.split("number: ").nth(1).and_then(|rest| rest.lines().next());
    let number: usize = number.unwrap().parse().unwrap();
    while client.unread.len() < length
        && let Ok(1..) = client.stream.read_buf(&mut client.unread).await
    {}
    let came = std::mem::take(&mut client.unread);
    assert!(came == long_body(number, came.len()), "a byte is not that of {number}");
    came.len()
}

#[test]
fn long_bodies_pass_whole_where_more_of_them_are_stuck_than_there_are_pipes() {
    run(async {
        const STUCK: usize = PIPES_MAX + 8;
        const LENGTH: usize = 4 << 20; // more than sockets hold
        let replica = long_bodies(LENGTH, LENGTH).await;
        let server = ServerLimits { write: Duration::from_secs(20), ..SERVER };
        let proxy = proxy_with(replica.address, server, UPSTREAM);
        let mut clients = Vec::new();
        for _ in 0..STUCK {
            let mut client = proxy.client().await;
            client.send(GET).await;
            clients.push(client);
        }
        until("all are answered", || replica.accepted.get() == STUCK).await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        assert_eq!(read_long(&mut client, LENGTH).await, LENGTH);
        for client in &mut clients {
            assert_eq!(read_long(client, LENGTH).await, LENGTH);
        }
        until("all have ended", || proxy.ends.borrow().len() == STUCK + 1).await;
        assert!(proxy.ends.borrow().iter().all(|end| *end == End::Complete));
    });
}

#[test]
fn a_long_body_that_breaks_off_gives_the_client_what_came_and_the_end() {
    run(async {
        let (length, sent) = (1 << 20, 700_001);
        let replica = long_bodies(length, sent).await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        client.send(GET).await;
        assert_eq!(read_long(&mut client, length).await, sent);
        assert!(client.is_closed().await);
        assert_eq!(*proxy.ends.borrow(), [End::Broken]);
        assert_eq!(proxy.upstream.connections(), 0);
    });
}

#[test]
fn dropping_an_attempt_or_its_body_closes_the_connection() {
    run(async {
        let closed = Rc::new(Cell::new(0));
        let count = Rc::clone(&closed);
        let replica = replica(move |mut peer, number| {
            let count = Rc::clone(&count);
            async move {
                peer.head().await;
                if number == 2 {
                    peer.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").await;
                }
                assert!(peer.is_closed().await);
                count.set(count.get() + 1);
            }
        })
        .await;
        let upstream = Upstream::new(replica.address, UPSTREAM);
        let attempt = tokio::time::timeout(Duration::from_millis(30), upstream.send(get()));
        assert!(attempt.await.is_err(), "this replica does not answer");
        until("the first connection is closed", || closed.get() == 1).await;
        let end = Rc::new(Cell::new(None));
        let reported = Rc::clone(&end);
        let response = upstream.send(get()).await.unwrap();
        let mut body = response.into_body().on_end(move |end| reported.set(Some(end)));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
        assert_eq!(end.get(), None);
        drop(body);
        assert_eq!(end.get(), Some(End::Abandoned));
        until("the second connection is closed", || closed.get() == 2).await;
        assert_eq!(upstream.connections(), 0);
    });
}

#[test]
fn an_answer_before_the_request_is_through_is_passed_on_and_the_connection_not_reused() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            peer.head().await;
            peer.send("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno").await;
            peer.rest().await;
        })
        .await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nonly a part";
        let answer = client.ask(request, "no").await;
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        assert_eq!(proxy.upstream.connections_idle(), 0);
        drop(client);
        until("the connection is closed", || proxy.upstream.connections() == 0).await;
    });
}

#[test]
fn idle_connections_time_out_and_are_limited_in_number() {
    run(async {
        let replica = polite_replica().await;
        let limits =
            UpstreamLimits { idle: Duration::from_millis(80), idle_connections_max: 2, ..UPSTREAM };
        let upstream = Upstream::new(replica.address, limits);
        let sends = (0..5).map(|_| {
            let upstream = upstream.clone();
            tokio::task::spawn_local(async move { upstream.send(get()).await.map(drop) })
        });
        for send in sends.collect::<Vec<_>>() {
            send.await.unwrap().unwrap();
        }
        assert_eq!((upstream.connections(), upstream.connections_idle()), (2, 2));
        until("idle connections time out", || upstream.connections() == 0).await;
        upstream.send(get()).await.unwrap();
        upstream.close_idle();
        assert_eq!((upstream.connections(), upstream.connections_idle()), (0, 0));
    });
}

#[test]
fn an_idle_connection_closed_by_the_replica_leaves_the_pool_without_being_used() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            peer.head().await;
            peer.send(OK).await;
            pause(10).await;
        })
        .await;
        let limits = UpstreamLimits { idle: Duration::from_millis(400), ..UPSTREAM };
        let upstream = Upstream::new(replica.address, limits);
        upstream.send(get()).await.unwrap();
        assert_eq!(upstream.connections_idle(), 1);
        pause(220).await; // two sweeps, and half the idle time
        assert_eq!(upstream.connections(), 0);
    });
}

#[test]
fn nonsense_from_a_replica_is_a_bad_gateway() {
    let long = format!("HTTP/1.1 200 OK\r\nlong: {}\r\n\r\n", "x".repeat(70_000));
    let cases = [
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 999999 Many\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhello",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        &long,
    ];
    for case in cases.map(str::to_owned) {
        run(async move {
            let bytes = case.clone();
            let replica = replica(move |mut peer, _| {
                let bytes = bytes.clone();
                async move {
                    peer.head().await;
                    let _ = peer.stream.write_all(bytes.as_bytes()).await;
                    peer.rest().await;
                }
            })
            .await;
            let proxy = proxy(replica.address);
            let mut client = proxy.client().await;
            client.send(GET).await;
            let head = client.head().await;
            let shown = &case[..case.len().min(80)];
            assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{shown:?} gave {head}");
            until("the connection is not reused", || proxy.upstream.connections() == 0).await;
        });
    }
}

#[test]
fn responses_leave_with_one_framing_and_nothing_of_their_hop() {
    let cases = [
        // A chunked response that also claims a length: only the chunks count.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n",
            "hello",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n",
            "hello",
        ),
        (
            "HTTP/1.1 200 Fine\r\nconnection: x-hop, keep-alive\r\nkeep-alive: timeout=5\r\n\
             x-hop: 1\r\nx-end: 2\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 Fine\r\nx-end: 2\r\ncontent-length: 0\r\n",
            "",
        ),
        // Informational responses are dropped, the final one counts.
        (
            "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n",
            "",
        ),
        (
            "HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\netag: x\r\n",
            "",
        ),
    ];
    for (sent, head, body) in cases {
        run(async move {
            let replica = replica(move |mut peer, _| async move {
                loop {
                    peer.head().await;
                    peer.send(sent).await;
                }
            })
            .await;
            let proxy = proxy(replica.address);
            let mut client = proxy.client().await;
            for _ in 0..2 {
                client.send(GET).await;
                let received = client.head().await;
                let without_date: String =
                    received.split_inclusive("\r\n").filter(|l| !l.starts_with("date:")).collect();
                assert_eq!(without_date, format!("{head}\r\n"));
                if !body.is_empty() {
                    assert_eq!(client.read_to(body).await, body);
                }
                assert!(client.unread.is_empty());
            }
            assert_eq!(replica.accepted.get(), 1, "the connection was kept");
        });
    }
}

#[test]
fn a_body_that_ends_with_its_connection_is_passed_on() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            peer.head().await;
            peer.send("HTTP/1.0 200 OK\r\n\r\nhello").await;
        })
        .await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        let answer = client.ask(GET, "0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{answer}");
        assert_eq!(*proxy.ends.borrow(), [End::Complete]);
        assert_eq!(proxy.upstream.connections(), 0);
    });
}

#[test]
fn the_answer_to_head_keeps_its_length_and_has_no_body() {
    run(async {
        let replica = replica(|mut peer, _| async move {
            loop {
                let head = peer.head().await;
                assert!(head.starts_with("HEAD "), "{head}");
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n").await;
            }
        })
        .await;
        let proxy = proxy(replica.address);
        let mut client = proxy.client().await;
        for _ in 0..2 {
            let answer = client.ask("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", "\r\n\r\n").await;
            assert!(answer.contains("content-length: 5000\r\n"), "{answer}");
            assert!(client.unread.is_empty());
        }
        assert_eq!(replica.accepted.get(), 1);
    });
}
