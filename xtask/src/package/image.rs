//! The container image: an OCI archive with one layer, which has the program and nothing else.
//!
//! `podman load`, `skopeo copy oci-archive:…` and `ctr image import` read it. It is built from
//! nothing, so it needs no registry, no daemon and no root, and has no shell to break into.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Package, deb, output, run_quietly};

/// Nobody on the host has this number.
const USER: &str = "65532:65532";

pub(super) fn build(package: &Package) -> Result<PathBuf> {
    package.put("layer/usr/bin/evenkeel", fs::read(&package.program)?)?;
    package.put("layer/etc/evenkeel/README", "Mount evenkeel.toml here.\n")?;
    let program = package.out.join("layer/usr/bin/evenkeel");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
    package.tar("layer", "layer.tar")?;
    let plain = sha256(package, "layer.tar")?;
    run_quietly(Command::new("gzip").args(["-9", "-n", "layer.tar"]).current_dir(&package.out))?;
    let layer = blob(package, "layer.tar.gz", "application/vnd.oci.image.layer.v1.tar+gzip")?;
    let config = json!({
        "architecture": deb::architecture(),
        "os": "linux",
        "config": {
            "User": USER,
            "Entrypoint": ["/usr/bin/evenkeel"],
            "Cmd": ["run", "/etc/evenkeel/evenkeel.toml"],
            "WorkingDir": "/etc/evenkeel",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "evenkeel",
                "org.opencontainers.image.version": package.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{plain}")] },
    });
    let config = document(package, &config, "application/vnd.oci.image.config.v1+json")?;
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest =
        json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer] });
    let mut manifest = document(package, &manifest, kind)?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": package.version });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    package.put("oci/index.json", index.to_string())?;
    package.put("oci/oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let name = format!("evenkeel_{}_{}.oci.tar", package.version, deb::architecture());
    package.tar("oci", &name)?;
    Ok(package.out.join(name))
}

/// Moves a file to where its contents name it; returns how others refer to it.
fn blob(package: &Package, file: &str, kind: &str) -> Result<Value> {
    let (from, sum) = (package.out.join(file), sha256(package, file)?);
    let size = fs::metadata(&from)?.len();
    let blobs = package.out.join("oci/blobs/sha256");
    fs::create_dir_all(&blobs)?;
    fs::rename(from, blobs.join(&sum))?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": size }))
}

fn document(package: &Package, document: &Value, kind: &str) -> Result<Value> {
    package.put("document.json", document.to_string())?;
    blob(package, "document.json", kind)
}

fn sha256(package: &Package, file: &str) -> Result<String> {
    let sum = output(Command::new("sha256sum").arg(file).current_dir(&package.out))?;
    sum.split_whitespace().next().map(str::to_owned).context("sha256sum says nothing")
}
