//! The simplest client of HTTP: a new connection for each request, read to its end.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::wait::PATIENCE;

/// The whole answer to a GET, head and all.
///
/// # Panics
/// When nobody answers.
#[must_use]
#[track_caller]
pub fn get(address: SocketAddr, path: &str) -> String {
    try_get(address, path).unwrap_or_else(|error| panic!("GET {path} from {address}: {error}"))
}

/// The same, where there may be nobody.
///
/// # Errors
/// When the connection fails.
pub fn try_get(address: SocketAddr, path: &str) -> io::Result<String> {
    exchange(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
    )
}

/// The whole answer to a POST of JSON.
///
/// # Errors
/// When the connection fails.
pub fn try_post(address: SocketAddr, path: &str, json: &str) -> io::Result<String> {
    let length = json.len();
    exchange(
        address,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{json}"
        ),
    )
}

/// What follows the head of an answer.
///
/// # Panics
/// When there is no head.
#[must_use]
#[track_caller]
pub fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {answer:?}")).1
}

/// Sends a request that asks for the connection to be closed, and reads until it is.
fn exchange(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
