//! File EDS: what Envoy watches, written whole and renamed into place.
//!
//! Envoy reads the file when something is *moved* into the directory it watches, so it never sees
//! half a file; the temporary name is in the same directory, hence on the same file system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::assignment::Assignment;

/// After a failure (a full disk, a missing directory) it is tried again this much later.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the file of one cluster like its assignment, for ever. `wrote` is told of every try.
pub(super) async fn keep(
    directory: PathBuf,
    mut assignments: watch::Receiver<Arc<Assignment>>,
    wrote: impl Fn(bool),
) {
    let mut is_failing = false;
    loop {
        let assignment = Arc::clone(&assignments.borrow_and_update());
        let result = write(&directory, &assignment);
        wrote(result.is_ok());
        if let Err(error) = &result
            && !is_failing
        {
            let (cluster, again) = (&assignment.cluster, RETRY);
            let message = "Envoy is not told: its file cannot be written";
            tracing::error!(cluster, ?directory, %error, ?again, "{message}");
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

/// Writes the file of one cluster.
///
/// # Errors
/// When the file cannot be written or renamed.
pub(super) fn write(directory: &Path, assignment: &Assignment) -> io::Result<()> {
    let name = format!("{}.json", assignment.cluster);
    let temporary = directory.join(format!(".{name}.new"));
    std::fs::write(&temporary, assignment.to_json())?;
    std::fs::rename(&temporary, directory.join(name))
}
