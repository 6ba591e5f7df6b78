//! What people use today instead of a brownout: a limit in front of each replica that refuses what
//! is too much. They serve full content or nothing.
//!
//! Not a product: they are here to be compared with, each as its source has it, with its defaults.
//!
//! | peer | refuses | from |
//! |---|---|---|
//! | [`Gradient`] | beyond a limit of concurrency that follows the latency | Netflix |
//! | [`Admission`] | at random, when too few succeed | Envoy, Google SRE |
//! | [`Shed`] | beyond a fixed number per core | everybody's first idea |

mod admission;
mod gradient;
mod shed;

pub use admission::Admission;
pub use gradient::Gradient;
pub use shed::Shed;
