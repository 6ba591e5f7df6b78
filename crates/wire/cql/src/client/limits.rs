//! What one worker allows itself towards one node.

use std::time::Duration;

use crate::codec::Compression;
use evenkeel_runtime::tls::ClientTls;

/// What one worker allows itself towards one node.
#[derive(Clone, Debug)]
pub struct NodeLimits {
    /// How long a connection may take until it can be used: TCP, TLS, login and keyspace together.
    pub connect: Duration,
    /// Connections of one dialect open at once. One more is opened when all are full.
    pub connections_max: usize,
    /// Connections open at once, those of all dialects together: every keyspace and every user that
    /// is in use needs one. Unused ones give way.
    pub connections_in_all_max: usize,
    /// Conversations at once of clients that are logging in, each on a connection of its own.
    pub conversations_max: usize,
    /// Requests in flight on one connection, from 1 to 32,767. A further connection is opened when
    /// all have so many.
    pub streams_max: usize,
    /// Requests of one dialect that may wait for a stream; one more is refused.
    pub waiting_max: usize,
    /// A connection with this many requests that were given up and are not answered takes no
    /// further ones and is closed when the others are answered.
    pub orphans_max: usize,
    /// How long a connection is kept that nobody uses.
    pub idle: Duration,
    /// After this long without a byte from the node it is asked for one (`OPTIONS`).
    pub heartbeat: Duration,
    /// How long the node may be silent after that before the connection is given up.
    pub silence_max: Duration,
    /// The longest frame that is believed, in bytes; Cassandra's default is 16 MiB.
    pub frame_bytes_max: usize,
    /// How bodies (v4) or segments (v5) are compressed between us and the node.
    pub compression: Option<Compression>,
    /// With what connections are encrypted, if they are.
    pub tls: Option<ClientTls>,
    /// Asks an overloaded node for an error (`THROW_ON_OVERLOAD`). Else it stops reading, which
    /// stops everybody who shares the connection.
    pub throws_on_overload: bool,
    /// Asks for reports of what the node is doing with every answer. An agent beside the node
    /// gives them; a node without one takes no notice.
    pub asks_for_feedback: bool,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            connections_max: 8,
            connections_in_all_max: 128,
            conversations_max: 256,
            streams_max: 1_024,
            waiting_max: 1_024,
            orphans_max: 256,
            idle: Duration::from_secs(60),
            heartbeat: Duration::from_secs(5),
            silence_max: Duration::from_secs(5),
            frame_bytes_max: 16 << 20,
            compression: None,
            tls: None,
            throws_on_overload: true,
            asks_for_feedback: false,
        }
    }
}
