//! Servers that stumble and networks that are long, for demonstrations and tests; and what tests
//! of sockets share.
//!
//! | room | does |
//! |---|---|
//! | [`embedded`] | a replicated service of our own on loopback sockets |
//! | [`nginx`] | real nginx servers: paused, limited, killed |
//! | `cassandra` | real clusters of Apache Cassandra, and a client |
//! | [`program`] | programs that run beside a test |
//! | [`redis`] | real Redis servers, and a client |
//! | [`caching`] | a client that keeps what it reads until it is told that it changed |
//! | `kubernetes` | an API server that stumbles |
//! | [`memcached`], [`zookeeper`] | real servers of theirs |
//! | [`distance`] | relays that make one machine as wide as a continent |
//! | [`relay`] | a relay that does to datagrams what networks do |
//! | [`regions`] | stores whose members are as far from each other as regions |
//! | [`fault`] | what goes wrong with them |
//! | [`disk`] | disks that are soon full |
//! | [`statements`] | random statements of CQL |
//! | [`story`] | limits, threads and ends of tests |
//! | [`log`] | what the processes of a test log |
//! | [`wait`] | waiting for a state |
//! | [`corpus`] | messages of HTTP/1.1 that servers read differently |
//! | [`http`] | the simplest client of HTTP |
//! | `otlp` | a collector of traces |
//! | `certificates` | an authority of the test's own |
//! | [`folder`] | folders of the test's own |

pub mod caching;
#[cfg(all(target_os = "linux", feature = "cassandra"))]
pub mod cassandra;
#[cfg(feature = "certificates")]
pub mod certificates;
pub mod corpus;
pub mod disk;
pub mod distance;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod fault;
pub mod folder;
pub mod http;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod log;
pub mod memcached;
pub mod nginx;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod program;
pub mod redis;
pub mod regions;
pub mod relay;
pub mod statements;
pub mod story;
pub mod wait;
pub mod zookeeper;
