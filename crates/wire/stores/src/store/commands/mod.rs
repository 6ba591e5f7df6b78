//! What commands do to entries in memory, and what they answer: as Redis 7, for every store.
//!
//! A command runs on an [`Overlay`]: the entries of its batch as they were loaded, changed by the
//! commands before it. Errors have the words of Redis, since clients compare them.

mod hashes;
mod keys;
mod sets;
mod strings;

use std::borrow::Cow;
use std::collections::btree_map::Entry as Slots;
use std::collections::{BTreeMap, BTreeSet};

use super::{Abilities, Change, Entry, Value};
use crate::resp::Protocol;
use crate::resp::encode;
use crate::resp::request::Arguments;

/// An error as it is answered, its code first.
pub(super) type Fault = Cow<'static, str>;

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;
type Members = BTreeSet<Vec<u8>>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const OVERFLOW: &str = "ERR increment or decrement would overflow";
const SYNTAX: &str = "ERR syntax error";

/// How a command is run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Run {
    /// On entries.
    Keys(fn(&mut Call<'_>) -> Result<(), Fault>),
    /// On the whole store: lists keys.
    List,
    /// Counts keys.
    Count,
    /// Removes all.
    Clear,
}

/// What a command needs of its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    Nothing,
    Collections,
    Expiry,
}

/// Where the keys are among the arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keys {
    None,
    First,
    All,
    /// Every second one.
    Pairs,
}

/// A command that is known. `arity` counts its name; negative = at least so many.
#[derive(Debug)]
struct Known {
    name: &'static str,
    arity: i32,
    keys: Keys,
    needs: Needs,
    run: Run,
}

const fn known(
    name: &'static str,
    arity: i32,
    keys: Keys,
    needs: Needs,
    run: fn(&mut Call<'_>) -> Result<(), Fault>,
) -> Known {
    Known { name, arity, keys, needs, run: Run::Keys(run) }
}

const fn whole(name: &'static str, arity: i32, run: Run) -> Known {
    Known { name, arity, keys: Keys::None, needs: Needs::Nothing, run }
}

const COMMANDS: [&[Known]; 4] =
    [&strings::COMMANDS, &keys::COMMANDS, &hashes::COMMANDS, &sets::COMMANDS];

/// A command that can be run.
#[derive(Clone, Debug)]
pub(super) struct Command {
    known: &'static Known,
    arguments: Vec<Vec<u8>>,
}

impl Command {
    /// Whether it is about more than keys that it names.
    pub(super) fn is_of_whole_store(&self) -> bool {
        self.whole().is_some()
    }

    pub(super) fn whole(&self) -> Option<Run> {
        Some(self.known.run).filter(|run| !matches!(run, Run::Keys(_)))
    }

    pub(super) fn arguments(&self) -> &[Vec<u8>] {
        &self.arguments
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let (count, step) = match self.known.keys {
            Keys::None => (0, 1),
            Keys::First => (1, 1),
            Keys::All => (usize::MAX, 1),
            Keys::Pairs => (usize::MAX, 2),
        };
        self.arguments[1..].iter().step_by(step).take(count).map(Vec::as_slice)
    }
}

/// The command of these arguments, if this store has it.
///
/// # Errors
/// What is to be answered instead.
pub(super) fn find(
    arguments: Arguments<'_>,
    store: &str,
    abilities: Abilities,
) -> Result<Command, Fault> {
    let name = arguments.at(0);
    let is_able = |known: &&Known| match known.needs {
        Needs::Nothing => true,
        Needs::Collections => abilities.has_collections,
        Needs::Expiry => abilities.has_expiry,
    };
    let mut all = COMMANDS.iter().copied().flatten();
    let found = all.find(|known| known.name.as_bytes().eq_ignore_ascii_case(name));
    let Some(known) = found.filter(is_able) else {
        let shown: String = String::from_utf8_lossy(name).chars().take(128).collect();
        return Err(format!("ERR store '{store}' has no command '{shown}'").into());
    };
    let fits = match usize::try_from(known.arity) {
        Ok(exactly) => arguments.len() == exactly,
        Err(_) => arguments.len() >= known.arity.unsigned_abs() as usize,
    };
    if !fits || (known.keys == Keys::Pairs && arguments.len().is_multiple_of(2)) {
        return Err(wrong_number(known.name));
    }
    let command = Command { known, arguments: arguments.iter().map(<[u8]>::to_vec).collect() };
    let Abilities { key_bytes_min: least, key_bytes_max: most, .. } = abilities;
    if let Some(key) = command.keys().find(|key| key.len() < least || key.len() > most) {
        let length = key.len();
        return Err(format!(
            "ERR a key of {length} bytes came, store '{store}' keeps keys of {least} to {most}"
        )
        .into());
    }
    Ok(command)
}

fn wrong_number(name: &str) -> Fault {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// Runs a command and writes its reply.
pub(super) fn run(command: &Command, overlay: &mut Overlay, protocol: Protocol, out: &mut Vec<u8>) {
    let Run::Keys(run) = command.known.run else { return };
    let start = out.len();
    let name = command.known.name;
    let mut call = Call { name, arguments: &command.arguments, overlay, protocol, out };
    if let Err(fault) = run(&mut call) {
        out.truncate(start);
        encode::error(out, &fault);
    }
}

/// Entries of one batch.
#[derive(Debug)]
pub(super) struct Overlay {
    slots: BTreeMap<Vec<u8>, Slot>,
    now_ms: u64,
    abilities: Abilities,
    changed_bytes: usize,
}

#[derive(Debug, Default)]
struct Slot {
    entry: Option<Entry>,
    is_changed: bool,
}

impl Overlay {
    /// `entries` are of these keys; what has expired goes.
    pub(super) fn new(
        keys: &[&[u8]],
        entries: Vec<Option<Entry>>,
        now_ms: u64,
        abilities: Abilities,
    ) -> Self {
        let slots = keys.iter().zip(entries).map(|(key, entry)| {
            let has_expired = entry.as_ref().is_some_and(|entry| entry.has_expired(now_ms));
            let entry = entry.filter(|_| !has_expired);
            (key.to_vec(), Slot { entry, is_changed: has_expired })
        });
        Self { slots: slots.collect(), now_ms, abilities, changed_bytes: 0 }
    }

    /// About what [`Overlay::changes`] would give.
    pub(super) const fn changed_bytes(&self) -> usize {
        self.changed_bytes
    }

    /// What has changed since it was asked last.
    pub(super) fn changes(&mut self) -> Vec<Change> {
        self.changed_bytes = 0;
        let changed = self.slots.iter_mut().filter(|(_, slot)| slot.is_changed);
        let changes = changed.map(|(key, slot)| {
            slot.is_changed = false;
            (key.clone(), slot.entry.clone())
        });
        changes.collect()
    }

    fn entry(&self, key: &[u8]) -> Option<&Entry> {
        let entry = self.slots.get(key)?.entry.as_ref();
        entry.filter(|entry| !entry.has_expired(self.now_ms))
    }

    /// The slot of a key that is about to be changed; what has expired is no more.
    fn slot(&mut self, key: &[u8], bytes: usize) -> &mut Slot {
        self.changed_bytes = self.changed_bytes.saturating_add(key.len() + bytes);
        let slot = match self.slots.entry(key.to_vec()) {
            Slots::Occupied(slot) => slot.into_mut(),
            Slots::Vacant(slot) => slot.insert(Slot::default()),
        };
        slot.is_changed = true;
        let now_ms = self.now_ms;
        slot.entry.take_if(|entry| entry.has_expired(now_ms));
        slot
    }

    fn put(&mut self, key: &[u8], value: Value, expires_ms: Option<u64>) {
        let bytes = size(&value);
        self.slot(key, bytes).entry = Some(Entry { value, expires_ms });
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some() && self.slot(key, 0).entry.take().is_some()
    }

    fn text(&self, key: &[u8]) -> Result<Option<&[u8]>, Fault> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    fn hash(&self, key: &[u8]) -> Result<Option<&Fields>, Fault> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Hash(fields)) => Ok(Some(fields)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    fn set(&self, key: &[u8]) -> Result<Option<&Members>, Fault> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Set(members)) => Ok(Some(members)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    /// Changes the value of a key, `empty` if it holds nothing; what is empty afterwards goes.
    fn change<T>(
        &mut self,
        key: &[u8],
        empty: Value,
        change: impl FnOnce(&mut Value) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let bytes = self.entry(key).map_or(0, |entry| size(&entry.value));
        let slot = self.slot(key, bytes);
        let had_one = slot.entry.is_some();
        let entry = slot.entry.get_or_insert(Entry { value: empty, expires_ms: None });
        let changed = change(&mut entry.value);
        let is_empty = match &entry.value {
            Value::Text(_) => changed.is_err() && !had_one,
            Value::Hash(fields) => fields.is_empty(),
            Value::Set(members) => members.is_empty(),
        };
        if is_empty {
            slot.entry = None;
        }
        changed
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Hash(fields) => fields.iter().map(|(field, value)| field.len() + value.len()).sum(),
        Value::Set(members) => members.iter().map(Vec::len).sum(),
    }
}

/// One command being run.
pub(super) struct Call<'a> {
    name: &'static str,
    arguments: &'a [Vec<u8>],
    overlay: &'a mut Overlay,
    protocol: Protocol,
    out: &'a mut Vec<u8>,
}

impl<'a> Call<'a> {
    fn at(&self, index: usize) -> &'a [u8] {
        &self.arguments[index]
    }

    /// The arguments after the first key.
    fn rest(&self) -> &'a [Vec<u8>] {
        &self.arguments[2..]
    }

    fn integer(&mut self, value: i64) {
        encode::integer(self.out, value);
    }

    fn count(&mut self, value: usize) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn ok(&mut self) {
        encode::simple(self.out, "OK");
    }

    fn null(&mut self) {
        encode::null(self.out, self.protocol);
    }

    /// A value, or that there is none.
    fn bulk(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => encode::bulk(self.out, value),
            None => self.null(),
        }
    }

    /// A value that the store can keep.
    fn fitting(&self, value: &Value) -> Result<(), Fault> {
        let (bytes, most) = (size(value), self.overlay.abilities.value_bytes_max);
        if bytes > most {
            return Err(format!(
                "ERR a value of {bytes} bytes, this store keeps values of at most {most}"
            )
            .into());
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: Value, expires_ms: Option<u64>) -> Result<(), Fault> {
        self.fitting(&value)?;
        self.overlay.put(key, value, expires_ms);
        Ok(())
    }

    fn expires(&self, key: &[u8]) -> Option<u64> {
        self.overlay.entry(key).and_then(|entry| entry.expires_ms)
    }
}

/// An integer as Redis reads it: as it would write it, and nothing else.
fn integer(text: &[u8]) -> Option<i64> {
    let value: i64 = str::from_utf8(text).ok()?.parse().ok()?;
    (itoa::Buffer::new().format(value).as_bytes() == text).then_some(value)
}

fn integer_or_fault(text: &[u8]) -> Result<i64, Fault> {
    integer(text).ok_or(Cow::Borrowed(NO_INTEGER))
}
