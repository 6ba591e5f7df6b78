//! `INFO errorstats`: how often clients were told which error, by its first word.
//!
//! They are counted here and not asked of a duplicate: what a client is told is decided here, and
//! duplicates are asked much that no client has asked for.

use std::collections::BTreeMap;

use evenkeel_stores::resp::reply;

/// Words that are told apart: a script may return any.
const WORDS_MAX: usize = 128;
const WORD_BYTES_MAX: usize = 31;

/// Counted since the process began, or `CONFIG RESETSTAT`.
#[derive(Debug, Default)]
pub struct ErrorCounts {
    of: BTreeMap<Box<[u8]>, u64>,
    /// Of any word.
    pub total: u64,
}

impl ErrorCounts {
    /// A client is answered.
    #[inline]
    pub fn note(&mut self, answer: &[u8]) {
        if matches!(answer.first(), Some(b'-' | b'!')) {
            self.count(answer);
        }
    }

    /// A client's `EXEC` is answered.
    pub fn note_each(&mut self, answer: &[u8]) {
        match answer.first() {
            Some(b'*') => reply::elements(answer).for_each(|it| self.note(it)),
            _ => self.note(answer),
        }
    }

    #[cold]
    fn count(&mut self, answer: &[u8]) {
        self.total += 1;
        let text = match answer.first() {
            Some(b'!') => reply::payload(answer).unwrap_or_default(),
            _ => answer.get(1..).unwrap_or_default(),
        };
        let start = &text[..text.len().min(WORD_BYTES_MAX)];
        // As Redis: what has no first word is an error like others.
        let word =
            start.iter().position(|&byte| byte == b' ').map_or(&b"ERR"[..], |end| &start[..end]);
        if let Some(count) = self.of.get_mut(word) {
            *count += 1;
        } else if self.of.len() < WORDS_MAX {
            self.of.insert(word.into(), 1); // others are in the total alone
        }
    }

    /// `errorstat_ERR:count=3` of each.
    pub fn lines(&self) -> String {
        let words = self.of.iter().map(|(word, count)| (String::from_utf8_lossy(word), count));
        words.map(|(word, count)| format!("errorstat_{word}:count={count}\r\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_word_also_those_of_a_transaction() {
        let mut counts = ErrorCounts::default();
        counts.note(b"+OK\r\n");
        counts.note(b"-ERR unknown command\r\n");
        counts.note(b"!10\r\nOOM no\r\nno\r\n");
        counts.note_each(b"*3\r\n:1\r\n-WRONGTYPE no\r\n-ALONE\r\n");
        counts.note_each(b"-EXECABORT no\r\n");
        assert_eq!(
            counts.lines(),
            "errorstat_ERR:count=2\r\nerrorstat_EXECABORT:count=1\r\nerrorstat_OOM:count=1\r\n\
             errorstat_WRONGTYPE:count=1\r\n"
        );
        assert_eq!(counts.total, 5);
        for number in 0..200 {
            counts.note(format!("-E{number} x\r\n").as_bytes());
        }
        assert_eq!((counts.of.len(), counts.total), (WORDS_MAX, 205));
    }
}
