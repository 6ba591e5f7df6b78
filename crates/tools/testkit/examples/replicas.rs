//! Five replicas in a process of their own, for `cargo xtask compare`: the same seed, weather and
//! delay are the same service to whoever is in front of it.
//!
//! `replicas SEED WEATHER DELAY_MS agents|bare`: prints the addresses, one a line, and serves until
//! it is killed. The weather begins after the delay and is of replica 4: `well` (nothing), `pauses`
//! (100 to 300 ms, once a second on average), `slow` (takes four times as long) or `hangs` (answers
//! nothing any more). `agents` are built into the replicas.

use std::time::Duration;

use evenkeel_core::Rng;
use evenkeel_testkit::embedded::{Draws, Embedded, EmbeddedConfig};
use evenkeel_testkit::fault::{Mishap, What};

const ODD_ONE: usize = 4;
const HOUR: Duration = Duration::from_secs(3600);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seed, weather, delay_ms, agents] = &words[..] else {
        return Err("usage: replicas SEED well|pauses|slow|hangs DELAY_MS agents|bare".into());
    };
    let agents = match agents.as_str() {
        "agents" => true,
        "bare" => false,
        other => return Err(format!("got `{other}`, expected agents or bare").into()),
    };
    let seed = seed.parse()?;
    let at = Duration::from_millis(delay_ms.parse()?);
    let once = |what| vec![Mishap { at, replica: ODD_ONE, what }];
    let mishaps = match weather.as_str() {
        "well" => Vec::new(),
        "pauses" => pauses(at, seed),
        "slow" => once(What::Slow(4.0)),
        "hangs" => once(What::Pause(HOUR)),
        other => return Err(format!("no weather `{other}`: well, pauses, slow or hangs").into()),
    };
    let service = Embedded::start(EmbeddedConfig {
        replicas: 5,
        concurrency: 4,
        agents,
        service_mean: Duration::from_millis(6),
        mishaps,
        draws: Draws::exponential(5, seed),
    })?;
    service.begin();
    for address in service.addresses() {
        println!("{address}");
    }
    loop {
        std::thread::park();
    }
}

/// An hour of pauses.
fn pauses(from: Duration, seed: u64) -> Vec<Mishap> {
    let mut rng = Rng::stream(seed, "pauses");
    let mut at = from;
    let mut next = || {
        at += Duration::from_secs_f64(rng.exponential());
        let what = What::Pause(Duration::from_secs_f64(0.1 + 0.2 * rng.unit()));
        Mishap { at, replica: ODD_ONE, what }
    };
    (0..3_600).map(|_| next()).collect()
}
