//! Users who ask through the driver for Java rather than by our own load: one process at each site,
//! with a session to the site's plain process and one to that which plans.

use std::thread;

use anyhow::{Context, Result};

use super::arms::Arm;
use super::turn::Outcome;
use crate::bench::cassandra::Cluster;
use crate::bench::process::Workbench;
use crate::bench_cassandra::generator::{self, Driver, Generator};

const TABLE: &str = "driven.records";
const RECORDS: usize = 200;

/// For the whole run.
pub(super) struct Drivers(Vec<Generator>);

/// A site as its driver sees it.
pub(super) struct Seen {
    pub(super) datacenter: &'static str,
    /// Where the plain process listens, and the one that plans.
    pub(super) addresses: [String; 2],
}

/// What all drivers do in a turn.
pub(super) struct Driving<'a> {
    pub(super) arm: &'a Arm,
    /// By site.
    pub(super) per_s: [f64; 3],
    pub(super) seconds: u64,
    pub(super) seed: u64,
    pub(super) objective_ms: u64,
}

impl Drivers {
    /// Makes the table and starts the drivers.
    pub(super) fn start(
        bench: &Workbench,
        cluster: &mut Cluster,
        replication: &str,
        sites: &[Seen; 3],
    ) -> Result<Self> {
        generator::build(Driver::Java)?;
        let statements = [
            format!("create keyspace driven with replication = {replication}"),
            format!("create table {TABLE} (id bigint primary key, value blob)"),
        ];
        for statement in statements {
            let said = cluster.tell(&format!("cql 0 {statement}"))?;
            anyhow::ensure!(said.starts_with("RESULT"), "{statement}: {said}");
        }
        let start = |site: &Seen| {
            let [plain, planned] = &site.addresses;
            let words = [
                format!("node={plain}"),
                format!("proxy={planned}"),
                "ways=default,proxy".to_owned(),
                format!("dc={}", site.datacenter),
                format!("table={TABLE}"),
                format!("keys={RECORDS}"),
                "bytes=100".to_owned(),
            ];
            Generator::start(Driver::Java, bench, &words)
        };
        let mut drivers = Self(sites.iter().map(start).collect::<Result<_>>()?);
        // Java compiles what it has not run yet.
        let first = drivers.0.iter_mut();
        thread::scope(|scope| {
            let taking: Vec<_> = first
                .map(|driver| {
                    scope.spawn(|| {
                        ["default", "proxy"].into_iter().try_for_each(|way| {
                            let words = format!("way={way} rate=300 seconds=8 updates=0.5 seed=1");
                            driver.take(&words).map(|_| ())
                        })
                    })
                })
                .collect();
            taking.into_iter().try_for_each(|taking| taking.join().expect("it does not panic"))
        })?;
        Ok(drivers)
    }

    /// Takes a turn at all sites at once.
    pub(super) fn take(&mut self, driving: &Driving<'_>) -> Result<[Outcome; 3]> {
        let mut outcomes = [Outcome::default(); 3];
        thread::scope(|scope| {
            let sites = self.0.iter_mut().zip(&mut outcomes).enumerate();
            let taking: Vec<_> = sites
                .map(|(site, (driver, outcome))| {
                    scope.spawn(move || {
                        *outcome = one(driver, driving, site)?;
                        Ok::<_, anyhow::Error>(())
                    })
                })
                .collect();
            taking.into_iter().try_for_each(|taking| taking.join().expect("it does not panic"))
        })?;
        Ok(outcomes)
    }
}

fn one(driver: &mut Generator, driving: &Driving<'_>, site: usize) -> Result<Outcome> {
    let way = if driving.arm.is_planned() { "proxy" } else { "default" };
    let Driving { seconds, seed, .. } = driving;
    let (per_s, seed) = (driving.per_s[site], seed * 3 + site as u64);
    let words = format!("way={way} rate={per_s:.2} seconds={seconds} updates=0.04 seed={seed}");
    let taken = driver.take(&words).context("java-driver")?;
    let latencies = taken.halves_us.concat();
    let slow = latencies.iter().filter(|us| **us > driving.objective_ms * 1_000).count() as f64;
    let failed = taken.errors as f64;
    Ok(Outcome {
        requests: latencies.len() as f64 + failed,
        late: slow + failed,
        failed,
        lag_ms: taken.late_us as f64 / 1e3,
        cpu_s: taken.cpu_us as f64 / 1e6,
    })
}
