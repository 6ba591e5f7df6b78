//! PostgreSQL: a server of its own, spoken to by each thread over a connection of its own.
//!
//! The thread waits for its answer as it would in the embedded database, so a runtime without
//! threads drives the connection while a query runs and nothing does in between.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::pin::pin;

use anyhow::{Context as _, Result};
use axum::body::Bytes;
use futures_util::SinkExt as _;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, Statement};

use super::Row;
use super::sink::{Cell, Sink};
use super::sql::{INDEXES, TABLES, Table};
use crate::catalogue::Catalogue;

/// A connection with its prepared statements.
#[derive(Debug)]
pub(crate) struct Postgres {
    runtime: Runtime,
    client: Client,
    statements: HashMap<&'static str, Statement>,
}

impl Postgres {
    pub(crate) fn open(url: &str) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connected = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(async move {
                // The query that meets the end of its connection reports it.
                let _ = connection.await;
            });
            Ok::<_, tokio_postgres::Error>(client)
        });
        let client = connected.context(
            "cannot connect to PostgreSQL (is it running, and does the database exist? expected \
             postgres://user@host:port/database, without TLS)",
        )?;
        Ok(Self { runtime, client, statements: HashMap::new() })
    }

    pub(crate) fn query(
        &mut self,
        sql: &'static str,
        parameter: i64,
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let statement = self.prepared(sql)?;
        for row in self.runtime.block_on(self.client.query(&statement, &[&parameter]))? {
            each(&row)?;
        }
        Ok(())
    }

    fn prepared(&mut self, sql: &'static str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.runtime.block_on(self.client.prepare(sql))?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    fn execute(&mut self, sql: &str) -> Result<()> {
        Ok(self.runtime.block_on(self.client.batch_execute(sql))?)
    }

    fn copy(&mut self, table: &str, rows: String) -> Result<()> {
        let statement = format!("COPY {table} FROM STDIN");
        self.runtime.block_on(async {
            let mut sink = pin!(self.client.copy_in(&statement).await?);
            sink.send(Bytes::from(rows)).await?;
            sink.finish().await?;
            Ok(())
        })
    }
}

impl Row for tokio_postgres::Row {
    fn integer(&self, column: usize) -> Result<i64> {
        Ok(self.try_get(column)?)
    }

    fn text(&self, column: usize) -> Result<String> {
        Ok(self.try_get(column)?)
    }
}

/// Writes the catalogue in one transaction and says whether it did: replicas that start together
/// wait for the first, and find what they need.
pub(crate) fn generate_unless_there(url: &str, catalogue: Catalogue) -> Result<bool> {
    let mut postgres = Postgres::open(url)?;
    postgres.execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})"))?;
    if postgres.holds_catalogue()? {
        return Ok(false);
    }
    postgres.write(catalogue).context("cannot generate the catalogue in PostgreSQL")?;
    Ok(true)
}

/// The lock of who generates, among all advisory locks of a database: "shop" in ASCII.
const LOCK: i64 = 0x7368_6f70;

impl Postgres {
    fn holds_catalogue(&mut self) -> Result<bool> {
        let sql = "SELECT to_regclass('catalogue') IS NOT NULL";
        Ok(self.runtime.block_on(self.client.query_one(sql, &[]))?.try_get(0)?)
    }

    fn write(&mut self, catalogue: Catalogue) -> Result<()> {
        for table in TABLES {
            // In PostgreSQL INTEGER has 32 bits; SQLite needs the word for a key without index.
            self.execute(&table.create.replace("INTEGER", "BIGINT"))?;
        }
        let mut texts = Texts::default();
        catalogue.write(&mut texts)?;
        for table in TABLES {
            self.copy(table.name, texts.by_table.remove(table.name).unwrap_or_default())?;
        }
        for index in INDEXES {
            self.execute(index)?;
        }
        self.execute("COMMIT; ANALYZE")
    }
}

/// The rows of each table in the text format of COPY: a line for a row, tabs between columns.
#[derive(Default)]
struct Texts {
    by_table: HashMap<&'static str, String>,
}

impl Sink for Texts {
    fn insert(&mut self, table: &'static Table, cells: &[Cell<'_>]) -> Result<()> {
        let text = self.by_table.entry(table.name).or_default();
        for (column, cell) in cells.iter().enumerate() {
            if column > 0 {
                text.push('\t');
            }
            match cell {
                Cell::Integer(value) => write!(text, "{value}")?,
                Cell::Text(value) => push_escaped(text, value),
            }
        }
        text.push('\n');
        Ok(())
    }
}

fn push_escaped(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            other => text.push(other),
        }
    }
}
