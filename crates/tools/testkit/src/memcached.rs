//! Real memcached servers.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::program::Program;
use crate::story::skipped;

/// Starts one that listens there and keeps so many MB. `None`, said aloud, where it is not
/// installed.
///
/// # Panics
/// When it does not start.
#[must_use]
pub fn start(address: SocketAddr, memory: &str) -> Option<Program> {
    let host = address.ip().to_string();
    let mut command = Command::new("memcached");
    command
        .args(["-l", &host, "-U", "0", "-u", "nobody", "-M", "-m", memory, "-p"])
        .arg(address.port().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Some(mut program) = Program::start_if_installed(&mut command) else {
        skipped("no memcached (Debian package memcached)");
        return None;
    };
    program.wait_listening(address);
    Some(program)
}
