//! What given flows cost, and what of it is lateness, lost content, distance and copies.

use super::{FULL, Joint, PPM, State};

/// How many setpoints of a dimmer by latency are compared.
pub(crate) const SETPOINTS: usize = 4;
/// With each of them, the share of late requests in millionths that the dimmer is content with: the
/// published one holds the 95th percentile, at the objective or below.
const CONTENT_WITH: [u64; SETPOINTS] = [5_000, 10_000, 20_000, 50_000];

/// Who decides how a data centre serves what comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Serving<'a> {
    /// The cheapest dimmer and hedges.
    Cheapest,
    /// The cheapest dimmer with these hedges, by data centre.
    Hedged(&'a [bool]),
    /// Each mechanism in a loop of its own: the most content with which no more are late than its
    /// setpoint allows, and hedges always.
    Loops {
        /// Which setpoint, less than [`SETPOINTS`].
        setpoint: usize,
    },
}

/// A cost in its parts, in requests that miss the objective.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Parts {
    /// Requests that are late, and those that the backlog of an overload makes late afterwards.
    pub late: f64,
    /// Optional content that was left out.
    pub content: f64,
    /// Requests served elsewhere.
    pub elsewhere: f64,
    /// Node time of hedges.
    pub copies: f64,
}

impl Parts {
    /// The whole cost.
    pub fn total(&self) -> f64 {
        self.late + self.content + self.elsewhere + self.copies
    }

    /// Adds so many times another cost.
    pub(crate) fn add(&mut self, times: f64, of: &Self) {
        self.late += times * of.late;
        self.content += times * of.content;
        self.elsewhere += times * of.elsewhere;
        self.copies += times * of.copies;
    }
}

impl Joint {
    /// What flows cost, in quanta that miss the objective. `rates[i][j]` are the quanta of `i` that
    /// `j` serves.
    pub(crate) fn parts(&self, rates: &[Vec<u32>], serving: Serving<'_>) -> Parts {
        let sites = 0..rates.len();
        let mut parts = Parts::default();
        for to in sites.clone() {
            let users: Vec<(usize, u32)> =
                sites.clone().map(|from| (from, rates[from][to])).collect();
            let load = users.iter().map(|user| user.1).sum();
            if load > 0 {
                self.add_parts(&mut parts, to, load, &users, serving);
            }
        }
        parts
    }

    fn add_parts(
        &self,
        parts: &mut Parts,
        to: usize,
        load: u32,
        users: &[(usize, u32)],
        serving: Serving<'_>,
    ) {
        let pricing = &self.pricing;
        let state = match serving {
            Serving::Cheapest => pricing.cheapest(to, load, users),
            Serving::Hedged(hedged) => {
                let is_hedged = hedged.get(to).copied().unwrap_or_default();
                pricing.cheapest_of(&[is_hedged], to, load, users)
            }
            Serving::Loops { setpoint } => self.by_latency(to, load, CONTENT_WITH[setpoint]),
        };
        let work = u64::from(load) * pricing.services[to].work_ppm(state.dimmer);
        let all = f64::from(load) / PPM as f64;
        let overload = pricing.late.overload_ppm(to, work) as f64;
        let late = |&(from, amount): &(usize, u32)| match amount {
            0 => 0.0,
            _ => f64::from(amount) * pricing.late.ppm(from, to, work, state.is_hedged) as f64,
        };
        let from_elsewhere: u32 = users.iter().filter(|user| user.0 != to).map(|user| user.1).sum();
        parts.late += users.iter().map(late).sum::<f64>() / PPM as f64 + all * overload;
        let left_out = f64::from(FULL - state.dimmer) / f64::from(FULL);
        parts.content += all * f64::from(pricing.prices.optional) * left_out;
        let wan = f64::from(pricing.prices.wan) / PPM as f64;
        parts.elsewhere += f64::from(from_elsewhere) * wan;
        if state.is_hedged {
            parts.copies += all * pricing.copies_ppm(to, state.dimmer) as f64;
        }
    }

    /// Where a dimmer that goes by latency at the data centre settles, with hedges if there are
    /// any.
    fn by_latency(&self, to: usize, load: u32, content_with: u64) -> State {
        let pricing = &self.pricing;
        let service = &pricing.services[to];
        let is_hedged = pricing.late.hedged.is_some();
        let is_content = |dimmer: &u32| {
            let work = u64::from(load) * service.work_ppm(*dimmer);
            let over = pricing.late.overload_ppm(to, work);
            pricing.late.ppm(to, to, work, is_hedged) + over <= content_with
        };
        let dimmer = match service.can_dim() {
            true => (0..=FULL).rev().find(is_content).unwrap_or(0),
            false => FULL,
        };
        State { dimmer, is_hedged }
    }
}
