//! The shop as its clients see it: a real process, real connections.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Shop, database_in, folder};
use evenkeel_shop::{CatalogueArguments, Place, measure};

const LEAN: &str = "Brownout-Optional: ?0";
const SECTION: &str = "id=\"recommendations\"";

#[test]
fn pages_are_full_or_lean_as_the_header_says() {
    let folder = folder("pages");
    let shop = Shop::start(&database_in(&folder), &["--items", "600"]);
    let items = (1..=20).map(|number| format!("/item/{number}"));
    let has_comments = |item: &String| shop.request(item, &[]).body.contains("id=\"comments\"");
    let item = items.into_iter().find(has_comments).unwrap();
    for (headers, served, has_recommendations, has_comments) in [
        (&[][..], "?1", true, true),
        (&["Brownout-Optional: ?1"], "?1", true, true),
        (
            &["brownout-optional: ?0;recommendations=?0;comments"], //
            "?0;recommendations=?0;comments",
            false,
            true,
        ),
        (
            &["Brownout-Optional: ?1;comments=?0"], //
            "?0;recommendations;comments=?0",
            true,
            false,
        ),
        (&[LEAN], "?0", false, false),
        (&["Brownout-Optional: no"], "?1", true, true),
        (&["Brownout-Optional: ?0, ?0"], "?1", true, true),
        (&[LEAN, LEAN], "?1", true, true),
    ] {
        let answer = shop.request(&item, headers);
        assert_eq!(answer.status(), "200", "{headers:?}");
        assert_eq!(answer.header("brownout-served"), Some(served), "{headers:?}");
        assert_eq!(answer.body.contains(SECTION), has_recommendations, "{headers:?}");
        assert_eq!(answer.body.contains("id=\"comments\""), has_comments, "{headers:?}");
        let is_full = has_recommendations && has_comments;
        assert_eq!(answer.header("cache-control"), (!is_full).then_some("no-store"), "{headers:?}");
        assert_eq!(answer.body.contains("resting while the shop is busy"), !is_full);
        assert!(answer.body.contains("Last bids"), "the mandatory part is always there");
        for validator in ["etag", "last-modified", "vary"] {
            assert_eq!(answer.header(validator), None);
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn other_pages_and_what_is_not_there() {
    let folder = folder("other-pages");
    let shop = Shop::start(&database_in(&folder), &["--items", "600", "--workers", "2"]);
    for (path, status, content) in [
        ("/", "200", "Most wanted"),
        ("/category/1", "200", "Clocks"),
        ("/item/600", "200", "Current bid"),
        ("/healthz", "200", "ok, 0 waiting"),
        ("/item/601", "404", "There is no item 601"),
        ("/item/0", "404", "There is no item 0"),
        ("/item/99999999999999999999999", "404", "There is no item"),
        ("/category/13", "404", "There is no category 13"),
        ("/nowhere", "404", "The address leads nowhere"),
        ("/item/abc", "400", "“abc” is no number"),
        ("/item/-1", "400", "“-1” is no number"),
        ("/item/+1", "400", "“+1” is no number"),
        ("/item/%3Cscript%3E", "400", "“&lt;script&gt;” is no number"),
        ("/item/%ff", "400", "UTF-8"),
    ] {
        let answer = shop.request(path, &[]);
        assert_eq!(answer.status(), status, "{path}: {}", answer.body);
        assert!(answer.body.contains(content), "{path}: {}", answer.body);
        assert_eq!(answer.header("brownout-served").is_some(), path == "/item/600", "{path}");
        assert!(!answer.body.contains("<script"), "{path}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn every_link_of_the_front_page_leads_somewhere() {
    let folder = folder("links");
    let shop = Shop::start(&database_in(&folder), &["--items", "600"]);
    let front = shop.request("/", &[]).body;
    let links: Vec<&str> =
        front.split("href=").skip(1).map(|rest| rest.split(['>', ' ']).next().unwrap()).collect();
    assert!(links.len() > 20, "{links:?}");
    for link in links {
        assert_eq!(shop.request(link, &[]).status(), "200", "{link}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_client_that_gives_up_leaves_its_work_in_the_queue() {
    const GIVING_UP: u32 = 10;
    let folder = folder("give-up");
    let shop = Shop::start(&database_in(&folder), &["--items", "600", "--speed", "0.001"]);
    let time = |shop: &Shop| {
        let start = Instant::now();
        assert_eq!(shop.request("/item/1", &[LEAN]).status(), "200");
        start.elapsed()
    };
    // The least of some is what the work itself takes, however busy the machine is.
    let alone = (0..3).map(|_| time(&shop)).min().unwrap();
    let clients: Vec<_> = (0..GIVING_UP).map(|_| shop.send("/item/1", &[LEAN])).collect();
    wait_for_queue(&shop);
    drop(clients);
    let behind_them = time(&shop);
    assert!(
        behind_them > alone * (GIVING_UP / 2),
        "alone {alone:?}, behind {GIVING_UP} who gave up {behind_them:?}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// Until nearly all of ten requests wait.
fn wait_for_queue(shop: &Shop) {
    for _ in 0..1_000 {
        let health = shop.request("/healthz", &[]).body;
        let waiting: u32 = health.split(' ').nth(1).unwrap().parse().unwrap();
        if waiting >= 7 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the requests never waited");
}

#[test]
fn sigterm_ends_the_shop_with_work_in_its_queue() {
    let folder = folder("sigterm");
    let mut shop = Shop::start(&database_in(&folder), &["--items", "600", "--speed", "0.002"]);
    let clients: Vec<_> = (0..200).map(|_| shop.send("/item/1", &[])).collect();
    let process = rustix::process::Pid::from_child(&shop.process);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    let status = shop.process.wait().unwrap();
    assert!(status.success(), "{status}");
    drop(clients);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn shops_that_start_together_share_one_catalogue() {
    let folder = folder("together");
    let database = database_in(&folder);
    let shops: Vec<Shop> = std::thread::scope(|scope| {
        let start = || Shop::start(&database, &["--items", "3000"]);
        let starting: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let pages: Vec<_> = shops.iter().map(|shop| shop.request("/item/2999", &[]).body).collect();
    assert!(pages.iter().all(|page| *page == pages[0] && page.contains(SECTION)));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn optional_content_costs_a_multiple_of_the_mandatory() {
    let folder = folder("cost");
    let database = Place::File(folder.join("shop.db"));
    let catalogue = CatalogueArguments { database, items: Some(6_000), seed: None };
    let costs = measure(&catalogue, 600).unwrap();
    // In a build without optimisation the mandatory part, most of it HTML, is dearer than in a
    // release, where the ratio is about 10.
    assert!((3.0..25.0).contains(&costs.ratio()), "{costs}");
    assert!(costs.comments.mean_ms < costs.recommendations.mean_ms / 3.0, "{costs}");
    std::fs::remove_dir_all(folder).unwrap();
}
