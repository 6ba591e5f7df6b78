//! A set of servers in one machine word.

/// How many duplicates one service may have.
pub const SERVERS_MAX: usize = 64;

/// Some of the servers of a service.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerSet(u64);

impl ServerSet {
    /// Nobody.
    pub const EMPTY: Self = Self(0);

    /// Only this one.
    ///
    /// # Panics
    /// When `server` is not below [`SERVERS_MAX`].
    #[inline]
    pub const fn only(server: usize) -> Self {
        assert!(server < SERVERS_MAX, "a service has at most 64 servers");
        Self(1 << server)
    }

    /// Adds one.
    #[inline]
    pub const fn insert(&mut self, server: usize) {
        self.0 |= Self::only(server).0;
    }

    /// Removes one.
    #[inline]
    pub const fn remove(&mut self, server: usize) {
        self.0 &= !Self::only(server).0;
    }

    /// Whether it is in.
    #[inline]
    pub const fn contains(self, server: usize) -> bool {
        server < SERVERS_MAX && self.0 & (1 << server) != 0
    }

    /// Those in both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those in either.
    #[inline]
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// How many.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is nobody.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The one with the lowest number.
    #[inline]
    pub const fn first(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    /// All of them, ascending.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let first = Self(rest).first()?;
            rest &= rest - 1;
            Some(first)
        })
    }
}

impl FromIterator<usize> for ServerSet {
    fn from_iter<I: IntoIterator<Item = usize>>(servers: I) -> Self {
        let mut set = Self::EMPTY;
        servers.into_iter().for_each(|server| set.insert(server));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(first: Vec<u8>, second: Vec<u8>) {
            let of = |numbers: &[u8]| -> BTreeSet<usize> {
                numbers.iter().map(|number| usize::from(number % 64)).collect()
            };
            let (first, second) = (of(&first), of(&second));
            let as_set = |them: &BTreeSet<usize>| them.iter().copied().collect::<ServerSet>();
            let (a, b) = (as_set(&first), as_set(&second));
            let same = |set: ServerSet, expected: Vec<&usize>| {
                let expected: Vec<usize> = expected.into_iter().copied().collect();
                assert_eq!(set.iter().collect::<Vec<_>>(), expected);
                assert_eq!((set.len(), set.is_empty()), (expected.len(), expected.is_empty()));
                assert_eq!(set.first(), expected.first().copied());
            };
            same(a, first.iter().collect());
            same(a.and(b), first.intersection(&second).collect());
            same(a.or(b), first.union(&second).collect());
            same(a.without(b), first.difference(&second).collect());
            for server in 0..80 {
                assert_eq!(a.contains(server), first.contains(&server));
            }
        }
    }
}
