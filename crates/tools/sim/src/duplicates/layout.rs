//! Who holds what: shards in partitions, each on several duplicates.
//!
//! A policy is written in one of two ways. `2p2d` is two partitions of two duplicates that share
//! all shards evenly, the paper's notation. `2s1d+1s2d` is a partition with two shards and one
//! duplicate beside one with one shard and two duplicates, repeated until all shards have a place:
//! what figure 9 needs, where partitions are not alike.

use evenkeel_settings::Mismatch;

/// Servers of a layout at most.
const SERVERS_MAX: usize = 4_096;
/// Duplicates of a partition at most.
pub const DUPLICATES_MAX: usize = 64;

/// A partition: how many shards it holds, on how many servers each of them is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Shards.
    pub shards: usize,
    /// Duplicates.
    pub duplicates: usize,
}

/// The partitions of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// One after another; the first holds the first shards.
    pub partitions: Vec<Partition>,
}

impl Layout {
    /// Reads a policy for this many shards.
    ///
    /// # Errors
    /// When it is none, or the shards do not come out even.
    pub fn parse(text: &str, shards: usize) -> Result<Self, Mismatch> {
        let layout = match numbers(text, ["p", "d"]) {
            Some([partitions, duplicates]) => Self::even(partitions, duplicates, shards),
            None => Self::pattern(text, shards),
        };
        let expected = "a policy such as 2p2d (partitions, duplicates) or 2s1d+1s2d (shards and \
                        duplicates of one partition after the other)";
        let layout = layout.ok_or_else(|| Mismatch::new(format!("{text:?}"), expected))?;
        if layout.partitions.iter().map(|one| one.shards).sum::<usize>() != shards {
            let expected = format!("a policy that {shards} shards (workload.shards) fit evenly");
            return Err(Mismatch::new(format!("{text:?}"), expected));
        }
        if layout.servers() > SERVERS_MAX {
            let came = format!("{text:?}, {} servers", layout.servers());
            return Err(Mismatch::new(came, format!("at most {SERVERS_MAX}")));
        }
        Ok(layout)
    }

    fn even(partitions: usize, duplicates: usize, shards: usize) -> Option<Self> {
        let is_sound = (1..=SERVERS_MAX).contains(&partitions) && is_duplicates(duplicates);
        let one = Partition { shards: shards / partitions.max(1), duplicates };
        is_sound.then(|| Self { partitions: vec![one; partitions] })
    }

    fn pattern(text: &str, shards: usize) -> Option<Self> {
        let one = |part: &str| {
            let [shards, duplicates] = numbers(part, ["s", "d"])?;
            let is_sound = (1..=SERVERS_MAX).contains(&shards) && is_duplicates(duplicates);
            is_sound.then_some(Partition { shards, duplicates })
        };
        let pattern: Vec<Partition> = text.split('+').map(one).collect::<Option<_>>()?;
        let held: usize = pattern.iter().map(|one| one.shards).sum();
        Some(Self { partitions: pattern.repeat(shards / held) })
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.partitions.iter().map(|one| one.duplicates).sum()
    }

    /// The partition of each shard.
    pub fn of_shards(&self) -> Vec<usize> {
        let numbered = self.partitions.iter().enumerate();
        numbered.flat_map(|(number, one)| core::iter::repeat_n(number, one.shards)).collect()
    }
}

fn is_duplicates(number: usize) -> bool {
    (1..=DUPLICATES_MAX).contains(&number)
}

/// Two whole numbers, each before its letter.
fn numbers(text: &str, [first, second]: [&str; 2]) -> Option<[usize; 2]> {
    let (one, rest) = text.trim().split_once(first)?;
    let other = rest.strip_suffix(second)?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(one) && is_number(other)).then_some([one.parse().ok()?, other.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_even_or_a_pattern() {
        let even = Layout::parse("2p3d", 12).unwrap();
        assert_eq!(even.partitions, [Partition { shards: 6, duplicates: 3 }; 2]);
        assert_eq!((even.servers(), even.of_shards()[6]), (6, 1));
        // Figure 9: of six nodes two hold two shards each, four hold two shards twice.
        let night = Layout::parse("2s1d+2s1d+1s2d+1s2d", 12).unwrap();
        assert_eq!((night.servers(), night.partitions.len()), (12, 8));
        assert_eq!(night.of_shards(), [0, 0, 1, 1, 2, 3, 4, 4, 5, 5, 6, 7]);
    }

    #[test]
    fn what_is_no_policy_is_told() {
        for text in ["", "2p", "0p1d", "2p0d", "2p65d", "-1p2d", "2s1d+", "0s1d", "99999p1d", "c3"]
        {
            let reported = format!("{:?}", Layout::parse(text, 12).unwrap_err());
            assert!(reported.contains("2p2d"), "{text}: {reported}");
        }
        assert!(format!("{:?}", Layout::parse("5p1d", 12).unwrap_err()).contains("12 shards"));
        assert!(format!("{:?}", Layout::parse("2s1d+3s1d", 12).unwrap_err()).contains("12 shards"));
        assert!(Layout::parse("1024p8d", 1024).is_err());
    }
}
