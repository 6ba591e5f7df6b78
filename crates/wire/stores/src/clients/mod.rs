//! Clients of stores that are not Redis: REST over HTTP, etcd, ZooKeeper, NATS.

pub mod error;
pub mod etcd;
pub mod members;
pub mod nats;
pub mod rest;
mod talk;
pub mod zookeeper;
