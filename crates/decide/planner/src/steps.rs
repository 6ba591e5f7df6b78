//! From the layout there is to the one that shall be, in single steps that are each safe.
//!
//! | rule | why |
//! |---|---|
//! | never fewer voters than before or after, whichever is less | what was survived still is |
//! | what can wait waits until the voters are odd | an even number survives no more |
//! | the leader is moved before it loses its vote | else there is an election |
//! | one change at a time | what a system can take back when it goes wrong |
//!
//! Voters come before voters go, so that for a moment there is one too many. Systems differ in what
//! they can do ([`Abilities`]); a goal out of reach is an error that names the ability. Taking back
//! is the plan from the layout reached to the first one, by the same rules: [`plan`] with the two
//! exchanged.

use core::fmt;

use super::model::Layout;

/// One change that a system makes as a whole, or not at all. Numbers are those of sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Gives a site a replica, which does not vote.
    AddReplica(usize),
    /// Gives a replica its vote.
    Promote(usize),
    /// Lets another voter lead.
    MoveLeader {
        /// Who leads before.
        from: usize,
        /// Who leads after.
        to: usize,
    },
    /// Takes a replica's vote; it keeps the data.
    Demote(usize),
    /// Takes away a replica, which does not vote.
    RemoveReplica(usize),
    /// Takes away a replica together with its vote: for systems that cannot take only the vote.
    RemoveVoter(usize),
}

impl Step {
    /// The layout after it.
    ///
    /// # Errors
    /// When it does not fit the layout, with why.
    pub fn after(self, layout: &Layout) -> Result<Layout, Misfit> {
        let mut voters = layout.voters().to_vec();
        let mut replicas = layout.replicas().to_vec();
        let mut leader = layout.leader();
        let holds = match self {
            Self::AddReplica(site) => !layout.has_replica(site),
            Self::Promote(site) => layout.has_replica(site) && !layout.has_voter(site),
            Self::MoveLeader { from, to } => from == leader && to != from && layout.has_voter(to),
            Self::Demote(site) | Self::RemoveVoter(site) => {
                layout.has_voter(site) && site != leader
            }
            Self::RemoveReplica(site) => layout.has_replica(site) && !layout.has_voter(site),
        };
        match self {
            Self::AddReplica(site) => replicas.push(site),
            Self::Promote(site) => voters.push(site),
            Self::MoveLeader { to, .. } => leader = to,
            Self::Demote(site) => voters.retain(|voter| *voter != site),
            Self::RemoveReplica(site) => replicas.retain(|replica| *replica != site),
            Self::RemoveVoter(site) => {
                voters.retain(|voter| *voter != site);
                replicas.retain(|replica| *replica != site);
            }
        }
        if !holds {
            return Err(Misfit { step: self });
        }
        Layout::new(leader, voters, replicas).map_err(|_| Misfit { step: self })
    }

    /// The ability it needs.
    pub const fn needs(self) -> Ability {
        match self {
            Self::AddReplica(_) => Ability::AddReplica,
            Self::Promote(_) => Ability::Promote,
            Self::MoveLeader { .. } => Ability::MoveLeader,
            Self::Demote(_) => Ability::Demote,
            Self::RemoveReplica(_) => Ability::RemoveReplica,
            Self::RemoveVoter(_) => Ability::RemoveVoter,
        }
    }

    /// Whether it only moves the leader.
    pub const fn moves_leader(self) -> bool {
        matches!(self, Self::MoveLeader { .. })
    }

    /// The same step where another site leads by now.
    pub const fn led_by(self, leader: usize) -> Self {
        match self {
            Self::MoveLeader { to, .. } => Self::MoveLeader { from: leader, to },
            other => other,
        }
    }

    /// In words, with the names of its sites.
    pub fn named(self, name: &dyn Fn(usize) -> String) -> String {
        match self {
            Self::AddReplica(site) => format!("add a replica at {}", name(site)),
            Self::Promote(site) => format!("let the replica at {} vote", name(site)),
            Self::MoveLeader { from, to } => {
                format!("move the leader from {} to {}", name(from), name(to))
            }
            Self::Demote(site) => format!("take the vote of the replica at {}", name(site)),
            Self::RemoveReplica(site) => format!("remove the replica at {}", name(site)),
            Self::RemoveVoter(site) => format!("remove the voter at {}", name(site)),
        }
    }

    /// The site that it changes; for a leader's move the one that will lead.
    pub const fn site(self) -> usize {
        match self {
            Self::MoveLeader { to: site, .. }
            | Self::AddReplica(site)
            | Self::Promote(site)
            | Self::Demote(site)
            | Self::RemoveReplica(site)
            | Self::RemoveVoter(site) => site,
        }
    }
}

impl fmt::Display for Step {
    /// With the numbers of sites: people are told their names ([`Step::named`]).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named(&|site| format!("site {site}")))
    }
}

/// A step that does not fit the layout it shall change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{step}\" does not fit the layout (has it changed meanwhile?)")]
pub struct Misfit {
    /// This one.
    pub step: Step,
}

/// Something a system may be able to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ability {
    /// [`Step::AddReplica`].
    AddReplica,
    /// [`Step::Promote`].
    Promote,
    /// [`Step::MoveLeader`].
    MoveLeader,
    /// [`Step::Demote`].
    Demote,
    /// [`Step::RemoveReplica`].
    RemoveReplica,
    /// [`Step::RemoveVoter`].
    RemoveVoter,
}

impl Ability {
    /// Its name in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AddReplica => "add a replica",
            Self::Promote => "give a replica its vote",
            Self::MoveLeader => "move the leader",
            Self::Demote => "take a replica's vote",
            Self::RemoveReplica => "remove a replica",
            Self::RemoveVoter => "remove a voter",
        }
    }
}

/// What a system can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// [`Step::MoveLeader`].
    pub move_leader: bool,
    /// [`Step::AddReplica`].
    pub add_replica: bool,
    /// [`Step::Promote`].
    pub promote: bool,
    /// [`Step::Demote`].
    pub demote: bool,
    /// [`Step::RemoveReplica`].
    pub remove_replica: bool,
    /// [`Step::RemoveVoter`].
    pub remove_voter: bool,
    /// How many replicas without a vote there may be at once.
    pub learners_max: usize,
}

impl Abilities {
    /// All of them, and any number of learners.
    pub const ALL: Self = Self {
        move_leader: true,
        add_replica: true,
        promote: true,
        demote: true,
        remove_replica: true,
        remove_voter: true,
        learners_max: usize::MAX,
    };

    /// Only that the leader moves: replicas and votes are the system's own affair.
    pub const LEADER: Self = Self {
        move_leader: true,
        add_replica: false,
        promote: false,
        demote: false,
        remove_replica: false,
        remove_voter: false,
        learners_max: usize::MAX,
    };

    /// Whether one of them is there.
    pub const fn has(&self, ability: Ability) -> bool {
        match ability {
            Ability::AddReplica => self.add_replica,
            Ability::Promote => self.promote,
            Ability::MoveLeader => self.move_leader,
            Ability::Demote => self.demote,
            Ability::RemoveReplica => self.remove_replica,
            Ability::RemoveVoter => self.remove_voter,
        }
    }
}

/// Why a goal is out of a system's reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OutOfReach {
    /// The system cannot do what is needed.
    #[error("{}", lacks(*.ability, &format!("site {site}")))]
    Lacks {
        /// What is needed.
        ability: Ability,
        /// At this site.
        site: usize,
    },
    /// More replicas without a vote than the system allows.
    #[error("the goal needs {came} replicas that do not vote at once, this system allows {most}")]
    Learners {
        /// How many there would be.
        came: usize,
        /// How many it allows.
        most: usize,
    },
}

impl OutOfReach {
    /// In words, with the name of its site.
    pub fn named(self, name: &dyn Fn(usize) -> String) -> String {
        match self {
            Self::Lacks { ability, site } => lacks(ability, &name(site)),
            Self::Learners { .. } => self.to_string(),
        }
    }
}

fn lacks(ability: Ability, site: &str) -> String {
    format!("the goal needs to {} ({site}), which this system cannot do", ability.name())
}

/// The steps from one layout to another, in order.
///
/// # Errors
/// When the system cannot do what is needed, with the first ability that it lacks.
pub fn plan(now: &Layout, goal: &Layout, able: &Abilities) -> Result<Vec<Step>, OutOfReach> {
    let learners = goal.replicas().len() - goal.voters().len();
    if learners > able.learners_max && goal != now {
        return Err(OutOfReach::Learners { came: learners, most: able.learners_max });
    }
    let least = now.voters().len().min(goal.voters().len());
    let mut way = Way { goal, able, least, layout: now.clone() };
    // Every site is touched a bounded number of times: added, promoted, demoted, removed, and once
    // more when a learner had to make room. A system with half the abilities could go in circles.
    let steps_max = 6 * (now.replicas().len() + goal.replicas().len()) + 1;
    let mut steps = Vec::new();
    while way.layout != *goal {
        let Some(step) = way.next() else {
            let came = way.learners().count() + 1;
            return Err(OutOfReach::Learners { came, most: able.learners_max });
        };
        if !able.has(step.needs()) || steps.len() == steps_max {
            return Err(OutOfReach::Lacks { ability: step.needs(), site: step.site() });
        }
        let next = step.after(&way.layout).expect("steps are made for the layout they change");
        assert!(next.voters().len() >= least, "{step} would leave too few voters");
        way.layout = next;
        steps.push(step);
    }
    Ok(steps)
}

/// A plan being made.
struct Way<'a> {
    goal: &'a Layout,
    able: &'a Abilities,
    /// Never fewer voters than this.
    least: usize,
    layout: Layout,
}

impl Way<'_> {
    /// The next step; none is left only where there is no room for a learner.
    fn next(&self) -> Option<Step> {
        let is_odd = self.layout.voters().len() % 2 == 1;
        let order: [&dyn Fn() -> Option<Step>; 5] = if is_odd {
            // A plan that needs it anyway moves the leader first: that is what it gains by.
            [
                &|| self.move_leader(),
                &|| self.add(),
                &|| self.promote(),
                &|| self.drop_voter(),
                &|| self.remove(),
            ]
        } else {
            [
                &|| self.drop_voter(),
                &|| self.promote(),
                &|| self.move_leader(),
                &|| self.add(),
                &|| self.remove(),
            ]
        };
        order.iter().find_map(|step| step())
    }

    fn move_leader(&self) -> Option<Step> {
        let (from, to) = (self.layout.leader(), self.goal.leader());
        (from != to && self.layout.has_voter(to)).then_some(Step::MoveLeader { from, to })
    }

    /// Sites that shall vote and do not, the leader to be first.
    fn missing_voters(&self) -> impl Iterator<Item = usize> {
        let leader = self.goal.leader();
        let others = self.goal.voters().iter().copied().filter(move |site| *site != leader);
        core::iter::once(leader).chain(others).filter(|site| !self.layout.has_voter(*site))
    }

    /// A replica that is missing: first where one shall vote, and of these the leader to be.
    fn add(&self) -> Option<Step> {
        let missing = self.missing_voters().find(|site| !self.layout.has_replica(*site));
        let learns = |site: &usize| !self.layout.has_replica(*site);
        let (site, votes_later) = match missing {
            Some(site) => (site, true),
            None => (self.goal.replicas().iter().copied().find(learns)?, false),
        };
        if self.has_room() {
            return Some(Step::AddReplica(site));
        }
        if self.missing_voters().any(|site| self.layout.has_replica(site)) {
            return None; // its promotion makes room
        }
        let learners = || self.learners();
        let unwanted = learners().find(|site| !self.goal.has_replica(*site));
        // Room for one that shall vote is made even by one that comes back afterwards.
        unwanted.or_else(|| learners().next().filter(|_| votes_later)).map(Step::RemoveReplica)
    }

    fn promote(&self) -> Option<Step> {
        self.missing_voters().find(|site| self.layout.has_replica(*site)).map(Step::Promote)
    }

    /// Takes the vote of a site that shall have none.
    fn drop_voter(&self) -> Option<Step> {
        if self.layout.voters().len() <= self.least {
            return None;
        }
        let is_old = |site: &&usize| **site != self.layout.leader() && !self.goal.has_voter(**site);
        let site = *self.layout.voters().iter().find(is_old)?;
        let Abilities { demote, remove_replica, remove_voter, .. } = *self.able;
        if !demote && remove_voter {
            return Some(Step::RemoveVoter(site));
        }
        let stays = self.goal.has_replica(site);
        if remove_voter && !(self.has_room() && (stays || remove_replica)) {
            return Some(Step::RemoveVoter(site));
        }
        if demote && !self.has_room() {
            let unwanted = self.learners().find(|site| !self.goal.has_replica(*site));
            return unwanted.or_else(|| self.learners().next()).map(Step::RemoveReplica);
        }
        Some(Step::Demote(site))
    }

    fn remove(&self) -> Option<Step> {
        let unwanted = self.learners().find(|site| !self.goal.has_replica(*site));
        unwanted.map(Step::RemoveReplica)
    }

    fn learners(&self) -> impl Iterator<Item = usize> {
        let replicas = self.layout.replicas().iter().copied();
        replicas.filter(|site| !self.layout.has_voter(*site))
    }

    fn has_room(&self) -> bool {
        self.learners().count() < self.able.learners_max
    }
}

#[cfg(test)]
mod tests;
