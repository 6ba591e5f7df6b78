//! What is asked, obeyed and said, through a real axum server.

use std::net::SocketAddr;

use crate::loopback::{Answer, ask, serve};
use axum::Router;
use axum::http::header::{CACHE_CONTROL, ETAG, LAST_MODIFIED};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{AppendHeaders, IntoResponse};
use axum::routing::get;
use evenkeel_brownout::{
    Brownout, BrownoutHandle, BrownoutLayer, Dimmer, Inbound, Session, Settings,
};

const MODIFIED: &str = "Tue, 01 Jan 2030 00:00:00 GMT";

/// An item with two optional parts, as a cacheable page.
async fn item(brownout: Brownout) -> impl IntoResponse {
    let mut page = String::from("item");
    for part in ["recommendations", "comments"] {
        if brownout.optional(part) {
            page.push(' ');
            page.push_str(part);
        }
    }
    let headers = [(ETAG, "\"1\""), (LAST_MODIFIED, MODIFIED), (CACHE_CONTROL, "max-age=60")];
    (AppendHeaders(headers), page)
}

/// What the application sees of the header itself.
async fn raw(headers: HeaderMap) -> String {
    format!("{:?}", headers.get("brownout-optional"))
}

fn app() -> Router {
    Router::new()
        .route("/item", get(item))
        .route("/raw", get(raw))
        .route("/health", get(async || "well"))
        .route(
            "/own",
            get(async |_: Brownout| ([("brownout-served", "?0")], [(ETAG, "\"1\"")], "")),
        )
        .route(
            "/at-hand",
            get(async |brownout: Brownout| {
                let _ = brownout.optional("recommendations");
                ([("brownout-served", "?1")], [(ETAG, "\"1\"")], "")
            }),
        )
        .route(
            "/unchanged",
            get(async |brownout: Brownout| {
                let _ = brownout.optional("recommendations");
                (StatusCode::NOT_MODIFIED, [(ETAG, "\"1\"")])
            }),
        )
}

fn settings() -> Settings {
    Settings::new().parts(["recommendations", "comments"])
}

async fn shop(settings: Settings) -> (SocketAddr, BrownoutHandle) {
    let layer = BrownoutLayer::new(settings).unwrap();
    let handle = layer.handle();
    (serve(app().layer(layer)).await, handle)
}

async fn item_of(address: SocketAddr, headers: &[(&str, &str)]) -> Answer {
    ask(address, "/item", headers).await
}

#[tokio::test]
async fn a_full_page_is_full_and_may_be_cached() {
    let (address, _) = shop(settings()).await;
    let page = item_of(address, &[]).await;
    assert_eq!((page.status, page.body.as_str()), (200, "item recommendations comments"));
    assert_eq!(page.header("brownout-served").as_deref(), Some("?1"));
    assert_eq!(page.header("brownout-dimmer").as_deref(), Some("1.0"));
    assert_eq!(page.header("etag").as_deref(), Some("\"1\""));
    assert_eq!(page.header("last-modified").as_deref(), Some(MODIFIED));
    assert_eq!(page.header("cache-control").as_deref(), Some("max-age=60"));
}

#[tokio::test]
async fn a_lean_page_is_a_complete_answer_that_no_cache_keeps() {
    let (address, handle) = shop(settings()).await;
    handle.hold(Some(Dimmer::LEAN));
    let page = item_of(address, &[]).await;
    assert_eq!((page.status, page.body.as_str()), (200, "item"));
    assert_eq!(page.header("brownout-served").as_deref(), Some("?0"));
    assert_eq!(page.header("brownout-dimmer").as_deref(), Some("0.0"));
    assert_eq!(page.header("cache-control").as_deref(), Some("no-store"));
    for gone in ["etag", "last-modified", "vary"] {
        assert_eq!(page.header(gone), None, "{gone}");
    }
}

#[tokio::test]
async fn parts_go_in_their_order_the_most_important_last() {
    let (address, handle) = shop(settings()).await;
    handle.hold(Some(Dimmer::clamped(0.5)));
    for _ in 0..20 {
        let page = item_of(address, &[]).await;
        assert_eq!(page.body, "item recommendations", "half of two parts is the first one");
        assert_eq!(page.header("brownout-served").as_deref(), Some("?0;recommendations"));
        assert_eq!(page.header("brownout-dimmer").as_deref(), Some("0.5"));
        assert_eq!(page.header("cache-control").as_deref(), Some("no-store"));
    }
}

#[tokio::test]
async fn a_page_that_asks_for_nothing_says_nothing_of_it_and_stays_as_it_is() {
    let (address, handle) = shop(settings()).await;
    handle.hold(Some(Dimmer::LEAN));
    let page = ask(address, "/health", &[]).await;
    assert_eq!(page.header("brownout-served"), None);
    assert_eq!(page.header("cache-control"), None);
    assert_eq!(page.header("brownout-dimmer").as_deref(), Some("0.0"));
}

#[tokio::test]
async fn what_the_application_says_it_served_counts_more_than_what_it_asked() {
    let (address, handle) = shop(settings()).await;
    let lean = ask(address, "/own", &[]).await;
    assert_eq!(lean.header("brownout-served").as_deref(), Some("?0"));
    assert_eq!(lean.header("cache-control").as_deref(), Some("no-store"));
    assert_eq!(lean.header("etag"), None);
    handle.hold(Some(Dimmer::LEAN));
    let at_hand = ask(address, "/at-hand", &[]).await;
    assert_eq!(at_hand.header("brownout-served").as_deref(), Some("?1"));
    assert_eq!(at_hand.header("cache-control"), None);
    assert_eq!(at_hand.header("etag").as_deref(), Some("\"1\""));
}

#[tokio::test]
async fn a_page_found_unchanged_keeps_the_validator_of_the_full_page() {
    let (address, handle) = shop(settings()).await;
    handle.hold(Some(Dimmer::LEAN));
    let unchanged = ask(address, "/unchanged", &[]).await;
    assert_eq!(unchanged.status, 304);
    assert_eq!(unchanged.header("etag").as_deref(), Some("\"1\""));
    assert_eq!(unchanged.header("cache-control"), None);
    assert_eq!(unchanged.header("brownout-served"), None);
}

#[tokio::test]
async fn a_stranger_decides_nothing() {
    let (address, handle) = shop(settings()).await;
    let page = item_of(address, &[("Brownout-Optional", "?0")]).await;
    assert_eq!(page.body, "item recommendations comments");
    handle.hold(Some(Dimmer::LEAN));
    let page = item_of(address, &[("Brownout-Optional", "?1")]).await;
    assert_eq!(page.body, "item");
    let twice = [("brownout-optional", "?1"), ("BROWNOUT-OPTIONAL", "?0")];
    assert_eq!(ask(address, "/raw", &twice).await.body, "None", "stripped, both of them");
}

#[tokio::test]
async fn inside_the_call_tree_the_edge_is_obeyed() {
    let (address, handle) = shop(settings().inbound(Inbound::Obey)).await;
    for (decision, body, served) in [
        ("?0", "item", "?0"),
        ("?1", "item recommendations comments", "?1"),
        ("?0;comments", "item comments", "?0;comments"),
        ("?0;recommendations=?0;comments", "item comments", "?0;comments"),
        ("?1;comments=?0", "item recommendations", "?0;recommendations"),
    ] {
        for here in [Dimmer::FULL, Dimmer::LEAN] {
            handle.hold(Some(here));
            let page = item_of(address, &[("brownout-optional", decision)]).await;
            assert_eq!(page.body, body, "{decision}");
            assert_eq!(page.header("brownout-served").as_deref(), Some(served));
        }
    }
    handle.hold(Some(Dimmer::LEAN));
    assert_eq!(item_of(address, &[]).await.body, "item", "undecided: this layer decides");
}

#[tokio::test]
async fn a_decision_that_cannot_be_read_means_full_content() {
    let (address, handle) = shop(settings().inbound(Inbound::Obey)).await;
    handle.hold(Some(Dimmer::LEAN));
    for value in ["0", "?0, ?0", "?0;x=", "false", "?0;Comments"] {
        let page = item_of(address, &[("brownout-optional", value)]).await;
        assert_eq!(page.body, "item recommendations comments", "{value}");
    }
    let twice = [("brownout-optional", "?0"), ("brownout-optional", "?0")];
    assert_eq!(item_of(address, &twice).await.body, "item recommendations comments");
}

#[tokio::test]
async fn one_decision_goes_through_the_whole_call_tree() {
    let (inner, _) = shop(settings().inbound(Inbound::Obey)).await;
    let layer = BrownoutLayer::new(settings()).unwrap();
    let handle = layer.handle();
    let call = async move |brownout: Brownout| {
        let (name, value) = brownout.outgoing_header().expect("decided by the layer");
        ask(inner, "/item", &[(name.as_str(), value.to_str().unwrap())]).await.body
    };
    let edge = serve(Router::new().route("/item", get(call)).layer(layer)).await;
    for (dimmer, body) in
        [(1.0, "item recommendations comments"), (0.5, "item recommendations"), (0.0, "item")]
    {
        handle.hold(Some(Dimmer::clamped(dimmer)));
        assert_eq!(ask(edge, "/item", &[]).await.body, body);
    }
}

#[tokio::test]
async fn a_session_sees_one_page_and_half_of_the_sessions_see_the_lean_one() {
    let one_part = Settings::new();
    let by_user = one_part.session(|request| request.headers.get("x-user").map(Session::named));
    let (address, handle) = shop(by_user).await;
    handle.hold(Some(Dimmer::clamped(0.5)));
    let mut full = 0;
    for user in 0..100 {
        let user = format!("user-{user}");
        let first = item_of(address, &[("x-user", &user)]).await.body;
        for _ in 0..3 {
            assert_eq!(item_of(address, &[("x-user", &user)]).await.body, first);
        }
        full += usize::from(first != "item");
    }
    // Binomial(100, 0.5): standard deviation 5; four of them.
    assert!((30..=70).contains(&full), "{full}");
}

#[tokio::test]
async fn without_the_layer_everything_is_served() {
    let address = serve(app()).await;
    let page = item_of(address, &[("brownout-optional", "?0")]).await;
    assert_eq!(page.body, "item recommendations comments");
    assert_eq!(page.header("brownout-served"), None);
    assert_eq!(Brownout::default().outgoing_header(), None);
}

#[tokio::test]
async fn letting_go_gives_the_dimmer_back_to_the_controller() {
    let (address, handle) = shop(settings()).await;
    handle.hold(Some(Dimmer::LEAN));
    assert!(handle.state().is_held);
    assert_eq!(item_of(address, &[]).await.body, "item");
    handle.release();
    assert!(!handle.state().is_held);
    assert_eq!(handle.dimmer(), Dimmer::FULL);
    assert_eq!(item_of(address, &[]).await.body, "item recommendations comments");
}
