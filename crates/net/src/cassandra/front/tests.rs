//! Clients in-process before a fake cluster.
