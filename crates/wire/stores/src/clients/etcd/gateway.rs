//! Requests to whichever member of a cluster answers, authenticated where that is wanted.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::members::Members;
use super::super::rest::{Call, Client, ClientError, Endpoint, TlsFiles};
use super::wire::{error_of_answer, number};
use crate::clients::error::RemoteError;

/// How members are talked to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manner {
    /// For one request.
    pub request: Duration,
    /// User and password, where authentication is on.
    pub user: Option<(String, String)>,
    /// The authority that members are believed by, for `https`.
    pub authority: Option<PathBuf>,
    /// The own certificate and key, where members want one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The JSON gateways of a cluster's members.
#[derive(Debug)]
pub struct Gateway {
    /// Names for errors, and where each is.
    members: Vec<(String, Endpoint)>,
    client: Client,
    user: Option<(String, String)>,
    /// Of the last authentication.
    token: RefCell<Option<String>>,
    /// Whom to ask first where anybody will do.
    asked: Members,
    /// Whose members may be asked where anybody will do; `None` = whoever is at the addresses.
    cluster: Cell<Option<u64>>,
}

impl Gateway {
    /// Reads the settings; connects to nobody.
    ///
    /// # Errors
    /// When a file of TLS is not what it should be.
    pub fn new(members: Vec<(String, Endpoint)>, manner: &Manner) -> Result<Self, ClientError> {
        let client = match &manner.authority {
            None => Client::plain(manner.request),
            Some(authority) => {
                let identity = manner.identity.as_ref();
                let identity = identity.map(|(one, key)| (one.as_path(), key.as_path()));
                Client::with_tls(manner.request, TlsFiles { authority, identity })?
            }
        };
        let (token, asked) = (RefCell::new(None), Members::default());
        let (user, cluster) = (manner.user.clone(), Cell::new(None));
        Ok(Self { members, client, user, token, asked, cluster })
    }

    /// How many members it knows.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// From now on members of other clusters are passed over where anybody will do: a lock that is
    /// held there would keep nobody away.
    pub fn believe(&self, cluster: u64) {
        self.cluster.set(Some(cluster));
    }

    /// A request to one member, authenticated where that is wanted.
    ///
    /// # Errors
    /// When it does not answer in time, or says no.
    ///
    /// # Panics
    /// When there is no such member.
    pub async fn post(
        &self,
        member: usize,
        path: &str,
        body: &Value,
    ) -> Result<Value, RemoteError> {
        let (name, endpoint) = &self.members[member];
        if self.user.is_some() && self.token.borrow().is_none() {
            self.authenticate(member).await?;
        }
        for is_last in [false, true] {
            let token = self.token.borrow().clone();
            let call = Call { authorization: token.as_deref(), ..Call::post(path, body) };
            let answer = self.client.call(endpoint, call).await?;
            if answer.status == 200 {
                return check_is_etcd(name, path, answer.body);
            }
            let error = error_of_answer(name, path, &answer);
            let is_stale = ["user name is empty", "invalid auth token", "revision of auth store"]
                .iter()
                .any(|words| error.message.contains(words));
            if !is_stale || is_last || !self.authenticate(member).await? {
                return Err(error);
            }
        }
        unreachable!("the second round returns")
    }

    /// Fetches a token; `false` when there is no user to be.
    async fn authenticate(&self, member: usize) -> Result<bool, RemoteError> {
        const PATH: &str = "/v3/auth/authenticate";
        let (member, endpoint) = &self.members[member];
        let Some((name, password)) = &self.user else { return Ok(false) };
        let body = json!({"name": name, "password": password});
        let answer = self.client.call(endpoint, Call::post(PATH, &body)).await?;
        if answer.status != 200 {
            return Err(error_of_answer(member, PATH, &answer));
        }
        let token = answer.body.get("token").and_then(Value::as_str).map(str::to_owned);
        self.token.replace(token);
        Ok(true)
    }

    /// A request to whoever answers first, beginning with who did last.
    ///
    /// # Errors
    /// When one says no for good, or none answers.
    pub async fn post_any(&self, path: &str, body: &Value) -> Result<Value, RemoteError> {
        let ask = async |member| {
            let answer = self.post(member, path, body).await?;
            let at = if answer.get("result").is_some() { "/result/header" } else { "/header" };
            let came = number(&answer, &format!("{at}/cluster_id"))?;
            match self.cluster.get() {
                Some(cluster) if cluster != came => {
                    let (name, _) = &self.members[member];
                    let words = format!("{name} answers for cluster {came:x}, not {cluster:x}");
                    Err(RemoteError::passing(words))
                }
                _ => Ok(answer),
            }
        };
        self.asked.any(self.members.len(), ask).await
    }

    /// The same for what changes something.
    ///
    /// # Errors
    /// As [`Gateway::post_any`]; an error that does not pass says that nobody did it.
    pub async fn change_any(&self, path: &str, body: &Value) -> Result<Value, RemoteError> {
        let mut asked = 0;
        let ask = async |member| {
            asked += 1;
            self.post(member, path, body).await
        };
        let changed = self.asked.any(self.members.len(), ask).await;
        // Another member that was asked before may have done it.
        changed.map_err(|error| RemoteError { may_pass: error.may_pass || asked > 1, ..error })
    }
}

/// Every answer of etcd has a header, of streams within their result. What has none is something
/// else at its address, and no word of the cluster.
fn check_is_etcd(member: &str, path: &str, body: Value) -> Result<Value, RemoteError> {
    if ["/header", "/result/header"].iter().any(|at| body.pointer(at).is_some()) {
        return Ok(body);
    }
    let came: String = body.to_string().chars().take(300).collect();
    Err(RemoteError::passing(format!("{member}, asked for {path}, answered {came} (is it etcd?)")))
}
