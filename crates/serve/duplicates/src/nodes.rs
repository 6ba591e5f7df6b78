//! The processes of a service: how this one is called, who else there is, and the doors that
//! clients come by: one for plain clients and, with `cluster`, one for clients of Redis Cluster.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::config::DuplicatesConfig;
use evenkeel_leadership::cluster::{ClusterStandIn, ClusterView, endpoint};
use evenkeel_leadership::{self as leadership, Door, Group, Holder, Known, StandIn};
use evenkeel_redis_acl::Users;
use evenkeel_runtime::accept::{
    AcceptConfig, Dialer, Listener, ServeConnection, StopSignal, accept,
};
use evenkeel_stores::resp::cluster::Endpoint;

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

/// The door of this process for a group's clients of Redis Cluster, and the first of its doors.
pub(super) fn doors_of(config: &DuplicatesConfig) -> Option<(Endpoint, Endpoint)> {
    let own = config.cluster_address().and_then(endpoint)?;
    let first = config.group.first_door(&own)?;
    Some((own, first))
}

/// What clients of Redis Cluster are told, where they are served. It is kept true for as long as
/// the tasks live, or the process is not to stop: the first group does so for all of them.
pub(super) fn view(
    config: &DuplicatesConfig,
    known: &Arc<watch::Sender<Known>>,
    mut stop: StopSignal,
) -> (Option<ClusterView>, JoinSet<()>) {
    let mut announcing = JoinSet::new();
    let Some((own, first)) = doors_of(config) else { return (None, announcing) };
    let (group, is_tls) = (config.group, config.tls.is_some());
    let view = ClusterView::new(config.service(), (own, group), is_tls, known.subscribe());
    if let (Some(etcd), 0) = (&config.etcd, group.number) {
        let (settings, known) = (etcd.clone(), Arc::clone(known));
        announcing.spawn_local(async move {
            let leaving = async {
                match group.is_whole() {
                    true => std::future::pending().await,
                    false => stop.stopping().await,
                }
            };
            leadership::announce(&settings, &first, &known, leaving).await;
        });
    }
    (Some(view), announcing)
}

/// Where clients come, and on which terms.
pub(super) struct Doors {
    plain: Listener,
    cluster: Option<(Listener, ClusterView)>,
    /// Where plain clients of a service of several groups are told that this one is led here.
    here: Here,
    accepting: watch::Receiver<Arc<AcceptConfig>>,
    users: watch::Receiver<Arc<Users>>,
}

/// The groups that this process leads and serves, by number.
pub(super) type Here = Arc<watch::Sender<Vec<Option<Dialer>>>>;

/// A group is led here for as long as this lives.
struct Led<'h>(&'h Here, usize);

impl Drop for Led<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|here| here[self.1] = None);
    }
}

impl Doors {
    pub(super) fn new(
        plain: Listener,
        cluster: Option<(Listener, ClusterView)>,
        here: Here,
        (accepting, users): (watch::Receiver<Arc<AcceptConfig>>, watch::Receiver<Arc<Users>>),
    ) -> Self {
        Self { plain, cluster, here, accepting, users }
    }

    /// Serves clients by both doors until told to stop, and every client has what it is owed. Doors
    /// that are kept are there for another time, but not for clients within the process.
    pub(super) async fn serve<H: ServeConnection>(
        &mut self,
        handler: impl Fn(Door) -> Rc<H>,
        (stop, group): (StopSignal, Group),
    ) -> io::Result<()> {
        let are_kept = !group.is_whole();
        let (within, dialer) = Listener::memory();
        let within = accept(within, self.accepting.clone(), handler(Door::Plain), stop.clone());
        let here = Arc::clone(&self.here);
        here.send_modify(|here| here[group.number] = are_kept.then_some(dialer));
        let _led = Led(&here, group.number);
        let later = if are_kept { self.plain.again() } else { Listener::memory().0 };
        let plain = std::mem::replace(&mut self.plain, later);
        let door = match are_kept {
            true => self.cluster.as_ref().map(|(door, _)| door.again()),
            false => self.cluster.take().map(|(door, _)| door),
        };
        let accepting = || self.accepting.clone();
        let plain = accept(plain, accepting(), handler(Door::Plain), stop.clone());
        let cluster = async {
            let Some(door) = door else { return Ok(()) };
            accept(door, accepting(), handler(Door::Cluster), stop).await.map(drop)
        };
        tokio::try_join!(plain, within, cluster).map(drop)
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
                users: self.users.clone(),
                limits: config.limits,
            };
            accept(door.again(), accepting(), Rc::new(by_cluster), stop).await.map(drop)
        };
        tokio::try_join!(async { plain.await.map(drop) }, cluster).map(drop)
    }
}
