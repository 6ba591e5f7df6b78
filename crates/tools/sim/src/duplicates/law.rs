//! How long one access takes in a store that is otherwise idle.
//!
//! Zoolander's data are not public, but some of their quantiles are. A [`Law`] goes through those
//! and is a power of the latency between two of them: a straight line in the figure that such
//! tails are drawn in. What the paper does not say (the fastest access, one point of the body, the
//! slowest of 100,000) is chosen such that mean and coefficient of variation are the paper's.
//!
//! **When it misleads.** Between published quantiles the shape is ours; accesses slower than
//! all of the paper's 100,000 do not exist. Draws are independent: what makes several in a row
//! slow is [`Pauses`](super::Pauses).
//! **Source**: Zoolander (ICAC'13), sections 2.1 and 3.3, figure 2.

use evenkeel_core::Rng;
use evenkeel_core::distribution::Distribution;
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::Probability;
use evenkeel_planner::duplicates::Law as Formula;

/// Share of accesses that are slower, and how slow in multiples of the mean.
type Knot = (f64, f64);

/// Writes to one ZooKeeper node: 96 % within three means, 90 % within 5 of 3 ms, 99 % within
/// 15 ms, 99.99 % within 26 means. Coefficient of variation 2.0, of which the paper only says
/// that it lies between 1.5 and 8.
const ZOOKEEPER_WRITE: [Knot; 8] = [
    (1.0, 0.15),
    (0.7, 0.533_62),
    (0.4, 1.0),
    (0.1, 5.0 / 3.0),
    (0.04, 3.0),
    (0.01, 5.0),
    (1e-4, 26.0),
    (1e-5, 422.585),
];

/// Reads: 98.8 % within three means, 99.99 % within 16; coefficient of variation 1.5, the paper's
/// least.
const ZOOKEEPER_READ: [Knot; 6] =
    [(1.0, 0.4), (0.5, 0.977_91), (0.1, 1.5), (0.012, 3.0), (1e-4, 16.0), (1e-5, 345.732)];

/// Writes to a group of three: 91.5 % within three means, 99.99 % within 99; coefficient of
/// variation 8, the paper's greatest.
const ZOOKEEPER_GROUP_WRITE: [Knot; 6] =
    [(1.0, 0.1), (0.3, 0.788_19), (0.085, 3.0), (0.01, 7.0), (1e-4, 99.0), (1e-5, 1_923.4)];

/// Cassandra on large instances: of it only the coefficient of variation is known, 6.4.
const CASSANDRA: [Knot; 7] = [
    (1.0, 0.2),
    (0.5, 0.537_66),
    (0.1, 2.0),
    (0.01, 6.0),
    (1e-3, 20.0),
    (1e-4, 325.057),
    (1e-5, 975.172),
];

/// Equal times: for tests, and for what formulas know.
const CONSTANT: [Knot; 1] = [(1.0, 1.0)];

evenkeel_core::named! {
    /// Which law, and whose mean it has.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Shape {
        /// Writes to one ZooKeeper node.
        ZookeeperWrite = "zookeeper-write",
        /// Reads of one.
        ZookeeperRead = "zookeeper-read",
        /// Writes to a group of three.
        ZookeeperGroupWrite = "zookeeper-group-write",
        /// A Cassandra node.
        Cassandra = "cassandra",
        /// Exponential: what queueing theory knows most about.
        Exponential = "exponential",
        /// Always the mean.
        Constant = "constant",
    }
}

impl Shape {
    const fn knots(self) -> &'static [Knot] {
        match self {
            Self::ZookeeperWrite => &ZOOKEEPER_WRITE,
            Self::ZookeeperRead => &ZOOKEEPER_READ,
            Self::ZookeeperGroupWrite => &ZOOKEEPER_GROUP_WRITE,
            Self::Cassandra => &CASSANDRA,
            Self::Constant => &CONSTANT,
            Self::Exponential => &[],
        }
    }
}

/// A law with its mean.
#[derive(Clone, PartialEq, Debug)]
pub struct Law {
    shape: Shape,
    mean: Duration,
    pieces: Vec<Piece>,
    /// Beyond the last knot: share and time, nanoseconds.
    last: Knot,
}

/// From one knot to the next the share of slower accesses is `share (time / from)^-power`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Piece {
    share: f64,
    from_nanos: f64,
    power: f64,
    /// The share of slower accesses at its end.
    share_after: f64,
    to_nanos: f64,
}

impl Piece {
    /// Its part of the mean of the `order`-th power of the time.
    fn moment(&self, order: f64) -> f64 {
        let growth = (self.to_nanos / self.from_nanos).ln();
        let exponent = order - self.power;
        let integral =
            if exponent.abs() < 1e-12 { growth } else { (exponent * growth).exp_m1() / exponent };
        self.power * self.share * self.from_nanos.powf(order) * integral
    }
}

impl Law {
    /// The law of this shape and mean.
    pub fn new(shape: Shape, mean: Duration) -> Self {
        let unit = Self::with_unit(shape, nanos(mean) as f64);
        // The knots have four or five digits: what they miss of the mean is put right here.
        let corrected = nanos(mean) as f64 * (nanos(mean) as f64 / unit.moment(1.0));
        Self { mean, ..Self::with_unit(shape, corrected) }
    }

    fn with_unit(shape: Shape, unit_nanos: f64) -> Self {
        let knots = shape.knots();
        let piece = |pair: &[Knot]| {
            let [(share, from), (share_after, to)] = [pair[0], pair[1]];
            Piece {
                share,
                from_nanos: from * unit_nanos,
                power: (share / share_after).ln() / (to / from).ln(),
                share_after,
                to_nanos: to * unit_nanos,
            }
        };
        let last = knots.last().map_or((0.0, unit_nanos), |(share, at)| (*share, at * unit_nanos));
        let pieces = knots.windows(2).map(piece).collect();
        Self { shape, mean: Duration::from_nanos(unit_nanos as u64), pieces, last }
    }

    /// Its shape.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Standard deviation over mean.
    pub fn variation(&self) -> f64 {
        let mean = self.moment(1.0);
        (self.moment(2.0) / (mean * mean) - 1.0).max(0.0).sqrt()
    }

    /// The law in the models' words: formulas, and the share of each.
    pub(super) fn formulas(&self) -> Vec<(f64, Formula)> {
        if self.shape == Shape::Exponential {
            return vec![(1.0, Formula::Exponential { mean: self.mean })];
        }
        let whole = |nanos: f64| Duration::from_nanos(nanos.round() as u64);
        let power = |piece: &Piece| {
            let maximum = Some(whole(piece.to_nanos));
            let (minimum, shape) = (whole(piece.from_nanos), piece.power);
            (piece.share - piece.share_after, Formula::Pareto { minimum, shape, maximum })
        };
        let last = (self.last.0, Formula::Constant(whole(self.last.1)));
        self.pieces.iter().map(power).chain([last]).collect()
    }

    /// Mean of a power of the time, in nanoseconds to that power.
    fn moment(&self, order: f64) -> f64 {
        if self.shape == Shape::Exponential {
            return libm::tgamma(order + 1.0) * (nanos(self.mean) as f64).powf(order);
        }
        let (share, at) = self.last;
        self.pieces.iter().map(|piece| piece.moment(order)).sum::<f64>() + share * at.powf(order)
    }

    /// The time that this share of the accesses exceeds, nanoseconds.
    fn exceeded_by(&self, share: f64) -> f64 {
        if self.shape == Shape::Exponential {
            return -(nanos(self.mean) as f64) * share.ln();
        }
        // Most draws are of the body, whose pieces come first.
        let piece = self.pieces.iter().find(|piece| share >= piece.share_after);
        piece.map_or(self.last.1, |piece| {
            piece.from_nanos * (share / piece.share).powf(-1.0 / piece.power)
        })
    }

    /// The share of accesses that take longer than this.
    fn slower_than(&self, at_nanos: f64) -> f64 {
        if self.shape == Shape::Exponential {
            return (-at_nanos / (nanos(self.mean) as f64)).exp();
        }
        if at_nanos >= self.last.1 {
            return 0.0;
        }
        match self.pieces.iter().find(|piece| at_nanos < piece.to_nanos) {
            Some(piece) if at_nanos > piece.from_nanos => {
                piece.share * (at_nanos / piece.from_nanos).powf(-piece.power)
            }
            _ => 1.0,
        }
    }
}

impl Distribution for Law {
    fn cdf(&self, at: Duration) -> Probability {
        Probability::clamped(1.0 - self.slower_than(nanos(at) as f64))
    }

    fn quantile(&self, p: Probability) -> Duration {
        Duration::from_nanos(self.exceeded_by(1.0 - p.value()).ceil() as u64)
    }

    fn mean(&self) -> Duration {
        self.mean
    }

    fn sample(&self, rng: &mut Rng) -> Duration {
        // 1 - unit() is never zero: no access takes for ever.
        Duration::from_nanos(self.exceeded_by(1.0 - rng.unit()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(shape: Shape) -> Law {
        Law::new(shape, Duration::from_millis(3))
    }

    /// Sections 2.1 and 3.3: what is published.
    #[test]
    fn published_quantiles_are_kept() {
        let write = law(Shape::ZookeeperWrite);
        for (share, ms) in [(0.6, 3.0), (0.9, 5.0), (0.96, 9.0), (0.99, 15.0), (0.9999, 78.0)] {
            let reported = write.quantile(Probability::clamped(share)).as_secs_f64() * 1e3;
            assert!((reported / ms - 1.0).abs() < 1e-3, "{share}: {reported} ms for {ms}");
        }
        let within =
            |shape: Shape, means: f64| law(shape).cdf(Duration::from_secs_f64(means * 3e-3));
        for (shape, means, share) in [
            (Shape::ZookeeperRead, 3.0, 0.988),
            (Shape::ZookeeperRead, 16.0, 0.9999),
            (Shape::ZookeeperGroupWrite, 3.0, 0.915),
            (Shape::ZookeeperGroupWrite, 99.0, 0.9999),
        ] {
            let reported = within(shape, means).value();
            assert!(
                (reported - share).abs() < 1e-4,
                "{shape:?}, {means} means: {reported} for {share}"
            );
        }
    }

    #[test]
    fn variation_is_the_papers() {
        for (shape, variation) in [
            (Shape::ZookeeperRead, 1.5),
            (Shape::ZookeeperWrite, 2.0),
            (Shape::ZookeeperGroupWrite, 8.0),
            (Shape::Cassandra, 6.4),
            (Shape::Exponential, 1.0),
            (Shape::Constant, 0.0),
        ] {
            let reported = law(shape).variation();
            assert!((reported - variation).abs() < 0.002, "{shape:?}: {reported}");
        }
    }

    #[test]
    fn draws_have_the_laws_mean_and_shares() {
        for (_, shape) in Shape::NAMED {
            let law = law(shape);
            let mut rng = Rng::seeded(7);
            let draws: Vec<Duration> = (0..200_000).map(|_| law.sample(&mut rng)).collect();
            let mean = draws.iter().map(Duration::as_secs_f64).sum::<f64>() / draws.len() as f64;
            // Five standard errors of the mean.
            let close = 5.0 * law.variation() / (draws.len() as f64).sqrt() + 1e-6;
            assert!((mean / 3e-3 - 1.0).abs() < close, "{shape:?}: {mean} s");
            for share in [0.5, 0.9, 0.99, 0.999] {
                let bound = law.quantile(Probability::clamped(share));
                let below = draws.iter().filter(|draw| **draw <= bound).count() as f64;
                let reported = below / draws.len() as f64;
                let close = 5.0 * (share * (1.0 - share) / draws.len() as f64).sqrt();
                let truth = law.cdf(bound).value();
                assert!(
                    (reported - truth).abs() < close,
                    "{shape:?}, {share}: {reported} for {truth}"
                );
            }
        }
    }

    #[test]
    fn names_are_in_the_order_of_shapes() {
        assert!(Shape::NAMED.iter().all(|(name, shape)| shape.name() == *name));
    }
}
