//! The rules for heads against a slow and obvious model of RFC 9110 §7.6.1.

use std::collections::BTreeSet;

use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, TRANSFER_ENCODING};
use http::{Method, Version};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::{collection::vec, prop_assert, prop_assert_eq};

use super::*;
use crate::{FieldName, FieldValue, Fields};
use evenkeel_runtime::networks::Networks;

type Lines = Vec<(String, String)>;

const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "transfer-encoding",
    "upgrade",
    "expect",
];

fn client(address: &str) -> Client {
    Client::new(address.parse().unwrap())
}

fn forwarding(append_forwarded_for: bool) -> Forwarding {
    let host_default = HeaderValue::from_static("default");
    Forwarding { trusted_proxies: None, append_forwarded_for, is_https: false, host_default }
}

fn head_of(lines: &Lines) -> Fields {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    Fields::from(&headers)
}

/// The same as it is read, in another case.
fn head_that_came(lines: &Lines) -> Fields {
    let (mut text, mut places) = (Vec::new(), Vec::new());
    for (name, value) in lines {
        let name_at = text.len();
        text.extend_from_slice(name.to_ascii_uppercase().as_bytes());
        let value_at = text.len() + 2;
        text.extend_from_slice(format!(": {value}\r\n").as_bytes());
        places.push((name_at..value_at - 2, value_at..value_at + value.len()));
    }
    let text = bytes::Bytes::from(text);
    let mut headers = Fields::of_head(text.clone(), lines.len());
    for (name, value) in places {
        headers.take_up(&text[name], &text[value]).unwrap();
    }
    headers
}

/// Both forms of a head.
fn heads_of(lines: &Lines) -> [Fields; 2] {
    [head_of(lines), head_that_came(lines)]
}

fn request(lines: &Lines) -> Request<Body> {
    request_with(head_of(lines))
}

fn request_with(headers: Fields) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.headers_mut() = headers;
    request.headers_mut().insert(HOST, &HeaderValue::from_static("service"));
    request
}

fn prepared(mut request: Request<Body>) -> Result<Request<Body>, Refusal> {
    prepare_request(&mut request, &client("192.0.2.7:1"), &forwarding(false))?;
    Ok(request)
}

/// Every line that is neither hop-by-hop nor named by `Connection`, per name in order.
fn end_to_end(lines: &Lines) -> Vec<(String, Vec<String>)> {
    let named: BTreeSet<String> = lines
        .iter()
        .filter(|(name, _)| name == "connection")
        .flat_map(|(_, value)| value.split(',').map(|token| token.trim().to_ascii_lowercase()))
        .collect();
    let kept = |name: &str| !HOP_BY_HOP.contains(&name) && !named.contains(name);
    let names: BTreeSet<&String> = lines.iter().map(|(name, _)| name).collect();
    let values = |wanted: &str| {
        lines.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.clone()).collect()
    };
    names.into_iter().filter(|n| kept(n)).map(|n| (n.clone(), values(n))).collect()
}

fn found(headers: &Fields, but: &[&str]) -> Vec<(String, Vec<String>)> {
    let lower = |name: FieldName<'_>| name.to_string().to_ascii_lowercase();
    let names: BTreeSet<String> = headers.names().map(lower).collect();
    let text = |value: FieldValue<'_>| value.to_str().unwrap().to_owned();
    let values = |name: &String| headers.get_all(name).map(text).collect();
    let names = names.into_iter().filter(|name| !but.contains(&name.as_str()));
    names.map(|name| (name.clone(), values(&name))).collect()
}

fn a_line() -> impl Strategy<Value = (String, String)> {
    let ordinary = ["accept", "cookie", "x-a", "x-b", "cache-control", "trailer", "proxied"];
    let ordinary = (proptest::sample::select(ordinary.to_vec()), "[a-z]{0,5}");
    let tokens = ["close", "Keep-Alive", "X-A", "x-b", "te", "Cookie", "no such", "accept", ""];
    let tokens = vec(proptest::sample::select(tokens.to_vec()), 1..4);
    let connection = tokens.prop_map(|tokens| ("connection", tokens.join(" , ")));
    let hop = ["keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate"];
    let hop = (proptest::sample::select(hop.to_vec()), "[a-z]{1,5}");
    let special = prop_oneof![
        Just(("te", "gzip, Trailers;q=0.5".to_owned())),
        Just(("te", "trailers".to_owned())),
        Just(("te", "deflate".to_owned())),
        Just(("upgrade", "h2c".to_owned())),
        Just(("expect", "100-continue".to_owned())),
    ];
    let line = prop_oneof![4 => ordinary, 2 => connection, 1 => hop, 1 => special];
    line.prop_map(|(name, value)| (name.to_owned(), value))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn requests_leave_without_anything_of_their_hop(lines in vec(a_line(), 0..12)) {
        for head in heads_of(&lines) {
            let request = prepared(request_with(head)).unwrap();
            let headers = request.headers();
            prop_assert_eq!(found(headers, &["host", "te", "connection"]), end_to_end(&lines));
            prop_assert_eq!(headers.get("host").unwrap(), "service");
            // Our own hop may say only that it understands trailers, and only if the client does.
            let wants_trailers = lines.iter().any(|(name, value)| {
                name == "te" && value.split(',').any(|token| token.trim() == "trailers")
            });
            prop_assert_eq!(headers.get("te").is_some(), wants_trailers);
            prop_assert_eq!(headers.get("connection").is_some(), wants_trailers);
            if wants_trailers {
                prop_assert_eq!(headers.get("te").unwrap(), "trailers");
                prop_assert_eq!(headers.get("connection").unwrap(), "te");
            }
        }
    }

    #[test]
    fn responses_leave_without_anything_of_their_hop(
        lines in vec(a_line(), 0..12),
        is_chunked in any::<bool>(),
        lengths in vec(prop_oneof![Just("5"), Just("5, 5")], 0..3),
    ) {
        for head in heads_of(&lines) {
            let mut response = Response::new(Body::empty());
            *response.headers_mut() = head;
            for length in &lengths {
                response.headers_mut().append(CONTENT_LENGTH, &length.parse().unwrap());
            }
            if is_chunked {
                let chunked = HeaderValue::from_static("Chunked");
                response.headers_mut().insert(TRANSFER_ENCODING, &chunked);
            }
            prepare_response(&mut response).unwrap();
            let headers = response.headers();
            let expected: Vec<_> = end_to_end(&lines);
            prop_assert_eq!(found(headers, &["content-length"]), expected);
            let keeps_length = !is_chunked && lengths == ["5"];
            prop_assert_eq!(headers.contains("content-length"), keeps_length);
        }
    }

    #[test]
    fn no_head_makes_us_panic(
        lines in vec(("[a-z-]{1,20}", "[ -~]{0,30}"), 0..12),
        names in vec(proptest::sample::select(&HOP_BY_HOP[..]), 0..4),
        value in "[ -~]{0,30}",
    ) {
        let mut lines: Lines = lines;
        lines.extend(names.into_iter().map(|name| (name.to_owned(), value.clone())));
        for head in heads_of(&lines) {
            if let Ok(request) = prepared(request_with(head.clone())) {
                prop_assert!(!request.headers().contains("upgrade"));
            }
            let mut response = Response::new(Body::empty());
            *response.headers_mut() = head;
            let _ = prepare_response(&mut response);
        }
    }
}

#[test]
fn the_framing_cannot_be_stripped_by_naming_it() {
    let lines = vec![
        ("connection".to_owned(), "host, content-length, transfer-encoding".to_owned()),
        ("content-length".to_owned(), "5".to_owned()),
    ];
    let headers = prepared(request(&lines)).unwrap().into_parts().0.headers;
    assert_eq!(headers.get("host").unwrap(), "service");
    assert_eq!(headers.get("content-length").unwrap(), "5");
    let lines = vec![
        ("connection".to_owned(), "transfer-encoding".to_owned()),
        ("transfer-encoding".to_owned(), "CHUNKED".to_owned()),
    ];
    let headers = prepared(request(&lines)).unwrap().into_parts().0.headers;
    assert_eq!(headers.get("transfer-encoding").unwrap(), "chunked");
}

#[test]
fn forwarded_for_grows_by_the_client_and_only_if_asked() {
    let mut lines = vec![];
    for (expected, earlier) in [
        ("192.0.2.7", None),
        ("10.0.0.1, 192.0.2.7", Some("10.0.0.1")),
        ("10.0.0.1, 10.0.0.2, 192.0.2.7", Some("10.0.0.2")),
    ] {
        lines.extend(earlier.map(|value| ("x-forwarded-for".to_owned(), value.to_owned())));
        for head in heads_of(&lines) {
            let mut request = request_with(head);
            prepare_request(&mut request, &client("192.0.2.7:1"), &forwarding(true)).unwrap();
            let values: Vec<_> = request.headers().get_all("x-forwarded-for").collect();
            assert_eq!(values, [expected]);
        }
    }
    let request = prepared(request(&lines)).unwrap();
    assert_eq!(request.headers().get_all("x-forwarded-for").count(), 2);
}

#[test]
fn versions_and_hosts_of_old_requests_are_completed() {
    let mut request = Request::new(Body::empty());
    *request.version_mut() = Version::HTTP_10;
    let request = prepared(request).unwrap();
    assert_eq!(request.version(), Version::HTTP_11);
    assert_eq!(request.headers().get("host").unwrap(), "default");
}

#[test]
fn tunnels_and_upgrades_are_refused_with_a_reason() {
    let mut connect = request(&vec![]);
    *connect.method_mut() = Method::CONNECT;
    assert_eq!(prepared(connect).unwrap_err().status, 501);
    for (protocol, is_refused) in
        [("websocket", true), ("h2c, websocket", true), ("h2c", false), ("H2C", false)]
    {
        let lines = vec![("upgrade".to_owned(), protocol.to_owned())];
        assert_eq!(prepared(request(&lines)).is_err(), is_refused, "{protocol}");
    }
}

#[test]
fn the_user_is_the_last_address_that_is_no_trusted_proxy() {
    let text = "trusted = ['10.0.0.0/8', '2001:db8::/32']";
    let node = evenkeel_settings::Node::parse(text, "test.toml").unwrap();
    let read = |table: &mut evenkeel_settings::Table<'_>| Networks::read(table.key("trusted"));
    let trusted_proxies = Some(node.read(read).unwrap());
    let forwarding = Forwarding { trusted_proxies, ..forwarding(true) };
    let user = |peer: &str, lines: &[&str]| {
        let name = || "x-forwarded-for".to_owned();
        let lines = lines.iter().map(|line| (name(), (*line).to_owned())).collect();
        let user = forwarding.user(&head_of(&lines), peer.parse().unwrap());
        user.map(|user| user.to_string())
    };
    let told = |text: &str| Some(text.to_owned());
    assert_eq!(user("10.0.0.1", &["203.0.113.9, 198.51.100.7"]), told("198.51.100.7"));
    assert_eq!(user("10.0.0.1", &["6.6.6.6, 198.51.100.7, 10.9.9.9"]), told("198.51.100.7"));
    assert_eq!(user("10.0.0.1", &["198.51.100.7", "10.9.9.9"]), told("198.51.100.7"));
    assert_eq!(user("2001:db8::1", &["[2a00::5]:443"]), told("2a00::5"));
    assert_eq!(user("10.0.0.1", &["198.51.100.7:1234"]), told("198.51.100.7"));
    assert_eq!(user("10.0.0.1", &["10.1.1.1"]), told("10.1.1.1"), "all of them are ours");
    assert_eq!(user("198.51.100.1", &["6.6.6.6"]), None, "nobody believes that peer");
    for unknown in [&[][..], &["unknown"], &["6.6.6.6, _hidden"], &[""]] {
        assert_eq!(user("10.0.0.1", unknown), None, "{unknown:?}");
    }
}
