//! The catalogue is deterministic, sound and as skewed as it says.

use std::collections::BTreeMap;

use super::*;

/// Every row as text, in the order it was written.
#[derive(Default)]
struct Log(Vec<(&'static str, String)>);

impl Sink for Log {
    fn insert(&mut self, table: &'static Table, cells: &[Cell<'_>]) -> Result<()> {
        self.0.push((table.name, format!("{cells:?}")));
        Ok(())
    }
}

#[derive(Default)]
struct Bids(BTreeMap<i64, Vec<[i64; 3]>>);

impl Sink for Bids {
    fn insert(&mut self, table: &'static Table, cells: &[Cell<'_>]) -> Result<()> {
        if table == &Table::BID {
            let numbers = cells.iter().map(|cell| match cell {
                Cell::Integer(value) => *value,
                Cell::Text(_) => panic!("a bid has no text"),
            });
            let bid: Vec<i64> = numbers.collect();
            self.0.entry(bid[0]).or_default().push([bid[1], bid[2], bid[3]]);
        }
        Ok(())
    }
}

fn log(items: u32, seed: u32) -> Vec<(&'static str, String)> {
    let mut log = Log::default();
    Catalogue { items, seed }.write(&mut log).unwrap();
    log.0
}

#[test]
fn the_same_seed_gives_the_same_catalogue_and_another_seed_another() {
    assert_eq!(log(300, 1), log(300, 1));
    let (one, two) = (log(300, 1), log(300, 2));
    let titles = |log: &[(&str, String)]| -> Vec<String> {
        log.iter().filter(|(table, _)| *table == "item").map(|(_, row)| row.clone()).collect()
    };
    let same = titles(&one).iter().zip(titles(&two)).filter(|(a, b)| *a == b).count();
    assert_eq!(same, 0);
}

#[test]
fn bids_rise_in_amount_and_time_and_stay_in_the_past() {
    let mut bids = Bids::default();
    Catalogue { items: 2_000, seed: 3 }.write(&mut bids).unwrap();
    assert_eq!(bids.0.len(), 2_000, "every item has a bid");
    for (item, bids) in &bids.0 {
        let rises = |column: usize| bids.is_sorted_by(|a, b| a[column] < b[column]);
        assert!(rises(0), "amounts of item {item}: {bids:?}");
        assert!(rises(2), "times of item {item}: {bids:?}");
        assert!(bids[0][0] > 0 && bids.last().unwrap()[2] <= TODAY, "item {item}: {bids:?}");
        assert!(bids.len() <= 60);
    }
}

#[test]
fn bids_per_item_have_the_tail_that_is_claimed() {
    let mut random = Random::of(5, 9, 1);
    let drawn: Vec<u32> = (0..100_000).map(|_| bids_of(&mut random)).collect();
    for at_least in [1_u32, 2, 5, 10, 30, 60] {
        let share = drawn.iter().filter(|bids| **bids >= at_least).count() as f64 / 1e5;
        let expected = 4.0 / f64::from(at_least + 3);
        // Five standard deviations of a share of 100 000 are below 0.008.
        assert!((share - expected).abs() < 0.008, "P(N >= {at_least}): {share}, {expected}");
    }
    assert!(drawn.iter().all(|bids| (1..=60).contains(bids)));
}

#[test]
fn titles_read_like_titles() {
    let mut titles = BTreeMap::new();
    for (_, row) in log(1_000, 1).iter().filter(|(table, _)| *table == "item") {
        let title = row.split("Text(\"").nth(1).unwrap().split("\")").next().unwrap().to_owned();
        assert!((8..80).contains(&title.len()), "{title}");
        assert!(title.starts_with(char::is_uppercase), "{title}");
        assert!(!title.contains("  "), "{title}");
        *titles.entry(title).or_insert(0) += 1;
    }
    assert!(titles.len() > 900, "only {} different titles of 1000", titles.len());
}
