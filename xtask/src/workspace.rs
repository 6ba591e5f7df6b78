//! Where the workspace is, and how its cargo and other programs are started.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Folders that hold servers but are often absent from an unprivileged user's `PATH`.
const SERVER_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// The folder of the workspace's `Cargo.toml`.
///
/// # Panics
/// When this crate's folder has no parent, which cargo never arranges.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    Path::new(&manifest).parent().expect("xtask is a folder of the workspace").to_path_buf()
}

/// Where cargo puts its output, `target` unless `CARGO_TARGET_DIR` says otherwise.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// The `evenkeel` program as `cargo build --release` leaves it: quickly built.
pub(crate) fn release_binary() -> PathBuf {
    target().join("release").join("evenkeel")
}

/// The `evenkeel` program as packages have it and benches measure it: `cargo build --profile dist`.
pub(crate) fn dist_binary() -> PathBuf {
    target().join("dist").join("evenkeel")
}

/// Builds [`dist_binary`]: an old one would be measured without anyone noticing.
pub(crate) fn build_dist() -> Result<()> {
    run_cargo(&["build", "--profile", "dist", "-p", "evenkeel"], &[])
}

/// The cargo that runs us, as a person starts it: without what cargo says of us in the environment,
/// or build scripts that look at that, such as ring's, would run again at every change of hands.
pub(crate) fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    forget_cargo(&mut command);
    command
}

/// Leaves out of a command's environment what cargo says of us there.
pub(crate) fn forget_cargo(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if about_us(&name) {
            command.env_remove(name);
        }
    }
}

/// The same command, which the system runs when nobody else wants the processor.
pub(crate) fn with_least_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

fn about_us(name: &OsStr) -> bool {
    let of = |prefix| name.as_encoded_bytes().starts_with(prefix);
    of(b"CARGO_PKG_") || of(b"CARGO_MANIFEST_")
}

/// Runs the cargo that runs us, in the workspace root, and waits for its success.
pub(crate) fn run_cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let line = format!("cargo {}", arguments.join(" "));
    let mut command = cargo();
    command.args(arguments).envs(environment.iter().copied());
    run_to_success(&mut command, &line)
}

/// Runs `command` in the workspace root without standard input and waits for its success;
/// `line` is what a person would type to repeat it.
pub(crate) fn run_to_success(command: &mut Command, line: &str) -> Result<()> {
    let status = command
        .current_dir(root())
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("`{line}` could not be started"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// `PATH` with the folders where distributions keep servers, so that tests find them too.
pub(crate) fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.map(PathBuf::from));
    std::env::join_paths(folders).unwrap_or(path)
}

/// The first executable file called `program` on [`search_path`].
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path())
        .map(|folder| folder.join(program))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_this_crate() {
        assert!(root().join("xtask/src/workspace.rs").is_file());
    }

    #[test]
    fn what_cargo_says_of_us_is_not_passed_on() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo runs this test");
        let cargo = cargo();
        let removed = |name: &str| cargo.get_envs().any(|(of, to)| of == name && to.is_none());
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"));
        assert!(!removed("CARGO") && !removed("CARGO_TARGET_DIR"));
    }

    #[test]
    fn a_command_of_least_priority_is_the_same_otherwise() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $KEEL; pwd; nice"]).env("KEEL", "bent").current_dir("/");
        let output = with_least_priority(&command).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said.lines().collect::<Vec<_>>(), ["bent", "/", "19"]);
    }

    #[test]
    fn a_shell_is_found_and_a_made_up_program_is_not() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("evenkeel-no-such-program"), None);
    }

    #[test]
    fn a_failing_program_is_an_error_that_names_the_command() {
        let error = run_to_success(&mut Command::new("false"), "false alarm").unwrap_err();
        assert!(error.to_string().contains("`false alarm` failed"), "{error}");
    }
}
