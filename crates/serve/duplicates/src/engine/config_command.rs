//! `CONFIG`: what the duplicates are set to.
//!
//! `GET` is answered by one duplicate, without passwords. `SET` takes what is safe and the same at
//! all duplicates ([`settings::is_changeable`]); those that were away get it when they are live
//! again, as long as this process runs.

use evenkeel_ordered::ServerSet;

use super::Inner;
use super::asking::{Purpose, Whom};
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::{encode, settings};

const SUBCOMMANDS: &[&str] = &["get", "set", "resetstat", "rewrite", "help"];

impl Inner {
    /// `CONFIG GET pattern…`, `CONFIG SET name value…`, `CONFIG RESETSTAT`, `CONFIG HELP`
    pub(super) fn config_command(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let what = parsed.argument(1).to_ascii_lowercase();
        match (what.as_slice(), parsed.len()) {
            (b"get", 3..) if !self.is_redis() => {
                self.reply_now(id, |out, protocol| encode::map(out, 0, protocol));
            }
            (b"get", 3..) => self.put_question(id, Whom::One, Purpose::Shown, parsed.to_vec()),
            (b"set", 4..) if parsed.len().is_multiple_of(2) => self.set_settings(id, parsed),
            (b"resetstat", 2) => self.ask_all(id, parsed),
            (b"rewrite", 2) => self.refuse(
                id,
                "ERR CONFIG REWRITE would change the files of the servers: write settings that \
                 are to stay into them",
            ),
            (b"help", 2) => self.ask_one(id, parsed),
            _ => self.refuse_subcommand(id, "config", SUBCOMMANDS, parsed),
        }
    }

    /// Has all live duplicates do a command as it came.
    pub(super) fn ask_all(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        self.put_question(id, Whom::All, Purpose::Set(Vec::new()), parsed.to_vec());
    }

    fn set_settings(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let arguments: Vec<&[u8]> = parsed.arguments().iter().skip(2).collect();
        let pairs =
            arguments.chunks_exact(2).map(|it| (it[0].to_ascii_lowercase(), it[1].to_vec()));
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = pairs.collect();
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !settings::is_changeable(name)) {
            let text = format!(
                "ERR CONFIG SET failed (possibly related to argument '{}') - it is not set for \
                 all duplicates from here: only encodings, events, what is slow and limits of \
                 scripts are; set it in the configuration of each server",
                String::from_utf8_lossy(&name[..name.len().min(64)])
            );
            return self.refuse(id, &text);
        }
        self.put_question(id, Whom::All, Purpose::Set(pairs), parsed.to_vec());
    }

    /// These duplicates have taken what was set: it is kept for those that were away, also for
    /// those that have come back since.
    pub(super) fn note_settings(&mut self, set: Vec<(Vec<u8>, Vec<u8>)>, have: ServerSet) {
        if set.is_empty() {
            return;
        }
        self.questions.settings.extend(set);
        let live = (0..self.members.partitions()).map(|partition| self.members.live(partition));
        let missing = live.flat_map(|live| live.without(have).iter().collect::<Vec<_>>());
        let missing: ServerSet = missing.collect();
        self.configure(missing);
    }

    /// What is ours and not one server's.
    pub(super) fn own_settings(&self) -> [(&'static str, String); 4] {
        [
            ("port", self.config.listen.port().to_string()),
            ("databases", self.databases().to_string()),
            ("maxclients", self.config.clients_max.to_string()),
            ("cluster-enabled", "no".to_owned()),
        ]
    }
}
