//! The table of commands, and finding one in it by its name.

use super::refusals::{
    ADMINISTRATION, CLUSTER, DEBUG, MIGRATION, REPLICATION, SAVING, SHUTDOWN, SWAPDB,
};
use super::{
    Channels, Class, Command, Keys, Local, Merge, Options, Repeat, Rewrite, Shape, Time, Wait,
    Whole,
};

const NONE: Keys = Keys::None;
const ONE: Keys = Keys::Span { first: 1, last: 1, step: 1 };
const TWO: Keys = Keys::Span { first: 1, last: 2, step: 1 };
const ALL: Keys = Keys::Span { first: 1, last: -1, step: 1 };
const ALL_BUT_LAST: Keys = Keys::Span { first: 1, last: -2, step: 1 };
const PAIRS: Keys = Keys::Span { first: 1, last: -1, step: 2 };
/// The key after a subcommand, or after an operation.
const SECOND: Keys = Keys::Span { first: 2, last: 2, step: 1 };
const AFTER_SECOND: Keys = Keys::Span { first: 2, last: -1, step: 1 };
const COUNTED: Keys = Keys::Counted(1);

const WHOLE: Class = Class::Write(Repeat::Idempotent);
const PART: Class = Class::Write(Repeat::Partial);
const ONCE: Class = Class::Write(Repeat::Once);

const fn row(name: &'static str, arity: i8, class: Class, keys: Keys) -> Command {
    let (shape, merge, options) = (Shape::Plain, None, Options::Fixed);
    Command { name, arity, class, keys, shape, merge, options }
}

const fn read(name: &'static str, arity: i8, keys: Keys) -> Command {
    row(name, arity, Class::Read, keys)
}

const fn expire(name: &'static str, time: Time) -> Command {
    let class = Class::Rewritten(Rewrite::Expire(time), Repeat::Once);
    row(name, -3, class, ONE)
}

const fn local(name: &'static str, arity: i8, local: Local) -> Command {
    row(name, arity, Class::Local(local), NONE)
}

const fn whole(name: &'static str, arity: i8, whole: Whole, keys: Keys) -> Command {
    row(name, arity, Class::Whole(whole), keys)
}

const fn waits(name: &'static str, arity: i8, wait: Wait, keys: Keys) -> Command {
    row(name, arity, Class::Waits(wait), keys)
}

/// A command that is refused for this reason.
const fn no(name: &'static str, arity: i8, why: &'static str) -> Command {
    row(name, arity, Class::Refused(why), NONE)
}

impl Command {
    const fn with(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Where its keys are in several partitions, each of them does its part.
    const fn merged(mut self, merge: Merge) -> Self {
        self.merge = Some(merge);
        self
    }

    const fn shaped(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }
}

/// Every command that is known, those of Redis 7.0 and ours.
pub static COMMANDS: &[Command] = &[
    // Strings.
    row("append", 3, ONCE, ONE),
    row("decr", 2, ONCE, ONE),
    row("decrby", 3, ONCE, ONE),
    read("get", 2, ONE),
    row("getdel", 2, ONCE, ONE), // fails on what is no string
    row("getex", -2, Class::Read, ONE).with(Options::Getex),
    read("getrange", 4, ONE),
    row("getset", 3, ONCE, ONE), // fails on what is no string
    row("incr", 2, ONCE, ONE),
    row("incrby", 3, ONCE, ONE),
    row("incrbyfloat", 3, ONCE, ONE),
    read("lcs", -3, TWO),
    read("mget", -2, ALL).merged(Merge::Values),
    row("mset", -3, WHOLE, PAIRS).merged(Merge::Same),
    row("msetnx", -3, ONCE, PAIRS),
    row("psetex", 4, set_with_expiry(Time::Millis), ONE),
    row("set", -3, WHOLE, ONE).with(Options::Set),
    row("setex", 4, set_with_expiry(Time::Seconds), ONE),
    row("setnx", 3, ONCE, ONE),
    row("setrange", 4, PART, ONE),
    read("strlen", 2, ONE),
    read("substr", 4, ONE),
    // Bits of strings.
    read("bitcount", -2, ONE),
    row("bitfield", -2, ONCE, ONE).with(Options::Bitfield),
    read("bitfield_ro", -2, ONE),
    row("bitop", -4, ONCE, AFTER_SECOND), // reads its sources
    read("bitpos", -3, ONE),
    read("getbit", 3, ONE),
    row("setbit", 4, PART, ONE),
    // Any key.
    row("copy", -3, ONCE, TWO).with(Options::Copy),
    row("del", -2, WHOLE, ALL).merged(Merge::Sum),
    read("dump", 2, ONE),
    read("exists", -2, ALL).merged(Merge::Sum),
    row("move", 3, ONCE, ONE),
    expire("expire", Time::Seconds),
    expire("expireat", Time::UnixSeconds),
    read("expiretime", 2, ONE),
    read("object", -2, SECOND).with(Options::Object),
    row("persist", 2, PART, ONE),
    expire("pexpire", Time::Millis),
    row("pexpireat", -3, ONCE, ONE),
    read("pexpiretime", 2, ONE),
    read("pttl", 2, ONE),
    row("rename", 3, ONCE, TWO),
    row("renamenx", 3, ONCE, TWO),
    row("restore", -4, ONCE, ONE).with(Options::Restore),
    row("sort", -2, ONCE, Keys::Sort).with(Options::Sort),
    read("sort_ro", -2, ONE).with(Options::Sort),
    read("touch", -2, ALL).merged(Merge::Sum),
    read("ttl", 2, ONE),
    read("type", 2, ONE),
    row("unlink", -2, WHOLE, ALL).merged(Merge::Sum),
    read("memory", -2, SECOND).with(Options::Memory),
    // Hashes.
    row("hdel", -3, PART, ONE),
    read("hexists", 3, ONE),
    read("hget", 3, ONE),
    read("hgetall", 2, ONE),
    row("hincrby", 4, ONCE, ONE),
    row("hincrbyfloat", 4, ONCE, ONE),
    read("hkeys", 2, ONE),
    read("hlen", 2, ONE),
    read("hmget", -3, ONE),
    row("hmset", -4, PART, ONE),
    read("hrandfield", -2, ONE).shaped(Shape::Pairs),
    row("hset", -4, PART, ONE),
    row("hsetnx", 4, ONCE, ONE),
    read("hstrlen", 3, ONE),
    read("hvals", 2, ONE),
    // Lists: what an index or an end means depends on all that was done before.
    read("lindex", 3, ONE),
    row("linsert", 5, ONCE, ONE),
    read("llen", 2, ONE),
    row("lmove", 5, ONCE, TWO),
    row("lmpop", -4, ONCE, COUNTED).shaped(Shape::NullArray),
    row("lpop", -2, ONCE, ONE).with(Options::ListPop),
    read("lpos", -3, ONE),
    row("lpush", -3, ONCE, ONE),
    row("lpushx", -3, ONCE, ONE),
    read("lrange", 4, ONE),
    row("lrem", 4, ONCE, ONE),
    row("lset", 4, ONCE, ONE),
    row("ltrim", 4, ONCE, ONE),
    row("rpop", -2, ONCE, ONE).with(Options::ListPop),
    row("rpoplpush", 3, ONCE, TWO),
    row("rpush", -3, ONCE, ONE),
    row("rpushx", -3, ONCE, ONE),
    // Sets. Those that store read their sources.
    row("sadd", -3, PART, ONE),
    read("scard", 2, ONE),
    read("sdiff", -2, ALL),
    row("sdiffstore", -3, ONCE, ALL),
    read("sinter", -2, ALL),
    read("sintercard", -3, COUNTED),
    row("sinterstore", -3, ONCE, ALL),
    read("sismember", 3, ONE),
    read("smembers", 2, ONE),
    read("smismember", -3, ONE),
    row("smove", 4, ONCE, TWO),
    row("spop", -2, Class::Rewritten(Rewrite::Pop, Repeat::Partial), ONE),
    read("srandmember", -2, ONE),
    row("srem", -3, PART, ONE),
    read("sunion", -2, ALL),
    row("sunionstore", -3, ONCE, ALL),
    // Sorted sets.
    row("zadd", -4, PART, ONE).with(Options::Zadd),
    read("zcard", 2, ONE),
    read("zcount", 4, ONE),
    read("zdiff", -3, COUNTED).shaped(Shape::Pairs),
    row("zdiffstore", -4, ONCE, Keys::Stored),
    row("zincrby", 4, ONCE, ONE),
    read("zinter", -3, COUNTED).shaped(Shape::Pairs),
    read("zintercard", -3, COUNTED),
    row("zinterstore", -4, ONCE, Keys::Stored),
    read("zlexcount", 4, ONE),
    row("zmpop", -4, ONCE, COUNTED).shaped(Shape::NullArray),
    read("zmscore", -3, ONE),
    row("zpopmax", -2, ONCE, ONE).shaped(Shape::Pairs),
    row("zpopmin", -2, ONCE, ONE).shaped(Shape::Pairs),
    read("zrandmember", -2, ONE).shaped(Shape::Pairs),
    read("zrange", -4, ONE).shaped(Shape::Pairs),
    read("zrangebylex", -4, ONE),
    read("zrangebyscore", -4, ONE).shaped(Shape::Pairs),
    row("zrangestore", -5, ONCE, TWO),
    read("zrank", 3, ONE),
    row("zrem", -3, PART, ONE),
    row("zremrangebylex", 4, PART, ONE),
    row("zremrangebyrank", 4, ONCE, ONE),
    row("zremrangebyscore", 4, PART, ONE),
    read("zrevrange", -4, ONE).shaped(Shape::Pairs),
    read("zrevrangebylex", -4, ONE),
    read("zrevrangebyscore", -4, ONE).shaped(Shape::Pairs),
    read("zrevrank", 3, ONE),
    read("zscore", 3, ONE),
    read("zunion", -3, COUNTED).shaped(Shape::Pairs),
    row("zunionstore", -4, ONCE, Keys::Stored),
    // Places on earth.
    row("geoadd", -5, PART, ONE).with(Options::Geoadd),
    read("geodist", -4, ONE),
    read("geohash", -2, ONE),
    read("geopos", -2, ONE).shaped(Shape::NullArray),
    row("georadius", -6, ONCE, Keys::Radius).with(Options::Radius),
    read("georadius_ro", -6, ONE),
    row("georadiusbymember", -5, ONCE, Keys::Radius).with(Options::Radius),
    read("georadiusbymember_ro", -5, ONE),
    read("geosearch", -7, ONE),
    row("geosearchstore", -8, ONCE, TWO),
    // Estimates of cardinality. Their bytes depend on the way they came about (what was cached of
    // the estimate, which layout is in use), so that equal content is not equal bytes.
    row("pfadd", -2, ONCE, ONE),
    read("pfcount", -2, ALL),
    row("pfmerge", -2, ONCE, ALL),
    // Streams.
    row("xadd", -5, Class::Rewritten(Rewrite::StreamAdd, Repeat::Once), ONE),
    row("xdel", -3, ONCE, ONE),
    read("xinfo", -2, SECOND).with(Options::Xinfo),
    read("xlen", 2, ONE),
    read("xrange", -4, ONE),
    read("xread", -4, Keys::Streams).with(Options::Xread).shaped(Shape::Streams),
    read("xrevrange", -4, ONE),
    row("xsetid", -3, ONCE, ONE),
    row("xtrim", -4, Class::Rewritten(Rewrite::StreamTrim, Repeat::Once), ONE),
    // Consumer groups: who delivers notes its time.
    row("xack", -4, ONCE, ONE),
    row("xautoclaim", -6, Class::Effects, ONE),
    row("xclaim", -6, Class::Effects, ONE),
    row("xgroup", -2, ONCE, SECOND).with(Options::Xgroup),
    read("xpending", -3, ONE).shaped(Shape::Pending),
    row("xreadgroup", -7, Class::Effects, Keys::Streams)
        .with(Options::Xread)
        .shaped(Shape::Streams),
    // Scripts.
    row("eval", -3, Class::Effects, Keys::Script),
    row("eval_ro", -3, Class::Read, Keys::Script),
    row("evalsha", -3, Class::Effects, Keys::Script),
    row("evalsha_ro", -3, Class::Read, Keys::Script),
    local("script", -2, Local::Script),
    row("fcall", -3, Class::Effects, Keys::Script),
    row("fcall_ro", -3, Class::Read, Keys::Script),
    local("function", -2, Local::Function).with(Options::Function),
    // Answered here.
    local("auth", -2, Local::Auth),
    local("client", -2, Local::Client),
    local("command", -1, Local::Command),
    local("config", -2, Local::Config),
    local("discard", 1, Local::Discard),
    local("echo", 2, Local::Echo),
    local("ek.relayed", -2, Local::Relayed),
    local("ek.session", 2, Local::Session),
    local("ek.token", 1, Local::Token),
    local("exec", 1, Local::Exec).shaped(Shape::NullArray),
    local("hello", -1, Local::Hello),
    local("info", -1, Local::Info),
    local("multi", 1, Local::Multi),
    local("ping", -1, Local::Ping),
    local("quit", -1, Local::Quit),
    local("reset", 1, Local::Reset),
    local("select", 2, Local::Select),
    local("time", 1, Local::Time),
    local("unwatch", 1, Local::Unwatch),
    row("watch", -2, Class::Local(Local::Watch), ALL),
    // All keys, and cursors.
    whole("dbsize", 1, Whole::Count, NONE),
    whole("flushall", -1, Whole::Flush, NONE).with(Options::Flush),
    whole("flushdb", -1, Whole::Flush, NONE).with(Options::Flush),
    whole("keys", 2, Whole::Keys, NONE),
    whole("randomkey", 1, Whole::Random, NONE),
    whole("scan", -2, Whole::Scan, NONE),
    whole("hscan", -3, Whole::ScanPart, ONE),
    whole("sscan", -3, Whole::ScanPart, ONE),
    whole("zscan", -3, Whole::ScanPart, ONE),
    // Answered here: what stands for one server.
    local("acl", -2, Local::Acl),
    local("module", -2, Local::Module),
    local("monitor", 1, Local::Monitor),
    local("role", 1, Local::Role),
    local("wait", 3, Local::Wait),
    // Asked of one duplicate, or of all.
    local("lastsave", 1, Local::AskOne),
    local("latency", -2, Local::AskOne).with(Options::OneServer),
    local("lolwut", -1, Local::AskOne),
    local("slowlog", -2, Local::AskOne).with(Options::OneServer),
    // They wait.
    waits("blmove", 6, Wait::List, TWO),
    waits("blmpop", -5, Wait::List, Keys::Counted(2)).shaped(Shape::NullArray),
    waits("blpop", -3, Wait::List, ALL_BUT_LAST).shaped(Shape::NullArray),
    waits("brpop", -3, Wait::List, ALL_BUT_LAST).shaped(Shape::NullArray),
    waits("brpoplpush", 4, Wait::List, TWO),
    waits("bzmpop", -5, Wait::SortedSet, Keys::Counted(2)).shaped(Shape::NullArray),
    waits("bzpopmax", -3, Wait::SortedSet, ALL_BUT_LAST).shaped(Shape::NullArray),
    waits("bzpopmin", -3, Wait::SortedSet, ALL_BUT_LAST).shaped(Shape::NullArray),
    // Channels.
    local("psubscribe", -2, Local::Subscribe(Channels::Patterns)),
    local("publish", 3, Local::Publish(Channels::Plain)),
    local("pubsub", -2, Local::Pubsub),
    local("punsubscribe", -1, Local::Unsubscribe(Channels::Patterns)),
    local("spublish", 3, Local::Publish(Channels::Sharded)),
    local("ssubscribe", -2, Local::Subscribe(Channels::Sharded)),
    local("subscribe", -2, Local::Subscribe(Channels::Plain)),
    local("sunsubscribe", -1, Local::Unsubscribe(Channels::Sharded)),
    local("unsubscribe", -1, Local::Unsubscribe(Channels::Plain)),
    // Refused: databases, clusters, replication.
    no("swapdb", 3, SWAPDB),
    no("asking", 1, CLUSTER),
    no("cluster", -2, CLUSTER),
    no("readonly", 1, CLUSTER),
    no("readwrite", 1, CLUSTER),
    no("migrate", -6, MIGRATION),
    no("restore-asking", -4, MIGRATION),
    no("failover", -1, REPLICATION),
    no("psync", -3, REPLICATION),
    no("replconf", -1, REPLICATION),
    no("replicaof", 3, REPLICATION).with(Options::Replicaof),
    no("slaveof", 3, REPLICATION).with(Options::Replicaof),
    no("sync", 1, REPLICATION),
    // Refused: they concern one server.
    no("bgrewriteaof", 1, SAVING),
    no("bgsave", -1, SAVING),
    no("debug", -2, DEBUG),
    no("pfdebug", 3, ADMINISTRATION),
    no("pfselftest", 1, ADMINISTRATION),
    no("save", 1, SAVING),
    no("shutdown", -1, SHUTDOWN),
];

const fn set_with_expiry(time: Time) -> Class {
    Class::Rewritten(Rewrite::SetWithExpiry(time), Repeat::Idempotent)
}

/// More than four places for each command: most are found at the first.
const PLACES: usize = 1024;

/// No command's name is longer.
const NAME_BYTES_MAX: usize = 20;

/// Index + 1 of the command whose name leads to a place, or to one before it that was taken.
static INDEX: [u16; PLACES] = {
    let mut index = [0; PLACES];
    let mut command = 0;
    while command < COMMANDS.len() {
        assert!(COMMANDS[command].name.len() <= NAME_BYTES_MAX, "a longer name");
        let mut place = place(COMMANDS[command].name.as_bytes());
        while index[place] != 0 {
            place = (place + 1) % PLACES;
        }
        command += 1;
        index[place] = command as u16;
    }
    index
};

/// Where a name is looked for first. Upper and lower case lead to the same place.
#[inline]
const fn place(name: &[u8]) -> usize {
    let mut hash = name.len() as u32;
    let mut at = 0;
    while at < name.len() {
        hash = (hash.rotate_left(5) ^ (name[at] | 0x20) as u32).wrapping_mul(0x9E37_79B1);
        at += 1;
    }
    (hash >> 22) as usize % PLACES
}

/// The command of this name, in upper or lower case.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static Command> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let mut place = place(name);
    loop {
        let command = &COMMANDS[usize::from(INDEX[place].checked_sub(1)?)];
        if command.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(command);
        }
        place = (place + 1) % PLACES;
    }
}
