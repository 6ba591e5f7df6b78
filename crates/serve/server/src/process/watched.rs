//! Whether the configuration file has changed.
//!
//! Its contents are compared, as are those of certificates and lists of replicas: that finds a file
//! that was written, replaced by `rename` or by a symbolic link (`..data` of Kubernetes), on every
//! file system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

/// Between two looks.
const LOOKED_EVERY: Duration = Duration::from_secs(1);

/// How long contents stay the same when whoever writes is done.
const SETTLED_AFTER: Duration = Duration::from_millis(200);

/// Between two attempts to use a file that names something which cannot be used yet.
const RETRIED_EVERY: Duration = Duration::from_secs(5);

/// A file that is looked at.
#[derive(Debug)]
pub struct Watch {
    file: PathBuf,
    /// `None`: it could not be read.
    seen: Option<Vec<u8>>,
    retries: bool,
}

impl Watch {
    /// Looks for changes from now on. Call it before the file is read.
    #[must_use]
    pub fn new(file: &Path) -> Self {
        let mut watch = Self { file: file.to_owned(), seen: None, retries: false };
        watch.look();
        watch
    }

    /// The file is about to be read: only what comes later is a change.
    pub fn look(&mut self) {
        self.seen = std::fs::read(&self.file).ok();
    }

    /// Whether the file is tried again although it has not changed: it names something that may be
    /// there later, such as a certificate.
    pub const fn retry(&mut self, retries: bool) {
        self.retries = retries;
    }

    /// Waits for a change that is complete.
    pub(super) async fn changed(&mut self) {
        let change = async {
            loop {
                sleep(LOOKED_EVERY).await;
                let mut now = std::fs::read(&self.file).ok();
                while now != self.seen {
                    sleep(SETTLED_AFTER).await;
                    let again = std::fs::read(&self.file).ok();
                    if again == now {
                        return;
                    }
                    now = again;
                }
            }
        };
        match self.retries {
            true => drop(tokio::time::timeout(RETRIED_EVERY, change).await),
            false => change.await,
        }
    }
}
