//! Three real services, and what is done to them.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use evenkeel_core::Rng;
use evenkeel_testkit::cassandra::{self, Cluster, Quota, Spec};
use evenkeel_testkit::nginx;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::nobody;

/// Replicas of every world.
pub(crate) const REPLICAS: usize = 3;
/// Requests of nginx are for so many paths, each of which always takes the same.
const PATHS: usize = 2_000;
/// Where distributions put the module whose `echo_blocking_sleep` holds nginx's only worker.
const ECHO: &str = "/usr/lib/nginx/modules/ngx_http_echo_module.so";
/// Items of the shops, of which every tenth is asked for.
const ITEMS: usize = 3_000;
/// What a page of an item takes is slowed to, so that three shops fit in one machine.
const SHOP_SPEED: &str = "0.05";
/// A limited node has this share of a processor in each period.
const LIMIT: (f64, Duration) = (0.2, Duration::from_millis(10));
/// `nodetool` starts a Java of its own.
const COMPACTION: Duration = Duration::from_secs(4);
/// How long faults are left out at both ends of a run.
const CALM: Duration = Duration::from_secs(2);

/// Which service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Shop,
    Cassandra,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Nginx, Self::Shop, Self::Cassandra];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Shop => "shop",
            Self::Cassandra => "cassandra",
        }
    }

    /// Whether its servers run before all else: nodes of Cassandra need too much for that.
    pub(crate) const fn is_first(self) -> bool {
        !matches!(self, Self::Cassandra)
    }

    /// Requests per second.
    pub(crate) const fn rate(self) -> u64 {
        match self {
            Self::Nginx => 500,
            Self::Shop => 450,
            Self::Cassandra => 400,
        }
    }
}

/// What is done to a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// It is stopped (SIGSTOP) for so long.
    Stop(Duration),
    /// It has a share of a processor for so long.
    Limit(Duration),
    /// It compacts its table, for which there is so long.
    Compact(Duration),
}

impl Fault {
    /// How long it takes.
    pub(crate) const fn length(self) -> Duration {
        let (Self::Stop(length) | Self::Limit(length) | Self::Compact(length)) = self;
        length
    }
}

/// When, from the start of the load, to whom, what: one after the other, the same for all runs of
/// a round.
pub(crate) fn faults(kind: Kind, round: u64, seconds: u64) -> Vec<(Duration, usize, Fault)> {
    let mut rng = Rng::stream(round, "faults of real servers");
    let end = Duration::from_secs(seconds).saturating_sub(CALM);
    let (mut at, mut all) = (CALM, Vec::new());
    // A limit takes a processor's share away, which sleepers and slower machines do not need.
    let works = kind == Kind::Cassandra;
    loop {
        at += Duration::from_secs_f64(0.5 + 1.5 * rng.unit());
        let replica = rng.below(REPLICAS);
        let fault = match if works { rng.unit() } else { 1.0 } {
            ..0.05 => Fault::Compact(COMPACTION),
            0.05..0.15 => Fault::Limit(Duration::from_secs_f64(2.0 + 2.0 * rng.unit())),
            _ => Fault::Stop(Duration::from_secs_f64(0.05 + 0.15 * rng.unit())),
        };
        let length = fault.length();
        if at + length > end {
            return all;
        }
        all.push((at, replica, fault));
        at += length;
    }
}

/// Running servers. They end with it.
pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) addresses: Vec<SocketAddr>,
    programs: Vec<Program>,
    cluster: Option<Cluster>,
}

impl World {
    pub(crate) fn start(kind: Kind, folder: &Path, binary: &Path) -> Result<Self> {
        let mut world = Self { kind, addresses: Vec::new(), programs: Vec::new(), cluster: None };
        match kind {
            Kind::Nginx => world.start_nginx(folder)?,
            Kind::Shop => world.start_shops(folder, &binary.with_file_name("evenkeel-shop"))?,
            Kind::Cassandra => world.start_nodes(binary)?,
        }
        Ok(world)
    }

    /// The process of a replica.
    pub(crate) fn process(&self, replica: usize) -> Result<u32> {
        let process = match &self.cluster {
            Some(cluster) => cluster.process(replica),
            None => self.programs[replica].id(),
        };
        process.with_context(|| format!("replica {replica} has ended"))
    }

    /// Has a node compact its table.
    pub(crate) fn compact(&self, replica: usize) {
        let cluster = self.cluster.as_ref();
        cluster.into_iter().for_each(|it| drop(it.nodetool(replica, &["compact", "replayed"])));
    }

    fn start_nginx(&mut self, folder: &Path) -> Result<()> {
        let nginx = nginx::find().context("no nginx: `cargo xtask needs --install`")?;
        ensure!(Path::new(ECHO).is_file(), "no {ECHO}: install libnginx-mod-http-echo");
        for number in 0..REPLICAS {
            let (place, address) = (folder.join(format!("nginx-{number}")), nobody());
            fs::create_dir_all(&place)?;
            let file = place.join("nginx.conf");
            fs::write(&file, nginx_conf(&place, address))?;
            let mut command = child(&nginx);
            command.arg("-p").arg(&place).arg("-c").arg(&file).arg("-e");
            command.arg(place.join("error.log")).stdin(Stdio::null());
            self.begin(&mut command, address);
        }
        Ok(())
    }

    /// Shops of one catalogue, with a database each, which they only read.
    fn start_shops(&mut self, folder: &Path, shop: &Path) -> Result<()> {
        ensure!(shop.is_file(), "no {}: cargo build --release -p evenkeel-shop", shop.display());
        for number in 0..REPLICAS {
            let database = folder.join(format!("shop-{number}.db"));
            let items = ITEMS.to_string();
            let mut generate = Command::new(shop);
            generate.args(["generate", "--items", &items, "--database"]).arg(&database);
            ensure!(generate.output()?.status.success(), "the shop's catalogue cannot be made");
            let address = nobody();
            let mut command = child(shop);
            command.args(["--workers", "2", "--speed", SHOP_SPEED, "--items", &items]);
            command.arg("--database").arg(&database).arg("--listen").arg(address.to_string());
            self.begin(command.stdin(Stdio::null()).stdout(Stdio::null()), address);
        }
        Ok(())
    }

    fn begin(&mut self, command: &mut Command, address: SocketAddr) {
        let mut program = Program::start(command);
        program.wait_listening(address);
        self.programs.push(program);
        self.addresses.push(address);
    }

    /// Nodes with one table, of which each has all records: then every node answers every request.
    fn start_nodes(&mut self, binary: &Path) -> Result<()> {
        if let Err(missing) = cassandra::possible() {
            bail!("no Cassandra: {missing}");
        }
        eprintln!("starting three nodes");
        let cluster = Cluster::start(&Spec { heap_mib: 512, ..Spec::of(&[("dc1", REPLICAS)]) });
        self.addresses = (0..REPLICAS).map(|node| cluster.address(node)).collect();
        self.cluster = Some(cluster);
        let url = format!("cql://{}/replayed", self.addresses[0]);
        let replication = "{'class': 'NetworkTopologyStrategy', 'dc1': 3}";
        let mut fill = Command::new(binary);
        fill.args(["load", &url]).args(TABLE).args(["--fill", "--replication", replication]);
        // A first statement waits for Java.
        fill.args(["--rate", "10/s", "--duration", "1s", "--timeout", "30s"]);
        let filled = fill.output().context("evenkeel load")?;
        let said = String::from_utf8_lossy(&filled.stderr);
        ensure!(filled.status.success(), "the table cannot be filled: {said}");
        for address in &self.addresses {
            // Java compiles what it runs often.
            let mut warm = Command::new(binary);
            warm.args(["load", &format!("cql://{address}/replayed")]).args(TABLE);
            warm.args(["--rate", "800/s", "--duration", "20s"]).output()?;
        }
        Ok(())
    }

    /// What a proxy says of these replicas, without policy.
    pub(crate) fn upstream(&self, count: usize) -> String {
        let replicas = &self.addresses[..count];
        let replicas: Vec<String> = replicas.iter().map(|it| format!("'{it}'")).collect();
        let mut text = format!("replicas = [{}]\n", replicas.join(", "));
        if self.kind == Kind::Cassandra {
            // All nodes are found, whichever are named.
            let all: Vec<String> = self.addresses.iter().map(|it| format!("'{it}'")).collect();
            text = format!("protocol = 'cql'\nreplicas = [{}]\n", all.join(", "));
            text += "cql = { datacenter = 'dc1' }\n";
        }
        text
    }

    /// What a load is told of where the proxy listens.
    pub(crate) fn load(&self, proxy: SocketAddr) -> Vec<String> {
        let words: Vec<String> = match self.kind {
            Kind::Nginx => vec![format!("http://{proxy}/{{key}}"), "--keys".into()],
            Kind::Shop => vec![format!("http://{proxy}/item/{{key}}1"), "--keys".into()],
            Kind::Cassandra => {
                let mut words = vec![format!("cql://{proxy}/replayed")];
                words.extend(TABLE.map(str::to_owned));
                return words;
            }
        };
        let keys = if self.kind == Kind::Nginx { PATHS } else { ITEMS / 10 };
        [words, vec![keys.to_string()]].concat()
    }
}

/// Reads alone, of whole records: what changes nothing may be hedged.
const TABLE: [&str; 12] = [
    "--records",
    "2000",
    "--record-bytes",
    "1000",
    "--popularity",
    "uniform",
    "--consistency",
    "ONE",
    "--workload",
    "c",
    "--connections",
    "4",
];

/// One server of one worker, which each request holds: first for what its path takes, then for
/// what falls to it here. Together 2.2 ms in the mean.
fn nginx_conf(place: &Path, address: SocketAddr) -> String {
    let mut rng = Rng::seeded(7);
    let mut paths = String::new();
    for path in 0..PATHS {
        // Whole milliseconds: nginx knows none that are shorter.
        let ms = rng.exponential().mul_add(1.2, 0.5) as u64;
        let _ = writeln!(paths, "    /{path} 0.{ms:03};");
    }
    let place = place.display();
    format!(
        "load_module {ECHO};\ndaemon off;\nmaster_process off;\nworker_processes 1;\n\
         pid {place}/nginx.pid;\nerror_log {place}/error.log;\n\
         events {{ worker_connections 4096; }}\nhttp {{\n  access_log off;\n\
         \x20 keepalive_requests 1000000;\n  map_hash_max_size 8192;\n\
         \x20 client_body_temp_path {place}/body;\n  proxy_temp_path {place}/proxy;\n\
         \x20 fastcgi_temp_path {place}/fastcgi;\n  uwsgi_temp_path {place}/uwsgi;\n\
         \x20 scgi_temp_path {place}/scgi;\n\
         \x20 split_clients $request_id $here {{ 30% 0.000; 40% 0.001; 20% 0.002; 10% 0.004; }}\n\
         \x20 map $uri $path {{\n    default 0.001;\n{paths}  }}\n\
         \x20 server {{\n    listen {address};\n    location / {{\n\
         \x20     echo_blocking_sleep $path;\n      echo_blocking_sleep $here;\n\
         \x20     echo done;\n    }}\n  }}\n}}\n"
    )
}

/// A program that ends when this process does, however that dies.
pub(crate) fn child(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Stops a process, or lets it go on.
pub(crate) fn signal(process: u32, word: &str) -> Result<()> {
    let status = Command::new("kill").args([word, &process.to_string()]).status()?;
    ensure!(status.success(), "kill {word} {process}");
    Ok(())
}

/// Limits a process until it is dropped.
pub(crate) fn limited(process: u32) -> Quota {
    Quota::of(process, LIMIT.0, LIMIT.1)
}
