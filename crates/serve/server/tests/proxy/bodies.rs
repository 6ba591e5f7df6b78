//! Responses that break off or stall after their head.

use super::*;

/// A head, three bytes, and the end: nothing but the body tells that this replica is not well.
#[test]
fn a_replica_that_breaks_every_body_is_ejected() {
    for policy in ["round-robin", "least-outstanding", "c3"] {
        story(async move {
            let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc";
            let breaker = Replica::start(move |_| Act::Cut(cut.into())).await;
            let (second, third) =
                (Replica::start(|_| ok("whole")).await, Replica::start(|_| ok("whole")).await);
            let replicas = [breaker.address, second.address, third.address];
            let proxy = Proxy::start_with(policy, &replicas, "");
            let (mut clients, mut broken) = (Vec::new(), 0);
            for _ in 0..36 {
                clients.push(proxy.client().await);
            }
            // All leave before the first is answered; then they come one after another.
            for client in &mut clients {
                client.send("GET / HTTP/1.1\r\nhost: web\r\n\r\n").await;
            }
            for mut client in clients {
                broken += u64::from(client.read_to(b"whole").await.is_none());
            }
            let at_once = broken;
            assert!((5..=20).contains(&at_once), "{policy}: {at_once} of 36");
            for _ in 0..100 {
                let mut client = proxy.client().await;
                client.send("GET / HTTP/1.1\r\nhost: web\r\n\r\n").await;
                broken += u64::from(client.read_to(b"whole").await.is_none());
            }
            // On trial after 1, 2, 4 and 8 s, if it takes us so long.
            assert!(broken <= at_once + 5, "{policy}: {broken} of 136 were broken");
            proxy.is_quiet(136).await;
            let counted = proxy.upstreams().stats(0).total.replicas[0];
            assert_eq!((counted.succeeded, counted.failed), (0, broken), "{policy}");
            assert_eq!((counted.broken_bodies, counted.cancelled), (broken, 0), "{policy}");
            assert!(counted.ejections >= 1, "{policy}");
        });
    }
}

#[test]
fn what_breaks_because_of_the_client_is_not_held_against_the_replica() {
    story(async {
        let half = |_: &str| Act::Send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".into());
        let replica = Replica::start(half).await;
        let proxy = Proxy::before(&[&replica], "");
        for number in 1..=6 {
            let mut client = proxy.client().await;
            client.send("GET /leaves HTTP/1.1\r\nhost: web\r\n\r\n").await;
            client.read_to(b"half").await.unwrap();
            drop(client);
            // The answer has begun when the request breaks off, and ends with it.
            let mut client = proxy.client().await;
            let head = "POST /up HTTP/1.1\r\nhost: web\r\ntransfer-encoding: chunked";
            client.send(format!("{head}\r\n\r\n2\r\nhi\r\n")).await;
            client.read_to(b"half").await.unwrap();
            client.send("no length\r\n").await;
            assert!(client.is_closed().await);
            proxy.is_quiet(2 * number).await;
        }
        let counted = proxy.upstreams().stats(0).total.replicas[0];
        assert_eq!((counted.succeeded, counted.failed, counted.ejections), (12, 0, 0));
    });
}

/// Three bytes of ten, then nothing, for good.
#[test]
fn a_body_that_stalls_ends_at_the_limit_and_is_a_failure() {
    story(async {
        let some = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
        let replica = Replica::start(|_| Act::Stall(some.into())).await;
        let proxy = Proxy::before(&[&replica], "[upstream.web.timeouts]\nidle = '300ms'");
        let mut client = proxy.client().await;
        client.send("GET / HTTP/1.1\r\nhost: web\r\n\r\n").await;
        client.read_to(b"abc").await.unwrap();
        assert!(client.is_closed().await);
        proxy.is_quiet(1).await;
        until("the replica sees the end", || replica.cut_off.get() == 1).await;
        let counted = proxy.upstreams().stats(0).total.replicas[0];
        assert_eq!((counted.succeeded, counted.failed, counted.broken_bodies), (0, 1, 1));
    });
}

#[test]
fn a_body_that_breaks_or_stalls_before_its_first_byte_is_asked_for_elsewhere() {
    story(async {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n";
        let breaker = Replica::start(|_| Act::Cut(head.into())).await;
        let staller = Replica::start(|_| Act::Stall(head.into())).await;
        let well = Replica::start(|_| ok("whole")).await;
        let more = "retries_max = 2\nretry_budget = 1.0\n[upstream.web.timeouts]\n\
                    attempt = '800ms'\n[upstream.web.safeguards]\nejection_failures = 0";
        let proxy = Proxy::before(&[&breaker, &staller, &well], more);
        for _ in 0..4 {
            let mut client = proxy.client().await;
            assert_eq!(client.ask("GET", "/").await, (200, "whole".into()));
        }
        proxy.is_quiet(4).await;
        assert!(breaker.saw("GET") >= 1 && staller.saw("GET") >= 1);
        // What may have had its effect is not sent again, and is told so in time.
        let more = "[upstream.web.timeouts]\nattempt = '800ms'";
        let proxy = Proxy::before(&[&breaker], more);
        assert_eq!(proxy.client().await.ask("POST", "/").await.0, 502);
        let proxy = Proxy::before(&[&staller], more);
        assert_eq!(proxy.client().await.ask("POST", "/").await.0, 504);
    });
}

/// Heads that are no answer yet count neither as one nor as silence broken.
#[test]
fn interim_answers_do_not_pass_and_a_flood_of_them_ends_with_the_attempt() {
    story(async {
        let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(2_000);
        let answer = format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate");
        let late = Replica::start(move |_| Act::Send(answer.clone())).await;
        let proxy = Proxy::before(&[&late], "");
        assert_eq!(proxy.client().await.ask("GET", "/").await, (200, "late".into()));
        let flood = Replica::start(move |_| Act::Stall(interim.clone())).await;
        let well = Replica::start(|_| ok("whole")).await;
        let more = "[upstream.web.timeouts]\nattempt = '300ms'";
        let proxy = Proxy::before(&[&flood, &well], more);
        for _ in 0..2 {
            assert_eq!(proxy.client().await.ask("GET", "/").await, (200, "whole".into()));
        }
        until("the flood is cut off", || flood.cut_off.get() == 1).await;
    });
}

/// Nobody knows when the first event of a stream comes.
#[test]
fn the_head_of_a_stream_passes_at_once() {
    story(async {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        let replica = Replica::start(|_| Act::Stall(head.into())).await;
        let proxy = Proxy::before(&[&replica], "[upstream.web.timeouts]\nattempt = '10s'");
        let mut client = proxy.client().await;
        client.send("GET / HTTP/1.1\r\nhost: web\r\n\r\n").await;
        assert!(client.head().await.unwrap().contains("text/event-stream"));
    });
}

/// A response has begun, and its client sends no more of the request.
#[test]
fn a_stalled_upload_is_not_held_against_the_replica() {
    story(async {
        let half = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n";
        let replica = Replica::start(|_| Act::Stall(half.into())).await;
        let proxy = Proxy::before(&[&replica], "[upstream.web.timeouts]\nidle = '300ms'");
        let mut client = proxy.client().await;
        let head = "POST /up HTTP/1.1\r\nhost: web\r\ntransfer-encoding: chunked";
        client.send(format!("{head}\r\n\r\n2\r\nhi\r\n")).await;
        client.read_to(b"half").await.unwrap();
        while client.reader.read_buf(&mut client.unread).await.is_ok_and(|bytes| bytes > 0) {}
        proxy.is_quiet(1).await;
        let counted = proxy.upstreams().stats(0).total.replicas[0];
        assert_eq!((counted.succeeded, counted.failed, counted.broken_bodies), (1, 0, 0));
    });
}

async fn readiness(proxy: &Proxy) -> String {
    let admin = proxy.0.admin().unwrap();
    let get = move || evenkeel_testkit::http::get(admin, "/readyz");
    tokio::task::spawn_blocking(get).await.unwrap()
}

#[test]
fn when_nobody_is_well_it_is_not_ready_and_says_so_by_status() {
    story(async {
        let well = Replica::start(ok).await;
        let admin = "[admin]\naddress = '127.0.0.1:0'\n";
        let proxy = Proxy::start(&[nobody(), nobody()], admin);
        assert!(readiness(&proxy).await.starts_with("HTTP/1.1 200"), "nobody has come yet");
        for _ in 0..3 {
            assert_eq!(proxy.client().await.ask("GET", "/").await.0, 502);
        }
        let stats = || proxy.upstreams().stats(0);
        until("every response is counted", || stats().responses == [0, 0, 0, 0, 3]).await;
        assert!(!stats().is_trusted(0) && !stats().is_trusted(1), "{:?}", stats().workers);
        let told = readiness(&proxy).await;
        assert!(told.starts_with("HTTP/1.1 503") && told.contains("web"), "{told}");
        let proxy = Proxy::before(&[&well], "");
        assert_eq!(proxy.client().await.ask("GET", "/").await.0, 200);
        until("it is counted", || proxy.upstreams().stats(0).responses == [0, 1, 0, 0, 0]).await;
        assert!(proxy.upstreams().stats(0).is_trusted(0));
    });
}
