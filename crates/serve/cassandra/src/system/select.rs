//! A SELECT on these tables, answered.

use std::net::IpAddr;

use bytes::Bytes;
use evenkeel_cql::request::Values;
use evenkeel_cql::response::Columns as Metadata;
use evenkeel_cql::rows::Writer;
use evenkeel_cql::statement::{Columns, Condition, SystemSelect, SystemTable, Value};
use evenkeel_cql::types::Type;

use super::cells::{Row, View, type_of};
use crate::front::Refusal;

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultColumn {
    /// Its name in the table; `None` for the number of rows.
    source: Option<Box<str>>,
    /// Its name in the answer.
    name: Box<str>,
    kind: Type,
}

/// The columns of the answer to a statement that a node has prepared: those, whatever columns the
/// node's release has.
pub(crate) fn result_columns(
    select: &SystemSelect,
    metadata: &Metadata<'_>,
) -> Box<[ResultColumn]> {
    let source = |place: usize, name: &str| match &select.columns {
        Columns::All => Some(name.into()),
        Columns::Count { .. } => None,
        Columns::Named(columns) => columns.get(place).map(|column| column.name.as_str().into()),
    };
    let columns = metadata.iter().enumerate().map(|(place, column)| ResultColumn {
        source: source(place, column.name),
        name: column.name.into(),
        kind: Type::Bytes(column.kind.bytes().to_vec()),
    });
    columns.collect()
}

/// Whether it is a driver's question whether nodes agree on the schema: nothing but the version
/// of the node that is asked.
pub(crate) fn awaits_agreement(table: SystemTable, select: &SystemSelect) -> bool {
    let Columns::Named(columns) = &select.columns else { return false };
    let is_version = |name: &str| name == "schema_version";
    table == SystemTable::Local
        && columns.iter().any(|column| is_version(&column.name))
        && columns.iter().all(|column| is_version(&column.name) || column.name == "key")
}

/// The message of the RESULT. `prepared` are the columns of a prepared statement.
///
/// # Errors
/// A column that the table does not have, or a value that a column cannot have.
pub(crate) fn answer(
    view: &View<'_>,
    table: SystemTable,
    select: &SystemSelect,
    prepared: Option<&[ResultColumn]>,
    bound: &Values<'_>,
) -> Result<Bytes, Refusal> {
    let mut rows = view.rows(table);
    for condition in &select.conditions {
        let wanted = Wanted::of(view, table, condition, bound)?;
        rows.retain(|row| wanted.has(row));
    }
    let own;
    let columns = match prepared {
        Some(columns) => columns,
        None => {
            own = columns_of(view, table, select)?;
            &own[..]
        }
    };
    let written: Vec<_> =
        columns.iter().map(|column| (&*column.name, column.kind.clone())).collect();
    let mut writer = Writer::new("system", name_of(table), &written);
    if matches!(select.columns, Columns::Count { .. }) {
        let count = rows.len() as u64;
        for _ in columns {
            writer.value(Some(&count.to_be_bytes()));
        }
        writer.end_row();
        return Ok(writer.finish().freeze());
    }
    let limit = select.limit.map_or(usize::MAX, |limit| limit as usize);
    for row in rows.iter().take(limit) {
        for column in columns {
            let cell = column.source.as_deref().and_then(|source| row.cell(source));
            writer.value(cell.as_deref());
        }
        writer.end_row();
    }
    Ok(writer.finish().freeze())
}

fn name_of(table: SystemTable) -> &'static str {
    match table {
        SystemTable::Local => "local",
        SystemTable::Peers => "peers",
        SystemTable::PeersV2 => "peers_v2",
    }
}

fn columns_of(
    view: &View<'_>,
    table: SystemTable,
    select: &SystemSelect,
) -> Result<Vec<ResultColumn>, Refusal> {
    let column = |source: &str, alias: Option<&str>| ResultColumn {
        source: Some(source.into()),
        name: alias.unwrap_or(source).into(),
        kind: type_of(source),
    };
    Ok(match &select.columns {
        Columns::All => view.columns(table).map(|name| column(name, None)).collect(),
        Columns::Count { alias } => {
            let name = alias.as_deref().unwrap_or("count").into();
            vec![ResultColumn { source: None, name, kind: Type::Bigint }]
        }
        Columns::Named(columns) => {
            for wanted in columns {
                check(view, table, &wanted.name)?;
            }
            columns.iter().map(|wanted| column(&wanted.name, wanted.alias.as_deref())).collect()
        }
    })
}

fn check(view: &View<'_>, table: SystemTable, column: &str) -> Result<(), Refusal> {
    if view.columns(table).any(|known| known == column) {
        return Ok(());
    }
    let words = format!("Undefined column name {column} in table system.{}", name_of(table));
    Err(Refusal::invalid(words))
}

/// What a condition wants of a row.
struct Wanted<'a> {
    column: &'a str,
    values: Vec<Vec<u8>>,
}

impl<'a> Wanted<'a> {
    fn of(
        view: &View<'_>,
        table: SystemTable,
        condition: &'a Condition,
        bound: &Values<'_>,
    ) -> Result<Self, Refusal> {
        let column = condition.column.as_str();
        check(view, table, column)?;
        let value = |value: &Value| {
            bytes_of(&type_of(column), value, bound).ok_or_else(|| {
                let name = name_of(table);
                Refusal::invalid(format!(
                    "a value for column {column} of system.{name} is not of its type, or of a type \
                     that this proxy does not compare (it answers this table itself, and knows \
                     text, int, inet and uuid)"
                ))
            })
        };
        let values = condition.values.iter().map(value).collect::<Result<_, _>>()?;
        Ok(Self { column, values })
    }

    fn has(&self, row: &Row<'_>) -> bool {
        row.cell(self.column).is_some_and(|cell| self.values.contains(&cell))
    }
}

/// A value as rows have it.
fn bytes_of(kind: &Type, value: &Value, bound: &Values<'_>) -> Option<Vec<u8>> {
    match (kind, value) {
        (_, Value::Marker(place)) => bound.at(*place)?.bytes().map(<[u8]>::to_vec),
        (Type::Text, Value::Text(text)) => Some(text.as_bytes().to_vec()),
        (Type::Inet, Value::Text(text)) => {
            let address: IpAddr = text.parse().ok()?;
            Some(evenkeel_cql::value::write_inet(address))
        }
        (Type::Int, Value::Written(text)) => {
            text.parse::<i32>().ok().map(|number| number.to_be_bytes().to_vec())
        }
        (Type::Uuid, Value::Written(text)) => uuid(text),
        _ => None,
    }
}

/// The bytes of a UUID as it is written: 32 digits, and four dashes among them.
fn uuid(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if digits.len() != 32 || text.len() != 36 {
        return None;
    }
    let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    digits.chunks_exact(2).map(pair).collect()
}
