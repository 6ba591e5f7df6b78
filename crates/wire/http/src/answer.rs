//! What comes of a request that was sent to a replica.

use bytes::Bytes;

use super::body::Body;
use super::h2::inflow::Cause;
use super::message::{Request, response};

/// A response whose head has come.
pub(super) struct Answer {
    pub(super) parts: Box<response::Parts>,
    /// All of its body, if that came along.
    pub(super) whole: Option<Bytes>,
}

/// Why no head of a response came.
pub(super) enum Failure {
    /// Nothing was written.
    Unsent(Box<Request<Body>>, Cause),
    /// The replica ended the connection.
    Reset(Cause),
    /// What came is no HTTP.
    Malformed(Cause),
    /// The client's body broke off.
    RequestBody(Cause),
}
