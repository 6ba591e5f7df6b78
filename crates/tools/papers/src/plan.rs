//! Experiments, unfolded into runs.

use core::ops::Range;

use evenkeel_settings::{Mismatch, Node, Place, Problem, Problems};

use crate::bill;
use crate::claims::{Axis, Claims, Experiment};
use crate::reference::Reference;
use crate::{Choice, Options, Paper};
use evenkeel_sim::duplicates::{Deployment, DuplicatesScenario};
use evenkeel_sim::placement::day::Day;
use evenkeel_sim::placement::input::DayScenario;
use evenkeel_sim::report::RunReport;
use evenkeel_sim::scenario::Scenario;

/// One run.
#[derive(Clone, Debug)]
pub struct Job {
    setting: usize,
    /// The policy, as a scenario names it.
    pub policy: String,
    /// The seed.
    pub seed: u64,
}

/// The runs that a paper's claims take.
#[derive(Debug)]
pub struct Plan {
    pub(crate) name: &'static str,
    pub(crate) claims: Claims,
    pub(crate) seeds: Vec<u64>,
    pub(crate) quick: bool,
    /// Whether a part of the paper was left out.
    pub(crate) partial: bool,
    pub(crate) grids: Vec<Grid>,
    pub(crate) reference: Option<Reference>,
    settings: Vec<Subject>,
    jobs: Vec<Job>,
}

/// What runs are of.
#[derive(Debug)]
enum Subject {
    /// Requests in a simulated world.
    World(Box<Scenario>),
    /// A bill of `evenkeel plan capacity`.
    Bill(Node),
    /// A day of a fleet of databases.
    Day(Box<Day>),
    /// Duplicated stores.
    Duplicates(Box<Deployment>),
}

/// The settings of one experiment.
#[derive(Debug)]
pub(crate) struct Grid {
    /// The values along the axis that are visited.
    pub(crate) points: Vec<String>,
    pub(crate) panels: Vec<Panel>,
    /// Index of the first setting; they follow panel by panel, point by point.
    first_setting: usize,
    /// Index of the first job; they follow setting by setting, policy by policy, seed by seed.
    first_job: usize,
    policies: usize,
    seeds: usize,
}

/// One panel of an experiment's figure.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) label: String,
    /// What is the same in the whole panel, as claims name it.
    pub(crate) assignments: Vec<String>,
    /// What is set for it, as `path=value`.
    sets: Vec<String>,
}

impl Grid {
    fn setting(&self, panel: usize, point: usize) -> usize {
        self.first_setting + panel * self.points.len() + point
    }

    /// Whether nothing of it is run.
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty() || self.panels.is_empty()
    }

    /// Panel and point of every setting, in order.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (usize, usize)> {
        let points = self.points.len();
        (0..self.panels.len()).flat_map(move |panel| (0..points).map(move |point| (panel, point)))
    }

    /// The jobs of one policy in one setting, by seed.
    pub(crate) fn jobs(&self, panel: usize, point: usize, policy: usize) -> Range<usize> {
        let setting = panel * self.points.len() + point;
        let first = self.first_job + (setting * self.policies + policy) * self.seeds;
        first..first + self.seeds
    }
}

impl Plan {
    pub(crate) fn new(paper: &Paper, claims: Claims, options: &Options) -> Result<Self, Problems> {
        let mut plan = Self {
            name: paper.name,
            claims,
            seeds: options.seeds.clone(),
            quick: options.quick,
            partial: options.choice != Choice::default(),
            grids: Vec::new(),
            reference: None,
            settings: Vec::new(),
            jobs: Vec::new(),
        };
        for experiment in plan.claims.experiments.clone() {
            plan.lay_out(paper, &experiment)?;
        }
        if let Some((file, text)) = &options.reference {
            plan.lay_out_reference(paper, file, text)?;
        }
        Ok(plan)
    }

    /// The runs, in an order that never changes. The answer of [`Plan::run`] for each of them, in
    /// this order, is what [`Plan::judge`] takes.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Runs one of the jobs.
    pub fn run(&self, job: &Job) -> RunReport {
        match &self.settings[job.setting] {
            Subject::World(scenario) => evenkeel_sim::world::run(scenario, &job.policy, job.seed),
            Subject::Bill(bill) => bill::run(bill, &job.policy, job.seed),
            Subject::Day(day) => RunReport::of_day(day, &job.policy, job.seed),
            Subject::Duplicates(deployment) => {
                RunReport::of_duplicates(deployment, &job.policy, job.seed)
            }
        }
    }

    /// Requests that a job simulates: how much work it is. None where it simulates something else.
    pub fn requests(&self, job: &Job) -> u64 {
        match &self.settings[job.setting] {
            Subject::World(scenario) => scenario.workload.requests,
            Subject::Duplicates(deployment) => deployment.workload.accesses,
            Subject::Bill(_) | Subject::Day(_) => 0,
        }
    }

    /// The scenario of one setting of an experiment; none where no world is simulated.
    pub(crate) fn scenario(
        &self,
        experiment: usize,
        panel: usize,
        point: usize,
    ) -> Option<&Scenario> {
        match &self.settings[self.grids[experiment].setting(panel, point)] {
            Subject::World(scenario) => Some(scenario),
            Subject::Bill(_) | Subject::Day(_) | Subject::Duplicates(_) => None,
        }
    }

    fn lay_out(&mut self, paper: &Paper, experiment: &Experiment) -> Result<(), Problems> {
        let grid = Grid {
            points: experiment.axis.visited(self.quick).to_vec(),
            panels: panels(&experiment.panels, self.quick),
            first_setting: self.settings.len(),
            first_job: self.jobs.len(),
            policies: experiment.policies.len(),
            seeds: self.seeds.len(),
        };
        for panel in &grid.panels {
            for point in &grid.points {
                let varied = panel.sets.iter().chain(experiment.axis.sets(point));
                let sets = experiment.set.iter().chain(varied);
                let subject = self.setting(paper, experiment, sets)?;
                self.add(subject, &experiment.policies, experiment.seeds_after);
            }
        }
        self.grids.push(grid);
        Ok(())
    }

    fn setting<'a>(
        &self,
        paper: &Paper,
        experiment: &Experiment,
        sets: impl Iterator<Item = &'a String>,
    ) -> Result<Subject, Problems> {
        let mut node = scenario_of(paper, &experiment.scenario)?;
        for set in sets {
            node.set(set)?;
        }
        for set in experiment.quick_set.iter().filter(|_| self.quick) {
            node.set(set)?;
        }
        if experiment.is_bill {
            bill::check(&node, &experiment.policies)?;
            return Ok(Subject::Bill(node));
        }
        set_policies(&mut node, &experiment.policies)?;
        if DayScenario::is_meant(&node) {
            return Ok(Subject::Day(Box::new(DayScenario::read(&node)?.day)));
        }
        if DuplicatesScenario::is_meant(&node) {
            let deployment = DuplicatesScenario::read(&node)?.deployment;
            return Ok(Subject::Duplicates(Box::new(deployment)));
        }
        let mut scenario = Scenario::read(&node)?;
        if let Some(requests) = experiment.requests {
            let length = experiment.length_min(scenario.fluctuation.interval).as_secs_f64();
            let requests = requests.max((length * scenario.rate()).ceil() as u64);
            scenario.workload.requests = if self.quick { requests.div_ceil(2) } else { requests };
        }
        Ok(Subject::World(Box::new(scenario)))
    }

    fn lay_out_reference(&mut self, paper: &Paper, file: &str, text: &str) -> Result<(), Problems> {
        let Some(source) = paper.reference else { return Ok(()) };
        let mut reference = (source.read)(file, text)?;
        for group in &mut reference.groups {
            let Some(policy) = group.policy.clone() else { continue };
            let mut node = scenario_of(paper, group.scenario)?;
            for set in &group.sets {
                node.set(set)?;
            }
            let policies = [policy];
            set_policies(&mut node, &policies)?;
            let first = self.jobs.len();
            self.add(Subject::World(Box::new(Scenario::read(&node)?)), &policies, 0);
            group.jobs = Some(first..self.jobs.len());
        }
        self.reference = Some(reference);
        Ok(())
    }

    fn add(&mut self, subject: Subject, policies: &[String], seeds_after: u64) {
        let setting = self.settings.len();
        for policy in policies {
            let job =
                |seed: &u64| Job { setting, policy: policy.clone(), seed: seed + seeds_after };
            self.jobs.extend(self.seeds.iter().map(job));
        }
        self.settings.push(subject);
    }
}

fn scenario_of(paper: &Paper, name: &str) -> Result<Node, Problems> {
    let Some(text) = paper.scenario(name) else {
        let known: Vec<_> = paper.scenarios.iter().map(|(known, _)| *known).collect();
        let what = Mismatch::new(format!("the scenario {name:?}"), known.join(" or "));
        let at = Place::whole(&format!("papers/{}/claims.toml", paper.name));
        return Err(Problem { at, path: "experiments".to_owned(), what }.into());
    };
    Node::parse(text, &format!("{name}.toml"))
}

/// The scenario's own list of policies gives way to the experiment's, which is checked like it.
fn set_policies(node: &mut Node, policies: &[String]) -> Result<(), Problem> {
    node.set(&format!("run.policies={policies:?}"))
}

/// Every combination of the values of all axes, the last axis fastest.
fn panels(axes: &[Axis], quick: bool) -> Vec<Panel> {
    let mut panels = vec![Panel { label: String::new(), assignments: vec![], sets: vec![] }];
    for axis in axes {
        let with = |panel: &Panel, value: &String| {
            let mut assignments = panel.assignments.clone();
            assignments.push(axis.assignment(value));
            let sets = panel.sets.iter().chain(axis.sets(value)).cloned().collect();
            let comma = if panel.label.is_empty() { "" } else { ", " };
            let value = format!("{} {value}", axis.label);
            let label = format!("{}{comma}{}", panel.label, value.trim_start());
            Panel { label, assignments, sets }
        };
        panels = panels
            .iter()
            .flat_map(|panel| axis.visited(quick).iter().map(|value| with(panel, value)))
            .collect();
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_are_every_combination() {
        let axis = |path: &str, values: [&str; 2]| Axis {
            path: path.to_owned(),
            label: path.to_owned(),
            values: values.map(str::to_owned).to_vec(),
            quick: vec![values[1].to_owned()],
            sets: values.map(|value| vec![format!("{path}={value}")]).to_vec(),
        };
        let axes = [axis("a", ["1", "2"]), axis("b", ["3", "4"])];
        let labels = |quick| -> Vec<String> {
            panels(&axes, quick).into_iter().map(|panel| panel.label).collect()
        };
        assert_eq!(labels(false), ["a 1, b 3", "a 1, b 4", "a 2, b 3", "a 2, b 4"]);
        assert_eq!(labels(true), ["a 2, b 4"]);
        let second = &panels(&axes, false)[1];
        assert_eq!(
            (&second.assignments, &second.sets),
            (&vec!["a=1".into(), "b=4".into()], &second.assignments)
        );
        assert_eq!(panels(&[], false).len(), 1);
    }
}
