//! What is recorded of a day: one row for each copy of a request.
//!
//! Rows hold durations only, so that the clocks of proxy and agents need not agree: a row tells
//! how long after the row before its copy was sent, and its agent adds how long the copy waited
//! and was served there. Nothing tells a URL, a header, an address or a key.

use evenkeel_core::named;

use crate::order::sort;

named! {
    /// Why a copy was sent.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Why {
        /// The first copy, or one of those that left together with it.
        First = "first",
        /// An earlier copy had failed.
        Retry = "retry",
        /// An earlier copy took long.
        Hedge = "hedge",
        /// An earlier copy had to wait for a slot, and was given up.
        Moved = "moved",
        /// To see what the same request costs twice: awaited, but its answer is not used.
        Pair = "pair",
    }
}

named! {
    /// How a copy ended at the client.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum End {
        /// With an answer.
        Answered = "answered",
        /// With an error, or with none in time.
        Failed = "failed",
        /// The client gave it up: another copy was faster, or nobody waited any more.
        Cancelled = "cancelled",
    }
}

/// What the agent before the replica saw of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// From its arrival until it was served, ns; if it never was, until it was given up.
    pub wait_ns: u64,
    /// From then until it left, ns; zero if it never was served.
    pub service_ns: u64,
    /// Requests that were there when it came.
    pub queue: u32,
    /// Whether it was served with all its optional content.
    pub is_full: bool,
}

/// One copy of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The request's number: all its copies have the same.
    pub request: u64,
    /// Time since the copy of the row before was sent, ns.
    pub gap_ns: u64,
    /// Time since its request arrived, ns: what it was held, and the delay of a later copy.
    pub after_ns: u64,
    /// Until it was answered, failed or was given up, ns.
    pub latency_ns: u64,
    /// The dispatcher that sent it.
    pub client: u16,
    /// The replica.
    pub replica: u16,
    /// The replica group of its request.
    pub group: u16,
    /// Which policy decided: 0 is that of the day, others are explored.
    pub policy: u8,
    /// The answer's size: the number of bits that its length in bytes has.
    pub size: u8,
    /// Why it was sent.
    pub why: Why,
    /// How it ended.
    pub end: End,
    /// The agent's part, where there is an agent and the copy reached it.
    pub served: Option<Served>,
}

/// A day: its rows in the order in which copies were sent, and what belongs to no row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Day {
    /// The copies.
    pub rows: Vec<Row>,
    /// Copies that agents served and no recorded client sent, by replica.
    pub strangers: Vec<u64>,
    /// Windows of rows that were lost to overload, and how many windows there are in all.
    pub dropped: (u64, u64),
}

/// A request as its user saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// When it arrived, from the start of the day, ns.
    pub at_ns: u64,
    /// How long it took, ns; `None` if it was not answered.
    pub latency_ns: Option<u64>,
    /// Which policy decided.
    pub policy: u8,
}

impl Day {
    /// When each row's copy was sent, ns from the start of the day.
    pub fn sent_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.rows.iter().scan(0_u64, |at, row| {
            *at = at.saturating_add(row.gap_ns);
            Some(*at)
        })
    }

    /// The requests, in the order of their numbers.
    pub fn requests(&self) -> Vec<Seen> {
        let mut copies: Vec<(u64, usize, u64)> = self
            .rows
            .iter()
            .zip(self.sent_ns())
            .enumerate()
            .filter(|(_, (row, _))| row.why != Why::Pair)
            .map(|(number, (row, sent))| (row.request, number, sent))
            .collect();
        sort(&mut copies, |copy| copy.0);
        let same = copies.chunk_by(|a, b| a.0 == b.0);
        same.map(|copies| {
            let (_, first, sent) = copies[0];
            let answers = copies.iter().map(|copy| &self.rows[copy.1]);
            let answers = answers.filter(|row| row.end == End::Answered);
            Seen {
                at_ns: sent.saturating_sub(self.rows[first].after_ns),
                latency_ns: answers.map(|row| row.after_ns + row.latency_ns).min(),
                policy: self.rows[first].policy,
            }
        })
        .collect()
    }

    /// Leaves out the copies of requests for whose arrival, ns from the start, this is false.
    pub fn keep(&mut self, is_kept: impl Fn(u64) -> bool) {
        let (mut sent_ns, mut last_ns) = (0_u64, 0);
        self.rows.retain_mut(|row| {
            sent_ns = sent_ns.saturating_add(row.gap_ns);
            let keeps = is_kept(sent_ns.saturating_sub(row.after_ns));
            if keeps {
                row.gap_ns = sent_ns - last_ns;
                last_ns = sent_ns;
            }
            keeps
        });
    }

    /// The latencies of the answered requests that a policy decided, in ascending order, ns.
    pub fn latencies(&self, policy: u8) -> Vec<u64> {
        let mut all: Vec<u64> = self
            .requests()
            .into_iter()
            .filter(|seen| seen.policy == policy)
            .filter_map(|seen| seen.latency_ns)
            .collect();
        all.sort_unstable();
        all
    }

    /// Answers that had all content, and those of which that is known; pairs do not count.
    pub fn full(&self) -> (u64, u64) {
        let answers = self.rows.iter().filter(|row| row.end == End::Answered);
        let known = answers.filter(|row| row.why != Why::Pair).filter_map(|row| row.served);
        known.fold((0, 0), |(full, known), one| (full + u64::from(one.is_full), known + 1))
    }

    /// The share of what agents served that no recorded client sent: 0 to 1.
    pub fn unseen(&self) -> f64 {
        let strangers: u64 = self.strangers.iter().sum();
        let ours = self.rows.iter().filter(|row| row.served.is_some()).count();
        strangers as f64 / (strangers + ours as u64).max(1) as f64
    }
}

/// The value below which this share of ascending values lies (nearest rank); `None` of none.
pub fn percentile(ascending: &[u64], share: f64) -> Option<u64> {
    let rank = (share * ascending.len() as f64).ceil() as usize;
    ascending.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(request: u64, gap_ns: u64, why: Why, end: End, latency_ns: u64) -> Row {
        Row {
            request,
            gap_ns,
            after_ns: 0,
            latency_ns,
            client: 0,
            replica: 0,
            group: 0,
            policy: 0,
            size: 0,
            why,
            end,
            served: None,
        }
    }

    #[test]
    fn a_request_ends_with_its_first_answer_and_pairs_do_not_count() {
        let hedge = Row { after_ns: 40, ..row(0, 40, Why::Hedge, End::Answered, 7) };
        let rows = vec![
            row(0, 100, Why::First, End::Cancelled, 47),
            row(1, 10, Why::First, End::Answered, 500),
            row(1, 0, Why::Pair, End::Answered, 3),
            row(2, 1, Why::First, End::Failed, 9),
            hedge,
        ];
        let day = Day { rows, ..Day::default() };
        let seen = day.requests();
        let told = |seen: &Seen| (seen.at_ns, seen.latency_ns);
        let told: Vec<_> = seen.iter().map(told).collect();
        assert_eq!(told, [(100, Some(47)), (110, Some(500)), (111, None)]);
        assert_eq!(day.latencies(0), [47, 500]);
    }

    #[test]
    fn what_is_kept_of_a_day_keeps_its_times() {
        let late = Row { after_ns: 60, ..row(0, 10, Why::Hedge, End::Answered, 7) };
        let rows = vec![
            row(0, 100, Why::First, End::Cancelled, 70),
            row(1, 50, Why::First, End::Answered, 5),
            late,
            row(2, 5, Why::First, End::Answered, 9),
        ];
        let mut day = Day { rows, ..Day::default() };
        day.keep(|at_ns| at_ns != 150);
        let sent: Vec<u64> = day.sent_ns().collect();
        assert_eq!(sent, [100, 160, 165]);
        let seen: Vec<_> = day.requests().iter().map(|one| (one.at_ns, one.latency_ns)).collect();
        assert_eq!(seen, [(100, Some(67)), (165, Some(9))]);
    }

    #[test]
    fn a_percentile_is_the_value_of_the_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 0.99), Some(99));
        assert_eq!(percentile(&hundred, 0.991), Some(100));
        assert_eq!(percentile(&hundred, 0.0), Some(1));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn strangers_are_a_share_of_what_agents_served() {
        let served = Some(Served { wait_ns: 0, service_ns: 1, queue: 0, is_full: true });
        let ours = Row { served, ..row(0, 0, Why::First, End::Answered, 1) };
        let day = Day { rows: vec![ours; 6], strangers: vec![3, 1], ..Day::default() };
        assert!((day.unseen() - 0.4).abs() < 1e-12);
        assert_eq!(Day::default().unseen(), 0.0);
    }
}
