//! Connections to servers, wherever these are: by address, by name or by path.

use std::io;
use std::net::SocketAddr;

pub use evenkeel_dns::Names;
use evenkeel_settings::address::ServerAddress;
use tokio::net::{TcpStream, UnixStream};

use crate::stream::Stream;
use crate::tls::ClientTls;

/// Opens a connection without delay for small messages, encrypted where so asked. The caller limits
/// the time.
///
/// # Errors
/// When it does not come about.
pub async fn dial(server: impl Into<ServerAddress>, tls: Option<&ClientTls>) -> io::Result<Stream> {
    let server = server.into();
    let stream = match server {
        ServerAddress::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
        ServerAddress::Inet(_) | ServerAddress::Name { .. } => Stream::Plain(tcp(server).await?),
    };
    match tls {
        None => Ok(stream),
        Some(tls) => tls.connect(stream, server).await,
    }
}

/// Opens a connection to an address, or to one of those that a name leads to ([`Names`] of the
/// thread), without delay for small messages.
///
/// # Errors
/// When it does not come about; of several addresses the last one's error.
pub async fn tcp(server: ServerAddress) -> io::Result<TcpStream> {
    let stream = match server {
        ServerAddress::Inet(address) => TcpStream::connect(address).await?,
        ServerAddress::Name { host, port } => to_any(host, port).await?,
        ServerAddress::Unix(path) => {
            let words = format!("{path} is no address of TCP");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn to_any(host: &str, port: u16) -> io::Result<TcpStream> {
    let names = Names::of_thread();
    let addresses = names.addresses(host).await?;
    let mut last = io::ErrorKind::HostUnreachable.into();
    // Whoever gives up while one is silent begins with the one behind it the next time.
    let next = addresses.iter().cycle().skip(1);
    for (&ip, &next) in addresses.iter().zip(next) {
        names.prefer(host, next);
        let address = SocketAddr::new(ip, port);
        match TcpStream::connect(address).await {
            Ok(stream) => {
                names.prefer(host, ip);
                return Ok(stream);
            }
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    names.doubt(host);
    Err(last)
}

/// Where a server is by number: all addresses of a name, the one to try first in front. The caller
/// limits the time.
///
/// # Errors
/// When nothing is known of the name.
pub async fn addresses(server: ServerAddress) -> io::Result<Vec<SocketAddr>> {
    let ServerAddress::Name { host, port } = server else { return Ok(last(server)) };
    let found = Names::of_thread().addresses(host).await?;
    Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

/// The same as it was last, without a look-up.
pub fn last(server: ServerAddress) -> Vec<SocketAddr> {
    match server {
        ServerAddress::Inet(address) => vec![address],
        ServerAddress::Name { host, port } => {
            let known = Names::of_thread().last(host);
            known.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
        }
        ServerAddress::Unix(_) => Vec::new(),
    }
}
