//! All that the shop needs for brownout: what may be left out of this answer?
//!
//! The request header `Brownout-Optional` is a structured field (RFC 9651, Boolean item): `?1`
//! compute optional content, `?0` leave it out. Parts with a name ride as parameters and come
//! before the item: `?0;recommendations=?0;comments` leaves out everything but the comments.
//! Absent, repeated or malformed means full content: whoever cannot say that the shop is busy must
//! not empty its pages.

use std::fmt;

use axum::http::HeaderMap;

/// What a request allows, or what an answer held, part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// "People who bid on this also bid on": dear.
    pub recommendations: bool,
    /// What visitors wrote below the item: cheap.
    pub comments: bool,
}

impl Parts {
    /// A page with everything.
    pub const ALL: Self = Self { recommendations: true, comments: true };
    /// A page with what it must have.
    pub const NONE: Self = Self { recommendations: false, comments: false };

    /// What the request's header allows.
    pub fn allowed(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all("brownout-optional").iter();
        let (Some(value), None) = (values.next(), values.next()) else { return Self::ALL };
        value.to_str().ok().and_then(parse).unwrap_or(Self::ALL)
    }
}

impl fmt::Display for Parts {
    /// The value of `Brownout-Served`: `?1` full, `?0` lean, with names when only some are there.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.recommendations, self.comments) {
            (true, true) => formatter.write_str("?1"),
            (false, false) => formatter.write_str("?0"),
            (true, false) => formatter.write_str("?0;recommendations;comments=?0"),
            (false, true) => formatter.write_str("?0;recommendations=?0;comments"),
        }
    }
}

/// A Boolean item with Boolean parameters, or `None`; names of other parts are passed over.
fn parse(text: &str) -> Option<Parts> {
    let mut members = text.trim_matches(' ').split(';');
    let everything = boolean(members.next()?)?;
    let mut parts = Parts { recommendations: everything, comments: everything };
    for member in members {
        let (name, value) =
            member.trim_start_matches(' ').split_once('=').unwrap_or((member, "?1"));
        let value = boolean(value)?;
        match name.trim_start_matches(' ') {
            "recommendations" => parts.recommendations = value,
            "comments" => parts.comments = value,
            other if is_name(other) => {}
            _ => return None,
        }
    }
    Some(parts)
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "?1" => Some(true),
        "?0" => Some(false),
        _ => None,
    }
}

/// A key as RFC 9651, section 3.1.2, has it.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase() || first == '*')
        && text.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECOMMENDATIONS: Parts = Parts { recommendations: true, comments: false };
    const COMMENTS: Parts = Parts { recommendations: false, comments: true };

    fn allowed(values: &[&str]) -> Parts {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("brownout-optional", value.parse().unwrap());
        }
        Parts::allowed(&headers)
    }

    #[test]
    fn a_part_follows_its_name_and_else_the_item() {
        for (value, expected) in [
            ("?1", Parts::ALL),
            ("?0", Parts::NONE),
            (" ?0 ", Parts::NONE),
            ("?0;recommendations=?0;comments", COMMENTS),
            ("?0;comments", COMMENTS),
            ("?0; comments=?1", COMMENTS),
            ("?0;  recommendations", RECOMMENDATIONS),
            ("?1;comments=?0", RECOMMENDATIONS),
            ("?0;comments;comments=?0", Parts::NONE), // the last of two equal keys counts
            ("?0;adverts;similar-items=?0", Parts::NONE),
        ] {
            assert_eq!(allowed(&[value]), expected, "{value}");
        }
    }

    #[test]
    fn absent_repeated_and_malformed_mean_everything() {
        assert_eq!(allowed(&[]), Parts::ALL);
        assert_eq!(allowed(&["?0", "?0"]), Parts::ALL);
        for value in [
            "",
            "0",
            "false",
            "?2",
            "?0, ?0",
            "?0;",
            "?0;=?0",
            "?0;Comments=?0",
            "?0 ;comments",
            "?0;comments =?0",
            "?0;comments=0",
            "?0\t",
            "?",
            "\u{e9}",
        ] {
            assert_eq!(allowed(&[value]), Parts::ALL, "{value:?}");
        }
    }

    #[test]
    fn what_was_served_reads_back_as_itself() {
        for parts in [Parts::ALL, Parts::NONE, RECOMMENDATIONS, COMMENTS] {
            assert_eq!(allowed(&[&parts.to_string()]), parts);
        }
    }
}
