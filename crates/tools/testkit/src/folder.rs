//! Folders of a test's own.

use std::path::{Path, PathBuf};

/// An empty folder, removed at its end unless the test has failed.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// One of this name. Tests of one process need names of their own.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("evenkeel-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("temporary folders can be made");
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where a file in it is, or would be.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("files of the test stay in {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
