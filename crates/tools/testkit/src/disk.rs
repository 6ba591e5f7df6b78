//! A disk that is soon full.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::story::skipped;

/// A file system of its own, in memory; it goes with this.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// So many MiB at this folder. `None`, said aloud, where that is not permitted.
    #[must_use]
    pub fn mount(folder: &Path, mebibytes: u32) -> Option<Self> {
        let size = format!("size={mebibytes}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder).output();
        if mount.is_ok_and(|mount| mount.status.success()) {
            return Some(Self(folder.to_owned()));
        }
        skipped("no file system can be mounted here (who is not root may not)");
        None
    }

    /// Takes all room but some, in bytes.
    ///
    /// # Panics
    /// When its file cannot be made.
    pub fn fill(&self, left: u64) {
        let mut file = std::fs::File::create(self.0.join("ballast")).expect("a file can be made");
        let mut taken = 0;
        while let Ok(count @ 1..) = file.write(&[0; 4_096]) {
            taken += count as u64;
        }
        file.set_len(taken.saturating_sub(left)).expect("a file can be cut");
    }

    /// Gives it back.
    ///
    /// # Panics
    /// When it was not filled.
    pub fn clear(&self) {
        std::fs::remove_file(self.0.join("ballast")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: somebody may have a file open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
