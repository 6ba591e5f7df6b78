//! Five real etcd members, each in a region of its own.
//!
//! Members find each other by name, and each has its own view of the names: it runs in a mount
//! namespace with an `/etc/hosts` of its own, in which every other member's name leads to a relay
//! that is as long as the way between the two regions. Clients of a region reach members over the
//! same distances.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use evenkeel_placement::act::etcd::{Etcd, Settings, Site};
use evenkeel_stores::clients::rest::{Call, Client, Endpoint, Session};
use evenkeel_testkit::distance::Lanes;
use evenkeel_testkit::regions::{end, here, hosts, mount_namespaces, seen, succeeds, ways};
use evenkeel_testkit::story::Missing;
use evenkeel_testkit::wait::found;
use futures_util::future::join_all;
use serde_json::{Value, json};

pub(crate) const SITES: [&str; 5] =
    ["us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1"];

/// Mean round trips between regions of AWS in June 2020, in milliseconds, measured by the authors
/// of fantoch (Enes, Baquero, Gotsman, Sutra, <https://github.com/vitorenesduarte/fantoch>,
/// `latency_aws/2020_06_05`, MIT or Apache-2.0).
pub(crate) const ROUND_TRIPS_MS: [[f64; 5]; 5] = [
    [0.264, 72.501, 70.508, 85.629, 152.425],
    [72.504, 0.297, 127.28, 157.546, 100.855],
    [70.501, 127.279, 0.113, 23.759, 204.431],
    [85.622, 157.562, 23.76, 0.121, 243.943],
    [152.424, 100.869, 204.446, 243.942, 0.098],
];

const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// What members of this machine cannot be without; `Err` says what is missing.
pub(crate) fn possible() -> Result<(), Missing> {
    if !succeeds("etcd", &["--version"]) {
        return Err("no `etcd` (Debian package etcd-server)".into());
    }
    mount_namespaces()
}

/// Members, distances between them, and what stops them.
pub(crate) struct World {
    folder: PathBuf,
    net: [u8; 2],
    members: Vec<Option<Child>>,
    _lanes: Lanes,
}

impl World {
    /// Starts members at the first `members` sites.
    pub(crate) fn start(members: usize) -> Self {
        let times = "--heartbeat-interval 100 --election-timeout 1500";
        Self::start_apart(members, &ROUND_TRIPS_MS, times)
    }

    /// The same with all sites beside each other, and without the five seconds that members must
    /// have been connected before there is another one.
    pub(crate) fn start_near(members: usize) -> Self {
        let times = "--heartbeat-interval 20 --election-timeout 400 --strict-reconfig-check=false";
        Self::start_apart(members, &[[0.0; 5]; 5], times)
    }

    fn start_apart(members: usize, ms: &[[f64; 5]; 5], options: &str) -> Self {
        static WORLDS: AtomicU8 = AtomicU8::new(0);
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        // Addresses of its own for every process and world; all of 127.0.0.0/8 is this machine.
        let process = std::process::id();
        let net = [64 + (process % 128) as u8, world * 16];
        let folder = std::env::temp_dir().join(format!("evenkeel-etcd-{process}-{world}"));
        fs::create_dir_all(&folder).unwrap();
        let lanes = Lanes::start_at(ways(net, ms, [PEER_PORT, CLIENT_PORT]), 1).unwrap();
        let mut this = Self { folder, net, members: Vec::new(), _lanes: lanes };
        let named = |site: usize| format!("{0}=http://{0}:{PEER_PORT}", SITES[site]);
        let cluster: Vec<String> = (0..members).map(named).collect();
        for site in 0..SITES.len() {
            this.write_files(site, options);
            let started = (site < members).then(|| this.spawn(site, &cluster.join(",")));
            this.members.push(started);
        }
        this
    }

    fn write_files(&self, site: usize, options: &str) {
        let file = |name: &str| self.folder.join(format!("{name}-{site}"));
        fs::write(file("hosts"), hosts(self.net, &SITES, site)).unwrap();
        let (name, own) = (SITES[site], here(self.net, site));
        let script = format!(
            "mount --bind {hosts} /etc/hosts && exec etcd --name {name} --data-dir {data} \
             --listen-client-urls http://{own}:{CLIENT_PORT} \
             --advertise-client-urls http://{name}:{CLIENT_PORT} \
             --listen-peer-urls http://{own}:{PEER_PORT} \
             --initial-advertise-peer-urls http://{name}:{PEER_PORT} \
             --initial-cluster $EVENKEEL_INITIAL_CLUSTER --initial-cluster-state $STATE \
             {options} --unsafe-no-fsync \
             --log-level error >{log} 2>&1 </dev/null",
            hosts = file("hosts").display(),
            data = file("data").display(),
            log = file("log").display(),
        );
        fs::write(file("run"), script).unwrap();
        let later = format!(
            "rm -rf {}; STATE=existing setsid unshare --mount sh {} & echo $! > {}",
            file("data").display(),
            file("run").display(),
            file("pid").display()
        );
        fs::write(file("join"), later).unwrap();
    }

    fn spawn(&self, site: usize, cluster: &str) -> Child {
        let run = self.folder.join(format!("run-{site}"));
        Command::new("unshare")
            .args(["--mount", "sh"])
            .arg(run)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("EVENKEEL_INITIAL_CLUSTER", cluster)
            .env("STATE", "new")
            .spawn()
            .unwrap()
    }

    /// Kills a member at once.
    pub(crate) fn kill(&mut self, site: usize) {
        let mut member = self.members[site].take().expect("it runs");
        member.kill().unwrap();
        member.wait().unwrap();
    }

    /// The process of a member.
    pub(crate) fn process(&self, site: usize) -> u32 {
        self.members[site].as_ref().expect("it runs").id()
    }

    /// Where a client of one site reaches the member of another.
    pub(crate) fn client_url(&self, from: usize, to: usize) -> String {
        format!("http://{}:{CLIENT_PORT}", seen(self.net, from, to))
    }

    /// The cluster as somebody at a site sees it.
    pub(crate) fn cluster(&self, from: usize) -> Etcd {
        self.cluster_of(from, true)
    }

    /// The same, and whether it starts the members that it adds.
    pub(crate) fn cluster_of(&self, from: usize, starts: bool) -> Etcd {
        let join = |to: usize| self.folder.join(format!("join-{to}")).display().to_string();
        let site = |to: usize| Site {
            name: SITES[to].to_owned(),
            client: self.client_url(from, to),
            peer: format!("http://{}:{PEER_PORT}", SITES[to]),
            start: match starts {
                true => vec!["sh".to_owned(), join(to)],
                false => Vec::new(),
            },
        };
        let settings = Settings {
            name: "five regions".to_owned(),
            sites: (0..SITES.len()).map(site).collect(),
            request: Duration::from_secs(3),
            user: None,
            authority: None,
            identity: None,
            hold: Duration::from_secs(10),
        };
        Etcd::new(settings).unwrap()
    }

    pub(crate) fn audit_path(&self) -> PathBuf {
        self.folder.join("audit.jsonl")
    }

    /// Round trips of clients by site to members, as they measure them: the quickest of a few,
    /// since a machine that is busy with other things only adds.
    pub(crate) async fn measure_ms(&self) -> Vec<Vec<f64>> {
        // All ways at once: one after another they take twenty seconds, all of it waiting.
        let way = async |from: usize, to: usize| {
            let server = Endpoint::parse(&self.client_url(from, to)).unwrap();
            let client = Client::plain(Duration::from_secs(2));
            let mut session = Session::connect(&client, &server).await.unwrap();
            let mut quickest = Duration::MAX;
            for _ in 0..7 {
                let began = Instant::now();
                session.call(Call::get("/version")).await.unwrap();
                quickest = quickest.min(began.elapsed());
            }
            quickest.as_secs_f64() * 1e3
        };
        let row = async |from: usize| join_all((0..SITES.len()).map(|to| way(from, to))).await;
        join_all((0..SITES.len()).map(row)).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (site, name) in SITES.iter().enumerate() {
                let log = fs::read_to_string(self.folder.join(format!("log-{site}")));
                eprintln!("{name} said:\n{}", log.unwrap_or_default());
            }
        }
        for member in self.members.iter_mut().flatten() {
            // It may have ended by itself.
            let _ = member.kill();
            let _ = member.wait();
        }
        for site in 0..SITES.len() {
            let joined = fs::read_to_string(self.folder.join(format!("pid-{site}")));
            if let Ok(process) = joined {
                end("-9", process.trim());
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The keys that are there, by a linearizable get of all.
pub(crate) async fn keys(world: &World, at: usize) -> Vec<String> {
    let server = Endpoint::parse(&world.client_url(at, at)).unwrap();
    let body = json!({"key": "AA==", "range_end": "AA==", "keys_only": true});
    let client = Client::plain(Duration::from_secs(10));
    let answer = client.call(&server, Call::post("/v3/kv/range", &body)).await.unwrap();
    let keys = answer.body["kvs"].as_array().cloned().unwrap_or_default();
    keys.iter().map(|kv| kv["key"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Waits for a leader that all of the first `members` follow.
pub(crate) async fn up(world: &World, members: usize) {
    let client = Client::plain(Duration::from_secs(1));
    let body = json!({});
    for (site, name) in SITES.into_iter().enumerate().take(members) {
        let server = Endpoint::parse(&world.client_url(site, site)).unwrap();
        found(&format!("{name} starts"), async || {
            let answer = client.call(&server, Call::post("/v3/maintenance/status", &body)).await;
            let leader = answer.ok()?.body.get("leader").cloned();
            matches!(leader, Some(Value::String(id)) if id != "0").then_some(())
        })
        .await;
    }
}
