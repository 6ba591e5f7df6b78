//! What is encoded is decoded, however it is cut on the way; whatever else comes is an error, never
//! a panic.

use bytes::{Bytes, BytesMut};
use evenkeel_cql::codec::{Compression, Decoder, Limits, Side};
use evenkeel_cql::request::{Batch, Execute, Prepare, Query};
use evenkeel_cql::response::{Error, Event, Result as Answer};
use evenkeel_cql::{Envelope, Flags, Opcode, Version, payload};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::sample::select;

use crate::common::{decode_all, encoder, started};

const REQUESTS: [Opcode; 7] = [
    Opcode::Options,
    Opcode::Query,
    Opcode::Prepare,
    Opcode::Execute,
    Opcode::Register,
    Opcode::Batch,
    Opcode::AuthResponse,
];

const RESPONSES: [Opcode; 7] = [
    Opcode::Error,
    Opcode::Supported,
    Opcode::Result,
    Opcode::Event,
    Opcode::AuthChallenge,
    Opcode::AuthSuccess,
    Opcode::Ready,
];

fn bodies() -> impl Strategy<Value = Bytes> {
    let short = vec(any::<u8>(), 0..200);
    let repeated = (vec(any::<u8>(), 1..9), 0..40_000_usize)
        .prop_map(|(piece, times)| piece.into_iter().cycle().take(times).collect::<Vec<_>>());
    // Nothing compresses these.
    let long = (any::<u64>(), 130_000..400_000_usize).prop_map(|(seed, length)| {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..length).map(|_| next()).collect::<Vec<_>>()
    });
    prop_oneof![8 => short, 3 => repeated, 1 => long].prop_map(Bytes::from)
}

const FRAMINGS: [(Version, Option<Compression>); 5] = [
    (Version::V4, None),
    (Version::V4, Some(Compression::Lz4)),
    (Version::V4, Some(Compression::Snappy)),
    (Version::V5, None),
    (Version::V5, Some(Compression::Lz4)),
];

fn connections() -> impl Strategy<Value = (Version, Option<Compression>, Side)> {
    (select(&FRAMINGS[..]), select(&[Side::Client, Side::Server][..]))
        .prop_map(|((version, compression), side)| (version, compression, side))
}

type Conversation = (Version, Option<Compression>, Side, Vec<Envelope>);

fn conversations() -> impl Strategy<Value = Conversation> {
    connections().prop_flat_map(|(version, compression, side)| {
        let opcodes = if side == Side::Client { &REQUESTS } else { &RESPONSES };
        let envelope = (any::<i16>(), select(&opcodes[..]), bodies(), 0..16_u8);
        let envelope = envelope.prop_map(move |(stream, opcode, body, flags)| {
            let flags = Flags(flags << 1);
            Envelope { flags, ..Envelope::new(version, stream, opcode, body) }
        });
        (Just(version), Just(compression), Just(side), vec(envelope, 1..8))
    })
}

proptest! {
    #[test]
    fn any_cut_reads_the_same(
        (version, compression, side, envelopes) in conversations(),
        step in prop_oneof![1..64_usize, 64..200_000_usize],
        together in any::<bool>(),
    ) {
        let mut encoder = encoder(version, compression);
        let mut out = BytesMut::new();
        if together {
            encoder.encode_all(&envelopes, &mut out);
        } else {
            envelopes.iter().for_each(|envelope| encoder.encode(envelope, &mut out));
        }
        let mut decoder = started(side, version, compression);
        assert_eq!(decode_all(&mut decoder, &out, step), envelopes);
    }

    #[test]
    fn any_bytes_are_envelopes_or_an_error(
        (version, compression, side) in connections(),
        bytes in vec(any::<u8>(), 0..2000),
        step in 1..100_usize,
    ) {
        let whole = outcome(started(side, version, compression), &bytes, bytes.len());
        assert_eq!(outcome(started(side, version, compression), &bytes, step), whole);
    }

    /// One changed byte is seen by v5's checksums.
    #[test]
    fn a_changed_segment_is_an_error(
        body in vec(any::<u8>(), 0..3000),
        lz4 in any::<bool>(),
        at in any::<proptest::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let compression = lz4.then_some(Compression::Lz4);
        let envelope = Envelope::new(Version::V5, 1, Opcode::Query, body.into());
        let mut out = BytesMut::new();
        encoder(Version::V5, compression).encode(&envelope, &mut out);
        let at = at.index(out.len());
        out[at] ^= change;
        let error = started(Side::Client, Version::V5, compression).decode(&mut out).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{error}");
    }

    #[test]
    fn any_bytes_are_a_body_or_an_error(bytes in vec(any::<u8>(), 0..500), flags in any::<u8>()) {
        for version in [Version::V4, Version::V5] {
            let _ = Query::read(&bytes, version);
            let _ = Prepare::read(&bytes, version);
            let _ = Execute::read(&bytes, version);
            let _ = Batch::read(&bytes, version);
            let _ = Error::read(&bytes, version);
            let _ = Answer::read(&bytes, version);
            let _ = Event::read(&bytes);
            for opcode in [Opcode::Query, Opcode::Result] {
                let envelope = Envelope::new(version, 0, opcode, bytes.clone().into());
                let envelope = Envelope { flags: Flags(flags), ..envelope };
                let _ = payload::split(&envelope);
            }
        }
    }
}

/// The envelopes of bytes that come so many at a time, and the error that ends them.
fn outcome(mut decoder: Decoder, bytes: &[u8], step: usize) -> (Vec<Envelope>, Option<String>) {
    let (mut buffer, mut envelopes) = (BytesMut::new(), Vec::new());
    for part in bytes.chunks(step.max(1)) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(None) => break,
                Ok(Some(envelope)) => envelopes.push(envelope),
                Err(error) => return (envelopes, Some(error.to_string())),
            }
        }
    }
    (envelopes, None)
}

#[test]
fn what_follows_startup_waits_for_its_answer() {
    for version in [Version::V4, Version::V5] {
        let startup = Envelope::new(version, 0, Opcode::Startup, Bytes::from_static(&[0, 0]));
        let options = Envelope::new(version, 1, Opcode::Options, Bytes::new());
        let mut decoder = Decoder::new(Side::Client, Limits::default());
        let mut bytes = crate::common::encode(&[options.clone(), startup.clone()]);
        encoder(version, None).encode(&options, &mut bytes);
        assert_eq!(decoder.decode(&mut bytes), Ok(Some(options.clone())));
        assert_eq!(decoder.decode(&mut bytes), Ok(Some(startup.clone())));
        assert_eq!(decoder.decode(&mut bytes), Ok(None));
        decoder.start(version, None);
        assert_eq!(decoder.decode(&mut bytes), Ok(Some(options.clone())));
        assert!(bytes.is_empty());

        let mut decoder = Decoder::new(Side::Client, Limits::default());
        let mut bytes = crate::common::encode(&[startup.clone(), startup.clone()]);
        assert_eq!(decoder.decode(&mut bytes), Ok(Some(startup.clone())));
        assert_eq!(decoder.decode(&mut bytes), Ok(None));
        decoder.refuse();
        assert_eq!(decoder.decode(&mut bytes), Ok(Some(startup)));
    }
}

#[test]
fn a_refused_startup_is_read_in_the_version_of_the_node() {
    let mut decoder = Decoder::new(Side::Server, Limits::default());
    decoder.start(Version::V5, Some(Compression::Lz4));
    let error = Envelope::new(Version::V4, 0, Opcode::Error, Bytes::from_static(b"no"));
    let mut bytes = crate::common::encode(std::slice::from_ref(&error));
    assert_eq!(decoder.decode(&mut bytes), Ok(Some(error)));
}
