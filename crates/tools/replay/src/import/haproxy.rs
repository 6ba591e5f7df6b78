//! HAProxy's HTTP log: `[date] frontend backend/server TR/Tw/Tc/Tr/Ta status bytes … ---- …`.

use evenkeel_twin::rows::End;

use super::time::{accept, millis};
use super::{Copy, Request, Wrong};

pub(super) fn request(line: &str) -> Result<Request<'_>, Wrong> {
    let wrong = || Wrong::new(line, "a line of `option httplog`");
    let (date, rest) = line
        .match_indices('[')
        .filter_map(|(place, _)| line[place + 1..].split_once("] "))
        .find_map(|(date, rest)| Some((accept(date)?, rest)))
        .ok_or_else(wrong)?;
    let words: Vec<&str> = rest.split_whitespace().take(8).collect();
    let [_, server, times, status, bytes, _, _, state] = words[..] else { return Err(wrong()) };
    let parts: Vec<&str> = times.split('/').collect();
    let [asked, waited, connected, answered, all] = parts[..] else { return Err(wrong()) };
    if all.starts_with('+') {
        return Err(Wrong::new(all, "times without `option logasap`"));
    }
    let (_, replica) = server.rsplit_once('/').ok_or_else(wrong)?;
    let asked_ns = millis(asked).unwrap_or(0);
    let mut request = Request {
        arrived_ns: date.saturating_add(asked_ns),
        bytes: bytes.parse().unwrap_or(0),
        ..Request::default()
    };
    // -1: it went to no server.
    let (Some(after_ns), false) = (millis(waited), replica.starts_with('<')) else {
        return Ok(request);
    };
    let all_ns = millis(all).ok_or_else(wrong)?;
    let is_broken = connected == "-1" || answered == "-1" || status == "-1";
    let end = match state.as_bytes().first() {
        Some(b'C' | b'c') => End::Cancelled,
        Some(b'-') if !is_broken => End::Answered,
        _ => End::Failed,
    };
    let latency_ns = all_ns.saturating_sub(asked_ns).saturating_sub(after_ns);
    request.copies.push(Copy { replica, after_ns, latency_ns, end });
    Ok(request)
}
