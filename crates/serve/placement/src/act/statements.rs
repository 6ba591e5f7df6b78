//! What a database administrator would type for a layout: for systems that Evenkeel does not drive.
//!
//! | system | leader | voters and replicas | documentation |
//! |---|---|---|---|
//! | CockroachDB 21.1+ | `lease_preferences` | `num_voters`, `voter_constraints`, `num_replicas`, `constraints` | [CONFIGURE ZONE](https://www.cockroachlabs.com/docs/stable/alter-database#configure-zone) |
//! | YugabyteDB | `set_preferred_zones` | `modify_placement_info`, `add_read_replica_placement_info` | [yb-admin](https://docs.yugabyte.com/preview/admin/yb-admin/) |
//! | TiDB 6.6+ | `LEADER_CONSTRAINTS` | `FOLLOWER_CONSTRAINTS`, `LEARNER_CONSTRAINTS` | [Placement Rules in SQL](https://docs.pingcap.com/tidb/stable/placement-rules-in-sql) |
//!
//! Sites are named as the system knows them: by the value of its `region` label (CockroachDB: the
//! locality tier `region`), for YugabyteDB as `cloud.region.zone`. Names of places stand within
//! YAML, within strings, within a shell's words; so they are checked to be letters, digits and
//! `-_.`, and not quoted in three ways. Names of databases may be anything that the system takes,
//! and are quoted.
//!
//! These systems move data by themselves, in the background and a range at a time, once they have
//! been told, and each lot of statements ends with one that shows how far it is.
//!
//! **None of this was run**: no such system was at hand. What is printed follows the documentation
//! above, and tests read it back with readers of the documented grammars. Rules that the systems
//! check beyond their grammar, and that are checked here: CockroachDB refuses two voters ("at least
//! 3 voting replicas are required for multi-replica configurations"), YugabyteDB wants its
//! preferred zone among those of the placement, TiDB's policies have one leader and at least one
//! follower.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use evenkeel_planner::model::Layout;

use super::StepError;

evenkeel_core::named! {
    /// Whose words.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum System {
        /// Zones of a database, in SQL.
        CockroachDb = "cockroachdb",
        /// Placement of a whole cluster, as `yb-admin` commands.
        YugabyteDb = "yugabytedb",
        /// Placement policies, in SQL.
        TiDb = "tidb",
    }
}

impl System {
    /// The one of a name.
    ///
    /// # Errors
    /// With the names there are.
    pub fn parse(name: &str) -> Result<Self, StepError> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let unknown = || StepError::UnknownSystem { came: name.to_owned(), known: known() };
        Self::named(name).ok_or_else(unknown)
    }
}

/// What is placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Subject<'a> {
    /// The database. YugabyteDB places all of a cluster's.
    pub database: &'a str,
    /// TiDB: its tables that are there already, since a database's policy is for new ones only.
    pub tables: &'a [String],
    /// YugabyteDB: where its masters are, `host:port` with commas between; empty = its default.
    pub masters: &'a str,
}

/// Statements or commands, one an item, in the order in which they are to be run. Those that begin
/// with `--` or `#` are remarks.
///
/// # Errors
/// When a name is none that the system can have, or the layout none that it can be told.
pub fn statements(
    system: System,
    layout: &Layout,
    sites: &[String],
    subject: &Subject<'_>,
) -> Result<Vec<String>, StepError> {
    let known = sites.len();
    layout.check(known).map_err(StepError::Layout)?;
    for site in layout.replicas() {
        check_place(&sites[*site])?;
    }
    match system {
        System::CockroachDb => cockroachdb(layout, sites, subject.database),
        System::YugabyteDb => yugabytedb(layout, sites, subject.masters),
        System::TiDb => tidb(layout, sites, subject),
    }
}

/// `ALTER DATABASE … CONFIGURE ZONE USING variable = value, …`. A count for every region fixes all
/// replicas; `voter_constraints` say which of them vote, and without `num_voters` all do.
fn cockroachdb(
    layout: &Layout,
    sites: &[String],
    database: &str,
) -> Result<Vec<String>, StepError> {
    let name = quoted(database, '"', CHARACTERS_MAX)?;
    if layout.voters().len() == 2 {
        return Err(StepError::Voters(
            "two voters came, one or at least three were expected: CockroachDB refuses two",
        ));
    }
    let replicas = counted(layout.replicas().iter().map(|site| &*sites[*site]));
    let voters = counted(layout.voters().iter().map(|site| &*sites[*site]));
    let leader = &sites[layout.leader()];
    let zone = format!(
        "ALTER DATABASE {name} CONFIGURE ZONE USING num_replicas = {}, num_voters = {}, \
         constraints = '{}', voter_constraints = '{}', lease_preferences = '[[+region={leader}]]';",
        layout.replicas().len(),
        layout.voters().len(),
        by_region(&replicas),
        by_region(&voters),
    );
    Ok(vec![
        "-- Regions are values of the locality tier region: SHOW REGIONS FROM CLUSTER.".to_owned(),
        "-- A database with a PRIMARY REGION makes its zones itself and refuses this.".to_owned(),
        zone,
        format!("SHOW ZONE CONFIGURATION FROM DATABASE {name};"),
        "SELECT * FROM system.replication_constraint_stats WHERE violating_ranges > 0;".to_owned(),
    ])
}

/// `modify_placement_info <cloud.region.zone>:<least replicas>,… <replicas>`, then
/// `set_preferred_zones <cloud.region.zone>:<preference>`, which wants the placement beforehand.
/// How far it is says `get_is_load_balancer_idle`: `get_load_move_completion` tells of servers that
/// were blacklisted only.
fn yugabytedb(layout: &Layout, sites: &[String], masters: &str) -> Result<Vec<String>, StepError> {
    for site in layout.replicas() {
        let parts: Vec<&str> = sites[*site].split('.').collect();
        if parts.len() != 3 || parts.iter().any(|part| part.is_empty()) {
            return Err(not_a_name("site", &sites[*site], "cloud.region.zone was expected"));
        }
    }
    let command = match masters {
        "" => "yb-admin".to_owned(),
        masters => {
            check_masters(masters)?;
            format!("yb-admin --master_addresses {masters}")
        }
    };
    let placed = |of: &[usize]| {
        let counts = counted(of.iter().map(|site| &*sites[*site]));
        let blocks: Vec<_> = counts.iter().map(|(zone, count)| format!("{zone}:{count}")).collect();
        format!("{} {}", blocks.join(","), of.len())
    };
    let mut lines = vec![
        "# For all databases of the cluster but those in tablespaces of their own.".to_owned(),
        format!("{command} modify_placement_info {}", placed(layout.voters())),
        format!("{command} set_preferred_zones {}:1", sites[layout.leader()]),
    ];
    let learners: Vec<usize> = without_vote(layout);
    if !learners.is_empty() {
        let remarks = [
            "# A read replica cluster: its servers are started with a placement_uuid of their",
            "# own. Where there is one already, modify_read_replica_placement_info instead.",
        ];
        lines.extend(remarks.map(str::to_owned));
        lines.push(format!("{command} add_read_replica_placement_info {}", placed(&learners)));
    }
    lines.push(format!("{command} get_is_load_balancer_idle"));
    Ok(lines)
}

/// A policy named after the database, made or changed, and given to it and to its tables. One
/// leader, so its constraints are a list; those of followers and learners are a dictionary, whose
/// counts are their numbers.
fn tidb(
    layout: &Layout,
    sites: &[String],
    subject: &Subject<'_>,
) -> Result<Vec<String>, StepError> {
    let database = quoted(subject.database, '`', 64)?;
    let policy = quoted(&format!("evenkeel_{}", subject.database), '`', 64)?;
    let leader = layout.leader();
    let followers: Vec<usize> =
        layout.voters().iter().copied().filter(|site| *site != leader).collect();
    if followers.is_empty() {
        return Err(StepError::Voters(
            "one voter came, two or more were expected: what TiDB makes of a policy without \
             followers is not documented",
        ));
    }
    let counts = |of: &[usize]| by_region(&counted(of.iter().map(|site| &*sites[*site])));
    let mut options = format!(
        "LEADER_CONSTRAINTS='[+region={}]' FOLLOWER_CONSTRAINTS='{}'",
        sites[leader],
        counts(&followers)
    );
    let learners = without_vote(layout);
    if !learners.is_empty() {
        let _ = write!(options, " LEARNER_CONSTRAINTS='{}'", counts(&learners));
    }
    let mut lines = vec![
        "-- Regions are values of TiKV's label region: SHOW PLACEMENT LABELS.".to_owned(),
        format!("CREATE PLACEMENT POLICY IF NOT EXISTS {policy} {options};"),
        format!("ALTER PLACEMENT POLICY {policy} {options};"),
        "-- For tables that will be made; those that are there have their own.".to_owned(),
        format!("ALTER DATABASE {database} PLACEMENT POLICY={policy};"),
    ];
    for table in subject.tables {
        let table = quoted(table, '`', 64)?;
        lines.push(format!("ALTER TABLE {database}.{table} PLACEMENT POLICY={policy};"));
    }
    lines.push(format!("SHOW PLACEMENT FOR DATABASE {database};"));
    Ok(lines)
}

fn without_vote(layout: &Layout) -> Vec<usize> {
    layout.replicas().iter().copied().filter(|site| !layout.has_voter(*site)).collect()
}

/// How many there are of each, in order of the names.
fn counted<'a>(places: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for place in places {
        *counts.entry(place).or_default() += 1;
    }
    counts
}

/// `{"+region=a": 1, "+region=b": 2}`: with a blank after the colon, without which TiDB's YAML
/// reads one long key.
fn by_region(counts: &BTreeMap<&str, usize>) -> String {
    let one = |(place, count): (&&str, &usize)| format!("\"+region={place}\": {count}");
    format!("{{{}}}", counts.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Longer names are mistakes.
const CHARACTERS_MAX: usize = 128;

fn not_a_name(what: &'static str, name: &str, expected: impl Into<String>) -> StepError {
    StepError::Name { what, name: name.to_owned(), expected: expected.into() }
}

fn check_place(name: &str) -> Result<(), StepError> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let begins = name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if begins && name.len() <= CHARACTERS_MAX && name.chars().all(is_plain) {
        return Ok(());
    }
    let expected = format!(
        "a name of letters, digits and -_. was expected, a letter or digit first, at most \
         {CHARACTERS_MAX}"
    );
    Err(not_a_name("site", name, expected))
}

fn check_masters(masters: &str) -> Result<(), StepError> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.[]:".contains(letter);
    let is_address = |text: &str| match text.rsplit_once(':') {
        Some((host, port)) => {
            !host.is_empty()
                && !host.starts_with('-')
                && host.chars().all(is_plain)
                && port.parse::<u16>().is_ok()
        }
        None => false,
    };
    if masters.split(',').all(is_address) {
        return Ok(());
    }
    Err(StepError::Masters(masters.to_owned()))
}

/// A name as an identifier, with the quote doubled within.
fn quoted(name: &str, quote: char, characters_max: usize) -> Result<String, StepError> {
    let length = name.chars().count();
    if length == 0 || length > characters_max || name.chars().any(char::is_control) {
        let expected = format!(
            "1 to {characters_max} characters were expected, none of them a control character"
        );
        return Err(not_a_name("name", name, expected));
    }
    // TiDB, as MySQL, drops blanks at the end.
    if name.ends_with(' ') {
        return Err(not_a_name("name", name, "no blank at its end was expected"));
    }
    Ok(format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}"))))
}

#[cfg(test)]
mod tests;
