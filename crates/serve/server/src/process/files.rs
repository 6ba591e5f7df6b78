//! What all clients of a process share: the limit of open files, and memory for their buffers.
//!
//! Both are of the operating system's process, and so is the number of clients that follows from
//! the first: of several [`Process`](super::Process)es in one the last decides.

use crate::config::{Config, DuplicatesConfig, Protocol};
use evenkeel_runtime::accept::{AcceptCounts, accept_counts, limit_clients};
use evenkeel_runtime::buffers::{self, BufferCounts};
use evenkeel_runtime::component::Surface;
use evenkeel_runtime::files::{self, Budget, Limit};
use evenkeel_runtime::metrics::{Metric, counter, counter_by, gauge};

/// To one duplicate: its ordered connection, those of reads, a probe, a copy that is made.
const OF_DUPLICATE: u64 = 8;
/// Of a Cassandra cluster: its control connection, and the one that replaces it.
const OF_CLUSTER: u64 = 2;

/// Raises the limit of open files and gives clients what upstreams leave. Says how it is, and what
/// is too little.
pub(super) fn open(config: &Config) -> (Option<Limit>, Option<String>) {
    let raised = files::raise();
    if let Err(error) = &raised {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
    let limit = raised.ok();
    buffers::of_process().limit(config.process.buffers_max);
    (limit, follow(config, |_| 0))
}

/// Gives clients what upstreams leave of the limit as it is; says what is too little. `discovered`
/// has how many replicas an upstream has, where the configuration does not have all.
pub(super) fn follow(config: &Config, discovered: impl Fn(usize) -> usize) -> Option<String> {
    let files_max = files::limit();
    let budget = budget(config, discovered);
    limit_clients(budget.clients_max(files_max));
    budget.shortfall(files_max)
}

/// What all limits of a configuration allow together. Of a Cassandra cluster only the nodes of the
/// file are known.
fn budget(config: &Config, discovered: impl Fn(usize) -> usize) -> Budget {
    let workers = config.process.workers.max(1) as u64;
    let listens: u64 = config.listens.iter().map(|it| it.limits.connections_max as u64).sum();
    let agents: u64 = config.agents.iter().map(|it| it.common.limits.connections_max as u64).sum();
    let of = |it: &DuplicatesConfig| (it.clients_max * it.group.of) as u64;
    let services: u64 = config.duplicates.iter().map(of).sum();
    let upstreams = config.upstreams.iter().enumerate().map(|(place, upstream)| {
        let replicas = upstream.common.replicas.len().max(discovered(place)) as u64;
        match &upstream.cql {
            None => replicas * upstream.common.limits.connections_max as u64 * workers,
            Some(cql) => replicas * cql.connections_max as u64 * workers + OF_CLUSTER,
        }
    });
    let apps = config.agents.iter().map(|agent| match agent.protocol {
        Protocol::Http => agent.common.upstream_limits.connections_max as u64,
        Protocol::Cql => agent.common.limits.connections_max as u64, // one for each client
    });
    let duplicates = config.duplicates.iter().map(|service| {
        let servers: usize = service.partitions.iter().map(Vec::len).sum();
        // Clients are passed on to whoever leads.
        let stands_by = service.etcd.as_ref().is_some_and(|it| it.standby);
        let relays = if stands_by { of(service) } else { 0 };
        (servers + service.spares.len()) as u64 * OF_DUPLICATE + relays
    });
    Budget {
        clients: listens * workers + agents + services,
        upstreams: upstreams.chain(apps).chain(duplicates).sum(),
        workers,
    }
}

/// What was counted of clients that came, and of the limit.
pub(super) fn surface() -> Surface {
    Surface::of_metrics(|scrape: &mut evenkeel_runtime::metrics::Scrape| {
        scrape.single(&OF_PROCESS, &(files::limit(), accept_counts()));
        scrape.single(&BUFFERS, &buffers::of_process().counts());
    })
}

const OF_PROCESS: [Metric<(Option<u64>, AcceptCounts)>; 6] = [
    gauge("evenkeel_open_files_max", "Limit of open files; absent without one.", |it| it.0.into()),
    gauge(
        "evenkeel_clients",
        "Connected clients of all listeners but [admin] and the mesh.",
        |it| it.1.clients.into(),
    ),
    gauge(
        "evenkeel_clients_max",
        "Clients that the limit of open files leaves places for; more wait in the kernel. Absent \
         where the limits of the configuration are lower.",
        |it| it.1.clients_max.into(),
    ),
    counter(
        "evenkeel_accept_pauses_total",
        "Pauses of 50 ms in accepting because evenkeel_clients_max was reached.",
        |it| it.1.pauses.into(),
    ),
    counter(
        "evenkeel_clients_evicted_total",
        "Clients of HTTP that asked nothing and were told to leave for others, as a listener or \
         evenkeel_clients_max was full.",
        |it| it.1.evictions.into(),
    ),
    counter_by(
        "evenkeel_accept_errors_total",
        "Failures to accept a client: no free file in the process (process_files) or the system \
         (system_files), no memory, the client gave up (aborted), other.",
        "reason",
        |it| it.1.errors.iter().map(|(reason, count)| (*reason, (*count).into())).collect(),
    ),
];

const BUFFERS: [Metric<BufferCounts>; 4] = [
    gauge(
        "evenkeel_client_buffer_bytes",
        "Bytes of requests and responses that are buffered for clients of Cassandra and of \
         duplicates; less than 32 KiB of one client do not count.",
        |it| it.bytes.into(),
    ),
    gauge("evenkeel_client_buffer_bytes_max", "process.buffers_max.", |it| it.bytes_max.into()),
    counter(
        "evenkeel_client_holdbacks_total",
        "Times that a client was not read from, as it held too much of \
         evenkeel_client_buffer_bytes_max.",
        |it| it.held_back.into(),
    ),
    counter(
        "evenkeel_client_buffer_cutoffs_total",
        "Clients cut off because evenkeel_client_buffer_bytes_max was used and they held most.",
        |it| it.cut_off.into(),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_settings::Node;

    #[test]
    fn every_limit_of_the_configuration_is_in_the_budget() {
        let text = "[process]\nworkers = 3\n\
            [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
            limits = { connections_max = 100 }\n\
            [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'cql'\n\
            limits = { connections_max = 10 }\n\
            [upstream.web]\nreplicas = ['127.0.0.1:1', '127.0.0.1:2']\n\
            pool = { connections_max = 7, idle_connections_max = 7 }\n\
            [upstream.cql]\nprotocol = 'cql'\nreplicas = ['127.0.0.1:3']\n\
            cql = { connections_max = 5 }\n\
            [[agent]]\nlisten = '127.0.0.1:0'\napp = '127.0.0.1:4'\n";
        let config = Config::read(&Node::parse(text, "test.toml").unwrap()).unwrap();
        let agent = 10_000;
        let expected = Budget {
            clients: 3 * (100 + 10) + agent,
            upstreams: 3 * (2 * 7) + (3 * 5 + 2) + agent,
            workers: 3,
        };
        assert_eq!(budget(&config, |_| 0), expected);
        let web = config.upstreams.iter().position(|upstream| upstream.common.name == "web");
        let discovered = budget(&config, |place| if Some(place) == web { 9 } else { 0 });
        assert_eq!(discovered.upstreams, expected.upstreams + 3 * (7 * 7));
    }
}
