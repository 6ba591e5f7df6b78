//! What counting ends with: operations of whole intervals, or why there are none.

use std::error::Error;
use std::fmt;
use std::io;

use evenkeel_planner::model::{BadInput, Counts};
use evenkeel_settings::Problem;

/// What came, of whole intervals.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Collected {
    /// The oldest first; those of which nothing is known are left out.
    pub(super) intervals: Vec<Counts>,
    /// What a person should mend, in sentences.
    pub(super) warnings: Vec<String>,
}

/// Why an interval is not known.
#[derive(Debug)]
pub(super) struct CollectError {
    /// The file or the server; empty where `kind` names it, or it is neither.
    pub(super) at: String,
    pub(super) kind: CollectErrorKind,
}

/// What is wrong with the source of an interval.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectErrorKind {
    /// A file cannot be read, or is no text in lines.
    #[error("{0}")]
    File(#[source] io::Error),
    /// A row is no count; it has its place with it.
    #[error("{0}")]
    Row(#[source] Box<Problem>),
    /// Rows came after their interval was counted: the first, and how many more intervals.
    #[error(
        "rows of interval {first}{} came after it was counted and are left out: an interval is to \
         be appended at once, under a name of its own",
        and_more(*.more)
    )]
    Late { first: String, more: usize },
    /// The last line does not end.
    #[error("its last line does not end: it counts when it is whole (is an end of line missing?)")]
    Unended,
    /// The last interval may get more rows.
    #[error("its last interval is being written and counts next time")]
    BeingWritten,
    #[error("no new interval (does nobody append to it any more?)")]
    NothingNew,
    #[error("no interval, one or more were expected")]
    NoInterval,
    /// This interval was passed over already; how many others were held then.
    #[error(
        "interval {interval} again, after {held_max} others: the rows of an interval were \
         expected together, and each interval under a name of its own"
    )]
    Again { interval: String, held_max: usize },
    /// The clock is before 1970.
    #[error("the clock is before 1970")]
    Clock,
    /// The client or the server behind it.
    #[error("{0}")]
    Remote(#[source] Box<dyn Error + Send + Sync>),
    /// The server answered with an error.
    #[error("status {status}: {reported} (is the query right, and is it the API?)")]
    Refused { status: u16, reported: String },
    #[error("no matrix came, which a range query answers with")]
    NoMatrix,
    #[error(
        "{came} series came, at most {most} were expected: does the query sum by datacenter and \
         operation?"
    )]
    ManySeries { came: usize, most: usize },
    #[error("a point without a time came")]
    NoTime,
    /// A value is no count.
    #[error(
        "{{datacenter=\"{place}\", operation=\"{operation}\"}}: {came} came, a count of 0 to 1e15 \
         was expected (is it the increase of a counter?)"
    )]
    NoCount { place: String, operation: String, came: String },
    /// No series of the last interval; why, perhaps.
    #[error("no operations of the last interval came ({cause})")]
    NoOperations { cause: String },
    /// Counts or round trips that the planner does not take.
    #[error("{0}")]
    Input(#[source] BadInput),
    /// Nobody told the path between these two sites.
    #[error("the way between {from} and {to} is not measured (do both run [redirect]?)")]
    NotMeasured { from: String, to: String },
    /// What the mesh measured is no distribution.
    #[error("the mesh: {0}")]
    Mesh(#[source] Box<dyn Error + Send + Sync>),
    #[error("no round trips are known")]
    NoRoundTrips,
}

impl CollectErrorKind {
    /// At a file or a server.
    pub(super) fn at(self, at: impl fmt::Display) -> CollectError {
        CollectError { at: at.to_string(), kind: self }
    }

    pub(super) fn remote(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Remote(error.into())
    }

    pub(super) fn mesh(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Mesh(error.into())
    }
}

impl From<CollectErrorKind> for CollectError {
    fn from(kind: CollectErrorKind) -> Self {
        Self { at: String::new(), kind }
    }
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        self.kind.fmt(f)
    }
}

fn and_more(more: usize) -> String {
    if more > 0 { format!(" and of {more} more") } else { String::new() }
}

impl Error for CollectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
    }
}
