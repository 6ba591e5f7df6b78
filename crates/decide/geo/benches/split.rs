//! What it costs a request to be given a data centre: `cargo bench -p evenkeel-core --bench split`.

use std::cell::RefCell;
use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use evenkeel_core::time::{Duration, Instant};
use evenkeel_core::units::Probability;
use evenkeel_geo::epoch::{SiteId, SiteSet};
use evenkeel_geo::split::{PlanRow, SplitConfig, Splitter};

const CHOICES: usize = 1_000;
/// Time between two requests: 40,000 requests/s.
const GAP: Duration = Duration::from_micros(25);

fn main() {
    divan::main();
}

/// Nine requests of ten stay, the rest is divided evenly between as many other sites.
fn plan(remote: usize) -> PlanRow {
    let rates = [36_000_000].into_iter().chain((0..remote).map(|_| 4_000_000 / remote as u64));
    PlanRow {
        epoch: 1,
        origin: SiteId::new(0),
        demand_per_1000_s: 40_000_000,
        rates_per_1000_s: rates.collect(),
    }
}

/// The printed time is for a thousand choices.
#[divan::bench(args = [1, 2, 9, 31])]
fn thousand_choices_of_sites(bencher: Bencher<'_, '_>, remote: usize) {
    let home = SiteId::new(0);
    let mut splitter = Splitter::new(home, remote + 1, SplitConfig::default(), 1);
    splitter
        .adopt(Instant::ZERO, &plan(remote), Probability::ONE, Instant::FAR)
        .expect("it is the first plan");
    let state = RefCell::new((splitter, Instant::ZERO));
    let usable = SiteSet::first(remote + 1);
    bencher.counter(ItemsCount::new(CHOICES)).bench_local(|| {
        let (splitter, now) = &mut *state.borrow_mut();
        for _ in 0..CHOICES {
            *now += GAP;
            let _ = black_box(splitter.choose(black_box(*now), black_box(usable)));
        }
    });
}
