//! Requests that come back: a limit of hops that also ends loops through several processes.
//!
//! `evenkeel check` sees loops within one file only. So every request that we send carries one more
//! entry in `CDN-Loop` (RFC 8586), and one that has passed too many of us is answered 508. `Via`
//! would say the same, but servers change what they do for it: nginx compresses no answer to a
//! request with `Via`, unless it is told to.
//!
//! A client can add entries, which makes only its own way shorter; entries of others are kept, as
//! the RFC asks. A server between us that removes the header keeps a loop hidden; then time limits
//! and the budgets of retries are what ends it.

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};

use evenkeel_http::Fields;
use evenkeel_http::head::Refusal;

const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// What we are called there.
const PSEUDONYM: HeaderValue = HeaderValue::from_static("evenkeel");

/// More than any real way has: two for each service that passes on the headers of its client (a
/// proxy and an agent), and one more between data centres.
const HOPS_MAX: usize = 16;

/// Counts a hop.
///
/// # Errors
/// 508 for a request that has made too many.
pub(crate) fn count(headers: &mut Fields) -> Result<(), Refusal> {
    let entries =
        headers.get_all(CDN_LOOP).flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let hops = entries.filter(|entry| is_ours(entry)).count();
    if hops >= HOPS_MAX {
        let message = format!(
            "the request goes in a loop: it has passed {hops} proxies or agents of Evenkeel, \
             expected at most {HOPS_MAX}; does the address of a replica lead back here?"
        );
        return Err(Refusal::new(StatusCode::LOOP_DETECTED, message));
    }
    headers.append(CDN_LOOP, &PSEUDONYM);
    Ok(())
}

/// An entry is a name, which may have parameters after semicolons.
fn is_ours(entry: &[u8]) -> bool {
    let name = entry.split(|byte| *byte == b';').next().unwrap_or_default();
    name.trim_ascii().eq_ignore_ascii_case(PSEUDONYM.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_makes_as_many_hops_as_it_may_and_then_is_refused() {
        let mut headers = Fields::new();
        for hop in 0..HOPS_MAX {
            assert_eq!(headers.get_all(CDN_LOOP).count(), hop);
            count(&mut headers).unwrap();
        }
        let refusal = count(&mut headers).unwrap_err();
        assert_eq!(refusal.status, StatusCode::LOOP_DETECTED);
        assert!(refusal.message.starts_with("the request goes in a loop"), "{}", refusal.message);
    }

    #[test]
    fn only_our_own_entries_count_and_those_of_others_stay() {
        let mut headers = Fields::new();
        let others = ["foo123.example.net", "evenkeeler, not-evenkeel", "x;by=evenkeel", "", ",,"];
        for other in others.iter().cycle().take(40) {
            headers.append(CDN_LOOP, &HeaderValue::from_static(other));
        }
        count(&mut headers).unwrap();
        assert_eq!(headers.get_all(CDN_LOOP).count(), 41);
        let ours = "Evenkeel;n=1 , evenkeel,evenkeel ; a=\"b\"";
        let mut headers = Fields::new();
        for _ in 0..5 {
            headers.append(CDN_LOOP, &HeaderValue::from_static(ours));
        }
        count(&mut headers).unwrap(); // the sixteenth
        count(&mut headers).unwrap_err();
    }
}
