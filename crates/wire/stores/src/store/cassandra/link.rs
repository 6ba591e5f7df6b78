//! Asking one node: prepared statements, several in flight, errors in words.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::request::{Bound, Execute, Prepare, Query, QueryParameters};
use evenkeel_cql::response::Result as Outcome;
use evenkeel_cql::rows::Row;
use evenkeel_cql::{Flags, Opcode, Version};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::CassandraAccess;
use evenkeel_cql::client::schema;
use evenkeel_cql::client::{Ask, Dialect, Known, Login, Node, NodeLimits, Prepared, ResultColumns};
use evenkeel_runtime::pem;
use evenkeel_runtime::tls::ClientTls;

/// How long a node that is there may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests that are in flight at once.
const AT_ONCE: usize = 128;
/// Statements that are kept prepared: there are some for each table of entries.
const PREPARED_MAX: usize = 64;
/// What connections speak: every Cassandra that is still cared for knows it.
const VERSION: Version = Version::V4;

/// A statement and what is bound to it.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) text: String,
    pub(super) values: Bound,
}

impl Step {
    pub(super) fn new(text: String) -> Self {
        Self { text, values: Bound::new() }
    }
}

/// One node.
#[derive(Debug)]
pub(super) struct Link {
    node: Rc<Node>,
    dialect: Rc<Dialect>,
    prepared: BTreeMap<String, Arc<Known>>,
}

impl Link {
    /// Does not connect yet.
    ///
    /// # Errors
    /// When password or certificates cannot be read.
    pub(super) fn new(address: SocketAddr, access: &CassandraAccess) -> io::Result<Self> {
        let login = access.user.as_ref().map(|user| {
            let text = pem::read(&user.password_file)?;
            let text = String::from_utf8_lossy(&text);
            io::Result::Ok(Login::plain(&user.name, text.lines().next().unwrap_or_default()))
        });
        let limits = NodeLimits {
            tls: access.tls.as_ref().map(|files| ClientTls::load(files, &[])).transpose()?,
            ..NodeLimits::default()
        };
        let login = login.transpose()?.map(Arc::new);
        let dialect = Rc::new(Dialect { version: VERSION, keyspace: None, login });
        Ok(Self { node: Node::new(address, Rc::new(limits)), dialect, prepared: BTreeMap::new() })
    }

    /// Asks a statement that is asked seldom; the message of its result.
    pub(super) async fn query(&mut self, text: &str) -> io::Result<Bytes> {
        let parameters = QueryParameters::new(Consistency::One);
        let mut body = BytesMut::new();
        Query { text, parameters }.write(VERSION, &mut body);
        let answer = self.ask(Opcode::Query, body, Prepared::None).await;
        answer.map_err(|error| within(text, &error))
    }

    /// Waits until all nodes have one version of the schema.
    ///
    /// # Errors
    /// When they have several after ten seconds: what would be written now could be lost.
    pub(super) async fn agree(&mut self) -> io::Result<()> {
        let agreed = schema::agree(&self.node, &self.dialect).await;
        agreed.map_err(|error| {
            io::Error::other(format!("Cassandra {}: {error}", self.node.address()))
        })
    }

    /// Asks all of these, whatever becomes first of which; the messages of their results, in their
    /// order.
    pub(super) async fn all(
        &mut self,
        steps: Vec<Step>,
        level: Consistency,
    ) -> io::Result<Vec<Bytes>> {
        let mut answers = vec![Bytes::new(); steps.len()];
        let mut asked = JoinSet::new();
        let mut steps = steps.into_iter().enumerate();
        loop {
            while asked.len() < AT_ONCE {
                let Some((index, step)) = steps.next() else { break };
                let known = self.known(&step.text).await?;
                let body = execute(&known, &step.values, level);
                let asking = self.ask(Opcode::Execute, body, Prepared::One(known));
                asked.spawn_local(async move {
                    let answer = asking.await;
                    (index, answer.map_err(|error| within(&step.text, &error)))
                });
            }
            let Some(done) = asked.join_next().await else { return Ok(answers) };
            let (index, answer) = done.map_err(io::Error::other)?;
            answers[index] = answer?;
        }
    }

    pub(super) async fn one(&mut self, step: Step, level: Consistency) -> io::Result<Bytes> {
        Ok(self.all(vec![step], level).await?.remove(0))
    }

    /// Sends one request; the message of its result.
    fn ask(
        &self,
        opcode: Opcode,
        body: BytesMut,
        prepared: Prepared,
    ) -> impl Future<Output = io::Result<Bytes>> + 'static {
        let (node, dialect) = (Rc::clone(&self.node), Rc::clone(&self.dialect));
        let ask = Ask { opcode, flags: Flags::NONE, body: body.freeze(), prepared };
        async move {
            let address = node.address();
            let named =
                |kind, words: String| io::Error::new(kind, format!("Cassandra {address}: {words}"));
            let late = |_| {
                let words = format!("no answer within {} s", PATIENCE.as_secs());
                named(io::ErrorKind::TimedOut, words)
            };
            let answer = timeout(PATIENCE, node.ask(&dialect, ask)).await.map_err(late)?;
            let answer =
                answer.map_err(|error| named(io::ErrorKind::NotConnected, error.to_string()))?;
            answer.result(VERSION).map_err(|error| named(io::ErrorKind::Other, error.to_string()))
        }
    }

    async fn known(&mut self, text: &str) -> io::Result<Arc<Known>> {
        if let Some(known) = self.prepared.get(text) {
            return Ok(Arc::clone(known));
        }
        let mut body = BytesMut::new();
        Prepare { text, keyspace: None }.write(VERSION, &mut body);
        let answer = self.ask(Opcode::Prepare, body, Prepared::None).await;
        let answer = answer.map_err(|error| within(text, &error))?;
        let read = Outcome::read(&answer, VERSION).map_err(io::Error::other)?;
        let Outcome::Prepared(prepared) = read else {
            return Err(within(text, &io::Error::other("a RESULT of another kind to PREPARE")));
        };
        let id = Bytes::copy_from_slice(prepared.id);
        let known = Arc::new(Known {
            id,
            text: text.into(),
            keyspace: None,
            result: ResultColumns::default(),
        });
        if self.prepared.len() >= PREPARED_MAX {
            self.prepared.clear();
        }
        self.prepared.insert(text.to_owned(), Arc::clone(&known));
        Ok(known)
    }
}

/// A conditional statement is as serial as it reads.
pub(super) fn execute(known: &Known, values: &Bound, level: Consistency) -> BytesMut {
    let is_local = matches!(level, Consistency::LocalQuorum | Consistency::LocalSerial);
    let serial = if is_local { Consistency::LocalSerial } else { Consistency::Serial };
    let mut parameters = QueryParameters::new(level);
    parameters.values = values.values();
    parameters.serial_consistency = Some(serial);
    let mut body = BytesMut::new();
    Execute { id: &known.id, result_metadata_id: &[], parameters }.write(VERSION, &mut body);
    body
}

fn within(text: &str, error: &io::Error) -> io::Error {
    // The statement up to where the values would be is enough to find it.
    let statement: String = text.chars().take(80).collect();
    io::Error::new(error.kind(), format!("{error} (to {statement:?})"))
}

/// What is read from each row.
///
/// # Errors
/// When there are no rows, or one is not as it should be.
pub(super) fn rows<T>(
    message: &[u8],
    read: impl FnMut(Row<'_>) -> Option<T>,
) -> io::Result<Vec<T>> {
    let wrong = |words: String| io::Error::new(io::ErrorKind::InvalidData, words);
    match Outcome::read(message, VERSION) {
        Ok(Outcome::Rows(rows)) => {
            let values: Option<Vec<T>> = rows.iter().map(read).collect();
            values.ok_or_else(|| {
                wrong("a row of Cassandra is not as it was written (who else writes?)".to_owned())
            })
        }
        Ok(_) => Err(wrong("a RESULT of Cassandra without rows came".to_owned())),
        Err(malformed) => Err(wrong(format!("a RESULT of Cassandra: {malformed}"))),
    }
}
