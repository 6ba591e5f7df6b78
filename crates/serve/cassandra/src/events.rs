//! What happens in the cluster, as far as it is for clients.
//!
//! A change of the schema is passed on in the words of the node that told it. Nodes that come, go,
//! start or stop are none of the clients' affair: they know proxies only, and would look for the
//! nodes, or close their connections to the wrong address. Of the other proxies nobody knows more
//! than a driver finds out by itself.
//!
//! A change that no node told ([`Notice::SchemaMissed`](super::cluster::Notice::SchemaMissed))
//! cannot be put into words. At a node, a driver would have lost its connection and begun anew: so
//! it does here.

use bytes::Bytes;
use evenkeel_cql::response::Event;

use super::cluster::ClusterEvent;

/// The body of the EVENT that clients get, if they get one.
pub(crate) fn body(event: &ClusterEvent) -> Option<&Bytes> {
    matches!(event.event(), Event::Schema(_)).then(|| event.body())
}
