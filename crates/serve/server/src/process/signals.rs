//! What the operating system tells a process.

use std::io;
use std::pin::pin;
use std::task::Poll;

use super::Process;

/// SIGTERM and SIGINT, and where it is asked for SIGHUP, caught instead of ending the process at
/// once.
#[derive(Debug)]
pub struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: Option<tokio::signal::unix::Signal>,
}

/// What ended a wait for signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// SIGTERM or SIGINT, or something in the process broke: a thread of it has ended.
    Stop,
    /// SIGHUP: the configuration is to be reloaded.
    Reload,
}

impl Signals {
    /// Catches SIGTERM and SIGINT from now on.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn catch() -> io::Result<Self> {
        Self::catch_all(false)
    }

    /// The same with SIGHUP, which asks for a reload ([`Wake::Reload`]).
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn catch_with_reload() -> io::Result<Self> {
        Self::catch_all(true)
    }

    fn catch_all(with_reload: bool) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hang_up = with_reload.then(|| signal(SignalKind::hangup())).transpose()?;
        drop(entered);
        Ok(Self { runtime, terminate, interrupt, hang_up })
    }

    /// Waits for SIGTERM or SIGINT; a SIGHUP that is caught changes nothing.
    pub fn wait(&mut self) {
        while self.wait_or(std::future::pending()) == Wake::Reload {}
    }

    /// Waits for any of them, or until something in the process broke.
    pub fn wait_beside(&mut self, process: &Process) -> Wake {
        self.wait_or(process.ended.notified())
    }

    fn wait_or(&mut self, end: impl Future<Output = ()>) -> Wake {
        let mut end = pin!(end);
        self.runtime.block_on(std::future::poll_fn(|context| {
            let terminated = self.terminate.poll_recv(context).is_ready();
            let interrupted = self.interrupt.poll_recv(context).is_ready();
            let ended = end.as_mut().poll(context).is_ready();
            if terminated || interrupted || ended {
                return Poll::Ready(Wake::Stop);
            }
            match &mut self.hang_up {
                Some(hang_up) => hang_up.poll_recv(context).map(|_| Wake::Reload),
                None => Poll::Pending,
            }
        }))
    }
}
