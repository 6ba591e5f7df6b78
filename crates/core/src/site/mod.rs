//! Loop 2, every few seconds: how much a site serves.
//!
//! | room | decides |
//! |---|---|
//! | [`dimmer`] | how many requests of one replica get their optional content |
//! | [`redirect`] | how much of each data centre's load is served where |

pub mod dimmer;
pub mod redirect;
