//! How a client's connection obeys an order in its present phase.

use std::rc::Rc;

use evenkeel_runtime::accept::{Link, Order, Phase};

/// How a connection obeys an order in its present phase.
pub(super) enum Parting {
    None,
    AfterAnswer,
    Now,
}

pub(super) fn parting(order: Order, phase: Phase) -> Parting {
    match (order, phase) {
        (Order::LastRequest | Order::Drain, Phase::Serving) => Parting::AfterAnswer,
        // The end of an answer may still lie in a buffer.
        (Order::Drain, Phase::Idle) => Parting::AfterAnswer,
        (Order::Drain, Phase::New) => Parting::Now,
        _ => Parting::None, // a head has begun: it will be served, or take too long
    }
}

/// From the end of a request head to the end of its response.
pub(super) struct Serving(Rc<Link>);

impl Serving {
    pub(super) fn begin(link: &Rc<Link>) -> Serving {
        link.enter(Phase::Serving);
        Serving(Rc::clone(link))
    }

    /// Whether the client may go on asking here.
    pub(super) fn takes_more(&self) -> bool {
        self.0.takes_more()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}
