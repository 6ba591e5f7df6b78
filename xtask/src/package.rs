//! `cargo xtask package`: what people install, in `target/package`.
//!
//! A Debian package, a container image (an OCI archive), a list of what is inside (CycloneDX) and
//! checksums. No daemon, no root: `dpkg-deb`, `tar` and `gzip` do it. The program is static where
//! musl can be linked, since only then it runs on every Linux and in an empty image. The same
//! commit gives the same bytes, for the same compiler. `--check` makes everything twice, and runs
//! what was made as those who install it would.

mod check;
mod deb;
mod image;
mod sbom;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, bail};

use crate::{UsageError, pgo, workspace};

/// Longer than this, somebody should look why.
const PROGRAM_BYTES_MAX: u64 = 20_000_000;

const USAGE: &str = "\
usage: cargo xtask package [--gnu] [--pgo] [--program FILE] [--check]

  --gnu           against the C library of this system; otherwise static, with musl, if the target
                  is installed (rustup target add x86_64-unknown-linux-musl; apt install musl-tools)
  --pgo           compiled by a profile of its own work (cargo xtask pgo): less CPU per request, and
                  other bytes each time
  --program FILE  of this program, in place of a build with the profile dist
  --check         also: make it again and compare the bytes, install, run and remove the package in
                  a folder, run the image (both as root), and try docs/getting-started.md with the
                  package's program";

/// What every part of a package knows.
#[derive(Debug)]
struct Package {
    /// Everything that is made is here.
    out: PathBuf,
    /// The stripped program.
    program: PathBuf,
    version: String,
    is_static: bool,
    /// Seconds since 1970 for files: those of the commit.
    time: String,
}

pub(crate) fn run(options: &[&str]) -> Result<()> {
    let (mut is_gnu, mut has_profile, mut is_checked, mut program) = (false, false, false, None);
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        match (*option, program.is_none()) {
            ("--help", _) => {
                println!("{USAGE}");
                return Ok(());
            }
            ("--gnu", _) => is_gnu = true,
            ("--pgo", _) => has_profile = true,
            ("--check", _) => is_checked = true,
            ("--program", true) => {
                let file = rest.next().ok_or_else(|| UsageError::new("--program without FILE"))?;
                program = Some(PathBuf::from(file));
            }
            _ => return Err(UsageError::new(format!("unknown option {option}\n\n{USAGE}")).into()),
        }
    }
    if has_profile && program.is_some() {
        return Err(
            UsageError::new("--pgo: expected without --program, which is built already").into()
        );
    }
    let (program, bytes_max) = match program {
        // One of another profile, such as that of tests, may be as large as it is.
        Some(program) => (program, u64::MAX),
        None => (build(is_gnu, has_profile)?, PROGRAM_BYTES_MAX),
    };
    match is_checked {
        true => checked(&program, bytes_max, &OF_PROGRAM),
        false => make(&program, &out(), bytes_max).map(drop),
    }
}

/// How cargo finds the tests of the program.
const OF_PROGRAM: [&str; 2] = ["-p", "evenkeel"];

/// Makes everything of this program and uses it as those who install it would; `tests` are cargo's
/// arguments for a build with the test of the guide.
pub(crate) fn checked(program: &Path, bytes_max: u64, tests: &[&str]) -> Result<()> {
    let folder = out();
    let again = folder.with_extension("again");
    // At once: most of the time is compression, by one thread.
    let (package, again) = thread::scope(|scope| {
        let again = scope.spawn(|| make(program, &again, bytes_max));
        let package = make(program, &folder, bytes_max);
        (package, again.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let package = package?;
    check::is_same(&package, &again?)?;
    check::installs(&package)?;
    check::image_runs(&package)?;
    check::guides(&package, tests)
}

fn out() -> PathBuf {
    workspace::target().join("package")
}

/// Makes everything of this program, in a folder that is emptied first. Stripped, it may have this
/// many bytes.
fn make(program: &Path, out: &Path, bytes_max: u64) -> Result<Package> {
    let package = Package::open(program, out, bytes_max)?;
    let sbom = sbom::write(&package)?;
    let mut made = vec![sbom];
    match workspace::find_program("dpkg-deb") {
        Some(_) => made.push(deb::build(&package)?),
        None => println!("no Debian package: dpkg-deb is missing"),
    }
    match package.is_static {
        true => made.push(image::build(&package)?),
        false => println!("no image: the program needs a C library, and the image is empty"),
    }
    let names = made.iter().map(|file| file.file_name().unwrap_or_default());
    let sums = output(Command::new("sha256sum").args(names).current_dir(out))?;
    fs::write(out.join("SHA256SUMS"), sums)?;
    let sizes = made
        .iter()
        .chain([&package.program])
        .map(|file| Ok(format!("{:>12} bytes  {}\n", fs::metadata(file)?.len(), file.display())));
    print!("{}", sizes.collect::<Result<String>>()?);
    Ok(package)
}

impl Package {
    /// The Debian package, if one was made.
    fn deb(&self) -> Option<PathBuf> {
        let file = format!("evenkeel_{}_{}.deb", self.version, deb::architecture());
        Some(self.out.join(file)).filter(|file| file.exists())
    }

    fn open(program: &Path, out: &Path, bytes_max: u64) -> Result<Self> {
        let bytes =
            fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        if out.exists() {
            fs::remove_dir_all(out).with_context(|| format!("cannot empty {}", out.display()))?;
        }
        fs::create_dir_all(out)?;
        let stripped = out.join("evenkeel");
        fs::write(&stripped, &bytes)?;
        fs::set_permissions(&stripped, fs::Permissions::from_mode(0o755))?;
        // A script, as in tests, has no symbols.
        if bytes.starts_with(b"\x7fELF") {
            run_quietly(Command::new("strip").arg("--strip-all").arg(&stripped))?;
        }
        let bytes = fs::metadata(&stripped)?.len();
        if bytes > bytes_max {
            bail!("the stripped program has {bytes} bytes, expected at most {bytes_max}");
        }
        let version = output(Command::new(&stripped).arg("--version"))?;
        let version = version.trim().strip_prefix("evenkeel ").context("evenkeel --version")?;
        let commit = output(Command::new("git").args(["log", "-1", "--format=%ct"]));
        Ok(Self {
            out: out.to_owned(),
            is_static: is_static(&stripped)?,
            program: stripped,
            version: version.to_owned(),
            time: commit.map_or_else(|_| "0".to_owned(), |time| time.trim().to_owned()),
        })
    }

    /// A file with exactly these bytes, and the folders it is in.
    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = self.out.join(path);
        fs::create_dir_all(path.parent().expect("a path in a folder"))?;
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }

    /// `tar` of everything in a folder, the same for the same files.
    fn tar(&self, folder: &str, to: &str) -> Result<()> {
        run_quietly(
            Command::new("tar")
                .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
                .args(["--mode=go-w", "--format=gnu", &format!("--mtime=@{}", self.time)])
                .args(["-cf", to, "-C", folder, "."])
                .current_dir(&self.out),
        )
    }
}

/// The program with the profile of packages, for musl if that can be.
fn build(is_gnu: bool, has_profile: bool) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let has_target = Path::new(sysroot.trim()).join("lib/rustlib").join(&target).exists();
    let compiler = workspace::find_program("musl-gcc");
    if is_gnu || !has_target || compiler.is_none() {
        println!(
            "against this system's C library: musl {}",
            match (is_gnu, has_target) {
                (true, _) => "is not asked for",
                (_, false) => "is no installed target",
                _ => "has no compiler (musl-gcc)",
            }
        );
        if has_profile {
            return pgo::build(&pgo::host());
        }
        workspace::build_dist()?;
        return Ok(workspace::dist_binary());
    }
    if has_profile {
        return pgo::build(&target);
    }
    workspace::run_cargo(
        &["build", "--profile", "dist", "-p", "evenkeel", "--target", &target],
        &[],
    )?;
    Ok(workspace::target().join(target).join("dist/evenkeel"))
}

/// Whether it runs without a dynamic linker: it names none.
fn is_static(program: &Path) -> Result<bool> {
    let bytes = fs::read(program)?;
    let names = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    Ok(!names(b"/ld-linux") && !names(b"/ld-musl"))
}

fn run_quietly(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// What a program says, once it has succeeded.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{name} could not be started"))?;
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} says no text"))
}

#[cfg(test)]
mod tests;
