//! Programs that run beside a test.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::wait::{PATIENCE, block_until_within};

/// Where `cargo xtask needs --install` puts what it makes for tests: in `xtask`, beside the folder
/// in which this program was built.
///
/// # Panics
/// When nobody can say which program this is.
#[must_use]
pub fn made(part: &str) -> PathBuf {
    let program = std::env::current_exe().expect("every program has a file");
    let places = program.ancestors().map(|folder| folder.join("xtask").join(part));
    let made = places.into_iter().find(|place| place.is_dir());
    made.unwrap_or_else(|| Path::new("xtask").join(part))
}

/// A program that ends with the test, if it has not been killed before.
#[derive(Debug, Default)]
pub struct Program(Option<Child>);

impl Program {
    /// Starts one.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        Self::start_if_installed(command).unwrap_or_else(|| panic!("not installed: {command:?}"))
    }

    /// Starts one; `None` where it is not installed.
    ///
    /// # Panics
    /// When it cannot be started for another reason.
    #[must_use]
    pub fn start_if_installed(command: &mut Command) -> Option<Self> {
        match command.spawn() {
            Ok(child) => Some(Self(Some(child))),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("{command:?}: {error}"),
        }
    }

    /// Sends it a signal such as `-STOP`, if it runs; what is to stop has stopped then.
    ///
    /// # Panics
    /// When it is not there any more, although nobody killed it.
    pub fn signal(&self, signal: &str) {
        let Some(child) = &self.0 else { return };
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "{signal} to {}", child.id());
        if signal == "-STOP" {
            wait_stopped(child.id());
        }
    }

    /// Kills it, if it runs, and waits for its end.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
        }
    }

    /// Whether it has ended, or was never started.
    ///
    /// # Panics
    /// When the system does not tell.
    pub fn has_ended(&mut self) -> bool {
        let ended = |child: &mut Child| child.try_wait().expect("a child of ours").is_some();
        self.0.as_mut().is_none_or(ended)
    }

    /// Its number in the system, as long as it was not killed.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.0.as_ref().map(Child::id)
    }

    /// Waits until somebody listens there.
    ///
    /// # Panics
    /// When the program ends first, or nobody does.
    #[track_caller]
    pub fn wait_listening(&mut self, address: SocketAddr) {
        block_until_within(PATIENCE, &format!("a listener on {address}"), || {
            assert!(!self.has_ended(), "it ended before it listened on {address}");
            TcpStream::connect(address).is_ok()
        });
    }
}

/// Waits until a process that was sent SIGSTOP stands still, with all of its threads: one that runs
/// on another processor goes on until it hears of it. One that has ended stands still, too.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn wait_stopped(process: u32) {
    block_until_within(PATIENCE, &format!("process {process} to stand still"), || {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // After the name, which may contain anything (proc(5)).
            let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
            // In the kernel (D, a slow disk) it does nothing, and stops when it comes from there.
            state.is_none_or(|state| matches!(state, 'T' | 't' | 'Z' | 'X' | 'D'))
        })
    });
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
