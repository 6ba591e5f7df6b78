//! Three real servers with a stream of three replicas.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_net::placement::act::nats::{Nats, Session, Settings, Site};
use evenkeel_net::placement::act::{Cluster as _, Observed};
use serde_json::{Value, json};

use crate::common::real;

pub(crate) const SITES: usize = 3;
pub(crate) const STREAM: &str = "orders";

const CLIENT_PORT: u16 = 4222;

/// What servers of this machine cannot be without; `Err` says what is missing.
pub(crate) fn possible() -> Result<(), String> {
    let version = Command::new("nats-server").arg("--version").stdout(Stdio::null()).status();
    let runs = version.is_ok_and(|status| status.success());
    runs.then_some(()).ok_or_else(|| "no `nats-server` (Debian package of this name)".to_owned())
}

/// A connection of a client.
pub(crate) async fn connect(server: &str) -> Option<Session> {
    Session::open(server, Duration::from_secs(2), None).await.ok()
}

pub(crate) fn is_well(seen: &Observed, site: usize) -> bool {
    seen.is_well(site, 10).is_ok()
}

/// Servers, and what stops them.
pub(crate) struct World {
    folder: PathBuf,
    servers: Vec<Option<Child>>,
}

impl World {
    pub(crate) fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("evenkeel-nats-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut this = Self { folder, servers: Vec::new() };
        for site in 0..SITES {
            let server = this.spawn(site);
            this.servers.push(Some(server));
        }
        this
    }

    /// Where clients reach a server: an address of its own for every process; all of 127.0.0.0/8
    /// is this machine.
    pub(crate) fn client(&self, site: usize) -> String {
        format!("{}:{CLIENT_PORT}", address(site))
    }

    fn spawn(&self, site: usize) -> Child {
        let home = self.folder.join(site.to_string());
        fs::create_dir_all(&home).unwrap();
        let route = |of: usize| format!("nats-route://{}:6222", address(of));
        let routes: Vec<String> = (0..SITES).filter(|of| *of != site).map(route).collect();
        let at = address(site);
        let settings = format!(
            "server_name: n{site}\nlisten: \"{at}:{CLIENT_PORT}\"\n\
             jetstream {{ store_dir: \"{home}\" }}\n\
             cluster {{ name: c, listen: \"{at}:6222\", routes: [{routes}] }}\n",
            home = home.join("data").display(),
            routes = routes.join(", ")
        );
        fs::write(home.join("nats.conf"), settings).unwrap();
        let log = fs::File::create(home.join("log")).unwrap();
        Command::new("nats-server")
            .arg("-c")
            .arg(home.join("nats.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Kills a server at once.
    pub(crate) fn kill(&mut self, site: usize) {
        real::kill(&mut self.servers[site]);
    }

    /// The stream, for somebody who moves it.
    pub(crate) fn stream(&self) -> Nats {
        let site = |at: usize| Site { name: format!("n{at}"), client: self.client(at) };
        Nats::new(Settings {
            name: "the stream".to_owned(),
            stream: STREAM.to_owned(),
            sites: (0..SITES).map(site).collect(),
            request: Duration::from_secs(5),
            user: None,
            lock: self.folder.join("lock"),
        })
        .unwrap()
    }

    /// Where files of a test may be.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn audit_path(&self) -> PathBuf {
        self.folder.join("audit.jsonl")
    }

    /// Makes the stream, as soon as the servers can, and waits until its replicas are in step.
    pub(crate) async fn up(&self) {
        let ends = Instant::now() + Duration::from_secs(40);
        let config = json!({
            "name": STREAM, "subjects": [format!("{STREAM}.>")], "num_replicas": SITES,
            "storage": "file",
        });
        loop {
            let made = match connect(&self.client(0)).await {
                Some(mut session) => {
                    let api = format!("$JS.API.STREAM.CREATE.{STREAM}");
                    session.ask(&api, config.to_string().as_bytes()).await.ok()
                }
                None => None,
            };
            let made = made.and_then(|made| serde_json::from_slice::<Value>(&made).ok());
            if made.as_ref().is_some_and(|made| made.get("config").is_some()) {
                break;
            }
            assert!(Instant::now() < ends, "the stream is not made: {made:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.wait(&self.stream(), |seen| (0..SITES).all(|site| is_well(seen, site))).await;
    }

    /// Waits until something is seen.
    pub(crate) async fn wait(&self, nats: &Nats, what: impl Fn(&Observed) -> bool) -> Observed {
        let ends = Instant::now() + Duration::from_secs(30);
        loop {
            let seen = nats.observe().await;
            match &seen {
                Ok(observed) if what(observed) => return seen.unwrap(),
                _ => assert!(Instant::now() < ends, "not seen: {seen:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn address(site: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 192 + (std::process::id() % 62) as u8, 200, site as u8 + 1)
}

impl Drop for World {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            // It may have ended by itself.
            let _ = server.kill();
            let _ = server.wait();
        }
        if std::thread::panicking() {
            eprintln!("what servers said is in {}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
