//! A line of `key=value` fields, with quotes around values that have spaces; or one JSON object.

use std::collections::BTreeMap;

use serde_json::Value;

/// The fields of a line.
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    pub(super) fn new(line: &str) -> Result<Self, ()> {
        if line.starts_with('{') {
            let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return Err(()) };
            let text = |value: Value| match value {
                Value::String(text) => Some(text),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            };
            let fields = fields.into_iter();
            return Ok(Self(fields.filter_map(|(key, value)| Some((key, text(value)?))).collect()));
        }
        let mut fields = BTreeMap::new();
        let mut rest = line.trim_start();
        while let Some((key, after)) = rest.split_once('=') {
            // What comes before the key has none itself: the words of a prefix.
            let key = key.rsplit(' ').next().unwrap_or(key);
            let (value, left) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').ok_or(())?,
                None => after.split_once(' ').unwrap_or((after, "")),
            };
            fields.insert(key.to_owned(), value.to_owned());
            rest = left.trim_start();
        }
        if fields.is_empty() { Err(()) } else { Ok(Self(fields)) }
    }

    /// A field that is there and is not `-`.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| value.trim()).filter(|value| !matches!(*value, "" | "-"))
    }
}
