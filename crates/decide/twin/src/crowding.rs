//! What crowds cost: by how much longer services take that begin beside many others. In slots they
//! do not; where requests share cores they do.
//!
//! **Signal**: how long services take beside how many are there when they come; but only as far as
//! that number follows from how many requests came just before, to all replicas together (an
//! instrumental variable; Wright, 1928). **Why not those who are there themselves**: a long service
//! makes the crowd for the next, so that in slots crowds seem to take less; and slow times have
//! crowds, so that they seem to take more. When requests come has to do with neither. Compared are
//! neighbours in time at one replica, as load and speed change over a day. **When it misleads**:
//! where heavier requests come in bursts, the day is refused. **Error**: by how much blocks of
//! neighbours differ, as these share speeds that are not known to the last.

use crate::twin::Estimate;

/// Services of a replica that are compared with each other, one after the other.
const BLOCK: usize = 64;
/// A crowd is more than usual by so many standard deviations.
const CROWD: f64 = 2.0;

/// A service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    /// Requests that came shortly before it.
    pub(crate) come: f64,
    /// Requests that were at the replica when it came.
    pub(crate) there: f64,
    /// How long it took, as a multiple of the usual and a logarithm.
    pub(crate) log: f64,
}

/// Sums over the services of a replica, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowding {
    /// How services, and those who were there, go with those who came: covariances.
    service: f64,
    there: f64,
    /// Of these of each block the square, the product and the square.
    squares: [f64; 3],
    /// Squared deviations of those who were there, and how many.
    spread: (f64, f64),
}

impl Crowding {
    /// Services of one replica in the order of time.
    pub(crate) fn add(&mut self, services: &[Met]) {
        for block in services.chunks_exact(BLOCK) {
            let mean = |of: fn(&Met) -> f64| block.iter().map(of).sum::<f64>() / BLOCK as f64;
            let (come, there) = (mean(|one| one.come), mean(|one| one.there));
            let log = mean(|one| one.log);
            let (mut of_service, mut of_there) = (0.0, 0.0);
            for one in block {
                of_service += (one.come - come) * (one.log - log);
                of_there += (one.come - come) * (one.there - there);
                self.spread.0 += (one.there - there) * (one.there - there);
            }
            self.spread.1 += (BLOCK - 1) as f64;
            self.service += of_service;
            self.there += of_there;
            let squares = [of_service * of_service, of_service * of_there, of_there * of_there];
            self.squares.iter_mut().zip(squares).for_each(|(sum, one)| *sum += one);
        }
    }

    /// Of both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            service: self.service + other.service,
            there: self.there + other.there,
            squares: core::array::from_fn(|of| self.squares[of] + other.squares[of]),
            spread: (self.spread.0 + other.spread.0, self.spread.1 + other.spread.1),
        }
    }

    /// By how much longer services take in a crowd, as a logarithm, with its error: none is known
    /// where those who are there do not go with those who come.
    pub(crate) fn estimate(self) -> Estimate {
        if self.there <= 0.0 {
            return Estimate { value: 0.0, error: f64::INFINITY };
        }
        let slope = self.service / self.there;
        let [of_service, of_both, of_there] = self.squares;
        let off = of_service - 2.0 * slope * of_both + slope * slope * of_there;
        let crowd = CROWD * (self.spread.0 / self.spread.1.max(1.0)).sqrt();
        let error = off.max(0.0).sqrt() / self.there;
        Estimate { value: crowd * slope, error: crowd * error }
    }
}
