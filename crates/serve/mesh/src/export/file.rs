//! Files that are there whole or not at all: written beside their place, then renamed into it.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// Puts a text in the place of a file. After an error what was there is still there.
///
/// # Errors
/// When the disk is full or read-only, or there is no such directory.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    let hidden: OsString = [".".as_ref(), name, ".new".as_ref()].into_iter().collect();
    let beside = path.with_file_name(hidden);
    let written = std::fs::write(&beside, text);
    written.and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        // What a full disk took of it is of no use to anybody.
        let _ = std::fs::remove_file(&beside);
    })
}
