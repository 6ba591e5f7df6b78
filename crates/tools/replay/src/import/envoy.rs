//! Envoy's access log: its default text, or JSON whose keys are named as its operators.

use evenkeel_twin::rows::End;

use super::fields::Fields;
use super::time::{iso, millis};
use super::{Copy, Request, Wrong};

/// `[start] "request" code flags received sent duration service "…" "…" "…" "…" "host"`.
pub(super) fn text(line: &str) -> Result<Request<'_>, Wrong> {
    let wrong = || Wrong::new(line, "a line of Envoy's default access log, or JSON");
    let (start, rest) =
        line.strip_prefix('[').and_then(|rest| rest.split_once(']')).ok_or_else(wrong)?;
    let words = words(rest);
    let [_, _, flags, _, bytes, duration, service, _, _, _, _, host, ..] = words[..] else {
        return Err(wrong());
    };
    request(start, duration, service, host, flags, bytes).ok_or_else(wrong)
}

pub(super) fn json(fields: &Fields) -> Result<Request<'_>, Wrong> {
    let field = |key: &str| fields.get(key).unwrap_or("-");
    let service = match field("upstream_service_time") {
        "-" => field("x-envoy-upstream-service-time"),
        service => service,
    };
    let start = field("start_time");
    let (duration, host) = (field("duration"), field("upstream_host"));
    let (flags, bytes) = (field("response_flags"), field("bytes_sent"));
    let mut request = request(start, duration, service, host, flags, bytes)
        .ok_or_else(|| Wrong::new(start, "start_time, duration (ms) and upstream_host"))?;
    request.policy = fields.get("policy");
    Ok(request)
}

fn request<'a>(
    start: &str,
    duration: &str,
    service: &str,
    host: &'a str,
    flags: &str,
    bytes: &str,
) -> Option<Request<'a>> {
    let duration_ns = millis(duration)?;
    let mut request = Request {
        arrived_ns: iso(start)?,
        bytes: bytes.parse().unwrap_or(0),
        ..Request::default()
    };
    if host == "-" {
        return Some(request);
    }
    let end = match flags {
        "-" => End::Answered,
        flags if flags.split(',').any(|flag| flag == "DC") => End::Cancelled,
        _ => End::Failed,
    };
    let latency_ns = millis(service).unwrap_or(duration_ns);
    request.copies.push(Copy { replica: host, after_ns: 0, latency_ns, end });
    Some(request)
}

/// Words; what is in quotes is one.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && words.len() < 16 {
        let (word, left) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word);
        rest = left.trim_start();
    }
    words
}
