//! What the upstreams of a process show: metrics, readiness, and their part of the status.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tokio::sync::watch;

use crate::config::Config;
use evenkeel_cassandra::cluster_state::ClusterStates;
use evenkeel_cassandra::metrics::{self as cassandra_metrics, ClusterStatus, ClusterView};
use evenkeel_core::discovery::Standing;
use evenkeel_proxy::metrics;
use evenkeel_proxy::series::{POINTS_MAX, SAMPLED_EVERY, Series, WINDOW_SAMPLES, seconds};
use evenkeel_proxy::status::UpstreamStatus;
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_proxy::view::View;
use evenkeel_runtime::component::{Readiness, Surface};
use evenkeel_runtime::metrics::Scrape;

/// Who is asked.
pub(crate) struct Upstreams {
    /// The configuration in force.
    configs: watch::Receiver<Arc<Config>>,
    states: Arc<UpstreamStates>,
    /// By upstream of the start, how its Cassandra cluster stands; `None` where HTTP is spoken.
    clusters: Vec<Option<Arc<ClusterStates>>>,
    /// By the place of an upstream; one that is named no more has its series when it returns.
    series: Mutex<BTreeMap<usize, Series>>,
}

#[derive(Serialize)]
struct Upstream<'a> {
    #[serde(flatten)]
    common: UpstreamStatus<'a>,
    /// The Cassandra cluster; `null` where HTTP is spoken.
    cql: Option<ClusterStatus>,
}

impl Upstreams {
    /// Those of the configuration in force.
    pub(crate) const fn new(
        configs: watch::Receiver<Arc<Config>>,
        states: Arc<UpstreamStates>,
        clusters: Vec<Option<Arc<ClusterStates>>>,
    ) -> Self {
        Self { configs, states, clusters, series: Mutex::new(BTreeMap::new()) }
    }

    /// What they show.
    pub(crate) fn surface(self) -> Surface {
        let all = Arc::new(self);
        let [counted, ready, status, sampled] = [(); 4].map(|()| Arc::clone(&all));
        Surface {
            readiness: vec![Arc::new(move || ready.readiness())],
            status: vec![
                ("sampled_every_s", Box::new(|_| seconds(SAMPLED_EVERY).to_string())),
                (
                    "window_s",
                    Box::new(|_| seconds(SAMPLED_EVERY * WINDOW_SAMPLES as u32).to_string()),
                ),
                ("series_s", Box::new(|_| seconds(SAMPLED_EVERY * POINTS_MAX as u32).to_string())),
                ("upstreams", Box::new(move |now| status.status(now))),
            ],
            samplers: vec![Box::new(move |now| sampled.sample(now))],
            ..Surface::of_metrics(move |scrape: &mut _| counted.collect(scrape))
        }
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.configs.borrow())
    }

    fn sample(&self, now: Instant) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for (upstream, _) in self.config().named_upstreams() {
            let total = self.states.stats(upstream).total;
            series.entry(upstream).or_default().sample(now, total);
        }
    }

    fn collect(&self, scrape: &mut Scrape) {
        let config = self.config();
        let named = config.named_upstreams();
        let named = named.map(|(place, upstream)| (place, &upstream.common));
        metrics::collect(scrape, named, &self.states);
        let clusters = config.named_upstreams().filter_map(|(place, upstream)| {
            Some(ClusterView {
                upstream: upstream.common.name.clone(),
                state: self.cluster(place)?.total(),
                home: self.states.home(place),
            })
        });
        cassandra_metrics::collect(scrape, &clusters.collect::<Vec<_>>());
    }

    fn cluster(&self, place: usize) -> Option<&ClusterStates> {
        self.clusters.get(place)?.as_deref()
    }

    fn views<'a>(&self, config: &'a Config) -> Vec<View<'a>> {
        let named = config.named_upstreams();
        View::of_all(named.map(|(place, upstream)| (place, &upstream.common)), &self.states)
    }

    fn readiness(&self) -> Readiness {
        let config = self.config();
        let missing = |view: &View<'_>| {
            let (name, replicas) = (&view.config.name, view.home.len());
            let sources = view.sources.iter().filter(|source| source.standing != Standing::Well);
            let sources: String =
                sources.map(|it| format!("; {} is {}", it.name, it.standing.name())).collect();
            format!(
                "not ready: upstream {name} has no replica up and well (it has {replicas} in \
                 all){sources}\n"
            )
        };
        let views = self.views(&config);
        let words: String = views.iter().filter(|view| !view.is_ready()).map(missing).collect();
        if words.is_empty() { Readiness::Ready } else { Readiness::NotReady(words) }
    }

    fn status(&self, now: Instant) -> String {
        let config = self.config();
        let views = self.views(&config);
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let unsampled = Series::default();
        let upstream = |view| -> Upstream<'_> {
            let view: &View<'_> = view;
            let series = series.get(&view.place).unwrap_or(&unsampled);
            let cql = self.cluster(view.place).map(|states| ClusterStatus::of(&states.total()));
            Upstream { common: UpstreamStatus::new(view, series, now), cql }
        };
        let upstreams: Vec<Upstream<'_>> = views.iter().map(upstream).collect();
        serde_json::to_string(&upstreams).expect("numbers and strings are always JSON")
    }
}
