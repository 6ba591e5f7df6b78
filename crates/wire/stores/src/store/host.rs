//! A thread in which one store lives, and connections to it.
//!
//! Several stores in one process answer independently of each other only if one that syncs or
//! compacts does not hold up the others: so each has a thread.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use evenkeel_runtime::dial::Names;
use tokio::io::{DuplexStream, duplex};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use super::Store;
use super::pauses::{Pauses, Pausing};
use super::session::{Shared, serve};

/// Bytes that wait in each direction of a connection.
const PIPE_BYTES: usize = 256 << 10;

/// A store in a thread of its own. It ends, and closes its store, with the last clone of this.
#[derive(Clone)]
pub struct Host {
    name: Arc<str>,
    running: Arc<Running>,
}

struct Running {
    streams: Option<UnboundedSender<DuplexStream>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.streams = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a store panicked");
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Host").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Host {
    /// Starts the thread and opens the store in it; returns when it is open. `name` is for errors
    /// and the list of threads.
    ///
    /// # Errors
    /// When the store cannot be opened, or the thread not be started.
    pub fn start<S: Store + 'static>(
        name: &str,
        pauses: Option<Pauses>,
        open: impl AsyncFnOnce() -> io::Result<S> + Send + 'static,
    ) -> io::Result<Self> {
        let (streams, coming) = unbounded_channel();
        let (opened, is_open) = sync_channel(1);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // Linux shows 15 bytes of it.
        let thread = thread::Builder::new().name(format!("store-{name}"));
        let names = Names::of_thread();
        let thread = thread.spawn(move || {
            names.enter();
            let work = async {
                let store = match open().await {
                    Ok(store) => store,
                    Err(error) => {
                        // Whoever waits for it is there.
                        let _ = opened.send(Err(error));
                        return;
                    }
                };
                let _ = opened.send(Ok(()));
                let pausing = pauses.map(|pauses| Pausing::new(pauses, Instant::now()));
                accept(Rc::new(Shared::new(store, pausing)), coming).await;
            };
            LocalSet::new().block_on(&runtime, work);
        })?;
        let running = Running { streams: Some(streams), thread: Some(thread) };
        match is_open.recv() {
            Ok(Ok(())) => Ok(Self { name: name.into(), running: Arc::new(running) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other(format!("the store '{name}' ended as it was opened"))),
        }
    }

    /// How it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection, which speaks RESP.
    ///
    /// # Errors
    /// When the store's thread has ended, which it does only by a mistake of ours.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let (ours, theirs) = duplex(PIPE_BYTES);
        let sent = self.running.streams.as_ref().is_some_and(|to| to.send(theirs).is_ok());
        if sent {
            return Ok(ours);
        }
        let words = format!("the store '{}' has ended", self.name);
        Err(io::Error::new(io::ErrorKind::BrokenPipe, words))
    }
}

async fn accept<S: Store + 'static>(
    shared: Rc<Shared<S>>,
    mut coming: UnboundedReceiver<DuplexStream>,
) {
    while let Some(stream) = coming.recv().await {
        let shared = Rc::clone(&shared);
        tokio::task::spawn_local(async move {
            if let Err(error) = serve(&shared, stream).await {
                tracing::warn!(%error, "a connection to a store has ended");
            }
        });
    }
}
