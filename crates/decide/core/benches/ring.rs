//! What it costs a request to find its group: `cargo bench -p evenkeel-core --bench ring`.

use std::collections::BTreeMap;
use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use evenkeel_core::Rng;
use evenkeel_core::request::ring::layout::GROUPS_MAX;
use evenkeel_core::request::ring::{Layout, LayoutInputs, Node, Replication, Ring, Token, murmur};

const KEYS: usize = 1_000;
/// Nodes of one data centre with three racks, and tokens of each: today's default, and the old one.
const CLUSTERS: [(usize, usize); 4] = [(3, 16), (12, 16), (100, 16), (100, 256)];

fn main() {
    divan::main();
}

fn token(rng: &mut Rng) -> Token {
    let half = |rng: &mut Rng| rng.below(1 << 32) as i64;
    Token(half(rng) << 32 | half(rng))
}

fn ring((nodes, tokens): (usize, usize)) -> Ring {
    let mut rng = Rng::seeded(7);
    let mut node = |number: usize| Node {
        datacenter: "east".to_owned(),
        rack: (number % 3).to_string(),
        tokens: (0..tokens).map(|_| token(&mut rng)).collect(),
    };
    Ring::new(&(0..nodes).map(&mut node).collect::<Vec<_>>())
}

fn layout(ring: &Ring) -> Layout {
    let replication = Replication::NetworkTopology([("east".to_owned(), 3)].into());
    let named = |n| (format!("keyspace_{n}"), replication.clone());
    let keyspaces: BTreeMap<_, _> = (0..20).map(named).collect();
    let slots: Vec<_> = (0..ring.len()).map(Some).collect();
    let (keyspaces, slots) = (&keyspaces, slots.as_slice());
    Layout::new(&LayoutInputs { ring, keyspaces, slots, groups_max: GROUPS_MAX })
}

/// The printed time is for a thousand groups.
#[divan::bench(args = CLUSTERS)]
fn thousand_groups_of(bencher: Bencher<'_, '_>, cluster: (usize, usize)) {
    let layout = layout(&ring(cluster));
    let mut rng = Rng::seeded(8);
    let tokens: Vec<_> = (0..KEYS).map(|_| Some(token(&mut rng))).collect();
    bencher.counter(ItemsCount::new(KEYS)).bench_local(|| {
        for &token in &tokens {
            let _ = black_box(layout.group(black_box("keyspace_17"), token));
        }
    });
}

/// The printed time is for a thousand keys of 16 bytes.
#[divan::bench]
fn thousand_tokens(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(KEYS)).bench_local(|| {
        for n in 0..KEYS as u128 {
            let _ = black_box(murmur::token(&black_box(n).to_le_bytes()));
        }
    });
}

/// After a change of the cluster, beside the request path.
#[divan::bench(args = CLUSTERS)]
fn whole_layout_of(bencher: Bencher<'_, '_>, cluster: (usize, usize)) {
    let ring = ring(cluster);
    bencher.bench_local(|| layout(&ring));
}
