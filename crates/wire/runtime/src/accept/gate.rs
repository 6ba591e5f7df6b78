//! Sockets are there before anybody may be served: a gate before them.

use std::sync::Arc;

use tokio::sync::watch;

/// Keeps listeners from accepting until it is opened; clients wait in the kernel's backlog, or are
/// served by another process that has the same sockets. It opens once.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// A gate that is closed.
    pub fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Lets everybody in from now on.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn opened(&self) {
        let is_open = self.0.subscribe().wait_for(|is_open| *is_open).await.is_ok();
        debug_assert!(is_open, "this one keeps the sender");
    }
}
