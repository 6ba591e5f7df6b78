//! QUERY, PREPARE, EXECUTE and BATCH: what can be told of them, and who answers.

use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use evenkeel_core::request::Replay;
use evenkeel_core::request::ring::Consistency;
use evenkeel_core::request::ring::{Token, murmur};
use evenkeel_cql::key::KeyPlan;
use evenkeel_cql::request::{
    Batch, BatchKind, Execute, Prepare, Query, QueryParameters, Statement as Part, Values,
};
use evenkeel_cql::response::{self, Columns};
use evenkeel_cql::statement::{
    self, Bound, Idempotence, Kind, Shape, Statement, SystemQuery, SystemSelect, SystemTable, Why,
};
use evenkeel_cql::{Envelope, Flags, Malformed, Opcode, Value, payload};

use super::{Agreement, Session, Step, Then, World};
use crate::front::{Asked, Refusal, Request};
use crate::prepared::{Learnt, PreparedStatement};
use crate::system::{self, ResultColumn, View};
use evenkeel_cql::client::{Ask, Known, Prepared, ResultColumns};

/// The keyspaces of system tables that are stored; others of theirs are virtual.
const STORED: [&str; 6] = [
    "system",
    "system_schema",
    "system_auth",
    "system_distributed",
    "system_traces",
    "system_cluster_metadata",
];

/// What a PREPARE asked.
#[derive(Debug)]
pub(crate) struct Text {
    text: Arc<str>,
    /// In force when it was prepared.
    keyspace: Option<Arc<str>>,
    statement: Statement,
}

/// A question about the cluster.
#[derive(Debug)]
pub(super) struct SystemAsked {
    table: SystemTable,
    select: SystemSelect,
    prepared: Option<Arc<PreparedStatement>>,
    /// The QUERY or EXECUTE, whose values may be bound.
    envelope: Envelope,
}

impl Session {
    pub(super) fn request(
        &mut self,
        envelope: Envelope,
        message: &[u8],
        world: &World<'_>,
    ) -> Step {
        let stream = envelope.stream;
        let step = match envelope.opcode {
            Opcode::Query => self.query(envelope, message, world),
            Opcode::Prepare => self.prepare(&envelope, message),
            Opcode::Execute => self.execute(envelope, message, world),
            _ => self.batch(&envelope, message, world),
        };
        step.unwrap_or_else(|malformed| self.malformed(stream, malformed))
    }

    fn query(
        &self,
        envelope: Envelope,
        message: &[u8],
        world: &World<'_>,
    ) -> Result<Step, Malformed> {
        let query = Query::read(message, envelope.version)?;
        let statement = statement::read(query.text);
        let keyspace = self.keyspace_of(&statement, query.parameters.keyspace);
        if let Kind::Use(keyspace) = &statement.kind {
            return Ok(self.use_keyspace(&envelope, keyspace));
        }
        let what = asked(&statement, None, &query.parameters, keyspace);
        if let Some(question) = self.system_query(&statement, &what) {
            return Ok(self.system(envelope, question, None, what, world));
        }
        Ok(self.ask(&envelope, Prepared::None, what, Then::Pass))
    }

    fn prepare(&self, envelope: &Envelope, message: &[u8]) -> Result<Step, Malformed> {
        let prepare = Prepare::read(message, envelope.version)?;
        let statement = statement::read(prepare.text);
        let keyspace = self.keyspace_of(&statement, prepare.keyspace);
        let what = Asked {
            keyspace,
            token: None,
            consistency: Consistency::One,
            serial: None,
            is_conditional: false,
            is_write: false,
            idempotence: Idempotence::Yes,
            replay: Replay::Always,
        };
        let in_force = match prepare.keyspace {
            Some(keyspace) => Some(keyspace.into()),
            None => self.dialect.keyspace.clone(),
        };
        let text = Text { text: prepare.text.into(), keyspace: in_force, statement };
        Ok(self.ask(envelope, Prepared::None, what, Then::Learn(Box::new(text))))
    }

    fn execute(
        &self,
        envelope: Envelope,
        message: &[u8],
        world: &World<'_>,
    ) -> Result<Step, Malformed> {
        let execute = Execute::read(message, envelope.version)?;
        let Some(known) = world.statements.find(execute.id) else {
            let refusal = Refusal::unprepared(execute.id);
            return Ok(Step::Reply(self.refused(envelope.stream, &refusal)));
        };
        if let Kind::Use(keyspace) = &known.statement.kind {
            return Ok(self.use_keyspace(&envelope, keyspace));
        }
        let parameters = &execute.parameters;
        let keyspace = known.keyspace.clone();
        let mut what = asked(&known.statement, Some(&known.shapes), parameters, keyspace);
        what.token = token(known.key.as_ref(), &parameters.values, world);
        if known.result.is_some()
            && let Some(question) = &known.statement.system
        {
            let question = question.clone();
            return Ok(self.system(envelope, question, Some(known), what, world));
        }
        let prepared = Prepared::One(Arc::clone(&known.known));
        Ok(self.ask(&envelope, prepared, what, Then::Pass))
    }

    fn batch(
        &self,
        envelope: &Envelope,
        message: &[u8],
        world: &World<'_>,
    ) -> Result<Step, Malformed> {
        let batch = Batch::read(message, envelope.version)?;
        let parameters = &batch.parameters;
        let mut what: Option<Asked> = None;
        let mut prepared: Vec<Arc<Known>> = Vec::new();
        for part in batch.iter() {
            let parameters = QueryParameters { values: part.values, ..*parameters };
            let next = match part.statement {
                Part::Text(text) => {
                    let statement = statement::read(text);
                    let keyspace = self.keyspace_of(&statement, parameters.keyspace);
                    asked(&statement, None, &parameters, keyspace)
                }
                Part::Prepared(id) => {
                    let Some(known) = world.statements.find(id) else {
                        let refusal = Refusal::unprepared(id);
                        return Ok(Step::Reply(self.refused(envelope.stream, &refusal)));
                    };
                    let (shapes, keyspace) = (Some(&known.shapes[..]), known.keyspace.clone());
                    let mut next = asked(&known.statement, shapes, &parameters, keyspace);
                    next.token = token(known.key.as_ref(), &part.values, world);
                    if !prepared.iter().any(|other| other.id == known.known.id) {
                        prepared.push(Arc::clone(&known.known));
                    }
                    next
                }
            };
            what = Some(match what {
                None => next,
                Some(what) => together(what, next),
            });
        }
        let empty = || asked(&statement::read(""), None, parameters, None);
        let mut what = what.unwrap_or_else(empty);
        what.is_write = true;
        if batch.kind == BatchKind::Counter {
            what.idempotence = Idempotence::No(Why::Counter);
        }
        let prepared = match &prepared[..] {
            [] => Prepared::None,
            [one] => Prepared::One(Arc::clone(one)),
            several => Prepared::Several(Rc::from(several)),
        };
        Ok(self.ask(envelope, prepared, settled(what), Then::Pass))
    }

    /// The keyspace of a statement's table.
    fn keyspace_of(&self, statement: &Statement, of_request: Option<&str>) -> Option<Arc<str>> {
        let table = statement.table.as_ref()?;
        match table.keyspace.as_deref().or(of_request) {
            Some(keyspace) => Some(keyspace.into()),
            None => self.dialect.keyspace.clone(),
        }
    }

    /// A statement's question about the cluster, if it is one.
    fn system_query(&self, statement: &Statement, what: &Asked) -> Option<SystemQuery> {
        let is_meant = what.keyspace.as_deref() == Some("system");
        statement.system.clone().filter(|_| is_meant)
    }

    fn ask(&self, envelope: &Envelope, prepared: Prepared, what: Asked, then: Then) -> Step {
        let flags = Flags(envelope.flags.0 & (Flags::TRACING | Flags::CUSTOM_PAYLOAD).0);
        let (opcode, body) = (envelope.opcode, envelope.body.clone());
        let ask = Ask { opcode, flags, body, prepared };
        let request = Request { dialect: self.dialect.clone(), ask, what };
        Step::Ask(envelope.stream, Box::new(request), then)
    }

    /// `USE`: whether the keyspace exists is for a node to say. The statement itself would change
    /// the keyspace of a connection that others share.
    fn use_keyspace(&self, envelope: &Envelope, keyspace: &str) -> Step {
        let is_virtual = keyspace.starts_with("system_") && !STORED.contains(&keyspace);
        let schema = if is_virtual { "system_virtual_schema" } else { "system_schema" };
        let name = keyspace.replace('\'', "''");
        let text =
            format!("SELECT keyspace_name FROM {schema}.keyspaces WHERE keyspace_name = '{name}'");
        let parameters = QueryParameters::new(Consistency::One);
        let what = asked(&statement::read(&text), None, &parameters, Some(schema.into()));
        let mut body = BytesMut::new();
        Query { text: &text, parameters }.write(envelope.version, &mut body);
        let flags = Flags(envelope.flags.0 & Flags::TRACING.0);
        let ask =
            Ask { opcode: Opcode::Query, flags, body: body.freeze(), prepared: Prepared::None };
        // The keyspace that was in use may be gone.
        let dialect = self.dialect.in_keyspace(None);
        let request = Request { dialect, ask, what };
        Step::Ask(envelope.stream, Box::new(request), Then::Enter(keyspace.into()))
    }

    /// A question about the cluster.
    fn system(
        &self,
        envelope: Envelope,
        question: SystemQuery,
        prepared: Option<Arc<PreparedStatement>>,
        what: Asked,
        world: &World<'_>,
    ) -> Step {
        let stream = envelope.stream;
        let as_prepared = match &prepared {
            Some(known) => Prepared::One(Arc::clone(&known.known)),
            None => Prepared::None,
        };
        let SystemQuery { table, select } = question;
        let Some(select) = select else {
            if table == SystemTable::Local {
                return self.ask(&envelope, as_prepared, what, Then::Pass);
            }
            let words = "this proxy answers system.peers and system.peers_v2 itself, and reads \
                         only simple statements on them: columns or count(*), WHERE with = or IN, \
                         LIMIT";
            return Step::Reply(self.refused(stream, &Refusal::invalid(words)));
        };
        let cluster = (world.cluster)();
        if !cluster.is_known() {
            let words = "the cluster is not known yet: no node has answered (are the contact \
                         points right, and is one of them up?)";
            return Step::Reply(self.refused(stream, &Refusal::overloaded(words)));
        }
        let view = self.view(&cluster);
        if view.columns(table).next().is_none() {
            // A release without such a table: a node has the words that drivers wait for.
            return self.ask(&envelope, as_prepared, what, Then::Pass);
        }
        let asked = SystemAsked { table, select, prepared, envelope };
        if system::awaits_agreement(table, &asked.select) {
            return Step::Agree(stream, Agreement { asked });
        }
        match asked.answer(&view) {
            Err(refusal) => Step::Reply(self.refused(stream, &refusal)),
            Ok(message) if asked.envelope.flags.has(Flags::TRACING) => {
                self.ask(&asked.envelope, as_prepared, what, Then::Trace(message))
            }
            Ok(message) => Step::Reply(self.reply(stream, Opcode::Result, message)),
        }
    }
}

impl SystemAsked {
    /// The message of the RESULT.
    pub(super) fn answer(&self, view: &View<'_>) -> Result<Bytes, Refusal> {
        let protocol = |malformed: Malformed| Refusal::protocol(malformed.to_string());
        let Envelope { version, opcode, .. } = self.envelope;
        let message = payload::split(&self.envelope).map_err(protocol)?.message;
        let values = match opcode {
            Opcode::Query => Query::read(message, version).map(|query| query.parameters.values),
            _ => Execute::read(message, version).map(|execute| execute.parameters.values),
        };
        let prepared = self.prepared.as_ref().and_then(|known| known.result.as_deref());
        system::answer(view, self.table, &self.select, prepared, &values.map_err(protocol)?)
    }
}

impl Text {
    /// Takes down what a node's answer tells of the statement.
    pub(super) fn learn(self, reply: &Envelope, world: &World<'_>) -> Result<(), Malformed> {
        let message = payload::split(reply)?.message;
        let response::Result::Prepared(prepared) = response::Result::read(message, reply.version)?
        else {
            return Ok(());
        };
        let Self { text, keyspace: in_force, statement } = self;
        let named = statement.table.as_ref().and_then(|table| table.keyspace.as_deref());
        let keyspace = match prepared.variables.table().map(|(keyspace, _)| keyspace).or(named) {
            Some(keyspace) => Some(keyspace.into()),
            None => in_force.clone(),
        };
        let is_system = keyspace.as_deref() == Some("system");
        let select = statement.system.as_ref().filter(|_| is_system);
        let result = select.map(|query| columns(query, prepared.result.columns.as_ref()));
        world.statements.learn(Learnt {
            known: Known {
                id: Bytes::copy_from_slice(prepared.id),
                text,
                keyspace: in_force,
                result: ResultColumns::new(prepared.result.columns.as_ref()),
            },
            key: KeyPlan::new(&prepared.partition_key, &prepared.variables),
            shapes: prepared.variables.iter().map(|column| Shape::of(column.kind.id())).collect(),
            statement,
            keyspace,
            result,
        });
        Ok(())
    }
}

fn columns(query: &SystemQuery, metadata: Option<&Columns<'_>>) -> Box<[ResultColumn]> {
    match (&query.select, metadata) {
        (Some(select), Some(metadata)) => system::result_columns(select, metadata),
        _ => Box::default(),
    }
}

/// What a statement and its parameters tell.
fn asked(
    statement: &Statement,
    shapes: Option<&[Shape]>,
    parameters: &QueryParameters<'_>,
    keyspace: Option<Arc<str>>,
) -> Asked {
    let is_write = statement.writes();
    let is_unset = |(_, value): (_, Value<'_>)| value == Value::Unset;
    let has_unset = is_write && parameters.values.iter().any(is_unset);
    let bound = Bound { shapes, has_unset };
    settled(Asked {
        keyspace,
        token: None,
        consistency: parameters.consistency,
        serial: parameters.serial_consistency,
        is_conditional: statement.is_conditional,
        is_write,
        idempotence: statement.idempotence(bound, parameters.timestamp.is_some()),
        replay: Replay::IfUnsent,
    })
}

/// What follows from its idempotence. A serial read takes a round of Paxos: two at once can
/// collide, and then neither may know what it read ("CAS operation result is unknown").
fn settled(what: Asked) -> Asked {
    let replay = match what.idempotence.is_proven() {
        false => Replay::IfUnsent,
        true if what.consistency.is_serial() => Replay::AfterFailure,
        true => Replay::Always,
    };
    Asked { replay, ..what }
}

/// Two parts of a batch: it goes where the first goes of which that is known.
fn together(what: Asked, next: Asked) -> Asked {
    let (keyspace, token) = match (what.token, next.token) {
        (None, Some(token)) => (next.keyspace, Some(token)),
        (token, _) => (what.keyspace.or(next.keyspace), token),
    };
    Asked {
        keyspace,
        token,
        is_conditional: what.is_conditional || next.is_conditional,
        idempotence: what.idempotence.and(next.idempotence),
        ..what
    }
}

/// Where the partition key is that is among these values.
fn token(key: Option<&KeyPlan>, values: &Values<'_>, world: &World<'_>) -> Option<Token> {
    let mut scratch = Vec::new();
    let key = key.filter(|_| world.is_murmur)?.key(values, &mut scratch)?;
    Some(murmur::token(key))
}
