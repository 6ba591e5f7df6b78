//! The pages as a person sees them: HTML in one piece, with style and pictures inside.
//!
//! Whatever comes from the database or the request goes through [`text`], which escapes it. A page
//! says nothing that depends on the time of day or on who asks: the same content, the same bytes.

mod format;
mod picture;

use std::fmt::Write as _;

use crate::store::{Bid, Category, Comment, Item, Listing, Recommendation};
use format::{date, initials, money, text};
use picture::picture;

const STYLE: &str = include_str!("page/style.css");

/// How many bids are listed with their bidders.
const LAST_BIDS: usize = 5;

/// What a page of an item shows besides what it must; `None` is left out for lack of time.
#[derive(Debug, Default)]
pub(crate) struct Optional {
    pub(crate) recommendations: Option<Vec<Recommendation>>,
    pub(crate) comments: Option<Vec<Comment>>,
}

/// An item's page, full or lean.
pub(crate) fn item(item: &Item, optional: &Optional) -> String {
    page(&item.title, |html| {
        push(html, format_args!("<article class=item>{}", picture(item.number, item.category)));
        facts(html, item);
        bids(html, item);
        html.push_str("</article>");
        if let Some(recommendations) = &optional.recommendations {
            recommended(html, recommendations);
        }
        if let Some(comments) = &optional.comments {
            commented(html, comments);
        }
        resting(html, optional);
    })
}

/// The front page.
pub(crate) fn front(categories: &[Category], wanted: &[Listing], closing: &[Listing]) -> String {
    page("Quayside Auctions", |html| {
        let items = categories.iter().map(|category| category.items).sum();
        push(
            html,
            format_args!(
                "<div class=hero><h1>Good old things, looking for the next hand.</h1>\
                 <p>{} items from attics, workshops and harbours. Every one with a history, none \
                 with a reserve.</p></div>",
                format::grouped(items)
            ),
        );
        chips(html, categories);
        listings(html, "Most wanted", wanted);
        listings(html, "Closing first", closing);
    })
}

/// A category's items.
pub(crate) fn category(category: &Category, items: &[Listing]) -> String {
    page(&category.name, |html| {
        push(
            html,
            format_args!(
                "<div class=hero><p class=crumb><a href=/>All categories</a></p><h1>{}</h1>\
                 <p>{} items, those that close first at the top.</p></div>",
                text(&category.name),
                format::grouped(category.items)
            ),
        );
        listings(html, "Closing first", items);
    })
}

/// A page that says why there is no other.
pub(crate) fn message(title: &str, explanation: &str) -> String {
    page(title, |html| {
        push(
            html,
            format_args!(
                "<div class=message><h1>{}</h1><p>{}</p>\
                 <a class=button href=/>To the front page</a></div>",
                text(title),
                text(explanation)
            ),
        );
    })
}

fn page(title: &str, content: impl FnOnce(&mut String)) -> String {
    // A full page has about 16 kB, of which the style is a third.
    let mut html = String::with_capacity(20 << 10);
    push(
        &mut html,
        format_args!(
            "<!doctype html><html lang=en><head><meta charset=utf-8>\
             <meta name=viewport content=\"width=device-width, initial-scale=1\">\
             <title>{}</title><style>{STYLE}</style></head><body><header>\
             <a class=brand href=/>{LOGO}Quayside Auctions</a>\
             <span class=soft>No reserve, no hurry</span></header><main>",
            text(title)
        ),
    );
    content(&mut html);
    html.push_str(
        "</main><footer><p class=soft>Quayside Auctions is made up: so are its items, people and \
         prices. It is an example of a service that works with less when it is busy.</p></footer>\
         </body></html>\n",
    );
    html
}

const LOGO: &str = "<svg viewBox=\"0 0 32 32\" fill=none stroke=currentColor stroke-width=2.4 \
    stroke-linecap=round aria-hidden=true><circle cx=16 cy=7 r=3.5 /><path d=\"M16 10.5v17M10 \
    15h12M5 19c0 6 5 9 11 9s11-3 11-9\"/></svg>";

fn facts(html: &mut String, item: &Item) {
    push(
        html,
        format_args!(
            "<div class=facts><p class=crumb><a href=/category/{}>{}</a></p><h1>{}</h1>\
             <div class=offer><small>Current bid</small><small class=right>Closes</small>\
             <span class=price>{}</span><b class=right>{}</b>\
             <small>{}, opened at {}</small>",
            item.category,
            text(&item.category_name),
            text(&item.title),
            money(item.price_cents()),
            date(item.closes_at),
            counted(item.bids.len() as i64, "bid"),
            money(item.opening_cents),
        ),
    );
    course(html, item);
    push(html, format_args!("</div><p>{}</p>{}</div>", text(&item.description), seller(item)));
}

fn bids(html: &mut String, item: &Item) {
    html.push_str("<div class=bids><h2>Last bids</h2><table>");
    for bid in item.bids.iter().take(LAST_BIDS) {
        bid_row(html, bid);
    }
    html.push_str("</table></div>");
}

fn seller(item: &Item) -> String {
    format!(
        "<div class=seller>{}<div><b>{}</b><br><small>{}, selling here since {}</small>\
         </div></div>",
        face(&item.seller),
        text(&item.seller),
        text(&item.seller_city),
        item.seller_since_year
    )
}

/// How the price rose from the first bid to the last, as a curve of steps.
fn course(html: &mut String, item: &Item) {
    let (Some(last), Some(first)) = (item.bids.first(), item.bids.last()) else { return };
    let duration = (last.placed_at - first.placed_at).max(1);
    let rise = (last.amount_cents - item.opening_cents).max(1);
    html.push_str(
        "<svg class=course viewBox=\"0 0 300 64\" preserveAspectRatio=none aria-hidden=true>\
         <path d=\"M0 64",
    );
    for bid in item.bids.iter().rev() {
        let x = 300 * (bid.placed_at - first.placed_at) / duration;
        let y = 60 - 56 * (bid.amount_cents - item.opening_cents) / rise;
        push(html, format_args!("H{x}V{y}"));
    }
    html.push_str("H300V64\"/></svg>");
}

fn bid_row(html: &mut String, bid: &Bid) {
    push(
        html,
        format_args!(
            "<tr><td>{}<td>{}<td>{}",
            text(&bid.bidder),
            date(bid.placed_at),
            money(bid.amount_cents)
        ),
    );
}

fn recommended(html: &mut String, recommendations: &[Recommendation]) {
    html.push_str("<section id=\"recommendations\"><h2>People who bid on this also bid on</h2>");
    if recommendations.is_empty() {
        html.push_str("<p class=soft>Nothing else so far.</p></section>");
        return;
    }
    html.push_str("<div class=\"grid three\">");
    for Recommendation { listing, bidders } in recommendations {
        card(html, listing, &counted(*bidders, "bidder in common"));
    }
    html.push_str("</div></section>");
}

fn commented(html: &mut String, comments: &[Comment]) {
    if comments.is_empty() {
        return;
    }
    html.push_str("<section id=\"comments\"><h2>Comments</h2><div class=comments>");
    for comment in comments {
        push(
            html,
            format_args!(
                "<div class=comment>{}<div><b>{}</b> <small>{}</small><p>{}</p></div></div>",
                face(&comment.author),
                text(&comment.author),
                date(comment.written_at),
                text(&comment.text)
            ),
        );
    }
    html.push_str("</div></section>");
}

fn resting(html: &mut String, optional: &Optional) {
    let sentence = match (&optional.recommendations, &optional.comments) {
        (Some(_), Some(_)) => return,
        (None, Some(_)) => "Recommendations are resting while the shop is busy.",
        (Some(_), None) => "Comments are resting while the shop is busy.",
        (None, None) => "Recommendations are resting while the shop is busy. So are comments.",
    };
    push(html, format_args!("<p class=resting>{sentence}</p>"));
}

fn chips(html: &mut String, categories: &[Category]) {
    html.push_str("<section><h2>Categories</h2><div class=chips>");
    for category in categories {
        push(
            html,
            format_args!(
                "<a class=chip href=/category/{}>{}<span>{}<small>{}</small></span></a>",
                category.number,
                picture(category.number * 5, category.number),
                text(&category.name),
                format::grouped(category.items)
            ),
        );
    }
    html.push_str("</div></section>");
}

fn listings(html: &mut String, title: &str, listings: &[Listing]) {
    push(html, format_args!("<section><h2>{title}</h2><div class=grid>"));
    for listing in listings {
        card(html, listing, &format!("closes {}", date(listing.closes_at)));
    }
    html.push_str("</div></section>");
}

fn card(html: &mut String, listing: &Listing, remark: &str) {
    push(
        html,
        format_args!(
            "<a class=card href=/item/{}>{}<div><b>{}</b><small>{remark}</small>\
             <div class=row><span class=price>{}</span><small>{}</small></div></div></a>",
            listing.number,
            picture(listing.number, listing.category),
            text(&listing.title),
            money(listing.price_cents),
            counted(listing.bids, "bid")
        ),
    );
}

fn face(name: &str) -> String {
    let hue = name.bytes().fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 360);
    format!("<span class=face style=--h:{hue} aria-hidden=true>{}</span>", text(&initials(name)))
}

fn counted(count: i64, what: &str) -> String {
    let (first, rest) = what.split_once(' ').unwrap_or((what, ""));
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {first}{plural} {rest}").trim_end().to_owned()
}

fn push(html: &mut String, content: std::fmt::Arguments<'_>) {
    html.write_fmt(content).expect("a String takes everything");
}

#[cfg(test)]
mod tests;
