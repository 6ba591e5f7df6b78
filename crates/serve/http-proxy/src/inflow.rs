//! What a plan between data centres brings the replicas of a site, from the proxies that enforce it
//! to the agents that dim: [`INFLOW`] on the first request to each of them after the plan.
//!
//! The grammar, and what it means, are core's ([`Inflow`]). A request carries it only at home, and
//! only to a replica that tells a dimmer; an agent takes it off, so that no application sees it.
//! What a client sends is removed. **When it misleads**: a replica without an agent that dims by
//! itself gets it too, and need not read it.

use evenkeel_core::dimmer::Inflow;
use evenkeel_http::Fields;
use http::{HeaderName, HeaderValue};

/// The epoch of a plan and how many times as many requests it brings: of a request.
pub const INFLOW: HeaderName = HeaderName::from_static("evenkeel-inflow");

/// It as the value of [`INFLOW`].
pub(crate) fn write(inflow: Inflow) -> HeaderValue {
    HeaderValue::try_from(inflow.to_string()).expect("digits and a word are a header value")
}

/// Why what came is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an inflow came twice or is none, expected such as 708412345;factor=2.4")]
pub(crate) struct NoInflow;

/// Takes it off a request, however often it came.
///
/// # Errors
/// When it came more than once, or cannot be read.
pub(crate) fn take(headers: &mut Fields) -> Result<Option<Inflow>, NoInflow> {
    let Some(value) = headers.take_only(INFLOW).map_err(|_| NoInflow)? else { return Ok(None) };
    Inflow::parse(value.as_bytes()).map(Some).ok_or(NoInflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_taken_off_whatever_it_is_and_read_when_it_is_one() {
        let of = |values: &[&str]| {
            let mut headers = Fields::new();
            for value in values {
                headers.append(INFLOW, &HeaderValue::from_str(value).unwrap());
            }
            let taken = take(&mut headers);
            assert!(headers.is_empty(), "{headers:?}");
            taken
        };
        assert_eq!(of(&[]), Ok(None));
        let written = Inflow::new(7, 2.5).unwrap();
        assert_eq!(of(&[write(written).to_str().unwrap()]), Ok(Some(written)));
        for nonsense in [&["7"][..], &["7;factor=9"], &["7;factor=2", "7;factor=2"], &[""]] {
            assert_eq!(of(nonsense), Err(NoInflow), "{nonsense:?}");
        }
    }
}
