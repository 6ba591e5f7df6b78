//! `BUSY`: a script has run for longer than `busy-reply-threshold`, and who would wait for it is
//! told so, as with Redis, instead of waiting.
//!
//! Who would not wait is served: reads that other duplicates may answer, other partitions. So
//! `PING` says `BUSY` only where a script keeps every partition busy. What is told so was not done.
//! `SCRIPT KILL` and `FUNCTION KILL` end the script ([`super::scripts`]).

use std::time::Duration;

use super::Inner;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::commands::{self, Class, Command, Local, integer};
use evenkeel_stores::resp::locate::partitions_in_use;
use evenkeel_stores::resp::settings;

const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or FUNCTION \
    KILL.";

impl Inner {
    /// For how long a script may run before others are told; `None` = they always wait.
    fn busy_after(&self) -> Option<Duration> {
        const DEFAULT_MS: i64 = 5_000;
        let set = self.questions.settings.get(settings::BUSY_AFTER);
        let ms = set.and_then(|value| integer(value)).unwrap_or(DEFAULT_MS);
        u64::try_from(ms).ok().filter(|&ms| ms > 0).map(Duration::from_millis)
    }

    /// Tells a client that it would have to wait for a script that runs for too long; whether it
    /// was told.
    pub(super) fn says_busy(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        parsed: ParsedCommand<'_>,
    ) -> bool {
        if self.effects.is_idle() {
            return false;
        }
        let Some(busy_after) = self.busy_after() else { return false };
        let late = self.effects.late(self.now, busy_after);
        if late.is_empty() {
            return false;
        }
        let Some(client) = self.clients.get(id.key).filter(|it| it.is(id) && it.is_known()) else {
            return false;
        };
        let transaction = client.transaction.as_ref();
        let waits_for = match (class, transaction) {
            (Class::Local(Local::Exec), Some(transaction)) => self.busy_for(transaction),
            (Class::Local(Local::Ping), None) => {
                let in_use = partitions_in_use(&self.map);
                in_use
                    .iter()
                    .find(|it| !late.contains(it))
                    .map_or(in_use.first(), |_| None)
                    .copied()
            }
            (Class::Local(_) | Class::Refused(_), _) => None,
            (_, None) => self.busy_before(id, command, class, parsed),
            (_, Some(_)) => {
                let keys = commands::keys(command, parsed.arguments()).into_iter().flatten();
                let mut partitions = keys.map(|at| self.partition_of(parsed.argument(at)));
                partitions.find(|it| late.contains(it))
            }
        };
        if !waits_for.is_some_and(|partition| late.contains(&partition)) {
            return false;
        }
        if class != Class::Local(Local::Exec) {
            self.refuse(id, BUSY);
            return true;
        }
        if let Some(client) = self.client(id) {
            client.transaction = None; // where its client was
        }
        self.unwatch(id);
        self.refuse(id, &format!("EXECABORT Transaction discarded because of: {BUSY}"));
        true
    }

    /// Those that wait for a script that runs for too long look again: they are told.
    pub(super) fn release_behind_late(&mut self) {
        let Some(busy_after) = self.busy_after() else { return };
        for partition in self.effects.late(self.now, busy_after) {
            let waiting = self.effects.take_others_waiting(partition);
            waiting.into_iter().for_each(|id| self.release(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_ordered::ConnectionKind;

    use super::super::types::ClientId;
    use super::super::world::World;
    use super::*;

    const SCRIPT: [&str; 3] = ["EVAL", "while 1 do end", "0"];

    /// One whose executor runs a script since the beginning.
    fn busy_world() -> (World, ClientId) {
        let mut world = World::start(2, |_| {});
        let client = world.client();
        assert!(world.tell(client, &SCRIPT));
        let wanted = world.engine.borrow().take_wanted_streams();
        for (server, connection) in wanted {
            world.engine.borrow().stream_opened(server, connection);
        }
        assert!(!world.engine.borrow().effects.is_idle());
        (world, client)
    }

    #[test]
    fn who_would_wait_is_told_once_a_script_has_run_for_too_long() {
        let (mut world, _) = busy_world();
        let (waiting, other) = (world.client(), world.client());
        assert!(!world.tell(waiting, &["SET", "a", "1"]), "it waits");
        assert!(world.tell(other, &["PING"]));
        assert_eq!(world.heard(other), "+PONG\r\n");
        world.pass(Duration::from_secs(5));
        world.engine.borrow().look_at_effects();
        assert!(world.would_take(waiting) && world.tell(waiting, &["SET", "a", "1"]));
        assert!(world.heard(waiting).starts_with("-BUSY "));
        assert!(world.tell(other, &["PING"]));
        assert!(world.heard(other).starts_with("-BUSY "), "nothing else could be done");
        assert!(world.tell(other, &["ECHO", "x"]), "what needs no duplicate is done");
        assert_eq!(world.heard(other), "$1\r\nx\r\n");
    }

    #[test]
    fn a_transaction_is_not_half_done() {
        let (mut world, _) = busy_world();
        let (one, two) = (world.client(), world.client());
        for id in [one, two] {
            assert!(world.tell(id, &["MULTI"]) && world.tell(id, &["INCR", "a"]));
            assert_eq!(world.heard(id), "+OK\r\n+QUEUED\r\n");
        }
        world.pass(Duration::from_secs(5));
        assert!(world.tell(one, &["INCR", "a"]));
        assert!(world.heard(one).starts_with("-BUSY "));
        assert!(world.tell(two, &["EXEC"]));
        assert!(world.heard(two).starts_with("-EXECABORT Transaction discarded because of: BUSY "));
        assert!(world.tell(two, &["ECHO", "x"]));
        assert_eq!(world.heard(two), "$1\r\nx\r\n", "it is out of it");
        let executor = (0..2).find(|&server| world.engine.borrow().executes(server));
        world.lose(executor.unwrap(), evenkeel_ordered::Dropped::Lost);
        assert!(world.tell(one, &["EXEC"]));
        assert!(world.heard(one).starts_with("-EXECABORT"));
        let asked: Vec<String> =
            (0..2).flat_map(|server| world.asked(server, ConnectionKind::Ordered)).collect();
        assert!(!asked.iter().any(|it| it.starts_with("INCR")), "{asked:?}");
    }

    #[test]
    fn how_long_may_be_set_and_zero_is_for_ever() {
        let (world, _) = busy_world();
        for (value, expected) in [("10", Some(Duration::from_millis(10))), ("0", None)] {
            let mut inner = world.engine.borrow();
            let set = vec![(b"lua-time-limit".to_vec(), value.as_bytes().to_vec())];
            inner.note_settings(set, Default::default());
            assert_eq!(inner.busy_after(), expected);
        }
    }
}
