//! What was made of files, made anew when their contents change.
//!
//! Contents are compared, not times: tools that rotate certificates replace links, copy, or write
//! in place. Files that do not fit together, such as a new certificate beside the old key, change
//! nothing; they are read again soon, and the log says it once.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use crate::pem;

/// How often files are compared with what is in use.
pub const CHECKED_EVERY: Duration = Duration::from_secs(10);

/// The contents of files, in their order.
pub(super) type Contents = Vec<Vec<u8>>;

/// All of this process, those that nobody uses any more left out when it is next looked at.
static ALL: Mutex<Vec<Weak<dyn Refresh>>> = Mutex::new(Vec::new());

trait Refresh: Send + Sync {
    fn refresh(&self);
}

type Make<T> = Box<dyn Fn(&Contents) -> io::Result<T> + Send + Sync>;

/// What was made of files.
pub(super) struct Live<T> {
    files: Vec<PathBuf>,
    make: Make<T>,
    current: RwLock<Arc<T>>,
    /// What it was made of, or last failed to be.
    seen: Mutex<Contents>,
}

impl<T: Send + Sync + 'static> Live<T> {
    /// Reads the files and makes it.
    ///
    /// # Errors
    /// When one cannot be read, or `make` fails.
    pub(super) fn open(
        files: Vec<PathBuf>,
        make: impl Fn(&Contents) -> io::Result<T> + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let seen = contents(&files)?;
        let current = RwLock::new(Arc::new(make(&seen)?));
        let make = Box::new(make);
        let live = Arc::new(Self { files, make, current, seen: Mutex::new(seen) });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        let weak: Weak<Self> = Arc::downgrade(&live);
        all.push(weak);
        Ok(live)
    }

    /// As of now. One look per handshake.
    pub(super) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the files; whether it was made anew.
    ///
    /// # Errors
    /// When they have changed to something that cannot be used. The error comes once for each
    /// change, and what was in use stays so.
    pub(super) fn look(&self) -> io::Result<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = match contents(&self.files) {
            Ok(now) if *seen == now => return Ok(false),
            Ok(now) => now,
            // Gone, and said so already.
            Err(_) if seen.is_empty() => return Ok(false),
            Err(error) => {
                seen.clear();
                return Err(error);
            }
        };
        seen.clone_from(&now);
        let made = (self.make)(&now)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(made);
        Ok(true)
    }
}

impl<T: Send + Sync + 'static> Refresh for Live<T> {
    fn refresh(&self) {
        let file = self.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        match self.look() {
            Ok(false) => {}
            Ok(true) => tracing::info!(file, "certificates changed and are used from now on"),
            Err(error) => {
                tracing::warn!(file, %error, "certificates changed and cannot be used: those \
                               before stay in use");
            }
        }
    }
}

impl<T> fmt::Debug for Live<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Live({:?})", self.files)
    }
}

fn contents(files: &[PathBuf]) -> io::Result<Contents> {
    files.iter().map(|file| pem::read(file)).collect()
}

/// Looks at all files in use from time to time, for as long as it is polled. Without any it sleeps
/// all the same: they may come with a reload.
pub async fn keep_fresh() {
    loop {
        tokio::time::sleep(CHECKED_EVERY).await;
        let all: Vec<_> = {
            let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        all.iter().for_each(|live| live.refresh());
    }
}
