//! PostgreSQL under Patroni, through the REST interface of its members.
//!
//! | what | request |
//! |---|---|
//! | look | `GET /cluster` of whichever member answers |
//! | move the leader | `POST /switchover` with `leader` and `candidate` |
//!
//! Members are not made or removed here: that takes a machine and a copy of the data. Voters are
//! the leader and, in synchronous mode, the synchronous standbys; without it every standby that may
//! lead. **Patroni chooses the synchronous standbys itself** and may choose others
//! after a switchover, so that a move is reached when the leader and the replicas are right. In
//! synchronous mode it lets only a synchronous standby take over.
//!
//! **What a commit waits for.** Not a majority: with `FIRST n` (all of Patroni 3, and 4 unless in
//! quorum mode) every one of the n synchronous standbys, the farthest of them: [`commit_ms`]. For
//! n = 1 that is equation 1 with two voters, the leader and its standby; for n of quorum mode it is
//! the n-th nearest.

use std::path::PathBuf;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use evenkeel_planner::model::{Layout, RoundTrips};
use evenkeel_planner::steps::{Abilities, Step};
use serde_json::{Value, json};

use super::lock::FileLock;
use super::{Cluster, Observed, Seen, StepError};
use evenkeel_stores::clients::error::RemoteError;
use evenkeel_stores::clients::members::Members;
use evenkeel_stores::clients::rest::{Answer, Call, Client, Endpoint, TlsFiles};

/// Where a member is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The member's name in Patroni.
    pub name: String,
    /// Its REST interface, `http://host:port` or `https://…`.
    pub api: String,
}

/// A cluster and how to talk to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its name in logs.
    pub name: String,
    /// All members.
    pub sites: Vec<Site>,
    /// For one request that only looks.
    pub request: Duration,
    /// For a switchover, which is answered when it is over.
    pub switchover: Duration,
    /// User and password of the REST interface, where it wants them.
    pub user: Option<(String, String)>,
    /// The authority that members are believed by, for `https`.
    pub authority: Option<PathBuf>,
    /// The own certificate and key, where members want one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The file that is locked while this cluster is moved.
    pub lock: PathBuf,
}

/// A cluster of PostgreSQL.
#[derive(Debug)]
pub struct Patroni {
    settings: Settings,
    apis: Vec<Endpoint>,
    looks: Client,
    moves: Client,
    authorization: Option<String>,
    asked: Members,
}

impl Patroni {
    /// Reads the settings; connects to nobody.
    ///
    /// # Errors
    /// When a URL or a file is not what it should be, or two sites share a name.
    pub fn new(settings: Settings) -> Result<Self, StepError> {
        let read = |site: &Site| {
            Endpoint::parse(&site.api).map_err(|error| StepError::url(&site.name, error))
        };
        let apis = settings.sites.iter().map(read).collect::<Result<_, _>>()?;
        StepError::check_names(settings.sites.iter().map(|site| &*site.name))?;
        let client = |deadline| match &settings.authority {
            None => Ok(Client::plain(deadline)),
            Some(authority) => {
                let identity = settings.identity.as_ref();
                let identity = identity.map(|(one, key)| (one.as_path(), key.as_path()));
                let files = TlsFiles { authority, identity };
                Client::with_tls(deadline, files).map_err(|error| StepError::Client(error.into()))
            }
        };
        let (looks, moves) = (client(settings.request)?, client(settings.switchover)?);
        let basic = |(user, password): &(String, String)| {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
        };
        let authorization = settings.user.as_ref().map(basic);
        let asked = Members::default();
        Ok(Self { settings, apis, looks, moves, authorization, asked })
    }

    fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    fn site_of(&self, name: &str) -> Option<usize> {
        self.settings.sites.iter().position(|site| site.name == name)
    }

    fn observed(&self, cluster: &Value) -> Result<Observed, RemoteError> {
        let name = &self.settings.name;
        let members = cluster.get("members").and_then(Value::as_array);
        let members = members.ok_or_else(|| {
            RemoteError::passing(format!(
                "{name}: members were expected, this came: {cluster:.300}"
            ))
        })?;
        let text = |member: &Value, key: &str| {
            member.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let is_synchronous = members.iter().any(|member| text(member, "role") == "sync_standby");
        let (mut leader, mut voters, mut replicas) = (None, Vec::new(), Vec::new());
        let mut seen = vec![None; self.apis.len()];
        for member in members {
            let site = self.site_of(&text(member, "name")).ok_or_else(|| {
                let member = text(member, "name");
                RemoteError::lasting(format!(
                    "{name} has a member {member} that is none of the sites"
                ))
            })?;
            let (role, state) = (text(member, "role"), text(member, "state"));
            let leads = role == "leader" || role == "standby_leader";
            let may_lead = member.pointer("/tags/nofailover") != Some(&Value::Bool(true));
            replicas.push(site);
            if leads {
                leader = Some(site);
            }
            if leads || role == "sync_standby" || !is_synchronous && may_lead {
                voters.push(site);
            }
            let serves = state == "running" || state == "streaming" && !leads;
            let lag = if leads { Some(0) } else { member.get("lag").and_then(Value::as_u64) };
            let ill = match (serves, lag) {
                (false, _) => Some(format!("its state is \"{state}\"")),
                (true, None) => Some("nobody knows how far it is behind".to_owned()),
                (true, Some(_)) => None,
            };
            seen[site] = Some(Seen { ill, lag: lag.unwrap_or(0) });
        }
        self.add_the_missing(is_synchronous, &mut seen, &mut replicas, &mut voters);
        let leader = leader
            .ok_or_else(|| RemoteError::passing(format!("{name} has no leader at present")))?;
        let layout = Layout::new(leader, voters, replicas)
            .map_err(|error| RemoteError::lasting(format!("{name}: {error}")))?;
        Ok(Observed { layout, replicas: seen })
    }

    /// Patroni makes no members: one that is not listed is gone, and its vote with it, not absent.
    fn add_the_missing(
        &self,
        is_synchronous: bool,
        seen: &mut [Option<Seen>],
        replicas: &mut Vec<usize>,
        voters: &mut Vec<usize>,
    ) {
        for (site, seen) in seen.iter_mut().enumerate().filter(|(_, seen)| seen.is_none()) {
            *seen = Some(Seen { ill: Some("the cluster does not list it".to_owned()), lag: 0 });
            replicas.push(site);
            if !is_synchronous {
                voters.push(site);
            }
        }
    }

    fn request(&self, step: Step) -> Result<Value, RemoteError> {
        match step {
            Step::MoveLeader { from, to } => {
                Ok(json!({"leader": self.site_name(from), "candidate": self.site_name(to)}))
            }
            other => Err(RemoteError::lasting(format!("Patroni cannot {}", self.words(other)))),
        }
    }
}

fn refused(site: &str, path: &str, answer: &Answer) -> RemoteError {
    let said = answer.body.as_str().map_or_else(|| answer.body.to_string(), str::to_owned);
    let said: String = said.chars().take(300).collect();
    let message = format!("{site} answered {} to {path}: {said}", answer.status);
    // 412 = not at present ("no good candidates have been found"), 503 = it failed.
    RemoteError { message, may_pass: matches!(answer.status, 412 | 503) }
}

impl Cluster for Patroni {
    type Hold = FileLock;

    fn name(&self) -> &str {
        &self.settings.name
    }

    fn site_name(&self, site: usize) -> String {
        self.settings.sites.get(site).map_or_else(|| format!("site {site}"), |one| one.name.clone())
    }

    fn abilities(&self) -> Abilities {
        Abilities::LEADER
    }

    fn is_reached(&self, seen: &Layout, wanted: &Layout) -> bool {
        seen.leader() == wanted.leader()
            && seen.replicas() == wanted.replicas()
            && seen.voters().len() == wanted.voters().len()
    }

    async fn observe(&self) -> Result<Observed, RemoteError> {
        let look = async |site: usize| {
            let call = Call { authorization: self.authorization(), ..Call::get("/cluster") };
            match self.looks.call(&self.apis[site], call).await? {
                Answer { status: 200, body } => self.observed(&body),
                answer => Err(refused(&self.site_name(site), "/cluster", &answer)),
            }
        };
        self.asked.look(self.apis.len(), look).await
    }

    async fn say(&self, step: Step) -> String {
        match self.request(step) {
            Ok(body) => format!("POST /switchover {body}"),
            Err(error) => error.message,
        }
    }

    async fn apply(&self, step: Step) -> Result<(), RemoteError> {
        let body = self.request(step)?;
        let Step::MoveLeader { from, .. } = step else { return Ok(()) };
        let call = Call { authorization: self.authorization(), ..Call::post("/switchover", &body) };
        // The leader is asked: it is the one who knows at once.
        let answer = self.moves.call(&self.apis[from], call).await?;
        match answer.status {
            200 | 202 => Ok(()),
            _ => Err(refused(&self.site_name(from), "/switchover", &answer)),
        }
    }

    async fn hold(&self, who: &str) -> Result<FileLock, RemoteError> {
        FileLock::take(&self.settings.lock, who)
    }

    /// The operating system keeps it.
    async fn keep(&self, _: &FileLock) -> Result<(), RemoteError> {
        Ok(())
    }

    async fn release(&self, hold: FileLock) {
        drop(hold);
    }
}

/// How long a commit at the leader waits for synchronous standbys, in milliseconds: for the
/// farthest of them (`synchronous_standby_names = n (…)`).
pub fn commit_ms(trips: &RoundTrips, leader: usize, standbys: &[usize]) -> f64 {
    let row = trips.from_site(leader);
    standbys.iter().map(|site| row[*site]).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::Unwell;

    fn patroni(user: Option<(String, String)>) -> Patroni {
        let site = |name: &str| Site { name: name.to_owned(), api: format!("http://{name}:8008") };
        let settings = Settings {
            name: "shop".to_owned(),
            sites: ["p1", "p2", "p3"].map(site).to_vec(),
            request: Duration::from_secs(1),
            switchover: Duration::from_secs(1),
            user,
            authority: None,
            identity: None,
            lock: PathBuf::new(),
        };
        Patroni::new(settings).unwrap()
    }

    fn member(name: &str, role: &str, state: &str, lag: impl Into<Value>) -> Value {
        json!({"name": name, "role": role, "state": state, "lag": lag.into()})
    }

    #[test]
    fn voters_are_the_leader_and_its_synchronous_standbys() {
        let cluster = json!({"members": [
            member("p1", "replica", "running", json!("unknown")),
            member("p2", "leader", "running", Value::Null),
            member("p3", "sync_standby", "streaming", json!(16)),
        ]});
        let seen = patroni(None).observed(&cluster).unwrap();
        assert_eq!(seen.layout, Layout::new(1, vec![1, 2], vec![0, 1, 2]).unwrap());
        assert!(seen.is_well(0, 99).unwrap_err().to_string().contains("how far"));
        assert_eq!(seen.is_well(2, 16), Ok(()));
        assert!(seen.is_well(2, 15).is_err());
    }

    #[test]
    fn without_synchronous_mode_all_that_may_lead_vote() {
        let mut cluster = json!({"members": [
            member("p1", "leader", "running", Value::Null),
            member("p2", "replica", "starting", json!(0)),
            member("p3", "replica", "running", json!(0)),
        ]});
        cluster["members"][2]["tags"] = json!({"nofailover": true});
        let seen = patroni(None).observed(&cluster).unwrap();
        assert_eq!(seen.layout, Layout::new(0, vec![0, 1], vec![0, 1, 2]).unwrap());
        let ill = seen.ill_voter(0).unwrap();
        assert_eq!(ill, (1, Unwell::Ill("its state is \"starting\"".to_owned())));
    }

    #[test]
    fn a_cluster_without_a_leader_or_with_strangers_is_not_understood() {
        let nobody = json!({"members": [member("p1", "replica", "running", json!(0))]});
        assert!(patroni(None).observed(&nobody).unwrap_err().may_pass);
        let stranger = json!({"members": [member("p9", "leader", "running", Value::Null)]});
        let error = patroni(None).observed(&stranger).unwrap_err();
        assert!(error.message.contains("a member p9 that is none of the sites"), "{error}");
    }

    #[test]
    fn a_password_goes_as_http_wants_it() {
        // RFC 7617, section 2.
        let user = ("Aladdin".to_owned(), "open sesame".to_owned());
        let authorization = patroni(Some(user)).authorization;
        assert_eq!(authorization.unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }

    #[test]
    fn a_commit_waits_for_the_farthest_standby() {
        let rows = [vec![0.0, 10.0, 30.0], vec![10.0, 0.0, 25.0], vec![30.0, 25.0, 0.0]];
        let trips = RoundTrips::new(&rows, &rows).unwrap();
        assert_eq!(commit_ms(&trips, 0, &[1, 2]), 30.0);
        assert_eq!(commit_ms(&trips, 1, &[2]), 25.0);
        assert_eq!(commit_ms(&trips, 1, &[]), 0.0);
    }
}
