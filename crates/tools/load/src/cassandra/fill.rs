//! The table before the load: created, and every record written once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::super::{LoadError, PROGRESS_PERIOD, Stop};
use super::session::{Bound, Session, Statement, read, words};
use super::workload::{FIELDS, Values, key};
use super::{CassandraLoad, TABLE};
use evenkeel_runtime::accept::worker_runtime;

/// Records that are written at once on each connection.
const AT_ONCE: usize = 32;
/// How often a record is tried: nodes hear of a new table a moment after it was created.
const ATTEMPTS: u32 = 10;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(300);

/// What the writers share.
struct Filling {
    load: CassandraLoad,
    session: Session,
    insert: Statement,
    values: RefCell<Values>,
    next: Cell<u64>,
    stop: Stop,
}

pub(super) fn fill(
    load: &CassandraLoad,
    replication: Option<&str>,
    stop: &Stop,
    on_progress: impl FnMut(u64),
) -> Result<(), LoadError> {
    let runtime = worker_runtime().map_err(|error| LoadError::system("start a runtime", error))?;
    runtime.block_on(async {
        let session = Session::open(load).await?;
        create(load, replication, &session).await?;
        let columns = (0..FIELDS).map(|field| format!(", field{field}")).collect::<String>();
        let marks = ", ?".repeat(FIELDS);
        let table = load.target.table();
        let insert = format!("INSERT INTO {table} (y_id{columns}) VALUES (?{marks})");
        let insert = session.prepare(&insert).await?;
        let values = RefCell::new(Values::new(load.size, load.plan.seed)?);
        let (load, next, stop) = (load.clone(), Cell::new(0), stop.clone());
        write_all(Rc::new(Filling { load, session, insert, values, next, stop }), on_progress).await
    })
}

async fn create(
    load: &CassandraLoad,
    replication: Option<&str>,
    session: &Session,
) -> Result<(), LoadError> {
    let keyspace = &load.target.keyspace;
    if let Some(replication) = replication {
        let text = format!(
            "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" WITH replication = {replication}"
        );
        session.change(&text).await?;
    }
    let columns = (0..FIELDS).map(|field| format!(", field{field} text")).collect::<String>();
    let text = format!(
        "CREATE TABLE IF NOT EXISTS \"{keyspace}\".{TABLE} (y_id text PRIMARY KEY{columns})"
    );
    session.change(&text).await
}

async fn write_all(
    filling: Rc<Filling>,
    mut on_progress: impl FnMut(u64),
) -> Result<(), LoadError> {
    let start = |_| tokio::task::spawn_local(write_some(Rc::clone(&filling)));
    let writers = (0..filling.load.connections * AT_ONCE).map(start).collect::<Vec<_>>();
    for mut writer in writers {
        let done = loop {
            let done = tokio::time::timeout(PROGRESS_PERIOD, &mut writer).await;
            on_progress(filling.next.get().min(filling.load.records));
            if let Ok(done) = done {
                break done;
            }
        };
        done.unwrap_or_else(|panic| panic!("{panic}"))?;
    }
    Ok(())
}

/// Writes one record after another while there are some.
async fn write_some(filling: Rc<Filling>) -> Result<(), LoadError> {
    loop {
        let record = filling.next.get();
        if record >= filling.load.records || filling.stop.is_stopped() {
            return Ok(());
        }
        filling.next.set(record + 1);
        let name = key(record);
        let mut bound = Bound::new();
        bound.push(name.as_bytes());
        for _ in 0..FIELDS {
            bound.push(filling.values.borrow_mut().next());
        }
        filling.write(&name, &bound).await?;
    }
}

impl Filling {
    async fn write(&self, name: &str, bound: &Bound) -> Result<(), LoadError> {
        let mut attempts = 0;
        loop {
            let ask = self.session.execute(&self.insert, bound, true);
            let written = tokio::time::timeout(self.load.plan.timeout, self.session.ask(ask)).await;
            let why = match written {
                Ok(Ok(answer)) => match read(&answer, self.load.version) {
                    Ok(_) => return Ok(()),
                    Err(error) => words(&error),
                },
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {:?}", self.load.plan.timeout),
            };
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(LoadError::cassandra(format!("write record {name}"), why));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
