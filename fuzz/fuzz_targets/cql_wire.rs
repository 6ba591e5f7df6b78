//! Any bytes as what drivers and nodes of Cassandra send.
//!
//! Promise: envelopes or an error, never a panic; the same however the bytes are cut; envelopes
//! that are encoded again are decoded as the same; a body that is read and written is read as the
//! same; the custom payload that is added is stripped again; no more memory than the bounds say.
//! Segments get right checksums here: otherwise no bytes would come past them.

#![no_main]

use bytes::{Bytes, BytesMut};
use evenkeel_cql::codec::{Compression, Decoder, Encoder, Limits, Side, segment};
use evenkeel_cql::key::KeyPlan;
use evenkeel_cql::request::{
    AuthResponse, Batch, Execute, Prepare, Query, Register, Startup, Values,
};
use evenkeel_cql::response::{
    AuthToken, Authenticate, Columns, Error, Event, Result as Answer, Rows, Supported,
};
use evenkeel_cql::{Envelope, Opcode, Version, WireError, payload, value};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { envelope_bytes_max: 20_000 };

const OPCODES: [Opcode; 16] = [
    Opcode::Error,
    Opcode::Startup,
    Opcode::Ready,
    Opcode::Authenticate,
    Opcode::Options,
    Opcode::Supported,
    Opcode::Query,
    Opcode::Result,
    Opcode::Prepare,
    Opcode::Execute,
    Opcode::Register,
    Opcode::Event,
    Opcode::Batch,
    Opcode::AuthChallenge,
    Opcode::AuthResponse,
    Opcode::AuthSuccess,
];

fuzz_target!(|data: &[u8]| {
    let Some((&[how, cut], bytes)) = data.split_first_chunk::<2>() else { return };
    let version = if how & 1 == 0 { Version::V4 } else { Version::V5 };
    let side = if how & 2 == 0 { Side::Client } else { Side::Server };
    match how >> 2 & 7 {
        0 => check_stream(side, None, bytes, cut),
        1 => check_stream(side, Some((version, None)), bytes, cut),
        2 => check_stream(side, Some((version, Some(Compression::Lz4))), bytes, cut),
        3 => check_stream(side, Some((Version::V4, Some(Compression::Snappy))), bytes, cut),
        4 => {
            let stream = segments(bytes, cut, how >> 5);
            check_stream(side, Some((Version::V5, None)), &stream, cut);
        }
        _ => {
            let opcode = OPCODES[usize::from(cut & 15)];
            let mut envelope = Envelope::new(version, 1, opcode, Bytes::copy_from_slice(bytes));
            envelope.flags.0 = how >> 5 << 1 | cut >> 4 & 1;
            check_body(&envelope);
        }
    }
});

/// The bytes in segments: whole, in parts, or some of each.
fn segments(bytes: &[u8], cut: u8, which: u8) -> Vec<u8> {
    let mut out = BytesMut::new();
    let step = if cut == 0 { bytes.len() } else { usize::from(cut) };
    for (index, part) in bytes.chunks(step.max(1)).enumerate() {
        let is_whole = which & 1 << (index % 3) == 0;
        segment::write(part, is_whole, &mut out);
    }
    out.to_vec()
}

type Framing = (Version, Option<Compression>);

fn decoder(side: Side, framing: Option<Framing>) -> Decoder {
    let mut decoder = Decoder::new(side, LIMITS);
    if let Some((version, compression)) = framing {
        decoder.start(version, compression);
        if side == Side::Server {
            let mut ready = BytesMut::new();
            let envelope = Envelope::new(version, 0, Opcode::Ready, Bytes::new());
            Encoder::new().encode(&envelope, &mut ready);
            assert_eq!(decoder.decode(&mut ready), Ok(Some(envelope)));
        }
    }
    decoder
}

fn check_stream(side: Side, framing: Option<Framing>, bytes: &[u8], cut: u8) {
    let whole = read(decoder(side, framing), bytes, bytes.len());
    let pieces = read(decoder(side, framing), bytes, usize::from(cut) % 24 + 1);
    assert_eq!(whole.0, pieces.0);
    // A held STARTUP is impatient about other numbers of bytes.
    let words = |error: &Option<WireError>| error.as_ref().map(|error| error.fault.clone());
    assert!(words(&whole.1) == words(&pieces.1) || framing.is_none());
    let envelopes = whole.0;
    for envelope in &envelopes {
        assert!(envelope.body.len() <= LIMITS.envelope_bytes_max.max(segment::PAYLOAD_BYTES_MAX));
        check_body(envelope);
    }
    if let Some((version, compression)) = framing
        && envelopes.iter().all(|envelope| envelope.version == version)
        && !envelopes.iter().any(|envelope| envelope.opcode == Opcode::Startup)
    {
        let mut encoder = Encoder::new();
        encoder.start(version, compression);
        let mut out = BytesMut::new();
        encoder.encode_all(&envelopes, &mut out);
        assert_eq!(read(decoder(side, framing), &out, 1000), (envelopes, None));
    }
}

/// The envelopes of bytes that come so many at a time, and the error that ends them.
fn read(mut decoder: Decoder, bytes: &[u8], step: usize) -> (Vec<Envelope>, Option<WireError>) {
    let (mut buffer, mut envelopes) = (BytesMut::new(), Vec::new());
    for part in bytes.chunks(step.max(1)) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(None) => break,
                Ok(Some(envelope)) => envelopes.push(envelope),
                Err(error) => {
                    let answer = error.answer();
                    assert!(Error::read(&answer.body, answer.version).is_ok());
                    return (envelopes, Some(error));
                }
            }
        }
    }
    (envelopes, None)
}

fn check_body(envelope: &Envelope) {
    let Ok(parts) = payload::split(envelope) else { return };
    assert_eq!(payload::message(envelope).expect("it was split"), parts.message);
    let _ = (parts.warnings(), parts.payload.iter().count());
    if parts.payload.named("evenkeel").is_none() && parts.payload.len() < 9 {
        let added = payload::add(envelope, "evenkeel", b"q").expect("there is room");
        let again = payload::split(&added).expect("it was written here");
        assert_eq!(again.payload.named("evenkeel"), Some(&b"q"[..]));
        assert_eq!(again.message, parts.message);
        let stripped = payload::strip(&added, "evenkeel").expect("it was written here");
        assert_eq!(payload::message(&stripped).expect("it was split"), parts.message);
    }
    check_message(envelope.opcode, envelope.version, parts.message);
}

/// What is read and written is read as the same, and written as the same.
macro_rules! same {
    ($message:expr, $read:expr, $write:expr) => {{
        let message: &[u8] = $message;
        if let Ok(value) = $read(message) {
            let (mut once, mut twice) = (Vec::new(), Vec::new());
            $write(&value, &mut once);
            assert!(once.len() <= message.len(), "what is written is what was read");
            let again = $read(&once[..]).expect("it was written here");
            assert_eq!(again, value);
            $write(&again, &mut twice);
            assert_eq!(twice, once);
        }
    }};
}

fn check_message(opcode: Opcode, version: Version, message: &[u8]) {
    type Out = Vec<u8>;
    match opcode {
        Opcode::Startup => {
            same!(message, Startup::read, |it: &Startup, out: &mut Out| it.write(out))
        }
        Opcode::AuthResponse => {
            same!(message, AuthResponse::read, |it: &AuthResponse, out: &mut Out| it.write(out));
        }
        Opcode::Register => {
            same!(message, Register::read, |it: &Register, out: &mut Out| it.write(out));
        }
        Opcode::Supported => {
            same!(message, Supported::read, |it: &Supported, out: &mut Out| it.write(out));
        }
        Opcode::Authenticate => {
            same!(message, Authenticate::read, |it: &Authenticate, out: &mut Out| it.write(out));
        }
        Opcode::AuthChallenge | Opcode::AuthSuccess => {
            same!(message, AuthToken::read, |it: &AuthToken, out: &mut Out| it.write(out));
        }
        Opcode::Event => same!(message, Event::read, |it: &Event, out: &mut Out| it.write(out)),
        Opcode::Result => check_result(message, version),
        Opcode::Ready | Opcode::Options => {}
        _ => check_versioned(opcode, version, message),
    }
}

/// Those that the versions write differently.
fn check_versioned(opcode: Opcode, version: Version, message: &[u8]) {
    macro_rules! both {
        ($kind:ident, $look:expr) => {
            same!(message, |it| $kind::read(it, version), |it: &$kind, out: &mut Vec<u8>| {
                $look(it);
                it.write(version, out);
            })
        };
    }
    match opcode {
        Opcode::Query => both!(Query, |it: &Query| check_values(it.parameters.values)),
        Opcode::Prepare => both!(Prepare, |_| ()),
        Opcode::Execute => both!(Execute, |it: &Execute| check_values(it.parameters.values)),
        Opcode::Error => both!(Error, |_| ()),
        Opcode::Batch => both!(Batch, |it: &Batch| {
            assert_eq!(it.iter().count(), it.len());
            it.iter().for_each(|statement| check_values(statement.values));
        }),
        _ => {}
    }
}

fn check_result(message: &[u8], version: Version) {
    match Answer::read(message, version) {
        Ok(Answer::Rows(rows)) => check_rows(rows),
        Ok(Answer::Prepared(prepared)) => {
            check_columns(&prepared.variables);
            let plan = KeyPlan::new(&prepared.partition_key, &prepared.variables);
            assert_eq!(plan.is_none(), prepared.partition_key.is_empty());
        }
        _ => {}
    }
}

fn check_values(values: Values<'_>) {
    assert_eq!(values.iter().count(), values.len());
    assert_eq!(values.at(values.len()), None);
}

fn check_columns(columns: &Columns<'_>) {
    assert_eq!(columns.iter().count(), columns.len());
}

fn check_rows(rows: Rows<'_>) {
    if let Some(columns) = rows.metadata.columns {
        check_columns(&columns);
        assert_eq!(columns.len(), rows.metadata.count);
    }
    let expected = if rows.metadata.count == 0 { 0 } else { rows.count };
    assert_eq!(rows.iter().count(), expected);
    for bytes in rows.iter().take(9).flat_map(|row| row.iter().collect::<Vec<_>>()).flatten() {
        let _ = (value::text_map(bytes), value::texts(bytes), value::inet(bytes));
        if let Some(texts) = value::texts(bytes) {
            let texts: Vec<_> = texts.into_iter().map(str::to_owned).collect();
            assert_eq!(value::write_texts(&texts), bytes);
        }
    }
}
