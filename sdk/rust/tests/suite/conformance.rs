//! The table of what header values decide, which the implementations in all languages share.

use std::convert::Infallible;
use std::fs;
use std::future::Ready;
use std::task::{Context, Poll};

use axum::http::{HeaderValue, Request, Response};
use evenkeel_brownout::{Brownout, BrownoutLayer, Dimmer, Inbound, OPTIONAL, Settings};
use serde_json::Value;
use tower_layer::Layer;
use tower_service::Service;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/headers.json");

#[tokio::test]
async fn header_values_decide_what_the_table_says() {
    let table: Value = serde_json::from_str(&fs::read_to_string(TABLE).unwrap()).unwrap();
    let cases = table["cases"].as_array().expect("cases");
    assert!(cases.len() > 50, "{}", cases.len());
    let mut checked = 0;
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        // What a header cannot hold never reaches a service, and without a line this layer decides.
        let Some(lines) = lines(case).filter(|lines| !lines.is_empty()) else { continue };
        check(name, case, &lines).await;
        checked += 1;
    }
    assert!(checked > 50, "{checked}");
}

async fn check(name: &str, case: &Value, lines: &[HeaderValue]) {
    let brownout = brownout_of(lines).await;
    for (part, expected) in case["parts"].as_object().expect("parts") {
        assert_eq!(Some(brownout.optional(part)), expected.as_bool(), "{name}: {part}");
    }
    let others = brownout.optional("a-part-that-no-case-names");
    assert_eq!(Some(others), case["others"].as_bool(), "{name}: other parts");
    let passes_on = brownout.outgoing_header().map(|(_, value)| value.as_bytes().to_vec());
    assert_eq!(passes_on, line(&case["passes_on"]).map(String::into_bytes), "{name}: passes on");
}

/// What a request with these header lines may have under a layer that obeys and would itself leave
/// out everything.
async fn brownout_of(lines: &[HeaderValue]) -> Brownout {
    let layer = BrownoutLayer::new(Settings::new().inbound(Inbound::Obey)).unwrap();
    layer.handle().hold(Some(Dimmer::LEAN));
    let mut request = Request::new(());
    for line in lines {
        request.headers_mut().append(OPTIONAL, line.clone());
    }
    layer.layer(Asks).call(request).await.unwrap().into_body()
}

struct Asks;

impl Service<Request<()>> for Asks {
    type Response = Response<Brownout>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Brownout>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::new(Brownout::of(request.extensions()))))
    }
}

/// The lines of a case; `None` if no header can hold one of them.
fn lines(case: &Value) -> Option<Vec<HeaderValue>> {
    let lines = case["lines"].as_array().expect("lines").iter();
    lines.map(|text| HeaderValue::from_bytes(line(text)?.as_bytes()).ok()).collect()
}

/// A line as the table writes it: text, or text with something repeated in it.
fn line(value: &Value) -> Option<String> {
    let Some(repeated) = value.as_object() else { return value.as_str().map(str::to_owned) };
    let text = |key: &str| repeated[key].as_str().expect("text");
    let times = usize::try_from(repeated["times"].as_u64().expect("a number")).unwrap();
    Some([text("begin"), &text("fill").repeat(times), text("end")].concat())
}
