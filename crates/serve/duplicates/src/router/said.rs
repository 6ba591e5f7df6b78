//! What a client has said of its connection, which every session that is opened for it is told.

use std::collections::BTreeMap;

use evenkeel_stores::resp::commands::{Command, Local};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::request::Arguments;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Said {
    /// Of `HELLO`: 2 or 3.
    pub(super) protocol: Option<Vec<u8>>,
    /// User and password.
    pub(super) who: Option<(Vec<u8>, Vec<u8>)>,
    name: Vec<u8>,
    database: Option<Vec<u8>>,
    /// `CLIENT SETINFO`, by what it sets.
    about: BTreeMap<Vec<u8>, Vec<u8>>,
    /// `EK.SESSION level`
    level: Option<Vec<u8>>,
}

impl Said {
    /// Whether a command says such a thing.
    pub(super) fn is_of(command: &Command, local: Local, arguments: Arguments<'_>) -> bool {
        match local {
            Local::Auth | Local::Hello | Local::Select | Local::Session => true,
            _ => {
                command.name == "client"
                    && (arguments.is(1, "setname") || arguments.is(1, "setinfo"))
            }
        }
    }

    /// Notes what a command has said that was not refused.
    pub(super) fn note(&mut self, local: Local, arguments: Arguments<'_>) {
        let of = |at: usize| arguments.get(at).unwrap_or_default().to_vec();
        match local {
            Local::Auth if arguments.len() == 2 => self.who = Some((b"default".to_vec(), of(1))),
            Local::Auth => self.who = Some((of(1), of(2))),
            Local::Hello => {
                self.protocol = arguments.get(1).map(<[u8]>::to_vec).or(self.protocol.take());
                let mut at = 2;
                while at < arguments.len() {
                    let is_auth = arguments.is(at, "auth");
                    match is_auth {
                        true => self.who = Some((of(at + 1), of(at + 2))),
                        false => self.name = of(at + 1),
                    }
                    at += if is_auth { 3 } else { 2 };
                }
            }
            Local::Select => self.database = Some(of(1)),
            Local::Session => self.level = Some(of(1)),
            _ if arguments.is(1, "setname") => self.name = of(2),
            _ => drop(self.about.insert(of(2).to_ascii_lowercase(), of(3))),
        }
    }

    /// The commands that say all of it, and how many they are.
    pub(super) fn commands(&self) -> (Vec<u8>, usize) {
        let mut commands: Vec<Vec<&[u8]>> = Vec::new();
        let who = self.who.as_ref().map(|(user, password)| [&b"AUTH"[..], user, password]);
        match (&self.protocol, who) {
            (Some(version), who) => {
                let hello: [&[u8]; 2] = [b"HELLO", version];
                commands.push(hello.into_iter().chain(who.into_iter().flatten()).collect());
            }
            (None, Some(who)) => commands.push(who.to_vec()),
            (None, None) => {}
        }
        if !self.name.is_empty() {
            commands.push(vec![b"CLIENT", b"SETNAME", &self.name]);
        }
        let about = self.about.iter();
        commands.extend(about.map(|(what, text)| vec![&b"CLIENT"[..], b"SETINFO", what, text]));
        commands.extend(self.database.iter().map(|number| vec![&b"SELECT"[..], number]));
        commands.extend(self.level.iter().map(|level| vec![&b"EK.SESSION"[..], level]));
        let mut out = Vec::new();
        commands.iter().for_each(|words| encode::command(&mut out, words));
        (out, commands.len())
    }
}
