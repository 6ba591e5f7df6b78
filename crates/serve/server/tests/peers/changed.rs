//! Cases that are changed at random.

use evenkeel_testkit::corpus::Case;

/// Bytes that mean something to a parser.
const BYTES: &[u8] = b"\r\n\0 \t,;:+-0159afxX\"/#?%\x0b\x7f\x80";
/// Longer ones only try limits.
const BYTES_MAX: usize = 2_000;

/// Each of these once, with a few changes, in one piece.
pub(super) fn all(corpus: &[Case], seed: u64) -> Vec<Case> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let whole: Vec<Vec<u8>> = corpus.iter().map(|case| case.pieces.concat()).collect();
    let short: Vec<_> = whole.iter().filter(|it| (1..BYTES_MAX).contains(&it.len())).collect();
    let of_case = |(case, bytes): (&Case, &Vec<u8>)| {
        let mut bytes = bytes.clone();
        for _ in 0..=random.below(2) {
            let other = short[random.below(short.len())];
            change(&mut bytes, other, &mut random);
        }
        Case { pieces: vec![bytes], ..case.clone() }
    };
    // Of methods and targets each has an opinion of its own, and HAProxy of bodies of HTTP/1.0.
    let is_of_framing = |name: &str| {
        let others = ["target-", "method-", "delete-", "get-", "head-", "options-"];
        !others.iter().any(|other| name.starts_with(other))
    };
    let is_changed = |(case, bytes): &(&Case, &Vec<u8>)| {
        !case.closes && is_of_framing(&case.name) && (1..BYTES_MAX).contains(&bytes.len())
    };
    corpus.iter().zip(&whole).filter(is_changed).map(of_case).collect()
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len().max(1));
    let byte = BYTES[random.below(BYTES.len())];
    match random.below(5) {
        0 => bytes.insert(at.min(bytes.len()), byte),
        1 if at < bytes.len() => bytes[at] = byte,
        2 if at < bytes.len() => drop(bytes.remove(at)),
        // A line of another case before one of this.
        3 => {
            let lines: Vec<_> = other.split_inclusive(|byte| *byte == b'\n').collect();
            let line = lines[random.below(lines.len())];
            let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            let starts: Vec<usize> = starts.map(|(at, _)| at + 1).collect();
            let start = if starts.is_empty() { 0 } else { starts[random.below(starts.len())] };
            bytes.splice(start..start, line.iter().copied());
        }
        // A line twice.
        _ => {
            let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            let Some(last) = lines.len().checked_sub(1) else { return };
            let number = random.below(last + 1);
            let (start, line) = (lines[..number].concat().len(), lines[number].to_vec());
            bytes.splice(start..start, line);
        }
    }
}

/// A small generator (xorshift): the same seed gives the same cases.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count as u64) as usize
    }
}
