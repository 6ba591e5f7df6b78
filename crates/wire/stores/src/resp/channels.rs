//! Channels: who listens to which, what `PUBSUB` says of them, and messages as bytes.

use std::collections::{BTreeMap, BTreeSet};

use super::commands::{self, Channels, Class, Local};
use super::request::Arguments;
use super::{Protocol, encode, glob};

/// What is published: where, to which name, and what.
pub type Message<'a> = (Channels, &'a [u8], &'a [u8]);

/// Takes apart `PUBLISH` and `SPUBLISH`, which lie one after the other.
pub fn for_each_message(commands: &[u8], mut act: impl FnMut(Message<'_>)) {
    commands::for_each(commands, |known| {
        if let Some((command, arguments)) = known
            && let Class::Local(Local::Publish(kind)) = command.class
            && command.accepts(arguments.len())
        {
            act((kind, arguments.at(1), arguments.at(2)));
        }
    });
}

/// Who listens to what; `I` names a client.
#[derive(Clone, Debug)]
pub struct Subscriptions<I> {
    of_name: BTreeMap<Channels, BTreeMap<Box<[u8]>, BTreeSet<I>>>,
    count: usize,
    bytes: usize,
}

/// What one client listens to.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    names: BTreeMap<Channels, BTreeSet<Box<[u8]>>>,
}

impl Listening {
    /// How many subscriptions a confirmation tells: channels and patterns together.
    pub fn count(&self, kind: Channels) -> usize {
        let of = |kind| self.names.get(&kind).map_or(0, BTreeSet::len);
        match kind {
            Channels::Sharded => of(kind),
            Channels::Plain | Channels::Patterns => of(Channels::Plain) + of(Channels::Patterns),
        }
    }

    /// Whether it listens to nothing.
    pub fn is_empty(&self) -> bool {
        self.names.values().all(BTreeSet::is_empty)
    }

    /// Everything of a kind.
    pub fn names(&self, kind: Channels) -> impl Iterator<Item = &Box<[u8]>> {
        self.names.get(&kind).into_iter().flatten()
    }
}

impl<I> Default for Subscriptions<I> {
    fn default() -> Self {
        Self { of_name: BTreeMap::new(), count: 0, bytes: 0 }
    }
}

impl<I: Copy + Ord> Subscriptions<I> {
    /// How many there are, and bytes of their names.
    pub const fn size(&self) -> (usize, usize) {
        (self.count, self.bytes)
    }

    /// A client listens to one more; whether it did not before.
    pub fn add(&mut self, id: I, listening: &mut Listening, kind: Channels, name: &[u8]) -> bool {
        let is_new = listening.names.entry(kind).or_default().insert(name.into());
        if is_new {
            let names = self.of_name.entry(kind).or_default();
            names.entry(name.into()).or_default().insert(id);
            self.count += 1;
            self.bytes += name.len();
        }
        is_new
    }

    /// A client listens to one less; whether it did before.
    pub fn remove(
        &mut self,
        id: I,
        listening: &mut Listening,
        kind: Channels,
        name: &[u8],
    ) -> bool {
        let was_there = listening.names.get_mut(&kind).is_some_and(|names| names.remove(name));
        if was_there && let Some(names) = self.of_name.get_mut(&kind) {
            self.count -= 1;
            self.bytes -= name.len();
            if let Some(clients) = names.get_mut(name) {
                clients.remove(&id);
                if clients.is_empty() {
                    names.remove(name);
                }
            }
        }
        was_there
    }

    /// Who listens to a name.
    pub fn of(&self, kind: Channels, name: &[u8]) -> impl Iterator<Item = I> {
        let clients = self.of_name.get(&kind).and_then(|names| names.get(name));
        clients.into_iter().flatten().copied()
    }

    /// Patterns that a channel matches, and who listens to each.
    pub fn matching(&self, channel: &[u8]) -> Vec<(Box<[u8]>, Vec<I>)> {
        let patterns = self.of_name.get(&Channels::Patterns).into_iter().flatten();
        let matching = patterns.filter(|(pattern, _)| glob::matches(pattern, channel));
        matching.map(|(pattern, who)| (pattern.clone(), who.iter().copied().collect())).collect()
    }

    /// The reply to `PUBSUB …`
    pub fn describe(&self, arguments: Arguments<'_>, out: &mut Vec<u8>) {
        let word = arguments.at(1).to_ascii_lowercase();
        let is_sharded = word.starts_with(b"shard");
        let kind = if is_sharded { Channels::Sharded } else { Channels::Plain };
        match word.strip_prefix(b"shard".as_slice()).unwrap_or(&word) {
            b"channels" if arguments.len() <= 3 => {
                let names = self.of_name.get(&kind).into_iter().flatten().map(|(name, _)| &**name);
                let is_meant = |name: &&[u8]| {
                    arguments.get(2).is_none_or(|pattern| glob::matches(pattern, name))
                };
                let names: Vec<&[u8]> = names.filter(is_meant).collect();
                encode::array(out, names.len());
                names.iter().for_each(|name| encode::bulk(out, name));
            }
            b"numsub" => {
                encode::array(out, (arguments.len() - 2) * 2);
                for name in arguments.iter().skip(2) {
                    encode::bulk(out, name);
                    encode::integer(out, self.of(kind, name).count() as i64);
                }
            }
            b"numpat" if arguments.len() == 2 && !is_sharded => {
                let count = self.of_name.get(&Channels::Patterns).map_or(0, BTreeMap::len);
                encode::integer(out, count as i64);
            }
            b"numpat" if !is_sharded => {
                encode::error(out, "ERR wrong number of arguments for 'pubsub|numpat' command");
            }
            b"channels" => {
                let name = String::from_utf8_lossy(arguments.at(1));
                let text = format!(
                    "ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB \
                     HELP."
                );
                encode::error(out, &text);
            }
            _ => {
                let name = String::from_utf8_lossy(arguments.at(1));
                let text = format!("ERR unknown subcommand '{name}'. Try PUBSUB HELP.");
                encode::error(out, &text);
            }
        }
    }
}

/// Confirms a subscription, or its end; `name` is none where there was nothing to end.
pub fn confirm(
    out: &mut Vec<u8>,
    protocol: Protocol,
    (kind, is_on): (Channels, bool),
    name: Option<&[u8]>,
    count: usize,
) {
    let verb: &[u8] = match (kind, is_on) {
        (Channels::Plain, true) => b"subscribe",
        (Channels::Plain, false) => b"unsubscribe",
        (Channels::Patterns, true) => b"psubscribe",
        (Channels::Patterns, false) => b"punsubscribe",
        (Channels::Sharded, true) => b"ssubscribe",
        (Channels::Sharded, false) => b"sunsubscribe",
    };
    encode::push(out, 3, protocol);
    encode::bulk(out, verb);
    match name {
        Some(name) => encode::bulk(out, name),
        None => encode::null(out, protocol),
    }
    encode::integer(out, count as i64);
}

/// What a client of RESP2 that listens is told of any command but those about its subscriptions.
pub fn only_listens(command: &str) -> String {
    format!(
        "ERR Can't execute '{command}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
         RESET are allowed in this context"
    )
}
