//! One store that is a duplicate: how it is reached, asked, checked and fenced off, before the
//! engine sends it what clients write; what it is asked beside, so that all duplicates are alike.
//!
//! | room | what it is |
//! |---|---|
//! | [`connect`] | a connection that is asked one thing after the other |
//! | [`all_keys`] | every key that it holds, page by page |
//! | [`compared`] | what it says of keys, compared with the others |
//! | [`expiry`] | keys at their deadlines, and which had gone before it did something for all |
//! | [`read_counts`] | how many entries of a stream a consumer group has read |
//! | [`cluster_node`] | whether a node of a Redis Cluster can be one |
//! | [`redis_check`] | whether a Redis can be a duplicate |
//! | [`fencing`] | whose a duplicate is: only the latest leader may write |
//! | [`inbox`] | bytes that have arrived and are not yet understood |

pub mod all_keys;
pub mod cluster_node;
pub mod compared;
pub mod connect;
pub mod expiry;
pub mod fencing;
pub mod inbox;
pub mod read_counts;
pub mod redis_check;
