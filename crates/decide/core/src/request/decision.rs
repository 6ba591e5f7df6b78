//! Why a replica was chosen: what a dispatcher knew of every candidate at that moment.
//!
//! Written only where a driver asks ([`Dispatcher::keep_decisions`]), by the step that decides and
//! with the policy's own cost: nothing is computed a second time afterwards, when it would be
//! another. What follows from what is written ([`Cause::of`]) is left to who reads it, as few of
//! many requests are read about. It changes no decision.
//!
//! [`Dispatcher::keep_decisions`]: super::Dispatcher::keep_decisions

use crate::fleet::ReplicaId;
use crate::request::call::{Kind, Refusal};

/// Candidates that are told of one decision: the chosen one, then others as the group has them.
pub const CANDIDATES_MAX: usize = 8;

crate::named! {
    /// How a replica stood as one of the candidates of a request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Standing {
        /// Nothing spoke against it.
        Ok = "ok",
        /// It joined lately, and gets only a part of its share.
        SlowStart = "slow_start",
        /// It was ejected: it failed several times in a row.
        Ejected = "ejected",
        /// It owes replies and sends none.
        Silent = "suspected",
        /// Too many of its recent replies were failures.
        Failing = "failing",
        /// It was ejected, and shows with one request at a time that it is well.
        OnTrial = "on_trial",
        /// Health checks found it dead.
        Down = "down",
        /// It is leaving.
        Draining = "draining",
        /// This request was sent to it before.
        Tried = "tried",
        /// It may not answer this request.
        NotAllowed = "not_allowed",
    }
}

crate::named! {
    /// Why the chosen one.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Cause {
        /// No candidate that might be used had a lower cost.
        LowestCost = "lowest_cost",
        /// There was no other that might be used.
        OnlyOne = "only_candidate",
        /// The policy does not compare all of them: it takes turns, or draws.
        Policy = "policy",
        /// Something spoke against all of them, and one had to be asked.
        NobodyBetter = "nobody_better",
    }
}

impl Cause {
    /// Why the first of them, as far as they tell.
    pub fn of(candidates: &[Candidate]) -> Self {
        let is_usable =
            |one: &Candidate| matches!(one.standing, Standing::Ok | Standing::SlowStart);
        let Some((chosen, others)) = candidates.split_first() else { return Self::NobodyBetter };
        if !is_usable(chosen) {
            return Self::NobodyBetter;
        }
        let mut others = others.iter().filter(|one| is_usable(one)).peekable();
        if others.peek().is_none() {
            return Self::OnlyOne;
        }
        let is_ranked = !chosen.cost.is_nan();
        match is_ranked && others.all(|one| one.cost.is_nan() || one.cost >= chosen.cost) {
            true => Self::LowestCost,
            false => Self::Policy,
        }
    }
}

crate::named! {
    /// What became of the hedge of a request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum HedgeFate {
        /// None was foreseen: hedging is off, no delay is learnt yet or none is worth it, or the
        /// request has had all its copies.
        None = "none",
        /// The request may not be sent twice.
        NotReplayable = "not_replayable",
        /// Its replica was on trial, and a rescue comes before a hedge.
        OnTrial = "on_trial",
        /// It leaves when its delay is over.
        Due = "due",
        /// It left.
        Sent = "sent",
        /// It was due, and the budget was spent.
        NoBudget = "no_budget",
        /// It was due, and too many requests were late, or the load too high, for any copy; or the
        /// plan of the data centres says so.
        Gated = "gated",
        /// It was due, and copies are as late as the requests they should save.
        Futile = "futile",
        /// It was due, and there was no other replica to send it to.
        NoReplica = "no_replica",
        /// It was due, and the policy would have held it back.
        HeldBack = "held_back",
    }
}

/// One candidate, at the moment of the choice. It is small: it is written for every request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// The policy's cost of this request there, in its own unit; NaN where it does not rank.
    pub cost: f32,
    /// How long answers take by the policy's estimate; NaN where it has none.
    pub latency_ms: f32,
    /// Since when it says nothing ([`Standing::Silent`]), or until when it is ejected
    /// ([`Standing::Ejected`]): from the choice on; zero otherwise.
    pub lasts_ms: u32,
    /// Its slot.
    pub slot: u16,
    /// How many replicas had the slot before; the lowest bits.
    pub generation: u16,
    /// Attempts of this dispatcher on their way there, without this one.
    pub in_flight: u16,
    /// What spoke against it.
    pub standing: Standing,
    /// Share of optional content that it serves, as it told last, in percent; 255 where it has not
    /// told.
    pub dimmer: u8,
}

impl Candidate {
    /// In place of one.
    pub const NOBODY: Self = Self {
        cost: f32::NAN,
        latency_ms: f32::NAN,
        lasts_ms: 0,
        slot: 0,
        generation: 0,
        in_flight: 0,
        standing: Standing::Ok,
        dimmer: u8::MAX,
    };

    /// The replica.
    #[inline]
    pub const fn replica(&self) -> ReplicaId {
        ReplicaId::new(self.slot as usize)
    }

    /// How long answers take by the policy's estimate, in whole microseconds; `u32::MAX` where it
    /// has none. Computed when somebody reads it, as few are read.
    pub fn latency_us(&self) -> u32 {
        match self.latency_ms.is_nan() {
            true => u32::MAX,
            false => ((self.latency_ms * 1_000.0) as u32).min(u32::MAX - 1),
        }
    }
}

/// What was decided for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A copy leaves for the first of the candidates.
    Send(Kind),
    /// It waits until the policy's rate opens.
    Hold,
    /// There is no answer.
    Refuse(Refusal),
}

/// One decision, with its reasons.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What.
    pub verdict: Verdict,
    /// The members of the group: there may be more than are told of.
    pub members: u16,
    pub(crate) candidates: [Candidate; CANDIDATES_MAX],
    pub(crate) candidates_told: u8,
}

impl Decision {
    /// The candidates, the chosen one first.
    #[inline]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates[..usize::from(self.candidates_told)]
    }
}

/// What is known of the hedge of a call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HedgeNote {
    /// What becomes of it.
    pub fate: HedgeFate,
    /// After how many nanoseconds it leaves, counted from the copy before it.
    pub delay_ns: Option<u64>,
    /// The quantile that the delay is: 0 to 1; `None` where an objective says it.
    pub quantile: Option<f64>,
}

/// What the last step decided, if it decided anything.
#[derive(Clone, Debug)]
pub struct Decisions {
    /// Written in place: a step that decides nothing leaves it as it is.
    pub(crate) choice: Decision,
    pub(crate) has_chosen: bool,
    pub(crate) hedge: Option<HedgeNote>,
    pub(crate) is_retry_denied: bool,
}

impl Default for Decisions {
    fn default() -> Self {
        let choice = Decision {
            verdict: Verdict::Hold,
            members: 0,
            candidates: [Candidate::NOBODY; CANDIDATES_MAX],
            candidates_told: 0,
        };
        Self { choice, has_chosen: false, hedge: None, is_retry_denied: false }
    }
}

impl Decisions {
    /// Who was chosen, or why nobody.
    #[inline]
    pub fn choice(&self) -> Option<&Decision> {
        self.has_chosen.then_some(&self.choice)
    }

    /// What becomes of the hedge.
    #[inline]
    pub const fn hedge(&self) -> Option<HedgeNote> {
        self.hedge
    }

    /// Whether the budget of retries forbade one.
    #[inline]
    pub const fn is_retry_denied(&self) -> bool {
        self.is_retry_denied
    }
}
