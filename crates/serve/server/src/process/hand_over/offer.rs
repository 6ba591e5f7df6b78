//! The process that runs gives its sockets to the one that replaces it.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::link::{AT_ONCE, Link};
use super::{GREETING, OpenDoor, user};
use evenkeel_runtime::accept::{
    Gate, Stage, Stop, StopSignal, first, open_sockets, sockets_are_shared,
};

/// How long the other process may take until it is ready; longer than it gives itself.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Waits at the door for a process that is to replace this one.
pub(in crate::process) struct Offer {
    pub(in crate::process) door: OpenDoor,
    /// What stops when it is replaced. Gone with the process.
    pub(in crate::process) stop: Weak<Stop>,
    /// Keeps the door closed until this process has replaced another one itself.
    pub(in crate::process) gate: Option<Gate>,
    /// Told the number of the process that has replaced this one.
    pub(in crate::process) replaced: Arc<OnceLock<u32>>,
    /// Told then.
    pub(in crate::process) woken: Arc<Notify>,
}

/// The process that has the sockets and is not ready yet.
type Successor = Rc<Cell<Option<(u32, Instant)>>>;

impl Offer {
    fn process(&self) -> (Weak<Stop>, Arc<OnceLock<u32>>) {
        (self.stop.clone(), Arc::clone(&self.replaced))
    }

    pub(in crate::process) async fn run(mut self, mut signal: StopSignal) -> io::Result<()> {
        if let Some(gate) = &self.gate {
            let gate = async {
                gate.opened().await;
                Some(())
            };
            let stopping = async {
                signal.clone().stopping().await;
                None
            };
            if first(gate, stopping).await.is_none() {
                return Ok(());
            }
            self.door.is_handed_over = false;
        }
        let listener = self.door.listener.try_clone()?;
        listener.set_nonblocking(true)?;
        // Who connects learns of whom it was: the process that listened last.
        rustix::net::listen(&listener, 16)?;
        let listener = UnixListener::from_std(listener)?;
        let (mut asking, successor) = (JoinSet::new(), Successor::default());
        let replaced = async {
            loop {
                tokio::select! {
                    connected = listener.accept() => match connected {
                        Ok((stream, _)) => {
                            let door = self.door.socket()?;
                            let (process, successor) = (self.process(), Rc::clone(&successor));
                            asking.spawn_local(serve(stream, door, process, successor));
                        }
                        Err(_) => tokio::time::sleep(AT_ONCE).await, // no file is free
                    },
                    Some(Ok(true)) = asking.join_next() => return io::Result::Ok(true),
                }
            }
        };
        let stopping = async {
            signal.stopping().await;
            Ok(false)
        };
        if first(replaced, stopping).await? {
            self.door.is_handed_over = true;
            self.woken.notify_one();
        }
        Ok(())
    }
}

/// Serves one that asks; whether it has replaced this process.
async fn serve(
    stream: UnixStream,
    door: OwnedFd,
    process: (Weak<Stop>, Arc<OnceLock<u32>>),
    successor: Successor,
) -> bool {
    let Ok(who) = stream.peer_cred() else { return false };
    let number = who.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
    let mut link = Link::new(stream);
    let told = if who.uid() != user() {
        Err(Failure::Refused(format!("it is of user {}, expected {}", who.uid(), user())))
    } else if let Err(failure) = greeted(&mut link).await {
        Err(failure)
    } else if let Some((other, since)) = successor.get() {
        let since = since.elapsed().as_secs();
        Err(Failure::Refused(format!("process {other} takes over already, for {since} s")))
    } else {
        let _busy = Busy::of(&successor, number);
        hand_over(&mut link, door, number, process).await
    };
    match told {
        Ok(()) => return true,
        Err(Failure::Refused(why)) => {
            tracing::warn!(process = number, why, "a process that was to take over was refused");
            let _ = link.say(&format!("refused: {why}")).await;
        }
        Err(Failure::Ended(why)) => {
            tracing::warn!(process = number, %why, "a process did not take over: this one goes on");
        }
    }
    false
}

/// Keeps others out while one takes over.
struct Busy(Successor);

impl Busy {
    fn of(successor: &Successor, number: u32) -> Self {
        successor.set(Some((number, Instant::now())));
        Self(Rc::clone(successor))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// Why a process did not take over.
enum Failure {
    /// It is told so.
    Refused(String),
    /// It is gone.
    Ended(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Ended(error)
    }
}

fn ended() -> Failure {
    Failure::Ended(io::Error::other("it ended before it was ready"))
}

async fn greeted(link: &mut Link) -> Result<(), Failure> {
    let late = |_| Failure::Refused("it said nothing in time".to_owned());
    let greeting = tokio::time::timeout(AT_ONCE, link.line()).await.map_err(late)??;
    let greeting = greeting.ok_or_else(ended)?;
    match greeting == GREETING {
        true => Ok(()),
        false => Err(Failure::Refused(format!("got \"{greeting}\", expected \"{GREETING}\""))),
    }
}

async fn hand_over(
    link: &mut Link,
    door: OwnedFd,
    number: u32,
    (stop, replaced): (Weak<Stop>, Arc<OnceLock<u32>>),
) -> Result<(), Failure> {
    let stop = stop.upgrade().ok_or_else(ended)?;
    if stop.stage() != Stage::Running {
        return Err(Failure::Refused("the process stops already".to_owned()));
    }
    let mut sockets = vec![door];
    sockets.extend(open_sockets()?);
    link.say(&format!("sockets {}", sockets.len())).await?;
    link.send(&sockets).await?;
    drop(sockets);
    let ready = tokio::time::timeout(READY_WITHIN, link.line()).await;
    match ready.map_err(|_| Failure::Refused(format!("not ready within {READY_WITHIN:?}")))?? {
        Some(line) if line == "ready" => {}
        Some(line) => {
            return Err(Failure::Refused(format!("got \"{line}\", expected \"ready\"")));
        }
        None => return Err(ended()),
    }
    // It accepts already: it need not hear of it.
    let _ = link.say("done").await;
    sockets_are_shared(true);
    // First of all: whose thread ends by it must not take it for a failure.
    let _ = replaced.set(number);
    stop.replace();
    Ok(())
}
