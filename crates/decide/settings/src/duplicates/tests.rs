//! What files say, and what is told of wrong ones.

use evenkeel_planner::duplicates::moves::Partition;

use super::*;

const PLAN: &str = "
target = '98%'
bound = '3.5ms'
rate = '850k/s'
service = {law = 'exponential', mean = '2us'}
nodes_max = 8
";

fn read(text: &str) -> Result<Input, String> {
    let node = Node::parse(text, "d.toml").map_err(|problems| problems.to_string())?;
    Input::read(&node, Path::new("/nonexistent")).map_err(|problems| problems.to_string())
}

fn error(text: &str) -> String {
    read(text).unwrap_err()
}

#[test]
fn a_short_file_is_enough() {
    let input = read(PLAN).unwrap();
    assert_eq!(input.models, [Model::Lindley]);
    assert_eq!((input.rate.value(), input.bound), (850e3, Duration::from_micros(3_500)));
    assert_eq!(input.objective.prices, Prices::default());
    assert_eq!((input.objective.nodes_max, input.objective.target.value()), (8, 0.98));
    assert!((input.service.of(7).mean_nanos() - 2_000.0).abs() < 1e-6);
    assert!(input.today.is_none() && input.night().unwrap().is_none());
}

#[test]
fn everything_can_be_said() {
    let text = format!(
        "model = 'both'\nnet = '0.1ms'\nrepeat = '50us'\nseed = 7\naccesses = 5000\n{PLAN}\
         [cost]\nper_node = 3.6\nper_violation = 0.5\nper = '1h'\nsweep = [1, 2]\n\
         [today]\nrates = [1, '2k/s', 3]\n\
         partitions = [{{shards = [2, 0]}}, {{shards = [1], duplicates = 3}}]\n\
         [night]\nnodes = 6\nrate_share = '40%'\nmigration_violations = 12\n"
    );
    let input = read(&text).unwrap();
    assert_eq!(input.models, [Model::Lindley, Model::Paper]);
    // 3.6 an hour is a thousandth a second.
    assert!((input.objective.prices.per_node - 1e-3).abs() < 1e-15);
    assert_eq!(input.objective.prices.per_violation, 0.5);
    assert_eq!((input.sweep.clone(), input.per), (vec![1.0, 2.0], Duration::from_secs(3_600)));
    assert_eq!((input.effort.accesses, input.effort.accesses_max), (5_000, 500_000));
    let today = input.today.clone().unwrap();
    let three = core::num::NonZeroU32::new(3).unwrap();
    assert_eq!(today.arrangement.partitions[1], Partition { shards: vec![1], duplicates: three });
    assert_eq!(today.rates[1].value(), 2_000.0);
    let night = input.night().unwrap().unwrap();
    assert_eq!((night.nodes.get(), night.shards.get()), (6, 6));
    assert!((night.night_rate.value() / night.day_rate.value() - 0.4).abs() < 1e-12);
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let reported = error(&PLAN.replace("98%", "980%"));
    assert!(reported.starts_with("d.toml:2:10: target: got"), "{reported}");
    let reported = error(&PLAN.replace("nodes_max", "node_max"));
    assert!(reported.contains("did you mean \"nodes_max\""), "{reported}");
    let reported = error(&PLAN.replace("'exponential'", "'exponental'"));
    assert!(reported.contains("service.law") && reported.contains("did you mean"), "{reported}");
    let reported = error(&PLAN.replace("{law = 'exponential', mean = '2us'}", "3"));
    assert!(reported.contains("got 3, expected a file of times"), "{reported}");
    let reported = error(&PLAN.replace("{law = 'exponential', mean = '2us'}", "'none.csv'"));
    assert!(reported.contains("none.csv: got no readable file"), "{reported}");
    let reported = error(&format!("accesses = 5000\naccesses_max = 4000\n{PLAN}"));
    assert!(reported.contains("accesses_max: got 4000, expected at least accesses"), "{reported}");
    let reported = error(&format!("{PLAN}[night]\nnodes = 6\nshards = 3\n"));
    assert!(reported.contains("3 shards on 6 nodes"), "{reported}");
    for (partitions, wrong) in [
        ("[{shards = [0]}]", "the shard 1 in 0 partitions"),
        ("[{shards = [0, 1]}, {shards = [1]}]", "the shard 1 in 2 partitions"),
        ("[{shards = [0, 1, 2]}]", "the shard 2, expected shards 0 to 1"),
        ("[{shards = [0, 1]}, {shards = []}]", "expected one shard or more"),
    ] {
        let text = format!("{PLAN}[today]\nrates = [1, 1]\npartitions = {partitions}\n");
        let reported = error(&text);
        assert!(reported.contains(wrong), "{reported}");
    }
}

#[test]
fn samples_may_have_a_header_comments_and_columns() {
    let micros = |micros: &[u64]| -> Vec<Duration> {
        micros.iter().map(|&micros| Duration::from_micros(micros)).collect()
    };
    let one = parse_samples("3\n0.5\n\n# late\n12e1\n", "s.csv").unwrap();
    assert_eq!(one.rows, [micros(&[3_000]), micros(&[500]), micros(&[120_000])]);
    let two = parse_samples("\u{feff}left, right\n1, 2\n3, 4\n", "s.csv").unwrap();
    assert_eq!((two.names.join(" "), two.columns()), ("left right".to_owned(), 2));
    assert_eq!(two.rows[1], micros(&[3_000, 4_000]));
}

#[test]
fn what_is_wrong_in_samples_is_told_with_its_row() {
    let reported = |text: &str| parse_samples(text, "s.csv").unwrap_err().to_string();
    let unit = reported("3\n4\n5ms\n");
    assert!(unit.starts_with("s.csv:3:1: got \"5ms\" in row 3, expected a time"), "{unit}");
    let header = reported("ms\n1\nms\n");
    assert!(header.starts_with("s.csv:3:1: got \"ms\" in row 2"), "{header}");
    let negative = reported("1,2\n3,-4\n");
    assert!(negative.starts_with("s.csv:2:2:") && negative.contains("failed"), "{negative}");
    let gap = reported("1,2\n3,\n");
    assert!(gap.starts_with("s.csv:2:2: got \"\" in row 2"), "{gap}");
    let comma = reported("1\n3,5\n");
    assert!(comma.starts_with("s.csv:2:2: got 2 times in row 2, expected 1"), "{comma}");
    let short = reported("a,b\n3\n");
    assert!(short.contains("got 1 times in row 1, expected 2"), "{short}");
    for text in ["", "ms\n", "# nothing\n"] {
        assert!(reported(text).contains("got no row"), "{text:?}");
    }
    for text in ["NaN\n1\n", "inf\n"] {
        assert!(reported(text).starts_with("s.csv:1:1:"), "{text}");
    }
}

#[test]
fn columns_are_duplicates_together_and_files_are_duplicates_apart() {
    let folder = std::env::temp_dir().join(format!("evenkeel-duplicates-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("both.csv"), "1,10\n2,20\n").unwrap();
    std::fs::write(folder.join("one.csv"), "4\n").unwrap();
    let with = |service: &str| {
        let text = PLAN.replace("{law = 'exponential', mean = '2us'}", service);
        let node = Node::parse(&text, "d.toml").unwrap();
        Input::read(&node, &folder).map_err(|problems| problems.to_string())
    };
    let together = with("'both.csv'").unwrap();
    assert_eq!(together.service.duplicates_max(), Some(2));
    assert_eq!(together.together.map(|rows| rows.len()), Some(2));
    let apart = with("['one.csv', 'one.csv', 'one.csv']").unwrap();
    assert_eq!((apart.service.duplicates_max(), apart.together), (Some(3), None));
    let alike = with("'one.csv'").unwrap();
    assert_eq!((alike.service.duplicates_max(), alike.service.of(0).mean_nanos()), (None, 4e6));
    assert!(with("['both.csv']").unwrap_err().contains("got 2 columns, expected one column"));
    std::fs::remove_dir_all(&folder).unwrap();
}
