//! Questions to the tables by which drivers learn the cluster: `system.local` and `system.peers`.

use super::Table;
use super::cursor::{Cursor, Unreadable};
use super::term::is_literal;
use super::token::{self, Token};

/// The most columns, conditions and values that are read: drivers name some ten.
const PARTS_MAX: usize = 256;

/// A SELECT on a table by which drivers learn the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemQuery {
    /// Which. When [`Statement::table`](super::Statement::table) names no keyspace, it is meant
    /// only if the connection's keyspace is `system`.
    pub table: SystemTable,
    /// What is asked of it. `None`: in a form that is not read here (functions, JSON, DISTINCT,
    /// GROUP BY, ORDER BY, comparisons other than equality, …).
    pub select: Option<SystemSelect>,
}

/// A table of keyspace `system` by which drivers learn the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemTable {
    /// `local`: the node that is asked.
    Local,
    /// `peers`: the others.
    Peers,
    /// `peers_v2`: the others, with ports (since 4.0).
    PeersV2,
}

/// A simple SELECT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemSelect {
    /// What each row of the answer has.
    pub columns: Columns,
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// The most rows.
    pub limit: Option<u32>,
}

/// What each row of an answer has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Columns {
    /// `*`.
    All,
    /// `count(*)` or `count(1)`: one row with their number.
    Count {
        /// The name that is asked for, other than `count`.
        alias: Option<String>,
    },
    /// These, in this order.
    Named(Vec<Column>),
}

/// One column of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name in the table.
    pub name: String,
    /// The name that is asked for in the answer (AS).
    pub alias: Option<String>,
}

/// A column equals one of some values (`=`, or IN).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The column.
    pub column: String,
    /// At least one.
    pub values: Vec<Value>,
}

/// A value that a column is compared with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// A number, UUID, blob, duration, boolean or null, as written.
    Written(String),
    /// What is bound to a marker, by its place in the text.
    Marker(usize),
}

/// What a SELECT on `table` asks, if drivers learn the cluster by that table.
pub(super) fn query(table: &Table, at_select: Cursor<'_>) -> Option<SystemQuery> {
    if table.keyspace.as_deref().is_some_and(|keyspace| keyspace != "system") {
        return None;
    }
    let table = match table.name.as_str() {
        "local" => SystemTable::Local,
        "peers" => SystemTable::Peers,
        "peers_v2" => SystemTable::PeersV2,
        _ => return None,
    };
    Some(SystemQuery { table, select: select(at_select).ok() })
}

fn select(mut cursor: Cursor<'_>) -> Result<SystemSelect, Unreadable> {
    cursor.expect_word("SELECT")?;
    let columns = columns(&mut cursor)?;
    cursor.expect_word("FROM")?;
    cursor.table()?;
    let mut conditions = Vec::new();
    let mut markers = 0;
    if cursor.takes_word("WHERE") {
        loop {
            conditions.push(condition(&mut cursor, &mut markers)?);
            if !cursor.takes_word("AND") {
                break;
            }
            within_bound(conditions.len())?;
        }
    }
    let limit = limit(&mut cursor)?;
    cursor.takes_words(&["ALLOW", "FILTERING"]);
    cursor.expect_end()?;
    Ok(SystemSelect { columns, conditions, limit })
}

fn within_bound(parts: usize) -> Result<(), Unreadable> {
    if parts < PARTS_MAX { Ok(()) } else { Err(Unreadable) }
}

fn columns(cursor: &mut Cursor<'_>) -> Result<Columns, Unreadable> {
    if cursor.takes("*") {
        return Ok(Columns::All);
    }
    if cursor.is_word("COUNT") && cursor.following() == Token::Symbol("(") {
        cursor.advance();
        cursor.advance();
        if !cursor.takes("*") && cursor.advance() != Token::Integer("1") {
            return Err(Unreadable);
        }
        cursor.expect(")")?;
        return Ok(Columns::Count { alias: alias(cursor)? });
    }
    let mut columns = Vec::new();
    loop {
        let name = cursor.name()?;
        columns.push(Column { name, alias: alias(cursor)? });
        if !cursor.takes(",") {
            return Ok(Columns::Named(columns));
        }
        within_bound(columns.len())?;
    }
}

fn alias(cursor: &mut Cursor<'_>) -> Result<Option<String>, Unreadable> {
    if cursor.takes_word("AS") { cursor.name().map(Some) } else { Ok(None) }
}

fn condition(cursor: &mut Cursor<'_>, markers: &mut usize) -> Result<Condition, Unreadable> {
    let column = cursor.name()?;
    if cursor.takes("=") {
        return Ok(Condition { column, values: vec![value(cursor, markers)?] });
    }
    cursor.expect_word("IN")?;
    cursor.expect("(")?;
    let mut values = vec![value(cursor, markers)?];
    while !cursor.takes(")") {
        within_bound(values.len())?;
        cursor.expect(",")?;
        values.push(value(cursor, markers)?);
    }
    Ok(Condition { column, values })
}

fn value(cursor: &mut Cursor<'_>, markers: &mut usize) -> Result<Value, Unreadable> {
    let value = match cursor.advance() {
        Token::Text { raw, is_plain: true } => Value::Text(raw.to_owned()),
        Token::Text { raw, is_plain: false } => Value::Text(token::undoubled(raw, "'")),
        Token::Integer(text) | Token::Constant(text) => Value::Written(text.to_owned()),
        Token::Word(word) if is_literal(word) => Value::Written(word.to_ascii_lowercase()),
        Token::Symbol(sign @ ("?" | ":")) => {
            if sign == ":" {
                cursor.skip_name()?;
            }
            *markers += 1;
            Value::Marker(*markers - 1)
        }
        _ => return Err(Unreadable),
    };
    Ok(value)
}

fn limit(cursor: &mut Cursor<'_>) -> Result<Option<u32>, Unreadable> {
    if !cursor.takes_word("LIMIT") {
        return Ok(None);
    }
    match cursor.advance() {
        // Zero is an error, which Cassandra words better.
        Token::Integer(text) => match text.parse() {
            Ok(rows) if rows > 0 => Ok(Some(rows)),
            _ => Err(Unreadable),
        },
        _ => Err(Unreadable),
    }
}
