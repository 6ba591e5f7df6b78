//! What one worker allows: its clients, and itself towards servers.

use std::ops::RangeInclusive;
use std::time::Duration;

use evenkeel_settings::common::{CONNECTIONS, DAY, HOUR, MS, SECOND};
use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Setting, Table, Value};

/// Lengths of a message head, in bytes. The HTTP engine's smallest buffer for responses is 8 KiB.
const REQUEST_HEAD_BYTES: RangeInclusive<u64> = 1_024..=1_048_576;
const RESPONSE_HEAD_BYTES: RangeInclusive<u64> = 8_192..=1_048_576;

/// What one worker allows its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// The longest request head in bytes, answered 431 beyond; a head has at most 100 lines.
    pub head_bytes_max: usize,
    /// The longest request body in bytes, answered 413 beyond.
    pub body_bytes_max: u64,
    /// Connections at once; more wait in the kernel's backlog.
    pub connections_max: usize,
    /// How long a request head may take from its first byte, a new connection to its first
    /// head, and a client to stop sending once it has been refused.
    pub head: Duration,
    /// How long a connection may idle between requests.
    pub idle: Duration,
    /// How long a client may refuse to take a piece of the response.
    pub write: Duration,
    /// After how long a client of HTTP is told to come back on another connection;
    /// [`Duration::MAX`] = never.
    pub connection_age: Duration,
    /// How long requests in flight may take to finish once the worker stops.
    pub drain: Duration,
    /// Who reads and writes HTTP/1.1.
    pub engine: Engine,
}

/// What one worker allows itself towards one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// How long a connection may take to open.
    pub connect: Duration,
    /// Connections open at once, busy and idle together; one more is refused, never waited for
    /// (the dispatcher's backlog is the place to wait).
    pub connections_max: usize,
    /// Idle connections kept for reuse.
    pub idle_connections_max: usize,
    /// How long an idle connection is kept; give or take a quarter.
    pub idle: Duration,
    /// The longest response head in bytes; at least 8192, which is also the smallest buffer.
    pub head_bytes_max: usize,
    /// How slowly the body of a response may come.
    pub body: BodyLimits,
    /// Whether HTTP/2 is spoken, where HTTP is.
    pub http2: Http2,
    /// Who reads and writes HTTP/1.1.
    pub engine: Engine,
}

/// Who reads and writes HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// The library hyper.
    Hyper,
    /// Ours, by bytes: less work for each request, and no buffer for an idle connection.
    #[default]
    Native,
}

impl Engine {
    /// By the names of the key `engine`.
    pub const NAMES: [(&'static str, Self); 2] = [("hyper", Self::Hyper), ("native", Self::Native)];
}

/// Whether a replica is spoken to in HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Http2 {
    /// In TLS if the replica agrees (ALPN); without TLS in HTTP/1.1.
    #[default]
    Auto,
    /// Always: without TLS it must know that (prior knowledge), in TLS it must agree.
    Always,
    /// Never.
    Never,
}

impl Http2 {
    /// Reads the key `http2`: `"auto"`, `true` or `false`.
    pub fn read(setting: Setting<'_>) -> Self {
        match setting.value() {
            Some(Value::Bool(true)) => return Self::Always,
            Some(Value::Bool(false)) => return Self::Never,
            _ => {}
        }
        let expected = "\"auto\", true or false";
        let parsed = setting.parsed(expected, Self::Auto, |text| match text {
            "auto" => Ok(Self::Auto),
            other => Err(Mismatch::new(format!("{other:?}"), expected)),
        });
        parsed.or(Self::Auto)
    }

    /// What is offered in TLS, the preferred first.
    pub const fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Auto => &[b"h2", b"http/1.1"],
            Self::Always => &[b"h2"],
            Self::Never => &[b"http/1.1"],
        }
    }
}

/// How slowly the body of a response may come while its replica is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// How long no byte may move, the request's included; seen within a quarter more.
    pub idle: Duration,
    /// The least bytes per second, as a mean over `idle`; 0 = any.
    pub rate_min: u64,
    /// How long no byte may move once both sides speak WebSocket; seen within a quarter more.
    pub tunnel: Duration,
}

impl BodyLimits {
    /// A minute, at any rate.
    pub const DEFAULT: Self =
        Self { idle: Duration::from_secs(60), rate_min: 0, tunnel: Duration::from_secs(3_600) };

    /// Reads the keys `idle`, `rate_min` and `tunnel` of a table of timeouts.
    pub fn read(table: &mut Table<'_>) -> Self {
        Self {
            idle: duration(table, "idle", MS..=DAY, Self::DEFAULT.idle),
            rate_min: table.key("rate_min").bytes().between(0..=1 << 40).or(0),
            tunnel: duration(table, "tunnel", MS..=DAY, Self::DEFAULT.tunnel),
        }
    }
}

impl ServerLimits {
    /// How long a client of HTTP may be idle by default.
    pub const IDLE: Duration = Duration::from_secs(60);

    /// Reads a table `limits`; `drain` is the process's, `idle` the protocol's default.
    pub fn read(table: &mut Table<'_>, drain: Duration, idle: Duration) -> Self {
        let head_bytes = table.key("head_bytes_max").bytes().between(REQUEST_HEAD_BYTES);
        let body_bytes = table.key("body_bytes_max").bytes().between(0..=1 << 50);
        Self {
            head_bytes_max: head_bytes.or(32 * 1_024) as usize,
            body_bytes_max: body_bytes.or(1 << 30),
            connections_max: table.key("connections_max").integer().between(CONNECTIONS).or(10_000),
            head: duration(table, "head", MS..=HOUR, 10 * SECOND),
            idle: duration(table, "idle", MS..=DAY, idle),
            write: duration(table, "write", MS..=HOUR, 30 * SECOND),
            connection_age: table
                .key("connection_age")
                .duration()
                .between(SECOND..=30 * DAY)
                .optional()
                .unwrap_or(Duration::MAX),
            drain,
            engine: Engine::default(), // a key beside this table
        }
    }
}

impl UpstreamLimits {
    /// Reads a table `pool`; what is limited apart from it is the time for opening a connection
    /// and the pace of bodies.
    pub fn read(table: &mut Table<'_>, connect: Duration, body: BodyLimits) -> Self {
        let connections_max = table.key("connections_max").integer().between(CONNECTIONS).or(1_024);
        let idle_connections = table.key("idle_connections_max").integer().between(0..=1_000_000);
        let head_bytes = table.key("head_bytes_max").bytes().between(RESPONSE_HEAD_BYTES);
        let limits = Self {
            connect,
            connections_max,
            idle_connections_max: idle_connections.or(connections_max.min(256)),
            idle: duration(table, "idle", MS..=DAY, 30 * SECOND),
            head_bytes_max: head_bytes.or(64 * 1_024) as usize,
            body,
            http2: Http2::default(),   // a key beside this table
            engine: Engine::default(), // so is this
        };
        if table.is_sound() && limits.idle_connections_max > connections_max {
            let expected = format!("at most connections_max, which is {connections_max}");
            let wrong = Mismatch::new(limits.idle_connections_max.to_string(), expected);
            table.problem("idle_connections_max", wrong);
        }
        limits
    }
}
