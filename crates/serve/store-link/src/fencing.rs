//! Whose a duplicate is: the epoch that fences, and what is told of a duplicate before it is used.
//!
//! Only one process writes to the duplicates of a service. Each *term* has an epoch, a number that
//! only rises, and the key `evenkeel:epoch` of every duplicate says whose writes it takes:
//! `EPOCH NONCE SERVICE`. Whoever comes later raises it *first* and ends the connections of earlier
//! leaders *then* (their names tell the epoch); whoever connects names itself *before* it reads the
//! epoch. So an earlier one is either ended or sees that it is late.
//!
//! **Only rises.** Between reading the epoch and writing one's own another one may have been there,
//! so a Redis compares and writes in one transaction (`WATCH` … `EXEC`). Emptying is one as well: a
//! process that was stopped, wakes and finds a duplicate without an epoch, because its successor
//! has just emptied it and has not signed it again, would take it for nobody's and bring it "up to
//! date" with its own log. The other stores have one owner, or fence by themselves.
//!
//! A client's `FLUSHALL` (`duplicates-engine/src/flush.rs`) signs a duplicate anew as well, and one
//! that an earlier leader had sent may be done after its successor has raised the epoch. So a
//! duplicate is fenced off when no earlier connection is left *and* the epoch is ours still:
//! whoever came in between and saw the earlier one is found and ended in the next round.
//!
//! **Nonce.** Without a common store two processes that are started in the same moment see the same
//! epochs. What they choose has a random part, and should they choose the same nonetheless, the
//! nonce shows it to the second, which then ends.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::LazyLock;

use evenkeel_ordered::{Epoch, Position, Sequence};

use crate::connect::{Link, connect};
use evenkeel_duplicates_config::Connector;
use evenkeel_stores::resp::backlog::{Landmarks, StreamPlace};
use evenkeel_stores::resp::reply::{integer, payload};
use evenkeel_stores::store::keys::{EPOCH, WATERMARK};

/// What is said while a duplicate is being filled: whoever finds it must begin again.
pub const FILLING: &[u8] = b"filling";
/// Where whoever has a history that is nobody's is.
pub const NOBODYS: Position = Position { epoch: Epoch(u64::MAX), sequence: Sequence(u64::MAX) };
/// Bits of an epoch that are chosen by chance where no common store gives it.
const CHANCE_BITS: u32 = 16;
/// Times that something may not be as it was made before it is tried again later.
const ROUNDS_MAX: usize = 16;

/// This process among all.
static NONCE: LazyLock<u64> = LazyLock::new(random);

/// What no other process has.
pub fn nonce() -> u64 {
    *NONCE
}

/// Each `RandomState` is keyed by the operating system's randomness.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// An epoch above this one that nobody else chooses who saw the same.
pub fn epoch_above(seen: u64) -> u64 {
    (((seen >> CHANCE_BITS) + 1) << CHANCE_BITS) | (random() >> (u64::BITS - CHANCE_BITS))
}

/// Why a duplicate cannot be used now.
pub enum FencingError {
    /// Try again.
    Passing(String),
    /// Never again: another process writes here.
    Fenced(String),
}

impl From<io::Error> for FencingError {
    fn from(error: io::Error) -> Self {
        Self::Passing(error.to_string())
    }
}

impl From<FencingError> for io::Error {
    fn from(error: FencingError) -> Self {
        let (FencingError::Passing(text) | FencingError::Fenced(text)) = error;
        Self::other(text)
    }
}

/// What a duplicate says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whose writes it takes; 0 where nobody has signed it.
    pub epoch: Epoch,
    /// The last write that it has; `None` where it was never written to by a service.
    pub watermark: Option<Position>,
    /// Whether it has keys that are not ours.
    pub holds_data: bool,
    /// The last database that has keys, as far as it tells.
    pub database_last: u8,
}

/// Asks a server what it has.
///
/// # Errors
/// When it does not answer, or is another service's.
pub async fn look(link: &mut Link, name: &str) -> io::Result<Look> {
    let stamp = Stamp::parse(&link.get(EPOCH).await?);
    stamp.check_service(name, link.address())?;
    let watermark = link.get(WATERMARK).await?;
    let watermark = payload(&watermark).map(parse_watermark);
    let size = link.ask(&[b"DBSIZE"]).await?;
    let size = integer(&size).and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
    let own = u64::from(stamp.epoch.0 > 0) + u64::from(watermark.is_some());
    let database_last = last_database(&link.ask(&[b"INFO", b"keyspace"]).await?);
    let holds_data = size > own || database_last > 0;
    Ok(Look { epoch: stamp.epoch, watermark, holds_data, database_last })
}

/// By the answer to `INFO keyspace`, which has a line for each database with keys.
fn last_database(reply: &[u8]) -> u8 {
    let text = String::from_utf8_lossy(payload(reply).unwrap_or_default()).into_owned();
    let number = |line: &str| {
        let number: u64 = line.strip_prefix("db")?.split_once(':')?.0.parse().ok()?;
        Some(u8::try_from(number).unwrap_or(u8::MAX))
    };
    text.lines().filter_map(number).max().unwrap_or_default()
}

/// One that is being filled, or that says nonsense, has a history that is nobody's.
fn parse_watermark(text: &[u8]) -> Position {
    let mut parts = text.split(|&byte| byte == b' ').map(number);
    match (parts.next().flatten(), parts.next().flatten(), parts.next()) {
        (Some(epoch), Some(sequence), None) => {
            Position { epoch: Epoch(epoch), sequence: Sequence(sequence) }
        }
        _ => NOBODYS,
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}

/// What `evenkeel:epoch` says: `EPOCH NONCE SERVICE`, and in a second line places in the stream of
/// the duplicate ([`Landmarks`]), which whoever signs it next leaves there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Stamp {
    /// 0 where there is none.
    epoch: Epoch,
    nonce: Option<u64>,
    service: Option<String>,
    landmarks: Option<Landmarks>,
}

impl Stamp {
    /// Of the answer to `GET`.
    fn parse(reply: &[u8]) -> Self {
        let text = String::from_utf8_lossy(payload(reply).unwrap_or_default()).into_owned();
        let (first, second) = text.split_once('\n').unwrap_or((&text, ""));
        let mut parts = first.trim_end().splitn(3, ' ');
        Self {
            landmarks: Landmarks::parse(second.as_bytes()),
            epoch: Epoch(parts.next().and_then(|epoch| epoch.parse().ok()).unwrap_or(0)),
            nonce: parts.next().and_then(|nonce| u64::from_str_radix(nonce, 16).ok()),
            service: parts.next().map(str::to_owned),
        }
    }

    fn check_service(&self, name: &str, address: &str) -> io::Result<()> {
        match &self.service {
            Some(service) if service != name => Err(io::Error::other(format!(
                "{address}: it belongs to the service '{service}', expected '{name}' or nobody's \
                 (are the addresses of two services swapped? Was the service renamed? Then set its \
                 key evenkeel:epoch to \"0 0 {name}\" while nobody runs)"
            ))),
            _ => Ok(()),
        }
    }
}

/// Who we are to a duplicate: in the names of our connections, and in what we sign it with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Us {
    /// The service.
    pub name: String,
    /// This term's.
    pub epoch: Epoch,
    /// Rises with each of our connections to this duplicate; 0 of those that only ask.
    pub number: u64,
}

impl Us {
    /// The name of a connection of ours: `evenkeel-SERVICE-EPOCH-NUMBER`.
    pub fn label(&self) -> String {
        format!("evenkeel-{}-{}-{}", self.name, self.epoch.0, self.number)
    }

    /// What `evenkeel:epoch` of a duplicate of ours says.
    pub fn stamp(&self) -> Vec<u8> {
        format!("{} {:016x} {}", self.epoch.0, *NONCE, self.name).into_bytes()
    }

    /// The same with places in its stream.
    fn stamp_with(&self, landmarks: Option<&Landmarks>) -> Vec<u8> {
        let mut stamp = self.stamp();
        if let Some(landmarks) = landmarks {
            stamp.push(b'\n');
            stamp.extend(landmarks.text());
        }
        stamp
    }

    /// Whether the connection whose name ends like this is of a sequencer before us, or an earlier
    /// one of ours, that may still be writing.
    fn is_after(&self, theirs: &str) -> bool {
        let mut parts = theirs.split('-').map(|part| part.parse::<u64>().ok());
        let (epoch, number) = (parts.next().flatten(), parts.next().flatten().unwrap_or(0));
        epoch.is_some_and(|epoch| {
            epoch < self.epoch.0 || epoch == self.epoch.0 && number > 0 && number < self.number
        })
    }

    /// The numbers of the connections in this answer to `CLIENT LIST` that must end.
    fn earlier(&self, list: &[u8]) -> Vec<String> {
        let list = payload(list).unwrap_or_default();
        // To whoever speaks RESP3 it is a text that says which kind it is.
        let list = list.strip_prefix(b"txt:").unwrap_or(list);
        let prefix = format!("name=evenkeel-{}-", self.name);
        let id = |line: &str| {
            let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
            let is_earlier = field(&prefix).is_some_and(|theirs| self.is_after(theirs));
            field("id=").filter(|_| is_earlier).map(str::to_owned)
        };
        String::from_utf8_lossy(list).lines().filter_map(id).collect()
    }

    /// Whether we may write where another one's stamp is.
    fn check(&self, theirs: &Stamp, address: &str) -> Result<(), FencingError> {
        let (name, ours) = (&self.name, self.epoch.0);
        theirs.check_service(name, address)?;
        if theirs.epoch.0 > ours {
            return Err(FencingError::Fenced(format!(
                "{address}: another process has taken over the duplicates of '{name}' (its epoch \
                 is {}, ours {ours}); only one may write (stop the other, then start this one \
                 anew)",
                theirs.epoch.0
            )));
        }
        if theirs.epoch == self.epoch && theirs.nonce.is_some_and(|nonce| nonce != *NONCE) {
            return Err(FencingError::Fenced(format!(
                "{address}: another process has taken over the duplicates of '{name}' in the same \
                 moment (its epoch is {ours} as well); start this one anew, or leave it"
            )));
        }
        Ok(())
    }
}

/// Tells a duplicate whose writes it takes, and ends the connections of sequencers before us, and
/// those before this one of ours: what was sent on them must not be applied after we have asked
/// what is.
///
/// # Errors
/// When another process has taken over, or it cannot be seen that no earlier connection is left.
pub async fn fence(link: &mut Link, us: &Us, connector: &Connector) -> Result<(), FencingError> {
    // Until it is seen that none is left: everything rests on it.
    for _ in 0..ROUNDS_MAX {
        raise(link, us, connector).await?;
        let list = link.ask(&[b"CLIENT", b"LIST"]).await?;
        if list.first() == Some(&b'-') {
            return match connector {
                Connector::Tcp { .. } => Err(FencingError::Passing(format!(
                    "{}: CLIENT LIST is refused ({}); without it nobody knows who else writes",
                    link.address(),
                    String::from_utf8_lossy(&list).trim_end()
                ))),
                Connector::Host(_) | Connector::Remote(_) => Ok(()), // ours has one owner
            };
        }
        let earlier = us.earlier(&list);
        if earlier.is_empty() {
            let signed = link.get(EPOCH).await?;
            let mut lines = payload(&signed).unwrap_or_default().split(|&byte| byte == b'\n');
            if lines.next() == Some(us.stamp().as_slice()) {
                return Ok(());
            }
        }
        for id in earlier {
            link.ask(&[b"CLIENT", b"KILL", b"ID", id.as_bytes()]).await?;
        }
    }
    let text = "connections of an earlier process cannot be ended (is CLIENT KILL forbidden?)";
    Err(FencingError::Passing(format!("{}: {text}", link.address())))
}

/// Writes our epoch where an earlier one or none is.
async fn raise(link: &mut Link, us: &Us, connector: &Connector) -> Result<(), FencingError> {
    for _ in 0..ROUNDS_MAX {
        let is_redis = matches!(connector, Connector::Tcp { .. });
        if is_redis {
            link.expect_ok(&[b"WATCH", EPOCH]).await?;
        }
        let theirs = link.get(EPOCH).await?;
        let before = Stamp::parse(&theirs);
        us.check(&before, link.address())?;
        let stamp = us.stamp_with(before.landmarks.as_ref());
        let sign: [&[u8]; 3] = [b"SET", EPOCH, &stamp];
        if !is_redis {
            return Ok(link.expect_ok(&sign).await?);
        }
        // Who was emptied while it was written to has a watermark, and not what that says.
        let is_emptied =
            payload(&theirs).is_none() && payload(&link.get(WATERMARK).await?).is_some();
        let disown: [&[u8]; 3] = [b"SET", WATERMARK, FILLING];
        let steps: &[&[&[u8]]] = if is_emptied { &[&disown, &sign] } else { &[&sign] };
        if link.transaction(steps).await? {
            return Ok(());
        }
    }
    let address = link.address();
    Err(FencingError::Passing(format!("{address}: others sign it again and again (who?)")))
}

/// The places in its stream that a duplicate has in its stamp.
///
/// # Errors
/// When it does not answer.
pub async fn landmarks(link: &mut Link) -> io::Result<Landmarks> {
    Ok(Stamp::parse(&link.get(EPOCH).await?).landmarks.unwrap_or_default())
}

/// Writes the place where its stream is now into the stamp of a duplicate of ours. The `last` one
/// has its watermark behind it once more: it may be the only place from which the stream is kept,
/// and would not tell what was done before it.
///
/// # Errors
/// When it is not ours any more, or does not answer.
pub async fn note_landmark(
    link: &mut Link,
    us: &Us,
    stream: &StreamPlace,
    is_last: bool,
) -> Result<(), FencingError> {
    link.expect_ok(&[b"WATCH", EPOCH]).await?;
    let mut mark = None;
    if is_last {
        link.expect_ok(&[b"WATCH", WATERMARK]).await?;
        mark = payload(&link.get(WATERMARK).await?).map(<[u8]>::to_vec);
    }
    let theirs = Stamp::parse(&link.get(EPOCH).await?);
    us.check(&theirs, link.address())?;
    let mut landmarks = theirs.landmarks.unwrap_or_default();
    landmarks.note(stream);
    let stamp = us.stamp_with(Some(&landmarks));
    let stamp: [&[u8]; 3] = [b"SET", EPOCH, &stamp];
    let mark = mark.as_ref().map(|mark| [&b"SET"[..], WATERMARK, mark]);
    let mut writes = vec![&stamp[..]];
    writes.extend(mark.as_ref().map(|it| &it[..]));
    if theirs.epoch == us.epoch && link.transaction(&writes).await? {
        return Ok(());
    }
    let text = "another one has signed it, or nobody";
    Err(FencingError::Passing(format!("{}: {text}", link.address())))
}

/// Whether all that a duplicate told until now was its data: who was emptied meanwhile has no
/// epoch.
///
/// # Errors
/// When it was.
pub async fn still_signed(link: &mut Link) -> io::Result<()> {
    if payload(&link.get(EPOCH).await?).is_some() {
        return Ok(());
    }
    let text = format!("{}: somebody emptied it while it was copied", link.address());
    Err(io::Error::other(text))
}

/// Empties a duplicate that is ours. It never is without our epoch.
///
/// # Errors
/// When it is not ours any more.
pub async fn empty(link: &mut Link, us: &Us, connector: &Connector) -> Result<(), FencingError> {
    let stamp = us.stamp();
    let steps: [&[&[u8]]; 3] =
        [&[b"FLUSHALL"], &[b"SET", WATERMARK, FILLING], &[b"SET", EPOCH, &stamp]];
    if !matches!(connector, Connector::Tcp { .. }) {
        for step in steps {
            link.expect_ok(step).await?;
        }
        return Ok(());
    }
    link.expect_ok(&[b"WATCH", EPOCH]).await?;
    let theirs = Stamp::parse(&link.get(EPOCH).await?);
    us.check(&theirs, link.address())?;
    if theirs.epoch == us.epoch && link.transaction(&steps).await? {
        return Ok(());
    }
    let address = link.address();
    let text = "it was signed by another one, or lost its epoch, as it was to be emptied";
    Err(FencingError::Passing(format!("{address}: {text}")))
}

/// Has a duplicate of ours that lacks a write, from this one on, say so to whoever leads next, if
/// its watermark tells that it has that: without an epoch it is one that was emptied. That takes no
/// memory of it, which it may have refused the write for; a transaction does. Whoever signs it
/// between the two sees that, since this connection is an earlier one's then ([`fence`]). A node of
/// Redis Cluster may also have more than its watermark tells, and may have lost the slot of that.
///
/// # Errors
/// When it does not answer, or refuses that as well.
pub async fn disown(link: &mut Link, us: &Us, lacked: Sequence) -> io::Result<()> {
    let theirs = Stamp::parse(&link.get(EPOCH).await?);
    if theirs.epoch != us.epoch {
        return Ok(());
    }
    if !link.is_node() {
        let mark = link.get(WATERMARK).await?;
        let mark = payload(&mark).map(parse_watermark).filter(|&mark| mark != NOBODYS);
        if mark.is_none_or(|mark| mark.sequence < lacked) {
            return Ok(());
        }
    }
    let removed = link.ask(&[b"DEL", EPOCH]).await?;
    match integer(&removed) {
        Some(_) => Ok(()),
        None => Err(io::Error::other(String::from_utf8_lossy(&removed).trim_end().to_owned())),
    }
}

/// Fences a server off from whoever wrote before, then asks what it has: nothing comes after that.
///
/// # Errors
/// When it is not reached, or another sequencer has a later epoch.
pub async fn fence_off(connector: &Connector, name: &str, epoch: Epoch) -> io::Result<Look> {
    let us = Us { name: name.to_owned(), epoch, number: 0 };
    let mut link = connect(connector, &us.label()).await?;
    fence(&mut link, &us, connector).await?;
    look(&mut link, name).await
}

/// What this server holds is the history from now on, under this name.
///
/// # Errors
/// When it is not reached or refuses.
pub async fn found(connector: &Connector, name: &str, history: Position) -> io::Result<()> {
    let Position { epoch: Epoch(epoch), sequence: Sequence(sequence) } = history;
    let us = Us { name: name.to_owned(), epoch: history.epoch, number: 0 };
    let mut link = connect(connector, &us.label()).await?;
    link.expect_ok(&[b"SET", WATERMARK, format!("{epoch} {sequence}").as_bytes()]).await
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A real Redis that ends with the test.
    struct Redis(Child);

    impl Drop for Redis {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// `None`, said aloud, where Redis is not installed.
    fn redis() -> Option<(Redis, Connector)> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let port = address.port().to_string();
        let child = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", ""])
            .stdout(Stdio::null())
            .spawn();
        match child {
            Ok(child) => {
                let address = address.into();
                Some((
                    Redis(child),
                    Connector::Tcp { address, login: None, tls: None, is_cluster: false },
                ))
            }
            Err(error) => {
                eprintln!("SKIPPED: redis-server: {error} (apt-get install redis-server)");
                None
            }
        }
    }

    async fn linked(connector: &Connector) -> Link {
        let begun = std::time::Instant::now();
        loop {
            match connect(connector, "evenkeel-cart-look").await {
                Ok(link) => return link,
                Err(error) => assert!(begun.elapsed().as_secs() < 10, "{error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    fn run(story: impl AsyncFnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        tokio::task::LocalSet::new().block_on(&runtime.unwrap(), story());
    }

    #[test]
    fn the_last_database_with_keys_is_told() {
        let text = "# Keyspace\r\ndb0:keys=2,expires=0,avg_ttl=0\r\ndb11:keys=1,expires=0\r\n";
        let reply = |kind: &str| format!("{kind}{}\r\n{text}\r\n", text.len()).into_bytes();
        assert_eq!(last_database(&reply("$")), 11);
        assert_eq!(last_database(b"$12\r\n# Keyspace\r\n\r\n"), 0);
        assert_eq!(last_database(b"-ERR no\r\n"), 0);
    }

    /// Both have seen what was there when one of them writes: the other one must see that.
    #[test]
    fn of_two_in_the_same_moment_the_later_epoch_stays() {
        let Some((_redis, connector)) = redis() else { return };
        run(async || {
            let (mut one, mut other) = (linked(&connector).await, linked(&connector).await);
            for round in 0..20 {
                let (early, late) = (us(2 * round + 1, 0), us(2 * round + 2, 0));
                let its_connector = connector.clone();
                let raising = tokio::task::spawn_local(async move {
                    let _ = raise(&mut other, &early, &its_connector).await; // it may come too late
                    other
                });
                assert!(raise(&mut one, &late, &connector).await.is_ok());
                other = raising.await.unwrap();
                let stamp = Stamp::parse(&one.ask(&[b"GET", EPOCH]).await.unwrap());
                assert_eq!(stamp.epoch, late.epoch, "an epoch is never lowered");
            }
        });
    }

    /// A way to a server that does this just before it passes on the first command with this word.
    async fn before(
        word: &'static str,
        to: std::net::SocketAddr,
        act: impl AsyncFn(),
    ) -> (std::net::SocketAddr, impl Future<Output = ()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let relay = async move {
            let (client, _) = listener.accept().await.unwrap();
            let server = tokio::net::TcpStream::connect(to).await.unwrap();
            let ((mut asks, mut hears), (mut replies, mut sends)) =
                (client.into_split(), server.into_split());
            tokio::task::spawn_local(async move {
                drop(tokio::io::copy(&mut replies, &mut hears).await);
            });
            let (mut bytes, mut has_acted) = (vec![0; 4_096], false);
            while let Ok(count @ 1..) = asks.read(&mut bytes).await {
                let asked = &bytes[..count];
                if !has_acted && asked.windows(word.len()).any(|it| it == word.as_bytes()) {
                    has_acted = true;
                    act().await;
                }
                sends.write_all(asked).await.unwrap();
            }
            assert!(has_acted, "nobody said {word}");
        };
        (address, relay)
    }

    /// What it had sent is done between the later one's epoch and the end of its connection.
    #[test]
    fn who_flushes_while_it_is_fenced_off_leaves_the_later_epoch() {
        let Some((_redis, connector)) = redis() else { return };
        let Connector::Tcp { address, .. } = connector.clone() else { unreachable!() };
        run(async || {
            let mut direct = linked(&connector).await;
            for (round, word) in [(1, "LIST"), (2, "KILL")] {
                let (early, late) = (us(2 * round, 1), us(2 * round + 1, 1));
                assert!(fence(&mut direct, &early, &connector).await.is_ok());
                let theirs = connect(&connector, &early.label()).await.unwrap();
                let theirs = tokio::sync::Mutex::new(theirs);
                let stamp = early.stamp();
                let lower = async move || {
                    let mset: [&[u8]; 3] = [b"MSET", EPOCH, &stamp];
                    assert!(theirs.lock().await.ask(&mset).await.is_ok(), "it was too late");
                };
                let to = address.to_string().parse().unwrap();
                let (through, relay) = before(word, to, lower).await;
                let relaying = tokio::task::spawn_local(relay);
                let through = Connector::Tcp {
                    address: through.into(),
                    login: None,
                    tls: None,
                    is_cluster: false,
                };
                let mut link = connect(&through, "evenkeel-cart-look").await.unwrap();
                assert!(fence(&mut link, &late, &through).await.is_ok());
                drop(link);
                relaying.await.unwrap();
                let stamp = Stamp::parse(&direct.ask(&[b"GET", EPOCH]).await.unwrap());
                assert_eq!(stamp.epoch, late.epoch, "an epoch is never lowered");
            }
        });
    }

    /// It was restarted with an older state: whoever wrote then may be writing again.
    #[test]
    fn a_duplicate_that_lost_our_epoch_is_not_emptied_before_it_is_fenced_off_anew() {
        let Some((_redis, connector)) = redis() else { return };
        run(async || {
            let mut link = linked(&connector).await;
            assert!(fence(&mut link, &us(7, 1), &connector).await.is_ok());
            for theirs in ["6 00ff cart", ""] {
                link.expect_ok(&[b"SET", EPOCH, theirs.as_bytes()]).await.unwrap();
                link.expect_ok(&[b"SET", b"k", b"1"]).await.unwrap();
                let emptied = empty(&mut link, &us(7, 1), &connector).await;
                let Err(FencingError::Passing(why)) = emptied else { panic!("it was emptied") };
                assert!(why.contains("lost its epoch"), "{why}");
                assert_eq!(payload(&link.ask(&[b"GET", b"k"]).await.unwrap()), Some(&b"1"[..]));
            }
            assert!(fence(&mut link, &us(7, 1), &connector).await.is_ok());
            assert!(empty(&mut link, &us(7, 1), &connector).await.is_ok());
            assert_eq!(link.ask(&[b"EXISTS", b"k"]).await.unwrap(), b":0\r\n");
        });
    }

    fn us(epoch: u64, number: u64) -> Us {
        Us { name: "cart".to_owned(), epoch: Epoch(epoch), number }
    }

    #[test]
    fn earlier_connections_of_ours_and_all_of_those_before_us_are_ended() {
        let us = us(7, 5);
        let reported = us.label();
        assert_eq!(reported, "evenkeel-cart-7-5");
        for (theirs, is_ended) in [
            ("7-5", false),
            ("7-4", true),
            ("7-0", false), // one that only asks
            ("7", false),
            ("6-9", true),
            ("6", true),
            ("8-1", false),
            ("look", false),
        ] {
            assert_eq!(us.is_after(theirs), is_ended, "{theirs}");
        }
    }

    #[test]
    fn the_first_of_a_list_is_ended_as_well() {
        let lines = "id=3 addr=127.0.0.1:5 fd=8 name=evenkeel-cart-6-1 age=9 db=0\n\
                     id=4 addr=127.0.0.1:6 fd=9 name=evenkeel-cart-7-5 age=1 db=0\n\
                     id=5 addr=127.0.0.1:7 fd=10 name= age=1 db=0\n\
                     id=6 addr=127.0.0.1:8 fd=11 name=evenkeel-cart-6-2 age=9 db=0\n";
        // As a Redis says it in RESP3, and in RESP2.
        let verbatim = format!("={}\r\ntxt:{lines}\r\n", lines.len() + 4);
        let bulk = format!("${}\r\n{lines}\r\n", lines.len());
        for list in [verbatim, bulk] {
            assert_eq!(us(7, 5).earlier(list.as_bytes()), ["3", "6"], "{list}");
        }
    }

    #[test]
    fn what_is_no_watermark_is_nobodys_history() {
        let known = Position { epoch: Epoch(3), sequence: Sequence(42) };
        assert_eq!(parse_watermark(b"3 42"), known);
        for text in [FILLING, b"", b"3", b"3 42 1", b"x 1", b"-1 2"] {
            assert_eq!(parse_watermark(text).epoch, Epoch(u64::MAX), "{text:?}");
        }
    }

    #[test]
    fn a_duplicate_takes_the_latest_epoch_of_its_own_service_and_of_one_process() {
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len()).into_bytes();
        let own = String::from_utf8(us(7, 1).stamp()).unwrap();
        let fenced = |text: &str| match us(7, 1).check(&Stamp::parse(&bulk(text)), "a:1") {
            Ok(()) => None,
            Err(FencingError::Fenced(text)) => Some((true, text)),
            Err(FencingError::Passing(text)) => Some((false, text)),
        };
        for ours in [&own, "6 00ff cart", "7", "", "nonsense"] {
            assert_eq!(fenced(ours), None, "{ours:?}");
        }
        assert!(us(7, 1).check(&Stamp::parse(b"_\r\n"), "a:1").is_ok());
        let (is_fenced, why) = fenced("8 00ff cart").unwrap();
        assert!(is_fenced && why.contains("its epoch is 8, ours 7"), "{why}");
        let other = format!("7 {:016x} cart", *NONCE ^ 1);
        let (is_fenced, why) = fenced(&other).unwrap();
        assert!(is_fenced && why.contains("in the same moment"), "{why}");
        let (is_fenced, why) = fenced("3 00ff the till").unwrap();
        assert!(!is_fenced && why.contains("'the till', expected 'cart'"), "{why}");
    }

    #[test]
    fn an_epoch_is_above_all_seen_and_hardly_ever_chosen_twice() {
        for seen in [0, 1, 65_535, 65_536, (9 << 16) | 77] {
            let chosen = epoch_above(seen);
            assert!(chosen > seen && chosen >> 16 == (seen >> 16) + 1, "{seen} → {chosen}");
        }
        let chosen: std::collections::BTreeSet<u64> = (0..20).map(|_| epoch_above(3)).collect();
        assert!(chosen.len() > 10, "{chosen:?}");
    }
}
