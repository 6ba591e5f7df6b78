//! `[redirect]`: data centres that share their load.

mod prices;
pub mod read;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_geo::curve::Prior;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::joint::{Prices, Service};
use evenkeel_geo::planner::{Aim, PlannerConfig, Pricing, SiteCurves, Writes};
use evenkeel_geo::{ALL_PPM, Overload};
use evenkeel_settings::address::ServerAddress;

use crate::export::config::ExportsConfig;
use evenkeel_geo::traffic::SplitSetup;

/// The price of a pair of which nothing is said.
pub(super) const PRICE_PERCENT: u32 = 100;

/// `[redirect]`: with which other data centres an upstream's load is shared, and by what plan.
#[derive(Debug, Clone)]
pub struct RedirectConfig {
    /// Which of the configuration's upstreams it is, as an index.
    pub upstream: usize,
    /// The data centre of this process.
    pub site: SiteId,
    /// `[[redirect.sites]]`: all of them, in the order that is the same everywhere.
    pub sites: Vec<RedirectSite>,
    /// A request whose answer begins later than this after its arrival missed it.
    pub objective: Duration,
    /// Where the other sites' meshes are taken; nobody listens there in a follower.
    pub listen: SocketAddr,
    /// Where the controller of this site listens, for a follower: a process that takes its part of
    /// what another one plans for the site.
    pub through: Option<ServerAddress>,
    /// This site's certificate, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authority or authorities of all certificates, PEM.
    pub authority: PathBuf,
    /// Time between plans; default 2.5 s.
    pub period: Duration,
    /// Time for what is done with a row before it can be planned from; default 20 ms.
    pub margin: Duration,
    /// How far any site's clock is from the true time; default 10 ms.
    pub clock_offset_max: Duration,
    /// What is to be small.
    pub aim: Aim,
    /// `[redirect.prices]`: what things cost, where redirects, dimmers and hedges are planned by
    /// price in place of the aim.
    pub prices: Option<RedirectPrices>,
    /// Whether a site may send requests away while it serves others'; default no.
    pub relay: bool,
    /// What a load beyond saturation means.
    pub overload: Overload,
    /// The quantum of plans, in parts per million of the largest capacity; default 1 %.
    pub quantum_ppm: u32,
    /// How many times a load is assumed to weigh.
    pub load_bias: f64,
    /// Whether this site's curves follow what is seen of it; default yes.
    pub learn: bool,
    /// Whether requests that change something stay where they come; default no.
    pub writes_stay: bool,
    /// Whether there are requests that only their own site may serve (those of Cassandra's local
    /// consistency levels): they are planned as load that stays, as writes are that stay.
    pub has_bound: bool,
    /// `[[redirect.pairs]]`: what is said of some of the ways between two sites.
    pub pairs: Vec<RedirectPair>,
    /// Connections to each other site; default 3.
    pub connections: usize,
    /// Time between probes on one connection; default 200 ms.
    pub probe_interval: Duration,
    /// Who is told the plan beside our own proxies and Envoys.
    pub exports: ExportsConfig,
}

/// `[redirect.prices]`: plans by price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedirectPrices {
    /// What things cost, in requests that miss the objective.
    pub prices: Prices,
    /// The work of copies with hedges, in millionths of that of first ones; default 5 %.
    pub copies_ppm: u32,
}

/// `[[redirect.sites]]`: one data centre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectSite {
    /// Its name, which is in its certificate.
    pub name: String,
    /// Its data centre in the Cassandra cluster, where that is what is shared; default: its name.
    pub datacenter: Option<String>,
    /// Where its mesh listens.
    pub peer: ServerAddress,
    /// Its profile, and others that may replace it while something interferes. None: its curves
    /// are a guess until they are learnt.
    pub curves: Vec<PathBuf>,
    /// The same measured with hedges, for plans by price; as many as `curves`, or none.
    pub hedged_curves: Vec<PathBuf>,
    /// Node time of a request with optional content and without, for plans by price; zero where
    /// nothing is said, and nothing can be left out.
    pub work: Service,
}

/// `[[redirect.pairs]]`: what it costs to send requests from one data centre to another, and how
/// many may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectPair {
    /// Whose users' requests these are.
    pub from: SiteId,
    /// Who would serve them.
    pub to: SiteId,
    /// What it costs to send there, in hundredths of what it costs where nothing is said.
    pub price_percent: u32,
    /// How much of the origin's demand may be served there, in parts per million.
    pub limit_ppm: u32,
}

impl RedirectConfig {
    /// How plans are made.
    pub fn planner(&self) -> PlannerConfig {
        PlannerConfig {
            aim: self.aim.clone(),
            relay: self.relay,
            overload: self.overload,
            quantum_ppm: self.quantum_ppm,
            load_bias: self.load_bias,
            writes: if self.some_stay() { Writes::Home } else { Writes::Redirected },
            prices: self.prices(),
            limits_ppm: self.limits_ppm(),
            ..PlannerConfig::new(self.period)
        }
    }

    /// How the curves of this site learn.
    pub fn learns(&self) -> Option<Prior> {
        let is_guessed = self.sites[self.site.index()].curves.is_empty();
        let kind = if is_guessed { Prior::Guess } else { Prior::Profile };
        self.learn.then_some(kind)
    }

    /// What plans by price go by beside that; `None` with another aim. `hedged` has the curves with
    /// hedges of each site, if there are some.
    pub fn pricing(&self, hedged: Option<Vec<SiteCurves>>) -> Option<Pricing> {
        let RedirectPrices { prices, copies_ppm } = self.prices?;
        let services = self.sites.iter().map(|site| site.work).collect();
        Some(Pricing { hedged: hedged.map(|curves| (curves, copies_ppm)), services, prices })
    }

    /// In hundredths, so that 1.5 is a whole number; `None` where all cost the same.
    fn prices(&self) -> Option<Vec<Vec<u32>>> {
        self.square(PRICE_PERCENT, |pair| pair.price_percent)
    }

    fn limits_ppm(&self) -> Option<Vec<Vec<u32>>> {
        self.square(ALL_PPM, |pair| pair.limit_ppm)
    }

    /// `[origin][destination]`, with this value for pairs of which nothing is said; `None` when all
    /// have it.
    fn square(&self, unsaid: u32, of: impl Fn(&RedirectPair) -> u32) -> Option<Vec<Vec<u32>>> {
        let mut square = vec![vec![unsaid; self.sites.len()]; self.sites.len()];
        let said = self.pairs.iter().filter(|pair| of(pair) != unsaid);
        let said = said.map(|pair| square[pair.from.index()][pair.to.index()] = of(pair));
        (said.count() > 0).then_some(square)
    }

    /// Whether some requests stay where they come, whatever the plan.
    pub const fn some_stay(&self) -> bool {
        self.writes_stay || self.has_bound
    }

    /// How the upstream's requests are split.
    pub fn split(&self) -> SplitSetup {
        SplitSetup {
            home: self.site,
            names: self.sites.iter().map(|site| site.name.clone()).collect(),
            objective: self.objective,
            writes_stay: self.writes_stay,
            bound_stay: self.some_stay(),
        }
    }
}
