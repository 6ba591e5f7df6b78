//! Values as statements write them: literals, bind markers, functions.

use std::collections::BTreeSet;

use super::cursor::{Cursor, Unreadable};
use super::idempotence::{Findings, Why};
use super::token::Token;

/// How deep values may be nested; deeper ones are not understood.
pub(super) const DEPTH_MAX: usize = 64;

/// What a value is, as far as a write's idempotence depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Term {
    /// `[…]`: a list (or a vector).
    List,
    /// `{…}`: a set, a map or a user-defined type.
    Braces,
    /// A bind marker, by its place among all.
    Marker(u16),
    /// An integer, or what a function makes, which may be one.
    Integer,
    /// Several values in parentheses.
    Tuple,
    /// A constant that is no integer: a string, a blob, `true`, `null` …
    Constant,
}

/// Reads one value. What speaks against idempotence inside it is noted in `findings`.
pub(super) fn term(
    cursor: &mut Cursor<'_>,
    findings: &mut Findings,
    depth: usize,
) -> Result<Term, Unreadable> {
    let inner = depth.checked_sub(1).ok_or(Unreadable)?;
    match cursor.token() {
        Token::Text { raw, .. } => {
            // A column of type timestamp takes this string for the time at which it arrives.
            if raw.eq_ignore_ascii_case("now") {
                findings.refuse(Why::Function);
            }
            cursor.advance();
            Ok(Term::Constant)
        }
        Token::Constant(_) => {
            cursor.advance();
            Ok(Term::Constant)
        }
        Token::Integer(_) => {
            cursor.advance();
            Ok(Term::Integer)
        }
        Token::Symbol("?" | ":") => marker(cursor, findings).map(Term::Marker),
        Token::Symbol("[") => {
            cursor.advance();
            terms(cursor, findings, inner, "]")?;
            Ok(Term::List)
        }
        Token::Symbol("{") => braces(cursor, findings, inner),
        Token::Symbol("(") => parenthesis(cursor, findings, inner),
        Token::Symbol("-") => {
            cursor.advance();
            let is_special = cursor.takes_word("NAN") || cursor.takes_word("INFINITY");
            is_special.then_some(Term::Constant).ok_or(Unreadable)
        }
        Token::Word(word) if is_literal(word) => {
            cursor.advance();
            Ok(Term::Constant)
        }
        Token::Word(_) | Token::Quoted(_) => function(cursor, findings, inner),
        Token::Symbol(_) | Token::Unknown | Token::End => Err(Unreadable),
    }
}

/// Whether a word is a value and no name.
pub(super) fn is_literal(word: &str) -> bool {
    ["TRUE", "FALSE", "NULL", "NAN", "INFINITY"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(word))
}

/// Reads `?` or `:name` and returns its place among the markers of the text.
pub(super) fn marker(cursor: &mut Cursor<'_>, findings: &mut Findings) -> Result<u16, Unreadable> {
    if !cursor.takes("?") {
        cursor.expect(":")?;
        cursor.skip_name()?;
    }
    // The protocol counts them in 16 bits.
    let place = u16::try_from(findings.markers).map_err(|_| Unreadable)?;
    findings.markers += 1;
    Ok(place)
}

/// Values until a closing sign, which is gone past; returns how many, and what the last one is.
fn terms(
    cursor: &mut Cursor<'_>,
    findings: &mut Findings,
    depth: usize,
    end: &str,
) -> Result<(usize, Term), Unreadable> {
    let (mut count, mut last) = (0, Term::Constant);
    if cursor.takes(end) {
        return Ok((count, last));
    }
    loop {
        (count, last) = (count + 1, term(cursor, findings, depth)?);
        if cursor.takes(end) {
            return Ok((count, last));
        }
        cursor.expect(",")?;
    }
}

/// A set, a map, or a user-defined type, whose fields are names.
///
/// Cassandra writes any one of the values that a map has for one key, not the same each time. So
/// keys must be certain to differ where there are several: as strings do.
fn braces(
    cursor: &mut Cursor<'_>,
    findings: &mut Findings,
    depth: usize,
) -> Result<Term, Unreadable> {
    cursor.expect("{")?;
    if cursor.takes("}") {
        return Ok(Term::Braces);
    }
    let (mut pairs, mut strings) = (0, BTreeSet::new());
    loop {
        let key = cursor.token();
        let is_name = matches!(key, Token::Word(_) | Token::Quoted(_));
        if is_name && cursor.following() == Token::Symbol(":") {
            cursor.advance();
            cursor.advance();
            term(cursor, findings, depth)?;
        } else {
            term(cursor, findings, depth)?;
            if cursor.takes(":") {
                pairs += 1;
                if let Token::Text { raw, is_plain: false } = key {
                    strings.insert(raw);
                }
                term(cursor, findings, depth)?;
            }
        }
        if cursor.takes("}") {
            if pairs > 1 && strings.len() < pairs {
                findings.refuse(Why::MapKeys);
            }
            return Ok(Term::Braces);
        }
        cursor.expect(",")?;
    }
}

/// A tuple, a value with the type it is meant to have in front (`(list<int>) [1]`), or a value in
/// parentheses, which is that value: Cassandra takes it for a tuple of one only where the column is
/// a tuple.
fn parenthesis(
    cursor: &mut Cursor<'_>,
    findings: &mut Findings,
    depth: usize,
) -> Result<Term, Unreadable> {
    cursor.expect("(")?;
    if !is_type(*cursor) {
        return match terms(cursor, findings, depth, ")")? {
            (0, _) => Err(Unreadable),
            (1, value) => Ok(value),
            _ => Ok(Term::Tuple),
        };
    }
    while !cursor.takes(")") {
        match cursor.advance() {
            Token::Word(_) | Token::Quoted(_) | Token::Symbol("<" | ">" | "," | ".") => {}
            _ => return Err(Unreadable),
        }
    }
    term(cursor, findings, depth)
}

/// Whether a type is here, and not a value: a name that no parenthesis follows.
fn is_type(mut cursor: Cursor<'_>) -> bool {
    if matches!(cursor.token(), Token::Word(word) if is_literal(word)) {
        return false;
    }
    if cursor.skip_name().is_err() || (cursor.takes(".") && cursor.skip_name().is_err()) {
        return false;
    }
    !cursor.is_symbol("(")
}

/// A function's call, or CAST.
fn function(
    cursor: &mut Cursor<'_>,
    findings: &mut Findings,
    depth: usize,
) -> Result<Term, Unreadable> {
    if cursor.is_word("CAST") && cursor.following() == Token::Symbol("(") {
        cursor.advance();
        cursor.expect("(")?;
        term(cursor, findings, depth)?;
        cursor.expect_word("AS")?;
        cursor.skip_name()?;
        cursor.expect(")")?;
        return Ok(Term::Integer);
    }
    let function = cursor.table()?;
    cursor.expect("(")?;
    if function.keyspace.as_deref() != Some("system") || !is_pure(&function.name) {
        findings.refuse(Why::Function);
    }
    terms(cursor, findings, depth, ")")?;
    Ok(Term::Integer)
}

/// Whether a function of Cassandra's own gives the same for the same, and never a list.
///
/// Only when it is called `system.…`: a keyspace may have one of the same name, and which is meant
/// cannot be seen. Named without `_` until 4.1, with it since 5.0.
fn is_pure(name: &str) -> bool {
    let name = name.replace('_', "");
    let times = [
        "todate",
        "totimestamp",
        "tounixtimestamp",
        "mintimeuuid",
        "maxtimeuuid",
        "dateof",
        "unixtimestampof",
    ];
    times.contains(&name.as_str()) || name.starts_with("blobas") || name.ends_with("asblob")
}
