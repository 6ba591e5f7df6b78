//! A duplicate is made from the log alone, as nobody is live who could be copied.
//!
//! **Deadlines.** Writes are done again long after they were done first: behind deadlines that were
//! still to come then. A server whose clock cannot be set back would drop a key before the write
//! that took it beyond its deadline (`PERSIST`), and an `INCR` of one that went later would make a
//! new key, which never goes. So every deadline is put off while the log is read, farther than any
//! clock is ([`deadlines::put_off`]), and put back behind it: what has passed by then goes at once,
//! what has not goes in time. Meanwhile nothing is read there.
//!
//! **What had expired before a write** was removed by a write before it, or had gone by itself,
//! which no write tells. So the log tells up to which time deadlines had passed before a write
//! ([`evenkeel_wal::Record::passed_unix_ms`]), and core which keys may have such a one
//! ([`Deadlines`]): they are removed before that write, and asked for where it is not sure. Whoever
//! asks waits for all that was sent: one round trip for a key that was used again behind a deadline
//! that `EXPIRE` gave it, none behind that of a `SET`. Beyond 2²⁰ keys with deadlines each write of
//! another key asks.
//!
//! **Logs of earlier releases** do not tell that time: as before, they are done again as they are.

use std::rc::Rc;

use evenkeel_duplicates_engine::Engine;
use evenkeel_ordered::{Answered, Deadlines, Judgement};
use evenkeel_store_link::all_keys::AllKeys;
use evenkeel_store_link::connect::{Link, connect};
use evenkeel_store_link::expiry::{note_change, number_of};
use evenkeel_store_link::fencing::FencingError;
use evenkeel_stores::resp::deadlines::{self, Change, Written};
use evenkeel_stores::resp::reply::integer;
use evenkeel_stores::resp::{databases, encode};
use evenkeel_wal::{Reader, Record, RecordKind};

use super::{FILLING_BYTES_MAX, REPLAY_OWED_MAX, wait_until};

/// One that is being made.
pub(super) struct Restoring {
    engine: Rc<Engine>,
    server: usize,
    connection: u64,
    /// What its keys have, as the log tells it.
    deadlines: Deadlines,
    is_any_put_off: bool,
    /// Asks for deadlines, once that is needed.
    link: Option<Link>,
}

/// A key that may have expired before a write, by its place.
struct Doubt {
    place: Vec<u8>,
    is_sure: bool,
}

/// What came of reading on.
enum Came {
    /// A write has to wait until it is known what of its keys has expired.
    Doubts(Vec<Doubt>, Owned),
    Pause,
    End,
    /// The duplicate was dropped.
    Dropped,
}

/// A record that waits.
struct Owned {
    sequence: u64,
    shard: u16,
    kind: RecordKind,
    passed_unix_ms: Option<i64>,
    command: Vec<u8>,
}

impl Restoring {
    pub(super) fn new(engine: Rc<Engine>, server: usize, connection: u64) -> Self {
        let deadlines = Deadlines::of_one();
        Self { engine, server, connection, deadlines, is_any_put_off: false, link: None }
    }

    /// Sends the whole log, and then puts deadlines back; false if the duplicate was dropped.
    ///
    /// # Errors
    /// When the log cannot be read, or the duplicate does not answer.
    pub(super) async fn run(&mut self, reader: &mut Reader) -> Result<bool, FencingError> {
        loop {
            self.wait(REPLAY_OWED_MAX).await;
            match self.read_on(reader)? {
                Came::Doubts(doubts, owned) => {
                    for doubt in doubts {
                        self.judge(doubt, owned.passed_unix_ms).await?;
                    }
                    let Owned { sequence, shard, kind, passed_unix_ms, .. } = owned;
                    let command = &owned.command;
                    self.send(&Record { sequence, shard, kind, passed_unix_ms, command });
                }
                Came::Pause => {}
                Came::End => break,
                Came::Dropped => return Ok(false),
            }
            tokio::task::yield_now().await;
        }
        self.put_back().await?;
        Ok(self.engine.look().servers[self.server].connection == self.connection)
    }

    /// Waits until it owes fewer answers than this.
    async fn wait(&self, owed: usize) {
        let server = self.server;
        self.engine.borrow().schedule();
        wait_until(&self.engine, server, self.connection, |inner| {
            inner.members.owed(server) < owed
                && inner.servers[server].ordered.waiting_bytes() < FILLING_BYTES_MAX
        })
        .await;
    }

    fn read_on(&mut self, reader: &mut Reader) -> Result<Came, FencingError> {
        let engine = Rc::clone(&self.engine);
        {
            let mut inner = engine.borrow();
            inner.read_clock();
            inner.flush(); // what is appended is committed, so that the reader sees it
        }
        loop {
            {
                let inner = engine.look();
                if inner.servers[self.server].connection != self.connection {
                    return Ok(Came::Dropped);
                }
                if inner.members.owed(self.server) >= REPLAY_OWED_MAX {
                    return Ok(Came::Pause);
                }
            }
            let Some(record) = reader.next().map_err(std::io::Error::other)? else {
                return Ok(if reader.is_at_end() { Came::End } else { Came::Pause });
            };
            let lacks = engine.look().lacks_database_of(self.server, record.command);
            if let Some(lacks) = lacks {
                return Err(FencingError::Passing(lacks));
            }
            let doubts = self.doubts(&record);
            if doubts.is_empty() {
                self.send(&record);
                continue;
            }
            let Record { sequence, shard, kind, passed_unix_ms, command } = record;
            let command = command.to_vec();
            return Ok(Came::Doubts(
                doubts,
                Owned { sequence, shard, kind, passed_unix_ms, command },
            ));
        }
    }

    /// The keys on whose being there a write depends, and which may have expired before it.
    fn doubts(&self, record: &Record<'_>) -> Vec<Doubt> {
        let mut doubts: Vec<Doubt> = Vec::new();
        let Some(passed) = record.passed_unix_ms else { return doubts };
        let mut look = |database: u8, name: &[u8]| {
            let key = number_of(database, name);
            let judgement = self.deadlines.before_write(key, passed);
            let is_alive = || self.deadlines.first_of(key).is_some_and(|at| at > passed);
            if judgement == Judgement::Leave || judgement == Judgement::Ask && is_alive() {
                return;
            }
            let place = databases::place(database, name).into_owned();
            if doubts.iter().all(|doubt| doubt.place != place) {
                doubts.push(Doubt { place, is_sure: judgement == Judgement::Remove });
            }
        };
        deadlines::for_each(record.command, |written| {
            let Written::Key(database, name, change) = written else { return };
            match change {
                Change::Set(_) => {} // whatever was there; `PERSIST` clears what is
                Change::Carried(other, to) => {
                    look(database, name);
                    look(other, to);
                }
                _ => look(database, name),
            }
        });
        doubts
    }

    /// Removes a key that had expired by then.
    async fn judge(&mut self, doubt: Doubt, passed: Option<i64>) -> Result<(), FencingError> {
        let (database, name) = databases::at(&doubt.place);
        let (key, passed) = (number_of(database, name), passed.unwrap_or(i64::MIN));
        if !doubt.is_sure {
            let number = self.deadlines.ask(key);
            let at = self.ask(database, name).await?;
            match self.deadlines.answered(key, number, at, passed) {
                Answered::Settled => return Ok(()),
                Answered::GoneThere => {
                    self.deadlines.gone(key, number, passed);
                    return Ok(());
                }
                Answered::Expired => {}
            }
        }
        self.deadlines.cleared(key);
        self.write(database, &[b"DEL", name]);
        Ok(())
    }

    /// The deadline of a key behind everything that was sent, as it was: -1 for none, -2 for no
    /// key.
    async fn ask(&mut self, database: u8, name: &[u8]) -> Result<i64, FencingError> {
        self.wait(1).await;
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.reach().await?,
        };
        link.expect_ok(&[b"SELECT", database.to_string().as_bytes()]).await?;
        let told = link.ask(&[b"PEXPIRETIME", name]).await?;
        self.link = Some(link);
        let at = integer(&told).ok_or_else(|| untold(&told))?;
        Ok(deadlines::put_back(at).unwrap_or(at))
    }

    async fn reach(&self) -> Result<Link, FencingError> {
        let (connector, label) = {
            let inner = self.engine.look();
            (inner.connectors[self.server].clone(), inner.us_to(self.server).label())
        };
        let mut link = connect(&connector, &label).await?;
        link.wait_long();
        Ok(link)
    }

    /// Sends a record with its deadlines put off.
    fn send(&mut self, record: &Record<'_>) {
        let mut command = Vec::with_capacity(record.command.len());
        self.is_any_put_off |= deadlines::put_off(record.command, &mut command);
        let now = record.passed_unix_ms.unwrap_or(0);
        let known = &mut self.deadlines;
        deadlines::for_each(record.command, |written| match written {
            Written::Everything => known.clear(),
            Written::Database(database) => known.clear_database(database),
            Written::Key(database, name, change) => {
                note_change(known, number_of(database, name), change, now);
            }
        });
        self.give(&Record { command: &command, ..*record });
    }

    /// Sends one command of ours.
    fn write(&self, database: u8, words: &[&[u8]]) {
        let mut command = Vec::new();
        databases::write_within(&mut command, database, |out| encode::command(out, words));
        let kind = RecordKind::Idempotent;
        self.give(&Record { sequence: 0, shard: 0, kind, passed_unix_ms: None, command: &command });
    }

    fn give(&self, record: &Record<'_>) {
        let mut inner = self.engine.look();
        if inner.servers[self.server].connection == self.connection {
            inner.restore_one(self.server, record);
        }
    }

    /// Gives every key the deadline that it has: what has passed goes.
    async fn put_back(&mut self) -> Result<(), FencingError> {
        self.wait(1).await;
        if !self.is_any_put_off {
            return Ok(());
        }
        let databases = self.engine.look().servers[self.server].databases.unwrap_or(1);
        let mut all_keys = AllKeys::new(self.reach().await?, databases);
        while let Some(places) = all_keys.page().await? {
            let ask = |place| [&b"PEXPIRETIME"[..], databases::key(place)];
            let asked: Vec<[&[u8]; 2]> = places.iter().map(|place| ask(place)).collect();
            let told = all_keys.link().ask_each(&asked).await?;
            for (place, told) in places.iter().zip(told) {
                let at = integer(&told).ok_or_else(|| untold(&told))?;
                if let Some(at) = deadlines::put_back(at) {
                    let (database, name) = databases::at(place);
                    self.write(database, &[b"PEXPIREAT", name, at.to_string().as_bytes()]);
                }
            }
            self.wait(REPLAY_OWED_MAX).await;
        }
        self.wait(1).await;
        Ok(())
    }
}

fn untold(told: &[u8]) -> FencingError {
    let told = String::from_utf8_lossy(told);
    FencingError::Passing(format!("PEXPIRETIME was answered with {:?}", told.trim_end()))
}
