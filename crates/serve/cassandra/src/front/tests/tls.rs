//! Clients over TLS.

use std::rc::Rc;

use tokio::net::TcpStream;

use super::*;
use crate::front::serve;
use evenkeel_cql::client::testing::tls::{Certificate, ENDS};
use evenkeel_runtime::accept::ListenerFilters;
use evenkeel_runtime::accept::{Listener, Stop};

fn settings(certificate: &Certificate) -> FrontSettings {
    FrontSettings {
        filters: ListenerFilters::of_tls(Some(certificate.of_server())),
        ..FrontSettings::new("east")
    }
}

#[test]
fn clients_of_either_version_are_served_and_of_1_3_where_they_can() {
    run(async {
        let certificate = Certificate::new();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let (settings, fake) = (Rc::new(settings(&certificate)), Rc::new(Fake::default()));
        let never = StopSignal::never();
        tokio::task::spawn_local(serve(listener, settings, fake, Rc::default(), never));
        for (number, (versions, expected)) in ENDS.into_iter().enumerate() {
            let stream = certificate.connect(address, versions).await.unwrap();
            assert_eq!(stream.get_ref().1.protocol_version(), Some(expected));
            let mut client = Client::new(stream, Version::V5, number as u64);
            client.start(None).await;
            let reply = client.ask(query(Version::V5, 2, "LONG 300000")).await;
            assert_eq!(reply.body.len(), 11 + 300_000);
        }
    });
}

#[test]
fn over_tls_and_sockets_what_is_in_flight_is_answered_before_the_end() {
    run(async {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let certificate = Certificate::new();
        let settings = Rc::new(settings(&certificate));
        let fake = Rc::new(Fake::default());
        let stop = Stop::new();
        let serving = serve(listener, settings, Rc::clone(&fake), Rc::default(), stop.signal());
        let serving = tokio::task::spawn_local(serving);
        let stream = certificate.connect(address, ENDS[2].0).await.unwrap();
        let mut client = Client::new(stream, Version::V5, 1);
        client.start(Some(Compression::Lz4)).await;
        let reply = client.ask(query(Version::V5, 2, "LONG 300000")).await;
        assert_eq!(reply.body.len(), 11 + 300_000);

        client.send(&[query(Version::V5, 3, "HOLD")]).await;
        while fake.in_flight.get() == 0 {
            tokio::task::yield_now().await;
        }
        tokio::task::spawn_local(async move { stop.stop(Duration::from_secs(10)).await });
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        fake.release.notify_waiters();
        assert_eq!(client.next().await.unwrap().body, "HOLD");
        assert_eq!(client.next().await, None);
        let served = serving.await.unwrap().unwrap();
        assert_eq!(served.cut_off, 0);
    });
}
