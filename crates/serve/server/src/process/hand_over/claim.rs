//! The process that replaces another one gets its sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::net::UnixStream;

use super::link::{AT_ONCE, Link};
use super::{Door, GREETING, OpenDoor, user};
use evenkeel_runtime::accept::{Gate, inherited, sockets_are_shared};
use evenkeel_runtime::component::Readiness;

/// How long it may take until everything is ready: names are resolved, replicas are found well.
const READY_WITHIN: Duration = Duration::from_secs(30);

const LOOKED_EVERY: Duration = Duration::from_millis(20);

/// The sockets of another process are here; it still serves.
#[derive(Debug)]
pub(in crate::process) struct Claim {
    stream: net::UnixStream,
    /// The other process.
    pub(in crate::process) from: u32,
    pub(in crate::process) door: Option<OpenDoor>,
}

/// What came of it. This process serves in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The other process drains and ends.
    Replaced(u32),
    /// It ended meanwhile.
    Ended(u32),
    /// It does not say that it has stopped to accept.
    Silent(u32),
}

impl Claim {
    /// Asks at the door. `None` when nobody is there.
    ///
    /// # Errors
    /// When it is refused, or the other process does not answer.
    pub(in crate::process) fn ask(door: &Door) -> io::Result<Option<Self>> {
        let stream = match net::UnixStream::connect_addr(&door.address()?) {
            Ok(stream) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(failed(door, &error.to_string())),
        };
        stream.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let again = stream.try_clone()?;
        runtime.block_on(async {
            let again = UnixStream::from_std(again)?;
            let who = again.peer_cred()?;
            if who.uid() != user() {
                let why = format!("the process there is of user {}, not {}", who.uid(), user());
                return Err(failed(door, &why));
            }
            let from = who.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
            let mut link = Link::new(again);
            link.say(GREETING).await?;
            let Ok(line) = tokio::time::timeout(AT_ONCE, link.line()).await else {
                let why = format!("process {from} does not answer; stop it and start anew");
                return Err(failed(door, &why));
            };
            let Some(line) = line? else { return Ok(None) };
            let count = line.strip_prefix("sockets ").and_then(|count| count.parse().ok());
            let count = count.ok_or_else(|| failed(door, &format!("process {from}: {line}")))?;
            let sockets = link.receive(count).await?;
            Self::of(sockets, stream, from, door).map(Some)
        })
    }

    fn of(
        sockets: Vec<OwnedFd>,
        stream: net::UnixStream,
        from: u32,
        door: &Door,
    ) -> io::Result<Self> {
        let mut sockets = sockets.into_iter();
        let its_door = sockets.next().map(|socket| OpenDoor {
            door: door.clone(),
            listener: socket.into(),
            is_handed_over: true, // not yet ours
        });
        sockets_are_shared(true);
        sockets.try_for_each(inherited::receive)?;
        Ok(Self { stream, from, door: its_door })
    }

    /// Waits until this process is ready, accepts clients, and tells the other process.
    ///
    /// # Errors
    /// When it does not become ready, or the other process does not wait any longer; it goes on
    /// then, and this one is to end.
    pub(in crate::process) async fn complete(
        self,
        readiness: impl Fn() -> Readiness,
        gate: &Gate,
    ) -> io::Result<Outcome> {
        let outcome = self.until_accepted(readiness, gate).await?;
        inherited::forget_received();
        sockets_are_shared(false);
        Ok(outcome)
    }

    async fn until_accepted(
        self,
        readiness: impl Fn() -> Readiness,
        gate: &Gate,
    ) -> io::Result<Outcome> {
        let mut link = Link::new(UnixStream::from_std(self.stream)?);
        let goes_on = |why: &str| {
            let from = self.from;
            io::Error::other(format!("cannot take over: {why}; process {from} goes on"))
        };
        {
            let mut line = pin!(link.line());
            let until = Instant::now() + READY_WITHIN;
            while let Readiness::NotReady(why) = readiness() {
                if Instant::now() > until {
                    let why = format!("after {READY_WITHIN:?} {}", why.trim_end());
                    return Err(goes_on(&why));
                }
                tokio::select! {
                    biased;
                    line = &mut line => match line {
                        Ok(Some(line)) => return Err(goes_on(&line)),
                        _ => {
                            gate.open();
                            return Ok(Outcome::Ended(self.from));
                        }
                    },
                    () = tokio::time::sleep(LOOKED_EVERY) => {}
                }
            }
        }
        gate.open();
        let said = link.say("ready").await;
        match tokio::time::timeout(AT_ONCE, link.line()).await {
            Ok(Ok(Some(line))) if line == "done" => Ok(Outcome::Replaced(self.from)),
            Ok(Ok(Some(line))) => Err(goes_on(&line)),
            Ok(Ok(None) | Err(_)) => Ok(Outcome::Ended(self.from)),
            Err(_) if said.is_err() => Ok(Outcome::Ended(self.from)),
            Err(_) => Ok(Outcome::Silent(self.from)),
        }
    }
}

fn failed(door: &Door, why: &str) -> io::Error {
    io::Error::other(format!("cannot take over by {door}: {why}"))
}
