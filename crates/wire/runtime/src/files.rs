//! Open files: each connection is one, and the operating system limits them for each process.
//!
//! A process without a free file does not only refuse clients: it reaches no replica, and nobody
//! can ask it what is wrong. So the soft limit (often 1,024, for programs that use `select`) is
//! raised to the hard one at the start. What clients may have of it is what upstreams and the
//! process itself leave ([`Budget`]); more clients wait in the kernel's backlog, as they do at
//! `connections_max`.

use std::fmt;
use std::io;

/// Of a process itself: listeners, event queues, timers, logs, health checks, administration.
const OWN: u64 = 192;
/// Of each worker: an event queue, a timer, wake-ups; beside its pipes.
const OF_WORKER: u64 = 8;

/// The most pipes that a worker may have.
pub const PIPES_MAX: usize = 32;
/// A worker has a pipe for so many open files that are allowed: they spare a copy, clients and
/// replicas come before that.
const FILES_PER_PIPE: u64 = 512;

/// The limit of open files before and after it was raised. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// As it was.
    pub before: Option<u64>,
    /// As it is.
    pub now: Option<u64>,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |limit: Option<u64>| limit.map_or("none".to_owned(), |it| it.to_string());
        write!(f, "limit of open files: {}", number(self.now))?;
        if self.now == self.before {
            return Ok(());
        }
        write!(f, " (raised from {} to the hard limit)", number(self.before))
    }
}

/// The limit of open files in force; `None` is no limit.
#[must_use]
pub fn limit() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    return None;
}

/// How many pipes a worker may have within this limit of open files; each is two.
#[must_use]
pub fn pipes_max(files_max: Option<u64>) -> usize {
    let max = files_max.map_or(PIPES_MAX as u64, |max| max / FILES_PER_PIPE);
    max.min(PIPES_MAX as u64) as usize
}

/// Raises the soft limit of open files to the hard one.
///
/// # Errors
/// When the operating system refuses it; the limit is then as before.
pub fn raise() -> io::Result<Limit> {
    let before = limit();
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limits = getrlimit(Resource::Nofile);
        if limits.current != limits.maximum {
            setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })?;
        }
    }
    Ok(Limit { before, now: limit() })
}

/// How many files a configuration may need at once, each limit reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Connections of clients, over all workers.
    pub clients: u64,
    /// Connections to replicas, over all workers.
    pub upstreams: u64,
    /// Worker threads.
    pub workers: u64,
}

impl Budget {
    /// What the process needs for itself.
    fn own(&self, files_max: Option<u64>) -> u64 {
        let of_worker = OF_WORKER + 2 * pipes_max(files_max) as u64;
        OWN.saturating_add(self.workers.saturating_mul(of_worker))
    }

    fn sum(&self, files_max: Option<u64>) -> u64 {
        self.clients.saturating_add(self.upstreams).saturating_add(self.own(files_max))
    }

    /// How many clients may be connected at once within this limit of open files.
    ///
    /// Where not all fits, upstreams have as many as they may need, or else half of what the
    /// process does not need itself: a request needs a connection on either side.
    pub fn clients_max(&self, files_max: Option<u64>) -> u64 {
        let is_short = |max: &u64| *max < self.sum(files_max);
        let Some(max) = files_max.filter(is_short) else { return u64::MAX };
        let left = max.saturating_sub(self.own(files_max));
        (left - self.upstreams.min(left / 2)).max(1)
    }

    /// Why this limit is too low, if it is: a sentence with the numbers.
    pub fn shortfall(&self, files_max: Option<u64>) -> Option<String> {
        let max = files_max.filter(|max| *max < self.sum(files_max))?;
        Some(format!(
            "limit of open files: got {max}, expected at least {sum}: the configuration \
             allows {clients} connections of clients and {upstreams} to replicas, and the process \
             needs {own} itself. Beyond {most} clients, others wait. Raise the hard limit \
             (LimitNOFILE= of systemd, ulimit -Hn), or lower connections_max",
            sum = self.sum(files_max),
            clients = self.clients,
            upstreams = self.upstreams,
            own = self.own(files_max),
            most = self.clients_max(files_max),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget { clients: 20_000, upstreams: 3_000, workers: 1 };

    #[test]
    fn what_fits_has_no_limit_of_its_own() {
        for files_max in [None, Some(23_264), Some(1 << 20)] {
            assert_eq!(BUDGET.clients_max(files_max), u64::MAX);
            assert_eq!(BUDGET.shortfall(files_max), None);
        }
    }

    #[test]
    fn of_too_few_files_upstreams_and_the_process_itself_have_their_part() {
        assert_eq!(BUDGET.clients_max(Some(23_263)), 19_999);
        assert_eq!(BUDGET.clients_max(Some(10_240)), 7_000);
        assert_eq!(BUDGET.clients_max(Some(1_204)), 500, "half of what is left");
        assert_eq!(BUDGET.clients_max(Some(100)), 1, "one at least: it is a proxy");
        let words = BUDGET.shortfall(Some(1_204)).unwrap();
        assert!(words.starts_with("limit of open files: got 1204, expected at least 23204"));
        assert!(words.contains("Beyond 500 clients, others wait"), "{words}");
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limit = raise().unwrap();
        assert_eq!(raise().unwrap(), Limit { before: limit.now, now: limit.now });
        let raised = Limit { before: Some(1_024), now: Some(4_096) };
        let words = "limit of open files: 4096 (raised from 1024 to the hard limit)";
        assert_eq!(raised.to_string(), words);
    }
}
