//! Pages escape what they show and say what they leave out.

use super::*;

fn hostile_item() -> Item {
    let hostile = "</style><script>alert('\"1\"')</script>&amp;";
    Item {
        number: 7,
        title: hostile.to_owned(),
        description: hostile.to_owned(),
        category: 3,
        category_name: hostile.to_owned(),
        opening_cents: 100,
        closes_at: 0,
        seller: hostile.to_owned(),
        seller_city: hostile.to_owned(),
        seller_since_year: 2010,
        bids: vec![Bid { amount_cents: 150, placed_at: 0, bidder: hostile.to_owned() }],
    }
}

fn full() -> Optional {
    let item = hostile_item();
    let listing = Listing {
        number: 8,
        category: 99,
        title: item.title.clone(),
        price_cents: 12_345,
        bids: 2,
        closes_at: 0,
    };
    let comment = Comment { author: item.title.clone(), written_at: 0, text: item.title };
    Optional {
        recommendations: Some(vec![Recommendation { listing, bidders: 1 }]),
        comments: Some(vec![comment]),
    }
}

#[test]
fn no_text_becomes_markup() {
    let item = hostile_item();
    let category_of_evil = Category { number: 1, name: item.title.clone(), items: 1 };
    let listing = full().recommendations.unwrap().remove(0).listing;
    for html in [
        super::item(&item, &full()),
        front(std::slice::from_ref(&category_of_evil), std::slice::from_ref(&listing), &[]),
        category(&category_of_evil, &[listing]),
        message(&item.title, &item.title),
    ] {
        assert!(!html.contains("<script"), "{html}");
        assert!(html.contains("&lt;/style&gt;&lt;script&gt;alert(&#39;&quot;1&quot;&#39;)"));
        assert!(html.contains("&amp;amp;"));
        assert_eq!(html.matches("</style>").count(), 1);
    }
}

#[test]
fn a_lean_page_has_no_optional_section_and_says_so() {
    let item = hostile_item();
    let full_page = super::item(&item, &full());
    assert!(full_page.contains("id=\"recommendations\"") && full_page.contains("id=\"comments\""));
    assert!(!full_page.contains("resting while"));
    let lean_page = super::item(&item, &Optional::default());
    assert!(!lean_page.contains("recommendations\"") && !lean_page.contains("id=\"comments\""));
    assert!(lean_page.contains("Recommendations are resting while the shop is busy."));
    let only_comments = Optional { recommendations: None, ..full() };
    let page = super::item(&item, &only_comments);
    assert!(page.contains("id=\"comments\"") && page.contains("Recommendations are resting"));
}

#[test]
fn the_course_of_the_price_goes_from_the_first_bid_to_the_last() {
    let bid = |amount_cents, placed_at| Bid { amount_cents, placed_at, bidder: String::new() };
    let bids = vec![bid(300, 1_100), bid(200, 1_050), bid(100, 1_000)];
    let mut html = String::new();
    course(&mut html, &Item { bids, ..hostile_item() });
    // Right by half the width and up by half the height, 56, at each bid.
    assert!(html.contains("d=\"M0 64H0V60H150V32H300V4H300V64\""), "{html}");
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let html = item(&hostile_item(), &full());
    for mark in ["http:", "https:", "url(", "src=", "<link", "@import"] {
        assert!(!html.contains(mark), "{mark}");
    }
}

#[test]
fn counts_are_in_singular_and_plural() {
    assert_eq!(counted(1, "bid"), "1 bid");
    assert_eq!(counted(0, "bid"), "0 bids");
    assert_eq!(counted(3, "bidder in common"), "3 bidders in common");
}
