//! Carries out changes, one at a time: a shard goes to another partition while it is read and
//! written, duplicates and partitions come and go.
//!
//! What is decided is core's ([`Moving`](evenkeel_ordered::Moving)); here keys are
//! enumerated, the layout is stored, and what fails is begun again. A move that is given up leaves
//! the source the owner, and keys at the target that nobody reads; they are removed when nothing
//! else is to do, or first of all by the next move there.

use std::fmt::Display;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_ordered::{ReplicaState, Sequence};

use super::changes::ChangeRequest;
use super::config::Target;
use super::member::{FILLING_BYTES_MAX, drained, keys_max};
use super::members::Members;
use evenkeel_duplicates_engine::{Engine, Inner};
use evenkeel_leadership::layout::{Layout, Leftover, MapStore, StoreError};
use evenkeel_store_link::all_keys::AllKeys;
use evenkeel_store_link::connect::connect;
use evenkeel_stores::resp::hash::slot;
use evenkeel_stores::resp::{databases, functions};

/// How often it is looked whether a duplicate is still there.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it is looked whether a phase is over.
const PHASE_EVERY: Duration = Duration::from_millis(1);
/// How long after a move that was given up it is begun again: twice as long every time.
const AGAIN_AFTER: std::ops::Range<Duration> = Duration::from_millis(200)..Duration::from_secs(10);
/// A move that was given up so often is given up for good.
const ATTEMPTS_MAX: u32 = 20;
/// A new duplicate that was away for so long is given up.
const UNREACHED_MAX: Duration = Duration::from_secs(30);
/// The name of connections that find out whether a spare one answers.
const ASKED_AS: &str = "evenkeel-spare";
/// How long after the layout could not be stored it is tried again.
const STORE_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Keys removed by one command.
const REMOVED_TOGETHER: usize = 64;
/// What is left of shards that have moved away is removed so long after another attempt.
const FORGET_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Why a change is not carried out.
enum Stopped {
    /// It may be tried again.
    GivenUp(String),
    /// It may not.
    Failed(String),
    /// Another process leads.
    Fenced(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::GivenUp(error.to_string())
    }
}

fn failed(error: impl Display) -> Stopped {
    Stopped::Failed(error.to_string())
}

fn given_up(error: impl Display) -> Stopped {
    Stopped::GivenUp(error.to_string())
}

struct Mover {
    engine: Rc<Engine>,
    store: Rc<dyn MapStore>,
    members: Members,
    /// The version of the layout that is stored; 0 = none is.
    stored: u64,
}

/// Carries out changes for as long as the service runs; `stored` is the version of the layout that
/// is stored, 0 where none is. Ends with an error only when another process has changed the layout
/// or may.
pub(super) async fn keep(
    engine: Rc<Engine>,
    store: Rc<dyn MapStore>,
    stored: u64,
    members: Members,
) -> io::Result<()> {
    let mut mover = Mover { engine, store, members, stored };
    let mut forget_at = tokio::time::Instant::now();
    let came = Rc::clone(&mover.engine.borrow().changes.came);
    let mut silent = Vec::new();
    loop {
        let is_left = !mover.engine.look().layout.left.is_empty();
        match is_left {
            true => drop(tokio::time::timeout_at(forget_at, came.notified()).await),
            false => came.notified().await,
        }
        let advised = mover.advised(&mut silent).await;
        let change = {
            let mut inner = mover.engine.look();
            if let Some(change) = advised
                && let Err(why) = inner.take_change(change)
            {
                tracing::debug!(%why, "what the manager advises cannot be done now");
            }
            inner.changes.now.as_ref().map(|taken| taken.change.clone())
        };
        let Some(change) = change else {
            if is_left && tokio::time::Instant::now() >= forget_at {
                mover.forget_leftovers().await?;
                forget_at = tokio::time::Instant::now() + FORGET_AGAIN_AFTER;
            }
            continue;
        };
        let error = match mover.carry_out(&change).await {
            Ok(()) => None,
            Err(Stopped::Fenced(error)) => return Err(error),
            Err(Stopped::GivenUp(why) | Stopped::Failed(why)) => Some(why),
        };
        let mut inner = mover.engine.borrow();
        inner.read_clock();
        let now = inner.now;
        inner.changes.end(now, error);
        inner.start_manager();
    }
}

impl Mover {
    /// What the manager would have done, with spares that answer now. Those that do not are
    /// passed over, and told when they become others than `silent`.
    async fn advised(&self, silent: &mut Vec<String>) -> Option<ChangeRequest> {
        let mut found = Vec::new();
        loop {
            let (change, asked) = {
                let inner = self.engine.look();
                let wanted = inner.change_of_manager(&found);
                let change = wanted.filter(|_| inner.changes.now.is_none());
                let places = change.iter().flat_map(ChangeRequest::new_places);
                let open = |place: &str| inner.config.target(place).ok()?.open().ok();
                let asked = places.filter_map(|place| Some((place.to_owned(), open(place)?)));
                let asked: Vec<_> = asked.collect();
                (change, asked)
            };
            let before = found.len();
            for (place, connector) in asked {
                if let Err(why) = connect(&connector, ASKED_AS).await {
                    if !silent.contains(&place) {
                        tracing::warn!(place, %why, "a spare does not answer: it is passed over");
                    }
                    found.push(place);
                }
            }
            if found.len() == before {
                if change.is_some() || !found.is_empty() {
                    *silent = found;
                }
                return change;
            }
        }
    }

    async fn carry_out(&mut self, change: &ChangeRequest) -> Result<(), Stopped> {
        match change {
            ChangeRequest::MoveShard { shard, to } => self.move_shard(*shard, *to).await,
            ChangeRequest::AddDuplicate { partition, address } => {
                self.add_duplicate(*partition, address.clone()).await
            }
            ChangeRequest::RemoveDuplicate { partition, address } => {
                self.remove_duplicate(*partition, address).await
            }
            ChangeRequest::AddPartition { addresses, duplicates, shard } => {
                let to = self.add_partition(addresses.clone(), *duplicates).await?;
                match shard {
                    Some(shard) => self.move_shard(*shard, to).await,
                    None => Ok(()),
                }
            }
            ChangeRequest::RemovePartition { partition } => self.remove_partition(*partition).await,
            ChangeRequest::Abandon {} => Ok(()),
        }
    }

    /// Tries until it is done, or not wanted any more.
    async fn move_shard(&mut self, shard: usize, to: usize) -> Result<(), Stopped> {
        let mut pause = AGAIN_AFTER.start;
        let from = self.engine.borrow().map.partition(shard);
        loop {
            let attempts = {
                let mut inner = self.engine.borrow();
                let taken = inner.changes.now.as_mut();
                taken.map_or(0, |taken| {
                    taken.attempts += 1;
                    taken.attempts
                })
            };
            let why = match self.try_move(shard, from, to).await {
                Err(Stopped::GivenUp(why)) => why,
                ended => return ended,
            };
            {
                let mut inner = self.engine.borrow();
                inner.break_move(&why);
                if inner.changes.is_unwanted || attempts >= ATTEMPTS_MAX {
                    return Err(Stopped::Failed(why));
                }
                inner.changes.error = Some(why);
                inner.changes.begun_again += 1;
            }
            let end = tokio::time::Instant::now() + pause;
            while tokio::time::Instant::now() < end && !self.engine.borrow().changes.is_unwanted {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            pause = (pause * 2).min(AGAIN_AFTER.end);
        }
    }

    async fn try_move(&mut self, shard: usize, from: usize, to: usize) -> Result<(), Stopped> {
        self.expect(shard, to).await?;
        let number = {
            let mut inner = self.engine.borrow();
            if inner.changes.is_unwanted {
                return Err(Stopped::Failed("it is not wanted any more".to_owned()));
            }
            for partition in [from, to] {
                let takers = inner.members.takers(partition);
                takers.map_err(|why| Stopped::GivenUp(format!("partition {partition}: {why}")))?;
            }
            inner.begin_move(shard, to)
        };
        // None is begun any more.
        self.await_phase(number, |inner| !inner.is_ahead([from, to])).await?;
        self.remove_all(to, shard, Some(number)).await?;
        self.copy_libraries(number, shard, (from, to)).await?;
        self.copy(number, from).await?;
        self.await_phase(number, |inner| {
            inner.moving.as_ref().is_some_and(|it| it.moving.may_hand_over(&inner.members))
        })
        .await?;
        self.hand_over(shard, to).await?;
        self.forget(Leftover { shard, partition: from }).await
    }

    /// Whatever becomes of the move, somebody knows that keys of the shard may be at the target.
    async fn expect(&mut self, shard: usize, to: usize) -> Result<(), Stopped> {
        let next = {
            let inner = self.engine.borrow();
            let there = Leftover { shard, partition: to };
            (!inner.layout.left.contains(&there)).then(|| inner.layout.expecting(shard, to))
        };
        let Some(next) = next else { return Ok(()) };
        self.put(&next).await?;
        self.adopt(next)
    }

    /// The target gets the source's libraries of functions. Nothing changes these until the move is
    /// over.
    async fn copy_libraries(
        &self,
        number: u64,
        shard: usize,
        (from, to): (usize, usize),
    ) -> Result<(), Stopped> {
        let server = least_owing(&self.engine.borrow(), from)?;
        let mut scan = Scan::begin(&self.engine, server).await?;
        let dump = scan.keys.link().ask(&[b"FUNCTION", b"DUMP"]).await?;
        scan.keys.still_signed().await?;
        let mut inner = self.engine.borrow();
        self.check(&inner, Some(number))?;
        if inner.servers[server].connection != scan.connection {
            return Err(Stopped::GivenUp("the duplicate that was asked is gone".to_owned()));
        }
        match functions::restoring(Some(&dump)) {
            Some(commands) => inner.give_libraries(to, shard, &commands).map_err(given_up),
            None if functions::is_refused(&dump) || !inner.is_redis() => Ok(()), // it has none
            None => Err(Stopped::GivenUp("the source does not say its functions".to_owned())),
        }
    }

    /// Asks the source for every key of the shard.
    async fn copy(&self, number: u64, from: usize) -> Result<(), Stopped> {
        let source = {
            let mut inner = self.engine.borrow();
            self.check(&inner, Some(number))?;
            let source = least_owing(&inner, from)?;
            inner.copy_shard_from(source);
            source
        };
        let mut scan = Scan::begin(&self.engine, source).await?;
        while let Some(keys) = scan.page(&self.engine).await? {
            {
                let mut inner = self.engine.borrow();
                self.check(&inner, Some(number))?;
                keys.iter().for_each(|key| inner.seen_in_move(key));
            }
            self.await_phase(number, |inner| {
                inner.moving.as_ref().is_some_and(|it| {
                    let (keys, bytes) = it.moving.on_their_way();
                    let has_room =
                        keys < keys_max(inner.members.owed_max()) && bytes < FILLING_BYTES_MAX;
                    has_room && is_at_ease(inner, it.moving.to())
                })
            })
            .await?;
        }
        scan.keys.still_signed().await?;
        let mut inner = self.engine.borrow();
        self.check(&inner, Some(number))?;
        if let Some(it) = &mut inner.moving {
            it.moving.enumerated();
        }
        Ok(())
    }

    /// Waits until this is true of the move, or it is given up.
    async fn await_phase(
        &self,
        number: u64,
        is_so: impl Fn(&mut Inner) -> bool,
    ) -> Result<(), Stopped> {
        loop {
            {
                let mut inner = self.engine.borrow();
                inner.read_clock();
                self.check(&inner, Some(number))?;
                inner.advance_move();
                if is_so(&mut inner) {
                    return Ok(());
                }
                if let Some(to) = inner.moving.as_ref().map(|it| it.moving.to()) {
                    inner.mark_all(to);
                }
            }
            tokio::time::sleep(PHASE_EVERY).await;
        }
    }

    /// Whether the move goes on.
    #[expect(clippy::unused_self, reason = "it reads as what it is")]
    fn check(&self, inner: &Inner, number: Option<u64>) -> Result<(), Stopped> {
        let Some(number) = number else { return Ok(()) };
        if inner.moving.as_ref().is_some_and(|it| it.number == number) {
            return Ok(());
        }
        let why = inner.changes.error.clone();
        Err(Stopped::GivenUp(why.unwrap_or_else(|| "it was given up".to_owned())))
    }

    /// Stores the layout with the new owner; then, in one moment, it is in use.
    async fn hand_over(&mut self, shard: usize, to: usize) -> Result<(), Stopped> {
        let next = {
            let mut inner = self.engine.borrow();
            let is_ready = |inner: &Inner| {
                inner.moving.as_ref().is_some_and(|it| it.moving.may_hand_over(&inner.members))
            };
            let next = inner.layout.moved(shard, to).filter(|_| is_ready(&inner));
            let next = next.ok_or_else(|| Stopped::GivenUp("the target is away".to_owned()))?;
            if let Some(it) = &mut inner.moving {
                it.is_storing = true;
            }
            next
        };
        if let Err(stopped) = self.put(&next).await {
            // It is certain that it is not there.
            if let Some(it) = &mut self.engine.borrow().moving {
                it.is_storing = false;
            }
            return Err(stopped);
        }
        let mut inner = self.engine.borrow();
        // A log that fails has refused all further writes; the layout is in force all the same.
        let adopted = inner.adopt_layout(next);
        let Inner { moving, members, .. } = &mut *inner;
        if let Some(it) = moving {
            it.moving.handed_over(members);
            it.is_storing = false;
        }
        tracing::info!(shard, to, "a shard has moved");
        adopted.map_err(failed)
    }

    /// Stores a layout. When it returns, it is certain whether it is there.
    async fn put(&mut self, next: &Layout) -> Result<(), Stopped> {
        let mut is_doubtful = false;
        loop {
            match self.store.store(self.stored, next).await {
                Ok(()) => break,
                Err(StoreError::Conflict { found }) if found == next.version() && is_doubtful => {
                    match self.store.load().await {
                        Ok(Some(layout)) if layout == *next => break,
                        Ok(_) => return Err(self.fenced(found)),
                        Err(error) => self.doubt(&error.to_string()),
                    }
                }
                Err(StoreError::Conflict { found }) => return Err(self.fenced(found)),
                Err(StoreError::Deposed(error)) => return Err(Stopped::Fenced(error)),
                Err(StoreError::Refused(error)) if !is_doubtful => {
                    return Err(Stopped::GivenUp(format!("{}: {error}", self.store.place())));
                }
                Err(StoreError::Refused(error) | StoreError::Unknown(error)) => {
                    is_doubtful = true;
                    self.doubt(&error.to_string());
                }
            }
            tokio::time::sleep(STORE_AGAIN_AFTER).await;
        }
        self.stored = next.version();
        Ok(())
    }

    fn doubt(&self, why: &str) {
        let why = format!("whether {} has the layout is not known yet: {why}", self.store.place());
        self.engine.borrow().changes.error = Some(why);
    }

    fn fenced(&self, found: u64) -> Stopped {
        Stopped::Fenced(io::Error::other(format!(
            "{} has version {found} of the layout, expected {}: another process has changed it, \
             and only one may (stop the other, then start this one anew)",
            self.store.place(),
            self.stored
        )))
    }

    /// Removes the keys of a shard from a partition that does not hold it. When this returns they
    /// are gone whatever dies: it may be written down that nothing is left.
    async fn remove_all(
        &self,
        partition: usize,
        shard: usize,
        number: Option<u64>,
    ) -> Result<(), Stopped> {
        let server = least_owing(&self.engine.borrow(), partition)?;
        let mut scan = Scan::begin(&self.engine, server).await?;
        while let Some(keys) = scan.page(&self.engine).await? {
            {
                let mut inner = self.engine.borrow();
                self.check(&inner, number)?;
                let of_shard = |key: &&[u8]| inner.map.shard(slot(databases::key(key))) == shard;
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).filter(of_shard).collect();
                for some in keys.chunks(REMOVED_TOGETHER) {
                    let removed = inner.remove_keys(partition, shard, some);
                    removed.map_err(|error| Stopped::GivenUp(error.to_string()))?;
                }
            }
            while !is_at_ease(&self.engine.borrow(), partition) {
                tokio::time::sleep(PHASE_EVERY).await;
            }
        }
        let last = self.engine.borrow().history.last().sequence;
        self.await_applied(partition, last, number).await
    }

    /// Waits until as many as acknowledge a write have all writes up to this one.
    async fn await_applied(
        &self,
        partition: usize,
        last: Sequence,
        number: Option<u64>,
    ) -> Result<(), Stopped> {
        loop {
            {
                let mut inner = self.engine.borrow();
                if inner.members.has_applied(partition, last) {
                    return Ok(());
                }
                self.check(&inner, number)?;
                let takers = inner.members.takers(partition);
                takers.map_err(|why| Stopped::GivenUp(format!("partition {partition}: {why}")))?;
                inner.mark_all(partition);
            }
            tokio::time::sleep(PHASE_EVERY).await;
        }
    }

    /// The source's keys of a shard that has moved away go, once no read that overtakes can ask for
    /// them any more. Where it cannot be done now it is done later.
    async fn forget(&mut self, leftover: Leftover) -> Result<(), Stopped> {
        let Leftover { shard, partition } = leftover;
        self.await_reads(partition).await;
        let removed = self.remove_all(partition, shard, None).await;
        {
            let mut inner = self.engine.borrow();
            inner.moving = None;
            if inner.map.shards_of(partition).next().is_none() {
                inner.changes.emptied = Some(partition);
            }
        }
        match removed {
            Ok(()) => self.note_forgotten(leftover).await,
            Err(Stopped::GivenUp(why) | Stopped::Failed(why)) => {
                tracing::warn!(shard, partition, why, "keys of a shard that has moved are left");
                Ok(())
            }
            fenced @ Err(Stopped::Fenced(_)) => fenced,
        }
    }

    async fn note_forgotten(&mut self, leftover: Leftover) -> Result<(), Stopped> {
        let next = self.engine.borrow().layout.forgotten(leftover);
        match self.put(&next).await {
            Ok(()) => self.adopt(next),
            // It is forgotten once more, which does no harm.
            Err(Stopped::GivenUp(why)) => {
                tracing::warn!(why, "the layout was not stored");
                Ok(())
            }
            stopped => stopped,
        }
    }

    fn adopt(&self, next: Layout) -> Result<(), Stopped> {
        let adopted = self.engine.borrow().adopt_layout(next);
        adopted.map_err(failed)
    }

    /// Waits until reads that were sent before now on connections of their own are answered.
    async fn await_reads(&self, partition: usize) {
        let waiting: Vec<(usize, u64, u64)> = {
            let inner = self.engine.borrow();
            let of = |server: usize| {
                let state = &inner.servers[server];
                (server, state.connection, state.free.expected())
            };
            inner.members.configured(partition).iter().map(of).collect()
        };
        for (server, connection, until) in waiting {
            loop {
                {
                    let inner = self.engine.borrow();
                    let state = &inner.servers[server];
                    if state.connection != connection || state.free.answered >= until {
                        break;
                    }
                }
                tokio::time::sleep(PHASE_EVERY).await;
            }
        }
    }

    async fn forget_leftovers(&mut self) -> io::Result<()> {
        let leftovers = self.engine.borrow().layout.left.clone();
        for leftover in leftovers {
            let is_idle = {
                let inner = self.engine.borrow();
                inner.changes.now.is_none() && inner.members.takers(leftover.partition).is_ok()
            };
            if !is_idle {
                continue;
            }
            let forgotten = match self.remove_all(leftover.partition, leftover.shard, None).await {
                Ok(()) => self.note_forgotten(leftover).await,
                stopped => stopped,
            };
            if let Err(Stopped::Fenced(error)) = forgotten {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The place of a new duplicate, made up where it is a file of this process.
    fn new_place(&self, partition: usize, address: Option<String>) -> Result<String, Stopped> {
        let inner = self.engine.borrow();
        if let Some(address) = address {
            let target = inner.config.target(&address).map_err(failed)?;
            return Ok(target.place());
        }
        let first = inner.config.targets().next();
        let Some(Target::Embedded { settings, .. }) = first else {
            return Err(Stopped::Failed("an address was expected".to_owned()));
        };
        let directory = settings.path.parent().unwrap_or(std::path::Path::new(""));
        let mut numbers = 0_usize..;
        let place = numbers.find_map(|number| {
            let path = directory.join(format!("store-{partition}-{number}.redb"));
            (!path.exists()).then(|| path.display().to_string())
        });
        place.ok_or_else(|| Stopped::Failed("no name is free".to_owned()))
    }

    async fn add_duplicate(
        &mut self,
        partition: usize,
        address: Option<String>,
    ) -> Result<(), Stopped> {
        let place = self.new_place(partition, address)?;
        let target = self.engine.borrow().config.target(&place).map_err(failed)?;
        let server = self.start(partition, target.open()?)?;
        if let Err(stopped) = self.store_joining(partition, server, &place).await {
            self.engine.borrow().remove_server(server);
            return Err(stopped);
        }
        // From the next write on a majority has the new one too; what was acknowledged before that
        // it has when it has answered it.
        let last = self.engine.borrow().history.last().sequence;
        loop {
            {
                let mut inner = self.engine.borrow();
                // One that is lost now comes back as any other.
                let is_live = inner.members.state(server) == ReplicaState::InSync;
                if !is_live || inner.members.has_applied(partition, last) {
                    return Ok(());
                }
                inner.mark_all(partition);
            }
            tokio::time::sleep(PHASE_EVERY).await;
        }
    }

    /// Waits until a joining duplicate has everything, and makes durable that it counts.
    async fn store_joining(
        &mut self,
        partition: usize,
        server: usize,
        place: &str,
    ) -> Result<(), Stopped> {
        let mut reached = tokio::time::Instant::now();
        loop {
            {
                let mut inner = self.engine.borrow();
                if inner.changes.is_unwanted {
                    return Err(Stopped::Failed("it is not wanted any more".to_owned()));
                }
                if inner.members.state(server) != ReplicaState::Disconnected {
                    reached = tokio::time::Instant::now();
                }
                let error = inner.servers[server].error.clone();
                if reached.elapsed() >= UNREACHED_MAX {
                    let why = error.unwrap_or_else(|| "it was not reached".to_owned());
                    return Err(Stopped::Failed(format!("{place}: {why}")));
                }
                inner.changes.error = error.map(|why| format!("{place}: {why}"));
                if inner.members.may_admit(server) {
                    break;
                }
                inner.mark_all(partition);
            }
            tokio::time::sleep(PHASE_EVERY).await;
        }
        let next = self.engine.borrow().layout.with_duplicate(partition, place);
        self.put(&next).await?;
        self.engine.borrow().members.admit(server);
        self.adopt(next)
    }

    /// Another duplicate, which is a joining duplicate; its number.
    fn start(
        &self,
        partition: usize,
        connector: super::config::Connector,
    ) -> Result<usize, Stopped> {
        let server = self.engine.borrow().add_joining(partition, connector);
        let server = server.ok_or_else(|| Stopped::Failed("no number is free".to_owned()))?;
        self.members.keep(&self.engine, server);
        Ok(server)
    }

    async fn add_partition(
        &mut self,
        addresses: Vec<String>,
        duplicates: Option<usize>,
    ) -> Result<usize, Stopped> {
        let number = self.engine.borrow().map.partitions();
        let mut connectors = Vec::new();
        let mut places: Vec<String> = Vec::new();
        let count = duplicates.unwrap_or(addresses.len());
        let mut addresses = addresses.into_iter();
        for _ in 0..count {
            let place = self.new_place(number, addresses.next())?;
            let target = self.engine.borrow().config.target(&place).map_err(failed)?;
            connectors.push(target.open()?);
            places.push(place);
        }
        let next = {
            let inner = self.engine.borrow();
            let opened = inner.history.position(inner.history.last().sequence);
            inner.layout.with_partition(places, opened)
        };
        self.put(&next).await?;
        self.adopt(next)?;
        self.engine.borrow().members.add_partition();
        for connector in connectors {
            let server = self.start(number, connector)?;
            self.engine.borrow().members.admit(server); // there is nothing that it could lack
        }
        Ok(number)
    }

    async fn remove_duplicate(&mut self, partition: usize, address: &str) -> Result<(), Stopped> {
        let (next, last) = {
            let mut inner = self.engine.borrow();
            inner.read_clock();
            inner.flush();
            let Some(server) = inner.server_named(partition, address) else {
                return Err(Stopped::Failed(format!("{address} is gone already")));
            };
            let place = inner.connectors[server].place();
            // From now on it does not count: what it alone has acknowledged the others must have
            // before that is written down.
            inner.remove_server(server);
            (inner.layout.without_duplicate(partition, &place), inner.history.last().sequence)
        };
        loop {
            {
                let mut inner = self.engine.borrow();
                if inner.members.has_applied(partition, last) {
                    break;
                }
                inner.mark_all(partition);
            }
            tokio::time::sleep(PHASE_EVERY).await;
        }
        while let Err(stopped) = self.put(&next).await {
            let Stopped::GivenUp(why) = stopped else { return Err(stopped) };
            self.engine.borrow().changes.error = Some(why);
            tokio::time::sleep(STORE_AGAIN_AFTER).await;
        }
        self.adopt(next)
    }

    async fn remove_partition(&mut self, partition: usize) -> Result<(), Stopped> {
        let next = self.engine.borrow().layout.without_partition(partition);
        self.put(&next).await?;
        self.adopt(next)?;
        let mut inner = self.engine.borrow();
        for server in inner.members.configured(partition).iter() {
            inner.remove_server(server);
        }
        if inner.changes.emptied == Some(partition) {
            inner.changes.emptied = None;
        }
        Ok(())
    }
}

/// Whom to ask for keys.
fn least_owing(inner: &Inner, partition: usize) -> Result<usize, Stopped> {
    let live = inner.members.live(partition);
    let able = live.iter().filter(|&server| !inner.is_executor(server));
    let least = able.min_by_key(|&server| inner.members.owed(server));
    least.ok_or_else(|| Stopped::GivenUp(format!("nobody of partition {partition} is live")))
}

/// Whether nobody of a partition owes so much that clients would feel it.
fn is_at_ease(inner: &Inner, partition: usize) -> bool {
    inner.members.live(partition).iter().all(|server| {
        inner.members.owed(server) < inner.members.owed_max() / 4
            && inner.servers[server].ordered.waiting_bytes() < FILLING_BYTES_MAX
    })
}

/// All keys of one duplicate, page by page.
struct Scan {
    server: usize,
    connection: u64,
    keys: AllKeys,
}

impl Scan {
    /// Begins once it has answered all that it was sent before now.
    async fn begin(engine: &Engine, server: usize) -> Result<Self, Stopped> {
        let (connection, databases, connector, label) = {
            let inner = engine.borrow();
            let state = &inner.servers[server];
            let label = inner.us_to(server).label();
            let databases = state.databases.unwrap_or(1);
            (state.connection, databases, inner.connectors[server].clone(), label)
        };
        if !drained(engine, server).await {
            return Err(Stopped::GivenUp("the duplicate that was asked is gone".to_owned()));
        }
        let mut link = connect(&connector, &label).await?;
        link.wait_long();
        Ok(Self { server, connection, keys: AllKeys::new(link, databases) })
    }

    /// The places of the keys of the next page, without ours.
    async fn page(&mut self, engine: &Engine) -> Result<Option<Vec<Vec<u8>>>, Stopped> {
        let (server, connection) = (self.server, self.connection);
        let is_gone = async {
            let mut looks = tokio::time::interval(LOOK_EVERY);
            loop {
                looks.tick().await;
                if engine.borrow().servers[server].connection != connection {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            page = self.keys.page() => Ok(page?),
            () = is_gone => Err(io::Error::other("the duplicate that was asked is gone").into()),
        }
    }
}
