//! What the processes of a test log, kept as lines such as `message=… upstream="web" `.

use std::fmt::Write as _;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A test that panics does so outside of it.
const WHOLE: &str = "nobody panics while keeping a line";

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Keeper;

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        LOG.lock().expect(WHOLE).push(words.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Keeps what this process logs from now on.
pub fn keep() {
    let _ = tracing::subscriber::set_global_default(Keeper);
}

/// The lines with these words.
pub fn lines(words: &str) -> Vec<String> {
    let log = LOG.lock().expect(WHOLE);
    log.iter().filter(|line| line.contains(words)).cloned().collect()
}

/// How many lines have both.
pub fn count(one: &str, other: &str) -> usize {
    lines(one).iter().filter(|line| line.contains(other)).count()
}
