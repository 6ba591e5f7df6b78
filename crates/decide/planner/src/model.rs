//! What a placement is decided from, and what it is.
//!
//! Sites (where a replica can be) and clients (where operations come from) are numbered from 0;
//! their names live with whoever reads files. Round trips are in milliseconds, counts in
//! operations; both are `f64`, since counts that fade are no whole numbers.

evenkeel_core::named! {
    /// What a client does, by the way its messages take (section 2 of the paper).
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Operation {
        /// Served by the replica nearest to the client, stale or not.
        WeakRead = "weak-read",
        /// Served by the nearest replica, which asks the leader how far it is.
        BoundedRead = "bounded-read",
        /// Served by the leader.
        StrongRead = "strong-read",
        /// A write within one group: the leader, and its quorum once.
        SingleGroup = "single-group",
        /// A write across groups: the leader, and its quorum twice.
        MultiGroup = "multi-group",
    }
}

impl Operation {
    /// How many quorum round trips of the leader it waits for.
    pub const fn quorums(self) -> u32 {
        match self {
            Self::WeakRead | Self::BoundedRead | Self::StrongRead => 0,
            Self::SingleGroup => 1,
            Self::MultiGroup => 2,
        }
    }
}

evenkeel_core::named! {
    /// Which replica a client reads from.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Route {
        /// The one with the shortest round trip (the paper's); ties go to the lowest number.
        #[default]
        Nearest = "nearest",
        /// For bounded reads the one over which the way to the leader and back is shortest. In real
        /// networks 21–79 % of pairs break the triangle inequality, and this is up to 13 % shorter.
        BestPath = "bestpath",
    }
}

/// Operations of every client in one interval: `n[a, c]` of equation 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Counts {
    by_client: Vec<[f64; Operation::ALL.len()]>,
}

impl Counts {
    /// Counts by client, each in the order of [`Operation::ALL`].
    ///
    /// # Errors
    /// When a count is negative or not finite, with its client (row) and operation (column).
    pub fn new(by_client: Vec<[f64; Operation::ALL.len()]>) -> Result<Self, BadInput> {
        for (client, counts) in by_client.iter().enumerate() {
            for (operation, count) in Operation::ALL.iter().zip(counts) {
                if !(count.is_finite() && *count >= 0.0) {
                    return Err(BadInput::Count { client, operation: *operation, came: *count });
                }
            }
        }
        Ok(Self { by_client })
    }

    /// No operations of so many clients.
    pub fn none(clients: usize) -> Self {
        Self { by_client: vec![[0.0; Operation::ALL.len()]; clients] }
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.by_client.len()
    }

    /// Of one client, in the order of [`Operation::ALL`].
    pub fn of(&self, client: usize) -> &[f64; Operation::ALL.len()] {
        &self.by_client[client]
    }

    /// By client.
    pub fn iter(&self) -> impl Iterator<Item = &[f64; Operation::ALL.len()]> {
        self.by_client.iter()
    }

    /// Operations of all clients.
    pub fn total(&self) -> f64 {
        self.totals().iter().sum()
    }

    /// Operations of all clients, in the order of [`Operation::ALL`].
    pub(super) fn totals(&self) -> [f64; Operation::ALL.len()] {
        let mut totals = [0.0; Operation::ALL.len()];
        for counts in &self.by_client {
            totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        }
        totals
    }

    /// So many times these.
    pub(super) fn scaled(&self, times: f64) -> Self {
        let scaled = self.by_client.iter().map(|counts| counts.map(|count| times * count));
        Self { by_client: scaled.collect() }
    }

    /// Adds so many times the counts of as many clients.
    ///
    /// # Panics
    /// When the numbers of clients differ.
    pub fn add(&mut self, other: &Self, times: f64) {
        assert_eq!(self.clients(), other.clients(), "counts of different clients");
        for (sums, counts) in self.by_client.iter_mut().zip(&other.by_client) {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += times * count;
            }
        }
    }

    /// Operations of one kind, of all clients.
    pub fn total_of(&self, operation: Operation) -> f64 {
        self.by_client.iter().map(|counts| counts[operation as usize]).sum()
    }
}

/// Mean round trips, in milliseconds: from clients to sites and between sites.
#[derive(Clone, PartialEq, Debug)]
pub struct RoundTrips {
    sites: usize,
    /// Client by client, as many as there are sites each.
    from_clients: Vec<f64>,
    /// Site by site.
    between_sites: Vec<f64>,
}

impl RoundTrips {
    /// From rows: by client to every site, and by site to every site. The diagonal of the second is
    /// what a replica needs to answer itself, mostly 0: the leader's own vote (a measured time for
    /// its disk may stand there).
    ///
    /// # Errors
    /// When a matrix is ragged, not square where it must be, or an entry is negative or not finite,
    /// with its row and column.
    pub fn new(from_clients: &[Vec<f64>], between_sites: &[Vec<f64>]) -> Result<Self, BadInput> {
        let sites = between_sites.len();
        check(Matrix::BetweenSites, between_sites, sites)?;
        check(Matrix::FromClients, from_clients, sites)?;
        Ok(Self {
            sites,
            from_clients: from_clients.concat(),
            between_sites: between_sites.concat(),
        })
    }

    /// How many sites there are.
    pub const fn sites(&self) -> usize {
        self.sites
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.from_clients.len().checked_div(self.sites).unwrap_or(0)
    }

    /// From a client to every site.
    pub fn from_client(&self, client: usize) -> &[f64] {
        &self.from_clients[client * self.sites..][..self.sites]
    }

    /// From a site to every site.
    pub fn from_site(&self, site: usize) -> &[f64] {
        &self.between_sites[site * self.sites..][..self.sites]
    }
}

/// Where the parts of a database are. Replicas hold all data, voters are the replicas that vote on
/// commits, one voter leads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    leader: usize,
    voters: Vec<usize>,
    replicas: Vec<usize>,
}

impl Layout {
    /// A layout; the order of voters and replicas makes no difference.
    ///
    /// # Errors
    /// When a site is named twice, the leader does not vote, or a voter is no replica.
    pub fn new(
        leader: usize,
        mut voters: Vec<usize>,
        mut replicas: Vec<usize>,
    ) -> Result<Self, BadInput> {
        voters.sort_unstable();
        replicas.sort_unstable();
        let twice =
            |of: &[usize]| of.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        if let Some(site) = twice(&voters).or_else(|| twice(&replicas)) {
            return Err(BadInput::Twice { site });
        }
        if voters.binary_search(&leader).is_err() {
            return Err(BadInput::LeaderDoesNotVote { leader });
        }
        match voters.iter().find(|voter| replicas.binary_search(voter).is_err()) {
            Some(voter) => Err(BadInput::VoterIsNoReplica { voter: *voter }),
            None => Ok(Self { leader, voters, replicas }),
        }
    }

    /// One whose voters and replicas are known to rise and to be as they must.
    pub(super) fn rising(leader: usize, voters: Vec<usize>, replicas: Vec<usize>) -> Self {
        let layout = Self { leader, voters, replicas };
        debug_assert_eq!(
            Self::new(leader, layout.voters.clone(), layout.replicas.clone()),
            Ok(layout.clone())
        );
        layout
    }

    /// Checks that every site is one of so many.
    ///
    /// # Errors
    /// With the first one that is not.
    pub fn check(&self, sites: usize) -> Result<(), BadInput> {
        match self.replicas.iter().find(|site| **site >= sites) {
            Some(site) => Err(BadInput::UnknownSite { site: *site, sites }),
            None => Ok(()),
        }
    }

    /// Who leads.
    pub const fn leader(&self) -> usize {
        self.leader
    }

    /// Who votes, the leader among them, in rising order.
    pub fn voters(&self) -> &[usize] {
        &self.voters
    }

    /// Who has the data, the voters among them, in rising order.
    pub fn replicas(&self) -> &[usize] {
        &self.replicas
    }

    /// Whether a replica is at a site.
    pub fn has_replica(&self, site: usize) -> bool {
        self.replicas.binary_search(&site).is_ok()
    }

    /// Whether the replica at a site votes.
    pub fn has_voter(&self, site: usize) -> bool {
        self.voters.binary_search(&site).is_ok()
    }

    /// The same with another of its voters as the leader.
    ///
    /// # Errors
    /// When that site does not vote.
    pub fn led_by(&self, leader: usize) -> Result<Self, BadInput> {
        Self::new(leader, self.voters.clone(), self.replicas.clone())
    }
}

/// How many votes commit: the leader's and those of most others. For an even number of voters it is
/// one more than half ("median" in the paper is not defined there).
pub const fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// Which of the two matrices of [`RoundTrips`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matrix {
    /// Rows are clients, columns are sites.
    FromClients,
    /// Rows and columns are sites.
    BetweenSites,
}

/// Why numbers make no placement problem. Rows and columns count from 0.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum BadInput {
    /// A row has another number of columns than there are sites.
    #[error(
        "{}, row {row}: {came} columns came, {expected} were expected, one for each site",
        .matrix.words()
    )]
    Ragged {
        /// Of this matrix.
        matrix: Matrix,
        /// The row.
        row: usize,
        /// How many columns it has.
        came: usize,
        /// How many it should have.
        expected: usize,
    },
    /// A round trip is negative or not a number.
    #[error(
        "{}, row {row}, column {column}: {came} came, milliseconds of 0 or more were expected (is \
         the pair missing?)",
        .matrix.words()
    )]
    RoundTrip {
        /// In this matrix.
        matrix: Matrix,
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// What stands there, in milliseconds.
        came: f64,
    },
    /// A count is negative or not a number.
    #[error(
        "counts of client {client}, {}: {came} came, a number of operations of 0 or more was \
         expected",
        .operation.name()
    )]
    Count {
        /// The client.
        client: usize,
        /// The operation.
        operation: Operation,
        /// What stands there.
        came: f64,
    },
    /// A site is named twice in one role.
    #[error("site {site} is named twice in one role")]
    Twice {
        /// This one.
        site: usize,
    },
    /// The leader is not among the voters.
    #[error("site {leader} is to lead and is not among the voters")]
    LeaderDoesNotVote {
        /// The leader.
        leader: usize,
    },
    /// A voter is not among the replicas.
    #[error("site {voter} is to vote and has no replica")]
    VoterIsNoReplica {
        /// The voter.
        voter: usize,
    },
    /// Counts, or an interval, of another number of clients than expected.
    #[error(
        "counts of {came} clients came, {expected} were expected: as many as the round trips and \
         the intervals before have"
    )]
    Clients {
        /// How many came.
        came: usize,
        /// How many the round trips, or the intervals before, have.
        expected: usize,
    },
    /// An interval whose round trips have another number of sites than those before.
    #[error(
        "round trips between {came} sites came, {expected} were expected: as many as the \
         intervals before have"
    )]
    Sites {
        /// How many came.
        came: usize,
        /// How many the intervals before have.
        expected: usize,
    },
    /// A distribution of round trips has other steps than the first.
    #[error(
        "{}, row {row}, column {column}: a distribution on other steps than the first one came, \
         the same were expected",
        .matrix.words()
    )]
    Step {
        /// In this matrix.
        matrix: Matrix,
        /// The row.
        row: usize,
        /// The column.
        column: usize,
    },
    /// A decay that would let older intervals count more than newer ones.
    #[error("a decay of {came} came, 1 (all intervals count alike) or more was expected")]
    Decay {
        /// What came.
        came: f64,
    },
    /// A history that may keep no interval at all.
    #[error("a history must keep at least one interval")]
    NoIntervals,
    /// A site that there is not.
    #[error("site {site} came, there are {sites} (counted from 0)")]
    UnknownSite {
        /// Its number.
        site: usize,
        /// How many there are.
        sites: usize,
    },
}

impl Matrix {
    const fn words(self) -> &'static str {
        match self {
            Self::FromClients => "round trips from clients to sites",
            Self::BetweenSites => "round trips between sites",
        }
    }
}

fn check(matrix: Matrix, rows: &[Vec<f64>], expected: usize) -> Result<(), BadInput> {
    for (row, columns) in rows.iter().enumerate() {
        if columns.len() != expected {
            return Err(BadInput::Ragged { matrix, row, came: columns.len(), expected });
        }
        for (column, came) in columns.iter().enumerate() {
            if !(came.is_finite() && *came >= 0.0) {
                return Err(BadInput::RoundTrip { matrix, row, column, came: *came });
            }
        }
    }
    Ok(())
}
