//! The queue before the application: first come, first served, and nobody waits for ever.
//!
//! A slot that becomes free goes to the request that has waited longest, by name, before anybody
//! hears of it; a request that arrives in that moment cannot overtake. A request that leaves
//! gives up its place in the queue, or the slot it was given and has not taken yet.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The slots of an application and the requests that wait for one.
pub(super) struct Admission {
    slots: u32,
    queue_max: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Slots in use, those included that were given and not taken yet.
    in_service: u32,
    tickets: u64,
    /// By ticket, hence in the order of arrival.
    waiting: BTreeMap<u64, Waker>,
    given: BTreeSet<u64>,
}

/// There is no slot, and no room to wait for one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full {
    queue_max: usize,
}

impl Admission {
    /// `slots` requests may be in service at once (`None`: any number), `queue_max` may wait.
    pub(super) fn new(slots: Option<u32>, queue_max: usize) -> Admission {
        Admission { slots: slots.unwrap_or(u32::MAX), queue_max, state: RefCell::default() }
    }

    /// Takes a slot, or a place in the queue that becomes one when it is awaited.
    ///
    /// # Errors
    /// When the queue is full.
    pub(super) fn enter(self: &Rc<Self>) -> Result<Entering, Full> {
        let state = &mut *self.state.borrow_mut();
        let ticket = state.tickets;
        if state.in_service < self.slots {
            state.in_service += 1; // nobody waits while a slot is free
            state.given.insert(ticket);
        } else if state.waiting.len() < self.queue_max {
            state.waiting.insert(ticket, Waker::noop().clone());
        } else {
            return Err(Full { queue_max: self.queue_max });
        }
        state.tickets += 1;
        Ok(Entering { admission: Rc::clone(self), ticket })
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> u32 {
        u32::try_from(self.state.borrow().waiting.len()).unwrap_or(u32::MAX)
    }

    /// Requests with a slot.
    pub(super) fn in_service(&self) -> u32 {
        self.state.borrow().in_service
    }

    /// Hands a slot that became free to whoever has waited longest.
    fn release(&self) {
        let mut state = self.state.borrow_mut();
        assert!(state.in_service > 0, "a slot is released once");
        let Some((ticket, waker)) = state.waiting.pop_first() else {
            state.in_service -= 1;
            return;
        };
        state.given.insert(ticket);
        drop(state);
        waker.wake();
    }
}

/// A request on its way to a slot. Dropping it leaves the queue.
pub(super) struct Entering {
    admission: Rc<Admission>,
    ticket: u64,
}

impl Entering {
    /// Whether it has no slot yet.
    pub(super) fn must_wait(&self) -> bool {
        self.admission.state.borrow().waiting.contains_key(&self.ticket)
    }
}

impl Future for Entering {
    type Output = Slot;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Slot> {
        let mut state = self.admission.state.borrow_mut();
        if state.given.remove(&self.ticket) {
            return Poll::Ready(Slot(Rc::clone(&self.admission)));
        }
        if let Some(waker) = state.waiting.get_mut(&self.ticket) {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        let mut state = self.admission.state.borrow_mut();
        state.waiting.remove(&self.ticket);
        let is_untaken = state.given.remove(&self.ticket);
        drop(state);
        if is_untaken {
            self.admission.release();
        }
    }
}

/// Leave to ask the application. Dropping it lets the next one in.
pub(super) struct Slot(Rc<Admission>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests wait already, which is the limit", self.queue_max)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn poll(entering: &mut Entering) -> Poll<Slot> {
        Pin::new(entering).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A request of the model: waiting for its slot, or with it.
    enum Visitor {
        Entering(Entering),
        Inside { _slot: Slot },
    }

    #[derive(Debug, Clone)]
    enum Act {
        Enter,
        Leave(prop::sample::Index),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let leave = any::<prop::sample::Index>().prop_map(Act::Leave);
        prop::collection::vec(prop_oneof![3 => Just(Act::Enter), 2 => leave], 0..200)
    }

    proptest! {
        /// The obvious model is a line of names: who finds no free slot goes to its end, and
        /// whenever somebody with a slot leaves, the first in line gets it.
        #[test]
        fn slots_go_in_the_order_of_arrival(
            slots in 1_usize..4,
            room in 0_usize..5,
            acts in acts(),
        ) {
            let admission = Rc::new(Admission::new(Some(slots as u32), room));
            let mut line: VecDeque<usize> = VecDeque::new();
            let mut present: Vec<(usize, Visitor)> = Vec::new();
            let mut served: Vec<usize> = Vec::new();
            for (name, act) in acts.into_iter().enumerate() {
                let is_taken = present.len() - line.len() == slots;
                match act {
                    Act::Enter => match admission.enter() {
                        Ok(entering) => {
                            line.extend(is_taken.then_some(name));
                            present.push((name, Visitor::Entering(entering)));
                        }
                        Err(_) => prop_assert!(is_taken && line.len() == room),
                    },
                    Act::Leave(_) if present.is_empty() => {}
                    Act::Leave(index) => {
                        let (name, visitor) = present.remove(index.index(present.len()));
                        drop(visitor);
                        let place = line.iter().position(|waiting| *waiting == name);
                        line.remove(place.unwrap_or(0));
                    }
                }
                for (name, visitor) in &mut present {
                    let Visitor::Entering(entering) = visitor else { continue };
                    let polled = poll(entering);
                    prop_assert_eq!(polled.is_pending(), line.contains(name), "{}", name);
                    if let Poll::Ready(slot) = polled {
                        *visitor = Visitor::Inside { _slot: slot };
                        served.push(*name);
                    }
                }
                prop_assert!(line.len() <= room);
                prop_assert_eq!(admission.waiting() as usize, line.len());
                prop_assert_eq!(admission.in_service() as usize, present.len() - line.len());
            }
            prop_assert!(served.is_sorted(), "first come, first served: {:?}", served);
            drop(present);
            prop_assert_eq!((admission.in_service(), admission.waiting()), (0, 0));
        }
    }

    #[test]
    fn a_slot_given_and_not_taken_goes_on_to_the_next() {
        let admission = Rc::new(Admission::new(Some(1), 9));
        let mut first = admission.enter().unwrap();
        let Poll::Ready(slot) = poll(&mut first) else { panic!("a free slot is taken at once") };
        let (second, mut third) = (admission.enter().unwrap(), admission.enter().unwrap());
        drop(slot);
        assert_eq!((admission.in_service(), admission.waiting()), (1, 1));
        assert!(poll(&mut third).is_pending(), "the slot is the second's");
        drop(second);
        assert!(poll(&mut third).is_ready());
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let admission = Rc::new(Admission::new(None, 0));
        let mut all: Vec<Entering> = (0..1_000).map(|_| admission.enter().unwrap()).collect();
        let slots: Vec<Poll<Slot>> = all.iter_mut().map(poll).collect();
        assert!(slots.iter().all(Poll::is_ready));
        assert_eq!((admission.in_service(), admission.waiting()), (1_000, 0));
    }
}
