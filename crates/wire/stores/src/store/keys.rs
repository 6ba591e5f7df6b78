//! Keys that Evenkeel keeps in a store beside those of clients.

/// The key that tells what a duplicate has: `EPOCH SEQUENCE`.
pub const WATERMARK: &[u8] = b"evenkeel:watermark";
/// The key that tells whose writes a duplicate takes.
pub const EPOCH: &[u8] = b"evenkeel:epoch";
/// Keys of ours begin with this; clients may not write them.
pub const RESERVED: &[u8] = b"evenkeel:";
