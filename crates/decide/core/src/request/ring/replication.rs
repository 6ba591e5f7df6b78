//! What a keyspace's replication options mean.

use std::collections::BTreeMap;

/// How many nodes hold each key of a keyspace, and which.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Replication {
    /// The next nodes on the ring, wherever they are (`SimpleStrategy`).
    Simple {
        /// How many.
        replicas: usize,
    },
    /// So many nodes of each data centre, spread over its racks (`NetworkTopologyStrategy`).
    NetworkTopology(BTreeMap<String, usize>),
    /// Each node has data of its own (`LocalStrategy`: `system`, `system_schema`).
    Local,
    /// Every node holds every key (`EverywhereStrategy` of Cassandra's relatives).
    Everywhere,
}

impl Replication {
    /// Reads the options as `system_schema.keyspaces` has them. Class names may be short or have
    /// their package before them; a factor such as `3/1` (one of three is transient) counts 3.
    ///
    /// # Errors
    /// When there is no class, it is unknown, or a factor is missing or no number. Requests for
    /// such a keyspace should be treated like those that name none.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<Self, ReplicationError> {
        let class = options.get(CLASS).ok_or(ReplicationError::NoClass)?;
        match class.rsplit('.').next().unwrap_or_default() {
            "SimpleStrategy" => {
                let came = options.get(FACTOR).ok_or(ReplicationError::NoFactor)?;
                Ok(Self::Simple { replicas: factor(FACTOR, came)? })
            }
            "NetworkTopologyStrategy" => {
                let datacenters = options.iter().filter(|(option, _)| *option != CLASS);
                let read =
                    |(name, came): (&String, &String)| Ok((name.clone(), factor(name, came)?));
                datacenters.map(read).collect::<Result<_, _>>().map(Self::NetworkTopology)
            }
            "LocalStrategy" => Ok(Self::Local),
            "EverywhereStrategy" => Ok(Self::Everywhere),
            _ => Err(ReplicationError::UnknownClass(class.clone())),
        }
    }
}

const CLASS: &str = "class";
const FACTOR: &str = "replication_factor";

fn factor(option: &str, came: &str) -> Result<usize, ReplicationError> {
    let bad = || ReplicationError::BadFactor { option: option.to_owned(), came: came.to_owned() };
    let (all, transient) = came.split_once('/').unwrap_or((came, "0"));
    let all: u16 = all.trim().parse().map_err(|_| bad())?;
    let transient: u16 = transient.trim().parse().map_err(|_| bad())?;
    if transient > all { Err(bad()) } else { Ok(all.into()) }
}

/// Why replication options cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplicationError {
    /// There is no `class`.
    #[error("the replication options name no class")]
    NoClass,
    /// A class that is not known.
    #[error(
        "replication class \"{0}\" is unknown, expected SimpleStrategy, NetworkTopologyStrategy, \
         LocalStrategy or EverywhereStrategy"
    )]
    UnknownClass(String),
    /// `SimpleStrategy` without a factor.
    #[error("SimpleStrategy has no replication_factor")]
    NoFactor,
    /// A factor that is none.
    #[error(
        "replication option \"{option}\" came as \"{came}\", expected a number from 0 to 65535, \
         perhaps with the transient part of it behind a slash (3 or 3/1)"
    )]
    BadFactor {
        /// The option: a data centre, or `replication_factor`.
        option: String,
        /// What it said.
        came: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[(&str, &str)]) -> Result<Replication, ReplicationError> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        Replication::parse(&options.iter().map(owned).collect())
    }

    #[test]
    fn classes_are_known_by_their_short_and_their_full_names() {
        let simple = Ok(Replication::Simple { replicas: 3 });
        assert_eq!(parse(&[("class", "SimpleStrategy"), ("replication_factor", "3")]), simple);
        let class = "org.apache.cassandra.locator.SimpleStrategy";
        assert_eq!(parse(&[("class", class), ("replication_factor", "3/1")]), simple);
        let class = "org.apache.cassandra.locator.NetworkTopologyStrategy";
        let datacenters = [("east".to_owned(), 3), ("west".to_owned(), 0)].into();
        let read = parse(&[("class", class), ("east", "3"), ("west", "0")]);
        assert_eq!(read, Ok(Replication::NetworkTopology(datacenters)));
        assert_eq!(parse(&[("class", "LocalStrategy")]), Ok(Replication::Local));
        assert_eq!(parse(&[("class", "EverywhereStrategy")]), Ok(Replication::Everywhere));
    }

    #[test]
    fn errors_say_what_came_and_what_was_expected() {
        let error = |options: &[(&str, &str)]| parse(options).unwrap_err().to_string();
        assert_eq!(error(&[]), "the replication options name no class");
        assert!(error(&[("class", "a.MetaStrategy")]).contains("\"a.MetaStrategy\" is unknown"));
        let class = ("class", "SimpleStrategy");
        assert_eq!(error(&[class]), "SimpleStrategy has no replication_factor");
        for came in ["", "-1", "x", "1/2", "3/", "70000"] {
            let expected = format!("\"replication_factor\" came as \"{came}\", expected a number");
            assert!(error(&[class, ("replication_factor", came)]).contains(&expected));
        }
    }
}
