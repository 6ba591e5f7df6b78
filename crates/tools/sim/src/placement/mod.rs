//! Loop 3 in virtual time: databases of a made-up company, and strategies that place their leaders.
//!
//! | file | what it is |
//! |---|---|
//! | [`geography`] | 48 regions with measured round trips |
//! | [`fleet`] | databases with the workloads that the paper describes |
//! | `baselines` | where administrators put leaders |
//! | [`day`] | strategies, scored interval by interval |
//! | [`input`] | the same as a scenario file |

mod baselines;
pub mod day;
pub mod fleet;
pub mod geography;
pub mod input;
