//! Asks for the replicas that names, services and files tell of, again and again.
//!
//! One task for each thing to ask, for the whole process, on the control thread. What comes goes to
//! [`UpstreamStates::learn`]; nobody on the request path waits for it. DNS is asked again when its
//! answer is no longer good, a file is read once a second: that finds a file that was written,
//! replaced by `rename` or by a symbolic link (`..data` of Kubernetes), on every file system, and
//! has no watch that could break in silence. Kubernetes tells of changes itself (`kubernetes.rs`).

mod file;
mod kubernetes;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::discovery::Answer;
use evenkeel_dns::{Found, LookupError, Resolver};
use evenkeel_runtime::clock::Clock;
use evenkeel_settings::address::{HostPort, Target};
use evenkeel_settings::common::REPLICAS_MAX;
use tokio::task::{JoinHandle, JoinSet};

use crate::upstream_state::{Heard, Query, UpstreamStates};

/// Bounds of the time for which an answer of DNS is good.
const TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Until what an answer takes away, or what it lacks, is asked for again, at most.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

/// After so many failures in a row the pause before the next question grows no more: 32 s.
const DOUBLINGS_MAX: u32 = 5;

/// Between two looks at a file.
const FILE_EVERY: Duration = Duration::from_secs(1);

/// How long one lookup may take, all servers and rounds included.
const LOOKUP: Duration = Duration::from_secs(15);

/// Asks for as long as it is not dropped.
pub struct Discovery {
    resolver: Rc<Resolver>,
    states: Arc<UpstreamStates>,
    clock: Clock,
    /// Who asks, and whether somebody had heard nothing of it when that was last looked at.
    asked: BTreeMap<Query, (Asking, bool)>,
}

/// A task that asks until it is dropped.
struct Asking(JoinHandle<()>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.asked.keys()).finish()
    }
}

impl Discovery {
    /// Asks nothing yet.
    pub fn new(resolver: Resolver, states: Arc<UpstreamStates>, clock: Clock) -> Self {
        Self { resolver: Rc::new(resolver), states, clock, asked: BTreeMap::new() }
    }

    /// Asks for the replicas of these upstreams from now on. Call it in a worker runtime, and again
    /// whenever they or what they tell of may have changed.
    pub fn follow(&mut self, upstreams: impl Iterator<Item = usize>) {
        let queries = self.states.queries(upstreams);
        self.asked.retain(|query, _| queries.contains_key(query));
        for (query, is_unheard) in queries {
            match self.asked.get_mut(&query) {
                // Another port of a host, which need not wait until its answer is no longer good.
                Some((_, was_unheard)) if is_unheard && !*was_unheard => {}
                Some((_, was_unheard)) => {
                    *was_unheard = is_unheard;
                    continue;
                }
                None => {}
            }
            let asking = self.ask(query.clone(), is_unheard);
            self.asked.insert(query, (asking, is_unheard));
        }
    }

    fn ask(&self, query: Query, is_unheard: bool) -> Asking {
        let (resolver, states) = (Rc::clone(&self.resolver), Arc::clone(&self.states));
        let clock = self.clock;
        Asking(tokio::task::spawn_local(async move {
            keep_asking(query, is_unheard, &resolver, &states, clock).await;
        }))
    }
}

/// Asks once for everything that nothing has been heard of, as long as it takes but no longer than
/// `limit`, so that a process or a new upstream has its replicas before its first request.
pub fn ask_first(
    resolver: &Resolver,
    states: &UpstreamStates,
    upstreams: &[usize],
    clock: Clock,
    limit: Duration,
) {
    let is_unheard = || states.queries(upstreams.iter().copied()).into_values().any(|it| it);
    if !is_unheard() {
        return;
    }
    // On a thread of its own, since whoever calls may be in a runtime.
    let ask = || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let asked = ask_unheard(resolver, states, upstreams, clock);
            let _ = tokio::time::timeout(limit, asked).await; // what is late comes later
        });
        runtime.shutdown_background();
        Ok(())
    };
    let ended = std::thread::scope(|scope| scope.spawn(ask).join());
    if !matches!(ended, Ok(Ok(()))) {
        tracing::warn!("replicas were not asked for before the start: they come later");
    }
}

/// In rounds: services and files tell of names.
async fn ask_unheard(
    resolver: &Resolver,
    states: &UpstreamStates,
    upstreams: &[usize],
    clock: Clock,
) {
    let mut asked = BTreeSet::new();
    loop {
        let queries = states.queries(upstreams.iter().copied()).into_iter();
        let unheard = queries.filter(|(query, is_unheard)| *is_unheard && !asked.contains(query));
        let unheard: Vec<Query> = unheard.map(|(query, _)| query).collect();
        if unheard.is_empty() {
            return;
        }
        let mut lookups = JoinSet::new();
        for query in unheard {
            asked.insert(query.clone());
            let resolver = resolver.clone();
            lookups.spawn(async move {
                let heard = Lookup::default().ask(&query, &resolver).await;
                (query, heard)
            });
        }
        while let Some(ended) = lookups.join_next().await {
            if let Ok((query, heard)) = ended {
                states.learn(clock.now(), &query, &heard);
            }
        }
    }
}

async fn keep_asking(
    query: Query,
    is_unheard: bool,
    resolver: &Resolver,
    states: &UpstreamStates,
    clock: Clock,
) {
    if let Query::Kubernetes(cluster) = &query {
        return kubernetes::follow(cluster, resolver, |heard| {
            states.learn(clock.now(), &query, heard);
        })
        .await;
    }
    let (mut lookup, mut failures) = (Lookup::default(), 0);
    if !is_unheard {
        tokio::time::sleep(TTL.0).await; // it was asked before the start
    }
    loop {
        let heard = lookup.ask(&query, resolver).await;
        let is_unconfirmed = states.learn(clock.now(), &query, &heard);
        failures = if heard.answer == Answer::Failed { failures + 1 } else { 0 };
        let pause = match &query {
            Query::File(_) => FILE_EVERY,
            _ => pause(&heard, failures, is_unconfirmed, chance()),
        };
        tokio::time::sleep(pause).await;
    }
}

/// From 0 to 1.
fn chance() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

/// Until DNS or an API server is asked again. `late` of 0 to 1 spreads those that began together.
fn pause(heard: &Heard, failures: u32, is_unconfirmed: bool, late: f64) -> Duration {
    let pause = match heard.answer {
        Answer::Failed => TTL.0 * 2_u32.pow(failures.saturating_sub(1).min(DOUBLINGS_MAX)),
        Answer::Empty => CONFIRMED_WITHIN,
        Answer::Whole(_) | Answer::Partial(_) => heard.ttl.clamp(TTL.0, TTL.1),
    };
    let is_doubtful = is_unconfirmed || matches!(heard.answer, Answer::Partial(_));
    let pause = if is_doubtful { pause.min(CONFIRMED_WITHIN) } else { pause };
    pause.mul_f64(1.0 + 0.1 * late)
}

/// What one query needs to know of its last answer.
#[derive(Default)]
struct Lookup {
    /// Addresses of the last whole answer.
    known: BTreeSet<IpAddr>,
    /// A file as it was last read, and what that meant.
    read: Option<(Vec<u8>, BTreeSet<Target>)>,
}

impl Lookup {
    async fn ask(&mut self, query: &Query, resolver: &Resolver) -> Heard {
        let asked = async {
            match query {
                Query::Host(name) => self.of_host(resolver.addresses(name).await),
                Query::Service(name) => match resolver.services(name).await {
                    Ok(found) => of_service(found),
                    Err(error) => failed(error.to_string()),
                },
                Query::File(path) => self.of_file(path).await,
                Query::Kubernetes(cluster) => kubernetes::list(cluster, resolver).await,
            }
        };
        let limit = || failed(format!("no answer within {} s", LOOKUP.as_secs()));
        tokio::time::timeout(LOOKUP, asked).await.unwrap_or_else(|_| limit())
    }

    fn of_host(&mut self, found: Result<Found<IpAddr>, LookupError>) -> Heard {
        let found = match found {
            Ok(found) if found.records.is_empty() => {
                return nobody("no such name, or none with addresses");
            }
            Ok(found) => found,
            Err(error) => return failed(error.to_string()),
        };
        let at_no_port = |ip: &IpAddr| Target::Address(SocketAddr::new(*ip, 0));
        let who = found.records.iter().map(at_no_port).collect();
        // Some servers never answer for IPv6. That matters where there were such addresses.
        let is_v4 = found.records.first().is_some_and(IpAddr::is_ipv4);
        let lacks = |_: &LookupError| self.known.iter().any(|ip| ip.is_ipv4() != is_v4);
        match found.missing.filter(lacks) {
            Some(error) => Heard {
                answer: Answer::Partial(who),
                ttl: found.ttl,
                why: format!("some of its addresses are unknown: {error}"),
            },
            None => {
                self.known = found.records;
                Heard { answer: Answer::Whole(who), ttl: found.ttl, why: String::new() }
            }
        }
    }

    async fn of_file(&mut self, path: &Path) -> Heard {
        let file: PathBuf = path.to_owned();
        let read = tokio::task::spawn_blocking(move || file::bytes(&file)).await;
        let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
        let targets = read.and_then(|bytes| match &self.read {
            Some((before, targets)) if *before == bytes => Ok(targets.clone()),
            _ => {
                let targets = file::targets(&bytes)?;
                self.read = Some((bytes, targets.clone()));
                Ok(targets)
            }
        });
        match targets {
            Ok(who) => {
                let why = "the file names no replicas".to_owned();
                Heard { answer: Answer::Whole(who), ttl: FILE_EVERY, why }
            }
            Err(error) => failed(format!("{}: {error}", path.display())),
        }
    }
}

/// The hosts of the lowest priority; the others are for when none of these is there, which DNS does
/// not know. Weights have no meaning here: who is quick gets more.
fn of_service(found: Found<evenkeel_dns::Service>) -> Heard {
    let lowest = found.records.first().map(|service| service.priority);
    let first = found.records.into_iter().filter(|it| Some(it.priority) == lowest && it.port != 0);
    let target = |service: evenkeel_dns::Service| {
        // It is whole, and not looked for in the domains of this machine.
        let host = format!("{}.", service.host.trim_end_matches('.').to_lowercase());
        Target::Name(HostPort { host, port: service.port })
    };
    let who: BTreeSet<Target> = first.map(target).take(REPLICAS_MAX).collect();
    match who.is_empty() {
        true => nobody("no such service, or one without hosts"),
        false => Heard { answer: Answer::Whole(who), ttl: found.ttl, why: String::new() },
    }
}

fn nobody(why: &str) -> Heard {
    Heard { answer: Answer::Empty, ttl: Duration::ZERO, why: why.to_owned() }
}

fn failed(why: String) -> Heard {
    Heard { answer: Answer::Failed, ttl: Duration::ZERO, why }
}

/// Whether a file of `discover.file` can be used, for `evenkeel check`.
///
/// # Errors
/// When it cannot, with its path and what is wrong where.
pub fn check_file(path: &Path) -> io::Result<()> {
    let found = file::bytes(path).and_then(|bytes| file::targets(&bytes));
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    found.map(drop).map_err(at)
}

#[cfg(test)]
mod tests {
    use evenkeel_dns::Service;
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn found(records: &[&str], missing: bool) -> Result<Found<IpAddr>, LookupError> {
        let missing = missing.then(|| LookupError::NoName("in a test".to_owned()));
        let records = records.iter().map(|text| ip(text)).collect();
        Ok(Found { records, ttl: Duration::from_secs(9), missing })
    }

    #[test]
    fn an_answer_without_ipv6_is_partial_only_where_there_was_some() {
        let mut lookup = Lookup::default();
        let at = |ips: &[&str]| -> BTreeSet<Target> {
            ips.iter().map(|text| Target::Address(SocketAddr::new(ip(text), 0))).collect()
        };
        let heard = lookup.of_host(found(&["10.0.0.1"], true));
        assert_eq!(heard.answer, Answer::Whole(at(&["10.0.0.1"])), "servers that never tell of it");
        lookup.of_host(found(&["10.0.0.1", "2001:db8::1"], false));
        let heard = lookup.of_host(found(&["10.0.0.2"], true));
        assert_eq!(heard.answer, Answer::Partial(at(&["10.0.0.2"])));
        let heard = lookup.of_host(found(&["10.0.0.2"], false));
        assert_eq!(heard.answer, Answer::Whole(at(&["10.0.0.2"])));
        assert_eq!(lookup.of_host(found(&[], false)).answer, Answer::Empty);
    }

    #[test]
    fn of_a_service_the_hosts_of_the_lowest_priority_are_taken() {
        let service = |priority, weight, port, host: &str| Service {
            priority,
            weight,
            port,
            host: host.to_owned(),
        };
        let records = [
            service(2, 0, 80, "far.test"),
            service(1, 9, 81, "B.test."),
            service(1, 0, 80, "a.test"),
            service(1, 0, 0, "none.test"),
        ];
        let found = Found { records: records.into(), ttl: Duration::ZERO, missing: None };
        let Answer::Whole(who) = of_service(found).answer else { panic!("a whole answer") };
        let who: Vec<String> = who.iter().map(ToString::to_string).collect();
        assert_eq!(who, ["a.test.:80", "b.test.:81"]);
    }

    proptest! {
        #[test]
        fn dns_is_asked_neither_all_the_time_nor_never_again(
            ttl in 0..1_000_000_u64,
            failures in 0..1_000_u32,
            is_unconfirmed: bool,
            late in 0.0..=1.0,
            kind in 0..4,
        ) {
            let whole = Answer::Whole([].into());
            let answers = [Answer::Failed, Answer::Empty, whole, Answer::Partial([].into())];
            let answer = answers[kind as usize].clone();
            let heard =
                Heard { answer: answer.clone(), ttl: Duration::from_secs(ttl), why: String::new() };
            let pause = pause(&heard, failures, is_unconfirmed, late);
            prop_assert!((Duration::from_secs(1)..=Duration::from_secs(330)).contains(&pause));
            if is_unconfirmed || matches!(answer, Answer::Empty | Answer::Partial(_)) {
                prop_assert!(pause <= Duration::from_millis(5_500));
            }
        }
    }
}
