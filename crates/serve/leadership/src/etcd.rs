//! The lease, the epochs and the map in etcd.

use std::fs;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::EtcdSettings;
use super::error::LeadershipError;
use evenkeel_stores::clients::error::RemoteError;
use evenkeel_stores::clients::etcd::gateway::{Gateway, Manner};
use evenkeel_stores::clients::etcd::wire::number;
use evenkeel_stores::clients::rest::Endpoint;

/// Parts of a lease that one request may take where there are several members, each of which can be
/// tried within it, and where there is one: that may just be busy.
const REQUESTS: (u32, u32) = (6, 3);
/// A request may take so long, however short the lease.
const REQUEST_MIN: Duration = Duration::from_millis(200);

/// Processes of a service that are shown to clients of Redis Cluster.
const PROCESSES_MAX: u32 = 256;

/// Keys of one service, and who keeps them.
#[derive(Debug)]
pub(super) struct Election {
    gateway: Gateway,
    place: String,
    prefix: String,
    leadership: String,
    epoch: String,
    map: String,
    /// What keys of processes begin with.
    processes: String,
    lease: Duration,
}

/// The lease, and the key that it holds.
#[derive(Debug)]
pub(super) struct Held {
    lease: String,
    /// Of the key: nobody else's has the same.
    created: u64,
    /// How long it lasts, as etcd says.
    pub(super) granted: Duration,
}

/// What became of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Renewed {
    For(Duration),
    Ended,
}

/// What is kept under a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    pub(super) bytes: Vec<u8>,
    /// The revision of the last change, what is compared.
    pub(super) revision: u64,
}

/// What came of asking for the lease.
#[derive(Debug)]
pub(super) enum Campaign {
    Won(Held),
    /// Another one has it: who.
    Lost(String),
    /// Nobody has it, and it was not to be taken.
    Vacant,
}

/// What became of a comparison and a swap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Swapped {
    Done,
    /// Another value is there, or none.
    Other(Option<Kept>),
    /// Another one leads.
    Deposed,
}

impl Election {
    /// Reads the settings; connects to nobody.
    ///
    /// # Errors
    /// When a URL or a file is not what it should be.
    pub(super) fn open(settings: &EtcdSettings) -> Result<Self, LeadershipError> {
        let EtcdSettings { endpoints, prefix, lease, .. } = settings;
        let member = |url: &String| match Endpoint::parse(url) {
            Ok(endpoint) => Ok((url.clone(), endpoint)),
            Err(error) => Err(LeadershipError::Settings(error.into())),
        };
        let members: Vec<_> = endpoints.iter().map(member).collect::<Result<_, _>>()?;
        let user = match (&settings.user, &settings.password_file) {
            (Some(user), Some(file)) => {
                let password = fs::read_to_string(file);
                let path = file.clone();
                let password =
                    password.map_err(|error| LeadershipError::Password { path, error })?;
                Some((user.clone(), password.trim_end_matches(['\r', '\n']).to_owned()))
            }
            _ => None,
        };
        let parts = if endpoints.len() > 1 { REQUESTS.0 } else { REQUESTS.1 };
        let request = (*lease / parts).max(REQUEST_MIN);
        let (authority, identity) = (settings.authority.clone(), settings.identity.clone());
        let gateway = Gateway::new(members, &Manner { request, user, authority, identity })
            .map_err(|error| LeadershipError::Settings(error.into()))?;
        let key = |name: &str| BASE64_STANDARD.encode(format!("{prefix}/{name}"));
        let place = format!("etcd {} below {prefix}", endpoints.join(", "));
        let (leadership, epoch, map) = (key("reign"), key("epoch"), key("map"));
        let (processes, prefix) = (format!("{prefix}/processes/"), prefix.clone());
        Ok(Self { gateway, place, prefix, leadership, epoch, map, processes, lease: *lease })
    }

    /// For people.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Takes the lease if nobody has it and it is to be taken.
    pub(super) async fn campaign(&self, who: &str, takes: bool) -> Result<Campaign, RemoteError> {
        if let Some(holder) = self.read(&self.leadership).await? {
            return Ok(Campaign::Lost(words(&holder)));
        }
        if !takes {
            return Ok(Campaign::Vacant);
        }
        let (lease, granted) = self.grant().await?;
        let value = BASE64_STANDARD.encode(who);
        let take = json!({
            "compare": [self.is_created(0)],
            "success": [{"request_put": {"key": self.leadership, "value": value, "lease": lease}}],
            "failure": [{"request_range": {"key": self.leadership}}],
        });
        let mut held = Held { lease, created: 0, granted };
        let taken = self.post("/v3/kv/txn", &take).await;
        match &taken {
            Ok(taken) if succeeded(taken) => {
                held.created = number(taken, "/header/revision")?;
                Ok(Campaign::Won(held))
            }
            _ => {
                // Also where nobody knows: with its lease the key goes.
                self.revoke(&held).await;
                let other = found(&taken?, 0)?;
                let holder = other.as_ref().map_or_else(|| "somebody else".to_owned(), words);
                Ok(Campaign::Lost(holder))
            }
        }
    }

    /// A new lease, and how long it lasts.
    async fn grant(&self) -> Result<(String, Duration), RemoteError> {
        let ttl = self.lease.as_secs();
        let granted = self.post("/v3/lease/grant", &json!({"TTL": ttl.to_string()})).await?;
        let lease = granted.get("ID").and_then(Value::as_str).map(str::to_owned);
        let lease =
            lease.ok_or_else(|| RemoteError::lasting(format!("no lease's ID: {granted}")))?;
        Ok((lease, Duration::from_secs(number(&granted, "/TTL")?.max(1))))
    }

    /// Makes known that a process is there, for as long as a lease of its own lasts.
    pub(super) async fn present(&self, process: &str) -> Result<Held, RemoteError> {
        let (lease, granted) = self.grant().await?;
        let held = Held { lease, created: 0, granted };
        self.say(&held, process, "").await?;
        Ok(held)
    }

    /// What a process that is there has to say of itself, in place of what it said before.
    pub(super) async fn say(
        &self,
        held: &Held,
        process: &str,
        words: &str,
    ) -> Result<(), RemoteError> {
        let key = BASE64_STANDARD.encode(format!("{}{process}", self.processes));
        let said = BASE64_STANDARD.encode(words);
        let put = json!({"key": key, "value": said, "lease": held.lease});
        self.post("/v3/kv/put", &put).await.map(drop)
    }

    /// The processes that are there, at most [`PROCESSES_MAX`], with what they say of themselves,
    /// and the last epoch that was given: where there are several groups, the sum of theirs, which
    /// rises with each.
    pub(super) async fn processes(
        &self,
        groups: usize,
    ) -> Result<(Vec<(String, String)>, u64), RemoteError> {
        let mut end = self.processes.clone();
        end.pop();
        let range = json!({
            "key": BASE64_STANDARD.encode(&self.processes),
            "range_end": BASE64_STANDARD.encode(end + "0"), // the byte behind the slash
            "limit": PROCESSES_MAX.to_string(),
        });
        let of = |group: usize| match groups {
            1 => self.epoch.clone(),
            _ => BASE64_STANDARD.encode(format!("{}/epoch", prefix_of(&self.prefix, group))),
        };
        let epochs = (0..groups).map(|group| json!({"request_range": {"key": of(group)}}));
        let ranges = std::iter::once(json!({"request_range": range})).chain(epochs);
        let all = json!({"compare": [], "success": ranges.collect::<Vec<_>>()});
        let body = self.post("/v3/kv/txn", &all).await?;
        let kvs = body.pointer("/responses/0/response_range/kvs").and_then(Value::as_array);
        let text = |kv: &Value, part: &str| {
            let text = kv.get(part).and_then(Value::as_str).unwrap_or_default();
            String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok()
        };
        let process = |kv: &Value| {
            let name = text(kv, "key")?.strip_prefix(&self.processes)?.to_owned();
            Some((name, text(kv, "value").unwrap_or_default()))
        };
        let processes = kvs.into_iter().flatten().filter_map(process).collect();
        let epochs = (1..=groups).map(|at| epoch_of(found(&body, at)?.as_ref()));
        Ok((processes, epochs.sum::<Result<u64, _>>()?))
    }

    /// Makes the lease longer.
    pub(super) async fn renew(&self, held: &Held) -> Result<Renewed, RemoteError> {
        let kept = match self.post("/v3/lease/keepalive", &json!({"ID": held.lease})).await {
            Ok(kept) => kept,
            Err(error) if error.message.contains("lease not found") => return Ok(Renewed::Ended),
            Err(error) => return Err(error),
        };
        match number(&kept, "/result/TTL")? {
            0 => Ok(Renewed::Ended),
            seconds => Ok(Renewed::For(Duration::from_secs(seconds).min(held.granted))),
        }
    }

    /// Ends the lease; what cannot be ended ends by itself.
    pub(super) async fn revoke(&self, held: &Held) {
        let _ = self.post("/v3/lease/revoke", &json!({"ID": held.lease})).await;
    }

    /// The last epoch that was given to anybody; 0 = none.
    pub(super) async fn last_epoch(&self) -> Result<u64, RemoteError> {
        epoch_of(self.read(&self.epoch).await?.as_ref())
    }

    /// Gives an epoch above this one and above all that were given; `None` when another one leads.
    pub(super) async fn give_epoch(
        &self,
        held: &Held,
        seen: u64,
    ) -> Result<Option<u64>, RemoteError> {
        loop {
            let last = self.read(&self.epoch).await?;
            let given = epoch_of(last.as_ref())?;
            let next = seen.max(given) + 1;
            let bytes = next.to_string().into_bytes();
            let revision = last.map_or(0, |kept| kept.revision);
            match self.swap(&self.epoch, held, revision, &bytes).await? {
                Swapped::Done => return Ok(Some(next)),
                Swapped::Other(_) => {}
                Swapped::Deposed => return Ok(None),
            }
        }
    }

    /// What was stored as the map last.
    pub(super) async fn read_map(&self) -> Result<Option<Kept>, RemoteError> {
        self.read(&self.map).await
    }

    /// Replaces the map of this revision (0: there is none), as whoever leads.
    pub(super) async fn swap_map(
        &self,
        held: &Held,
        revision: u64,
        bytes: &[u8],
    ) -> Result<Swapped, RemoteError> {
        self.swap(&self.map, held, revision, bytes).await
    }

    async fn swap(
        &self,
        key: &str,
        held: &Held,
        revision: u64,
        bytes: &[u8],
    ) -> Result<Swapped, RemoteError> {
        let is_same = json!({
            "target": "MOD", "key": key, "result": "EQUAL", "mod_revision": revision.to_string(),
        });
        let swap = json!({
            "compare": [is_same, self.is_created(held.created)],
            "success": [{"request_put": {"key": key, "value": BASE64_STANDARD.encode(bytes)}}],
            "failure": [
                {"request_range": {"key": key}},
                {"request_range": {"key": self.leadership}},
            ],
        });
        let swapped = self.gateway.change_any("/v3/kv/txn", &swap).await?;
        if succeeded(&swapped) {
            return Ok(Swapped::Done);
        }
        let created = "/responses/1/response_range/kvs/0/create_revision";
        if number(&swapped, created)? != held.created {
            return Ok(Swapped::Deposed);
        }
        let other = found(&swapped, 0)?;
        // A request whose answer was lost and that was sent again: the value is ours.
        match other {
            Some(kept) if kept.bytes == bytes && kept.revision > revision => Ok(Swapped::Done),
            other => Ok(Swapped::Other(other)),
        }
    }

    fn is_created(&self, revision: u64) -> Value {
        json!({
            "target": "CREATE", "key": self.leadership, "result": "EQUAL",
            "create_revision": revision.to_string(),
        })
    }

    async fn read(&self, key: &str) -> Result<Option<Kept>, RemoteError> {
        let body = self.post("/v3/kv/range", &json!({"key": key})).await?;
        kept(body.pointer("/kvs/0"))
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, RemoteError> {
        self.gateway.post_any(path, body).await
    }
}

/// Where the keys of a group are, of a service that has several.
pub(super) fn prefix_of(prefix: &str, group: usize) -> String {
    format!("{prefix}/groups/{group}")
}

/// The value that a transaction has read with this request.
fn found(body: &Value, request: usize) -> Result<Option<Kept>, RemoteError> {
    kept(body.pointer(&format!("/responses/{request}/response_range/kvs/0")))
}

fn epoch_of(kept: Option<&Kept>) -> Result<u64, RemoteError> {
    let Some(text) = kept.map(words) else { return Ok(0) };
    text.parse().map_err(|_| {
        let why = format!("the key epoch holds {text:?}, expected a number (who wrote it?)");
        RemoteError::lasting(why)
    })
}

fn kept(kv: Option<&Value>) -> Result<Option<Kept>, RemoteError> {
    let Some(kv) = kv else { return Ok(None) };
    let coded = kv.get("value").and_then(Value::as_str).unwrap_or_default();
    let wrong = |_| RemoteError::lasting("etcd's answer has a value that is not base64");
    let bytes = BASE64_STANDARD.decode(coded).map_err(wrong)?;
    Ok(Some(Kept { bytes, revision: number(kv, "/mod_revision")? }))
}

fn succeeded(body: &Value) -> bool {
    body.get("succeeded") == Some(&Value::Bool(true))
}

fn words(kept: &Kept) -> String {
    String::from_utf8_lossy(&kept.bytes).chars().take(200).collect()
}
