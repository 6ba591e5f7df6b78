//! Why commands are refused: each text says why, and what to do instead.

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const BAD_KEYS: &str = "ERR Bad number of keys provided";
pub(super) const NEGATIVE_KEYS: &str = "ERR Number of keys can't be negative";
pub(super) const NO_KEYS: &str = "ERR numkeys should be greater than 0";
pub(crate) const SET_REPL: &str = "ERR redis.set_repl is not possible here: the other duplicates \
    get what a script does from its replication stream";
pub(super) const MANY_KEYS: &str = "ERR Number of keys can't be greater than number of args";
pub(super) const UNBALANCED_STREAMS: &str = "ERR Unbalanced XREAD list of streams: for each stream \
    key an ID or '$' must be specified.";

pub(super) const ADMINISTRATION: &str = "ERR this concerns one server and not the data: connect to \
    the duplicate itself to administer it";
/// In Redis's words, of what may not be in a transaction there either.
pub const NOT_IN_MULTI: &str = "ERR Command not allowed inside a transaction";
/// In the words that clients look for.
pub(crate) const CLUSTER: &str = "ERR This instance has cluster support disabled";
pub(super) const SWAPDB: &str = "ERR SWAPDB is not possible here: what Evenkeel notes of each \
    duplicate is in database 0; have clients SELECT the other database instead";
pub(super) const MIGRATION: &str = "ERR this moves data between single servers past the log: \
    partitions are moved by this service, and data is read out with DUMP";
pub(super) const REPLICATION: &str = "ERR duplicates are kept equal by this service, not by \
    replication of Redis: the level of acknowledgement is in its configuration";
/// Of `SORT` where keys are in several partitions.
pub const SORT_PATTERNS: &str = "ERR BY and GET with a pattern read keys that may be in other \
    partitions: read the elements, then their keys with MGET";
/// Of what is not done within a transaction.
pub const WHOLE_IN_MULTI: &str = "ERR this is about more than the keys that it names, \
    which a transaction cannot hold together: send it before MULTI or after EXEC";
pub(super) const SUBCOMMAND: &str = "ERR this subcommand is not offered here: it concerns one \
    server and not the data, connect to the duplicate itself";
pub(crate) const POP: &str = "ERR SPOP chooses another member at each duplicate: read \
    one with SRANDMEMBER and remove it with SREM";

/// What Redis says of `MSET` and `MSETNX` with a key that has no value.
pub(super) fn odd_pairs(name: &str) -> &'static str {
    match name {
        "msetnx" => "ERR wrong number of arguments for 'msetnx' command",
        _ => "ERR wrong number of arguments for 'mset' command",
    }
}

/// What Redis says when a command that combines sorted sets has none.
pub(super) fn no_input_keys(command: &str) -> Option<&'static str> {
    macro_rules! needed {
        ($($name:literal)*) => {
            match command {
                $($name => Some(concat!(
                    "ERR at least 1 input key is needed for '", $name, "' command"
                )),)*
                _ => None,
            }
        };
    }
    needed!("zunion" "zunionstore" "zinter" "zinterstore" "zintercard" "zdiff" "zdiffstore")
}
