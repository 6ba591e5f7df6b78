//! Serve less rather than fail: a tower layer that leaves out optional content while a service has
//! more work than it can do in time.
//!
//! [`BrownoutLayer`] stands around any `Service<http::Request<B>>` that answers with a
//! `http::Response` (axum, tonic, hyper). It measures response times, and a controller sets the
//! *dimmer*, the share of optional content, so that their 95th percentile stays at a setpoint. Each
//! request carries a [`Brownout`] in its extensions, and a handler asks it:
//!
//! ```
//! # use evenkeel_brownout::Brownout;
//! async fn item(brownout: Brownout) -> String {
//!     let mut page = String::from("the item");
//!     if brownout.optional("recommendations") {
//!         page.push_str("and what goes with it");
//!     }
//!     page
//! }
//! ```
//!
//! | room | does |
//! |---|---|
//! | `settings` | what people choose, checked before anything is served |
//! | `layer` | the life of a request: arrive, be served, end on every path |
//! | `decision` | what one request may have, and what it asked for |
//! | `headers` | decisions to and from headers; what a lean response may say |
//! | `controller` | core's controller behind one lock and one clock |
//! | `extract` | the axum extractor (feature `axum`) |
//!
//! Nothing is decided here: the laws are those of `evenkeel-core`, which the agent and the
//! simulator also drive. No task runs and no runtime is needed, since the requests themselves bring
//! the controller's clock forward.
//!
//! **Which response time**: from the call of the layer until the head of the response is ready,
//! where it is decided and mostly computed what the page holds. The time in which a body is read is
//! also its reader's: one slow phone must not dim the pages of everybody. **When it misleads**: a
//! handler that streams computes after its head, and that work is not seen; a `ConcurrencyLimit`
//! *inside* the layer makes requests wait before it is called, and that wait is not seen either.
//! Let requests wait in the handler, on a semaphore or a pool of connections.

mod controller;
mod decision;
#[cfg(feature = "axum")]
mod extract;
mod headers;
mod layer;
mod settings;

pub use controller::BrownoutHandle;
pub use decision::Brownout;
pub use evenkeel_core::dimmer::{DimmerState, Law};
pub use evenkeel_core::units::Dimmer;
pub use headers::{DIMMER, OPTIONAL, SERVED};
pub use layer::{BrownoutLayer, BrownoutService, ResponseFuture};
pub use settings::{Inbound, Session, Settings, SettingsError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
