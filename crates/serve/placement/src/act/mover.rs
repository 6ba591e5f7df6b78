//! Runs a plan against a cluster.
//!
//! 1. Look. Nothing is begun unless every voter serves and is not far behind.
//! 2. Plan ([`plan`]). A dry run ends here, with every request that would be made.
//! 3. Hold the cluster, so that nobody else moves it, and look again.
//! 4. Write down from where to where it goes. Each step: is the window open, are all voters well,
//!    write it down, do it, wait until it is seen and all are well again, write that down. The next
//!    one is planned for what is seen then.
//! 5. When a step does not come true in time, go back to where it began, as far as that leaves
//!    enough voters to commit, and say where it stopped.
//!
//! **Elections.** A leader that bounces back, or that others elect, is no reason to stop. What a
//! step changes is compared without the leader; where the leader can be moved, it is asked for
//! again until the time of the step is over. Where nobody can move it (ZooKeeper), the way back
//! ends at the voters and replicas of the beginning, led by whoever leads then. A new leader keeps
//! its vote, since it would lose it in the hope of a result.
//!
//! **A move that was cut off** is finished by [`Mode::Finish`]: because the process was killed (the
//! audit log has from where to where it went), the window closed, or the way back was barred. It
//! goes on if every replica serves, and goes back if not, such as when a learner was added and its
//! process was not started. What somebody has changed meanwhile is left as it is.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use evenkeel_planner::model::Layout;
use evenkeel_planner::steps::{Misfit, Step, plan};

use super::audit::{Audit, Event, Line};
use super::window::Window;
use super::{Cluster, Observed, Unwell};
use crate::state::LayoutState;
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
    /// Of a move that is finished: where it began.
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
    /// A move that was cut off is brought to its end, or back to where it began.
    Finish,
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
    /// Nothing was to be done: the cluster is as it should be already, or what was cut off is not
    /// there any more.
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
    /// The one that did not, or was not begun, if there is one.
    pub at: Option<Step>,
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
    /// All of this in words.
    pub words: String,
}

impl Stop {
    fn new(done: Vec<Step>, at: Option<Step>, why: String) -> Self {
        let (back, words) = (Vec::new(), String::new());
        Self { done, at, why, back, stuck: None, elected: None, layout: None, words }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
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
            Ok(Ready::Act { hold, start }) => {
                let run = Run { mover: self, order, hold: &hold, start: &start };
                let outcome = match order.mode {
                    Mode::Finish => run.finish().await,
                    Mode::Act | Mode::DryRun => run.all().await,
                };
                self.cluster.release(hold).await;
                return outcome;
            }
            Err(refused) => refused,
        };
        match (order.mode, order.from) {
            (Mode::Finish, Some(start)) => {
                self.note_ends(order, Event::Refused, start, &refused.message)?;
            }
            _ => self.note(order, Event::Refused, None, &refused.message)?,
        }
        Err(refused)
    }

    async fn prepare(&self, order: &Order<'_>) -> Result<Ready<C::Hold>, RemoteError> {
        if let (Mode::Finish, Some(start)) = (order.mode, order.from) {
            self.check_window()?;
            let hold = self.hold_soon(order.who).await?;
            return Ok(Ready::Act { hold, start: start.clone() });
        }
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
            Ok((_, again)) if again == steps => Ok(Ready::Act { hold, start: now }),
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

    /// Holds the cluster as soon as the hold of who was cut off has ended.
    async fn hold_soon(&self, who: &str) -> Result<C::Hold, RemoteError> {
        let ends = Instant::now() + self.rules.step;
        loop {
            match self.cluster.hold(who).await {
                Err(error) if error.may_pass && Instant::now() + self.rules.poll < ends => {}
                held => return held,
            }
            tokio::time::sleep(self.rules.poll).await;
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
        let steps = self.steps(&seen.layout, order.goal)?;
        Ok((seen.layout, steps))
    }

    fn steps(&self, now: &Layout, goal: &Layout) -> Result<Vec<Step>, RemoteError> {
        plan(now, goal, &self.cluster.abilities()).map_err(|error| {
            let words = error.named(&|site| self.cluster.site_name(site));
            RemoteError::lasting(format!("{}: {words}", self.cluster.name()))
        })
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
        let words = step.map(|(_, step)| self.cluster.words(step));
        let number = step.map(|(number, _)| number);
        let line = Line { step: words.as_deref(), number, result, ..self.line(order, event) };
        self.write(&line)
    }

    /// From where to where a move goes: before anything is changed, so that who finds the log after
    /// a crash can finish it; and whenever that was tried in vain, so that the end of the log says
    /// so however long it grows.
    fn note_ends(
        &self,
        order: &Order<'_>,
        event: Event,
        start: &Layout,
        result: &str,
    ) -> Result<(), RemoteError> {
        let (from, goal) = (self.named(start), self.named(order.goal));
        let (from, goal) = (Some(&from), Some(&goal));
        self.write(&Line { from, goal, result, ..self.line(order, event) })
    }

    fn line<'a>(&'a self, order: &Order<'a>, event: Event) -> Line<'a> {
        let Order { who, why, .. } = *order;
        let cluster = self.cluster.name();
        Line {
            cluster,
            who,
            why,
            event,
            step: None,
            number: None,
            from: None,
            goal: None,
            result: "",
        }
    }

    fn write(&self, line: &Line<'_>) -> Result<(), RemoteError> {
        self.audit.note(line).map_err(|error| RemoteError::lasting(error.to_string()))
    }

    /// A layout with the names of its sites.
    fn named(&self, layout: &Layout) -> LayoutState {
        LayoutState::named(layout, &|site| self.cluster.site_name(site))
    }
}

enum Ready<H> {
    Ended(Outcome),
    Act { hold: H, start: Layout },
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

/// Why a walk ended before its goal, and at which step.
enum Halt {
    /// The window closed.
    Closed(Step, String),
    Failed(Option<Step>, String),
}

/// A leader is asked to move so often within the time of a step.
const ASKED_AGAIN: u32 = 4;

/// Elections add steps to a walk, this many for each that was planned.
const STEPS_MORE: usize = 2;

impl<C: Cluster> Run<'_, '_, C> {
    async fn all(&self) -> Result<Outcome, RemoteError> {
        self.mover.note_ends(self.order, Event::Starts, self.start, "")?;
        Ok(self.forward(self.start.clone()).await)
    }

    /// Brings a move to its end that was cut off, or back to where it began.
    async fn finish(&self) -> Result<Outcome, RemoteError> {
        let (cluster, start, goal) = (self.mover.cluster, self.start, self.order.goal);
        let seen = self.seen_within().await?;
        let now = &seen.layout;
        if cluster.is_reached(now, goal) {
            self.mover.note(self.order, Event::Reached, None, "")?;
            return Ok(Outcome::Reached(Vec::new()));
        }
        let is_back = has_members(now, start);
        if is_back || !is_between(now, start, goal) {
            let why = if is_back { "is where it began" } else { "was changed by somebody else" };
            let words = format!("it was cut off, and the cluster {why}");
            self.mover.note(self.order, Event::Stopped, None, &words)?;
            return Ok(Outcome::Nothing);
        }
        let ill = |site: &usize| Some((*site, seen.is_well(*site, u64::MAX).err()?));
        Ok(match now.replicas().iter().find_map(ill) {
            None => self.forward(now.clone()).await,
            Some((site, why)) => {
                let site = cluster.site_name(site);
                let why = format!("it was cut off, and {site} is not well: {why}");
                self.take_back(Stop::new(Vec::new(), None, why)).await
            }
        })
    }

    async fn forward(&self, mut layout: Layout) -> Outcome {
        let mut done = Vec::new();
        let walked = self.walk(&mut layout, &mut done, self.order.goal, Until::AllWell).await;
        match walked {
            Ok(()) => {
                let _ = self.mover.note(self.order, Event::Reached, None, "");
                Outcome::Reached(done)
            }
            Err(Halt::Closed(at, why)) => {
                let mut stop = Stop::new(done, Some(at), why);
                stop.stuck = Some("what was done stays until it opens".to_owned());
                stop.layout = Some(layout);
                self.stopped(stop)
            }
            Err(Halt::Failed(at, why)) => self.take_back(Stop::new(done, at, why)).await,
        }
    }

    /// Goes to a layout, one step after another, each planned for what is seen then.
    async fn walk(
        &self,
        layout: &mut Layout,
        done: &mut Vec<Step>,
        goal: &Layout,
        until: Until,
    ) -> Result<(), Halt> {
        let mover = self.mover;
        let (begins, ends) = match until {
            Until::AllWell => (Event::Begins, Event::Done),
            Until::Quorum => (Event::TakesBack, Event::TakenBack),
        };
        let failed = |error: RemoteError| Halt::Failed(None, error.message);
        let planned = self.steps(layout, goal).map_err(failed)?.len();
        for _ in 0..=(1 + STEPS_MORE) * planned {
            let Some(step) = self.steps(layout, goal).map_err(failed)?.first().copied() else {
                return Ok(());
            };
            let number = Some((done.len() + 1, step));
            // Going back matters more than hours, and more than writing it down.
            let begun = match until {
                Until::AllWell => {
                    let closed = |error: RemoteError| Halt::Closed(step, error.message);
                    mover.check_window().map_err(closed)?;
                    mover.note(self.order, begins, number, "")
                }
                Until::Quorum => {
                    let _ = mover.note(self.order, begins, number, "");
                    Ok(())
                }
            };
            let result = match begun {
                Ok(()) => self.do_one(step, layout, until).await,
                Err(error) => Err(error),
            };
            let next = result.map_err(|error| {
                let _ = mover.note(self.order, Event::Failed, number, &error.message);
                Halt::Failed(Some(step), error.message)
            })?;
            if step.moves_leader() || !has_members(&next, layout) {
                done.push(step);
                // It is done, whether or not it can be written down.
                let _ = mover.note(self.order, ends, number, "");
            }
            *layout = next;
        }
        Err(Halt::Failed(None, "others change it all the time".to_owned()))
    }

    /// The steps to a layout. A leader that nobody can move stays where an election put it, if it
    /// may vote there.
    fn steps(&self, now: &Layout, goal: &Layout) -> Result<Vec<Step>, RemoteError> {
        let led = (!self.mover.cluster.abilities().move_leader).then(|| goal.led_by(now.leader()));
        self.mover.steps(now, led.and_then(Result::ok).as_ref().unwrap_or(goal))
    }

    /// Does a step and waits until it is seen; the layout after it, which is the one before it when
    /// an election made the step another one.
    async fn do_one(
        &self,
        step: Step,
        before: &Layout,
        until: Until,
    ) -> Result<Layout, RemoteError> {
        let cluster = self.mover.cluster;
        let misfit = |Misfit { step }| {
            let words = cluster.words(step);
            RemoteError::lasting(format!("\"{words}\" does not fit (has it changed meanwhile?)"))
        };
        let wanted = step.after(before).map_err(misfit)?;
        let ends = Instant::now() + self.mover.rules.step;
        let mut asked: Option<Instant> = None;
        loop {
            let why = match cluster.observe().await {
                Ok(seen) if self.is_done(step, &seen.layout, &wanted) => {
                    match self.lacks(&seen, step, until) {
                        None => return Ok(seen.layout),
                        Some(why) => why,
                    }
                }
                Ok(seen) if is_before(step, &seen.layout, before) => {
                    // The leader may be another one by now.
                    let step = step.led_by(seen.layout.leader());
                    match (step.after(&seen.layout), asked) {
                        (Err(_), None) if !step.moves_leader() => return Ok(seen.layout),
                        (Ok(after), asked_at) if self.may_ask(step, asked_at) => {
                            match self.ask(step, &seen, &after, until).await {
                                Ok(()) => {
                                    asked = Some(Instant::now());
                                    continue;
                                }
                                Err(error) if !error.may_pass => return Err(error),
                                Err(error) => error.message,
                            }
                        }
                        _ => "it was accepted and is not seen".to_owned(),
                    }
                }
                Ok(seen) => {
                    let seen = self.mover.named(&seen.layout);
                    format!("the layout is another than expected: {seen}")
                }
                Err(error) => error.message,
            };
            if Instant::now() + self.mover.rules.poll >= ends {
                let within = self.mover.rules.step;
                return Err(RemoteError::lasting(format!("not done within {within:?}: {why}")));
            }
            cluster.keep(self.hold).await?;
            tokio::time::sleep(self.mover.rules.poll).await;
        }
    }

    /// Whether what a step changes is seen, whoever leads.
    fn is_done(&self, step: Step, seen: &Layout, wanted: &Layout) -> bool {
        let led = (!step.moves_leader()).then(|| wanted.led_by(seen.leader()).ok()).flatten();
        self.mover.cluster.is_reached(seen, led.as_ref().unwrap_or(wanted))
    }

    /// What was accepted is not asked for twice, since it may only need time to be seen; but a
    /// leader may have bounced back.
    fn may_ask(&self, step: Step, asked: Option<Instant>) -> bool {
        let patience = self.mover.rules.step / ASKED_AGAIN;
        asked.is_none_or(|at| step.moves_leader() && at.elapsed() >= patience)
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
    async fn take_back(&self, mut stop: Stop) -> Outcome {
        if let Some(why) = self.go_back(&mut stop).await {
            stop.stuck = Some(format!("and could not go back: {why}"));
        }
        self.stopped(stop)
    }

    /// Goes back; or says why it could not.
    async fn go_back(&self, stop: &mut Stop) -> Option<String> {
        let seen = match self.seen_within().await {
            Ok(seen) => seen,
            Err(error) => return Some(error.message),
        };
        let mut layout = seen.layout;
        let walked = self.walk(&mut layout, &mut stop.back, self.start, Until::Quorum).await;
        let leader = layout.leader();
        stop.layout = Some(layout);
        if let Err(Halt::Failed(_, why) | Halt::Closed(_, why)) = walked {
            return Some(why);
        }
        stop.elected = Some(leader).filter(|leader| *leader != self.start.leader());
        None
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

    fn stopped(&self, mut stop: Stop) -> Outcome {
        stop.words = self.words(&stop);
        // The caller is told as well.
        let _ = match stop.stuck {
            None => self.mover.note(self.order, Event::Stopped, None, &stop.words),
            Some(_) => self.mover.note_ends(self.order, Event::Unfinished, self.start, &stop.words),
        };
        Outcome::Stopped(Box::new(stop))
    }

    fn words(&self, stop: &Stop) -> String {
        let cluster = self.mover.cluster;
        let at = stop.at.map_or_else(String::new, |at| {
            format!(" at step {} ({})", stop.done.len() + 1, cluster.words(at))
        });
        let ended = match (&stop.stuck, &stop.layout, stop.elected) {
            (None, _, None) => "the cluster is where it began".to_owned(),
            (None, _, Some(site)) => format!(
                "the cluster is where it began, but an election made {} the leader",
                cluster.site_name(site)
            ),
            (Some(stuck), Some(layout), _) => format!("{stuck}; {}", self.mover.named(layout)),
            (Some(stuck), None, _) => format!("{stuck}; the cluster could not be seen"),
        };
        format!("stopped{at}: {}; {ended}", stop.why)
    }
}

/// Whether two layouts have the same voters and replicas.
fn has_members(one: &Layout, other: &Layout) -> bool {
    one.voters() == other.voters() && one.replicas() == other.replicas()
}

/// Whether a step is still to come. A leader's move changes no replica, whoever leads meanwhile;
/// who votes some stores choose themselves.
fn is_before(step: Step, seen: &Layout, before: &Layout) -> bool {
    match step.moves_leader() {
        true => seen.replicas() == before.replicas(),
        false => has_members(seen, before),
    }
}

/// Whether a layout may be half a move: what both ends have it has, and nothing that neither has,
/// nor fewer voters than either.
fn is_between(now: &Layout, start: &Layout, goal: &Layout) -> bool {
    let within = |now: &[usize], one: &[usize], other: &[usize]| {
        now.iter().all(|site| one.contains(site) || other.contains(site))
            && one.iter().all(|site| now.contains(site) || !other.contains(site))
    };
    let least = start.voters().len().min(goal.voters().len());
    now.voters().len() >= least
        && within(now.voters(), start.voters(), goal.voters())
        && within(now.replicas(), start.replicas(), goal.replicas())
}
