//! Nodes behind TLS in whatever version they have.

use crate::Version;

use super::super::testing::fake::{Peer, dialect, fake, limits, node, tagged};
use super::super::testing::run;
use super::super::{NodeLimits, SendErrorKind};
use crate::client::testing::tls::{Certificate, ENDS};

#[test]
fn a_node_of_either_version_is_spoken_with_and_1_3_where_it_can() {
    for (versions, expected) in ENDS {
        run(async move {
            let certificate = Certificate::new();
            let (behind, _) = fake(Peer::echo).await;
            let (address, mut agreed) = certificate.before(behind, versions).await;
            let limits = NodeLimits { tls: Some(certificate.of_nodes()), ..limits() };
            let node = node(address, limits);
            for bytes in [8, 300_000] {
                let ask = tagged(1, bytes);
                let body = ask.body.clone();
                let answer = node.ask(&dialect(Version::V5), ask).await.unwrap();
                assert_eq!(answer.body, body);
            }
            assert_eq!(agreed.recv().await, Some(expected));
        });
    }
}

#[test]
fn a_node_with_anothers_certificate_is_not_believed_in_either_version() {
    for (versions, _) in ENDS {
        run(async move {
            let (certificate, other) = (Certificate::new(), Certificate::new());
            let (behind, seen) = fake(Peer::echo).await;
            let (address, _agreed) = other.before(behind, versions).await;
            let limits = NodeLimits { tls: Some(certificate.of_nodes()), ..limits() };
            let node = node(address, limits);
            let error = node.ask(&dialect(Version::V5), tagged(1, 8)).await.unwrap_err();
            assert_eq!((error.kind(), error.was_sent()), (SendErrorKind::Connect, false));
            assert!(seen.borrow().is_empty(), "{error}");
        });
    }
}
