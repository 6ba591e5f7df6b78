//! Take me to your leader! Online Optimization of Distributed Storage Configurations (Sharov,
//! Shraer, Merchant, Stokely; VLDB 2015).
//!
//! The claims, how each is checked and why some cannot be are in `papers/leader/`; the fleet of
//! databases is the shipped scenario's.

use crate::Paper;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "leader",
    claims: include_str!("../../../../papers/leader/claims.toml"),
    scenarios: &[("leader-day", include_str!("../../../../scenarios/leader-day.toml"))],
    reference: None,
};
