//! A place on the ring, and tables from places to numbers.

use core::fmt;
use core::str::FromStr;

/// A place on the ring, from −2⁶³ to 2⁶³ − 1. A node owns what lies after the token before its own,
/// up to and with its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub i64);

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for Token {
    type Err = core::num::ParseIntError;

    /// Reads a token as system tables write it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A number for every range of the ring. Neighbours with the same number are one range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// The last token of each range, ascending. What lies after the last belongs to the first.
    ends: Vec<Token>,
    numbers: Vec<u32>,
}

impl Ranges {
    /// From the last token of each range and its number, ascending by token.
    pub(super) fn new(ranges: impl IntoIterator<Item = (Token, u32)>) -> Self {
        let mut all = Self::default();
        for (end, number) in ranges {
            assert!(all.ends.last().is_none_or(|&last| last < end), "ranges come in order");
            if all.numbers.last() == Some(&number) {
                all.ends.pop();
                all.numbers.pop();
            }
            all.ends.push(end);
            all.numbers.push(number);
        }
        all
    }

    /// The number of the range in which a token lies; `None` when there are no ranges.
    #[inline]
    pub(super) fn of(&self, token: Token) -> Option<u32> {
        let place = self.ends.partition_point(|&end| end < token);
        self.numbers.get(place).or(self.numbers.first()).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The last token of each range with its number, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Token, u32)> + '_ {
        self.ends.iter().copied().zip(self.numbers.iter().copied())
    }

    /// The length of each range, in tokens, with its number; together 2⁶⁴.
    pub(super) fn lengths(&self) -> impl Iterator<Item = (u128, u32)> + '_ {
        const AROUND: i128 = 1 << 64;
        let before = self.ends.last().map_or(0, |last| i128::from(last.0) - AROUND);
        self.iter().scan(before, |before, (end, number)| {
            let length = i128::from(end.0) - *before;
            *before = i128::from(end.0);
            Some((length as u128, number))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lies_in_the_range_that_ends_with_it_or_after_it() {
        let ranges = Ranges::new([(Token(-10), 1), (Token(0), 2), (Token(7), 2), (Token(9), 3)]);
        let at = |token| ranges.of(Token(token));
        assert_eq!(
            [at(i64::MIN), at(-10), at(-9), at(0), at(1), at(7)].map(Option::unwrap),
            [1, 1, 2, 2, 2, 2]
        );
        assert_eq!([at(8), at(9), at(10), at(i64::MAX)].map(Option::unwrap), [3, 3, 1, 1]);
        assert_eq!(ranges.len(), 3, "equal neighbours are one range");
        assert_eq!(Ranges::default().of(Token(0)), None);
    }

    #[test]
    fn lengths_go_around_the_ring_once() {
        let ranges = Ranges::new([(Token(-10), 1), (Token(0), 2), (Token(7), 3)]);
        let lengths: Vec<_> = ranges.lengths().collect();
        assert_eq!(lengths, [((1 << 64) - 17, 1), (10, 2), (7, 3)]);
        let one = Ranges::new([(Token(5), 0)]);
        assert_eq!(one.lengths().collect::<Vec<_>>(), [(1 << 64, 0)]);
    }

    #[test]
    fn tokens_are_read_as_system_tables_write_them() {
        assert_eq!("-9223372036854775808".parse(), Ok(Token(i64::MIN)));
        assert!("9223372036854775808".parse::<Token>().is_err());
        assert_eq!(Token(-1).to_string(), "-1");
    }
}
