//! Where a layout is kept: a file, unless processes take turns (`etcd_store.rs`).

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;

use super::{LAYOUT_BYTES_MAX, Layout};

/// Something that is waited for on the service's thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Keeps a layout. What `store` has confirmed every later `load` of anybody returns, until the next
/// `store`.
pub trait MapStore: fmt::Debug {
    /// Where that is, for errors and journals.
    fn place(&self) -> String;

    /// What is there; `None` = nothing was ever stored.
    fn load(&self) -> LocalFuture<'_, io::Result<Option<Layout>>>;

    /// Replaces the layout of version `expected` (0 = nothing is there) by this one. When it
    /// returns, it is durable.
    fn store<'a>(
        &'a self,
        expected: u64,
        layout: &'a Layout,
    ) -> LocalFuture<'a, Result<(), StoreError>>;
}

/// Why a layout was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody stored another one. Certainly not stored.
    #[error("another process has stored version {found} of the layout")]
    Conflict {
        /// The version that is there.
        found: u64,
    },
    /// Another process may lead by now. Certainly not stored, and never to be.
    #[error("the layout is another's to store: {0}")]
    Deposed(io::Error),
    /// Certainly not stored.
    #[error("the layout was not stored: {0}")]
    Refused(io::Error),
    /// Nobody knows. The caller loads until it knows, and serves as before meanwhile.
    #[error("whether the layout is stored is not known: {0}")]
    Unknown(io::Error),
}

/// Where the configuration says a layout is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapPlace {
    /// A file beside the log.
    File(PathBuf),
}

impl MapPlace {
    /// The store.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(&self) -> io::Result<Rc<dyn MapStore>> {
        match self {
            Self::File(path) => Ok(Rc::new(FileStore { path: path.clone() })),
        }
    }
}

/// A file that is replaced whole. Who writes it holds the lock of the log.
#[derive(Debug)]
struct FileStore {
    path: PathBuf,
}

impl FileStore {
    fn read(&self) -> io::Result<Option<Layout>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(named(&self.path, "open it", &error)),
        };
        let mut bytes = Vec::new();
        let read = file.take(LAYOUT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| named(&self.path, "read it", &error))?;
        let layout = Layout::decode(&bytes)
            .map_err(|why| io::Error::other(format!("{}: it holds {why}", self.path.display())))?;
        Ok(Some(layout))
    }

    fn write(&self, expected: u64, layout: &Layout) -> Result<(), StoreError> {
        let found = self.read().map_err(StoreError::Refused)?;
        let found = found.map_or(0, |layout| layout.version());
        if found != expected {
            return Err(StoreError::Conflict { found });
        }
        let beside = self.path.with_extension("new");
        let written = File::create(&beside).and_then(|mut file| {
            file.write_all(&layout.encode())?;
            file.sync_all()
        });
        written.map_err(|error| StoreError::Refused(named(&beside, "write it", &error)))?;
        let renamed = fs::rename(&beside, &self.path);
        renamed.map_err(|error| StoreError::Refused(named(&self.path, "replace it", &error)))?;
        // The name may be the old one after a crash of the machine, if this fails.
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| StoreError::Unknown(named(directory, "sync it", &error)))
    }
}

fn named(path: &Path, doing: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: cannot {doing}: {error}", path.display()))
}

impl MapStore for FileStore {
    fn place(&self) -> String {
        format!("the file {}", self.path.display())
    }

    fn load(&self) -> LocalFuture<'_, io::Result<Option<Layout>>> {
        Box::pin(async { self.read() })
    }

    fn store<'a>(
        &'a self,
        expected: u64,
        layout: &'a Layout,
    ) -> LocalFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.write(expected, layout) })
    }
}
