//! What can be said to the shop on its command line, checked where it enters.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{bail, ensure};

/// Serve the auction shop until SIGTERM or Ctrl-C.
///
/// Prints one line on stdout when it is ready: `listening on http://ADDRESS:PORT`.
#[derive(Debug, Clone, clap::Args)]
pub struct ShopArguments {
    /// Where the catalogue is kept and what it holds.
    #[command(flatten)]
    pub catalogue: CatalogueArguments,
    /// The address to listen on; port 0 lets the system choose a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Database threads, each with a connection of its own; what they cannot do yet waits in an
    /// unbounded queue.
    #[arg(long, default_value = "1", value_name = "THREADS")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Pretend that the database threads run on a machine of this times the speed, 0.001 to 1: a
    /// piece of work that took 1 ms of CPU time holds its thread for 1/SPEED ms. Only with the
    /// embedded database, whose work happens in the thread itself.
    #[arg(long, default_value = "1", value_name = "SPEED")]
    pub speed: Speed,
    /// What pages of items take, in place of what this machine needs for them: in each line an
    /// item, and the microseconds of its full and of its lean page. Only with the embedded
    /// database.
    #[arg(long, value_name = "FILE", conflicts_with = "speed")]
    pub costs: Option<PathBuf>,
    /// Stop at once when standard input ends: whoever started the shop is gone, however it died.
    #[arg(long)]
    pub until_stdin_ends: bool,
}

/// Where the catalogue is kept and what it holds.
#[derive(Debug, Clone, clap::Args)]
pub struct CatalogueArguments {
    /// A file for the embedded SQLite database, or postgres://… in a build with the feature
    /// `postgres`. Where there is no catalogue yet, one is generated.
    #[arg(long, default_value = "shop.db", value_name = "PATH|URL")]
    pub database: Place,
    /// How many items a generated catalogue has, 100 to 1000000 [default: 30000]. With an existing
    /// database: what it must have.
    #[arg(long, value_name = "ITEMS")]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub items: Option<u32>,
    /// The catalogue's seed: the same seed and number of items give the same catalogue
    /// [default: 1]. With an existing database: what it must have been generated from.
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u32>,
}

impl CatalogueArguments {
    /// The number of items to generate.
    pub(crate) fn items_or_default(&self) -> u32 {
        self.items.unwrap_or(30_000)
    }

    /// The seed to generate from.
    pub(crate) fn seed_or_default(&self) -> u32 {
        self.seed.unwrap_or(1)
    }
}

/// Which database, told apart by how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file of the embedded SQLite.
    File(PathBuf),
    /// The URL of a PostgreSQL server, `postgres://user@host:port/database`.
    #[cfg(feature = "postgres")]
    Server(String),
}

impl Place {
    /// Whether the database works inside the shop's own threads.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self, Self::File(_))
    }
}

impl FromStr for Place {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        ensure!(!text.is_empty(), "an empty name: expected a file or postgres://…");
        match text.split_once("://") {
            None => Ok(Self::File(text.into())),
            #[cfg(feature = "postgres")]
            Some(("postgres" | "postgresql", _)) => Ok(Self::Server(text.to_owned())),
            #[cfg(not(feature = "postgres"))]
            Some(("postgres" | "postgresql", _)) => {
                bail!("this build has no PostgreSQL: build it with `--features postgres`")
            }
            Some((scheme, _)) => bail!("`{scheme}://`: expected a file or postgres://…"),
        }
    }
}

/// How fast a machine the database threads pretend to have, relative to this one: 0.001 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed(f64);

impl Speed {
    /// This machine as it is.
    pub const FULL: Self = Self(1.0);

    /// The factor, 0.001 to 1.
    pub fn factor(self) -> f64 {
        self.0
    }

    /// How long such a machine takes for what took this one `cpu`; `None` when it is this one.
    pub(crate) fn slowed(self, cpu: Duration) -> Option<Duration> {
        (self != Self::FULL).then(|| cpu.div_f64(self.0))
    }
}

impl FromStr for Speed {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let factor: f64 = text.parse().unwrap_or(f64::NAN);
        ensure!((0.001..=1.0).contains(&factor), "expected a number from 0.001 to 1, such as 0.2");
        Ok(Self(factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_outside_its_range_is_refused() {
        assert_eq!("0.2".parse::<Speed>().unwrap().factor(), 0.2);
        assert_eq!("1".parse::<Speed>().unwrap(), Speed::FULL);
        for text in ["0", "-1", "1.01", "nan", "inf", "1e-300", "fast", ""] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_database_is_a_file_or_a_server() {
        assert_eq!("a/b.db".parse::<Place>().unwrap(), Place::File("a/b.db".into()));
        assert!("".parse::<Place>().is_err());
        assert!("mysql://x".parse::<Place>().unwrap_err().to_string().contains("mysql://"));
        assert_eq!("postgres://x/y".parse::<Place>().is_ok(), cfg!(feature = "postgres"));
    }
}
