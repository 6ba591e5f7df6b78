//! What the driver for Rust sees of a cluster: driver HOST PORT VERSION COMPRESSION KEYSPACE.
//!
//! Prints one line for each thing tried. Lines that begin with `~` may rightly differ between a
//! node and a proxy; all others may not. This driver speaks version 4, whatever is asked.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use futures::future::try_join_all;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::Strategy;
use scylla::frame::Compression;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::{Consistency, SerialConsistency, Statement};
use scylla::value::{Counter, CqlTimestamp, CqlTimeuuid, MaybeUnset, Row};

type Done = Result<(), Box<dyn Error>>;

struct Asked {
    address: String,
    compression: Option<Compression>,
    keyspace: String,
}

async fn connected(asked: &Asked) -> Result<Session, Box<dyn Error>> {
    let policy =
        DefaultPolicy::builder().prefer_datacenter("east".to_owned()).token_aware(true).build();
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::LocalQuorum)
        .request_timeout(Some(Duration::from_secs(30)))
        .load_balancing_policy(policy)
        .build();
    let builder = SessionBuilder::new()
        .known_node(&asked.address)
        .compression(asked.compression)
        .connection_timeout(Duration::from_secs(20))
        .default_execution_profile_handle(profile.into_handle());
    Ok(builder.build().await?)
}

async fn told(session: &Session, what: &str, text: &str, values: impl SerializeRow) -> Done {
    say(what, session.query_unpaged(text, values).await?)
}

fn say(what: &str, result: QueryResult) -> Done {
    let Ok(rows) = result.into_rows_result() else {
        println!("{what}: no rows");
        return Ok(());
    };
    for row in rows.rows::<Row>()? {
        println!("{what} {:?}", row?.columns);
    }
    Ok(())
}

async fn schema(session: &Session, keyspace: &str) -> Done {
    let replication = "{'class': 'NetworkTopologyStrategy', 'east': 1, 'west': 1}";
    for statement in [
        format!("DROP KEYSPACE IF EXISTS {keyspace}"),
        format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}"),
    ] {
        session.query_unpaged(statement, ()).await?;
    }
    session.use_keyspace(keyspace, false).await?;
    for statement in [
        "CREATE TABLE many (k text, c int, b bigint, bl blob, bo boolean, do double, \
         l frozen<list<int>>, m map<text, int>, s set<int>, ts timestamp, tu timeuuid, \
         x tuple<int, text>, st int static, PRIMARY KEY (k, c))",
        "CREATE TABLE counts (k text PRIMARY KEY, n counter)",
        "CREATE TABLE plain (k int PRIMARY KEY, v text)",
        "CREATE TABLE pairs (a int, b text, c int, v int, PRIMARY KEY ((a, b), c))",
    ] {
        session.query_unpaged(statement, ()).await?;
    }
    Ok(())
}

async fn types(session: &Session) -> Done {
    let insert = "INSERT INTO many (k, c, b, bl, bo, do, l, m, s, ts, tu, x, st) \
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let insert = session.prepare(insert).await?;
    let bound = insert.get_variable_col_specs();
    println!("bind {:?}", bound.iter().map(|one| (one.name(), one.typ())).collect::<Vec<_>>());
    println!("token aware {}", insert.is_token_aware());
    let timed: CqlTimeuuid = "50554d6e-29bb-11e5-b345-feff819cdc9f".parse()?;
    let map = BTreeMap::from([("a", 1)]);
    let (blob, at) = (vec![0_u8, 255], CqlTimestamp(1_614_834_367_000));
    let values = (
        "key",
        1,
        1_i64 << 40,
        blob,
        true,
        2.5,
        vec![1, 2],
        map,
        vec![3, 4],
        at,
        timed,
        (9, "x"),
        77,
    );
    session.execute_unpaged(&insert, values).await?;
    let select = session.prepare("SELECT * FROM many WHERE k = ?").await?;
    say("row", session.execute_unpaged(&select, ("key",)).await?)?;
    let few = session.prepare("INSERT INTO many (k, c, b, st) VALUES (?, ?, ?, ?)").await?;
    let unset: MaybeUnset<i32> = MaybeUnset::Unset;
    session.execute_unpaged(&few, ("key", 2, None::<i64>, unset)).await?;
    told(session, "nulls", "SELECT c, b, st FROM many WHERE k = 'key'", ()).await?;
    told(session, "simple", "SELECT c FROM many WHERE k = ?", ("key",)).await?;
    let pairs = session.prepare("INSERT INTO pairs (a, b, c, v) VALUES (?, ?, ?, ?)").await?;
    for number in 0..50 {
        let text = "x".repeat(number as usize % 3);
        session.execute_unpaged(&pairs, (number % 5, text, number, number)).await?;
    }
    let read = session.prepare("SELECT v FROM pairs WHERE a = ? AND b = ?").await?;
    for a in 0..5 {
        say("composite", session.execute_unpaged(&read, (a, "x")).await?)?;
    }
    Ok(())
}

async fn paging(session: &Session) -> Done {
    let insert = session.prepare("INSERT INTO plain (k, v) VALUES (?, ?)").await?;
    let all = (0..500).map(|k| session.execute_unpaged(&insert, (k, format!("value {k}"))));
    try_join_all(all).await?;
    let mut select = session.prepare("SELECT k FROM plain").await?;
    select.set_page_size(37);
    let (mut state, mut pages, mut rows) = (PagingState::start(), Vec::new(), Vec::new());
    loop {
        let (result, next) = session.execute_single_page(&select, (), state).await?;
        let page = result.into_rows_result()?;
        pages.push(page.rows_num());
        for row in page.rows::<(i32,)>()? {
            rows.push(row?.0);
        }
        match next {
            PagingStateResponse::HasMorePages { state: next } => state = next,
            PagingStateResponse::NoMorePages => break,
        }
    }
    println!("pages {pages:?} order {:?} {}", &rows[..20], rows.len());
    Ok(())
}

async fn batches(session: &Session) -> Done {
    let insert = session.prepare("INSERT INTO plain (k, v) VALUES (?, ?)").await?;
    for kind in [BatchType::Logged, BatchType::Unlogged] {
        let (mut batch, mut values) = (Batch::new(kind), Vec::new());
        for k in 1000..1015 {
            batch.append_statement(insert.clone());
            values.push((k, format!("{kind:?}")));
        }
        let done = session.batch(&batch, values).await?;
        println!("warnings {:?}", done.warnings().collect::<Vec<_>>());
        told(session, "batch", "SELECT k, v FROM plain WHERE k IN (1000, 1003)", ()).await?;
    }
    let mut batch = Batch::new(BatchType::Counter);
    for _ in 0..4 {
        batch.append_statement("UPDATE counts SET n = n + ? WHERE k = ?");
    }
    let values: Vec<_> =
        (0..4_i64).map(|number| (Counter(number), format!("c{}", number % 2))).collect();
    session.batch(&batch, values).await?;
    session.query_unpaged("UPDATE counts SET n = n - 1 WHERE k = 'c0'", ()).await?;
    told(session, "counts", "SELECT * FROM counts", ()).await
}

async fn conditions(session: &Session) -> Done {
    let insert = "INSERT INTO plain (k, v) VALUES (5000, 'first') IF NOT EXISTS";
    told(session, "applied", insert, ()).await?;
    told(session, "applied", insert, ()).await?;
    let mut update = session.prepare("UPDATE plain SET v = ? WHERE k = 5000 IF v = ?").await?;
    update.set_serial_consistency(Some(SerialConsistency::LocalSerial));
    for expected in ["wrong", "first"] {
        say("update", session.execute_unpaged(&update, ("second", expected)).await?)?;
    }
    let mut serial = Statement::new("SELECT v FROM plain WHERE k = 5000");
    serial.set_consistency(Consistency::Serial);
    say("serial", session.query_unpaged(serial, ()).await?)
}

async fn extras(session: &Session) -> Done {
    let mut traced = Statement::new("SELECT v FROM plain WHERE k = 5000");
    traced.set_tracing(true);
    let id = session.query_unpaged(traced, ()).await?.tracing_id().ok_or("no tracing id")?;
    let trace = session.get_tracing_info(&id).await?;
    println!("trace {:?} {}", trace.request, !trace.events.is_empty());
    let mut stamped = session.prepare("INSERT INTO plain (k, v) VALUES (?, ?)").await?;
    stamped.set_timestamp(Some(1_234_567));
    session.execute_unpaged(&stamped, (6000, "x")).await?;
    told(session, "writetime", "SELECT WRITETIME(v) FROM plain WHERE k = 6000", ()).await?;
    session.execute_unpaged(&stamped, (7000, "large ".repeat(100_000))).await?;
    let large = session.query_unpaged("SELECT v FROM plain WHERE k = 7000", ()).await?;
    println!("large {}", large.into_rows_result()?.single_row::<(String,)>()?.0.len());
    Ok(())
}

async fn failures(session: &Session) -> Done {
    for text in [
        "SELEKT 1",
        "SELECT nothing FROM plain",
        "SELECT * FROM no_such_table",
        "CREATE TABLE plain (k int PRIMARY KEY)",
        "SELECT * FROM plain WHERE v = 'x'",
    ] {
        println!("error {:?}", session.query_unpaged(text, ()).await.map(|_| ()));
    }
    let mut three = Statement::new("SELECT * FROM plain WHERE k = 1");
    three.set_consistency(Consistency::Three);
    println!("error {:?}", session.query_unpaged(three, ()).await.map(|_| ()));
    Ok(())
}

async fn metadata(session: &Session, asked: &Asked) -> Done {
    session.refresh_metadata().await?;
    let state = session.get_cluster_state();
    let known = state.get_keyspace(&asked.keyspace).ok_or("no keyspace")?;
    let mut tables: Vec<_> = known.tables.iter().collect();
    tables.sort_by_key(|(name, _)| *name);
    for (name, table) in tables {
        println!("table {name} {:?} {:?}", table.partition_key, table.clustering_key);
    }
    if let Strategy::NetworkTopologyStrategy { datacenter_repfactors } = &known.strategy {
        let factors: BTreeMap<_, _> = datacenter_repfactors.iter().collect();
        println!("replication {factors:?}");
    }
    let other = connected(asked).await?;
    let select = session.prepare("SELECT * FROM plain WHERE k = ?").await?;
    say("before", session.execute_unpaged(&select, (6000,)).await?)?;
    other.query_unpaged(format!("ALTER TABLE {}.plain ADD more int", asked.keyspace), ()).await?;
    session.await_schema_agreement().await?;
    let again = session.prepare("SELECT * FROM plain WHERE k = ?  ").await?;
    say("altered", session.execute_unpaged(&again, (6000,)).await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, port, _, compression, keyspace] = &arguments[..] else {
        return Err("expected HOST PORT VERSION COMPRESSION KEYSPACE".into());
    };
    let compression = match compression.as_str() {
        "lz4" => Some(Compression::Lz4),
        "snappy" => Some(Compression::Snappy),
        _ => None,
    };
    let address = format!("{host}:{port}");
    let asked = Asked { address, compression, keyspace: keyspace.clone() };
    let session = connected(&asked).await?;
    for node in session.get_cluster_state().get_nodes_info() {
        println!("~host {:?} {:?} {:?}", node.address, node.datacenter, node.rack);
    }
    schema(&session, keyspace).await?;
    types(&session).await?;
    paging(&session).await?;
    batches(&session).await?;
    conditions(&session).await?;
    extras(&session).await?;
    failures(&session).await?;
    metadata(&session, &asked).await?;
    session.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await?;
    println!("done");
    Ok(())
}
