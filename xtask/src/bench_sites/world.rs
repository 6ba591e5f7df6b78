//! What runs during all turns: nodes, a process of Evenkeel at each site for each kind of arm, and
//! the ways between sites.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Options;
use super::arms::{Arm, Profile, SITES, Shares, Sharing};
use super::drivers::{Drivers, Driving, Seen};
use super::turn::{Asking, Demand, Measurement, TABLE, Users, said};
use crate::bench::cassandra::Cluster;
use crate::bench::process::{self, Server, Workbench};
use crate::machine::Ticks;
use crate::workspace;

/// Kinds of processes: without plans, with plans by the profile, without one, and by the profile
/// without learning.
const KINDS: usize = 4;
/// For users, for people, and of the mesh.
const PORTS_EACH: usize = 3;
pub(super) const PORTS: usize = KINDS * SITES.len() * PORTS_EACH;

const PLAIN: usize = 0;
const BY_PROFILE: usize = 1;
const BLANK: usize = 2;
const FIXED: usize = 3;

/// Each site's requests per second while nodes are warmed up, with whole processors.
const WARM_PER_S: f64 = 1_000.0;

/// Of the profile, and of what it was made by.
const PROFILE: &str = "store.profile.toml";
const PROFILE_CONFIG: &str = "store.toml";

/// Of every site, for processes that plan.
const CURVES: &str = "curves = ['store.profile.toml']\n";

/// How long a process may take until it serves.
const SERVES_LIMIT: Duration = Duration::from_secs(30);

/// Everything that runs. What comes first ends first.
pub(super) struct World<'a> {
    drivers: Option<Drivers>,
    /// By kind and site; no servers of a kind that is not measured.
    servers: [Vec<Server>; KINDS],
    /// Where the ways begin, in the order of [`lane`].
    lanes: Vec<String>,
    cluster: Cluster,
    bench: &'a Workbench,
    binary: &'a Path,
}

/// Where a way leads: to a site's node, to its plain process, or to a mesh.
#[derive(Clone, Copy)]
enum End {
    Node,
    Plain,
    Mesh(usize),
}

const ENDS: [End; 5] =
    [End::Node, End::Plain, End::Mesh(BY_PROFILE), End::Mesh(BLANK), End::Mesh(FIXED)];

/// The place of a way in the list of all.
const fn lane(from: usize, to: usize, end: End) -> usize {
    let end = match end {
        End::Node => 0,
        End::Plain => 1,
        End::Mesh(kind) => 1 + kind,
    };
    (from * SITES.len() + to) * ENDS.len() + end
}

impl<'a> World<'a> {
    /// Starts nodes, ways, records, and processes that do not plan.
    pub(super) fn start(options: &Options, bench: &'a Workbench, binary: &'a Path) -> Result<Self> {
        let names = SITES.map(|(_, datacenter)| datacenter).join(",");
        // Without Java's second compiler, which is never done, and would change what nodes can do.
        let words = format!("data_centers={names} optimized=false");
        let cluster = Cluster::start(&words, SITES.len())?;
        let (drivers, servers, lanes) = (None, Default::default(), Vec::new());
        let mut this = Self { drivers, servers, lanes, cluster, bench, binary };
        this.open_lanes(options)?;
        this.fill()?;
        let mut certificates = Command::new(binary);
        certificates.args(["certificates", "--out"]).arg(bench.folder().join("certificates"));
        said(certificates.args(SITES.map(|(name, _)| name)))?;
        this.start_kind(options, PLAIN, "")?;
        Ok(this)
    }

    fn open_lanes(&mut self, options: &Options) -> Result<()> {
        let mut line = "lanes".to_owned();
        for from in 0..SITES.len() {
            for to in 0..SITES.len() {
                for end in ENDS {
                    let target = match end {
                        End::Node => self.cluster.addresses()[to].to_owned(),
                        End::Plain => format!("127.0.0.1:{}", self.port(PLAIN, to, 0)),
                        End::Mesh(kind) => format!("127.0.0.1:{}", self.port(kind, to, 2)),
                    };
                    write!(line, " {target}={}", options.way_ms(from, to))?;
                }
            }
        }
        let words = self.cluster.tell(&line)?;
        let mut words = words.split_whitespace().skip(1);
        let process = words.next().context("the rig does not say who it is")?;
        self.lanes = words.map(str::to_owned).collect();
        ensure!(self.lanes.len() == SITES.len() * SITES.len() * ENDS.len(), "the rig's ways");
        // A way that waits for a processor is longer than it says. Where it is not allowed, the
        // load's own lateness shows it.
        let mut command = Command::new("chrt");
        command.args(["--all-tasks", "--rr", "--pid", "1", process]);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(())
    }

    fn fill(&self) -> Result<()> {
        let replication = replication();
        let url = format!("cql://{}/everywhere", self.cluster.addresses()[0]);
        let mut command = process::child(self.binary);
        command.args(["load", &url]).args(TABLE).args(["--fill", "--replication", &replication]);
        // A first statement waits for Java.
        command.args(["--rate", "10/s", "--duration", "1s", "--timeout", "30s"]);
        said(&mut command).map(|_| ()).context("the table cannot be filled")
    }

    fn port(&self, kind: usize, site: usize, which: usize) -> u16 {
        self.bench.ports()[(kind * SITES.len() + site) * PORTS_EACH + which]
    }

    fn start_kind(&mut self, options: &Options, kind: usize, curves: &str) -> Result<()> {
        for (site, (name, _)) in SITES.iter().enumerate() {
            let name = format!("{name}-{kind}");
            let text = self.config(options, kind, site, curves);
            let path = self.bench.write(&format!("{name}.toml"), &text)?;
            let mut command = process::first_child(self.binary);
            command.arg("run").arg(path);
            let port = self.port(kind, site, 0);
            self.servers[kind].push(Server::of(self.bench, &name, port, &mut command)?);
        }
        (0..SITES.len()).try_for_each(|site| self.wait_until_served(options, kind, site))
    }

    /// A process that listens may not know its nodes yet.
    fn wait_until_served(&self, options: &Options, kind: usize, site: usize) -> Result<()> {
        let began = Instant::now();
        loop {
            let address = &format!("127.0.0.1:{}", self.port(kind, site, 0));
            let asking = Asking { site, address, per_s: 10.0, seconds: 1, seed: 1 };
            match Users::begin(self.binary, options, &asking)?.wait() {
                Ok(outcome) if outcome.failed == 0.0 => return Ok(()),
                Err(error) if began.elapsed() > SERVES_LIMIT => return Err(error),
                Ok(_) if began.elapsed() > SERVES_LIMIT => {
                    bail!("{} does not serve after {SERVES_LIMIT:?}", SITES[site].0)
                }
                _ => sleep(Duration::from_millis(200)),
            }
        }
    }

    /// What `evenkeel run` reads: as `docs/cassandra.md` has it, and what is not default says why
    /// beside the option that chooses it.
    fn config(&self, options: &Options, kind: usize, site: usize, curves: &str) -> String {
        let (name, datacenter) = SITES[site];
        let nodes = self.cluster.addresses();
        let others = (0..SITES.len()).filter(|other| *other != site);
        let reached: Vec<String> = others
            .map(|to| format!("'{}' = '{}'", nodes[to], self.lanes[lane(site, to, End::Node)]))
            .collect();
        let mut text = format!(
            "[process]\nworkers = 1\n\
             [[listen]]\naddress = '127.0.0.1:{}'\nupstream = 'store'\n\
             [admin]\naddress = '127.0.0.1:{}'\n\
             [upstream.store]\nprotocol = 'cql'\nreplicas = ['{}']\npolicy = 'c3'\n\
             [upstream.store.cql]\ndatacenter = '{datacenter}'\nreached_at = {{ {} }}\n",
            self.port(kind, site, 0),
            self.port(kind, site, 1),
            nodes[site],
            reached.join(", "),
        );
        if kind == PLAIN {
            return text;
        }
        text += &format!(
            "[redirect]\nupstream = 'store'\nsite = '{name}'\nobjective = '{}ms'\n\
             listen = '127.0.0.1:{}'\nperiod = '{}ms'\n\
             certificate = 'certificates/{name}.pem'\nkey = 'certificates/{name}.key'\n\
             ca_file = 'certificates/authority.pem'\nlearn = {}\n",
            options.objective_ms,
            self.port(kind, site, 2),
            options.epoch_ms,
            kind != FIXED,
        );
        for (to, (name, datacenter)) in SITES.iter().enumerate() {
            let peer = match to == site {
                true => format!("127.0.0.1:{}", self.port(kind, site, 2)),
                false => self.lanes[lane(site, to, End::Mesh(kind))].clone(),
            };
            text += &format!(
                "[[redirect.sites]]\nname = '{name}'\ndatacenter = '{datacenter}'\n\
                 peer = '{peer}'\n{curves}"
            );
        }
        text
    }

    /// So that Java has compiled what it will run while it may use whole processors.
    pub(super) fn warm_up(&mut self, seconds: u64) -> Result<()> {
        let options = Options::default();
        let users = (0..SITES.len()).map(|site| {
            let address = &format!("127.0.0.1:{}", self.port(PLAIN, site, 0));
            let asking = Asking { site, address, per_s: WARM_PER_S, seconds, seed: 1 };
            Users::begin(self.binary, &options, &asking)
        });
        let users: Vec<Users> = users.collect::<Result<_>>()?;
        users.into_iter().try_for_each(|users| users.wait().map(|_| ()))
    }

    /// Limits every node, to a processor and to a share of it.
    pub(super) fn limit(&mut self, options: &Options) -> Result<()> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for (place, process) in self.cluster.processes().enumerate() {
            let processor = (place % processors).to_string();
            let mut command = Command::new("taskset");
            command.args(["--all-tasks", "--cpu-list", "--pid", &processor, &process.to_string()]);
            said(&mut command).context("a node cannot be kept to a processor")?;
        }
        for node in 0..SITES.len() {
            let (share, period_ms) = (options.share(), options.quota_period_ms);
            let means = self.cluster.tell(&format!("quota {node} {share} {period_ms}"))?;
            if !means.starts_with("Group") {
                bail!(
                    "no quota from the kernel for node {node}, by `{means}`: are you root, and is \
                     /sys/fs/cgroup writable? Stopping a node instead would be longer than it may"
                );
            }
        }
        Ok(())
    }

    /// What `evenkeel profile` measures of the first site, through its process.
    pub(super) fn profile(&mut self, options: &Options) -> Result<Profile> {
        let kept = workspace::target().join("xtask/sites");
        if !options.is_profiled {
            self.write_profile_config(options, &kept)?;
            eprintln!("profiling one site, some three minutes");
        }
        let mut command = process::first_child(self.binary);
        command.arg("profile").arg(kept.join(PROFILE_CONFIG)).arg("--json");
        // Of a profile that is complete this measures nothing.
        let said = said(command.arg("--out").arg(kept.join(PROFILE)))?;
        let path = self.bench.folder().join(PROFILE);
        fs::copy(kept.join(PROFILE), &path).context("the profile cannot be copied")?;
        read_profile(path, &said)
    }

    fn write_profile_config(&self, options: &Options, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {folder:?}"))?;
        let _ = fs::remove_file(folder.join(PROFILE));
        let text = format!(
            "name = 'store'\nservers = 1\nobjective = '{}ms'\n\
             [cassandra]\nurl = 'cql://127.0.0.1:{}/everywhere'\nrecords = 200\n\
             record_bytes = 100\npopularity = 'uniform'\nconsistency = 'ONE'\nconnections = 2\n\
             [steps]\nduration = '6s'\nwarm_up = '4s'\n\
             [loads]\nwrite_shares = [0.04]\nrate_min = 300\nper_decade = 6\nprecision = '10%'\n",
            options.objective_ms,
            self.port(PLAIN, 0, 0),
        );
        fs::write(folder.join(PROFILE_CONFIG), text).context("the profile's configuration")
    }

    /// What `evenkeel plan redirect` computes for the demand that is to come.
    pub(super) fn best_split(
        &self,
        options: &Options,
        profile: &Profile,
        demand: &Demand,
    ) -> Result<Shares> {
        let row = |from: usize| {
            let ways = [0, 1, 2].map(|to| format!("'{}ms'", options.way_ms(from, to)));
            format!("[{}]", ways.join(", "))
        };
        let mut text = format!(
            "objective = '{}ms'\nround_trips = [{}, {}, {}]\n",
            options.objective_ms,
            row(0),
            row(1),
            row(2)
        );
        let file = profile.path.file_name().context("a profile is a file")?.to_string_lossy();
        for ((name, _), per_s) in SITES.iter().zip(demand.0) {
            text += &format!(
                "[[site]]\nname = '{name}'\ndemand = '{per_s:.2}/s'\nservers = 1\n\
                 profile = '{file}'\n"
            );
        }
        let path = self.bench.write("split.toml", &text)?;
        let mut command = Command::new(self.binary);
        read_split(&said(command.args(["plan", "redirect"]).arg(path).arg("--json"))?)
    }

    /// Starts the processes that plan, as far as they are measured.
    pub(super) fn start_planning(&mut self, options: &Options) -> Result<()> {
        for (kind, curves) in [(BY_PROFILE, CURVES), (BLANK, ""), (FIXED, CURVES)] {
            // The first is there for drivers too.
            if kind == BY_PROFILE || options.arms.iter().any(|arm| kind_of(arm) == kind) {
                self.start_kind(options, kind, curves)?;
            }
        }
        Ok(())
    }

    /// Starts users' drivers.
    pub(super) fn start_drivers(&mut self) -> Result<()> {
        let seen = [0, 1, 2].map(|site| Seen {
            datacenter: SITES[site].1,
            addresses: [PLAIN, BY_PROFILE]
                .map(|kind| format!("127.0.0.1:{}", self.port(kind, site, 0))),
        });
        let drivers = Drivers::start(self.bench, &mut self.cluster, &replication(), &seen)?;
        self.drivers = Some(drivers);
        Ok(())
    }

    /// Takes one turn.
    pub(super) fn take(
        &mut self,
        options: &Options,
        arm: &Arm,
        demand: &Demand,
        split: &Shares,
        round: u64,
    ) -> Result<Measurement> {
        self.ask(options, arm, demand, split, options.settle, 2 * round)?;
        let (before, began) = (self.used(arm)?, Instant::now());
        let mut measured = self.ask(options, arm, demand, split, options.seconds, 2 * round + 1)?;
        let after = self.used(arm)?;
        let elapsed_s = began.elapsed().as_secs_f64();
        let processors =
            std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let shares = after.machine.since(before.machine);
        measured.nodes_busy = (after.nodes_s - before.nodes_s) / elapsed_s;
        measured.proxies_busy = (after.proxies_s - before.proxies_s) / elapsed_s;
        let loads_s: f64 = measured.sites.iter().map(|site| site.cpu_s).sum();
        let own = measured.nodes_busy + measured.proxies_busy + loads_s / elapsed_s;
        measured.others_busy = (shares.at_work * processors - own).max(0.0);
        measured.stolen = shares.stolen;
        measured.away = match arm.is_planned() {
            true => (after.away - before.away) / (after.sent - before.sent).max(1.0),
            false => away(&arm.shares(split), demand),
        };
        Ok(measured)
    }

    /// All sites' users ask for so long.
    fn ask(
        &mut self,
        options: &Options,
        arm: &Arm,
        demand: &Demand,
        split: &Shares,
        seconds: u64,
        seed: u64,
    ) -> Result<Measurement> {
        let mut measured = Measurement::default();
        if let Some(drivers) = &mut self.drivers {
            let objective_ms = options.objective_ms;
            let driving = Driving { arm, per_s: demand.0, seconds, seed, objective_ms };
            measured.sites = drivers.take(&driving)?;
            measured.foretold = self.foretold(arm, demand)?;
            return Ok(measured);
        }
        let users = self.users(options, arm, demand, split, seconds, seed)?;
        sleep(Duration::from_secs(seconds / 2));
        measured.foretold = self.foretold(arm, demand)?;
        for users in users {
            measured.add(users.site, users.wait()?);
        }
        Ok(measured)
    }

    /// The loads of a turn.
    fn users(
        &self,
        options: &Options,
        arm: &Arm,
        demand: &Demand,
        split: &Shares,
        seconds: u64,
        seed: u64,
    ) -> Result<Vec<Users>> {
        let shares = arm.shares(split);
        let mut users = Vec::new();
        for (site, row) in shares.iter().enumerate() {
            for (to, share) in row.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                let address = match to == site {
                    true => format!("127.0.0.1:{}", self.port(kind_of(arm), site, 0)),
                    false => self.lanes[lane(site, to, End::Plain)].clone(),
                };
                let asking = Asking {
                    site,
                    address: &address,
                    per_s: share * demand.0[site],
                    seconds,
                    // The same in every arm of a round.
                    seed: (seed * 9 + site as u64 * 3 + to as u64) + 1,
                };
                users.push(Users::begin(self.binary, options, &asking)?);
            }
        }
        Ok(users)
    }

    /// What is counted so far.
    fn used(&mut self, arm: &Arm) -> Result<Used> {
        let servers = &mut self.servers[kind_of(arm)];
        let mut used =
            Used { machine: Ticks::now()?, nodes_s: self.cluster.cpu_s()?, ..Used::default() };
        for (site, server) in servers.iter_mut().enumerate() {
            server.check_alive()?;
            used.proxies_s += server.cpu_ns()? as f64 / 1e9;
            if arm.is_planned() {
                let text = process::get(self.bench.ports()[admin(kind_of(arm), site)], "/metrics")?;
                for (datacenter, requests) in sent(&text) {
                    used.sent += requests;
                    used.away += if datacenter == SITES[site].0 { 0.0 } else { requests };
                }
            }
        }
        Ok(used)
    }

    /// The share of late requests that the plan in force foretells, of all sites' users.
    fn foretold(&self, arm: &Arm, demand: &Demand) -> Result<Option<f64>> {
        if !arm.is_planned() {
            return Ok(None);
        }
        let text = process::get(self.bench.ports()[admin(kind_of(arm), 0)], "/metrics")?;
        let name = "evenkeel_redirect_planned_missed_ratio{";
        let of_sites = by_datacenter(&text, name);
        let late: Option<f64> = SITES.iter().zip(demand.0).try_fold(0.0, |sum, (site, per_s)| {
            let (_, share) = of_sites.iter().find(|(name, _)| *name == site.0)?;
            Some(sum + share * per_s)
        });
        Ok(late.map(|late| late / demand.0.iter().sum::<f64>()))
    }
}

/// Every record in every data centre.
fn replication() -> String {
    let factors = SITES.map(|(_, datacenter)| format!("'{datacenter}': 1"));
    format!("{{'class': 'NetworkTopologyStrategy', {}}}", factors.join(", "))
}

/// Counters at one moment.
#[derive(Default)]
struct Used {
    machine: Ticks,
    nodes_s: f64,
    proxies_s: f64,
    sent: f64,
    away: f64,
}

/// Whose processes an arm's users ask.
fn kind_of(arm: &Arm) -> usize {
    match arm.sharing {
        Sharing::Local | Sharing::Uniform | Sharing::Split => PLAIN,
        Sharing::Plan => BY_PROFILE,
        Sharing::Blank => BLANK,
        Sharing::Fixed => FIXED,
    }
}

const fn admin(kind: usize, site: usize) -> usize {
    (kind * SITES.len() + site) * PORTS_EACH + 1
}

/// Which share of all requests such shares serve elsewhere.
fn away(shares: &Shares, demand: &Demand) -> f64 {
    let sites = shares.iter().enumerate().zip(demand.0);
    let away: f64 = sites.map(|((site, row), per_s)| (1.0 - row[site]) * per_s).sum();
    away / demand.0.iter().sum::<f64>()
}

/// Requests of users by the data centre they were sent to.
fn sent(text: &str) -> Vec<(&str, f64)> {
    by_datacenter(text, "evenkeel_redirect_requests_total{")
}

/// The values of a metric by its label `datacenter`.
fn by_datacenter<'a>(text: &'a str, name: &str) -> Vec<(&'a str, f64)> {
    let value = |line: &'a str| {
        let (labels, value) = line.strip_prefix(name)?.rsplit_once("} ")?;
        let (_, rest) = labels.split_once("datacenter=\"")?;
        Some((rest.split_once('"')?.0, value.trim().parse().ok()?))
    };
    text.lines().filter_map(value).collect()
}

/// What `evenkeel profile --json` says.
fn read_profile(path: PathBuf, text: &str) -> Result<Profile> {
    let document: Value = serde_json::from_str(text).context("no JSON")?;
    let loads = document["curves"][0]["loads"].as_array().context("a profile without loads")?;
    let point = |load: &Value| Some((load["load_per_s"].as_f64()?, load["violation"].as_f64()?));
    let curve: Vec<(f64, f64)> = loads.iter().filter_map(point).collect();
    ensure!(curve.iter().any(|(_, late)| *late >= 0.5), "the profile has no load that is too much");
    let capacity = curve.iter().take_while(|(_, late)| *late < 0.5).last();
    let (capacity_per_s, _) = *capacity.context("most requests are late at every load")?;
    Ok(Profile { path, capacity_per_s, curve })
}

/// What `evenkeel plan redirect --json` says, as shares of each site's demand.
fn read_split(text: &str) -> Result<Shares> {
    let document: Value = serde_json::from_str(text).context("no JSON")?;
    let mut shares = [[0.0; 3]; 3];
    for (site, row) in shares.iter_mut().enumerate() {
        for (to, share) in row.iter_mut().enumerate() {
            let quanta = document["rates"][site][to].as_f64();
            *share = quanta.with_context(|| format!("no rates of site {site}: {text}"))?;
        }
        // What no site can serve in time stays.
        row[site] += document["shed"][site].as_f64().unwrap_or(0.0);
        let all: f64 = row.iter().sum();
        row.iter_mut().for_each(|share| *share /= all);
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_told_apart() {
        let mut places: Vec<usize> =
            (0..9).flat_map(|pair| ENDS.map(|end| lane(pair / 3, pair % 3, end))).collect();
        places.sort_unstable();
        assert_eq!(places, (0..45).collect::<Vec<_>>());
    }

    #[test]
    fn a_plan_becomes_shares_and_what_is_shed_stays() {
        let text = r#"{"rates": [[60, 20, 10], [0, 40, 0], [0, 0, 40]], "shed": [10, 0, 0]}"#;
        let shares = read_split(text).unwrap();
        assert_eq!(shares, [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
        assert!((away(&shares, &Demand([100.0, 40.0, 60.0])) - 0.15).abs() < 1e-12);
        read_split("{}").unwrap_err();
    }

    #[test]
    fn metrics_are_read_by_their_data_centre() {
        let text = "# TYPE evenkeel_redirect_requests_total counter\n\
                    evenkeel_redirect_requests_total{upstream=\"s\",datacenter=\"london\"} 70\n\
                    evenkeel_redirect_requests_total{datacenter=\"ireland\",upstream=\"s\"} 30\n\
                    evenkeel_redirect_served_total{datacenter=\"ireland\"} 5\n";
        assert_eq!(sent(text), [("london", 70.0), ("ireland", 30.0)]);
    }

    #[test]
    fn a_site_can_serve_what_is_mostly_in_time() {
        let profile = |loads: &[(f64, f64)]| {
            let load = |(per_s, late): &(f64, f64)| {
                format!(r#"{{"load_per_s": {per_s:?}, "violation": {late:?}}}"#)
            };
            let loads: Vec<String> = loads.iter().map(load).collect();
            let text = format!(r#"{{"curves": [{{"loads": [{}]}}]}}"#, loads.join(","));
            read_profile(PathBuf::from("store"), &text)
        };
        let known = profile(&[(300.0, 0.0), (600.0, 0.4), (700.0, 0.9), (900.0, 1.0)]).unwrap();
        assert_eq!(known.capacity_per_s, 600.0);
        profile(&[(300.0, 0.0), (600.0, 0.4)]).unwrap_err();
        profile(&[(300.0, 0.9)]).unwrap_err();
    }
}
