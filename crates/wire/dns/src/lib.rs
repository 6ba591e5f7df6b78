//! Where a name is: A, AAAA and SRV records of DNS servers, and `/etc/hosts`.
//!
//! A stub resolver: it asks the servers of `/etc/resolv.conf` or others, one after the other, and
//! says what they say. It has no cache and no memory. Of replicas others decide who asks again when
//! and what to believe (`evenkeel_core::discovery`); for everybody else who opens connections
//! [`Names`] remembers. Every question has a socket of its own: none
//! can be broken for longer than for one question, and its port is chosen by the system.
//!
//! | file | does |
//! |---|---|
//! | `message.rs` | questions and answers as bytes |
//! | `names.rs` | where names led last, for whoever connects |
//! | `system.rs` | `/etc/hosts`, `/etc/resolv.conf` |
//! | [`update`] | records that a server is told to have |

mod message;
mod names;
mod system;
pub mod update;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use message::{Kind, Odd, Records, Said};
use system::Conf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

pub use message::Service;
pub use names::{Lookups, Names};

/// Rounds through all servers, as the C library makes.
const ROUNDS: usize = 2;

/// How long what `/etc/hosts` says is good.
const HOSTS_TTL: Duration = Duration::from_secs(10);

/// The longest answer over UDP that is read: 512 bytes are allowed without EDNS.
const UDP_BYTES_MAX: usize = 4_096;

/// Asks DNS servers.
#[derive(Clone, Debug)]
pub struct Resolver {
    /// Empty: those of the system.
    servers: Vec<SocketAddr>,
    hosts: PathBuf,
    conf: PathBuf,
}

/// What is known of a name.
#[derive(Debug)]
pub struct Found<T> {
    /// Its records; empty: it does not exist, or has none of this kind.
    pub records: BTreeSet<T>,
    /// How long that is good; zero where there are no records.
    pub ttl: Duration,
    /// Why there may be more records that nobody could tell.
    pub missing: Option<LookupError>,
}

impl<T> Found<T> {
    const fn nobody() -> Self {
        Self { records: BTreeSet::new(), ttl: Duration::ZERO, missing: None }
    }
}

/// Why nothing is known of a name.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// It can be no name: a label is empty or longer than 63 bytes, or all of it than 253.
    #[error("{0:?} is no name of DNS, expected labels of 1 to 63 bytes and 253 in all")]
    NoName(String),
    /// A server has not answered in time.
    #[error("the DNS server {server} sent no answer within {} s", .within.as_secs_f64())]
    Timeout {
        /// Which.
        server: SocketAddr,
        /// The time it had.
        within: Duration,
    },
    /// A server said that it could not or would not answer.
    #[error("the DNS server {server} answered {code}")]
    Refused {
        /// Which.
        server: SocketAddr,
        /// What it said.
        code: &'static str,
    },
    /// A server sent what is no answer.
    #[error("the DNS server {server} sent what is no DNS message")]
    Malformed {
        /// Which.
        server: SocketAddr,
    },
    /// A server cannot be reached.
    #[error("the DNS server {server} cannot be asked: {error}")]
    Unreachable {
        /// Which.
        server: SocketAddr,
        /// Why.
        error: io::Error,
    },
}

impl Resolver {
    /// Asks these servers, or if there are none those of `/etc/resolv.conf`.
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        let [hosts, conf] = ["/etc/hosts", "/etc/resolv.conf"].map(PathBuf::from);
        Self { servers, hosts, conf }
    }

    /// The IPv4 and IPv6 addresses of a name. `/etc/hosts` comes first. `missing` where one kind
    /// was told and the other could not be.
    ///
    /// # Errors
    /// When no server said which it has, or whether it has any.
    pub async fn addresses(&self, name: &str) -> Result<Found<IpAddr>, LookupError> {
        let hosts = tokio::task::spawn_blocking({
            let file = self.hosts.clone();
            move || std::fs::read_to_string(file).unwrap_or_default()
        });
        let known = system::hosts(&hosts.await.unwrap_or_default(), name);
        if !known.is_empty() {
            return Ok(Found { records: known, ttl: HOSTS_TTL, missing: None });
        }
        let conf = self.conf();
        for candidate in conf.candidates(name) {
            let (v4, v6) =
                tokio::join!(ask(&conf, &candidate, Kind::A), ask(&conf, &candidate, Kind::Aaaa));
            let (found, missing) = match (v4, v6) {
                (Ok(v4), Ok(v6)) => (v4.into_iter().chain(v6), None),
                // Nobody knows: another name must not be taken for this one.
                (Err(error), Ok(None) | Err(_)) | (Ok(None), Err(error)) => return Err(error),
                (Ok(one @ Some(_)), Err(error)) | (Err(error), Ok(one @ Some(_))) => {
                    (one.into_iter().chain(None), Some(error))
                }
            };
            let found: Vec<Records> = found.collect();
            if !found.is_empty() {
                let ttl = found.iter().map(|it| it.ttl).min().unwrap_or_default();
                let records = found.into_iter().flat_map(|it| it.ips).collect();
                return Ok(Found { records, ttl, missing });
            }
        }
        Ok(Found::nobody())
    }

    /// The services of a name such as `_http._tcp.shop.example`. A host `.` says
    /// that there is none.
    ///
    /// # Errors
    /// When no server said which it has, or whether it has any.
    pub async fn services(&self, name: &str) -> Result<Found<Service>, LookupError> {
        let conf = self.conf();
        for candidate in conf.candidates(name) {
            if let Some(Records { services: mut records, ttl, .. }) =
                ask(&conf, &candidate, Kind::Srv).await?
            {
                records.retain(|service| !service.host.is_empty() && service.host != ".");
                return Ok(Found { records, ttl, missing: None });
            }
        }
        Ok(Found::nobody())
    }

    fn conf(&self) -> Conf {
        match self.servers.is_empty() {
            true => Conf::parse(&std::fs::read_to_string(&self.conf).unwrap_or_default()),
            false => Conf::of(self.servers.clone()),
        }
    }
}

/// Asks one server after the other, each as often as there are rounds; `None`: there are no such
/// records. The error is the last one.
async fn ask(conf: &Conf, name: &str, kind: Kind) -> Result<Option<Records>, LookupError> {
    let mut last = LookupError::NoName(name.to_owned());
    for _ in 0..ROUNDS {
        for &server in &conf.servers {
            let asked = tokio::time::timeout(conf.timeout, ask_one(server, name, kind));
            let error = match asked.await {
                Ok(Ok(Said::Records(records))) => return Ok(Some(records)),
                Ok(Ok(Said::Nobody)) => return Ok(None),
                Ok(Ok(Said::Refused(code))) => LookupError::Refused { server, code },
                Ok(Ok(Said::Truncated)) => LookupError::Malformed { server }, // also over TCP
                Ok(Err(error)) => error,
                Err(_) => LookupError::Timeout { server, within: conf.timeout },
            };
            if matches!(error, LookupError::NoName(_)) {
                return Err(error);
            }
            last = error;
        }
    }
    Err(last)
}

async fn ask_one(server: SocketAddr, name: &str, kind: Kind) -> Result<Said, LookupError> {
    let id = random(name);
    let no_name = || LookupError::NoName(name.to_owned());
    let question = message::question(id, name, kind).ok_or_else(no_name)?;
    let unreachable = |error| LookupError::Unreachable { server, error };
    let said = over_udp(server, &question, |bytes| message::answer(bytes, id, name, kind));
    match said.await.map_err(unreachable)? {
        Ok(Said::Truncated) => {}
        Ok(said) => return Ok(said),
        Err(_) => return Err(LookupError::Malformed { server }),
    }
    let bytes = over_tcp(server, &question).await.map_err(unreachable)?;
    message::answer(&bytes, id, name, kind).map_err(|_| LookupError::Malformed { server })
}

/// The number of a message: keyed at random for each, so that nobody can guess it.
fn random(name: &str) -> u16 {
    RandomState::new().hash_one(name) as u16
}

/// Sends a question and reads until something is an answer to it.
async fn over_udp(
    server: SocketAddr,
    question: &[u8],
    read: impl Fn(&[u8]) -> Result<Said, Odd>,
) -> io::Result<Result<Said, Odd>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?; // the kernel drops what others send
    socket.send(question).await?;
    let mut buffer = vec![0; UDP_BYTES_MAX];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match read(&buffer[..length]) {
            Err(Odd::Foreign) => {}
            said => return Ok(said),
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
