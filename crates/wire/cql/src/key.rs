//! The partition key of a bound statement, as its token is computed from.

use super::read::Value;
use super::request::Values;
use super::response::Columns;

/// Finds the partition key among the values that are bound to a prepared statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPlan {
    /// For each of the key's columns the place of its variable, and the variable's name.
    columns: Vec<(u16, Box<str>)>,
}

impl KeyPlan {
    /// From what PREPARED says: the key's places and the statement's variables. `None` where the
    /// key is not all variables, or a place has none.
    pub fn new(places: &[u16], variables: &Columns<'_>) -> Option<Self> {
        let column = |&place: &u16| {
            let variable = variables.iter().nth(usize::from(place))?;
            Some((place, Box::from(variable.name)))
        };
        let columns = places.iter().map(column).collect::<Option<Vec<_>>>()?;
        (!columns.is_empty()).then_some(Self { columns })
    }

    /// The key; `scratch` is used where it is of several columns. `None` when a value is missing
    /// or null, or the key longer than Cassandra's (65,535 bytes): it refuses those.
    pub fn key<'a>(&self, values: &Values<'a>, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let value = |(place, name): &(u16, Box<str>)| {
            let value = match values.has_names() {
                true => values.named(name),
                false => values.at(usize::from(*place)),
            };
            value.and_then(Value::bytes)
        };
        if let [column] = &self.columns[..] {
            let key = value(column)?;
            return (1..=usize::from(u16::MAX)).contains(&key.len()).then_some(key);
        }
        scratch.clear();
        for column in &self.columns {
            push(scratch, value(column)?)?;
        }
        (scratch.len() <= usize::from(u16::MAX)).then_some(scratch)
    }
}

fn push(key: &mut Vec<u8>, value: &[u8]) -> Option<()> {
    let length = u16::try_from(value.len()).ok()?;
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(value);
    key.push(0);
    Some(())
}
