//! nginx: a line of fields, named as nginx's variables. An upstream's address, time and status
//! are lists where it tried several: `a, b`, and `a : b` after an internal redirect.

use evenkeel_twin::rows::End;

use super::fields::Fields;
use super::time::{duration, seconds};
use super::{Copy, Request, Wrong};

/// The client gave up.
const CLOSED_BY_CLIENT: &str = "499";

pub(super) fn request(fields: &Fields) -> Result<Request<'_>, Wrong> {
    let time = |key: &str, read: fn(&str) -> Option<u64>, expected: &'static str| {
        let text = fields.get(key).unwrap_or("");
        read(text).ok_or_else(|| Wrong::new(&format!("{key}={text}"), expected))
    };
    let ended_ns = time("msec", seconds, "msec=$msec, seconds since 1970")?;
    let took_ns = time("request_time", duration, "request_time=$request_time, seconds")?;
    let mut request = Request {
        arrived_ns: ended_ns.saturating_sub(took_ns),
        bytes: fields.get("bytes_sent").and_then(|text| text.parse().ok()).unwrap_or(0),
        policy: fields.get("policy"),
        copies: Vec::new(),
    };
    let Some(addresses) = fields.get("upstream_addr") else { return Ok(request) };
    let times = parts(fields.get("upstream_response_time").unwrap_or(""));
    let statuses = parts(fields.get("upstream_status").unwrap_or(""));
    let mut after_ns: u64 = 0;
    for (number, replica) in parts(addresses).into_iter().enumerate() {
        let text = times.get(number).copied().unwrap_or("-");
        let status = statuses.get(number).copied().unwrap_or("-");
        // The name of a group stands where none of its servers could be asked.
        if text == "-" || !replica.contains(':') {
            continue;
        }
        let latency_ns = duration(text).ok_or_else(|| {
            let came = format!("upstream_response_time={text}");
            Wrong::new(&came, "a time for each address, in seconds")
        })?;
        let end = match status {
            _ if fields.get("status") == Some(CLOSED_BY_CLIENT) => End::Cancelled,
            "502" | "503" | "504" | "-" => End::Failed,
            _ => End::Answered,
        };
        request.copies.push(Copy { replica, after_ns, latency_ns, end });
        after_ns = after_ns.saturating_add(latency_ns);
    }
    Ok(request)
}

/// The parts of a list; addresses have colons of their own, without spaces.
fn parts(list: &str) -> Vec<&str> {
    list.split(", ").flat_map(|part| part.split(" : ")).map(str::trim).collect()
}
