//! How a mesh stands, for people: a picture that the driver replaces after every plan.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::export::ExportState;
use evenkeel_geo::ALL_PPM;
use evenkeel_geo::epoch::{Alarm, Path, SiteId, SiteSet};
use evenkeel_geo::joint::{Parts, Prices};
use evenkeel_geo::past::Hour;
use evenkeel_geo::planner::Plan;
use serde::Serialize;

/// How the mesh of one process stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RedirectState {
    /// The site of this process.
    pub site: String,
    /// The epoch it is; `None` before the first.
    pub epoch: Option<u64>,
    /// Time between plans, in milliseconds.
    pub period_ms: f64,
    /// How long before an epoch rows are sent, in milliseconds.
    pub lead_ms: f64,
    /// The latency that all `missed_share`s are counted by, in milliseconds.
    pub objective_ms: f64,
    /// Every site, this one among them, in the order of the configuration.
    pub sites: Vec<SiteState>,
    /// The plan in force; `None` before the first.
    pub plan: Option<PlanState>,
    /// What the last hour cost, where plans are by price; `None` before an epoch was replayed.
    pub hour: Option<HourState>,
    /// Whether this site serves its own users' requests as its curves in force say:
    /// `as-predicted`, `worse` or `better`.
    pub curves: &'static str,
    /// What this site learnt of its curves; `None` where they do not learn.
    pub learnt: Option<LearntState>,
    /// What people should know, the newest last; the last 64 that differ, each when it was raised
    /// last.
    pub alarms: Vec<AlarmState>,
    /// Further processes of this site that take their part of its plan from this one.
    pub followers: Vec<FollowerState>,
    /// How well all processes of this site kept the plan of the last epoch that is over; `None`
    /// before one is.
    pub enforced: Option<EnforcedState>,
    /// The process whose plan this one takes its part of; `None` in that process itself.
    pub controller: Option<ControllerState>,
    /// What was counted since the start.
    pub counts: CountsState,
    /// Who else is told the plan.
    pub exports: Vec<ExportState>,
    /// By site and then by the site that it leads to: the way, as the first told it last; `None`
    /// for sites themselves and where nothing was heard. Empty before the first plan.
    #[serde(skip)]
    pub paths: Vec<Vec<Option<Path>>>,
}

/// What a site learnt of its curves: the profile is scale 1 and odds 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LearntState {
    /// How likely it is that all is as profiled: 0 – 1; 0 without a profile.
    pub profile_probability: f64,
    /// Whether the profile was found wrong since the start, or since other curves are in force.
    pub is_contradicted: bool,
    /// How many times the profiled load is served alike, most likely.
    pub likely_scale: f64,
    /// How many times the odds of a miss are met, most likely.
    pub likely_odds: f64,
    /// The scale that plans go by.
    pub believed_scale: f64,
    /// The odds that plans go by.
    pub believed_odds: f64,
    /// The curves, from no load to where every one of them is late for a fifth; empty before
    /// anything was seen.
    pub curves: Vec<CurvePoint>,
}

/// Shares of a site's requests that miss the objective at a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The load of the whole site, in requests per second.
    pub load_per_s: f64,
    /// As profiled, or guessed where nobody did.
    pub profiled: f64,
    /// As is most likely by what was seen.
    pub likely: f64,
    /// As plans believe, without their bias.
    pub believed: f64,
}

/// A further process of a site, as its controller sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FollowerState {
    /// Its IP address, and four digits that tell its runs apart.
    pub name: String,
    /// Its workers.
    pub workers: usize,
    /// Its part of the caps, of all processes' together: 0 – 1.
    pub part_ratio: f64,
    /// Requests per second of users that come to it, over the last epochs.
    pub demand_per_s: f64,
    /// The epoch of the plan it was told last.
    pub epoch: Option<u64>,
    /// How long ago it was heard, in milliseconds.
    pub heard_ms_ago: f64,
}

/// How well a plan was kept, over all processes of a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EnforcedState {
    /// Its epoch.
    pub epoch: u64,
    /// How many processes' counts are in this.
    pub processes: usize,
    /// Requests of the site's users in the epoch.
    pub arrived_requests: u64,
    /// For each other site.
    pub to: Vec<DestinationState>,
}

/// How well a plan was kept for one destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DestinationState {
    /// The site.
    pub name: String,
    /// Requests that the plan foresaw.
    pub planned_requests: f64,
    /// Requests that its share of those that came is.
    pub due_requests: f64,
    /// Requests sent, those that failed over not counted.
    pub sent_requests: u64,
    /// How far what was sent is from the plan.
    pub error_requests: f64,
    /// Requests that stayed because a worker had used up its part of the cap.
    pub over_cap_requests: u64,
    /// Of these, the ones for which the whole cap had room: the price of dividing it.
    pub divided_requests: f64,
    /// Requests sent because home had no replica for them.
    pub rescued_requests: u64,
}

/// The process that plans for a site, as its follower sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ControllerState {
    /// Where it listens.
    pub address: String,
    /// Whether it is heard.
    pub is_heard: bool,
    /// The epoch of the last plan it told.
    pub epoch: Option<u64>,
    /// Whether that plan is still believed.
    pub is_in_force: bool,
    /// This process's part of the caps: 0 – 1.
    pub part_ratio: Option<f64>,
    /// Fingerprint of what is set alike at all sites.
    pub settings: Option<String>,
    /// Plans that it told.
    pub plans: u64,
    /// Connections to it that were lost.
    pub lost: u64,
    /// Messages of it that were not believed, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Connections to it that could not be made, by reason.
    pub unmade: BTreeMap<&'static str, u64>,
}

/// How one site stands, as this one sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteState {
    /// Its name.
    pub name: String,
    /// `fresh`, `held` (its last row is missing), `down` or `unheard`.
    pub standing: &'static str,
    /// Requests per second of its users, as it told last.
    pub demand_per_s: Option<f64>,
    /// Requests per second that its replicas can serve, as it told last.
    pub capacity_per_s: Option<f64>,
    /// Share of writes among its users' requests, as it told last.
    pub writes_share: Option<f64>,
    /// Requests that waited for a replica there, as it told last.
    pub waiting: Option<u64>,
    /// The version of its curves.
    pub curve_version: Option<u32>,
    /// How many times the load of those curves it is believed to serve, as it told last.
    pub curve_scale: Option<f64>,
    /// How many times the odds of a miss of those curves are believed, as it told last.
    pub curve_odds: Option<f64>,
    /// Share of its users' requests that missed the objective, as it told last.
    pub missed_share: Option<f64>,
    /// The same as predicted if every site served its own; `None` where it has no part in the plan.
    pub alone_share: Option<f64>,
    /// As predicted with the plan; alike.
    pub planned_share: Option<f64>,
    /// Requests per second that this site sends there by the plan.
    pub rate_per_s: Option<f64>,
    /// The way there; `None` for this site itself, and when nothing was heard.
    pub path: Option<PathState>,
    /// Connections that this site has to it.
    pub connections_to: u32,
    /// Connections that it has to this site.
    pub connections_from: u32,
    /// Rows that came from it, believed or not.
    pub rows: u64,
    /// Rows and frames of it that were not believed, by reason; reasons without any are left out.
    pub rejected: BTreeMap<&'static str, u64>,
    /// What it has set otherwise than this one; empty when all is alike or it did not say.
    pub differs: Vec<String>,
    /// Times a connection of it was read later, or a probe not echoed, because it sent too much.
    pub throttled: u64,
    /// Connections to it that could not be made, by reason.
    pub unmade: BTreeMap<&'static str, u64>,
}

/// The way to another site.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PathState {
    /// The base round trip of the shortest connection, in milliseconds.
    pub base_ms: f64,
    /// What half of all probes take beyond it at most, in milliseconds.
    pub residual_p50_ms: f64,
    /// What 99 % take at most.
    pub residual_p99_ms: f64,
    /// Share of requests assumed to be lost or far too late.
    pub beyond_share: f64,
    /// How far the base lies above the least of ten minutes: a standing queue or a new route.
    pub standing_ms: Option<f64>,
    /// Probes learnt from.
    pub samples: u64,
    /// Changes of route.
    pub reroutes: u64,
    /// Probes that were not believed.
    pub probes_rejected: u64,
}

/// The plan in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlanState {
    /// Its epoch.
    pub epoch: u64,
    /// The sites that take part.
    pub members: Vec<String>,
    /// Every flow between two sites, as a sentence.
    pub flows: Vec<String>,
    /// Who serves how much of whose requests, and how well: every origin and destination with a
    /// rate, sites' own among them.
    pub pairs: Vec<PairState>,
    /// What comes with it where plans are by price.
    pub priced: Option<PricedState>,
    /// `optimal`, `bounded` (the effort ended before the proof) or `infeasible`.
    pub answer: String,
    /// How many times as many requests it brings this site as would come without it; `None` where
    /// that is next to nothing, or nobody knows.
    pub inflow_factor: Option<f64>,
    /// Whether sites are short of servers.
    pub wants_capacity: bool,
    /// Hash of the rows it was made from; equal at all sites that agree.
    pub inputs: String,
    /// Hash of the plan; equal at all sites that agree.
    pub hash: String,
    /// CPU time that it took, in milliseconds.
    pub cpu_ms: f64,
}

/// What a plan by price says beside its rates. Costs are in requests that miss the objective.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PricedState {
    /// What all requests of a second cost.
    pub cost_per_s: f64,
    /// The price of optional content that a request is served without.
    pub optional: f64,
    /// The price of a request that another site serves.
    pub wan: f64,
    /// The price of a second of a node that copies take.
    pub node: f64,
    /// Every site.
    pub sites: Vec<PricedSiteState>,
    /// Why requests are sent away, a sentence for each flow, the largest first.
    pub sentences: Vec<String>,
}

/// How a site serves its load by a plan by price.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PricedSiteState {
    /// Its name.
    pub name: String,
    /// Requests that will come to it, its own users' and others', per second.
    pub inflow_per_s: f64,
    /// Work after dimming, over the capacity: what dimmers are to leave where content is dimmed;
    /// `None` where the capacity is unknown.
    pub work_ratio: Option<f64>,
    /// Share of optional content.
    pub dimmer_ratio: f64,
    /// Whether its requests are hedged.
    pub is_hedged: bool,
    /// What one more request of its users costs where that is cheapest, of the sites that may serve
    /// one more.
    pub one_more: f64,
}

impl PricedState {
    /// Of a plan with these prices; `names` are the sites', which hedge where `hedges` says.
    pub(super) fn of(
        plan: &Plan,
        prices: Option<&Prices>,
        (names, hedges): (&[String], SiteSet),
    ) -> Option<Self> {
        let (planned, prices) = (plan.priced.as_ref()?, prices?);
        let violations = |ppm: u64| ppm as f64 / f64::from(ALL_PPM);
        let site = |(site, name): (usize, &String)| PricedSiteState {
            name: name.clone(),
            inflow_per_s: plan.load_per_1000_s(SiteId::new(site)) as f64 * 1e-3,
            work_ratio: planned.utilisation_ppm[site].map(violations),
            dimmer_ratio: f64::from(planned.states[site].dimmer) / 100.0,
            is_hedged: hedges.contains(SiteId::new(site)),
            one_more: violations(planned.price[site]),
        };
        Some(Self {
            cost_per_s: violations(planned.cost) * plan.unit_per_1000_s as f64 * 1e-3,
            optional: violations(prices.optional.into()),
            wan: violations(prices.wan.into()),
            node: violations(prices.node_second.into()),
            sites: names.iter().enumerate().map(site).collect(),
            sentences: planned.sentences(&plan.problem, names),
        })
    }
}

/// What the last hour cost, by the plans in force and by others: all of it as the curves say that
/// are believed now, with the demand that came.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HourState {
    /// Epochs that were replayed: one in five seconds at most, of the last hour.
    pub epochs: u32,
    /// Requests of all sites per second in them.
    pub requests_per_s: f64,
    /// Share of requests that missed the objective in them, as it was counted.
    pub missed_share: f64,
    /// By the plans that were in force.
    pub now: CostState,
    /// With redirects, dimmers and hedges in a loop of their own each.
    pub loops: CostState,
    /// With plans that knew what would come.
    pub hindsight: CostState,
    /// CPU time of the last replay, in milliseconds; there is one a minute.
    pub cpu_ms: f64,
}

/// What 1,000 requests cost, in requests that miss the objective.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CostState {
    /// Those that are late, and those that an overload makes late afterwards.
    pub late: f64,
    /// Optional content left out.
    pub content: f64,
    /// Requests served elsewhere.
    pub elsewhere: f64,
    /// Node time of copies.
    pub copies: f64,
}

impl HourState {
    pub(super) fn of(hour: &Hour, cpu: Duration) -> Self {
        let cost = |of: &Parts| CostState {
            late: 1e3 * of.late,
            content: 1e3 * of.content,
            elsewhere: 1e3 * of.elsewhere,
            copies: 1e3 * of.copies,
        };
        Self {
            epochs: hour.epochs,
            requests_per_s: hour.requests_per_s,
            missed_share: hour.late_seen,
            now: cost(&hour.now),
            loops: cost(&hour.loops),
            hindsight: cost(&hour.hindsight),
            cpu_ms: ms(cpu),
        }
    }
}

/// Requests of one site's users served at one site, by the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PairState {
    /// The site of the users.
    pub from: String,
    /// The site that serves.
    pub to: String,
    /// Requests per second.
    pub rate_per_s: f64,
    /// The share of them predicted to miss the objective.
    pub missed_share: f64,
}

/// Something a person should know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AlarmState {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// What.
    pub words: String,
}

/// What was counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountsState {
    /// Plans made.
    pub plans: u64,
    /// CPU time of all plans, in nanoseconds.
    pub plans_cpu_ns: u64,
    /// Rows that came in time for their plan.
    pub rows_in_time: u64,
    /// Rows that came after their plan.
    pub rows_late: u64,
    /// Rows that came once more, over another connection.
    pub rows_again: u64,
    /// Rows that this site could not send.
    pub rows_unsent: u64,
    /// Answers of others that were compared with this site's.
    pub compared: u64,
    /// Of these, those with another plan.
    pub disagreements: u64,
    /// Alarms raised.
    pub alarms: u64,
    /// Connections from others that were refused, by reason; all reasons.
    pub refused: BTreeMap<&'static str, u64>,
    /// Followers that came.
    pub followers_joined: u64,
    /// Followers that are gone, by reason; all reasons.
    pub followers_gone: BTreeMap<&'static str, u64>,
    /// Messages of followers that were not believed, by reason; all reasons.
    pub followers_rejected: BTreeMap<&'static str, u64>,
    /// Bytes sent, TLS included, TCP and IP not.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Times that the certificates were replaced.
    pub certificates_replaced: u64,
    /// Times that changed certificates were not sound.
    pub certificates_failed: u64,
    /// Times that other curves of this site were put in force.
    pub curves_replaced: u64,
    /// Steps of this site's clock.
    pub clock_steps: u64,
}

impl RedirectState {
    /// It as JSON, with the upstream whose requests are shared.
    pub fn json(&self, upstream: &str) -> String {
        #[derive(Serialize)]
        struct Of<'a> {
            upstream: &'a str,
            #[serde(flatten)]
            state: &'a RedirectState,
        }
        let of = Of { upstream, state: self };
        serde_json::to_string(&of).expect("numbers and texts can always be written")
    }
}

/// An alarm in words.
pub(super) fn words(alarm: &Alarm, names: &[String]) -> String {
    let name = |site: &SiteId| names[site.index()].as_str();
    match alarm {
        Alarm::Disagreement { site, epoch, ours, theirs } if ours.inputs == theirs.inputs => {
            format!(
                "{} computed another plan for epoch {epoch} from the same reports: the releases \
                 differ (plan {:016x}, ours {:016x})",
                name(site),
                theirs.plan,
                ours.plan
            )
        }
        Alarm::Disagreement { site, epoch, .. } => format!(
            "{} computed another plan for epoch {epoch} from other reports: a report was \
             lost",
            name(site)
        ),
        Alarm::ClockOff { is_behind, others } => format!(
            "this site's clock is {} that of {} (is it synchronised?)",
            if *is_behind { "behind" } else { "ahead of" },
            listed(*others, names)
        ),
        Alarm::NotHeard { site } => {
            format!("{} reaches this site, but not the other way round", name(site))
        }
        Alarm::PeriodTooShort { lead } => format!(
            "rows would have to leave {lead:?} before an epoch: the period is too short for the \
             distances"
        ),
    }
}

/// The sites of a set by their names.
fn listed(sites: SiteSet, names: &[String]) -> String {
    let name = |site: SiteId| names.get(site.index()).map(String::as_str);
    sites.iter().filter_map(name).collect::<Vec<_>>().join(", ")
}

pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
