//! What pages are to cost, where somebody else says so: a simulator that plays the same day.
//!
//! A page is made as always, and then holds its thread until it has taken as long as it is to take.
//! So replicas on a busy computer, whose caches others evict, cost what they cost on a quiet one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::brownout::Parts;

/// Items that may have a line.
const ITEMS_MAX: usize = 1_000_000;
/// What a line has at most, the end of it included.
const LINE_MAX: usize = 64;
const BYTES_MAX: u64 = (ITEMS_MAX * LINE_MAX) as u64;

/// The times of a full and of a lean page, by item.
#[derive(Debug, Default)]
pub(crate) struct Costs(HashMap<i64, [Duration; 2]>);

impl Costs {
    /// Reads lines like `17 60000 8000`: an item, and what its full and its lean page take, in
    /// microseconds.
    ///
    /// # Errors
    /// When the file cannot be read, or at the first line that is something else.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        let shown = file.display();
        let lines = File::open(file).with_context(|| format!("--costs {shown}"))?;
        let mut costs = HashMap::new();
        for (number, line) in BufReader::new(lines.take(BYTES_MAX)).lines().enumerate() {
            let line = line.with_context(|| format!("--costs {shown}: line {}", number + 1))?;
            let cost = (line.len() < LINE_MAX).then(|| read(&line)).flatten();
            let (item, times) = cost.with_context(|| {
                let start: String = line.chars().take(LINE_MAX).collect();
                format!(
                    "--costs {shown}: line {}: got {start:?}, expected an item and two numbers of \
                     microseconds, such as 17 60000 8000",
                    number + 1
                )
            })?;
            costs.insert(item, times);
            ensure!(costs.len() <= ITEMS_MAX, "--costs {shown}: more than {ITEMS_MAX} items");
        }
        Ok(Self(costs))
    }

    /// What the page of an item with these parts is to take; `None` where the file does not say.
    pub(crate) fn of(&self, item: i64, parts: Parts) -> Option<Duration> {
        let [full, lean] = self.0.get(&item)?;
        Some(if parts == Parts::NONE { *lean } else { *full })
    }
}

fn read(line: &str) -> Option<(i64, [Duration; 2])> {
    let mut words = line.split_ascii_whitespace();
    let item = words.next()?.parse().ok()?;
    let mut time = || Some(Duration::from_micros(u64::from(words.next()?.parse::<u32>().ok()?)));
    let times = [time()?, time()?];
    words.next().is_none().then_some((item, times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store;

    #[test]
    fn lines_are_items_with_the_times_of_their_pages() {
        let folder = store::tests::folder("costs");
        let file = folder.join("costs");
        std::fs::write(&file, "1 60000 8000\n21 500 20\n").unwrap();
        let costs = Costs::load(&file).unwrap();
        let times = |item| [Parts::ALL, Parts::NONE].map(|parts| costs.of(item, parts));
        let ms = |time| Some(Duration::from_millis(time));
        assert_eq!(times(1), [ms(60), ms(8)]);
        assert_eq!(times(21)[1], Some(Duration::from_micros(20)));
        assert_eq!(times(2), [None, None]);
        for wrong in ["1 60000", "1 60000 8000 3", "x 1 2", "1 -1 2", "1 99999999999 2", ""] {
            std::fs::write(&file, format!("5 6 7\n{wrong}\n")).unwrap();
            let error = format!("{:#}", Costs::load(&file).unwrap_err());
            assert!(error.contains("line 2") && error.contains("17 60000 8000"), "{error}");
        }
        assert!(Costs::load(&folder.join("none")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
