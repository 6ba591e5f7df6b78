//! A stream of NATS JetStream, through the API on `$JS.API.…` (2.9 and later).
//!
//! | what | request |
//! |---|---|
//! | look | `STREAM.INFO.<stream>` |
//! | move the leader | `STREAM.LEADER.STEPDOWN.<stream>`, with `preferred` on 2.11 and later |
//! | how many replicas, on servers with which tags | `STREAM.UPDATE.<stream>` ([`Nats::set_replicas`], [`Nats::set_tags`]) |
//!
//! **Before 2.11 a leader steps down without a wish.** Whichever replica takes over, does; we ask
//! again until it is the one that was wanted, [`STEP_DOWNS_MAX`] times at most. Each time the
//! stream is without a leader for a moment, and publishers wait. With three replicas a step-down
//! has the wanted result in about every second case.
//!
//! **Replicas all vote**, and NATS chooses where they are, among the servers that have the tags. So
//! there is no step that adds or removes one at a site: a plan only moves the leader. Mirrors,
//! which are streams of their own, are not looked at.
//!
//! The protocol is our own few lines ([`wire`](evenkeel_stores::clients::nats::wire)), not a client
//! library: requests one after another are all that a mover has. It is plain TCP; a server that
//! wants TLS is an error that says so.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_planner::model::Layout;
use evenkeel_planner::steps::{Abilities, Step};
use serde_json::{Value, json};

use super::lock::FileLock;
use super::{Cluster, Observed, Seen, StepError};
use evenkeel_stores::clients::error::RemoteError;
use evenkeel_stores::clients::members::Members;
pub use evenkeel_stores::clients::nats::session::Session;
use evenkeel_stores::clients::nats::wire::check_name;

/// How often a leader is asked to step down until the wanted one leads: with three replicas and
/// chance alone, one move in 2¹⁶ does not come true.
pub const STEP_DOWNS_MAX: usize = 16;

/// The request that looks.
const INFO: &str = "STREAM.INFO";

/// From this version on a leader takes a wish.
const PREFERS: (u32, u32) = (2, 11);

/// A follower that was not heard of for longer is ill: five of its heartbeats.
const SILENT_MAX: Duration = Duration::from_secs(5);

/// How often it is looked whether a stream has a leader again, within the time of a request.
const LOOKS: u32 = 20;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The server's name (`server_name`).
    pub name: String,
    /// Where clients reach it, `host:port`.
    pub client: String,
}

/// A stream and how to talk to its servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its name in logs.
    pub name: String,
    /// The stream.
    pub stream: String,
    /// All servers that may have a replica.
    pub sites: Vec<Site>,
    /// For one request.
    pub request: Duration,
    /// User and password, where servers want them.
    pub user: Option<(String, String)>,
    /// The file that is locked while this stream is moved.
    pub lock: PathBuf,
}

/// A replicated stream.
#[derive(Debug)]
pub struct Nats {
    settings: Settings,
    asked: Members,
}

impl Nats {
    /// Reads the settings; connects to nobody.
    ///
    /// # Errors
    /// When a name cannot be one, or two sites share one.
    pub fn new(settings: Settings) -> Result<Self, StepError> {
        check_name(&settings.stream).map_err(|error| StepError::Stream(error.into()))?;
        StepError::check_names(settings.sites.iter().map(|site| &*site.name))?;
        Ok(Self { settings, asked: Members::default() })
    }

    /// Sets how many replicas the stream has. NATS chooses where they are added and which go; the
    /// leader stays or not, as that brings.
    ///
    /// # Errors
    /// When the servers refuse, with why.
    pub async fn set_replicas(&self, count: usize) -> Result<(), RemoteError> {
        self.update(|config| config["num_replicas"] = json!(count)).await
    }

    /// Sets the tags that servers with a replica must have; NATS moves the replicas there. Not
    /// together with their number: NATS refuses an update that does both.
    ///
    /// # Errors
    /// When the servers refuse, with why; when too few of them have the tags.
    pub async fn set_tags(&self, tags: &[String]) -> Result<(), RemoteError> {
        self.update(|config| {
            let placement = &mut config["placement"];
            if !placement.is_object() {
                *placement = json!({});
            }
            placement["tags"] = json!(tags);
        })
        .await
    }

    /// Changes the configuration there is, which an update must hold all of.
    async fn update(&self, change: impl FnOnce(&mut Value)) -> Result<(), RemoteError> {
        let mut info = self.api(INFO, &Value::Null).await?;
        let mut config = info.get_mut("config").map(Value::take).unwrap_or_default();
        if !config.is_object() {
            return Err(RemoteError::lasting(format!("{}: it has no config", self.name())));
        }
        change(&mut config);
        self.api("STREAM.UPDATE", &config).await.map(drop)
    }

    /// A request to the API, through whichever server answers first.
    async fn api(&self, verb: &str, body: &Value) -> Result<Value, RemoteError> {
        let at = async |site: usize| {
            let mut session = self.open(site).await?;
            self.api_at(&mut session, verb, body).await
        };
        self.asked.any(self.settings.sites.len(), at).await
    }

    async fn open(&self, site: usize) -> Result<Session, RemoteError> {
        let Settings { sites, request, user, .. } = &self.settings;
        Session::open(&sites[site].client, *request, user.as_ref()).await
    }

    async fn api_at(
        &self,
        session: &mut Session,
        verb: &str,
        body: &Value,
    ) -> Result<Value, RemoteError> {
        let stream = &self.settings.stream;
        let payload = if body.is_null() { String::new() } else { body.to_string() };
        let answer = session.ask(&format!("$JS.API.{verb}.{stream}"), payload.as_bytes()).await?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| RemoteError::passing(format!("{verb} of {stream}: {error}")))?;
        let Some(error) = answer.get("error") else { return Ok(answer) };
        let why = error.get("description").and_then(Value::as_str).unwrap_or("no reason given");
        let message = format!("{verb} of {stream}: {why}");
        // 503: no leader at the moment, of the stream or of all of JetStream.
        let may_pass = error.get("code").and_then(Value::as_u64) == Some(503);
        Err(RemoteError { message, may_pass })
    }

    fn observed(&self, info: &Value) -> Result<Observed, RemoteError> {
        let name = &self.settings.stream;
        let no_leader =
            || RemoteError::passing(format!("stream {name} has no leader at the moment"));
        let cluster = info.get("cluster").ok_or_else(|| {
            RemoteError::lasting(format!(
                "stream {name} is not in a cluster: it has one server only"
            ))
        })?;
        let site = |name: &str| {
            let found = self.settings.sites.iter().position(|site| site.name == name);
            let message = format!("a replica is at \"{name:.100}\", which is none of the sites");
            // Servers that were not met yet have no name.
            found.ok_or_else(|| RemoteError::passing(message))
        };
        let leader = cluster.get("leader").and_then(Value::as_str).unwrap_or_default();
        let leads = if leader.is_empty() { Err(no_leader()) } else { site(leader) }?;
        let mut replicas: Vec<Option<Seen>> = self.settings.sites.iter().map(|_| None).collect();
        replicas[leads] = Some(Seen { ill: None, lag: 0 });
        let followers = cluster.get("replicas").and_then(Value::as_array);
        for follower in followers.into_iter().flatten() {
            let name = follower.get("name").and_then(Value::as_str).unwrap_or_default();
            let ill = ill(follower);
            let lag = follower.get("lag").and_then(Value::as_u64).unwrap_or(0);
            replicas[site(name)?] = Some(Seen { ill, lag });
        }
        let voters: Vec<usize> =
            (0..replicas.len()).filter(|site| replicas[*site].is_some()).collect();
        let layout = Layout::new(leads, voters.clone(), voters)
            .map_err(|error| RemoteError::passing(format!("stream {name}: {error}")))?;
        Ok(Observed { layout, replicas })
    }

    /// Asks for a step-down, with a wish where the server takes one.
    async fn step_down(&self, to: usize) -> Result<bool, RemoteError> {
        const VERB: &str = "STREAM.LEADER.STEPDOWN";
        let ask = async |site: usize| {
            let mut session = self.open(site).await?;
            let prefers = session.version() >= PREFERS;
            let wish = if prefers {
                json!({"placement": {"preferred": self.settings.sites[to].name}})
            } else {
                Value::Null // an older server refuses any body
            };
            self.api_at(&mut session, VERB, &wish).await.map(|_| prefers)
        };
        self.asked.any(self.settings.sites.len(), ask).await
    }

    /// Looks until there is a leader again.
    async fn next_leader(&self) -> Result<usize, RemoteError> {
        let mut last = RemoteError::passing("it was not looked");
        for _ in 0..LOOKS {
            tokio::time::sleep(self.settings.request / LOOKS).await;
            match self.observe().await {
                Ok(seen) => return Ok(seen.layout.leader()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Why a follower does not serve. Servers notice late, or not at all, that another one is gone
/// (`offline`); a leader hears of each follower every second.
fn ill(follower: &Value) -> Option<String> {
    let is = |key: &str| follower.get(key) == Some(&Value::Bool(true));
    let silent_ns = follower.get("active").and_then(Value::as_u64).unwrap_or(0);
    let silent = Duration::from_nanos(silent_ns);
    if is("offline") {
        Some("it is offline".to_owned())
    } else if silent > SILENT_MAX {
        Some(format!("its leader has not heard of it for {} s", silent.as_secs()))
    } else if silent_ns == 0 && !is("current") {
        Some("its leader has not heard of it yet".to_owned())
    } else {
        None
    }
}

impl Cluster for Nats {
    type Hold = FileLock;

    fn name(&self) -> &str {
        &self.settings.name
    }

    fn site_name(&self, site: usize) -> String {
        self.settings.sites.get(site).map_or_else(|| format!("site {site}"), |one| one.name.clone())
    }

    fn abilities(&self) -> Abilities {
        Abilities { learners_max: 0, ..Abilities::LEADER }
    }

    async fn observe(&self) -> Result<Observed, RemoteError> {
        let look = async |site: usize| {
            let mut session = self.open(site).await?;
            self.observed(&self.api_at(&mut session, INFO, &Value::Null).await?)
        };
        self.asked.look(self.settings.sites.len(), look).await
    }

    async fn say(&self, step: Step) -> String {
        let Step::MoveLeader { to, .. } = step else {
            return format!("NATS cannot {}", self.words(step));
        };
        let (stream, to) = (&self.settings.stream, self.site_name(to));
        format!(
            "$JS.API.STREAM.LEADER.STEPDOWN.{stream} {{\"placement\":{{\"preferred\":\"{to}\"}}}}; \
             before 2.11 without a wish, up to {STEP_DOWNS_MAX} times until {to} leads"
        )
    }

    async fn apply(&self, step: Step) -> Result<(), RemoteError> {
        let to = match step {
            Step::MoveLeader { to, .. } if to < self.settings.sites.len() => to,
            _ => return Err(RemoteError::lasting(format!("NATS cannot {}", self.words(step)))),
        };
        let mut leads = None;
        for _ in 0..STEP_DOWNS_MAX {
            if self.step_down(to).await? {
                return Ok(());
            }
            let leader = self.next_leader().await?;
            if leader == to {
                return Ok(());
            }
            leads = Some(leader);
        }
        let leads = leads.map_or_else(String::new, |site| self.site_name(site));
        Err(RemoteError::lasting(format!(
            "after {STEP_DOWNS_MAX} step-downs {leads} leads {}, not {} (2.11 and later take a \
             wish)",
            self.name(),
            self.site_name(to)
        )))
    }

    async fn hold(&self, who: &str) -> Result<FileLock, RemoteError> {
        FileLock::take(&self.settings.lock, who)
    }

    async fn keep(&self, _hold: &FileLock) -> Result<(), RemoteError> {
        Ok(())
    }

    async fn release(&self, _hold: FileLock) {}
}
