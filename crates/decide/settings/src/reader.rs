//! Reading settings out of a tree, collecting every problem on the way.
//!
//! Three steps name one setting: which key ([`Table::key`]), what it holds ([`Setting`]), and what
//! its absence means ([`Reading`]). None of them fails: a problem is put on the list and reading
//! goes on with a stand-in, so that a person sees all that is wrong at once. The stand-ins never
//! reach anyone, since [`Node::read`] returns a value only when the list is empty.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::{Node, Value};
use crate::problem::{Mismatch, Place, Problem, Problems, joined, quoted};
use crate::units;

const NO_ENTRIES: &BTreeMap<String, Node> = &BTreeMap::new();

impl Node {
    /// Reads a table of settings and reports everything that is wrong with it at once: what the
    /// keys hold, what is missing, and keys that `shape` does not ask for.
    ///
    /// `shape` runs to its end also when something is wrong; see [`Reading::required`].
    ///
    /// # Errors
    /// Every problem found.
    pub fn read<T>(&self, shape: impl FnOnce(&mut Table<'_>) -> T) -> Result<T, Problems> {
        let problems = RefCell::new(Problems::default());
        let (path, node, at) = (String::new(), Some(self), &self.at);
        let root = Setting { path, node, at, problems: Some(&problems) };
        let value = root.table(shape).required();
        problems.into_inner().into_result(value)
    }
}

/// A table being read. It knows which keys were asked for, and reports the others at its end.
#[derive(Debug)]
pub struct Table<'a> {
    path: String,
    at: &'a Place,
    entries: &'a BTreeMap<String, Node>,
    known: Vec<String>,
    /// None when the table is missing, which is reported already: its keys are not.
    problems: Option<&'a RefCell<Problems>>,
    problems_before: usize,
}

impl<'a> Table<'a> {
    /// The setting under this key. Asking makes the key known.
    pub fn key(&mut self, key: &str) -> Setting<'a> {
        if !self.known.iter().any(|known| known == key) {
            self.known.push(key.to_owned());
        }
        let node = self.entries.get(key);
        let at = node.map_or(self.at, |node| &node.at);
        Setting { path: joined(&self.path, key), node, at, problems: self.problems }
    }

    /// Reports a problem of this key that only the caller can see, such as two settings that
    /// contradict each other.
    pub fn problem(&mut self, key: &str, what: Mismatch) {
        self.key(key).problem(what);
    }

    /// Whether this table is there and has no problem so far. A check across keys asks first:
    /// otherwise it may compare stand-ins.
    pub fn is_sound(&self) -> bool {
        self.problems.is_some_and(|problems| problems.borrow().len() == self.problems_before)
    }

    fn open(setting: &Setting<'a>, entries: &'a BTreeMap<String, Node>) -> Self {
        let Setting { path, at, problems, .. } = setting;
        let problems_before = problems.map_or(0, |problems| problems.borrow().len());
        let path = path.clone();
        Self { path, at, entries, known: Vec::new(), problems: *problems, problems_before }
    }

    fn finish(self) {
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        for (key, node) in self.entries {
            if !known.contains(&key.as_str()) {
                let came = format!("the unknown key {}", quoted(key));
                let what = Mismatch::unknown(came, key, &known);
                report(self.problems, &node.at, &self.path, what);
            }
        }
    }
}

/// One setting: a value that may be there, and its path.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    path: String,
    node: Option<&'a Node>,
    at: &'a Place,
    problems: Option<&'a RefCell<Problems>>,
}

impl<'a> Setting<'a> {
    /// The value as it was written, to look at its kind before reading it as one.
    pub fn value(&self) -> Option<&'a Value> {
        self.node.map(|node| &node.value)
    }

    /// Where the value was written; when it is missing, the table that lacks it.
    #[must_use]
    pub fn place(&self) -> &'a Place {
        self.at
    }

    /// Reports a problem of this setting.
    pub fn problem(&self, what: Mismatch) {
        report(self.problems, self.at, &self.path, what);
    }

    /// A duration in text, such as `"30ms"`.
    pub fn duration(self) -> Reading<'a, Duration> {
        self.quantity(units::DURATION, Duration::ZERO, units::parse_duration)
    }

    /// A size in bytes: a whole number, or a text such as `"64KiB"`.
    pub fn bytes(self) -> Reading<'a, u64> {
        self.quantity(units::BYTES, 0, units::parse_bytes)
    }

    /// A rate per second, finite and not negative: a number, or a text such as `"30k/s"`.
    pub fn rate(self) -> Reading<'a, f64> {
        self.quantity(units::RATE, 0.0, units::parse_rate)
    }

    /// A probability or share between 0 and 1: a number, or a text such as `"5%"`.
    pub fn probability(self) -> Reading<'a, f64> {
        self.quantity(units::SHARE, 0.0, units::parse_share)
    }

    /// A whole number; `1e6` is one too.
    pub fn integer<T: Whole>(self) -> Reading<'a, T> {
        let all = (T::MIN.shown(), T::MAX.shown());
        let expected = format!("a whole number from {} to {}", all.0, all.1);
        self.scalar(expected, T::ZERO, |value| match *value {
            Value::Integer(number) => T::try_from(number).ok(),
            // Within 2^53 every whole number is a float.
            Value::Float(number)
                if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 =>
            {
                T::try_from(number as i64).ok()
            }
            _ => None,
        })
    }

    /// A finite number.
    pub fn number(self) -> Reading<'a, f64> {
        self.scalar("a number", 0.0, |value| match *value {
            Value::Integer(number) => Some(number as f64),
            Value::Float(number) if number.is_finite() => Some(number),
            _ => None,
        })
    }

    /// A truth value.
    pub fn boolean(self) -> Reading<'a, bool> {
        self.scalar("true or false", false, |value| match *value {
            Value::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// A text.
    pub fn text(self) -> Reading<'a, String> {
        self.parsed("a text", String::new(), |text| Ok(text.to_owned()))
    }

    /// An IP address with a port, such as `"127.0.0.1:8080"`.
    pub fn address(self) -> Reading<'a, SocketAddr> {
        let stand_in = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        self.parsed(ADDRESS, stand_in, parse_address)
    }

    /// One of these names.
    ///
    /// # Panics
    /// When there are no names: nothing could be right.
    pub fn choice<'n: 'a>(self, names: &[&'n str]) -> Reading<'a, &'n str> {
        let named: Vec<_> = names.iter().map(|&name| (name, name)).collect();
        self.variant(&named)
    }

    /// What one of these names stands for.
    ///
    /// # Panics
    /// When there are no names: nothing could be right.
    pub fn variant<T: Clone + 'a>(self, named: &[(&str, T)]) -> Reading<'a, T> {
        let (_, stand_in) = named.first().expect("a choice has at least one name").clone();
        let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
        let any = Mismatch::unknown(String::new(), "", &names).expected;
        self.parsed(&any, stand_in, |text| {
            let chosen = named.iter().find(|(name, _)| *name == text);
            let quoted = || quoted(text);
            chosen
                .map(|(_, value)| value.clone())
                .ok_or_else(|| Mismatch::unknown(quoted(), text, &names))
        })
    }

    /// A text that `parse` understands. `stand_in` is what reading goes on with after a problem;
    /// nobody sees it.
    pub fn parsed<T: 'a>(
        self,
        expected: &str,
        stand_in: T,
        parse: impl FnOnce(&str) -> Result<T, Mismatch>,
    ) -> Reading<'a, T> {
        self.converted(
            expected.to_owned(),
            || stand_in,
            |value| match value {
                Value::Text(text) => parse(text),
                Value::Integer(_) | Value::Float(_) | Value::Bool(_) => {
                    let hint = "a text is written in quotes";
                    Err(Mismatch::new(value.described(), expected).with_hint(hint))
                }
                _ => Err(Mismatch::new(value.described(), expected)),
            },
        )
    }

    /// A list, each item read by `item`.
    pub fn list<T: 'a>(self, mut item: impl FnMut(Setting<'a>) -> T) -> Reading<'a, Vec<T>> {
        let (path, problems) = (self.path.clone(), self.problems);
        self.converted("a list".to_owned(), Vec::new, |value| {
            let Value::List(nodes) = value else {
                return Err(Mismatch::new(value.described(), "a list"));
            };
            let setting = |(index, node): (usize, &'a Node)| {
                let path = joined(&path, &index.to_string());
                item(Setting { path, node: Some(node), at: &node.at, problems })
            };
            Ok(nodes.iter().enumerate().map(setting).collect())
        })
    }

    /// A table with names of the writer's own choice as keys, each value read by `entry`.
    pub fn named<T: 'a>(
        self,
        mut entry: impl FnMut(&'a str, Setting<'a>) -> T,
    ) -> Reading<'a, BTreeMap<String, T>> {
        let (path, problems) = (self.path.clone(), self.problems);
        self.converted("a table".to_owned(), BTreeMap::new, |value| {
            let Value::Table(entries) = value else {
                return Err(Mismatch::new(value.described(), "a table"));
            };
            let setting = |(name, node): (&'a String, &'a Node)| {
                let path = joined(&path, name);
                let setting = Setting { path, node: Some(node), at: &node.at, problems };
                (name.clone(), entry(name, setting))
            };
            Ok(entries.iter().map(setting).collect())
        })
    }

    /// A table with the keys that `shape` asks for; any other is reported.
    pub fn table<T: 'a>(self, shape: impl FnOnce(&mut Table<'a>) -> T + 'a) -> Reading<'a, T> {
        let expected = "a table".to_owned();
        match self.value() {
            Some(Value::Table(entries)) => {
                let value = shaped(&self, entries, shape);
                Reading { setting: self, expected, state: State::Good(value) }
            }
            other => {
                let silent = Self { problems: None, ..self.clone() };
                let stand_in = Box::new(move || shaped(&silent, NO_ENTRIES, shape));
                if let Some(value) = other {
                    self.problem(Mismatch::new(value.described(), expected.as_str()));
                }
                Reading { state: State::of_stand_in(other, stand_in), setting: self, expected }
            }
        }
    }

    /// A table that may be left out as if it were empty: its keys then have their defaults, and
    /// those required are reported.
    pub fn section<T: 'a>(self, shape: impl FnOnce(&mut Table<'a>) -> T + 'a) -> T {
        match self.node {
            None => shaped(&self, NO_ENTRIES, shape),
            Some(_) => self.table(shape).required(),
        }
    }

    fn quantity<T: 'a>(
        self,
        expected: &str,
        stand_in: T,
        parse: impl FnOnce(&str) -> Result<T, Mismatch>,
    ) -> Reading<'a, T> {
        self.converted(
            expected.to_owned(),
            || stand_in,
            |value| match value {
                Value::Text(text) => parse(text),
                // A bare number may be a rate, size or share; the parser explains the rest.
                other => parse(&other.described())
                    .map_err(|what| Mismatch { came: other.described(), ..what }),
            },
        )
    }

    fn scalar<T: 'a>(
        self,
        expected: impl Into<String>,
        stand_in: T,
        convert: impl FnOnce(&Value) -> Option<T>,
    ) -> Reading<'a, T> {
        let expected = expected.into();
        self.converted(
            expected.clone(),
            || stand_in,
            |value| convert(value).ok_or_else(|| Mismatch::new(value.described(), expected)),
        )
    }

    fn converted<T>(
        self,
        expected: String,
        stand_in: impl FnOnce() -> T + 'a,
        convert: impl FnOnce(&'a Value) -> Result<T, Mismatch>,
    ) -> Reading<'a, T> {
        let state = match self.value().map(convert) {
            None => State::Absent(Box::new(stand_in)),
            Some(Ok(value)) => State::Good(value),
            Some(Err(what)) => {
                self.problem(what);
                State::Wrong(Box::new(stand_in))
            }
        };
        Reading { setting: self, expected, state }
    }
}

/// What a setting holds, until [`or`](Self::or), [`required`](Self::required) or
/// [`optional`](Self::optional) says what its absence means.
#[must_use = "end with `or`, `required` or `optional`"]
pub struct Reading<'a, T> {
    setting: Setting<'a>,
    expected: String,
    state: State<'a, T>,
}

enum State<'a, T> {
    Good(T),
    Absent(StandIn<'a, T>),
    Wrong(StandIn<'a, T>),
}

type StandIn<'a, T> = Box<dyn FnOnce() -> T + 'a>;

impl<'a, T> Reading<'a, T> {
    /// The value, or this default when the key is absent.
    pub fn or(self, default: T) -> T {
        match self.state {
            State::Good(value) => value,
            State::Absent(_) | State::Wrong(_) => default,
        }
    }

    /// The value; an absent key is a problem.
    ///
    /// After a problem the answer is a stand-in of the same type (zero, an empty text, the lower
    /// end of [`between`](Self::between)), which is thrown away when the reading ends.
    pub fn required(self) -> T {
        match self.state {
            State::Good(value) => value,
            State::Wrong(stand_in) => stand_in(),
            State::Absent(stand_in) => {
                self.setting.problem(Mismatch::new("nothing", self.expected));
                stand_in()
            }
        }
    }

    /// The value, or none when the key is absent.
    pub fn optional(self) -> Option<T> {
        match self.state {
            State::Good(value) => Some(value),
            State::Absent(_) | State::Wrong(_) => None,
        }
    }

    /// Reports a value that fails the check; `expected` says in words what would pass.
    pub fn check(mut self, expected: &str, passes: impl FnOnce(&T) -> bool) -> Self
    where
        T: 'a,
    {
        expected.clone_into(&mut self.expected);
        self.state = match self.state {
            State::Good(value) if !passes(&value) => {
                let came = self.setting.value().map_or_else(String::new, Value::described);
                self.setting.problem(Mismatch::new(came, expected));
                State::Wrong(Box::new(move || value))
            }
            state => state,
        };
        self
    }

    /// Reports a value outside this range, whose ends belong to it.
    pub fn between(self, range: RangeInclusive<T>) -> Self
    where
        T: Quantity + 'a,
    {
        let (low, high) = range.clone().into_inner();
        let (kind, _) = self.expected.split_once(" such as").unwrap_or((&self.expected, ""));
        let (kind, _) = kind.split_once(" from ").unwrap_or((kind, ""));
        let expected = format!("{kind} from {} to {}", low.shown(), high.shown());
        let mut checked = self.check(&expected, |value| range.contains(value));
        if !matches!(checked.state, State::Good(_)) {
            checked.state = checked.state.with_stand_in(Box::new(move || low));
        }
        checked
    }
}

impl<'a, T> State<'a, T> {
    fn of_stand_in(written: Option<&Value>, stand_in: StandIn<'a, T>) -> Self {
        if written.is_some() { Self::Wrong(stand_in) } else { Self::Absent(stand_in) }
    }

    fn with_stand_in(self, stand_in: StandIn<'a, T>) -> Self {
        match self {
            Self::Absent(_) => Self::Absent(stand_in),
            _ => Self::Wrong(stand_in),
        }
    }
}

/// A quantity with an order that messages can show.
pub trait Quantity: PartialOrd + Clone {
    /// The quantity as a person writes it.
    fn shown(&self) -> String;
}

impl Quantity for Duration {
    fn shown(&self) -> String {
        units::format_duration(*self)
    }
}

impl Quantity for f64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

/// A whole number that a setting may hold.
pub trait Whole: Quantity + TryFrom<i64> + 'static {
    /// The least number of this type.
    const MIN: Self;
    /// The greatest number of this type.
    const MAX: Self;
    /// Zero.
    const ZERO: Self;
}

macro_rules! whole {
    ($($type:ident)*) => {$(
        impl Quantity for $type {
            fn shown(&self) -> String {
                self.to_string()
            }
        }

        impl Whole for $type {
            const MIN: Self = Self::MIN;
            const MAX: Self = Self::MAX;
            const ZERO: Self = 0;
        }
    )*};
}

whole!(u8 u16 u32 u64 usize i32 i64);

pub(crate) const ADDRESS: &str = "an IP address with a port such as 127.0.0.1:8080";

pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, Mismatch> {
    text.parse().map(canonical).map_err(|_| {
        let wrong = Mismatch::new(quoted(text), ADDRESS);
        let port_only = text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        match text.parse::<IpAddr>() {
            Ok(_) => wrong.with_hint("the port is missing"),
            Err(_) if port_only => wrong.with_hint(format!("did you mean 127.0.0.1{text}?")),
            Err(_) => wrong,
        }
    })
}

/// An IPv4 address within IPv6 (`[::ffff:127.0.0.1]`) is that IPv4 address to every system, so that
/// equal addresses are equal however they are written.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

fn shaped<'a, T>(
    setting: &Setting<'a>,
    entries: &'a BTreeMap<String, Node>,
    shape: impl FnOnce(&mut Table<'a>) -> T,
) -> T {
    let mut table = Table::open(setting, entries);
    let value = shape(&mut table);
    table.finish();
    value
}

fn report(problems: Option<&RefCell<Problems>>, at: &Place, path: &str, what: Mismatch) {
    if let Some(problems) = problems {
        problems.borrow_mut().push(Problem { at: at.clone(), path: path.to_owned(), what });
    }
}
