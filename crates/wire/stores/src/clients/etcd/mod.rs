//! etcd, through its JSON gateway.

pub mod gateway;
pub mod wire;
