//! etcd, through the JSON gateway that every member serves (`/v3/…`, etcd 3.4 and later).
//!
//! | step | request |
//! |---|---|
//! | move the leader | `POST /v3/maintenance/transfer-leadership`, to the leader |
//! | add a replica | `POST /v3/cluster/member/add`, `isLearner`; its process must then be started |
//! | give it its vote | `POST /v3/cluster/member/promote`, once it has the leader's log |
//! | remove it | `POST /v3/cluster/member/remove`; its process ends by itself |
//!
//! A vote cannot be taken without the data ([`Step::RemoveVoter`]); a cluster has one learner at
//! most by default, and a learner serves no reads but serializable ones. Members are found by the
//! names and URLs of their sites; one that is no site's is an error, since a plan would not know
//! of it. Numbers of 64 bits are strings in this JSON, as in all of protobuf's.
//!
//! **What operations take.** A member that is not the leader passes a put on and answers when it
//! has applied it: `rtt(c, near) + rtt(near, leader) + q`, a transaction within a group. A
//! *linearizable* get is no cheaper: the member asks the leader how far it is, and the leader asks
//! a majority whether it still leads (`ReadIndex`, Raft thesis section 6.4), so that a linearizable
//! get is counted as [`SingleGroup`](evenkeel_planner::model::Operation::SingleGroup), not
//! as a bounded or strong read. Above that one member asks for one index at a time: see
//! [`linearizable_ms`]. A *serializable* get is a weak read.

use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use evenkeel_planner::model::Layout;
use evenkeel_planner::steps::{Abilities, Step};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Cluster, Observed, Seen, StepError};
use evenkeel_stores::clients::error::RemoteError;
use evenkeel_stores::clients::etcd::gateway::{Gateway, Manner};
use evenkeel_stores::clients::etcd::wire::{Member, Status, members};
use evenkeel_stores::clients::rest::Endpoint;

/// Where a member is or can be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The member's name.
    pub name: String,
    /// Where its gateway is reached, `http://host:port` or `https://…`.
    pub client: String,
    /// Where its peers reach it.
    pub peer: String,
    /// The program and arguments that start the member once it has been added, with an empty data
    /// folder; they must return at once. `EVENKEEL_MEMBER` is its name and
    /// `EVENKEEL_INITIAL_CLUSTER` what etcd wants as `--initial-cluster`, the state being
    /// `existing`. Empty: somebody else starts it.
    pub start: Vec<String>,
}

/// A cluster and how to talk to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its name in logs.
    pub name: String,
    /// All sites, those without a member too.
    pub sites: Vec<Site>,
    /// For one request.
    pub request: Duration,
    /// User and password, where authentication is on.
    pub user: Option<(String, String)>,
    /// The authority that members are believed by, for `https`.
    pub authority: Option<PathBuf>,
    /// The own certificate and key, where members want one. Where authentication is on as well, it
    /// must have no common name: the gateway refuses those that have.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// How long a mover that died holds the cluster, at least 5 s.
    pub hold: Duration,
}

/// A cluster of etcd.
#[derive(Debug)]
pub struct Etcd {
    settings: Settings,
    gateway: Gateway,
}

/// Being the holder of the key that stands for moving.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    id: String,
}

/// A shorter hold would end while a request is waited for.
const HOLD_MIN: Duration = Duration::from_secs(5);
/// The key whose lease is the hold.
const LOCK_KEY: &str = "evenkeel/placement/moving";

/// What is known of the cluster at one moment.
struct View {
    statuses: Vec<Result<Status, RemoteError>>,
    members: Vec<Member>,
    leader: u64,
    /// The site of the leader.
    leads: usize,
}

impl Etcd {
    /// Reads the settings; connects to nobody.
    ///
    /// # Errors
    /// When a URL or a file is not what it should be, or two sites share a name.
    pub fn new(settings: Settings) -> Result<Self, StepError> {
        let read = |site: &Site| {
            let parse =
                |url: &str| Endpoint::parse(url).map_err(|error| StepError::url(&site.name, error));
            parse(&site.peer)?;
            Ok((site.name.clone(), parse(&site.client)?))
        };
        let members = settings.sites.iter().map(read).collect::<Result<_, StepError>>()?;
        StepError::check_names(settings.sites.iter().map(|site| &*site.name))?;
        if settings.hold < HOLD_MIN {
            return Err(StepError::Hold { came: settings.hold, least: HOLD_MIN });
        }
        let Settings { request, user, authority, identity, .. } = settings.clone();
        let gateway = Gateway::new(members, &Manner { request, user, authority, identity })
            .map_err(|error| StepError::Client(error.into()))?;
        Ok(Self { settings, gateway })
    }

    async fn post(&self, site: usize, path: &str, body: &Value) -> Result<Value, RemoteError> {
        self.gateway.post(site, path, body).await
    }

    /// Asks all sites at once how they are.
    async fn statuses(&self) -> Vec<Result<Status, RemoteError>> {
        let body = &json!({});
        let ask = |site| async move {
            Status::read(&self.post(site, "/v3/maintenance/status", body).await?)
        };
        join_all((0..self.gateway.members()).map(ask)).await
    }

    async fn view(&self) -> Result<View, RemoteError> {
        let mut statuses = self.statuses().await;
        self.leave_out_strangers(&mut statuses)?;
        let known = || statuses.iter().filter_map(|status| status.as_ref().ok());
        let newest = known().max_by_key(|status| (status.term, status.leader != 0));
        let answered = known().count();
        let no_leader = || {
            let name = &self.settings.name;
            let sites = statuses.len();
            let message = format!("{name} has no leader: {answered} of {sites} sites answered");
            let ill = statuses.iter().find_map(|status| status.as_ref().err());
            RemoteError::passing(ill.map_or(message.clone(), |ill| format!("{message} ({ill})")))
        };
        let leader = newest.map(|status| status.leader).filter(|id| *id != 0);
        let leader = leader.ok_or_else(no_leader)?;
        let is_leader = |status: &Result<Status, RemoteError>| {
            status.as_ref().is_ok_and(|status| status.member == leader)
        };
        let leads = statuses.iter().position(is_leader).ok_or_else(no_leader)?;
        let listed = self.post(leads, "/v3/cluster/member/list", &json!({})).await?;
        Ok(View { members: members(&listed)?, statuses, leader, leads })
    }

    /// Sites that answer for another cluster than most of them do not answer for this one.
    fn leave_out_strangers(
        &self,
        statuses: &mut [Result<Status, RemoteError>],
    ) -> Result<(), RemoteError> {
        let clusters: Vec<u64> = statuses.iter().flatten().map(|status| status.cluster).collect();
        let many = |cluster: u64| clusters.iter().filter(|other| **other == cluster).count();
        let Some(most) = clusters.iter().copied().max_by_key(|cluster| many(*cluster)) else {
            return Ok(());
        };
        let likely = "was a member started as a cluster of its own?";
        for status in statuses {
            let Some(other) = status.as_ref().ok().map(|status| status.cluster) else { continue };
            if other != most && 2 * many(most) <= clusters.len() {
                let name = &self.settings.name;
                return Err(RemoteError::lasting(format!(
                    "sites of {name} answer for two clusters, {most:x} and {other:x} ({likely})"
                )));
            }
            if other != most {
                let words = format!("it answers for cluster {other:x}, most for {most:x}");
                *status = Err(RemoteError::passing(format!("{words} ({likely})")));
            }
        }
        self.gateway.believe(most);
        Ok(())
    }

    /// The member of a site.
    fn member<'a>(&self, view: &'a View, site: usize) -> Option<&'a Member> {
        view.members.iter().find(|member| self.site_of(member) == Some(site))
    }

    /// The site of a member: by its name, or by its peer URL, since one that never ran has no name.
    fn site_of(&self, member: &Member) -> Option<usize> {
        let is_peer = |url: &str| member.peers.iter().any(|peer| peer.trim_end_matches('/') == url);
        self.settings.sites.iter().position(|site| {
            let is_named = !member.name.is_empty() && member.name == site.name;
            is_named || is_peer(site.peer.trim_end_matches('/'))
        })
    }

    fn observed(&self, view: &View) -> Result<Observed, RemoteError> {
        let (mut voters, mut replicas) = (Vec::new(), Vec::new());
        for member in &view.members {
            let Some(site) = self.site_of(member) else {
                let (cluster, peers) = (&self.settings.name, member.peers.join(", "));
                return Err(RemoteError::lasting(format!(
                    "{cluster} has a member \"{}\" ({peers}) that is none of the sites",
                    member.name
                )));
            };
            replicas.push(site);
            if !member.is_learner {
                voters.push(site);
            }
        }
        let seen = |site: usize| {
            let member = self.member(view, site)?;
            let (ill, lag) = match &view.statuses[site] {
                Err(error) => (Some(error.message.clone()), 0),
                Ok(status) => (self.ill(view, member, status), view.lag_of(status)),
            };
            Some(Seen { ill, lag })
        };
        let layout = Layout::new(view.leads, voters, replicas).map_err(|error| {
            // The leader was found before the members were listed.
            RemoteError::passing(format!("{} changed while it was looked at: {error}", self.name()))
        })?;
        Ok(Observed { layout, replicas: (0..self.gateway.members()).map(seen).collect() })
    }

    fn ill(&self, view: &View, member: &Member, status: &Status) -> Option<String> {
        if status.member != member.id {
            return Some("its URL leads to another member".to_owned());
        }
        if status.leader != view.leader {
            return Some("it does not follow the leader".to_owned());
        }
        status.errors.first().cloned()
    }

    /// The site, path and body of a step, as far as the cluster's identifiers are known.
    fn request(&self, view: &View, step: Step) -> Result<(usize, &'static str, Value), StepError> {
        let (path, key, site) = match step {
            Step::MoveLeader { to, .. } => ("/v3/maintenance/transfer-leadership", "targetID", to),
            Step::AddReplica(site) => {
                let body = json!({"peerURLs": [self.settings.sites[site].peer], "isLearner": true});
                return Ok((view.leads, "/v3/cluster/member/add", body));
            }
            Step::Promote(site) | Step::Demote(site) => ("/v3/cluster/member/promote", "ID", site),
            Step::RemoveReplica(site) | Step::RemoveVoter(site) => {
                ("/v3/cluster/member/remove", "ID", site)
            }
        };
        match self.member(view, site) {
            Some(member) => Ok((view.leads, path, json!({key: member.id.to_string()}))),
            None => {
                let site = self.settings.sites[site].name.clone();
                Err(StepError::NoMember { path, key, site })
            }
        }
    }

    /// Waits until every member that answers knows of one that has been added, as long as a request
    /// may take. A new process asks any of them who is a member, and gives up at once if it is not
    /// among them itself; a follower far away learns it a heartbeat later than the leader.
    async fn is_known(&self, added: usize, view: &View) {
        let late = Instant::now() + self.settings.request;
        let peer = self.settings.sites[added].peer.trim_end_matches('/');
        for at in (0..self.gateway.members()).filter(|at| view.statuses[*at].is_ok()) {
            while Instant::now() < late {
                let listed = self.post(at, "/v3/cluster/member/list", &json!({})).await;
                let listed = listed.and_then(|listed| members(&listed));
                let has = |url: &String| url.trim_end_matches('/') == peer;
                let knows = |all: Vec<Member>| all.iter().any(|one| one.peers.iter().any(has));
                // One that answers no more keeps nobody waiting.
                if listed.map_or(true, knows) {
                    break;
                }
                tokio::time::sleep(LOOK_AGAIN_EVERY).await;
            }
        }
    }

    /// Starts the process of a member that has been added.
    async fn start(&self, site: usize, view: &View) -> Result<(), RemoteError> {
        let Site { name, peer, start, .. } = self.settings.sites[site].clone();
        let [program, arguments @ ..] = &start[..] else { return Ok(()) };
        self.is_known(site, view).await;
        let mut cluster = vec![format!("{name}={peer}")];
        // All of them: with one too few, etcd does not start. One that has only just begun to run
        // has not told its name yet.
        for member in &view.members {
            let known = self.site_of(member).map(|site| &self.settings.sites[site].name);
            let name = known.unwrap_or(&member.name);
            cluster.extend(member.peers.iter().map(|peer| format!("{name}={peer}")));
        }
        let mut command = std::process::Command::new(program);
        command.args(arguments).env("EVENKEEL_MEMBER", &name);
        command.env("EVENKEEL_INITIAL_CLUSTER", cluster.join(","));
        command.stdin(std::process::Stdio::null());
        let why = match command.spawn() {
            Err(error) => error.to_string(),
            Ok(child) => match ended(child, self.settings.request).await {
                Ok(status) if status.success() => return Ok(()),
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            },
        };
        Err(RemoteError::lasting(format!("the program that starts {name} ({program}): {why}")))
    }
}

/// Waits for a program to return; one that does not in time is killed (it is to start a member and
/// return, not to be the member).
async fn ended(mut child: Child, within: Duration) -> std::io::Result<ExitStatus> {
    let late = Instant::now() + within;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= late {
            child.kill()?;
            child.wait()?;
            let message = format!("it has not returned within {within:?} and was killed");
            return Err(std::io::Error::other(message));
        }
        tokio::time::sleep(LOOK_AGAIN_EVERY).await;
    }
}

/// How often it is looked whether a program has returned, or a member is known.
const LOOK_AGAIN_EVERY: Duration = Duration::from_millis(20);

impl View {
    /// How many log entries a member has not applied that its leader has.
    fn lag_of(&self, status: &Status) -> u64 {
        let leader = self.statuses[self.leads].as_ref().map_or(0, |leader| leader.index);
        leader.saturating_sub(status.applied)
    }
}

impl Cluster for Etcd {
    type Hold = Lease;

    fn name(&self) -> &str {
        &self.settings.name
    }

    fn site_name(&self, site: usize) -> String {
        self.settings.sites.get(site).map_or_else(|| format!("site {site}"), |one| one.name.clone())
    }

    fn abilities(&self) -> Abilities {
        Abilities { demote: false, learners_max: 1, ..Abilities::ALL }
    }

    async fn observe(&self) -> Result<Observed, RemoteError> {
        self.observed(&self.view().await?)
    }

    async fn say(&self, step: Step) -> String {
        let view = match self.view().await {
            Ok(view) => view,
            Err(error) => return error.message,
        };
        let Some(site) = self.settings.sites.get(step.site()) else {
            return format!("site {} is not known", step.site());
        };
        match self.request(&view, step) {
            Ok((_, path, body)) => {
                let request = format!("POST {path} {body}");
                match (&site.start[..], step) {
                    ([], Step::AddReplica(_)) => {
                        format!("{request}, and {} must then be started", site.name)
                    }
                    (start, Step::AddReplica(_)) => format!("{request}, then {}", start.join(" ")),
                    _ => request,
                }
            }
            Err(unknown) => unknown.to_string(),
        }
    }

    async fn apply(&self, step: Step) -> Result<(), RemoteError> {
        let view = self.view().await?;
        if matches!(step, Step::Demote(_)) || step.site() >= self.settings.sites.len() {
            return Err(RemoteError::lasting(format!("etcd cannot {}", self.words(step))));
        }
        let (site, path, body) = self.request(&view, step).map_err(|unknown| {
            RemoteError::passing(format!("{unknown}: no such member of {}", self.settings.name))
        })?;
        self.post(site, path, &body).await?;
        match step {
            Step::AddReplica(site) => self.start(site, &view).await,
            _ => Ok(()),
        }
    }

    async fn hold(&self, who: &str) -> Result<Lease, RemoteError> {
        let ttl = self.settings.hold.as_secs();
        let granted =
            self.gateway.post_any("/v3/lease/grant", &json!({"TTL": ttl.to_string()})).await?;
        let id = granted.get("ID").and_then(Value::as_str).map(str::to_owned);
        let id =
            id.ok_or_else(|| RemoteError::lasting(format!("a lease without an ID: {granted}")))?;
        let (key, value) = (BASE64_STANDARD.encode(LOCK_KEY), BASE64_STANDARD.encode(who));
        let take = json!({
            "compare": [
                {"target": "CREATE", "key": key, "result": "EQUAL", "create_revision": "0"},
            ],
            "success": [{"request_put": {"key": key, "value": value, "lease": id}}],
            "failure": [{"request_range": {"key": key}}],
        });
        let lease = Lease { id };
        let taken = match self.gateway.post_any("/v3/kv/txn", &take).await {
            Ok(taken) => taken,
            Err(error) => {
                self.release(lease).await;
                return Err(error);
            }
        };
        if taken.get("succeeded") == Some(&Value::Bool(true)) {
            return Ok(lease);
        }
        self.release(lease).await;
        let holder = evenkeel_stores::clients::etcd::wire::first_value(&taken)
            .unwrap_or_else(|| "somebody else".to_owned());
        let name = &self.settings.name;
        Err(RemoteError::passing(format!("{name} is being moved by {holder} (key {LOCK_KEY})")))
    }

    async fn keep(&self, hold: &Lease) -> Result<(), RemoteError> {
        let body = json!({"ID": hold.id});
        let kept = match self.gateway.post_any("/v3/lease/keepalive", &body).await {
            Ok(kept) => kept,
            // An election takes a moment; the lease is made longer by the next leader.
            Err(error) if error.may_pass => return Ok(()),
            Err(error) => return Err(error),
        };
        match kept.pointer("/result/TTL") {
            Some(_) => Ok(()),
            None => Err(RemoteError::lasting(format!(
                "{} is held no more: its lease ended (is {:?} too short?)",
                self.settings.name, self.settings.hold
            ))),
        }
    }

    async fn release(&self, hold: Lease) {
        // What cannot be revoked ends by itself.
        let _ = self.gateway.post_any("/v3/lease/revoke", &json!({"ID": hold.id})).await;
    }
}

/// Mean latency of linearizable gets at one member that come at random, `per_second` of them, when
/// one index takes `round_ms` to ask for: `rtt(member, leader) + q`.
///
/// A member asks for one index at a time (`linearizableReadLoop`): whoever comes meanwhile waits
/// for that round to end, half of one on average, and is served by the next, which all who wait
/// share. Rounds follow each other for as long as anybody came during the last one, with
/// probability `1 − e^−x`, `x = per_second × round`; so a chain has `e^x` rounds and a pause of one
/// time between arrivals follows it, and `x e^x / (x e^x + 1)` of all gets come while one is under
/// way. Few take one round each, many one and a half.
pub fn linearizable_ms(round_ms: f64, per_second: f64) -> f64 {
    let during = per_second * round_ms / 1e3;
    let chained = during * during.exp();
    let waits = if chained.is_finite() { chained / (chained + 1.0) } else { 1.0 };
    (waits / 2.0).mul_add(round_ms, round_ms)
}

#[cfg(test)]
mod tests;
