//! Problems by formula, like those of the published measurements: log-normal service times whose
//! 95th percentile is 8 ms at 65 % load, 30 ms (the objective) at 78 %, 200 ms at 90 %; sites on a
//! plane, so that round trips obey the triangle inequality; demand of four families.

/// One percent of a data centre of the usual size is one quantum.
const USUAL: f64 = 100.0;
const OBJECTIVE_MS: f64 = 30.0;
/// Load and the 95th percentile of service times there, in ms; between them geometric.
const PERCENTILES: [(f64, f64); 5] =
    [(0.2, 2.5), (0.65, 8.0), (0.78, 30.0), (0.9, 200.0), (1.0, 2000.0)];
/// Residual delay of the network in ms, and how often.
const RESIDUAL: [(f64, f64); 5] = [(0.0, 0.4), (0.3, 0.3), (0.8, 0.2), (2.0, 0.08), (5.0, 0.02)];

/// How loaded data centres are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// A third near saturation, the others with room; equal sizes.
    Hot,
    /// All between 60 % and 85 %: little room anywhere; equal sizes.
    Tight,
    /// 45 % to 95 %; sizes from 0.4 to 2.
    Unequal,
    /// A third near saturation, the others between 25 % and 65 %; sizes from 0.6 to 1.6.
    Mixed,
    /// More demand than all can serve.
    Overload,
    /// As `Hot`, and the last one serves nobody.
    Down,
}

/// What a problem is made of.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// Quanta.
    pub(crate) demand: Vec<u32>,
    /// `[origin][destination][load]`, parts per million.
    pub(crate) curves: Vec<Vec<Vec<u32>>>,
    /// Round trips in microseconds.
    pub(crate) rtt_us: Vec<Vec<u32>>,
    /// Quanta.
    pub(crate) capacity: Vec<u32>,
}

/// `quantum` is a whole number of percent.
pub(crate) fn instance(family: Family, sites: usize, quantum: u32, seed: u64) -> Instance {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ sites as u64);
    let places: Vec<[f64; 2]> =
        (0..sites).map(|_| [30.0 * random.share(), 30.0 * random.share()]).collect();
    let sizes: Vec<f64> = (0..sites).map(|_| size(family, &mut random)).collect();
    let loads: Vec<f64> = (0..sites).map(|site| load(family, site, sites, &mut random)).collect();
    let units = |site: usize| sizes[site] * USUAL / f64::from(quantum);
    let rtt = |i: usize, j: usize| round_trip(&places[i], &places[j], i == j);
    let is_down = |site: usize| family == Family::Down && site + 1 == sites;
    let curve = |i: usize, j: usize| match is_down(j) {
        true => vec![1_000_000],
        false => curve(units(j), rtt(i, j)),
    };
    let square = |i: usize| (0..sites).map(move |j| (i, j));
    Instance {
        demand: (0..sites).map(|site| (loads[site] * units(site)).round() as u32).collect(),
        curves: (0..sites).map(|i| square(i).map(|(i, j)| curve(i, j)).collect()).collect(),
        rtt_us: (0..sites)
            .map(|i| square(i).map(|(i, j)| (1000.0 * rtt(i, j)).round() as u32).collect())
            .collect(),
        capacity: (0..sites)
            .map(|site| if is_down(site) { 0 } else { units(site).floor() as u32 })
            .collect(),
    }
}

fn size(family: Family, random: &mut Random) -> f64 {
    let sizes: &[f64] = match family {
        Family::Unequal => &[0.4, 0.6, 0.8, 1.0, 2.0],
        Family::Mixed => &[0.6, 1.0, 1.6],
        _ => &[1.0],
    };
    sizes[(random.share() * sizes.len() as f64) as usize]
}

fn load(family: Family, site: usize, sites: usize, random: &mut Random) -> f64 {
    let (low, high) = match family {
        Family::Hot | Family::Mixed | Family::Down if 3 * site < sites => (0.82, 0.98),
        Family::Hot | Family::Mixed | Family::Down => (0.25, 0.65),
        Family::Tight => (0.60, 0.85),
        Family::Unequal => (0.45, 0.95),
        Family::Overload => (0.95, 1.25),
    };
    low + (high - low) * random.share()
}

/// Milliseconds.
fn round_trip(a: &[f64; 2], b: &[f64; 2], is_same: bool) -> f64 {
    let distance = f64::hypot(a[0] - b[0], a[1] - b[1]);
    if is_same { 0.0 } else { (4.0 + distance).min(40.0) }
}

/// Up to the load at which nothing is in time any more.
fn curve(units: f64, rtt_ms: f64) -> Vec<u32> {
    let mut curve = Vec::new();
    loop {
        let load = curve.len() as f64 / units;
        let late: f64 = RESIDUAL
            .iter()
            .map(|(residual, share)| share * late(load, OBJECTIVE_MS - rtt_ms - residual))
            .sum();
        let ppm = if rtt_ms == 0.0 { late_locally(load) } else { late };
        let ppm = (1e6 * ppm).round() as u32;
        curve.push(ppm.max(curve.last().copied().unwrap_or(0)));
        if ppm >= 1_000_000 || load > 1.6 {
            return curve;
        }
    }
}

fn late_locally(load: f64) -> f64 {
    late(load, OBJECTIVE_MS)
}

/// The share of service times above `bound_ms`.
fn late(load: f64, bound_ms: f64) -> f64 {
    if bound_ms <= 0.0 {
        return 1.0;
    }
    let spread =
        if load < 0.7 { 0.25 + 0.855 * load } else { (0.85 + 0.25 * (load - 0.7)).min(0.9) };
    let deviations = 1.645 + (bound_ms / percentile_ms(load)).ln() / spread;
    0.5 * libm::erfc(deviations / std::f64::consts::SQRT_2)
}

fn percentile_ms(load: f64) -> f64 {
    let last = PERCENTILES.len() - 2;
    let place = PERCENTILES.iter().rposition(|&(at, _)| at <= load).unwrap_or(0).min(last);
    let ((at, low), (to, high)) = (PERCENTILES[place], PERCENTILES[place + 1]);
    let part = ((load - at) / (to - at)).max(0.0);
    low * (high / low).powf(part)
}

/// `splitmix64`.
struct Random(u64);

impl Random {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
