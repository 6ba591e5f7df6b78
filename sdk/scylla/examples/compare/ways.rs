//! The ways to the cluster, each a session of its own, and the records that all of them ask for.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_scylla::chooser::Counts;
use evenkeel_scylla::{AdaptivePolicy, HedgeConfig, Probability};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::LoadBalancingPolicy;
use scylla::policies::speculative_execution::{
    SimpleSpeculativeExecutionPolicy, SpeculativeExecutionPolicy,
};
use scylla::policies::timestamp_generator::MonotonicTimestampGenerator;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

use crate::Problem;
use crate::flags::Flags;

/// How long a proxy that has just been started may not serve yet.
const CONNECT_MAX: Duration = Duration::from_secs(20);
/// Writers that fill the table side by side.
const FILLERS: usize = 16;

/// One way to the cluster.
pub(crate) struct Way {
    pub(crate) name: String,
    pub(crate) policy: Option<Arc<AdaptivePolicy>>,
    pub(crate) asking: Asking,
}

/// What one request needs of its way.
#[derive(Clone)]
pub(crate) struct Asking {
    pub(crate) session: Arc<Session>,
    pub(crate) read: PreparedStatement,
    pub(crate) write: PreparedStatement,
}

impl Way {
    /// Connects by the way with this name.
    pub(crate) async fn new(name: &str, flags: &Flags) -> Result<Self, Problem> {
        let place = name.strip_suffix("-speculative").unwrap_or(name);
        let mut policies = Policies::default();
        if place != name {
            policies.copies = Some(Arc::new(SimpleSpeculativeExecutionPolicy {
                max_retry_count: 1,
                retry_interval: Duration::from_millis(flags.copy_ms),
            }));
        }
        let builder = AdaptivePolicy::builder().policy(&flags.policy).seed(flags.seed);
        let mut policy = None;
        let nodes = match place {
            "default" => flags.nodes.clone(),
            "adaptive" => {
                policy = Some(builder.build()?);
                flags.nodes.clone()
            }
            "adaptive-hedged" => {
                let hedge = HedgeConfig {
                    quantile: Probability::clamped(flags.quantile),
                    budget_share: flags.budget,
                    ..HedgeConfig::default()
                };
                let hedged = builder.hedge(hedge).build()?;
                policies.copies = Some(Arc::clone(&hedged) as Arc<_>);
                policy = Some(hedged);
                flags.nodes.clone()
            }
            "relay" => {
                policies.relays = Some(Arc::new(relays(flags)?));
                flags.relays.clone()
            }
            "proxy" => vec![flags.proxy.clone().ok_or("proxy=ADDRESS is missing")?],
            _ => return Err(format!("\"{name}\": there is no such way").into()),
        };
        policies.balancing = policy.clone().map(|it| it as Arc<_>);
        let began = Instant::now();
        let session = loop {
            match connect(&nodes, flags, &policies).await {
                Ok(session) => break session,
                Err(problem) if began.elapsed() > CONNECT_MAX => return Err(problem),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        };
        let read = "select value from evenkeel_compare.records where id = ?";
        let write = "insert into evenkeel_compare.records (id, value) values (?, ?)";
        let mut read = session.prepare(read).await?;
        let mut write = session.prepare(write).await?;
        read.set_is_idempotent(true);
        write.set_is_idempotent(true);
        let asking = Asking { session: Arc::new(session), read, write };
        Ok(Self { name: name.to_owned(), policy, asking })
    }

    /// What its policy counted so far; nothing where it has none of ours.
    pub(crate) fn counts(&self) -> Counts {
        self.policy.as_ref().map_or_else(Counts::default, |policy| policy.counts())
    }
}

/// What a session is set up with; otherwise it has the driver's defaults.
#[derive(Default)]
struct Policies {
    balancing: Option<Arc<dyn LoadBalancingPolicy>>,
    copies: Option<Arc<dyn SpeculativeExecutionPolicy>>,
    /// Where nodes are to be reached instead of where they say.
    relays: Option<Arc<HashMap<SocketAddr, SocketAddr>>>,
}

fn relays(flags: &Flags) -> Result<HashMap<SocketAddr, SocketAddr>, Problem> {
    if flags.relays.len() != flags.nodes.len() {
        return Err(format!("relay={}: one for each node", flags.relays.join(",")).into());
    }
    let addresses = |texts: &[String]| -> Result<Vec<SocketAddr>, Problem> {
        texts.iter().map(|text| Ok(text.parse()?)).collect()
    };
    let (nodes, relays) = (addresses(&flags.nodes)?, addresses(&flags.relays)?);
    // The driver believes that all nodes have the port that it connected to first.
    let rules = nodes.iter().zip(&relays).flat_map(|(node, relay)| {
        let ports = relays.iter().map(SocketAddr::port).chain([node.port()]);
        ports.map(|port| (SocketAddr::new(node.ip(), port), *relay))
    });
    Ok(rules.collect())
}

/// A session that stamps its writes, as other drivers do unasked: without, a proxy may not send
/// them twice.
async fn connect(nodes: &[String], flags: &Flags, policies: &Policies) -> Result<Session, Problem> {
    let profile = ExecutionProfile::builder()
        .consistency(flags.consistency)
        .request_timeout(Some(Duration::from_secs(5)))
        .speculative_execution_policy(policies.copies.clone());
    let profile = match &policies.balancing {
        Some(policy) => profile.load_balancing_policy(Arc::clone(policy)),
        None => profile,
    };
    let session = SessionBuilder::new()
        .known_nodes(nodes)
        .timestamp_generator(Arc::new(MonotonicTimestampGenerator::new()))
        .default_execution_profile_handle(profile.build().into_handle());
    let session = match &policies.relays {
        Some(relays) => session.address_translator(Arc::clone(relays) as Arc<_>),
        None => session,
    };
    Ok(session.build().await?)
}

/// Makes the records, in each data centre on as many nodes as it has, at most three.
pub(crate) async fn fill(flags: &Flags) -> Result<(), Problem> {
    let session = Arc::new(connect(&flags.nodes, flags, &Policies::default()).await?);
    let mut nodes = BTreeMap::new();
    for node in session.get_cluster_state().get_nodes_info() {
        *nodes.entry(node.datacenter.clone().unwrap_or_default()).or_insert(0) += 1;
    }
    let factors: Vec<_> =
        nodes.iter().map(|(name, n)| format!("'{name}': {}", 3.min(*n))).collect();
    let keyspace = format!(
        "create keyspace if not exists evenkeel_compare with replication = \
         {{'class': 'NetworkTopologyStrategy', {}}}",
        factors.join(", ")
    );
    session.query_unpaged(keyspace, ()).await?;
    let table = format!(
        "create table if not exists evenkeel_compare.records \
         (id bigint primary key, value blob) with speculative_retry = '{}'",
        flags.speculative
    );
    session.query_unpaged(table, ()).await?;
    session.await_schema_agreement().await?;
    let insert = "insert into evenkeel_compare.records (id, value) values (?, ?)";
    let mut insert = session.prepare(insert).await?;
    insert.set_consistency(Consistency::All);
    let value: Arc<[u8]> = vec![7; flags.bytes].into();
    let mut fillers = Vec::new();
    for first in 0..FILLERS {
        let (session, insert, value) = (Arc::clone(&session), insert.clone(), Arc::clone(&value));
        let ids = (first..flags.keys).step_by(FILLERS);
        fillers.push(tokio::spawn(async move {
            for id in ids {
                session.execute_unpaged(&insert, (id as i64, &*value)).await?;
            }
            Ok::<_, Problem>(())
        }));
    }
    for filler in fillers {
        filler.await??;
    }
    Ok(())
}
