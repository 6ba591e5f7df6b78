//! What was made, used as those who install it would: once more with the same bytes, into a root
//! of its own by dpkg, and the image's files as the only ones that the program sees.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Package, output, run_quietly};
use crate::bench::process::{self, Server, Workbench};
use crate::workspace;

/// Compares what was made twice; the second is then removed.
pub(super) fn is_same(package: &Package, again: &Package) -> Result<()> {
    let sums = |of: &Package| fs::read_to_string(of.out.join("SHA256SUMS"));
    let (first, second) = (sums(package)?, sums(again)?);
    ensure!(first == second, "not reproducible: first\n{first}then\n{second}");
    fs::remove_dir_all(&again.out)?;
    println!("checked: made twice, the same bytes");
    Ok(())
}

/// Installs, runs, removes and purges the package in a folder.
pub(super) fn installs(package: &Package) -> Result<()> {
    let (Some(file), true) = (package.deb(), is_root()?) else {
        println!("not checked: the package (needs dpkg-deb, and root for dpkg)");
        return Ok(());
    };
    let root = fresh(package, "check-root")?;
    fs::create_dir_all(root.join("var/lib/dpkg"))?;
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display()));
        // The folder has no shell for the scripts, and for a program that is not static no libc6.
        command.args(["--force-script-chrootless", "--force-depends"]).args(arguments);
        // What dpkg looks for is often absent from the path of who is root by `su`.
        output(command.env("PATH", workspace::search_path()))
    };
    dpkg(&["--install", &file.to_string_lossy()])?;
    let altered = dpkg(&["--verify", "evenkeel"])?;
    ensure!(altered.is_empty(), "dpkg --verify: {altered}");
    let mut program = match package.is_static {
        true => {
            let mut chroot = Command::new("chroot");
            chroot.arg(&root).arg("/usr/bin/evenkeel");
            chroot
        }
        false => Command::new(root.join("usr/bin/evenkeel")),
    };
    let configuration = match package.is_static {
        true => PathBuf::from("/etc/evenkeel/evenkeel.toml"),
        false => root.join("etc/evenkeel/evenkeel.toml"),
    };
    let said = output(program.arg("check").arg(configuration))?;
    ensure!(said.contains("valid"), "evenkeel check of what is installed: {said}");
    dpkg(&["--remove", "evenkeel"])?;
    ensure!(!root.join("usr/bin/evenkeel").exists(), "dpkg --remove leaves the program");
    ensure!(root.join("etc/evenkeel/evenkeel.toml").exists(), "a removal took the configuration");
    dpkg(&["--purge", "evenkeel"])?;
    ensure!(!root.join("etc/evenkeel").exists(), "dpkg --purge leaves the configuration");
    fs::remove_dir_all(root)?;
    println!("checked: installed, ran its check, removed and purged by dpkg");
    Ok(())
}

/// Runs the program of the image as the image says: its user, with its files alone.
pub(super) fn image_runs(package: &Package) -> Result<()> {
    if !package.is_static || !is_root()? {
        println!("not checked: the image (needs a static program, and root for chroot)");
        return Ok(());
    }
    let root = fresh(package, "check-image")?;
    let config = unpack(package, &root)?;
    let bench = Workbench::create("image", 2)?;
    let [listen, admin] = bench.ports() else { unreachable!("two were asked for") };
    fs::write(
        root.join("etc/evenkeel/evenkeel.toml"),
        format!(
            "[[listen]]\naddress = '127.0.0.1:{listen}'\nupstream = 'web'\n\
             [upstream.web]\nreplicas = ['127.0.0.1:1']\n\
             [admin]\naddress = '127.0.0.1:{admin}'\n"
        ),
    )?;
    let mut chroot = Command::new("chroot");
    chroot.arg(format!("--userspec={}", config["User"].as_str().unwrap_or_default())).arg(&root);
    for part in ["Entrypoint", "Cmd"] {
        let words = config[part].as_array().with_context(|| format!("an image without {part}"))?;
        chroot.args(words.iter().filter_map(Value::as_str));
    }
    let server = Server::of(&bench, "image", *admin, &mut chroot)?;
    let answer = process::get(*admin, "/healthz")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "the image's program is not well: {answer}");
    drop(server);
    fs::remove_dir_all(root)?;
    println!("checked: every digest of the image; its program runs with its files alone");
    Ok(())
}

/// Follows `docs/getting-started.md` with the package's program; `tests` are cargo's arguments for
/// a build with that test.
pub(super) fn guides(package: &Package, tests: &[&str]) -> Result<()> {
    let Some(file) = package.deb() else {
        println!("not checked: the guide with the package (needs dpkg-deb)");
        return Ok(());
    };
    let file = file.to_string_lossy();
    let arguments = [&["test"], tests, &["--test", "guide", "--", "--nocapture"]].concat();
    workspace::run_cargo(&arguments, &[("EVENKEEL_PACKAGE", &*file)])
}

/// Unpacks the archive's layer as a runtime does, every digest checked; returns the `config`.
fn unpack(package: &Package, root: &Path) -> Result<Value> {
    let name = format!("evenkeel_{}_{}.oci.tar", package.version, super::deb::architecture());
    let layout = fresh(package, "check-oci")?;
    let archive = package.out.join(name);
    run_quietly(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&layout))?;
    let version: Value = serde_json::from_slice(&fs::read(layout.join("oci-layout"))?)?;
    ensure!(version["imageLayoutVersion"] == "1.0.0", "oci-layout: {version}");
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let read = |of: &Value| -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(blob(&layout, of)?)?)?)
    };
    let manifest = read(&index["manifests"][0])?;
    let config = read(&manifest["config"])?;
    let layer = blob(&layout, &manifest["layers"][0])?;
    run_quietly(Command::new("tar").arg("-xzf").arg(layer).arg("-C").arg(root))?;
    fs::remove_dir_all(layout)?;
    Ok(config["config"].clone())
}

/// Where a blob is, which must have the size and the digest by which others refer to it.
fn blob(layout: &Path, of: &Value) -> Result<PathBuf> {
    let digest = of["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
    let digest = digest.with_context(|| format!("a reference without a digest: {of}"))?;
    let path = layout.join("blobs/sha256").join(digest);
    let found = output(Command::new("sha256sum").arg(&path))?;
    ensure!(found.starts_with(digest), "the blob {digest} has {found}");
    let size = fs::metadata(&path)?.len();
    ensure!(of["size"] == size, "{of}: the blob has {size} bytes");
    Ok(path)
}

/// An empty folder beside what was made.
fn fresh(package: &Package, name: &str) -> Result<PathBuf> {
    let folder = package.out.join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn is_root() -> Result<bool> {
    Ok(output(Command::new("id").arg("-u"))?.trim() == "0")
}
