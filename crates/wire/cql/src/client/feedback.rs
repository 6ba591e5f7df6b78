//! The report of a node's agent, as bytes: an entry of an answer's custom payload.
//!
//! ```text
//! byte 0      1, the form
//! byte 1      which of the optional fields follow (bits 0 to 4, in their order)
//! 4 bytes     requests waiting                    queue_length
//! 4 bytes     requests in service                 in_service
//! 8 bytes     nanoseconds                         service_time
//! 4 bytes     requests served at once   (bit 0)   concurrency
//! 8 bytes     nanoseconds               (bit 1)   latency
//! 8 bytes     requests per second       (bit 2)   arrival_rate, IEEE 754
//! 8 bytes     nanoseconds               (bit 3)   reported_at
//! 8 bytes     share                     (bit 4)   dimmer, IEEE 754
//! ```
//!
//! Numbers have their high byte first, as all of the protocol. What each means is said where
//! [`Feedback`] is. **When it misleads**: a number that cannot be is worse than none, so a report
//! with one is no report. It is given and taken only where `STARTUP` asked for it
//! ([`FEEDBACK_OPTION`](crate::client::FEEDBACK_OPTION)): drivers read over payloads, but nobody
//! promised that.

use std::time::Duration;

use crate::{Malformed, Problem, Reader};
use bytes::BufMut as _;
use evenkeel_core::units::{Dimmer, Rate};
use evenkeel_core::{Feedback, Instant, time};

const FORM: u8 = 1;
const CONCURRENCY: u8 = 1;
const LATENCY: u8 = 1 << 1;
const ARRIVAL_RATE: u8 = 1 << 2;
const REPORTED_AT: u8 = 1 << 3;
const DIMMER: u8 = 1 << 4;
/// More requests than any node holds.
const COUNT_MAX: u32 = 10_000_000;
const DAY: Duration = Duration::from_secs(86_400);

/// The report as bytes. What no reader would accept is written as the nearest that one does.
pub fn write(report: &Feedback) -> Vec<u8> {
    let mut out = Vec::with_capacity(54);
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    out.put_u8(FORM);
    out.put_u8(
        flag(report.concurrency.is_some(), CONCURRENCY)
            | flag(report.latency.is_some(), LATENCY)
            | flag(report.arrival_rate.is_some(), ARRIVAL_RATE)
            | flag(report.reported_at.is_some(), REPORTED_AT)
            | flag(report.dimmer.is_some(), DIMMER),
    );
    out.put_u32(report.queue_length.min(COUNT_MAX));
    out.put_u32(report.in_service.min(COUNT_MAX));
    out.put_u64(report.service_time.map_or(0, |it| time::nanos(it.min(DAY)).max(1)));
    if let Some(concurrency) = report.concurrency {
        out.put_u32(concurrency.clamp(1, COUNT_MAX));
    }
    if let Some(latency) = report.latency {
        out.put_u64(time::nanos(latency.min(DAY)).max(1));
    }
    if let Some(rate) = report.arrival_rate {
        out.put_f64(rate.value());
    }
    if let Some(at) = report.reported_at {
        out.put_u64(at.as_nanos());
    }
    if let Some(dimmer) = report.dimmer {
        out.put_f64(dimmer.value());
    }
    out
}

/// Reads a report. What follows the known fields is of a later release and not looked at.
///
/// # Errors
/// When it is not all there, of another form, or has a number that cannot be.
pub fn read(bytes: &[u8]) -> Result<Feedback, Malformed> {
    let mut reader = Reader::new(bytes);
    let form = reader.byte("form of a report")?;
    if form != FORM {
        return Err(reader.wrong("form of a report", Problem::Unknown(u32::from(form))));
    }
    let fields = reader.byte("fields of a report")?;
    let waiting = count(&mut reader, "requests waiting", 0)?;
    let in_service = count(&mut reader, "requests in service", 0)?;
    let service_time = service_time(&mut reader)?;
    let mut report =
        Feedback { service_time, ..Feedback::measured(waiting, in_service, Duration::ZERO) };
    if fields & CONCURRENCY != 0 {
        report.concurrency = Some(count(&mut reader, "requests served at once", 1)?);
    }
    if fields & LATENCY != 0 {
        report.latency = Some(duration(&mut reader, "latency")?);
    }
    if fields & ARRIVAL_RATE != 0 {
        let rate = Rate::new(number(&mut reader, "arrival rate")?);
        report.arrival_rate = Some(rate.map_err(|_| absurd(&reader, "arrival rate"))?);
    }
    if fields & REPORTED_AT != 0 {
        let at = reader.long("time of the report")?.cast_unsigned();
        report.reported_at = Some(Instant::ZERO + Duration::from_nanos(at));
    }
    if fields & DIMMER != 0 {
        let dimmer = Dimmer::new(number(&mut reader, "dimmer")?);
        report.dimmer = Some(dimmer.map_err(|_| absurd(&reader, "dimmer"))?);
    }
    Ok(report)
}

fn count(reader: &mut Reader<'_>, what: &'static str, min: u32) -> Result<u32, Malformed> {
    let count = reader.int(what)?.cast_unsigned();
    let is_possible = (min..=COUNT_MAX).contains(&count);
    if is_possible { Ok(count) } else { Err(reader.wrong(what, Problem::Unknown(count))) }
}

/// Zero: it has served nothing yet.
fn service_time(reader: &mut Reader<'_>) -> Result<Option<Duration>, Malformed> {
    let nanos = reader.long("service time")?.cast_unsigned();
    match Duration::from_nanos(nanos) {
        Duration::ZERO => Ok(None),
        time if time <= DAY => Ok(Some(time)),
        _ => Err(absurd(reader, "service time")),
    }
}

fn duration(reader: &mut Reader<'_>, what: &'static str) -> Result<Duration, Malformed> {
    let nanos = reader.long(what)?.cast_unsigned();
    let is_possible = nanos > 0 && Duration::from_nanos(nanos) <= DAY;
    if is_possible { Ok(Duration::from_nanos(nanos)) } else { Err(absurd(reader, what)) }
}

fn number(reader: &mut Reader<'_>, what: &'static str) -> Result<f64, Malformed> {
    let number = f64::from_bits(reader.long(what)?.cast_unsigned());
    if number.is_finite() && (0.0..1e9).contains(&number) {
        Ok(number)
    } else {
        Err(absurd(reader, what))
    }
}

fn absurd(reader: &Reader<'_>, what: &'static str) -> Malformed {
    reader.wrong(what, Problem::Unknown(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Feedback {
        Feedback {
            concurrency: Some(128),
            latency: Some(Duration::from_micros(750)),
            arrival_rate: Some(Rate::new(1_234.5).unwrap()),
            reported_at: Some(Instant::from_millis(9_000)),
            dimmer: Some(Dimmer::new(0.25).unwrap()),
            ..Feedback::measured(3, 17, Duration::from_nanos(421_337))
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_its_bytes_are_as_documented() {
        assert_eq!(read(&write(&full())), Ok(full()));
        let short = Feedback::measured(2, 1, Duration::from_nanos(258));
        let bytes = [1, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(write(&short), bytes);
        assert_eq!(read(&bytes), Ok(short));
        let later = [&bytes[..], b"what a later release adds"].concat();
        assert_eq!(read(&later), Ok(short));
    }

    #[test]
    fn a_report_that_breaks_off_or_cannot_be_is_none() {
        let bytes = write(&full());
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length} bytes");
        }
        let with = |place: usize, new: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[place..place + new.len()].copy_from_slice(new);
            read(&bytes)
        };
        assert!(with(0, &[2]).is_err(), "another form");
        assert!(with(2, &[0xFF; 4]).is_err(), "four billion requests");
        let idle = with(10, &[0; 8]).map(|report| report.service_time);
        assert_eq!(idle, Ok(None), "it has served nothing yet");
        assert!(with(10, &[0xFF; 8]).is_err(), "a service of centuries");
        assert!(with(18, &[0; 4]).is_err(), "serves nothing at once");
        assert!(with(30, &f64::NAN.to_be_bytes()).is_err(), "a rate that is no number");
        assert!(with(30, &(-1.0_f64).to_be_bytes()).is_err(), "a rate below zero");
        assert!(with(46, &1.5_f64.to_be_bytes()).is_err(), "a dimmer above one");
    }
}
