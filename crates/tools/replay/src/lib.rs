//! A recorded day, played again with changes: what its tail would have been, or why nobody knows.
//!
//! | room | does |
//! |---|---|
//! | [`world`] | the rebuilt world as a scenario of the simulator |
//! | [`answer`] | backtest, slices, percentiles with intervals, refusals |
//! | [`observed`] | what is kept of the recorded day beside its world |
//! | [`share`] | the parts of a long day that one world plays |
//! | [`causes`] | what the slowest requests waited for |
//! | [`day`] | a recorded day from its files, joined with what agents saw, made ready |
//! | [`import`] | logs of other proxies, and spans, as a recorded day |
//! | [`question`] | what is asked about a day, and the reply |
//! | [`bars`] | worlds whose truth is known: how often answers are right |
//! | [`dimmed`] | worlds that dim: how often answers about setpoints are right |
//! | [`random`] | worlds that nobody chose: does a replay name the best policy? |

pub mod answer;
pub mod bars;
pub mod causes;
pub mod day;
pub mod dimmed;
pub mod import;
pub mod observed;
mod played;
pub mod question;
pub mod random;
pub mod share;
pub mod world;
