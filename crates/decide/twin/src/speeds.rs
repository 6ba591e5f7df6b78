//! The speed of replicas over time: the mean logarithm of service times in windows, shrunk towards
//! the replica's mean by how much of their scatter is noise. The width of the windows is the one
//! that foretells each service time best from the others.

/// Widths that are tried, ns; one window of the whole day too.
const WIDTHS_NS: [u64; 10] = [
    100_000_000,
    200_000_000,
    400_000_000,
    800_000_000,
    1_600_000_000,
    3_200_000_000,
    6_400_000_000,
    12_800_000_000,
    60_000_000_000,
    u64::MAX,
];

/// A service: when it began, ns, and the logarithm of how long it took, ns.
pub type Service = (u64, f64);

/// Speeds of all replicas.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Speeds {
    /// Width of a window, ns.
    pub width_ns: u64,
    /// By replica and window, the mean logarithm of service times, ns.
    pub logs: Vec<Vec<f64>>,
    /// What is left of noise in these, as a variance of logarithms.
    pub noise: f64,
}

impl Speeds {
    /// Speeds that explain these services of each replica.
    pub fn new(replicas: &[Vec<Service>]) -> Self {
        let mut tried = WIDTHS_NS.iter().map(|width_ns| (error(replicas, *width_ns), *width_ns));
        let first = (f64::INFINITY, u64::MAX);
        let best = tried.by_ref().fold(first, |best, one| if one.0 < best.0 { one } else { best });
        let fits = replicas.iter().map(|services| Fit::new(services, best.1)).collect::<Vec<_>>();
        let noises: Vec<f64> = fits.iter().flat_map(Fit::noises).collect();
        Self {
            width_ns: best.1,
            logs: fits.iter().map(Fit::logs).collect(),
            noise: noises.iter().sum::<f64>() / noises.len().max(1) as f64,
        }
    }

    /// The mean logarithm at a replica and a time.
    pub fn log(&self, replica: usize, at_ns: u64) -> f64 {
        let Some(windows) = self.logs.get(replica) else { return 0.0 };
        let window = (at_ns / self.width_ns.max(1)) as usize;
        windows.get(window).or(windows.last()).copied().unwrap_or(0.0)
    }
}

/// Mean squared error of foretelling each service from all others.
fn error(replicas: &[Vec<Service>], width_ns: u64) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for services in replicas {
        let fit = Fit::new(services, width_ns);
        for (at_ns, log) in services {
            let window = &fit.windows[(at_ns / width_ns) as usize];
            let others = window.count - 1.0;
            let mean = if others > 0.0 { (window.sum - log) / others } else { fit.mean };
            let miss = log - fit.mean - fit.trust(others) * (mean - fit.mean);
            sum += miss * miss;
            count += 1.0;
        }
    }
    sum / f64::max(count, 1.0)
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    count: f64,
    sum: f64,
}

/// The windows of one replica.
#[derive(Debug)]
struct Fit {
    windows: Vec<Window>,
    mean: f64,
    /// Variance of services within windows, and of the windows' true means.
    within: f64,
    between: f64,
}

impl Fit {
    fn new(services: &[Service], width_ns: u64) -> Self {
        let last = services.iter().map(|(at_ns, _)| at_ns / width_ns).max().unwrap_or(0);
        let mut windows = vec![Window::default(); last as usize + 1];
        let (mut sum, mut squares) = (0.0, 0.0);
        for (at_ns, log) in services {
            let window = &mut windows[(at_ns / width_ns) as usize];
            window.count += 1.0;
            window.sum += log;
            sum += log;
            squares += log * log;
        }
        let count = services.len().max(1) as f64;
        let mean = sum / count;
        let held = windows.iter().filter(|window| window.count > 0.0);
        let of_means =
            held.clone().map(|window| window.sum * window.sum / window.count).sum::<f64>();
        let used = held.count() as f64;
        let within = ((squares - of_means) / (count - used).max(1.0)).max(0.0);
        // One-way analysis of variance with windows of unequal size.
        let sizes: f64 = windows.iter().map(|window| window.count * window.count).sum();
        let size = (count - sizes / count) / (used - 1.0).max(1.0);
        let spread = (of_means - count * mean * mean) / (used - 1.0).max(1.0);
        let between = if used > 1.0 { ((spread - within) / size.max(1e-9)).max(0.0) } else { 0.0 };
        Self { windows, mean, within, between }
    }

    /// How much of a window's deviation is believed.
    fn trust(&self, count: f64) -> f64 {
        if count <= 0.0 || self.between == 0.0 {
            return 0.0;
        }
        self.between / (self.between + self.within / count)
    }

    fn logs(&self) -> Vec<f64> {
        let log = |window: &Window| {
            let mean = if window.count > 0.0 { window.sum / window.count } else { self.mean };
            self.mean + self.trust(window.count) * (mean - self.mean)
        };
        self.windows.iter().map(log).collect()
    }

    /// The variance that is left of each window's mean.
    fn noises(&self) -> impl Iterator<Item = f64> + '_ {
        let held = self.windows.iter().filter(|window| window.count > 0.0);
        held.map(|window| self.between * (1.0 - self.trust(window.count)))
    }
}
