//! A recorded day as a directory of files.
//!
//! | room | says |
//! |---|---|
//! | [`manifest`] | `manifest.json`: what is known of the day beside its rows |
//! | [`columns`] | the columns of a file of rows |
//! | [`writer`] | files are written, closed, and removed when there are too many |
//! | [`reader`] | a day is read and checked |
//!
//! Rows are in Parquet with zstd, so that DuckDB and pandas read them too. The name of a closed
//! file has its number and a checksum of its bytes: `rows-000003-0123456789abcdef.parquet`. A file
//! that is still written ends with `.part`; its writer was stopped if nobody writes it. No row and
//! no name has an address, a URL, a header or a key.

pub mod columns;
mod error;
pub mod manifest;
pub mod reader;
pub mod writer;

pub use error::RecordsError;
pub use manifest::Manifest;
pub use reader::{Recorded, read, read_manifest, read_parts};
pub use writer::{DayWriter, Limits};
