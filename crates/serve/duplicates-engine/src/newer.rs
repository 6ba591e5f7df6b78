//! Commands that our table does not have and all duplicates do: newer ones, and those of modules.
//!
//! When a client gives a command that is not known, all live duplicates are asked which commands
//! they have (`COMMAND`), once until a duplicate is live anew. Where all of them say the same of
//! it, [`newer`] says what is done with it. Of duplicates that are newer than our table it is
//! asked without a client: what a script does there is read from a stream, and may be such a
//! command.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_ordered::ServerSet;

use super::Inner;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::commands::newer::{self, Said};
use evenkeel_stores::resp::commands::{self, Command, refusals};

/// How long nobody is asked after one has not answered.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The version whose commands our table has.
const TABLE: &str = "7.0.";
/// Clients that wait for the answers at once; others are told to ask again.
const WAITING_MAX: usize = 1024;
const NOBODY: &str = "UNAVAILABLE a duplicate has not said which commands it has: ask again";

/// By name: the command, or why it is refused.
type Commands = BTreeMap<String, Result<&'static Command, &'static str>>;

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Newer {
    /// `None` = not known since a duplicate is live anew.
    known: Option<Commands>,
    /// Rises when a duplicate is live anew.
    generation: u64,
    /// That of the question under way.
    asked: Option<u64>,
    /// When somebody did not answer.
    failed_at: Option<Instant>,
    waiting: Vec<ClientId>,
}

impl Newer {
    /// A duplicate is live anew: it may have other commands.
    pub(super) fn forget(&mut self) {
        self.generation += 1;
        (self.known, self.failed_at) = (None, None);
    }

    /// Whether a command of this name is done.
    pub(super) fn is_taken(&self, name: &[u8]) -> bool {
        let found = std::str::from_utf8(name).ok().and_then(|name| self.known.as_ref()?.get(name));
        found.is_some_and(Result::is_ok)
    }
}

impl Inner {
    /// Takes a command that our table does not have; false = not yet.
    pub(super) fn submit_unknown(&mut self, id: ClientId, parsed: ParsedCommand<'_>) -> bool {
        let is_known = self.client(id).is_some_and(|client| client.is_known());
        if !is_known || !self.is_redis() {
            self.refuse_as(id, |out| commands::unknown(parsed.arguments(), out));
            return true;
        }
        let Some(known) = &self.questions.newer.known else { return self.waits_for_newer(id) };
        let name = String::from_utf8_lossy(parsed.argument(0)).to_ascii_lowercase();
        match known.get(&name).copied() {
            Some(Ok(command)) => return self.submit_known(id, command, parsed),
            Some(Err(why)) => self.refuse(id, why),
            None => self.refuse_as(id, |out| commands::unknown(parsed.arguments(), out)),
        }
        true
    }

    /// A client waits until duplicates have said which commands they have; whether its command is
    /// done with.
    fn waits_for_newer(&mut self, id: ClientId) -> bool {
        let failed_at = self.questions.newer.failed_at;
        let has_failed = failed_at.is_some_and(|at| self.now.since(at) < AGAIN_AFTER);
        if has_failed || self.questions.newer.waiting.len() >= WAITING_MAX {
            self.refuse(id, NOBODY);
            return true;
        }
        self.questions.newer.waiting.push(id);
        self.hold(id);
        self.ask_newer();
        false
    }

    fn ask_newer(&mut self) {
        if self.questions.newer.asked.is_some() {
            return;
        }
        self.questions.newer.asked = Some(self.questions.newer.generation);
        self.ask_commands();
    }

    /// Once in a while: duplicates that are newer than our table are asked without a client.
    pub(super) fn look_at_newer(&mut self) {
        let newer = &self.questions.newer;
        let is_early = newer.failed_at.is_some_and(|at| self.now.since(at) < AGAIN_AFTER);
        let is_open = newer.known.is_none() && newer.asked.is_none() && !is_early;
        if is_open && self.is_redis() && !self.all_live().is_empty() && self.has_newer() {
            self.ask_newer();
        }
    }

    fn has_newer(&self) -> bool {
        let versions = self.servers.iter().filter_map(|server| server.version.as_ref());
        versions.into_iter().any(|version| !version.starts_with(TABLE))
    }

    /// Duplicates have said which commands they have, as far as they have answered in time.
    pub(super) fn newer_told(&mut self, answers: &[(usize, Vec<u8>)]) {
        let asked = self.questions.newer.asked.take();
        if asked == Some(self.questions.newer.generation) {
            let told: ServerSet = answers.iter().map(|(server, _)| *server).collect();
            let live = self.all_live();
            if live.is_empty() || !live.without(told).is_empty() {
                self.questions.newer.failed_at = Some(self.now);
            } else {
                let said: Vec<_> = answers.iter().map(|(_, reply)| newer::read(reply)).collect();
                self.questions.newer.known = Some(of_all(&said));
                self.questions.forget_described();
            }
        }
        for id in std::mem::take(&mut self.questions.newer.waiting) {
            self.release(id);
        }
    }
}

/// What becomes of the commands that each of them has, beyond our table.
fn of_all(said: &[BTreeMap<String, Said>]) -> Commands {
    let mut found: BTreeMap<&str, (&Said, usize, bool)> = BTreeMap::new();
    for (name, it) in said.iter().flatten() {
        let (first, count, is_same) = found.entry(name).or_insert((it, 0, true));
        *count += 1;
        *is_same &= *first == it;
    }
    let judged = found.into_iter().map(|(name, (said_of, count, is_same))| {
        let command = match (count == said.len(), is_same) {
            (true, true) => newer::note(said_of),
            (false, _) => Err(refusals::NEWER_NOT_ALL),
            (true, false) => Err(refusals::NEWER_DIFFERS),
        };
        (name.to_owned(), command)
    });
    judged.collect()
}

#[cfg(test)]
mod tests;
