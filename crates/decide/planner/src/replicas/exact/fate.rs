//! What was decided of each site.

/// What was decided of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Free,
    Open,
    Closed,
}

/// Sites of which the same was decided, rising.
pub(super) fn with_fate(fates: &[Fate], fate: Fate) -> impl Iterator<Item = usize> + '_ {
    (0..fates.len()).filter(move |&site| fates[site] == fate)
}
