//! The columns of a file of rows.
//!
//! In a file, and in all of this crate, the `gap_ns` of a row is the time from the start of the
//! recording until its copy was sent.
//!
//! All are 64-bit integers and durations are in microseconds: 5 bytes or so for each row, as zstd
//! leaves them. Rows of one client follow each other in the order in which they were sent, which
//! makes differences small.

use std::path::Path;
use std::sync::Arc;

use evenkeel_twin::rows::{End, Row, Served, Why};
use parquet::basic::{Compression, Encoding, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::data_type::Int64Type;
use parquet::errors::Result as ParquetResult;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::RowGroupReader;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::{ColumnPath, Type};

use crate::error::RecordsError;
use crate::manifest::Manifest;

/// Rows of a group at most, written and read.
pub const GROUP_ROWS_MAX: usize = 1 << 16;
/// No duration is longer than this, us: eight days.
const DURATION_MAX_US: i64 = 8 * 86_400 * 1_000_000;
const US: u64 = 1_000;

/// One column.
struct Column {
    name: &'static str,
    /// How it is written; a dictionary where it is plain.
    encoding: Encoding,
    /// Its value; `None` only where an agent's part is missing.
    get: fn(&Row) -> Option<i64>,
}

const fn delta(name: &'static str, get: fn(&Row) -> Option<i64>) -> Column {
    Column { name, encoding: Encoding::DELTA_BINARY_PACKED, get }
}

const fn split(name: &'static str, get: fn(&Row) -> Option<i64>) -> Column {
    Column { name, encoding: Encoding::BYTE_STREAM_SPLIT, get }
}

const fn few(name: &'static str, get: fn(&Row) -> Option<i64>) -> Column {
    Column { name, encoding: Encoding::PLAIN, get }
}

/// The columns of an agent's part are the last ones, and each is missing where the others are.
const AGENTS: usize = 4;

const COLUMNS: [Column; 15] = [
    delta("sent_us", |row| Some(us(row.gap_ns))),
    delta("request", |row| Some(row.request.cast_signed())),
    few("client", |row| Some(row.client.into())),
    few("replica", |row| Some(row.replica.into())),
    few("group", |row| Some(row.group.into())),
    few("policy", |row| Some(row.policy.into())),
    few("size", |row| Some(row.size.into())),
    few("why", |row| place(&Why::ALL, &row.why)),
    few("end", |row| place(&End::ALL, &row.end)),
    split("after_us", |row| Some(us(row.after_ns))),
    split("latency_us", |row| Some(us(row.latency_ns))),
    split("wait_us", |row| row.served.map(|served| us(served.wait_ns))),
    split("service_us", |row| row.served.map(|served| us(served.service_ns))),
    few("queue", |row| row.served.map(|served| served.queue.into())),
    few("full", |row| row.served.map(|served| served.is_full.into())),
];

fn us(ns: u64) -> i64 {
    (ns.saturating_add(US / 2) / US).cast_signed()
}

fn place<T: PartialEq>(all: &[T], one: &T) -> Option<i64> {
    all.iter().position(|other| other == one).map(|place| place as i64)
}

/// The schema of a file.
pub(crate) fn schema() -> ParquetResult<Arc<Type>> {
    let field = |(number, column): (usize, &Column)| {
        let is_agents = number >= COLUMNS.len() - AGENTS;
        let repetition = if is_agents { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(column.name, Physical::INT64);
        field.with_repetition(repetition).build().map(Arc::new)
    };
    let fields = COLUMNS.iter().enumerate().map(field).collect::<ParquetResult<Vec<_>>>()?;
    Ok(Arc::new(Type::group_type_builder("row").with_fields(fields).build()?))
}

/// How files are written.
pub(crate) fn properties() -> ParquetResult<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_created_by("evenkeel".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(GROUP_ROWS_MAX));
    for column in &COLUMNS {
        let path = ColumnPath::from(column.name);
        let has_dictionary = column.encoding == Encoding::PLAIN;
        properties = properties.set_column_dictionary_enabled(path.clone(), has_dictionary);
        properties = properties.set_column_encoding(path, column.encoding);
    }
    Ok(properties.build())
}

/// Writes one group of rows.
pub(crate) fn write<W: std::io::Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    rows: &[Row],
) -> ParquetResult<()> {
    let (mut values, mut levels) = (Vec::with_capacity(rows.len()), Vec::new());
    for (number, column) in COLUMNS.iter().enumerate() {
        values.clear();
        levels.clear();
        values.extend(rows.iter().filter_map(column.get));
        let is_agents = number >= COLUMNS.len() - AGENTS;
        if is_agents {
            levels.extend(rows.iter().map(|row| i16::from(row.served.is_some())));
        }
        if let Some(mut next) = group.next_column()? {
            let levels = is_agents.then_some(&*levels);
            next.typed::<Int64Type>().write_batch(&values, levels, None)?;
            next.close()?;
        }
    }
    group.close()?;
    Ok(())
}

/// The values of a group, column by column; where an agent's part is missing it has none.
struct Values {
    columns: [Vec<i64>; COLUMNS.len()],
    /// Whether each row has an agent's part.
    served: Vec<i16>,
}

/// Reads one group of rows and checks every value.
pub(crate) fn read(
    group: &dyn RowGroupReader,
    manifest: &Manifest,
    file: &Path,
    rows: &mut Vec<Row>,
) -> Result<(), RecordsError> {
    let count = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
    if count > GROUP_ROWS_MAX {
        let came = format!("a group of {count} rows");
        return Err(RecordsError::wrong(file, came, format!("at most {GROUP_ROWS_MAX}"), ""));
    }
    let values = values(group, count, file)?;
    let mut agents = 0;
    for number in 0..count {
        let has_agent = values.served[number] != 0;
        let row = row(&values, number, has_agent.then_some(agents), manifest);
        let (column, value, expected) = match row {
            Ok(row) => {
                rows.push(row);
                agents += usize::from(has_agent);
                continue;
            }
            Err(wrong) => wrong,
        };
        let came = format!("{column} = {value} in row {} of a group", number + 1);
        return Err(RecordsError::wrong(file, came, expected, "is the manifest of another day?"));
    }
    Ok(())
}

fn values(group: &dyn RowGroupReader, count: usize, file: &Path) -> Result<Values, RecordsError> {
    let damaged = |came: String| {
        RecordsError::wrong(file, came, "rows of a recorded day", "was the file changed?")
    };
    let mut values = Values { columns: Default::default(), served: Vec::new() };
    for (number, column) in COLUMNS.iter().enumerate() {
        let reader = group.get_column_reader(number).map_err(|error| damaged(error.to_string()))?;
        let ColumnReader::Int64ColumnReader(mut reader) = reader else {
            return Err(damaged(format!("column {} of another type", column.name)));
        };
        let is_agents = number >= COLUMNS.len() - AGENTS;
        let into = &mut values.columns[number];
        let mut levels = Vec::new();
        let mut read = 0;
        while read < count {
            let levels = is_agents.then_some(&mut levels);
            let (records, ..) = reader
                .read_records(count - read, levels, None, into)
                .map_err(|error| damaged(format!("{error} in column {}", column.name)))?;
            if records == 0 {
                break;
            }
            read += records;
        }
        let is_first = number == COLUMNS.len() - AGENTS;
        if is_first {
            values.served.clone_from(&levels);
        }
        let held = if is_agents { levels.len() } else { into.len() };
        let part = levels.iter().filter(|level| **level != 0).count();
        let is_whole = held == count && (!is_agents || levels == values.served);
        if !is_whole || is_agents && into.len() != part {
            return Err(damaged(format!("{held} of {count} values in column {}", column.name)));
        }
    }
    Ok(values)
}

/// A column, its value and what was expected.
type WrongValue = (&'static str, i64, String);

fn row(
    values: &Values,
    number: usize,
    agent: Option<usize>,
    manifest: &Manifest,
) -> Result<Row, WrongValue> {
    let within = |column: usize, place: usize, max: i64| {
        let value = values.columns[column].get(place).copied().unwrap_or(-1);
        let is_within = (0..=max).contains(&value);
        let wrong = || (COLUMNS[column].name, value, format!("0 to {max}"));
        if is_within { Ok(value.cast_unsigned()) } else { Err(wrong()) }
    };
    let at = |column: usize, max: usize| within(column, number, max as i64);
    let ns = |column: usize| Ok(within(column, number, DURATION_MAX_US)? * US);
    let policies = manifest.policies.len().max(1);
    let named = |column: usize, count: usize| at(column, count - 1).map(|place| place as usize);
    let served = agent.map(|place| {
        Ok(Served {
            wait_ns: within(11, place, DURATION_MAX_US)? * US,
            service_ns: within(12, place, DURATION_MAX_US)? * US,
            queue: within(13, place, u32::MAX.into())? as u32,
            is_full: within(14, place, 1)? == 1,
        })
    });
    Ok(Row {
        gap_ns: ns(0)?,
        request: values.columns[1][number].cast_unsigned(),
        client: at(2, u16::MAX.into())? as u16,
        replica: at(3, manifest.replicas.len() - 1)? as u16,
        group: at(4, u16::MAX.into())? as u16,
        policy: at(5, policies - 1)? as u8,
        size: at(6, 64)? as u8,
        why: Why::ALL[named(7, Why::ALL.len())?],
        end: End::ALL[named(8, End::ALL.len())?],
        after_ns: ns(9)?,
        latency_ns: ns(10)?,
        served: served.transpose()?,
    })
}
