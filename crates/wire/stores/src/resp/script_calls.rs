//! Which commands a script calls, as far as its text says so.
//!
//! `redis.call('get', KEYS[1])` names its command. A text in which some call does not, or that
//! could reach `redis` otherwise, may call anything.

/// Ways of Lua to reach what is not named.
const DETOURS: [&str; 7] = ["_G", "fenv", "load", "rawget", "server", "require", "dofile"];

/// The names of all commands that a script may call; `None`: it may call any.
pub fn called(script: &str) -> Option<Vec<&str>> {
    if DETOURS.iter().any(|detour| script.contains(detour)) {
        return None;
    }
    let mut names = Vec::new();
    for (at, word) in script.match_indices("redis") {
        let behind = script[at + word.len()..].strip_prefix('.')?;
        if let Some(call) = behind.strip_prefix("call").or_else(|| behind.strip_prefix("pcall")) {
            names.push(name_of(call)?);
        }
    }
    // Else one of them is called by another name.
    (script.matches("call").count() == names.len()).then_some(names)
}

/// The first argument, where it is a name between quotes and nothing is added to it.
fn name_of(call: &str) -> Option<&str> {
    let arguments = call.trim_start().strip_prefix('(')?.trim_start();
    let quote = arguments.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let (name, behind) = arguments[1..].split_once(quote)?;
    let is_whole = behind.trim_start().starts_with([',', ')']);
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_whole && is_name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_where_each_call_says_its_own() {
        for (script, expected) in [
            ("return 1", Some(vec![])),
            ("redis.call('set', KEYS[1], 1)", Some(vec!["set"])),
            ("return redis.pcall ( \"GET\" , KEYS[1])", Some(vec!["GET"])),
            ("redis.call('ping') return redis.sha1hex('')", Some(vec!["ping"])),
            ("redis.call('set', 'redis', 1)", None),
            ("local c = redis.call c('get')", None),
            ("local r = redis r.call('get')", None),
            ("redis['ca' .. 'll']('get')", None),
            ("redis.call(ARGV[1])", None),
            ("redis.call('g' .. 'et')", None),
            ("redis.call('')", None),
            ("_G['red' .. 'is'].call('get')", None),
            ("loadstring('x')()", None),
        ] {
            assert_eq!(called(script), expected, "{script}");
        }
    }
}
