//! Overload and relief, in real time: a shop whose pages take a place in a pool for as long as
//! their work takes, and visitors who come when they come, however long others wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::loopback::{ask, serve};
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use evenkeel_brownout::{Brownout, BrownoutHandle, BrownoutLayer, Settings};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};

const SETPOINT: Duration = Duration::from_millis(300);
/// Connections of the shop to its database.
const POOL: usize = 2;
/// 2 / 40 ms: fifty full pages a second.
const FULL_WORK: Duration = Duration::from_millis(40);
const LEAN_WORK: Duration = Duration::from_millis(4);
/// Visitors a second that can all have full pages.
const CALM: u32 = 20;
/// Two and a half times as many as full pages can be had.
const OVERLOAD: u32 = 125;

async fn item(State(pool): State<Arc<Semaphore>>, brownout: Brownout) -> &'static str {
    let is_full = brownout.optional("recommendations");
    let _connection = pool.acquire().await.unwrap();
    sleep(if is_full { FULL_WORK } else { LEAN_WORK }).await;
    if is_full { "full" } else { "lean" }
}

fn shop() -> Router {
    Router::new().route("/", get(item)).with_state(Arc::new(Semaphore::new(POOL)))
}

async fn shop_with_brownout(settings: Settings) -> (SocketAddr, BrownoutHandle) {
    let layer = BrownoutLayer::new(settings.setpoint(SETPOINT)).unwrap();
    let handle = layer.handle();
    (serve(shop().layer(layer)).await, handle)
}

/// What visitors met.
struct Visits {
    /// Response times in the order of arrival.
    times: Vec<Duration>,
    full: usize,
}

impl Visits {
    /// The 95th percentile of those who came last, as many as this.
    fn late_percentile(&self, last: usize) -> Duration {
        let mut times = self.times[self.times.len() - last..].to_vec();
        times.sort_unstable();
        times[times.len() * 95 / 100]
    }

    fn full_share(&self) -> f64 {
        self.full as f64 / self.times.len() as f64
    }
}

/// As many visitors a second come, for this long; all of them are answered.
async fn visit(address: SocketAddr, per_second: u32, seconds: u32) -> Visits {
    let begin = Instant::now();
    let visitors = (0..per_second * seconds).map(|number| {
        let at = begin + Duration::from_secs(1) * number / per_second;
        tokio::spawn(async move {
            sleep_until(at).await;
            let answer = ask(address, "/", &[]).await;
            assert_eq!(answer.status, 200);
            (at.elapsed(), answer.body == "full")
        })
    });
    let mut visits = Visits { times: Vec::new(), full: 0 };
    for visitor in visitors.collect::<Vec<_>>() {
        let (time, is_full) = visitor.await.unwrap();
        visits.times.push(time);
        visits.full += usize::from(is_full);
    }
    visits
}

#[tokio::test(flavor = "multi_thread")]
async fn overload_dims_the_pages_and_relief_brings_them_back() {
    let (address, handle) = shop_with_brownout(Settings::new().cores(POOL as f64)).await;
    let calm = visit(address, CALM, 2).await;
    assert_eq!(calm.full, calm.times.len(), "{:?}", handle.state());
    let busy = visit(address, OVERLOAD, 4).await;
    let percentile = busy.late_percentile(100);
    assert!(percentile < 2 * SETPOINT, "{percentile:?} {:?}", handle.state());
    // The pool has work for f full and 125 - f lean: 40 f + 4 (125 - f) = 2,000 ms a second, which
    // is a third of them; what waited before the first dimming was full.
    assert!((0.1..0.45).contains(&busy.full_share()), "{}", busy.full_share());
    visit(address, CALM, 2).await;
    let relieved = visit(address, CALM, 1).await;
    assert_eq!(relieved.full, relieved.times.len(), "{:?}", handle.state());
}

/// 125 visitors and 50 pages a second: after two seconds 150 visitors wait, the last for 3 s.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_overload_without_the_layer_makes_everybody_wait() {
    let busy = visit(serve(shop()).await, OVERLOAD, 2).await;
    assert_eq!(busy.full, busy.times.len());
    assert!(busy.late_percentile(50) > 6 * SETPOINT, "{:?}", busy.late_percentile(50));
}

/// The published law sees the harm first, but it does act.
#[tokio::test(flavor = "multi_thread")]
async fn without_knowing_its_cores_a_service_dims_too() {
    let (address, handle) = shop_with_brownout(Settings::new()).await;
    let visiting = visit(address, OVERLOAD, 3);
    tokio::pin!(visiting);
    // When the last visitor has left there is nothing to dim for.
    let mut lowest: f64 = 1.0;
    let busy = loop {
        tokio::select! {
            busy = &mut visiting => break busy,
            () = sleep(Duration::from_millis(20)) => lowest = lowest.min(handle.dimmer().value()),
        }
    };
    assert!(busy.full_share() < 0.95, "{} {:?}", busy.full_share(), handle.state());
    assert!(lowest < 0.5, "{lowest} {:?}", handle.state());
}

/// Fifty requests wait for something else at any moment, and none of them is late. With as many
/// `cores` as worker threads this would look like an overload; that is why they are not guessed.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_awaits_and_is_in_time_is_not_dimmed() {
    async fn proxy(brownout: Brownout) -> &'static str {
        sleep(Duration::from_millis(100)).await;
        if brownout.optional("recommendations") { "full" } else { "lean" }
    }
    let layer = BrownoutLayer::new(Settings::new().setpoint(Duration::from_secs(1))).unwrap();
    let handle = layer.handle();
    let address = serve(Router::new().route("/", get(proxy)).layer(layer)).await;
    let visits = visit(address, 500, 2).await;
    assert_eq!(visits.full, visits.times.len(), "{:?}", handle.state());
}
