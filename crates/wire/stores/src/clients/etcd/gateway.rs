//! Requests to whichever member of a cluster answers, authenticated where that is wanted.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::members::Members;
use super::super::rest::{Answer, Call, Client, ClientError, Endpoint, Session, TlsFiles};
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
    /// To each member.
    connections: Vec<RefCell<Option<Session>>>,
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
        let connections = members.iter().map(|_| RefCell::default()).collect();
        Ok(Self { members, client, connections, user, token, asked, cluster })
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
        let (name, _) = &self.members[member];
        if self.user.is_some() && self.token.borrow().is_none() {
            self.authenticate(member).await?;
        }
        for is_last in [false, true] {
            let token = self.token.borrow().clone();
            let call = Call { authorization: token.as_deref(), ..Call::post(path, body) };
            let answer = self.call(member, call).await?;
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

    async fn call(&self, member: usize, call: Call<'_>) -> Result<Answer, RemoteError> {
        self.client.call_on(&self.connections[member], &self.members[member].1, call).await
    }

    /// Fetches a token; `false` when there is no user to be.
    async fn authenticate(&self, member: usize) -> Result<bool, RemoteError> {
        const PATH: &str = "/v3/auth/authenticate";
        let Some((name, password)) = &self.user else { return Ok(false) };
        let body = json!({"name": name, "password": password});
        let answer = self.call(member, Call::post(PATH, &body)).await?;
        if answer.status != 200 {
            return Err(error_of_answer(&self.members[member].0, PATH, &answer));
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use evenkeel_runtime::accept::worker_runtime;

    use super::*;

    /// Answers so many requests of a connection, then closes it.
    fn answer(connection: TcpStream, requests: usize) {
        let mut reader = BufReader::new(connection);
        for _ in 0..requests {
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
                let field = line.to_ascii_lowercase();
                if let Some(said) = field.strip_prefix("content-length:") {
                    length = said.trim().parse().unwrap();
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let body = r#"{"header":{"cluster_id":"7"}}"#;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            reader.get_mut().write_all((head + body).as_bytes()).unwrap();
        }
    }

    /// Each process looks at a lease ten times in its length.
    #[test]
    fn requests_share_a_connection_and_one_that_was_closed_costs_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (closed, until_closed) = std::sync::mpsc::channel();
        let member = thread::spawn(move || {
            for requests in [5, 2] {
                answer(listener.accept().unwrap().0, requests);
                closed.send(()).unwrap();
            }
        });
        let request = Duration::from_secs(20);
        let manner = Manner { request, user: None, authority: None, identity: None };
        let endpoint = Endpoint::parse(&url).unwrap();
        let gateway = Gateway::new(vec![(url, endpoint)], &manner).unwrap();
        worker_runtime().unwrap().block_on(async {
            for _ in 0..5 {
                gateway.post_any("/v3/kv/range", &json!({})).await.unwrap();
            }
            until_closed.recv().unwrap();
            // The task of the connection reads its end.
            while !gateway.connections[0].take().is_none_or(|it| {
                let is_open = it.is_open();
                gateway.connections[0].replace(Some(it));
                !is_open
            }) {
                tokio::task::yield_now().await;
            }
            for _ in 0..2 {
                gateway.post_any("/v3/kv/range", &json!({})).await.unwrap();
            }
        });
        member.join().unwrap();
    }
}
