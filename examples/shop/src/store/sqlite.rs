//! The embedded database: a file, read through the page cache by every connection.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rusqlite::config::DbConfig;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OpenFlags, ToSql, params_from_iter};

use super::Row;
use super::sink::{Cell, Sink};
use super::sql::{INDEXES, TABLES, Table};
use crate::catalogue::Catalogue;

/// More than the largest catalogue has; the operating system maps what is there.
const MAPPED_BYTES_MAX: i64 = 4 << 30;

/// A connection that only reads.
#[derive(Debug)]
pub(crate) struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let open = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            // Else each query is planned anew for each item.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            connection.pragma_update(None, "mmap_size", MAPPED_BYTES_MAX)?;
            connection.pragma_update(None, "temp_store", "memory")?;
            // Nobody writes: one shared lock for good saves system calls in each query.
            connection.pragma_update(None, "locking_mode", "exclusive")?;
            connection.query_row("SELECT COUNT(*) FROM catalogue", [], |_| Ok(()))?;
            Ok::<_, rusqlite::Error>(connection)
        };
        let connection = open().with_context(|| {
            format!(
                "{} cannot be read as a catalogue of the shop (is it another program's file? \
                 name a file that does not exist and it is generated)",
                path.display()
            )
        })?;
        Ok(Self { connection })
    }

    pub(crate) fn query(
        &mut self,
        sql: &'static str,
        parameter: i64,
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([parameter])?;
        while let Some(row) = rows.next()? {
            each(row)?;
        }
        Ok(())
    }
}

impl Row for rusqlite::Row<'_> {
    fn integer(&self, column: usize) -> Result<i64> {
        Ok(self.get(column)?)
    }

    fn text(&self, column: usize) -> Result<String> {
        Ok(self.get(column)?)
    }
}

/// Writes a file beside `path` and gives it its name when it is whole: replicas that start together
/// may each generate the same catalogue, and none reads half of one.
pub(crate) fn generate(path: &Path, catalogue: Catalogue) -> Result<()> {
    if path.exists() {
        bail!("{} exists: remove it or name another file", path.display());
    }
    let draft = draft_of(path);
    let written = write(&draft, catalogue).and_then(|()| Ok(fs::rename(&draft, path)?));
    if written.is_err() {
        // The error that matters is the first; there may be nothing to remove.
        let _ = fs::remove_file(&draft);
    }
    written.with_context(|| format!("cannot generate {}", path.display()))
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.draft", std::process::id()));
    name.into()
}

fn write(path: &Path, catalogue: Catalogue) -> Result<()> {
    let connection = Connection::open(path)?;
    // A draft that is cut short is never read, so nothing has to be undone.
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")?;
    for table in TABLES {
        connection.execute_batch(table.create)?;
    }
    catalogue.write(&mut Writer { connection: &connection })?;
    for index in INDEXES {
        connection.execute_batch(index)?;
    }
    connection.execute_batch("COMMIT; ANALYZE")?;
    connection.close().map_err(|(_, error)| error.into())
}

struct Writer<'a> {
    connection: &'a Connection,
}

impl Sink for Writer<'_> {
    fn insert(&mut self, table: &'static Table, cells: &[Cell<'_>]) -> Result<()> {
        self.connection.prepare_cached(table.insert)?.execute(params_from_iter(cells))?;
        Ok(())
    }
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Integer(value) => Ok(ToSqlOutput::from(*value)),
            Self::Text(value) => Ok(ToSqlOutput::from(*value)),
        }
    }
}
