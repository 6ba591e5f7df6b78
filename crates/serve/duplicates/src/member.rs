//! One duplicate, from its first connection on: reach it, fence others off, see what it has, bring
//! it up to date, keep it until it is dropped, begin again.

mod restoring;

use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use evenkeel_ordered::{ConnectionKind, Copying, Dropped, Position, Rejoin, Sequence};
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_128;

use self::restoring::Restoring;
use super::backlog;
use super::config::Connector;
use super::connection;
use evenkeel_duplicates_engine::{Bootstrap, Engine, Inner};
use evenkeel_store_link::all_keys::AllKeys;
use evenkeel_store_link::connect::{Link, Stream, connect, reach};
use evenkeel_store_link::fencing::{self, FencingError, Look, NOBODYS, Us};
use evenkeel_store_link::redis_check;
use evenkeel_stores::resp::databases;
use evenkeel_stores::store::keys::{FUNCTIONS, WATERMARK};
use evenkeel_wal::{LogPlace, Reader, Record};

/// Answers owed by a duplicate that replays, at most: enough to keep it busy.
const REPLAY_OWED_MAX: usize = 2_048;
/// Keys on their way at once; each is two answers that the source owes.
const KEYS_ON_THEIR_WAY_MAX: usize = 512;
/// How often a source is looked at that has not answered what came before.
const DRAINED_EVERY: Duration = Duration::from_millis(1);
/// Bytes that may wait at a target or be held for it before more keys are asked for.
pub(super) const FILLING_BYTES_MAX: usize = 16 << 20;
/// When Redis says that it is busy with a script (`busy-reply-threshold`).
const BUSY_AFTER: Duration = Duration::from_secs(5);
const BACKOFF: std::ops::Range<Duration> = Duration::from_millis(50)..Duration::from_secs(1);

/// Keeps one duplicate for as long as the service runs and it is one. Ends with an error only when
/// another sequencer has taken over.
pub(super) async fn keep(engine: Rc<Engine>, server: usize) -> io::Result<()> {
    let mut pause = BACKOFF.start;
    let generation = engine.borrow().servers[server].generation;
    let mut is_known = false;
    loop {
        let began = std::time::Instant::now();
        let attempted = attempt(&engine, server, &mut is_known).await;
        // Another one is restored from the log if this one cannot be.
        let was_restored = std::mem::take(&mut engine.borrow().servers[server].is_restored);
        match attempted {
            Ok(()) => {}
            Err(FencingError::Fenced(text)) => return Err(io::Error::other(text)),
            Err(FencingError::Passing(text)) => {
                let mut inner = engine.borrow();
                if inner.servers[server].generation != generation {
                    return Ok(());
                }
                inner.drop_server(server, Dropped::Lost);
                let place = &mut inner.servers[server].error;
                if place.as_deref() != Some(&text) {
                    tracing::warn!(server, %text, "a duplicate is away");
                    *place = Some(text);
                }
            }
        }
        if began.elapsed() > BACKOFF.end {
            pause = BACKOFF.start;
        }
        let others = if was_restored { 2 * BACKOFF.end } else { Duration::ZERO };
        tokio::time::sleep(pause + others).await;
        pause = (pause * 2).min(BACKOFF.end);
        if engine.borrow().servers[server].generation != generation {
            return Ok(()); // it was removed
        }
    }
}

/// Asks a Redis that says nothing on a connection of its own, which has to wait as well while Redis
/// is busy: who takes no connection is gone, who answers has lost what it owes on the others.
pub(super) async fn probe(engine: Rc<Engine>, server: usize) -> io::Result<()> {
    let (connection, connector, pause) = {
        let inner = engine.look();
        let pause = inner.config.members.silence_max;
        (inner.servers[server].connection, inner.connectors[server].clone(), pause)
    };
    if !matches!(connector, Connector::Tcp { .. }) {
        return Ok(()); // who answers there is not who may be busy
    }
    let why = match reach(&connector).await {
        Err(_) => Dropped::Lost,
        Ok(mut link) => {
            if !ping(&engine, server, connection, &mut link).await {
                return Ok(());
            }
            let since = engine.look().members.silent_since(server);
            tokio::time::sleep(pause).await;
            if since.is_none() || engine.look().members.silent_since(server) != since {
                return Ok(());
            }
            Dropped::Silent
        }
    };
    let mut inner = engine.borrow();
    if inner.servers[server].connection == connection {
        inner.drop_server(server, why);
    }
    Ok(())
}

/// Whether a server that says nothing on its other connections answers, or can no longer be busy.
/// What it does for all others is a script most of the time, and of a script it says `BUSY` after
/// five seconds: until that ends, or takes longer than it may, it is not dead.
async fn ping(engine: &Engine, server: usize, connection: u64, link: &mut Link) -> bool {
    let (pause, login) = {
        let inner = engine.look();
        match inner.executes(server) {
            true => link.wait_for(BUSY_AFTER + inner.config.members.silence_max),
            false => link.wait_long(),
        }
        let login = inner.connectors[server].login().cloned();
        (inner.config.members.silence_max, login)
    };
    // Who is not known is told nothing else.
    let mut question = match &login {
        Some(login) => vec![&b"AUTH"[..], login.user.as_bytes(), login.password.as_bytes()],
        None => vec![&b"PING"[..]],
    };
    loop {
        let answer = link.ask(&question).await;
        {
            let mut inner = engine.look();
            let is_timeout = |error: io::Error| error.kind() == io::ErrorKind::TimedOut;
            match answer {
                _ if inner.servers[server].connection != connection => return false,
                Err(error) => return is_timeout(error) && inner.executes(server),
                Ok(answer) if answer.starts_with(b"-BUSY") => inner.heard_from(server),
                Ok(_) if question[0] == b"PING" => return true,
                Ok(_) => question = vec![&b"PING"[..]],
            }
        }
        tokio::time::sleep(pause / 2).await;
    }
}

/// From connecting to being dropped. Whether it is known what it did in earlier terms is known for
/// all of this one.
async fn attempt(
    engine: &Rc<Engine>,
    server: usize,
    is_known: &mut bool,
) -> Result<(), FencingError> {
    let generation = engine.borrow().servers[server].generation;
    let (connector, us) = {
        let mut inner = engine.borrow();
        // Also an attempt that fails half-way has sent what must not be applied later.
        inner.servers[server].connection += 1;
        inner.servers[server].is_restored = false;
        (inner.connectors[server].clone(), inner.us_to(server))
    };
    let label = us.label();
    let mut ordered = connect(&connector, &label).await?;
    let mut free = connect(&connector, &label).await?;
    let lacked = engine.look().first_refused(server);
    if let (Some(lacked), Connector::Tcp { .. }) = (lacked, &connector) {
        // Before anything that it may refuse as well: this process may end until it takes that.
        let told = fencing::disown(&mut ordered, &us, lacked).await;
        let _ = told.inspect_err(|error| tracing::info!(server, %error, "it is not disowned"));
    }
    check(engine, server, &connector, &mut ordered).await?;
    // What a connection before this one had sent may still be on its way to being applied: only
    // when it has ended is it known how far the server came.
    fencing::fence(&mut ordered, &us, &connector).await?;
    let mut looked = fencing::look(&mut ordered, &us.name).await?;
    if let Some(mark) = looked.watermark.filter(|&mark| !*is_known && mark != NOBODYS) {
        *is_known = knows(engine, server, &connector, mark).await?;
        looked.watermark = if *is_known { Some(mark) } else { Some(NOBODYS) };
    }
    if let Connector::Tcp { .. } = connector {
        let sent = engine.look().clock_us();
        let told = ordered.ask(&[b"TIME"]).await?;
        engine.borrow().clock_told(server, sent, &told);
    }
    let rejoin = needed(engine, server, looked)?;
    if matches!(rejoin, Rejoin::Copy | Rejoin::Restore) {
        ordered.wait_long();
        fencing::empty(&mut ordered, &us, &connector).await?;
    }
    if let Rejoin::Replay { after } = rejoin
        && looked.watermark.is_none()
    {
        // Before the first write: killed after it and before its first watermark, it would hold
        // data that nobody can name.
        let epoch = if after == Sequence(0) { 0 } else { us.epoch.0 };
        let text = format!("{epoch} {}", after.0);
        ordered.expect_ok(&[b"SET", WATERMARK, text.as_bytes()]).await?;
    }
    let keeps = keep_stream(engine, server, (&connector, &us), &mut ordered).await?;
    track(engine, server, &connector, (&mut ordered, &mut free)).await?;
    let (ordered, free) = (ordered.into_stream()?, free.into_stream()?);
    let connection = {
        let mut inner = engine.borrow();
        inner.read_clock();
        if inner.servers[server].generation != generation {
            return Ok(()); // it was removed meanwhile
        }
        inner.servers[server].open()
    };
    let bringing = bring_up(Rc::clone(engine), server, connection, rejoin);
    let noting = keeps.then(|| backlog::keep(Rc::clone(engine), server, connection));
    attend((engine, server, connection), (ordered, free), bringing, noting).await
}

/// Has a duplicate keep its stream; whether it does. Where the log is in memory, it must.
async fn keep_stream(
    engine: &Engine,
    server: usize,
    (connector, us): (&Connector, &Us),
    link: &mut Link,
) -> Result<bool, FencingError> {
    let is_log = engine.look().config.log.place == LogPlace::Memory;
    if !is_log && !matches!(connector, Connector::Tcp { .. }) {
        return Ok(false);
    }
    match backlog::begin(connector, us, link).await {
        Err(FencingError::Passing(why)) if !is_log => {
            let unsure = format!("all of it is copied when another process leads: {why}");
            engine.borrow().is_unsure(server, &unsure);
            Ok(false)
        }
        begun => begun.map(|()| true),
    }
}

/// Drives the connections to a duplicate, and brings it up, until it is dropped.
async fn attend(
    (engine, server, connection): (&Rc<Engine>, usize, u64),
    (ordered, free): (Box<dyn Stream>, Box<dyn Stream>),
    bringing: impl Future<Output = Result<(), FencingError>> + 'static,
    noting: Option<impl Future<Output = ()> + 'static>,
) -> Result<(), FencingError> {
    let mut tasks: JoinSet<Result<Option<Dropped>, FencingError>> = JoinSet::new();
    for (kind, stream) in [(ConnectionKind::Ordered, ordered), (ConnectionKind::Free, free)] {
        let engine = Rc::clone(engine);
        tasks.spawn_local(async move {
            Ok(connection::drive(engine, server, connection, kind, stream).await)
        });
    }
    if let Some(noting) = noting {
        tasks.spawn_local(async move {
            noting.await;
            Ok(None)
        });
    }
    tasks.spawn_local(async move { bringing.await.map(|()| None) });
    while let Some(ended) = tasks.join_next().await {
        let ended = ended.map_err(io::Error::other)?;
        let mut inner = engine.borrow();
        let is_current = inner.servers[server].connection == connection;
        match ended {
            Ok(Some(why)) if is_current => inner.drop_server(server, why),
            Err(error) if is_current => return Err(error),
            _ if !is_current => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

/// Whether what a duplicate did in earlier terms is what its watermark says, or cannot matter.
async fn knows(
    engine: &Engine,
    server: usize,
    connector: &Connector,
    watermark: Position,
) -> io::Result<bool> {
    {
        let inner = engine.look();
        let partition = inner.members.partition(server);
        if !inner.history.is_of_earlier_term(watermark) {
            return Ok(true);
        }
        if inner.history.renamed(partition, watermark).is_none() {
            return Ok(false);
        }
    }
    let done = backlog::has_done_the_same(engine, server, connector, watermark).await;
    let told = |error: &io::Error| tracing::info!(server, %error, "its stream is not read");
    Ok(done.inspect_err(told).unwrap_or(false))
}

/// Whether it can be a duplicate, and what it has for that.
async fn check(
    engine: &Engine,
    server: usize,
    connector: &Connector,
    ordered: &mut Link,
) -> Result<(), FencingError> {
    // First: who is none does not count where clients are told what all can do.
    if let Some(unsure) = redis_check::check(connector, ordered).await? {
        engine.borrow().is_unsure(server, &unsure);
    }
    let databases = redis_check::databases(connector, ordered).await?;
    let version = redis_check::version(connector, ordered).await?;
    {
        let mut inner = engine.borrow();
        inner.servers[server].version = version;
        inner.servers[server].databases = Some(databases);
    }
    if engine.look().config.log.place == LogPlace::Memory
        && let Some(unsure) = redis_check::check_backlog(connector, ordered).await?
    {
        engine.borrow().is_unsure(server, &unsure);
    }
    Ok(())
}

/// Has a server tell both connections when somebody empties it; nobody has until now.
async fn track(
    engine: &Engine,
    server: usize,
    connector: &Connector,
    (ordered, free): (&mut Link, &mut Link),
) -> Result<(), FencingError> {
    for link in [&mut *free, &mut *ordered] {
        if let Some(unsure) = redis_check::track(connector, link).await? {
            engine.borrow().is_unsure(server, &unsure);
        }
    }
    if let Connector::Tcp { .. } = connector {
        fencing::still_signed(ordered).await?;
    }
    Ok(())
}

/// What a server needs, or why it has to wait.
fn needed(engine: &Engine, server: usize, looked: Look) -> Result<Rejoin, FencingError> {
    let mut inner = engine.borrow();
    inner.servers[server].holds_data = Some(looked.holds_data);
    if let Some(lacks) = inner.lacks_database(server) {
        return Err(FencingError::Passing(lacks));
    }
    let served = inner.servers[server].databases.unwrap_or(1);
    let last = looked.database_last.min(served - 1); // keys beyond are nobody's
    let rejoin = inner.needed(server, looked)?;
    if !matches!(rejoin, Rejoin::Copy | Rejoin::Restore) {
        inner.uses_database(last); // what it has stays
    }
    match inner.lacks_database(server) {
        Some(lacks) => Err(FencingError::Passing(lacks)),
        None => Ok(rejoin),
    }
}

/// Brings a reached server up to date and makes it live.
async fn bring_up(
    engine: Rc<Engine>,
    server: usize,
    connection: u64,
    rejoin: Rejoin,
) -> Result<(), FencingError> {
    if engine.borrow().servers[server].connection != connection {
        return Ok(()); // it was dropped before it was begun with
    }
    match rejoin {
        Rejoin::Replay { after } => replay(engine, server, connection, after).await,
        Rejoin::Adopt => {
            let mut inner = engine.borrow();
            if inner.history.last().sequence > Sequence(0) {
                return Err(FencingError::Passing("another one's data came first".to_owned()));
            }
            let adopted = inner.history.adopt().sequence;
            inner.log.begin_after(adopted.0).map_err(io::Error::other)?;
            inner.members.reached(server, adopted);
            inner.is_up(server);
            Ok(())
        }
        Rejoin::Copy => fill(engine, server, connection).await,
        Rejoin::Restore => restore(engine, server, connection).await,
        Rejoin::Stranger | Rejoin::Wait => Ok(()),
    }
}

/// Sends what the log has after a write, then, in one moment, makes the server live.
async fn replay(
    engine: Rc<Engine>,
    server: usize,
    connection: u64,
    after: Sequence,
) -> Result<(), FencingError> {
    let reader = {
        let mut inner = engine.borrow();
        inner.members.reached(server, after);
        let part = inner.part(inner.members.partition(server));
        inner.log.read_after(after.0, Some(&part)).map_err(io::Error::other)?
    };
    feed((engine, server, connection), Some(after), reader, Inner::replay_one).await
}

/// Sends the whole log to a server that has nothing, where nobody is live to copy from. It says
/// "filling" until it has all: half of it is no state of any moment.
async fn restore(engine: Rc<Engine>, server: usize, connection: u64) -> Result<(), FencingError> {
    let mut reader = {
        let mut inner = engine.borrow();
        inner.members.reached(server, Sequence(0));
        let part = inner.part(inner.members.partition(server));
        inner.flush();
        if !inner.history.is_whole() {
            let gone = "the log has no state of everything any more, and nobody is live";
            return Err(FencingError::Passing(gone.to_owned()));
        }
        inner.log.read_everything(Some(&part)).map_err(io::Error::other)?
    };
    let mut restoring = Restoring::new(Rc::clone(&engine), server, connection);
    if reader.tells_time() && !restoring.run(&mut reader).await? {
        return Ok(());
    }
    feed((engine, server, connection), None, reader, Inner::restore_one).await
}

/// Sends what a reader finds until it is at the end of the log; then, in one moment, the server is
/// live: one that had the writes up to `after`, if no key has expired meanwhile that it may have
/// made anew.
async fn feed(
    (engine, server, connection): (Rc<Engine>, usize, u64),
    after: Option<Sequence>,
    mut reader: Reader,
    send: fn(&mut Inner, usize, &Record<'_>),
) -> Result<(), FencingError> {
    loop {
        wait_until(&engine, server, connection, |inner| {
            inner.members.owed(server) < REPLAY_OWED_MAX
                && inner.servers[server].ordered.waiting_bytes() < FILLING_BYTES_MAX
        })
        .await;
        {
            let mut inner = engine.borrow();
            if inner.servers[server].connection != connection {
                return Ok(());
            }
            inner.read_clock();
            inner.flush(); // what is appended is committed, so that the reader sees it
            if inner.servers[server].connection != connection {
                return Ok(()); // the log failed
            }
            while inner.members.owed(server) < REPLAY_OWED_MAX {
                if let Some(record) = reader.next().map_err(io::Error::other)? {
                    if let Some(lacks) = inner.lacks_database_of(server, record.command) {
                        return Err(FencingError::Passing(lacks));
                    }
                    send(&mut inner, server, &record);
                    continue;
                }
                if reader.is_at_end() {
                    let partition = inner.members.partition(server);
                    let is_alone = inner.members.live(partition).is_empty();
                    let can_follow = |after| inner.can_follow(server, after);
                    if !is_alone && !after.is_none_or(can_follow) {
                        let text = "keys expired while it got what it lacked: it is filled instead";
                        return Err(FencingError::Passing(text.to_owned()));
                    }
                    inner.is_up(server);
                    return Ok(());
                }
                break;
            }
            inner.schedule();
        }
        tokio::task::yield_now().await;
    }
}

/// Copies every key from a live server of the partition, while writes go on.
async fn fill(engine: Rc<Engine>, server: usize, connection: u64) -> Result<(), FencingError> {
    let (source, databases, connector, label) = {
        let mut inner = engine.borrow();
        inner.members.reached(server, Sequence(0));
        let live = inner.members.live(inner.members.partition(server));
        let able = live.iter().filter(|&source| !inner.is_executor(source));
        let source = able.min_by_key(|&source| inner.members.owed(source));
        let Some(source) = source else {
            return Err(FencingError::Passing("nobody is live to copy from".to_owned()));
        };
        let copying = Copying::new();
        inner.servers[server].bootstrap = Some(Bootstrap { source, copying });
        let databases = inner.servers[source].databases.unwrap_or(1);
        (source, databases, inner.connectors[source].clone(), inner.us_to(source).label())
    };
    if !drained(&engine, source).await {
        return Err(FencingError::Passing("the one it was to be filled from is gone".to_owned()));
    }
    let mut link = connect(&connector, &label).await?;
    link.wait_long();
    if let Connector::Tcp { .. } = connector {
        engine.borrow().seen(server, FUNCTIONS, xxh3_128(FUNCTIONS));
    }
    let mut all_keys = AllKeys::new(link, databases);
    while let Some(places) = all_keys.page().await? {
        {
            let mut inner = engine.borrow();
            // Also keys of shards that are on their way here, or have left and not all gone.
            for place in &places {
                inner.uses_database(databases::at(place).0);
                inner.seen(server, place, xxh3_128(place));
            }
            if let Some(lacks) = inner.lacks_database(server) {
                return Err(FencingError::Passing(lacks));
            }
        }
        let is_last = all_keys.is_over();
        let has_room = |inner: &mut Inner| {
            let state = &inner.servers[server];
            let Some(bootstrap) = &state.bootstrap else { return true };
            let max = if is_last { 1 } else { keys_max(inner.members.owed_max()) };
            bootstrap.copying.on_their_way() < max
                && bootstrap.copying.held_bytes() + state.ordered.waiting_bytes()
                    < FILLING_BYTES_MAX
        };
        wait_until(&engine, server, connection, has_room).await;
        if is_last {
            all_keys.still_signed().await?;
            wait_until(&engine, server, connection, has_room).await;
        }
        let mut inner = engine.borrow();
        if inner.servers[server].connection != connection {
            return Ok(());
        }
        if is_last {
            tracing::info!(server, source, "a duplicate was filled");
            inner.is_up(server);
        }
    }
    Ok(())
}

/// Writes every key's value into the log, partition after partition. Errors are told; what was
/// written is of no harm, only of no use.
pub(super) async fn write_state(engine: &Engine) -> io::Result<()> {
    let (began, partitions) = {
        let mut inner = engine.borrow();
        inner.flush();
        let began = inner.history.last().sequence;
        inner.log.state_begins(began.0).map_err(io::Error::other)?;
        (began, inner.map.partitions())
    };
    for partition in 0..partitions {
        if engine.borrow().members.configured(partition).is_empty() {
            continue; // it was closed
        }
        let written = write_state_of(engine, partition).await;
        engine.borrow().state_pass = None;
        written?;
    }
    let mut inner = engine.borrow();
    inner.flush();
    inner.log.state_ends(began.0).map_err(io::Error::other)?;
    inner.history.record_state(began);
    let freed = inner.log.truncate_before(began.0 + 1);
    inner.forget_gone();
    tracing::info!(service = inner.config.name, freed, "the log has a state of everything");
    Ok(())
}

async fn write_state_of(engine: &Engine, partition: usize) -> io::Result<()> {
    let failed = |why: &str| io::Error::other(format!("partition {partition}: {why}"));
    let lost = || failed("the duplicate that was asked is gone");
    let (source, (connection, databases), connector, label) = {
        let mut inner = engine.borrow();
        let source = inner.begin_pass(partition);
        let source = source.ok_or_else(|| failed("nobody is live"))?;
        let label = inner.us_to(source).label();
        let state = &inner.servers[source];
        let (connection, databases) = (state.connection, state.databases.unwrap_or(1));
        (source, (connection, databases), inner.connectors[source].clone(), label)
    };
    if !drained(engine, source).await {
        return Err(lost());
    }
    let link = connect(&connector, &label).await?;
    if let Connector::Tcp { .. } = connector {
        engine.borrow().seen_in_pass(FUNCTIONS, xxh3_128(FUNCTIONS));
    }
    let mut all_keys = AllKeys::new(link, databases);
    while let Some(places) = all_keys.page().await? {
        {
            let mut inner = engine.borrow();
            places.iter().for_each(|place| inner.seen_in_pass(place, xxh3_128(place)));
        }
        let is_last = all_keys.is_over();
        let has_room = |inner: &mut Inner| {
            let max = if is_last { 1 } else { keys_max(inner.members.owed_max()) };
            inner.state_pass.as_ref().is_none_or(|pass| {
                pass.copying.on_their_way() < max && pass.copying.held_bytes() < FILLING_BYTES_MAX
            })
        };
        wait_until(engine, source, connection, has_room).await;
        if is_last {
            all_keys.still_signed().await?;
            wait_until(engine, source, connection, has_room).await;
        }
        let inner = engine.borrow();
        if inner.state_pass.as_ref().is_none_or(|pass| pass.is_broken) {
            return Err(lost());
        }
        // What is recorded in vain drives out writes that somebody may be behind by.
        inner.log.check_begun().map_err(io::Error::other)?;
    }
    Ok(())
}

/// Keys that may be on their way: with two who are filled a source owes half of what it may.
pub(super) fn keys_max(owed_max: usize) -> usize {
    (owed_max / 8).clamp(1, KEYS_ON_THEIR_WAY_MAX)
}

/// Waits until a source has answered every write it was sent before now: a key that one of them
/// makes is in no page of `SCAN` before, and nobody else tells of it. False when it was dropped.
pub(super) async fn drained(engine: &Engine, source: usize) -> bool {
    let (connection, until) = {
        let inner = engine.borrow();
        (inner.servers[source].connection, inner.members.sent_to(source))
    };
    loop {
        {
            let mut inner = engine.borrow();
            if inner.servers[source].connection != connection {
                return false;
            }
            if inner.members.applied(source) >= until && inner.members.is_settled(source) {
                return true;
            }
            inner.mark(source);
            inner.schedule();
        }
        tokio::time::sleep(DRAINED_EVERY).await;
    }
}

/// Waits until this is true, or the connection is given up.
pub(super) async fn wait_until(
    engine: &Engine,
    server: usize,
    connection: u64,
    is_so: impl Fn(&mut Inner) -> bool,
) {
    std::future::poll_fn(|context| {
        let mut inner = engine.borrow();
        if inner.servers[server].connection != connection || is_so(&mut inner) {
            return Poll::Ready(());
        }
        inner.servers[server].progress = Some(context.waker().clone());
        Poll::Pending
    })
    .await;
}
