//! Three real servers with a stream of three replicas.

use std::fs;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use evenkeel_placement::act::nats::{Nats, Settings, Site};
use evenkeel_stores::clients::nats::session::Session;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::regions::succeeds;
use evenkeel_testkit::story::Missing;
use evenkeel_testkit::wait::found_within;
use serde_json::{Value, json};

use crate::common::{are_well, seen};

pub(crate) const SITES: usize = 3;
pub(crate) const STREAM: &str = "orders";

const CLIENT_PORT: u16 = 4222;

/// What servers of this machine cannot be without; `Err` says what is missing.
pub(crate) fn possible() -> Result<(), Missing> {
    let runs = succeeds("nats-server", &["--version"]);
    runs.then_some(()).ok_or_else(|| "no `nats-server` (Debian package of this name)".into())
}

/// A connection of a client.
pub(crate) async fn connect(server: &str) -> Option<Session> {
    Session::open(server, Duration::from_secs(2), None).await.ok()
}

/// Servers, which end before their folder.
pub(crate) struct World {
    servers: Vec<Program>,
    pub(crate) folder: Folder,
}

impl World {
    pub(crate) fn start() -> Self {
        let mut this = Self { servers: Vec::new(), folder: Folder::new("nats") };
        this.servers = (0..SITES).map(|site| this.spawn(site)).collect();
        this
    }

    /// Where clients reach a server: an address of its own for every process; all of 127.0.0.0/8
    /// is this machine.
    pub(crate) fn client(&self, site: usize) -> String {
        format!("{}:{CLIENT_PORT}", address(site))
    }

    fn spawn(&self, site: usize) -> Program {
        let home = self.folder.file(&site.to_string());
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
        Program::start(
            Command::new("nats-server")
                .arg("-c")
                .arg(home.join("nats.conf"))
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log),
        )
    }

    /// Kills a server at once.
    pub(crate) fn kill(&mut self, site: usize) {
        self.servers[site].kill();
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
            lock: self.folder.file("lock"),
        })
        .unwrap()
    }

    /// Makes the stream, as soon as the servers can, and waits until its replicas are in step.
    pub(crate) async fn up(&self) {
        let config = json!({
            "name": STREAM, "subjects": [format!("{STREAM}.>")], "num_replicas": SITES,
            "storage": "file",
        });
        let made = async || {
            let mut session = connect(&self.client(0)).await?;
            let api = format!("$JS.API.STREAM.CREATE.{STREAM}");
            let made = session.ask(&api, config.to_string().as_bytes()).await.ok()?;
            serde_json::from_slice::<Value>(&made).ok()?.get("config").map(drop)
        };
        found_within(Duration::from_secs(40), "the stream is made", made).await;
        seen(&self.stream(), "replicas in step", |seen| are_well(seen, SITES)).await;
    }
}

fn address(site: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 192 + (std::process::id() % 62) as u8, 200, site as u8 + 1)
}
