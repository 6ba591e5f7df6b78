//! Redirects, dimmers and hedges in one plan, by price: what a planner needs for that.

use super::super::epoch::StableHash;
use super::super::joint::{Hedged, JOINT_PRICE_MAX, Joint, Planned, Prices, Service};
use super::super::{ALL_PPM, Problem};
use super::inputs::Inputs;
use super::{Planner, PlannerError, SiteCurves, SiteId, Snapshot};

/// What plans by price go by, beside the curves of late *full* requests that every planner has.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pricing {
    /// The curves of each site with hedges, as many versions as without, and the work of copies in
    /// millionths of that of first ones. Without them nothing is said of hedges.
    pub hedged: Option<(Vec<SiteCurves>, u32)>,
    /// The work of requests at each site.
    pub services: Vec<Service>,
    /// What things cost.
    pub prices: Prices,
}

/// The same once it was checked.
#[derive(Clone, Debug)]
pub(super) struct ByPrice {
    /// The same sites with hedges.
    hedged: Option<(Box<Planner>, u32)>,
    services: Vec<Service>,
    prices: Prices,
}

impl Planner {
    /// The same sites by price in place of the aim; rules for overload and relaying are not asked:
    /// overload has a price, and every site may relay.
    ///
    /// # Errors
    /// When a price is above [`JOINT_PRICE_MAX`], lean work above full work, there is not one
    /// service for each site, or the hedged curves cannot be planned with.
    pub fn with_prices(mut self, pricing: Pricing) -> Result<Self, PlannerError> {
        let Pricing { hedged, services, prices } = pricing;
        if services.len() != self.sites.len() {
            let expected = "the work of requests at each site";
            return Err(PlannerError::new("services", services.len() as f64, expected));
        }
        let named = [prices.optional, prices.wan, prices.node_second];
        let dear = named.into_iter().find(|price| *price > JOINT_PRICE_MAX);
        if let Some(price) = dear {
            let came = f64::from(price) / f64::from(ALL_PPM);
            return Err(PlannerError::new("price", came, "0 to 10 requests that are late"));
        }
        let wrong = services.iter().position(|service| service.lean_us > service.full_us);
        if let Some(site) = wrong {
            let came = f64::from(services[site].lean_us);
            let expected = "lean work (microseconds) of at most the full work";
            return Err(PlannerError::new("work", came, expected).of_site(site));
        }
        let with = |(curves, extra_ppm)| {
            let planner = Self::new(self.config.clone(), curves)?;
            self.is_alike(&planner)?;
            Ok::<_, PlannerError>((Box::new(planner), extra_ppm))
        };
        let hedged = hedged.map(with).transpose()?;
        self.by_price = Some(ByPrice { hedged, services, prices });
        Ok(self)
    }

    /// Whether another planner is for as many sites with as many versions of curves.
    fn is_alike(&self, hedged: &Self) -> Result<(), PlannerError> {
        let (ours, theirs) = (self.sites.len(), hedged.sites.len());
        if ours != theirs {
            let expected = "curves with hedges for each site";
            return Err(PlannerError::new("hedged curves", theirs as f64, expected));
        }
        let versions = |planner: &Self, site: usize| planner.sites[site].versions.len();
        match (0..ours).find(|site| versions(self, *site) != versions(hedged, *site)) {
            None => Ok(()),
            Some(site) => {
                let came = versions(hedged, site) as f64;
                let expected = "as many versions with hedges as without";
                Err(PlannerError::new("hedged curves", came, expected).of_site(site))
            }
        }
    }

    /// The curves of a site with hedges, where plans are by price and there are some.
    ///
    /// # Panics
    /// When there is no such site.
    pub fn hedged(&self, site: SiteId) -> Option<&SiteCurves> {
        let (planner, _) = self.by_price.as_ref()?.hedged.as_ref()?;
        Some(planner.curves(site))
    }

    /// What things cost, where plans are by price.
    pub fn prices(&self) -> Option<&Prices> {
        self.by_price.as_ref().map(|by_price| &by_price.prices)
    }
}

/// Demand that came, priced.
#[derive(Debug)]
pub(crate) struct Came {
    /// The quantum, in requests per 1,000 s.
    pub(crate) unit_per_1000_s: u64,
    /// By site, what came, in requests per 1,000 s.
    pub(crate) demand_per_1000_s: Vec<u64>,
    /// The same in quanta, rounded up.
    pub(crate) demand_quanta: Vec<u32>,
    /// What it costs.
    pub(crate) joint: Joint,
}

impl Planner {
    /// What a snapshot's demand costs; `None` where plans are not by price.
    pub(crate) fn came(&self, snapshot: &Snapshot) -> Option<Came> {
        let by_price = self.by_price.as_ref()?;
        let inputs = Inputs::new(self, snapshot);
        let problem = inputs.problem(self, snapshot);
        Some(Came {
            joint: by_price.joint(snapshot, &inputs, &problem),
            unit_per_1000_s: inputs.unit_per_1000_s,
            demand_quanta: problem.demand().to_vec(),
            demand_per_1000_s: inputs.demand_per_1000_s,
        })
    }
}

impl ByPrice {
    /// The plan of an epoch, of this problem.
    pub(super) fn plan(&self, snapshot: &Snapshot, inputs: &Inputs, problem: &Problem) -> Planned {
        let joint = self.joint(snapshot, inputs, problem);
        joint.plan(joint.effort()).expect("a problem that was taken has a plan")
    }

    fn joint(&self, snapshot: &Snapshot, inputs: &Inputs, problem: &Problem) -> Joint {
        let hedged = self.hedged.as_ref().map(|(planner, extra_ppm)| Hedged {
            curves: curves(&inputs.problem(planner, snapshot)),
            extra_ppm: *extra_ppm,
        });
        let joint = Joint::new(problem, hedged.as_ref(), &self.services, &self.prices);
        joint.expect("services and prices were checked")
    }

    /// Prices as numbers, for what must be set alike.
    pub(super) fn numbers(&self) -> [u64; 5] {
        let Prices { optional, wan, node_second } = self.prices;
        let extra = self.hedged.as_ref().map_or(0, |(_, extra_ppm)| 1 + u64::from(*extra_ppm));
        [u64::from(u8::MAX), optional.into(), wan.into(), node_second.into(), extra]
    }

    pub(super) fn fingerprint(&self, hash: &mut StableHash) {
        self.numbers().into_iter().for_each(|number| hash.number(number));
    }

    /// What is said of one site.
    pub(super) fn site_fingerprint(&self, site: usize, hash: &mut StableHash) {
        let Service { full_us, lean_us } = self.services[site];
        [full_us, lean_us].into_iter().for_each(|work| hash.number(work.into()));
        if let Some((planner, _)) = &self.hedged {
            planner.sites[site].fingerprint(hash);
        }
    }
}

/// All curves of a problem, as long as all demand.
fn curves(problem: &Problem) -> Vec<Vec<Vec<u32>>> {
    let sites = || 0..problem.sites();
    let curve = |from: usize, to: usize| -> Vec<u32> {
        (0..=problem.demand_total()).map(|load| problem.violation_ppm(from, to, load)).collect()
    };
    sites().map(|from| sites().map(|to| curve(from, to)).collect()).collect()
}
