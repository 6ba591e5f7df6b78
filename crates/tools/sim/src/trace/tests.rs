//! Series read, written, split and made up; logs torn, cut and disordered.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn series(rates: &[&[f64]]) -> RateSeries {
    RateSeries::new(SECOND, rates.iter().map(|row| row.to_vec()).collect()).unwrap()
}

fn record(time: u32, server: u8) -> Vec<u8> {
    let mut record = time.to_be_bytes().to_vec();
    record.extend([9; 15]);
    record.push(server);
    record
}

/// Requests by (time, region), as records; the server's number within its region varies.
fn log(requests: &[(u32, u8)]) -> Vec<u8> {
    let records = requests.iter().enumerate();
    records.flat_map(|(n, &(time, region))| record(time, region << 5 | (n % 32) as u8)).collect()
}

/// Gives one byte, then seven, then one, …: records are torn everywhere.
struct Torn<'a>(&'a [u8], usize);

impl std::io::Read for Torn<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.1 = 8 - self.1.clamp(1, 7);
        let count = self.1.min(self.0.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

#[test]
fn a_log_is_counted_by_second_and_region() {
    let bytes = log(&[(100, 0), (100, 2), (100, 2), (101, 3), (103, 1), (103, 2)]);
    let mut counter = LogCounter::new(1).unwrap();
    counter.read("day", Torn(&bytes, 0)).unwrap();
    assert_eq!(counter.start(), Some(100));
    let expected: [&[f64]; 4] = [
        &[1.0, 0.0, 0.0, 0.0],
        &[0.0, 0.0, 0.0, 1.0],
        &[2.0, 0.0, 0.0, 1.0],
        &[0.0, 1.0, 0.0, 0.0],
    ];
    assert_eq!(counter.series().unwrap(), series(&expected));
}

#[test]
fn parts_of_a_day_follow_each_other_in_steps_of_the_clock() {
    let mut counter = LogCounter::new(60).unwrap();
    counter.read("day_1", &log(&[(119, 0), (120, 0)])[..]).unwrap();
    counter.read("empty", &[][..]).unwrap();
    counter.read("day_2", &log(&[(120, 0), (179, 0), (180, 0)])[..]).unwrap();
    assert_eq!(counter.start(), Some(60));
    assert_eq!(counter.series().unwrap().rates[0], [1.0 / 60.0, 3.0 / 60.0, 1.0 / 60.0]);
    assert!(LogCounter::new(60).unwrap().series().is_err());
}

#[test]
fn a_broken_log_says_where_and_why() {
    let error = |bytes: &[u8]| {
        let mut counter = LogCounter::new(1).unwrap();
        counter.read("day", bytes).unwrap_err().to_string()
    };
    let cut = &log(&[(100, 0), (101, 0)])[..33];
    assert_eq!(
        error(cut),
        "day, byte 20: got 13 bytes at the end, expected a record of 20 (is the file complete?)"
    );
    assert_eq!(
        error(&log(&[(100, 0), (101, 0), (99, 0)])),
        "day, byte 40: got the time 99, \
         expected 101 or later, for logs are sorted (are files in their order?)"
    );
    assert!(error(&log(&[(100, 0), (100, 4)])).starts_with("day, byte 20: got region 4, "));
    let far = error(&log(&[(100, 0), (100 + 2_000_000, 0)]));
    assert!(far.starts_with("day, byte 20: got the time 2000100, expected at most"), "{far}");
    let mut gzip = record(0, 0xff);
    gzip[..2].copy_from_slice(&[0x1f, 0x8b]);
    let gzip = error(&gzip);
    assert!(gzip.ends_with("expected a log (gunzip it first)"), "{gzip}");
}

#[test]
fn what_a_broken_log_held_before_is_kept() {
    let mut counter = LogCounter::new(1).unwrap();
    assert!(counter.read("day", &log(&[(100, 1), (99, 1)])[..]).is_err());
    assert_eq!(counter.series().unwrap().rates[1], [1.0]);
}

#[test]
fn rates_are_read_as_written() {
    let written = series(&[&[1.5, 0.0, 3.25], &[2.0, 7.0, 1e9]]);
    let mut bytes = Vec::new();
    written.write(&["Lon,don".to_owned()], &mut bytes).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.starts_with("t_s,Lon don,site1\n0,1.5,2\n1,0,7\n"), "{text}");
    assert_eq!(RateSeries::read("x", &bytes[..]).unwrap(), written);
}

#[test]
fn counts_are_divided_by_the_step_and_missing_rows_are_silence_or_hold() {
    let counts =
        "period,count\n1998-05-31 23:59:00,60\n1998-06-01 00:00,120\n1998-06-01T00:02:00Z,6\n";
    let read = RateSeries::read("x", counts.as_bytes()).unwrap();
    assert_eq!((read.step, &read.rates[0][..]), (MINUTE, &[1.0, 2.0, 0.0, 0.1][..]));
    let rates = RateSeries::read("x", &b"t_s,a\n0,5\n10,6\n40,7\n"[..]).unwrap();
    assert_eq!(rates.rates[0], [5.0, 6.0, 6.0, 6.0, 7.0]);
}

#[test]
fn a_broken_file_says_which_line() {
    let error = |text: &str| RateSeries::read("x", text.as_bytes()).unwrap_err().to_string();
    assert!(error("t_s,a\n0,1\n1,-2\n").starts_with("x line 3: got \"-2\", expected requests"));
    assert!(error("t_s,a\n0,1\n0,2\n").starts_with("x line 3: got \"0\", expected a time after"));
    assert!(error("t_s,a\n0,1\n1\n").starts_with("x line 3: got"));
    assert!(error("t_s,a\nnoon,1\n").contains("got \"noon\", expected a time"));
    assert!(error("t_s,a\n0,1\n").contains("got 1 rows, expected two or more"));
    assert!(error("t_s,a\n0,1\n2,1\n5,1\n").contains("whole steps of 2 s"));
    assert!(error("t_s,a\n0,1\n1,1\n1e11,1\n").contains("too close"));
    assert!(error("t_s\n0\n1\n").contains("header of 1 columns"));
}

#[test]
fn a_series_can_be_scaled_cut_summed_and_made_coarser() {
    let all = series(&[&[1.0, 2.0, 3.0, 4.0, 5.0], &[0.0, 0.0, 8.0, 0.0, 0.0]]);
    assert_eq!(all.with_peak(16.0).unwrap(), all.scaled(2.0).unwrap());
    assert_eq!(all.mean_total(), 23.0 / 5.0);
    assert_eq!(all.total().rates, [[1.0, 2.0, 11.0, 4.0, 5.0]]);
    let coarse = all.in_steps_of(2 * SECOND).unwrap();
    assert_eq!((coarse.rates, coarse.step), (vec![vec![1.5, 3.5], vec![0.0, 4.0]], 2 * SECOND));
    assert_eq!(all.cut(SECOND, 2 * SECOND).unwrap(), series(&[&[2.0, 3.0], &[0.0, 8.0]]));
    assert_eq!(all.select(&[1, 0]).unwrap().rates[0], all.rates[1]);
    assert!(all.cut(4 * SECOND, 2 * SECOND).is_err() && all.scaled(-1.0).is_err());
    assert!(all.in_steps_of(Duration::from_millis(1_500)).is_err() && all.select(&[2]).is_err());
}

#[test]
fn a_split_without_drift_is_the_total_by_time_zone() {
    let total = series(&[&[3.0, 6.0, 9.0, 12.0]]);
    let shifts = vec![Duration::ZERO, SECOND, 2 * SECOND];
    let split = Split { shifts, sigma: 0.0, memory: SECOND, seed: 1 }.split(&total).unwrap();
    assert_eq!(split.rates, [[3.0, 4.0], [2.0, 3.0], [1.0, 2.0]]);
}

#[test]
fn shares_drift_as_far_and_as_fast_as_asked() {
    let total = series(&[&[2.0; 200_000]]);
    let split =
        Split { shifts: vec![Duration::ZERO; 2], sigma: 0.25, memory: 20 * SECOND, seed: 3 };
    let split = split.split(&total).unwrap();
    let logs: Vec<f64> = split.rates[0].iter().map(|rate| rate.ln()).collect();
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / logs.len() as f64;
    // About 10 000 independent values: the variance is known to 1.4 %, the mean to 0.0025.
    assert!(mean(&mut logs.iter().copied()).abs() < 0.02);
    let variance = mean(&mut logs.iter().map(|log| log * log));
    assert!((variance / 0.0625 - 1.0).abs() < 0.1, "{variance}");
    let later = mean(&mut logs.iter().zip(&logs[20..]).map(|(now, later)| now * later));
    assert!((later / variance - (-1.0_f64).exp()).abs() < 0.06, "{later}");
    assert_ne!(split.rates[0], split.rates[1]);
}

fn made(steps: usize, step: Duration) -> Made {
    Made { sites: 3, step, steps, full: 1_000.0, seed: 7 }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

#[test]
fn made_up_series_have_the_shapes_they_promise() {
    let hot = one_hot(&made(36_000, SECOND)).unwrap();
    let means: Vec<f64> = hot.rates.iter().map(|row| mean(row)).collect();
    // 120 memories long: a mean is known to 6 % * sqrt(2 / 120) = 0.8 %.
    assert!((means[0] / 1_150.0 - 1.0).abs() < 0.04 && (means[1] / 550.0 - 1.0).abs() < 0.04);
    let tight = shifting(&made(36_000, SECOND)).unwrap();
    let totals = &tight.total().rates[0];
    assert!(totals.iter().all(|total| (total / 2_790.0 - 1.0).abs() < 0.1), "noise of 1.7 %");
    let most =
        |step: usize| (0..3).max_by(|&a, &b| tight.rates[a][step].total_cmp(&tight.rates[b][step]));
    let hot: Vec<_> = (0..36_000).step_by(600).map(most).collect();
    for site in 0..3 {
        let count = hot.iter().filter(|&&hot| hot == Some(site)).count();
        assert!((8..=32).contains(&count), "site {site} is hottest {count} of 60 times");
    }
}

#[test]
fn match_days_peak_far_above_their_mean_and_later_further_west() {
    let days = match_days(&made(30 * 1_440, MINUTE)).unwrap();
    assert_eq!(days, match_days(&made(30 * 1_440, MINUTE)).unwrap());
    let ratio = days.peak() / mean(&days.rates[0]);
    assert!((4.0..12.0).contains(&ratio), "peak over mean {ratio}");
    // The crowd of 21:00 comes at 21:00 in the first site, at 1:00 of the next day in the third.
    let at = |site: usize, hour: usize| {
        let steps = (0..30).map(|day| day * 1_440 + hour * 60 + 30);
        steps.map(|step| days.rates[site][step % (30 * 1_440)]).sum::<f64>()
    };
    assert!(at(0, 21) > 3.0 * at(0, 2) && at(2, 1) > 3.0 * at(2, 14), "{} {}", at(2, 1), at(2, 14));
}

#[test]
fn too_much_is_refused_before_it_is_made() {
    for make in [one_hot, shifting, match_days] {
        assert!(make(&made(usize::MAX, SECOND)).is_err());
        assert!(make(&made(0, SECOND)).is_err());
    }
}
