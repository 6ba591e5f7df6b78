//! `MONITOR`: what clients of this process ask for is shown to who watches.
//!
//! A command is shown when it is taken, as its client sent it (`EVALSHA` as the `EVAL` that is done
//! in its place); those of a transaction in front of `EXEC`, unless a watched key was written.
//! Of a script what it wrote is shown as well, once that is known: not what it read. Nothing is
//! formatted while nobody watches. Who does not read is cut off as who listens to channels is.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Inner;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::commands::{Class, Command, Keys, Local};
use evenkeel_stores::resp::{databases, monitor};

const NO_KEYS: &str = "ERR Replica can't interact with the keyspace";

/// Bytes of one transaction that are kept for who watches.
const SHOWN_BYTES_MAX: usize = 16 << 20;

/// Clients that watch.
pub(super) type Monitors = BTreeSet<ClientId>;

fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Inner {
    /// `MONITOR`
    pub(super) fn monitor(&mut self, id: ClientId) {
        if let Some(client) = self.client(id) {
            client.is_monitor = true;
            self.monitors.insert(id);
        }
        self.ok(id);
    }

    /// A client watches no more.
    pub(super) fn stop_monitoring(&mut self, id: ClientId) {
        self.monitors.remove(&id);
        if let Some(client) = self.client(id) {
            client.is_monitor = false;
        }
    }

    /// Who watches does nothing else, as with Redis; whether it was told so.
    pub(super) fn answers_monitor(&mut self, id: ClientId, class: Class) -> bool {
        let refuses = !self.monitors.is_empty()
            && !matches!(class, Class::Local(_) | Class::Refused(_))
            && self.client(id).is_some_and(|client| client.is_monitor);
        if refuses {
            self.refuse(id, NO_KEYS);
        }
        refuses
    }

    /// Shows a command that is taken now.
    pub(super) fn show_command(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        parsed: ParsedCommand<'_>,
    ) {
        if class == Class::Local(Local::Exec) {
            self.show_transaction(id);
        }
        let is_hidden =
            matches!(class, Class::Refused(_)) || !monitor::is_shown(command, parsed.arguments());
        let Some(client) = self.client(id).filter(|client| !is_hidden && !client.is_part()) else {
            return;
        };
        let ends = matches!(class, Class::Local(Local::Exec | Local::Discard | Local::Multi));
        let database = client.transaction.as_ref().map_or(client.database, |it| it.database);
        let mut described = Vec::new();
        let whose = (database, client.about.address.as_str());
        monitor::describe(command, parsed.arguments(), whose, &mut described);
        match client.transaction.as_mut().filter(|_| !ends) {
            Some(transaction) if transaction.shown_bytes > SHOWN_BYTES_MAX => {}
            Some(transaction) => {
                transaction.shown_bytes += described.len();
                transaction.shown.push(described);
            }
            None => self.show_line(&described),
        }
    }

    /// What of a transaction was kept, if it is done.
    fn show_transaction(&mut self, id: ClientId) {
        let is_broken = self.is_watch_broken(id);
        let transaction = self.client(id).and_then(|client| client.transaction.as_mut());
        let Some(transaction) = transaction else { return };
        let shown = std::mem::take(&mut transaction.shown);
        if !transaction.is_spoiled && !is_broken {
            shown.iter().for_each(|described| self.show_line(described));
        }
    }

    /// Shows what a script has written: these commands are all it did, if it was one alone.
    pub(super) fn show_effects(&mut self, asked: &[u8], done: &[u8]) {
        let mut is_script = false;
        databases::for_each(asked, |known| {
            is_script = known.is_some_and(|(_, command, _)| command.keys == Keys::Script);
        });
        if !is_script {
            return;
        }
        let mut all = Vec::new();
        databases::for_each(done, |known| {
            let Some((database, command, arguments)) = known else { return };
            let mut described = Vec::new();
            monitor::describe(command, arguments, (database, "lua"), &mut described);
            all.push(described);
        });
        all.iter().for_each(|described| self.show_line(described));
    }

    fn show_line(&mut self, described: &[u8]) {
        let mut line = Vec::new();
        monitor::line(unix_us(), described, &mut line);
        let who: Vec<ClientId> = self.monitors.iter().copied().collect();
        who.into_iter().for_each(|id| self.push(id, &line));
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::ClientId;
    use super::super::world::World;

    /// The lines that came, without their times.
    fn shown(world: &World, id: ClientId) -> Vec<String> {
        let said = world.heard(id);
        said.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    /// A line would be taken for the answer to the command before.
    #[test]
    fn nothing_is_shown_before_what_is_owed_is_answered() {
        let mut world = World::start(1, |_| {});
        let (client, other) = (world.client(), world.client());
        assert!(world.tell(client, &["GET", "a"]));
        assert!(!world.tell(client, &["MONITOR"]), "its turn comes behind the answer");
        assert!(world.tell(other, &["PING"]));
        assert_eq!(world.heard(client), "");
    }

    #[test]
    fn commands_are_shown_when_they_are_taken_and_those_of_a_transaction_before_exec() {
        let mut world = World::start(1, |_| {});
        let (watcher, client) = (world.client(), world.client());
        assert!(world.tell(client, &["SET", "before", "1"]));
        assert!(world.tell(watcher, &["MONITOR"]));
        assert_eq!(world.heard(watcher), "+OK\r\n");
        assert!(world.tell(client, &["GET", "a"]));
        assert!(world.tell(client, &["CONFIG", "SET", "requirepass", "secret"]));
        assert!(world.tell(client, &["MULTI"]));
        assert!(world.tell(client, &["INCR", "a"]));
        assert_eq!(shown(&world, watcher), [r#"[0 ] "GET" "a""#, r#"[0 ] "MULTI""#]);
        assert!(world.tell(client, &["EXEC"]));
        assert_eq!(shown(&world, watcher), [r#"[0 ] "INCR" "a""#, r#"[0 ] "EXEC""#]);
        for words in [&["MULTI"][..], &["INCR", "a"], &["GET"], &["EXEC"]] {
            assert!(world.tell(client, words));
        }
        assert_eq!(shown(&world, watcher), [r#"[0 ] "MULTI""#, r#"[0 ] "EXEC""#], "it was spoiled");
        assert!(world.tell(watcher, &["GET", "a"]));
        assert!(world.heard(watcher).contains("-ERR Replica can't interact with the keyspace"));
        assert!(world.tell(watcher, &["RESET"]));
        assert!(world.tell(client, &["GET", "a"]));
        assert!(world.heard(watcher).ends_with("+RESET\r\n"), "it watches no more");
    }

    #[test]
    fn who_does_not_read_what_is_shown_is_cut_off() {
        let mut world = World::start(1, |_| {});
        let (watcher, client) = (world.client(), world.client());
        assert!(world.tell(watcher, &["MONITOR"]));
        let long = "x".repeat(8 << 20);
        for _ in 0..4 {
            assert!(world.engine.borrow().client(watcher).is_some());
            assert!(world.tell(client, &["ECHO", &long]));
        }
        let mut inner = world.engine.borrow();
        assert!(inner.client(watcher).is_none() && inner.client(client).is_some());
        assert!(inner.monitors.is_empty());
    }
}
