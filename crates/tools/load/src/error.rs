//! What can be wrong before a load starts, said in one line: what came, what was expected, where.

use std::fmt;

/// Why a load could not be started, or its input could not be read.
///
/// What happens to requests once the load runs is never an error: it is counted in the
/// [`Report`](super::Report).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A setting is outside its range or cannot be read.
    #[error("{name}: got {came}, expected {expected}")]
    Setting {
        /// The setting, as a person knows it (`rate`, `url`, …).
        name: &'static str,
        /// What was given.
        came: String,
        /// What would have been accepted.
        expected: String,
    },
    /// A trace has a line that cannot be used.
    #[error("{file}{}: got {came}, expected {expected}", at(*.line))]
    Trace {
        /// The file, as it was named.
        file: String,
        /// Line number from 1; 0 when the file as a whole is meant.
        line: u64,
        /// What stands there.
        came: String,
        /// What would have been accepted.
        expected: String,
    },
    /// The host of the URL has no address.
    #[error(
        "url: no address for {authority} ({problem}); expected a host that resolves, such as \
         127.0.0.1:8080 (is the name spelt right?)"
    )]
    Resolve {
        /// The host and port that were looked up.
        authority: String,
        /// What the resolver said.
        problem: String,
    },
    /// Cassandra refused what must be done before the load, or did not answer.
    #[error("cannot {attempt}: {problem}")]
    Cassandra {
        /// What was attempted.
        attempt: String,
        /// What became of it.
        problem: String,
    },
    /// The operating system refused a thread, a timer or a runtime.
    #[error("cannot {attempt}: {problem}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// What the system said.
        problem: String,
    },
}

impl LoadError {
    pub(super) fn setting(
        name: &'static str,
        came: impl fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Self::Setting { name, came: came.to_string(), expected: expected.into() }
    }

    pub(super) fn cassandra(attempt: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self::Cassandra { attempt: attempt.into(), problem: problem.to_string() }
    }

    pub(super) fn system(attempt: &'static str, problem: impl fmt::Display) -> Self {
        Self::System { attempt, problem: problem.to_string() }
    }
}

/// `:7`, or nothing for the file as a whole.
fn at(line: u64) -> String {
    if line == 0 { String::new() } else { format!(":{line}") }
}
