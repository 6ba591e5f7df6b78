//! What the processes of these tests log, by upstream.

pub(crate) use evenkeel_testkit::log::keep;

/// What was logged of an upstream.
pub(crate) fn all(upstream: &str) -> Vec<String> {
    evenkeel_testkit::log::lines(&of(upstream))
}

/// How many lines of it say this.
pub(crate) fn count(upstream: &str, words: &str) -> usize {
    evenkeel_testkit::log::count(&of(upstream), words)
}

fn of(upstream: &str) -> String {
    format!("upstream=\"{upstream}\"")
}
