//! From a configuration to a mesh: files are read and addresses bound before anything runs.

use std::io;
use std::net::{SocketAddr, TcpListener};

use evenkeel_core::site::redirect::curve::ResponseCurves;
use evenkeel_core::site::redirect::planner::{Planner, SiteCurves};
use evenkeel_settings::profile;

use super::{Files, Mesh, MeshConfig, wrong};
use crate::config::RedirectConfig;

/// Opens the mesh of a configuration: reads profiles and certificates, binds the address.
///
/// # Errors
/// When a file cannot be read or believed, or the address cannot be bound, with the likely cause.
pub fn open(config: &RedirectConfig) -> io::Result<Mesh> {
    let curves = config.sites.iter().map(|site| {
        let version = |path| {
            let profile = profile::load(path).map_err(|problems| wrong(problems.to_string()))?;
            let curves = ResponseCurves::measured(config.objective, &profile);
            curves.map_err(|error| wrong(format!("{}: {error}", path.display())))
        };
        let versions = site.curves.iter().map(|path| version(path.as_path()));
        versions.collect::<io::Result<Vec<_>>>().map(SiteCurves::of_versions)
    });
    let curves = curves.collect::<io::Result<Vec<_>>>()?;
    let planner = Planner::new(config.planner(), curves);
    let planner = planner.map_err(|error| wrong(format!("redirect: {error}")))?;
    let names = config.sites.iter().map(|site| site.name.clone()).collect();
    let peers = config.sites.iter().map(|site| site.peer).collect();
    let files = Files {
        certificate: config.certificate.clone(),
        key: config.key.clone(),
        authority: config.authority.clone(),
    };
    let mesh = MeshConfig {
        margin: config.margin,
        clock_offset_max: config.clock_offset_max,
        connections: config.connections,
        probe_interval: config.probe_interval,
        ..MeshConfig::new(config.site, names, peers, files)
    };
    Mesh::open(mesh, planner, bind(config.listen)?)
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
