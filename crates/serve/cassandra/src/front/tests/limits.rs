//! What clients may not do, and how they are told.

use evenkeel_runtime::buffers::BufferBudget;

use super::*;

/// The bytes of a message as a client of another version begins with.
fn options_of(version: u8) -> Vec<u8> {
    match version {
        0..3 => vec![version, 0, 1, 5, 0, 0, 0, 0, 0],
        _ => vec![version, 0, 0, 1, 5, 0, 0, 0, 0],
    }
}

#[test]
fn versions_that_are_not_spoken_are_told_so_that_drivers_take_a_lower_one() {
    for (came, answered_in) in [(3, 0x84), (6, 0x85), (66, 0x85), (2, 0x84)] {
        run(async {
            let front = Front::new(|_| {});
            let mut client = front.client(Version::V4, 1);
            client.push(&options_of(came)).await;
            let mut reported = Vec::new();
            client.stream.read_to_end(&mut reported).await.unwrap();
            assert_eq!((reported[0], reported[4]), (answered_in, 0), "{reported:?}");
            let words = String::from_utf8_lossy(&reported);
            let expected = format!("Invalid or unsupported protocol version ({came})");
            assert!(words.contains(&expected), "{words}");
            assert!(words.contains("4/v4, 5/v5"), "{words}");
        });
    }
}

#[test]
fn what_is_not_the_protocol_is_answered_and_ends_the_connection() {
    /// What is wrong, the bytes after STARTUP, and how the answer begins.
    type Wrong = (&'static str, Vec<u8>);
    let v4: [Wrong; 4] = [
        ("opcode", vec![4, 0, 0, 1, 0x7F, 0, 0, 0, 0]),
        ("response", vec![0x84, 0, 0, 1, 8, 0, 0, 0, 0]),
        ("length", vec![4, 0, 0, 1, 7, 0xFF, 0xFF, 0xFF, 0xFF]),
        ("a body of", vec![4, 0, 0, 1, 7, 0x7F, 0xFF, 0xFF, 0xFF]),
    ];
    let v5: [Wrong; 1] = [("checksum", vec![0x55; 64])];
    let of = |version, wrongs: &[Wrong]| {
        wrongs.iter().map(|wrong| (version, wrong.clone())).collect::<Vec<_>>()
    };
    for (version, (words, bytes)) in [of(Version::V4, &v4), of(Version::V5, &v5)].concat() {
        run(async {
            let front = Front::new(|_| {});
            let mut client = front.client(version, 1);
            client.start(None).await;
            client.push(&bytes).await;
            let (code, reported) = error_in(&client.next().await.unwrap());
            assert_eq!(code, ErrorCode::ProtocolError);
            assert!(reported.contains(words), "{reported}");
            assert_eq!(client.next().await, None);
            assert_eq!(front.counts().protocol_errors.get(), 1);
        });
    }
}

#[test]
fn a_stream_in_flight_is_not_taken_twice() {
    run(async {
        let front = Front::new(|_| {});
        let mut client = front.client(Version::V4, 1);
        client.start(None).await;
        client.send(&[query(Version::V4, 9, "HOLD"), query(Version::V4, 9, "ECHO 2")]).await;
        let (code, words) = error_in(&client.next().await.unwrap());
        assert_eq!(code, ErrorCode::ProtocolError);
        assert!(words.contains("stream 9"), "{words}");
        assert_eq!(client.next().await, None);
        assert_eq!(front.fake.in_flight.get(), 0, "what was in flight is given up");
    });
}

#[test]
fn a_client_with_too_much_in_flight_waits() {
    for limit in ["count", "bytes"] {
        run_paused(async {
            let front = Front::new(|settings| match limit {
                "count" => settings.in_flight_max = 4,
                _ => settings.in_flight_bytes_max = 60,
            });
            let mut client = front.client(Version::V4, 1);
            client.start(None).await;
            let asked: Vec<_> =
                (0..10).map(|stream| query(Version::V4, stream, "HOLD     x")).collect();
            client.send(&asked).await;
            let mut answered = 0;
            while answered < 10 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let in_flight = front.fake.in_flight.get();
                assert!((1..=4).contains(&in_flight), "{limit}: {in_flight} in flight");
                front.fake.release.notify_waiters();
                for _ in 0..in_flight {
                    client.next().await.unwrap();
                    answered += 1;
                }
            }
        });
    }
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    run_paused(async {
        let front = Front::new(|settings| settings.write = Duration::from_millis(200));
        let mut client = front.client(Version::V4, 1);
        client.start(None).await;
        for stream in 0..20 {
            let mut bytes = BytesMut::new();
            client.encoder.encode(&query(Version::V4, stream, "LONG 200000"), &mut bytes);
            client.stream.write_all(&bytes).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(front.counts().connections.get(), 1);
        while front.counts().connections.get() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(front.counts().timeouts.get(), 1);
    });
}

/// A budget of its own, of so many bytes.
fn budget(bytes: u64) -> &'static BufferBudget {
    Box::leak(Box::new(BufferBudget::new(bytes)))
}

/// So many requests with long answers, not read yet.
async fn greedy(front: &Front, requests: i16) -> Client<DuplexStream> {
    let mut client = front.client(Version::V4, 1);
    client.start(None).await;
    let asked: Vec<_> =
        (0..requests).map(|stream| query(Version::V4, stream, "LONG 40000")).collect();
    client.send(&asked).await;
    client
}

#[test]
fn clients_that_do_not_read_share_a_budget_and_hinder_nobody_else() {
    run_paused(async {
        const REQUESTS: i16 = 40;
        let buffers = budget(2 << 20);
        let front = Front::new(|settings| {
            settings.buffers = buffers;
            settings.in_flight_max = 2;
        });
        let mut slow = Vec::new();
        for _ in 0..8 {
            slow.push(greedy(&front, REQUESTS).await);
        }
        tokio::time::sleep(Duration::from_secs(1)).await; // nobody has anything to do any more
        let counts = buffers.counts();
        // Without the budget they would have a mebibyte each.
        assert!((1 << 19..=2 << 20).contains(&counts.bytes), "{counts:?}");
        assert!(counts.held_back >= 8 && counts.cut_off == 0, "{counts:?}");
        let mut other = front.client(Version::V5, 2);
        other.start(None).await;
        assert_eq!(other.ask(query(Version::V5, 1, "ECHO 1")).await.opcode, Opcode::Result);
        assert_eq!(other.ask(query(Version::V5, 2, "LONG 300000")).await.body.len(), 300_011);
        // All of them get all answers, whenever they read.
        for client in &mut slow {
            for answered in 0..REQUESTS {
                assert!(client.next().await.is_some(), "after {answered}");
            }
        }
        assert_eq!(buffers.counts().bytes, 0);
        assert_eq!(buffers.counts().cut_off, 0);
    });
}

#[test]
fn when_the_budget_is_used_who_holds_most_is_cut_off() {
    run_paused(async {
        let buffers = budget(1 << 20);
        let front = Front::new(|settings| settings.buffers = buffers);
        let mut small = greedy(&front, 5).await;
        let mut large = greedy(&front, 40).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((buffers.counts().cut_off, front.counts().connections.get()), (1, 1));
        while large.next().await.is_some() {}
        for answered in 0..5 {
            assert!(small.next().await.is_some(), "after {answered}");
        }
        assert_eq!(buffers.counts().bytes, 0);
    });
}

#[test]
fn messages_that_have_begun_are_read_to_their_end_whoever_else_waits() {
    run_paused(async {
        let buffers = budget(4 << 20);
        let front = Front::new(|settings| settings.buffers = buffers);
        let text = format!("ECHO 1 {}", "x".repeat(400_000));
        let mut clients = Vec::new();
        for version in [Version::V4, Version::V5].repeat(4) {
            let mut client = front.client(version, 1);
            client.start(None).await;
            let mut bytes = BytesMut::new();
            client.encoder.encode(&query(version, 1, &text), &mut bytes);
            let pushing = tokio::time::timeout(PATIENCE, client.push(&bytes[..390_000]));
            pushing.await.expect("what has begun is read");
            clients.push((client, bytes));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let counts = buffers.counts();
        assert!(counts.bytes > counts.bytes_max / 2, "all are in the middle of one: {counts:?}");
        for (client, bytes) in &mut clients {
            client.push(&bytes[390_000..]).await;
            assert_eq!(client.next().await.unwrap().body, text);
        }
        assert_eq!((buffers.counts().bytes, buffers.counts().cut_off), (0, 0));
    });
}

#[test]
fn a_client_that_says_nothing_is_closed_and_one_that_waits_is_not() {
    run_paused(async {
        let front = Front::new(|settings| {
            settings.idle = Duration::from_millis(200);
            settings.handshake = Duration::from_millis(100);
        });
        let mut silent = front.client(Version::V4, 1);
        assert_eq!(silent.next().await, None, "no STARTUP");
        let mut waiting = front.client(Version::V4, 1);
        waiting.start(None).await;
        waiting.send(&[query(Version::V4, 1, "HOLD")]).await;
        let mut idle = front.client(Version::V4, 1);
        idle.start(None).await;
        assert_eq!(idle.next().await, None);
        tokio::time::sleep(Duration::from_millis(300)).await;
        front.fake.release.notify_waiters();
        assert_eq!(waiting.next().await.unwrap().body, "HOLD");
    });
}

#[test]
fn before_the_login_little_is_listened_to() {
    run(async {
        let front = Front::new(|_| {});
        let mut client = front.client(Version::V4, 1);
        let mut startup = vec![4, 0, 0, 1, 1];
        startup.extend((10_u32 << 20).to_be_bytes());
        startup.extend(bytes(200 << 10, b'x'));
        client.push(&startup).await;
        let (code, words) = error_in(&client.next().await.unwrap());
        assert_eq!(code, ErrorCode::ProtocolError);
        assert!(words.contains("before the login"), "{words}");
        assert_eq!(client.next().await, None);
    });
}

#[test]
fn a_client_that_reads_late_gets_every_answer() {
    const COUNT: i16 = 6_000;
    const TEXT: &str = "SELECT * FROM system.local WHERE key='local'";
    run_paused(async {
        let front = Front::new(|_| {});
        let mut client = front.client(Version::V4, 1);
        client.start(None).await;
        let mut asked = BytesMut::new();
        for stream in 0..COUNT {
            client.encoder.encode(&query(Version::V4, stream, TEXT), &mut asked);
        }
        let Client { stream, mut decoder, mut inbox, .. } = client;
        let (mut read, mut write) = tokio::io::split(stream);
        let writing = tokio::task::spawn_local(async move {
            write.write_all(&asked).await.unwrap();
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!writing.is_finished(), "what is not read is not asked either");
        let mut answered = 0;
        while answered < COUNT {
            while decoder.decode(&mut inbox).unwrap().is_some() {
                answered += 1;
            }
            if answered < COUNT {
                assert_ne!(read.read_buf(&mut inbox).await.unwrap(), 0, "after {answered}");
            }
        }
        writing.await.unwrap();
    });
}

#[test]
fn a_lame_duck_takes_requests_and_one_that_drains_answers_those_it_has() {
    run_paused(async {
        let front = Front::new(|settings| settings.in_flight_max = 2);
        let (mut idle, mut busy) = (front.client(Version::V4, 1), front.client(Version::V5, 2));
        for client in [&mut idle, &mut busy] {
            client.start(None).await;
        }
        front.stop.enter(Stage::LameDuck);
        assert_eq!(idle.ask(query(Version::V4, 1, "ECHO 1")).await.opcode, Opcode::Result);
        let mut late = front.client(Version::V4, 3);
        late.start(None).await;
        // Two of three go to the cluster; the last one is read and waits for its turn.
        let asked: Vec<_> = (0..3).map(|stream| query(Version::V5, stream, "HOLD")).collect();
        busy.send(&asked).await;
        while front.fake.in_flight.get() < 2 {
            tokio::task::yield_now().await;
        }
        let until = tokio::time::Instant::now() + Duration::from_secs(5);
        front.stop.enter(Stage::Draining { until });
        assert_eq!(idle.next().await, None);
        assert_eq!(late.next().await, None);
        drop((idle, late));
        for answered in 0..3 {
            while front.fake.in_flight.get() == 0 {
                tokio::task::yield_now().await;
            }
            front.fake.release.notify_waiters();
            assert_eq!(busy.next().await.unwrap().body, "HOLD", "after {answered}");
        }
        assert_eq!(busy.next().await, None);
        drop(busy);
        let served = front.serving.await.unwrap().unwrap();
        assert_eq!((served.accepted, served.cut_off), (3, 0));
    });
}

#[test]
fn who_is_not_answered_when_the_drain_is_over_is_cut_off_and_counted() {
    run_paused(async {
        let front = Front::new(|settings| settings.drain = Duration::from_secs(3));
        let (mut held, mut leaving) = (front.client(Version::V4, 1), front.client(Version::V4, 2));
        for client in [&mut held, &mut leaving] {
            client.start(None).await;
        }
        held.send(&[query(Version::V4, 1, "HOLD")]).await;
        while front.fake.in_flight.get() == 0 {
            tokio::task::yield_now().await;
        }
        let began = tokio::time::Instant::now();
        front.stop.enter(Stage::Draining { until: began + Duration::from_secs(60) });
        assert_eq!(leaving.next().await, None);
        assert_eq!(held.next().await, None);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        // The other one has all its answers, though it does not close its side.
        assert_eq!(front.serving.await.unwrap().unwrap().cut_off, 1);
        assert_eq!(front.fake.in_flight.get(), 0);
    });
}
