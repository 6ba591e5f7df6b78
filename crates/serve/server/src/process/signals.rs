//! What the operating system tells a process.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::{Outcome, Process, Watch};
use evenkeel_runtime::accept::first;

/// SIGTERM and SIGINT, and where it is asked for SIGHUP, caught instead of ending the process at
/// once.
#[derive(Debug)]
pub struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// SIGHUP and SIGUSR2.
    asked: Option<[tokio::signal::unix::Signal; 2]>,
}

/// What ended a wait for signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// SIGTERM or SIGINT, or something in the process broke: a thread of it has ended.
    Stop,
    /// SIGHUP: the configuration is to be reloaded.
    Reload,
    /// The file that is watched has changed.
    Changed,
    /// SIGUSR2: another process is to be started that replaces this one.
    Upgrade,
    /// The process of this number has replaced this one, which is to stop.
    Replaced(u32),
}

impl Signals {
    /// Catches SIGTERM and SIGINT from now on.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn catch() -> io::Result<Self> {
        Self::catch_all(false)
    }

    /// The same with SIGHUP, which asks for a reload ([`Wake::Reload`]), and SIGUSR2
    /// ([`Wake::Upgrade`]).
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
        let asked = with_reload.then(|| {
            Ok::<_, io::Error>([
                signal(SignalKind::hangup())?,
                signal(SignalKind::user_defined2())?,
            ])
        });
        let asked = asked.transpose()?;
        drop(entered);
        Ok(Self { runtime, terminate, interrupt, asked })
    }

    /// Waits for SIGTERM or SIGINT; what else is caught changes nothing.
    pub fn wait(&mut self) {
        while self.wait_or(std::future::pending(), true) != Wake::Stop {}
    }

    /// Waits for any of them, or until something in the process broke, another process has replaced
    /// it, or the file has changed.
    pub fn wait_beside(&mut self, process: &Process, watch: Option<&mut Watch>) -> Wake {
        let ended = async {
            process.ended.notified().await;
            Wake::Stop
        };
        let changed = async {
            match watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
            Wake::Changed
        };
        let wake = self.wait_or(first(ended, changed), true);
        match (wake, process.replaced.get()) {
            (Wake::Stop, Some(by)) => Wake::Replaced(*by),
            _ => wake,
        }
    }

    /// Lets a process accept clients that was opened to replace another one, as soon as it is
    /// ready. `None` where there is no other one, and it serves already.
    ///
    /// # Errors
    /// When it does not become ready, or is told to stop before: then the other one goes on, and
    /// this one is to be stopped.
    pub fn take_over(&mut self, process: &mut Process) -> io::Result<Option<Outcome>> {
        let ended = Arc::clone(&process.ended);
        let mut outcome = Ok(None);
        let done = async {
            let taken = async {
                outcome = process.take_over().await;
                true
            };
            let broken = async {
                ended.notified().await;
                false
            };
            if first(taken, broken).await { Wake::Reload } else { Wake::Stop }
        };
        match self.wait_or(done, false) {
            Wake::Stop => Err(io::Error::other("told to stop before it had taken over")),
            _ => outcome,
        }
    }

    /// What else is asked waits, unless it is listened to.
    fn wait_or(&mut self, end: impl Future<Output = Wake>, listens: bool) -> Wake {
        let mut end = pin!(end);
        self.runtime.block_on(std::future::poll_fn(|context| {
            let terminated = self.terminate.poll_recv(context).is_ready();
            let interrupted = self.interrupt.poll_recv(context).is_ready();
            if terminated || interrupted {
                return Poll::Ready(Wake::Stop);
            }
            if let Poll::Ready(wake) = end.as_mut().poll(context) {
                return Poll::Ready(wake);
            }
            let asked = self.asked.as_mut().filter(|_| listens);
            let Some([reload, upgrade]) = asked else { return Poll::Pending };
            match reload.poll_recv(context) {
                Poll::Ready(_) => Poll::Ready(Wake::Reload),
                Poll::Pending => upgrade.poll_recv(context).map(|_| Wake::Upgrade),
            }
        }))
    }
}
