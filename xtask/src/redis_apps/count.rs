//! What of an application's jobs became of them, by the traces that they left.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A table of the traces: how often each was noted.
type Table = BTreeMap<String, u64>;

/// The traces, at the server of this port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trace(pub(super) u16);

impl Trace {
    /// Says something to the server; its answer, line by line.
    pub(super) fn say(self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.0.to_string()]).args(words).stdin(Stdio::null());
        let output = command.output().context("redis-cli could not be started")?;
        if !output.status.success() {
            bail!("the server of traces does not answer {words:?}");
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn table(self, name: &str) -> Result<Table> {
        Ok(read_table(&self.say(&["HGETALL", name])?))
    }

    /// Acknowledged jobs that were not done yet, and results that somebody waits for.
    pub(super) fn missing(self) -> Result<usize> {
        let jobs = missing(&self.table("acknowledged")?, &self.table("runs")?);
        let mut known = self.table("results")?;
        known.append(&mut self.table("unanswered")?);
        Ok(jobs + missing(&self.table("asked")?, &known))
    }

    /// Everything that is counted.
    pub(super) fn tally(self) -> Result<Tally> {
        let sum = |name: &str| Ok::<u64, anyhow::Error>(self.table(name)?.values().sum());
        let (given, acknowledged) = (self.table("given")?, self.table("acknowledged")?);
        let runs = self.table("runs")?;
        let mut kept = self.table("set_aside")?;
        kept.retain(|job, _| acknowledged.contains_key(job) && !runs.contains_key(job));
        let set_aside = kept.len() as u64;
        kept.extend(runs.clone());
        let (twice, given_twice) = repeated(&runs, &self.table("jobs")?);
        Ok(Tally {
            given: given.len() as u64,
            acknowledged: acknowledged.len() as u64,
            lost: missing(&acknowledged, &kept) as u64 + sum("lost")?,
            set_aside,
            twice: twice + sum("twice")?,
            given_twice,
            wrong: sum("wrong")?,
            no_result: missing(&self.table("asked")?, &self.table("results")?) as u64,
            restarts: 0,
            errors: self.table("errors")?,
        })
    }
}

/// How many jobs were done twice, and how many were only given twice: the library sent a command
/// again whose reply it did not get, and there are two jobs, of different ids. `jobs` has them by
/// what was given and by id; without it both are the former.
fn repeated(runs: &Table, jobs: &Table) -> (u64, u64) {
    let is_twice = |(_, times): &(&String, &u64)| **times > 1;
    let given = |job: &String| job.split(' ').next().unwrap_or_default().to_owned();
    let done: BTreeSet<String> = jobs.iter().filter(is_twice).map(|(job, _)| given(job)).collect();
    let known: BTreeSet<String> = jobs.keys().map(given).collect();
    let is_done = |name: &&String| done.contains(*name) || !known.contains(*name);
    let all: Vec<&String> = runs.iter().filter(is_twice).map(|(name, _)| name).collect();
    let twice = all.iter().filter(|name| is_done(name)).count();
    (twice as u64, (all.len() - twice) as u64)
}

/// A field and its value, line by line.
fn read_table(text: &str) -> Table {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2);
    pairs.filter_map(|pair| Some((pair[0].to_owned(), pair[1].parse().ok()?))).collect()
}

fn missing(acknowledged: &Table, runs: &Table) -> usize {
    acknowledged.keys().filter(|job| !runs.contains_key(*job)).count()
}

/// What became of the jobs of one side.
#[derive(Debug, Default)]
pub(super) struct Tally {
    given: u64,
    acknowledged: u64,
    lost: u64,
    /// Never done, and the application says so: in its list of failed jobs.
    set_aside: u64,
    twice: u64,
    /// Jobs of which there were two, as the library sent what gives them again.
    given_twice: u64,
    wrong: u64,
    no_result: u64,
    /// Processes of the application that ended by themselves.
    pub(super) restarts: u64,
    /// What the application met, with numbers left out.
    errors: Table,
}

impl Tally {
    /// Whether it lost, doubled or mistook more.
    pub(super) const fn worse_than(&self, other: &Self) -> bool {
        self.lost > other.lost
            || self.twice + self.given_twice > other.twice + other.given_twice
            || self.wrong > other.wrong
            || self.acknowledged == 0
    }
}

/// A line of the table, and the errors below it.
pub(super) struct TallyRow<'a> {
    pub(super) app: &'a str,
    pub(super) side: &'a str,
    pub(super) tally: &'a Tally,
}

impl TallyRow<'_> {
    pub(super) const HEAD: &'static str = "application  at       given  acknowledged   lost  \
                                           aside  twice  given twice  wrong  no result  \
                                           restarts  errors";
}

impl fmt::Display for TallyRow<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { given, acknowledged, lost, set_aside, twice, .. } = self.tally;
        let Tally { given_twice, wrong, no_result, restarts, errors, .. } = self.tally;
        let count: u64 = errors.values().sum();
        write!(
            formatter,
            "{:<12} {:<6} {given:>7} {acknowledged:>13} {lost:>6} {set_aside:>6} {twice:>6} \
             {given_twice:>12} {wrong:>6} {no_result:>10} {restarts:>9} {count:>7}",
            self.app, self.side
        )?;
        for (error, times) in errors {
            write!(formatter, "\n    {times} × {error}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_acknowledged_and_never_ran_is_missing() {
        let acknowledged = read_table("a-1\n1\na-2\n1\n");
        assert_eq!(missing(&acknowledged, &read_table("a-1\n1\nb-9\n1\n")), 1);
        assert_eq!(missing(&acknowledged, &read_table("a-1\n2\na-2\n1\n")), 0);
        assert_eq!(read_table("\n").len(), 0, "redis-cli's words for an empty table");
    }

    #[test]
    fn a_job_that_the_library_gave_twice_was_not_done_twice() {
        let runs = read_table("a-1\n2\na-2\n2\na-3\n1\nb-1\n2\n");
        let jobs = read_table("a-1 7\n1\na-1 8\n1\na-2 9\n2\na-3 10\n1\n");
        assert_eq!(repeated(&runs, &jobs), (2, 1), "a-2, and b-1, of which no ids are known");
        assert_eq!(repeated(&runs, &Table::new()), (3, 0));
    }

    #[test]
    fn only_what_is_more_is_worse_and_no_job_at_all_is_worse_too() {
        let tally =
            |lost, twice, wrong| Tally { acknowledged: 9, lost, twice, wrong, ..Tally::default() };
        assert!(!tally(1, 2, 0).worse_than(&tally(1, 2, 0)));
        let given_twice = Tally { given_twice: 1, ..tally(1, 2, 0) };
        for worse in [tally(2, 0, 0), tally(0, 3, 0), tally(0, 0, 1), given_twice, Tally::default()]
        {
            assert!(worse.worse_than(&tally(1, 2, 0)), "{worse:?}");
        }
    }
}
