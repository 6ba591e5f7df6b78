//! Real clusters of Cassandra and unmodified drivers, beside Evenkeel and through it.

#![cfg(target_os = "linux")]

#[path = "../common/cassandra/mod.rs"]
mod cassandra;

mod rig;
