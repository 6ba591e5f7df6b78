//! Clusters that fake nodes tell of.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use evenkeel_core::request::ring::{Replication, Token};
use evenkeel_cql::request::{Query, Register};
use evenkeel_cql::response::{Event, SchemaChange, SchemaTarget};
use evenkeel_cql::rows::Writer;
use evenkeel_cql::types::Type;
use evenkeel_cql::{Envelope, ErrorCode, Opcode, Version, value};
use evenkeel_settings::address::ServerAddress;
use evenkeel_testkit::wait;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::broadcast;

use super::{Cluster, ClusterSettings, Notice, View, channel, keep};
use evenkeel_cql::client::testing::fake::{Peer, fake, limits};
use evenkeel_cql::client::testing::run;

/// What a fake tells of one node.
#[derive(Clone)]
struct Told {
    address: SocketAddr,
    id: u8,
    datacenter: &'static str,
    tokens: Vec<&'static str>,
}

/// A cluster of fakes, as all of them tell it.
struct World {
    nodes: RefCell<Vec<Told>>,
    /// Nodes that take connections and say nothing.
    mute: RefCell<Vec<SocketAddr>>,
    has_peers_v2: bool,
    /// What is said instead of the cluster's name.
    is_nonsense: std::cell::Cell<bool>,
    /// The schema's version.
    schema: std::cell::Cell<u8>,
    events: broadcast::Sender<Vec<u8>>,
    /// Closes the connections that were asked for events.
    hang_up: tokio::sync::Notify,
}

impl World {
    fn new(has_peers_v2: bool) -> Rc<Self> {
        Rc::new(Self {
            nodes: RefCell::default(),
            mute: RefCell::default(),
            has_peers_v2,
            is_nonsense: std::cell::Cell::new(false),
            schema: std::cell::Cell::new(1),
            events: broadcast::Sender::new(16),
            hang_up: tokio::sync::Notify::new(),
        })
    }

    /// Adds a fake.
    async fn add(self: &Rc<Self>, id: u8, datacenter: &'static str, tokens: &[&'static str]) {
        let (world, me) = (Rc::clone(self), Rc::new(std::cell::Cell::new(None)));
        let known = Rc::clone(&me);
        let script = move |peer| Rc::clone(&world).serve(peer, known.get().unwrap());
        let (address, _) = fake(script).await;
        me.set(Some(address));
        let reported = Told { address, id, datacenter, tokens: tokens.to_vec() };
        self.nodes.borrow_mut().push(reported);
    }

    async fn serve(self: Rc<Self>, mut peer: Peer, me: SocketAddr) {
        while let Some(request) = peer.next().await {
            if self.mute.borrow().contains(&me) {
                continue;
            }
            match request.opcode {
                Opcode::Startup => peer.ready(&request).await,
                Opcode::Options => peer.answer(&request, Opcode::Supported, &[0, 0]).await,
                Opcode::Register => {
                    assert_eq!(Register::read(&request.body).unwrap().kinds.len(), 3);
                    peer.answer(&request, Opcode::Ready, &[]).await;
                    if self.tell_events(&mut peer, &request, me).await.is_none() {
                        return;
                    }
                }
                _ => self.tell(&mut peer, &request, me).await,
            }
        }
    }

    /// Answers on the connection that hears events.
    async fn tell_events(&self, peer: &mut Peer, first: &Envelope, me: SocketAddr) -> Option<()> {
        let mut events = self.events.subscribe();
        loop {
            enum Next {
                Request(Option<Envelope>),
                Event(Vec<u8>),
                HangUp,
            }
            let next = {
                let (mut request, mut event) =
                    (std::pin::pin!(peer.next()), std::pin::pin!(events.recv()));
                let mut hang_up = std::pin::pin!(self.hang_up.notified());
                std::future::poll_fn(|context| {
                    use std::task::Poll;
                    if hang_up.as_mut().poll(context).is_ready() {
                        return Poll::Ready(Next::HangUp);
                    }
                    if let Poll::Ready(event) = event.as_mut().poll(context) {
                        return Poll::Ready(Next::Event(event.unwrap()));
                    }
                    request.as_mut().poll(context).map(Next::Request)
                })
                .await
            };
            match next {
                Next::HangUp => return None,
                Next::Event(body) => {
                    let to = Envelope { stream: -1, ..first.clone() };
                    let bytes = peer.encoded(&to, Opcode::Event, &body);
                    peer.stream.write_all(&bytes).await.ok()?;
                }
                Next::Request(request) => {
                    let request = request?;
                    if request.opcode == Opcode::Options {
                        peer.answer(&request, Opcode::Supported, &[0, 0]).await;
                    } else {
                        self.tell(peer, &request, me).await;
                    }
                }
            }
        }
    }

    async fn tell(&self, peer: &mut Peer, request: &Envelope, me: SocketAddr) {
        let text = Query::read(&request.body, Version::V4).unwrap().text;
        let nodes = self.nodes.borrow().clone();
        let body = if text.contains("system.local") {
            let local: Vec<_> = nodes.into_iter().filter(|node| node.address == me).collect();
            self.table("local", ["rpc_address", "rpc_port"], &local)
        } else if text.contains("system.peers_v2") && self.has_peers_v2 {
            let peers: Vec<_> = nodes.into_iter().filter(|node| node.address != me).collect();
            self.table("peers_v2", ["native_address", "native_port"], &peers)
        } else if text.contains("system.peers_v2") {
            return peer.error(request, ErrorCode::Invalid, &[]).await;
        } else if text.contains("system.peers") {
            let peers: Vec<_> = nodes.into_iter().filter(|node| node.address != me).collect();
            self.table("peers", ["rpc_address", "no_port"], &peers)
        } else {
            keyspaces()
        };
        peer.answer(request, Opcode::Result, &body).await;
    }

    fn table(&self, table: &str, [address, port]: [&str; 2], nodes: &[Told]) -> BytesMut {
        let columns = [
            ("cluster_name", Type::Text),
            ("partitioner", Type::Text),
            (address, Type::Inet),
            (port, Type::Int),
            ("data_center", Type::Text),
            ("rack", Type::Text),
            ("host_id", Type::Uuid),
            ("schema_version", Type::Uuid),
            ("release_version", Type::Text),
            ("tokens", Type::set(Type::Text)),
        ];
        let mut rows = Writer::new("system", table, &columns);
        for node in nodes {
            let name = if self.is_nonsense.get() { &[0xFF][..] } else { b"fake" };
            rows.value(Some(name))
                .value(Some(b"org.apache.cassandra.dht.Murmur3Partitioner"))
                .value(Some(&value::write_inet(node.address.ip())))
                .value(Some(&i32::from(node.address.port()).to_be_bytes()))
                .value(Some(node.datacenter.as_bytes()))
                .value(Some(b"r1"))
                .value(Some(&[node.id; 16]))
                .value(Some(&[self.schema.get(); 16]))
                .value(Some(b"5.0.9"))
                .value(Some(&value::write_texts(&node.tokens)))
                .end_row();
        }
        rows.finish()
    }
}

fn keyspaces() -> BytesMut {
    let map = Type::Map(Box::new(Type::Text), Box::new(Type::Text));
    let columns = [("keyspace_name", Type::Text), ("replication", map)];
    let mut rows = Writer::new("system_schema", "keyspaces", &columns);
    for (name, options) in [
        ("shop", vec![("class", "NetworkTopologyStrategy"), ("east", "2"), ("west", "1")]),
        ("system", vec![("class", "org.apache.cassandra.locator.LocalStrategy")]),
        ("odd", vec![("class", "com.example.Strategy")]),
    ] {
        rows.value(Some(name.as_bytes())).value(Some(&value::write_text_map(&options))).end_row();
    }
    rows.finish()
}

fn settings(world: &World) -> ClusterSettings {
    let first = world.nodes.borrow()[0].address;
    ClusterSettings {
        limits: limits(),
        settle: Duration::from_millis(30),
        check_every: Duration::from_millis(30),
        check_timeout: Duration::from_millis(60),
        fall: 2,
        rise: 2,
        ..ClusterSettings::new(vec![first])
    }
}

fn watch(settings: ClusterSettings) -> View {
    let (publisher, view) = channel();
    tokio::task::spawn_local(keep(settings, publisher));
    view
}

/// Waits until the cluster is so.
async fn until(view: &View, what: &str, is_so: impl Fn(&Cluster) -> bool) -> Cluster {
    let mut changes = view.changes();
    let so = changes.wait_for(|cluster| is_so(cluster));
    let waited = tokio::time::timeout(Duration::from_secs(5), so).await;
    let found = waited.map(|cluster| Cluster::clone(&cluster.unwrap()));
    found.unwrap_or_else(|_| panic!("not {what}: {:?}, {:?}", view.cluster(), view.watching()))
}

/// A cluster of two nodes, and who watches it: the first one tells.
async fn two_nodes(change: impl FnOnce(&mut ClusterSettings)) -> (Rc<World>, View) {
    let world = World::new(true);
    world.add(1, "east", &["1"]).await;
    world.add(2, "east", &["2"]).await;
    let mut settings = settings(&world);
    change(&mut settings);
    let view = watch(settings);
    until(&view, "of two nodes", |cluster| cluster.nodes.len() == 2).await;
    (world, view)
}

#[test]
fn a_contact_point_may_be_a_name_and_nodes_are_known_by_their_addresses() {
    run(async {
        let (_world, view) = two_nodes(|settings| {
            let port = settings.contact_points[0].port().unwrap();
            settings.contact_points = vec![ServerAddress::name("localhost", port)];
        })
        .await;
        let watching = view.watching();
        assert!(watching.node.is_some_and(|at| at.ip().is_loopback()), "{watching:?}");
    });
}

#[test]
fn a_cluster_is_read_whole_and_nodes_are_reached_where_they_are() {
    for has_peers_v2 in [true, false] {
        run(async move {
            let world = World::new(has_peers_v2);
            world.add(9, "east", &["5", "-9223372036854775808"]).await;
            world.add(3, "east", &["77"]).await;
            world.add(4, "west", &["-8"]).await;
            // One that only just comes has no tokens yet.
            world.add(5, "west", &[]).await;
            let reported = world.nodes.borrow().clone();
            let elsewhere: SocketAddr = "127.9.9.9:7".parse().unwrap();
            let reached_at = BTreeMap::from([(reported[2].address, elsewhere)]);
            let view = watch(ClusterSettings { reached_at, ..settings(&world) });
            let cluster = until(&view, "known", Cluster::is_known).await;
            assert_eq!((&*cluster.name, &*cluster.release_version), ("fake", "5.0.9"));
            let ids: Vec<u8> = cluster.nodes.iter().map(|node| node.host_id[0]).collect();
            assert_eq!(ids, [3, 4, 9]);
            assert_eq!(cluster.nodes[2].tokens, [Token(i64::MIN), Token(5)]);
            assert_eq!(cluster.nodes[1].datacenter, "west");
            if has_peers_v2 {
                assert_eq!(cluster.nodes[0].address, reported[1].address);
                let west = &cluster.nodes[1];
                assert_eq!((west.reported, west.address), (reported[2].address, elsewhere));
            } else {
                // Before 4.0 all nodes have the same port.
                assert_eq!(cluster.nodes[0].reported.port(), reported[0].address.port());
            }
            let east_west = BTreeMap::from([("east".to_owned(), 2), ("west".to_owned(), 1)]);
            let expected = [
                ("shop".to_owned(), Replication::NetworkTopology(east_west)),
                ("system".to_owned(), Replication::Local),
            ];
            assert_eq!(cluster.keyspaces, BTreeMap::from(expected));
        });
    }
}

#[test]
fn events_are_passed_on_and_what_they_say_is_read() {
    run(async {
        let world = World::new(true);
        world.add(1, "east", &["1"]).await;
        let view = watch(settings(&world));
        until(&view, "known", Cluster::is_known).await;
        let mut events = view.events();
        world.add(2, "east", &["2"]).await;
        let body = created("cart");
        world.events.send(body.clone()).unwrap();
        let Notice::Event(came) = events.recv().await.unwrap() else { panic!("nothing is missed") };
        assert_eq!((came.event(), &came.body()[..]), (Event::read(&body).unwrap(), &body[..]));
        until(&view, "of two nodes", |cluster| cluster.nodes.len() == 2).await;
        assert_eq!(view.watching().failures, 0);
        // An event of a kind of later releases is no harm.
        world.events.send(b"\0\x03NEW".to_vec()).unwrap();
        world.events.send(body).unwrap();
        events.recv().await.unwrap();
        assert_eq!(view.watching().failures, 0);
    });
}

#[test]
fn when_the_node_that_tells_goes_away_another_one_does() {
    run(async {
        let (world, view) = two_nodes(|_| ()).await;
        let first = world.nodes.borrow()[0].address;
        let second = world.nodes.borrow()[1].address;
        assert_eq!(view.watching().node, Some(first));
        world.mute.borrow_mut().push(first);
        until(&view, "without the first", |cluster| !cluster.nodes[0].is_up).await;
        world.hang_up.notify_waiters();
        wait::until("the second one tells", || view.watching().node == Some(second)).await;
        world.mute.borrow_mut().clear();
        let cluster = until(&view, "whole again", |cluster| cluster.nodes[0].is_up).await;
        assert!(cluster.nodes.iter().all(|node| node.is_up));
    });
}

fn created(table: &str) -> Vec<u8> {
    let target = SchemaTarget::Table(table);
    let change = SchemaChange { change: "CREATED", keyspace: "shop", target };
    let mut body = Vec::new();
    Event::Schema(change).write(&mut body);
    body
}

/// Waits until everything was read so many times more.
async fn read_again(view: &View, times: u64) {
    let times = view.watching().reads + times;
    wait::until("all is read again", || view.watching().reads >= times).await;
}

#[test]
fn a_change_of_the_schema_that_nobody_told_is_said_to_be_missed() {
    run(async {
        let (world, view) = two_nodes(|it| it.refresh = Duration::from_millis(50)).await;
        let mut events = view.events();
        // Another one tells, and nothing has changed.
        world.hang_up.notify_waiters();
        read_again(&view, 2).await;
        assert_eq!(view.watching().failures, 1);
        assert!(events.is_empty());
        // Something has changed before another one tells.
        world.schema.set(2);
        world.hang_up.notify_waiters();
        assert_eq!(events.recv().await.unwrap(), Notice::SchemaMissed);
        // It tells of a change before it counts it.
        world.events.send(created("cart")).unwrap();
        assert!(matches!(events.recv().await.unwrap(), Notice::Event(_)));
        read_again(&view, 2).await;
        world.schema.set(3);
        read_again(&view, 2).await;
        assert!(events.is_empty());
        // The version that was told is the one that is compared with.
        world.hang_up.notify_waiters();
        read_again(&view, 2).await;
        assert!(events.is_empty());
        // A node counts a change that it has not told.
        world.schema.set(4);
        assert_eq!(events.recv().await.unwrap(), Notice::SchemaMissed);
        read_again(&view, 2).await;
        assert!(events.is_empty(), "it is said once");
    });
}

#[test]
fn a_node_that_tells_is_left_when_it_is_down() {
    run(async {
        let (world, view) = two_nodes(|_| ()).await;
        let [first, second] = [0, 1].map(|place| world.nodes.borrow()[place].address);
        assert_eq!(view.watching().node, Some(first));
        // Its connections stay, and it says nothing.
        world.mute.borrow_mut().push(first);
        wait::until("the second one tells", || view.watching().node == Some(second)).await;
        let cluster = until(&view, "without the first", |cluster| !cluster.nodes[0].is_up).await;
        assert!(cluster.nodes[1].is_up);
    });
}

#[test]
fn a_cluster_that_talks_nonsense_is_said_so_and_tried_again() {
    run(async {
        let world = World::new(true);
        world.add(1, "east", &["1"]).await;
        world.is_nonsense.set(true);
        let view = watch(settings(&world));
        wait::until("it is tried again", || view.watching().failures >= 2).await;
        let error = view.watching().error.unwrap();
        assert!(error.contains("cluster_name") && error.contains("system.local"), "{error}");
        assert!(!view.cluster().is_known());
        world.is_nonsense.set(false);
        until(&view, "known", Cluster::is_known).await;
        assert_eq!(view.watching().error, None);
    });
}
