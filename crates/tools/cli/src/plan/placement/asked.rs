//! One database and what was asked of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use cpu_time::ProcessTime;
use evenkeel_placement::act::statements::{Subject, System, statements};
use evenkeel_planner::domains::{Diversity, Domains as DomainMap, VoterRule};
use evenkeel_planner::history::{History, Interval, Past};
use evenkeel_planner::leader::{self, Ranked};
use evenkeel_planner::model::Layout;
use evenkeel_planner::replicas::{DomainLimits, Placed, Question};
use evenkeel_planner::tier3::{self, Ranking};
use evenkeel_planner::{tail, voters};
use evenkeel_settings::placement::{Distributions, Input, Size, load_domains};
use serde::Serialize;

use super::PlacementArguments;
use super::percentile::PercentileReport;

/// How many answers a plan shows: the best, the second, the third.
pub(super) const SHOWN: usize = 3;
/// Nodes of the search for a runner-up, at least, and as a multiple of those for the best.
const NODES_MIN: u64 = 1_000;
const NODES_TIMES: u64 = 4;
/// Gaps up to this are a matter of rounding.
const PROVEN: f64 = 1e-10;

/// One layout, as `--json` prints it. Sites are numbers, from 0.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    pub(super) num_replicas: usize,
    pub(super) num_voters: usize,
    /// Milliseconds × operations, by equation 1 or 2.
    pub(super) score: f64,
    pub(super) mean_ms: f64,
    /// The percentile that was asked for, by its name.
    #[serde(flatten)]
    pub(super) percentile: BTreeMap<String, f64>,
    pub(super) leader: usize,
    pub(super) voters: Vec<usize>,
    pub(super) replicas: Vec<usize>,
    pub(super) proven: bool,
    pub(super) gap: f64,
    pub(super) nodes: u64,
    pub(super) cpu_ms: f64,
    /// Tier 3: the best with other leaders.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) runners_up: Vec<Self>,
    #[serde(skip)]
    pub(super) layout: Layout,
}

impl Line {
    /// The percentile that was asked for.
    pub(super) fn percentile_ms(&self) -> Option<f64> {
        self.percentile.values().next().copied()
    }

    /// What it was ranked by.
    pub(super) fn ranked_ms(&self) -> f64 {
        self.percentile_ms().unwrap_or(self.mean_ms)
    }
}

/// An input and what was asked of it.
pub(super) struct Plan<'a> {
    pub(super) arguments: &'a PlacementArguments,
    pub(super) input: Input,
    pub(super) title: String,
    /// Of errors.
    file: String,
    history: History,
    /// Of percentiles: what distributions were made of, and the step in milliseconds.
    steps: Option<(&'static str, f64)>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        arguments: &'a PlacementArguments,
        mut input: Input,
        path: &Path,
    ) -> anyhow::Result<Self> {
        let file = path.display().to_string();
        if let Some(domains) = &arguments.failure_domains {
            input.domains = Some(load_domains(domains, &input.sites)?);
        }
        if let Some(least) = arguments.voter_domains {
            anyhow::ensure!(
                input.domains.is_some(),
                "--voter-domains {least}: got no failure domains, expected --failure-domains FILE"
            );
            input.voter_domains = Some(least);
        }
        let of = |which: fn(&Size) -> usize| input.sizes.first().map(which);
        if arguments.replicas.is_some() || arguments.voters.is_some() {
            let replicas = arguments.replicas.or(of(|size| size.replicas));
            let voters = arguments.voters.or(of(|size| size.voters));
            let size = replicas.zip(voters).map(|(replicas, voters)| Size { replicas, voters });
            input.sizes = size.into_iter().collect();
        }
        let title = input.title.clone().unwrap_or_else(|| file.clone());
        let mut history = History::new(input.tau, input.intervals.len().max(1))?;
        for (counts, trips) in input.intervals.iter().zip(&input.trips_by_interval) {
            history.push(Interval::new(counts.clone(), Arc::clone(trips))?)?;
        }
        let no_work = "got no operation, expected some counts above 0";
        anyhow::ensure!(history.past(0).is_some(), "{file}: {no_work}");
        let mut steps = None;
        if arguments.percentile.is_some() {
            let constant = || Distributions::constant(&input.trips);
            let distributions = input.distributions.take().unwrap_or_else(constant);
            let tails = distributions.tails();
            let (tails, step_ms) = tails.map_err(|what| anyhow::anyhow!("{file}: {what}"))?;
            history.adopt_tails(Arc::new(tails))?;
            steps = Some((distributions.varying.name(), step_ms));
        }
        Ok(Self { arguments, input, title, file, history, steps })
    }

    pub(super) fn past(&self) -> Past<'_> {
        self.history.past(0).expect("checked: there were operations")
    }

    pub(super) fn percentile_report(&self) -> Option<PercentileReport> {
        let (round_trips, step_ms) = self.steps?;
        let p = self.arguments.percentile.as_ref()?.p().value();
        Some(PercentileReport { p, round_trips, step_ms })
    }

    pub(super) fn today(&self) -> Option<Line> {
        self.input.today.as_ref().map(|today| self.line(&self.past(), today))
    }

    /// The line of a layout, as if nothing were below.
    pub(super) fn line(&self, past: &Past<'_>, layout: &Layout) -> Line {
        let mean_ms = past.mean_ms(layout, self.arguments.route);
        let value = self.arguments.percentile.as_ref().and_then(|percentile| {
            let ms = tail::percentile_ms(past, layout, self.arguments.route, percentile.p())?;
            Some((percentile.key(), ms))
        });
        Line {
            num_replicas: layout.replicas().len(),
            num_voters: layout.voters().len(),
            score: mean_ms * past.operations(),
            mean_ms,
            percentile: value.into_iter().collect(),
            leader: layout.leader(),
            voters: layout.voters().to_vec(),
            replicas: layout.replicas().to_vec(),
            proven: true,
            gap: 0.0,
            nodes: 0,
            cpu_ms: 0.0,
            runners_up: Vec::new(),
            layout: layout.clone(),
        }
    }

    /// Domains by number, in the order of their first site.
    pub(super) fn domain_numbers(&self) -> Option<Vec<usize>> {
        let names = self.input.domains.as_ref()?;
        let number = |name| names.iter().position(|other| other == name).unwrap_or(0);
        Some(names.iter().map(number).collect())
    }

    /// How far so many voters must be spread: as was asked, or as far as those of today are.
    fn diversity(&self, voters: usize) -> Diversity {
        let Some(of) = self.domain_numbers() else { return Diversity::ANY };
        let domains = DomainMap::new(of);
        let today = self.input.today.as_ref().map(|today| domains.level(today.voters()));
        let kept = today.map_or(Diversity::ANY, |today| domains.relaxed(today, voters));
        Diversity {
            domains_min: self.input.voter_domains.unwrap_or(kept.domains_min),
            per_domain_max: self.input.domain_voters_max.unwrap_or(kept.per_domain_max),
        }
    }

    fn ranking<'p>(&self, past: &'p Past<'p>, size: Size) -> anyhow::Result<Ranking<'p>> {
        let Diversity { domains_min, per_domain_max } = self.diversity(size.voters);
        let domains = self.domain_numbers().map(|of| DomainLimits {
            of,
            voters_min: domains_min,
            replicas_max: self.input.domain_replicas_max,
        });
        let question = Question {
            method: self.arguments.method,
            nodes_max: self.arguments.nodes,
            sites: self.input.rules.clone(),
            domains,
            ..Question::new(size.replicas, size.voters, self.arguments.route)
        };
        let ranking = Ranking::new(past, &question, Some(per_domain_max));
        ranking.map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &impl std::fmt::Display) -> anyhow::Error {
        anyhow::anyhow!("{}: {error}", self.file)
    }

    /// The best of tier 3, and the best with other leaders.
    fn placed(&self, size: Size, count: usize) -> anyhow::Result<Line> {
        let past = self.past();
        let mut ranking = self.ranking(&past, size)?;
        let mut placed: Vec<Placed> = Vec::new();
        let mut cpu_ms = Vec::new();
        while placed.len() < count {
            let begin = ProcessTime::now();
            let next = ranking.next().map_err(|error| self.refused(&error))?;
            let Some(next) = next else { break };
            cpu_ms.push(begin.elapsed().as_secs_f64() * 1e3);
            if placed.is_empty() {
                let nodes = next.nodes.saturating_mul(NODES_TIMES).max(NODES_MIN);
                ranking.limit_nodes(nodes.min(self.arguments.nodes));
            }
            placed.push(next);
        }
        tier3::sort(&mut placed);
        let lines = placed.iter().zip(cpu_ms).map(|(placed, cpu_ms)| {
            let (gap, nodes) = (placed.gap(), placed.nodes);
            let gap = if placed.proven { 0.0 } else { gap };
            let line = self.line(&past, &placed.layout);
            Line { proven: gap <= PROVEN, gap, nodes, cpu_ms, ..line }
        });
        let mut lines = lines.collect::<Vec<Line>>().into_iter();
        let best = lines.next().with_context(|| format!("{}: no layout was found", self.file))?;
        Ok(Line { runners_up: lines.collect(), ..best })
    }

    pub(super) fn tier3(&self) -> anyhow::Result<Vec<Line>> {
        let sizes = self.sizes()?;
        let count = if sizes.len() == 1 { SHOWN } else { 1 };
        sizes.iter().map(|&size| self.placed(size, count)).collect()
    }

    fn sizes(&self) -> anyhow::Result<&[Size]> {
        anyhow::ensure!(
            !self.input.sizes.is_empty(),
            "{}: got no number of replicas and voters, expected them in the file, from a layout \
             of today, or --replicas N --voters N",
            self.file
        );
        Ok(&self.input.sizes)
    }

    /// Every leader that a tier allows with its best layout, the best first; of tier 3 as many as
    /// are asked for.
    pub(super) fn options(&self, past: &Past<'_>, count: usize) -> anyhow::Result<Vec<Ranked>> {
        if self.arguments.tier < 3 {
            return self.rank(past, self.arguments.tier);
        }
        let mut ranking = self.ranking(past, self.sizes()?[0])?;
        let mut placed = Vec::new();
        while placed.len() < count
            && let Some(next) = ranking.next().map_err(|error| self.refused(&error))?
        {
            placed.push(next);
        }
        tier3::sort(&mut placed);
        let ranked = |one: Placed| Ranked {
            latency_ms: one.score_ms / past.operations(),
            layout: one.layout,
        };
        Ok(placed.into_iter().map(ranked).collect())
    }

    fn rank(&self, past: &Past<'_>, tier: u8) -> anyhow::Result<Vec<Ranked>> {
        let file = &self.file;
        let today = self.input.today.as_ref().with_context(|| {
            format!(
                "{file}: got no layout of today, expected [today] in a TOML file for tier {tier}"
            )
        })?;
        let route = self.arguments.route;
        let p = self.arguments.percentile.as_ref().map(super::Percentile::p);
        let measured = "distributions are adopted with a percentile";
        if tier == 1 {
            return Ok(match p {
                None => leader::rank(past, today, route),
                Some(p) => tail::rank_leaders(past, today, route, p).context(measured)?,
            });
        }
        let numbers = self.domain_numbers();
        let sites = self.input.sites.len();
        let domains = numbers.map_or_else(|| DomainMap::each_its_own(sites), DomainMap::new);
        let count = self.arguments.voters.unwrap_or(today.voters().len());
        let rule = VoterRule { count, domains: &domains, diversity: self.diversity(count) };
        let (replicas, keep) = (today.replicas(), today.voters());
        let ranked = match p {
            None => voters::rank(past, replicas, &rule, route, keep),
            Some(p) => {
                let ranked = tail::rank_voters(past, replicas, &rule, route, keep, p);
                ranked.map(Option::unwrap_or_default)
            }
        };
        ranked.map_err(|error| self.refused(&error))
    }

    /// Tiers 1 and 2: the three best.
    pub(super) fn ranked(&self, tier: u8) -> anyhow::Result<Vec<Line>> {
        let past = self.past();
        let begin = ProcessTime::now();
        let ranked = self.rank(&past, tier)?;
        let cpu_ms = begin.elapsed().as_secs_f64() * 1e3;
        let best = ranked.first().context("somebody votes")?;
        // All of them are ranked, so the first bounds the others, if it is the best for sure.
        let mut bound_ms = best.latency_ms;
        let (replicas, voters) = (best.layout.replicas(), best.layout.voters().len());
        if let Some(percentile) = &self.arguments.percentile
            && tier == 2
            && !tail::tries_all(&past, replicas.len(), voters)
        {
            let (route, p) = (self.arguments.route, percentile.p());
            bound_ms = tail::bound_ms(&past, replicas, voters, route, p).unwrap_or(0.0);
        }
        let line = |one: &Ranked| {
            let gap = if one.latency_ms > 0.0 { 1.0 - bound_ms / one.latency_ms } else { 0.0 };
            let gap = gap.max(0.0);
            Line { gap, proven: gap <= PROVEN, cpu_ms, ..self.line(&past, &one.layout) }
        };
        Ok(ranked.iter().take(SHOWN).map(line).collect())
    }

    pub(super) fn worth(&self) -> anyhow::Result<Vec<Line>> {
        let Some(most) = self.arguments.worth else { return Ok(Vec::new()) };
        let voters = self.input.sizes.first().map_or(1, |size| size.voters);
        let sizes = (voters..=most).map(|replicas| Size { replicas, voters });
        sizes.map(|size| self.placed(size, 1)).collect()
    }

    pub(super) fn statements(&self, system: System, results: &[Line]) -> anyhow::Result<String> {
        let best = results.first().context("there is no result")?;
        let database = self.arguments.database.as_deref();
        anyhow::ensure!(
            database.is_some() || system == System::YugabyteDb,
            "--statements {}: got no database, expected --database NAME",
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

    pub(super) fn names(&self, sites: &[usize]) -> String {
        let names: Vec<&str> = sites.iter().map(|&site| &*self.input.sites[site]).collect();
        names.join(", ")
    }

    pub(super) fn name(&self, site: usize) -> &str {
        &self.input.sites[site]
    }
}
