//! What the processes of these tests log.

use std::fmt::Write as _;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

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
        LOG.lock().unwrap().push(words.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Keeps what is logged from now on.
pub(crate) fn keep() {
    let _ = tracing::subscriber::set_global_default(Keeper);
}

/// What was logged of an upstream.
pub(crate) fn all(upstream: &str) -> Vec<String> {
    let of = format!("upstream=\"{upstream}\"");
    LOG.lock().unwrap().iter().filter(|line| line.contains(&of)).cloned().collect()
}

/// How many lines of it say this.
pub(crate) fn count(upstream: &str, words: &str) -> usize {
    all(upstream).iter().filter(|line| line.contains(words)).count()
}
