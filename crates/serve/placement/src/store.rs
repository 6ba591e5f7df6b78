//! The stores that can be moved, as one.

use std::time::Duration;

use super::act::audit::Audit;
use super::act::etcd::Etcd;
use super::act::mover::{Mover, Order, Outcome, Rules};
use super::act::nats::Nats;
use super::act::patroni::Patroni;
use super::act::window::Window;
use super::act::zookeeper::ZooKeeper;
use super::act::{Cluster as _, Observed, StepError};
use super::collect::secret;
use crate::config::{StoreConfig, SystemConfig};
use evenkeel_stores::clients::error::RemoteError;

/// Between looks at a store that is being moved.
const POLL: Duration = Duration::from_millis(500);

/// A store and how it is moved.
#[derive(Debug)]
pub(super) struct Store {
    kind: &'static str,
    rules: Rules,
    cluster: AnyCluster,
}

#[derive(Debug)]
enum AnyCluster {
    Etcd(Box<Etcd>),
    Patroni(Box<Patroni>),
    ZooKeeper(Box<ZooKeeper>),
    Nats(Box<Nats>),
}

/// The same for whichever store it is.
macro_rules! each {
    ($store:expr, $cluster:ident => $work:expr) => {
        match &$store.cluster {
            AnyCluster::Etcd($cluster) => $work,
            AnyCluster::Patroni($cluster) => $work,
            AnyCluster::ZooKeeper($cluster) => $work,
            AnyCluster::Nats($cluster) => $work,
        }
    };
}

impl Store {
    /// Reads passwords and certificates; connects to nobody.
    ///
    /// # Errors
    /// When a file cannot be read, or the store's settings are none.
    pub(super) fn new(config: &SystemConfig, window: Option<Window>) -> Result<Self, StepError> {
        let password = config.password_file.as_ref().map(secret).transpose()?;
        let with_password = |user: &Option<(String, String)>| {
            user.clone().map(|(user, none)| (user, password.clone().unwrap_or(none)))
        };
        let cluster = match &config.store {
            StoreConfig::Etcd(settings) => {
                let mut settings = settings.clone();
                settings.user = with_password(&settings.user);
                AnyCluster::Etcd(Box::new(Etcd::new(settings)?))
            }
            StoreConfig::Patroni(settings) => {
                let mut settings = settings.clone();
                settings.user = with_password(&settings.user);
                AnyCluster::Patroni(Box::new(Patroni::new(settings)?))
            }
            StoreConfig::ZooKeeper(settings) => {
                let mut settings = settings.clone();
                settings.user = with_password(&settings.user);
                AnyCluster::ZooKeeper(Box::new(ZooKeeper::new(settings)?))
            }
            StoreConfig::Nats(settings) => {
                let mut settings = settings.clone();
                settings.user = with_password(&settings.user);
                AnyCluster::Nats(Box::new(Nats::new(settings)?))
            }
        };
        let (step, lag_max) = (config.step, config.lag_max);
        let rules = Rules { step, poll: POLL.min(step / 4), lag_max, window };
        Ok(Self { kind: config.store.kind(), rules, cluster })
    }

    /// Its name in files.
    pub(super) const fn kind(&self) -> &'static str {
        self.kind
    }

    /// Looks at it.
    pub(super) async fn observe(&self) -> Result<Observed, RemoteError> {
        each!(self, cluster => cluster.observe().await)
    }

    /// The member of a site as it calls itself.
    pub(super) fn site_name(&self, site: usize) -> String {
        each!(self, cluster => cluster.site_name(site))
    }

    /// Carries out an order, or says what that would be: [`Mover::run`].
    pub(super) async fn run(
        &self,
        audit: &Audit,
        order: &Order<'_>,
    ) -> Result<Outcome, RemoteError> {
        let rules = self.rules;
        each!(self, cluster => Mover { cluster: &**cluster, rules, audit }.run(order).await)
    }
}
