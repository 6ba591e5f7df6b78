//! A recorded day and the world it was recorded in, rebuilt from its rows.
//!
//! | room | says |
//! |---|---|
//! | [`rows`] | what is recorded: one row for each copy of a request |

pub mod rows;
