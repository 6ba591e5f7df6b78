//! A catalogue that looks like an auction house's and is the same for the same seed.
//!
//! What matters to the shop's cost: bids per item are heavy-tailed (1 to 60, about 12 on average,
//! P(at least n) = 4 / (n + 3), as popularity in real auctions has no typical size), and people
//! bid mostly on one kind of thing, so that "people who bid on this also bid on" finds something to
//! recommend. An item that many bid on costs a multiple in recommendations.
//!
//! The day of the catalogue stands still ([`TODAY`]): no page depends on a clock.

mod random;
mod words;

use anyhow::Result;

use crate::arguments::CatalogueArguments;
use crate::store::sink::{Cell, Sink};
use crate::store::sql::{FORMAT, Table};
use random::Random;
use words::{Thing, WORDS};

/// The catalogue's present: 5 October 2026, 12:00 UTC, in seconds since 1970.
pub(crate) const TODAY: i64 = 1_791_201_600;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

const CATEGORIES: usize = 12;
/// Things of a kind: six of them in each category.
const KINDS_PER_CATEGORY: u32 = 6;
const KINDS: u32 = CATEGORIES as u32 * KINDS_PER_CATEGORY;

/// With twelve bids per item everybody bids forty times on average, which sets the cost of the
/// recommendations: `evenkeel-shop measure` shows it.
const PEOPLE_PER_100_ITEMS: u32 = 29;
const BIDS_PER_ITEM_MAX: u32 = 60;
/// Of eight bids, five are by people who like this kind of thing, two by people who like the
/// category, one by anybody.
const BY_KIND_OF_8: u32 = 5;
const BY_CATEGORY_OF_8: u32 = 2;

/// What to generate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Catalogue {
    pub(crate) items: u32,
    pub(crate) seed: u32,
}

impl Catalogue {
    pub(crate) fn of(arguments: &CatalogueArguments) -> Self {
        Self { items: arguments.items_or_default(), seed: arguments.seed_or_default() }
    }

    /// Writes every row, table after table for small ones, item after item for the others.
    pub(crate) fn write(self, sink: &mut dyn Sink) -> Result<()> {
        self.write_people(sink)?;
        let mut items_by_category = [0_i64; CATEGORIES];
        for number in 1..=self.items {
            let category = self.write_item(number, sink)?;
            items_by_category[category] += 1;
        }
        for (category, items) in items_by_category.into_iter().enumerate() {
            let name = Cell::Text(&WORDS.categories[category].name);
            let cells = [Cell::Integer(number_of(category)), name, Cell::Integer(items)];
            sink.insert(&Table::CATEGORY, &cells)?;
        }
        let facts = [FORMAT, i64::from(self.items), i64::from(self.seed)];
        sink.insert(&Table::CATALOGUE, &facts.map(Cell::Integer))
    }

    /// At least two for each kind of thing.
    fn people(self) -> u32 {
        (self.items * PEOPLE_PER_100_ITEMS / 100).max(2 * KINDS)
    }

    fn write_people(self, sink: &mut dyn Sink) -> Result<()> {
        for number in 1..=self.people() {
            let mut random = Random::of(self.seed, 0, number);
            let since_year = 2008 + i64::from(random.below(18));
            let cells = [
                Cell::Integer(number.into()),
                Cell::Text(&words::person(&mut random)),
                Cell::Text(random.one_of(&WORDS.cities).as_str()),
                Cell::Integer(since_year),
            ];
            sink.insert(&Table::PERSON, &cells)?;
        }
        Ok(())
    }

    /// Returns the category's place in the list.
    fn write_item(self, number: u32, sink: &mut dyn Sink) -> Result<usize> {
        let mut random = Random::of(self.seed, 1, number);
        let kind = random.below(KINDS);
        let category = (kind / KINDS_PER_CATEGORY) as usize;
        let kind_in_category = kind % KINDS_PER_CATEGORY;
        let thing = WORDS.categories[category].thing(kind_in_category as usize, &mut random);
        let auction = self.auction(kind, &thing, &mut random);
        auction.write_bids(number, sink)?;
        self.write_comments(number, &mut random, sink)?;
        let cells = [
            Cell::Integer(number.into()),
            Cell::Integer(number_of(category)),
            Cell::Integer(auction.seller.into()),
            Cell::Text(&thing.title),
            Cell::Text(&thing.description),
            Cell::Integer(auction.opening_cents),
            Cell::Integer(auction.bids.last().map_or(0, |bid| bid.amount_cents)),
            Cell::Integer(i64::try_from(auction.bids.len())?),
            Cell::Integer(auction.closes_at),
        ];
        sink.insert(&Table::ITEM, &cells)?;
        Ok(category)
    }

    fn auction(self, kind: u32, thing: &Thing, random: &mut Random) -> Auction {
        let opened_at = TODAY - i64::from(random.between(2, 9)) * DAY - random.seconds(DAY);
        let closes_at = TODAY + HOUR + random.seconds(9 * DAY) / 60 * 60;
        let value_cents = i64::from(thing.value) * 100;
        let opening = value_cents * i64::from(random.between(15, 60)) / 100;
        let opening_cents = opening / step_cents(opening) * step_cents(opening);
        let mut bids = Vec::new();
        let mut amount_cents = opening_cents;
        let count = bids_of(random);
        let mut placed_at = opened_at;
        for number in 0..count {
            amount_cents += step_cents(amount_cents) * i64::from(random.below(2 + number % 2));
            amount_cents += if number == 0 { 0 } else { step_cents(amount_cents) };
            let left = (TODAY - placed_at) / i64::from(count - number);
            placed_at += 1 + random.seconds(left.max(2) - 1);
            let person = self.bidder(kind, random);
            bids.push(Offer { amount_cents, person, placed_at });
        }
        let seller = 1 + random.below(self.people());
        Auction { opening_cents, closes_at, seller, bids }
    }

    /// People who like a kind of thing are those whose number has its remainder. The first of
    /// them bid the most, as in any hobby.
    fn bidder(self, kind: u32, random: &mut Random) -> u32 {
        let chance = random.below(8);
        let liked = if chance < BY_KIND_OF_8 {
            kind
        } else if chance < BY_KIND_OF_8 + BY_CATEGORY_OF_8 {
            kind / KINDS_PER_CATEGORY * KINDS_PER_CATEGORY + random.below(KINDS_PER_CATEGORY)
        } else {
            random.below(KINDS)
        };
        let people_per_kind = self.people() / KINDS;
        let rank = random.below(people_per_kind).min(random.below(people_per_kind));
        1 + liked + KINDS * rank
    }

    fn write_comments(self, number: u32, random: &mut Random, sink: &mut dyn Sink) -> Result<()> {
        let mut written_at = TODAY - 2 * DAY;
        for _ in 0..random.below(6) {
            written_at += 1 + random.seconds(8 * HOUR);
            let cells = [
                Cell::Integer(number.into()),
                Cell::Integer(written_at),
                Cell::Integer((1 + random.below(self.people())).into()),
                Cell::Text(&words::comment(random)),
            ];
            sink.insert(&Table::COMMENT, &cells)?;
        }
        Ok(())
    }
}

struct Auction {
    opening_cents: i64,
    closes_at: i64,
    seller: u32,
    /// At least one, in ascending order of amount and time.
    bids: Vec<Offer>,
}

struct Offer {
    amount_cents: i64,
    person: u32,
    placed_at: i64,
}

impl Auction {
    fn write_bids(&self, item: u32, sink: &mut dyn Sink) -> Result<()> {
        for bid in &self.bids {
            let cells = [item.into(), bid.amount_cents, bid.person.into(), bid.placed_at];
            sink.insert(&Table::BID, &cells.map(Cell::Integer))?;
        }
        Ok(())
    }
}

/// Categories are numbered from 1.
fn number_of(category: usize) -> i64 {
    category as i64 + 1
}

/// A number of bids N with P(N >= n) = 4 / (n + 3), cut at 60: a Pareto tail of exponent 1, drawn
/// by inversion in whole numbers, the same on every machine.
fn bids_of(random: &mut Random) -> u32 {
    const SCALE: u64 = 4;
    let uniform = u64::from(random.bits()) + 1;
    let drawn = (SCALE << 32) / uniform - SCALE + 1;
    u32::try_from(drawn).unwrap_or(u32::MAX).min(BIDS_PER_ITEM_MAX)
}

/// By how much a bid must exceed the last: about 2 to 5 %, in amounts that people use.
fn step_cents(amount_cents: i64) -> i64 {
    match amount_cents {
        ..2_500 => 50,
        2_500..10_000 => 200,
        10_000..25_000 => 500,
        25_000..100_000 => 1_000,
        100_000..250_000 => 5_000,
        _ => 10_000,
    }
}

#[cfg(test)]
mod tests;
