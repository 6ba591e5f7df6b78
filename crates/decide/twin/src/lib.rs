//! A recorded day and the world it was recorded in, rebuilt from its rows.
//!
//! | room | says |
//! |---|---|
//! | [`rows`] | what is recorded: one row for each copy of a request |
//! | [`join`] | what agents saw of copies joins the rows of a proxy |
//! | [`visits`] | when each copy came to its replica and left it |
//! | [`slots`] | how many a replica serves at once, and when each began |
//! | [`away`] | what of an answer's time no slot was held for |
//! | [`given_up`] | whether replicas work on what is given up |
//! | [`pauses`] | when a replica stood still |
//! | [`speeds`] | how fast each replica was, over time |
//! | [`works`] | what requests cost, apart from speeds and pauses |
//! | [`content`] | what requests cost with content left out |
//! | [`common`] | what two copies of a request have in common |
//! | [`twin`] | all of it: the world of the day |
//! | [`rebuild`] | a day is rebuilt, part by part where it is long |

pub mod away;
pub mod common;
pub mod content;
mod crowding;
mod draft;
pub mod given_up;
pub mod join;
mod order;
pub mod pauses;
pub mod rebuild;
pub mod rows;
pub mod slots;
pub mod speeds;
pub mod twin;
pub mod visits;
pub mod works;

pub use rebuild::Rebuilder;
pub use twin::Twin;
