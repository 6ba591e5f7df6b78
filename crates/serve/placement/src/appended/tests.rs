//! Files that grow, are cut off, are rewritten, are long.

use std::fs::OpenOptions;
use std::io::Write as _;

use super::*;
use evenkeel_runtime::accept::worker_runtime;

const HEADER: &str = "interval,client,weak-read\n";

/// A file of one test.
struct Written {
    path: PathBuf,
    read: Appended,
}

impl Written {
    fn new(name: &str, text: &str) -> Self {
        let file = format!("evenkeel-appended-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, text).unwrap();
        let read = Appended::new(path.clone(), Duration::from_millis(8));
        Self { path, read }
    }

    fn append(&self, text: &str) {
        let mut file = OpenOptions::new().append(true).open(&self.path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// The totals of what is new, or what a person is told.
    fn totals(&mut self) -> Result<Vec<f64>, String> {
        let reported = self.reported()?;
        assert_eq!(reported.warnings, [""; 0]);
        Ok(reported.intervals.iter().map(Counts::total).collect())
    }

    fn reported(&mut self) -> Result<Collected, String> {
        let clients = ["oslo".to_owned(), "rome".to_owned()];
        let collected = worker_runtime().unwrap().block_on(self.read.collect(&clients));
        collected.map_err(|error| error.to_string())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn a_file_that_grows_is_read_from_where_it_ended() {
    let mut file = Written::new("grows", &format!("{HEADER}1,oslo,1\n2,oslo,2\n3,oslo,3\n"));
    assert_eq!(file.totals(), Ok(vec![1.0, 2.0, 3.0]));
    assert!(file.totals().unwrap_err().contains("no new interval"));
    file.append("4,oslo,4\n");
    assert_eq!(file.totals(), Ok(vec![4.0]));
    // Two that came while nobody looked are two.
    file.append("# a remark\n\n5,oslo,5\n5,rome,1\n6,oslo,6\n");
    assert_eq!(file.totals(), Ok(vec![6.0, 6.0]));
    file.append("7,osla,7\n");
    let error = file.totals().unwrap_err();
    assert!(error.contains(":11:2:") && error.contains("osla"), "{error}");
}

#[test]
fn an_interval_that_is_being_written_counts_once_and_whole() {
    let mut file = Written::new("slow", &format!("{HEADER}1,oslo,1\n2,oslo,20"));
    for _ in 0..2 {
        assert!(file.totals().unwrap_err().contains("does not end"));
    }
    file.append("00\n2,rome,3\n");
    assert_eq!(file.totals(), Ok(vec![1.0, 2_003.0]));
}

#[test]
fn rows_for_what_was_counted_are_left_out_and_told() {
    let mut file = Written::new("late", &format!("{HEADER}1,oslo,1\n"));
    assert_eq!(file.totals(), Ok(vec![1.0]));
    file.append("1,rome,5\n");
    let error = file.totals().unwrap_err();
    assert!(error.contains("rows of interval 1 came after it was counted"), "{error}");
    file.append("1,rome,5\n2,oslo,2\n");
    let reported = file.reported().unwrap();
    assert_eq!(reported.intervals.iter().map(Counts::total).collect::<Vec<_>>(), [2.0]);
    assert!(reported.warnings[0].contains("interval 1 "), "{:?}", reported.warnings);
}

#[test]
fn a_file_that_is_replaced_goes_on_after_the_interval_that_counted_last() {
    let mut file = Written::new("replaced", &format!("{HEADER}1,oslo,1\n2,oslo,2\n"));
    assert_eq!(file.totals(), Ok(vec![1.0, 2.0]));
    // Rewritten whole with one more, under the same name.
    let next = file.path.with_extension("next");
    std::fs::write(&next, format!("{HEADER}1,oslo,1\n2,oslo,2\n3,oslo,3\n")).unwrap();
    std::fs::rename(&next, &file.path).unwrap();
    assert_eq!(file.totals(), Ok(vec![3.0]));
    // Cut off and begun anew; longer than it was, with other rows.
    std::fs::write(&file.path, format!("{HEADER}8,oslo,8\n9,oslo,9\n10,oslo,10\n11,oslo,11\n"))
        .unwrap();
    assert_eq!(file.totals(), Ok(vec![8.0, 9.0, 10.0, 11.0]));
    // With other columns.
    let columns = "interval,client,operation,count\n12,rome,multi-group,7\n";
    std::fs::write(&file.path, columns).unwrap();
    assert_eq!(file.totals(), Ok(vec![7.0]));
}

#[test]
fn the_end_of_a_long_file_is_enough() {
    let mut file = Written::new("long", HEADER);
    let mut text = String::new();
    // Twice as many intervals as a plan may have, and twice as many bytes as are read.
    let filler = format!("# {}\n", "x".repeat(2_000));
    for interval in 0..20_000 {
        text.push_str(&format!("{interval},oslo,{interval}\n"));
        text.push_str(&filler);
    }
    file.append(&text);
    let last: Vec<f64> = (20_000 - INTERVALS_MAX..20_000).map(|one| one as f64).collect();
    assert_eq!(file.totals(), Ok(last));
    file.append("20000,oslo,1\n");
    assert_eq!(file.totals(), Ok(vec![1.0]));
    file.append("20001,oslo,-1\n");
    let error = file.totals().unwrap_err();
    assert!(error.contains("within its last 16 MiB") && error.contains("\"-1\""), "{error}");
}

#[test]
fn what_a_tail_begins_with_may_be_half_of_an_interval_and_does_not_count() {
    let mut file = Written::new("tail", HEADER);
    let row = format!("1,oslo,1\n# {}\n", "x".repeat(9_000));
    file.append(&row.repeat(2_000));
    file.append("2,oslo,2\n");
    assert_eq!(file.totals(), Ok(vec![2.0]));
}

#[test]
fn rows_in_any_order_make_few_intervals_and_many_are_refused() {
    let by_client = |intervals: usize| {
        let rows = |client: &str| -> String {
            (0..intervals).map(|interval| format!("{interval},{client},1\n")).collect()
        };
        format!("{HEADER}{}{}", rows("oslo"), rows("rome"))
    };
    let mut file = Written::new("order", &by_client(HELD_MAX));
    assert_eq!(file.totals(), Ok(vec![2.0; INTERVALS_MAX]));
    let mut file = Written::new("order-many", &by_client(6_000));
    let error = file.totals().unwrap_err();
    assert!(error.contains("interval 4000 again, after 64 others"), "{error}");
}

#[test]
fn what_is_no_file_of_counts_is_told_at_once() {
    let mut empty = Written::new("empty", "");
    assert!(empty.totals().unwrap_err().contains("a header and at least one row"));
    let mut alone = Written::new("alone", HEADER);
    assert!(alone.totals().unwrap_err().contains("no interval"));
    let mut columns = Written::new("columns", "when,who\n1,oslo\n");
    assert!(columns.totals().unwrap_err().contains("columns interval,client"));
    let mut endless = Written::new("endless", HEADER);
    endless.append(&"1".repeat(3 << 20));
    assert!(endless.totals().unwrap_err().contains("more than 1 MiB"));
    let mut bytes = Written::new("bytes", HEADER);
    std::fs::write(&bytes.path, b"interval,client,weak-read\n\xff,oslo,1\n").unwrap();
    assert!(bytes.totals().unwrap_err().contains("UTF-8"));
    let mut folder = Written::new("folder", "");
    std::fs::remove_file(&folder.path).unwrap();
    assert!(folder.totals().unwrap_err().contains("No such file"));
    folder.read.path = std::env::temp_dir();
    assert!(folder.totals().unwrap_err().contains("it is no file"));
}
