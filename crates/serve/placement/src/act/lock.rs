//! One mover per cluster on this machine: a file that the operating system locks.
//!
//! For stores that offer no lock of their own. The lock ends with its process, however that ends;
//! the file stays, since removing it would let two hold different files of one name.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use evenkeel_stores::clients::error::RemoteError;

/// A lock that is held; dropping it lets go.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes the lock, and writes into the file who has it.
    ///
    /// # Errors
    /// When another process, or another place in this one, has it, with who; or when the file
    /// cannot be opened.
    pub fn take(path: &Path, who: &str) -> Result<Self, RemoteError> {
        let shown = path.display();
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened
            .map_err(|error| RemoteError::lasting(format!("the lock file {shown}: {error}")))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            // Only for the words of the error.
            let _ = (&file).take(200).read_to_string(&mut holder);
            let holder = holder.trim();
            return Err(RemoteError::passing(format!(
                "{shown} is locked by {}: a move is under way",
                if holder.is_empty() { "another process" } else { holder }
            )));
        }
        let written = file.set_len(0).and_then(|()| file.rewind());
        written
            .and_then(|()| writeln!(file, "{who}"))
            .map_err(|error| RemoteError::lasting(format!("the lock file {shown}: {error}")))?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_told_who_has_it_and_gets_it_afterwards() {
        let path = std::env::temp_dir().join(format!("evenkeel-lock-{}", std::process::id()));
        let first = FileLock::take(&path, "the first").unwrap();
        let refused = FileLock::take(&path, "the second").unwrap_err();
        assert!(refused.message.contains("by the first: a move"), "{refused}");
        drop(first);
        FileLock::take(&path, "the second").unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
