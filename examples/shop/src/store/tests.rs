//! What the store reads is what the generator wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::sink::{Cell, Sink};
use super::sql::Table;
use super::*;

/// A fresh folder for one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("evenkeel-shop-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A small catalogue in `folder`.
pub(crate) fn small(folder: &Path) -> Store {
    Store::open(&arguments(folder, Some(400), Some(7))).unwrap()
}

fn arguments(folder: &Path, items: Option<u32>, seed: Option<u32>) -> CatalogueArguments {
    CatalogueArguments { database: Place::File(folder.join("shop.db")), items, seed }
}

/// All rows of a catalogue, by table.
#[derive(Default)]
struct Rows(BTreeMap<&'static str, Vec<Vec<String>>>);

impl Sink for Rows {
    fn insert(&mut self, table: &'static Table, cells: &[Cell<'_>]) -> Result<()> {
        let row = cells.iter().map(|cell| match cell {
            Cell::Integer(value) => value.to_string(),
            Cell::Text(value) => (*value).to_owned(),
        });
        self.0.entry(table.name).or_default().push(row.collect());
        Ok(())
    }
}

fn rows() -> Rows {
    let mut rows = Rows::default();
    Catalogue { items: 400, seed: 7 }.write(&mut rows).unwrap();
    rows
}

fn number(cell: &str) -> i64 {
    cell.parse().unwrap()
}

#[test]
fn an_item_is_read_with_its_bids_seller_and_category() {
    let folder = folder("item");
    let mut store = small(&folder);
    let rows = rows();
    for id in [1, 17, 400] {
        let item = store.item(id).unwrap().unwrap();
        let row = rows.0["item"].iter().find(|row| number(&row[0]) == id).unwrap();
        let seller = rows.0["person"].iter().find(|person| person[0] == row[2]).unwrap();
        let category = rows.0["category"].iter().find(|category| category[0] == row[1]).unwrap();
        let mut bids: Vec<_> = rows.0["bid"].iter().filter(|bid| number(&bid[0]) == id).collect();
        bids.reverse();
        assert_eq!((&item.title, &item.description), (&row[3], &row[4]));
        assert_eq!(item.category_name, category[1]);
        assert_eq!((&item.seller, &item.seller_city), (&seller[1], &seller[2]));
        assert_eq!((item.bids.len(), item.price_cents()), (bids.len(), number(&row[6])));
        for (read, written) in item.bids.iter().zip(bids) {
            let person = rows.0["person"].iter().find(|person| person[0] == written[2]).unwrap();
            assert_eq!(read.amount_cents, number(&written[1]));
            assert_eq!(read.bidder, person[1]);
        }
    }
    assert_eq!(store.item(0).unwrap(), None);
    assert_eq!(store.item(401).unwrap(), None);
    assert_eq!(store.item(i64::MAX).unwrap(), None);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn recommendations_are_the_items_with_most_bidders_in_common() {
    let folder = folder("recommendations");
    let mut store = small(&folder);
    let mut bidders: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for bid in &rows().0["bid"] {
        bidders.entry(number(&bid[0])).or_default().insert(number(&bid[2]));
    }
    for id in (1..=400).step_by(13) {
        let mut expected: Vec<(i64, i64)> = bidders
            .iter()
            .filter(|(other, _)| **other != id)
            .map(|(other, people)| (-(people.intersection(&bidders[&id]).count() as i64), *other))
            .filter(|(common, _)| *common < 0)
            .collect();
        expected.sort_unstable();
        expected.truncate(6);
        let found = store.recommendations(id).unwrap();
        let found: Vec<_> = found.iter().map(|r| (-r.bidders, r.listing.number)).collect();
        assert_eq!(found, expected, "item {id}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn lists_are_in_order_and_categories_complete() {
    let folder = folder("lists");
    let mut store = small(&folder);
    let categories = store.categories().unwrap();
    assert_eq!(categories.iter().map(|category| category.items).sum::<i64>(), 400);
    let closing = store.closing(400).unwrap();
    assert_eq!(closing.len(), 400);
    assert!(closing.is_sorted_by_key(|listing| (listing.closes_at, listing.number)));
    let wanted = store.wanted(8).unwrap();
    let most = closing.iter().map(|listing| listing.bids).max();
    assert_eq!(Some(wanted[0].bids), most);
    assert!(wanted.is_sorted_by_key(|listing| -listing.bids));
    let third = store.closing_in(3).unwrap();
    assert!(!third.is_empty() && third.iter().all(|listing| listing.category == 3));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn another_catalogue_than_asked_for_is_refused() {
    let folder = folder("other");
    drop(small(&folder));
    assert!(Store::open(&arguments(&folder, None, None)).is_ok());
    let error = Store::open(&arguments(&folder, Some(500), None)).unwrap_err().to_string();
    assert!(error.contains("--items 500") && error.contains("--items 400"), "{error}");
    let error = Store::open(&arguments(&folder, None, Some(8))).unwrap_err().to_string();
    assert!(error.contains("--seed 8") && error.contains("--seed 7"), "{error}");
    let error = generate(&arguments(&folder, None, None)).unwrap_err().to_string();
    assert!(error.contains("shop.db exists"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_of_something_else_is_refused_and_left_alone() {
    let folder = folder("foreign");
    for content in ["", "a shopping list"] {
        std::fs::write(folder.join("shop.db"), content).unwrap();
        let error = Store::open(&arguments(&folder, None, None)).unwrap_err().to_string();
        assert!(error.contains("cannot be read as a catalogue"), "{error}");
        assert_eq!(std::fs::read_to_string(folder.join("shop.db")).unwrap(), content);
    }
    let nowhere = arguments(&folder.join("missing"), None, None);
    let error = Store::open(&nowhere).unwrap_err().to_string();
    assert!(error.contains("cannot generate"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn no_draft_is_left_behind() {
    let folder = folder("draft");
    drop(small(&folder));
    let names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["shop.db"]);
    std::fs::remove_dir_all(folder).unwrap();
}
