//! The study of replica selection for `adaptive`: can one policy win everywhere?
//!
//! No paper but our own: 25 settings, a stress set and settings that were drawn, each with the
//! policies of others beside it. The claims are the bars that make it the default.

use crate::Paper;

/// The study.
pub const PAPER: Paper = Paper {
    name: "adaptive",
    claims: include_str!("../../../../papers/adaptive/claims.toml"),
    scenarios: &[("service", include_str!("../../../../papers/adaptive/service.toml"))],
    reference: None,
};
