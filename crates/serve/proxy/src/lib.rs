//! The calls of an upstream, whatever its protocol: core's decisions, and the one loop that carries
//! them out.
//!
//! | room | does |
//! |---|---|
//! | [`config`] | `[upstream.NAME]`: what every protocol has |
//! | [`calls`] | an upstream's calls as one worker sees them: dispatchers, attempts, guards |
//! | [`site_choice`], [`site_router`], [`site_setup`] | which data centre a request goes to, and which other may take it over |
//! | [`requests`] | what is kept of every request, to say why one was slow |
//! | [`upstream_state`] | where workers hand up what they counted, and who the replicas are |
//! | [`discovery`] | asks DNS and files for replicas, again and again |
//! | [`verdict`] | what health checks know of a replica |
//! | [`metrics`], [`status`], [`series`], [`view`] | that, for people and Prometheus |

pub mod calls;
pub mod config;
pub mod discovery;
pub mod membership;
pub mod metrics;
pub mod requests;
pub mod series;
pub mod site_choice;
mod site_metrics;
pub mod site_router;
pub mod site_setup;
pub mod status;
pub mod upstream_state;
pub mod verdict;
pub mod view;
