//! Brownout on the wire: who may decide, what was decided, what was done, how a replica stands.
//!
//! | header | on | says | here |
//! |---|---|---|---|
//! | `Brownout-Optional` | request | compute optional content, or leave it out | read, written, removed |
//! | `Brownout-Served` | answer | what was really done | read, passed on |
//! | `Brownout-Dimmer` | answer | the replica's dimmer, `0.73` | read, written, removed |
//! | `X-Dimmer` | answer | the same, in the paper's prototypes | read, removed |
//! | `X-WithOptional`, `Brownout-With-Optional` | answer | `1` or nothing: what was done | read |
//!
//! Decisions are in the grammar of [`wire`]; what is decided here is whom to believe.
//!
//! **A decision** is believed when it came once and is well-formed; anything else is none, and no
//! decision means full content. Both spellings of the request header are removed where clients are
//! not trusted: applications behind CGI or WSGI cannot tell `Brownout_Optional` from it.
//!
//! **A dimmer** steers how many requests a replica gets, so one that cannot be is worse than none:
//! what is repeated, out of range, no number or longer than a number is *unknown*. The policies
//! leave a replica of unknown dimmer out of their control, so that it is neither starved nor
//! flooded; what it told before counts until it is too old. `Brownout-Dimmer` is a decimal of
//! RFC 9651, hence digits with at most three after the point. PHP and Python wrote `X-Dimmer`, so
//! that may be any finite number between 0 and 1, such as `5.0E-5`. **Source**: the lighttpd and
//! RUBiS forks of the paper (`X-Dimmer`, `X-WithOptional`), RUBiS of 2017 for the last name.

use evenkeel_core::dimmer::Content;
use evenkeel_core::dimmer::wire::{self, Decision};
use evenkeel_core::units::Dimmer;
use evenkeel_http::{FieldValue, Fields, Repeated};
use http::header;
use http::{HeaderName, HeaderValue, StatusCode};

/// Compute optional content or leave it out: of a request.
pub const OPTIONAL: HeaderName = HeaderName::from_static("brownout-optional");
/// What was really served: of an answer.
pub const SERVED: HeaderName = HeaderName::from_static("brownout-served");
/// The dimmer of whoever answered.
pub const DIMMER: HeaderName = HeaderName::from_static("brownout-dimmer");
/// The dimmer as the paper's prototypes named it.
pub const DIMMER_2014: HeaderName = HeaderName::from_static("x-dimmer");

/// What the prototypes said they had served.
const SERVED_2014: HeaderName = HeaderName::from_static("x-withoptional");
const SERVED_2017: HeaderName = HeaderName::from_static("brownout-with-optional");

/// The longest number that is read; `1.1102230246251565E-16` has 22 bytes.
const NUMBER_BYTES_MAX: usize = 32;

/// Removes every decision that came with a request, and what CGI and WSGI take for one: there all
/// that is no letter or digit becomes the same underscore.
#[inline]
pub fn strip_decision(headers: &mut Fields) {
    headers.remove_like(&OPTIONAL);
}

/// Whether an answer says anything of brownout at all. Most do not, and how names begin tells that
/// without a look at them.
#[inline]
pub fn is_mentioned(headers: &Fields) -> bool {
    headers.contains_prefix("brownout-")
        || headers.contains(DIMMER_2014)
        || headers.contains(SERVED_2014)
}

/// The decision that came with a request; `None` also when it is repeated or malformed.
pub fn decision(headers: &Fields) -> Option<Decision<'_>> {
    Decision::parse(only(headers, &OPTIONAL)?.as_bytes()).ok()
}

/// What an answer says was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    /// How many of the parts that the reader knows.
    pub content: Content,
    /// Whether nothing at all was left out, also of parts that the reader does not know.
    pub is_full: bool,
}

/// What an answer says was served of these parts, in the new words or those of the prototypes;
/// `None` when it says nothing that can be understood.
pub fn served(headers: &Fields, parts: &[String]) -> Option<Said> {
    if headers.contains(SERVED) {
        let decision = Decision::parse(only(headers, &SERVED)?.as_bytes()).ok()?;
        return Some(Said { content: decision.content(parts), is_full: decision.is_full() });
    }
    let count = u8::try_from(parts.len()).unwrap_or(u8::MAX).max(1);
    let is_full = served_of_prototypes(headers)?;
    Some(Said { content: Content::new(if is_full { count } else { 0 }, count), is_full })
}

/// The words of the prototypes: PHP prints `true` as `1` and `false` as nothing.
fn served_of_prototypes(headers: &Fields) -> Option<bool> {
    let said = only(headers, &SERVED_2014).or_else(|| only(headers, &SERVED_2017))?;
    match said.as_bytes() {
        b"1" => Some(true),
        b"" => Some(false),
        _ => None,
    }
}

/// Says in the new words what an answer said in those of the prototypes.
pub fn translate_served(headers: &mut Fields) {
    if headers.contains(SERVED) {
        return;
    }
    if let Some(is_full) = served_of_prototypes(headers) {
        headers.insert(SERVED, &HeaderValue::from_static(if is_full { "?1" } else { "?0" }));
    }
}

/// Takes the replica's dimmer out of the headers of its answer; no client ever sees it.
///
/// Both headers are removed whatever they hold. When both are there the new one counts.
///
/// # Errors
/// When there is a dimmer that must not be believed.
pub fn take_dimmer(headers: &mut Fields) -> Result<Option<Dimmer>, BadDimmer> {
    let repeated = |_: Repeated| BadDimmer::Repeated;
    let new = headers.take_only(DIMMER).map_err(repeated);
    let old = headers.take_only(DIMMER_2014).map_err(repeated);
    match (new?, old) {
        (Some(value), _) => parse_dimmer(value.as_bytes()).map(Some),
        (None, Ok(Some(value))) => parse_dimmer_2014(value.as_bytes()).map(Some),
        (None, Ok(None)) => Ok(None),
        (None, Err(error)) => Err(error),
    }
}

/// The dimmer as the value of [`DIMMER`].
#[inline]
pub fn write_dimmer(dimmer: Dimmer) -> HeaderValue {
    HeaderValue::from_static(wire::dimmer_text(dimmer))
}

/// What a request is to be served, as the value of [`OPTIONAL`]. Parts must be names on the wire.
///
/// # Panics
/// When a part is no such name.
pub fn write_decision(content: Content, parts: &[String]) -> HeaderValue {
    HeaderValue::try_from(&*wire::write(content, parts)).expect("names of parts are printable")
}

/// Keeps an answer with something left out from being shown later as if it were whole, by anybody,
/// the visitor's own browser included: `Cache-Control: no-store`, whatever the application said,
/// and nothing that caches obey instead. A 304 stays: it stands for what the client has.
pub fn forbid_storing(status: StatusCode, headers: &mut Fields) {
    if status == StatusCode::NOT_MODIFIED {
        return;
    }
    headers.retain(|name| !wire::lets_store(&name.to_string().to_ascii_lowercase()));
    headers.insert(header::CACHE_CONTROL, &HeaderValue::from_static("no-store"));
}

/// Why a dimmer is not believed.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadDimmer {
    /// The header came more than once: nobody knows which one holds.
    #[error("a dimmer came twice on an answer, expected one")]
    Repeated,
    /// It is not written as a dimmer, or longer than any.
    #[error(
        "a dimmer came that is no number of at most three fraction digits, expected such as 0.73"
    )]
    Malformed,
    /// It is not between 0 and 1.
    #[error("a dimmer came as {0}, expected a number from 0 to 1")]
    OutOfRange(f64),
}

/// `1`, `0.5`, `0.730`: an Integer or Decimal of RFC 9651 that is a dimmer.
fn parse_dimmer(value: &[u8]) -> Result<Dimmer, BadDimmer> {
    let value = value.trim_ascii();
    let number = value.strip_prefix(b"-").unwrap_or(value);
    let point = number.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = number.split_at(point.unwrap_or(number.len()));
    let is_decimal = match fraction {
        [] => (1..=15).contains(&whole.len()),
        [_, digits @ ..] => {
            (1..=12).contains(&whole.len())
                && (1..=3).contains(&digits.len())
                && digits.iter().all(u8::is_ascii_digit)
        }
    };
    if !is_decimal || !whole.iter().all(u8::is_ascii_digit) {
        return Err(BadDimmer::Malformed);
    }
    in_range(value)
}

/// Any number that PHP or Python prints for a share.
fn parse_dimmer_2014(value: &[u8]) -> Result<Dimmer, BadDimmer> {
    let value = value.trim_ascii();
    let belongs = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    if value.len() > NUMBER_BYTES_MAX || !value.iter().all(belongs) {
        return Err(BadDimmer::Malformed); // `nan` and `inf` too
    }
    in_range(value)
}

fn in_range(number: &[u8]) -> Result<Dimmer, BadDimmer> {
    let number = str::from_utf8(number).ok().and_then(|text| text.parse::<f64>().ok());
    let number = number.ok_or(BadDimmer::Malformed)?;
    Dimmer::new(number).map_err(|_| BadDimmer::OutOfRange(number))
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a Fields, name: &HeaderName) -> Option<FieldValue<'a>> {
    headers.get_only(name).ok().flatten()
}

#[cfg(test)]
mod tests;
