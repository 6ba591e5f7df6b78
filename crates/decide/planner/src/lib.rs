//! Loop 3, every few minutes or hours: where leader, voters and replicas live.
//!
//! "Take me to your leader!" (Sharov, Shraer, Merchant, Stokely, VLDB 2015) in three tiers, each
//! with all that the one before it may choose: the leader among the voters, the voters among the
//! replicas, the replicas among the sites.
//!
//! | file | what it is |
//! |---|---|
//! | [`model`] | the words: sites, clients, operations, round trips, a layout |
//! | [`score`] | what operations take under a layout, equation 1 |
//! | [`history`] | the last intervals, and how much each still counts: equation 2 |
//! | [`domains`] | how far voters must be spread, and the fastest that are |
//! | [`leader`] | tier 1: who of the voters leads |
//! | [`voters`] | tier 2: who of the replicas votes and leads |
//! | [`replicas`] | tier 3 of one moment: which sites have a replica, exactly or by search |
//! | [`tier3`] | tier 3 over a whole past, with its runners-up |
//! | [`steps`] | from the layout there is to another, in single safe steps |
//! | [`tail`] | percentiles instead of means |
//! | [`steady`] | whether a better layout is worth a move |
//! | [`explain`] | why, as numbers |
//! | [`planner`] | one decision for one database |
//! | [`capacity`] | leaders of many databases, no site above its capacity |
//! | [`duplicates`] | stores that Evenkeel duplicates: how many partitions of how many duplicates |

pub mod capacity;
mod distributions;
pub mod domains;
pub mod duplicates;
pub mod explain;
mod folded;
pub mod history;
pub mod leader;
pub mod model;
pub mod planner;
pub mod replicas;
pub mod score;
pub mod steady;
pub mod steps;
pub mod tail;
pub mod tier3;
pub mod voters;
mod waits;

#[cfg(test)]
mod tests;
