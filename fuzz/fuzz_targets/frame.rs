//! Any bytes as what an authenticated peer sends over the mesh: frames, and rows in them.
//!
//! Promise: a frame, none yet or an error, never a panic, at once when a length is impossible; what
//! is read is written as the same bytes; a row that is no row changes nothing in the exchange.

#![no_main]

use evenkeel_core::Instant;
use evenkeel_geo::epoch::{EpochConfig, EpochSync, SiteId};
use evenkeel_mesh::frame::{FRAME_BYTES_MAX, Frame, decode};
use libfuzzer_sys::fuzz_target;

const UNIX_NS: u64 = 1_790_000_000_000_000_000;

fuzz_target!(|data: &[u8]| {
    let config = EpochConfig::new(SiteId::new(0), 3);
    let mut sync = EpochSync::new(config).expect("the defaults are sound");
    let mut rest = data;
    let mut rows = 0;
    loop {
        match decode(rest) {
            Ok(Some((frame, length))) => {
                assert!(length <= FRAME_BYTES_MAX);
                assert_eq!(frame.bytes(), &rest[..length], "what is read is what was written");
                if let Frame::Row(row) = frame {
                    rows += 1;
                    let peer = SiteId::new(usize::from(row.len() % 2 == 0) + 1);
                    let _ = sync.receive(Instant::ZERO, UNIX_NS, peer, row);
                }
                rest = &rest[length..];
            }
            Ok(None) => {
                assert!(rest.len() < FRAME_BYTES_MAX, "no frame is longer");
                break;
            }
            Err(nonsense) => {
                assert!(!nonsense.to_string().is_empty());
                break;
            }
        }
    }
    let counts = sync.counts();
    let judged = counts.in_time + counts.late + counts.again + counts.rejected.iter().sum::<u64>();
    assert_eq!(judged, rows, "every row is counted once");
});
