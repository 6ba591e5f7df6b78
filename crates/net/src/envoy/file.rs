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
/// As often it is written again as it is: should an Envoy miss one move, it would go on by an old
/// plan until the next one.
const AGAIN: Duration = Duration::from_secs(2);

/// Keeps the file of one cluster like its assignment, for ever. `wrote` is told of every try to
/// tell something new.
pub(super) async fn keep(
    directory: PathBuf,
    mut assignments: watch::Receiver<Arc<Assignment>>,
    wrote: impl Fn(bool),
) {
    let (mut is_failing, mut is_new) = (false, true);
    loop {
        let assignment = Arc::clone(&assignments.borrow_and_update());
        let result = write(&directory, &assignment);
        if is_new || result.is_err() {
            wrote(result.is_ok());
        }
        if let Err(error) = &result
            && !is_failing
        {
            let (cluster, again) = (&assignment.cluster, RETRY);
            let message = "Envoy is not told: its file cannot be written";
            tracing::error!(cluster, ?directory, %error, ?again, "{message}");
        }
        is_failing = result.is_err();
        let wait = if is_failing { RETRY } else { AGAIN };
        match tokio::time::timeout(wait, assignments.changed()).await {
            Ok(Ok(())) => is_new = true,
            Ok(Err(_)) => return,
            Err(_) => is_new = is_failing,
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
