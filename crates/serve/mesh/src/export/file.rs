//! Files that are there whole or not at all: written beside their place, brought to the disk, then
//! renamed into it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Puts a text in the place of a file. After an error what was there is still there.
///
/// # Errors
/// When the disk is full or read-only, or there is no such directory.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    let hidden: OsString = [".".as_ref(), name, ".new".as_ref()].into_iter().collect();
    let beside = path.with_file_name(hidden);
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        if file.metadata()?.is_file() {
            file.sync_all()?; // else a power failure may leave an empty file in its place
        }
        Ok(())
    };
    write().and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        // What a full disk took of it is of no use to anybody.
        let _ = std::fs::remove_file(&beside);
    })
}
