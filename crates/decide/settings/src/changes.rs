//! What differs between two documents, by the paths of the keys.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::{Node, Value};
use crate::problem::{Place, joined};

impl Node {
    /// The paths of all keys that hold something else in `next`, are only in one of the two, or
    /// are written out in one and left out in the other; in order. Where a value stands in its
    /// file does not matter. A table that is only in one of them is named as a whole.
    ///
    /// ```
    /// use evenkeel_settings::Node;
    ///
    /// let of = |text| Node::parse(text, "run.toml").unwrap();
    /// let before = of("[process]\nworkers = 2\n[admin]\naddress = '127.0.0.1:9901'");
    /// let after = of("# More threads.\n[process]\nworkers = 4");
    /// assert_eq!(before.changes(&after), ["admin", "process.workers"]);
    /// ```
    pub fn changes(&self, next: &Self) -> Vec<String> {
        let mut found = Vec::new();
        compare("", &self.value, &next.value, &mut found);
        found
    }

    /// What a table has under this key.
    pub fn entry(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Table(entries) => entries.get(key),
            _ => None,
        }
    }

    /// Where a key was written, or the last table on the way to it.
    pub fn place_of(&self, path: &[&str]) -> &Place {
        let deepest = path.iter().try_fold(self, |node, key| node.entry(key).ok_or(node));
        &deepest.unwrap_or_else(|last| last).at
    }
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Table(before), Value::Table(after)) => tables(path, before, after, found),
        (Value::List(before), Value::List(after)) if are_tables(before) && are_tables(after) => {
            for place in 0..before.len().max(after.len()) {
                let path = joined(path, &place.to_string());
                entries(&path, before.get(place), after.get(place), found);
            }
        }
        (before, after) if is_same(before, after) => {}
        _ => found.push(path.to_owned()),
    }
}

fn tables(
    path: &str,
    before: &BTreeMap<String, Node>,
    after: &BTreeMap<String, Node>,
    found: &mut Vec<String>,
) {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        entries(&joined(path, key), before.get(key), after.get(key), found);
    }
}

fn entries(path: &str, before: Option<&Node>, after: Option<&Node>, found: &mut Vec<String>) {
    match (before, after) {
        (Some(before), Some(after)) => compare(path, &before.value, &after.value, found),
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => found.push(path.to_owned()),
    }
}

fn are_tables(items: &[Node]) -> bool {
    items.iter().all(|item| matches!(item.value, Value::Table(_)))
}

/// Whether both are the same wherever they are written.
fn is_same(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::List(before), Value::List(after)) => {
            let pairs = || before.iter().zip(after);
            before.len() == after.len()
                && pairs().all(|(before, after)| is_same(&before.value, &after.value))
        }
        (Value::Table(_), Value::Table(_)) => {
            let mut found = Vec::new();
            compare("", before, after, &mut found);
            found.is_empty()
        }
        // NaN is as it was.
        (Value::Float(before), Value::Float(after)) => before.to_bits() == after.to_bits(),
        (before, after) => before == after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(before: &str, after: &str) -> Vec<String> {
        let of = |text| Node::parse(text, "test.toml").unwrap();
        of(before).changes(&of(after))
    }

    #[test]
    fn where_something_is_written_is_no_change() {
        let inline = "a = { b = [1, 2], c = 'x' }\n[[d]]\ne = nan";
        let long = "# A word before.\n\n[[d]]\ne = nan\n[a]\nc = 'x'\nb = [\n1,\n2]";
        assert!(changes(inline, long).is_empty());
    }

    #[test]
    fn the_deepest_key_that_differs_is_named() {
        let before = "[up.web]\nreplicas = ['a', 'b']\n[up.web.hedge]\nquantile = '95%'";
        let after = "[up.web]\nreplicas = ['a', 'c']\n[up.web.hedge]\nquantile = '99%'";
        assert_eq!(changes(before, after), ["up.web.hedge.quantile", "up.web.replicas"]);
        assert_eq!(changes(before, "[up.web]\nreplicas = ['a', 'b']"), ["up.web.hedge"]);
        assert_eq!(changes("[\"a.b\"]\nc = 1", "[\"a.b\"]\nc = 2"), ["\"a.b\".c"]);
    }

    #[test]
    fn lists_of_tables_are_compared_place_by_place() {
        let before = "[[agent]]\nlisten = 'a'\n[[agent]]\nlisten = 'b'";
        let after = "[[agent]]\nlisten = 'a'\ntimeout = '1s'";
        assert_eq!(changes(before, after), ["agent.0.timeout", "agent.1"]);
        assert_eq!(changes("a = [1]", "a = []"), ["a"]);
        assert_eq!(changes("a = 1", "a = 1.0"), ["a"], "which kind of number may matter");
    }
}
