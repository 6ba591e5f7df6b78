//! Three real PostgreSQL servers under Patroni, each in a region of its own, and the etcd in which
//! Patroni keeps who leads.
//!
//! Each member runs in a mount namespace with an `/etc/hosts` of its own, in which the names of the
//! others lead to relays as long as the way to their regions: replication and Patroni's own checks
//! take it. etcd is near to all.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use evenkeel_placement::act::patroni::{Patroni, Settings, Site};
use evenkeel_testkit::distance::Lanes;
use evenkeel_testkit::regions::{end, here, hosts, mount_namespaces, seen, succeeds, ways};
use evenkeel_testkit::story::Missing;

pub(crate) const SITES: [&str; 3] = ["eu-west-1", "eu-central-1", "us-east-1"];

/// Mean round trips between regions of AWS in June 2020, in milliseconds, measured by the authors
/// of fantoch (Enes, Baquero, Gotsman, Sutra, <https://github.com/vitorenesduarte/fantoch>,
/// `latency_aws/2020_06_05`, MIT or Apache-2.0).
pub(crate) const ROUND_TRIPS_MS: [[f64; 3]; 3] =
    [[0.113, 23.759, 70.501], [23.76, 0.121, 85.622], [70.508, 85.629, 0.264]];

const SQL_PORT: u16 = 5432;
const API_PORT: u16 = 8008;
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// `Err` says what is missing.
pub(crate) fn possible() -> Result<(), Missing> {
    if !succeeds("etcd", &["--version"]) {
        return Err("no `etcd` (Debian package etcd-server)".into());
    }
    if !succeeds("patroni", &["--version"]) {
        return Err("no `patroni` (Debian package patroni)".into());
    }
    if !Path::new(PROGRAMS).join("postgres").exists() {
        return Err("no PostgreSQL 15 (Debian package postgresql-15)".into());
    }
    mount_namespaces()
}

/// Members, distances between them, and what stops them.
pub(crate) struct World {
    folder: PathBuf,
    net: [u8; 2],
    processes: Vec<Child>,
    _lanes: Lanes,
}

impl World {
    pub(crate) fn start() -> Self {
        let process = std::process::id();
        let net = [64 + (process % 128) as u8, 240];
        let folder = std::env::temp_dir().join(format!("evenkeel-patroni-{process}"));
        fs::create_dir_all(&folder).unwrap();
        let lanes = Lanes::start_at(ways(net, &ROUND_TRIPS_MS, [SQL_PORT, API_PORT]), 1).unwrap();
        let mut this = Self { folder, net, processes: Vec::new(), _lanes: lanes };
        this.start_etcd();
        for site in 0..SITES.len() {
            this.write_files(site);
        }
        // PostgreSQL refuses to run as root.
        let done = Command::new("chown").args(["-R", "postgres:"]).arg(&this.folder).status();
        assert!(done.unwrap().success());
        for site in 0..SITES.len() {
            let child = Command::new("unshare")
                .args(["--mount", "sh"])
                .arg(this.file("run", site))
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap_or_default())
                .spawn();
            this.processes.push(child.unwrap());
        }
        this
    }

    fn file(&self, name: &str, site: usize) -> PathBuf {
        self.folder.join(format!("{name}-{site}"))
    }

    fn etcd(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.net[0], self.net[1] + 9, 1)
    }

    fn start_etcd(&mut self) {
        let (client, peer) =
            (format!("http://{}:2379", self.etcd()), format!("http://{}:2380", self.etcd()));
        let child = Command::new("etcd")
            .args(["--name", "dcs", "--unsafe-no-fsync", "--log-level", "error", "--data-dir"])
            .arg(self.folder.join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("dcs={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.processes.push(child.unwrap());
    }

    fn write_files(&self, site: usize) {
        fs::write(self.file("hosts", site), hosts(self.net, &SITES, site)).unwrap();
        let script = format!(
            "mount --bind {hosts} /etc/hosts && exec setpriv --reuid postgres --regid postgres \
             --clear-groups env HOME={folder} patroni {config} >{log} 2>&1 </dev/null",
            hosts = self.file("hosts", site).display(),
            folder = self.folder.display(),
            config = self.file("config", site).display(),
            log = self.file("log", site).display(),
        );
        fs::create_dir(self.file("socket", site)).unwrap();
        fs::write(self.file("run", site), script).unwrap();
        fs::write(self.file("config", site), self.config(site)).unwrap();
    }

    /// JSON is YAML.
    fn config(&self, site: usize) -> String {
        let (name, own) = (SITES[site], here(self.net, site));
        let any = "host all all 127.0.0.0/8 trust";
        let replication = "host replication all 127.0.0.0/8 trust";
        let parameters = serde_json::json!({
            "max_connections": 30, "shared_buffers": "16MB", "wal_log_hints": "on",
        });
        let local = serde_json::json!({
            "unix_socket_directories": self.file("socket", site),
            "fsync": "off", "full_page_writes": "off",
        });
        let user = |name: &str| serde_json::json!({"username": name});
        serde_json::json!({
            "scope": "shop", "name": name,
            "restapi": {"listen": format!("{own}:{API_PORT}"),
                "connect_address": format!("{name}:{API_PORT}")},
            "etcd3": {"hosts": format!("{}:2379", self.etcd())},
            "bootstrap": {
                "dcs": {"ttl": 20, "loop_wait": 2, "retry_timeout": 5, "synchronous_mode": true,
                    "synchronous_node_count": 2,
                    "postgresql": {"use_pg_rewind": true, "parameters": parameters}},
                "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}, "data-checksums", "no-sync"],
                "pg_hba": [any, replication],
            },
            "postgresql": {
                "listen": format!("{own}:{SQL_PORT}"),
                "connect_address": format!("{name}:{SQL_PORT}"),
                "data_dir": self.file("data", site), "bin_dir": PROGRAMS,
                "pgpass": self.file("pgpass", site), "pg_hba": [any, replication],
                "authentication": {"superuser": user("postgres"), "replication": user("replicator"),
                    "rewind": user("rewinder")},
                "parameters": local,
            },
        })
        .to_string()
    }

    /// Where a client of one site reaches the database of another.
    pub(crate) fn sql(&self, from: usize, to: usize) -> SocketAddr {
        SocketAddr::from((seen(self.net, from, to), SQL_PORT))
    }

    /// The cluster as somebody at the first site sees it.
    pub(crate) fn cluster(&self) -> Patroni {
        let api = |to: usize| format!("http://{}:{API_PORT}", seen(self.net, 0, to));
        let site = |to: usize| Site { name: SITES[to].to_owned(), api: api(to) };
        let settings = Settings {
            name: "shop".to_owned(),
            sites: (0..SITES.len()).map(site).collect(),
            request: Duration::from_secs(3),
            switchover: Duration::from_secs(20),
            user: None,
            authority: None,
            identity: None,
            lock: self.folder.join("moving"),
        };
        Patroni::new(settings).unwrap()
    }

    pub(crate) fn audit_path(&self) -> PathBuf {
        self.folder.join("audit.jsonl")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Patroni would take its time; it may also have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
        for site in 0..SITES.len() {
            let file = self.file("data", site).join("postmaster.pid");
            let text = fs::read_to_string(file).unwrap_or_default();
            if let Some(server) = text.lines().next() {
                end("-QUIT", server);
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
