//! Failure domains: how far voters must be spread (section 4, "Failure Diversity").
//!
//! **The level.** Two numbers say how a voter set is spread: in how many domains it is, and how
//! many of it are in the fullest one (four domains are worth little when most voters are in one). A
//! move keeps at least the level there is today, or one that is configured.
//!
//! **The exact rule.** Of `n` voters in at least `D` domains, at most `n - D` may be where another
//! voter already is. Sets that obey this and at most `m` in one domain are the independent sets of
//! a matroid (the union of "one in each domain" and "at most `n - D`, at most `m - 1` in each").
//! Taking replicas from the nearest to the farthest, leaving out those that break the rule,
//! therefore gives a voter set whose nearest, second nearest, … voters are all as near as in any
//! admissible set, and with them the least quorum latency of that leader.
//!
//! **The paper's rule** keeps only the nearest replica of each domain and takes the k-th nearest of
//! these as the quorum. That asks each voter of the quorum to be in a domain of its own, which is
//! the same as above only if all voters must be (`D = n`); otherwise it may be too strict: of five
//! voters in three domains, the nearest three may be in one.

use super::model::{BadInput, majority};

/// Which failure domain each site is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Domains {
    of_site: Vec<usize>,
}

impl Domains {
    /// The domain of each site. Domains are numbers; which ones makes no difference.
    pub const fn new(of_site: Vec<usize>) -> Self {
        Self { of_site }
    }

    /// As many sites, each in a domain of its own.
    pub fn each_its_own(sites: usize) -> Self {
        Self { of_site: (0..sites).collect() }
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.of_site.len()
    }

    /// The domain of a site.
    pub fn of(&self, site: usize) -> usize {
        self.of_site[site]
    }

    /// Checks that every site of so many has a domain.
    ///
    /// # Errors
    /// When there are more or fewer.
    pub fn check(&self, sites: usize) -> Result<(), BadInput> {
        if self.sites() == sites {
            Ok(())
        } else {
            Err(BadInput::Sites { came: self.sites(), expected: sites })
        }
    }

    /// The domains that these sites are in, with how many of them are, in rising order.
    pub fn among(&self, sites: &[usize]) -> Vec<(usize, usize)> {
        let mut domains: Vec<usize> = sites.iter().map(|site| self.of(*site)).collect();
        domains.sort_unstable();
        domains.chunk_by(|one, next| one == next).map(|same| (same[0], same.len())).collect()
    }

    /// What is left of `kept` for another number of voters: fewer are in fewer domains, and more of
    /// them may have to share one.
    pub fn relaxed(&self, kept: Diversity, voters: usize) -> Diversity {
        let Diversity { domains_min, mut per_domain_max } = kept;
        let all: Vec<usize> = (0..self.sites()).collect();
        let among = self.among(&all);
        let seats = |most: usize| -> usize { among.iter().map(|(_, of)| most.min(*of)).sum() };
        while per_domain_max < voters && seats(per_domain_max) < voters {
            per_domain_max += 1;
        }
        Diversity { domains_min: domains_min.min(voters), per_domain_max }
    }

    /// How these voters are spread.
    pub fn level(&self, voters: &[usize]) -> Diversity {
        let among = self.among(voters);
        let fullest = among.iter().map(|(_, voters)| *voters).max();
        Diversity { domains_min: among.len(), per_domain_max: fullest.unwrap_or(usize::MAX) }
    }
}

/// How far voters must be spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Diversity {
    /// In at least so many domains.
    pub domains_min: usize,
    /// Not more than so many in one domain.
    pub per_domain_max: usize,
}

impl Diversity {
    /// Anything will do.
    pub const ANY: Self = Self { domains_min: 0, per_domain_max: usize::MAX };

    /// Whether voters spread like this are spread as far as `wanted`, in both respects.
    pub const fn meets(self, wanted: Self) -> bool {
        self.domains_min >= wanted.domains_min && self.per_domain_max <= wanted.per_domain_max
    }
}

/// How many voters there are to be, and how they are to be spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VoterRule<'a> {
    /// How many vote.
    pub count: usize,
    /// Which domain each site is in.
    pub domains: &'a Domains,
    /// How far they must be spread.
    pub diversity: Diversity,
}

impl<'a> VoterRule<'a> {
    /// As many voters as there are today, spread at least as far.
    pub fn as_today(domains: &'a Domains, voters: &[usize]) -> Self {
        Self { count: voters.len(), domains, diversity: domains.level(voters) }
    }

    /// Checks that some of these replicas can vote by this rule; if so, any of them can lead.
    ///
    /// # Errors
    /// When there are too few replicas or domains, naming the domains.
    pub fn check(&self, replicas: &[usize]) -> Result<(), TooFew> {
        let among = self.domains.among(replicas);
        let room = |(_, replicas): &(usize, usize)| self.diversity.per_domain_max.min(*replicas);
        let seats = among.iter().map(room).sum::<usize>();
        let wanted = self.diversity.domains_min;
        let named = || among.iter().map(|(domain, _)| *domain).collect();
        if self.count == 0 {
            Err(TooFew::NoVoters)
        } else if wanted > self.count {
            Err(TooFew::VotersForDomains { voters: self.count, domains_min: wanted })
        } else if wanted > among.len() {
            Err(TooFew::Domains { domains_min: wanted, domains: named() })
        } else if self.count > seats {
            Err(TooFew::Replicas { voters: self.count, seats, domains: named() })
        } else {
            Ok(())
        }
    }

    /// Whether these voters obey it.
    pub fn admits(&self, voters: &[usize]) -> bool {
        voters.len() == self.count && self.domains.level(voters).meets(self.diversity)
    }

    /// Whether voters, of whatever number, are spread as far as it asks.
    pub fn admits_spread(&self, voters: &[usize]) -> bool {
        self.domains.level(voters).meets(self.diversity)
    }

    /// The nearest voters of a leader, by these round trips to every site: a voter set whose quorum
    /// is the fastest by this rule. The voters that make the quorum no faster are those in `keep`
    /// (the voters of today: every change costs) and then the nearest; of equally far ones the
    /// lowest number. In rising order.
    ///
    /// Algorithm 2 takes the nearest throughout: that is an empty `keep`.
    ///
    /// # Panics
    /// When [`check`](Self::check) of these replicas fails, or the leader is not among them.
    pub fn nearest(
        &self,
        row: &[f64],
        leader: usize,
        replicas: &[usize],
        keep: &[usize],
    ) -> Vec<usize> {
        let mut others: Vec<usize> =
            replicas.iter().copied().filter(|site| *site != leader).collect();
        let nearer = |one: &usize, other: &usize| {
            row[*one].total_cmp(&row[*other]).then_with(|| one.cmp(other))
        };
        others.sort_unstable_by(nearer);
        let mut voters = self.first_allowed(leader, &others);
        if !keep.is_empty() {
            let quorum_ms = quorum_of(voters.iter().map(|voter| row[*voter]), self.count);
            // Whoever is near enough for the quorum comes first: then it is as fast as before.
            others.sort_by_key(|site| (row[*site] > quorum_ms, !keep.contains(site)));
            voters = self.first_allowed(leader, &others);
        }
        voters.sort_unstable();
        voters
    }

    /// The leader, and of the others in their order all that the rule allows.
    fn first_allowed(&self, leader: usize, others: &[usize]) -> Vec<usize> {
        let mut voters = Vec::with_capacity(self.count);
        voters.push(leader);
        let mut doubled = 0; // how many share a domain with one that was there before
        for site in others {
            if voters.len() == self.count {
                break;
            }
            let domain = self.domains.of(*site);
            let here = voters.iter().filter(|voter| self.domains.of(**voter) == domain).count();
            let doubles = usize::from(here > 0);
            let room = self.count - self.diversity.domains_min;
            if here < self.diversity.per_domain_max && doubled + doubles <= room {
                voters.push(*site);
                doubled += doubles;
            }
        }
        assert_eq!(voters.len(), self.count, "these replicas cannot vote by the rule");
        voters
    }
}

/// How long the quorum of so many voters takes that are so far away.
fn quorum_of(ways: impl Iterator<Item = f64>, voters: usize) -> f64 {
    let mut ways: Vec<f64> = ways.collect();
    ways.sort_unstable_by(f64::total_cmp);
    ways[majority(voters) - 1]
}

/// Why no voter set obeys a [`VoterRule`]. Domains are named by number.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TooFew {
    /// Nobody is to vote.
    #[error("0 voters came, at least 1 was expected")]
    NoVoters,
    /// Fewer voters than domains they are to be in.
    #[error(
        "{voters} voters cannot be in {domains_min} failure domains: add voters or ask for fewer \
         domains"
    )]
    VotersForDomains {
        /// How many are to vote.
        voters: usize,
        /// In how many domains.
        domains_min: usize,
    },
    /// The replicas are in too few domains.
    #[error(
        "voters are to be in {domains_min} failure domains, the replicas are in {} (domains \
         {domains:?}): add a replica elsewhere or ask for fewer domains",
        .domains.len()
    )]
    Domains {
        /// In how many voters are to be.
        domains_min: usize,
        /// In which the replicas are.
        domains: Vec<usize>,
    },
    /// There are too few replicas, or too many of them in one domain.
    #[error(
        "{voters} voters are wanted, {seats} of the replicas can vote with the most that one \
         failure domain may have (domains {domains:?}): add replicas or allow more"
    )]
    Replicas {
        /// How many are to vote.
        voters: usize,
        /// How many of the replicas could, with the most that one domain may have.
        seats: usize,
        /// In which domains the replicas are.
        domains: Vec<usize>,
    },
}
