//! The keyspace and tables of a duplicate: made where they are missing, dropped when emptied.
//!
//! Names are looked up first: a user that may not make any can be given all of them, though then
//! a duplicate cannot be emptied.

use std::io;

use bytes::Bytes;
use evenkeel_cql::value;

use super::link::{Link, Step, rows};
use super::{CassandraAccess, CassandraSettings};

/// Keys are found by the tokens of this one.
const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";
/// The table that the first entries are in.
const FIRST: i64 = 1;
const ENTRIES: &str = "entries_";

/// Makes what is missing.
pub(super) async fn prepare(link: &mut Link, settings: &CassandraSettings) -> io::Result<()> {
    let name = &settings.keyspace;
    let local = link.query("SELECT partitioner, data_center FROM system.local").await?;
    let text = |bytes: Option<&[u8]>| bytes.and_then(value::text).map(str::to_owned);
    let local = rows(&local, |row| Some((text(row.at(0))?, text(row.at(1))?)))?.pop();
    let Some((partitioner, data_center)) = local else {
        return Err(io::Error::other("Cassandra: system.local has no row"));
    };
    if partitioner != PARTITIONER {
        let words = format!("Cassandra: its partitioner is {partitioner}, expected {PARTITIONER}");
        return Err(io::Error::other(words));
    }
    let found =
        format!("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = '{name}'");
    if rows(&link.query(&found).await?, |row| row.at(0).map(drop))?.is_empty() {
        let peers = link.query("SELECT peer FROM system.peers").await?;
        let is_alone = rows(&peers, |row| row.at(0).map(drop))?.is_empty();
        let replication = replication(&settings.access, is_alone.then_some(&data_center))
            .ok_or_else(|| {
                io::Error::other(format!(
                    "Cassandra: there is no keyspace {name}, and the cluster has several nodes: \
                     make it, or say how often each data centre keeps it, such as replicas = \
                     {{{data_center} = 3}}"
                ))
            })?;
        make(
            link,
            &format!("CREATE KEYSPACE IF NOT EXISTS \"{name}\" WITH replication = {replication}"),
        )
        .await?;
    }
    let tables = tables(link, name).await?;
    if !tables.iter().any(|table| generation(table).is_some()) {
        make_entries(link, settings, FIRST).await?;
    }
    if !tables.iter().any(|table| table == "journal") {
        let text = format!(
            "CREATE TABLE IF NOT EXISTS \"{name}\".journal (name text PRIMARY KEY, stamp bigint, \
             generation bigint, changes blob)"
        );
        make(link, &text).await?;
    }
    begin_journal(link, settings).await
}

/// The journal's row, if nothing has been written yet. Where entries are it would be too late: they
/// have later timestamps than those that begin again.
async fn begin_journal(link: &mut Link, settings: &CassandraSettings) -> io::Result<()> {
    let (name, level) = (&settings.keyspace, settings.access.quorum());
    let has_rows = |answer: Bytes| Ok(!rows(&answer, |row| row.at(0).map(drop))?.is_empty());
    let row = Step::new(format!("SELECT stamp FROM \"{name}\".journal WHERE name = 'last'"));
    if link.one(row, settings.access.serial()).await.and_then(has_rows)? {
        return Ok(());
    }
    let tables = tables(link, name).await?;
    for table in tables.iter().filter(|table| generation(table).is_some()) {
        let entries = Step::new(format!("SELECT key FROM \"{name}\".{table} LIMIT 1"));
        if generation(table) != Some(FIRST) || link.one(entries, level).await.and_then(has_rows)? {
            let words = format!(
                "Cassandra: the row of {name}.journal is missing, and {table} is not as it begins \
                 (was the journal truncated? drop the keyspace, and it is filled anew)"
            );
            return Err(io::Error::other(words));
        }
    }
    // Whoever made the tables may have ended before all nodes had them.
    link.agree().await?;
    let first = format!(
        "INSERT INTO \"{name}\".journal (name, stamp, generation) VALUES ('last', 0, {FIRST}) IF \
         NOT EXISTS"
    );
    link.one(Step::new(first), level).await.map(drop)
}

/// How a keyspace that is made keeps its rows; `alone` is the data centre of a cluster of one node.
pub(super) fn replication(access: &CassandraAccess, alone: Option<&String>) -> Option<String> {
    let mut places: Vec<(&String, usize)> =
        access.replicas.iter().map(|(place, &count)| (place, count)).collect();
    if places.is_empty() {
        places.push((alone?, 1));
    }
    let places = places.iter().map(|(place, count)| {
        let place = place.replace('\'', "''");
        format!(", '{place}': {count}")
    });
    let places: String = places.collect();
    Some(format!("{{'class': 'NetworkTopologyStrategy'{places}}}"))
}

/// A table of entries.
pub(super) async fn make_entries(
    link: &mut Link,
    settings: &CassandraSettings,
    generation: i64,
) -> io::Result<()> {
    let name = &settings.keyspace;
    // A table that was emptied is not wanted back: no snapshot of it.
    let text = format!(
        "CREATE TABLE IF NOT EXISTS \"{name}\".{ENTRIES}{generation} (key blob PRIMARY KEY, entry \
         blob) WITH allow_auto_snapshot = false"
    );
    make(link, &text).await
}

/// Drops the tables of entries before this one. Nobody has to have heard of it: none of them is
/// written to any more.
pub(super) async fn drop_before(
    link: &mut Link,
    settings: &CassandraSettings,
    present: i64,
) -> io::Result<()> {
    let name = &settings.keyspace;
    let tables = tables(link, name).await?;
    for table in tables.iter().filter(|table| generation(table).is_some_and(|it| it < present)) {
        link.query(&format!("DROP TABLE IF EXISTS \"{name}\".{table}")).await?;
    }
    Ok(())
}

/// The number in the name of a table of entries.
pub(super) fn generation(table: &str) -> Option<i64> {
    let number = table.strip_prefix(ENTRIES)?;
    number.parse().ok().filter(|number: &i64| *number > 0)
}

async fn tables(link: &mut Link, keyspace: &str) -> io::Result<Vec<String>> {
    let text =
        format!("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'");
    let answer = link.query(&text).await?;
    rows(&answer, |row| row.at(0).and_then(value::text).map(str::to_owned))
}

/// Makes something, and waits until all nodes have it.
async fn make(link: &mut Link, text: &str) -> io::Result<()> {
    link.query(text).await?;
    link.agree().await
}
