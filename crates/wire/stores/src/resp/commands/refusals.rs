//! Why commands are refused: each text says why, and what to do instead.

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const NEGATIVE_KEYS: &str = "ERR Number of keys can't be negative";
pub(super) const NO_KEYS: &str = "ERR numkeys should be greater than 0";
pub(super) const TOO_MANY_KEYS: &str = "ERR Number of keys can't be greater than number of args";
pub(super) const UNBALANCED_STREAMS: &str = "ERR Unbalanced list of streams: for each stream key \
    an ID must be specified.";

pub(super) const ADMINISTRATION: &str = "ERR this concerns one server and not the data: connect to \
    the duplicate itself to administer it";
pub(super) const ALL_PARTITIONS: &str = "ERR this needs all partitions at once, which have no \
    common moment: keep the keys you need in a set or hash of your own, or ask each duplicate";
pub(super) const BLOCKING: &str = "ERR a command that waits would hold up all others of its \
    partition: ask again without waiting, at an interval";
pub(super) const CHANNELS: &str = "ERR channels are kept by no log and differ between duplicates: \
    publish through a server of its own, or use a stream (XADD, XREAD)";
pub(super) const CLUSTER: &str = "ERR this is not a Redis Cluster, keys are placed by this \
    service: use a client without cluster mode";
pub(super) const COPY_DB: &str = "ERR there is one database: COPY without DB, or use a prefix in \
    the key";
pub(super) const DATABASES: &str = "ERR there is one database: use a prefix in the key instead of \
    a number of a database";
pub(super) const FLUSH: &str = "ERR this would empty every partition for all of its users: delete \
    keys with UNLINK, or stop the service and empty its duplicates";
pub(super) const MIGRATION: &str = "ERR this moves data between single servers past the log: \
    partitions are moved by this service, and data is read out with DUMP";
pub(super) const REPLICATION: &str = "ERR duplicates are kept equal by this service, not by \
    replication of Redis: the level of acknowledgement is in its configuration";
pub(super) const SCANS: &str = "ERR a cursor belongs to one server and means nothing to another: \
    keep the keys you need in a set or hash of your own, or scan a duplicate itself";
pub(super) const SCAN_PARTS: &str = "ERR a cursor belongs to one server and means nothing to \
    another: read parts with HGETALL, SMEMBERS or ZRANGE with LIMIT";
pub(super) const FUNCTIONS: &str = "ERR functions are kept by no log of this service: send the \
    same text as a script with EVAL or EVALSHA";
pub(super) const SORT_PATTERNS: &str = "ERR BY and GET with a pattern read keys that may be in \
    other partitions: read the elements, then their keys with MGET";
pub(super) const SUBCOMMAND: &str = "ERR this subcommand is not offered here: it concerns one \
    server and not the data, connect to the duplicate itself";
pub(super) const WATCHING: &str = "ERR WATCH would have to watch every duplicate: use a command \
    that tests and sets at once, such as SET with NX or XX, HSETNX or ZADD with GT";
pub(crate) const POP: &str = "ERR SPOP chooses another member at each duplicate: read \
    one with SRANDMEMBER and remove it with SREM";

/// What Redis says of `MSET` and `MSETNX` with a key that has no value.
pub(super) fn odd_pairs(name: &str) -> &'static str {
    match name {
        "msetnx" => "ERR wrong number of arguments for 'msetnx' command",
        _ => "ERR wrong number of arguments for 'mset' command",
    }
}
