//! Why a store cannot be moved as it is described, or a step not be said: found before anybody is
//! asked. What stores answer is [`RemoteError`](evenkeel_stores::clients::error::Error).

use std::error::Error;
use std::io;
use std::time::Duration;

use evenkeel_planner::model::BadInput;
use serde_json::json;

/// What is wrong with settings, with a layout or with a name.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// No system has this name.
    #[error("system: {came} came, one of {known} was expected")]
    UnknownSystem {
        /// What came.
        came: String,
        /// Those there are.
        known: String,
    },
    /// The layout is none of these sites.
    #[error("{0}")]
    Layout(#[source] BadInput),
    /// The system takes no layout with so many voters: how many came and what it takes.
    #[error("{0}")]
    Voters(&'static str),
    /// A name that is none where it would stand.
    #[error("{what} {name:?}: {expected}")]
    Name {
        /// What is called so.
        what: &'static str,
        /// As it came.
        name: String,
        /// What was expected of it.
        expected: String,
    },
    /// No list of YugabyteDB's masters.
    #[error("masters: {0:?} came, host:port,host:port,… was expected")]
    Masters(String),
    /// No hours of a window.
    #[error("window \"{0}\": \"02:00-04:00\" was expected, two different times in UTC")]
    Hours(String),
    /// No day of a week.
    #[error("day \"{name}\" of a window: one of {} was expected", .known.join(", "))]
    Day {
        /// As it came.
        name: String,
        /// The names there are.
        known: &'static [&'static str],
    },
    /// Two sites have this name.
    #[error("two sites are called {0}")]
    SharedName(String),
    /// Two sites have one number.
    #[error("sites {} are both {number}", .sites.join(" and "))]
    SharedNumber {
        /// Their names.
        sites: [String; 2],
        /// The number of both.
        number: u32,
    },
    /// A site has an address in another form.
    #[error("site {site}: {key}: \"{came}\" came, {expected} was expected")]
    Address {
        /// Its name.
        site: String,
        /// The key of its table.
        key: &'static str,
        /// As it came.
        came: String,
        /// The form.
        expected: &'static str,
    },
    /// A site has a URL in another form.
    #[error("site {site}: {source}")]
    Url {
        /// Its name.
        site: String,
        /// What is wrong with the URL.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The stream's name is none: what was expected.
    #[error("stream: {0} was expected")]
    Stream(#[source] Box<dyn Error + Send + Sync>),
    /// A hold would end before it is renewed.
    #[error("hold: {came:?} came, {} s or more was expected", .least.as_secs())]
    Hold {
        /// How long it lasts.
        came: Duration,
        /// How long it must last.
        least: Duration,
    },
    /// A client of the store cannot be made: certificates, for instance.
    #[error("{0}")]
    Client(#[source] Box<dyn Error + Send + Sync>),
    /// The file of a password cannot be read.
    #[error("{0}")]
    Secret(#[from] io::Error),
    /// The site has no member, so the request lacks its number.
    #[error("POST {path} {}", unnumbered(.key, .site))]
    NoMember {
        /// Of the request.
        path: &'static str,
        /// Where the number would stand.
        key: &'static str,
        /// The name of the site.
        site: String,
    },
}

impl StepError {
    /// The site and what its URL was refused with.
    pub(super) fn url(site: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Url { site: site.to_owned(), source: source.into() }
    }

    /// Refuses two sites of one name.
    pub(super) fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Self> {
        let mut known = Vec::new();
        for name in names {
            if known.contains(&name) {
                return Err(Self::SharedName(name.to_owned()));
            }
            known.push(name);
        }
        Ok(())
    }
}

/// The body of a request that lacks the number of a site's member.
fn unnumbered(key: &str, site: &str) -> serde_json::Value {
    json!({key: format!("<the ID of {site}>")})
}
