//! Files that name replicas, in the format of Prometheus' `file_sd`:
//! `[{ "targets": ["10.0.0.1:8080", "shop.example:8080"], "labels": { … } }]`.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use evenkeel_settings::address::Target;
use evenkeel_settings::common::REPLICAS_MAX;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The longest file that is read: room for names and labels of all replicas there may be.
const BYTES_MAX: u64 = 4 << 20;

/// Problems of one file that are told at once.
const PROBLEMS_MAX: usize = 5;

#[derive(Deserialize)]
struct Group {
    targets: Vec<String>,
    /// Of no use to us, and no reason to refuse.
    #[serde(default, rename = "labels")]
    _labels: IgnoredAny,
}

/// Reads the bytes of such a file.
///
/// # Errors
/// When it is no readable file, or too long.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    // Of a pipe or a device nobody knows when it ends.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(io::Error::other(format!("it is longer than {BYTES_MAX} bytes"))),
        false => Ok(bytes),
    }
}

/// Whom such a file names.
///
/// # Errors
/// What is wrong with it and where, for people.
pub(super) fn targets(bytes: &[u8]) -> io::Result<BTreeSet<Target>> {
    let wrong = |words: String| io::Error::new(io::ErrorKind::InvalidData, words);
    let groups: Vec<Group> = serde_json::from_slice(bytes).map_err(|error| {
        wrong(format!("expected JSON such as [{{\"targets\": [\"127.0.0.1:9001\"]}}]; {error}"))
    })?;
    let mut problems = Vec::new();
    let mut found = BTreeSet::new();
    for (group, its) in groups.iter().enumerate() {
        for (number, text) in its.targets.iter().enumerate() {
            match Target::parse(text) {
                Ok(target) => drop(found.insert(target)),
                Err(error) => problems.push(format!("{group}.targets.{number}: {error}")),
            }
        }
    }
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    if more > 0 {
        problems.truncate(PROBLEMS_MAX);
        problems.push(format!("and {more} more like these"));
    }
    if !problems.is_empty() {
        return Err(wrong(problems.join("; ")));
    }
    if found.len() > REPLICAS_MAX {
        let count = found.len();
        return Err(wrong(format!("got {count} targets, expected at most {REPLICAS_MAX}")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let found = targets(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn groups_with_labels_are_read_and_what_is_wrong_is_told_with_its_place() {
        let text = r#"[{"targets": ["10.0.0.1:80", "Shop:80"], "labels": {"zone": "a"}},
                       {"targets": ["10.0.0.1:80"]}, {"targets": []}]"#;
        assert_eq!(read(text).unwrap(), ["10.0.0.1:80", "shop:80"]);
        assert_eq!(read("[]").unwrap(), Vec::<String>::new());
        for (text, words) in [
            ("", "line 1 column 0"),
            ("[{\"targets\": [\"10.0.0.1:80\"", "EOF while parsing"),
            ("{\"targets\": []}", "line 1 column"),
            ("[{\"target\": []}]", "missing field `targets`"),
            (
                "[{\"targets\": [\"a:1\", \"10.0.0.1\", \"b\"]}]",
                "0.targets.1: got \"10.0.0.1\", expected an address or name with a port to \
                 connect to, such as 127.0.0.1:9001 or shop.example:9001; the port is missing; \
                 0.targets.2: got \"b\"",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        let many: Vec<String> = (0..1_001).map(|port| format!("\"a:{}\"", port + 1)).collect();
        let error = read(&format!("[{{\"targets\": [{}]}}]", many.join(","))).unwrap_err();
        assert!(error.contains("got 1001 targets, expected at most 1000"), "{error}");
    }

    #[test]
    fn what_is_no_file_is_no_list() {
        assert!(bytes(Path::new("/dev/zero")).unwrap_err().to_string().contains("regular file"));
        assert_eq!(bytes(Path::new("/nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                "(\\[|\\]|\\{|\\}|\"targets\"|:|,|\"[a-z0-9.:]{0,9}\"| ){0,40}"
                    .prop_map(String::into_bytes),
            ],
        ) {
            let _ = targets(&bytes);
        }
    }
}
