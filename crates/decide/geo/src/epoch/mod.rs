//! Agreement between sites, once per epoch, without consensus.
//!
//! Every site sends its [`Row`] to all others shortly before an epoch begins; when it begins, each
//! plans from the rows it has. Same rows, same plan: what is agreed on are the inputs, by the
//! clock, and nobody waits for anybody.
//!
//! | room | does |
//! |---|---|
//! | `row` | what a site tells: integers, with their ranges |
//! | [`wire`] | a row as bytes, about 160 for ten sites |
//! | `clock` | the epoch it is; steps of the wall clock are ridden through |
//! | `measure` | from probes to the ways a report tells |
//! | `snapshot` | the rows a plan is made from, in one canonical form |
//! | this file | [`EpochSync`]: when to send, what to believe, what to compare |
//!
//! **When to send.** Early enough that the farthest site has it in time, and as late as that
//! allows, since the demand in it ages: one-way delay between the two farthest sites + 20 ms +
//! twice the bound of the clocks' offset, because the sender may be late by it and the receiver
//! early (Kurma, figure 6, with the bound made explicit). When all rows are that quick, all sites
//! have the same snapshot.
//!
//! **When a row is missing**, its site keeps the last one for one epoch and is then down: a row
//! that is lost on the way must not stop a data centre, a data centre that is cut off must not be
//! sent to. Its own plan goes stale in the same moment. In a partition each side hears, and plans
//! for, itself.
//!
//! **When sites disagree** (a row lost on the way to some, a solver that differs) they learn it
//! with the next row: it carries the hashes of the last two answers. Two, because a site that
//! misses both is down and loud. So two different plans can be in force for an epoch, but
//! never unnoticed. Nothing is done about it beyond the [`Alarm`]: the next epoch plans anew from
//! new rows, and a cap at the sender protects who receives.
//!
//! **What is believed**: a row of an authenticated peer about itself, for the coming epoch, whole
//! and within its ranges; the first one counts. Everything else is counted by its [`Reason`] and
//! changes nothing.

mod clock;
mod measure;
mod row;
mod snapshot;
pub mod wire;

#[cfg(test)]
mod tests;

pub use clock::EpochClock;
use evenkeel_core::time::{Duration, Instant, nanos};
pub use row::{
    AnswerHashes, COUNT_MAX, DELAY_US_MAX, OutsideOfRange, Path, RATE_MAX, RESIDUAL_BINS,
    RESIDUAL_SHARES_PPM, Report, Row, SITES_MAX, SiteId, SiteSet, per_1000_s,
};
pub use snapshot::{SiteEntry, SiteLiveness, Snapshot, StableHash, plan_hash};
use wire::Unreadable;

/// What a site must know to take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochConfig {
    /// The site this is.
    pub site: SiteId,
    /// How many sites there are, 1 to [`SITES_MAX`].
    pub sites: usize,
    /// Time between two plans, 100 ms to an hour; default 2.5 s.
    pub period: Duration,
    /// Time for what is done with a row before it can be planned from; default 20 ms.
    pub margin: Duration,
    /// How far any site's clock is from the true time; default 10 ms, at most a sixteenth of the
    /// period.
    pub clock_offset_max: Duration,
    /// Fingerprint of all that must be set alike at all sites.
    pub settings: u32,
}

impl EpochConfig {
    /// The defaults, for one of `sites` sites.
    pub const fn new(site: SiteId, sites: usize) -> Self {
        Self {
            site,
            sites,
            period: Duration::from_millis(2_500),
            margin: Duration::from_millis(20),
            clock_offset_max: Duration::from_millis(10),
            settings: 0,
        }
    }

    fn check(&self) -> Result<(), OutsideOfRange> {
        let micros = |duration: Duration| nanos(duration) / 1_000;
        let period_us = micros(self.period);
        row::within("number of sites", self.sites as u64, 1, SITES_MAX as u64)?;
        row::within("site", self.site.index() as u64, 0, self.sites as u64 - 1)?;
        row::within("period (us)", period_us, 100_000, 3_600_000_000)?;
        row::within("margin (us)", micros(self.margin), 0, period_us / 4)?;
        row::within("offset of clocks (us)", micros(self.clock_offset_max), 0, period_us / 16)
    }
}

/// What the driver does next.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Step {
    /// Measure, and [`EpochSync::publish`] the report for this epoch. Said once per epoch.
    Publish {
        /// The epoch that is coming.
        epoch: u64,
    },
    /// Plan from this, put the plan in force and tell [`EpochSync::answered`]. Said once per epoch,
    /// as it begins.
    Plan(Snapshot),
    /// Nothing, until then or until a row comes.
    Wait {
        /// When to step again.
        until: Instant,
    },
}

/// How a row was taken that is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// For the coming plan.
    InTime,
    /// For the plan that has just been made without it; kept as the last one known.
    Late,
    /// The same one came already.
    Again,
}

/// Why a row is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejection {
    /// The bytes are not a row.
    #[error("{0}")]
    Unreadable(Unreadable),
    /// The peer is none of the sites, or this one.
    #[error("a report of an unknown site (is its name in the list of sites?)")]
    UnknownSite,
    /// The peer speaks for another site than its own.
    #[error("a report for site {}, which is not the peer's own", .site.index())]
    ForAnother {
        /// For this one.
        site: SiteId,
    },
    /// The peer is set differently: other sites, period, objective or quantum.
    #[error(
        "a report of a peer with other settings: {sites} sites, fingerprint {settings:08x} \
         (compare sites, period, objective and quantum)"
    )]
    OtherSettings {
        /// How many sites it knows.
        sites: usize,
        /// Its fingerprint.
        settings: u32,
    },
    /// It is for an epoch that is over.
    #[error("a report for an epoch that ended {by} epochs ago (is the peer's clock behind?)")]
    Stale {
        /// How many epochs too early it is.
        by: u64,
    },
    /// It is for an epoch after the coming one.
    #[error("a report that is {by} epochs ahead of the coming one (is the peer's clock ahead?)")]
    Future {
        /// How many epochs too late it is.
        by: u64,
    },
    /// Another row of the site for the same epoch came before it.
    #[error("a second, different report for the same epoch (do two processes run as one site?)")]
    Conflicting,
}

evenkeel_core::named! {
    /// The kinds of [`Rejection`], for counting.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[expect(missing_docs, reason = "as the rejections of the same names")]
    pub enum Reason {
        Malformed = "malformed",
        Oversized = "oversized",
        OutOfRange = "out-of-range",
        OtherVersion = "other-version",
        UnknownSite = "unknown-site",
        ForAnother = "for-another",
        OtherSettings = "other-settings",
        Stale = "stale",
        Future = "future",
        Conflicting = "conflicting",
    }
}

impl Rejection {
    /// Its kind.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Unreadable(Unreadable::Oversized { .. }) => Reason::Oversized,
            Self::Unreadable(Unreadable::Malformed { .. }) => Reason::Malformed,
            Self::Unreadable(Unreadable::Range(_)) => Reason::OutOfRange,
            Self::Unreadable(Unreadable::Version { .. }) => Reason::OtherVersion,
            Self::UnknownSite => Reason::UnknownSite,
            Self::ForAnother { .. } => Reason::ForAnother,
            Self::OtherSettings { .. } => Reason::OtherSettings,
            Self::Stale { .. } => Reason::Stale,
            Self::Future { .. } => Reason::Future,
            Self::Conflicting => Reason::Conflicting,
        }
    }
}

/// Why a report is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unpublished {
    /// A number in it is not possible.
    #[error("{0}")]
    Range(OutsideOfRange),
    /// It was not asked for, or its epoch has begun meanwhile.
    #[error("the report for epoch {epoch} was late: the others plan without it")]
    OutOfTurn {
        /// The epoch it was for.
        epoch: u64,
    },
}

/// Something a person should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alarm {
    /// Another site computed another plan for the same epoch.
    Disagreement {
        /// That site.
        site: SiteId,
        /// The epoch.
        epoch: u64,
        /// What this site computed. Equal inputs on both sides mean that the solvers differ,
        /// different ones that a row was lost on the way to one of them.
        ours: AnswerHashes,
        /// What the other one computed.
        theirs: AnswerHashes,
    },
    /// Most others number epochs differently: this site's clock is off.
    ClockOff {
        /// Whether it is behind theirs, or ahead.
        is_behind: bool,
        /// The others.
        others: SiteSet,
    },
    /// A site that is heard does not hear this one, more than two epochs after it was heard first.
    NotHeard {
        /// That site.
        site: SiteId,
    },
    /// Rows take so long that they cannot be sent late enough in the epoch: plans are made from old
    /// demand, or rows miss them.
    PeriodTooShort {
        /// How long before an epoch rows would have to be sent.
        lead: Duration,
    },
}

/// What an exchange counted since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Rows that came in time.
    pub in_time: u64,
    /// Rows that came after their plan.
    pub late: u64,
    /// Rows that came once more.
    pub again: u64,
    /// Rows not believed, by [`Reason::ALL`].
    pub rejected: [u64; Reason::ALL.len()],
    /// Answers of others that were compared with this site's.
    pub compared: u64,
    /// Of these, the ones with another plan: as many alarms.
    pub disagreements: u64,
    /// Of these, the ones with other inputs that led to the same plan.
    pub other_inputs: u64,
    /// Snapshots that nobody fetched before the next epoch.
    pub skipped: u64,
    /// Steps of this site's clock.
    pub clock_steps: u64,
    /// Alarms that nobody fetched.
    pub alarms_lost: u64,
}

/// What is known of one other site.
#[derive(Clone, Debug, Default)]
struct Peer {
    last: Option<Row>,
    /// The newest epoch whose answer was compared.
    compared: Option<u64>,
    /// The epoch for which it was heard first, or first again after it was down.
    since: u64,
}

/// One site's part in the exchange: a state machine without clock and sockets.
///
/// Ask it for the next [`Step`] until it says `Wait`, and give it every row that comes.
#[derive(Clone, Debug)]
pub struct EpochSync {
    config: EpochConfig,
    clock: EpochClock,
    peers: Vec<Peer>,
    /// The epoch it is; `None` before the first reading of the clock.
    current: Option<u64>,
    /// The epoch in which the exchange began, or began anew.
    began: u64,
    /// A snapshot that waits to be fetched.
    sealed: Option<Snapshot>,
    lead_ns: u64,
    asked_for: Option<u64>,
    /// The newest epochs this site computed an answer for.
    answers: [Option<(u64, AnswerHashes)>; ANSWERS_KEPT],
    received: SiteSet,
    behind: SiteSet,
    ahead: SiteSet,
    alarms: Vec<Alarm>,
    counts: Counts,
}

/// Epochs after which a silent site is down.
const SILENT_EPOCHS_MAX: u64 = 1;
/// Epochs in which ways between sites may still be missing because one of them has just started:
/// each dials the others by itself, so that one direction is there before the other.
const STARTING_EPOCHS: u64 = 2;
/// Epochs that the clock may go back without everything beginning anew.
const BACK_EPOCHS_MAX: u64 = 2;
/// Own answers kept to be compared: a late row speaks of three epochs ago.
const ANSWERS_KEPT: usize = 4;
/// Alarms kept for fetching: more tell nothing more.
const ALARMS_MAX: usize = 256;

impl EpochSync {
    /// An exchange that has heard nobody yet.
    ///
    /// # Errors
    /// When the configuration is outside of its ranges.
    pub fn new(config: EpochConfig) -> Result<Self, OutsideOfRange> {
        config.check()?;
        Ok(Self {
            clock: EpochClock::new(config.period, config.clock_offset_max),
            peers: vec![Peer::default(); config.sites],
            current: None,
            began: 0,
            sealed: None,
            lead_ns: nanos(config.period) / 2,
            asked_for: None,
            answers: [None; ANSWERS_KEPT],
            received: SiteSet::EMPTY,
            behind: SiteSet::EMPTY,
            ahead: SiteSet::EMPTY,
            alarms: Vec::new(),
            counts: Counts::default(),
            config,
        })
    }

    /// What to do next, by the process's steady clock and the wall clock (unix time).
    pub fn step(&mut self, now: Instant, unix_ns: u64) -> Step {
        let time_ns = self.roll(now, unix_ns);
        if let Some(snapshot) = self.sealed.take() {
            return Step::Plan(snapshot);
        }
        let coming = self.coming();
        let begins_ns = self.clock.start_ns(coming);
        let send_ns = begins_ns.saturating_sub(self.lead_ns);
        let is_asked = self.asked_for.is_some_and(|epoch| epoch >= coming);
        if !is_asked && time_ns >= send_ns {
            self.asked_for = Some(coming);
            return Step::Publish { epoch: coming };
        }
        let wake_ns = if is_asked { begins_ns } else { send_ns };
        Step::Wait { until: now.plus_nanos(wake_ns.saturating_sub(time_ns)) }
    }

    /// Takes this site's report for the epoch it was asked for, and gives the bytes to be sent to
    /// every other site at once.
    ///
    /// # Errors
    /// When a number is impossible or the epoch has begun; then nothing must be sent.
    pub fn publish(
        &mut self,
        now: Instant,
        unix_ns: u64,
        epoch: u64,
        report: Report,
    ) -> Result<Vec<u8>, Unpublished> {
        self.roll(now, unix_ns);
        let me = self.config.site.index();
        let is_sent = self.peers[me].last.as_ref().is_some_and(|row| row.epoch >= epoch);
        if epoch != self.coming() || self.asked_for != Some(epoch) || is_sent {
            return Err(Unpublished::OutOfTurn { epoch });
        }
        let sites = self.config.sites as u64;
        row::within("paths", report.paths.len() as u64, sites, sites)
            .map_err(Unpublished::Range)?;
        let mut row = Row {
            site: self.config.site,
            epoch,
            settings: self.config.settings,
            received: self.received,
            answers: [1, 2].map(|back| self.answer(epoch.checked_sub(back)?)),
            report,
        };
        // The distance of a site to itself is not sent: others would not know it.
        row.report.paths[me] = None;
        let bytes = wire::encode(&row).map_err(Unpublished::Range)?;
        self.peers[me].last = Some(row);
        Ok(bytes)
    }

    /// Takes the bytes that `peer`, as authenticated by its channel, sent.
    ///
    /// # Errors
    /// When they are not believed; they are counted, and change nothing.
    pub fn receive(
        &mut self,
        now: Instant,
        unix_ns: u64,
        peer: SiteId,
        bytes: &[u8],
    ) -> Result<Received, Rejection> {
        self.roll(now, unix_ns);
        let judged = self.judge(peer, bytes);
        match judged {
            Ok(Received::InTime) => self.counts.in_time += 1,
            Ok(Received::Late) => self.counts.late += 1,
            Ok(Received::Again) => self.counts.again += 1,
            Err(rejection) => self.counts.rejected[rejection.reason() as usize] += 1,
        }
        judged
    }

    /// This site computed its plan for an epoch. Hashes: [`Snapshot::hash`] and [`plan_hash`].
    pub fn answered(&mut self, epoch: u64, answer: AnswerHashes) {
        self.answers[epoch as usize % ANSWERS_KEPT] = Some((epoch, answer));
    }

    /// When a plan goes stale: two epochs after the beginning of its own, which is when the others
    /// take this site for down if they heard nothing more of it.
    #[must_use]
    pub fn good_until(&mut self, now: Instant, unix_ns: u64, epoch: u64) -> Instant {
        let time_ns = self.clock.read(now, unix_ns);
        let end_ns = self.clock.start_ns(epoch.saturating_add(SILENT_EPOCHS_MAX + 1));
        now.plus_nanos(end_ns.saturating_sub(time_ns))
    }

    /// What happened since this was asked last.
    #[must_use]
    pub fn take_alarms(&mut self) -> Vec<Alarm> {
        core::mem::take(&mut self.alarms)
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        Counts { clock_steps: self.clock.steps(), ..self.counts }
    }

    /// How long before an epoch rows are sent.
    pub const fn lead(&self) -> Duration {
        Duration::from_nanos(self.lead_ns)
    }

    /// Whether it is one of the first two epochs since this exchange began: others may not have
    /// started yet, and that they cannot be reached is worth no word.
    pub fn is_starting(&self) -> bool {
        self.current.is_none_or(|epoch| epoch < self.began + STARTING_EPOCHS)
    }

    /// The epoch it is; `None` before the first step.
    pub const fn epoch(&self) -> Option<u64> {
        self.current
    }
}

/// The course of time.
impl EpochSync {
    /// Brings the exchange to the time it is, and gives that time.
    fn roll(&mut self, now: Instant, unix_ns: u64) -> u64 {
        let time_ns = self.clock.read(now, unix_ns);
        let epoch = self.clock.epoch(time_ns);
        match self.current {
            None => (self.current, self.began) = (Some(epoch), epoch),
            Some(current) if epoch > current => self.seal(epoch),
            Some(current) if current - epoch > BACK_EPOCHS_MAX => self.begin_anew(epoch),
            // A little back: what is sealed stays sealed, and time catches up.
            Some(_) => {}
        }
        time_ns
    }

    fn coming(&self) -> u64 {
        self.current.map_or(0, |epoch| epoch.saturating_add(1))
    }

    fn seal(&mut self, epoch: u64) {
        let sites = self.peers.iter().map(|peer| SiteEntry {
            liveness: liveness(peer.last.as_ref(), epoch),
            last: peer.last.clone(),
        });
        let snapshot = Snapshot { epoch, sites: sites.collect() };
        self.current = Some(epoch);
        self.received = snapshot.fresh();
        self.set_lead(snapshot.one_way_us_max());
        self.check_clock();
        self.counts.skipped += u64::from(self.sealed.is_some());
        self.sealed = Some(snapshot);
    }

    fn begin_anew(&mut self, epoch: u64) {
        self.peers.fill(Peer::default());
        (self.current, self.began) = (Some(epoch), epoch);
        self.sealed = None;
        self.asked_for = None;
        self.answers = [None; ANSWERS_KEPT];
        self.received = SiteSet::EMPTY;
    }

    /// At most half a period: the row tells the answer of the epoch that is, so that there must be
    /// time for one, and with sixteenths for clocks no row comes in the epoch before.
    fn set_lead(&mut self, one_way_us: Option<u64>) {
        let most_ns = nanos(self.config.period) / 2;
        let Some(one_way_us) = one_way_us else {
            self.lead_ns = most_ns;
            return;
        };
        let clocks_ns = nanos(self.config.clock_offset_max) * 2;
        let lead_ns = one_way_us * 1_000 + nanos(self.config.margin) + clocks_ns;
        if lead_ns > most_ns {
            self.raise(Alarm::PeriodTooShort { lead: Duration::from_nanos(lead_ns) });
        }
        self.lead_ns = lead_ns.min(most_ns);
    }

    fn check_clock(&mut self) {
        let (behind, ahead) = (self.behind, self.ahead);
        (self.behind, self.ahead) = (SiteSet::EMPTY, SiteSet::EMPTY);
        for (others, is_behind) in [(ahead, true), (behind, false)] {
            if others.len() * 2 > self.config.sites - 1 {
                self.raise(Alarm::ClockOff { is_behind, others });
            }
        }
    }

    fn raise(&mut self, alarm: Alarm) {
        if self.alarms.len() < ALARMS_MAX {
            self.alarms.push(alarm);
        } else {
            self.counts.alarms_lost += 1;
        }
    }

    fn answer(&self, epoch: u64) -> Option<AnswerHashes> {
        let kept = self.answers[epoch as usize % ANSWERS_KEPT];
        kept.filter(|(of, _)| *of == epoch).map(|(_, answer)| answer)
    }
}

/// What is believed.
impl EpochSync {
    fn judge(&mut self, peer: SiteId, bytes: &[u8]) -> Result<Received, Rejection> {
        if peer.index() >= self.config.sites || peer == self.config.site {
            return Err(Rejection::UnknownSite);
        }
        let row = wire::decode(bytes).map_err(Rejection::Unreadable)?;
        let (sites, settings) = (row.report.paths.len(), row.settings);
        if (sites, settings) != (self.config.sites, self.config.settings) {
            return Err(Rejection::OtherSettings { sites, settings });
        }
        if row.site != peer {
            return Err(Rejection::ForAnother { site: row.site });
        }
        self.place(row)
    }

    fn place(&mut self, row: Row) -> Result<Received, Rejection> {
        let (site, coming) = (row.site, self.coming());
        if row.epoch > coming {
            self.ahead.insert(site);
            return Err(Rejection::Future { by: row.epoch - coming });
        }
        if row.epoch + 1 < coming {
            self.behind.insert(site);
            return Err(Rejection::Stale { by: coming - 1 - row.epoch });
        }
        let received = if row.epoch == coming { Received::InTime } else { Received::Late };
        if let Some(last) = &self.peers[site.index()].last {
            if *last == row {
                return Ok(Received::Again);
            }
            if last.epoch == row.epoch {
                return Err(Rejection::Conflicting);
            }
            if last.epoch > row.epoch {
                // Overtaken on the way by the one after it, which told its answers too.
                return Ok(Received::Late);
            }
        }
        self.compare(&row);
        let peer = &mut self.peers[site.index()];
        let before = liveness(peer.last.as_ref(), row.epoch.saturating_sub(1));
        if matches!(before, SiteLiveness::Down | SiteLiveness::Unheard) {
            peer.since = row.epoch;
        }
        self.check_heard(&row);
        self.peers[site.index()].last = Some(row);
        Ok(received)
    }

    fn compare(&mut self, row: &Row) {
        for back in [2, 1] {
            let Some(epoch) = row.epoch.checked_sub(back) else { continue };
            let theirs = row.answers[back as usize - 1];
            let (Some(ours), Some(theirs)) = (self.answer(epoch), theirs) else { continue };
            let peer = &mut self.peers[row.site.index()];
            if peer.compared.is_some_and(|compared| compared >= epoch) {
                continue;
            }
            peer.compared = Some(epoch);
            self.counts.compared += 1;
            if ours.plan != theirs.plan {
                self.counts.disagreements += 1;
                self.raise(Alarm::Disagreement { site: row.site, epoch, ours, theirs });
            } else if ours.inputs != theirs.inputs {
                self.counts.other_inputs += 1;
            }
        }
    }

    fn check_heard(&mut self, row: &Row) {
        let me = self.config.site;
        // The row tells who was heard for the epoch that is. Both must have sent one for it.
        let is_due = row.epoch == self.coming() && self.received.contains(me);
        // Rows reach who has just started before its own reach others.
        let is_new = row.epoch < self.peers[row.site.index()].since + STARTING_EPOCHS;
        if is_due && !is_new && row.received.contains(row.site) && !row.received.contains(me) {
            self.raise(Alarm::NotHeard { site: row.site });
        }
    }
}

fn liveness(last: Option<&Row>, epoch: u64) -> SiteLiveness {
    match last.map(|row| epoch.saturating_sub(row.epoch)) {
        Some(0) => SiteLiveness::Fresh,
        Some(age) if age <= SILENT_EPOCHS_MAX => SiteLiveness::Held,
        Some(_) => SiteLiveness::Down,
        None => SiteLiveness::Unheard,
    }
}
