//! An auction shop in the manner of RUBiS, as an application under brownout.
//!
//! An item's page has a mandatory part (one indexed query: title, description, price, seller, last
//! bids) and two optional parts, in order of importance: `recommendations` ("people who bid on this
//! also bid on", a self-join over all bids of its bidders, about ten times the mandatory work) and
//! `comments` (one more indexed query). Whoever stands in front says with the request header
//! `Brownout-Optional` what there is time for; the shop's share of that is [`brownout`], a file of
//! one small parser, and one `if` for each part.
//!
//! Everything else is an ordinary application server, its weakness included: a fixed number of
//! database threads behind an unbounded first-come-first-served queue (`pool`). The pages are
//! worth looking at in both modes (`page`), and the data is generated (`catalogue`), the same for
//! the same seed. The shop knows nothing of Evenkeel.
//!
//! Source: RUBiS's item page and its recommender as used in "Improving Cloud Service Resilience
//! using Brownout-Aware Load-Balancing" (SRDS 2014).

mod arguments;
pub mod brownout;
mod catalogue;
mod costs;
mod measure;
mod pace;
mod page;
mod pool;
mod serve;
mod store;

pub use arguments::{CatalogueArguments, Place, ShopArguments, Speed};
pub use measure::{Cost, Costs, measure};
pub use serve::run;
pub use store::generate;
