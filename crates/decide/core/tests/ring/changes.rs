//! Layouts through random changes of rings, slots and keyspaces, beside what they should say.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::request::ring::{
    Layout, LayoutInputs, Node, Presence, Replication, Ring, Token, layout,
};
use evenkeel_core::request::select::{Policy, Selector};
use evenkeel_core::request::{
    BodyEnd, CallId, Dispatcher, DispatcherConfig, Replay, Request, Step,
};
use evenkeel_core::{Fleet, GroupId, Health, Instant, ReplicaId, Rng};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

/// A cluster of which data centre `a` is watched.
struct Cluster {
    nodes: Vec<Node>,
    slots: Vec<Option<usize>>,
    keyspaces: BTreeMap<String, Replication>,
    rng: Rng,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let rng = Rng::seeded(seed);
        let keyspaces = BTreeMap::from([("system".to_owned(), Replication::Local)]);
        let mut cluster = Self { nodes: Vec::new(), slots: Vec::new(), keyspaces, rng };
        for _ in 0..1 + cluster.rng.below(6) {
            cluster.join();
        }
        for _ in 0..2 {
            cluster.keyspace();
        }
        cluster
    }

    fn join(&mut self) {
        let datacenter = ["a", "b"][self.rng.below(2)].to_owned();
        let rack = self.rng.below(3).to_string();
        let token = |_| Token(self.rng.below(1 << 40) as i64 - (1 << 39));
        let tokens = (0..4).map(token).collect();
        if datacenter == "a" {
            self.slots.push(Some(self.nodes.len()));
        }
        self.nodes.push(Node { datacenter, rack, tokens });
    }

    fn leave(&mut self) {
        if self.nodes.len() < 2 {
            return;
        }
        let gone = self.rng.below(self.nodes.len());
        self.nodes.remove(gone);
        for slot in &mut self.slots {
            *slot = slot.filter(|&node| node != gone).map(|node| node - usize::from(node > gone));
        }
    }

    fn keyspace(&mut self) {
        let name = format!("k{}", self.rng.below(3));
        let factor = |rng: &mut Rng| rng.below(4);
        let replication = match self.rng.below(4) {
            0 => Replication::Simple { replicas: factor(&mut self.rng) },
            1 => Replication::Everywhere,
            _ => Replication::NetworkTopology(BTreeMap::from([
                ("a".to_owned(), factor(&mut self.rng)),
                ("b".to_owned(), factor(&mut self.rng)),
            ])),
        };
        self.keyspaces.insert(name, replication);
    }

    fn change(&mut self) {
        match self.rng.below(3) {
            0 => self.join(),
            1 => self.leave(),
            _ => self.keyspace(),
        }
    }

    /// What a layout should say of a key: the slots of its replicas, none when all are meant.
    fn expected(&self, ring: &Ring, keyspace: &str, token: Token) -> BTreeSet<ReplicaId> {
        let replicas = ring.replicas(&self.keyspaces[keyspace]);
        let slot = |node: &usize| self.slots.iter().position(|slot| *slot == Some(*node));
        replicas.of(token).iter().filter_map(slot).map(ReplicaId::new).collect()
    }

    fn everybody(&self) -> BTreeSet<ReplicaId> {
        let taken = (0..self.slots.len()).filter(|&slot| self.slots[slot].is_some());
        taken.map(ReplicaId::new).collect()
    }

    fn token(&mut self) -> Token {
        Token(self.rng.below(1 << 41) as i64 - (1 << 40))
    }

    fn layout(&self, ring: &Ring, earlier: Option<&Layout>, groups_max: usize) -> Layout {
        let Self { keyspaces, slots, .. } = self;
        let inputs = LayoutInputs { ring, keyspaces, slots, groups_max };
        earlier.map_or_else(|| Layout::new(&inputs), |earlier| earlier.next(&inputs))
    }
}

fn members(layout: &Layout, group: GroupId) -> BTreeSet<ReplicaId> {
    layout.groups()[group.index()].iter().copied().collect()
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_key_is_in_the_group_of_its_replicas_here(seed in any::<u64>(), changes in 0_usize..12) {
        let mut cluster = Cluster::new(seed);
        let mut layout = None;
        for _ in 0..=changes {
            let ring = Ring::new(&cluster.nodes);
            let next = cluster.layout(&ring, layout.as_ref(), layout::GROUPS_MAX);
            prop_assert_eq!(next.left_out().sets, 0);
            let names: Vec<String> = cluster.keyspaces.keys().cloned().collect();
            for (name, _) in names.iter().flat_map(|name| [(name, 0); 20]) {
                let token = cluster.token();
                let (group, everybody) = (next.group(name, Some(token)), cluster.everybody());
                prop_assert_eq!(next.group(name, None), GroupId::new(0));
                if name == "system" {
                    prop_assert_eq!(group, GroupId::new(0));
                    prop_assert_eq!(next.presence(name, Some(token)), Presence::Own);
                    continue;
                }
                let expected = cluster.expected(&ring, name, token);
                let presence = next.presence(name, Some(token));
                prop_assert_eq!(presence == Presence::There, !expected.is_empty());
                let all = expected.is_empty();
                prop_assert_eq!(members(&next, group), if all { everybody } else { expected });
            }
            prop_assert_eq!(next.presence("unknown", None), Presence::Unknown);
            prop_assert_eq!(members(&next, GroupId::new(0)), cluster.everybody());
            layout = Some(next);
            cluster.change();
        }
    }

    #[test]
    fn a_group_that_lives_on_keeps_its_number_and_one_that_is_gone_is_everybody(
        seed in any::<u64>(),
        changes in 1_usize..12,
    ) {
        let mut cluster = Cluster::new(seed);
        let mut earlier = cluster.layout(&Ring::new(&cluster.nodes), None, layout::GROUPS_MAX);
        for _ in 0..changes {
            cluster.change();
            let ring = Ring::new(&cluster.nodes);
            let next = cluster.layout(&ring, Some(&earlier), layout::GROUPS_MAX);
            prop_assert!(next.groups().len() >= earlier.groups().len());
            let everybody = members(&next, GroupId::new(0));
            for (number, before) in earlier.groups().iter().enumerate().skip(1) {
                let now = members(&next, GroupId::new(number));
                let before: BTreeSet<_> = before.iter().copied().collect();
                let was_unused = before == members(&earlier, GroupId::new(0));
                prop_assert!(now == before || now == everybody || was_unused);
            }
            earlier = next;
        }
    }

    #[test]
    fn the_number_of_groups_is_bounded_and_what_is_left_out_is_the_smallest(
        seed in any::<u64>(),
        groups_max in 1_usize..6,
    ) {
        let mut cluster = Cluster::new(seed);
        let ring = Ring::new(&cluster.nodes);
        let layout = cluster.layout(&ring, None, groups_max);
        let left_out = layout.left_out();
        prop_assert!(layout.groups().len() <= groups_max);
        prop_assert_eq!(left_out.sets, left_out.of.saturating_sub(groups_max - 1));
        prop_assert!((0.0..=1.0).contains(&left_out.share));
        // The larger half of the sets has at least half of the ring.
        if 2 * left_out.sets <= left_out.of && cluster.keyspaces.len() == 2 {
            prop_assert!(left_out.share <= 0.5 + 1e-9, "{left_out}");
        }
        for _ in 0..20 {
            let token = cluster.token();
            let names: Vec<_> = cluster.keyspaces.keys().filter(|n| *n != "system").collect();
            for name in names {
                let expected = cluster.expected(&ring, name, token);
                let here = members(&layout, layout.group(name, Some(token)));
                prop_assert!(here == expected || here == cluster.everybody());
                let presence = layout.presence(name, Some(token));
                prop_assert_eq!(presence == Presence::There, !expected.is_empty());
            }
        }
    }
}

#[test]
fn what_is_left_out_is_said() {
    let third = 1 << 62;
    let node = |token: i64| Node {
        datacenter: "a".to_owned(),
        rack: "r".to_owned(),
        tokens: vec![Token(token)],
    };
    // The ranges: a quarter, a quarter and half of the ring.
    let ring = Ring::new(&[node(-third), node(0), node(third)]);
    let keyspaces = BTreeMap::from([("k".to_owned(), Replication::Simple { replicas: 1 })]);
    let slots = [Some(0), Some(1), Some(2)];
    let inputs = LayoutInputs { ring: &ring, keyspaces: &keyspaces, slots: &slots, groups_max: 2 };
    let layout = Layout::new(&inputs);
    assert_eq!(layout.groups()[1], [ReplicaId::new(0)], "the largest has its group");
    let words = "2 of 3 replica sets have no group of their own, because there would be too many: \
                 requests for 50.0 % of the ring choose among all nodes of the data centre";
    assert_eq!(layout.left_out().to_string(), words);
    let all = Layout::new(&LayoutInputs { groups_max: 4, ..inputs });
    let words = "each of the 3 replica sets has a group of its own";
    assert_eq!(all.left_out().to_string(), words);
}

fn policy(text: &str) -> Box<dyn Selector> {
    text.parse::<Policy>().expect("a policy of the registry").make(1)
}

/// A call that is held while its replica set ceases to exist is sent to somebody else.
#[test]
fn a_held_call_outlives_its_group() {
    let node = |rack: &str, token: i64| Node {
        datacenter: "a".to_owned(),
        rack: rack.to_owned(),
        tokens: vec![Token(token)],
    };
    let keyspaces = BTreeMap::from([("k".to_owned(), Replication::Simple { replicas: 1 })]);
    let of = |nodes: &[Node], slots: &[Option<usize>], earlier: Option<&Layout>| {
        let ring = Ring::new(nodes);
        let inputs = LayoutInputs { ring: &ring, keyspaces: &keyspaces, slots, groups_max: 64 };
        earlier.map_or_else(|| Layout::new(&inputs), |earlier| earlier.next(&inputs))
    };
    let nodes = [node("r", 0), node("r", 100)];
    let first = of(&nodes, &[Some(0), Some(1)], None);
    // One token each: the second call of a replica is held.
    let throttled = "c3:rate_control=on,rate_initial=0.001,tokens_initial=1,tokens_max=1";
    let fleet = Fleet::new(2, first.groups().to_vec());
    let config = DispatcherConfig::default();
    let mut dispatcher = Dispatcher::new(fleet, policy(throttled), config);
    let group = first.group("k", Some(Token(50)));
    assert_eq!(first.groups()[group.index()], [ReplicaId::new(1)]);
    let request = Request::new(group, Replay::Always);
    let now = Instant::from_millis(1);
    let mut sent = dispatcher.open(now, CallId(1), request);
    let Step::Send(attempt) = dispatcher.step(now, &mut sent) else { panic!("it has a token") };
    let mut held = dispatcher.open(now, CallId(2), request);
    assert!(matches!(dispatcher.step(now, &mut held), Step::Wait { until: None }));
    assert_eq!(dispatcher.held(), 1);

    let second = of(&nodes[..1], &[Some(0), None], Some(&first));
    dispatcher.adopt(now, &second.plan(1, vec![Health::Up, Health::Draining]));
    assert_eq!(dispatcher.resumed(), Some(CallId(2)));
    let Step::Send(other) = dispatcher.step(now, &mut held) else { panic!("somebody is left") };
    assert_eq!(other.replica(), ReplicaId::new(0));
    dispatcher.finish(now, other, BodyEnd::Complete);
    dispatcher.finish(now, attempt, BodyEnd::Complete);
    dispatcher.close(now, held);
    dispatcher.close(now, sent);
    assert_eq!((dispatcher.held(), dispatcher.fleet().in_flight()), (0, 0));
}
