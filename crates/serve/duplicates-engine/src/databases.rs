//! `SELECT`: which database a client's keys are of.
//!
//! Between two of our commands every connection to a duplicate is in database 0. What a client in
//! another one asks for goes there between `SELECT n` and `SELECT 0`
//! ([`evenkeel_stores::resp::databases`]): a write as one group, which the log has as it was done,
//! so replays, copies and effects need to know nothing; a read as three commands in a row. Where
//! the front itself knows keys (who waits, who watches, what is copied) it knows them by places.
//!
//! **As many as all duplicates have**, at most 128. A duplicate on which `SELECT n` fails would do
//! in database 0 what comes behind it. So each is asked when it is reached, and one with fewer
//! databases than were used is not let in; what a log says of others is not sent to it.

use evenkeel_ordered::{ConnectionKind, Dropped};

use super::Inner;
use super::types::{ClientId, Owed, ParsedCommand};
use evenkeel_duplicates_config::Connector;
use evenkeel_stores::resp::commands::{Command, integer};
use evenkeel_stores::resp::databases::{self, DATABASES};
use evenkeel_stores::resp::replication::Group;

const OUT_OF_RANGE: &str = "ERR DB index is out of range";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

impl Inner {
    /// How many clients can choose from: what all duplicates have that were reached and are not
    /// kept out because they have fewer than are used.
    pub(super) fn databases(&self) -> u8 {
        if !matches!(self.connectors.first(), Some(Connector::Tcp { .. })) {
            return 1;
        }
        let servers = self.servers.iter().enumerate();
        let servers = servers.filter(|(server, _)| self.members.is_configured(*server));
        let known = servers.filter_map(|(_, server)| server.databases);
        let known = known.filter(|&databases| databases > self.database_last).min();
        known.unwrap_or(DATABASES)
    }

    /// How many a client's script may use: of Redis Cluster there is one.
    pub(super) fn databases_for(&mut self, client: Option<ClientId>) -> u8 {
        match client.is_some_and(|id| self.is_of_cluster(id)) {
            true => 1,
            false => self.databases(),
        }
    }

    /// In which one a client is.
    #[inline]
    pub(super) fn database_of(&self, id: ClientId) -> u8 {
        self.clients.get(id.key).filter(|it| it.is(id)).map_or(0, |client| client.database)
    }

    /// `SELECT number`, also of a transaction that is executed.
    pub(super) fn select(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        match self.served(parsed.argument(1)) {
            Ok(database) => {
                self.uses_database(database);
                if let Some(client) = self.client(id) {
                    client.database = database;
                }
                self.ok(id);
            }
            Err(text) => self.refuse(id, text),
        }
    }

    /// `SELECT number` between MULTI and EXEC: what is queued behind it is of that database. A
    /// wrong number is told by EXEC, and changes nothing.
    pub(super) fn select_queued(&mut self, id: ClientId, text: &[u8]) {
        let Ok(database) = self.served(text) else { return };
        self.uses_database(database);
        if let Some(client) = self.client(id)
            && let Some(transaction) = &mut client.transaction
        {
            transaction.database = database;
        }
    }

    /// The database that a client names.
    fn served(&self, text: &[u8]) -> Result<u8, &'static str> {
        if integer(text).is_none() {
            return Err(NOT_AN_INTEGER);
        }
        let number = databases::number(text).filter(|&number| number < self.databases());
        number.ok_or(OUT_OF_RANGE)
    }

    /// Refuses what puts a key into a database that is not served; whether it did.
    pub(super) fn refuses_database(
        &mut self,
        id: ClientId,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let Some(at) = databases::target_argument(command, parsed.arguments()) else {
            return false;
        };
        match parsed.arguments().get(at).map_or(Err(OUT_OF_RANGE), |text| self.served(text)) {
            Ok(database) => {
                self.uses_database(database);
                false
            }
            Err(text) => {
                self.refuse(id, text);
                true
            }
        }
    }

    /// Keys may be in this database from now on.
    pub fn uses_database(&mut self, database: u8) {
        self.database_last = self.database_last.max(database);
    }

    /// Why a server must not get what the others have: it lacks a database that was used.
    pub fn lacks_database(&self, server: usize) -> Option<String> {
        let has = self.servers[server].databases.unwrap_or(DATABASES);
        (self.database_last >= has).then(|| {
            format!(
                "it has {has} databases (or its user may not SELECT), and database {} is in use: \
                 set 'databases' in its configuration as at the others",
                self.database_last
            )
        })
    }

    /// The same for what a log has: what it needs is in use.
    pub fn lacks_database_of(&mut self, server: usize, commands: &[u8]) -> Option<String> {
        if !databases::is_elsewhere(commands) {
            return None;
        }
        self.uses_database(databases::highest(commands));
        self.lacks_database(server)
    }

    /// What a command has done in other databases is used there, and its record says so.
    pub(super) fn note_databases(&mut self, group: &mut Group) {
        let highest = databases::highest(&group.commands);
        self.uses_database(highest);
        if highest > 0 && !databases::is_elsewhere(&group.commands) {
            let plain = std::mem::take(&mut group.commands);
            databases::write_select(&mut group.commands, 0);
            group.commands.extend_from_slice(&plain);
            group.count += 1;
        }
    }

    /// A server has chosen a database. If not, what comes behind would be of another one.
    pub(super) fn chosen(&mut self, server: usize, reply: &[u8]) -> Result<(), Option<Dropped>> {
        if reply != b"+OK\r\n" {
            return Err(Some(Dropped::Failed));
        }
        self.members.answered(self.now, server, None);
        Ok(())
    }

    /// Asks a server in this database; `owed` is what its answer will be the answer to.
    #[inline]
    pub(super) fn ask_in(
        &mut self,
        (server, kind, database): (usize, ConnectionKind, u8),
        owed: Owed,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if database > 0 {
            self.choose((server, kind), database);
        }
        let connection = self.servers[server].connection(kind);
        write(&mut connection.pending);
        connection.owe(owed);
        self.members.sent(self.now, server, None);
        if database > 0 {
            self.choose((server, kind), 0);
        }
    }

    /// Has what is sent next be of this database: until 0 is chosen again, in the same turn.
    pub(super) fn choose(&mut self, (server, kind): (usize, ConnectionKind), database: u8) {
        let connection = self.servers[server].connection(kind);
        databases::write_select(&mut connection.pending, database);
        connection.owe(Owed::Chosen);
        self.members.sent(self.now, server, None);
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_ordered::{ConnectionKind, Dropped};

    use super::super::world::World;

    const ORDERED: ConnectionKind = ConnectionKind::Ordered;

    #[test]
    fn as_many_are_served_as_all_have_and_who_has_fewer_than_were_used_stays_out() {
        let mut world = World::start(2, |_| {});
        let client = world.client();
        {
            let mut inner = world.engine.borrow();
            (inner.servers[0].databases, inner.servers[1].databases) = (Some(4), Some(16));
        }
        for (number, expected) in [
            ("4", "-ERR DB index is out of range\r\n"),
            ("3", "+OK\r\n"),
            ("300", "-ERR DB index is out of range\r\n"),
            ("x", "-ERR value is not an integer or out of range\r\n"),
        ] {
            assert!(world.tell(client, &["SELECT", number]));
            assert_eq!(world.heard(client), expected, "{number}");
        }
        let mut inner = world.engine.borrow();
        assert_eq!(inner.lacks_database(0), None);
        inner.servers[0].databases = Some(3);
        assert!(inner.lacks_database(0).is_some_and(|why| why.contains("3 databases")));
        let record = b"*2\r\n$6\r\nSELECT\r\n$1\r\n9\r\n*2\r\n$3\r\nDEL\r\n$1\r\na\r\n";
        assert_eq!(inner.lacks_database_of(1, record), None);
        inner.servers[1].databases = Some(9);
        assert!(inner.lacks_database_of(1, record).is_some(), "a log needs it");
        assert_eq!(inner.lacks_database_of(1, b"*2\r\n$3\r\nDEL\r\n$1\r\na\r\n"), None);
    }

    #[test]
    fn who_does_not_choose_a_database_is_not_believed_what_comes_behind() {
        for (kind, level) in [(ConnectionKind::Free, "eventual"), (ORDERED, "strong")] {
            let mut world = World::start(1, |_| {});
            let client = world.client();
            assert!(world.tell(client, &["EK.SESSION", level]));
            assert!(world.tell(client, &["SELECT", "1"]));
            assert!(world.tell(client, &["GET", "a"]));
            assert_eq!(world.heard(client), "+OK\r\n+OK\r\n");
            assert_eq!(world.asked(0, kind), ["SELECT 1", "GET a", "SELECT 0"], "{level}");
            world.say(0, kind, "-NOPERM no\r\n");
            assert!(world.engine.borrow().members.live(0).is_empty());
            assert!(!world.heard(client).contains('$'), "nothing of another database is told");
        }
    }

    #[test]
    fn a_transaction_that_is_not_done_chooses_no_database() {
        for is_lost in [true, false] {
            let mut world = World::start(1, |_| {});
            let client = world.client();
            for words in [&["MULTI"][..], &["SELECT", "1"], &["INCR", "a"], &["SELECT", "2"]] {
                assert!(world.tell(client, words));
            }
            if is_lost {
                world.lose(0, Dropped::Lost);
            }
            assert!(world.tell(client, &["EXEC"]));
            assert_eq!(world.heard(client).contains("-UNAVAILABLE"), is_lost);
            let database = world.engine.borrow().database_of(client);
            assert_eq!(database, if is_lost { 0 } else { 2 });
            let group = ["SELECT 1", "INCR a", "SELECT 0"];
            let asked = world.asked(0, ORDERED);
            assert_eq!(asked.get(1..4).is_some_and(|it| it == group), !is_lost, "{asked:?}");
        }
    }

    #[test]
    fn nor_does_one_whose_script_is_refused_or_that_would_empty_what_cannot_be_emptied() {
        for words in [&["EVAL", "return 1", "1", "a"][..], &["FLUSHDB"]] {
            let mut world = World::start(1, |_| {});
            let client = world.client();
            for words in [&["MULTI"][..], &["SELECT", "1"], &["SET", "a", "1"], words] {
                assert!(world.tell(client, words), "{words:?}");
            }
            if words[0] == "FLUSHDB" {
                world.lose(0, Dropped::Lost);
            }
            assert!(world.tell(client, &["EXEC"]));
            let wanted = world.engine.borrow().take_wanted_streams();
            if let Some(stream) = wanted.first() {
                world.engine.borrow().stream_failed(*stream, "NOPERM", true);
            }
            assert_eq!(wanted.len(), usize::from(words[0] == "EVAL"));
            let heard = world.heard(client);
            assert!(heard.contains("-UNAVAILABLE"), "{words:?}: {heard}");
            assert_eq!(world.engine.borrow().database_of(client), 0, "{words:?}");
        }
    }

    #[test]
    fn one_that_is_kept_out_makes_no_flushall_of_flushdb() {
        let mut world = World::start(2, |_| {});
        let client = world.client();
        assert!(world.tell(client, &["SELECT", "5"]));
        world.lose(1, Dropped::Lost);
        world.engine.borrow().servers[1].databases = Some(1); // it is kept out
        assert!(world.tell(client, &["SELECT", "3"]));
        assert_eq!(world.heard(client), "+OK\r\n+OK\r\n");
        assert!(world.tell(client, &["FLUSHDB"]));
        let asked = world.asked(0, ORDERED);
        let is = |word: &str| asked.iter().any(|it| it.to_ascii_uppercase().starts_with(word));
        assert!(is("FLUSHDB") && !is("FLUSHALL"), "{asked:?}");
    }

    #[test]
    fn exec_in_another_database_waits_for_its_clients_reads() {
        let mut world = World::start(1, |_| {});
        let client = world.client();
        let before: [&[&str]; 5] =
            [&["SELECT", "1"], &["GET", "a"], &["MULTI"], &["SET", "a", "1"], &["PING"]];
        before.into_iter().for_each(|words| assert!(world.tell(client, words)));
        assert!(!world.tell(client, &["EXEC"]), "the read would see it");
        for reply in ["+OK\r\n", "_\r\n", "+OK\r\n"] {
            world.say(0, ConnectionKind::Free, reply);
        }
        assert!(world.tell(client, &["EXEC"]));
    }
}
