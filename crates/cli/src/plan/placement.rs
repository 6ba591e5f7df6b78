//! `evenkeel plan placement`: where leader, voters and replicas should be.

mod page;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use cpu_time::ProcessTime;
use evenkeel_core::placement::domains::{Diversity, Domains as DomainMap, VoterRule};
use evenkeel_core::placement::history::{History, Interval};
use evenkeel_core::placement::model::{Counts, Layout, Route};
use evenkeel_core::placement::replicas::{DomainLimits, Method, Question, place};
use evenkeel_core::placement::score::Score;
use evenkeel_core::placement::{leader, voters};
use evenkeel_net::placement::act::statements::{Subject, System, statements};
use evenkeel_settings::placement::{Input, Size, load_domains};
use serde::Serialize;

use crate::terminal::Table;

/// Say where leader, voters and replicas should be.
///
/// INPUT is an instance in JSON, a TOML file that names tables of round trips and operations beside
/// it, or a folder with rtt.csv, counts.csv and perhaps domains.csv. Tier 1 chooses the leader
/// among the voters of today, tier 2 leader and voters among the replicas of today, tier 3
/// everything. Formats: docs/plan-placement.md.
///
/// Example: evenkeel plan placement plans/placement-follow-the-sun.toml --worth 9
#[derive(Debug, clap::Args)]
pub(crate) struct PlacementArguments {
    /// The file or folder.
    input: PathBuf,
    /// What may change: 1 the leader, 2 the voters too, 3 the replicas too.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    tier: u8,
    /// How tier 3 searches: with proof, by swaps, or by the paper's heuristics (best is the better
    /// of kq and qk).
    #[arg(long, default_value = "exact", value_parser = method)]
    method: Method,
    /// Which replica reads go to: the nearest, or for bounded reads the one with the shortest way
    /// over it to the leader.
    #[arg(long, default_value = "nearest", value_parser = route)]
    route: Route,
    /// How many replicas, instead of what INPUT says.
    #[arg(long)]
    replicas: Option<usize>,
    /// How many voters, instead of what INPUT says.
    #[arg(long)]
    voters: Option<usize>,
    /// CSV with columns site and domain, instead of what INPUT says.
    #[arg(long, value_name = "FILE")]
    failure_domains: Option<PathBuf>,
    /// Voters are in at least so many domains; without it, in as many as today's.
    #[arg(long, value_name = "N")]
    voter_domains: Option<usize>,
    /// Also place every number of replicas up to this: what is a further one worth?
    #[arg(long, value_name = "N")]
    worth: Option<usize>,
    /// Nodes that the exact search examines at most.
    #[arg(long, default_value_t = Question::NODES_MAX)]
    nodes: u64,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Print instead what an administrator types for the first result: cockroachdb, yugabytedb or
    /// tidb. Sites are named by their region, for yugabytedb as cloud.region.zone.
    #[arg(long, value_name = "SYSTEM", conflicts_with = "json", value_parser = System::parse)]
    statements: Option<System>,
    /// The database that --statements place; yugabytedb places all.
    #[arg(long, value_name = "NAME", requires = "statements")]
    database: Option<String>,
    /// With --statements tidb: a table that is there already; again for each.
    #[arg(long = "table", value_name = "NAME", requires = "statements")]
    tables: Vec<String>,
    /// With --statements yugabytedb: its masters, host:port,host:port,...
    #[arg(long, value_name = "LIST", requires = "statements")]
    masters: Option<String>,
    /// Write a page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn method(name: &str) -> Result<Method, String> {
    let found = Method::ALL.into_iter().find(|method| method.name() == name);
    let known = Method::ALL.map(Method::name).join(", ");
    found.ok_or_else(|| format!("came {name}, expected one of {known}"))
}

fn route(name: &str) -> Result<Route, String> {
    match name {
        "nearest" => Ok(Route::Nearest),
        "bestpath" => Ok(Route::BestPath),
        _ => Err(format!("came {name}, expected nearest or bestpath")),
    }
}

/// One layout, as `--json` prints it. Sites are numbers, from 0.
#[derive(Clone, Debug, Serialize)]
struct Line {
    num_replicas: usize,
    num_voters: usize,
    /// Milliseconds × operations, by equation 1 or 2.
    score: f64,
    mean_ms: f64,
    leader: usize,
    voters: Vec<usize>,
    replicas: Vec<usize>,
    proven: bool,
    gap: f64,
    nodes: u64,
    cpu_ms: f64,
    #[serde(skip)]
    layout: Layout,
}

#[derive(Serialize)]
struct Document<'a> {
    title: &'a str,
    tier: u8,
    route: &'static str,
    sites: &'a [String],
    operations: f64,
    today: Option<&'a Line>,
    results: &'a [Line],
    worth: &'a [Line],
}

/// An input and what was asked of it.
struct Plan<'a> {
    arguments: &'a PlacementArguments,
    input: Input,
    title: String,
    history: History,
    counts: Counts,
}

pub(crate) fn run(arguments: &PlacementArguments) -> anyhow::Result<ExitCode> {
    let plan = Plan::load(arguments)?;
    let results = match arguments.tier {
        3 => plan.tier3()?,
        tier => plan.ranked(tier)?,
    };
    let worth = plan.worth()?;
    let today = plan.input.today.as_ref().map(|layout| plan.line(layout, None, 0, 0.0));
    if let Some(file) = &arguments.html {
        let page = page::page(&plan, today.as_ref(), &results, &worth);
        std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("page written to {}", file.display());
    }
    if let Some(system) = arguments.statements {
        print!("{}", plan.statements(system, &results)?);
    } else if arguments.json {
        let document = Document {
            title: &plan.title,
            tier: arguments.tier,
            route: if arguments.route == Route::Nearest { "nearest" } else { "bestpath" },
            sites: &plan.input.sites,
            operations: plan.counts.total(),
            today: today.as_ref(),
            results: &results,
            worth: &worth,
        };
        println!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        print!("{}", plan.told(today.as_ref(), &results, &worth));
    }
    Ok(ExitCode::SUCCESS)
}

impl<'a> Plan<'a> {
    fn load(arguments: &'a PlacementArguments) -> anyhow::Result<Self> {
        let mut input = Input::load(&arguments.input)?;
        if let Some(file) = &arguments.failure_domains {
            input.domains = Some(load_domains(file, &input.sites)?);
        }
        if let Some(least) = arguments.voter_domains {
            anyhow::ensure!(
                input.domains.is_some(),
                "--voter-domains {least}: came no failure domains, expected --failure-domains FILE"
            );
            input.voter_domains = Some(least);
        }
        let of = |which: fn(&Size) -> usize| input.sizes.first().map(which);
        if arguments.replicas.is_some() || arguments.voters.is_some() {
            let replicas = arguments.replicas.or(of(|size| size.replicas));
            let voters = arguments.voters.or(of(|size| size.voters));
            input.sizes = replicas
                .zip(voters)
                .map(|(replicas, voters)| Size { replicas, voters })
                .into_iter()
                .collect();
        }
        let title = input.title.clone().unwrap_or_else(|| arguments.input.display().to_string());
        let mut history = History::new(input.tau, input.intervals.len().max(1))?;
        let trips = Arc::new(input.trips.clone());
        for counts in &input.intervals {
            history.push(Interval::new(counts.clone(), Arc::clone(&trips))?)?;
        }
        let counts = history.faded();
        let no_work = "came no operation, expected some counts above 0";
        anyhow::ensure!(counts.total() > 0.0, "{}: {no_work}", arguments.input.display());
        Ok(Self { arguments, input, title, history, counts })
    }

    /// The line of a layout; its bound when one is known.
    fn line(&self, layout: &Layout, bound: Option<f64>, nodes: u64, cpu_ms: f64) -> Line {
        let score = Score::of(&self.counts, &self.input.trips, layout, self.arguments.route);
        let score = score.total_ms();
        let bound = bound.unwrap_or(score);
        let gap = if score > 0.0 { ((score - bound) / score).max(0.0) } else { 0.0 };
        Line {
            num_replicas: layout.replicas().len(),
            num_voters: layout.voters().len(),
            score,
            mean_ms: score / self.counts.total(),
            leader: layout.leader(),
            voters: layout.voters().to_vec(),
            replicas: layout.replicas().to_vec(),
            proven: gap <= 1e-10,
            gap,
            nodes,
            cpu_ms,
            layout: layout.clone(),
        }
    }

    /// Domains by number, in the order of their first site.
    fn domain_numbers(&self) -> Option<Vec<usize>> {
        let names = self.input.domains.as_ref()?;
        let number = |name| names.iter().position(|other| other == name).unwrap_or(0);
        Some(names.iter().map(number).collect())
    }

    /// The domains that the voters of today are in.
    fn spread_today(&self, numbers: &[usize]) -> usize {
        let voters = self.input.today.as_ref().map_or(&[][..], |today| today.voters());
        voters.iter().map(|&voter| numbers[voter]).collect::<BTreeSet<_>>().len()
    }

    fn question(&self, size: Size) -> Question {
        let domains = self.domain_numbers().map(|of| {
            let today = self.spread_today(&of).min(size.voters);
            let voters_min = self.input.voter_domains.unwrap_or(today);
            DomainLimits { of, voters_min, replicas_max: self.input.domain_replicas_max }
        });
        Question {
            method: self.arguments.method,
            nodes_max: self.arguments.nodes,
            sites: self.input.rules.clone(),
            domains,
            ..Question::new(size.replicas, size.voters, self.arguments.route)
        }
    }

    fn placed(&self, size: Size) -> anyhow::Result<Line> {
        let begin = ProcessTime::now();
        let placed = place(&self.counts, &self.input.trips, &self.question(size))
            .map_err(|error| anyhow::anyhow!("{}: {error}", self.arguments.input.display()))?;
        let cpu_ms = begin.elapsed().as_secs_f64() * 1e3;
        Ok(self.line(&placed.layout, Some(placed.lower_bound_ms), placed.nodes, cpu_ms))
    }

    fn tier3(&self) -> anyhow::Result<Vec<Line>> {
        anyhow::ensure!(
            !self.input.sizes.is_empty(),
            "{}: came no number of replicas and voters, expected them in the file, from a layout \
             of today, or --replicas N --voters N",
            self.arguments.input.display()
        );
        self.input.sizes.iter().map(|&size| self.placed(size)).collect()
    }

    /// Tiers 1 and 2: the three best.
    fn ranked(&self, tier: u8) -> anyhow::Result<Vec<Line>> {
        let file = self.arguments.input.display();
        let today = self.input.today.as_ref().with_context(|| {
            format!(
                "{file}: came no layout of today, expected [today] in a TOML file for tier {tier}"
            )
        })?;
        let begin = ProcessTime::now();
        let past = self.history.past(0).context("no operation counts any more")?;
        let route = self.arguments.route;
        let ranked = if tier == 1 {
            leader::rank(&past, today, route)
        } else {
            let sites = self.input.sites.len();
            let numbers = self.domain_numbers();
            let spread = numbers.as_ref().map_or(1, |of| self.spread_today(of));
            let domains = numbers.map_or_else(|| DomainMap::each_its_own(sites), DomainMap::new);
            let domains_min = self.input.voter_domains.unwrap_or(spread);
            let per_domain_max = self.input.domain_replicas_max.unwrap_or(usize::MAX);
            let count = self.arguments.voters.unwrap_or(today.voters().len());
            let diversity = Diversity { domains_min, per_domain_max };
            let rule = VoterRule { count, domains: &domains, diversity };
            voters::rank(&past, today.replicas(), &rule, route, today.voters())
                .map_err(|error| anyhow::anyhow!("{file}: {error}"))?
        };
        let cpu_ms = begin.elapsed().as_secs_f64() * 1e3;
        // All of them are ranked, so the first bounds the others.
        let bound = ranked.first().map(|best| self.line(&best.layout, None, 0, 0.0).score);
        let line = |one: &leader::Ranked| self.line(&one.layout, bound, 0, cpu_ms);
        Ok(ranked.iter().take(3).map(line).collect())
    }

    fn worth(&self) -> anyhow::Result<Vec<Line>> {
        let Some(most) = self.arguments.worth else { return Ok(Vec::new()) };
        let voters = self.input.sizes.first().map_or(1, |size| size.voters);
        let sizes = (voters..=most).map(|replicas| Size { replicas, voters });
        sizes.map(|size| self.placed(size)).collect()
    }

    fn statements(&self, system: System, results: &[Line]) -> anyhow::Result<String> {
        let best = results.first().context("there is no result")?;
        let database = self.arguments.database.as_deref();
        anyhow::ensure!(
            database.is_some() || system == System::YugabyteDb,
            "--statements {}: came no database, expected --database NAME",
            system.name()
        );
        let subject = Subject {
            database: database.unwrap_or_default(),
            tables: &self.arguments.tables,
            masters: self.arguments.masters.as_deref().unwrap_or_default(),
        };
        let lines = statements(system, &best.layout, &self.input.sites, &subject)
            .map_err(|error| anyhow::anyhow!("--statements {}: {error}", system.name()))?;
        Ok(lines.join("\n") + "\n")
    }

    fn names(&self, sites: &[usize]) -> String {
        let names: Vec<&str> = sites.iter().map(|&site| &*self.input.sites[site]).collect();
        names.join(", ")
    }

    fn table(&self, lines: &[Line]) -> Table {
        let header = ["replicas", "voters", "mean", "leader", "votes", "further replicas", "proof"];
        let mut table = Table::new(&header);
        for line in lines {
            let others: Vec<usize> =
                line.replicas.iter().copied().filter(|site| !line.voters.contains(site)).collect();
            table.row([
                line.num_replicas.to_string(),
                line.num_voters.to_string(),
                format!("{:.2} ms", line.mean_ms),
                self.input.sites[line.leader].clone(),
                self.names(&line.voters),
                self.names(&others),
                proof(line),
            ]);
        }
        table
    }

    fn told(&self, today: Option<&Line>, results: &[Line], worth: &[Line]) -> String {
        let mut text = self.table(results).to_string();
        if let (Some(today), Some(best)) = (today, results.first()) {
            text += &format!("\n{}\n", self.moves(today, best));
        }
        if self.arguments.tier < 3 && results.len() > 1 {
            let over = |line: &Line| 100.0 * (line.mean_ms / results[0].mean_ms - 1.0);
            let others = results[1..]
                .iter()
                .map(|line| format!("{} +{:.2} %", self.input.sites[line.leader], over(line)));
            text += &format!("next best: {}\n", others.collect::<Vec<_>>().join(", "));
        }
        if !worth.is_empty() {
            text += "\nwhat a further replica is worth:\n";
            for (place, line) in worth.iter().enumerate() {
                let gain = place.checked_sub(1).map(|before| worth[before].mean_ms - line.mean_ms);
                let gain = gain.map_or(String::new(), |gain| format!(", {gain:.2} ms less"));
                text += &format!("{:>4}  {:.2} ms{gain}\n", line.num_replicas, line.mean_ms);
            }
        }
        text
    }

    /// What to move, and what it gains.
    fn moves(&self, today: &Line, best: &Line) -> String {
        let mut moves = Vec::new();
        let beside = |these: &[usize], those: &[usize]| {
            these.iter().copied().filter(|site| !those.contains(site)).collect::<Vec<_>>()
        };
        for (word, sites) in [
            ("add replicas at", beside(&best.replicas, &today.replicas)),
            ("let vote", beside(&best.voters, &today.voters)),
            ("let no longer vote", beside(&today.voters, &best.voters)),
            ("remove replicas at", beside(&today.replicas, &best.replicas)),
        ] {
            if !sites.is_empty() {
                moves.push(format!("{word} {}", self.names(&sites)));
            }
        }
        if today.leader != best.leader {
            moves.push(format!("move the leader to {}", self.input.sites[best.leader]));
        }
        let less = 100.0 * (1.0 - best.mean_ms / today.mean_ms);
        let what = if moves.is_empty() { "nothing to move".to_owned() } else { moves.join("; ") };
        format!("{what}: {:.2} ms → {:.2} ms, {less:.1} % less", today.mean_ms, best.mean_ms)
    }
}

fn proof(line: &Line) -> String {
    if line.proven {
        "optimal".to_owned()
    } else {
        format!("at most {:.3} % above the best", 100.0 * line.gap / (1.0 - line.gap).max(1e-9))
    }
}
