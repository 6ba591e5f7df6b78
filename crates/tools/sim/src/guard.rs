//! What stands before one server's cores: nothing, a brownout, or one of its peers.
//!
//! A brownout is driven as the agent drives it: a ticket on arrival, `begin` when service starts
//! (at once, unless the request stands in line), and an end. One thing differs where giving up does
//! not cancel (`cancel = false`, as published): the server never learns that a client has left, so
//! the request stays and ends as answered, however late; the agent sees the connection close and
//! ends it as given up. With `cancel = true` both do the same.

use evenkeel_core::Instant;
use evenkeel_core::dimmer::{Brownout, BrownoutConfig, Choice, End, Inflow, Law, Ticket};
use evenkeel_core::time::millis;
use evenkeel_core::units::Dimmer;

use crate::peers::{Admission, Gradient, Shed};

/// The kinds of guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Everybody is let in and served in full.
    Full,
    /// A brownout with this law.
    Brownout(Law),
    /// An adaptive limit of concurrency.
    Gradient,
    /// Admission control by success rate.
    Admission,
    /// A fixed limit of concurrency.
    Shed,
}

impl Kind {
    /// The kinds by the suffixes that scenarios write behind a policy.
    pub const NAMES: [(&str, Self); 7] = [
        ("full", Self::Full),
        ("feed-forward", Self::Brownout(Law::FeedForward)),
        ("published", Self::Brownout(Law::Published)),
        ("published-exact", Self::Brownout(Law::PublishedExact)),
        ("gradient", Self::Gradient),
        ("admission", Self::Admission),
        ("shed", Self::Shed),
    ];

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// The guard of one server.
#[derive(Debug)]
pub(crate) enum Guard {
    Full,
    Brownout(Box<Dimmed>),
    Gradient(Gradient),
    Admission(Admission),
    Shed(Shed),
}

#[derive(Debug)]
pub(crate) struct Dimmed {
    brownout: Brownout,
    law: Law,
}

/// What a request that was let in carries until it ends.
#[derive(Debug)]
pub(crate) enum Pass {
    /// Nothing: the guard does not watch.
    Free,
    Ticket(Ticket),
    /// How many were present with it when it came.
    Present(u32),
    /// Its end is counted.
    Counted,
    /// Its end was counted already, when its client left.
    Spent,
}

impl Pass {
    /// Whether the request is served with all optional content.
    pub(crate) const fn is_full(&self) -> bool {
        match self {
            Self::Ticket(ticket) => ticket.content().is_full(),
            Self::Free | Self::Present(_) | Self::Counted | Self::Spent => true,
        }
    }
}

impl Guard {
    /// The guard of a server with these cores; `config` is for a brownout.
    pub(crate) fn new(kind: Kind, cores: u32, config: BrownoutConfig, seed: u64) -> Self {
        match kind {
            Kind::Full => Self::Full,
            Kind::Brownout(law) => {
                let brownout = Brownout::new(config, Instant::ZERO, seed);
                Self::Brownout(Box::new(Dimmed { brownout, law }))
            }
            Kind::Gradient => Self::Gradient(Gradient::default()),
            Kind::Admission => Self::Admission(Admission::new(seed)),
            Kind::Shed => Self::Shed(Shed::new(cores)),
        }
    }

    /// A request arrives where so many are; `None` when it is refused.
    #[inline]
    pub(crate) fn admit(&mut self, now: Instant, present: u32) -> Option<Pass> {
        match self {
            Self::Full => Some(Pass::Free),
            Self::Brownout(dimmed) => Some(Pass::Ticket(dimmed.brownout.arrive(now, Choice::Coin))),
            Self::Gradient(gradient) => gradient.enter().map(Pass::Present),
            Self::Admission(admission) => admission.admits(now).then_some(Pass::Counted),
            Self::Shed(shed) => shed.admits(present).then_some(Pass::Free),
        }
    }

    /// Somebody begins to serve the request.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant, pass: &mut Pass) {
        if let (Self::Brownout(dimmed), Pass::Ticket(ticket)) = (self, pass) {
            dimmed.brownout.begin(now, ticket);
        }
    }

    /// The request that came at `since` was answered.
    #[inline]
    pub(crate) fn answered(&mut self, now: Instant, pass: Pass, since: Instant) {
        match (self, pass) {
            (Self::Brownout(dimmed), Pass::Ticket(ticket)) => {
                dimmed.brownout.end(now, ticket, End::Answered(None));
            }
            (Self::Gradient(gradient), Pass::Present(present)) => {
                gradient.answered(now, millis(now.since(since)), present);
            }
            (Self::Admission(admission), Pass::Counted) => admission.ended(now, true),
            _ => {}
        }
    }

    /// The request's client has left; the server works on unless `is_cancelled`.
    pub(crate) fn given_up(&mut self, now: Instant, pass: Pass, is_cancelled: bool) -> Pass {
        match (self, pass) {
            (Self::Brownout(dimmed), Pass::Ticket(ticket)) if is_cancelled => {
                dimmed.brownout.end(now, ticket, End::GivenUp);
            }
            (Self::Gradient(gradient), Pass::Present(_)) if is_cancelled => gradient.left(),
            (Self::Admission(admission), Pass::Counted) => admission.ended(now, false),
            (_, pass) => return pass,
        }
        Pass::Spent
    }

    /// The request fails, or its server dies.
    pub(crate) fn failed(&mut self, now: Instant, pass: Pass) {
        match (self, pass) {
            (Self::Brownout(dimmed), Pass::Ticket(ticket)) => {
                dimmed.brownout.end(now, ticket, End::Failed);
            }
            (Self::Gradient(gradient), Pass::Present(_)) => gradient.left(),
            (Self::Admission(admission), Pass::Counted) => admission.ended(now, false),
            _ => {}
        }
    }

    /// A plan brings more, or less, than the one before.
    pub(crate) fn expect(&mut self, now: Instant, inflow: Inflow) {
        if let Self::Brownout(dimmed) = self {
            dimmed.brownout.expect(now, inflow);
        }
    }

    /// The server is back after a crash. The published code keeps its state in a file.
    pub(crate) fn restarted(&mut self, now: Instant) {
        if let Self::Brownout(dimmed) = self
            && dimmed.law != Law::PublishedExact
        {
            dimmed.brownout.restarted(now);
        }
    }

    /// The dimmer in force, where there is one.
    #[inline]
    pub(crate) fn dimmer(&self) -> Option<Dimmer> {
        match self {
            Self::Brownout(dimmed) => Some(dimmed.brownout.dimmer()),
            _ => None,
        }
    }

    /// The dimmer an answer tells: the one in force, or, as published, the one that was in force
    /// when the request came.
    #[inline]
    pub(crate) fn told_dimmer(&self, then: Option<Dimmer>) -> Option<Dimmer> {
        match self {
            Self::Brownout(dimmed) if dimmed.law != Law::PublishedExact => self.dimmer(),
            _ => then,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brownout(law: Law) -> Guard {
        let config = BrownoutConfig { law, cores: Some(1.0), ..BrownoutConfig::default() };
        Guard::new(Kind::Brownout(law), 1, config, 1)
    }

    #[test]
    fn the_published_law_tells_the_dimmer_of_then_and_the_others_that_of_now() {
        let then = Some(Dimmer::LEAN);
        assert_eq!(brownout(Law::PublishedExact).told_dimmer(then), then);
        for law in [Law::Published, Law::FeedForward] {
            assert_eq!(brownout(law).told_dimmer(then), Some(Dimmer::FULL));
        }
        let gradient = Guard::Gradient(Gradient::default());
        assert_eq!((gradient.dimmer(), gradient.told_dimmer(None)), (None, None));
    }

    #[test]
    fn who_leaves_unnoticed_by_the_server_stays_there() {
        let mut guard = brownout(Law::Published);
        let pass = guard.admit(Instant::ZERO, 0).unwrap();
        let pass = guard.given_up(Instant::ZERO, pass, false);
        assert!(matches!(pass, Pass::Ticket(_)));
        assert!(matches!(guard.given_up(Instant::ZERO, pass, true), Pass::Spent));
        let mut admission = Guard::Admission(Admission::new(1));
        let pass = admission.admit(Instant::ZERO, 0).unwrap();
        let pass = admission.given_up(Instant::ZERO, pass, false);
        assert!(matches!(pass, Pass::Spent), "its failure is counted when its client leaves");
    }

    #[test]
    fn every_request_that_a_limit_lets_in_makes_room_when_it_ends() {
        let mut guard = Guard::Gradient(Gradient::default());
        for round in 0..30 {
            let mut inside: Vec<_> = (0..25).map_while(|n| guard.admit(Instant::ZERO, n)).collect();
            assert_eq!(inside.len(), 20);
            for (n, pass) in inside.drain(..).enumerate() {
                match (n + round) % 3 {
                    0 => guard.failed(Instant::ZERO, pass),
                    1 => drop(guard.given_up(Instant::ZERO, pass, true)),
                    _ => guard.answered(Instant::ZERO, pass, Instant::ZERO),
                }
            }
        }
    }
}
