//! One user: how it is known, and what it may do.

use ring::digest::{SHA256, digest};

use super::selector::Selector;
use super::{Denied, RuleError};
use evenkeel_stores::resp::commands::Command;
use evenkeel_stores::resp::connections::is_same_secret;
use evenkeel_stores::resp::request::Arguments;
use evenkeel_stores::resp::{Protocol, encode};

/// A password, hashed.
type Hash = [u8; 32];

/// A user, with the rules that Redis's `ACL SETUSER` has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    name: String,
    is_on: bool,
    needs_no_password: bool,
    skips_sanitizing: bool,
    passwords: Vec<Hash>,
    root: Selector,
    selectors: Vec<Selector>,
    /// Nothing of what it does needs to be looked at.
    is_whole: bool,
}

impl User {
    /// One who is off, has no password and may do nothing.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_on: false,
            needs_no_password: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            root: Selector::default(),
            selectors: Vec::new(),
            is_whole: false,
        }
    }

    /// `default` as Redis has it: everything, with this password or without any.
    pub(super) fn unlimited(password: Option<&str>) -> Self {
        let mut user = Self::new(super::DEFAULT);
        let known = password.map_or("nopass".to_owned(), |password| format!(">{password}"));
        for rule in ["on", &known, "~*", "&*", "+@all"] {
            user.take(rule).expect("these are rules");
        }
        user.settle();
        user
    }

    /// Takes one rule.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn take(&mut self, rule: &str) -> Result<(), RuleError> {
        let hash_of = |text: &str| {
            let hash = digest(&SHA256, text.as_bytes());
            Hash::try_from(hash.as_ref()).expect("SHA-256 has 32 bytes")
        };
        match rule.to_ascii_lowercase().as_str() {
            "on" => self.is_on = true,
            "off" => self.is_on = false,
            "nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            "resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            "sanitize-payload" => self.skips_sanitizing = false,
            "skip-sanitize-payload" => self.skips_sanitizing = true,
            "clearselectors" => self.selectors.clear(),
            "reset" => *self = Self::new(&self.name),
            word => match rule.as_bytes().first() {
                Some(b'>') => self.add(hash_of(&rule[1..])),
                Some(b'#') => self.add(unhex(&rule[1..])?),
                Some(b'<') => self.remove(hash_of(&rule[1..]))?,
                Some(b'!') => self.remove(unhex(&rule[1..])?)?,
                Some(b'(') => self.selectors.push(selector(rule)?),
                // Patterns tell upper from lower case.
                Some(b'~' | b'%' | b'&') => self.take_root(rule)?,
                _ => self.take_root(word)?,
            },
        }
        Ok(())
    }

    fn take_root(&mut self, rule: &str) -> Result<(), RuleError> {
        if self.root.take(rule)? { Ok(()) } else { Err(RuleError::Syntax) }
    }

    fn add(&mut self, hash: Hash) {
        self.needs_no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove(&mut self, hash: Hash) -> Result<(), RuleError> {
        let place = self.passwords.iter().position(|it| *it == hash);
        self.passwords.remove(place.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// All its rules have come.
    pub(super) fn settle(&mut self) {
        self.is_whole = self.root.is_whole();
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether anybody is it who says its name.
    pub const fn needs_no_password(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Whether this is its password, and it is on.
    pub fn is(&self, password: &[u8]) -> bool {
        let said = digest(&SHA256, password);
        let is_one = self.passwords.iter().fold(false, |is_one, expected| {
            is_one | is_same_secret(expected, said.as_ref()) // as long as there are passwords
        });
        self.is_on && (self.needs_no_password || is_one)
    }

    /// Whether it may do this.
    ///
    /// # Errors
    /// What it may not.
    #[inline]
    pub fn check(&self, command: &Command, words: Arguments<'_>) -> Result<(), Denied> {
        if self.is_whole { Ok(()) } else { self.check_rules(command, words) }
    }

    fn check_rules(&self, command: &Command, words: Arguments<'_>) -> Result<(), Denied> {
        let mut denied = match self.root.check(command, words) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        for selector in &self.selectors {
            match selector.check(command, words) {
                Ok(()) => return Ok(()),
                // What came closest is said.
                Err(other) if other.rank() > denied.rank() => denied = other,
                Err(_) => {}
            }
        }
        Err(denied)
    }

    /// As a line of an ACL file, with hashes of its passwords.
    pub fn describe(&self) -> String {
        let mut parts = vec![format!("user {}", self.name)];
        parts.extend(self.flags().into_iter().map(ToOwned::to_owned));
        parts.extend(self.passwords.iter().map(|hash| format!("#{}", hex(hash))));
        parts.push(self.root.describe());
        parts.extend(self.selectors.iter().map(|it| format!("({})", it.describe())));
        parts.join(" ")
    }

    fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.needs_no_password.then_some("nopass"));
        flags.extend(self.skips_sanitizing.then_some("skip-sanitize-payload"));
        flags
    }

    /// The answer to `ACL GETUSER`.
    pub fn write(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let flags = self.flags();
        encode::map(out, 6, protocol);
        encode::bulk(out, b"flags");
        encode::set(out, flags.len(), protocol);
        flags.iter().for_each(|flag| encode::bulk(out, flag.as_bytes()));
        encode::bulk(out, b"passwords");
        encode::array(out, self.passwords.len());
        self.passwords.iter().for_each(|hash| encode::bulk(out, hex(hash).as_bytes()));
        write_selector(&self.root, out);
        encode::bulk(out, b"selectors");
        encode::array(out, self.selectors.len());
        for selector in &self.selectors {
            encode::map(out, 3, protocol);
            write_selector(selector, out);
        }
    }
}

fn write_selector(selector: &Selector, out: &mut Vec<u8>) {
    let (commands, keys) = (selector.commands(), selector.keys());
    let parts = [("commands", commands), ("keys", keys), ("channels", selector.channels())];
    for (name, value) in &parts {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
}

/// `(rule rule…)`
fn selector(text: &str) -> Result<Selector, RuleError> {
    let rules = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let mut selector = Selector::default();
    for rule in rules.ok_or(RuleError::Parenthesis)?.split_ascii_whitespace() {
        let is_pattern = rule.starts_with(['~', '%', '&']);
        let lower = rule.to_ascii_lowercase();
        if !selector.take(if is_pattern { rule } else { &lower })? {
            return Err(RuleError::Syntax);
        }
    }
    Ok(selector)
}

fn unhex(text: &str) -> Result<Hash, RuleError> {
    let digits = text.as_bytes();
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 64 || !digits.iter().all(is_digit) {
        return Err(RuleError::Hash);
    }
    let value = |digit: u8| if digit < b'a' { digit - b'0' } else { digit - b'a' + 10 };
    let mut hash = Hash::default();
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        *byte = value(pair[0]) << 4 | value(pair[1]);
    }
    Ok(hash)
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("four bits");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
