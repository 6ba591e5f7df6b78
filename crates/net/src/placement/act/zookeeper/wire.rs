//! ZooKeeper's client protocol, as far as a mover needs it: bytes in, bytes out, no sockets.
//!
//! A message is its length in four bytes and a record: numbers with the highest byte first, strings
//! and buffers after their length, −1 for none. Requests begin with a number of the client's and
//! the kind, replies with that number, the transaction and an error code. Source: `zookeeper.jute`
//! and `KeeperException.Code` of ZooKeeper 3.8.

use std::time::Duration;

use super::super::Trouble;

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
    #[must_use]
    pub const fn xid(&self, counted: i32) -> i32 {
        match self {
            Self::Authenticate(..) => AUTH_XID,
            Self::Ping => PING_XID,
            _ => counted,
        }
    }

    /// The message, with its length.
    #[must_use]
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
#[must_use]
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
pub fn connected(message: &[u8]) -> Result<Option<Credentials>, String> {
    let mut reader = Reader(message);
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
pub fn reply(message: &[u8]) -> Result<Reply<'_>, String> {
    let mut reader = Reader(message);
    let (xid, _zxid, error) = (reader.int()?, reader.long()?, reader.int()?);
    Ok(Reply { xid, error, body: reader.0 })
}

/// The data in the answer to [`Request::Data`].
///
/// # Errors
/// When it is cut off.
pub fn data(body: &[u8]) -> Result<&[u8], String> {
    Ok(Reader(body).buffer()?.unwrap_or_default())
}

/// What an error code means, and whether it may pass.
#[must_use]
pub fn trouble(code: i32) -> Trouble {
    match code {
        -13 => Trouble::passing("too few of the servers afterwards are in step with the leader"),
        -14 => Trouble::passing("another change of the ensemble is under way"),
        -103 => Trouble::passing("the ensemble was changed by somebody else meanwhile"),
        -102 => Trouble::lasting("it is not allowed to this user (reconfig wants the super user)"),
        -115 => Trouble::lasting("the user or the password is wrong"),
        -123 => Trouble::lasting("changes are switched off (reconfigEnabled=false in zoo.cfg)"),
        NODE_EXISTS => Trouble::passing("the node is there already"),
        -101 => Trouble::passing("there is no such node"),
        -112 => Trouble::lasting("the session has ended"),
        -8 => Trouble::lasting("the server does not take these words (error -8)"),
        -118 | -4 | -1 => Trouble::passing(format!("the server could not do it (error {code})")),
        code => Trouble::lasting(format!("the server refused with error {code}")),
    }
}

/// The error of a node that is there already.
pub const NODE_EXISTS: i32 = -110;

/// What a server is to the ensemble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It votes.
    Participant,
    /// It has the data only.
    Observer,
}

impl Role {
    /// As configurations have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Participant => "participant",
            Self::Observer => "observer",
        }
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
    #[must_use]
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
pub fn config(text: &str) -> Result<Config, String> {
    let mut version = None;
    let mut servers = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let wrong = || {
            let line: String = line.chars().take(200).collect();
            format!(
                "\"{line}\" in the ensemble's configuration: server.N=… or version=… was expected"
            )
        };
        let (key, value) = line.split_once('=').ok_or_else(wrong)?;
        if key == "version" {
            let read = i64::from_str_radix(value, 16).ok().filter(|version| *version >= 0);
            version = Some(read.ok_or_else(wrong)?);
            continue;
        }
        let id = key.strip_prefix("server.").ok_or_else(wrong)?;
        servers.push(Server::parse(id, value).ok_or_else(wrong)?);
        if servers.len() > SERVERS_MAX {
            return Err(format!("more than {SERVERS_MAX} servers in the configuration"));
        }
    }
    let version = version.ok_or("the ensemble's configuration has no version")?;
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
    #[must_use]
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
pub fn status(text: &str) -> Result<Status, String> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let first: String = text.lines().next().unwrap_or("nothing").chars().take(200).collect();
    let mode = match value("Mode:") {
        Some("leader") => Mode::Leader,
        Some("follower") => Mode::Follower,
        Some("observer") => Mode::Observer,
        Some(other) => return Err(format!("its mode is {other:.40}")),
        None => return Err(format!("it says \"{first}\"")),
    };
    let zxid = value("Zxid:").and_then(|text| text.strip_prefix("0x"));
    let zxid = zxid.and_then(|text| u64::from_str_radix(text, 16).ok());
    Ok(Status { mode, zxid: zxid.ok_or("it says no transaction (Zxid)")? })
}

/// A record being written, after room for its length.
struct Record(Vec<u8>);

impl Record {
    fn new() -> Self {
        Self(vec![0; 4])
    }

    fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn buffer(&mut self, bytes: &[u8]) -> &mut Self {
        self.int(i32::try_from(bytes.len()).expect("what is sent is short"));
        self.0.extend(bytes);
        self
    }

    fn text(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.buffer(text.as_bytes()),
            None => self.int(-1),
        }
    }

    fn message(self) -> Vec<u8> {
        let mut bytes = self.0;
        let length = u32::try_from(bytes.len() - 4).expect("what is sent is short");
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes
    }
}

/// A record being read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let left = self.0.len();
        let cut = || format!("a message is cut off: {left} bytes are left, {length} were expected");
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many as were asked for"))
    }

    fn int(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> Result<i64, String> {
        self.array().map(i64::from_be_bytes)
    }

    /// `None` for a length of −1.
    fn buffer(&mut self) -> Result<Option<&'a [u8]>, String> {
        match self.int()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length)
                    .map_err(|_| format!("a length of {length}: 0 or more was expected"))?;
                self.take(length).map(Some)
            }
        }
    }
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
            let error = config(wrong).unwrap_err();
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
        assert!(status(idle).unwrap_err().contains("not currently serving"));
        assert!(status("Zxid: 0x1\nMode: standalone\n").unwrap_err().contains("standalone"));
        assert!(status("Mode: leader\n").unwrap_err().contains("Zxid"));
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
        assert!(connected(&ended).unwrap_err().contains("cut off"));
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_server_break_the_reader(bytes: Vec<u8>, text: String) {
            let _ = (connected(&bytes), data(&bytes), status(&text), config(&text));
            if let Ok(reply) = reply(&bytes) {
                prop_assert_eq!(reply.body.len() + 16, bytes.len());
                let _ = trouble(reply.error);
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
