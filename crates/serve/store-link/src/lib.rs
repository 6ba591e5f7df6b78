//! One store that is a duplicate: how it is reached, asked, checked and fenced off, before the
//! engine sends it what clients write.
//!
//! | room | what it is |
//! |---|---|
//! | [`connect`] | a connection that is asked one thing after the other |
//! | [`all_keys`] | every key that it holds, page by page |
//! | [`redis_check`] | whether a Redis can be a duplicate |
//! | [`fencing`] | whose a duplicate is: only the latest leader may write |
//! | [`inbox`] | bytes that have arrived and are not yet understood |

pub mod all_keys;
pub mod connect;
pub mod fencing;
pub mod inbox;
pub mod redis_check;
