//! What a site does at known loads: its own simulation, load step by load step.
//!
//! The same that `evenkeel profile` does with a real backend: open-loop load, denser near
//! saturation, response times as seen inside the site. Nothing of the scenario's demand or other
//! sites is in it, and of its faults those that strike each server again and again.

use core::num::NonZeroU32;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use evenkeel_core::Duration;
use evenkeel_core::distribution::Bucket;
use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::curve::{LoadStep, Profile, ResponseCurves, Saturation};
use evenkeel_geo::planner::SiteCurves;

use crate::fault::{Fault, Target};
use crate::scenario::{Arrivals, Geography, Scenario};
use crate::world;

/// Loads, as shares of what the site can serve.
const LOADS: [f64; 18] = [
    0.2, 0.4, 0.5, 0.55, 0.6, 0.63, 0.66, 0.69, 0.72, 0.74, 0.76, 0.78, 0.8, 0.82, 0.85, 0.88,
    0.92, 0.96,
];
/// The seed of every profile: the same site has the same curves whatever the seed of the run.
const SEED: u64 = 0x9205;
/// What is left of the capacity in each of the curves that may replace the profile while something
/// interferes.
const LEFT: [f64; 12] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05];

type Profiles = BTreeMap<String, Arc<OnceLock<Profile>>>;

/// Profiles that were made in this process: settings that differ in what planners do share them.
static MADE: Mutex<Profiles> = Mutex::new(BTreeMap::new());

/// The curves of each site of a scenario under the replica policy that serves inside sites.
pub(crate) fn curves(scenario: &Scenario, geography: &Geography, policy: &str) -> Vec<SiteCurves> {
    let objective = scenario.workload.objective;
    let of_site = |servers: usize| {
        if !geography.redirect.profiled {
            return SiteCurves::guess(objective).expect("an objective was checked");
        }
        let profile = profile(scenario, geography, policy, servers);
        let profile = derated(&profile, geography.redirect.profile_scale);
        let measured = |profile: &Profile| {
            ResponseCurves::measured(objective, profile).expect("a simulated profile is sound")
        };
        let replacements = LEFT.map(|left| measured(&derated(&profile, left)));
        let replacements = replacements.into_iter().filter(|_| geography.redirect.watch);
        SiteCurves::of_versions(core::iter::once(measured(&profile)).chain(replacements))
    };
    geography.sites.iter().map(|site| of_site(site.servers)).collect()
}

/// The same where requests are hedged: copies are in the curves, and loads are of first copies.
pub(crate) fn hedged_curves(
    scenario: &Scenario,
    geography: &Geography,
    policy: &str,
) -> Vec<SiteCurves> {
    curves(scenario, geography, &format!("{policy}+hedge"))
}

/// The curves of each site as those of an M/M/c queue of the same mean service time.
pub(crate) fn markov(scenario: &Scenario, geography: &Geography) -> Vec<SiteCurves> {
    let service = scenario.cluster.service_mean.div_f64(scenario.speed_mean());
    let of_site = |servers: usize| {
        let slots = servers as u32 * scenario.cluster.concurrency;
        let slots = NonZeroU32::new(slots).expect("a site has servers");
        let curves = ResponseCurves::markov(scenario.workload.objective, slots, service);
        SiteCurves::single(curves.expect("service takes time"))
    };
    geography.sites.iter().map(|site| of_site(site.servers)).collect()
}

/// The profile of a site whose every server was left with this part of its speed: all takes as much
/// longer, and loads are as much smaller. The profile itself where all is left.
fn derated(profile: &Profile, left: f64) -> Profile {
    if left == 1.0 {
        return profile.clone();
    }
    let load = |load: Rate| Rate::new(load.value() * left).expect("a part of a rate");
    let longer = |bucket: &Bucket| Bucket { upper: bucket.upper.div_f64(left), ..*bucket };
    let step = |step: &LoadStep| LoadStep {
        load: load(step.load),
        latencies: step.latencies.iter().map(longer).collect(),
        ..step.clone()
    };
    let saturation = |of: &Saturation| Saturation { load: load(of.load), ..*of };
    Profile {
        servers: profile.servers,
        steps: profile.steps.iter().map(step).collect(),
        saturations: profile.saturations.iter().map(saturation).collect(),
    }
}

/// The requests per second that so many servers can serve at their mean speed.
pub(crate) fn capacity(scenario: &Scenario, servers: usize) -> f64 {
    scenario.capacity() * servers as f64 / scenario.cluster.servers as f64
}

fn profile(scenario: &Scenario, geography: &Geography, policy: &str, servers: usize) -> Profile {
    let requests = geography.redirect.profile_requests;
    let Scenario { cluster, fluctuation, network, work, run, .. } = scenario;
    let (replica, hedge) = (scenario.replicas.first(), &run.hedge);
    let clients = geography.sites[0].clients;
    let faults: Vec<_> = scenario.faults.iter().filter(|fault| is_of_every_day(fault)).collect();
    let world = format!("{cluster:?} {fluctuation:?} {network:?} {faults:?} {replica:?} {work:?}");
    let world = format!("{world} {hedge:?}");
    let key = format!("{world} {policy} {servers} {clients} {requests}");
    let cell = {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(made.entry(key).or_default())
    };
    cell.get_or_init(|| measure(scenario, policy, servers, clients, requests)).clone()
}

fn measure(
    scenario: &Scenario,
    policy: &str,
    servers: usize,
    clients: usize,
    requests: u64,
) -> Profile {
    let capacity = capacity(scenario, servers);
    let step = |share: f64| {
        let alone = alone(scenario, servers, clients, share * capacity, requests);
        let latencies = world::latencies(&alone, policy, SEED);
        LoadStep {
            load: Rate::new(share * capacity).expect("a load is a rate"),
            write_share: Probability::ZERO,
            latencies: latencies.buckets().collect(),
            unanswered: 0,
        }
    };
    Profile {
        servers: NonZeroU32::new(servers as u32).expect("a site has servers"),
        steps: LOADS.into_iter().map(step).collect(),
        saturations: vec![Saturation {
            write_share: Probability::ZERO,
            load: Rate::new(capacity).expect("a capacity is a rate"),
        }],
    }
}

/// Whether a fault is part of how servers are, such as pauses for collections.
fn is_of_every_day(fault: &Fault) -> bool {
    fault.target == Target::Each && !fault.every.is_zero()
}

/// One site of the scenario, with this load and nothing else.
fn alone(
    scenario: &Scenario,
    servers: usize,
    clients: usize,
    rate: f64,
    requests: u64,
) -> Scenario {
    let mut alone = scenario.clone();
    alone.geography = None;
    alone.dimmer = None;
    alone.replicas.truncate(servers);
    alone.faults.retain(is_of_every_day);
    alone.run.warmup = 0.05;
    alone.run.window = Duration::ZERO;
    alone.run.load_every = Duration::ZERO;
    alone.cluster.servers = servers;
    alone.cluster.replication_factor = servers;
    alone.workload.clients = clients;
    alone.workload.rate = Some(rate);
    alone.workload.requests = requests;
    alone.workload.arrivals = Arrivals::Poisson;
    alone.workload.phases.clear();
    alone
}
