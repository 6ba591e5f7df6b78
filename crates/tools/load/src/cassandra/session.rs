//! Conversations with the cluster: connections, prepared statements, what answers mean.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use evenkeel_cql::request::{Execute, Prepare, Query, QueryParameters, Values as BoundValues};
use evenkeel_cql::response::Result as Answered;
use evenkeel_cql::{ErrorCode, Flags, Opcode, Reader, Version, write};

use super::super::LoadError;
use super::CassandraLoad;
use super::workload::{FIELDS, Operation, Values, key};
use evenkeel_cql::client::schema;
use evenkeel_cql::client::{
    Answer, AnswerError, Ask, Dialect, Known, Node, NodeLimits, Prepared, ResultColumns, SendError,
};

/// Requests in flight on a connection: all that the protocol has numbers for.
const STREAMS_MAX: usize = 32_767;

/// Connections, which take turns.
pub(super) struct Session {
    nodes: Vec<Rc<Node>>,
    turn: Cell<usize>,
    dialect: Dialect,
    load: CassandraLoad,
    /// The last timestamp, microseconds since 1970.
    stamp: Cell<i64>,
}

/// A statement that was prepared.
#[derive(Clone)]
pub(super) struct Statement {
    known: Arc<Known>,
    result_metadata_id: Bytes,
}

/// The statements of the workloads.
pub(super) struct Statements {
    pub(super) read: Statement,
    pub(super) updates: Vec<Statement>,
}

/// What is bound to a statement: a count, and each value with its length.
pub(super) struct Bound {
    bytes: BytesMut,
    count: u16,
}

/// What a node gave: rows, if any.
pub(super) struct Given {
    pub(super) rows: Option<usize>,
}

impl Bound {
    pub(super) fn new() -> Self {
        Self { bytes: BytesMut::zeroed(2), count: 0 }
    }

    pub(super) fn push(&mut self, value: &[u8]) {
        self.count += 1;
        self.bytes[..2].copy_from_slice(&self.count.to_be_bytes());
        write::bytes(&mut self.bytes, Some(value));
    }

    fn values(&self) -> BoundValues<'_> {
        BoundValues::read(&mut Reader::new(&self.bytes), false).expect("they were written here")
    }
}

impl Session {
    /// Opens all connections, so that no request waits for one. Some may fail as long as one
    /// does not.
    pub(super) async fn open(load: &CassandraLoad) -> Result<Self, LoadError> {
        let mut addresses = Vec::new();
        for authority in &load.target.addresses {
            addresses.extend(super::super::resolve(authority).await?.first());
        }
        let limits = Rc::new(NodeLimits {
            // One that is replaced and the one that replaces it.
            connections_max: 2,
            streams_max: STREAMS_MAX,
            waiting_max: load.in_flight_max,
            orphans_max: STREAMS_MAX / 2,
            idle: Duration::from_secs(3_600),
            connect: load.plan.timeout.max(Duration::from_secs(5)),
            tls: load.tls.clone(),
            ..NodeLimits::default()
        });
        let node = |index: usize| -> Rc<Node> {
            let address: SocketAddr = addresses[index % addresses.len()];
            Node::new(address, Rc::clone(&limits))
        };
        let nodes = (0..load.connections.max(addresses.len())).map(node).collect::<Vec<_>>();
        let login = load.login.clone().map(Arc::new);
        let dialect = Dialect { version: load.version, keyspace: None, login };
        let (turn, stamp) = (Cell::new(0), Cell::new(0));
        let session = Self { nodes, turn, dialect, load: load.clone(), stamp };
        session.connect().await?;
        Ok(session)
    }

    async fn connect(&self) -> Result<(), LoadError> {
        let ask = |node: &Rc<Node>| {
            let (node, dialect) = (Rc::clone(node), self.dialect.clone());
            let ask = Ask {
                opcode: Opcode::Options,
                flags: Flags::NONE,
                body: Bytes::new(),
                prepared: Prepared::None,
            };
            tokio::task::spawn_local(async move { node.ask(&dialect, ask).await.map(drop) })
        };
        let asked = self.nodes.iter().map(ask).collect::<Vec<_>>();
        let mut outcome = Ok(());
        let mut connected = 0;
        for connection in asked {
            match connection.await.unwrap_or_else(|panic| panic!("{panic}")) {
                Ok(()) => connected += 1,
                Err(error) => outcome = Err(error),
            }
        }
        // The first request asks the first node again, which then says what is wrong with it.
        match outcome {
            Err(error) if connected == 0 => Err(LoadError::cassandra("connect", error)),
            _ => Ok(()),
        }
    }

    fn next_node(&self) -> &Rc<Node> {
        let turn = self.turn.get();
        self.turn.set((turn + 1) % self.nodes.len());
        &self.nodes[turn]
    }

    /// Asks whoever's turn it is.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Answer, SendError> {
        let node = Rc::clone(self.next_node());
        node.ask(&self.dialect, ask).await
    }

    pub(super) fn connections(&self) -> usize {
        self.nodes.iter().map(|node| node.connections()).sum()
    }

    pub(super) fn connections_opened(&self) -> u64 {
        self.nodes.iter().map(|node| node.counts().opened).sum()
    }

    /// Changes the schema and waits until all nodes have the change.
    pub(super) async fn change(&self, text: &str) -> Result<(), LoadError> {
        let node = self.next_node();
        self.query(node, text).await?;
        schema::agree(node, &self.dialect).await.map_err(|why| LoadError::cassandra(text, why))
    }

    async fn query(&self, node: &Rc<Node>, text: &str) -> Result<Answer, LoadError> {
        let mut body = BytesMut::new();
        let parameters = QueryParameters::new(self.load.consistency);
        Query { text, parameters }.write(self.load.version, &mut body);
        let answer = node.ask(&self.dialect, plain(Opcode::Query, body)).await;
        let answer = answer.map_err(|error| LoadError::cassandra(text, error))?;
        read(&answer, self.load.version)
            .map_err(|error| LoadError::cassandra(text, words(&error)))?;
        Ok(answer)
    }

    /// Prepares a statement at the first node that does it; others are told it when they are asked.
    pub(super) async fn prepare(&self, text: &str) -> Result<Statement, LoadError> {
        let version = self.load.version;
        let mut problem = String::new();
        for node in &self.nodes {
            let mut body = BytesMut::new();
            Prepare { text, keyspace: None }.write(version, &mut body);
            let answer = node.ask(&self.dialect, plain(Opcode::Prepare, body)).await;
            match answer.map_err(|error| error.to_string()) {
                Ok(answer) => match prepared(&answer, version, text) {
                    Ok(statement) => return Ok(statement),
                    Err(error) => problem = format!("node {}: {}", node.address(), words(&error)),
                },
                Err(why) => problem = why,
            }
        }
        let hint = " (is there no table yet? --fill creates and fills it)";
        Err(LoadError::cassandra(format!("prepare {text}"), format!("{problem}{hint}")))
    }

    /// The statements of the workloads.
    pub(super) async fn statements(&self) -> Result<Statements, LoadError> {
        let table = self.load.target.table();
        let read = self.prepare(&format!("SELECT * FROM {table} WHERE y_id = ?")).await?;
        let mut updates = Vec::new();
        for field in 0..FIELDS {
            let text = format!("UPDATE {table} SET field{field} = ? WHERE y_id = ?");
            updates.push(self.prepare(&text).await?);
        }
        Ok(Statements { read, updates })
    }

    /// The request of an operation.
    pub(super) fn request(
        &self,
        statements: &Statements,
        operation: Operation,
        values: &mut Values,
    ) -> Ask {
        let key = key(operation.record());
        let mut bound = Bound::new();
        match operation {
            Operation::Read { .. } => {
                bound.push(key.as_bytes());
                self.execute(&statements.read, &bound, false)
            }
            Operation::Update { field, .. } => {
                bound.push(values.next());
                bound.push(key.as_bytes());
                self.execute(&statements.updates[field], &bound, true)
            }
        }
    }

    pub(super) fn execute(&self, statement: &Statement, bound: &Bound, is_write: bool) -> Ask {
        let Statement { known, result_metadata_id } = statement;
        let parameters = QueryParameters {
            values: bound.values(),
            skip_metadata: true,
            timestamp: (is_write && self.load.has_timestamps).then(|| self.next_stamp()),
            ..QueryParameters::new(self.load.consistency)
        };
        let execute = Execute { id: &known.id, result_metadata_id, parameters };
        let mut body = BytesMut::new();
        execute.write(self.load.version, &mut body);
        Ask { prepared: Prepared::One(Arc::clone(known)), ..plain(Opcode::Execute, body) }
    }

    /// The time of day, and later than ever before.
    fn next_stamp(&self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(since.as_micros()).unwrap_or(i64::MAX - 1);
        self.stamp.set(now.max(self.stamp.get() + 1));
        self.stamp.get()
    }
}

fn plain(opcode: Opcode, body: BytesMut) -> Ask {
    Ask { opcode, flags: Flags::NONE, body: body.freeze(), prepared: Prepared::None }
}

fn prepared(answer: &Answer, version: Version, text: &str) -> Result<Statement, AnswerError> {
    let message = answer.result(version)?;
    let Answered::Prepared(prepared) = Answered::read(&message, version)? else {
        return Err(AnswerError::OtherResult { expected: "that of PREPARE" });
    };
    let id = Bytes::copy_from_slice(prepared.id);
    let result_metadata_id = Bytes::copy_from_slice(prepared.result_metadata_id);
    let result = ResultColumns::default();
    let known = Arc::new(Known { id, text: text.into(), keyspace: None, result });
    Ok(Statement { known, result_metadata_id })
}

/// What an answer gives; else why it gives nothing.
pub(super) fn read(answer: &Answer, version: Version) -> Result<Given, AnswerError> {
    match Answered::read(&answer.result(version)?, version)? {
        Answered::Rows(rows) => Ok(Given { rows: Some(rows.count) }),
        _ => Ok(Given { rows: None }),
    }
}

/// An error in words that count alike what is alike: those about replicas come by the thousand,
/// each with its own numbers, and are told by their kind.
pub(super) fn words(error: &AnswerError) -> String {
    match error {
        AnswerError::Refused { code, .. } if (0x1000..0x2000).contains(&code.number()) => {
            let hint = match code {
                ErrorCode::Unavailable => ": are replicas down, or has the keyspace none here?",
                _ => "",
            };
            format!("the node answered: {code} ({:#06x}){hint}", code.number())
        }
        error => error.to_string(),
    }
}
