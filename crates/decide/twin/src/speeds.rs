//! The speed of replicas over time: the mean logarithm of service times in windows, shrunk towards
//! the replica's mean by how much of their scatter is noise. The width of the windows is the one
//! that foretells each service time best from the others.

/// Windows of all replicas at most: some 100 MB.
const WINDOWS_MAX: u64 = 4 << 20;
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

/// The first window begins at a multiple of this, ns.
const ROUND_NS: u64 = 60_000_000_000;

/// A service: when it began, ns, and the logarithm of how long it took, ns.
pub type Service = (u64, f64);

/// Speeds of all replicas.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Speeds {
    /// When the first window begins, ns.
    pub from_ns: u64,
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
        let starts = || replicas.iter().flatten().map(|(at_ns, _)| *at_ns);
        // A part of a day needs no windows before it; the first one has a round beginning.
        let from_ns = starts().min().unwrap_or(0) / ROUND_NS * ROUND_NS;
        let length_ns = starts().max().unwrap_or(0).saturating_sub(from_ns);
        let all_ns = length_ns.saturating_mul(replicas.len() as u64);
        let widths = WIDTHS_NS.iter().filter(|width_ns| all_ns / **width_ns <= WINDOWS_MAX);
        // Wider windows are made of the narrowest ones: services are looked at once.
        let narrow_ns = widths.clone().next().copied().unwrap_or(u64::MAX);
        let narrow = |services: &Vec<Service>| Fit::new(services, from_ns, narrow_ns, length_ns);
        let narrow: Vec<Fit> = replicas.iter().map(narrow).collect();
        let widened =
            |width_ns: u64| narrow.iter().map(move |fit| fit.widened(narrow_ns, width_ns));
        let error = |width_ns: u64| widened(width_ns).map(|fit| fit.error()).sum::<f64>();
        let mut tried = widths.map(|width_ns| (error(*width_ns), *width_ns));
        let first = (f64::INFINITY, u64::MAX);
        let best = tried.by_ref().fold(first, |best, one| if one.0 < best.0 { one } else { best });
        let fits: Vec<Fit> = widened(best.1).collect();
        let noises: Vec<f64> = fits.iter().flat_map(Fit::noises).collect();
        Self {
            from_ns,
            width_ns: best.1,
            logs: fits.iter().map(Fit::logs).collect(),
            noise: noises.iter().sum::<f64>() / noises.len().max(1) as f64,
        }
    }

    /// Speeds of parts of a day one after the other: from when each is, how many services of each
    /// replica it has, and its speeds. Where a replica has none in a part, those of the part with
    /// most of them count.
    pub(crate) fn joined(
        parts: &[(u64, &[usize], &Self)],
        replicas: usize,
        length_ns: u64,
    ) -> Self {
        let narrowest = parts.iter().map(|(.., speeds)| speeds.width_ns).min();
        let length_all_ns = length_ns.saturating_mul(replicas.max(1) as u64);
        let width_ns = narrowest.unwrap_or(1).max(length_all_ns / WINDOWS_MAX).max(1);
        let windows = (length_ns / width_ns) as usize + 1;
        let of = |part: &(u64, &[usize], &Self), replica: usize| {
            part.1.get(replica).copied().unwrap_or(0)
        };
        let logs = |replica: usize| {
            let most = parts.iter().max_by_key(|part| of(part, replica));
            let log = |window: usize| {
                let at_ns = (window as u64 * width_ns).saturating_add(width_ns / 2);
                let place = parts.partition_point(|(from_ns, ..)| *from_ns <= at_ns);
                let part = parts.get(place.saturating_sub(1));
                let part = part.filter(|part| of(part, replica) > 0).or(most);
                part.map_or(0.0, |(.., speeds)| speeds.log(replica, at_ns))
            };
            (0..windows).map(log).collect()
        };
        let noise = parts.iter().map(|(.., speeds)| speeds.noise).sum::<f64>();
        Self {
            from_ns: 0,
            width_ns,
            logs: (0..replicas).map(logs).collect(),
            noise: noise / parts.len().max(1) as f64,
        }
    }

    /// The mean logarithm at a replica and a time.
    pub fn log(&self, replica: usize, at_ns: u64) -> f64 {
        let Some(windows) = self.logs.get(replica) else { return 0.0 };
        let window = (at_ns.saturating_sub(self.from_ns) / self.width_ns.max(1)) as usize;
        windows.get(window).or(windows.last()).copied().unwrap_or(0.0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    count: f64,
    /// Of the logarithms less the replica's mean, and of their squares.
    sum: f64,
    squares: f64,
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
    fn new(services: &[Service], from_ns: u64, width_ns: u64, length_ns: u64) -> Self {
        let mut windows = vec![Window::default(); (length_ns / width_ns) as usize + 1];
        let sum: f64 = services.iter().map(|(_, log)| log).sum();
        let mean = sum / services.len().max(1) as f64;
        for (at_ns, log) in services {
            let window = &mut windows[((at_ns - from_ns) / width_ns) as usize];
            let off = log - mean;
            window.count += 1.0;
            window.sum += off;
            window.squares += off * off;
        }
        Self::of(windows, mean)
    }

    /// The same in wider windows.
    fn widened(&self, narrow_ns: u64, width_ns: u64) -> Self {
        let place = |number: usize| (number as u64).saturating_mul(narrow_ns) / width_ns;
        let count = place(self.windows.len() - 1) as usize + 1;
        let mut windows = vec![Window::default(); count];
        for (number, narrow) in self.windows.iter().enumerate() {
            let wide = &mut windows[place(number) as usize];
            wide.count += narrow.count;
            wide.sum += narrow.sum;
            wide.squares += narrow.squares;
        }
        Self::of(windows, self.mean)
    }

    /// One-way analysis of variance with windows of unequal size.
    fn of(windows: Vec<Window>, mean: f64) -> Self {
        let held = || windows.iter().filter(|window| window.count > 0.0);
        let all = |of: fn(&Window) -> f64| held().map(of).sum::<f64>();
        let count = all(|window| window.count).max(1.0);
        let of_means = all(|window| window.sum * window.sum / window.count);
        let used = held().count() as f64;
        let within = all(|window| window.squares) - of_means;
        let within = (within / (count - used).max(1.0)).max(0.0);
        let sizes = all(|window| window.count * window.count);
        let size = (count - sizes / count) / (used - 1.0).max(1.0);
        let spread = of_means / (used - 1.0).max(1.0);
        let between = if used > 1.0 { ((spread - within) / size.max(1e-9)).max(0.0) } else { 0.0 };
        Self { windows, mean, within, between }
    }

    /// Squared errors of foretelling each service from all others of its window.
    fn error(&self) -> f64 {
        let of_window = |window: &Window| {
            // Each miss is the service times one factor, less what the window's sum foretells.
            let others = window.count - 1.0;
            let share = if others > 0.0 { self.trust(others) / others } else { 0.0 };
            let (own, rest) = (1.0 + share, share * window.sum);
            own * own * window.squares - 2.0 * own * rest * window.sum + window.count * rest * rest
        };
        self.windows.iter().map(of_window).sum()
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
            self.mean + self.trust(window.count) * window.sum / window.count.max(1.0)
        };
        self.windows.iter().map(log).collect()
    }

    /// The variance that is left of each window's mean.
    fn noises(&self) -> impl Iterator<Item = f64> + '_ {
        let held = self.windows.iter().filter(|window| window.count > 0.0);
        held.map(|window| self.between * (1.0 - self.trust(window.count)))
    }
}
