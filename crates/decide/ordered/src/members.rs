//! Who is live, who gets a write, and who is dropped.
//!
//! **Signal**: how many answers a server owes and since when it has been silent while it owed one.
//! **Why not the mean latency?** A duplicate may be slow: that is what the others are for. It must
//! only not hold memory without end, nor keep clients of level `All` waiting for ever. **When it
//! misleads**: a server that computes for long is as silent as one that stands still. What differs
//! is whether others have answered the same ([`Members::overdue`]). **Recovery**: a dropped server
//! replays the log and is live again when it has all of it.
//!
//! **Joining duplicates.** A duplicate that is added holds nothing. If it counted from the start, a
//! partition of one would have a majority of two, of whom one cannot answer, until gigabytes are
//! copied. So it is joining first: filled, then sent every write, but its answers count for nobody
//! and no level needs it. Once it is live and all writes that it was not sent are acknowledged
//! without it ([`Members::may_admit`]), the layout with it is made durable, and then it counts
//! ([`Members::admit`]). A majority before and one after share a duplicate, since one at a time is
//! admitted: a successor with either layout meets every acknowledged write (Ongaro, *Consensus:
//! Bridging Theory and Practice*, section 4, single-server changes and non-voting members).
//!
//! **Source**: Zoolander, section 3.2, removes a duplicate "between storage accesses"
//! when TCP keep-alive tells (two hours, by default); bounds and replay are ours.

use core::fmt;

use super::{Acknowledge, Copies, SERVERS_MAX, Sequence, ServerSet};
use evenkeel_core::time::{Deadline, Duration, Instant, Why};

/// What one service asks of its servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MembersConfig {
    /// When a write's client is told.
    pub acknowledge: Acknowledge,
    /// Answers one server may owe: 4,096. One that owes more is not read from, and dropped when a
    /// write comes and others can take it.
    pub owed_max: usize,
    /// How long a server may be silent while it owes an answer: 1 s.
    pub silence_max: Duration,
    /// The same while nobody else has answered either what it owes first: 60 s.
    pub command_max: Duration,
}

impl Default for MembersConfig {
    fn default() -> Self {
        Self {
            acknowledge: Acknowledge::default(),
            owed_max: 4_096,
            silence_max: Duration::from_secs(1),
            command_max: Duration::from_secs(60),
        }
    }
}

evenkeel_core::named! {
    /// How a server stands.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum ReplicaState {
        /// No connection, or nobody knows yet what it has.
        #[default]
        Disconnected = "disconnected",
        /// It is being brought up to date.
        CatchingUp = "catching-up",
        /// It has all writes or was sent them: it is read from, and its answers count.
        InSync = "in-sync",
    }
}

evenkeel_core::named! {
    /// Why a server was dropped.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Dropped {
        /// Its connection broke.
        Lost = "lost",
        /// It owed an answer for too long.
        Silent = "silent",
        /// It owed too many answers.
        Full = "full",
        /// It could not do what others can (out of memory, read-only, loading).
        Failed = "failed",
        /// What it holds differs from what the others hold.
        Diverged = "diverged",
    }
}

/// Why an access cannot be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Nobody is live.
    NobodyLive {
        /// Duplicates of the partition.
        configured: usize,
    },
    /// Too few are live for the level of acknowledgement.
    TooFew {
        /// Live duplicates.
        live: usize,
        /// What the level needs.
        needed: usize,
    },
    /// All that could take it owe as many answers as they may.
    Busy {
        /// The bound.
        owed_max: usize,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NobodyLive { configured } => {
                write!(f, "none of {configured} duplicates is live")
            }
            Self::TooFew { live, needed } => {
                write!(f, "{live} duplicates are live, acknowledgement needs {needed}")
            }
            Self::Busy { owed_max } => {
                write!(f, "every live duplicate owes {owed_max} answers")
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Member {
    partition: usize,
    state: ReplicaState,
    owed: usize,
    /// The last sign of life while it owes something: its last answer, or the first thing sent.
    heard: Instant,
    sent: Sequence,
    applied: Sequence,
    /// It was made live when this was the last write; before it has answered that much, what it
    /// was filled with may still be on its way.
    live_from: Sequence,
}

/// The servers of one service.
#[derive(Clone, Debug)]
pub struct Members {
    config: MembersConfig,
    members: Vec<Member>,
    /// Per partition: with joining duplicates.
    configured: Vec<ServerSet>,
    /// Per partition: those that do not count yet.
    joining: Vec<ServerSet>,
    /// Per partition: with joining duplicates.
    live: Vec<ServerSet>,
}

impl Members {
    /// Servers that are all away; `partitions` names the partition of each.
    ///
    /// # Panics
    /// When there are more than [`SERVERS_MAX`].
    pub fn new(config: MembersConfig, partitions: &[usize]) -> Self {
        assert!(partitions.len() <= SERVERS_MAX, "a service has at most 64 servers");
        let count = partitions.iter().max().map_or(0, |max| max + 1);
        let mut configured = vec![ServerSet::EMPTY; count];
        for (server, &partition) in partitions.iter().enumerate() {
            configured[partition].insert(server);
        }
        let member = |&partition| Member { partition, ..Member::default() };
        let members = partitions.iter().map(member).collect();
        let nobody = vec![ServerSet::EMPTY; count];
        Self { config, members, live: nobody.clone(), joining: nobody, configured }
    }

    /// A partition without duplicates, the last.
    pub fn add_partition(&mut self) -> usize {
        self.configured.push(ServerSet::EMPTY);
        self.joining.push(ServerSet::EMPTY);
        self.live.push(ServerSet::EMPTY);
        self.configured.len() - 1
    }

    /// Another duplicate of a partition, which is away and joining; its number. That of one that
    /// was retired is given again.
    ///
    /// `None` when there are [`SERVERS_MAX`] already.
    ///
    /// # Panics
    /// When there is no such partition.
    pub fn add_joining(&mut self, partition: usize) -> Option<usize> {
        let is_retired = |server: &usize| !self.is_configured(*server);
        let free = (0..self.members.len()).find(is_retired);
        let server = free.unwrap_or(self.members.len());
        if server >= SERVERS_MAX {
            return None;
        }
        let member = Member { partition, ..Member::default() };
        match self.members.get_mut(server) {
            Some(place) => *place = member,
            None => self.members.push(member),
        }
        self.configured[partition].insert(server);
        self.joining[partition].insert(server);
        Some(server)
    }

    /// Whether a duplicate does not count yet.
    pub fn is_joining(&self, server: usize) -> bool {
        self.joining[self.members[server].partition].contains(server)
    }

    /// Whether a joining duplicate has everything, and every write that it was not sent is
    /// acknowledged without it: the layout with it may be made durable, and then it may be
    /// admitted.
    pub fn may_admit(&self, server: usize) -> bool {
        let member = &self.members[server];
        self.is_settled(server) && self.has_applied(member.partition, member.live_from)
    }

    /// A joining duplicate counts from now on. That it does is durable.
    pub fn admit(&mut self, server: usize) {
        let partition = self.members[server].partition;
        self.joining[partition].remove(server);
    }

    /// A duplicate counts no more, from before it is dropped: writes on their way that it has not
    /// answered need the others' answers, and not one that can no longer come.
    pub fn dismiss(&mut self, server: usize) {
        let partition = self.members[server].partition;
        self.joining[partition].insert(server);
    }

    /// A duplicate that was dropped is no longer one.
    ///
    /// # Panics
    /// When it is not away.
    pub fn retire(&mut self, server: usize) {
        let member = &self.members[server];
        assert_eq!(member.state, ReplicaState::Disconnected, "it is dropped first");
        self.configured[member.partition].remove(server);
        self.joining[member.partition].remove(server);
    }

    /// Whether a server is one of those of its partition, live or not.
    pub fn is_configured(&self, server: usize) -> bool {
        let partition = self.members.get(server).map(|member| member.partition);
        partition.is_some_and(|partition| self.configured[partition].contains(server))
    }

    /// How many partitions there are, with those that have no duplicates any more.
    pub fn partitions(&self) -> usize {
        self.configured.len()
    }

    /// A partition answers for keys that it did not answer for before: nobody may overtake until
    /// it has applied all that it was sent so far.
    pub fn unsettle(&mut self, partition: usize) {
        for server in self.live[partition].iter() {
            let member = &mut self.members[server];
            member.live_from = member.live_from.max(member.sent);
        }
    }

    /// Whether so many live duplicates that count have applied the writes of a partition up to
    /// `sequence`, as far as they were theirs, that the level of acknowledgement is met.
    pub fn has_applied(&self, partition: usize, sequence: Sequence) -> bool {
        let mut copies = Copies::sent(self.live[partition]);
        let has_all = |server: &usize| {
            let member = &self.members[*server];
            member.applied >= sequence.min(member.sent) && self.is_settled(*server)
        };
        self.live[partition].iter().filter(has_all).for_each(|server| copies.answer(server));
        copies.is_acknowledged(self.config.acknowledge, self.voters(partition))
    }

    /// The level of acknowledgement.
    pub const fn acknowledge(&self) -> Acknowledge {
        self.config.acknowledge
    }

    /// Answers one server may owe.
    pub const fn owed_max(&self) -> usize {
        self.config.owed_max
    }

    /// Duplicates of a partition, live or not, with joining duplicates.
    #[inline]
    pub fn configured(&self, partition: usize) -> ServerSet {
        self.configured[partition]
    }

    /// Those of a partition whose answers count, live or not.
    #[inline]
    pub fn voters(&self, partition: usize) -> ServerSet {
        self.configured[partition].without(self.joining[partition])
    }

    /// Those of a partition that are live, with joining duplicates.
    #[inline]
    pub fn live(&self, partition: usize) -> ServerSet {
        self.live[partition]
    }

    /// The partition a server holds.
    pub fn partition(&self, server: usize) -> usize {
        self.members[server].partition
    }

    /// How a server stands.
    pub fn state(&self, server: usize) -> ReplicaState {
        self.members[server].state
    }

    /// Answers a server owes.
    pub fn owed(&self, server: usize) -> usize {
        self.members[server].owed
    }

    /// The last write that a server has answered.
    #[inline]
    pub fn applied(&self, server: usize) -> Sequence {
        self.members[server].applied
    }

    /// The last write that was sent to a server.
    #[inline]
    pub fn sent_to(&self, server: usize) -> Sequence {
        self.members[server].sent
    }

    /// Whether a server owes as many answers as it may.
    #[inline]
    pub fn is_full(&self, server: usize) -> bool {
        self.members[server].owed >= self.config.owed_max
    }

    /// Who takes the next write of a partition: the first set. Those in the second owe too much
    /// and are to be dropped now, before the write; there is always somebody else who takes it.
    ///
    /// # Errors
    /// When too few could take it; nobody is to be dropped then.
    #[inline]
    pub fn takers(&self, partition: usize) -> Result<(ServerSet, ServerSet), Refused> {
        let (live, voters) = (self.live[partition], self.voters(partition));
        let needed = self.config.acknowledge.live_min(voters.len());
        let counting = live.and(voters).len();
        if counting < needed {
            return Err(match counting {
                0 => Refused::NobodyLive { configured: voters.len() },
                live => Refused::TooFew { live, needed },
            });
        }
        let full: ServerSet = live.iter().filter(|&server| self.is_full(server)).collect();
        let rest = live.without(full);
        if rest.and(voters).len() < needed {
            return Err(Refused::Busy { owed_max: self.config.owed_max });
        }
        Ok((rest, full))
    }

    /// Something was sent that will be answered; `write` names it when it is a write.
    #[inline]
    pub fn sent(&mut self, now: Instant, server: usize, write: Option<Sequence>) {
        let member = &mut self.members[server];
        if member.owed == 0 {
            member.heard = now;
        }
        member.owed += 1;
        if let Some(sequence) = write {
            assert!(sequence > member.sent, "writes are sent in their order");
            member.sent = sequence;
        }
    }

    /// An answer came; `write` names it when it was a write's.
    ///
    /// # Panics
    /// When none was owed.
    #[inline]
    pub fn answered(&mut self, now: Instant, server: usize, write: Option<Sequence>) {
        let member = &mut self.members[server];
        assert!(member.owed > 0, "an answer nobody waited for");
        member.owed -= 1;
        member.heard = now;
        if let Some(sequence) = write {
            assert!(sequence > member.applied, "an ordered lane answers in order");
            member.applied = sequence;
        }
        if member.owed == 0 && member.state == ReplicaState::InSync {
            member.applied = member.sent; // also what it got with the keys it was filled with
        }
    }

    /// A server has answered that it was told its watermark: all before it is answered too.
    pub fn marked(&mut self, now: Instant, server: usize, watermark: Sequence) {
        self.answered(now, server, None);
        let member = &mut self.members[server];
        member.applied = member.applied.max(watermark);
    }

    /// Whether a live server has answered all that made it live.
    #[inline]
    pub fn is_settled(&self, server: usize) -> bool {
        let member = &self.members[server];
        member.state == ReplicaState::InSync && member.applied >= member.live_from
    }

    /// A server is reached; it has applied the writes up to `applied` and needs the rest.
    ///
    /// # Panics
    /// When it was not away.
    pub fn reached(&mut self, server: usize, applied: Sequence) {
        let member = &mut self.members[server];
        assert_eq!(member.state, ReplicaState::Disconnected, "it comes from away");
        assert_eq!(member.owed, 0, "what was owed died with the connection");
        member.state = ReplicaState::CatchingUp;
        (member.sent, member.applied) = (applied, applied);
    }

    /// A server was sent every write there is, up to `last`: from the next one on it gets them as
    /// they come.
    ///
    /// # Panics
    /// When it was not being brought up to date.
    pub fn caught_up(&mut self, server: usize, last: Sequence) {
        let member = &mut self.members[server];
        assert_eq!(member.state, ReplicaState::CatchingUp, "it was being brought up to date");
        member.state = ReplicaState::InSync;
        member.sent = member.sent.max(last);
        member.live_from = last;
        if member.owed == 0 {
            member.applied = member.sent;
        }
        self.live[member.partition].insert(server);
    }

    /// A server is gone, and with it all it owed.
    pub fn drop_server(&mut self, server: usize) {
        let member = &mut self.members[server];
        member.state = ReplicaState::Disconnected;
        member.owed = 0;
        self.live[member.partition].remove(server);
    }

    /// Bytes went to a server or came from it, if no whole answer: it is not silent.
    pub fn heard(&mut self, now: Instant, server: usize) {
        self.members[server].heard = now;
    }

    /// When a server that owes an answer was heard last.
    pub fn silent_since(&self, server: usize) -> Option<Instant> {
        let member = &self.members[server];
        (member.owed > 0).then_some(member.heard)
    }

    /// Those silent for too long: slow, or dead.
    pub fn silent(&self, now: Instant) -> ServerSet {
        let is_silent =
            |member: &Member| member.owed > 0 && now.since(member.heard) >= self.config.silence_max;
        let members = self.members.iter().enumerate();
        members.filter(|(_, member)| is_silent(member)).map(|(server, _)| server).collect()
    }

    /// Those of the silent that are to be dropped. `others_took` says how long another one took
    /// for what this server owes first on each of its connections; `None` where nobody has
    /// answered that. Then it may just take long, and so it does everywhere: it is waited for, up
    /// to [`MembersConfig::command_max`]. Otherwise it may take three times as long as the other.
    /// Where all live duplicates are silent, all of them are waited for.
    pub fn overdue(
        &self,
        now: Instant,
        others_took: impl Fn(usize) -> Option<Duration>,
    ) -> ServerSet {
        let silent = self.silent(now);
        let is_overdue = |&server: &usize| {
            let member = &self.members[server];
            let others = self.live[member.partition].and(self.voters(member.partition));
            let MembersConfig { silence_max, command_max, .. } = self.config;
            let may_last = others_took(server)
                .map_or(command_max, |took| silence_max.saturating_add(took.saturating_mul(3)));
            let is_needed =
                member.state == ReplicaState::InSync && others.without(silent).is_empty();
            !is_needed && now.since(member.heard) >= may_last.min(command_max).max(silence_max)
        };
        silent.iter().filter(is_overdue).collect()
    }

    /// When to ask for [`Self::silent`] next.
    pub fn deadline(&self) -> Option<Deadline> {
        let owing = self.members.iter().filter(|member| member.owed > 0);
        let at = owing.map(|member| member.heard + self.config.silence_max).min()?;
        Some(Deadline { at, why: Why::Silence })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConnectionKind, Consistency, Eligible, Session};
    use super::*;

    fn live(acknowledge: Acknowledge) -> Members {
        let config = MembersConfig { acknowledge, owed_max: 4, ..MembersConfig::default() };
        let mut members = Members::new(config, &[0, 0, 0, 1]);
        for server in 0..3 {
            members.reached(server, Sequence(0));
            members.caught_up(server, Sequence(0));
        }
        members
    }

    fn set<const N: usize>(servers: [usize; N]) -> ServerSet {
        servers.into_iter().collect()
    }

    #[test]
    fn a_write_goes_to_all_that_are_live_and_needs_enough_of_them() {
        let mut members = live(Acknowledge::Majority);
        assert_eq!(members.takers(0), Ok((set([0, 1, 2]), ServerSet::EMPTY)));
        assert_eq!(members.takers(1), Err(Refused::NobodyLive { configured: 1 }));
        members.drop_server(1);
        assert_eq!(members.takers(0), Ok((set([0, 2]), ServerSet::EMPTY)));
        members.drop_server(0);
        assert_eq!(members.takers(0), Err(Refused::TooFew { live: 1, needed: 2 }));
    }

    #[test]
    fn one_that_owes_too_much_is_dropped_while_enough_others_can_take_the_write() {
        let mut members = live(Acknowledge::Majority);
        let now = Instant::ZERO;
        (1..=4).for_each(|n| members.sent(now, 1, Some(Sequence(n))));
        assert_eq!(members.takers(0), Ok((set([0, 2]), set([1]))));
        (1..=4).for_each(|n| members.sent(now, 2, Some(Sequence(n))));
        let busy = Err(Refused::Busy { owed_max: 4 });
        assert_eq!(members.takers(0), busy, "a majority would be gone");
        members.answered(now, 2, Some(Sequence(1)));
        assert_eq!(members.takers(0), Ok((set([0, 2]), set([1]))));
    }

    #[test]
    fn silence_counts_from_the_last_sign_of_life_while_something_is_owed() {
        let mut members = live(Acknowledge::One);
        let at = Instant::from_millis;
        assert_eq!(members.deadline(), None);
        members.sent(at(100), 0, None);
        members.sent(at(900), 0, None);
        assert!(members.silent(at(1_099)).is_empty());
        assert_eq!(members.silent(at(1_100)), set([0]));
        assert_eq!(members.deadline().unwrap().at, at(1_100));
        members.answered(at(1_050), 0, None);
        assert!(members.silent(at(1_100)).is_empty());
        members.answered(at(1_060), 0, None);
        assert_eq!(members.deadline(), None);
    }

    #[test]
    fn who_is_slow_is_waited_for_and_who_stands_still_is_not() {
        let mut members = live(Acknowledge::Majority);
        let (at, nobody) = (Instant::from_millis, |_| None);
        (0..3).for_each(|server| members.sent(at(0), server, Some(Sequence(1))));
        assert_eq!(members.silent(at(5_000)), set([0, 1, 2]));
        assert!(members.overdue(at(90_000), nobody).is_empty(), "all of them do the same");
        members.answered(at(2_000), 0, Some(Sequence(1)));
        let two_seconds = |_| Some(Duration::from_secs(2));
        assert!(members.overdue(at(6_999), two_seconds).is_empty());
        assert_eq!(members.overdue(at(7_000), two_seconds), set([1, 2]));
        assert!(members.overdue(at(59_999), nobody).is_empty(), "what else they do may take long");
        assert_eq!(members.overdue(at(60_000), nobody), set([1, 2]));
        members.heard(at(59_000), 2);
        assert_eq!(members.overdue(at(60_000), nobody), set([1]), "it takes what it is sent");
        members.sent(at(60_000), 0, None);
        assert!(members.overdue(at(61_000), two_seconds).is_empty(), "the last one is silent too");
    }

    #[test]
    fn a_read_of_ones_own_writes_overtakes_only_where_they_are_applied() {
        let mut members = live(Acknowledge::One);
        let now = Instant::ZERO;
        let mut session = Session::default();
        let read = |members: &Members, session| {
            members.eligible(0, Consistency::ReadMyOwnWrites, session).unwrap()
        };
        let needs = Acknowledge::One;
        let free = |from| Eligible { connection: ConnectionKind::Free, from, needs };
        assert_eq!(read(&members, session), free(set([0, 1, 2])));
        (0..3).for_each(|server| members.sent(now, server, Some(Sequence(7))));
        session.saw(Sequence(7));
        let behind = Eligible { connection: ConnectionKind::Ordered, from: set([0, 1, 2]), needs };
        assert_eq!(read(&members, session), behind);
        members.answered(now, 2, Some(Sequence(7)));
        assert_eq!(read(&members, session), free(set([2])));
        members.answered(now, 0, Some(Sequence(7)));
        assert_eq!(read(&members, session), free(set([0, 2])));
        let eventual = members.eligible(0, Consistency::Eventual, session).unwrap();
        assert_eq!(eventual, free(set([0, 1, 2])));
        let strong = members.eligible(0, Consistency::Strong, Session::default()).unwrap();
        assert_eq!(strong, behind);
    }

    #[test]
    fn a_strong_read_asks_a_majority_where_a_majority_acknowledges() {
        let mut members = live(Acknowledge::Majority);
        let strong =
            |members: &Members| members.eligible(0, Consistency::Strong, Session::default());
        let asked = |members: &Members, copies| {
            let eligible = strong(members).unwrap();
            assert_eq!(
                (eligible.connection, eligible.needs),
                (ConnectionKind::Ordered, Acknowledge::Majority)
            );
            members.quorum(0, &eligible, copies)
        };
        assert_eq!(asked(&members, 1), set([0, 1]), "however few copies are wanted");
        assert_eq!(asked(&members, 3), set([0, 1, 2]));
        assert_eq!(asked(&members, 64), set([0, 1, 2]));
        members.sent(Instant::ZERO, 0, Some(Sequence(1)));
        assert_eq!(asked(&members, 1), set([1, 2]), "those that owe the fewest");
        (2..=4).for_each(|n| members.sent(Instant::ZERO, 0, Some(Sequence(n))));
        assert_eq!(asked(&members, 3), set([1, 2]), "0 owes too much");
        members.drop_server(1);
        assert_eq!(strong(&members), Err(Refused::Busy { owed_max: 4 }));
        members.drop_server(2);
        assert_eq!(strong(&members), Err(Refused::TooFew { live: 1, needed: 2 }));
        let own = members.eligible(0, Consistency::Eventual, Session::default());
        assert_eq!(own, Err(Refused::Busy { owed_max: 4 }), "for others one would do");
        assert_eq!(strong(&live(Acknowledge::All)).unwrap().needs, Acknowledge::One);
    }

    #[test]
    fn one_that_was_filled_has_everything_when_it_owes_nothing() {
        let mut members = live(Acknowledge::One);
        members.drop_server(0);
        members.reached(0, Sequence(0));
        members.sent(Instant::ZERO, 0, None);
        members.caught_up(0, Sequence(9));
        assert!(!members.is_settled(0), "a key is on its way");
        let read = |members: &Members| {
            let eligible = members.eligible(0, Consistency::Eventual, Session::default()).unwrap();
            (eligible.connection, eligible.from)
        };
        assert_eq!(read(&members), (ConnectionKind::Free, set([1, 2])));
        members.sent(Instant::ZERO, 0, None);
        members.answered(Instant::ZERO, 0, None);
        assert!(!members.is_settled(0));
        members.marked(Instant::ZERO, 0, Sequence(9));
        assert_eq!((members.is_settled(0), members.applied(0)), (true, Sequence(9)));
        assert_eq!(read(&members), (ConnectionKind::Free, set([0, 1, 2])));
    }

    #[test]
    fn duplicates_and_partitions_come_and_go() {
        let mut members = live(Acknowledge::Majority);
        let fourth = members.add_joining(0).unwrap();
        assert_eq!((fourth, members.configured(0)), (4, set([0, 1, 2, 4])));
        members.drop_server(1);
        assert_eq!(members.takers(0).unwrap().0, set([0, 2]), "two of three");
        members.admit(fourth);
        members.drop_server(2);
        let few = Err(Refused::TooFew { live: 1, needed: 3 });
        assert_eq!(members.takers(0), few, "one of four");
        members.retire(1);
        members.retire(2);
        assert_eq!(members.configured(0), set([0, 4]));
        let third = members.add_partition();
        assert_eq!(members.add_joining(third), Some(1), "a number that is free");
        assert_eq!((members.partition(1), members.configured(third)), (2, set([1])));
        assert!(members.is_configured(1) && !members.is_configured(2));
        (0..60).for_each(|_| {
            let _ = members.add_joining(third);
        });
        assert_eq!(members.add_joining(third), None, "64 are enough");
    }

    #[test]
    fn a_joining_duplicate_is_sent_everything_before_it_counts() {
        let mut members = Members::new(MembersConfig::default(), &[0]);
        members.reached(0, Sequence(0));
        members.caught_up(0, Sequence(0));
        members.sent(Instant::ZERO, 0, Some(Sequence(1)));
        let joining = members.add_joining(0).unwrap();
        assert_eq!((members.voters(0), members.configured(0)), (set([0]), set([0, joining])));
        let alone = Ok((set([0]), ServerSet::EMPTY));
        assert_eq!(members.takers(0), alone, "one is the majority of one");
        members.reached(joining, Sequence(0));
        assert!(!members.may_admit(joining));
        members.sent(Instant::ZERO, joining, None);
        members.caught_up(joining, Sequence(1));
        assert_eq!(members.takers(0), Ok((set([0, joining]), ServerSet::EMPTY)));
        let read = members.eligible(0, Consistency::Eventual, Session::default());
        assert_eq!(read.unwrap().from, set([0]), "nobody reads from a guest");
        members.answered(Instant::ZERO, 0, Some(Sequence(1)));
        assert!(!members.may_admit(joining), "a key is on its way");
        members.answered(Instant::ZERO, joining, None);
        assert!(members.may_admit(joining));
        members.admit(joining);
        members.drop_server(0);
        let few = Err(Refused::TooFew { live: 1, needed: 2 });
        assert_eq!((members.voters(0), members.takers(0)), (set([0, joining]), few));
    }

    /// A write that the joining duplicate was not sent and that nobody has acknowledged would need
    /// an answer that cannot come, if the joining duplicate counted.
    #[test]
    fn nobody_joins_before_the_writes_it_was_not_sent_are_acknowledged() {
        let mut members = live(Acknowledge::Majority);
        (0..3).for_each(|server| members.sent(Instant::ZERO, server, Some(Sequence(7))));
        let joining = members.add_joining(0).unwrap();
        members.reached(joining, Sequence(0));
        members.caught_up(joining, Sequence(7));
        assert!(members.is_settled(joining) && !members.may_admit(joining));
        members.answered(Instant::ZERO, 0, Some(Sequence(7)));
        assert!(!members.may_admit(joining), "one of three, and the guest is none of them");
        members.answered(Instant::ZERO, 2, Some(Sequence(7)));
        assert!(members.may_admit(joining));
    }

    #[test]
    fn one_that_is_dismissed_is_needed_by_no_write_on_its_way() {
        let mut members = Members::new(MembersConfig::default(), &[0, 0]);
        (0..2).for_each(|server| members.reached(server, Sequence(0)));
        (0..2).for_each(|server| members.caught_up(server, Sequence(0)));
        let mut write = Copies::sent(members.takers(0).unwrap().0);
        members.dismiss(1);
        write.lose(1);
        let level = Acknowledge::Majority;
        assert!(!write.is_hopeless(level, members.voters(0)), "0 will answer");
        write.answer(0);
        assert!(write.is_acknowledged(level, members.voters(0)));
    }

    #[test]
    fn who_answers_for_more_keys_is_not_overtaken_before_it_has_them() {
        let mut members = live(Acknowledge::Majority);
        (0..3).for_each(|server| members.sent(Instant::ZERO, server, Some(Sequence(7))));
        assert!(!members.has_applied(0, Sequence(7)));
        members.unsettle(0);
        members.answered(Instant::ZERO, 1, Some(Sequence(7)));
        assert!(members.is_settled(1) && !members.is_settled(0));
        assert!(!members.has_applied(0, Sequence(7)), "one is no majority");
        members.answered(Instant::ZERO, 0, Some(Sequence(7)));
        assert!(members.has_applied(0, Sequence(7)));
        assert!(members.has_applied(0, Sequence(9)), "8 and 9 were not sent here");
        assert!(!members.has_applied(1, Sequence(0)), "nobody is live");
    }

    /// A write to a key that has come says nothing of the keys that have not.
    #[test]
    fn one_that_is_being_filled_counts_once_everything_has_come() {
        let mut members = live(Acknowledge::All);
        members.drop_server(0);
        members.reached(0, Sequence(0));
        members.sent(Instant::ZERO, 0, Some(Sequence(9)));
        members.sent(Instant::ZERO, 0, Some(Sequence(10)));
        members.answered(Instant::ZERO, 0, Some(Sequence(9)));
        members.caught_up(0, Sequence(10));
        assert!(!members.has_applied(0, Sequence(8)), "8 came before its key was asked for");
        members.answered(Instant::ZERO, 0, Some(Sequence(10)));
        assert!(members.has_applied(0, Sequence(8)));
    }

    #[test]
    fn whoever_is_brought_up_to_date_is_not_read_from() {
        let mut members = live(Acknowledge::One);
        members.drop_server(0);
        members.reached(0, Sequence(3));
        assert_eq!(members.live(0), set([1, 2]));
        members.caught_up(0, Sequence(9));
        assert_eq!((members.live(0), members.applied(0)), (set([0, 1, 2]), Sequence(9)));
    }
}
