//! Who is measured, and with which configuration: one worker each, Redis without persistence, one
//! partition. Envoy and twemproxy have one server; they cannot write to several.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::load::{self, Load};
use crate::bench::process::{self, Server, Workbench};
use crate::needs;

/// All ratios are to Redis without a proxy.
pub(super) const REFERENCE: &str = "direct";

/// A start includes that a service takes its duplicates into use.
const READY_LIMIT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// One that is measured.
pub(super) struct Subject {
    pub(super) name: &'static str,
    proxy: Proxy,
    stores: usize,
}

/// What is between client and Redis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proxy {
    None,
    /// `reads` are further lines of its table.
    Evenkeel {
        consistency: &'static str,
        reads: &'static str,
    },
    Envoy,
    Twemproxy,
}

const READ_MY_OWN_WRITES: &str = "read-my-own-writes";

const fn over(consistency: &'static str, reads: &'static str) -> Proxy {
    Proxy::Evenkeel { consistency, reads }
}

const EVENKEEL: Proxy = over(READ_MY_OWN_WRITES, "");
const EVENTUAL: Proxy = over("eventual", "");

pub(super) const SUBJECTS: [Subject; 7] = [
    Subject { name: REFERENCE, proxy: Proxy::None, stores: 1 },
    Subject { name: "evenkeel-1", proxy: EVENKEEL, stores: 1 },
    Subject { name: "evenkeel-2", proxy: EVENKEEL, stores: 2 },
    Subject { name: "eventual-1", proxy: EVENTUAL, stores: 1 },
    Subject { name: "eventual-2", proxy: EVENTUAL, stores: 2 },
    Subject { name: "envoy", proxy: Proxy::Envoy, stores: 1 },
    Subject { name: "twemproxy", proxy: Proxy::Twemproxy, stores: 1 },
];

/// Who is measured while the first of its Redis servers stands still now and then.
pub(super) const STUMBLING: [Subject; 4] = [
    Subject { name: "one", proxy: EVENKEEL, stores: 1 },
    Subject { name: "all-of-3", proxy: over(READ_MY_OWN_WRITES, "read_copies = 8"), stores: 3 },
    Subject { name: "one-of-3", proxy: over(READ_MY_OWN_WRITES, "read_copies = 1"), stores: 3 },
    Subject {
        name: "hedged-3",
        proxy: over(READ_MY_OWN_WRITES, "read_copies = 1\nhedge = {}"),
        stores: 3,
    },
];

impl Subject {
    /// Whether it is built from this workspace.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.proxy, Proxy::Evenkeel { .. })
    }

    /// A level of consistency makes no difference to writes; scripts are compared with those of
    /// Redis itself.
    pub(super) fn takes(&self, load: &Load) -> bool {
        let is_ours = matches!(self.proxy, Proxy::None) || self.is_ours();
        (self.proxy != EVENTUAL || load.is_read()) && (load.test != "eval" || is_ours)
    }

    /// For its stores, its listener, and twemproxy's statistics, which cannot be switched off.
    pub(super) fn port_count(&self) -> usize {
        self.stores + 2
    }

    /// Starts it with its stores and waits until it takes a write.
    pub(super) fn start(
        &'static self,
        bench: &Workbench,
        ports: &[u16],
        binary: &Path,
    ) -> Result<Running> {
        let (stores, own) = ports.split_at(self.stores);
        let redis = needs::require("redis-server")?;
        let start_store = |(index, port): (usize, &u16)| {
            let name = format!("{}-store{index}", self.name);
            let number = port.to_string();
            let arguments = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
            // By which it stands still where that is measured.
            let arguments = [&arguments[..], &["--enable-debug-command", "local"]].concat();
            let arguments = [&["--port", &number][..], &arguments[..]].concat();
            Server::start(bench, &name, *port, &redis, &arguments)
        };
        let servers = stores.iter().enumerate().map(start_store).collect::<Result<Vec<_>>>()?;
        let proxy = match self.config(bench.folder(), stores, own) {
            Some(text) => Some(self.start_proxy(bench, own, &text, binary)?),
            None => None,
        };
        let mut running = Running { subject: self, proxy, stores: servers };
        running.wait_until_ready()?;
        Ok(running)
    }

    fn start_proxy(
        &self,
        bench: &Workbench,
        own: &[u16],
        text: &str,
        binary: &Path,
    ) -> Result<Server> {
        // Envoy tells formats by their endings.
        let ending = if self.is_ours() { "toml" } else { "yaml" };
        let config = bench.write(&format!("{}.{ending}", self.name), text)?;
        let config = config.to_str().context("the path of the target folder is not UTF-8")?;
        let statistics = own[1].to_string();
        let arguments: &[&str] = match self.proxy {
            Proxy::None | Proxy::Evenkeel { .. } => &["run", config],
            Proxy::Envoy => {
                let words = ["--concurrency", "1", "--disable-hot-restart", "-l", "error"];
                &[&["--config-path", config][..], &words].concat()
            }
            Proxy::Twemproxy => &["-c", config, "-a", "127.0.0.1", "-s", &statistics],
        };
        Server::start(bench, self.name, own[0], &self.program(binary)?, arguments)
    }

    fn program(&self, binary: &Path) -> Result<PathBuf> {
        match self.proxy {
            Proxy::None => needs::require("redis-server"),
            Proxy::Evenkeel { .. } => Ok(binary.to_owned()),
            Proxy::Envoy => needs::require("envoy"),
            Proxy::Twemproxy => needs::require("nutcracker"),
        }
    }

    /// What the program says about its version.
    pub(super) fn version(&self, binary: &Path) -> Result<String> {
        let program = self.program(binary)?;
        let text = process::version_of(self.name, &program, "--version")?;
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        let line = line.unwrap_or("unknown");
        // Envoy repeats its own path.
        let line = line.split_once("version: ").map_or(line, |(_, version)| version);
        Ok(if self.is_ours() { format!("{line} ({})", program.display()) } else { line.to_owned() })
    }

    /// The proxy's configuration, if there is a proxy.
    fn config(&self, folder: &Path, stores: &[u16], own: &[u16]) -> Option<String> {
        match self.proxy {
            Proxy::None => None,
            Proxy::Evenkeel { consistency, reads } => {
                let directory = folder.join(format!("{}-log", self.name));
                Some(evenkeel_config(&directory, stores, own[0], (consistency, reads)))
            }
            Proxy::Envoy => Some(envoy_config(stores[0], own[0])),
            Proxy::Twemproxy => Some(twemproxy_config(stores[0], own[0])),
        }
    }
}

/// Starts subjects one after the other and gives every key a value.
pub(super) fn start_all(
    subjects: impl Iterator<Item = &'static Subject>,
    bench: &Workbench,
    binary: &Path,
) -> Result<Vec<Running>> {
    let mut ports = bench.ports();
    let start = |subject: &'static Subject| {
        let (own, others) = ports.split_at(subject.port_count());
        ports = others;
        eprintln!("starting and filling {}", subject.name);
        let one = subject.start(bench, own, binary)?;
        load::fill(one.port()).with_context(|| format!("filling {}", subject.name))?;
        Ok(one)
    };
    subjects.map(start).collect()
}

/// A started subject. The proxy is ended before its stores.
pub(super) struct Running {
    pub(super) subject: &'static Subject,
    proxy: Option<Server>,
    stores: Vec<Server>,
}

/// CPU time spent so far, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct CpuNs {
    pub(super) proxy: u64,
    pub(super) stores: u64,
}

impl Running {
    /// Where clients connect.
    pub(super) fn port(&self) -> u16 {
        self.proxy.as_ref().unwrap_or(&self.stores[0]).port()
    }

    /// Where its Redis servers listen.
    pub(super) fn store_ports(&self) -> Vec<u16> {
        self.stores.iter().map(Server::port).collect()
    }

    pub(super) fn cpu_ns(&self) -> Result<CpuNs> {
        let proxy = self.proxy.as_ref().map_or(Ok(0), Server::cpu_ns)?;
        let stores = self
            .stores
            .iter()
            .try_fold(0, |sum, store| Ok::<_, anyhow::Error>(sum + store.cpu_ns()?))?;
        Ok(CpuNs { proxy, stores })
    }

    /// # Errors
    /// When a process has ended; with what it wrote.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        self.proxy.iter_mut().chain(&mut self.stores).try_for_each(Server::check_alive)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while let Err(error) = load::try_write(self.port()) {
            self.check_alive()?;
            if start.elapsed() > READY_LIMIT {
                let message = format!("{} takes no write in {READY_LIMIT:?}", self.subject.name);
                return Err(error.context(message));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

pub(super) fn evenkeel_config(
    directory: &Path,
    stores: &[u16],
    port: u16,
    (consistency, reads): (&str, &str),
) -> String {
    let stores: Vec<String> = stores.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    format!(
        "[process]
workers = 1

[duplicates.bench]
listen = \"127.0.0.1:{port}\"
directory = {directory:?}
store = \"redis\"
partitions = [[{}]]
consistency = \"{consistency}\"
{reads}
",
        stores.join(", ")
    )
}

fn twemproxy_config(store: u16, port: u16) -> String {
    format!(
        "bench:
  listen: 127.0.0.1:{port}
  hash: fnv1a_64
  distribution: ketama
  redis: true
  preconnect: true
  servers:
   - 127.0.0.1:{store}:1
"
    )
}

fn envoy_config(store: u16, port: u16) -> String {
    let address =
        |port: u16| format!("{{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}");
    let (listener, endpoint) = (address(port), address(store));
    format!(
        "static_resources:
  listeners:
  - name: bench
    address: {listener}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: bench
          settings: {{op_timeout: 5s}}
          prefix_routes: {{catch_all_route: {{cluster: redis}}}}
  clusters:
  - name: redis
    type: STATIC
    connect_timeout: 1s
    lb_policy: MAGLEV
    load_assignment:
      cluster_name: redis
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {endpoint}}}
"
    )
}

/// The kind of file system that `folder` is on; what a log costs depends on it.
pub(super) fn file_system(folder: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    kind_of_mount(&mounts, folder)
}

fn kind_of_mount(mounts: &str, folder: &Path) -> String {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let holders = fields.filter(|fields| fields.len() > 2 && folder.starts_with(fields[1]));
    // Of two mounts at one place the later hides the earlier.
    let nearest = holders.max_by_key(|fields| Path::new(fields[1]).components().count());
    nearest.map_or("unknown".to_owned(), |fields| fields[2].to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_configuration_names_its_port_and_its_stores() {
        for subject in SUBJECTS.iter().chain(&STUMBLING) {
            let stores = &[4001, 4002, 4005][..subject.stores];
            let Some(text) = subject.config(Path::new("/folder"), stores, &[4000, 4003]) else {
                assert_eq!(subject.name, REFERENCE);
                continue;
            };
            for port in stores.iter().chain(&[4000]) {
                assert!(text.contains(&port.to_string()), "{}: {text}", subject.name);
            }
        }
    }

    #[test]
    fn names_are_told_apart_and_the_reference_is_among_them() {
        let names: BTreeSet<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
        assert_eq!(names.len(), SUBJECTS.len());
        assert!(names.contains(REFERENCE));
    }

    #[test]
    fn who_takes_which_load() {
        for load in &load::LOADS {
            let takers = SUBJECTS.iter().filter(|subject| subject.takes(load)).count();
            let expected = match load.test {
                "get" => 7,
                "eval" => 3,
                _ => 5,
            };
            assert_eq!(takers, expected, "{}", load.name);
        }
    }

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tm xfs rw 0 0\n";
        assert_eq!(kind_of_mount(mounts, Path::new("/tmp/bench")), "tmpfs");
        assert_eq!(kind_of_mount(mounts, Path::new("/home")), "ext4");
        assert_eq!(kind_of_mount("", Path::new("/home")), "unknown");
    }
}
