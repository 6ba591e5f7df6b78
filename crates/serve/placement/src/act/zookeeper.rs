//! ZooKeeper, through its client protocol and `srvr` (3.5 and later, `reconfigEnabled=true`).
//!
//! | step | request |
//! |---|---|
//! | add a replica | `reconfig`, joining as `observer`; its process must run already |
//! | give it its vote | `reconfig`, joining again as `participant` |
//! | take its vote | `reconfig`, joining again as `observer` |
//! | remove it | `reconfig`, leaving |
//!
//! **The leader is not moved.** ZooKeeper has no request for it: whoever has the most transactions
//! leads, then whoever has the highest number. What can be done is to stop the leader or to take
//! its vote, and then the ensemble, not we, chooses the next: it would be an election in the hope
//! of a result. A goal with another leader is therefore out of reach; a layout is reached when its
//! voters and observers are right, whoever leads.
//!
//! A change names the version of the configuration that it was made for, so that two who change
//! the ensemble at once cannot both succeed. The ensemble refuses a change after which too few
//! servers would be in step. A server that changes its role closes its clients' connections; their
//! sessions go on elsewhere. Being the only mover is an ephemeral node ([`LOCK_PATH`]).
//!
//! The protocol is our own few requests ([`wire`](evenkeel_stores::clients::zookeeper::wire)), not
//! a client library: a mover needs five of them, none of a library's watches, caches and background
//! tasks, and no dependency. It is plain TCP; a server's `secureClientPort` is not spoken.
//!
//! **What operations take.** An observer answers reads itself as followers do (weak reads) and
//! passes writes on; it does not vote, so that more observers make no write slower.

use std::cell::RefCell;
use std::time::Duration;

use evenkeel_planner::model::Layout;
use evenkeel_planner::steps::{Abilities, Step};
use tokio::task::JoinSet;

use super::{Cluster, Observed, Seen, StepError};
use evenkeel_stores::clients::error::RemoteError;
use evenkeel_stores::clients::members::Members;
use evenkeel_stores::clients::zookeeper::WireError;
use evenkeel_stores::clients::zookeeper::session::ask_status;
pub use evenkeel_stores::clients::zookeeper::session::{Refusal, Session};
use evenkeel_stores::clients::zookeeper::wire::{
    CONFIG_PATH, Config, Credentials, Mode, NODE_EXISTS, Request, Role, Server, Status,
};

/// The node that is there while the ensemble is moved.
pub const LOCK_PATH: &str = "/evenkeel-moving";

/// How often it is tried to let go, and the time between: an election takes about a second.
const RELEASES_MAX: usize = 10;
const RELEASE_PAUSE: Duration = Duration::from_millis(200);

/// Where a server is or can be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// In logs.
    pub name: String,
    /// The server's number (`myid`).
    pub id: u32,
    /// Where we reach it as a client, `host:port`.
    pub client: String,
    /// Where its peers reach it, `host:port:port`: for a server that is added.
    pub peer: String,
    /// Where it listens for clients, `host:port` or a port: for a server that is added.
    pub listen: String,
}

/// An ensemble and how to talk to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its name in logs.
    pub name: String,
    /// All sites, those without a server too.
    pub sites: Vec<Site>,
    /// For one request.
    pub request: Duration,
    /// A user who may change the ensemble (the super user of scheme `digest`) and the password,
    /// unless servers run with `skipACL=yes`.
    pub user: Option<(String, String)>,
    /// How long a mover that died holds the ensemble, at least 2 s; servers allow 2 to 20 of their
    /// ticks.
    pub hold: Duration,
}

/// An ensemble of ZooKeeper.
#[derive(Debug)]
pub struct ZooKeeper {
    settings: Settings,
    asked: Members,
}

/// Being the holder of the node that stands for moving.
#[derive(Debug)]
pub struct Hold {
    credentials: Credentials,
    /// Where it lives at the moment; `None` when the connection broke.
    session: RefCell<Option<Session>>,
}

/// A shorter hold would end while a request is waited for.
const HOLD_MIN: Duration = Duration::from_secs(2);

/// What is known of the ensemble at one moment.
struct View {
    /// By site.
    statuses: Vec<Result<Status, RemoteError>>,
    pub config: Config,
    /// The site of the leader.
    leads: usize,
    leader: Status,
}

impl ZooKeeper {
    /// Reads the settings; connects to nobody.
    ///
    /// # Errors
    /// When an address is not what it should be, or two sites share a name or a number.
    pub fn new(settings: Settings) -> Result<Self, StepError> {
        for (place, site) in settings.sites.iter().enumerate() {
            check(site)?;
            let others = &settings.sites[..place];
            if others.iter().any(|other| other.name == site.name) {
                return Err(StepError::SharedName(site.name.clone()));
            }
            if let Some(other) = others.iter().find(|other| other.id == site.id) {
                let sites = [other.name.clone(), site.name.clone()];
                return Err(StepError::SharedNumber { sites, number: site.id });
            }
        }
        if settings.hold < HOLD_MIN {
            return Err(StepError::Hold { came: settings.hold, least: HOLD_MIN });
        }
        Ok(Self { settings, asked: Members::default() })
    }

    async fn open(&self, site: usize, resumed: &Credentials) -> Result<Session, RemoteError> {
        let Settings { request, hold, .. } = self.settings;
        Session::open(&self.settings.sites[site].client, request, hold, resumed).await
    }

    /// Opens a session, runs some requests, and ends it.
    async fn with_session<T>(
        &self,
        site: usize,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, Refusal>,
    ) -> Result<T, RemoteError> {
        let mut session = self.open(site, &Credentials::default()).await?;
        let done = work(&mut session).await;
        session.close().await;
        done.map_err(|refusal| refusal.at(&self.settings.sites[site].name))
    }

    async fn view(&self) -> Result<View, RemoteError> {
        let statuses = self.statuses().await;
        let leader = |status: &Result<Status, RemoteError>| {
            status.as_ref().ok().filter(|status| status.mode == Mode::Leader).copied()
        };
        let leaders = statuses.iter().enumerate().filter_map(|(at, one)| Some((at, leader(one)?)));
        // One that was replaced and has not noticed has an older epoch.
        let Some((leads, leader)) = leaders.max_by_key(|(_, status)| status.zxid) else {
            let first = statuses.iter().find_map(|one| one.as_ref().err());
            let why = first.map_or_else(String::new, |error| format!(": {error}"));
            let name = &self.settings.name;
            return Err(RemoteError::passing(format!("no server of {name} leads{why}")));
        };
        let text = self
            .with_session(leads, async |session| session.ask(Request::Data(CONFIG_PATH)).await)
            .await?;
        let unread =
            |error: WireError| RemoteError::lasting(format!("{}: {error}", self.settings.name));
        let text = evenkeel_stores::clients::zookeeper::wire::data(&text).map_err(unread)?;
        let config =
            evenkeel_stores::clients::zookeeper::wire::config(&String::from_utf8_lossy(text))
                .map_err(unread)?;
        Ok(View { statuses, config, leads, leader })
    }

    /// What the servers of all sites say, asked at once.
    async fn statuses(&self) -> Vec<Result<Status, RemoteError>> {
        let mut asked = JoinSet::new();
        for (place, site) in self.settings.sites.iter().enumerate() {
            let (client, deadline) = (site.client.clone(), self.settings.request);
            asked.spawn(async move { (place, ask_status(&client, deadline).await) });
        }
        let unasked = || Err(RemoteError::passing("the question broke off"));
        let mut statuses: Vec<_> = self.settings.sites.iter().map(|_| unasked()).collect();
        while let Some(answered) = asked.join_next().await {
            if let Ok((place, status)) = answered {
                statuses[place] = status;
            }
        }
        statuses
    }

    fn server<'a>(&self, view: &'a View, site: usize) -> Option<&'a Server> {
        let id = self.settings.sites.get(site)?.id;
        view.config.servers.iter().find(|server| server.id == id)
    }

    fn observed(&self, view: &View) -> Result<Observed, RemoteError> {
        let (mut voters, mut replicas) = (Vec::new(), Vec::new());
        for server in &view.config.servers {
            let place = self.settings.sites.iter().position(|site| site.id == server.id);
            let Some(site) = place else {
                let (name, line) = (&self.settings.name, server.line());
                return Err(RemoteError::lasting(format!("{name} has {line}, which is no site's")));
            };
            replicas.push(site);
            if server.role == Role::Participant {
                voters.push(site);
            }
        }
        let seen = |site: usize| {
            let server = self.server(view, site)?;
            let (ill, lag) = match &view.statuses[site] {
                Err(error) => (Some(error.message.clone()), 0),
                Ok(status) => (ill(server, *status), status.behind(view.leader)),
            };
            Some(Seen { ill, lag })
        };
        let layout = Layout::new(view.leads, voters, replicas).map_err(|error| {
            // The leader was found before its configuration was read.
            RemoteError::passing(format!("{} changed while it was looked at: {error}", self.name()))
        })?;
        let replicas = (0..self.settings.sites.len()).map(seen).collect();
        Ok(Observed { layout, replicas })
    }

    /// What joins and what leaves in a step.
    fn change(
        &self,
        view: &View,
        step: Step,
    ) -> Result<(Option<String>, Option<u32>), RemoteError> {
        let cannot = || RemoteError::lasting(format!("ZooKeeper cannot {}", self.words(step)));
        let site = self.settings.sites.get(step.site()).ok_or_else(cannot)?;
        let listed = || {
            let absent = || RemoteError::passing(format!("no server is at {}", site.name));
            self.server(view, step.site()).cloned().ok_or_else(absent)
        };
        // As it is listed: a change of the role must not change an address.
        let joins = |role: Role| Ok((Some(Server { role, ..listed()? }.line()), None));
        match step {
            Step::MoveLeader { .. } => Err(cannot()),
            Step::AddReplica(_) => {
                let (peer, client) = (site.peer.clone(), Some(site.listen.clone()));
                let added = Server { id: site.id, peer, role: Role::Observer, client };
                Ok((Some(added.line()), None))
            }
            Step::Promote(_) => joins(Role::Participant),
            Step::Demote(_) => joins(Role::Observer),
            Step::RemoveReplica(_) | Step::RemoveVoter(_) => Ok((None, Some(site.id))),
        }
    }

    /// A session at whichever site answers first.
    async fn open_any(&self, resumed: &Credentials) -> Result<Session, RemoteError> {
        let sites = self.settings.sites.len();
        self.asked.any(sites, async |site| self.open(site, resumed).await).await
    }
}

/// Why a server that answers does not do what it should.
fn ill(server: &Server, status: Status) -> Option<String> {
    match (server.role, status.mode) {
        (Role::Participant, Mode::Leader | Mode::Follower) | (Role::Observer, Mode::Observer) => {
            None
        }
        (role, mode) => Some(format!("it is to be {} and says it is {mode:?}", role.name())),
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// `host:port`
pub(crate) fn is_address(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_[]:".contains(letter);
    let is_host = |text: &str| !text.is_empty() && text.chars().all(is_plain);
    text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port))
}

/// `host:port:port`: for what followers and for elections.
pub(crate) fn is_peer(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(rest, election)| is_address(rest) && is_port(election))
}

/// `host:port`, or a port of all addresses.
pub(crate) fn is_listen(text: &str) -> bool {
    is_address(text) || is_port(text)
}

/// What would not be understood, or as something else, in a line of the configuration.
fn check(site: &Site) -> Result<(), StepError> {
    let Site { name, client, peer, listen, .. } = site;
    let (key, came, expected) = if !is_address(client) {
        ("client", client, "host:port")
    } else if !is_peer(peer) {
        ("peer", peer, "host:port:port")
    } else if !is_listen(listen) {
        ("listen", listen, "host:port")
    } else {
        return Ok(());
    };
    Err(StepError::Address { site: name.clone(), key, came: came.clone(), expected })
}

impl Cluster for ZooKeeper {
    type Hold = Hold;

    fn name(&self) -> &str {
        &self.settings.name
    }

    fn site_name(&self, site: usize) -> String {
        self.settings.sites.get(site).map_or_else(|| format!("site {site}"), |one| one.name.clone())
    }

    fn abilities(&self) -> Abilities {
        Abilities { move_leader: false, ..Abilities::ALL }
    }

    /// The ensemble chooses its leader.
    fn is_reached(&self, seen: &Layout, wanted: &Layout) -> bool {
        seen.voters() == wanted.voters() && seen.replicas() == wanted.replicas()
    }

    async fn observe(&self) -> Result<Observed, RemoteError> {
        self.observed(&self.view().await?)
    }

    async fn say(&self, step: Step) -> String {
        let change = match self.view().await {
            Ok(view) => self.change(&view, step).map(|change| (view.config.version, change)),
            Err(error) => Err(error),
        };
        match change {
            // In the words of ZooKeeper's own shell.
            Ok((version, (Some(joins), _))) => format!("reconfig -v {version:x} -add {joins}"),
            Ok((version, (None, Some(leaves)))) => {
                format!("reconfig -v {version:x} -remove {leaves}")
            }
            Ok((_, (None, None))) => unreachable!("a change changes something"),
            Err(error) => error.message,
        }
    }

    async fn apply(&self, step: Step) -> Result<(), RemoteError> {
        let view = self.view().await?;
        let (joining, leaving) = self.change(&view, step)?;
        if let (Step::AddReplica(site), Err(error)) = (step, &view.statuses[step.site()]) {
            let name = &self.settings.sites[site].name;
            return Err(RemoteError::passing(format!(
                "the server at {name} must run, as an observer, before it is added: {error}"
            )));
        }
        let joining = joining.as_deref();
        let change = Request::Reconfigure { joining, leaving, version: view.config.version };
        self.with_session(view.leads, async |session| {
            if let Some((user, password)) = &self.settings.user {
                session.ask(Request::Authenticate(user, password)).await?;
            }
            session.ask(change).await.map(drop)
        })
        .await
    }

    async fn hold(&self, who: &str) -> Result<Hold, RemoteError> {
        let new = Credentials::default();
        let mut session = self.open_any(&new).await?;
        let data = who.as_bytes();
        let take = Request::Create { path: LOCK_PATH, data, is_ephemeral: true };
        let refused = match session.ask(take).await {
            Ok(_) => {
                let credentials = session.credentials().clone();
                return Ok(Hold { credentials, session: RefCell::new(Some(session)) });
            }
            Err(refused) => refused,
        };
        let server = session.server().to_owned();
        let error = if refused == Refusal::Code(NODE_EXISTS) {
            let holder = session.ask(Request::Data(LOCK_PATH)).await;
            let holder = holder.ok().and_then(|body| {
                Some(evenkeel_stores::clients::zookeeper::wire::data(&body).ok()?.to_vec())
            });
            let holder = holder.unwrap_or_else(|| b"somebody else".to_vec());
            let holder: String = String::from_utf8_lossy(&holder).chars().take(200).collect();
            let name = &self.settings.name;
            RemoteError::passing(format!("{name} is being moved by {holder} (node {LOCK_PATH})"))
        } else {
            refused.at(&server)
        };
        session.close().await;
        Err(error)
    }

    async fn keep(&self, hold: &Hold) -> Result<(), RemoteError> {
        let session = hold.session.take();
        if let Some(mut session) = session
            && session.ask(Request::Ping).await.is_ok()
        {
            hold.session.replace(Some(session));
            return Ok(());
        }
        // The server may have changed its role, or there is an election.
        match self.open_any(&hold.credentials).await {
            Ok(session) => {
                hold.session.replace(Some(session));
                Ok(())
            }
            Err(error) if error.may_pass => Ok(()),
            Err(error) => Err(RemoteError::lasting(format!(
                "{} is held no more: {error} (is {:?} too short?)",
                self.settings.name, self.settings.hold
            ))),
        }
    }

    async fn release(&self, hold: Hold) {
        let kept = hold.session.take();
        if let Some(session) = kept
            && session.close().await
        {
            return;
        }
        // The server of the session has changed its role, which closes connections, or there is an
        // election: left alone, the next mover would find the ensemble held by nobody.
        for _ in 0..RELEASES_MAX {
            let is_over = match self.open_any(&hold.credentials).await {
                Ok(session) => session.close().await,
                Err(error) => !error.may_pass, // it has ended
            };
            if is_over {
                return;
            }
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
    }
}
