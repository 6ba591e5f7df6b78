//! What people use today instead: limits in front of each replica that refuse what is too much,
//! where Evenkeel has a brownout, and ways to choose a data centre, where it has a plan.
//!
//! Not a product: they are here to be compared with, each as its source has it, with its defaults.
//!
//! | peer | refuses | from |
//! |---|---|---|
//! | [`Gradient`] | beyond a limit of concurrency that follows the latency | Netflix |
//! | [`Admission`] | at random, when too few succeed | Envoy, Google SRE |
//! | [`Shed`] | beyond a fixed number per core | everybody's first idea |
//!
//! | peer | sends elsewhere | from |
//! |---|---|---|
//! | [`waterfall`] | what is over a capacity, to the nearest with room | Google Cloud |
//! | [`Headroom`] | by headroom of utilisation | Envoy |
//! | [`Sticky`] | what a plan says, at the pace of DNS | the Kurma paper |
//! | [`LatencyAware`] | to all that are less than twice as slow as the fastest | Datastax |

mod admission;
mod gradient;
mod headroom;
mod latency_aware;
mod shed;
mod sticky;
mod waterfall;

pub use admission::Admission;
pub use gradient::Gradient;
pub use headroom::Headroom;
pub use latency_aware::LatencyAware;
pub use shed::Shed;
pub use sticky::Sticky;
pub use waterfall::waterfall;
