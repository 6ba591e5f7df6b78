//! What all connections and the driver of one mesh share, on one thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use evenkeel_core::Instant;
use evenkeel_geo::epoch::{EpochSync, Reason, SiteId};
use evenkeel_geo::planner::Planner;
use evenkeel_geo::wan::{Learnt, Probe, Wan};
use tokio::sync::watch;

use super::MeshConfig;
use super::followers::{Followers, Unbelieved};
use super::frame::Nonsense;
use super::identity::{Identity, Stranger};

use super::settings::Settings;
use evenkeel_runtime::bucket::Bucket;
use evenkeel_runtime::clock::Clock;

/// Unlike frames of a peer are counted by these words: rows by [`Reason::name`], frames by
/// [`Nonsense::name`].
pub(super) const REJECTIONS: usize = Reason::ALL.len() + Nonsense::NAMES.len();

/// The word of a place in [`Peer::rejected`].
pub(super) fn rejection_name(index: usize) -> &'static str {
    match Reason::ALL.get(index) {
        Some(reason) => reason.name(),
        None => Nonsense::NAMES[index - Reason::ALL.len()],
    }
}

evenkeel_core::named! {
    /// Why a connection was not taken, or could not be made.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum Refusal {
        /// The other end speaks no TLS, shows no certificate, or one that is not believed.
        Tls = "tls",
        /// Its certificate names no site, or several.
        UnknownSite = "unknown-site",
        /// Its certificate names another site than was asked for, or this one.
        OtherSite = "other-site",
        /// It did not finish in time.
        Timeout = "timeout",
        /// There are as many already as are taken at once.
        Full = "full",
        /// Nobody listens there, or the network does not lead there.
        Unreachable = "unreachable",
    }
}

impl From<Stranger> for Refusal {
    fn from(stranger: Stranger) -> Self {
        match stranger {
            Stranger::NoSite | Stranger::SeveralSites => Self::UnknownSite,
            Stranger::OtherSite => Self::OtherSite,
            Stranger::Unread => Self::Tls,
        }
    }
}

/// Counts by [`Refusal`].
pub(super) type Refusals = [u64; Refusal::ALL.len()];

/// Bytes on the wire, TLS included, TCP and IP not.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) sent: Cell<u64>,
    pub(super) received: Cell<u64>,
}

/// What is known of, and counted about, another site.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) wan: RefCell<Wan>,
    rejected: RefCell<[u64; REJECTIONS]>,
    pub(super) throttled: Cell<u64>,
    pub(super) rows: Cell<u64>,
    /// Connections that this site has to it and from it.
    pub(super) dialled: Cell<u32>,
    pub(super) accepted: Cell<u32>,
    pub(super) unmade: Cell<Refusals>,
    /// Of these, what was not worth a word: all were starting.
    unmade_at_start: Cell<Refusals>,
    /// In what its settings differ from ours, as it told last.
    pub(super) differs: RefCell<Vec<String>>,
}

/// Everything connections share.
pub(super) struct Hub {
    pub(super) config: MeshConfig,
    pub(super) clock: Clock,
    pub(super) sync: RefCell<EpochSync>,
    /// What must be set alike, and what it is hashed to for rows.
    pub(super) settings: Settings,
    pub(super) fingerprint: u32,
    /// Further processes of this site.
    pub(super) followers: RefCell<Followers>,
    /// By site; this one has an entry that nobody uses.
    pub(super) peers: Vec<Peer>,
    /// The newest row, framed.
    pub(super) rows: watch::Sender<Bytes>,
    pub(super) traffic: Rc<Traffic>,
    pub(super) refused: Cell<Refusals>,
    pub(super) handshakes: Cell<u32>,
    identity: RefCell<(u64, Arc<Identity>)>,
    pub(super) reloads_failed: Cell<u64>,
    events: RefCell<VecDeque<String>>,
}

/// Events kept until the driver fetches them.
const EVENTS_MAX: usize = 64;

impl Hub {
    pub(super) fn new(
        config: MeshConfig,
        clock: Clock,
        sync: EpochSync,
        identity: Identity,
        planner: &Planner,
    ) -> Self {
        let peer = |_| Peer {
            wan: RefCell::new(config.wan()),
            rejected: RefCell::new([0; REJECTIONS]),
            throttled: Cell::new(0),
            rows: Cell::new(0),
            dialled: Cell::new(0),
            accepted: Cell::new(0),
            unmade: Cell::new([0; Refusal::ALL.len()]),
            unmade_at_start: Cell::default(),
            differs: RefCell::default(),
        };
        let (sites, period) = (config.names.len(), planner.config().period);
        Self {
            settings: Settings::new(&config.names, planner),
            fingerprint: config.fingerprint(planner),
            followers: RefCell::new(Followers::new(config.site.index(), sites, period)),
            peers: (0..config.names.len()).map(peer).collect(),
            clock,
            sync: RefCell::new(sync),
            rows: watch::Sender::new(Bytes::new()),
            traffic: Rc::default(),
            refused: Cell::new([0; Refusal::ALL.len()]),
            handshakes: Cell::new(0),
            identity: RefCell::new((0, Arc::new(identity))),
            reloads_failed: Cell::new(0),
            events: RefCell::default(),
            config,
        }
    }

    pub(super) fn peer(&self, site: SiteId) -> &Peer {
        &self.peers[site.index()]
    }

    pub(super) fn name(&self, site: SiteId) -> &str {
        &self.config.names[site.index()]
    }

    /// The certificates in force, and how often they were replaced.
    pub(super) fn identity(&self) -> (u64, Arc<Identity>) {
        let identity = self.identity.borrow();
        (identity.0, Arc::clone(&identity.1))
    }

    /// How often the certificates were replaced.
    pub(super) fn generation(&self) -> u64 {
        self.identity.borrow().0
    }

    /// Reads the certificates again and takes them when they have changed and are sound.
    pub(super) fn reload(&self) {
        let (generation, present) = self.identity();
        let me = self.config.site;
        match self.config.files.reload(&present, &self.config.names, me) {
            Ok(None) => {}
            Ok(Some(identity)) => {
                *self.identity.borrow_mut() = (generation + 1, Arc::new(identity));
                self.tell(format!(
                    "certificates of {} have changed: connections are made anew",
                    self.name(me)
                ));
            }
            Err(error) => {
                add(&self.reloads_failed, 1);
                if is_worth_telling(self.reloads_failed.get()) {
                    self.tell(format!("changed certificates are not taken: {error}"));
                }
            }
        }
    }

    /// Takes a row of a peer.
    pub(super) fn receive(&self, site: SiteId, bytes: &[u8]) {
        add(&self.peer(site).rows, 1);
        let now = self.clock.now();
        let received = self.sync.borrow_mut().receive(now, unix_ns(), site, bytes);
        let Err(rejection) = received else { return };
        let differs = self.peer(site).differs.borrow();
        if rejection.reason() == Reason::OtherSettings && !differs.is_empty() {
            let why = format!("a report of a peer with other settings in {}", differs.join(", "));
            return self.reject(site, rejection.reason() as usize, &why);
        }
        self.reject(site, rejection.reason() as usize, &rejection);
    }

    /// Learns how a peer is set; false when the bytes do not say.
    pub(super) fn receive_settings(&self, site: SiteId, hashes: &[u8]) -> bool {
        let differing = self.settings.differing(hashes);
        let is_known = differing.is_some();
        *self.peer(site).differs.borrow_mut() = differing.unwrap_or_default();
        is_known
    }

    /// Counts what a follower said and was not believed.
    pub(super) fn disbelieve(&self, name: &str, why: Unbelieved, words: &str) {
        let mut followers = self.followers.borrow_mut();
        let times = &mut followers.rejected[why.place()];
        *times += 1;
        if is_worth_telling(*times) {
            self.tell(format!("rejected from the follower {name}, {times} times so far: {words}"));
        }
    }

    /// Counts bytes of a peer that make no sense.
    pub(super) fn nonsense(&self, site: SiteId, nonsense: Nonsense) {
        let place = Nonsense::NAMES.iter().position(|name| *name == nonsense.name());
        let place = Reason::ALL.len() + place.expect("every name is in the list");
        self.reject(site, place, &nonsense);
    }

    fn reject(&self, site: SiteId, place: usize, why: &dyn std::fmt::Display) {
        let mut rejected = self.peer(site).rejected.borrow_mut();
        rejected[place] += 1;
        if is_worth_telling(rejected[place]) {
            let times = rejected[place];
            self.tell(format!("rejected from {}, {times} times so far: {why}", self.name(site)));
        }
    }

    /// By [`rejection_name`], what was rejected of a peer.
    pub(super) fn rejected(&self, site: SiteId) -> [u64; REJECTIONS] {
        *self.peer(site).rejected.borrow()
    }

    /// Counts a connection that was not taken.
    pub(super) fn refuse(&self, refusal: Refusal, why: &str) {
        let mut refused = self.refused.get();
        refused[refusal as usize] += 1;
        self.refused.set(refused);
        if is_worth_telling(refused[refusal as usize]) {
            let times = refused[refusal as usize];
            self.tell(format!(
                "a connection was refused, {} ({times} times so far): {why}",
                refusal.name()
            ));
        }
    }

    /// Counts a connection that could not be made.
    pub(super) fn unmade(&self, site: SiteId, refusal: Refusal, why: &str) {
        let mut unmade = self.peer(site).unmade.get();
        unmade[refusal as usize] += 1;
        self.peer(site).unmade.set(unmade);
        if self.sync.borrow().is_starting() {
            self.peer(site).unmade_at_start.set(unmade);
        }
        let quiet = self.peer(site).unmade_at_start.get()[refusal as usize];
        if is_worth_telling(unmade[refusal as usize] - quiet) {
            let (name, times) = (self.name(site), unmade[refusal as usize]);
            self.tell(format!(
                "no connection to {name}, {} ({times} times so far): {why}",
                refusal.name()
            ));
        }
    }

    /// Learns an echo.
    pub(super) fn observe(&self, site: SiteId, probe: &Probe) {
        let learnt = self.peer(site).wan.borrow_mut().observe(probe);
        if let Learnt::Rerouted { from, to } = learnt {
            let name = self.name(site);
            tracing::info!(site = name, connection = probe.connection, ?from, ?to, "rerouted");
        }
    }

    /// What one connection of a peer may ask for: four times what is expected, so that a peer with
    /// other settings is not held up.
    pub(super) fn allowance(&self) -> Bucket {
        let per_s = 4.0 * (10.0 + self.config.probe_interval.as_secs_f64().recip());
        Bucket::new(per_s, per_s)
    }

    /// Waits until a connection of the peer may be heard again.
    pub(super) async fn pace(&self, site: SiteId, allowance: &mut Bucket) {
        while let Err(wait) = allowance.take(self.clock.now()) {
            add(&self.peer(site).throttled, 1);
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }

    /// Logs something and keeps it for people who look at the status.
    pub(super) fn tell(&self, words: String) {
        tracing::warn!(site = self.name(self.config.site), "redirect: {words}");
        let mut events = self.events.borrow_mut();
        if events.len() < EVENTS_MAX {
            events.push_back(words);
        }
    }

    /// What was told since this was asked last.
    pub(super) fn take_events(&self) -> VecDeque<String> {
        std::mem::take(&mut self.events.borrow_mut())
    }
}

/// The 1st, 2nd, 4th, 8th, …: a peer that goes on with nonsense does not fill the log.
pub(super) const fn is_worth_telling(times: u64) -> bool {
    times.is_power_of_two()
}

pub(super) fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get().saturating_add(more));
}

/// The wall clock: nanoseconds since 1970.
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Counts up while it lives.
pub(super) struct Counted<'a>(&'a Cell<u32>);

impl<'a> Counted<'a> {
    pub(super) fn new(cell: &'a Cell<u32>) -> Self {
        cell.set(cell.get() + 1);
        Self(cell)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The present on the process's clock, and what it is for timers.
pub(super) fn deadline(clock: Clock, at: Instant) -> tokio::time::Instant {
    clock.std_instant(at).into()
}
