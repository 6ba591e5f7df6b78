//! Tables in Parquet, as the same tables in CSV: one set of rules reads both, and a problem names
//! the row (the header counts as the first) and the column.
//!
//! Only flat columns of numbers, texts and times are tables; times count as what they are in
//! milliseconds since 1970, which names an interval as well as any other word.

use std::fs::File;
use std::path::Path;

use csv::Writer;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;

use super::{BYTES_MAX, whole};
use crate::problem::{Mismatch, Problem};

/// The table as CSV.
pub(super) fn text_of(path: &Path) -> Result<String, Problem> {
    let file = path.display().to_string();
    let wrong = |came: String| {
        let what = Mismatch::new(came, "a Parquet table with flat columns");
        whole(&file, what.with_hint("is it complete, and is it Parquet?"))
    };
    let opened = File::open(path).map_err(|error| wrong(format!("no readable file ({error})")))?;
    let reader = SerializedFileReader::new(opened).map_err(|error| wrong(error.to_string()))?;
    let rows = reader.get_row_iter(None).map_err(|error| wrong(error.to_string()))?;
    let names = reader.metadata().file_metadata().schema().get_fields().iter();
    let mut table = Writer::from_writer(Vec::new());
    let unwritable = |error: csv::Error| wrong(error.to_string());
    table.write_record(names.map(|field| field.name())).map_err(unwritable)?;
    for (number, row) in rows.enumerate() {
        let row = row.map_err(|error| wrong(format!("row {}: {error}", number + 2)))?;
        let fields: Result<Vec<String>, Problem> = row
            .get_column_iter()
            .map(|(name, field)| {
                text(field)
                    .ok_or_else(|| wrong(format!("row {}, column {name}: {field:?}", number + 2)))
            })
            .collect();
        table.write_record(fields?).map_err(unwritable)?;
        if table.get_ref().len() as u64 > BYTES_MAX {
            return Err(whole(&file, Mismatch::new("more than 64 MiB", "at most 64 MiB")));
        }
    }
    let bytes = table.into_inner().map_err(|error| wrong(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))
}

/// One field as it would stand in CSV; `None` for what is no number, text or time.
fn text(field: &Field) -> Option<String> {
    Some(match field {
        Field::Null => String::new(),
        Field::Bool(value) => value.to_string(),
        Field::Byte(value) => value.to_string(),
        Field::Short(value) => value.to_string(),
        Field::Int(value) | Field::Date(value) => value.to_string(),
        Field::Long(value) | Field::TimestampMillis(value) => value.to_string(),
        Field::TimestampMicros(value) => (value / 1_000).to_string(),
        Field::UByte(value) => value.to_string(),
        Field::UShort(value) => value.to_string(),
        Field::UInt(value) => value.to_string(),
        Field::ULong(value) => value.to_string(),
        Field::Float(value) => value.to_string(),
        Field::Double(value) => value.to_string(),
        Field::Str(value) => value.clone(),
        Field::Decimal(_) | Field::Float16(_) => field.to_string(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::placement::parse_counts;

    fn written(name: &str, clients: &[&str], counts: &[f64]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("evenkeel-{}-{name}", std::process::id()));
        let schema = "message counts { required binary interval (UTF8); \
                      required binary client (UTF8); required binary operation (UTF8); \
                      required double count; }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let texts = |texts: &[&str]| -> Vec<ByteArray> {
            texts.iter().map(|text| ByteArray::from(*text)).collect()
        };
        let same = |text| texts(&vec![text; clients.len()]);
        for column in [same("09:00"), texts(clients), same("weak-read")] {
            let mut next = group.next_column().unwrap().unwrap();
            next.typed::<ByteArrayType>().write_batch(&column, None, None).unwrap();
            next.close().unwrap();
        }
        let mut next = group.next_column().unwrap().unwrap();
        next.typed::<DoubleType>().write_batch(counts, None, None).unwrap();
        next.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        path
    }

    #[test]
    fn a_table_in_parquet_is_the_same_table() {
        let path = written("counts.parquet", &["a", "b"], &[7.0, 8.5]);
        let text = text_of(&path).unwrap();
        let names = ["a", "b"].map(str::to_owned);
        let from_parquet = parse_counts(&text, "counts.parquet", &names).unwrap();
        let csv = "interval,client,weak-read\n09:00,a,7\n09:00,b,8.5\n";
        assert_eq!(from_parquet, parse_counts(csv, "counts.csv", &names).unwrap());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_wrong_in_it_is_told_with_its_row() {
        let path = written("negative.parquet", &["a", "b"], &[7.0, -1.0]);
        let text = text_of(&path).unwrap();
        let names = ["a", "b"].map(str::to_owned);
        let problem = parse_counts(&text, "negative.parquet", &names).unwrap_err().to_string();
        assert!(problem.contains("negative.parquet:3"), "{problem}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "interval,client").unwrap();
        let problem = text_of(&path).unwrap_err().to_string();
        assert!(problem.contains("is it Parquet?"), "{problem}");
        std::fs::remove_file(path).unwrap();
    }
}
