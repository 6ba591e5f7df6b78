//! Whether a statement may be sent twice.
//!
//! *Idempotent* here: whatever else is written meanwhile, a second copy that arrives at any time
//! leaves what one copy would have left. Only what is proven is said to be; the table of reasons
//! with what was measured is `docs/cassandra-idempotence.md`.

use std::fmt;

/// Whether a statement may be sent again, or to several nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idempotence {
    /// It may.
    Yes,
    /// It would, but neither the text nor the request carries a timestamp of the client: each copy
    /// would be stamped when it arrives, and a late one overwrite what others wrote meanwhile.
    WithTimestamp,
    /// It may not, or nobody can tell.
    No(Why),
}

evenkeel_core::named! {
    /// Why a statement is not sent twice.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Why {
        /// A lightweight transaction: its second copy finds what the first has done.
        Conditional = "conditional",
        /// Adds to a counter, or is of a counter batch.
        Counter = "counter",
        /// Appends to a list, puts before it or takes from it.
        ListOperation = "list_operation",
        /// Writes a list whole: two copies with one timestamp leave its elements twice.
        ListWhole = "list_whole",
        /// Writes or deletes by an index that may be a position in a list.
        ListElement = "list_element",
        /// A bound value's type is not known: it may be a list or a counter.
        UnknownType = "unknown_type",
        /// Writes out a map whose keys may be equal: Cassandra writes any one of their values.
        MapKeys = "map_keys",
        /// Calls a function in what it writes: `now()`, `uuid()`, or one that a user may have
        /// defined.
        Function = "function",
        /// Writes JSON, which may hold a list.
        Json = "json",
        /// Removes all rows, also those that are written between two copies.
        Truncate = "truncate",
        /// Changes the schema.
        Schema = "schema",
        /// Changes roles, users or permissions.
        Role = "role",
        /// Changes the connection that it is sent on.
        Session = "session",
        /// No statement in a form that is known.
        Unknown = "unknown",
    }
}

/// What a request carries for the bind markers of its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound<'a> {
    /// Of each marker, in the order of the text: as a PREPARED result tells. `None`: not known.
    pub shapes: Option<&'a [Shape]>,
    /// Whether any of the values may be *unset*, as `USING TIMESTAMP ?` must not be.
    pub has_unset: bool,
}

/// What must be known of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// `list<…>`; whether it is frozen is not told by the protocol.
    List,
    /// `set<…>`.
    Set,
    /// `map<…>`.
    Map,
    /// `counter`.
    Counter,
    /// `int`, the type of a position in a list.
    Int,
    /// Any other.
    Other,
}

impl Shape {
    /// Of a type by its number in metadata (section 4.2.5.2 of the specification).
    pub fn of(kind: u16) -> Self {
        match kind {
            0x05 => Self::Counter,
            0x09 => Self::Int,
            0x20 => Self::List,
            0x21 => Self::Map,
            0x22 => Self::Set,
            _ => Self::Other,
        }
    }
}

impl Idempotence {
    /// Whether the statement may be sent twice.
    pub fn is_proven(self) -> bool {
        self == Self::Yes
    }

    /// Of both together, as in a batch: the first that may not decides.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No(why), _) | (_, Self::No(why)) => Self::No(why),
            (Self::WithTimestamp, _) | (_, Self::WithTimestamp) => Self::WithTimestamp,
            (Self::Yes, Self::Yes) => Self::Yes,
        }
    }
}

impl fmt::Display for Idempotence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => formatter.write_str("idempotent"),
            Self::WithTimestamp => formatter.write_str(
                "not idempotent: it has no timestamp of the client, a late copy would win",
            ),
            Self::No(why) => write!(formatter, "not idempotent: {why}"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Conditional => "it is conditional (IF)",
            Self::Counter => "it adds to a counter",
            Self::ListOperation => "it appends to a list, puts before it or takes from it",
            Self::ListWhole => "it writes a list whole, which two copies leave twice",
            Self::ListElement => "it writes or deletes by what may be a position in a list",
            Self::UnknownType => "a bound value may be a list or a counter (prepare it)",
            Self::MapKeys => "keys of a map in it may be equal (bind the map)",
            Self::Function => "it calls a function in what it writes",
            Self::Json => "it writes JSON, which may hold a list",
            Self::Truncate => "it removes all rows",
            Self::Schema => "it changes the schema",
            Self::Role => "it changes roles or permissions",
            Self::Session => "it changes the connection",
            Self::Unknown => "its form is not known",
        })
    }
}

impl Bound<'_> {
    /// Nothing is known of what is bound.
    pub const UNKNOWN: Self = Self { shapes: None, has_unset: true };
}

/// What the text alone tells of a statement's idempotence.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Findings {
    /// The first reason against it.
    pub(super) why: Option<Why>,
    /// How the statement, or the part that has the least, is stamped.
    pub(super) stamp: Stamp,
    /// The markers whose types decide.
    pub(super) open: Vec<(u16, Place)>,
    /// All markers of the text.
    pub(super) markers: usize,
}

/// Where a write's timestamp comes from; what says less comes later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Stamp {
    /// Nothing is written, or the text has the timestamp.
    #[default]
    Text,
    /// A bind marker.
    Marker,
    /// Not from the text.
    None,
}

/// What a bound value is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// It becomes the column's value.
    Whole,
    /// It is added to the column's, or taken from it.
    Change,
    /// It tells an element of the column.
    Element,
}

impl Findings {
    pub(super) fn refused(why: Why) -> Self {
        Self { why: Some(why), ..Self::default() }
    }

    /// Notes a reason against, unless there is an earlier one.
    pub(super) fn refuse(&mut self, why: Why) {
        self.why.get_or_insert(why);
    }

    pub(super) fn verdict(&self, bound: Bound<'_>, has_timestamp: bool) -> Idempotence {
        if let Some(why) = self.why.or_else(|| self.against(bound.shapes)) {
            return Idempotence::No(why);
        }
        let is_stamped = match self.stamp {
            Stamp::Text => true,
            Stamp::Marker => has_timestamp || !bound.has_unset,
            Stamp::None => has_timestamp,
        };
        if is_stamped { Idempotence::Yes } else { Idempotence::WithTimestamp }
    }

    /// The first reason against that a bound value's type is.
    fn against(&self, shapes: Option<&[Shape]>) -> Option<Why> {
        // Cassandra may count a named marker once that stands at two places: then no shape has a
        // certain place.
        let shapes = shapes.filter(|shapes| shapes.len() == self.markers);
        self.open.iter().find_map(|(marker, place)| {
            let shape = shapes.and_then(|shapes| shapes.get(usize::from(*marker)));
            shape.map_or(Some(Why::UnknownType), |shape| place.against(*shape))
        })
    }
}

impl Place {
    fn against(self, shape: Shape) -> Option<Why> {
        match (self, shape) {
            (Self::Whole, Shape::List) => Some(Why::ListWhole),
            (Self::Whole, Shape::Counter) => Some(Why::Counter),
            (Self::Change, Shape::List) => Some(Why::ListOperation),
            (Self::Change, Shape::Set | Shape::Map) => None,
            (Self::Change, Shape::Counter | Shape::Int | Shape::Other) => Some(Why::Counter),
            (Self::Element, Shape::Int) => Some(Why::ListElement),
            (Self::Whole | Self::Element, _) => None,
        }
    }
}
