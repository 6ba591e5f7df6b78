//! Who sent a request.

use std::net::SocketAddr;

use http::HeaderValue;

/// Who sent a request. Shared by all requests of a connection.
#[derive(Debug, Clone)]
pub struct Client {
    /// The peer's address.
    pub address: SocketAddr,
    /// The peer's IP address as the value of a header, so that none is formatted per request.
    pub forwarded_for: HeaderValue,
    /// Whether it showed a certificate that its listener asks for.
    pub is_certified: bool,
}

impl Client {
    /// One that showed no certificate.
    pub fn new(address: SocketAddr) -> Client {
        let text = address.ip().to_canonical().to_string();
        let forwarded_for = HeaderValue::from_str(&text).expect("an IP address is a header value");
        Client { address, forwarded_for, is_certified: false }
    }
}
