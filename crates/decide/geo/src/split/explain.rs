//! Why requests of one site went to another, for people: as data, and as a sentence.

use super::super::epoch::SiteId;

/// The part of its users' requests that a site is predicted to serve too late, in parts per
/// million, with every site on its own and with the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predicted {
    /// If every request stayed where it came from.
    pub alone_ppm: u32,
    /// With the plan.
    pub planned_ppm: u32,
}

/// The flow between two sites in the plan of one epoch, and what speaks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The epoch of the plan.
    pub epoch: u64,
    /// Whose users' requests these are.
    pub from: SiteId,
    /// Who serves them.
    pub to: SiteId,
    /// Demand of the origin, in requests per 1,000 s.
    pub demand_per_1000_s: u64,
    /// Of it, what goes there.
    pub rate_per_1000_s: u64,
    /// Base round trip between the two, in microseconds, when known.
    pub base_rtt_us: Option<u32>,
    /// What the origin's users get.
    pub origin: Predicted,
    /// What the destination's own users get.
    pub destination: Predicted,
    /// Predicted violations among the requests that go there, their way included, in parts per
    /// million.
    pub redirected_ppm: u32,
}

impl Flow {
    /// The flow in words. `names` are the sites' names; one that is missing is numbered.
    ///
    /// `London sends 11 % of its 43000 requests/s (4730/s) to Ireland in epoch 712: alone it would
    /// serve 6.2 % too late, so it is 1.3 %. Those sent travel 22 ms and 2 % are too late;
    /// Ireland's own users go from 0 % to 0.4 %.`
    pub fn sentence(&self, names: &[impl AsRef<str>]) -> String {
        let (from, to) = (name(names, self.from), name(names, self.to));
        let (epoch, demand) = (self.epoch, per_second(self.demand_per_1000_s));
        if self.rate_per_1000_s == 0 {
            return format!("{from} sends {to} none of its {demand} requests/s in epoch {epoch}.");
        }
        let share = ratio_percent(self.rate_per_1000_s, self.demand_per_1000_s);
        let rate = per_second(self.rate_per_1000_s);
        let (alone, planned) = (percent(self.origin.alone_ppm), percent(self.origin.planned_ppm));
        let travel = self.base_rtt_us.map_or_else(String::new, |base_rtt_us| {
            format!("travel {} ms and ", digits(f64::from(base_rtt_us) * 1e-3))
        });
        format!(
            "{from} sends {share} % of its {demand} requests/s ({rate}/s) to {to} in epoch {epoch}\
             : alone it would serve {alone} % too late, so it is {planned} %. Those sent {travel}\
             {} % are too late; {to}'s own users go from {} % to {} %.",
            percent(self.redirected_ppm),
            percent(self.destination.alone_ppm),
            percent(self.destination.planned_ppm),
        )
    }
}

fn name(names: &[impl AsRef<str>], site: SiteId) -> String {
    let name = names.get(site.index()).map(|name| name.as_ref().to_owned());
    name.unwrap_or_else(|| format!("site {}", site.index()))
}

fn per_second(per_1000_s: u64) -> String {
    digits(per_1000_s as f64 * 1e-3)
}

fn percent(ppm: u32) -> String {
    digits(f64::from(ppm) * 1e-4)
}

fn ratio_percent(part: u64, whole: u64) -> String {
    digits(part as f64 * 100.0 / whole.max(part) as f64)
}

/// One digit after the point where it says something, three where the number is small.
fn digits(number: f64) -> String {
    let places = if number >= 100.0 {
        0
    } else if number >= 0.1 || number == 0.0 {
        1
    } else {
        3
    };
    let text = format!("{number:.places$}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: Flow = Flow {
        epoch: 712,
        from: SiteId::new(0),
        to: SiteId::new(1),
        demand_per_1000_s: 43_000_000,
        rate_per_1000_s: 4_730_000,
        base_rtt_us: Some(22_000),
        origin: Predicted { alone_ppm: 62_000, planned_ppm: 13_000 },
        destination: Predicted { alone_ppm: 12, planned_ppm: 4_000 },
        redirected_ppm: 20_000,
    };

    #[test]
    fn a_flow_is_a_sentence() {
        assert_eq!(
            FLOW.sentence(&["London", "Ireland"]),
            "London sends 11 % of its 43000 requests/s (4730/s) to Ireland in epoch 712: alone it \
             would serve 6.2 % too late, so it is 1.3 %. Those sent travel 22 ms and 2 % are too \
             late; Ireland's own users go from 0.001 % to 0.4 %."
        );
    }

    #[test]
    fn what_is_missing_is_left_out() {
        let flow = Flow { rate_per_1000_s: 0, ..FLOW };
        let sentence = flow.sentence(&["London"]);
        assert_eq!(sentence, "London sends site 1 none of its 43000 requests/s in epoch 712.");
        let sentence = Flow { base_rtt_us: None, ..FLOW }.sentence(&["London", "Ireland"]);
        assert!(sentence.contains("Those sent 2 % are too late"), "{sentence}");
    }
}
