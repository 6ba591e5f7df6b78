//! The PROXY protocol, versions 1 and 2: a load balancer says whose connection it passes on.
//!
//! It is read from peers that the configuration names and never guessed: whoever could send it
//! unasked would be whoever he likes. Source: the specification of HAProxy,
//! `doc/proxy-protocol.txt`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::Peer;

/// The longest line of version 1, its end included.
const LINE_BYTES_MAX: usize = 107;
/// More than all extensions in use take together.
const HEADER_BYTES_MAX: usize = 4_096;
const WORD: &[u8] = b"PROXY ";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family and length of version 2.
const FIXED_BYTES: usize = 16;

/// Whether these are the first bytes of a header.
pub fn begins_proxy_header(bytes: &[u8]) -> bool {
    bytes.starts_with(WORD) || bytes.starts_with(SIGNATURE)
}

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// The peer itself is the client: a check of its own.
    Local,
    /// Who the client is, and the address it reached.
    Of(Peer),
}

/// Reads the header off a stream and nothing else; says who the client is.
///
/// # Errors
/// When something else comes first, or the stream ends.
pub(super) async fn read(stream: &mut TcpStream, peer: Peer) -> io::Result<Peer> {
    let mut head = Vec::new();
    loop {
        let came = head.len();
        head.resize(came + LINE_BYTES_MAX, 0);
        let count = stream.peek(&mut head[came..]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.truncate(came + count);
        let found = parse(&head).map_err(|expected| {
            let start = String::from_utf8_lossy(&head[..head.len().min(16)]).into_owned();
            let words = format!("got {start:?}, expected {expected} of the PROXY protocol");
            io::Error::new(io::ErrorKind::InvalidData, words)
        })?;
        let end = found.map_or(head.len(), |(_, length)| length);
        stream.read_exact(&mut head[came..end]).await?; // it is there: takes it off
        match found {
            None => {}
            Some((Said::Local, _)) => return Ok(peer),
            Some((Said::Of(client), _)) => return Ok(client),
        }
    }
}

/// What a header says and its length in bytes, or `None` while it is not whole. The error says what
/// should be there.
fn parse(head: &[u8]) -> Result<Option<(Said, usize)>, &'static str> {
    let known = head.len().min(SIGNATURE.len());
    if head[..known] == SIGNATURE[..known] {
        return parse_binary(head);
    }
    let known = head.len().min(WORD.len());
    if head[..known] != WORD[..known] {
        return Err("the header");
    }
    let line = &head[..head.len().min(LINE_BYTES_MAX)];
    match line.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some((parse_line(&head[..end])?, end + 1))),
        None if head.len() >= LINE_BYTES_MAX => Err("a line of at most 107 bytes"),
        None => Ok(None),
    }
}

/// `PROXY TCP4 192.0.2.1 10.0.0.1 4711 443`
fn parse_line(line: &[u8]) -> Result<Said, &'static str> {
    let line = line.strip_suffix(b"\r").and_then(|line| str::from_utf8(line).ok());
    let line = line.ok_or("a line that ends with CR LF")?;
    let fields: Vec<&str> = line.split(' ').collect();
    let expected = "PROXY TCP4 or TCP6, two addresses and two ports";
    let (is_v4, fields) = match fields.as_slice() {
        ["PROXY", "UNKNOWN", ..] => return Ok(Said::Local),
        ["PROXY", "TCP4", fields @ ..] => (true, fields),
        ["PROXY", "TCP6", fields @ ..] => (false, fields),
        _ => return Err(expected),
    };
    let &[source, destination, from, to] = fields else { return Err(expected) };
    let address = |ip: &str, port: &str| {
        let ip = ip.parse::<IpAddr>().ok().filter(|ip| ip.is_ipv4() == is_v4)?;
        let is_plain = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = is_plain.then(|| port.parse().ok()).flatten()?;
        Some(SocketAddr::new(ip, port))
    };
    let (client, local) = address(source, from).zip(address(destination, to)).ok_or(expected)?;
    Ok(Said::Of(Peer { address: client, local }))
}

fn parse_binary(head: &[u8]) -> Result<Option<(Said, usize)>, &'static str> {
    let Some((fixed, rest)) = head.split_at_checked(FIXED_BYTES) else { return Ok(None) };
    let [version_and_command, family, high, low] = [fixed[12], fixed[13], fixed[14], fixed[15]];
    if version_and_command >> 4 != 2 {
        return Err("version 2");
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if FIXED_BYTES + length > HEADER_BYTES_MAX {
        return Err("a header of at most 4096 bytes");
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    let said = match (version_and_command & 0xf, family) {
        (0, _) => Said::Local,
        (1, 0x11) => Said::Of(addresses::<4>(body, |it| Ipv4Addr::from(it).into())?),
        (1, 0x21) => Said::Of(addresses::<16>(body, |it| Ipv6Addr::from(it).into())?),
        (1, _) => Said::Local, // neither TCP over IPv4 nor IPv6: nothing to tell
        _ => return Err("the command LOCAL or PROXY"),
    };
    Ok(Some((said, FIXED_BYTES + length)))
}

/// Two addresses of this many bytes, and their ports. What follows are extensions.
fn addresses<const BYTES: usize>(
    body: &[u8],
    ip: impl Fn([u8; BYTES]) -> IpAddr,
) -> Result<Peer, &'static str> {
    let short = "two addresses and two ports";
    let (source, rest) = body.split_first_chunk::<BYTES>().ok_or(short)?;
    let (destination, rest) = rest.split_first_chunk::<BYTES>().ok_or(short)?;
    let (from, rest) = rest.split_first_chunk::<2>().ok_or(short)?;
    let (to, _) = rest.split_first_chunk::<2>().ok_or(short)?;
    let address = |address: &[u8; BYTES], port: &[u8; 2]| {
        SocketAddr::new(ip(*address), u16::from_be_bytes(*port))
    };
    Ok(Peer { address: address(source, from), local: address(destination, to) })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use evenkeel_settings::Node;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::super::{
        AcceptConfig, Link, Listener, ListenerFilters, ServeConnection, StopSignal, Stream, accept,
        worker_runtime,
    };
    use super::*;
    use crate::networks::Networks;

    fn peer(address: &str, local: &str) -> Said {
        Said::Of(Peer { address: address.parse().unwrap(), local: local.parse().unwrap() })
    }

    fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [SIGNATURE.as_slice(), &[command, family], &length, body].concat()
    }

    #[test]
    fn both_versions_say_who_the_client_is() {
        let v4 = peer("192.0.2.1:4711", "10.0.0.1:443");
        let v6 = peer("[2001:db8::1]:1", "[::1]:65535");
        let of_v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 1, 0xbb];
        let mut of_v6 = [0; 36];
        of_v6[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        (of_v6[15], of_v6[31], of_v6[33], of_v6[34], of_v6[35]) = (1, 1, 1, 255, 255);
        let extended = [&of_v4[..], &[4, 0, 1, 9]].concat();
        for (head, said) in [
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 443\r\n".to_vec(), v4),
            (b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n".to_vec(), v6),
            (b"PROXY UNKNOWN\r\n".to_vec(), Said::Local),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), Said::Local),
            (binary(0x21, 0x11, &of_v4), v4),
            (binary(0x21, 0x11, &extended), v4),
            (binary(0x21, 0x21, &of_v6), v6),
            (binary(0x20, 0, &[]), Said::Local),
            (binary(0x21, 0x31, &[7; 216]), Said::Local),
        ] {
            let whole = [&head[..], b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(parse(&whole), Ok(Some((said, head.len()))), "{head:?}");
            for cut in 0..head.len() {
                assert_eq!(parse(&head[..cut]), Ok(None), "{cut} of {head:?}");
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let long = [&b"PROXY TCP4 "[..], &[b'1'; 200]].concat();
        for head in [
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"PROXY".to_vec().into_iter().chain(*b"X").collect(),
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 443\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 ::1 4711 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 65536\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 10.0.0.1 +4711 443\r\n".to_vec(),
            b"PROXY TCP4  192.0.2.1 10.0.0.1 4711 443\r\n".to_vec(),
            b"proxy TCP4 192.0.2.1 10.0.0.1 4711 443\r\n".to_vec(),
            long,
            binary(0x11, 0x11, &[0; 12]),
            binary(0x22, 0x11, &[0; 12]),
            binary(0x21, 0x11, &[0; 11]),
            binary(0x21, 0x21, &[0; 35]),
            binary(0x20, 0, &[0; 4_081]),
        ] {
            assert!(parse(&head).is_err(), "{:?}", String::from_utf8_lossy(&head));
        }
    }

    /// Tells a client who it is.
    struct Names;

    impl ServeConnection for Names {
        async fn serve(self: Rc<Self>, mut stream: Stream, peer: Peer, _: Rc<Link>) {
            let _ = stream.write_all(format!("{} {}", peer.address, peer.local).as_bytes()).await;
        }
    }

    /// What is answered to what is sent in these pieces.
    async fn told(address: SocketAddr, pieces: &[&[u8]]) -> String {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.set_nodelay(true).unwrap();
        for piece in pieces {
            client.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut told = String::new();
        let _ = client.read_to_string(&mut told).await; // refused ones may be reset
        told
    }

    #[test]
    fn only_peers_that_are_named_say_who_a_client_is_and_they_must() {
        let runtime = worker_runtime().unwrap();
        let serve = |from: &str| {
            let node = Node::parse(&format!("from = ['{from}']"), "test.toml").unwrap();
            let from = node.read(|table| Networks::read(table.key("from"))).unwrap();
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.address().unwrap();
            let handshake = std::time::Duration::from_millis(300);
            let filters = ListenerFilters { proxy_protocol: from, tls: None };
            let config = AcceptConfig { filters, handshake, ..AcceptConfig::unlimited() };
            let never = StopSignal::never();
            tokio::task::spawn_local(accept(listener, config.fixed(), Rc::new(Names), never));
            address
        };
        runtime.block_on(async {
            let proxied = serve("127.0.0.0/8");
            let line = b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 443\r\n";
            let expected = "192.0.2.1:4711 10.0.0.1:443";
            assert_eq!(told(proxied, &[line]).await, expected);
            assert_eq!(told(proxied, &[&line[..3], &line[3..20], &line[20..]]).await, expected);
            let body = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 1, 0xbb];
            let whole = binary(0x21, 0x11, &[&body[..], &[0; 900]].concat());
            assert_eq!(told(proxied, &[&whole[..200], &whole[200..]]).await, expected);
            let own = told(proxied, &[b"PROXY UNKNOWN\r\n"]).await;
            assert!(own.starts_with("127.0.0.1:"), "{own}");
            for refused in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4", b""] {
                assert_eq!(told(proxied, &[refused]).await, "", "{refused:?}");
            }
            let plain = told(serve("10.0.0.0/8"), &[]).await;
            assert!(plain.starts_with("127.0.0.1:"), "whoever is not named is himself: {plain}");
        });
    }

    proptest! {
        /// Whatever comes: no panic, and a header is no longer than what came and than the limit.
        #[test]
        fn any_bytes_are_a_header_or_not(
            start in prop::sample::select(vec![b"".to_vec(), b"PROXY TCP4 ".to_vec(),
                SIGNATURE.to_vec(), [SIGNATURE.as_slice(), &[0x21, 0x11, 0]].concat()]),
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let head = [start, rest].concat();
            if let Ok(Some((_, length))) = parse(&head) {
                prop_assert!(length <= head.len() && length <= HEADER_BYTES_MAX);
            }
        }
    }
}
