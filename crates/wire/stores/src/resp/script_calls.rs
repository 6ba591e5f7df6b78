//! Which commands a script calls, where its text leaves no doubt.
//!
//! Lua has many ways to call what it does not name: variables, names put together while it runs,
//! environments, metatables that an earlier script has changed. So a script counts as known only
//! if its text has nothing but calls such as `redis.call('set', KEYS[1], 'x')`, one behind the
//! other: no variable, no operator, no comment, no function, and nothing is called or looked into
//! but `redis`, `KEYS` and `ARGV`. Any other script may call anything.

/// All words that such a text may have beside numbers.
const WORDS: [&str; 8] = ["redis", "call", "pcall", "KEYS", "ARGV", "return", "true", "false"];

/// The names of all commands that a script calls; `None`: it may call any.
pub fn called(script: &str) -> Option<Vec<&str>> {
    let tokens = tokens(script)?;
    let (mut names, mut before) = (Vec::new(), "");
    for (at, &token) in tokens.iter().enumerate() {
        let is_in_place = match token {
            "redis" => {
                names.push(name_of(&tokens[at + 1..])?);
                true
            }
            "." => before == "redis",
            "call" | "pcall" => before == ".",
            "(" => matches!(before, "call" | "pcall" | "return"),
            "[" => matches!(before, "KEYS" | "ARGV"),
            // Behind what has a value it would be the argument of a call.
            _ if is_string(token) => matches!(before, "(" | "," | "[" | "return"),
            _ => true,
        };
        before = token;
        if !is_in_place {
            return None;
        }
    }
    Some(names)
}

/// The command of the call that begins with these, behind `redis`.
fn name_of<'a>(tokens: &[&'a str]) -> Option<&'a str> {
    let [".", "call" | "pcall", "(", name, "," | ")", ..] = tokens else { return None };
    let name = is_string(name).then(|| &name[1..name.len() - 1])?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then_some(name)
}

fn is_string(token: &str) -> bool {
    token.starts_with(['\'', '"'])
}

/// A text in its words, strings and marks; `None`: there are others than those that are known.
fn tokens(script: &str) -> Option<Vec<&str>> {
    let mut tokens = Vec::new();
    let mut rest = script.trim_ascii_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' | '[' | ']' | ',' | ';' | '.' => 1,
            '\'' | '"' => {
                let end = rest[1..].find([first, '\\', '\n', '\r'])? + 1;
                rest[end..].starts_with(first).then_some(end + 1)?
            }
            _ => rest.find(|it: char| !it.is_ascii_alphanumeric()).unwrap_or(rest.len()),
        };
        let (token, behind) =
            rest.split_at_checked(length).filter(|(token, _)| !token.is_empty())?;
        let is_number = token.bytes().all(|byte| byte.is_ascii_digit());
        let is_word = token.starts_with(|it: char| it.is_ascii_alphanumeric());
        if is_word && !is_number && !WORDS.contains(&token) {
            return None;
        }
        tokens.push(token);
        rest = behind.trim_ascii_start();
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_where_a_script_is_nothing_but_calls() {
        for (script, expected) in [
            ("", vec![]),
            ("return 1", vec![]),
            ("redis.call('set', KEYS[1], 1)", vec!["set"]),
            ("return redis . pcall ( \"GET\" , KEYS[1])", vec!["GET"]),
            ("return(redis.call('get',KEYS[1]))", vec!["get"]),
            ("redis.call('set', 'redis', 1) return ARGV[2]", vec!["set"]),
            ("redis.call('incr', KEYS[1]); redis.call('ping')\nreturn true", vec!["incr", "ping"]),
            ("redis.call('set', KEYS[1], redis.call('get', KEYS[2]))", vec!["set", "get"]),
        ] {
            assert_eq!(called(script), Some(expected), "{script}");
        }
    }

    /// Each of them runs `GET` at a Redis, or might at one whose metatables were changed.
    #[test]
    fn whoever_may_call_what_is_not_named_may_call_anything() {
        for script in [
            // The name is put together, comes from elsewhere, or stands for something else.
            "return redis.call(ARGV[1], KEYS[1])",
            "return redis.call('g' .. 'et', KEYS[1])",
            "return redis.call('g\\101t', KEYS[1])",
            "return redis.call('g'--[[x]]..'et', KEYS[1])",
            "return redis.call([[get]], KEYS[1])",
            "return redis.call(('get'), KEYS[1])",
            "return redis.call(string.lower('GET'), KEYS[1])",
            "return redis.call(unpack({'get', KEYS[1]}))",
            "return redis.call(\"set\".sub('get', 1), KEYS[1])",
            "return redis.call('', KEYS[1])",
            // The function has another name.
            "local c = redis.call return c('get', KEYS[1])",
            "local c = redis return c.call('get', KEYS[1])",
            "local t = {redis.call} return t[1]('get', KEYS[1])",
            "local t = {f = redis.pcall} return t.f('get', KEYS[1])",
            "return pcall(redis.pcall, 'get', KEYS[1])",
            "return redis['call']('get', KEYS[1])",
            "return redis['ca' .. 'll']('get', KEYS[1])",
            "for k, v in pairs(redis) do if k == 'call' then return v('get', KEYS[1]) end end",
            "return next(redis)",
            "return _G['red' .. 'is'].call('get', KEYS[1])",
            "return _G.redis.call('get', KEYS[1])",
            "return getfenv().redis.call('get', KEYS[1])",
            "return setfenv(1, {})",
            "return loadstring(ARGV[1])()",
            "return load(function() return ARGV[1] end)()",
            "return server.call('get', KEYS[1])",
            "return redis.call'get'",
            "return redis.sha1hex('')",
            "return (redis).call('get', KEYS[1])",
            "redis.call = redis.pcall",
            // What an earlier script has left: in metatables of strings, or among the globals.
            "return ('x').y('get', KEYS[1])",
            "return ('x'):y('get', KEYS[1])",
            "return KEYS[1]['y']('get', KEYS[1])",
            "return KEYS[1]('get', KEYS[1])",
            "return KEYS[1]'get'",
            "return redis.call('ping')('get', KEYS[1])",
            "return redis.call('ping')['y']",
            "return f('get', KEYS[1])",
            "return #KEYS",
            "return -KEYS[1]",
            "return KEYS[1] .. 'x'",
            "return KEYS == ARGV",
            // What looks like a call, or hides one.
            "-- redis.call('set', KEYS[1], 1)\nreturn f()",
            "return 'redis.call(' .. f()",
            "return \"it's\" .. f('')",
            "return [[redis.call('set', KEYS[1])]] .. f()",
            "return 'a",
            "return 'a''b'",
            "redis.call('set'",
            "redis.call('set', KEYS[1]) é",
            "redis.call('sét', KEYS[1])",
            "\u{1b}Lua",
        ] {
            assert_eq!(called(script), None, "{script}");
        }
    }
}
