//! Scripts by their names: `EVALSHA` and `SCRIPT`.
//!
//! Each duplicate forgets its scripts when it restarts, and who does the next one is not known to
//! a client. So the texts are kept here: what comes by its name goes on with its text. `EVAL` makes
//! a text known, as at Redis; a name that is not known gets `NOSCRIPT`, at which every client sends
//! the text. The texts are not in the log: a front that starts knows none.

use super::Inner;
use super::function_flags::Flagged;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::commands::{self, Command, refusals};
use evenkeel_stores::resp::request::{Limits, RequestParser};
use evenkeel_stores::resp::scripts::{self, Scripts};
use evenkeel_stores::resp::{encode, functions};

impl Inner {
    /// `EVAL` makes a script known, `EVALSHA` is taken as `EVAL`, and this of a script that says
    /// that it writes nothing as `EVAL_RO`; `None` = it is taken as it is.
    pub(super) fn submit_script(
        &mut self,
        id: ClientId,
        command: &'static Command,
        parsed: ParsedCommand<'_>,
    ) -> Option<bool> {
        let plain = match command.name {
            "eval" | "eval_ro" => {
                let is_known = self.client(id)?.is_known();
                if is_known && commands::keys(command, parsed.arguments()).is_ok() {
                    self.scripts.remember(parsed.argument(1));
                }
                command
            }
            "evalsha" => commands::lookup(b"eval")?,
            "evalsha_ro" => commands::lookup(b"eval_ro")?,
            "fcall" => return self.submit_function(id, parsed),
            _ => return None,
        };
        let client = self.client(id).filter(|client| client.is_known())?;
        let in_transaction = client.transaction.is_some();
        let is_here = plain == command;
        let is_read = |text: &[u8]| plain.name == "eval" && scripts::is_read_only(text);
        if is_here && !(is_read(parsed.argument(1)) && self.is_redis()) {
            return None;
        }
        let found = match is_here {
            true => Some(parsed.argument(1).into()),
            false => self.scripts.find(parsed.argument(1)),
        };
        let Some(text) = found else {
            if in_transaction || !self.is_redis() {
                return None; // at Redis, too, it is EXEC that finds none
            }
            self.refuse(id, "NOSCRIPT No matching script. Please use EVAL.");
            return Some(true);
        };
        let plain = match is_read(&text) {
            true => commands::lookup(b"eval_ro")?,
            false => plain,
        };
        let mut buffer = Vec::new();
        let name = plain.name.as_bytes();
        let rest = (2..parsed.len()).map(|index| parsed.argument(index));
        let words: Vec<&[u8]> = [name, &text].into_iter().chain(rest).collect();
        encode::command(&mut buffer, &words);
        let mut parser = RequestParser::new(self.config.limits);
        let Ok(Some(length)) = parser.parse(&buffer) else {
            self.refuse(id, "ERR the script and its arguments are too long");
            return Some(true);
        };
        let parsed = ParsedCommand { parser: &parser, buffer: &buffer, length };
        Some(self.submit_as(id, plain, parsed))
    }

    /// `FCALL` of a function that writes nothing is `FCALL_RO`; `None` = it is taken as it is.
    fn submit_function(&mut self, id: ClientId, parsed: ParsedCommand<'_>) -> Option<bool> {
        let client = self.client(id).filter(|client| client.is_known())?;
        if client.transaction.is_some() || !self.is_redis() {
            return None;
        }
        match self.flags_of_function(id, parsed.argument(1)) {
            Flagged::MayWrite => return None,
            Flagged::Asked => return Some(false),
            Flagged::Reads => {}
        }
        let mut buffer = Vec::new();
        let words = parsed.arguments().iter().skip(1);
        let words: Vec<&[u8]> = [&b"fcall_ro"[..]].into_iter().chain(words).collect();
        encode::command(&mut buffer, &words);
        let mut parser = RequestParser::new(Limits::MAX);
        let Ok(Some(length)) = parser.parse(&buffer) else { return None };
        let parsed = ParsedCommand { parser: &parser, buffer: &buffer, length };
        Some(self.submit_as(id, commands::lookup(b"fcall_ro")?, parsed))
    }

    /// `SCRIPT LOAD text`, `SCRIPT EXISTS name …`, `SCRIPT FLUSH [ASYNC|SYNC]`
    pub(super) fn script(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        if let Some(lacks) = self.lacks(parsed.argument(0)) {
            return self.refuse(id, &lacks);
        }
        let what = parsed.argument(1).to_ascii_lowercase();
        match (what.as_slice(), parsed.len()) {
            (b"load", 3) => {
                self.scripts.remember(parsed.argument(2));
                self.ask_one(id, parsed); // whether it is one
            }
            (b"exists", 3..) => {
                let found: Vec<bool> = (2..parsed.len())
                    .map(|index| self.scripts.find(parsed.argument(index)).is_some())
                    .collect();
                self.reply_now(id, |out, _| {
                    encode::array(out, found.len());
                    found.iter().for_each(|&is_known| encode::integer(out, is_known.into()));
                });
            }
            (b"flush", 2 | 3) => {
                let mode = parsed.arguments().get(2).map(<[u8]>::to_ascii_lowercase);
                match mode.as_deref() {
                    None | Some(b"sync" | b"async") => {
                        self.scripts = Scripts::default();
                        self.ask_all(id, parsed); // theirs take memory
                    }
                    Some(_) => self.refuse(id, "ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
                }
            }
            (b"kill", 2) => self.ask_aside(id, parsed),
            (b"help", 2) => self.ask_one(id, parsed),
            (b"load" | b"exists" | b"flush" | b"kill" | b"help", _) => {
                let name = String::from_utf8_lossy(&what);
                let text = format!("ERR wrong number of arguments for 'script|{name}' command");
                self.refuse(id, &text);
            }
            (b"debug", _) => self.refuse(id, refusals::SCRIPT_DEBUG),
            _ => self.refuse_as(id, |out| {
                commands::unknown_subcommand("script", parsed.argument(1), out);
            }),
        }
    }

    /// `FUNCTION KILL`, `FUNCTION STATS`, `FUNCTION HELP`
    pub(super) fn function(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        if let Some(lacks) = self.lacks(parsed.argument(0)) {
            return self.refuse(id, &lacks);
        }
        match functions::subcommand_error(parsed.arguments()) {
            Some(text) => self.refuse(id, &text),
            None if parsed.arguments().is(1, "help") => self.ask_one(id, parsed),
            None => self.ask_aside(id, parsed),
        }
    }
}
