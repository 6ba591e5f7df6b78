//! Four real ZooKeeper servers: three vote at first, one observes.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use evenkeel_placement::act::zookeeper::{Settings, Site, ZooKeeper};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::regions::succeeds;
use evenkeel_testkit::story::Missing;
use evenkeel_testkit::zookeeper::class_path;

use crate::common::{are_well, seen};

pub(crate) const SITES: usize = 4;

const CLIENT_PORT: u16 = 2181;

/// The super user's password, and `base64(sha1("super:<password>"))` as servers want it.
pub(crate) const PASSWORD: &str = "evenkeel";
const SUPER_DIGEST: &str = "super:S898DE0BEd4hDULTz+7UE0nbAsM=";

/// What servers of this machine cannot be without; `Err` says what is missing.
pub(crate) fn possible() -> Result<(), Missing> {
    if class_path().is_none() {
        return Err("no ZooKeeper (Debian package zookeeper)".into());
    }
    if succeeds("java", &["-version"]) { Ok(()) } else { Err("no `java`".into()) }
}

/// Servers, which end before their folder.
pub(crate) struct World {
    servers: Vec<Program>,
    net: [u8; 2],
    pub(crate) folder: Folder,
}

impl World {
    pub(crate) fn start() -> Self {
        static WORLDS: AtomicU8 = AtomicU8::new(0);
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        // Addresses of its own for every process and world; all of 127.0.0.0/8 is this machine.
        let process = std::process::id();
        let net = [192 + (process % 62) as u8, world];
        let folder = Folder::new(&format!("zookeeper-{world}"));
        let mut this = Self { servers: Vec::new(), net, folder };
        for site in 0..SITES {
            this.write_files(site);
            let server = this.spawn(site);
            this.servers.push(server);
        }
        this
    }

    fn address(&self, site: usize) -> Ipv4Addr {
        Ipv4Addr::new(127, self.net[0], self.net[1], site as u8 + 1)
    }

    /// Where clients reach a server.
    pub(crate) fn client(&self, site: usize) -> String {
        format!("{}:{CLIENT_PORT}", self.address(site))
    }

    pub(crate) fn peer(&self, site: usize) -> String {
        format!("{}:2888:3888", self.address(site))
    }

    fn home(&self, site: usize) -> PathBuf {
        self.folder.file(&site.to_string())
    }

    fn write_files(&self, site: usize) {
        let home = self.home(site);
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("myid"), (site + 1).to_string()).unwrap();
        let line = |of: usize| {
            let role = if of == 3 { "observer" } else { "participant" };
            format!("server.{}={}:{role};{}\n", of + 1, self.peer(of), self.client(of))
        };
        fs::write(home.join("dynamic"), (0..SITES).map(line).collect::<String>()).unwrap();
        let kind = if site == 3 { "peerType=observer\n" } else { "" };
        let settings = format!(
            "tickTime=500\ninitLimit=60\nsyncLimit=40\ndataDir={home}\nreconfigEnabled=true\n\
             standaloneEnabled=false\nadmin.enableServer=false\ndynamicConfigFile={home}/dynamic\n\
             {kind}",
            home = home.display()
        );
        fs::write(home.join("zoo.cfg"), settings).unwrap();
    }

    fn spawn(&self, site: usize) -> Program {
        let jars = class_path().expect("it was asked for before");
        let log = fs::File::create(self.home(site).join("log")).unwrap();
        let digest = "zookeeper.DigestAuthenticationProvider.superDigest";
        Program::start(
            Command::new("java")
                .args(["-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"])
                .args(["-Dzookeeper.forceSync=no", "-Dzookeeper.root.logger=WARN,CONSOLE"])
                .arg(format!("-D{digest}={SUPER_DIGEST}"))
                .args(["-cp", &format!("/etc/zookeeper/conf_example:{jars}")])
                .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
                .arg(self.home(site).join("zoo.cfg"))
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log),
        )
    }

    /// Kills a server at once.
    pub(crate) fn kill(&mut self, site: usize) {
        self.servers[site].kill();
    }

    /// The ensemble, for somebody with this password.
    pub(crate) fn cluster(&self, password: &str) -> ZooKeeper {
        self.cluster_held(password, Duration::from_secs(8))
    }

    /// The same with another time that a mover that died holds it.
    pub(crate) fn cluster_held(&self, password: &str, hold: Duration) -> ZooKeeper {
        self.cluster_at(password, hold, |site| self.client(site))
    }

    /// The same with servers reached elsewhere.
    pub(crate) fn cluster_at(
        &self,
        password: &str,
        hold: Duration,
        client: impl Fn(usize) -> String,
    ) -> ZooKeeper {
        let site = |at: usize| Site {
            name: format!("site-{at}"),
            id: at as u32 + 1,
            client: client(at),
            peer: self.peer(at),
            listen: self.client(at),
        };
        ZooKeeper::new(Settings {
            name: "four servers".to_owned(),
            sites: (0..SITES).map(site).collect(),
            request: Duration::from_secs(5),
            user: Some(("super".to_owned(), password.to_owned())),
            hold,
        })
        .unwrap()
    }

    /// Waits until all servers do what they are for.
    pub(crate) async fn up(&self) {
        seen(&self.cluster(PASSWORD), "all four do their work", |seen| are_well(seen, SITES)).await;
    }
}
