//! Data centres on this machine: their replicas, their processes, the ways between them.
//!
//! Each process is configured by a file of its own, as `evenkeel run` reads it; the files stay in
//! the demo's folder while it runs.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_core::distribution::Exponential;
use evenkeel_geo::epoch::SiteId;
use evenkeel_load::profile::{self, End, Observer, ProfileConfig, StepDone, Upcoming};
use evenkeel_load::{Progress, Stop};
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::profile::{Record, save};
use evenkeel_settings::{Node, format_duration};
use evenkeel_sim::Scenario;
use evenkeel_sim::redirect::Mode;
use evenkeel_sim::scenario::{Geography, Real, Site, Spelling};
use evenkeel_testkit::distance::{Lane, Lanes};
use evenkeel_testkit::embedded::{Draws, Embedded};
use evenkeel_testkit::nginx::{Nginx, NginxConfig};

use super::super::brownout::law;
use super::super::ground::free_addresses;
use super::super::{embedded_config, find_nginx};
use super::dimmed;
use crate::terminal::{Canvas, ms_if_known};

/// The file of the profile that all sites plan from: they are alike.
const PROFILE: &str = "site.profile.toml";
/// Files of certificates, made as `evenkeel certificates` does.
const AUTHORITY: &str = "authority.pem";

/// Running data centres. Dropping it stops them.
pub(super) struct Sites {
    processes: Vec<Process>,
    places: Vec<Place>,
    lanes: Lanes,
    /// Behind the processes: those are stopped first.
    services: Vec<Service>,
}

/// Where one site listens.
#[derive(Clone, Copy)]
struct Place {
    /// For its users.
    entrance: SocketAddr,
    /// For requests of other sites' users.
    door: SocketAddr,
    /// For the meshes of other sites.
    mesh: SocketAddr,
    admin: SocketAddr,
}

/// What goes between two sites.
#[derive(Clone, Copy)]
enum Traffic {
    Requests,
    Mesh,
}

impl Sites {
    /// Opens every site, with the plans of this mode.
    pub(super) fn open(
        scenario: &Scenario,
        geography: &Geography,
        policy: &str,
        mode: Mode,
        seed: u64,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let count = geography.sites.len();
        let mut services = services(scenario, geography, seed, folder)?;
        let agents = if law(scenario, policy)?.is_some() { scenario.cluster.servers } else { 0 };
        let mut addresses = free_addresses(4 * count + agents)?;
        for service in services.iter_mut().filter(|_| agents > 0) {
            let first = addresses.len() - service.apps.addresses().len();
            service.agents = addresses.split_off(first);
        }
        let place = |four: &[SocketAddr]| Place {
            entrance: four[0],
            door: four[1],
            mesh: four[2],
            admin: four[3],
        };
        let places: Vec<Place> = addresses.chunks_exact(4).map(place).collect();
        let lanes = lanes(geography, &places, seed)?;
        let names: Vec<String> = geography.sites.iter().map(|site| site.name.clone()).collect();
        if mode != Mode::Local && !folder.join(AUTHORITY).exists() {
            crate::certificates::make(folder, 1, &names)?;
        }
        let mut sites = Self { processes: Vec::new(), places, lanes, services };
        for (site, name) in names.iter().enumerate() {
            let text = sites.config(scenario, geography, policy, mode, site)?;
            let path = folder.join(format!("{name}.toml"));
            std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
            sites.processes.push(Process::start(Config::load(&path)?)?);
        }
        Ok(sites)
    }

    /// Where the users of a site ask.
    pub(super) fn entrance(&self, site: usize) -> SocketAddr {
        self.places[site].entrance
    }

    /// Its dashboard.
    pub(super) fn admin(&self, site: usize) -> SocketAddr {
        self.places[site].admin
    }

    /// The process of a site.
    pub(super) fn process(&self, site: usize) -> &Process {
        &self.processes[site]
    }

    /// Begins what is to befall the replicas.
    pub(super) fn begin(&self) {
        self.services.iter().for_each(|service| service.apps.begin());
    }

    /// Cuts every way to and from a site.
    pub(super) fn cut(&self, victim: SiteId) {
        for other in (0..self.places.len()).filter(|other| *other != victim.index()) {
            for traffic in [Traffic::Requests, Traffic::Mesh] {
                self.lanes.cut(self.lane(other, victim.index(), traffic), true);
                self.lanes.cut(self.lane(victim.index(), other, traffic), true);
            }
        }
    }

    /// Stops every process in order.
    pub(super) fn close(self) -> anyhow::Result<()> {
        self.processes.into_iter().try_for_each(|process| Ok(process.stop()?))
    }

    fn lane(&self, from: usize, to: usize, traffic: Traffic) -> usize {
        lane_number(self.places.len(), from, to, traffic)
    }

    /// What `evenkeel run` reads at a site.
    fn config(
        &self,
        scenario: &Scenario,
        geography: &Geography,
        policy: &str,
        mode: Mode,
        site: usize,
    ) -> anyhow::Result<String> {
        let Place { entrance, door, mesh, admin } = self.places[site];
        let spelling = Spelling::of(policy);
        let replicas: Vec<String> =
            self.services[site].replicas().iter().map(|it| format!("\"{it}\"")).collect();
        let mut text = format!(
            "[process]\nworkers = 1\ndrain = \"1s\"\n\n[[listen]]  # for users\naddress = \
             \"{entrance}\"\nupstream = \"app\"\n\n[[listen]]  # for other sites\naddress = \
             \"{door}\"\nupstream = \"app\"\nforwarded_requests = \"trust\"\n\n[admin]\naddress = \
             \"{admin}\"\n\n[upstream.app]\nreplicas = [{}]\npolicy = \"{}\"\n",
            replicas.join(", "),
            spelling.policy,
        );
        if scenario.work.is_some() {
            text += &dimmed::upstream(scenario, &spelling);
            let Service { agents, apps, .. } = &self.services[site];
            text += &dimmed::agents(scenario, policy, (agents, apps.addresses()))?;
        }
        if mode == Mode::Local {
            return Ok(text);
        }
        let names: Vec<&str> = geography.sites.iter().map(|site| site.name.as_str()).collect();
        writeln!(text, "\n[upstream.app.sites]")?;
        for (other, name) in names.iter().enumerate().filter(|(other, _)| *other != site) {
            let lane = self.lanes.address(self.lane(site, other, Traffic::Requests));
            writeln!(text, "{name} = [\"{lane}\"]")?;
        }
        let redirect = &geography.redirect;
        let name = names[site];
        write!(
            text,
            "\n[redirect]\nupstream = \"app\"\nsite = \"{name}\"\nobjective = \"{}\"\nlisten = \
             \"{mesh}\"\ncertificate = \"{name}.pem\"\nkey = \"{name}.key\"\nca_file = \
             \"{AUTHORITY}\"\nperiod = \"{}\"\nmargin = \"{}\"\nquantum = {}\n{}",
            format_duration(scenario.workload.objective),
            format_duration(redirect.period),
            // Three sites on one machine wait for each other's turn, not for the wire.
            format_duration(redirect.period / 8),
            redirect.quantum,
            of_mode(mode, geography),
        )?;
        for (other, name) in names.iter().enumerate() {
            let peer = match other == site {
                true => mesh,
                false => self.lanes.address(self.lane(site, other, Traffic::Mesh)),
            };
            writeln!(text, "\n[[redirect.sites]]\nname = \"{name}\"\npeer = \"{peer}\"")?;
            match &scenario.work {
                Some(work) => text += &dimmed::work(work),
                None => writeln!(text, "curves = [\"{PROFILE}\"]")?,
            }
        }
        Ok(text)
    }
}

/// The settings of a plan.
fn of_mode(mode: Mode, geography: &Geography) -> String {
    let target = geography.redirect.target;
    match mode {
        Mode::Joint => dimmed::prices(geography.prices.as_ref()),
        Mode::Kurma => "overload = \"curve\"\nload_bias = 1.0\n".to_owned(),
        Mode::KurmaCost => {
            format!("overload = \"curve\"\nload_bias = 1.0\naim = \"cost\"\ntarget = {target}\n")
        }
        Mode::PlannedCost => format!("aim = \"cost\"\ntarget = {target}\n"),
        Mode::Relayed => "relay = true\n".to_owned(),
        _ => String::new(),
    }
}

/// The replicas of one site.
struct Service {
    /// Before the applications, if there are any.
    fronts: Option<Nginx>,
    apps: Embedded,
    /// Where agents that dim listen, before the applications; none where nobody dims.
    agents: Vec<SocketAddr>,
}

impl Service {
    fn replicas(&self) -> &[SocketAddr] {
        match &self.fronts {
            Some(fronts) => fronts.addresses(),
            None if self.agents.is_empty() => self.apps.addresses(),
            None => &self.agents,
        }
    }
}

fn services(
    scenario: &Scenario,
    geography: &Geography,
    seed: u64,
    folder: &Path,
) -> anyhow::Result<Vec<Service>> {
    let start = |(number, site): (usize, &Site)| -> anyhow::Result<Service> {
        let seed_here = seed * 100 + number as u64;
        let apps = match &scenario.work {
            Some(work) => dimmed::applications(scenario, geography, work, number, seed)?,
            None => {
                let draws = Draws::exponential(site.servers, seed_here);
                Embedded::start(embedded_config(scenario, site.servers, draws))?
            }
        };
        let front = || -> anyhow::Result<Nginx> {
            Ok(Nginx::start(NginxConfig {
                binary: find_nginx()?,
                directory: folder.join(format!("nginx-{}", site.name)),
                rate_limits: vec![None; site.servers],
                apps: apps.addresses().to_vec(),
                mishaps: Vec::new(),
            })?)
        };
        let fronts = (scenario.cluster.real == Real::Nginx).then(front).transpose()?;
        Ok(Service { fronts, apps, agents: Vec::new() })
    };
    let start = |site: (usize, &Site)| -> anyhow::Result<Service> {
        let name = &site.1.name;
        start(site).with_context(|| format!("the replicas of {name}"))
    };
    geography.sites.iter().enumerate().map(start).collect()
}

fn lane_number(sites: usize, from: usize, to: usize, traffic: Traffic) -> usize {
    2 * (from * sites + to) + traffic as usize
}

/// A lane for every kind of traffic from every site to every one, in the order of their numbers.
fn lanes(geography: &Geography, places: &[Place], seed: u64) -> anyhow::Result<Lanes> {
    let mean = geography.wan.residual;
    let residual: Option<Arc<dyn evenkeel_core::distribution::Distribution + Send + Sync>> =
        if mean.is_zero() { None } else { Some(Arc::new(Exponential::with_mean(mean)?)) };
    let mut lanes = Vec::new();
    for from in 0..places.len() {
        for (to, place) in places.iter().enumerate() {
            let base = geography.round_trip(from, to).map_or(Duration::ZERO, |[base, _]| base);
            for target in [place.door, place.mesh] {
                lanes.push(Lane { target, base, residual: residual.clone() });
            }
        }
    }
    Lanes::start(lanes, seed).context("the ways between sites")
}

/// Profiles one site as `evenkeel profile` does, into the demo's folder. False when it was stopped.
pub(super) fn profile(
    scenario: &Scenario,
    geography: &Geography,
    seed: u64,
    folder: &Path,
    stop: &Stop,
) -> anyhow::Result<bool> {
    let local = format!("{}+local", Spelling::of(&scenario.run.policies[0]).policy);
    let sites = Sites::open(scenario, geography, &local, Mode::Local, seed + 7, folder)?;
    let site = &geography.sites[0];
    // What its slots can do at best.
    let most = site.servers as f64 * f64::from(scenario.cluster.concurrency)
        / scenario.cluster.service_mean.as_secs_f64();
    let text = format!(
        "name = \"site\"\nservers = {}\n[read]\nurls = [\"http://{}/item/{{n}}\"]\n[steps]\n\
         duration = \"2s\"\nwarm_up = \"500ms\"\n[loads]\nrate_min = {:.0}\nper_decade = 8\n\
         precision = \"8%\"\n",
        site.servers,
        sites.entrance(0),
        0.45 * most,
    );
    let config = ProfileConfig::read(&Node::parse(&text, "the demo's profile")?)?;
    let path = folder.join(PROFILE);
    let mut record = profile::begin(&config);
    let mut view = View { canvas: Canvas::new(), name: &site.name, path: &path, upcoming: None };
    let end = profile::profile(&config, &mut record, stop, &mut view)?;
    view.canvas.clear();
    sites.close()?;
    if end == End::Complete {
        let saturation = record.saturations.first().map_or(0.0, |of| of.load.value());
        eprintln!(
            "{} was profiled at {} loads: it is saturated at {saturation:.0} requests/s.",
            site.name,
            record.steps.len()
        );
    }
    Ok(end == End::Complete)
}

struct View<'a> {
    canvas: Canvas,
    name: &'a str,
    path: &'a Path,
    upcoming: Option<Upcoming>,
}

impl Observer for View<'_> {
    fn begins(&mut self, upcoming: &Upcoming) {
        self.upcoming = Some(*upcoming);
    }

    fn goes(&mut self, progress: &Progress) {
        let Some(upcoming) = self.upcoming else { return };
        let p99 = ms_if_known(progress.recent_p99_ms);
        let (done, all) = (upcoming.done, upcoming.done + upcoming.left);
        self.canvas.draw(&[format!(
            "profiling {}: {:.0} requests/s, p99 {p99} ms, load {} of about {all}",
            self.name,
            upcoming.load,
            done + 1
        )]);
    }

    fn done(&mut self, _: &StepDone, record: &Record) -> std::io::Result<()> {
        save(self.path, record)
    }
}
