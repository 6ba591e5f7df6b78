//! What can be told from a statement's text.
//!
//! A proxy must know whether a statement writes, what it reads or writes, whether it is conditional
//! and whether it may be sent twice. It need not execute it: [`read`] knows the forms of writes and
//! of simple reads, and of everything else its first words. What it does not know it calls unknown;
//! a statement is idempotent only where the whole text is a form for which that is proven.
//!
//! *When it misleads.* It cannot see the schema: of `SET x = x + ?` only the type of the bound
//! value tells whether a counter or a set is meant, so [`Statement::idempotence`] asks for the
//! types that a PREPARED result brought. Triggers are code of the cluster's owner that may do
//! anything twice. Source: the CQL specification and the grammar of Cassandra 3.0 to 5.0.
//!
//! Time and memory are linear in the text, nesting is bounded, and no text makes it panic.

mod cursor;
mod idempotence;
mod system;
mod term;
mod token;
mod write;

pub use idempotence::{Bound, Idempotence, Shape, Why};
pub use system::{Column, Columns, Condition, SystemQuery, SystemSelect, SystemTable, Value};

use cursor::{Cursor, Unreadable};
use idempotence::Findings;
use token::Token;

/// What a statement's text tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// What it does.
    pub kind: Kind,
    /// What it reads, writes or truncates. Of a batch: the table of its first part, if all parts
    /// name the same keyspace.
    pub table: Option<Table>,
    /// Whether it is, or may be, a lightweight transaction.
    pub is_conditional: bool,
    /// Set when it reads a table by which drivers learn the cluster.
    pub system: Option<SystemQuery>,
    findings: Findings,
}

/// What a statement does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// SELECT.
    Select,
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// BEGIN … BATCH … APPLY BATCH.
    Batch,
    /// TRUNCATE.
    Truncate,
    /// USE, with its keyspace.
    Use(String),
    /// CREATE, ALTER or DROP of keyspaces, tables, views, indexes, types, functions, triggers.
    Schema,
    /// Roles, users, identities and permissions: CREATE, ALTER, DROP, GRANT, REVOKE, ADD.
    Role,
    /// LIST or DESCRIBE: what is known of roles or of the schema.
    Describe,
    /// None of these, or nothing that could be read.
    Other,
}

/// A table or view by name, folded as CQL folds: lower case unless quoted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Table {
    /// Its keyspace, if the statement names it; else it is that of the request or connection.
    pub keyspace: Option<String>,
    /// Its own name.
    pub name: String,
}

/// Reads one statement; never fails: what is not understood is [`Kind::Other`] or
/// [`Why::Unknown`].
pub fn read(text: &str) -> Statement {
    let mut cursor = Cursor::new(text);
    let Token::Word(first) = cursor.token() else { return Statement::other() };
    let first = first.to_ascii_uppercase();
    match first.as_str() {
        "SELECT" => select(cursor),
        "INSERT" => write::insert(cursor),
        "UPDATE" => write::update(cursor),
        "DELETE" => write::delete(cursor),
        "BEGIN" => write::batch(cursor),
        "TRUNCATE" => truncate(cursor),
        "USE" => use_keyspace(cursor).unwrap_or_else(|_| Statement::other()),
        "LIST" | "DESCRIBE" | "DESC" => Statement::new(Kind::Describe, None, Findings::default()),
        "GRANT" | "REVOKE" | "ADD" => Statement::refused(Kind::Role, Why::Role),
        "CREATE" | "ALTER" | "DROP" => {
            // ALTER TABLE t ADD … is the schema; ADD IDENTITY above and DROP IDENTITY are roles.
            cursor.advance();
            let of_roles = ["ROLE", "USER", "IDENTITY"].iter().any(|word| cursor.is_word(word));
            match of_roles {
                true => Statement::refused(Kind::Role, Why::Role),
                false => Statement::refused(Kind::Schema, Why::Schema),
            }
        }
        _ => Statement::other(),
    }
}

impl Statement {
    fn new(kind: Kind, table: Option<Table>, findings: Findings) -> Self {
        Self { kind, table, is_conditional: false, system: None, findings }
    }

    fn refused(kind: Kind, why: Why) -> Self {
        Self::new(kind, None, Findings::refused(why))
    }

    fn other() -> Self {
        Self::refused(Kind::Other, Why::Unknown)
    }

    /// Whether it changes data, schema or roles, or may.
    pub fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Select | Kind::Use(_) | Kind::Describe)
    }

    /// Whether it may be sent twice, given what is bound to its markers and whether the request
    /// carries a timestamp of the client (the *default timestamp* of QUERY, EXECUTE and BATCH).
    ///
    /// [`Bound::UNKNOWN`] without a timestamp asks the text alone. Of a BATCH message, ask each
    /// part and join the answers with [`Idempotence::and`]; one of type *counter* is
    /// [`Why::Counter`] whatever its parts say.
    pub fn idempotence(&self, bound: Bound<'_>, has_timestamp: bool) -> Idempotence {
        self.findings.verdict(bound, has_timestamp)
    }
}

/// A SELECT has no effect, so it may be repeated whatever it calls; only its table is looked for.
fn select(mut cursor: Cursor<'_>) -> Statement {
    let at_select = cursor;
    let table = loop {
        match cursor.advance() {
            Token::End => break None,
            Token::Word(word) if word.eq_ignore_ascii_case("FROM") => break cursor.table().ok(),
            _ => {}
        }
    };
    let system = table.as_ref().and_then(|table| system::query(table, at_select));
    Statement { system, ..Statement::new(Kind::Select, table, Findings::default()) }
}

fn truncate(mut cursor: Cursor<'_>) -> Statement {
    cursor.advance();
    if matches!(cursor.following(), Token::Word(_) | Token::Quoted(_)) {
        // TRUNCATE TABLE t, where `table` is no name.
        cursor.advance();
    }
    let table = cursor.table().ok();
    Statement::new(Kind::Truncate, table, Findings::refused(Why::Truncate))
}

fn use_keyspace(mut cursor: Cursor<'_>) -> Result<Statement, Unreadable> {
    cursor.expect_word("USE")?;
    let keyspace = cursor.name()?;
    cursor.expect_end()?;
    Ok(Statement::refused(Kind::Use(keyspace), Why::Session))
}
