//! A record in words: who was asked and why, what left when, what came.

use std::fmt::Write as _;

use evenkeel_core::request::decision::{Candidate, Cause, HedgeFate, Standing};

use super::record::{AttemptEnd, Place, Remarks, RequestEnd, RequestRecord, Try, Why};

/// What the replicas and data centres of an upstream are called.
pub trait Names {
    /// A replica.
    fn replica(&self, place: Place) -> String;
    /// A data centre.
    fn datacenter(&self, datacenter: u8) -> String;
}

/// Such as "sent to b (cost 3.1; a 8.4 because 6 in flight, c suspected for 120 ms), hedged to a
/// after 41 ms (p95 40 ms), b answered first at 44 ms".
pub fn explain(record: &RequestRecord, names: &dyn Names) -> String {
    let mut clauses = Vec::new();
    if record.was_held && record.end != RequestEnd::QueueFull {
        let until = record.tries().first().map_or(record.total_us, |first| first.sent_us);
        clauses.push(format!("held back for {} by the policy's rate", ms(until)));
    }
    for number in 0..record.tries().len() {
        clauses.push(attempt(record, number, names));
    }
    let untold = usize::from(record.attempts) - record.tries().len();
    if untold > 0 {
        clauses.push(format!("{untold} more attempts"));
    }
    clauses.extend(no_hedge(record));
    if record.is_retry_denied {
        clauses.push("not sent again: the retry budget was spent".to_owned());
    }
    clauses.extend(answer(record, names));
    clauses.extend(end(record, names));
    clauses.join(", ")
}

/// An attempt as it left.
fn attempt(record: &RequestRecord, number: usize, names: &dyn Names) -> String {
    let it = &record.tries()[number];
    let name = names.replica(it.place);
    let Some(before) = number.checked_sub(1).map(|before| &record.tries()[before]) else {
        let words = first(record, it, &name, names);
        return match it.place.datacenter {
            0 => words,
            there => format!("redirected to {}: {words}", names.datacenter(there)),
        };
    };
    let first = &record.tries()[0];
    let after = ms(it.sent_us - before.sent_us);
    let moved = match it.place.datacenter {
        same if same == before.place.datacenter => String::new(),
        0 => format!("came back from {}, ", names.datacenter(before.place.datacenter)),
        there => format!("redirected to {}, ", names.datacenter(there)),
    };
    let at = ms(it.sent_us - first.sent_us);
    let words = match it.why {
        Why::Hedge => format!("hedged to {name} after {after}{}", delay(record)),
        Why::Rescue => {
            let silent = names.replica(before.place);
            format!("asked {name} too after {after} because {silent} said nothing")
        }
        Why::Moved => {
            let left = &record.tries()[..number];
            let left = left.iter().rfind(|it| it.end == AttemptEnd::Lost).unwrap_or(before);
            let busy = names.replica(left.place);
            format!("moved to {name} at {at} because {busy} had no slot free")
        }
        Why::Retry => format!("sent again to {name} at {at} because {}", failed(before, names)),
        Why::First if moved.is_empty() => format!("sent to {name} as well"),
        Why::First if before.end == AttemptEnd::Lost => {
            let silent = names.replica(before.place);
            format!("sent to {name} at {at} because {silent} did not answer in time")
        }
        Why::First => format!("sent to {name} at {at} because {}", failed(before, names)),
    };
    moved + &words
}

/// The first copy, with what spoke for it and against the others.
fn first(record: &RequestRecord, it: &Try, name: &str, names: &dyn Names) -> String {
    let told = record.candidates();
    let Some((chosen, others)) =
        told.split_first().filter(|(one, _)| record.place(one) == it.place)
    else {
        return format!("sent to {name}");
    };
    let mut reasons = Vec::new();
    if !chosen.cost.is_nan() {
        reasons.push(format!("cost {}", number(chosen.cost)));
    } else if !others.is_empty() {
        reasons.push(format!("{} in flight", chosen.in_flight));
    }
    let against: Vec<String> =
        others.iter().map(|it| versus(chosen, (it, &names.replica(record.place(it))))).collect();
    let untold = usize::from(record.members).saturating_sub(told.len());
    let rest = (untold > 0).then(|| format!("{untold} more"));
    let others: Vec<String> = against.into_iter().chain(rest).collect();
    if !others.is_empty() {
        reasons.push(others.join(", "));
    }
    let why = match record.cause() {
        Cause::LowestCost => "",
        Cause::Policy => " by the policy's turn or draw",
        Cause::OnlyOne if record.members <= 1 => ", the only replica",
        Cause::OnlyOne => ", the only candidate",
        Cause::NobodyBetter => ", as nobody was better",
    };
    let stands = standing(chosen).map_or_else(String::new, |words| format!(", {words},"));
    match reasons.is_empty() {
        true => format!("sent to {name}{stands}{why}"),
        false => format!("sent to {name}{stands}{why} ({})", reasons.join("; ")),
    }
}

/// A candidate that was not chosen, beside the one that was.
fn versus(chosen: &Candidate, (it, name): (&Candidate, &str)) -> String {
    match standing(it) {
        Some(words) if it.standing != Standing::SlowStart => format!("{name} {words}"),
        young => {
            let mut words = name.to_owned();
            if !it.cost.is_nan() {
                let _ = write!(words, " {}", number(it.cost));
            }
            if let Some(young) = young {
                let _ = write!(words, " {young}");
            } else if it.cost.is_nan() {
                let _ = write!(words, " {} in flight", it.in_flight);
            } else if it.cost > chosen.cost && it.in_flight > chosen.in_flight {
                let _ = write!(words, " because {} in flight", it.in_flight);
            } else if it.cost > chosen.cost
                && it.latency_us() != u32::MAX
                && it.latency_us() > chosen.latency_us()
            {
                let _ = write!(words, " because it takes {}", ms(it.latency_us()));
            }
            words
        }
    }
}

/// What spoke against it.
fn standing(it: &Candidate) -> Option<String> {
    let lasts = ms(it.lasts_ms.saturating_mul(1_000));
    Some(match it.standing {
        Standing::Ok => return None,
        Standing::SlowStart => "in slow start".to_owned(),
        Standing::Ejected => format!("ejected for {lasts} more"),
        Standing::Silent => format!("suspected for {lasts}"),
        Standing::Failing => "failing".to_owned(),
        Standing::OnTrial => "on trial after its ejection".to_owned(),
        Standing::Down => "down".to_owned(),
        Standing::Draining => "draining".to_owned(),
        Standing::Tried => "tried before".to_owned(),
        Standing::NotAllowed => "not allowed to answer".to_owned(),
    })
}

fn failed(it: &Try, names: &dyn Names) -> String {
    let name = names.replica(it.place);
    match it.end {
        AttemptEnd::ErrorReply => format!("{name} answered with an error"),
        AttemptEnd::Unavailable => format!("{name} was unavailable"),
        AttemptEnd::Unsent => format!("{name} could not be reached"),
        AttemptEnd::Broken => format!("{name} broke off"),
        AttemptEnd::TimedOut => format!("{name} did not answer in time"),
        AttemptEnd::Lost => format!("{name} lost the connection"),
        AttemptEnd::Pending | AttemptEnd::Answered => format!("{name} said nothing"),
    }
}

/// What the delay of the hedge was.
fn delay(record: &RequestRecord) -> String {
    match (record.hedge_delay_us, record.hedge_quantile) {
        (u32::MAX, _) => String::new(),
        (delay, 0) => format!(" (best delay for the objective {})", ms(delay)),
        (delay, quantile) => {
            format!(" (p{} {})", number(f32::from(quantile) / 10.0), ms(delay))
        }
    }
}

/// Why no hedge left that was due.
fn no_hedge(record: &RequestRecord) -> Option<String> {
    let at = match record.hedge_delay_us {
        u32::MAX => String::new(),
        delay => format!(" after {}", ms(delay)),
    };
    let why = match record.hedge {
        HedgeFate::NoBudget => "the budget was spent",
        HedgeFate::Gated => "too many requests were late, or the load too high",
        HedgeFate::Futile => "copies are as late as their firsts",
        HedgeFate::NoReplica => "no other replica could be asked",
        HedgeFate::HeldBack => "the policy would have held it back",
        HedgeFate::NotReplayable if record.remarks.has(Remarks::SLOW) => {
            return Some("not hedged: it may not be sent twice".to_owned());
        }
        HedgeFate::OnTrial
        | HedgeFate::None
        | HedgeFate::NotReplayable
        | HedgeFate::Due
        | HedgeFate::Sent => return None,
    };
    Some(format!("not hedged{at}: {why}"))
}

fn answer(record: &RequestRecord, names: &dyn Names) -> Option<String> {
    let it = record.tries().get(usize::from(record.answered_by))?;
    let name = names.replica(it.place);
    // Whatever moves leaves one attempt behind.
    let moves = record.tries().iter().filter(|it| it.why == Why::Moved).count();
    let lost = record.tries().iter().filter(|other| {
        other.why != Why::Retry && !std::ptr::eq(*other, it) && other.end == AttemptEnd::Lost
    });
    let is_race = lost.count() > moves;
    let how = match it.end {
        AttemptEnd::ErrorReply | AttemptEnd::Unavailable => {
            format!(" with an error (status {})", record.status)
        }
        _ if is_race => " first".to_owned(),
        _ => String::new(),
    };
    let dimmed = match (record.is_reduced, record.dimmer) {
        (false, _) => String::new(),
        (true, u8::MAX) => " without all optional content".to_owned(),
        (true, share) => {
            format!(" without all optional content (dimmer {})", f32::from(share) / 100.0)
        }
    };
    Some(format!("{name} answered{how} at {}{dimmed}", ms(record.head_us)))
}

fn end(record: &RequestRecord, names: &dyn Names) -> Option<String> {
    let at = ms(record.total_us);
    let refused = |why: &str| Some(format!("refused at {at}: {why}"));
    match record.end {
        RequestEnd::Complete if record.total_us > record.head_us.saturating_add(1_000) => {
            Some(format!("all of it had passed at {at}"))
        }
        RequestEnd::Complete => None,
        RequestEnd::BodyBroke => Some(format!("the answer broke off at {at}")),
        RequestEnd::BodyTimedOut => Some(format!("the answer stood still until {at}")),
        RequestEnd::ClientGone => Some(format!("the client left, or was at fault, at {at}")),
        RequestEnd::Local => {
            Some(format!("answered by the proxy itself with status {}", record.status))
        }
        RequestEnd::QueueFull => refused("too many requests wait already"),
        RequestEnd::NoReplica => {
            let all = record.candidates().iter();
            let told = all.filter_map(|it| {
                Some(format!("{} {}", names.replica(record.place(it)), standing(it)?))
            });
            let told: Vec<String> = told.collect();
            match told.is_empty() {
                true => refused("no replica may be used"),
                false => refused(&format!("no replica may be used ({})", told.join(", "))),
            }
        }
        RequestEnd::Unsent
        | RequestEnd::Broken
        | RequestEnd::TimedOut
        | RequestEnd::Unavailable => match record.tries().last() {
            Some(last) => Some(format!("failed at {at}: {}", failed(last, names))),
            None => Some(format!("failed at {at}: nobody was asked in time")),
        },
    }
}

/// Milliseconds with the digits that matter, such as "41 ms" or "0.82 ms".
fn ms(us: u32) -> String {
    let ms = f64::from(us) / 1_000.0;
    match ms {
        _ if ms >= 99_950.0 => format!("{:.0} s", ms / 1_000.0),
        _ if ms >= 9.95 => format!("{ms:.0} ms"),
        _ if ms >= 0.995 => format!("{} ms", trimmed(format!("{ms:.1}"))),
        _ => format!("{} ms", trimmed(format!("{ms:.2}"))),
    }
}

fn number(value: f32) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 0.0995 || size == 0.0 => trimmed(format!("{value:.1}")),
        _ => format!("{value:.2}"),
    }
}

fn trimmed(text: String) -> String {
    match text.split_once('.') {
        Some((whole, rest)) if rest.bytes().all(|digit| digit == b'0') => whole.to_owned(),
        _ => text,
    }
}
