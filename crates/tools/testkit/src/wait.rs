//! Waiting for a state, never for a time: a busy machine makes a test longer, not wrong.
//!
//! [`until`] lets other tasks of the thread go on; [`block_until`] holds the thread up. Both give
//! up after [`PATIENCE`], and say what they waited for.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Longer than anything takes that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Tells threads that go on until a flag is set to end, also where the test fails.
///
/// A scope waits for its threads before it hands on why it failed: without this a test that fails
/// says nothing, and never ends.
pub struct OverAtEnd<'a>(pub &'a AtomicBool);

/// Does something where it is dropped, also where a test fails, as [`OverAtEnd`] does.
pub struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Drop for OverAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until something holds.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(PATIENCE, what, holds).await;
}

/// The same, where another limit is part of what is tested.
///
/// # Panics
/// After the limit.
pub async fn until_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let look = async || holds().then_some(());
    found_within(limit, what, look).await;
}

/// Waits until a look that takes time itself finds something; answers that.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn found<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    found_within(PATIENCE, what, look).await
}

/// The same within another limit.
///
/// # Panics
/// After the limit.
pub async fn found_within<T>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until something holds, where nothing else is to go on in this thread.
///
/// # Panics
/// After [`PATIENCE`].
#[track_caller]
pub fn block_until(what: &str, holds: impl FnMut() -> bool) {
    block_until_within(PATIENCE, what, holds);
}

/// The same within another limit.
///
/// # Panics
/// After the limit.
#[track_caller]
pub fn block_until_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    block_for_within(limit, what, || holds().then_some(()));
}

/// Waits until a look finds something; answers that.
///
/// # Panics
/// After [`PATIENCE`].
#[track_caller]
pub fn block_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    block_for_within(PATIENCE, what, look)
}

/// The same within another limit.
///
/// # Panics
/// After the limit.
#[track_caller]
pub fn block_for_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until what a service tells of itself is as wanted; answers that.
///
/// # Panics
/// After [`PATIENCE`], with the state as it is then.
pub async fn state<T: Debug>(
    reported: &watch::Receiver<Arc<T>>,
    wanted: impl Fn(&T) -> bool,
) -> Arc<T> {
    let mut reported = reported.clone();
    let found = tokio::time::timeout(PATIENCE, reported.wait_for(|state| wanted(state))).await;
    let found = found.map(|found| found.map(|state| Arc::clone(&state)));
    found.ok().and_then(Result::ok).unwrap_or_else(|| panic!("in vain: {:#?}", reported.borrow()))
}

/// The same, where nothing else is to go on in this thread.
///
/// # Panics
/// After [`PATIENCE`], with the state as it is then.
#[track_caller]
pub fn block_state<T: Debug>(
    reported: &watch::Receiver<Arc<T>>,
    wanted: impl Fn(&T) -> bool,
) -> Arc<T> {
    let began = Instant::now();
    loop {
        let state = Arc::clone(&reported.borrow());
        if wanted(&state) {
            return state;
        }
        assert!(began.elapsed() < PATIENCE, "in vain: {state:#?}");
        std::thread::sleep(PAUSE);
    }
}
