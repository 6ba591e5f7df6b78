//! The load of a group, for the processes of its service: by it groups are spread
//! ([`evenkeel_leadership::groups`]).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use evenkeel_duplicates_engine::Engine;
use evenkeel_leadership::{Group, Known};

/// Over how long commands are counted, for others to know the load of a group.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// Tells how many commands a second clients of a group have, as long as it is led here.
pub(super) async fn measure(engine: Rc<Engine>, known: Arc<watch::Sender<Known>>, group: Group) {
    let answered = || {
        let state = engine.look().state();
        state.reads.latencies.count() + state.writes.latencies.count()
    };
    let measured = Measured(&known, group);
    let (mut before, mut began) = (answered(), Instant::now());
    loop {
        sleep(MEASURE_EVERY).await;
        let (now, at) = (answered(), Instant::now());
        let elapsed = (at - began).as_secs_f64();
        measured.tell(Some((now.saturating_sub(before) as f64 / elapsed).round() as u64));
        (before, began) = (now, at);
    }
}

/// What is known of the load of a group that is led here; nothing once it is led no more.
struct Measured<'k>(&'k watch::Sender<Known>, Group);

impl Measured<'_> {
    /// Nobody waits for it: it is said to others when they are looked at next.
    fn tell(&self, load: Option<u64>) {
        self.0.send_if_modified(|known| {
            if let Some(place) = known.measured.get_mut(self.1.number) {
                *place = load;
            }
            false
        });
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        self.tell(None);
    }
}
