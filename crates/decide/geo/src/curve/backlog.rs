//! The queue that an overload leaves behind: it makes requests late at a load that harms nobody.
//!
//! Requests that are late for those that came before say nothing of the load there is. Whether they
//! are is computed, not guessed by time: a queue is as fluid, `q' = max(0, q + came - capacity)`,
//! with the capacity that is believed. As long as this *foretold* queue is not empty, lateness is
//! its doing; what is late beyond it contradicts the belief. So overloads that follow each other
//! may leave a queue for minutes, and who serves less than believed is found once the queue should
//! be gone.
//!
//! **Not by itself.** A belief must not keep itself alive by the queue that it foretells. So no
//! more is foretold than *waits by count*: requests that came less those that ended. And where a
//! queue was there for a whole period, what ended then is the most that the site can serve
//! ([`Felt::Busy`]): that is how a loss of speed in the middle of an overload is found, which no
//! lateness tells. It is no more than the most: who was refused or gave up has ended too.
//!
//! **When it misleads.** Where clients give up after a while, a queue is as long as their patience
//! whatever the site serves: a loss of speed is then found at a load that the belief says lets the
//! queue go, and not before. Requests that never end, or whose clients left before the objective,
//! count as waiting; the foretold queue bounds that. An overload by other users of the same servers
//! is in no count: its queue looks like less speed.

/// Late requests, one in so many, with which there is no queue left.
const GONE: u64 = 20;
/// A queue is as long as this share of a period's requests at least: less is in flight anyway.
const NOTICED: f64 = 0.05;

/// What a period says of the site, by its queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Felt {
    /// Nobody waits for earlier ones: lateness is of this load.
    Nothing,
    /// Requests are late for earlier ones.
    Late,
    /// The same, and the queue was there all the time: what ended in a second, as a load of the
    /// profiled site, is the most that can be served.
    Busy(f64),
}

/// One period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// The work that came and the work that is believed to be served at most, both per second and
    /// as loads of the profiled site.
    pub(super) load: f64,
    pub(super) capacity: f64,
    /// Requests that came, of all users.
    pub(super) came: f64,
    /// Those of the site's own users that ended, how many of these were late, and how many more
    /// came than ended.
    pub(super) requests: u64,
    pub(super) missed: u64,
    pub(super) grown: i64,
}

/// What is known of the queue at a site.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Backlog {
    /// Requests that wait by count: the site's own users' and those of others.
    waiting: [f64; 2],
    /// Requests of all users that wait by what was believed; no more than by count.
    foretold: f64,
}

impl Backlog {
    /// None.
    pub(super) const NONE: Self = Self { waiting: [0.0; 2], foretold: 0.0 };

    /// Takes over a period in which requests ended; what its requests waited for.
    pub(super) fn feel(&mut self, period: &Period) -> Felt {
        let Period { load, came, requests, missed, .. } = *period;
        if missed.saturating_mul(GONE) <= requests || came <= 0.0 {
            *self = Self::NONE;
            return Felt::Nothing;
        }
        let ended = self.count(period);
        let waiting: f64 = self.waiting.iter().sum();
        let served = came * period.capacity / load;
        let foretold = (self.foretold + came - served).clamp(0.0, waiting);
        let is_noticed = |queue: f64| queue > NOTICED * came;
        let before = core::mem::replace(&mut self.foretold, foretold);
        match (is_noticed(before), is_noticed(foretold)) {
            (false, _) => Felt::Nothing,
            (true, false) => Felt::Late,
            (true, true) => Felt::Busy(ended / came * load),
        }
    }

    /// Counts who waits now; tells how many ended. Only of the site's own
    /// users it is known how many did. All stand in one line, so that of the others as large a
    /// share has ended.
    fn count(&mut self, period: &Period) -> f64 {
        let Period { came, requests, grown, .. } = *period;
        let own = (requests as f64 + grown as f64).max(0.0);
        let there = [self.waiting[0] + own, self.waiting[1] + (came - own).max(0.0)];
        let ended = (requests as f64 / there[0]).min(1.0);
        self.waiting = there.map(|requests| requests * (1.0 - ended));
        ended * (there[0] + there[1])
    }
}
