//! What etcd's JSON means.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use super::super::rest::Answer;
use crate::clients::error::RemoteError;

/// Of `/v3/maintenance/status`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The cluster's ID.
    pub cluster: u64,
    /// The ID of the member that answered.
    pub member: u64,
    /// The leader's ID, 0 while there is none.
    pub leader: u64,
    /// The term of Raft.
    pub term: u64,
    /// The last entry of its log.
    pub index: u64,
    /// The last entry that it has applied.
    pub applied: u64,
    /// What it says is wrong with it, such as `NOSPACE`.
    pub errors: Vec<String>,
}

impl Status {
    /// Reads the answer.
    ///
    /// # Errors
    /// When a number is none.
    pub fn read(body: &Value) -> Result<Self, RemoteError> {
        let errors = body.get("errors").and_then(Value::as_array);
        let words = |error: &Value| error.as_str().map(str::to_owned);
        Ok(Self {
            cluster: number(body, "/header/cluster_id")?,
            member: number(body, "/header/member_id")?,
            leader: number(body, "/leader")?,
            term: number(body, "/raftTerm")?,
            index: number(body, "/raftIndex")?,
            applied: number(body, "/raftAppliedIndex")?,
            errors: errors.into_iter().flatten().filter_map(words).collect(),
        })
    }
}

/// Of `/v3/cluster/member/list`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its ID.
    pub id: u64,
    /// Empty until it runs.
    pub name: String,
    /// The URLs where other members reach it.
    pub peers: Vec<String>,
    /// Whether it has the data and does not vote.
    pub is_learner: bool,
}

/// Reads the list of members.
///
/// # Errors
/// When there is none, or an ID is no number.
pub fn members(body: &Value) -> Result<Vec<Member>, RemoteError> {
    let listed = body.get("members").and_then(Value::as_array);
    let wrong =
        || RemoteError::lasting(format!("a list of members was expected, this came: {body}"));
    let read = |member: &Value| {
        let peers = member.get("peerURLs").and_then(Value::as_array);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Member {
            id: number(member, "/ID")?,
            name: member.get("name").and_then(text).unwrap_or_default(),
            peers: peers.into_iter().flatten().filter_map(text).collect(),
            is_learner: member.get("isLearner").and_then(Value::as_bool).unwrap_or(false),
        })
    };
    listed.ok_or_else(wrong)?.iter().map(read).collect()
}

/// A number of 64 bits, which is a string; what is 0 is left out.
///
/// # Errors
/// When something else is there.
pub fn number(body: &Value, at: &str) -> Result<u64, RemoteError> {
    let wrong = |came: &Value| {
        RemoteError::lasting(format!("{at} in etcd's answer: {came} came, a number was expected"))
    };
    match body.pointer(at) {
        None => Ok(0),
        Some(came @ Value::String(text)) => text.parse().map_err(|_| wrong(came)),
        Some(came) => came.as_u64().ok_or_else(|| wrong(came)),
    }
}

/// What an answer that says no means. Codes are gRPC's: 4 and 14 pass, of 9 only these. Without a
/// code it is not the gateway's, and no word of the cluster.
pub fn error_of_answer(site: &str, path: &str, answer: &Answer) -> RemoteError {
    const PASSING: [&str; 6] = [
        "unhealthy cluster",
        "in sync with leader",
        "not enough started members",
        "leader changed",
        "no leader",
        // Also when one is added within the second in which it was added and removed before, since
        // its ID is made of the second.
        "member not found",
    ];
    let said = answer.body.get("message").or_else(|| answer.body.get("error"));
    let said = said.and_then(Value::as_str).or_else(|| answer.body.as_str()).unwrap_or("no words");
    let code = answer.body.get("code").and_then(Value::as_u64);
    let may_pass =
        matches!(code, None | Some(4 | 14)) || PASSING.iter().any(|words| said.contains(words));
    let said: String = said.chars().take(300).collect();
    let message = format!("{site} answered {} to {path}: {said}", answer.status);
    RemoteError { message, may_pass }
}

/// The value of the key that a transaction read because it failed.
pub fn first_value(body: &Value) -> Option<String> {
    let value = body.pointer("/responses/0/response_range/kvs/0/value")?.as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(value).ok()?).ok()
}
