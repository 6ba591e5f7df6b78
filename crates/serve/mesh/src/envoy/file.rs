//! File EDS: what Envoy watches, written whole and renamed into place.
//!
//! Envoy reads the file when something is *moved* into the directory it watches, so it never sees
//! half a file; the temporary name is in the same directory, hence on the same file system.
//!
//! **A disk may wait.** Where the directory is on a disk that others write to, replacing a file was
//! seen to take seconds: the one it replaces is freed only when it has been written back (ext4). So
//! a file is written beside the thread that tells Envoys, which goes on to answer those on gRPC;
//! only the newest assignment is written after it. The place for the directory is a file system in
//! memory, as `/run` is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::assignment::Assignment;

/// After a failure (a full disk, a missing directory) it is tried again this much later.
const RETRY: Duration = Duration::from_secs(1);
/// A file that takes longer to write is worth a word: plans are made every few seconds.
const SLOW: Duration = Duration::from_millis(500);

/// Keeps the file of one cluster like its assignment, for ever. `wrote` is told of every try.
/// Call it in a runtime.
pub(super) async fn keep(
    directory: PathBuf,
    mut assignments: watch::Receiver<Arc<Assignment>>,
    wrote: impl Fn(bool),
) {
    let mut is_failing = false;
    loop {
        let assignment = Arc::clone(&assignments.borrow_and_update());
        let (began, cluster) = (Instant::now(), assignment.cluster.clone());
        let to = directory.clone();
        let writing = tokio::task::spawn_blocking(move || write(&to, &assignment));
        let result = writing.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        wrote(result.is_ok());
        let took = began.elapsed();
        match &result {
            Err(error) if !is_failing => {
                let message = "Envoy is not told: its file cannot be written";
                tracing::error!(cluster, ?directory, %error, again = ?RETRY, "{message}");
            }
            Ok(()) if took > SLOW => {
                let message = "Envoy's file was slow to write: put its directory in memory";
                tracing::warn!(cluster, ?directory, ?took, "{message}");
            }
            _ => {}
        }
        is_failing = result.is_err();
        let changed = assignments.changed();
        let is_over = if is_failing {
            tokio::time::timeout(RETRY, changed).await.is_ok_and(|changed| changed.is_err())
        } else {
            changed.await.is_err()
        };
        if is_over {
            return;
        }
    }
}

/// Writes the file of one cluster. May wait for a disk.
fn write(directory: &Path, assignment: &Assignment) -> io::Result<()> {
    let path = directory.join(format!("{}.json", assignment.cluster));
    crate::export::file::replace(&path, &assignment.to_json())
}
