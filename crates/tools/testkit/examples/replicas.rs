//! Five replicas in a process of their own, for `cargo xtask compare`: the same seed, weather and
//! delay are the same service to whoever is in front of it.
//!
//! `replicas SEED WEATHER DELAY_MS`: prints the addresses, one a line, and serves until it is
//! killed. The weather begins after the delay and is of replica 4: `well` (nothing), `pauses`
//! (100 to 300 ms, once a second on average), `slow` (takes four times as long) or `hangs` (answers
//! nothing any more).

use std::time::Duration;

use evenkeel_testkit::embedded::{Embedded, EmbeddedConfig};
use evenkeel_testkit::fault::{Mishap, What};

const ODD_ONE: usize = 4;
const HOUR: Duration = Duration::from_secs(3600);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seed, weather, delay_ms] = &words[..] else {
        return Err("usage: replicas SEED well|pauses|slow|hangs DELAY_MS".into());
    };
    let at = Duration::from_millis(delay_ms.parse()?);
    let (every, what) = match weather.as_str() {
        "well" => (Duration::ZERO, None),
        "pauses" => {
            let lengths = [100, 300].map(Duration::from_millis);
            (Duration::from_secs(1), Some(What::Pause(lengths[0], lengths[1])))
        }
        "slow" => (Duration::ZERO, Some(What::Slow(4.0))),
        "hangs" => (Duration::ZERO, Some(What::Pause(HOUR, HOUR))),
        other => return Err(format!("no weather `{other}`: well, pauses, slow or hangs").into()),
    };
    let mishap = what.map(|what| Mishap { at, every, replica: Some(ODD_ONE), what });
    let service = Embedded::start(EmbeddedConfig {
        replicas: 5,
        concurrency: 4,
        agents: false,
        service_mean: Duration::from_millis(6),
        fluctuation_interval: Duration::ZERO,
        fluctuation_range: 1.0,
        mishaps: mishap.into_iter().collect(),
        seed: seed.parse()?,
    })?;
    for address in service.addresses() {
        println!("{address}");
    }
    loop {
        std::thread::park();
    }
}
