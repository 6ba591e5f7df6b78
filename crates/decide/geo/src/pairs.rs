//! One value for every pair of an origin and a destination.

use std::ops::{Index, IndexMut};

/// A square of values, row by row: `(origin, destination)`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Pairs<T> {
    sites: usize,
    values: Vec<T>,
}

impl<T: Clone> Pairs<T> {
    pub(super) fn filled(sites: usize, value: T) -> Self {
        Self { sites, values: vec![value; sites * sites] }
    }

    pub(super) fn from_fn(sites: usize, mut value: impl FnMut(usize, usize) -> T) -> Self {
        let pairs = (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
        let values = pairs.map(|(from, to)| value(from, to)).collect();
        Self { sites, values }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &[T]> {
        self.values.chunks(self.sites.max(1))
    }
}

impl<T> Index<(usize, usize)> for Pairs<T> {
    type Output = T;

    #[inline]
    fn index(&self, (from, to): (usize, usize)) -> &T {
        &self.values[from * self.sites + to]
    }
}

impl<T> IndexMut<(usize, usize)> for Pairs<T> {
    #[inline]
    fn index_mut(&mut self, (from, to): (usize, usize)) -> &mut T {
        &mut self.values[from * self.sites + to]
    }
}
