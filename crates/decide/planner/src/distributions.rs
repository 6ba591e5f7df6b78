//! Measured distributions of round trips: what percentiles are computed from.

use super::model::{BadInput, Matrix, RoundTrips, majority};
use evenkeel_core::distribution::{Empirical, Grid};
use evenkeel_core::time::Duration;
use evenkeel_core::units::OutOfRange;

/// Distributions of round trips, all on the same steps.
#[derive(Clone, PartialEq, Debug)]
pub struct Tails {
    sites: usize,
    from_clients: Vec<Grid>,
    between_sites: Vec<Grid>,
}

impl Tails {
    /// From rows: by client to every site, and by site to every site. The diagonal of the second is
    /// how soon a leader has its own vote: the paper takes it as sooner than any other.
    ///
    /// # Errors
    /// When a row has another number of columns than there are sites, or a distribution other steps
    /// than the first, with row and column.
    pub fn new(
        from_clients: Vec<Vec<Grid>>,
        between_sites: Vec<Vec<Grid>>,
    ) -> Result<Self, BadInput> {
        let sites = between_sites.len();
        let step = between_sites.iter().flatten().next().map(Grid::step);
        let matrices =
            [(Matrix::BetweenSites, &between_sites), (Matrix::FromClients, &from_clients)];
        for (matrix, rows) in matrices {
            for (row, columns) in rows.iter().enumerate() {
                if columns.len() != sites {
                    let came = columns.len();
                    return Err(BadInput::Ragged { matrix, row, came, expected: sites });
                }
                let other = columns.iter().position(|grid| Some(grid.step()) != step);
                if let Some(column) = other {
                    return Err(BadInput::Step { matrix, row, column });
                }
            }
        }
        let flat = |rows: Vec<Vec<Grid>>| rows.into_iter().flatten().collect();
        Ok(Self { sites, from_clients: flat(from_clients), between_sites: flat(between_sites) })
    }

    /// Round trips that never vary, rounded up to whole steps: what is left is how clients and
    /// operations differ.
    ///
    /// # Errors
    /// When the step is zero or the longest has too many of them.
    pub fn constant(trips: &RoundTrips, step: Duration) -> Result<Self, OutOfRange> {
        let grid = |ms: &f64| {
            let way = Duration::from_secs_f64(ms / 1e3);
            Grid::of(&Empirical::from_samples(vec![way])?, step, way)
        };
        let rows = |row: &[f64]| row.iter().map(grid).collect::<Result<Vec<Grid>, _>>();
        let from_clients = (0..trips.clients()).map(|client| rows(trips.from_client(client)));
        let between_sites = (0..trips.sites()).map(|site| rows(trips.from_site(site)));
        Ok(Self {
            sites: trips.sites(),
            from_clients: from_clients.collect::<Result<Vec<_>, _>>()?.concat(),
            between_sites: between_sites.collect::<Result<Vec<_>, _>>()?.concat(),
        })
    }

    /// Checks that they are of as many clients and sites as these means.
    ///
    /// # Errors
    /// When they are not.
    pub fn check(&self, trips: &RoundTrips) -> Result<(), BadInput> {
        let clients = self.from_clients.len().checked_div(self.sites).unwrap_or(0);
        if self.sites != trips.sites() {
            return Err(BadInput::Sites { came: self.sites, expected: trips.sites() });
        }
        if clients != trips.clients() {
            return Err(BadInput::Clients { came: clients, expected: trips.clients() });
        }
        Ok(())
    }

    /// From a client to a site.
    pub fn from_client(&self, client: usize, site: usize) -> &Grid {
        &self.from_clients[client * self.sites + site]
    }

    /// From a site to a site.
    pub fn from_site(&self, site: usize, to: usize) -> &Grid {
        &self.between_sites[site * self.sites + to]
    }

    /// How long a leader waits for a majority of the voters, of whom there is at least one.
    pub fn quorum(&self, leader: usize, voters: &[usize]) -> Grid {
        self.quorum_of(leader, voters, majority(voters.len()))
    }

    /// How long a leader waits for so many answers of these.
    pub(super) fn quorum_of(&self, leader: usize, among: &[usize], answers: usize) -> Grid {
        let ways: Vec<&Grid> = among.iter().map(|one| self.from_site(leader, *one)).collect();
        Grid::kth_fastest(&ways, answers).expect("someone votes, steps are equal")
    }
}
