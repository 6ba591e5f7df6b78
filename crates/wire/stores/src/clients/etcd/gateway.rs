//! Requests to whichever member of a cluster answers, authenticated where that is wanted.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::members::Members;
use super::super::rest::{Call, Client, ClientError, Endpoint, TlsFiles};
use super::wire::error_of_answer;
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
        Ok(Self { members, client, user: manner.user.clone(), token, asked })
    }

    /// How many members it knows.
    pub fn members(&self) -> usize {
        self.members.len()
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
                return Ok(answer.body);
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
        self.asked.any(self.members.len(), async |member| self.post(member, path, body).await).await
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
