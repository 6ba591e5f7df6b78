//! What is inside the program: a software bill of materials, CycloneDX 1.5 as JSON.
//!
//! Crates that are linked into the program, from `cargo metadata`; those of builds and tests are
//! not. Scanners look the names up in their lists of advisories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::Package;
use crate::workspace;

pub(super) fn write(package: &Package) -> Result<PathBuf> {
    let name = format!("evenkeel_{}.cdx.json", package.version);
    let document = serde_json::to_string_pretty(&of_metadata(&metadata()?)?)?;
    package.put(&name, document + "\n")?;
    Ok(package.out.join(name))
}

fn metadata() -> Result<Value> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = workspace::cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &host]);
    let output = command.current_dir(workspace::root()).output().context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata is JSON")
}

fn of_metadata(metadata: &Value) -> Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let by_id = |values: Vec<Value>| -> BTreeMap<String, Value> {
        let id = |value: &Value| value["id"].as_str().unwrap_or_default().to_owned();
        values.into_iter().map(|value| (id(&value), value)).collect()
    };
    let (crates, nodes) =
        (by_id(list(&metadata["packages"])), by_id(list(&metadata["resolve"]["nodes"])));
    let root = crates.iter().find(|(_, it)| it["name"] == "evenkeel");
    let (root, program) = root.context("no crate evenkeel in this workspace")?;
    let (mut linked, mut left) = (BTreeSet::new(), vec![root.clone()]);
    while let Some(id) = left.pop() {
        let Some(node) = nodes.get(&id) else { continue };
        let is_linked =
            |dep: &Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let deps = list(&node["deps"]).into_iter().filter(is_linked);
        left.extend(deps.filter_map(|dep| dep["pkg"].as_str().map(str::to_owned)));
        if !linked.insert(id) {
            left.retain(|id| !linked.contains(id));
        }
    }
    let components: Vec<Value> =
        linked.iter().filter(|id| *id != root).map(|id| component(&crates[id])).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application", "name": "evenkeel", "version": program["version"],
            "licenses": [{ "expression": program["license"] }],
        } },
        "components": components,
    }))
}

fn component(of: &Value) -> Value {
    let (name, version) = (&of["name"], &of["version"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut component = json!({ "type": "library", "name": name, "version": version });
    if !of["source"].is_null() {
        let purl = format!("pkg:cargo/{}@{}", text(name), text(version));
        component["bom-ref"] = json!(purl);
        component["purl"] = json!(purl);
    }
    if let Some(license) = of["license"].as_str() {
        // Older crates write a slash for a choice.
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_once_and_what_only_tests_use_is_not() {
        let document = of_metadata(&metadata().unwrap()).unwrap();
        let components = document["components"].as_array().unwrap();
        let versions = |name: &str| components.iter().filter(|it| it["name"] == name).count();
        for linked in ["tokio", "hyper", "rustls", "evenkeel-core", "toml"] {
            assert_eq!(versions(linked), 1, "{linked}");
        }
        for absent in ["proptest", "evenkeel", "divan", "cc", "xtask"] {
            assert_eq!(versions(absent), 0, "{absent}");
        }
        let tokio = components.iter().find(|it| it["name"] == "tokio").unwrap();
        let version = tokio["version"].as_str().unwrap();
        assert_eq!(tokio["purl"], format!("pkg:cargo/tokio@{version}"));
        assert_eq!(tokio["licenses"][0]["expression"], "MIT");
    }
}
