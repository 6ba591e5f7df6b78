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
pub(super) const SAVING: &str = "ERR a snapshot is a file of one server: have each duplicate write \
    its own by its configuration, or connect to the duplicate itself";
pub(super) const SHUTDOWN: &str = "ERR this would end one server, and the others would go on \
    without it: stop the process of that duplicate, or Evenkeel for all clients";
pub(super) const DEBUG: &str = "ERR this looks into one server, or changes it past the order of \
    writes: connect to the duplicate itself, and have it filled anew if it was changed";
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

/// Of what would change users, where they are in a file.
pub const USERS: &str = "ERR users are those of the service's acl_file: change it, then ACL LOAD";
/// The same where there is no such file.
pub const NO_USERS: &str = "ERR there is one user, default: give the service an acl_file for \
    others";
/// Of `CONFIG REWRITE`.
pub const CONFIG_REWRITE: &str = "ERR CONFIG REWRITE would change the files of the servers: write \
    settings that are to stay into them";
/// Of `MODULE LOAD` and its kin.
pub const MODULES: &str = "ERR modules belong to one server: load them in the configuration of \
    each duplicate";
/// Of `SCRIPT DEBUG`.
pub const SCRIPT_DEBUG: &str = "ERR a script that is debugged would stop one server, and all that \
    waits for it: debug it at a Redis of your own";
/// Of subcommands of `CLUSTER` that would change something.
pub(crate) const CLUSTER_CHANGES: &str = "ERR the lease decides who leads, and shards move by \
    requests to the admin address: CLUSTER changes nothing here";

/// Of newer commands: each of the next ones is why one is refused.
pub const FIELD_DEADLINES: &str = "ERR deadlines of a hash's fields pass at each duplicate by its \
    own clock: give a key of its own a deadline with PEXPIREAT";
/// It sets deadlines of keys.
pub const KEY_DEADLINES: &str = "ERR the deadlines that this sets are not decided in the order of \
    writes: use MSET and PEXPIREAT in one MULTI";
/// It has subcommands.
pub const NEWER_PARTS: &str = "ERR this command is newer than Evenkeel and has subcommands, of \
    which nothing is known here: use commands that have none";
/// It waits, listens or administers.
pub const NEWER_BARRED: &str = "ERR this command is newer than Evenkeel and waits, listens, \
    administers or is not for scripts or transactions: connect to the duplicate itself";
/// It says neither that it reads nor that it writes.
pub const NEWER_NEITHER: &str = "ERR this command is newer than Evenkeel, and duplicates do not \
    say whether it reads or writes: connect to the duplicate itself";
/// Its keys are not known.
pub const NEWER_KEYS: &str = "ERR this command is newer than Evenkeel, and duplicates do not say \
    exactly which keys it uses: use commands of Redis 7.0 instead";
/// Not every duplicate has it.
pub const NEWER_NOT_ALL: &str = "ERR not every duplicate has this command: give all of them the \
    same version and the same modules";
/// Duplicates say different things of it.
pub const NEWER_DIFFERS: &str = "ERR duplicates say different things of this command: give all of \
    them the same version and the same modules";
/// It was something else before.
pub const NEWER_CHANGED: &str = "ERR duplicates say something else of this command than when \
    Evenkeel started: restart Evenkeel after a change of modules";
/// There are too many.
pub const NEWER_MANY: &str = "ERR duplicates have more commands of their own than Evenkeel notes: \
    1024 at most, without modules that are not used";

/// Subcommands that are refused of a command that is taken.
#[derive(Clone, Copy, Debug)]
pub struct Subcommands {
    /// The command, in lower case.
    pub of: &'static str,
    /// Their names, in lower case.
    pub names: &'static [&'static str],
    /// The errors, one of which a client gets.
    pub why: &'static [&'static str],
}

/// All such subcommands; those of `CLUSTER` where it is taken at all.
pub const SUBCOMMANDS: &[Subcommands] = &[
    Subcommands { of: "acl", names: &["deluser", "save", "setuser"], why: &[USERS, NO_USERS] },
    Subcommands { of: "cluster", names: CLUSTER_CHANGING, why: &[CLUSTER_CHANGES] },
    Subcommands { of: "config", names: &["rewrite"], why: &[CONFIG_REWRITE] },
    Subcommands { of: "module", names: &["load", "loadex", "unload"], why: &[MODULES] },
    Subcommands { of: "script", names: &["debug"], why: &[SCRIPT_DEBUG] },
];

/// Subcommands of `CLUSTER` that would change something.
pub(crate) const CLUSTER_CHANGING: &[&str] = &[
    "addslots",
    "addslotsrange",
    "bumpepoch",
    "delslots",
    "delslotsrange",
    "failover",
    "flushslots",
    "forget",
    "meet",
    "replicate",
    "reset",
    "saveconfig",
    "set-config-epoch",
    "setslot",
    "migration",
    "syncslots",
];

/// What Redis says of `MSET` and `MSETNX` with a key that has no value.
pub(super) fn odd_pairs(name: &str) -> Option<&'static str> {
    match name {
        "mset" => Some("ERR wrong number of arguments for 'mset' command"),
        "msetnx" => Some("ERR wrong number of arguments for 'msetnx' command"),
        _ => None,
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
