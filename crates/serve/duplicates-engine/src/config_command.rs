//! `CONFIG`: what the duplicates are set to.
//!
//! `GET` is answered by one duplicate, without passwords. `SET` takes what is safe and the same at
//! all duplicates ([`settings::is_changeable`]); those that were away get it when they are live
//! again, as long as this process runs. Ours are `timeout`, how long clients may idle here, and
//! `tracking-table-max-keys`.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_ordered::ServerSet;
use evenkeel_runtime::accept::AcceptConfig;
use tokio::sync::watch;

use super::Inner;
use super::asking::{Purpose, Whom};
use super::types::{ClientId, OwnSettings, ParsedCommand};
use evenkeel_duplicates_state::error_counts::ErrorCounts;
use evenkeel_stores::resp::commands::refusals;
use evenkeel_stores::resp::{encode, settings};

const NOT_FROM_HERE: &str = "it is not set for all duplicates from here: only encodings, events, \
    what is slow and limits of scripts are; set it in the configuration of each server";
const SUBCOMMANDS: &[&str] = &["get", "set", "resetstat", "rewrite", "help"];

impl Inner {
    /// Where clients are accepted by what is set here.
    pub fn accept_by(&mut self, accepting: watch::Sender<Arc<AcceptConfig>>) {
        let (idle_max, accepting) = (self.config.idle_max, Some(accepting));
        self.questions.own = OwnSettings { idle_max, accepting };
    }

    /// Whoever has said nothing for so long is cut off.
    fn set_idle_max(&mut self, idle_max: Option<Duration>) {
        self.questions.own.idle_max = idle_max;
        let Some(accepting) = &self.questions.own.accepting else { return };
        accepting.send_modify(|config| {
            let config = Arc::make_mut(config);
            config.idle = idle_max.unwrap_or(Duration::MAX);
            if self.users.nobody().is_some() {
                config.first = config.idle; // as with Redis nothing need come from a new one
            }
        });
    }

    /// `CONFIG GET pattern…`, `CONFIG SET name value…`, `CONFIG RESETSTAT`, `CONFIG HELP`
    pub(super) fn config_command(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let what = parsed.argument(1).to_ascii_lowercase();
        match (what.as_slice(), parsed.len()) {
            (b"get", 3..) if !self.is_redis() => {
                self.reply_now(id, |out, protocol| encode::map(out, 0, protocol));
            }
            (b"get", 3..) => self.put_question(id, Whom::One, Purpose::Shown, parsed.to_vec()),
            (b"set", 4..) if parsed.len().is_multiple_of(2) => self.set_settings(id, parsed),
            (b"resetstat", 2) => {
                self.counts.errors = ErrorCounts::default();
                self.ask_all(id, parsed);
            }
            (b"rewrite", 2) => self.refuse(id, refusals::CONFIG_REWRITE),
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
        if let Some((name, why)) = why_not_own(&pairs) {
            let text =
                format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}");
            return self.refuse(id, &text);
        }
        let theirs: Vec<&(Vec<u8>, Vec<u8>)> =
            pairs.iter().filter(|(name, _)| !settings::is_own(name)).collect();
        if let Some((name, _)) = theirs.iter().find(|(name, _)| !settings::is_changeable(name)) {
            let why = match settings::is_immutable(name) {
                true => "can't set immutable config",
                false => NOT_FROM_HERE,
            };
            let text = format!(
                "ERR CONFIG SET failed (possibly related to argument '{}') - {why}",
                String::from_utf8_lossy(&name[..name.len().min(64)])
            );
            return self.refuse(id, &text);
        }
        if theirs.is_empty() {
            self.note_settings(pairs, ServerSet::EMPTY);
            return self.ok(id);
        }
        let mut command: Vec<&[u8]> = vec![b"CONFIG", b"SET"];
        command.extend(theirs.iter().flat_map(|(name, value)| [&**name, &**value]));
        let mut text = Vec::new();
        encode::command(&mut text, &command);
        self.put_question(id, Whom::All, Purpose::Set(pairs), text);
    }

    /// These duplicates have taken what was set: it is kept for those that were away, also for
    /// those that have come back since.
    pub(super) fn note_settings(&mut self, set: Vec<(Vec<u8>, Vec<u8>)>, have: ServerSet) {
        let (own, set): (Vec<_>, Vec<_>) =
            set.into_iter().partition(|(name, _)| settings::is_own(name));
        for (name, value) in own {
            match name == settings::TRACKED_KEYS {
                true => self.set_tracked_keys(&value),
                false => self.set_idle_max(settings::idle_max(&value).unwrap_or_default()),
            }
        }
        if set.is_empty() {
            return;
        }
        if let Some((_, value)) = set.iter().find(|(name, _)| name == settings::EVENTS) {
            self.note_events_set(value);
        }
        let set = set.into_iter().map(|(name, value)| (settings::own_name(name), value));
        self.questions.settings.extend(set);
        let live = (0..self.members.partitions()).map(|partition| self.members.live(partition));
        let missing = live.flat_map(|live| live.without(have).iter().collect::<Vec<_>>());
        let missing: ServerSet = missing.collect();
        self.configure(missing);
    }

    /// What is ours and not one server's.
    pub(super) fn own_settings(&mut self, id: ClientId) -> [(&'static str, String); 6] {
        let enabled = if self.is_of_cluster(id) { "yes" } else { "no" };
        [
            ("timeout", self.questions.own.idle_max.map_or(0, |it| it.as_secs()).to_string()),
            ("port", self.config.listen.port().to_string()),
            ("databases", self.databases().to_string()),
            ("maxclients", self.config.clients_max.to_string()),
            ("tracking-table-max-keys", self.tracking.keys_max().to_string()),
            ("cluster-enabled", enabled.to_owned()),
        ]
    }
}

/// Which setting of this process cannot be set so, and why; `None` = all can.
fn why_not_own(pairs: &[(Vec<u8>, Vec<u8>)]) -> Option<(String, &'static str)> {
    let own = pairs.iter().enumerate().filter(|(_, (name, _))| settings::is_own(name));
    own.into_iter().find_map(|(at, (name, value))| {
        let is_twice = pairs[..at].iter().any(|(before, _)| before == name);
        let why = settings::check_own(name, value).err();
        let why = why.or_else(|| is_twice.then_some("duplicate parameter"))?;
        Some((String::from_utf8_lossy(name).into_owned(), why))
    })
}
