//! Who may write at all, where several processes stand by: a lease in etcd.
//!
//! | key below the prefix | what it holds | until when |
//! |---|---|---|
//! | `reign` | who leads | the lease ends |
//! | `epoch` | the last epoch that was given, a number that only rises | for ever |
//! | `map` | who holds which shard, who the duplicates are: a [`layout::Layout`] | for ever |
//! | `processes/ADDRESS` | that a process serves clients of Redis Cluster there | its own lease ends |
//! | `groups/G/…` | the first three of each group, where there are several ([`groups`]) | as above |
//!
//! **Two lines of defence.** The lease says who *should* write, the epoch at every duplicate who
//! *can* (`fencing.rs` of duplicates). Where a majority acknowledges, the second alone is enough:
//! whoever leads has fenced off a majority before its first write. The lease makes that nobody else
//! even tries, and it is what the other levels have.
//!
//! **The holder's clock.** It counts from *before* it asked for the lease or its renewal, and ends
//! an eighth earlier than the lease: so it has stopped telling clients anything before another can
//! have been given the lease, as long as clocks tick within an eighth of each other. The clock goes
//! on while the process is stopped and while the machine sleeps, and is read for every answer that
//! matters. What is not renewed in time is not given up: when etcd answers again and the lease is
//! still there, it goes on.
//!
//! [`layout`] is the other thing that is kept of a service besides its log: in a file, or here.
//!
//! **Clients** may connect to any process: who stands by passes them on (`relay.rs`); those that
//! know Sentinel's protocol are told who leads (`sentinel.rs`), those of Redis Cluster who leads
//! which slots ([`cluster`]; `processes.rs` knows who is there).
//!
//! **What a new holder must know** it has from the duplicates: it takes an epoch above all that
//! were given, fences them off and begins from what a majority has.

pub mod cluster;
mod error;
mod etcd;
mod etcd_store;
pub mod groups;
pub mod layout;
mod processes;
mod relay;
mod sentinel;
#[cfg(test)]
mod tests;
mod ways;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use self::error::LeadershipError;
use self::etcd::{Campaign, Election, Held, Kept, Renewed, Swapped};
pub use self::etcd_store::EtcdStore;
pub use self::groups::{Group, Known, Loads, Processes};
pub use self::processes::announce;
pub use self::relay::{Door, Holder, StandIn, ended, name};
pub use self::sentinel::Sentinel;
pub use self::ways::{Reached, Unreached, Ways};
use evenkeel_stores::clients::error::RemoteError;
use tokio::sync::Notify;

/// Parts of a lease between two renewals.
const RENEWALS: u32 = 4;
/// Parts of a lease after which a renewal that failed is tried again.
const RENEWALS_AGAIN: u32 = 16;
/// Parts of a lease of which the last one is not relied on.
const MARGIN: u32 = 8;
/// Parts of a lease after which somebody who stands by looks again.
const LOOKS: u32 = 10;

/// Where processes take turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The members' gateways, `http://host:port` or `https://…`.
    pub endpoints: Vec<String>,
    /// What keys begin with, without a slash at the end; one for each service.
    pub prefix: String,
    /// How long nobody else may lead after the holder was heard last: whole seconds, at least 2
    /// (etcd grants no less as it is set up by default).
    pub lease: Duration,
    /// Who to be, where authentication is on.
    pub user: Option<String>,
    /// Where that user's password is.
    pub password_file: Option<PathBuf>,
    /// The authority that members are believed by, for `https`.
    pub authority: Option<PathBuf>,
    /// The own certificate and key, where members want one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether to wait while another one leads; otherwise that is an error.
    pub standby: bool,
}

impl EtcdSettings {
    /// Those of one group: a service that has several has keys for each.
    #[must_use]
    pub fn of_group(&self, group: Group) -> Self {
        match group.is_whole() {
            true => self.clone(),
            false => Self { prefix: etcd::prefix_of(&self.prefix, group.number), ..self.clone() },
        }
    }
}

/// Being the one who leads, for as long as the lease is renewed.
#[derive(Debug)]
pub struct Leadership {
    election: Election,
    who: String,
    held: RefCell<Rc<Held>>,
    /// The last one that was given to this process.
    epoch: Cell<u64>,
    /// It was given up, and whether it may be had again.
    given_up: Cell<Option<bool>>,
    told: Notify,
    /// On the clock that goes on while the machine sleeps.
    until: Cell<Duration>,
    error: RefCell<Option<String>>,
}

/// Waits until nobody else leads; `reported` is called with who does, whenever that changes. `who`
/// is a [`name`]. So many looks at a lease that nobody has are left to others as `waits` says;
/// `None`: all of them.
///
/// # Errors
/// When etcd's answer is one that waiting does not change, or another one leads and we are not to
/// wait.
pub async fn enter(
    settings: &EtcdSettings,
    service: &str,
    who: &str,
    waits: impl Fn() -> Option<usize>,
    mut reported: impl FnMut(Holder),
) -> io::Result<Leadership> {
    let wrong = |error: LeadershipError| io::Error::other(format!("duplicates.{service}: {error}"));
    let election = Election::open(settings).map_err(wrong)?;
    let pause = settings.lease / LOOKS;
    let (mut said, mut vacant) = (Holder::default(), 0);
    loop {
        let asked = boot_time();
        let takes = waits().is_some_and(|waits| vacant >= waits);
        let campaign = election.campaign(who, takes).await;
        vacant = if matches!(campaign, Ok(Campaign::Vacant)) { vacant + 1 } else { 0 };
        let (holder, is_held) = match campaign {
            Ok(Campaign::Won(held)) => {
                let until = asked + relied_on(held.granted);
                tracing::info!(service, lease = ?held.granted, "this process leads");
                return Ok(Leadership {
                    election,
                    who: who.to_owned(),
                    held: RefCell::new(Rc::new(held)),
                    epoch: Cell::new(0),
                    given_up: Cell::new(None),
                    told: Notify::new(),
                    until: Cell::new(until),
                    error: RefCell::new(None),
                });
            }
            Ok(Campaign::Lost(holder)) if !settings.standby => {
                let place = election.place().to_owned();
                return Err(wrong(LeadershipError::Taken { place, holder }));
            }
            Ok(Campaign::Lost(holder)) => (Holder::of(&holder), true),
            Ok(Campaign::Vacant) => (said.clone(), true),
            Err(error) if error.may_pass => {
                let words = format!("{} does not tell who leads: {error}", election.place());
                (Holder { words, ..said.clone() }, false)
            }
            Err(error) => {
                let place = election.place().to_owned();
                return Err(wrong(LeadershipError::Refused { place, error: error.into() }));
            }
        };
        if holder != said {
            match is_held {
                true => tracing::info!(service, "standing by: {}", holder.words),
                false => tracing::warn!(service, "standing by: {}", holder.words),
            }
            reported(holder.clone());
            said = holder;
        }
        // Nobody is served meanwhile.
        tokio::time::sleep(if vacant > 0 { pause / 2 } else { pause }).await;
    }
}

impl Leadership {
    /// Whether nobody else can have been given the lease by now.
    #[inline]
    pub fn is_valid(&self) -> bool {
        boot_time() < self.until.get() && self.given_up.get().is_none()
    }

    /// How long clients may wait, while it is not valid, for what becomes of it: as long as those
    /// of a process that stands by. `None` where it was given up: somebody else leads at once.
    pub fn patience(&self) -> Option<Duration> {
        self.given_up.get().is_none().then(|| 2 * self.held().granted)
    }

    /// For clients and people, when it is not valid.
    pub fn why_invalid(&self) -> String {
        let why = self.error.borrow();
        let why = why.as_deref().unwrap_or("this process was stopped, or slept");
        let place = self.election.place();
        let was = if self.given_up.get().is_some() { "given up" } else { "not renewed in time" };
        format!("the lease in {place} was {was} ({why}); another one may lead")
    }

    fn held(&self) -> Rc<Held> {
        Rc::clone(&self.held.borrow())
    }

    /// This process cannot do what whoever leads must: somebody else may lead at once.
    pub fn give_up(&self, why: &str) {
        self.until.set(Duration::ZERO);
        self.error.replace(Some(why.to_owned()));
        self.given_up.set(Some(false));
        self.told.notify_one();
    }

    /// It can again, and leads again unless somebody else has led meanwhile.
    pub fn regain(&self) {
        self.given_up.set(self.given_up.get().and(Some(true)));
        self.told.notify_one();
    }

    /// An epoch above this one and above all that were ever given.
    ///
    /// # Errors
    /// When another one leads, or etcd does not answer in several attempts.
    pub async fn epoch_above(&self, seen: u64) -> io::Result<u64> {
        let mut last = String::new();
        for _ in 0..2 * RENEWALS {
            match self.election.give_epoch(&self.held(), seen).await {
                Ok(Some(epoch)) => {
                    self.epoch.set(epoch);
                    return Ok(epoch);
                }
                Ok(None) => return Err(self.lost()),
                Err(error) => last = error.message,
            }
            tokio::time::sleep(self.held().granted / RENEWALS).await;
        }
        Err(io::Error::other(format!("{}: no epoch was given: {last}", self.election.place())))
    }

    /// Renews the lease for as long as it is there; how it was lost.
    pub async fn keep(self: Rc<Self>) -> io::Error {
        loop {
            let held = self.held();
            let has_failed = self.error.borrow().is_some() && self.given_up.get().is_none();
            let parts = if has_failed { RENEWALS_AGAIN } else { RENEWALS };
            let told = tokio::time::timeout(held.granted / parts, self.told.notified());
            let _ = told.await; // sooner or later
            if self.given_up.get().is_some() {
                match self.come_back(&held).await {
                    Ok(()) => continue,
                    Err(lost) => return lost,
                }
            }
            let asked = boot_time();
            match self.election.renew(&held).await {
                Ok(Renewed::For(granted)) => {
                    self.until.set(self.until.get().max(asked + relied_on(granted)));
                    if self.error.take().is_some() {
                        tracing::info!("the lease is renewed again");
                    }
                }
                Ok(Renewed::Ended) => return self.lost(),
                Err(error) => {
                    if self.error.borrow().as_ref() != Some(&error.message) {
                        tracing::warn!(%error, "the lease is not renewed");
                    }
                    self.error.replace(Some(error.message));
                }
            }
        }
    }

    /// Ends the lease that was given up; takes another one once this process can lead again and as
    /// long as nobody else has.
    ///
    /// # Errors
    /// When somebody else leads, or has.
    async fn come_back(&self, held: &Held) -> Result<(), io::Error> {
        self.election.revoke(held).await;
        let has_led = async || Some(self.election.last_epoch().await.ok()? != self.epoch.get());
        let asked = boot_time();
        match has_led().await {
            Some(true) => return Err(self.lost()),
            Some(false) if self.given_up.get() == Some(true) => {}
            _ => return Ok(()),
        }
        match self.election.campaign(&self.who, true).await {
            Ok(Campaign::Won(held)) => {
                if has_led().await != Some(false) {
                    self.election.revoke(&held).await;
                    return Ok(()); // the next look tells
                }
                self.until.set(asked + relied_on(held.granted));
                self.held.replace(Rc::new(held));
                self.error.take();
                self.given_up.set(None);
                tracing::info!("this process leads again");
                Ok(())
            }
            Ok(Campaign::Lost(_)) => Err(self.lost()),
            Ok(Campaign::Vacant) | Err(_) => Ok(()),
        }
    }

    /// The map, as whoever led last stored it.
    async fn load_map(&self) -> Result<Option<Kept>, RemoteError> {
        self.election.read_map().await
    }

    /// Replaces the map of this revision (0: there is none), unless another one leads by now.
    ///
    /// # Errors
    /// One that may pass: nobody knows whether it was replaced. Otherwise it was not.
    async fn swap_map(&self, revision: u64, bytes: &[u8]) -> Result<Swapped, RemoteError> {
        self.election.swap_map(&self.held(), revision, bytes).await
    }

    fn lost(&self) -> io::Error {
        let place = self.election.place();
        io::Error::other(format!(
            "another process has taken over, or may: the lease in {place} has ended (was this \
             process stopped, or is the lease too short? Start it anew, with standby = true to \
             wait for its turn)"
        ))
    }

    /// Lets somebody else lead at once.
    pub async fn resign(&self) {
        self.until.set(Duration::ZERO);
        self.election.revoke(&self.held()).await;
    }
}

/// How much of a lease its holder relies on.
fn relied_on(granted: Duration) -> Duration {
    granted - granted / MARGIN
}

/// Time since the machine was started, its sleep included.
fn boot_time() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
