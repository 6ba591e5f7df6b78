//! The requests of one turn: at given times whatever became of earlier ones (open loop), or one
//! after the other (closed loop).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_core::Rng;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinHandle;

use crate::Problem;
use crate::flags::Flags;
use crate::ways::Asking;

/// What came of the requests of a turn. Latencies count from when a request should have been sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// Of requests that were due in the first half of the turn, and in the second.
    pub(crate) latencies_us: [Vec<u64>; 2],
    pub(crate) errors: u64,
    /// The first of them.
    pub(crate) error: Option<String>,
    pub(crate) elapsed: Duration,
    /// Of this whole process.
    pub(crate) cpu: Duration,
    /// By how much requests were sent too late, sorted.
    pub(crate) late_us: Vec<u64>,
}

/// Which keys are asked for.
#[derive(Debug)]
struct Keys {
    /// The share of requests that ask for this key or one before it; none: all alike.
    shares: Vec<f64>,
    count: usize,
}

impl Keys {
    fn new(flags: &Flags) -> Self {
        let mut shares = Vec::new();
        if flags.zipf > 0.0 {
            let mut sum = 0.0;
            for rank in 1..=flags.keys {
                sum += (rank as f64).powf(-flags.zipf);
                shares.push(sum);
            }
            shares.iter_mut().for_each(|share| *share /= sum);
        }
        Self { shares, count: flags.keys }
    }

    fn draw(&self, rng: &mut Rng) -> i64 {
        if self.shares.is_empty() {
            return rng.below(self.count) as i64;
        }
        let at = rng.unit();
        self.shares.partition_point(|share| *share < at).min(self.count - 1) as i64
    }
}

/// A turn under way.
struct Turn {
    asking: Asking,
    flags: Flags,
    keys: Keys,
    value: Arc<[u8]>,
    begin: Instant,
    latencies_us: [Mutex<Vec<u64>>; 2],
    errors: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Turn {
    /// Draws one request: its key, and what is written.
    fn draw(&self, rng: &mut Rng, updates: f64) -> (i64, Option<Arc<[u8]>>) {
        let key = self.keys.draw(rng);
        (key, (rng.unit() < updates).then(|| Arc::clone(&self.value)))
    }

    async fn ask(&self, key: i64, value: Option<Arc<[u8]>>, due: Instant) {
        let Asking { session, read, write } = &self.asking;
        let answered = match value {
            None => session.execute_unpaged(read, (key,)).await,
            Some(value) => session.execute_unpaged(write, (key, &*value)).await,
        };
        let latency_us = due.elapsed().as_micros() as u64;
        let is_second = (due - self.begin).as_secs_f64() > self.flags.seconds / 2.0;
        match answered {
            Ok(_) => {
                let half = &self.latencies_us[usize::from(is_second)];
                half.lock().unwrap_or_else(PoisonError::into_inner).push(latency_us);
            }
            Err(error) => {
                self.errors.fetch_add(1, Relaxed);
                let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Sends from a thread of its own: a runtime's timers are too coarse. Answers what was sent,
    /// and by how much too late.
    fn send_all(this: &Arc<Self>) -> (Vec<JoinHandle<()>>, Vec<u64>) {
        let runtime = tokio::runtime::Handle::current();
        let Flags { rate, seconds, joining, updates, seed, .. } = this.flags;
        let mut rng = Rng::seeded(seed);
        let mut at_s = 0.0;
        let mut asked = Vec::with_capacity((rate * seconds) as usize);
        let mut late_us = Vec::with_capacity(asked.capacity());
        loop {
            let joined = if at_s > seconds / 2.0 { joining } else { 0.0 };
            at_s -= (1.0 - rng.unit()).ln() / (rate + joined);
            if at_s > seconds {
                return (asked, late_us);
            }
            let is_joined = rng.unit() * (rate + joined) < joined;
            let (key, value) = this.draw(&mut rng, if is_joined { 0.5 } else { updates });
            let due = this.begin + Duration::from_secs_f64(at_s);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            late_us.push(due.elapsed().as_micros() as u64);
            let turn = Arc::clone(this);
            asked.push(runtime.spawn(async move { turn.ask(key, value, due).await }));
        }
    }

    async fn use_alone(self: Arc<Self>, user: usize) {
        let Flags { seconds, updates, seed, .. } = self.flags;
        let mut rng = Rng::stream(seed, &format!("user {user}"));
        let ends = self.begin + Duration::from_secs_f64(seconds);
        while Instant::now() < ends {
            let (key, value) = self.draw(&mut rng, updates);
            self.ask(key, value, Instant::now()).await;
        }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Takes one turn and waits for all of its answers.
pub(crate) async fn take_turn(asking: &Asking, flags: &Flags) -> Result<Taken, Problem> {
    let keys = Keys::new(flags);
    let (cpu, begin) = (cpu_time(), Instant::now());
    let turn = Arc::new(Turn {
        asking: asking.clone(),
        flags: flags.clone(),
        keys,
        value: vec![7; flags.bytes].into(),
        begin,
        latencies_us: Default::default(),
        errors: AtomicU64::new(0),
        error: Mutex::default(),
    });
    let (asked, mut late_us) = if flags.users == 0 {
        let sending = Arc::clone(&turn);
        tokio::task::spawn_blocking(move || Turn::send_all(&sending)).await?
    } else {
        let users = (0..flags.users).map(|user| tokio::spawn(Arc::clone(&turn).use_alone(user)));
        (users.collect(), Vec::new())
    };
    for one in asked {
        one.await?;
    }
    late_us.sort_unstable();
    let taken_from =
        |half: &Mutex<_>| std::mem::take(&mut *half.lock().unwrap_or_else(PoisonError::into_inner));
    let error = turn.error.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(Taken {
        latencies_us: [taken_from(&turn.latencies_us[0]), taken_from(&turn.latencies_us[1])],
        errors: turn.errors.load(Relaxed),
        error,
        elapsed: begin.elapsed(),
        cpu: cpu_time() - cpu,
        late_us,
    })
}

/// The least value that so great a share of them does not exceed.
pub(crate) fn quantile(sorted: &[u64], share: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}
