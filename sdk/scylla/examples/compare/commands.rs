//! Turns as whoever started this program asks for them, so that it can disturb nodes and count
//! processor time meanwhile (`cargo xtask bench cassandra`).
//!
//! A line on standard input is `turn way=NAME` and flags that hold for this turn; one answers it on
//! standard output, `turn` and `name=value` words, `error=` and all that follows it being the last.
//! The end of standard input is the end.

use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};

use evenkeel_scylla::chooser::Counts;

use crate::Problem;
use crate::flags::Flags;
use crate::load::{Taken, quantile, take_turn};
use crate::ways::Way;

/// Answers `ready`, then every command.
pub(crate) async fn obey(ways: &[Way], flags: &Flags) -> Result<(), Problem> {
    println!("ready");
    std::io::stdout().flush()?;
    let mut lines = std::io::stdin().lock().lines();
    while let Some(line) = lines.next().transpose()? {
        let mut words = line.split_whitespace();
        if words.next() != Some("turn") {
            return Err(format!("\"{line}\": expected turn way=NAME …").into());
        }
        let (mut flags, mut way) = (flags.clone(), None);
        for word in words {
            match word.strip_prefix("way=") {
                Some(name) => way = ways.iter().find(|way| way.name == name),
                None => flags.set_all([word].iter())?,
            }
        }
        let way = way.ok_or_else(|| format!("\"{line}\": no such way is connected"))?;
        let before = way.counts();
        let taken = take_turn(&way.asking, &flags).await?;
        println!("{}", answer(&taken, before, way.counts()));
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// What came of a turn; copies, as far as the way's policy counts them.
fn answer(taken: &Taken, before: Counts, after: Counts) -> String {
    let [first, second] = &taken.latencies_us;
    let mut line = format!(
        "turn errors={} copies={} won={} denied={} elapsed_us={} cpu_us={} late_us={} \
         first_us={} second_us={}",
        taken.errors,
        after.copies - before.copies,
        after.won - before.won,
        after.denied - before.denied,
        taken.elapsed.as_micros(),
        taken.cpu.as_micros(),
        quantile(&taken.late_us, 0.999).unwrap_or_default(),
        list(first),
        list(second)
    );
    if let Some(error) = &taken.error {
        let _ = write!(line, " error={}", error.replace('\n', " "));
    }
    line
}

fn list(numbers: &[u64]) -> String {
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    words.join(",")
}
