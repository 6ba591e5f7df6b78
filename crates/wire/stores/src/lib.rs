//! How stores are spoken with.
//!
//! | room | does |
//! |---|---|
//! | [`resp`] | RESP2 and RESP3 as bytes: requests, replies, every command of Redis 7, rewriting |
//! | [`clients`] | REST, etcd, ZooKeeper, NATS |
//! | [`store`] | each kind of store as a duplicate behind RESP |

pub mod clients;
pub mod resp;
pub mod store;
