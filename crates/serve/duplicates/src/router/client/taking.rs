//! Where a command goes: to the group of its keys, to one group, to all, or nowhere.

use std::sync::Arc;

use super::super::backend::{Kind, Owed};
use super::super::joined::{Join, group_of};
use super::super::said::Said;
use super::{Client, Replies};
use evenkeel_leadership::Group;
use evenkeel_stores::resp::commands::{
    self, Channels, Class, Command, Keys, Local, Merge, Whole, refusals,
};
use evenkeel_stores::resp::hash::slot;
use evenkeel_stores::resp::locate::CROSSING;
use evenkeel_stores::resp::request::Arguments;
use evenkeel_stores::resp::{cluster, encode, whole};
use evenkeel_stores::store::keys::Servers;

/// The group of scripts without keys.
pub(super) const HOME: usize = 0;

const NO_NUMBERS: &str = "ERR a service of several groups of partitions has a session with each \
    for a client, of other numbers: CLIENT KILL and CLIENT UNBLOCK are for its clients of Redis \
    Cluster";
const NO_AUTH: &str = "NOAUTH Authentication required.";
pub(super) const NO_MONITOR: &str = "ERR MONITOR shows what one group of partitions takes: ask for \
    it at that group's own door, as a client of Redis Cluster";
pub(super) const NO_TRACKING: &str = "ERR a service of several groups of partitions has a session \
    with each for a client, which cannot tell it of changes in one order: track keys as a client \
    of Redis Cluster, at each group's own door";
const WAITS_FOR_SEVERAL: &str = "CROSSSLOT Keys in request don't hash to the same slot: a command \
    that waits cannot wait in several groups of partitions, give its keys a common {tag}";

/// A command as it came.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) command: &'static Command,
    pub(super) class: Class,
    pub(super) arguments: Arguments<'a>,
    pub(super) bytes: &'a [u8],
}

/// Where keys, or channels of shards, are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It names none.
    Nowhere,
    In(usize),
    Several,
}

/// Whom a command without keys is for.
enum Reach {
    Home,
    /// All groups.
    All(Join),
    /// Those that somebody leads.
    Led(Join),
}

impl Asked<'_> {
    /// What it is to whoever sends it again.
    pub(super) fn kind(&self) -> Kind {
        match self.class {
            Class::Waits(_) => Kind::Waits,
            Class::Local(Local::Publish(_) | Local::Function) => Kind::Write,
            Class::Whole(Whole::Flush | Whole::Libraries { changes: true }) => Kind::Write,
            Class::Read | Class::Local(_) | Class::Refused(_) | Class::Whole(_) => Kind::Read,
            Class::Write(_) | Class::Rewritten(..) | Class::Effects => Kind::Write,
        }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        self.arguments.is(1, word)
    }

    /// It is about what a client keeps of what it reads.
    pub(super) fn tracks(&self) -> bool {
        self.is("tracking") || self.is("caching")
    }

    fn reach(&self) -> Reach {
        let of_all = |words: &[&str]| words.iter().any(|word| self.is(word));
        match self.class {
            Class::Whole(Whole::Keys) => Reach::All(Join::Arrays),
            Class::Whole(Whole::Count) => Reach::All(Join::Sum),
            Class::Whole(Whole::Flush | Whole::Libraries { changes: true }) => {
                Reach::All(Join::First)
            }
            Class::Local(Local::Script | Local::Function) if self.is("kill") => {
                Reach::Led(Join::Any)
            }
            Class::Local(Local::Script) if of_all(&["load", "flush"]) => Reach::All(Join::First),
            Class::Local(Local::Config) if !of_all(&["get", "help"]) => Reach::All(Join::First),
            Class::Local(Local::Client) if of_all(&["pause", "unpause"]) => Reach::All(Join::First),
            Class::Local(Local::AskAll) => Reach::All(Join::First),
            Class::Local(Local::Wait) => Reach::Led(Join::Least),
            Class::Local(Local::Info) => Reach::Led(Join::Info),
            _ => Reach::Home,
        }
    }

    /// Whether it is more than one group's, so that no transaction holds it together.
    pub(super) fn is_of_all(&self) -> bool {
        let is_drawn = matches!(self.class, Class::Whole(Whole::Random | Whole::Scan));
        is_drawn || matches!(self.reach(), Reach::All(_))
    }
}

impl Client {
    pub(super) fn group_of(&self, key: &[u8]) -> usize {
        Group::of_slot(slot(key), self.router.groups())
    }

    pub(super) fn place_of<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) -> Place {
        let Some(first) = keys.next().map(|key| self.group_of(key)) else { return Place::Nowhere };
        match keys.all(|key| self.group_of(key) == first) {
            true => Place::In(first),
            false => Place::Several,
        }
    }

    /// Where what a command names is.
    ///
    /// # Errors
    /// When its keys cannot be found: what Redis would answer.
    pub(super) fn place_of_command(&self, asked: &Asked<'_>) -> Result<Place, &'static str> {
        let Asked { command, class, arguments, .. } = *asked;
        Ok(match class {
            Class::Local(Local::Publish(Channels::Sharded)) => {
                self.place_of(arguments.get(1).into_iter())
            }
            _ => {
                let keys = commands::keys(command, arguments).map_err(|refusal| refusal.0)?;
                self.place_of(keys.map(|at| arguments.at(at)))
            }
        })
    }

    pub(super) fn refuse(&mut self, text: &str) -> bool {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_spoiled = true;
        }
        self.tell(|out, _| encode::error(out, text));
        true
    }

    pub(super) fn ok(&mut self) -> bool {
        self.tell(|out, _| encode::simple(out, "OK"));
        true
    }

    /// Has one group do a command.
    pub(super) fn forward(&mut self, group: usize, kind: Kind, asked: &Asked<'_>) -> bool {
        let place = self.place(Join::First, 1);
        self.send(group, Owed::new(Some((place, 0)), asked.bytes, kind));
        true
    }

    /// Has these groups do it.
    pub(super) fn spread(&mut self, groups: &[usize], join: Join, asked: &Asked<'_>) -> u64 {
        let place = self.place(join, groups.len());
        for (part, group) in groups.iter().enumerate() {
            let owed = Owed::new(Some((place, part)), asked.bytes, asked.kind());
            self.send(*group, owed);
        }
        place
    }

    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.router.groups()).collect()
    }

    /// Takes one command; false = not yet: everything before it is to be answered first.
    pub(super) fn take(&mut self, arguments: Arguments<'_>, bytes: &[u8]) -> bool {
        let Some(command) = commands::lookup(arguments.at(0)) else {
            let mut said = Vec::new();
            commands::unknown(arguments, &mut said);
            return self.refuse_as(&said);
        };
        if !command.accepts(arguments.len()) {
            let mut said = Vec::new();
            commands::wrong_arity(command, &mut said);
            return self.refuse_as(&said);
        }
        if self.is_disowned() {
            self.is_ending = true;
            return true;
        }
        let class = commands::classify(command, arguments);
        let is_greeting =
            matches!(class, Class::Local(Local::Auth | Local::Hello | Local::Quit | Local::Reset));
        if self.user.is_none() && !is_greeting {
            return self.refuse(NO_AUTH);
        }
        let asked = Asked { command, class, arguments, bytes };
        if self.transaction.is_some() && !matches!(class, Class::Local(Local::Quit | Local::Reset))
        {
            return self.take_within(&asked);
        }
        match class {
            Class::Local(local) => self.take_local(local, &asked),
            Class::Whole(Whole::Scan) => self.scan(&asked),
            Class::Whole(Whole::Random) => self.draw(&asked),
            Class::Whole(Whole::Sort { .. }) => self.refuse(refusals::SORT_PATTERNS),
            Class::Whole(Whole::ScanPart) => self.take_keys(&asked),
            Class::Whole(_) | Class::Refused(_) => self.take_reach(&asked),
            _ => self.take_keys(&asked),
        }
    }

    fn refuse_as(&mut self, said: &[u8]) -> bool {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_spoiled = true;
        }
        self.tell(|out, _| out.extend_from_slice(said));
        true
    }

    /// Whether its user was changed or is gone.
    fn is_disowned(&mut self) -> bool {
        let has_changed = self.users.has_changed().unwrap_or(false);
        let users = Arc::clone(&self.users.borrow_and_update());
        has_changed && self.user.as_ref().is_some_and(|user| users.lacks(user))
    }

    /// Refuses what is not sent as it came and its user may not do; whether it did.
    pub(super) fn is_denied(&mut self, asked: &Asked<'_>) -> bool {
        let user = self.user.clone();
        let denied = user.and_then(|user| user.check(asked.command, asked.arguments).err());
        denied.is_some_and(|denied| self.refuse(&denied.reply()))
    }

    fn take_keys(&mut self, asked: &Asked<'_>) -> bool {
        match self.place_of_command(asked) {
            Err(text) => self.refuse(text),
            Ok(Place::Nowhere) => self.forward(HOME, asked.kind(), asked),
            Ok(Place::In(group)) => {
                self.forward(group, asked.kind(), asked);
                self.is_blocked = matches!(asked.class, Class::Waits(_));
                self.is_held |= self.is_blocked;
                true
            }
            Ok(Place::Several) => match (asked.command.merge, asked.class) {
                (Some(_), _) if self.router.servers == Servers::Nodes => {
                    self.refuse(cluster::CROSSSLOT.0)
                }
                (Some(merge), _) => self.split(merge, asked),
                (None, Class::Waits(_)) => self.refuse(WAITS_FOR_SEVERAL),
                (None, _) => self.refuse(CROSSING.0),
            },
        }
    }

    /// Has each group do its part of a command.
    fn split(&mut self, merge: Merge, asked: &Asked<'_>) -> bool {
        if self.is_denied(asked) {
            return true;
        }
        let Asked { command, arguments, .. } = *asked;
        let keys = match commands::keys(command, arguments) {
            Ok(keys) => keys,
            Err(refusal) => return self.refuse(refusal.0),
        };
        let Keys::Span { step, .. } = command.keys else { return self.refuse(CROSSING.0) };
        let mut parts: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut count = 0;
        for (number, at) in keys.enumerate() {
            let group = self.group_of(arguments.at(at));
            match parts.iter_mut().find(|(known, _)| *known == group) {
                Some((_, places)) => places.push(number),
                None => parts.push((group, vec![number])),
            }
            count = number + 1;
        }
        let join = match merge {
            Merge::Same => Join::First,
            Merge::Sum => Join::Sum,
            Merge::Values => {
                Join::Values(count, parts.iter().map(|(_, places)| places.clone()).collect())
            }
        };
        let place = self.place(join, parts.len());
        for (part, (group, places)) in parts.iter().enumerate() {
            let step = usize::from(step);
            let of_key = |number: &usize| {
                let first = 1 + number * step;
                first..first + step
            };
            let words = places.iter().flat_map(of_key).map(|at| arguments.at(at));
            let words: Vec<&[u8]> = std::iter::once(arguments.at(0)).chain(words).collect();
            let mut bytes = Vec::new();
            encode::command(&mut bytes, &words);
            self.send(*group, Owed::new(Some((place, part)), &bytes, asked.kind()));
        }
        true
    }

    fn take_reach(&mut self, asked: &Asked<'_>) -> bool {
        let (groups, join) = match asked.reach() {
            Reach::Home => return self.forward(self.home, asked.kind(), asked),
            Reach::All(join) => (self.all(), join),
            Reach::Led(join) => {
                let mut groups = self.all();
                groups.retain(|group| self.router.ways.is_led(*group));
                match groups.is_empty() {
                    true => return self.forward(self.home, asked.kind(), asked),
                    false => (groups, join),
                }
            }
        };
        self.spread(&groups, join, asked);
        true
    }

    /// `SCAN cursor …`: one group after the other.
    fn scan(&mut self, asked: &Asked<'_>) -> bool {
        let groups = self.router.groups();
        let cursor = whole::cursor(asked.arguments.at(1));
        // A cursor of before the last change begins again, as at a server that it is not of.
        let Some(cursor) = cursor else { return self.refuse(whole::INVALID_CURSOR) };
        let (number, own) = group_of(cursor, groups).unwrap_or_default();
        let group = Group { number, of: groups };
        let mut bytes = Vec::new();
        whole::write_scan(asked.arguments, 1, own, &mut bytes);
        let place = self.place(Join::Scan(group), 1);
        self.send(number, Owed::new(Some((place, 0)), &bytes, Kind::Read));
        true
    }

    /// `RANDOMKEY`: one of each group is drawn, and of these one by how many each has.
    fn draw(&mut self, asked: &Asked<'_>) -> bool {
        let groups = self.router.groups();
        let number = self.router.random();
        let place = self.place(Join::Draw(number), groups * 2);
        for group in 0..groups {
            self.send(group, Owed::new(Some((place, group * 2)), asked.bytes, Kind::Read));
            let counted = Owed::new(Some((place, group * 2 + 1)), b"DBSIZE\r\n", Kind::Read);
            self.send(group, counted);
        }
        true
    }

    fn take_local(&mut self, local: Local, asked: &Asked<'_>) -> bool {
        let Asked { command, arguments, .. } = *asked;
        let listens = self.listens();
        match local {
            _ if Said::is_of(command, local, arguments) => self.say(local, asked),
            Local::Ping if arguments.len() < 3 && !listens => {
                let _ = self.is_denied(asked) || self.pong(arguments);
                true
            }
            Local::Multi => self.multi(asked),
            Local::Watch => self.watch(asked),
            Local::Unwatch => match self.watches.take() {
                Some(group) => self.forward(group, Kind::Within, asked),
                None => self.ok(),
            },
            Local::Subscribe(kind) => self.subscribe(kind, asked),
            Local::Unsubscribe(kind) => self.unsubscribe(kind, asked),
            Local::Publish(_) => self.publish(asked),
            Local::Quit => {
                self.ok();
                self.is_ending = true;
                true
            }
            Local::Reset if self.owes() => false,
            Local::Reset => {
                self.reset();
                self.tell(|out, _| encode::simple(out, "RESET"));
                true
            }
            Local::Client if asked.is("reply") && arguments.len() == 3 => self.wants(asked),
            Local::Acl if asked.is("load") && arguments.len() == 2 => self.load_users(asked),
            Local::Client if asked.is("kill") || asked.is("unblock") => self.refuse(NO_NUMBERS),
            Local::Client if asked.tracks() => self.refuse(NO_TRACKING),
            Local::Monitor => self.refuse(NO_MONITOR),
            Local::Token => {
                let at = self.router.door.clone();
                self.refuse(&format!(
                    "ERR each group of partitions has an order of writes of its own, and a token \
                     is of one: ask for it as a client of Redis Cluster, at {at}"
                ))
            }
            Local::Relayed => self.refuse(
                "ERR EK.RELAYED is for processes of a service, expected at the door of a group",
            ),
            _ => self.take_reach(asked),
        }
    }

    fn pong(&mut self, arguments: Arguments<'_>) -> bool {
        self.tell(|out, _| match arguments.get(1) {
            Some(text) => encode::bulk(out, text),
            None => encode::simple(out, "PONG"),
        });
        true
    }

    /// What a client says of itself is said to all its sessions, behind what they owe.
    fn say(&mut self, local: Local, asked: &Asked<'_>) -> bool {
        if self.owes() {
            return false;
        }
        let level = asked.arguments.get(1).unwrap_or_default();
        if local == Local::Session && level.contains(&b'-') && level.first() != Some(&b'r') {
            return self.take_local(Local::Token, asked);
        }
        let is_open = |group: &usize| *group == self.home || self.sessions[*group].is_some();
        let groups: Vec<usize> = self.all().into_iter().filter(is_open).collect();
        self.spread(&groups, Join::First, asked);
        self.says(local, asked.bytes);
        self.is_held = true;
        true
    }

    /// `CLIENT REPLY ON|OFF|SKIP`
    fn wants(&mut self, asked: &Asked<'_>) -> bool {
        let word = asked.arguments.at(2).to_ascii_lowercase();
        match word.as_slice() {
            b"on" => {
                self.replies = Replies::All;
                self.ok()
            }
            b"off" => {
                self.replies = Replies::None;
                true
            }
            b"skip" => {
                if self.replies == Replies::All {
                    self.replies = Replies::AllButNext;
                }
                true
            }
            _ => self.refuse("ERR syntax error"),
        }
    }

    /// `ACL LOAD`: of the process that the client has come to.
    fn load_users(&mut self, asked: &Asked<'_>) -> bool {
        if self.router.access.acl_file.is_none() {
            return self.take_reach(asked);
        }
        if self.is_denied(asked) {
            return true;
        }
        match self.router.access.load() {
            Ok(users) => {
                tracing::info!(users = users.iter().len(), "users were loaded");
                self.router.users.send_replace(Arc::new(users));
                self.ok()
            }
            Err(error) => {
                tracing::warn!(%error, "users stay as they are");
                self.refuse(&format!("ERR {error} (the users stay as they are)"))
            }
        }
    }
}
