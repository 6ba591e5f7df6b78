//! Who tells of an upstream's replicas, and who they are by all that was told.
//!
//! What is written as an address is there. A name, a service or a file is a *source*: each answer
//! of one is judged by [`evenkeel_core::discovery`]. All but names may tell of names, which are
//! sources too for as long as they are told. As long as a source has said nothing at all,
//! nobody leaves, and the last ones stay until it has said something of use: a reload that puts a
//! name in an address's place, or a file that names other hosts, leaves no moment without replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::discovery::{Answer, AnswerCounts, Learnt, Source, Standing};
use evenkeel_settings::address::{ServerAddress, Target};
use evenkeel_settings::common::REPLICAS_MAX;

use crate::config::{Cluster, ReplicaSource, UpstreamConfig};

/// What is asked on behalf of all upstreams and ports: one name, one service, one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// The addresses of a host.
    Host(String),
    /// The hosts of a service.
    Service(String),
    /// The contents of a file.
    File(PathBuf),
    /// The endpoints of a Service of Kubernetes.
    Kubernetes(Cluster),
}

impl Query {
    fn of(source: &ReplicaSource) -> Self {
        match source {
            ReplicaSource::Name(name) => Self::Host(name.host.clone()),
            ReplicaSource::Service(name) => Self::Service(name.clone()),
            ReplicaSource::File(path) => Self::File(path.clone()),
            ReplicaSource::Kubernetes(cluster) => Self::Kubernetes(cluster.clone()),
        }
    }
}

/// What was heard of a [`Query`].
#[derive(Clone, Debug)]
pub struct Heard {
    /// Addresses of hosts have port 0: whoever asks for a name knows the port.
    pub answer: Answer<Target>,
    /// How long it is good, by its own words.
    pub ttl: Duration,
    /// Why it is not whole, for people.
    pub why: String,
}

/// How a source stands, for people and metrics.
#[derive(Clone, Debug)]
pub struct SourceState {
    /// What it is called in the file, or by whoever told of it.
    pub name: String,
    /// How it stands.
    pub standing: Standing,
    /// How long ago its last whole answer came; `None` before the first.
    pub age: Option<Duration>,
    /// Replicas that it tells of; for services and files those that it names.
    pub replicas: usize,
    /// Its answers.
    pub counts: AnswerCounts,
    /// Why the last answer that was not whole was not, and how long ago that was.
    pub last_error: Option<(String, Duration)>,
}

/// Everybody who tells of an upstream's replicas.
#[derive(Debug)]
pub(super) struct Sources {
    upstream: String,
    fixed: Vec<ServerAddress>,
    /// Those of the configuration.
    roots: Vec<ReplicaSource>,
    /// Those, and whom they tell of.
    all: BTreeMap<ReplicaSource, Source<Target>>,
    /// When an answer of one was not whole, and why.
    errors: BTreeMap<ReplicaSource, (Instant, String)>,
    has_checks: bool,
    /// When something was heard last, by both clocks.
    heard: Option<(Instant, std::time::Instant)>,
    /// Whether there were more replicas than are taken.
    is_cut: bool,
}

fn unheard(source: &ReplicaSource) -> Source<Target> {
    match source {
        ReplicaSource::File(_) => Source::obeyed(),
        ReplicaSource::Kubernetes(_) => Source::counted(),
        ReplicaSource::Name(_) | ReplicaSource::Service(_) => Source::doubted(),
    }
}

impl Sources {
    pub(super) fn of(config: &UpstreamConfig) -> Self {
        let mut sources = Self {
            upstream: config.name.clone(),
            fixed: Vec::new(),
            roots: Vec::new(),
            all: BTreeMap::new(),
            errors: BTreeMap::new(),
            has_checks: false,
            heard: None,
            is_cut: false,
        };
        sources.reconfigure(config);
        sources
    }

    /// Goes on with another configuration; a source that it keeps keeps what was learnt of it.
    pub(super) fn reconfigure(&mut self, config: &UpstreamConfig) {
        self.fixed.clone_from(&config.replicas);
        self.roots.clone_from(&config.sources);
        self.has_checks = config.health.is_some();
        self.keep_named();
    }

    /// Has the sources of the configuration and those that they name, and no others; whether these
    /// are others than before.
    fn keep_named(&mut self) -> bool {
        let told = self.roots.iter().filter_map(|root| self.all.get(root));
        let told = told.flat_map(Source::members).filter_map(|target| match target {
            Target::Name(name) => Some(ReplicaSource::Name(name.clone())),
            Target::Address(_) => None,
        });
        let named: BTreeSet<ReplicaSource> =
            self.roots.iter().cloned().chain(told).take(REPLICAS_MAX).collect();
        let is_changed = !named.iter().eq(self.all.keys());
        self.all.retain(|source, _| named.contains(source));
        self.errors.retain(|source, _| named.contains(source));
        for source in named {
            self.all.entry(source).or_insert_with_key(unheard);
        }
        is_changed
    }

    /// Whether the health of replicas is checked.
    pub(super) const fn has_checks(&self) -> bool {
        self.has_checks
    }

    /// What is to be asked, and whether nothing has been heard of it yet.
    pub(super) fn queries(&self) -> impl Iterator<Item = (Query, bool)> {
        let is_unheard = |source: &Source<Target>| source.standing() == Standing::Unknown;
        self.all.iter().map(move |(name, source)| (Query::of(name), is_unheard(source)))
    }

    /// Takes in what was heard: whether there are other sources now, and whether it should be
    /// confirmed soon.
    pub(super) fn learn(&mut self, now: Instant, query: &Query, heard: &Heard) -> (bool, bool) {
        let asked = self.all.keys().filter(|name| Query::of(name) == *query);
        let asked: Vec<ReplicaSource> = asked.cloned().collect();
        self.heard = Some((now, std::time::Instant::now()));
        let mut is_unconfirmed = false;
        for name in asked {
            let may_empty = !self.has_checks || self.has_others(&name);
            let source = self.all.get_mut(&name).expect("it was found among them");
            let learnt = source.learn(now, answer_for(&name, &heard.answer), may_empty);
            is_unconfirmed |= learnt.is_unconfirmed;
            if !matches!(heard.answer, Answer::Whole(_)) {
                self.errors.insert(name.clone(), (now, heard.why.clone()));
            }
            self.tell(&name, learnt, &heard.why);
        }
        (self.keep_named(), is_unconfirmed)
    }

    /// Whether there are replicas without a source, and without those that it tells of.
    fn has_others(&self, source: &ReplicaSource) -> bool {
        let is_of_other = |(other, known): (&ReplicaSource, &Source<Target>)| match source {
            ReplicaSource::Name(_) => {
                other != source && known.members().iter().any(|it| matches!(it, Target::Address(_)))
            }
            ReplicaSource::Service(_) | ReplicaSource::File(_) | ReplicaSource::Kubernetes(_) => {
                other != source && self.roots.contains(other) && !known.members().is_empty()
            }
        };
        !self.fixed.is_empty() || self.all.iter().any(is_of_other)
    }

    fn tell(&self, source: &ReplicaSource, learnt: Learnt, why: &str) {
        let Some(standing) = learnt.told else { return };
        // A hundred hosts of a service that fail together are one line.
        let is_told = |other: &ReplicaSource| !self.roots.contains(other);
        let is_in_trouble = |known: &Source<Target>| {
            !matches!(known.standing(), Standing::Unknown | Standing::Well)
        };
        let mut others = self.all.iter().filter(|(other, _)| *other != source && is_told(other));
        if is_told(source) && others.any(|(_, known)| is_in_trouble(known)) {
            return;
        }
        let upstream = &*self.upstream;
        let count = self.all.get(source).map_or(0, |known| known.members().len());
        match standing {
            Standing::Unknown => {}
            Standing::Well => tracing::info!(upstream, %source, count, "it answers well again"),
            Standing::Failing if count == 0 => {
                // One that was obeyed when it told of nobody has spoken.
                let has_spoken = self.all.get(source).is_some_and(|it| it.whole_at().is_some());
                let yet = if has_spoken { "" } else { " yet" };
                tracing::warn!(upstream, %source, "no replicas are known of it{yet}: {why}");
            }
            Standing::Failing => {
                tracing::warn!(upstream, %source, "its last {count} replicas stay: {why}");
            }
            Standing::Empty => tracing::warn!(
                upstream,
                %source,
                "it tells of no replicas ({why}); its last {count} stay until it has done so for \
                 a while, and the last of the upstream for as long as they are checked"
            ),
            Standing::Gone => {
                tracing::error!(upstream, %source, "it has no replicas any more: {why}");
            }
        }
    }

    /// The replicas by all that was told. `before` are those until now.
    pub(super) fn members(&mut self, before: &[ServerAddress]) -> Vec<ServerAddress> {
        let told = self.all.values().flat_map(Source::members);
        let told = told.filter_map(|target| match target {
            Target::Address(address) => Some(ServerAddress::from(*address)),
            Target::Name(_) => None,
        });
        let told: BTreeSet<ServerAddress> = told.collect();
        let is_open = |standing: Standing| !matches!(standing, Standing::Well | Standing::Gone);
        let mut standings = self.all.values().map(Source::standing);
        let is_waiting = match self.fixed.is_empty() && told.is_empty() {
            true => standings.any(is_open),
            false => standings.any(|standing| standing == Standing::Unknown),
        };
        let stays = |address: &&ServerAddress| is_waiting || told.contains(address);
        // Who is there already comes first, and so is not cut off for others.
        let mut taken = BTreeSet::new();
        let all = self.fixed.iter().chain(before.iter().filter(stays)).chain(&told);
        let mut all: Vec<ServerAddress> = all.filter(|at| taken.insert(**at)).copied().collect();
        let count = all.len();
        all.truncate(REPLICAS_MAX);
        if std::mem::replace(&mut self.is_cut, count > REPLICAS_MAX) != self.is_cut && self.is_cut {
            let upstream = &*self.upstream;
            tracing::warn!(
                upstream,
                "{count} replicas were told, expected at most {REPLICAS_MAX}: the others get no \
                 requests"
            );
        }
        all
    }

    /// How each stands.
    pub(super) fn states(&self) -> Vec<SourceState> {
        let now = self.heard.map_or(Instant::ZERO, |(at, known)| at + known.elapsed());
        let state = |(name, source): (&ReplicaSource, &Source<Target>)| SourceState {
            name: name.to_string(),
            standing: source.standing(),
            age: source.whole_at().map(|at| now.since(at)),
            replicas: source.members().len(),
            counts: source.counts(),
            last_error: self.errors.get(name).map(|(at, why)| (why.clone(), now.since(*at))),
        };
        self.all.iter().map(state).collect()
    }
}

/// An answer as one source means it: with its port.
fn answer_for(source: &ReplicaSource, answer: &Answer<Target>) -> Answer<Target> {
    let ReplicaSource::Name(name) = source else { return answer.clone() };
    let at_port = |who: &BTreeSet<Target>| {
        let with_port = |target: &Target| match target {
            Target::Address(at) => Target::Address(SocketAddr::new(at.ip(), name.port)),
            Target::Name(_) => target.clone(),
        };
        who.iter().map(with_port).collect()
    };
    match answer {
        Answer::Whole(who) => Answer::Whole(at_port(who)),
        Answer::Partial(who) => Answer::Partial(at_port(who)),
        Answer::Empty => Answer::Empty,
        Answer::Failed => Answer::Failed,
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_settings::Node;
    use evenkeel_settings::address::HostPort;

    use super::*;

    fn config(text: &str) -> UpstreamConfig {
        let node = Node::parse(text, "test.toml").unwrap();
        node.read(|table| UpstreamConfig::read("web", table, false).0).unwrap()
    }

    fn at(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], port))
    }

    fn heard(answer: Answer<Target>) -> Heard {
        Heard { answer, ttl: Duration::ZERO, why: "in a test".to_owned() }
    }

    fn hosts(hosts: impl IntoIterator<Item = u8>) -> Heard {
        heard(Answer::Whole(hosts.into_iter().map(|it| Target::Address(at(it, 0))).collect()))
    }

    fn query(host: &str) -> Query {
        Query::Host(host.to_owned())
    }

    /// What is known, step by step.
    struct Known(Sources, Vec<ServerAddress>, u64);

    impl Known {
        fn learn(&mut self, query: &Query, heard: &Heard) -> &[ServerAddress] {
            self.2 += 20;
            self.0.learn(Instant::from_millis(self.2 * 1_000), query, heard);
            self.members()
        }

        fn members(&mut self) -> &[ServerAddress] {
            self.1 = self.0.members(&self.1);
            self.1.sort_unstable();
            &self.1
        }
    }

    #[test]
    fn a_name_has_its_ports_and_what_is_written_stays_beside_it() {
        let config = config("replicas = ['10.0.0.9:1', 'a.test:1', 'a.test:2']");
        let mut known = Known(Sources::of(&config), vec![at(9, 1).into()], 0);
        assert_eq!(known.0.queries().collect::<BTreeMap<_, _>>(), [(query("a.test"), true)].into());
        assert_eq!(known.members(), [at(9, 1)]);
        assert_eq!(known.learn(&query("a.test"), &hosts([1])), [at(1, 1), at(1, 2), at(9, 1)]);
        for _ in 0..2 {
            known.learn(&query("a.test"), &heard(Answer::Empty));
        }
        assert_eq!(known.learn(&query("a.test"), &heard(Answer::Empty)), [at(9, 1)]);
    }

    #[test]
    fn nobody_leaves_before_a_new_source_has_spoken_nor_the_last_before_it_knows_any() {
        let before = config("replicas = ['10.0.0.1:1', '10.0.0.2:1']");
        let mut known = Known(Sources::of(&before), vec![at(1, 1).into(), at(2, 1).into()], 0);
        known.0.reconfigure(&config("replicas = ['10.0.0.1:1', 'a.test:1']"));
        assert_eq!(known.members(), [at(1, 1), at(2, 1)], "it has not spoken");
        let failed = heard(Answer::Failed);
        assert_eq!(
            known.learn(&query("a.test"), &failed),
            [at(1, 1)],
            "it knows nobody, others do"
        );
        known.0.reconfigure(&config("replicas = ['a.test:1']"));
        assert_eq!(known.learn(&query("a.test"), &failed), [at(1, 1)], "the last one stays");
        assert_eq!(known.learn(&query("a.test"), &hosts([7])), [at(7, 1)]);
    }

    #[test]
    fn a_service_tells_of_hosts_and_the_last_of_all_stay_while_they_are_checked() {
        for (health, left) in [("health = {}", vec![at(3, 80)]), ("", vec![])] {
            let config = config(&format!("discover = {{ dns = '_http._tcp.shop' }}\n{health}"));
            let mut known = Known(Sources::of(&config), Vec::new(), 0);
            let service = Query::Service("_http._tcp.shop".to_owned());
            let host = |name: &str| HostPort { host: name.to_owned(), port: 80 };
            let named = ["a.", "b."].map(|name| Target::Name(host(name)));
            assert!(known.learn(&service, &heard(Answer::Whole(named.clone().into()))).is_empty());
            assert_eq!(known.0.queries().count(), 3);
            known.learn(&query("a."), &hosts([1, 2]));
            assert_eq!(known.learn(&query("b."), &hosts([3])).len(), 3);
            let only = [named[1].clone()].into();
            assert_eq!(known.learn(&service, &heard(Answer::Whole(only))), [at(3, 80)]);
            for _ in 0..5 {
                known.learn(&service, &heard(Answer::Empty));
                known.learn(&query("b."), &heard(Answer::Empty));
            }
            assert_eq!(known.members(), left, "{health}");
        }
    }

    #[test]
    fn of_too_many_those_stay_that_are_there() {
        let mut known = Known(Sources::of(&config("replicas = ['a.test:9']")), Vec::new(), 0);
        known.learn(&query("a.test"), &hosts([250]));
        let many =
            (0..1_200_u16).map(|it| SocketAddr::from(([10, 1, (it >> 8) as u8, it as u8], 0)));
        let many = many.chain([at(250, 0)]).map(Target::Address).collect();
        let taken = known.learn(&query("a.test"), &heard(Answer::Whole(many)));
        assert!(taken.len() == REPLICAS_MAX && taken.contains(&at(250, 9).into()));
    }
}
