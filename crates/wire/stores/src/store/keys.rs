//! Keys that Evenkeel keeps in a store beside those of clients.

use crate::resp::encode;

/// The key that tells what a duplicate has: `EPOCH SEQUENCE`.
pub const WATERMARK: &[u8] = b"evenkeel:watermark";
/// The key that tells whose writes a duplicate takes.
pub const EPOCH: &[u8] = b"evenkeel:epoch";
/// How the watermark of an attempt begins whose effects are not in the log yet. It is no number:
/// whoever has it is filled anew.
pub const AHEAD: &[u8] = b"ahead ";
/// In place of a key: the libraries of functions, which are copied and compared as a key is. No
/// store has a key of this name.
pub const FUNCTIONS: &[u8] = b"evenkeel:functions";
/// Keys of ours begin with this; clients may not write them.
pub const RESERVED: &[u8] = b"evenkeel:";

/// `SET evenkeel:watermark "EPOCH SEQUENCE"`
#[inline]
pub fn write_mark(out: &mut Vec<u8>, (epoch, sequence): (u64, u64)) {
    let mut digits = itoa::Buffer::new();
    let mut text = [0_u8; 41];
    let mut length = 0;
    for (number, end) in [(epoch, &b" "[..]), (sequence, b"")] {
        for part in [digits.format(number).as_bytes(), end] {
            text[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }
    }
    encode::command(out, &[b"SET", WATERMARK, &text[..length]]);
}

/// `MULTI`, the commands, the watermark, `EXEC`: applied with its watermark or not at all. What
/// removes all keys is signed anew in the same command as the watermark, with this stamp.
pub fn write_group(out: &mut Vec<u8>, commands: &[u8], mark: (u64, u64), stamp: Option<&[u8]>) {
    if let Some(stamp) = stamp {
        let mark = format!("{} {}", mark.0, mark.1);
        return write_signed(out, commands, stamp, mark.as_bytes());
    }
    out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
    out.extend_from_slice(commands);
    write_mark(out, mark);
    out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
}

/// The same with a stamp and a watermark of any kind.
pub fn write_signed(out: &mut Vec<u8>, commands: &[u8], stamp: &[u8], mark: &[u8]) {
    out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
    out.extend_from_slice(commands);
    encode::command(out, &[b"MSET", EPOCH, stamp, WATERMARK, mark]);
    out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_emptied_is_signed_and_marked_in_the_same_transaction() {
        let (mut plain, mut signed) = (Vec::new(), Vec::new());
        write_group(&mut plain, b"*1\r\n$1\r\nX\r\n", (7, 42), None);
        let expected = "*1\r\n$5\r\nMULTI\r\n*1\r\n$1\r\nX\r\n*3\r\n$3\r\nSET\r\n$18\r\n\
                        evenkeel:watermark\r\n$4\r\n7 42\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(String::from_utf8(plain).unwrap(), expected);
        write_group(&mut signed, b"*1\r\n$8\r\nFLUSHALL\r\n", (7, 42), Some(b"7 00ff cart"));
        let expected = "*1\r\n$5\r\nMULTI\r\n*1\r\n$8\r\nFLUSHALL\r\n*5\r\n$4\r\nMSET\r\n$14\r\n\
                        evenkeel:epoch\r\n$11\r\n7 00ff cart\r\n$18\r\nevenkeel:watermark\r\n\
                        $4\r\n7 42\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(String::from_utf8(signed).unwrap(), expected);
    }
}
