//! Order of what is nearly in order: rows come as copies were sent, and times differ by little.

/// Sorts by a key, and leaves equal ones in their order: each goes back past the few that belong
/// behind it, unless they are many.
pub(crate) fn sort<T: Copy>(all: &mut [T], key: impl Fn(&T) -> u64) {
    let mut moved = 0;
    for place in 1..all.len() {
        let one = all[place];
        let mut to = place;
        while to > 0 && key(&all[to - 1]) > key(&one) {
            all[to] = all[to - 1];
            to -= 1;
        }
        all[to] = one;
        moved += place - to;
        if moved > 4 * all.len() {
            return all.sort_by_key(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sort;
    use evenkeel_core::Rng;

    #[test]
    fn few_and_many_out_of_order_are_sorted_and_equal_ones_keep_their_order() {
        let mut rng = Rng::seeded(1);
        for spread in [1, 5, 100_000] {
            let one = |place: u64| (place / 3 + rng.below(spread) as u64, place);
            let mut all: Vec<(u64, u64)> = (0..5_000).map(one).collect();
            let mut expected = all.clone();
            expected.sort_by_key(|one| one.0);
            sort(&mut all, |one| one.0);
            assert_eq!(all, expected);
        }
    }
}
