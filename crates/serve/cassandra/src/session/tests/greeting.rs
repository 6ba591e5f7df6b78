//! OPTIONS, STARTUP, logins, events.

use evenkeel_cql::codec::Compression;
use evenkeel_cql::request::{AuthResponse, Register};
use evenkeel_cql::{response, write};

use super::*;
use crate::front::Refusal;
use crate::session::Says;

fn options(version: Version) -> Envelope {
    Envelope::new(version, 3, Opcode::Options, Bytes::new())
}

/// What Cassandra 5.0 answers to OPTIONS, with an option that another server has.
fn node_supports() -> Answer {
    let options = vec![
        ("COMPRESSION", vec!["snappy", "lz4"]),
        ("CQL_VERSION", vec!["3.4.7"]),
        ("PROTOCOL_VERSIONS", vec!["3/v3", "4/v4", "5/v5", "6/v6-beta"]),
        ("SCYLLA_SHARD", vec!["0"]),
    ];
    let mut body = BytesMut::new();
    response::Supported { options }.write(&mut body);
    answer(Opcode::Supported, body.freeze())
}

#[test]
fn options_are_a_nodes_without_what_is_not_spoken_here() {
    let mut small = Small::new();
    let Step::Say(3, says) = small.receive(options(Version::V5)) else { panic!() };
    assert_eq!(says, Says::Options);
    let (step, supported) = small.session.said(3, &says, Ok(node_supports()));
    let Step::Reply(reply) = step else { panic!() };
    let reported = response::Supported::read(&reply.body).unwrap();
    assert_eq!(reported.option("PROTOCOL_VERSIONS"), ["4/v4", "5/v5"]);
    assert_eq!(reported.option("COMPRESSION"), ["lz4", "snappy"]);
    assert_eq!(reported.option("CQL_VERSION"), ["3.4.7"]);
    assert_eq!(reported.options.len(), 3);
    // The next client is answered without a node.
    small.supported = supported;
    let Step::Reply(again) = small.receive(options(Version::V4)) else { panic!() };
    assert_eq!((again.opcode, again.body), (Opcode::Supported, reply.body));
}

#[test]
fn startup_chooses_the_clients_own_compression_and_reaches_the_node() {
    for (version, name, compression) in [
        (Version::V4, "snappy", Some(Compression::Snappy)),
        (Version::V4, "lz4", Some(Compression::Lz4)),
        (Version::V5, "LZ4", Some(Compression::Lz4)),
        (Version::V5, "", None),
    ] {
        let mut small = Small::new();
        let came = startup(version, 1, &[("COMPRESSION", name), ("DRIVER_NAME", "a driver")]);
        let body = came.body.clone();
        let Step::Say(_, says) = small.receive(came) else { panic!() };
        assert_eq!(says, Says::Startup(body));
        let (step, _) = small.session.said(1, &says, Ok(answer(Opcode::Ready, Bytes::new())));
        let Step::Started(reply, started, chosen) = step else { panic!("{step:?}") };
        assert_eq!((reply.opcode, reply.stream), (Opcode::Ready, 1));
        assert_eq!((started, chosen), (version, compression));
        assert!(small.session.is_ready());
    }
}

#[test]
fn what_cannot_be_started_is_refused_and_may_be_tried_again() {
    let mut small = Small::new();
    let step = small.receive(startup(Version::V5, 1, &[("COMPRESSION", "snappy")]));
    assert!(matches!(step, Step::NotStarted(_)));
    assert!(error_of(&step).1.contains("expected lz4 or none in v5"), "{step:?}");
    let step = small.receive(startup(Version::V4, 1, &[("NO_COMPACT", "true")]));
    assert!(error_of(&step).1.contains("NO_COMPACT"));
    // No node is up.
    let Step::Say(_, says) = small.receive(startup(Version::V4, 1, &[])) else { panic!() };
    let nobody = Refusal::overloaded("no node is up");
    let (step, _) = small.session.said(1, &says, Err(nobody));
    assert!(matches!(step, Step::NotStarted(_)));
    assert_eq!(error_of(&step), (ErrorCode::Overloaded, "no node is up".to_owned()));
    small.start(Version::V4);
    assert_eq!(small.session.dialect().version, Version::V4);
}

fn auth_response(token: &[u8]) -> Envelope {
    let response = AuthResponse { token: Some(token) };
    envelope(Version::V4, 2, Opcode::AuthResponse, |body| response.write(body))
}

fn authenticating() -> Small {
    let mut small = Small::new();
    let Step::Say(_, says) = small.receive(startup(Version::V4, 1, &[])) else { panic!() };
    let mut body = BytesMut::new();
    write::string(&mut body, "PasswordAuthenticator");
    let (step, _) = small.session.said(1, &says, Ok(answer(Opcode::Authenticate, body.freeze())));
    let Step::Started(reply, ..) = step else { panic!("{step:?}") };
    assert_eq!(reply.opcode, Opcode::Authenticate);
    assert!(!small.session.is_ready());
    small
}

#[test]
fn a_login_is_the_nodes_to_judge_and_kept_for_the_others() {
    let mut small = authenticating();
    let step = small.query("SELECT * FROM k.t");
    assert!(matches!(step, Step::End(_)), "nothing is asked before: {step:?}");

    let mut small = authenticating();
    let Step::Say(2, says) = small.receive(auth_response(b"\0me\0wrong")) else { panic!() };
    let refused = Refusal::bad_credentials("no").answer();
    let (step, _) = small.session.said(2, &says, Ok(refused));
    assert_eq!(error_of(&step).0, ErrorCode::BadCredentials);
    assert!(!small.session.is_ready() && small.session.dialect().login.is_none());

    let Step::Say(2, says) = small.receive(auth_response(b"\0me\0right")) else { panic!() };
    let mut body = BytesMut::new();
    write::bytes(&mut body, None);
    let (step, _) = small.session.said(2, &says, Ok(answer(Opcode::AuthSuccess, body.freeze())));
    let Step::Reply(reply) = step else { panic!("{step:?}") };
    assert_eq!(reply.opcode, Opcode::AuthSuccess);
    let login = small.session.dialect().login.clone().unwrap();
    assert_eq!(
        (&*login.authenticator, &login.token[..]),
        ("PasswordAuthenticator", &b"\0me\0right"[..])
    );
}

/// Says this, and what the node says to it.
fn exchange(small: &mut Small, token: &[u8], opcode: Opcode, reported: Option<&[u8]>) -> Step {
    let Step::Say(2, says) = small.receive(auth_response(token)) else { panic!() };
    let mut body = BytesMut::new();
    write::bytes(&mut body, reported);
    small.session.said(2, &says, Ok(answer(opcode, body.freeze()))).0
}

/// A client whose login of two messages a node has found good.
fn proving() -> (Small, Envelope) {
    let mut small = authenticating();
    // What is said before a refusal is forgotten with it.
    for is_good in [false, true] {
        let step = exchange(&mut small, b"PLAIN", Opcode::AuthChallenge, Some(b"PLAIN-START"));
        let Step::Reply(reply) = step else { panic!("{step:?}") };
        assert_eq!((reply.opcode, &reply.body[4..]), (Opcode::AuthChallenge, &b"PLAIN-START"[..]));
        if !is_good {
            let Step::Say(2, says) = small.receive(auth_response(b"wrong")) else { panic!() };
            let refused = Refusal::bad_credentials("no").answer();
            small.session.said(2, &says, Ok(refused));
        }
    }
    let step = exchange(&mut small, b"\0me\0right", Opcode::AuthSuccess, None);
    let Step::Prove(2, reply) = step else { panic!("{step:?}") };
    assert!(!small.session.is_ready());
    assert_eq!((small.session.in_flight(), reply.opcode), (1, Opcode::AuthSuccess));
    (small, reply)
}

#[test]
fn a_login_of_several_messages_is_good_when_it_could_be_replayed() {
    let (mut small, reply) = proving();
    let login = small.session.dialect().login.clone().unwrap();
    assert_eq!(&login.token[..], b"PLAIN");
    let [challenge] = &login.further[..] else { panic!("{login:?}") };
    assert_eq!(&challenge.question[..], b"PLAIN-START");
    assert_eq!(&challenge.answer[..], b"\0me\0right");
    let Step::Reply(passed) = small.session.proven(2, reply.clone(), Ok(())) else { panic!() };
    assert_eq!(passed, reply);
    assert!(small.session.is_ready() && small.session.in_flight() == 0);
}

#[test]
fn nothing_is_asked_of_a_login_that_is_not_proven() {
    let (mut small, _) = proving();
    let step = small.query("SELECT * FROM k.t");
    assert!(matches!(step, Step::End(_)), "{step:?}");
    let (mut small, reply) = proving();
    let refused = Err(Refusal::bad_credentials("for one connection"));
    let step = small.session.proven(2, reply, refused);
    assert!(matches!(step, Step::End(_)), "{step:?}");
    assert_eq!(error_of(&step), (ErrorCode::BadCredentials, "for one connection".to_owned()));
    assert!(!small.session.is_ready());
}

#[test]
fn streams_in_flight_are_not_taken_twice() {
    let mut small = Small::ready(Version::V4);
    assert!(matches!(small.query("SELECT * FROM k.t"), Step::Ask(..)));
    assert_eq!(small.session.in_flight(), 1);
    let step = small.query("SELECT * FROM k.t");
    assert!(matches!(step, Step::End(_)));
    assert!(error_of(&step).1.contains("stream 1"));
    let step = small.receive(Envelope { stream: -4, ..query(Version::V4, 0, "SELECT 1", &[]) });
    assert!(error_of(&step).1.contains("stream -4"));
}

#[test]
fn events_are_asked_for_by_known_names() {
    let mut small = Small::ready(Version::V5);
    let mut register = |kinds: Vec<&str>| {
        small.receive(envelope(Version::V5, 1, Opcode::Register, |body| {
            Register { kinds }.write(body);
        }))
    };
    let all = vec!["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"];
    assert!(matches!(register(all), Step::Registered(_)));
    assert!(matches!(register(vec!["status_change"]), Step::Reply(_)));
    assert_eq!(error_of(&register(vec!["WEATHER_CHANGE"])).0, ErrorCode::ProtocolError);
}
