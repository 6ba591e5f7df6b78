//! Files people write: TOML that says what is wrong with it, all at once and with the place.
//!
//! [`Node::parse`] turns a text into a tree in which every value knows where it was written,
//! [`Node::set`] overlays `--set path=value`, and [`Node::read`] takes settings out of the tree.
//! Durations, sizes, rates and shares are written with units; flags use the same parsers
//! ([`parse_duration`] and its kin).
//!
//! | room | reads |
//! |---|---|
//! | `document`, `overlay` | texts as trees with places, `--set` |
//! | `reader`, `units`, `problem` | values out of a tree, with units, and what is wrong with them |
//! | [`address`], [`common`], [`shared`] | what several kinds of file have: addresses, names, tables |
//! | [`profile`] | measured response curves of a data centre |
//! | [`placement`] | round trips, counts and domains for `plan placement` |
//! | [`prices`] | what things cost, for all that goes by price |
//! | [`duplicates`] | instances for `plan duplicates` |
//!
//! ```
//! use evenkeel_settings::{Mismatch, Node, Table};
//! use std::{net::SocketAddr, time::Duration};
//!
//! const MS: Duration = Duration::from_millis(1);
//!
//! struct Upstream { replicas: Vec<SocketAddr>, connect: Duration, hedge: Option<f64> }
//!
//! impl Upstream {
//!     fn read(table: &mut Table<'_>) -> Self {
//!         let replicas = table.key("replicas").list(|item| item.address().required()).required();
//!         let connect = table.key("connect").duration().between(MS..=1000 * MS).or(30 * MS);
//!         let hedge = table.key("hedge").probability().optional();
//!         if table.is_sound() && hedge.is_some() && replicas.len() < 2 {
//!             table.problem("hedge", Mismatch::new("one replica", "two or more to hedge with"));
//!         }
//!         Self { replicas, connect, hedge }
//!     }
//! }
//!
//! let mut node = Node::parse("[shop]\nreplicas = ['127.0.0.1:80']\nconect = '30ms'", "run.toml")?;
//! node.set("shop.hedge=95%")?;
//! let shop = node.read(|root| root.key("shop").table(Upstream::read).required());
//! assert_eq!(
//!     shop.err().unwrap().to_string(),
//!     "run.toml:3:10: shop: got the unknown key \"conect\", \
//!      expected one of replicas, connect, hedge; did you mean \"connect\"?\n\
//!      --set shop.hedge=95%: shop.hedge: got one replica, expected two or more to hedge with"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod address;
mod changes;
pub mod common;
mod document;
pub mod duplicates;
mod overlay;
pub mod placement;
pub mod prices;
mod problem;
pub mod profile;
mod reader;
pub mod shared;
mod units;

pub use document::{DOCUMENT_BYTES_MAX, Node, Value};
pub use problem::{Mismatch, Place, Problem, Problems};
pub use reader::{Quantity, Reading, Setting, Table, Whole};
pub use units::{format_duration, parse_bytes, parse_duration, parse_rate, parse_share};
