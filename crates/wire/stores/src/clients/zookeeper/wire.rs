//! ZooKeeper's client protocol, as far as a mover needs it: bytes in, bytes out, no sockets.
//!
//! Requests begin with a number of the client's and the kind, replies with that number, the
//! transaction and an error code. Source: `zookeeper.jute` and `KeeperException.Code` of ZooKeeper
//! 3.8.

use std::time::Duration;

use super::error::WireError;
use super::jute::{Reader, Record};
use crate::clients::error::RemoteError;

/// Messages are not longer; ZooKeeper's own bound (`jute.maxbuffer`) is as long by default.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// More than `srvr` says.
pub const STATUS_BYTES_MAX: usize = 16 << 10;

/// Where the servers of an ensemble are kept.
pub const CONFIG_PATH: &str = "/zookeeper/config";

/// More servers than any ensemble has.
const SERVERS_MAX: usize = 255;

/// Numbers of replies that answer no numbered request.
const PING_XID: i32 = -2;
const AUTH_XID: i32 = -4;

/// What makes a session the same one on another connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Credentials {
    /// 0 = a new session.
    pub id: i64,
    /// As the server gave it.
    pub password: Vec<u8>,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Says who asks, by name and password (scheme `digest`).
    Authenticate(&'a str, &'a str),
    /// The data of a node.
    Data(&'a str),
    /// Makes a node that anybody may read and write.
    Create {
        /// Where.
        path: &'a str,
        /// What.
        data: &'a [u8],
        /// Whether it ends with the session.
        is_ephemeral: bool,
    },
    /// Changes the ensemble, if its configuration is still this one.
    Reconfigure {
        /// A line of the configuration for a server that comes or changes.
        joining: Option<&'a str>,
        /// The number of a server that goes.
        leaving: Option<u32>,
        /// The version that is changed.
        version: i64,
    },
    /// Keeps the session.
    Ping,
    /// Ends the session, and with it its ephemeral nodes.
    Close,
}

impl Request<'_> {
    /// The number that its reply has, when `counted` is the next that is free.
    pub const fn xid(&self, counted: i32) -> i32 {
        match self {
            Self::Authenticate(..) => AUTH_XID,
            Self::Ping => PING_XID,
            _ => counted,
        }
    }

    /// The message, with its length.
    pub fn encode(&self, xid: i32) -> Vec<u8> {
        let mut record = Record::new();
        record.int(xid);
        match *self {
            Self::Authenticate(user, password) => {
                record.int(100).int(0).buffer(b"digest");
                record.buffer(format!("{user}:{password}").as_bytes());
            }
            Self::Data(path) => {
                record.int(4).buffer(path.as_bytes()).byte(0);
            }
            Self::Create { path, data, is_ephemeral } => {
                record.int(1).buffer(path.as_bytes()).buffer(data);
                // One entry: all permissions (five bits) for `world:anyone`.
                record.int(1).int(31).buffer(b"world").buffer(b"anyone");
                record.int(i32::from(is_ephemeral));
            }
            Self::Reconfigure { joining, leaving, version } => {
                record.int(16).text(joining).text(leaving.map(|id| id.to_string()).as_deref());
                record.text(None).long(version);
            }
            Self::Ping => {
                record.int(11);
            }
            Self::Close => {
                record.int(-11);
            }
        }
        record.message()
    }
}

/// The first message of a connection.
pub fn connect(timeout: Duration, session: &Credentials) -> Vec<u8> {
    let mut record = Record::new();
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    record.int(0).long(0).int(timeout_ms).long(session.id);
    if session.password.is_empty() {
        record.buffer(&[0; 16]);
    } else {
        record.buffer(&session.password);
    }
    record.byte(0); // not content with a server that only reads
    record.message()
}

/// Reads the answer to [`connect`]: the session, or `None` when it has ended.
///
/// # Errors
/// When it is none.
pub fn connected(message: &[u8]) -> Result<Option<Credentials>, WireError> {
    let mut reader = Reader::new(message);
    let (_version, timeout_ms, id) = (reader.int()?, reader.int()?, reader.long()?);
    let password = reader.buffer()?.unwrap_or_default().to_vec();
    Ok((timeout_ms > 0 && id != 0).then_some(Credentials { id, password }))
}

/// A reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// The number of its request.
    pub xid: i32,
    /// 0, or why not.
    pub error: i32,
    /// The rest.
    pub body: &'a [u8],
}

/// Reads a reply's beginning.
///
/// # Errors
/// When it is too short.
pub fn reply(message: &[u8]) -> Result<Reply<'_>, WireError> {
    let mut reader = Reader::new(message);
    let (xid, _zxid, error) = (reader.int()?, reader.long()?, reader.int()?);
    Ok(Reply { xid, error, body: reader.rest() })
}

/// The data in the answer to [`Request::Data`].
///
/// # Errors
/// When it is cut off.
pub fn data(body: &[u8]) -> Result<&[u8], WireError> {
    Ok(Reader::new(body).buffer()?.unwrap_or_default())
}

/// What an error code means, and whether it may pass.
pub fn error_of_code(code: i32) -> RemoteError {
    match code {
        -13 => {
            RemoteError::passing("too few of the servers afterwards are in step with the leader")
        }
        -14 => RemoteError::passing("another change of the ensemble is under way"),
        -103 => RemoteError::passing("the ensemble was changed by somebody else meanwhile"),
        -102 => {
            RemoteError::lasting("it is not allowed to this user (reconfig wants the super user)")
        }
        -115 => RemoteError::lasting("the user or the password is wrong"),
        -123 => RemoteError::lasting("changes are switched off (reconfigEnabled=false in zoo.cfg)"),
        NODE_EXISTS => RemoteError::passing("the node is there already"),
        -101 => RemoteError::passing("there is no such node"),
        -112 => RemoteError::lasting("the session has ended"),
        -8 => RemoteError::lasting("the server does not take these words (error -8)"),
        -118 | -4 | -1 => {
            RemoteError::passing(format!("the server could not do it (error {code})"))
        }
        code => RemoteError::lasting(format!("the server refused with error {code}")),
    }
}

/// The error of a node that is there already.
pub const NODE_EXISTS: i32 = -110;

evenkeel_core::named! {
    /// What a server is to the ensemble.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Role {
        /// It votes.
        Participant = "participant",
        /// It has the data only.
        Observer = "observer",
    }
}

/// A server of an ensemble.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Its number (`myid`).
    pub id: u32,
    /// Where its peers reach it: `host:port:port`, several with `|` between.
    pub peer: String,
    /// What it is.
    pub role: Role,
    /// Where its clients reach it: `host:port` or a port.
    pub client: Option<String>,
}

impl Server {
    /// The line of the configuration.
    pub fn line(&self) -> String {
        let Self { id, peer, role, client } = self;
        let client = client.as_ref().map(|at| format!(";{at}")).unwrap_or_default();
        format!("server.{id}={peer}:{}{client}", role.name())
    }

    fn parse(id: &str, value: &str) -> Option<Self> {
        let id = id.parse().ok()?;
        let (peers, client) = match value.split_once(';') {
            Some((peers, client)) => (peers, Some(client.to_owned())),
            None => (value, None),
        };
        let (peer, role) = if let Some(peer) = peers.strip_suffix(":observer") {
            (peer, Role::Observer)
        } else {
            (peers.strip_suffix(":participant").unwrap_or(peers), Role::Participant)
        };
        (!peer.is_empty()).then(|| Self { id, peer: peer.to_owned(), role, client })
    }
}

/// The servers of an ensemble, as it agreed on them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Changes with every change.
    pub version: i64,
    /// In no particular order.
    pub servers: Vec<Server>,
}

/// Reads what is at [`CONFIG_PATH`].
///
/// # Errors
/// With the line that is not understood. Weights and groups of voters are not.
pub fn config(text: &str) -> Result<Config, WireError> {
    let mut version = None;
    let mut servers = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let wrong = || WireError::ConfigLine(line.chars().take(200).collect());
        let (key, value) = line.split_once('=').ok_or_else(wrong)?;
        if key == "version" {
            let read = i64::from_str_radix(value, 16).ok().filter(|version| *version >= 0);
            version = Some(read.ok_or_else(wrong)?);
            continue;
        }
        let id = key.strip_prefix("server.").ok_or_else(wrong)?;
        servers.push(Server::parse(id, value).ok_or_else(wrong)?);
        if servers.len() > SERVERS_MAX {
            return Err(WireError::TooManyServers { max: SERVERS_MAX });
        }
    }
    let version = version.ok_or(WireError::NoVersion)?;
    Ok(Config { version, servers })
}

/// What a server says it is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// It leads.
    Leader,
    /// It votes and follows.
    Follower,
    /// It follows only.
    Observer,
}

/// The answer to `srvr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// What it does.
    pub mode: Mode,
    /// The last transaction it has applied: the epoch of the leader, and a number within it.
    pub zxid: u64,
}

impl Status {
    /// How many transactions it has not applied that the leader has. One that serves has all of
    /// earlier epochs, since it was not admitted before.
    pub const fn behind(self, leader: Self) -> u64 {
        const COUNTER: u64 = u32::MAX as u64;
        if self.zxid >> 32 == leader.zxid >> 32 {
            leader.zxid.saturating_sub(self.zxid)
        } else {
            leader.zxid & COUNTER
        }
    }
}

/// Reads the answer to `srvr`.
///
/// # Errors
/// When the server does not serve, or alone, with what it said.
pub fn status(text: &str) -> Result<Status, WireError> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let first = || text.lines().next().unwrap_or("nothing").chars().take(200).collect();
    let mode = match value("Mode:") {
        Some("leader") => Mode::Leader,
        Some("follower") => Mode::Follower,
        Some("observer") => Mode::Observer,
        Some(other) => return Err(WireError::Mode(other.chars().take(40).collect())),
        None => return Err(WireError::NotServing(first())),
    };
    let zxid = value("Zxid:").and_then(|text| text.strip_prefix("0x"));
    let zxid = zxid.and_then(|text| u64::from_str_radix(text, 16).ok());
    Ok(Status { mode, zxid: zxid.ok_or(WireError::NoTransaction)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_those_of_the_jute_description() {
        assert_eq!(
            Request::Ping.encode(Request::Ping.xid(7)),
            [0, 0, 0, 8, 255, 255, 255, 254, 0, 0, 0, 11]
        );
        let data = Request::Data("/a").encode(Request::Data("/a").xid(7));
        assert_eq!(data, [0, 0, 0, 15, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 2, b'/', b'a', 0]);
        let change = Request::Reconfigure { joining: None, leaving: Some(12), version: 256 };
        let expected = [
            &[0, 0, 0, 30, 0, 0, 0, 1, 0, 0, 0, 16][..],
            &[255, 255, 255, 255, 0, 0, 0, 2, b'1', b'2', 255, 255, 255, 255],
            &[0, 0, 0, 0, 0, 0, 1, 0],
        ];
        assert_eq!(change.encode(1), expected.concat());
        let first = connect(Duration::from_secs(4), &Credentials::default());
        assert_eq!(first.len(), 4 + 4 + 8 + 4 + 8 + 4 + 16 + 1);
        assert_eq!(first[16..20], 4_000_u32.to_be_bytes());
    }

    #[test]
    fn a_configuration_is_read_line_by_line_and_written_as_it_was() {
        let text = "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
                    server.2=[::1]:2888:3888|b:2888:3888:observer;2181\n\
                    server.3=c:2888:3888\nversion=10000000a";
        let read = config(text).unwrap();
        assert_eq!(read.version, 0x1_0000_000a);
        assert_eq!(read.servers[0].line(), text.lines().next().unwrap());
        assert_eq!(read.servers[1].line(), text.lines().nth(1).unwrap());
        assert_eq!(read.servers[2].line(), "server.3=c:2888:3888:participant");
        assert_eq!(read.servers[1].role, Role::Observer);
        let wrongs = [
            "group.1=1:2",
            "server.x=a:1:2",
            "server.1=:observer",
            "x",
            "version=z",
            "version=-1",
            "",
        ];
        for wrong in wrongs {
            let error = config(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("configuration"), "{error}");
        }
    }

    #[test]
    fn a_server_tells_its_mode_and_how_far_it_is() {
        let text = "Zookeeper version: 3.8.0\nZxid: 0x200000010\nMode: follower\nNode count: 5\n";
        let follower = status(text).unwrap();
        assert_eq!(follower, Status { mode: Mode::Follower, zxid: (2 << 32) + 16 });
        let leader = Status { mode: Mode::Leader, zxid: (2 << 32) + 20 };
        assert_eq!(follower.behind(leader), 4);
        assert_eq!(leader.behind(follower), 0);
        let next = Status { mode: Mode::Leader, zxid: (3 << 32) + 2 };
        assert_eq!(follower.behind(next), 2, "an epoch that has begun");
        let idle = "This ZooKeeper instance is not currently serving requests\n";
        assert!(matches!(status(idle), Err(WireError::NotServing(said)) if idle.contains(&said)));
        let alone = status("Zxid: 0x1\nMode: standalone\n");
        assert_eq!(alone, Err(WireError::Mode("standalone".into())));
        assert_eq!(status("Mode: leader\n"), Err(WireError::NoTransaction));
    }

    #[test]
    fn a_session_that_ended_is_none() {
        let ended = [0_u8; 4 + 4 + 8 + 4 + 16];
        let mut ended = ended.to_vec();
        ended[19] = 16;
        assert_eq!(connected(&ended), Ok(None));
        (ended[7], ended[15]) = (1, 9);
        let session = connected(&ended).unwrap().unwrap();
        assert_eq!((session.id, session.password.len()), (9, 16));
        ended.truncate(30);
        assert!(matches!(connected(&ended), Err(WireError::Short { .. })));
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_server_break_the_reader(bytes: Vec<u8>, text: String) {
            let _ = (connected(&bytes), data(&bytes), status(&text), config(&text));
            if let Ok(reply) = reply(&bytes) {
                prop_assert_eq!(reply.body.len() + 16, bytes.len());
                let _ = error_of_code(reply.error);
            }
        }

        #[test]
        fn a_server_survives_being_written_and_read(id: u32, port in 1_u16.., is_voter: bool) {
            let role = if is_voter { Role::Participant } else { Role::Observer };
            let client = is_voter.then(|| format!("h:{port}"));
            let server = Server { id, peer: format!("h:{port}:{port}"), role, client };
            let read = config(&format!("{}\nversion=1", server.line())).unwrap();
            prop_assert_eq!(&read.servers, &[server]);
        }
    }
}
