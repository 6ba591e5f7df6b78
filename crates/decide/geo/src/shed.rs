//! What a data centre cannot serve in time, where loads are capped: it sheds, of its own requests
//! only and at home, where a dimmer answers them for less.
//!
//! A load ends where most requests are in time: below saturation, and before one more request would
//! make more than one other late. What comes beyond is shed and counts as late. So another quantum
//! at home never makes more than one quantum late, and there is always something no worse than to
//! send requests where they are late, or where they make others late.
//!
//! A data centre that sheds serves nobody else's. Hence what one sheds depends on its load alone,
//! and shedding is a curve like any other: [`Shedding::ppm`].
//!
//! Within a target requests could be shed to save redirects. Without a dimmer such a plan would
//! overload a data centre that others have room for, so a target is first asked of plans that shed
//! nothing: [`Shedding::refused`].

use super::pairs::Pairs;
use super::problem::{ALL_PPM, Problem};

/// By data centre, what it serves of a load that is all its own.
#[derive(Clone, Debug)]
pub(super) struct Shedding {
    /// By load up to the demand: the load that serves most in time.
    served: Vec<Vec<u32>>,
    /// Whether who sheds counts as if all were late.
    is_refused: bool,
}

impl Shedding {
    pub(super) fn new(problem: &Problem) -> Self {
        let of_site = |site: usize| {
            let (mut best, mut most) = (0, 0);
            let up_to = |load: u32| {
                let in_time = in_time(problem, site, load);
                if load < problem.saturation()[site] && in_time >= most.max(1) {
                    (best, most) = (load, in_time);
                }
                best
            };
            (0..=problem.demand()[site]).map(up_to).collect()
        };
        Self { served: (0..problem.sites()).map(of_site).collect(), is_refused: false }
    }

    /// The same where no target below 100 % is kept by who sheds.
    pub(super) fn refused(&self) -> Self {
        Self { is_refused: true, ..self.clone() }
    }

    /// What is served of a load, if less than all of it.
    pub(super) fn served(&self, site: usize, load: u32) -> Option<u32> {
        self.served[site].get(load as usize).copied().filter(|&served| served < load)
    }

    /// Parts per million late of the own requests of a data centre at this load, shed ones among
    /// them, rounded up.
    pub(super) fn ppm(&self, problem: &Problem, site: usize, load: u32) -> u32 {
        let Some(served) = self.served(site, load) else {
            return problem.violation_ppm(site, site, load);
        };
        if self.is_refused {
            return ALL_PPM;
        }
        let late = u64::from(load) * u64::from(ALL_PPM) - in_time(problem, site, served);
        late.div_ceil(u64::from(load)) as u32
    }

    /// What each sheds under this flow.
    pub(super) fn shed(&self, flow: &Pairs<u32>, loads: &[u32]) -> Vec<u32> {
        let of_site = |(site, &load): (usize, &u32)| {
            let shed = self.served(site, load).map_or(0, |served| load - served);
            shed.min(flow[(site, site)])
        };
        loads.iter().enumerate().map(of_site).collect()
    }
}

fn in_time(problem: &Problem, site: usize, load: u32) -> u64 {
    u64::from(load) * u64::from(ALL_PPM - problem.violation_ppm(site, site, load))
}
