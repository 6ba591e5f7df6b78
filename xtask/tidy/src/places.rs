//! What may be written at few places only: the loop that steps a call, the loop that accepts
//! connections, and errors that are bare text.

use super::crates::{Crate, Kind, Law, Place};
use super::product::{self, Product};
use super::source::{is_word, words};
use super::{Tree, Violation};

/// A rule: which crates it is about, how to find it, where it may stand, and why not elsewhere.
struct Rule {
    applies: fn(&Crate) -> bool,
    find: fn(&str) -> Vec<usize>,
    places: &'static [Place],
    list: &'static str,
    what: &'static str,
}

pub(super) fn check(law: &Law, tree: &Tree, violations: &mut Vec<Violation>) {
    let rules = [
        Rule {
            applies: |known| known.kind != Kind::Decides,
            find: steps,
            places: law.steps,
            list: "STEPS",
            what: "steps of a call; one loop does it for all protocols: use that",
        },
        Rule {
            applies: |_| true,
            find: accepts,
            places: law.accepts,
            list: "ACCEPTS",
            what: "accepts of connections; one loop has limits and a drain: use that",
        },
        Rule {
            applies: |known| known.package != "xtask",
            find: string_errors,
            places: law.string_errors,
            list: "STRING_ERRORS",
            what: "`Result<_, String>`; give the error a type that callers can match",
        },
    ];
    for known in law.standing(tree) {
        let products = product::of_crate(tree, known.folder);
        for rule in rules.iter().filter(|rule| (rule.applies)(&known)) {
            rule.check(&products, violations);
        }
    }
    for rule in &rules {
        rule.check_gone(tree, violations);
    }
}

impl Rule {
    /// Files at their places have exactly as many as the place says: fewer is a stale exception.
    fn check(&self, products: &[Product<'_>], violations: &mut Vec<Violation>) {
        for product in products {
            let path = &product.file.path;
            let found = (self.find)(&product.code);
            let limit = self.places.iter().find(|place| place.file == path);
            let limit = limit.map_or(0, |place| place.count);
            let (count, list, what) = (found.len(), self.list, self.what);
            if count > limit {
                let line = product.line(found[limit]);
                let what = format!("{count} {what} (limit {limit}, {list})");
                violations.push(Violation::new(path, line, what));
            } else if count < limit {
                let what = format!(
                    "stale exception: {count} of {limit} in {list}; write `place(\"{path}\", \
                     {count})` in xtask/tidy/src/crates.rs, or nothing for none"
                );
                violations.push(Violation::new(path, 1, what));
            }
        }
    }

    fn check_gone(&self, tree: &Tree, violations: &mut Vec<Violation>) {
        for place in self.places.iter().filter(|place| tree.file(place.file).is_none()) {
            let what = format!(
                "stale exception: no such file; delete it from {} in xtask/tidy/src/crates.rs",
                self.list
            );
            violations.push(Violation::new(place.file, 1, what));
        }
    }
}

/// `call.step(…)`, `dispatcher(…).step(…)` and `….step(…, call)`; others step other things.
fn steps(code: &str) -> Vec<usize> {
    let found = code.match_indices(".step(").map(|(offset, _)| offset);
    found.filter(|offset| steps_a_call(code, *offset)).collect()
}

fn steps_a_call(code: &str, offset: usize) -> bool {
    let receiver = receiver(&code[..offset]);
    let open = offset + ".step".len();
    let arguments = &code[open..closing(code, open).unwrap_or(code.len())];
    ["call", "dispatcher"].contains(&receiver) || words(arguments, "call").next().is_some()
}

/// The last name of `before`, without its arguments.
fn receiver(before: &str) -> &str {
    let mut before = before.trim_end();
    if before.ends_with(')') {
        let mut depth = 0_usize;
        let open = before.rfind(|c| {
            match c {
                ')' => depth += 1,
                '(' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        before = &before[..open.unwrap_or_default()];
    }
    let start = before.rfind(|c| !is_word(&c)).map_or(0, |at| at + 1);
    &before[start..]
}

/// What closes the parenthesis or angle at `open`; the angle of `->` closes none.
fn closing(code: &str, open: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let (opens, closes) = if bytes[open] == b'(' { (b'(', b')') } else { (b'<', b'>') };
    let mut depth = 0_usize;
    for (offset, byte) in bytes.iter().enumerate().skip(open) {
        if *byte == opens {
            depth += 1;
        } else if *byte == closes && !(closes == b'>' && bytes[offset - 1] == b'-') {
            depth -= 1;
            if depth == 0 {
                return Some(offset);
            }
        }
    }
    None
}

/// `.accept()` of a listener; that of TLS has an argument.
fn accepts(code: &str) -> Vec<usize> {
    let marks = [".accept()", ".poll_accept(", ".incoming()"];
    let mut found: Vec<usize> =
        marks.iter().flat_map(|mark| code.match_indices(mark)).map(|(offset, _)| offset).collect();
    found.sort_unstable();
    found
}

/// `Result<…, String>`.
fn string_errors(code: &str) -> Vec<usize> {
    let found = words(code, "Result").filter(|offset| {
        let open = offset + "Result".len();
        code[open..].starts_with('<')
            && closing(code, open).is_some_and(|end| error_of(&code[open + 1..end]) == "String")
    });
    found.collect()
}

/// The last of several types.
fn error_of(types: &str) -> &str {
    let types = types.trim_end().trim_end_matches(',');
    let mut depth = 0_usize;
    let comma = types.rfind(|c| {
        match c {
            '>' | ')' | ']' => depth += 1,
            '<' | '(' | '[' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    comma.map_or("", |comma| types[comma + 1..].trim())
}

#[cfg(test)]
mod tests {
    use super::super::crates::row;
    use super::*;

    const CRATES: &[Crate] = &[
        row("k-core", "crates/core", 0, Kind::Decides),
        row("k-net", "crates/net", 1, Kind::Sockets),
        row("xtask", "xtask", 2, Kind::Assembles),
    ];

    const LIMITED: Law = Law {
        crates: CRATES,
        tests_may_use: &[],
        steps: &[Place { file: "crates/net/src/exchange.rs", count: 1 }],
        accepts: &[],
        string_errors: &[],
        circles: &[],
    };

    fn found(path: &str, text: &str) -> Vec<String> {
        let exchange = ("crates/net/src/exchange.rs", "call.step();\n");
        let manifests = CRATES.iter().map(Crate::manifest).collect::<Vec<_>>();
        let mut files: Vec<_> = manifests.iter().map(|path| (&**path, "")).collect();
        files.extend([exchange].iter().filter(|file| file.0 != path));
        files.push((path, text));
        let mut violations = Vec::new();
        check(&LIMITED, &Tree::of(&files), &mut violations);
        violations.iter().map(Violation::to_string).collect()
    }

    #[test]
    fn a_call_is_stepped_where_the_table_says() {
        for text in [
            "self.call.step()",
            "self.calls.dispatcher(self.datacenter(a)).step(now, x)",
            "self.calls\n    .dispatcher\n    .step(now, x)",
            "one.step(now, &mut call)",
        ] {
            let report = found("crates/net/src/other.rs", text);
            assert_eq!(report.len(), 1, "{text}: {report:?}");
            assert!(report[0].starts_with("crates/net/src/other.rs:"), "{report:?}");
            assert_eq!(found("crates/core/src/lib.rs", text), [""; 0]);
        }
        for text in ["elastic.step(servers, caller)", "grid.step()", "f(call).stepped()"] {
            assert_eq!(found("crates/net/src/other.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_listener_accepts_where_the_table_says() {
        for text in ["listener.accept().await", "l.poll_accept(context)", "l.incoming()"] {
            assert_eq!(found("crates/net/src/other.rs", text).len(), 1, "{text}");
            let test = format!("#[cfg(test)]\nmod tests {{\n    {text}\n}}\n");
            assert_eq!(found("crates/net/src/other.rs", &test), [""; 0]);
            assert_eq!(found("crates/net/tests/other.rs", text), [""; 0]);
        }
        assert_eq!(found("crates/net/src/other.rs", "acceptor.accept(stream).await"), [""; 0]);
    }

    #[test]
    fn an_error_has_a_type() {
        for text in [
            "fn f() -> Result<u8, String> {}",
            "type A = Result<(u8, String), String>;",
            "fn f(g: impl Fn() -> Result<Vec<u8>, String>) {}",
            "fn f() -> Result<\n    fn(u8) -> u8,\n    String,\n> {}",
        ] {
            let report = found("crates/net/src/other.rs", text);
            assert_eq!(report.len(), 1, "{text}: {report:?}");
            assert_eq!(found("xtask/src/other.rs", text), [""; 0]);
        }
        for text in [
            "Result<String, u8>",
            "fmt::Result",
            "Result<(u8, String)>",
            "Result<String, Vec<String>>",
        ] {
            assert_eq!(found("crates/net/src/other.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn an_exception_that_no_longer_applies_is_reported() {
        let report = found("crates/net/src/exchange.rs", "");
        assert!(report[0].contains("stale exception: 0 of 1 in STEPS"), "{report:?}");
        let mut violations = Vec::new();
        check(&LIMITED, &Tree::of(&[]), &mut violations);
        assert!(violations[0].to_string().contains("no such file"), "{violations:?}");
    }
}
