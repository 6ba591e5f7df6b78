//! From a configuration to a mesh: files are read and addresses bound before anything runs.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use evenkeel_core::units::Probability;
use evenkeel_geo::Learnt;
use evenkeel_geo::curve::ResponseCurves;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::planner::{Planner, PlannerError, QUANTA_MIN, SiteCurves};
use evenkeel_settings::profile;

use super::{Files, Follower, FollowerConfig, Member, Mesh, MeshConfig, wrong};
use crate::config::{RedirectConfig, RedirectSite};
use crate::export::Exports;

/// A certificate that expires within so many days is worth a word.
const DAYS_LEFT_MIN: u32 = 14;
/// Servers of two sites that differ by this factor are worth a word.
const SERVERS_APART: u64 = 100;

/// Opens what a configuration takes part with: reads profiles and certificates, binds the address.
/// A follower has neither profiles nor an address.
///
/// # Errors
/// When a file cannot be read or believed, or the address cannot be bound, with the likely cause.
pub fn open(config: &RedirectConfig) -> io::Result<Member> {
    if let Some(controller) = config.through {
        let MeshConfig { site, names, files, reload_every, .. } = mesh(config);
        let (objective, writes_stay) = (config.objective, config.some_stay());
        let follower =
            FollowerConfig { site, names, objective, writes_stay, controller, files, reload_every };
        return Follower::open(follower).map(|follower| Member::Follower(Box::new(follower)));
    }
    let mesh = Mesh::open(mesh(config), planner(config)?, bind(config.listen)?)?;
    Ok(Member::Controller(Box::new(mesh)))
}

/// Reads the files of a configuration as [`open`] does, and binds nothing. Gives what is sound and
/// still doubtful: a sentence each.
///
/// # Errors
/// All that is wrong, each with its file and the likely cause.
pub fn check(config: &RedirectConfig) -> Result<Vec<String>, Vec<io::Error>> {
    let is_planned_here = config.through.is_none();
    let files = |site: &'_ RedirectSite| [site.curves.clone(), site.hedged_curves.clone()].concat();
    let mut paths: Vec<_> = config.sites.iter().flat_map(files).collect();
    paths.sort();
    paths.dedup(); // sites that are alike have the same
    paths.retain(|_| is_planned_here);
    let mut problems: Vec<_> = paths.iter().filter_map(|path| curves(config, path).err()).collect();
    let mesh = mesh(config);
    let mut doubts = Vec::new();
    let parts = match is_planned_here && problems.is_empty() {
        true => planner(config).and_then(|planner| {
            // Of a guess nothing can be said.
            if config.sites.iter().all(|site| !site.curves.is_empty()) {
                doubts = unequal(&planner, &mesh.names);
            }
            Exports::open(&mesh.exports)?;
            mesh.parts(&planner).map(drop)
        }),
        false => mesh.files.load(&mesh.names, mesh.site).map(drop),
    };
    problems.extend(parts.err());
    if !problems.is_empty() {
        return Err(problems);
    }
    let days = mesh.files.expires_within(DAYS_LEFT_MIN, &mesh.names, mesh.site);
    let days = days.map_err(|error| vec![error])?;
    let doubt = |days: u32| {
        let (file, unit) =
            (mesh.files.certificate.display(), if days == 1 { "day" } else { "days" });
        format!(
            "{file}: expires in less than {days} {unit}; renew it in place: a running process \
             takes the new one by itself"
        )
    };
    doubts.extend(days.map(doubt));
    Ok(doubts)
}

/// What is doubtful of profiles beside each other: a sentence for each site.
fn unequal(planner: &Planner, names: &[String]) -> Vec<String> {
    let sites = || (0..names.len()).map(SiteId::new);
    let profiled = (0, Learnt::AS_PROFILED);
    let of_one = |site: SiteId| planner.capacity_per_1000_s(site, profiled, Probability::ZERO, 1);
    let capacity: Vec<u64> = sites().map(|site| planner.profiled_per_1000_s(site)).collect();
    let coarse = planner.coarse(&capacity, &capacity).into_iter().map(|(site, quanta)| {
        format!(
            "{}: what its profile serves is {quanta} of the quanta in which load is planned, fewer \
             than {QUANTA_MIN}: a plan moves a large part of its load or none (the sites are too \
             unequal)",
            names[site.index()]
        )
    });
    let least = sites().map(of_one).min().unwrap_or(0);
    let alone = sites().filter(|site| of_one(*site) / SERVERS_APART > least).map(|site| {
        format!(
            "{}: by its profile one server serves {:.0}/s, another site's {:.0}/s (is the load of \
             the profile in another unit?)",
            names[site.index()],
            of_one(site) as f64 * 1e-3,
            least as f64 * 1e-3
        )
    });
    alone.chain(coarse).collect()
}

fn curves(config: &RedirectConfig, path: &Path) -> io::Result<ResponseCurves> {
    let profile = profile::load(path).map_err(|problems| wrong(problems.to_string()))?;
    let curves = ResponseCurves::measured(config.objective, &profile);
    curves.map_err(|error| wrong(format!("{}: {error}", path.display())))
}

fn planner(config: &RedirectConfig) -> io::Result<Planner> {
    let of_site = |files: &Vec<PathBuf>| {
        if files.is_empty() {
            return SiteCurves::guess(config.objective).map_err(|error| wrong(error.to_string()));
        }
        let versions = files.iter().map(|path| curves(config, path));
        versions.collect::<io::Result<Vec<_>>>().map(SiteCurves::of_versions)
    };
    let of = |files: fn(&RedirectSite) -> &Vec<PathBuf>| {
        config.sites.iter().map(files).map(of_site).collect::<io::Result<Vec<_>>>()
    };
    let sites = of(|site| &site.curves)?;
    let has_hedged = config.sites.iter().any(|site| !site.hedged_curves.is_empty());
    let hedged = has_hedged.then(|| of(|site| &site.hedged_curves)).transpose()?;
    let named = |error: PlannerError| {
        let name = |site: SiteId| format!(" of {}", config.sites[site.index()].name);
        wrong(format!("redirect{}: {error}", error.site.map_or_else(String::new, name)))
    };
    let planner = Planner::new(config.planner(), sites).map_err(named)?;
    match config.pricing(hedged) {
        Some(pricing) => planner.with_prices(pricing).map_err(named),
        None => Ok(planner),
    }
}

fn mesh(config: &RedirectConfig) -> MeshConfig {
    let names = config.sites.iter().map(|site| site.name.clone()).collect();
    let peers = config.sites.iter().map(|site| site.peer).collect();
    let files = Files {
        certificate: config.certificate.clone(),
        key: config.key.clone(),
        authority: config.authority.clone(),
    };
    MeshConfig {
        margin: config.margin,
        clock_offset_max: config.clock_offset_max,
        connections: config.connections,
        probe_interval: config.probe_interval,
        learns: config.learns(),
        work: config.sites[config.site.index()].work,
        exports: config.exports.clone(),
        ..MeshConfig::new(config.site, names, peers, files)
    }
}

/// Unlike a worker's listener this one shares its address with nobody: two meshes of one site
/// would answer for each other.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => " (does another process run as this site?)",
            io::ErrorKind::AddrNotAvailable => " (no interface of this host has it)",
            _ => "",
        };
        let words = format!("cannot take other sites on {address}: {error}{hint}");
        io::Error::new(error.kind(), words)
    })
}
