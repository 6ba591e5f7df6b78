//! Circles among the files of one crate, parents and children apart.
//!
//! Who reads a file must be able to read what it uses first, and so on to an end. Parent and child
//! are read together and may name each other. A file uses another when it names something of it:
//! by a `use`, by a path such as `crate::plan::Plan` or `super::plan::adopt`, and by a name its
//! parent imported. A name that is exported again leads to both, the exporter and the origin.
//! Imports by `*` lead to the module only, and macros are not looked into.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::crates::{Crate, Law};
use super::product::{self, Product};
use super::source::{closing_brace, is_word, words};
use super::{Tree, Violation};

/// How often a name may be exported again until it is no longer followed.
const EXPORTS_MAX: usize = 8;

pub(super) fn check(law: &Law, tree: &Tree, violations: &mut Vec<Violation>) {
    let mut closing = BTreeSet::new();
    for known in law.standing(tree) {
        check_crate(law, &known, tree, &mut closing, violations);
    }
    for (from, to) in law.circles.iter().filter(|pair| !closing.contains(*pair)) {
        let what = format!(
            "stale exception: `{from}` and `{to}` are on no circle any more; delete it from \
             CIRCLES in xtask/tidy/src/crates.rs"
        );
        violations.push(Violation::new(from, 1, what));
    }
}

/// Adds the exceptions that still stand for something to `closing`.
fn check_crate(
    law: &Law,
    known: &Crate,
    tree: &Tree,
    closing: &mut BTreeSet<(&'static str, &'static str)>,
    violations: &mut Vec<Violation>,
) {
    let products = product::of_crate(tree, known.folder);
    let mut uses = uses(&products);
    let circles = knots(products.len(), &uses);
    let is_in_one = |edge: &(usize, usize)| {
        circles.iter().any(|knot| knot.contains(&edge.0) && knot.contains(&edge.1))
    };
    let excepted = |edge: &(usize, usize)| {
        let path = |at: usize| products[at].file.path.as_str();
        law.circles.iter().find(|pair| (path(edge.0), path(edge.1)) == **pair)
    };
    closing.extend(uses.keys().filter(|edge| is_in_one(edge)).filter_map(excepted));
    uses.retain(|edge, _| excepted(edge).is_none());
    for knot in knots(products.len(), &uses) {
        violations.push(report(&products, &uses, &knot));
    }
}

fn report(products: &[Product<'_>], uses: &Uses, knot: &[usize]) -> Violation {
    let circle = shortest(uses, knot);
    let step = |at: usize| {
        let edge = (circle[at], circle[(at + 1) % circle.len()]);
        let used = &uses[&edge];
        let [from, to] = [edge.0, edge.1].map(|index| products[index].file.path.as_str());
        format!("\n    {from}:{} names `{}`: (\"{from}\", \"{to}\")", used.line, used.name)
    };
    let steps: String = (0..circle.len()).map(step).collect();
    let first = &uses[&(circle[0], circle[1 % circle.len()])];
    let what = format!(
        "circle of {} files, of a knot of {}; move what both sides need below both, or hand it \
         in:{steps}",
        circle.len(),
        knot.len()
    );
    Violation::new(&products[circle[0]].file.path, first.line, what)
}

/// Where a file names another first.
struct Used {
    line: usize,
    name: String,
}

/// By indices of files: who names whom. Parents and children are left out.
type Uses = BTreeMap<(usize, usize), Used>;

fn uses(products: &[Product<'_>]) -> Uses {
    let names = Names::of(products);
    let mut uses = Uses::new();
    for (from, paths) in names.paths.iter().enumerate() {
        for path in paths {
            for to in names.files(from, path) {
                let [a, b] = [from, to].map(|index| &products[index].module);
                if !a.starts_with(b) && !b.starts_with(a) {
                    let line = products[from].line(path.offset);
                    let name = path.parts.join("::");
                    uses.entry((from, to)).or_insert(Used { line, name });
                }
            }
        }
    }
    uses
}

/// A path in the source of one file.
struct Path<'a> {
    parts: Vec<&'a str>,
    offset: usize,
    /// The name it has in this file, of an import.
    import: Option<&'a str>,
    /// How many modules within the file it stands in: `super` leads out of those first.
    inner: usize,
}

/// All names of one crate that lead from file to file.
struct Names<'a> {
    files: BTreeMap<&'a [&'a str], usize>,
    modules: Vec<&'a [&'a str]>,
    paths: Vec<Vec<Path<'a>>>,
    /// By file and name.
    imports: BTreeMap<(usize, &'a str), (usize, usize)>,
}

impl<'a> Names<'a> {
    fn of(products: &'a [Product<'a>]) -> Self {
        let modules: Vec<_> = products.iter().map(|product| &product.module[..]).collect();
        let files = modules.iter().enumerate().map(|(index, module)| (*module, index)).collect();
        let paths: Vec<Vec<Path<'_>>> =
            products.iter().map(|product| paths(&product.code)).collect();
        let mut imports = BTreeMap::new();
        for (file, of_file) in paths.iter().enumerate() {
            for (index, path) in of_file.iter().enumerate() {
                if let Some(name) = path.import.filter(|_| path.inner == 0) {
                    imports.entry((file, name)).or_insert((file, index));
                }
            }
        }
        Self { files, modules, paths, imports }
    }

    /// The files that `path` of the file `from` leads to.
    fn files(&self, from: usize, path: &Path<'a>) -> Vec<usize> {
        let mut found = Vec::new();
        let mut next = self.absolute(from, path);
        for _ in 0..EXPORTS_MAX {
            let Some(parts) = next else { break };
            let Some((file, rest)) = self.walk(&parts) else { break };
            found.push(file);
            next = rest.first().and_then(|name| {
                let (_, index) = *self.imports.get(&(file, name)).filter(|_| file != from)?;
                let mut origin = self.absolute(file, &self.paths[file][index])?;
                origin.extend(&rest[1..]);
                Some(origin)
            });
        }
        found
    }

    /// The file that has the first of `parts`, and what is left within it.
    fn walk<'p>(&self, parts: &'p [&'a str]) -> Option<(usize, &'p [&'a str])> {
        let mut depths = (0..=parts.len()).rev();
        depths.find_map(|depth| Some((*self.files.get(&parts[..depth])?, &parts[depth..])))
    }

    /// The path from the crate's root; nothing when it leads out of the crate.
    fn absolute(&self, file: usize, path: &Path<'a>) -> Option<Vec<&'a str>> {
        let own = self.modules[file];
        let (first, rest) = path.parts.split_first()?;
        match *first {
            "crate" => Some(rest.to_vec()),
            "self" | "super" => {
                let is_way = |part: &&&str| ["self", "super"].contains(*part);
                let way = path.parts.iter().take_while(is_way).count();
                let ups = path.parts[..way].iter().filter(|part| **part == "super").count();
                let ups = ups.saturating_sub(path.inner);
                let base = &own[..own.len().checked_sub(ups)?];
                Some([base, &path.parts[way..]].concat())
            }
            name => {
                let child = [own, &[name]].concat();
                if self.files.contains_key(&child[..]) {
                    return Some([own, &path.parts[..]].concat());
                }
                // A name that an import of this file brought in.
                let (_, index) = *self.imports.get(&(file, name))?;
                let import = &self.paths[file][index];
                let is_outside = !["crate", "self", "super"].contains(&import.parts[0]);
                if std::ptr::eq(import, path) || is_outside {
                    return None;
                }
                let mut parts = self.absolute(file, import)?;
                parts.extend(rest);
                Some(parts)
            }
        }
    }
}

/// Every path of two parts or more and every import.
fn paths(code: &str) -> Vec<Path<'_>> {
    let imports: Vec<(usize, usize)> = words(code, "use")
        .filter_map(|offset| Some((offset, offset + code[offset..].find(';')?)))
        .collect();
    let modules = inner_modules(code);
    let inner = |offset: usize| modules.iter().filter(|(a, b)| (*a..*b).contains(&offset)).count();
    let mut paths = Vec::new();
    for (start, end) in &imports {
        let mut tokens = tokens(&code[start + "use".len()..*end]);
        tokens.reverse();
        import(&mut tokens, &[], &mut |parts, name| {
            paths.push(Path { parts, offset: *start, import: name, inner: inner(*start) });
        });
    }
    let mut at = 0;
    while let Some((offset, parts, end)) = next_path(code, at) {
        at = end;
        if !imports.iter().any(|(a, b)| (*a..*b).contains(&offset)) {
            paths.push(Path { parts, offset, import: None, inner: inner(offset) });
        }
    }
    paths
}

/// Modules within the file: `mod platform { … }`.
fn inner_modules(code: &str) -> Vec<(usize, usize)> {
    let modules = words(code, "mod").filter_map(|offset| {
        let open = offset + code[offset..].find(['{', ';'])?;
        let is_body = code.as_bytes()[open] == b'{';
        is_body.then(|| Some((open, closing_brace(code.as_bytes(), open)?)))?
    });
    modules.collect()
}

/// Names, `::`, `{`, `}`, `,` and `*`.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if is_word(&first) => rest.find(|c| !is_word(&c)).unwrap_or(rest.len()),
            ':' => rest.len().min("::".len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        if !token.trim().is_empty() {
            tokens.push(token);
        }
    }
    tokens
}

/// Reads one tree of a `use` from the end of `tokens`, and says each path in it with the name it
/// has afterwards.
fn import<'a>(
    tokens: &mut Vec<&'a str>,
    prefix: &[&'a str],
    found: &mut impl FnMut(Vec<&'a str>, Option<&'a str>),
) {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.pop() {
        match token {
            "::" => {}
            "*" => return found(path, None),
            "{" => {
                while tokens.last().is_some_and(|token| *token != "}") {
                    import(tokens, &path, found);
                    tokens.pop_if(|token| *token == ",");
                }
                tokens.pop();
                return;
            }
            name => {
                // `{self, Plan}` is the module and a name of it.
                if name != "self" || path.is_empty() {
                    path.push(name);
                }
                if tokens.last() == Some(&"::") {
                    continue;
                }
                let renamed = tokens.pop_if(|token| *token == "as").and_then(|_| tokens.pop());
                let name = renamed.or(path.last().copied());
                return found(path, name);
            }
        }
    }
}

/// The first path of two parts or more at or after `at`: where it begins, its parts, its end.
fn next_path(code: &str, at: usize) -> Option<(usize, Vec<&str>, usize)> {
    let mut from = at;
    loop {
        let colons = from + code.get(from..)?.find("::")?;
        let head = &code[at..colons];
        let start = at
            + head.rfind(|c| !is_word(&c)).map_or(0, |before| {
                before + head[before..].chars().next().map_or(1, char::len_utf8)
            });
        if start == colons {
            from = colons + "::".len(); // `<T as Trait>::name`, `::std`
            continue;
        }
        let mut parts = vec![&code[start..colons]];
        let mut end = colons;
        while let Some(rest) = code[end..].strip_prefix("::") {
            let length = rest.find(|c| !is_word(&c)).unwrap_or(rest.len());
            end += "::".len() + length;
            if length == 0 {
                break; // `collect::<Vec<_>>`
            }
            parts.push(&rest[..length]);
        }
        return Some((start, parts, end));
    }
}

/// Files that use each other around, each group once.
fn knots(files: usize, uses: &Uses) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..files).map(|file| reached_from(uses, file)).collect();
    let knot = |file: usize| -> Vec<usize> {
        reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect()
    };
    // A group is named by its first file.
    (0..files)
        .map(|file| (file, knot(file)))
        .filter(|(file, knot)| knot.first() == Some(file))
        .map(|(_, knot)| knot)
        .collect()
}

fn reached_from(uses: &Uses, file: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![file];
    while let Some(file) = waiting.pop() {
        waiting.extend(used_by(uses, file).filter(|to| reached.insert(*to)));
    }
    reached
}

fn used_by(uses: &Uses, file: usize) -> impl Iterator<Item = usize> {
    uses.range((file, 0)..(file + 1, 0)).map(|((_, to), _)| *to)
}

/// The shortest way around within `knot`, from its first file.
fn shortest(uses: &Uses, knot: &[usize]) -> Vec<usize> {
    let around = |start: usize| {
        let mut before = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(file) = queue.pop_front() {
            for to in used_by(uses, file).filter(|to| knot.contains(to)) {
                if to == start {
                    let back = |at: &usize| before.get(at).copied();
                    let mut way: Vec<usize> = std::iter::successors(Some(file), back).collect();
                    way.reverse();
                    return way;
                }
                if let Entry::Vacant(vacant) = before.entry(to) {
                    vacant.insert(file);
                    queue.push_back(to);
                }
            }
        }
        knot.to_vec()
    };
    let circles = knot.iter().map(|start| around(*start));
    circles.min_by_key(Vec::len).expect("a knot has files")
}

#[cfg(test)]
mod tests {
    use super::super::crates::{Kind, row};
    use super::*;

    const CRATES: &[Crate] = &[row("keel", "crates/keel", 0, Kind::Decides)];

    fn report_with(
        circles: &'static [(&'static str, &'static str)],
        files: &[(&str, &str)],
    ) -> Vec<String> {
        let paths: Vec<String> =
            files.iter().map(|(path, _)| format!("crates/keel/src/{path}")).collect();
        let files = paths.iter().zip(files).map(|(path, (_, text))| (&**path, *text));
        let files: Vec<_> = files.chain([("crates/keel/Cargo.toml", "")]).collect();
        let law = Law { crates: CRATES, circles, ..Law::default() };
        let mut violations = Vec::new();
        check(&law, &Tree::of(&files), &mut violations);
        violations.iter().map(Violation::to_string).collect()
    }

    /// Whether `crate::a` and `crate::b` are on a circle, with these texts.
    fn is_circle(a: &str, b: &str) -> bool {
        let files = [("lib.rs", "mod a;\nmod b;\n"), ("a.rs", a), ("b/mod.rs", b)];
        let report = report_with(&[], &files);
        assert!(report.len() <= 1, "{report:?}");
        !report.is_empty()
    }

    #[test]
    fn every_form_of_a_path_is_a_use() {
        for a in [
            "use crate::b;",
            "use crate::b::B;",
            "pub(crate) use super::b::{B, C as D};",
            "use crate::{\n    a::A,\n    b::{c::{D, E}, F},\n};",
            "use super::{b::*, c};",
            "use super::b as other;",
            "fn f() -> crate::b::B {}",
            "fn f() { super::b::g::<u8>(); }",
            "mod inner { use super::super::b::B; }",
            "fn f() { use crate::b::B; }",
            "fn f(b: &impl crate::b::Trait) {}",
            "use super::super::a::A;\nuse super::b::B;",
        ] {
            assert!(is_circle(a, "use super::a::A;"), "{a}");
            assert!(!is_circle(a, "use std::fmt;"), "{a}");
        }
    }

    #[test]
    fn other_names_comments_and_tests_are_no_uses() {
        for a in [
            "// use crate::b::B;",
            "const A: &str = \"crate::b\";",
            "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n",
            "use b::B;",
            "use other::b::B;",
            "use super::bb::B;",
            "mod inner { use super::b::B; }",
            "pub(in crate::a) fn f() {}",
        ] {
            assert!(!is_circle(a, "use super::a::A;"), "{a}");
        }
    }

    #[test]
    fn a_parent_and_its_child_may_use_each_other() {
        let report = report_with(
            &[],
            &[
                ("lib.rs", "mod a;\nuse a::A;"),
                ("a.rs", "mod b;\nuse b::B;\nuse super::L;"),
                ("a/b.rs", "use super::A;\nuse crate::L;"),
            ],
        );
        assert_eq!(report, [""; 0]);
    }

    #[test]
    fn a_name_that_is_exported_again_leads_to_its_origin() {
        let of = |c: &str| {
            let room = "mod b;\nmod c;\nuse b::B;\npub(super) use c::C as D;\n";
            report_with(&[], &[("a/mod.rs", room), ("a/b.rs", "use super::D;"), ("a/c.rs", c)])
        };
        for c in ["use super::B;", "fn f() { crate::a::B::new() }", "use super::b;\nb::f();"] {
            assert_eq!(of(c).len(), 1, "{c}");
        }
        for c in ["use super::D;", "use super::C;", "use crate::a::E;"] {
            assert_eq!(of(c), [""; 0], "{c}");
        }
    }

    const LONG: [(&str, &str); 4] = [
        ("a.rs", "\nuse crate::b::B;"),
        ("b.rs", "use crate::c::C;"),
        ("c.rs", "use crate::{a::A, d::D};"),
        ("d.rs", "use crate::a::A;"),
    ];

    #[test]
    fn a_report_shows_the_shortest_circle_and_who_names_whom() {
        let report = report_with(&[], &LONG);
        assert_eq!(report.len(), 1);
        let expected = "crates/keel/src/a.rs:2: circle of 3 files, of a knot of 4; ";
        assert!(report[0].starts_with(expected), "{report:?}");
        let step = "crates/keel/src/c.rs:1 names `crate::a::A`: \
                    (\"crates/keel/src/c.rs\", \"crates/keel/src/a.rs\")";
        assert!(report[0].contains(step), "{report:?}");
    }

    #[test]
    fn an_exception_stands_as_long_as_it_closes_a_circle() {
        const EXCEPTED: &[(&str, &str)] = &[("crates/keel/src/a.rs", "crates/keel/src/b.rs")];
        assert_eq!(report_with(EXCEPTED, &LONG), [""; 0]);
        for files in [&LONG[..2], &[]] {
            let report = report_with(EXCEPTED, files);
            assert_eq!(report.len(), 1, "{report:?}");
            assert!(report[0].starts_with("crates/keel/src/a.rs:1: stale exception"));
        }
    }
}
