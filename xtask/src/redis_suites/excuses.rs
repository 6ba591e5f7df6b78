//! Tests that pass at a plain Redis only, and why that is meant so.

/// A test, and why it may fail through the front.
pub(super) struct Excuse {
    suite: &'static str,
    /// Its name; with a `*`, how it begins before that or ends behind it.
    test: &'static str,
    pub(super) reason: &'static str,
}

const fn excuse(suite: &'static str, test: &'static str, reason: &'static str) -> Excuse {
    Excuse { suite, test, reason }
}

const TRIMMED: &str = "MAXLEN ~ is MAXLEN = here: how much is left depends on how a server lays \
    its stream out";
const WATCHED: &str = "a write counts for WATCH also where it changes nothing";
const SETTINGS: &str = "CONFIG SET takes what is safe and equal at all duplicates";
const USERS: &str = "there is one user, default, with the password of the service";
const TRIES: &str = "a consumer that waits here is tried again and again at a duplicate, which \
    counts each";
const EXPIRES: &str = "keys expire at their time at each duplicate, also while clients are paused";
const GROUPS: &str = "unit/type/stream-cgroups";
const PAUSING: &str = "unit/pause";
const STREAM: &str = "unit/type/stream";
const SCRIPTING: &str = "unit/scripting";
const TRACKING: &str = "unit/tracking";
const INTROSPECTION: &str = "unit/introspection";

pub(super) const EXCUSES: &[Excuse] = &[
    excuse("unit/type/set", "SMOVE only notify dstset when the addition is successful", WATCHED),
    excuse(STREAM, "XADD with MAXLEN option and the '~' argument", TRIMMED),
    excuse(STREAM, "XADD with LIMIT *", TRIMMED),
    excuse(STREAM, "XTRIM with LIMIT *", TRIMMED),
    excuse(STREAM, "XTRIM with MAXLEN option basic test", TRIMMED),
    excuse(STREAM, "XTRIM with ~ is limited", TRIMMED),
    excuse(
        "unit/bitops",
        "SETBIT/BITFIELD only increase dirty when the value changed",
        "rdb_changes_since_last_save is one server's, which also writes its watermark",
    ),
    excuse(INTROSPECTION, "CONFIG SET rollback on *", SETTINGS),
    excuse(INTROSPECTION, "CONFIG SET with multiple args", SETTINGS),
    excuse(GROUPS, "XGROUP DESTROY should unblock XREADGROUP with -NOGROUP", TRIES),
    excuse(SCRIPTING, "Script ACL check", USERS),
    excuse(SCRIPTING, "not enough good replicas", SETTINGS),
    excuse(SCRIPTING, "reject script do not cause a Lua stack leak", SETTINGS),
    excuse(SCRIPTING, "Consistent eval error reporting", SETTINGS),
    excuse(PAUSING, "Test both active and passive expires are skipped *", EXPIRES),
    excuse(INTROSPECTION, "CONFIG sanity", SETTINGS),
    excuse(TRACKING, "Tracking invalidation message of eviction keys *", SETTINGS),
    excuse(
        TRACKING,
        "Unblocked BLMOVE gets notification after response",
        "a command that waits is tried as a write, which tells who keeps its keys",
    ),
    excuse(super::REDIS_PY, "*::test_acl_deluser", USERS),
    excuse(super::REDIS_PY, "*::test_acl_dryrun", USERS),
    excuse(super::REDIS_PY, "*::test_acl_list", USERS),
    excuse(super::REDIS_PY, "*::test_auth", USERS),
    excuse(super::REDIS_PY, "*::test_client_kill_filter_by_user", USERS),
    excuse(super::REDIS_PY, "*::test_bgsave", "snapshots are each server's own"),
    excuse(super::REDIS_PY, "*::test_config_set_multi_params", SETTINGS),
    excuse(super::REDIS_PY, "*::test_xtrim_minlen_and_length_args", TRIMMED),
];

/// The excuse for a test of a suite.
pub(super) fn find(suite: &str, test: &str) -> Option<&'static Excuse> {
    EXCUSES.iter().find(|excuse| excuse.suite == suite && excuse.is_for(test))
}

impl Excuse {
    fn is_for(&self, test: &str) -> bool {
        match (self.test.strip_prefix('*'), self.test.strip_suffix('*')) {
            (Some(end), _) => test.ends_with(end),
            (_, Some(beginning)) => test.starts_with(beginning),
            _ => test == self.test,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excuse_is_for_its_test_or_for_all_that_begin_like_it() {
        let one = excuse("unit/multi", "MULTI with SAVE", "");
        assert!(one.is_for("MULTI with SAVE") && !one.is_for("MULTI with SAVE and more"));
        let all = excuse("unit/multi", "MULTI with *", "");
        assert!(all.is_for("MULTI with SAVE") && !all.is_for("MULTI"));
        let ends = excuse("redis-py", "*::test_auth", "");
        assert!(ends.is_for("tests/a.py::T::test_auth") && !ends.is_for("a::test_auth2"));
    }

    #[test]
    fn every_excuse_has_a_reason_and_none_hides_another() {
        for (place, excuse) in EXCUSES.iter().enumerate() {
            assert!(!excuse.reason.is_empty(), "{}", excuse.test);
            let before = &EXCUSES[..place];
            let hides = |other: &Excuse| other.suite == excuse.suite && other.is_for(excuse.test);
            assert!(!before.iter().any(hides), "{} is excused twice", excuse.test);
        }
    }
}
