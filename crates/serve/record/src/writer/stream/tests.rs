//! Rows from lanes to files and back, in virtual time.

use std::fs;

use evenkeel_core::request::copies::{CopySink, ServedSink};
use evenkeel_core::units::Probability;
use evenkeel_core::{GroupId, ReplicaId};
use evenkeel_records::manifest::{BY_AGENT, BY_RUN};

use super::*;
use crate::counts::get;
use crate::lane::tests::copy;

/// A folder for a test, which is removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("evenkeel-record-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn days(&self) -> Vec<PathBuf> {
        let Ok(days) = fs::read_dir(self.0.join("upstream.shop")) else { return Vec::new() };
        let mut days: Vec<PathBuf> = days.map(|day| day.unwrap().path()).collect();
        days.sort();
        days
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A stream with lanes, and the time.
struct Stage {
    folder: Folder,
    target: Option<Target>,
    stream: StreamState,
    counts: Arc<RecordCounts>,
    lanes: Vec<Box<dyn CopySink>>,
}

fn stream(policy: &str) -> Arc<Stream> {
    let policies = vec![policy.to_owned(), "two-choices".to_owned()];
    let like = "[workload]\ncancel = true\n".to_owned();
    let name = "upstream.shop".to_owned();
    Arc::new(Stream { name, by: BY_RUN, policies, pairs: 0.0, like, replicas: 2 })
}

fn at(ms: u64) -> Moment {
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    Moment { now: Instant::from_millis(ms), wall: wall + Duration::from_millis(ms) }
}

fn new_lane(stream: &Arc<Stream>, client: u16) -> (NewLane, Box<dyn CopySink>) {
    let lane = Lane::new();
    let of = Teller { client, serial: client.into() };
    let sink = Box::new(lane.sink(of));
    (NewLane { stream: Arc::clone(stream), of, lane }, sink)
}

impl Stage {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let config = RecordConfig {
            directory: folder.0.clone(),
            rotate: Duration::from_secs(300),
            keep: Duration::from_secs(86_400),
            bytes_max: 1 << 30,
            explore: Probability::clamped(0.0),
            pairs: Probability::clamped(0.0),
        };
        let target = Some(Target { config: Arc::new(config), shares: 1 });
        let counts = Arc::<RecordCounts>::default();
        let of = stream("c3");
        let (first, sink) = new_lane(&of, 0);
        let mut stream = StreamState::new(first, at(0), Arc::clone(&counts));
        let (second, other) = new_lane(&of, 1);
        stream.add(second, at(0));
        Self { folder, target, stream, counts, lanes: vec![sink, other] }
    }

    fn turn(&mut self, ms: u64) {
        self.stream.turn(at(ms), self.target.as_ref());
    }

    /// Ends the dispatchers and reads the last day.
    fn read(&mut self, ms: u64) -> evenkeel_records::Recorded {
        self.lanes.clear();
        self.turn(ms);
        assert!(self.stream.is_over());
        evenkeel_records::read(self.folder.days().last().expect("a day")).unwrap()
    }
}

#[test]
fn what_an_agent_saw_is_read_back_with_the_numbers_that_it_was_told() {
    let folder = Folder::new("agent");
    let config = RecordConfig {
        directory: folder.0.clone(),
        rotate: Duration::from_secs(300),
        keep: Duration::from_secs(86_400),
        bytes_max: 1 << 30,
        explore: Probability::clamped(0.0),
        pairs: Probability::clamped(0.0),
    };
    let target = Target { config: Arc::new(config), shares: 1 };
    let about = Stream { policies: Vec::new(), by: BY_AGENT, ..(*stream("c3")).clone() };
    let lane = Lane::new();
    let of = Teller { client: 0, serial: 0 };
    let mut sink = lane.sink(of);
    let new = NewLane { stream: Arc::new(about), of, lane };
    let mut stream = StreamState::new(new, at(0), Arc::default());
    let seen = |number, arrived_ms, end| ServedRecord {
        number,
        arrived_at: Instant::from_millis(arrived_ms),
        wait_ns: 2_000,
        service_ns: 5_000_000,
        queue: 3,
        is_full: false,
        end,
        size: 7,
    };
    let number = 9 | 70_000 << REQUEST_BITS;
    sink.copy_left(&seen(number, 500, CopyEnd::Cancelled));
    sink.copy_left(&seen(0, 400, CopyEnd::Answered));
    stream.turn(at(1_000), Some(&target));
    drop(sink);
    stream.turn(at(12_000), Some(&target));
    assert!(stream.is_over());
    let recorded = evenkeel_records::read(&folder.days()[0]).unwrap();
    assert_eq!(recorded.manifest.by, BY_AGENT);
    let rows = &recorded.day.rows;
    let told = |row: &Row| (row.request, row.gap_ns, row.end, row.latency_ns, row.size);
    assert_eq!(told(&rows[0]), (0, 400_000_000, End::Answered, 5_002_000, 7));
    assert_eq!(told(&rows[1]), (number, 100_000_000, End::Cancelled, 5_002_000, 7));
    let served = Served { wait_ns: 2_000, service_ns: 5_000_000, queue: 3, is_full: false };
    assert!(rows.iter().all(|row| row.served == Some(served)));
}

#[test]
fn rows_of_all_dispatchers_are_read_back_in_the_order_in_which_copies_were_sent() {
    let mut stage = Stage::new("back");
    let sent = |request, sent_ms, kind, end, replica| CopyRecord {
        kind,
        end,
        after_ns: 7_000,
        replica: ReplicaId::new(replica),
        group: GroupId::new(3),
        size: 11,
        ..copy(request, sent_ms)
    };
    stage.lanes[1].copy_ended(&sent(1, 900, Kind::Hedge, CopyEnd::Cancelled, 1));
    stage.lanes[0].copy_ended(&sent(1, 40, Kind::First, CopyEnd::Answered, 0));
    stage.turn(1_000);
    let pair = sent(2, 12_000, Kind::Mirror, CopyEnd::Failed, 4);
    stage.lanes[0].copy_ended(&CopyRecord { is_explored: true, ..pair });
    stage.turn(13_000);
    let recorded = stage.read(31_500);
    assert_eq!(recorded.manifest.replicas.len(), 5, "a day that began with two has ended");
    assert_eq!(recorded.manifest.policies, ["c3", "two-choices"]);
    assert_eq!(recorded.manifest.like, "[workload]\ncancel = true\n");
    let days = stage.folder.days();
    assert_eq!(days.len(), 2);
    let first = evenkeel_records::read(&days[0]).unwrap();
    let row = |request, gap_ns, client, replica, why, end| Row {
        request,
        gap_ns,
        after_ns: 7_000,
        latency_ns: 3_000_000,
        client,
        replica,
        group: 3,
        policy: 0,
        size: 11,
        why,
        end,
        served: None,
    };
    let ms = 1_000_000;
    let other = 1 | 1 << REQUEST_BITS;
    assert_eq!(
        first.day.rows,
        [
            row(1, 40 * ms, 0, 0, Why::First, End::Answered),
            row(other, 860 * ms, 1, 1, Why::Hedge, End::Cancelled),
        ]
    );
    let row = row(2, 2_000 * ms, 0, 4, Why::Pair, End::Failed);
    assert_eq!(recorded.day.rows, [Row { policy: 1, ..row }]);
    assert_eq!(first.day.dropped, (0, 1));
    assert_eq!(recorded.day.dropped, (0, 2), "from 10 to 30 s");
    let counted = [&stage.counts.rows, &stage.counts.pairs, &stage.counts.explored];
    assert_eq!(counted.map(get), [3, 1, 1]);
}

#[test]
fn of_a_window_that_lacks_one_row_none_is_written_and_it_counts_as_dropped() {
    let mut stage = Stage::new("overload");
    let send = |stage: &mut Stage, lane: usize, from_ms: u64, count: u64| {
        for n in 0..count {
            stage.lanes[lane].copy_ended(&copy(n, from_ms + n % 1_000));
        }
    };
    send(&mut stage, 0, 2_000, 100);
    stage.turn(11_000);
    stage.turn(12_500);
    send(&mut stage, 1, 13_000, 5); // of the same window as what is too much
    send(&mut stage, 0, 15_000, ROWS_MAX as u64 + 1);
    stage.turn(19_000);
    send(&mut stage, 1, 19_500, 5);
    send(&mut stage, 0, 22_000, 200);
    let recorded = stage.read(40_000);
    assert_eq!(recorded.day.rows.len(), 300);
    assert_eq!(recorded.day.dropped, (1, 4));
    assert_eq!(get(&stage.counts.overload), ROWS_MAX as u64 + 1 + 10);
    let windows = [&stage.counts.windows, &stage.counts.windows_dropped];
    assert_eq!(windows.map(get), [4, 1]);
    assert_eq!(get(&stage.counts.disk), 0);
}

#[test]
fn a_window_that_turns_out_to_lack_rows_when_it_is_written_counts_as_dropped_too() {
    let mut stage = Stage::new("after");
    stage.lanes[0].copy_ended(&copy(1, 2_000));
    stage.turn(12_000);
    for n in 0..=ROWS_MAX as u64 {
        stage.lanes[0].copy_ended(&copy(n, 3_000)); // ten seconds long, all of them
    }
    stage.turn(13_000);
    let recorded = stage.read(14_000);
    assert_eq!((recorded.day.rows.len(), recorded.day.dropped), (1, (1, 1)));
}

#[test]
fn a_copy_that_takes_long_is_written_where_it_was_sent() {
    let mut stage = Stage::new("long");
    stage.lanes[0].copy_ended(&copy(1, 5_000));
    stage.lanes[1].copy_ended(&copy(1, 65_000));
    stage.turn(80_000);
    stage.lanes[0].copy_ended(&CopyRecord { latency_ns: 79_000_000_000, ..copy(2, 1_000) });
    let recorded = stage.read(81_000);
    let rows = &recorded.day.rows;
    assert_eq!(rows.iter().map(|row| row.request & 3).collect::<Vec<_>>(), [2, 1, 1]);
    assert_eq!(rows[0].latency_ns, 79_000_000_000);
    assert_eq!(recorded.day.dropped, (0, 8), "windows without a row are whole, too");
}

#[test]
fn a_directory_that_is_removed_costs_the_open_file_and_days_go_on() {
    let mut stage = Stage::new("removed");
    stage.lanes[0].copy_ended(&copy(1, 1_000));
    stage.turn(12_000);
    fs::remove_dir_all(stage.folder.0.join("upstream.shop")).unwrap();
    stage.lanes[0].copy_ended(&copy(2, 12_000));
    stage.turn(320_000); // the file is due
    assert!(get(&stage.counts.failures) > 0);
    assert_eq!(get(&stage.counts.disk), 2);
    stage.lanes[0].copy_ended(&copy(3, 330_000));
    let recorded = stage.read(340_000);
    assert_eq!(recorded.day.rows.len(), 1);
    assert_eq!(get(&stage.counts.rows), 1);
}

#[test]
fn where_no_day_can_be_begun_rows_are_counted_and_it_is_tried_again() {
    let mut stage = Stage::new("nowhere");
    let place = stage.folder.0.join("upstream.shop");
    fs::write(&place, "a file in the way").unwrap();
    stage.lanes[0].copy_ended(&copy(1, 1_000));
    stage.turn(12_000);
    stage.lanes[0].copy_ended(&copy(2, 12_000));
    stage.turn(21_500); // it is too early for another attempt
    assert_eq!((get(&stage.counts.failures), get(&stage.counts.disk)), (1, 2));
    assert_eq!(get(&stage.counts.windows_dropped), 2, "no window lacks rows and counts as whole");
    fs::remove_file(&place).unwrap();
    stage.lanes[0].copy_ended(&copy(3, 33_000));
    let recorded = stage.read(45_000);
    assert_eq!(recorded.day.rows.len(), 1);
}

#[test]
fn another_policy_begins_another_day_and_what_is_told_before_a_change_is_written() {
    let mut stage = Stage::new("other");
    stage.lanes[0].copy_ended(&copy(1, 1_000));
    stage.turn(2_000);
    let (new, sink) = new_lane(&stream("prequal"), 0);
    stage.stream.add(new, at(12_500));
    stage.lanes = vec![sink];
    stage.lanes[0].copy_ended(&copy(1, 13_000));
    stage.turn(25_000);
    stage.lanes[0].copy_ended(&copy(2, 26_000));
    stage.target = None; // recording is off
    stage.turn(27_000);
    stage.lanes[0].copy_ended(&copy(3, 28_000));
    stage.turn(45_000);
    let recorded = stage.read(50_000);
    assert_eq!(recorded.manifest.policies[0], "prequal");
    assert_eq!(recorded.day.rows.len(), 2, "what is told afterwards is not");
    let days = stage.folder.days();
    let before = evenkeel_records::read(&days[0]).unwrap();
    assert_eq!((days.len(), before.day.rows.len()), (2, 1));
    assert_eq!(before.manifest.policies[0], "c3");
    assert_eq!(before.day.dropped.0, 1, "the window of the change lacks what came behind it");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_costs_the_rows_of_the_open_file_and_the_next_one_is_written() {
    let mut stage = Stage::new("full");
    stage.lanes[0].copy_ended(&copy(1, 1_000));
    stage.lanes[1].copy_ended(&copy(2, 2_000));
    stage.turn(12_000);
    let day = stage.folder.days().remove(0);
    // What is written there finds no space.
    std::os::unix::fs::symlink("/dev/full", day.join("rows-000000.part")).unwrap();
    assert_eq!(get(&stage.counts.failures), 0, "nothing is written yet");
    stage.turn(310_000); // the file is due
    assert_eq!((get(&stage.counts.failures), get(&stage.counts.disk)), (1, 2));
    stage.lanes[0].copy_ended(&copy(3, 311_000));
    let recorded = stage.read(330_000);
    assert_eq!(recorded.day.rows.len(), 1);
    assert_eq!(stage.folder.days(), [day], "it is the same day");
    let (dropped, windows) = recorded.day.dropped;
    assert!(dropped >= 30 && windows > dropped, "what was lost is told: {dropped} of {windows}");
}

/// Requests as a proxy has them: 10,000 each second that come by chance, five replicas, half-normal
/// and exponential parts of their latency, 2 % hedged.
fn traffic(stage: &mut Stage, requests: u64) -> (u64, Duration) {
    let mut rng = evenkeel_core::Rng::seeded(5);
    let (mut now_us, mut rows, mut turned) = (0.0, 0, 0.0);
    let before = evenkeel_runtime::clock::thread_cpu();
    for request in 0..requests {
        now_us += rng.exponential() * 100.0;
        let sent_at = Instant::from_nanos((now_us * 1e3) as u64);
        let latency_ns =
            ((600.0 + 400.0 * rng.normal().abs() + 2e3 * rng.exponential()) * 1e3) as u64;
        let replica = ReplicaId::new(rng.below(5));
        let first = CopyRecord { sent_at, latency_ns, replica, ..copy(request, 0) };
        let lane = (request % 2) as usize;
        stage.lanes[lane].copy_ended(&first);
        rows += 1;
        if rng.below(50) == 0 {
            let kind = Kind::Hedge;
            let late = CopyRecord { kind, after_ns: 5_000_000, ..first };
            stage.lanes[lane].copy_ended(&late);
            rows += 1;
        }
        if now_us - turned > 50e3 {
            turned = now_us;
            stage.turn((now_us / 1e3) as u64);
        }
    }
    let end_ms = (now_us / 1e3) as u64 + 12_000;
    stage.lanes.clear();
    stage.turn(end_ms);
    (rows, evenkeel_runtime::clock::thread_cpu().saturating_sub(before))
}

#[test]
fn a_request_has_no_more_than_eight_bytes_on_disk() {
    let mut stage = Stage::new("bytes");
    let requests = 100_000;
    let (rows, _) = traffic(&mut stage, requests);
    assert_eq!(get(&stage.counts.rows), rows, "all are written");
    let bytes = get(&stage.counts.bytes) as f64 / requests as f64;
    println!("{bytes:.2} bytes per request");
    assert!(bytes <= 8.0, "{bytes}");
}

/// `cargo test --release -p evenkeel-record -- --ignored --nocapture`
#[test]
#[ignore = "measures CPU"]
fn what_a_row_costs() {
    for _ in 0..10 {
        let mut stage = Stage::new("cost");
        let requests = 1_000_000;
        let (rows, cpu) = traffic(&mut stage, requests);
        assert_eq!(get(&stage.counts.rows), rows);
        let per_request = cpu.as_nanos() as f64 / requests as f64;
        println!("{per_request:.0} ns of CPU per request, with what makes them up");
    }
}
