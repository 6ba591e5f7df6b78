//! What clients do beside plain reads and writes, and what must hold of it whatever fails: scripts,
//! queues, `WATCH`, consumer groups, channels.
//!
//! | what | rule |
//! |---|---|
//! | scripts | a count and a set that a script changes together agree, each call has happened once |
//! | queues | what was pushed is popped once or left; a pop of unknown outcome may have one |
//! | `WATCH` | each transaction that was carried out counts one: none overwrote another |
//! | groups | no entry is delivered to two consumers, and none is lost |
//! | channels | a message comes once at most, and behind none that was published after its answer |
//! | refused messages | never come |

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_testkit::redis::{Client, Reply, State};

use super::outcome::Outcome;
use super::random::Random;

const PATIENCE: Duration = Duration::from_secs(3);
const SCRIPT: &str = "redis.call('INCR', KEYS[1]) return redis.call('SADD', KEYS[2], ARGV[1])";
const GROUP: [&str; 2] = ["{g}stream", "workers"];
const PAUSE: Duration = Duration::from_millis(4);

/// What one client knows of a thing that must happen once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Done,
    Unknown,
}

/// What all clients know.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    scripts: BTreeMap<String, Known>,
    watched: BTreeMap<String, Known>,
    pushed: BTreeMap<String, Known>,
    popped: Vec<String>,
    /// Pops that may have had one.
    unknown_pops: usize,
    added: BTreeMap<String, Known>,
    delivered: Vec<String>,
    /// Readings of a group that may have had some.
    unknown_readings: usize,
    pub(crate) aborted: u64,
    /// Of the one publisher, as they came.
    heard: Vec<u64>,
    /// All but those that were refused; what is done was answered before the next was published.
    published: BTreeMap<u64, Known>,
}

/// Which of the things a client does.
#[derive(Debug, Clone, Copy)]
enum Role {
    Script,
    Push,
    Pop,
    Watch,
    Add,
    Consume,
    Publish,
    Listen,
}

const ROLES: [Role; 10] = [
    Role::Script,
    Role::Script,
    Role::Push,
    Role::Pop,
    Role::Watch,
    Role::Watch,
    Role::Add,
    Role::Consume,
    Role::Publish,
    Role::Listen,
];

/// Clients, as many as do these things at once.
pub(crate) const CLIENTS: usize = ROLES.len();

struct Doer<'a> {
    addresses: &'a [SocketAddr],
    place: usize,
    client: Option<Client>,
    operations: &'a AtomicU64,
    deeds: Deeds,
}

/// One client until it is told to stop; what it asks is counted.
pub(crate) fn run(
    number: usize,
    (addresses, seed): (&[SocketAddr], u64),
    (stop, operations): (&AtomicBool, &AtomicU64),
) -> Deeds {
    let (place, deeds) = (number, Deeds::default());
    let mut doer = Doer { addresses, place, client: None, operations, deeds };
    let (mut random, mut serial) = (Random(seed + number as u64), 0);
    while !stop.load(Ordering::Relaxed) {
        serial += 1;
        let name = format!("{number}.{serial}");
        match ROLES[number] {
            Role::Script => doer.script(&name),
            Role::Push => doer.push(&name),
            Role::Pop => doer.pop(random.below(2) == 0),
            Role::Watch => doer.watch(&name),
            Role::Add => doer.add(&name),
            Role::Consume => doer.consume(&format!("c{number}")),
            Role::Publish => doer.publish(serial),
            Role::Listen => doer.listen(stop),
        }
        std::thread::sleep(PAUSE);
    }
    doer.deeds
}

impl Doer<'_> {
    fn ask(&mut self, command: &[&str]) -> Outcome {
        if self.client.is_none() {
            let address = self.addresses[self.place % self.addresses.len()];
            self.client = Client::try_connect(address, PATIENCE).ok();
        }
        let Some(client) = &mut self.client else {
            self.place += 1;
            return Outcome::Refused("nobody is there".to_owned());
        };
        self.operations.fetch_add(1, Ordering::Relaxed);
        match Outcome::of(client.try_ask(command)) {
            Outcome::Unknown => {
                (self.client, self.place) = (None, self.place + 1);
                Outcome::Unknown
            }
            // One that led may not apply what it was uncertain of.
            Outcome::Uncertain => Outcome::Unknown,
            Outcome::Done(Reply::Error(text)) if text.starts_with("TRYAGAIN") => {
                Outcome::Refused(text)
            }
            outcome => outcome,
        }
    }

    fn known(outcome: &Outcome) -> Option<Known> {
        match outcome {
            Outcome::Done(Reply::Error(text)) => panic!("refused, but why? {text}"),
            Outcome::Done(_) => Some(Known::Done),
            Outcome::Unknown | Outcome::Uncertain => Some(Known::Unknown),
            Outcome::Refused(_) => None,
        }
    }

    fn script(&mut self, name: &str) {
        let outcome = self.ask(&["EVAL", SCRIPT, "2", "{w}count", "{w}set", name]);
        if let Some(known) = Self::known(&outcome) {
            self.deeds.scripts.insert(name.to_owned(), known);
        }
    }

    fn push(&mut self, name: &str) {
        let outcome = self.ask(&["LPUSH", "{q}queue", name]);
        if let Some(known) = Self::known(&outcome) {
            self.deeds.pushed.insert(name.to_owned(), known);
        }
    }

    fn pop(&mut self, waits: bool) {
        let command = if waits { &["BRPOP", "{q}queue", "1"][..] } else { &["RPOP", "{q}queue"] };
        let popped = match self.ask(command) {
            Outcome::Done(Reply::Array(pair)) => {
                pair.last().and_then(Reply::text).map(str::to_owned)
            }
            Outcome::Done(value @ Reply::Bulk(_)) => value.text().map(str::to_owned),
            Outcome::Unknown => {
                self.deeds.unknown_pops += 1;
                None
            }
            outcome => {
                Self::known(&outcome);
                None
            }
        };
        self.deeds.popped.extend(popped);
    }

    /// Adds one to what it reads, if nobody else did meanwhile.
    fn watch(&mut self, name: &str) {
        if !matches!(self.ask(&["WATCH", "{x}count"]), Outcome::Done(Reply::Simple(_))) {
            return self.give_up();
        }
        let count = match self.ask(&["GET", "{x}count"]) {
            Outcome::Done(Reply::Null) => 0,
            Outcome::Done(value @ Reply::Bulk(_)) => value.text().unwrap().parse::<u64>().unwrap(),
            _ => return self.give_up(),
        };
        let next = (count + 1).to_string();
        for command in [&["MULTI"][..], &["SET", "{x}count", &next], &["SADD", "{x}set", name]] {
            if !matches!(self.ask(command), Outcome::Done(Reply::Simple(_))) {
                return self.give_up();
            }
        }
        match self.ask(&["EXEC"]) {
            Outcome::Done(Reply::Null) => self.deeds.aborted += 1,
            Outcome::Done(Reply::Array(_)) => {
                self.deeds.watched.insert(name.to_owned(), Known::Done);
            }
            Outcome::Done(Reply::Error(text)) if text.starts_with("EXECABORT") => {}
            outcome => {
                if let Some(known) = Self::known(&outcome) {
                    self.deeds.watched.insert(name.to_owned(), known);
                }
                self.give_up();
            }
        }
    }

    /// Its next connection begins with nothing.
    fn give_up(&mut self) {
        self.client = None;
    }

    fn add(&mut self, name: &str) {
        let outcome = self.ask(&["XADD", GROUP[0], "*", "name", name]);
        if let Some(known) = Self::known(&outcome) {
            self.deeds.added.insert(name.to_owned(), known);
        }
    }

    fn consume(&mut self, consumer: &str) {
        let [stream, group] = GROUP;
        let read = ["XREADGROUP", "GROUP", group, consumer, "COUNT", "7", "STREAMS", stream, ">"];
        let entries = match self.ask(&read) {
            Outcome::Done(Reply::Array(streams)) => entries(&streams),
            Outcome::Done(Reply::Error(text)) if text.starts_with("NOGROUP") => {
                self.ask(&["XGROUP", "CREATE", stream, group, "0", "MKSTREAM"]);
                return;
            }
            Outcome::Unknown => {
                self.deeds.unknown_readings += 1;
                return;
            }
            outcome => {
                Self::known(&outcome);
                return;
            }
        };
        for (id, name) in entries {
            self.deeds.delivered.push(name);
            self.ask(&["XACK", stream, group, &id]);
        }
    }

    fn publish(&mut self, serial: u64) {
        let outcome = self.ask(&["PUBLISH", "channel", &serial.to_string()]);
        if let Some(known) = Self::known(&outcome) {
            self.deeds.published.insert(serial, known);
        }
    }

    /// Listens until the connection ends or it is told to stop.
    fn listen(&mut self, stop: &AtomicBool) {
        if !matches!(self.ask(&["SUBSCRIBE", "channel"]), Outcome::Done(Reply::Array(_))) {
            return self.give_up();
        }
        while let Some(client) = &mut self.client
            && !stop.load(Ordering::Relaxed)
        {
            let Ok(Reply::Array(message)) = client.try_read() else { break };
            let Some(Ok(number)) = message.last().and_then(Reply::text).map(str::parse::<u64>)
            else {
                continue;
            };
            self.deeds.heard.push(number);
        }
        self.give_up();
    }
}

/// Ids and names of the entries of one stream.
fn entries(streams: &[Reply]) -> Vec<(String, String)> {
    let inner = |reply: &Reply| match reply {
        Reply::Array(items) => items.clone(),
        other => panic!("{other:?}"),
    };
    let Some(stream) = streams.first() else { return Vec::new() };
    let all = inner(&inner(stream)[1]);
    let entry = |entry: &Reply| {
        let parts = inner(entry);
        let name = inner(&parts[1])[1].text().unwrap().to_owned();
        (parts[0].text().unwrap().to_owned(), name)
    };
    all.iter().map(entry).collect()
}

impl Deeds {
    /// Takes in another's.
    pub(crate) fn merge(&mut self, other: Self) {
        self.scripts.extend(other.scripts);
        self.watched.extend(other.watched);
        self.pushed.extend(other.pushed);
        self.popped.extend(other.popped);
        self.unknown_pops += other.unknown_pops;
        self.added.extend(other.added);
        self.delivered.extend(other.delivered);
        self.unknown_readings += other.unknown_readings;
        self.aborted += other.aborted;
        self.heard.extend(other.heard);
        self.published.extend(other.published);
    }

    /// How much of each was done, for people.
    pub(crate) fn told(&self) -> String {
        format!(
            "{} scripts, {} pushed, {} popped, {} transactions with WATCH and {} broken, {} \
             entries, {} delivered, {} messages, {} of these late",
            self.scripts.len(),
            self.pushed.len(),
            self.popped.len(),
            self.watched.len(),
            self.aborted,
            self.added.len(),
            self.delivered.len(),
            self.heard.len(),
            self.heard.windows(2).filter(|pair| pair[1] < pair[0]).count()
        )
    }

    /// What the final state contradicts.
    pub(crate) fn violations(&self, state: &State) -> Vec<String> {
        let mut found = Vec::new();
        for (what, calls, prefix) in
            [("script", &self.scripts, "{w}"), ("WATCH", &self.watched, "{x}")]
        {
            let set = items(state, &format!("{prefix}set"));
            let all: BTreeSet<&str> = set.iter().map(String::as_str).collect();
            check_once(what, calls, &all, &mut found);
            let count = state.get(&format!("{prefix}count")).and_then(|it| it.0.text());
            let count: usize = count.map_or(0, |it| it.parse().unwrap());
            if count != set.len() {
                found.push(format!("{what}: {count} counted, {} in the set", set.len()));
            }
        }
        self.check_queue(&items(state, "{q}queue"), &mut found);
        self.check_group(state, &mut found);
        self.check_messages(&mut found);
        found
    }

    fn check_messages(&self, found: &mut Vec<String>) {
        let (mut seen, mut last) = (BTreeSet::new(), 0);
        for &message in &self.heard {
            if !seen.insert(message) {
                found.push(format!("message {message} came twice"));
            }
            match self.published.get(&message) {
                None => found.push(format!("message {message} was refused and came")),
                // Whoever waits for the answer no more, and publishes by another connection, may be
                // heard by that first.
                Some(Known::Unknown) => {}
                Some(Known::Done) if message < last => {
                    found.push(format!("message {message} was answered and came behind {last}"));
                }
                Some(Known::Done) => {}
            }
            last = last.max(message);
        }
    }

    fn check_queue(&self, left: &[String], found: &mut Vec<String>) {
        let mut seen = BTreeSet::new();
        for item in self.popped.iter().chain(left) {
            if !seen.insert(item.as_str()) {
                found.push(format!("queue: {item} was there twice"));
            }
            if !self.pushed.contains_key(item) {
                found.push(format!("queue: nobody pushed {item}"));
            }
        }
        let done = self.pushed.iter().filter(|(_, known)| **known == Known::Done);
        let lost = done.filter(|(item, _)| !seen.contains(item.as_str())).count();
        if lost > self.unknown_pops {
            let unknown = self.unknown_pops;
            found.push(format!("queue: {lost} are lost, {unknown} pops are of unknown outcome"));
        }
    }

    fn check_group(&self, state: &State, found: &mut Vec<String>) {
        let names: Vec<String> = match state.get(GROUP[0]) {
            Some((Reply::Array(all), _)) => {
                let stream = Reply::Array(vec![Reply::Null, Reply::Array(all.clone())]);
                entries(&[stream]).into_iter().map(|(_, name)| name).collect()
            }
            _ => Vec::new(),
        };
        let all: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        if all.len() != names.len() {
            found.push(format!("group: {} entries are there twice", names.len() - all.len()));
        }
        check_once("group", &self.added, &all, found);
        let mut seen = BTreeSet::new();
        for name in &self.delivered {
            if !seen.insert(name.as_str()) {
                found.push(format!("group: {name} was delivered twice"));
            }
            if !all.contains(name.as_str()) {
                found.push(format!("group: {name} was delivered and is not there"));
            }
        }
    }
}

/// What was done is there, and what is there somebody wanted.
fn check_once(
    what: &str,
    calls: &BTreeMap<String, Known>,
    all: &BTreeSet<&str>,
    found: &mut Vec<String>,
) {
    for (name, known) in calls {
        if *known == Known::Done && !all.contains(name.as_str()) {
            found.push(format!("{what}: {name} was acknowledged and is lost"));
        }
    }
    for name in all {
        if !calls.contains_key(*name) {
            found.push(format!("{what}: {name} was refused and is there"));
        }
    }
}

/// The items of a list or set.
fn items(state: &State, key: &str) -> Vec<String> {
    match state.get(key) {
        Some((Reply::Array(items), _)) => {
            items.iter().map(|item| item.text().unwrap().to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(items: &[&str]) -> Reply {
        Reply::Array(items.iter().map(|item| Reply::bulk(item)).collect())
    }

    fn known(items: &[&str]) -> BTreeMap<String, Known> {
        items.iter().map(|&item| (item.to_owned(), Known::Done)).collect()
    }

    fn good() -> (Deeds, State) {
        let entry = |id, name| Reply::Array(vec![Reply::bulk(id), array(&["name", name])]);
        let deeds = Deeds {
            scripts: known(&["a", "b"]),
            watched: known(&["a"]),
            pushed: known(&["1", "2", "3"]),
            popped: vec!["1".to_owned()],
            added: known(&["e", "f"]),
            delivered: vec!["e".to_owned()],
            // Nobody knew of the fourth when the fifth was published.
            heard: vec![1, 2, 5, 4],
            published: [(1, Known::Done), (2, Known::Done), (4, Known::Unknown), (5, Known::Done)]
                .into(),
            ..Deeds::default()
        };
        let none = Reply::Integer(-1);
        let state = [
            ("{w}count", Reply::bulk("2")),
            ("{w}set", array(&["a", "b"])),
            ("{x}count", Reply::bulk("1")),
            ("{x}set", array(&["a"])),
            ("{q}queue", array(&["2", "3"])),
            ("{g}stream", Reply::Array(vec![entry("1-0", "e"), entry("2-0", "f")])),
        ];
        let state = state.into_iter().map(|(key, value)| (key.to_owned(), (value, none.clone())));
        (deeds, state.collect())
    }

    type Spoil = fn(&mut Deeds, &mut State);

    #[test]
    fn what_is_right_is_accepted_and_each_wrong_is_found() {
        let (deeds, state) = good();
        assert_eq!(deeds.violations(&state), Vec::<String>::new());
        let spoilt: [(&str, Spoil); 12] = [
            ("script: b was acknowledged", |_, it| drop(set(it, "{w}set", array(&["a"])))),
            ("script: c was refused", |_, it| drop(set(it, "{w}set", array(&["a", "b", "c"])))),
            ("script: 3 counted", |_, it| drop(set(it, "{w}count", Reply::bulk("3")))),
            ("WATCH: 2 counted", |_, it| drop(set(it, "{x}count", Reply::bulk("2")))),
            ("queue: 1 are lost", |_, it| drop(set(it, "{q}queue", array(&["2"])))),
            ("queue: 1 was there twice", |it, _| it.popped.push("1".to_owned())),
            ("queue: nobody pushed 9", |it, _| it.popped.push("9".to_owned())),
            ("group: e was delivered twice", |it, _| it.delivered.push("e".to_owned())),
            ("group: e was acknowledged", |_, it| drop(it.remove("{g}stream"))),
            ("message 5 came twice", |it, _| it.heard.push(5)),
            ("message 3 was answered and came behind 5", |it, _| {
                it.heard.push(3);
                it.published.insert(3, Known::Done);
            }),
            ("message 6 was refused and came", |it, _| it.heard.push(6)),
        ];
        for (expected, spoil) in spoilt {
            let (mut deeds, mut state) = good();
            spoil(&mut deeds, &mut state);
            let found = deeds.violations(&state);
            assert!(found.iter().any(|it| it.contains(expected)), "{expected}: {found:?}");
        }
        // A pop of which nobody knows may have had one.
        let (mut deeds, mut state) = good();
        set(&mut state, "{q}queue", array(&["2"]));
        deeds.unknown_pops = 1;
        assert_eq!(deeds.violations(&state), Vec::<String>::new());
    }

    fn set(state: &mut State, key: &str, value: Reply) -> Option<(Reply, Reply)> {
        state.insert(key.to_owned(), (value, Reply::Integer(-1)))
    }
}
