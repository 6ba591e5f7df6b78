//! Every statement of the shop, in the SQL that SQLite and PostgreSQL share.
//!
//! Times are seconds since 1970, money is in cents. Each query takes one number, `$1`.

/// Changes when the tables do, so that an old file is noticed.
pub(crate) const FORMAT: i64 = 1;

/// A table to fill: how it is made, and how it gets a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) create: &'static str,
    pub(crate) insert: &'static str,
}

pub(crate) const TABLES: [&Table; 6] = [
    &Table::CATALOGUE,
    &Table::CATEGORY,
    &Table::PERSON,
    &Table::ITEM,
    &Table::BID,
    &Table::COMMENT,
];

impl Table {
    /// One row: what this catalogue is. Written last, so a catalogue cut short has none.
    pub(crate) const CATALOGUE: Self = Self {
        name: "catalogue",
        create: "CREATE TABLE catalogue (format INTEGER, items INTEGER, seed INTEGER)",
        insert: "INSERT INTO catalogue VALUES ($1, $2, $3)",
    };
    pub(crate) const CATEGORY: Self = Self {
        name: "category",
        create: "CREATE TABLE category (id INTEGER PRIMARY KEY, name TEXT NOT NULL,
            items INTEGER NOT NULL)",
        insert: "INSERT INTO category VALUES ($1, $2, $3)",
    };
    /// Sellers and bidders.
    pub(crate) const PERSON: Self = Self {
        name: "person",
        create: "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT NOT NULL,
            city TEXT NOT NULL, since_year INTEGER NOT NULL)",
        insert: "INSERT INTO person VALUES ($1, $2, $3, $4)",
    };
    /// `price_cents` and `bids` repeat what the table of bids says, as RUBiS does, for lists.
    pub(crate) const ITEM: Self = Self {
        name: "item",
        create: "CREATE TABLE item (id INTEGER PRIMARY KEY, category INTEGER NOT NULL,
            seller INTEGER NOT NULL, title TEXT NOT NULL, description TEXT NOT NULL,
            opening_cents INTEGER NOT NULL, price_cents INTEGER NOT NULL, bids INTEGER NOT NULL,
            closes_at INTEGER NOT NULL)",
        insert: "INSERT INTO item VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    };
    pub(crate) const BID: Self = Self {
        name: "bid",
        create: "CREATE TABLE bid (item INTEGER NOT NULL, amount_cents INTEGER NOT NULL,
            person INTEGER NOT NULL, placed_at INTEGER NOT NULL,
            PRIMARY KEY (item, amount_cents))",
        insert: "INSERT INTO bid VALUES ($1, $2, $3, $4)",
    };
    pub(crate) const COMMENT: Self = Self {
        name: "comment",
        create: "CREATE TABLE comment (item INTEGER NOT NULL, written_at INTEGER NOT NULL,
            person INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (item, written_at))",
        insert: "INSERT INTO comment VALUES ($1, $2, $3, $4)",
    };
}

/// Made after the rows are there, which is faster than keeping them up to date.
pub(crate) const INDEXES: [&str; 4] = [
    "CREATE INDEX bid_by_person ON bid (person, item)",
    "CREATE INDEX item_by_closing ON item (closes_at, id)",
    "CREATE INDEX item_by_bids ON item (bids DESC, id)",
    "CREATE INDEX item_by_category ON item (category, closes_at, id)",
];

pub(crate) const FACTS: &str = "SELECT format, items, seed FROM catalogue LIMIT $1";

/// The mandatory part: the item beside each of its bids. Every item has a bid.
pub(crate) const ITEM: &str = "
    SELECT item.title, item.description, category.id, category.name, item.opening_cents,
           item.closes_at, seller.name, seller.city, seller.since_year,
           bid.amount_cents, bid.placed_at, bidder.name
    FROM item
    JOIN category ON category.id = item.category
    JOIN person AS seller ON seller.id = item.seller
    JOIN bid ON bid.item = item.id
    JOIN person AS bidder ON bidder.id = bid.person
    WHERE item.id = $1
    ORDER BY bid.amount_cents DESC";

/// The optional part: every bid of everybody who bid on the item, counted by item.
pub(crate) const RECOMMENDATIONS: &str = "
    SELECT item.id, item.category, item.title, item.price_cents, item.bids, item.closes_at,
           together.bidders
    FROM (SELECT other.item AS item, COUNT(DISTINCT other.person) AS bidders
          FROM bid AS mine
          JOIN bid AS other ON other.person = mine.person
          WHERE mine.item = $1 AND other.item <> $1
          GROUP BY other.item
          ORDER BY bidders DESC, other.item
          LIMIT 6) AS together
    JOIN item ON item.id = together.item
    ORDER BY together.bidders DESC, item.id";

pub(crate) const COMMENTS: &str = "
    SELECT person.name, comment.written_at, comment.text
    FROM comment JOIN person ON person.id = comment.person
    WHERE comment.item = $1
    ORDER BY comment.written_at DESC";

pub(crate) const CATEGORIES: &str = "SELECT id, name, items FROM category ORDER BY id LIMIT $1";

pub(crate) const WANTED: &str = "
    SELECT id, category, title, price_cents, bids, closes_at FROM item
    ORDER BY bids DESC, id LIMIT $1";

pub(crate) const CLOSING: &str = "
    SELECT id, category, title, price_cents, bids, closes_at FROM item
    ORDER BY closes_at, id LIMIT $1";

pub(crate) const CLOSING_IN_CATEGORY: &str = "
    SELECT id, category, title, price_cents, bids, closes_at FROM item
    WHERE category = $1 ORDER BY closes_at, id LIMIT 24";
