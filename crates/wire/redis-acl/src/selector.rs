//! What one set of rules permits: commands, keys and channels that belong together.

use std::fmt::Write as _;

use super::table::{self, Access, BOTH, CONTAINERS, READ, ROWS, Row, WRITE};
use super::{Denied, RuleError};
use evenkeel_stores::resp::commands::{self, Channels, Class, Command, Keys, Local};
use evenkeel_stores::resp::glob::matches;
use evenkeel_stores::resp::request::Arguments;

/// Bits for the commands of the table.
const WORDS: usize = ROWS.len().div_ceil(64);

/// Rules about commands, keys and channels. A command is permitted if one selector of its user
/// permits all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    allowed: [u64; WORDS],
    /// Also what the table does not know.
    allows_others: bool,
    /// First arguments with which a command is permitted that is not permitted otherwise.
    with_argument: Vec<(usize, String)>,
    /// What was said of commands since the last `+@all` or `-@all`, as it counts.
    said: Vec<String>,
    keys: Patterns<(Access, Vec<u8>)>,
    channels: Patterns<Vec<u8>>,
}

/// Names that are permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Patterns<P> {
    All,
    Some(Vec<P>),
}

impl<P> Default for Patterns<P> {
    fn default() -> Self {
        Self::Some(Vec::new())
    }
}

impl Selector {
    /// Takes one rule; `false` if it is none of a selector.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn take(&mut self, rule: &str) -> Result<bool, RuleError> {
        match rule {
            "allkeys" | "~*" => self.keys = Patterns::All,
            "resetkeys" => self.keys = Patterns::default(),
            "allchannels" | "&*" => self.channels = Patterns::All,
            "resetchannels" => self.channels = Patterns::default(),
            "allcommands" | "+@all" => self.reset_commands(true),
            "nocommands" | "-@all" => self.reset_commands(false),
            _ => match rule.as_bytes().first() {
                Some(b'~') => self.take_keys(BOTH, &rule[1..])?,
                Some(b'%') => {
                    let (access, pattern) = access(rule)?;
                    self.take_keys(access, pattern)?;
                }
                Some(b'&') => self.take_channels(&rule[1..])?,
                Some(b'+') => self.take_command(&rule[1..], true)?,
                Some(b'-') => self.take_command(&rule[1..], false)?,
                _ => return Ok(false),
            },
        }
        Ok(true)
    }

    fn reset_commands(&mut self, all: bool) {
        self.allowed = [if all { u64::MAX } else { 0 }; WORDS];
        self.allows_others = all;
        self.with_argument.clear();
        self.said.clear();
    }

    fn take_keys(&mut self, access: Access, pattern: &str) -> Result<(), RuleError> {
        let Patterns::Some(keys) = &mut self.keys else { return Err(RuleError::BehindAllKeys) };
        match keys.iter_mut().find(|(_, it)| it == pattern.as_bytes()) {
            Some((known, _)) => *known |= access,
            None => keys.push((access, pattern.into())),
        }
        Ok(())
    }

    fn take_channels(&mut self, pattern: &str) -> Result<(), RuleError> {
        let Patterns::Some(channels) = &mut self.channels else {
            return Err(RuleError::BehindAllChannels);
        };
        if !channels.iter().any(|it| it == pattern.as_bytes()) {
            channels.push(pattern.into());
        }
        Ok(())
    }

    /// `+get`, `-config|set`, `+@read`, and (as Redis still takes it) `+select|0`.
    fn take_command(&mut self, what: &str, allow: bool) -> Result<(), RuleError> {
        let what = what.to_ascii_lowercase();
        if let Some(category) = what.strip_prefix('@') {
            if !table::is_category(category) {
                return Err(RuleError::NoCategory);
            }
            self.set(|row| row.is_of(category), allow);
        } else if table::find(&what).is_some() {
            self.set(|row| row.name == what || row.container() == Some(&what), allow);
        } else {
            let (command, argument) = what.split_once('|').ok_or(RuleError::NoCommand)?;
            let index = table::find(command).ok_or(RuleError::NoCommand)?;
            if CONTAINERS.contains(&command) || !allow || argument.is_empty() {
                return Err(RuleError::NoSubcommand);
            }
            if argument.contains('|') {
                return Err(RuleError::ManyArguments);
            }
            self.with_argument.push((index, argument.to_owned()));
        }
        self.say(&what, allow);
        Ok(())
    }

    fn set(&mut self, of: impl Fn(&Row) -> bool, allow: bool) {
        for (index, _) in ROWS.iter().enumerate().filter(|(_, row)| of(row)) {
            let bit = 1 << (index % 64);
            match allow {
                true => self.allowed[index / 64] |= bit,
                false => self.allowed[index / 64] &= !bit,
            }
            self.with_argument.retain(|(of, _)| *of != index);
        }
    }

    /// A later rule about the same, or about all subcommands, takes the place of earlier ones.
    fn say(&mut self, what: &str, allow: bool) {
        self.said.retain(|it| {
            let rest = it[1..].strip_prefix(what);
            !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        });
        self.said.push(format!("{}{what}", if allow { '+' } else { '-' }));
    }

    fn allows(&self, index: usize) -> bool {
        self.allowed[index / 64] >> (index % 64) & 1 == 1
    }

    /// Whether it permits everything there is.
    pub(super) fn is_whole(&self) -> bool {
        self.allows_others
            && (0..ROWS.len()).all(|index| self.allows(index))
            && self.keys == Patterns::All
            && self.channels == Patterns::All
    }

    /// Whether a command is permitted, with its keys and channels.
    ///
    /// # Errors
    /// What of it is not.
    pub(super) fn check(&self, command: &Command, words: Arguments<'_>) -> Result<(), Denied> {
        if command.name.starts_with("ek.") {
            return Ok(()); // of our own: they tell and take positions, and nothing else
        }
        let Some(index) = row_of(command, words) else {
            // How it uses its keys is not known, so all must be permitted.
            let uses_any = self.keys == Patterns::All || command.keys == Keys::None;
            let is_permitted = self.allows_others && uses_any;
            return if is_permitted { Ok(()) } else { Err(of_command(command.name)) };
        };
        let row = &ROWS[index];
        let has_argument = |(of, argument): &(usize, String)| {
            table::find(command.name) == Some(*of) && words.is(1, argument)
        };
        if !self.allows(index)
            && !table::ALWAYS.contains(&row.name)
            && !self.with_argument.iter().any(has_argument)
        {
            return Err(of_command(row.name));
        }
        if table::SCRIPTS.contains(&command.name) && !self.trusts_scripts() {
            return Err(Denied::Script);
        }
        self.check_keys(command, row, words)?;
        self.check_channels(command, words)
    }

    /// What a script does is not looked into: who runs one must be permitted all that it may do.
    fn trusts_scripts(&self) -> bool {
        let may_run = ROWS.iter().enumerate();
        let mut may_run =
            may_run.filter(|(_, row)| row.is_in_scripts && !CONTAINERS.contains(&row.name));
        self.keys == Patterns::All
            && self.channels == Patterns::All
            && may_run.all(|(index, _)| self.allows(index))
    }

    fn check_keys(&self, command: &Command, row: &Row, words: Arguments<'_>) -> Result<(), Denied> {
        let Patterns::Some(permitted) = &self.keys else { return Ok(()) };
        // What is wrong with the command is said when it is carried out: then it is not.
        let Ok(keys) = commands::keys(command, words) else { return Ok(()) };
        let (first, rest) = row_access(row, words);
        let least = keys.clone().min();
        for index in keys {
            let access = if Some(index) == least { first } else { rest };
            let key = words.at(index);
            let permits = |(permitted, pattern): &(Access, Vec<u8>)| {
                permitted & access == access && matches(pattern, key)
            };
            if !permitted.iter().any(permits) {
                return Err(Denied::Key(key.into()));
            }
        }
        let reads_all = permitted.iter().any(|(access, it)| access & READ != 0 && it == b"*");
        let option = reads_elsewhere(command, words).filter(|_| !reads_all);
        option.map_or(Ok(()), |option| Err(Denied::Sort(option)))
    }

    fn check_channels(&self, command: &Command, words: Arguments<'_>) -> Result<(), Denied> {
        let Patterns::Some(permitted) = &self.channels else { return Ok(()) };
        let (names, is_pattern) = match command.class {
            Class::Local(Local::Publish(_)) => (1..2, false),
            Class::Local(Local::Subscribe(kind)) => (1..words.len(), kind == Channels::Patterns),
            _ => return Ok(()),
        };
        for name in names.filter_map(|index| words.get(index)) {
            // A pattern must be one of the permitted ones: what it matches may be more.
            let permits = |it: &Vec<u8>| if is_pattern { it == name } else { matches(it, name) };
            if !permitted.iter().any(permits) {
                return Err(Denied::Channel(name.into()));
            }
        }
        Ok(())
    }

    /// The rules about commands: those that make this of nothing.
    pub(super) fn commands(&self) -> String {
        let base = if self.allows_others { "+@all" } else { "-@all" };
        self.said.iter().fold(base.to_owned(), |text, rule| text + " " + rule)
    }

    pub(super) fn keys(&self) -> String {
        let Patterns::Some(keys) = &self.keys else { return "~*".to_owned() };
        let mut text = String::new();
        for (access, pattern) in keys {
            let sign = match *access {
                READ => "%R~",
                WRITE => "%W~",
                // It is not what forbids further patterns.
                _ if pattern == b"*" => "%RW~",
                _ => "~",
            };
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{sign}{}", String::from_utf8_lossy(pattern));
        }
        text
    }

    pub(super) fn channels(&self) -> String {
        let Patterns::Some(channels) = &self.channels else { return "&*".to_owned() };
        let name = |it: &Vec<u8>| format!("&{}", String::from_utf8_lossy(it));
        channels.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    /// All its rules.
    pub(super) fn describe(&self) -> String {
        let mut parts = vec![self.keys()];
        if self.channels != Patterns::All {
            parts.push("resetchannels".to_owned());
        }
        parts.extend([self.channels(), self.commands()]);
        parts.retain(|part| !part.is_empty());
        parts.join(" ")
    }
}

/// `%RW~pattern`
fn access(rule: &str) -> Result<(Access, &str), RuleError> {
    let (letters, pattern) = rule[1..].split_once('~').ok_or(RuleError::Syntax)?;
    let mut access = table::NONE;
    for letter in letters.bytes() {
        let more = match letter.to_ascii_uppercase() {
            b'R' => READ,
            b'W' => WRITE,
            _ => return Err(RuleError::Syntax),
        };
        if access & more != 0 {
            return Err(RuleError::Syntax);
        }
        access |= more;
    }
    if access == table::NONE { Err(RuleError::Syntax) } else { Ok((access, pattern)) }
}

fn of_command(name: &str) -> Denied {
    Denied::Command(name.to_owned())
}

/// The row of a command, or of its subcommand.
fn row_of(command: &Command, words: Arguments<'_>) -> Option<usize> {
    if CONTAINERS.contains(&command.name)
        && let Some(sub) = words.get(1).and_then(|word| str::from_utf8(word).ok())
        && sub.len() <= 32
        && let Some(index) = table::find(&format!("{}|{}", command.name, sub.to_ascii_lowercase()))
    {
        return Some(index);
    }
    table::find(command.name)
}

/// What is done to the first key and to the others; of some commands the options decide.
fn row_access(row: &Row, words: Arguments<'_>) -> (Access, Access) {
    let first = match row.name {
        "set" if !(3..words.len()).any(|index| words.is(index, "get")) => WRITE,
        "bitfield" if only_gets(words) => READ,
        _ => row.first,
    };
    (first, row.rest)
}

/// Whether a `BITFIELD` has nothing but `GET type offset`.
fn only_gets(words: Arguments<'_>) -> bool {
    words.len() % 3 == 2 && (2..words.len()).step_by(3).all(|index| words.is(index, "get"))
}

/// The option of a `SORT` that reads keys which it does not name.
fn reads_elsewhere(command: &Command, words: Arguments<'_>) -> Option<&'static str> {
    if !matches!(command.name, "sort" | "sort_ro") {
        return None;
    }
    let has_pattern = |index: usize| words.get(index).is_some_and(|it| it.contains(&b'*'));
    (2..words.len()).find_map(|index| {
        if words.is(index, "by") && has_pattern(index + 1) {
            return Some("BY");
        }
        (words.is(index, "get") && words.get(index + 1).is_some()).then_some("GET")
    })
}
