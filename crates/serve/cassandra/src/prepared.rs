//! Prepared statements: what is known of each, for all workers of a process.
//!
//! A client prepares at one node, and executes wherever the request is sent: the route needs the
//! text (to prepare it there), the places of the partition key (to find the replicas) and the bound
//! types (to know whether it may be sent twice). All of it is in the one answer of a PREPARE, so it
//! is taken down as that passes. A client that executes a statement which was dropped here is told
//! `UNPREPARED`, as by a node whose cache has dropped it, and prepares it again.
//!
//! Workers share one table behind a lock. On the request path each has its own view of it, which is
//! looked up without a lock and begun anew when a statement has changed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use evenkeel_cql::key::KeyPlan;
use evenkeel_cql::statement::{Shape, Statement};

use crate::system::ResultColumn;
use evenkeel_cql::client::Known;

/// What is known of one prepared statement.
#[derive(Debug)]
pub(crate) struct PreparedStatement {
    /// What a node needs to prepare it.
    pub(crate) known: Arc<Known>,
    /// What its text tells.
    pub(crate) statement: Statement,
    /// The keyspace of its table.
    pub(crate) keyspace: Option<Arc<str>>,
    /// Where the partition key is among the bound values; `None` when not all of it is bound.
    pub(crate) key: Option<KeyPlan>,
    /// What must be known of the types of the bound values.
    pub(crate) shapes: Box<[Shape]>,
    /// The columns of its result, if it is a system table's that is answered here.
    pub(crate) result: Option<Box<[ResultColumn]>>,
    /// Which insertion was the last before it was used.
    used: AtomicU64,
}

impl PreparedStatement {
    /// The bytes it takes, roughly.
    fn size(&self) -> usize {
        let result = self.result.as_ref().map_or(0, |columns| columns.len() * 128);
        // What the text told is no longer than the text, as a rule.
        2 * self.known.text.len() + self.shapes.len() + result + size_of::<Self>() + 512
    }

    fn is_like(&self, other: &Self) -> bool {
        self.known == other.known
            && self.key == other.key
            && self.shapes == other.shapes
            && self.result == other.result
    }
}

/// What a PREPARE and its answer told.
#[derive(Debug)]
pub(crate) struct Learnt {
    pub(crate) known: Known,
    pub(crate) statement: Statement,
    pub(crate) keyspace: Option<Arc<str>>,
    pub(crate) key: Option<KeyPlan>,
    pub(crate) shapes: Box<[Shape]>,
    pub(crate) result: Option<Box<[ResultColumn]>>,
}

/// The prepared statements of a process, bounded by the bytes they take.
#[derive(Debug)]
pub(crate) struct PreparedStatements {
    table: RwLock<Table>,
    bytes_max: usize,
    /// Grows when what was known of a statement is not so any more.
    changes: AtomicU64,
    /// Grows with every insertion; the time that statements are used at.
    insertions: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    statements: BTreeMap<Bytes, Arc<PreparedStatement>>,
    bytes: usize,
}

impl PreparedStatements {
    /// An empty table for so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            table: RwLock::default(),
            bytes_max,
            changes: AtomicU64::new(0),
            insertions: AtomicU64::new(0),
        }
    }

    /// How many statements it knows, and how many bytes they take.
    #[cfg(test)]
    fn size(&self) -> (usize, usize) {
        let table = self.read();
        (table.statements.len(), table.bytes)
    }

    /// Takes down what a node answered to a PREPARE. The newest statement always has room; those
    /// that were not used for longest go.
    pub(crate) fn learn(&self, learnt: Learnt) {
        let now = self.insertions.fetch_add(1, Ordering::Relaxed) + 1;
        let Learnt { known, statement, keyspace, key, shapes, result } = learnt;
        let statement = PreparedStatement {
            known: Arc::new(known),
            statement,
            keyspace,
            key,
            shapes,
            result,
            used: AtomicU64::new(now),
        };
        let mut table = self.write();
        let id = statement.known.id.clone();
        if let Some(earlier) = table.statements.get(&id) {
            if earlier.is_like(&statement) {
                earlier.used.store(now, Ordering::Relaxed);
                return;
            }
            statement.known.result.follow(&earlier.known.result);
            table.bytes -= earlier.size();
            self.changes.fetch_add(1, Ordering::Release);
        }
        table.bytes += statement.size();
        table.statements.insert(id, Arc::new(statement));
        if table.bytes > self.bytes_max {
            table.shrink(self.bytes_max, now);
        }
    }

    fn find(&self, id: &[u8]) -> Option<Arc<PreparedStatement>> {
        self.read().statements.get(id).cloned()
    }

    // A panic while the lock was held leaves a table that is whole: every change of it is.
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Drops what was not used for longest until a quarter of the room is free, so that this is
    /// not to be done for every further statement.
    fn shrink(&mut self, bytes_max: usize, now: u64) {
        let used = |statement: &Arc<PreparedStatement>| statement.used.load(Ordering::Relaxed);
        let mut order: Vec<_> = self
            .statements
            .iter()
            .map(|(id, statement)| (used(statement), id.clone(), statement.size()))
            .filter(|&(used, ..)| used < now)
            .collect();
        order.sort_unstable();
        for (_, id, size) in order {
            if self.bytes <= bytes_max / 4 * 3 {
                return;
            }
            self.statements.remove(&id);
            self.bytes -= size;
        }
    }
}

/// One worker's view of the table.
#[derive(Debug)]
pub(crate) struct StatementView {
    shared: Arc<PreparedStatements>,
    seen: RefCell<BTreeMap<Bytes, Arc<PreparedStatement>>>,
    seen_bytes: Cell<usize>,
    changes: Cell<u64>,
}

impl StatementView {
    /// A view that has seen nothing yet.
    pub(crate) fn new(shared: Arc<PreparedStatements>) -> Self {
        let changes = Cell::new(shared.changes.load(Ordering::Acquire));
        Self { shared, seen: RefCell::default(), seen_bytes: Cell::new(0), changes }
    }

    /// The statement with this id.
    pub(crate) fn find(&self, id: &[u8]) -> Option<Arc<PreparedStatement>> {
        let mut seen = self.seen.borrow_mut();
        let changes = self.shared.changes.load(Ordering::Acquire);
        if self.changes.replace(changes) != changes {
            seen.clear();
            self.seen_bytes.set(0);
        }
        let now = self.shared.insertions.load(Ordering::Relaxed);
        if let Some(statement) = seen.get(id) {
            // Written only when it changes: others read it.
            if statement.used.load(Ordering::Relaxed) != now {
                statement.used.store(now, Ordering::Relaxed);
            }
            return Some(Arc::clone(statement));
        }
        let statement = self.shared.find(id)?;
        statement.used.store(now, Ordering::Relaxed);
        let bytes = self.seen_bytes.get() + statement.size();
        if bytes > self.shared.bytes_max {
            seen.clear();
        }
        self.seen_bytes.set(if seen.is_empty() { statement.size() } else { bytes });
        seen.insert(statement.known.id.clone(), Arc::clone(&statement));
        Some(statement)
    }

    /// Takes down what a node answered to a PREPARE.
    pub(crate) fn learn(&self, learnt: Learnt) {
        self.shared.learn(learnt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_cql::client::ResultColumns;

    fn learnt(name: &str, text_bytes: usize) -> Learnt {
        let text = format!("SELECT * FROM {name} {}", " ".repeat(text_bytes));
        Learnt {
            statement: evenkeel_cql::statement::read(&text),
            known: Known {
                id: Bytes::copy_from_slice(name.as_bytes()),
                text: text.into(),
                keyspace: None,
                result: ResultColumns::default(),
            },
            keyspace: Some("k".into()),
            key: None,
            shapes: Box::new([Shape::Other]),
            result: None,
        }
    }

    #[test]
    fn every_worker_finds_what_one_has_learnt() {
        let shared = Arc::new(PreparedStatements::new(1 << 20));
        let views = [(); 2].map(|()| StatementView::new(Arc::clone(&shared)));
        assert!(views[0].find(b"a").is_none());
        views[1].learn(learnt("a", 1));
        for view in &views {
            assert_eq!(view.find(b"a").unwrap().known.id, "a");
        }
    }

    #[test]
    fn a_statement_that_has_changed_is_seen_changed() {
        let shared = Arc::new(PreparedStatements::new(1 << 20));
        let view = StatementView::new(Arc::clone(&shared));
        view.learn(learnt("a", 1));
        let before = view.find(b"a").unwrap();
        shared.learn(learnt("a", 1));
        assert!(Arc::ptr_eq(&before, &view.find(b"a").unwrap()), "the same again is no change");
        shared.learn(Learnt { shapes: Box::new([Shape::List]), ..learnt("a", 1) });
        assert_eq!(*view.find(b"a").unwrap().shapes, [Shape::List]);
        assert_eq!(shared.size().0, 1);
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let shared = Arc::new(PreparedStatements::new(1 << 20));
        let view = StatementView::new(Arc::clone(&shared));
        view.learn(learnt("used", 10));
        for number in 0..1_000 {
            view.learn(learnt(&format!("s{number}"), 5_000));
            assert!(view.find(b"used").is_some(), "after {number}");
            assert!(view.find(format!("s{number}").as_bytes()).is_some());
            assert!(shared.size().1 <= 1 << 20, "{:?}", shared.size());
        }
        assert!(view.find(b"s1").is_none() || view.seen.borrow().len() < 200);
        view.learn(learnt("huge", 2 << 20));
        assert!(view.find(b"huge").is_some(), "the newest has room");
        let (count, bytes) = shared.size();
        let sum: usize = shared.read().statements.values().map(|statement| statement.size()).sum();
        assert_eq!((count, bytes), (1, sum));
    }
}
