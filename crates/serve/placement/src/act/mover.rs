//! Runs a plan against a cluster.
//!
//! 1. Look. Nothing is begun unless every voter serves and is not far behind.
//! 2. Plan ([`plan`]). A dry run ends here, with every request that would be made.
//! 3. Hold the cluster, so that nobody else moves it, and look again.
//! 4. Each step: is the window open, are all voters well, write it down, do it, wait until it is
//!    seen and all are well again, write that down.
//! 5. When a step does not come true in time, go back to where it began, as far as that leaves
//!    enough voters to commit, and say where it stopped.
//!
//! **Elections.** Where nobody can move the leader (ZooKeeper), a change of the members may make
//! the voters elect another one. That is no reason to stop or to be stuck: what a step changes is
//! compared without the leader, and the way back ends at the voters and replicas of the beginning,
//! led by whoever leads then. A new leader keeps its vote, since it would lose it in the hope of a
//! result.
//!
//! A window that closes ends the plan where it is, without going back: that would be more moves,
//! and every layout on the way is a sound one.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use evenkeel_planner::model::Layout;
use evenkeel_planner::steps::{Step, plan};

use super::audit::{Audit, Event, Line};
use super::window::Window;
use super::{Cluster, Observed, Unwell};
use evenkeel_stores::clients::error::RemoteError;

/// How long things may take, and what counts as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// For one step, until it is seen and all are well.
    pub step: Duration,
    /// Between looks.
    pub poll: Duration,
    /// How far a replica may be behind the leader, in the store's unit.
    pub lag_max: u64,
    /// When steps may begin; `None` = always.
    pub window: Option<Window>,
}

/// What somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order<'a> {
    /// The layout that was decided about: another one is not moved. Without it, whatever there is.
    pub from: Option<&'a Layout>,
    /// The layout to reach.
    pub goal: &'a Layout,
    /// Who wants it.
    pub who: &'a str,
    /// The reason, for the log.
    pub why: &'a str,
    /// Whether to do it, or only to say what would be done.
    pub mode: Mode,
}

/// Whether anything is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Nothing is.
    #[default]
    DryRun,
    /// The plan is run.
    Act,
}

/// A step and the request or command that does it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// What.
    pub step: Step,
    /// How, exactly.
    pub how: String,
}

/// How it went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The cluster is as it should be already.
    Nothing,
    /// What would be done, in order.
    WouldDo(Vec<Planned>),
    /// The goal is reached, by these steps.
    Reached(Vec<Step>),
    /// It is not.
    Stopped(Box<Stop>),
}

/// Where a plan ended before its goal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stop {
    /// The steps that took effect.
    pub done: Vec<Step>,
    /// The one that did not, or was not begun.
    pub at: Step,
    /// Why.
    pub why: String,
    /// The steps that were taken to go back.
    pub back: Vec<Step>,
    /// Why it did not go back all the way; `None` when it did.
    pub stuck: Option<String>,
    /// The site of the leader, when it went back but for that: an election chose another one
    /// meanwhile, and the system lets nobody move it.
    pub elected: Option<usize>,
    /// The layout that was seen last.
    pub layout: Option<Layout>,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, at, why) = (self.done.len() + 1, self.at, &self.why);
        write!(f, "stopped at step {number} ({at}): {why}; ")?;
        match (&self.stuck, &self.layout) {
            (None, _) => match self.elected {
                None => write!(f, "the cluster is where it began")?,
                Some(site) => write!(
                    f,
                    "the cluster is where it began, but an election made site {site} the leader"
                )?,
            },
            (Some(stuck), Some(layout)) => write!(
                f,
                "{stuck}; site {} leads, {:?} vote, {:?} have the data",
                layout.leader(),
                layout.voters(),
                layout.replicas()
            )?,
            (Some(stuck), None) => write!(f, "{stuck}; the cluster could not be seen")?,
        }
        Ok(())
    }
}

/// Moves one cluster.
#[derive(Debug)]
pub struct Mover<'a, C> {
    /// The cluster.
    pub cluster: &'a C,
    /// How long, how well.
    pub rules: Rules,
    /// Where all is written down.
    pub audit: &'a Audit,
}

impl<C: Cluster> Mover<'_, C> {
    /// Carries out an order, or says what that would be.
    ///
    /// # Errors
    /// When nothing was changed: the cluster cannot be seen, is not well, is held by somebody else,
    /// cannot do what is needed, or the window is closed.
    pub async fn run(&self, order: &Order<'_>) -> Result<Outcome, RemoteError> {
        let refused = match self.prepare(order).await {
            Ok(Ready::Ended(outcome)) => return Ok(outcome),
            Ok(Ready::Act { hold, now, steps }) => {
                let run = Run { mover: self, order, hold: &hold, start: &now };
                let outcome = run.all(&steps).await;
                self.cluster.release(hold).await;
                return outcome;
            }
            Err(refused) => refused,
        };
        self.note(order, Event::Refused, None, &refused.message)?;
        Err(refused)
    }

    async fn prepare(&self, order: &Order<'_>) -> Result<Ready<C::Hold>, RemoteError> {
        let (now, steps) = self.plan(order).await?;
        if order.from.is_some_and(|from| *from != now) {
            let name = self.cluster.name();
            return Err(RemoteError::passing(format!("{name} changed since it was decided about")));
        }
        if steps.is_empty() {
            return Ok(Ready::Ended(Outcome::Nothing));
        }
        if order.mode == Mode::DryRun {
            let mut planned = Vec::new();
            for (number, step) in (1..).zip(steps) {
                let how = self.cluster.say(step).await;
                self.note(order, Event::WouldDo, Some((number, step)), &how)?;
                planned.push(Planned { step, how });
            }
            return Ok(Ready::Ended(Outcome::WouldDo(planned)));
        }
        self.check_window()?;
        let hold = self.cluster.hold(order.who).await?;
        // What was seen before it was held may be somebody else's work half done.
        match self.plan(order).await {
            Ok((_, again)) if again == steps => Ok(Ready::Act { hold, now, steps }),
            Ok(_) => {
                self.cluster.release(hold).await;
                let name = self.cluster.name();
                Err(RemoteError::passing(format!("{name} changed while the move was prepared")))
            }
            Err(error) => {
                self.cluster.release(hold).await;
                Err(error)
            }
        }
    }

    async fn plan(&self, order: &Order<'_>) -> Result<(Layout, Vec<Step>), RemoteError> {
        let seen = self.cluster.observe().await?;
        if let Some((site, why)) = seen.ill_voter(self.rules.lag_max) {
            let (name, site) = (self.cluster.name(), self.cluster.site_name(site));
            return Err(RemoteError::passing(format!(
                "{name} is not moved while a voter is not well: {site}: {why}"
            )));
        }
        let steps = plan(&seen.layout, order.goal, &self.cluster.abilities())
            .map_err(|error| RemoteError::lasting(format!("{}: {error}", self.cluster.name())))?;
        Ok((seen.layout, steps))
    }

    fn check_window(&self) -> Result<(), RemoteError> {
        match self.rules.window {
            Some(window) if !window.is_open(SystemTime::now()) => {
                Err(RemoteError::passing(format!("the maintenance window ({window}) is closed")))
            }
            _ => Ok(()),
        }
    }

    fn note(
        &self,
        order: &Order<'_>,
        event: Event,
        step: Option<(usize, Step)>,
        result: &str,
    ) -> Result<(), RemoteError> {
        let words = step.map(|(_, step)| self.words(step));
        let line = Line {
            cluster: self.cluster.name(),
            who: order.who,
            why: order.why,
            event,
            step: words.as_deref(),
            number: step.map(|(number, _)| number),
            result,
        };
        self.audit.note(&line).map_err(|error| RemoteError::lasting(error.to_string()))
    }

    /// A step with the names of its sites.
    fn words(&self, step: Step) -> String {
        let name = |site| self.cluster.site_name(site);
        match step {
            Step::AddReplica(site) => format!("add a replica at {}", name(site)),
            Step::Promote(site) => format!("let the replica at {} vote", name(site)),
            Step::MoveLeader { from, to } => {
                format!("move the leader from {} to {}", name(from), name(to))
            }
            Step::Demote(site) => format!("take the vote of the replica at {}", name(site)),
            Step::RemoveReplica(site) => format!("remove the replica at {}", name(site)),
            Step::RemoveVoter(site) => format!("remove the voter at {}", name(site)),
        }
    }
}

enum Ready<H> {
    Ended(Outcome),
    Act { hold: H, now: Layout, steps: Vec<Step> },
}

/// A plan under way.
struct Run<'a, 'm, C: Cluster> {
    mover: &'a Mover<'m, C>,
    order: &'a Order<'a>,
    hold: &'a C::Hold,
    start: &'a Layout,
}

/// What must be seen before a step counts as done.
#[derive(Clone, Copy)]
enum Until {
    /// The layout, and every voter well.
    AllWell,
    /// The layout, and enough voters to commit: on the way back.
    Quorum,
}

impl<C: Cluster> Run<'_, '_, C> {
    async fn all(&self, steps: &[Step]) -> Result<Outcome, RemoteError> {
        let mover = self.mover;
        let mut layout = self.start.clone();
        for (done, step) in steps.iter().enumerate() {
            let number = done + 1;
            if let Err(closed) = mover.check_window() {
                let stop = Stop {
                    done: steps[..done].to_vec(),
                    at: *step,
                    why: closed.message,
                    back: Vec::new(),
                    stuck: Some("what was done stays".to_owned()),
                    elected: None,
                    layout: Some(layout),
                };
                return Ok(self.stopped(stop));
            }
            // Before anything is changed this is a refusal; later the way back is to be tried.
            let begins = mover.note(self.order, Event::Begins, Some((number, *step)), "");
            if done == 0 {
                begins.clone()?;
            }
            let result = match begins {
                Ok(()) => self.do_one(*step, &layout, Until::AllWell).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(next) => {
                    layout = next;
                    // The step is done, whether or not it can be written down.
                    let _ = mover.note(self.order, Event::Done, Some((number, *step)), "");
                }
                Err(error) => {
                    let words = &error.message;
                    let _ = mover.note(self.order, Event::Failed, Some((number, *step)), words);
                    return Ok(self.take_back(&steps[..done], *step, error.message).await);
                }
            }
        }
        let _ = mover.note(self.order, Event::Reached, None, "");
        Ok(Outcome::Reached(steps.to_vec()))
    }

    /// Does a step and waits until it is seen; the layout after it.
    async fn do_one(
        &self,
        step: Step,
        before: &Layout,
        until: Until,
    ) -> Result<Layout, RemoteError> {
        let after = |before: &Layout| {
            step.after(before).map_err(|error| RemoteError::lasting(error.to_string()))
        };
        let wanted = after(before)?;
        let ends = Instant::now() + self.mover.rules.step;
        let mut is_asked = false;
        loop {
            let why = match self.mover.cluster.observe().await {
                Ok(seen) if self.is_reached(&seen, &wanted) => {
                    match self.lacks(&seen, step, until) {
                        None => return Ok(seen.layout),
                        Some(why) => why,
                    }
                }
                // Not asked twice for what was accepted: it may only need time to be seen.
                Ok(seen) if !is_asked && self.is_same(&seen.layout, before) => {
                    // The leader may be another one by now, and must not lose its vote.
                    let wanted = after(&seen.layout)?;
                    match self.ask(step, &seen, &wanted, until).await {
                        Ok(()) => {
                            is_asked = true;
                            continue;
                        }
                        Err(error) if !error.may_pass => return Err(error),
                        Err(error) => error.message,
                    }
                }
                Ok(seen) if self.is_same(&seen.layout, before) => {
                    "it was accepted and is not seen".to_owned()
                }
                Ok(seen) => format!(
                    "the layout is another than expected: site {} leads, {:?} vote, {:?} have the \
                     data",
                    seen.layout.leader(),
                    seen.layout.voters(),
                    seen.layout.replicas()
                ),
                Err(error) => error.message,
            };
            if Instant::now() + self.mover.rules.poll >= ends {
                let within = self.mover.rules.step;
                return Err(RemoteError::lasting(format!("not done within {within:?}: {why}")));
            }
            self.mover.cluster.keep(self.hold).await?;
            tokio::time::sleep(self.mover.rules.poll).await;
        }
    }

    fn is_reached(&self, seen: &Observed, wanted: &Layout) -> bool {
        self.mover.cluster.is_reached(&seen.layout, wanted)
    }

    /// Whether nothing changed but what elections change.
    fn is_same(&self, seen: &Layout, before: &Layout) -> bool {
        if self.mover.cluster.abilities().move_leader {
            return seen == before;
        }
        seen.voters() == before.voters() && seen.replicas() == before.replicas()
    }

    /// Asks the cluster for a step, if it is well enough for it.
    async fn ask(
        &self,
        step: Step,
        seen: &Observed,
        after: &Layout,
        until: Until,
    ) -> Result<(), RemoteError> {
        match until {
            Until::AllWell => {
                if let Some((site, why)) = seen.ill_voter(self.mover.rules.lag_max) {
                    let site = self.mover.cluster.site_name(site);
                    return Err(RemoteError::passing(format!("{site} is not well: {why}")));
                }
            }
            Until::Quorum => {
                if !seen.has_quorum(after) {
                    let words = "too few voters are well to commit after it";
                    return Err(RemoteError::passing(words));
                }
                if let (Step::MoveLeader { to, .. }, Err(why)) =
                    (step, seen.is_well(step.site(), self.mover.rules.lag_max))
                {
                    let site = self.mover.cluster.site_name(to);
                    return Err(RemoteError::passing(format!("{site} cannot lead: {why}")));
                }
            }
        }
        self.mover.cluster.keep(self.hold).await?;
        self.mover.cluster.apply(step).await
    }

    /// What is still wanted of a cluster that has the layout after a step.
    fn lacks(&self, seen: &Observed, step: Step, until: Until) -> Option<String> {
        let cluster = self.mover.cluster;
        let lag_max = self.mover.rules.lag_max;
        let named = |site: usize, why: Unwell| format!("{}: {why}", cluster.site_name(site));
        match until {
            Until::Quorum => {
                (!seen.has_quorum(&seen.layout)).then(|| "too few voters are well".to_owned())
            }
            Until::AllWell => {
                if let Some((site, why)) = seen.ill_voter(lag_max) {
                    return Some(named(site, why));
                }
                let stays = seen.layout.has_replica(step.site());
                let ill = seen.is_well(step.site(), lag_max).err().filter(|_| stays);
                ill.map(|why| named(step.site(), why))
            }
        }
    }

    /// Goes back to the start, as far as it can.
    async fn take_back(&self, done: &[Step], at: Step, why: String) -> Outcome {
        let mut stop = Stop {
            done: done.to_vec(),
            at,
            why,
            back: Vec::new(),
            stuck: None,
            elected: None,
            layout: None,
        };
        if let Err(error) = self.go_back(&mut stop).await {
            stop.stuck = Some(format!("and could not go back: {error}"));
        }
        self.stopped(stop)
    }

    async fn go_back(&self, stop: &mut Stop) -> Result<(), RemoteError> {
        let cluster = self.mover.cluster;
        let seen = self.seen_within().await?;
        let mut layout = seen.layout;
        stop.layout = Some(layout.clone());
        let abilities = cluster.abilities();
        // A leader that nobody can move stays where an election put it, if it may vote there.
        let led = (!abilities.move_leader).then(|| self.start.led_by(layout.leader()).ok());
        let start = led.flatten().unwrap_or_else(|| self.start.clone());
        let steps = plan(&layout, &start, &abilities)
            .map_err(|error| RemoteError::lasting(error.to_string()))?;
        for (number, step) in (1..).zip(steps) {
            // Going back matters more than writing it down.
            let _ = self.mover.note(self.order, Event::TakesBack, Some((number, step)), "");
            layout = self.do_one(step, &layout, Until::Quorum).await?;
            stop.layout = Some(layout.clone());
            stop.back.push(step);
            let _ = self.mover.note(self.order, Event::TakenBack, Some((number, step)), "");
        }
        let leader = layout.leader();
        stop.elected = Some(leader).filter(|leader| *leader != self.start.leader());
        Ok(())
    }

    /// Looks until something is seen, as long as a step may take.
    async fn seen_within(&self) -> Result<Observed, RemoteError> {
        let ends = Instant::now() + self.mover.rules.step;
        loop {
            let seen = self.mover.cluster.observe().await;
            if seen.is_ok() || Instant::now() + self.mover.rules.poll >= ends {
                return seen;
            }
            tokio::time::sleep(self.mover.rules.poll).await;
        }
    }

    fn stopped(&self, stop: Stop) -> Outcome {
        let words = stop.to_string();
        // The caller is told as well.
        let _ = self.mover.note(self.order, Event::Stopped, None, &words);
        Outcome::Stopped(Box::new(stop))
    }
}
