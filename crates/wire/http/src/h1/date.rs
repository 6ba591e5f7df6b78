//! The line `date`, written once a second.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

thread_local! {
    /// The second, and its line.
    static LINE: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Appends the line of this second.
pub(super) fn write(bytes: &mut Vec<u8>) {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LINE.with_borrow_mut(|(written, line)| {
        if *written != second || line.is_empty() {
            (*written, *line) = (second, format!("date: {}\r\n", httpdate::fmt_http_date(now)));
        }
        bytes.extend_from_slice(line.as_bytes());
    });
}
