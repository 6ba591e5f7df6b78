//! Many databases that share sites: each where it is best, and no site above its capacity.

use std::process::ExitCode;

use evenkeel_planner::capacity::{Assignment, Demand, NoRoom, assign, no_room};
use evenkeel_planner::leader::Ranked;
use evenkeel_settings::placement::{Database, Fleet};

use super::asked::Plan;
use super::fleet_document::{Decided, Document, SiteLoad, rate};
use super::{PlacementArguments, fleet_page};
use crate::jobs::run_all;
use crate::output;
use crate::terminal::Progress;

pub(super) fn run(arguments: &PlacementArguments) -> anyhow::Result<ExitCode> {
    for (flag, is_there) in [
        ("--percentile", arguments.percentile.is_some()),
        ("--worth", arguments.worth.is_some()),
        ("--statements", arguments.statements.is_some()),
    ] {
        let file = arguments.input.display();
        anyhow::ensure!(!is_there, "{file}: {flag} is for one database, got a folder of databases");
    }
    let Fleet { databases, capacities } = Fleet::load(&arguments.input)?;
    let plans = databases.into_iter().map(|Database { name, file, input }| {
        let interval_s = input.interval.map(|interval| interval.as_secs_f64());
        Ok(Member { plan: Plan::new(arguments, input, &file)?, name, interval_s })
    });
    let plans = plans.collect::<anyhow::Result<Vec<Member<'_>>>>()?;
    let best = options(&plans, 1)?;
    let document = match capacities {
        None => document(arguments, &plans, &best, None),
        Some(capacities) => {
            let file = arguments.input.join("capacity.csv").display().to_string();
            let shared = Shared::new(file, &plans, capacities);
            let (options, assigned) = shared.assign(&plans, best)?;
            document(arguments, &plans, &options, Some((&shared, assigned)))
        }
    };
    if let Some(file) = &arguments.html {
        output::page("page", file, &fleet_page::page(&document))?;
    }
    if arguments.json {
        output::json(&document)?;
    } else {
        output::text!("{}", document.describe())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A database with its plan.
struct Member<'a> {
    pub name: String,
    plan: Plan<'a>,
    interval_s: Option<f64>,
}

/// The options of every database: for tier 3 so many, for others all.
fn options(plans: &[Member<'_>], count: usize) -> anyhow::Result<Vec<Vec<Ranked>>> {
    let progress = Progress::new("databases", plans.len());
    let one = |member: &Member<'_>| member.plan.options(&member.plan.past(), count);
    let options = run_all(plans, one, |done| progress.show(done));
    progress.clear();
    options.into_iter().collect()
}

/// Sites of all databases, and what they can take.
struct Shared {
    /// Of errors.
    file: String,
    names: Vec<String>,
    capacities: Vec<f64>,
    /// By database, by its own number: the number here.
    numbers: Vec<Vec<usize>>,
}

impl Shared {
    fn new(file: String, plans: &[Member<'_>], capacities: Vec<(String, f64)>) -> Self {
        let (names, capacities): (Vec<String>, Vec<f64>) = capacities.into_iter().unzip();
        let number = |site: &String| {
            let number = names.iter().position(|name| name == site);
            number.expect("checked: every site has a capacity")
        };
        let numbers = plans.iter().map(|one| one.plan.input.sites.iter().map(number).collect());
        Self { file, numbers: numbers.collect(), names, capacities }
    }

    fn demands(&self, plans: &[Member<'_>], options: &[Vec<Ranked>]) -> Vec<Demand> {
        let one = |((member, options), numbers): ((&Member<'_>, &Vec<Ranked>), &Vec<usize>)| {
            let interval_s = member.interval_s.expect("checked: it was said with capacities");
            let mut demand = Demand::of(&member.plan.past(), options, interval_s);
            demand.load *= member.plan.input.leader_cost;
            demand.options.iter_mut().for_each(|choice| choice.site = numbers[choice.site]);
            demand
        };
        plans.iter().zip(options).zip(&self.numbers).map(one).collect()
    }

    /// Everybody the best if that fits; otherwise all leaders are looked at.
    fn assign(
        &self,
        plans: &[Member<'_>],
        best: Vec<Vec<Ranked>>,
    ) -> anyhow::Result<(Vec<Vec<Ranked>>, Assigned)> {
        let mut options = best;
        let mut demands = self.demands(plans, &options);
        let mut assignment = assign(&demands, &self.capacities)?;
        if !assignment.over.is_empty() {
            options = self::options(plans, usize::MAX)?;
            demands = self.demands(plans, &options);
            self.check_room(plans, &demands)?;
            assignment = assign(&demands, &self.capacities)?;
        }
        if let Some(over) = assignment.over.first() {
            let others = match assignment.over.len() - 1 {
                0 => String::new(),
                others => format!(" and {others} more sites are above theirs"),
            };
            let none =
                if assignment.proven { "nothing fits" } else { "nothing that fits was found" };
            anyhow::bail!(
                "{}: {none}: at best leaders at {} would take {} operations per second, \
                 it can take {}{others} (more capacity, more sites, a higher tier?)",
                self.file,
                self.names[over.site],
                rate(over.load),
                rate(over.capacity)
            );
        }
        let loads = demands.iter().map(|demand| demand.load).collect();
        Ok((options, Assigned { assignment, loads }))
    }

    /// Whether it is plain that nothing fits.
    fn check_room(&self, plans: &[Member<'_>], demands: &[Demand]) -> anyhow::Result<()> {
        match no_room(demands, &self.capacities)? {
            None => Ok(()),
            Some(NoRoom::Database { database, load, capacity_max }) => anyhow::bail!(
                "{}: the leader of {} takes {} operations per second, none of its sites \
                 can take more than {} (more capacity, another site, a lower leader_cost?)",
                self.file,
                plans[database].name,
                rate(load),
                rate(capacity_max)
            ),
            Some(NoRoom::Together { load, capacity }) => anyhow::bail!(
                "{}: leaders of {} databases take {} operations per second together, \
                 their sites can take {} (more capacity, more sites, a higher tier?)",
                self.file,
                plans.len(),
                rate(load),
                rate(capacity)
            ),
        }
    }
}

struct Assigned {
    assignment: Assignment,
    /// By database.
    loads: Vec<f64>,
}

fn document(
    arguments: &PlacementArguments,
    plans: &[Member<'_>],
    options: &[Vec<Ranked>],
    shared: Option<(&Shared, Assigned)>,
) -> Document {
    let mut databases = Vec::with_capacity(plans.len());
    for (place, (member, options)) in plans.iter().zip(options).enumerate() {
        let plan = &member.plan;
        let past = plan.past();
        let chosen = shared.as_ref().map_or(0, |(_, one)| one.assignment.chosen[place]);
        databases.push(Decided {
            name: member.name.clone(),
            sites: plan.input.sites.clone(),
            load_per_s: shared.as_ref().map(|(_, assigned)| assigned.loads[place]),
            today: plan.today(),
            result: plan.line(&past, &options[chosen].layout),
            alone: plan.line(&past, &options[0].layout),
        });
    }
    let capacity = shared
        .as_ref()
        .map_or(Vec::new(), |(shared, assigned)| shared.loads(&databases, &assigned.assignment));
    let gap = shared.map_or(0.0, |(_, Assigned { assignment, .. })| {
        let Assignment { cost, bound, .. } = assignment;
        if cost > 0.0 { (1.0 - bound / cost).max(0.0) } else { 0.0 }
    });
    Document {
        title: arguments.input.display().to_string(),
        tier: arguments.tier,
        route: arguments.route.name(),
        gap: if gap < 1e-9 { 0.0 } else { gap },
        databases,
        capacity,
    }
}

impl Shared {
    fn loads(&self, databases: &[Decided], assignment: &Assignment) -> Vec<SiteLoad> {
        let mut alone = vec![0.0; self.names.len()];
        for (one, numbers) in databases.iter().zip(&self.numbers) {
            alone[numbers[one.alone.leader]] += one.load_per_s.unwrap_or_default();
        }
        let site = |(site, name): (usize, &String)| SiteLoad {
            site: name.clone(),
            capacity_per_s: Some(self.capacities[site]).filter(|capacity| capacity.is_finite()),
            load_per_s: assignment.loads[site],
            leaders: assignment.sites.iter().filter(|at| **at == site).count(),
            alone_per_s: alone[site],
        };
        self.names.iter().enumerate().map(site).collect()
    }
}
