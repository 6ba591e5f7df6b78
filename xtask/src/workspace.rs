//! Where the workspace is, and how its cargo and other programs are started.

use std::ffi::OsString;
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

/// The `evenkeel` program as `cargo build --release` leaves it.
pub(crate) fn release_binary() -> PathBuf {
    target().join("release").join("evenkeel")
}

/// Runs the cargo that runs us, in the workspace root, and waits for its success.
///
/// # Errors
/// When cargo cannot be started or exits with a failure.
pub(crate) fn run_cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let line = format!("cargo {}", arguments.join(" "));
    let mut command = Command::new(cargo);
    command.args(arguments).envs(environment.iter().copied());
    run_to_success(&mut command, &line)
}

/// Runs `command` in the workspace root without standard input and waits for its success;
/// `line` is what a person would type to repeat it.
///
/// # Errors
/// When the program cannot be started or exits with a failure.
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
