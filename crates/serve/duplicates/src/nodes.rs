//! The processes of a service: how this one is called, who else there is, and the doors that
//! clients come by: one for plain clients and, with `cluster`, one for clients of Redis Cluster.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::config::DuplicatesConfig;
use evenkeel_leadership::cluster::{ClusterStandIn, ClusterView, endpoint};
use evenkeel_leadership::{self as leadership, Door, Holder, Processes, StandIn};
use evenkeel_redis_acl::Users;
use evenkeel_runtime::accept::{AcceptConfig, Listener, ServeConnection, StopSignal, accept};

/// As the other processes of the service know this one.
pub(super) fn own_name(config: &DuplicatesConfig) -> String {
    match &config.advertise {
        Some(advertised) => leadership::name(advertised, config.cluster_address()),
        None => leadership::name(config.listen, config.cluster_address()),
    }
}

/// This process, as the one that leads.
pub(super) fn itself(config: &DuplicatesConfig) -> Holder {
    Holder::of(&own_name(config))
}

/// What clients of Redis Cluster are told, where they are served. It is kept true for as long as
/// the tasks live.
pub(super) fn view(
    config: &DuplicatesConfig,
    holder: &watch::Sender<Holder>,
) -> (Option<ClusterView>, JoinSet<std::convert::Infallible>) {
    let mut announcing = JoinSet::new();
    let Some(own) = config.cluster_address().and_then(endpoint) else { return (None, announcing) };
    let (known, processes) = watch::channel(Processes::default());
    let me = (own.clone(), config.tls.is_some());
    let view = ClusterView::new(&config.name, me, holder.subscribe(), processes);
    if let Some(settings) = config.etcd.clone() {
        announcing.spawn_local(async move { leadership::announce(&settings, &own, &known).await });
    }
    (Some(view), announcing)
}

/// Where clients come, and on which terms.
pub(super) struct Doors {
    plain: Listener,
    cluster: Option<(Listener, ClusterView)>,
    accepting: watch::Receiver<Arc<AcceptConfig>>,
    users: Arc<Users>,
}

impl Doors {
    pub(super) const fn new(
        plain: Listener,
        cluster: Option<(Listener, ClusterView)>,
        accepting: watch::Receiver<Arc<AcceptConfig>>,
        users: Arc<Users>,
    ) -> Self {
        Self { plain, cluster, accepting, users }
    }

    /// Serves clients by both doors until told to stop, and every client has what it is owed.
    pub(super) async fn serve<H: ServeConnection>(
        self,
        handler: impl Fn(Door) -> Rc<H>,
        stop: StopSignal,
    ) -> io::Result<()> {
        let Self { plain, cluster, accepting, .. } = self;
        let plain = accept(plain, accepting.clone(), handler(Door::Plain), stop.clone());
        let cluster = async {
            match cluster {
                Some((door, _)) => {
                    accept(door, accepting, handler(Door::Cluster), stop).await.map(drop)
                }
                None => Ok(()),
            }
        };
        tokio::try_join!(async { plain.await.map(drop) }, cluster).map(drop)
    }

    /// The same while another process leads.
    pub(super) async fn stand_in(
        &self,
        config: &DuplicatesConfig,
        relay: impl Fn(Door) -> StandIn,
        stop: StopSignal,
    ) -> io::Result<()> {
        let accepting = || self.accepting.clone();
        let by_plain = Rc::new(relay(Door::Plain));
        let plain = accept(self.plain.again(), accepting(), by_plain, stop.clone());
        let cluster = async {
            let Some((door, view)) = &self.cluster else { return Ok(()) };
            let by_cluster = ClusterStandIn {
                relay: relay(Door::Cluster),
                view: view.clone().into(),
                users: Arc::clone(&self.users),
                limits: config.limits,
            };
            accept(door.again(), accepting(), Rc::new(by_cluster), stop).await.map(drop)
        };
        tokio::try_join!(async { plain.await.map(drop) }, cluster).map(drop)
    }
}
