//! A connection's bytes cut into envelopes, and envelopes joined to bytes.
//!
//! A connection begins with envelopes one after the other. STARTUP agrees on a version and a
//! compression, and from its answer on v4 compresses the bodies of single envelopes, while v5 puts
//! envelopes into segments that are checked and compressed as a whole ([`segment`]). Whoever leads
//! the conversation tells both directions when that is: see [`Decoder::start`] and
//! [`Encoder::start`].

mod checksum;
mod compression;
mod decoder;
mod encoder;
pub mod segment;

pub use compression::Compression;
pub use decoder::Decoder;
pub use encoder::Encoder;

/// Who sends what is decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// A driver: requests.
    Client,
    /// A node: responses.
    Server,
}

/// What a decoder accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest body of an envelope, bytes, compressed or not; below 2 GiB.
    pub envelope_bytes_max: usize,
}

impl Default for Limits {
    /// 16 MiB, as Cassandra 5.0's `native_transport_max_frame_size`.
    fn default() -> Self {
        Self { envelope_bytes_max: 16 << 20 }
    }
}
