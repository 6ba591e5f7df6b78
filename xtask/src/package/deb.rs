//! The Debian package: the tree of files, and what `dpkg` has to know of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Package, output, run_quietly};
use crate::workspace;

/// From the workspace, to the package.
const FILES: [(&str, &str); 6] = [
    ("packaging/evenkeel.toml", "etc/evenkeel/evenkeel.toml"),
    ("packaging/evenkeel.service", "usr/lib/systemd/system/evenkeel.service"),
    ("packaging/evenkeel.socket", "usr/lib/systemd/system/evenkeel.socket"),
    ("packaging/evenkeel.sysctl.conf", "usr/share/doc/evenkeel/sysctl.conf"),
    ("packaging/prometheus/evenkeel.rules.yml", "usr/share/doc/evenkeel/evenkeel.rules.yml"),
    ("packaging/grafana/evenkeel.json", "usr/share/doc/evenkeel/grafana.json"),
];

/// Shell, and where Debian has completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/evenkeel"),
    ("zsh", "usr/share/zsh/vendor-completions/_evenkeel"),
    ("fish", "usr/share/fish/vendor_completions.d/evenkeel.fish"),
];

/// Neither script touches the system that runs it where it installs into a folder (`dpkg --root`).
/// The service is not started: what it would listen on is an example until somebody has changed it.
const AFTER_INSTALLATION: &str = "\
#!/bin/sh
set -e
if [ -z \"${DPKG_ROOT:-}\" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    if [ \"$1\" = configure ] && [ -n \"$2\" ]; then systemctl try-restart evenkeel.service; fi
fi
";
const BEFORE_REMOVAL: &str = "\
#!/bin/sh
set -e
if [ -z \"${DPKG_ROOT:-}\" ] && [ -d /run/systemd/system ] && [ \"$1\" = remove ]; then
    systemctl disable --now evenkeel.service evenkeel.socket || true
fi
";

pub(super) fn build(package: &Package) -> Result<PathBuf> {
    for (from, to) in FILES {
        let bytes = fs::read(workspace::root().join(from)).with_context(|| from.to_owned())?;
        package.put(&format!("deb/{to}"), bytes)?;
    }
    package.put("deb/usr/bin/evenkeel", fs::read(&package.program)?)?;
    documents(package)?;
    for (shell, to) in COMPLETIONS {
        let script = output(Command::new(&package.program).args(["completions", shell]))?;
        package.put(&format!("deb/{to}"), script)?;
    }
    let pages = package.out.join("deb/usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    run_quietly(Command::new(&package.program).arg("man").arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        run_quietly(Command::new("gzip").args(["-9", "-n"]).arg(page?.path()))?;
    }
    control(package)?;
    permit(package)?;
    let file = package.out.join(format!("evenkeel_{}_{}.deb", package.version, architecture()));
    run_quietly(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build", "deb"])
            .arg(&file)
            .env("SOURCE_DATE_EPOCH", &package.time)
            .current_dir(&package.out),
    )?;
    Ok(file)
}

/// All of `docs` that are text, as the documents link to each other.
fn documents(package: &Package) -> Result<()> {
    let root = workspace::root();
    for entry in fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".png") && path.is_file() {
            package.put(&format!("deb/usr/share/doc/evenkeel/{name}"), fs::read(&path)?)?;
        }
    }
    let changes = package.out.join("deb/usr/share/doc/evenkeel/changelog");
    fs::copy(root.join("CHANGELOG.md"), &changes)?;
    run_quietly(Command::new("gzip").args(["-9", "-n"]).arg(changes))?;
    let mit = fs::read_to_string(root.join("LICENSE-MIT"))?;
    let copyright = format!(
        "MIT or Apache-2.0 (/usr/share/common-licenses/Apache-2.0), at your choice.\n\n{mit}"
    );
    package.put("deb/usr/share/doc/evenkeel/copyright", copyright)
}

fn control(package: &Package) -> Result<()> {
    let size = output(Command::new("du").args(["-sk", "deb"]).current_dir(&package.out))?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let depends = match package.is_static {
        true => String::new(),
        false => format!("Depends: libc6 (>= {})\n", library_version(&package.program)?),
    };
    let (version, architecture) = (&package.version, architecture());
    package.put(
        "deb/DEBIAN/control",
        format!(
            "Package: evenkeel\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: The authors of Evenkeel <evenkeel@localhost>\nSection: net\n\
             Priority: optional\nInstalled-Size: {size}\n{depends}\
             Description: Proxy that keeps the tail latency of replicated services\n \
             Evenkeel sends each request to the replica with the shortest expected response\n \
             time, hedges, and serves pages without optional content under overload.\n"
        ),
    )?;
    package.put("deb/DEBIAN/conffiles", "/etc/evenkeel/evenkeel.toml\n")?;
    package.put("deb/DEBIAN/postinst", AFTER_INSTALLATION)?;
    package.put("deb/DEBIAN/prerm", BEFORE_REMOVAL)?;
    let sums = "find . -path ./DEBIAN -prune -o -type f -print0 | sort -z | xargs -0 md5sum";
    let folder = package.out.join("deb");
    let sums = output(Command::new("sh").args(["-c", sums]).current_dir(folder))?;
    package.put("deb/DEBIAN/md5sums", sums.replace("  ./", "  "))
}

/// The oldest GNU C library that has everything that a program asks of it.
fn library_version(program: &Path) -> Result<String> {
    let symbols = output(Command::new("objdump").arg("-T").arg(program))?;
    newest(&symbols).context("the program asks the GNU C library for nothing")
}

/// The highest of the versions `GLIBC_2.34` in a table of symbols.
fn newest(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1);
    let versions = versions.filter_map(|rest| {
        let version = rest.split(|it: char| !it.is_ascii_digit() && it != '.').next()?;
        let parts: Option<Vec<u32>> = version.split('.').map(|part| part.parse().ok()).collect();
        Some((parts?, version))
    });
    versions.max().map(|(_, version)| version.to_owned())
}

/// Everybody reads, and runs what is a program; whatever the mask of who builds.
fn permit(package: &Package) -> Result<()> {
    let folder = package.out.join("deb");
    run_quietly(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&folder))?;
    for program in ["usr/bin/evenkeel", "DEBIAN/postinst", "DEBIAN/prerm"] {
        fs::set_permissions(folder.join(program), fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// The name that Debian has for it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts_and_not_the_first_letter() {
        let table = "DF *UND* 0 (GLIBC_2.9)  a\nDF *UND* 0 (GLIBC_2.34) b\n (GLIBC_2.3.4) c\n";
        assert_eq!(newest(table), Some("2.34".to_owned()));
        assert_eq!(newest("no (GLIBC_PRIVATE) d"), None);
    }
}
