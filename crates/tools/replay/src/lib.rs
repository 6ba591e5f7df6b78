//! A recorded day, played again with changes: what its tail would have been, or why nobody knows.
//!
//! | room | does |
//! |---|---|
//! | [`world`] | the rebuilt world as a scenario of the simulator |
//! | [`answer`] | backtest, slices, percentiles with intervals, refusals |
//! | [`bars`] | worlds whose truth is known: how often answers are right |

pub mod answer;
pub mod bars;
pub mod world;
