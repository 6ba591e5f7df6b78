//! What agents saw of copies joins the rows of a proxy.
//!
//! A proxy tells each request's number to the agents, and both write it down. So rows are joined by
//! number, and no clock is compared with another one: of an agent's rows only the order counts, and
//! they may be of another hour and another speed. Whose agent it is follows from the numbers, too:
//! it is that of the replica to which most of the requests went that it saw; where all of them went
//! to several, as hedges do, of the one that got little else.
//!
//! What an agent served in the time that all agents have, and no row of the day tells of, is a
//! stranger's: without a number (a client that passes by the proxies, a health check), of
//! another proxy, or there twice. What has a number of one of the day's dispatchers, and is in no
//! row at all, was lost with a window of the proxy.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::rows::{Day, End, Row};

/// Requests of one dispatcher have numbers below two to this power; what is above tells which
/// dispatcher's they are.
pub const REQUEST_BITS: u32 = 40;
/// Answers of a replica that its agent must know of, as a share: others would be load that nobody
/// sees.
const KNOWN_MIN: f64 = 0.95;

/// Why rows cannot be joined.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum JoinError {
    /// An agent is missing, or was away.
    #[error(
        "replica-{replica}: the agents' rows have {known} of its {answers} answers, expected at \
         least 95 %: agents must record at all replicas, or at none (is a folder missing, was an \
         agent killed, or did one begin to record before it was asked by this proxy?)"
    )]
    Unknown {
        /// The replica.
        replica: usize,
        /// Answers that its agent has.
        known: u64,
        /// Answers in the time that all agents have.
        answers: u64,
    },
    /// No time of the day is in the rows of all agents.
    #[error(
        "the agents' rows are of different times: got none of the day's that all of them have, \
         expected at least two"
    )]
    Apart,
}

/// What an agent's rows brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Added {
    /// Whose agent it is.
    pub replica: usize,
    /// Copies that it saw.
    pub copies: u64,
    /// Requests of others.
    pub strangers: u64,
}

/// The rows of a proxy, and what agents add to them.
#[derive(Clone, Debug)]
pub struct Join {
    day: Day,
    sent_ns: Vec<u64>,
    /// Numbers of requests and places of their copies, in ascending order.
    places: Vec<(u64, u32)>,
    /// Of the requests of the day.
    dispatchers: BTreeSet<u64>,
    /// By replica, how many requests went there.
    requests: Vec<u64>,
    /// By replica, when the first and the last copy was sent that its agent has.
    spans: Vec<Option<(u64, u64)>>,
    /// By replica, when the copies were sent behind which its agent saw a stranger.
    strange_ns: Vec<Vec<u64>>,
}

impl Join {
    /// Of a day, which has at most 2^32 rows.
    pub fn new(day: Day) -> Self {
        let mut places: Vec<(u64, u32)> =
            day.rows.iter().zip(0..).map(|(row, place)| (row.request, place)).collect();
        places.sort_unstable();
        let dispatchers = places.iter().map(|(number, _)| number >> REQUEST_BITS).collect();
        let replicas = day.rows.iter().map(|row| usize::from(row.replica) + 1).max().unwrap_or(0);
        let replicas = replicas.max(day.strangers.len());
        let mut join = Self {
            sent_ns: day.sent_ns().collect(),
            places,
            dispatchers,
            requests: Vec::new(),
            spans: vec![None; replicas],
            strange_ns: vec![Vec::new(); replicas],
            day,
        };
        let mut requests = vec![0; replicas];
        for of_one in join.places.chunk_by(|one, next| one.0 == next.0) {
            join.replicas(of_one).for_each(|replica| requests[replica] += 1);
        }
        join.requests = requests;
        join
    }

    /// Adds the rows of one agent, in the order in which requests came to it. `None` if it saw
    /// nothing of the day.
    pub fn add(&mut self, agent: &[Row]) -> Option<Added> {
        let replica = self.replica_of(agent)?;
        let (mut copies, mut strangers, mut since) = (0, 0, 0);
        let mut last_ns = None;
        for row in agent {
            let Some(place) = self.copy(row.request, replica) else {
                since += usize::from(last_ns.is_some() && self.is_strange(row.request));
                continue;
            };
            self.day.rows[place].served = row.served;
            let sent_ns = self.sent_ns[place];
            // Those behind the last copy may be of any time.
            let before_ns = last_ns.replace(sent_ns).unwrap_or(sent_ns);
            self.strange_ns[replica].extend(std::iter::repeat_n(before_ns, since));
            (copies, strangers, since) = (copies + 1, strangers + since as u64, 0);
            let (first, last) = self.spans[replica].unwrap_or((sent_ns, sent_ns));
            self.spans[replica] = Some((first.min(sent_ns), last.max(sent_ns)));
        }
        last_ns.map(|_| Added { replica, copies, strangers })
    }

    /// The day as all agents saw it: what was sent before the first of them saw something of it, or
    /// after the last, is left out.
    ///
    /// # Errors
    /// When an agent is missing, or lacks too much.
    pub fn finish(self) -> Result<Day, JoinError> {
        let Self { mut day, sent_ns, spans, strange_ns, .. } = self;
        let known = spans.iter().flatten();
        let (from, to) =
            known.fold((0, u64::MAX), |(from, to), span| (from.max(span.0), to.min(span.1)));
        if from >= to {
            return Err(JoinError::Apart);
        }
        let mut all = vec![(0_u64, 0_u64); spans.len()];
        for (row, sent_ns) in day.rows.iter().zip(&sent_ns) {
            if row.end == End::Answered && (from..=to).contains(sent_ns) {
                let (known, answers) = &mut all[usize::from(row.replica)];
                *answers += 1;
                *known += u64::from(row.served.is_some());
            }
        }
        for (replica, (known, answers)) in all.into_iter().enumerate() {
            if (known as f64) < KNOWN_MIN * answers as f64 {
                return Err(JoinError::Unknown { replica, known, answers });
            }
        }
        let count = |of: &Vec<u64>| of.iter().filter(|at| (from..=to).contains(*at)).count() as u64;
        day.strangers = strange_ns.iter().map(count).collect();
        let mut last_ns = from;
        let mut rows = std::mem::take(&mut day.rows);
        let mut place = 0;
        rows.retain_mut(|row| {
            let sent_ns = sent_ns[place];
            place += 1;
            let stays = (from..=to).contains(&sent_ns);
            if stays {
                row.gap_ns = sent_ns - last_ns;
                last_ns = sent_ns;
            }
            stays
        });
        Ok(Day { rows, ..day })
    }

    /// Whose agent this is: most of what it saw was sent there. Of several with as much, the one
    /// that got least else, and of which no agent has told.
    fn replica_of(&self, agent: &[Row]) -> Option<usize> {
        let mut seen = vec![0_u64; self.spans.len()];
        for row in agent {
            for replica in self.replicas(self.copies(row.request)) {
                seen[replica] += 1;
            }
        }
        let most = seen.iter().copied().max().filter(|most| *most > 0)?;
        let best = (0..seen.len()).filter(|&replica| seen[replica] == most);
        best.min_by_key(|&replica| (self.requests[replica], self.spans[replica].is_some()))
    }

    /// Where these copies of a request went, each once.
    fn replicas<'a>(&'a self, copies: &'a [(u64, u32)]) -> impl Iterator<Item = usize> + 'a {
        let replica = |at: usize| usize::from(self.day.rows[copies[at].1 as usize].replica);
        let is_first = move |at: &usize| (0..*at).all(|before| replica(before) != replica(*at));
        (0..copies.len()).filter(is_first).map(replica)
    }

    fn copies(&self, number: u64) -> &[(u64, u32)] {
        let from = self.places.partition_point(|(known, _)| *known < number);
        let until = self.places[from..].partition_point(|(known, _)| *known == number);
        &self.places[from..from + until]
    }

    /// The first copy of a request at a replica of which no agent has told yet.
    fn copy(&self, number: u64, replica: usize) -> Option<usize> {
        let is_it = |row: &Row| usize::from(row.replica) == replica && row.served.is_none();
        let copies = self.copies(number).iter().map(|(_, place)| *place as usize);
        copies.into_iter().find(|place| is_it(&self.day.rows[*place]))
    }

    /// Whether it is no request of the day, nor one that the day has lost.
    fn is_strange(&self, number: u64) -> bool {
        let is_ours = number > 0 && self.dispatchers.contains(&(number >> REQUEST_BITS));
        !is_ours || !self.copies(number).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Served, Why};

    /// Of the second dispatcher of all.
    const OURS: u64 = 2 << REQUEST_BITS;

    fn row(request: u64, gap_ns: u64, replica: u16) -> Row {
        Row {
            request,
            gap_ns,
            after_ns: 0,
            latency_ns: 9,
            client: 0,
            replica,
            group: 0,
            policy: 0,
            size: 0,
            why: Why::First,
            end: End::Answered,
            served: None,
        }
    }

    /// What an agent saw, which was served for so long.
    fn seen(request: u64, service_ns: u64) -> Row {
        let served = Served { wait_ns: 1, service_ns, queue: 0, is_full: true };
        Row { served: Some(served), ..row(request, 1_000_000, 0) }
    }

    fn service(row: &Row) -> Option<u64> {
        row.served.map(|served| served.service_ns)
    }

    #[test]
    fn rows_are_joined_by_number_and_who_is_nobodys_is_a_stranger() {
        let hedge = Row { why: Why::Hedge, ..row(OURS + 3, 10, 0) };
        let cut = Row { end: End::Cancelled, ..row(OURS + 3, 10, 1) };
        let rows = vec![row(OURS + 1, 0, 0), row(OURS + 2, 10, 1), cut, hedge, row(OURS + 4, 5, 1)];
        let rows = rows.into_iter().chain([row(OURS + 5, 5, 0), row(OURS + 7, 5, 0)]).collect();
        let mut join = Join::new(Day { rows, strangers: vec![0; 2], ..Day::default() });
        // Strangers before and after the day are of no account; 9 and 9999 are lost rows of ours.
        let first = [
            seen(0, 1),
            seen(OURS + 1, 21),
            seen(0, 1),
            seen(OURS + 3, 23),
            seen(OURS + 9_999, 1),
            seen(7, 1),
            seen(OURS + 5, 25),
            seen(OURS + 5, 99),
            seen(OURS + 7, 27),
            seen(7, 1),
        ];
        assert_eq!(join.add(&first), Some(Added { replica: 0, copies: 4, strangers: 3 }));
        let other = [seen(OURS + 2, 12), seen(OURS + 3, 13), seen(OURS + 4, 14)];
        assert_eq!(join.add(&other), Some(Added { replica: 1, copies: 3, strangers: 0 }));
        assert_eq!(join.add(&[seen(77, 1), seen(0, 1)]), None);
        let day = join.finish().unwrap();
        // All that both have: from the second row to the last one of replica 1.
        let services: Vec<_> = day.rows.iter().map(service).collect();
        assert_eq!(services, [Some(12), Some(13), Some(23), Some(14)]);
        assert_eq!(day.rows.iter().map(|row| row.gap_ns).collect::<Vec<_>>(), [0, 10, 10, 5]);
        assert_eq!(day.strangers, [1, 0], "of that time");
    }

    /// One replica gets second copies only: whatever its agent saw went to the first one, too.
    #[test]
    fn whose_agent_it_is_follows_from_what_it_did_not_see() {
        let mut rows: Vec<Row> = (1..=100).map(|n| row(OURS + n, 10, 0)).collect();
        for n in (10..=100).step_by(10) {
            let again = Row { why: Why::Retry, gap_ns: 0, ..row(OURS + n, 0, 0) };
            rows.extend([again, Row { why: Why::Hedge, ..row(OURS + n, 1, 1) }]);
        }
        let all: Vec<Row> = (1..=100).map(|n| seen(OURS + n, 5)).collect();
        let hedges: Vec<Row> = (10..=100).step_by(10).map(|n| seen(OURS + n, 7)).collect();
        for is_first in [true, false] {
            let mut join = Join::new(Day { rows: rows.clone(), ..Day::default() });
            let agents = if is_first { [&hedges, &all] } else { [&all, &hedges] };
            let found = agents.map(|agent| join.add(agent).unwrap());
            let of = |replica: usize| if is_first { found[1 - replica] } else { found[replica] };
            assert_eq!(of(0), Added { replica: 0, copies: 100, strangers: 0 });
            assert_eq!(of(1), Added { replica: 1, copies: 10, strangers: 0 });
        }
    }

    /// An agent that records for a whole day, and another one that began late.
    #[test]
    fn strangers_count_in_the_time_that_all_agents_have() {
        let rows: Vec<Row> = (1..=1_000).map(|n| row(OURS + n, 10, (n % 2) as u16)).collect();
        let mut join = Join::new(Day { rows, ..Day::default() });
        let own = (2..=1_000).step_by(2).map(|n| seen(OURS + n, 5));
        let with_checks: Vec<Row> = own.flat_map(|row| [row, seen(0, 1)]).collect();
        assert_eq!(join.add(&with_checks).unwrap().strangers, 499);
        let late: Vec<Row> = (901..=1_000).step_by(2).map(|n| seen(OURS + n, 5)).collect();
        join.add(&late).unwrap();
        let day = join.finish().unwrap();
        let served = day.rows.iter().filter(|row| row.replica == 0).count() as u64;
        assert!(day.strangers[0].abs_diff(served) <= 1, "{:?}, {served} served", day.strangers);
    }

    #[test]
    fn a_replica_without_an_agent_is_told_and_so_are_agents_of_other_times() {
        let rows: Vec<Row> = (1..100).map(|n| row(OURS + n, 10, (n % 2) as u16)).collect();
        let day = Day { rows, ..Day::default() };
        let of = |replica: u64, from: u64, to: u64| -> Vec<Row> {
            (from..to).filter(|n| n % 2 == replica).map(|n| seen(OURS + n, 5)).collect()
        };
        let mut join = Join::new(day.clone());
        join.add(&of(0, 1, 100)).unwrap();
        let missing = join.clone().finish().unwrap_err();
        assert_eq!(missing, JoinError::Unknown { replica: 1, known: 0, answers: 48 });
        assert!(missing.to_string().starts_with("replica-1: the agents' rows have 0 of its 48"));
        join.add(&of(1, 1, 40)).unwrap();
        let mut apart = join.clone();
        assert!(join.finish().is_ok(), "the rest of the day is left out");
        apart.spans[0] = Some((600, 900));
        assert_eq!(apart.finish(), Err(JoinError::Apart));
        // It was away in the middle.
        let mut join = Join::new(day);
        join.add(&of(0, 1, 100)).unwrap();
        join.add(&of(1, 1, 20)).unwrap();
        join.add(&of(1, 80, 100)).unwrap();
        let gone = join.finish().unwrap_err();
        assert_eq!(gone, JoinError::Unknown { replica: 1, known: 18, answers: 48 });
    }
}
