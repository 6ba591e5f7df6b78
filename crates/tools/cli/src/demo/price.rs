//! What a page of the shop costs on this machine, and how slow a shop must be to cost what the
//! scenario says.
//!
//! **Signal**: how long all shops together are busy with pages of items at even distances, at a
//! speed that was guessed from the CPU time of the same pages made without a pause
//! (`evenkeel-shop measure`). **Why not that time alone**: a shop that makes a page now and then
//! finds the caches cold and needs up to half as much again. **When it misleads**: when the machine
//! gets busier, or less busy, after the measurement.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_sim::scenario::{Replica, Work};

use super::shops::{Shops, ShopsConfig, threads};

/// Pages are dear or cheap: the mean of so many is within a few per cent of that of all.
const PAGES: u32 = 200;
/// The slowest shop there is, as a share of this machine.
const SPEED_MIN: f64 = 0.001;

/// What pages cost here.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Price {
    /// Mean CPU time of a full page, as a shop needs it that makes one now and then.
    pub(super) full_page_cpu_ms: f64,
    /// The same of a lean page.
    pub(super) lean_page_cpu_ms: f64,
    /// The share of this machine's speed at which a full page takes what the scenario says.
    pub(super) speed: f64,
}

/// Measures with shops like those of `config`, whose speed is not looked at. `items` is how many
/// items the catalogue has.
pub(super) fn measure(items: u32, config: &ShopsConfig, work: &Work) -> anyhow::Result<Price> {
    let unpaused_ms = config.program.full_page_cpu_ms(&config.database, PAGES)?;
    let speed = (unpaused_ms / millis(work.optional)).clamp(SPEED_MIN, 1.0);
    let shops = Shops::start(ShopsConfig { speed, ..config.clone() })?;
    let step = items / PAGES;
    let numbers: Vec<u32> = (0..PAGES).map(|index| 1 + index * step).collect();
    // Others first: the caches of a process that has just begun are empty.
    let others: Vec<u32> = numbers.iter().map(|number| number + step / 2).collect();
    asked(config, &others, "?1")?;
    let full_page_cpu_ms = asked(config, &numbers, "?1")? * speed;
    let lean_page_cpu_ms = asked(config, &numbers, "?0")? * speed;
    drop(shops);
    let speed = full_page_cpu_ms / millis(work.optional);
    let price = Price { full_page_cpu_ms, lean_page_cpu_ms, speed };
    price.check(config)?;
    Ok(price)
}

impl Price {
    /// In a line, what was made of this machine.
    pub(super) fn words(&self) -> String {
        let Self { full_page_cpu_ms, lean_page_cpu_ms, speed } = *self;
        format!(
            "Here a full page takes {full_page_cpu_ms:.2} ms of CPU time and a lean one \
             {lean_page_cpu_ms:.2} ms; the shops run at {:.1} % of this machine's speed, where \
             that is {:.0} and {:.1} ms.",
            speed * 100.0,
            full_page_cpu_ms / speed,
            lean_page_cpu_ms / speed,
        )
    }

    fn check(&self, config: &ShopsConfig) -> anyhow::Result<()> {
        let speeds = config.replicas.iter().map(|replica| replica.speed * self.speed);
        for speed in speeds {
            anyhow::ensure!(
                (SPEED_MIN..=1.0).contains(&speed),
                "work.optional: a full page takes {:.2} ms of CPU time here, so a shop would have \
                 to run at {speed:.5} times the speed of this machine, expected {SPEED_MIN} to 1 \
                 (--set work.optional=... changes it)",
                self.full_page_cpu_ms,
            );
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Mean time that a thread of a shop of speed 1 needs for one of these pages, in milliseconds; they
/// are dealt out to all shops.
fn asked(shops: &ShopsConfig, numbers: &[u32], decision: &str) -> anyhow::Result<f64> {
    let slots = || shops.addresses.iter().zip(&shops.replicas).enumerate();
    let ask_one = |slot: usize, shop: SocketAddr, replica: &Replica| -> anyhow::Result<Duration> {
        let own = numbers.iter().skip(slot).step_by(shops.addresses.len());
        let busy = time_of(shop, own, decision)?;
        Ok(busy.mul_f64(f64::from(threads(replica)) * replica.speed))
    };
    let times = std::thread::scope(|scope| {
        let ask = |(slot, (&shop, replica))| scope.spawn(move || ask_one(slot, shop, replica));
        let threads: Vec<_> = slots().map(ask).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<anyhow::Result<Vec<Duration>>>()
    })?;
    Ok(millis(times.iter().sum()) / numbers.len() as f64)
}

/// How long a shop is busy with these pages when all of them are asked for at once.
fn time_of<'a>(
    shop: SocketAddr,
    numbers: impl Iterator<Item = &'a u32>,
    decision: &str,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let sent: Vec<(u32, TcpStream)> = numbers
        .map(|&number| Ok((number, ask(shop, number, decision)?)))
        .collect::<anyhow::Result<_>>()?;
    for (number, mut stream) in sent {
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        read.with_context(|| format!("item {number}: no whole answer"))?;
        let is_page = answer.starts_with(b"HTTP/1.1 200");
        anyhow::ensure!(is_page, "item {number}: the shop has no page");
    }
    Ok(began.elapsed())
}

fn ask(shop: SocketAddr, number: u32, decision: &str) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(shop)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let head = format!(
        "GET /item/{number} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\
         brownout-optional: {decision}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    Ok(stream)
}
