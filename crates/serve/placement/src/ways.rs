//! Round trips between the sites of the mesh, as its probes measure them.
//!
//! Every site tells the others once in a period how long its own ways to them are (the base round
//! trip, and how much longer probes took), so that each process with `[redirect]` knows the whole
//! matrix. The mean is of the probes that came back. For percentiles those that did not, or came
//! absurdly late, count as taking [`BEYOND_MS`] longer: about what TCP needs to send again.
//!
//! **When it misleads.** Probes are small and keep their connections, so that they see neither
//! bandwidth nor handshakes; and a client is taken to be where its site is. What a site needs to
//! itself nobody probes: it is taken as [`WITHIN_SITE_MS`], a usual figure within a data centre.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::distribution::{Empirical, Grid};
use evenkeel_core::units::Weight;
use evenkeel_geo::epoch::{Path, RESIDUAL_BINS};
use evenkeel_planner::model::RoundTrips;
use evenkeel_planner::tail::Tails;

use super::collected::CollectErrorKind;

/// From a client to a replica of its own site, in milliseconds.
const WITHIN_SITE_MS: f64 = 0.5;
/// The residual of probes that are lost, in milliseconds.
const BEYOND_MS: f64 = RESIDUAL_BINS as f64 * BIN_MS;
/// A bin of residuals, in milliseconds.
const BIN_MS: f64 = 0.1;
/// Steps of distributions.
const STEP: Duration = Duration::from_millis(1);

/// Who measures round trips between data centres: the mesh of this process.
pub trait RoundTripSource: Debug {
    /// What is known at this moment.
    fn snapshot(&self) -> SitePaths;
}

/// The network paths between sites at one moment.
#[derive(Clone, Debug, Default)]
pub struct SitePaths {
    /// The names of the sites.
    pub sites: Vec<String>,
    /// By site, its paths to all sites as it told them last; `None` for what it does not know.
    /// Empty for a site that told nothing.
    pub paths: Vec<Vec<Option<Path>>>,
}

/// The mesh of this process.
#[derive(Clone, Debug)]
pub(super) struct Ways {
    source: Arc<dyn RoundTripSource + Send + Sync>,
    has_percentile: bool,
}

/// What is measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) trips: Arc<RoundTrips>,
    /// Where percentiles are asked for.
    pub(super) tails: Option<Arc<Tails>>,
}

impl Ways {
    pub(super) const fn new(
        source: Arc<dyn RoundTripSource + Send + Sync>,
        has_percentile: bool,
    ) -> Self {
        Self { source, has_percentile }
    }

    /// The ways from all clients, which are sites of the mesh, to these sites, and between them.
    ///
    /// # Errors
    /// With the two sites between which nothing is known.
    pub(super) fn measured(
        &self,
        clients: &[String],
        sites: &[String],
    ) -> Result<Measured, CollectErrorKind> {
        measured(&self.source.snapshot(), clients, sites, self.has_percentile)
    }
}

fn measured(
    state: &SitePaths,
    clients: &[String],
    sites: &[String],
    has_percentile: bool,
) -> Result<Measured, CollectErrorKind> {
    let way = |from: &String, to: &String| -> Result<Option<Path>, CollectErrorKind> {
        if from == to {
            return Ok(None);
        }
        // As the one tells it, else as the other does: both measure the same round trip.
        let known = reported(state, from, to).or_else(|| reported(state, to, from));
        let (from, to) = (from.clone(), to.clone());
        known.map(Some).ok_or(CollectErrorKind::NotMeasured { from, to })
    };
    let row = |from: &String| sites.iter().map(|to| way(from, to)).collect::<Result<Vec<_>, _>>();
    let from_clients = clients.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    let between = sites.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    let means = |rows: &[Vec<Option<Path>>], within_ms: f64| -> Vec<Vec<f64>> {
        let of = |path: &Option<Path>| path.as_ref().map_or(within_ms, mean_ms);
        rows.iter().map(|row| row.iter().map(of).collect()).collect()
    };
    let trips = RoundTrips::new(&means(&from_clients, WITHIN_SITE_MS), &means(&between, 0.0))
        .map_err(CollectErrorKind::mesh)?;
    let tails = has_percentile.then(|| {
        let grids =
            |rows: &[Vec<Option<Path>>], within_ms: f64| -> Result<Vec<_>, CollectErrorKind> {
                let of = |path: &Option<Path>| grid(path.as_ref(), within_ms);
                rows.iter().map(|row| row.iter().map(of).collect()).collect()
            };
        let tails = Tails::new(grids(&from_clients, WITHIN_SITE_MS)?, grids(&between, 0.0)?);
        tails.map_err(CollectErrorKind::mesh)
    });
    let tails = tails.transpose()?.map(Arc::new);
    Ok(Measured { trips: Arc::new(trips), tails })
}

/// The way from one site to another, as the first told it last.
fn reported(state: &SitePaths, from: &String, to: &String) -> Option<Path> {
    let place = |name: &String| state.sites.iter().position(|site| site == name);
    *state.paths.get(place(from)?)?.get(place(to)?)?
}

fn mean_ms(path: &Path) -> f64 {
    let shares = path.residual_ppm();
    let within: f64 = shares.iter().copied().map(f64::from).sum();
    let residual: f64 = shares.iter().zip(0_u32..).map(|(ppm, bin)| f64::from(*ppm * bin)).sum();
    let residual_ms = if within > 0.0 { residual * BIN_MS / within } else { BEYOND_MS };
    f64::from(path.base_rtt_us) / 1e3 + residual_ms
}

fn grid(path: Option<&Path>, within_ms: f64) -> Result<Grid, CollectErrorKind> {
    let sample = |ms: f64| Duration::from_secs_f64(ms / 1e3);
    let mut points = Vec::new();
    let mut add = |ms: f64, share: f64| {
        if let Ok(weight) = Weight::new(share) {
            points.push((sample(ms), weight));
        }
    };
    match path {
        None => add(within_ms, 1.0),
        Some(path) => {
            let base_ms = f64::from(path.base_rtt_us) / 1e3;
            for (bin, ppm) in (0_u32..).zip(path.residual_ppm()) {
                add(base_ms + f64::from(bin) * BIN_MS, f64::from(ppm));
            }
            add(base_ms + BEYOND_MS, f64::from(path.beyond_ppm));
        }
    }
    let longest = points.iter().map(|(at, _)| *at).max().unwrap_or_default();
    let law = Empirical::weighted(points).map_err(CollectErrorKind::mesh)?;
    Grid::of(&law, STEP, longest).map_err(CollectErrorKind::mesh)
}

#[cfg(test)]
mod tests {
    use evenkeel_core::distribution::Distribution as _;
    use evenkeel_core::units::Probability;

    use super::*;
    /// Half of all probes take the base, a tenth more than 10 ms longer.
    fn path(base_ms: u32, beyond_ppm: u32) -> Path {
        let mut bins_ppm = vec![0; 101];
        bins_ppm[0] = 500_000;
        bins_ppm[50] = 400_000;
        bins_ppm[100] = 100_000 - beyond_ppm;
        Path::summary(base_ms * 1_000, &bins_ppm, beyond_ppm)
    }

    fn state() -> SitePaths {
        SitePaths {
            sites: names(&["oslo", "rome", "bern"]),
            paths: vec![
                vec![None, Some(path(30, 0)), Some(path(20, 0))],
                vec![],
                vec![Some(path(21, 0)), Some(path(10, 20_000)), None],
            ],
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_rows_of_all_sites_make_one_matrix() {
        let (clients, sites) = (names(&["oslo", "rome", "bern"]), names(&["bern", "oslo"]));
        let Measured { trips, tails } = measured(&state(), &clients, &sites, true).unwrap();
        let near = |ms: f64, base_ms: f64| {
            // The summary spreads what lies between two quantiles over all bins between them, so
            // the mean is known within the distance of these quantiles.
            assert!((base_ms..=base_ms + 10.0).contains(&ms), "{ms} from {base_ms}");
        };
        assert_eq!(trips.from_client(2)[0], WITHIN_SITE_MS);
        assert_eq!(trips.from_site(0)[0], 0.0);
        near(trips.from_client(0)[0], 20.0);
        near(trips.from_site(0)[1], 21.0);
        // What rome tells is not known; it is what the others tell of it.
        near(trips.from_client(1)[0], 10.0);
        near(trips.from_client(1)[1], 30.0);
        let tails = tails.unwrap();
        let at = |p: f64| {
            tails.from_client(1, 0).quantile(Probability::new(p).unwrap()).as_secs_f64() * 1e3
        };
        assert_eq!((at(0.499), at(0.979)), (10.0, 20.0));
        // Two in a hundred are lost: 409.6 ms later, rounded up to the step.
        assert_eq!(at(0.99), 420.0);
    }

    #[test]
    fn the_mean_is_of_the_probes_that_came_back() {
        // All within one bin, so that the summary loses nothing.
        let path = |beyond_ppm: u32| {
            let mut bins_ppm = vec![0; 11];
            bins_ppm[10] = 1_000_000 - beyond_ppm;
            Path::summary(5_000, &bins_ppm, beyond_ppm)
        };
        for beyond_ppm in [0, 300_000] {
            // Bins 1 to 10 up to the first quantile: 0.1 to 1 ms in equal parts.
            let ms = mean_ms(&path(beyond_ppm));
            assert!(ms > 5.0 && ms <= 6.0, "{ms}");
        }
    }

    #[test]
    fn a_way_that_nobody_told_is_named() {
        let mut state = state();
        state.paths[0][1] = None;
        let (clients, sites) = (names(&["oslo", "rome", "bern"]), names(&["oslo", "rome"]));
        let error = measured(&state, &clients, &sites, false).unwrap_err().to_string();
        assert!(error.contains("between oslo and rome is not measured"), "{error}");
        let error =
            measured(&SitePaths::default(), &clients, &sites, false).unwrap_err().to_string();
        assert!(error.contains("is not measured"), "{error}");
    }
}
