//! A fixed number of database threads behind a queue: where a request's work is done.
//!
//! This is how application servers are: so many threads, so many connections, and a
//! first-come-first-served queue without a bound in front. Its weakness is kept on purpose, because
//! it is what makes services collapse and what a brownout has to cope with: **a client that gives
//! up does not take its work back**. The queue cannot see it, so the threads go on to serve people
//! who have left, and after a second of overload everyone who is served has left.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::arguments::Speed;
use crate::brownout::Parts;
use crate::costs::Costs;
use crate::pace::{self, Pace};
use crate::store::Store;

/// The threads and their queue. Dropping it ends the threads; what still waits is thrown away.
#[derive(Debug)]
pub(crate) struct Pool {
    queue: Arc<Queue>,
    costs: Costs,
}

impl Pool {
    /// Starts a thread for each of `stores`.
    pub(crate) fn start(stores: Vec<Store>, speed: Speed) -> std::io::Result<Self> {
        let pool = Self { queue: Arc::default(), costs: Costs::default() };
        for (number, store) in stores.into_iter().enumerate() {
            let queue = Arc::clone(&pool.queue);
            let thread = thread::Builder::new().name(format!("database-{number}"));
            thread.spawn(move || work(&queue, store, speed))?;
        }
        Ok(pool)
    }

    /// The same with pages of items that are to take so long.
    #[must_use]
    pub(crate) fn with_costs(mut self, costs: Costs) -> Self {
        self.costs = costs;
        self
    }

    /// What the page of an item is to take, if that was said.
    pub(crate) fn cost_of(&self, item: i64, parts: Parts) -> Option<Duration> {
        self.costs.of(item, parts)
    }

    /// Puts work at the end of the queue; `cost` is what it is to take, if that was said. Its
    /// result is lost if nobody waits for it, its cost is not. The receiver fails when the pool
    /// ends before the work's turn.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        cost: Option<Duration>,
        work: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |store| {
            let result = work(store);
            Box::new(move || drop(sender.send(result)))
        });
        self.queue.line().waiting.push_back(Waiting { since: Instant::now(), cost, job });
        self.queue.arrived.notify_one();
        receiver
    }

    /// How much work waits for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.line().waiting.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut line = self.queue.line();
        line.closed = true;
        line.waiting.clear();
        self.queue.arrived.notify_all();
    }
}

/// Does the work and returns what hands over the result, which a slower machine does later.
type Job = Box<dyn FnOnce(&mut Store) -> Box<dyn FnOnce() + Send> + Send>;

struct Waiting {
    since: Instant,
    /// What it is to take, where that was said.
    cost: Option<Duration>,
    job: Job,
}

#[derive(Debug, Default)]
struct Queue {
    line: Mutex<Line>,
    arrived: Condvar,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    closed: bool,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} waiting, closed: {}", self.waiting.len(), self.closed)
    }
}

impl Queue {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("no work is done under the lock, so nobody panics with it")
    }

    /// The next piece of work; `None` when the pool has ended.
    fn next(&self) -> Option<Waiting> {
        let mut line = self.line();
        loop {
            if line.closed {
                return None;
            }
            if let Some(first) = line.waiting.pop_front() {
                return Some(first);
            }
            line = self.arrived.wait(line).expect("as for `line`");
        }
    }
}

/// The life of a database thread.
fn work(queue: &Queue, mut store: Store, speed: Speed) {
    let mut pace = Pace::new(Instant::now());
    while let Some(Waiting { since, cost, job }) = queue.next() {
        let begun = Instant::now();
        let cpu_before = pace::cpu_time();
        let hand_over = job(&mut store);
        let cpu = pace::cpu_time().saturating_sub(cpu_before);
        if let Some(length) = cost.map(|cost| cost.max(cpu)).or_else(|| speed.slowed(cpu)) {
            let done_at = pace.done_at(since, begun, length);
            thread::sleep(done_at.saturating_duration_since(Instant::now()));
        }
        hand_over();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::store;

    #[test]
    fn work_of_a_client_that_gave_up_is_done_all_the_same_and_in_order() {
        let folder = store::tests::folder("pool");
        let pool = Pool::start(vec![store::tests::small(&folder)], Speed::FULL).unwrap();
        let (gate, gate_opens) = mpsc::channel::<()>();
        let (done, done_in_order) = mpsc::channel();
        let blocker = pool.submit(None, move |_| gate_opens.recv().unwrap());
        for number in 0..5 {
            let done = done.clone();
            drop(pool.submit(None, move |_| done.send(number).unwrap()));
        }
        assert!((5..=6).contains(&pool.waiting()), "giving up took work out of the queue");
        gate.send(()).unwrap();
        blocker.blocking_recv().unwrap();
        drop(done);
        let served: Vec<i32> = done_in_order.iter().take(5).collect();
        assert_eq!(served, [0, 1, 2, 3, 4]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_end_of_the_pool_fails_who_still_waits() {
        let folder = store::tests::folder("pool-end");
        let pool = Pool::start(vec![store::tests::small(&folder)], Speed::FULL).unwrap();
        let (gate, gate_opens) = mpsc::channel::<()>();
        let running = pool.submit(None, move |_| gate_opens.recv().unwrap());
        while pool.waiting() > 0 {
            thread::yield_now();
        }
        let waiting = pool.submit(None, |_| ());
        drop(pool);
        assert!(waiting.blocking_recv().is_err());
        gate.send(()).unwrap();
        assert!(running.blocking_recv().is_ok(), "work that had begun is handed over");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
