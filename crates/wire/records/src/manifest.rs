//! What is known of a day beside its rows.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::RecordsError;

/// The version of the format that this program writes, and the only one that it reads.
pub const VERSION: u64 = 1;
/// The manifest's name in its directory.
pub const NAME: &str = "manifest.json";
/// Who recorded a day of a proxy: see [`Manifest::by`].
pub const BY_RUN: &str = "evenkeel run";
/// Who recorded a day of an agent: its rows say what it saw of copies, and complete those of a
/// proxy.
pub const BY_AGENT: &str = "evenkeel run, an agent";
/// Bytes of a manifest, at most.
pub(crate) const BYTES_MAX: u64 = 1 << 20;
/// Replicas of a day, at most.
const REPLICAS_MAX: usize = 4_096;

/// What is known of a day beside its rows. It is written once, when the recording begins.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format.
    pub version: u64,
    /// Who recorded it, for people: `evenkeel run`.
    pub by: String,
    /// The policies that rows name by number, as scenarios spell them: `c3+hedge`. The first one is
    /// the day's, the others were explored. Empty where nobody knows it, as in logs of others.
    pub policies: Vec<String>,
    /// Share of requests that were sent to two replicas, 0 to 1.
    pub pairs: f64,
    /// Replicas, which rows name by their place here. No addresses: `replica-0`.
    pub replicas: Vec<String>,
    /// Replicas that can answer a request, which are neighbours in the order above.
    pub group_size: usize,
    /// The unit of the source's durations, ns: 1,000 is as fine as files hold.
    pub resolution_ns: u64,
    /// What is known of the proxy (hedges, retries, safeguards, dimmer), as TOML of a scenario.
    pub like: String,
    /// What was set beside it, as in `workload.utilisation=0.45`.
    #[serde(default)]
    pub set: Vec<String>,
}

impl Manifest {
    /// A day of so many replicas, all of which can answer every request.
    pub fn new(by: &str, policies: Vec<String>, replicas: usize) -> Self {
        Self {
            version: VERSION,
            by: by.to_owned(),
            policies,
            pairs: 0.0,
            replicas: (0..replicas).map(|number| format!("replica-{number}")).collect(),
            group_size: replicas,
            resolution_ns: 1_000,
            like: String::new(),
            set: Vec::new(),
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// When the text is no manifest of this version.
    pub fn parse(text: &[u8], file: &Path) -> Result<Self, RecordsError> {
        let expected = "the manifest of a recorded day, as JSON";
        let wrong = |error: serde_json::Error| {
            RecordsError::wrong(file, error.to_string(), expected, "was it written by hand?")
        };
        let value: serde_json::Value = serde_json::from_slice(text).map_err(wrong)?;
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(VERSION) {
            let came =
                version.map_or("no version".to_owned(), |number| format!("version {number}"));
            let hint = "was the day recorded by another version of evenkeel?";
            return Err(RecordsError::wrong(file, came, format!("version {VERSION}"), hint));
        }
        let manifest: Self = serde_json::from_value(value).map_err(wrong)?;
        manifest.check(file)?;
        Ok(manifest)
    }

    fn check(&self, file: &Path) -> Result<(), RecordsError> {
        let wrong = |came: String, expected: &str| {
            Err(RecordsError::wrong(file, came, expected, "was it written by hand?"))
        };
        let replicas = self.replicas.len();
        if replicas == 0 || replicas > REPLICAS_MAX {
            return wrong(format!("{replicas} replicas"), "1 to 4096");
        }
        if self.group_size == 0 || self.group_size > replicas {
            let came = format!("group_size = {}", self.group_size);
            return wrong(came, "at least 1 and at most the number of replicas");
        }
        if !(0.0..=1.0).contains(&self.pairs) {
            return wrong(format!("pairs = {}", self.pairs), "0 to 1");
        }
        if self.policies.len() > usize::from(u8::MAX) {
            return wrong(format!("{} policies", self.policies.len()), "at most 255");
        }
        if !(1_000..=1_000_000_000).contains(&self.resolution_ns) {
            let came = format!("resolution_ns = {}", self.resolution_ns);
            return wrong(came, "1000 (1 us) to 1000000000 (1 s)");
        }
        Ok(())
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// When it is no manifest that could be read again.
    pub(crate) fn text(&self, file: &Path) -> Result<String, RecordsError> {
        self.check(file)?;
        let text = serde_json::to_string_pretty(self);
        let came = |error: serde_json::Error| error.to_string();
        text.map_err(|error| RecordsError::wrong(file, came(error), "a manifest", ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        Manifest::parse(text.as_bytes(), Path::new("DAY/manifest.json")).unwrap_err().to_string()
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let manifest = Manifest { pairs: 0.001, ..Manifest::new("us", vec!["c3".to_owned()], 3) };
        let file = Path::new("manifest.json");
        let text = manifest.text(file).unwrap();
        assert_eq!(Manifest::parse(text.as_bytes(), file).unwrap(), manifest);
        assert!(text.contains("replica-2"), "{text}");
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_what_came_and_what_was_expected() {
        let other = problem(r#"{"version": 2, "news": []}"#);
        assert!(
            other.starts_with("DAY/manifest.json: got version 2, expected version 1"),
            "{other}"
        );
        assert!(problem("{}").contains("got no version"));
        assert!(problem("rows").contains("as JSON"));
        assert!(problem(r#"{"version": 1}"#).contains("missing field"));
        let good = Manifest::new("us", Vec::new(), 3);
        let wrong = [
            Manifest { pairs: 2.0, ..good.clone() },
            Manifest { group_size: 4, ..good.clone() },
            Manifest { replicas: Vec::new(), ..good.clone() },
            Manifest { resolution_ns: 1, ..good },
        ];
        for manifest in wrong {
            let text = serde_json::to_string(&manifest).unwrap();
            assert!(problem(&text).contains("expected"), "{text}");
            manifest.text(Path::new("x")).unwrap_err();
        }
    }
}
