//! Any bytes as what a store's server sends: ZooKeeper's messages and its words about itself, and
//! NATS's frames.
//!
//! Promise: a value or an error, never a panic; nothing is read twice or from beyond the end; a
//! configuration that was read is written as one that reads the same.

#![no_main]

use evenkeel_stores::clients::nats::wire::{LINE_BYTES_MAX, MESSAGE_BYTES_MAX, next};
use evenkeel_stores::clients::zookeeper::wire;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (wire::connected(data), wire::data(data));
    if let Ok(reply) = wire::reply(data) {
        assert!(data.ends_with(reply.body));
        assert!(!wire::error_of_code(reply.error).message.is_empty());
    }
    let text = String::from_utf8_lossy(data);
    let _ = wire::status(&text);
    if let Ok(config) = wire::config(&text) {
        let lines = config.servers.iter().map(|server| server.line() + "\n");
        let written = lines.chain([format!("version={:x}", config.version)]).collect::<String>();
        assert_eq!(wire::config(&written), Ok(config));
    }
    let mut rest = data;
    while let Ok(read) = next(rest) {
        let Some((_, used)) = read else {
            assert!(rest.len() < LINE_BYTES_MAX + MESSAGE_BYTES_MAX + 2, "no frame is longer");
            break;
        };
        assert!(used >= 2);
        rest = &rest[used..];
    }
});
