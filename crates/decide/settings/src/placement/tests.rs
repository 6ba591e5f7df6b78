//! What tables say, and what is told of wrong ones.

use super::*;

const WIDE: &str = "from\\to_rtt_ms,a,b\na,0.1,10\nb,12,0.2\n";
const LONG: &str = "from,to,min_ms,avg_ms\na,a,0,0.1\na,b,9,10\nb,a,9,12\nb,b,0,0.2\n";

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn both_forms_of_a_matrix_say_the_same() {
    let wide = parse_matrix(WIDE, "w.csv").unwrap();
    assert_eq!(wide, parse_matrix(LONG, "l.csv").unwrap());
    assert_eq!(wide.ms, [[0.1, 10.0], [12.0, 0.2]]);
}

#[test]
fn both_forms_of_counts_say_the_same() {
    let long =
        "interval,client,operation,count\n0,a,weak-read,3\n0,b,multi-group,1\n1,a,weak-read,2";
    let wide = "interval,client,weak-read,multi-group\n0,a,3,0\n0,b,0,1\n1,a,2,0";
    let clients = names(&["a", "b"]);
    let long = parse_counts(long, "l.csv", &clients).unwrap();
    assert_eq!(long, parse_counts(wide, "w.csv", &clients).unwrap());
    assert_eq!(long.len(), 2);
    assert_eq!(long[0].of(1), &[0.0, 0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn what_is_wrong_in_a_matrix_is_told_with_row_and_column() {
    let reported = |text: &str| parse_matrix(text, "m.csv").unwrap_err().to_string();
    let short = reported("x,a,b\na,0,1\nb,2\n");
    assert!(short.starts_with("m.csv:3:") && short.contains("cut off"), "{short}");
    let negative = reported("x,a,b\na,0,-1\nb,2,0\n");
    assert!(negative.starts_with("m.csv:2:3: got \"-1\""), "{negative}");
    assert!(negative.contains("from \"a\" to \"b\""), "{negative}");
    let missing = reported("x,a,b\na,0,\nb,2,0\n");
    assert!(missing.starts_with("m.csv:2:3:") && missing.contains("gap"), "{missing}");
    let pair = reported("from,to,rtt_ms\na,a,0\na,b,1\nb,b,0\n");
    assert!(pair.contains("no row from \"b\" to \"a\""), "{pair}");
    assert!(reported("x,a,a\na,0,1\n").starts_with("m.csv:1:3: got \"a\" again"));
}

#[test]
fn what_is_wrong_in_counts_and_domains_is_told_with_row_and_column() {
    let clients = names(&["tokyo", "paris"]);
    let reported = |text: &str| parse_counts(text, "c.csv", &clients).unwrap_err().to_string();
    let unknown = reported("interval,client,operation,count\n0,tokio,weak-read,1");
    assert!(unknown.starts_with("c.csv:2:2:"), "{unknown}");
    assert!(unknown.contains("did you mean \"tokyo\"?"), "{unknown}");
    let negative = reported("interval,client,operation,count\n0,tokyo,weak-read,-1");
    assert!(negative.starts_with("c.csv:2:4: got \"-1\""), "{negative}");
    let operation = reported("interval,client,operation,count\n0,tokyo,weak-reed,1");
    assert!(operation.contains("did you mean \"weak-read\"?"), "{operation}");
    let domains = parse_domains("site,domain\ntokyo,asia", "d.csv", &clients).unwrap_err();
    assert!(domains.to_string().contains("no row for the site \"paris\""), "{domains}");
}

#[test]
fn an_instance_says_which_matrix_is_not_square() {
    let text =
        br#"{"rtt_client_site_ms":[[1,2]],"rtt_site_site_ms":[[0,1],[1]],"counts":[[1,0,0,0,0]]}"#;
    let reported = parse_instance(text, "i.json").unwrap_err().to_string();
    assert!(reported.contains("between sites, row 1: 1 columns"), "{reported}");
    let reported = parse_instance(b"{", "i.json").unwrap_err().to_string();
    assert!(reported.starts_with("i.json:1:1: got EOF"), "{reported}");
}

#[test]
fn what_is_wrong_in_distributions_and_capacities_is_told_with_row_and_column() {
    let (clients, sites) = (names(&["c", "a"]), names(&["a"]));
    let parse = |text: &str| parse_distributions(text, "d.csv", &clients, &sites);
    let reported = |text: &str| parse(text).unwrap_err().to_string();
    let samples = "from,to,rtt_ms\nc,a,10\nc,a,30\na,a,1\nx,a,5\n";
    assert_eq!(parse(samples).unwrap().varying, Varying::Samples);
    assert_eq!(
        parse("from,to,avg_ms,mdev_ms\nc,a,9,1\na,a,0,0\n").unwrap().varying.name(),
        "log-normal"
    );
    assert!(reported("from,to,rtt_ms\nc,a,10\n").contains("no row from \"a\" to \"a\""));
    assert!(reported("from,to,rtt_ms\nc,a,-1\n").starts_with("d.csv:2:3: got \"-1\""));
    assert!(reported("from,to,avg_ms\nc,a,1\n").contains("from,to,avg_ms,mdev_ms"));
    let twice = reported("from,to,avg_ms,sd_ms\nc,a,9,1\nc,a,9,1\n");
    assert!(twice.starts_with("d.csv:3:1:") && twice.contains("each pair once"), "{twice}");
    let reported = |text: &str| parse_capacities(text, "c.csv").unwrap_err().to_string();
    let read = parse_capacities("site,capacity_per_s\na,1.5\nb,inf\n", "c.csv").unwrap();
    assert_eq!(read, [("a".to_owned(), 1.5), ("b".to_owned(), f64::INFINITY)]);
    assert!(reported("site,capacity\na,1\n").contains("site,capacity_per_s"));
    assert!(reported("site,capacity_per_s\na,1\na,2\n").starts_with("c.csv:3:1: got \"a\" again"));
    assert!(reported("site,capacity_per_s\na,nan\n").starts_with("c.csv:2:2: got \"nan\""));
}

#[test]
fn steps_grow_where_there_are_many_pairs() {
    // 320,000 pairs of 241 points are more than 20,000,000, of 121 too, of 49 not.
    let rows: Vec<Vec<f64>> = vec![vec![240.0; 400]; 400];
    let trips = RoundTrips::new(&rows, &rows).unwrap();
    assert_eq!(Distributions::constant(&trips).tails().unwrap().1, 5.0);
    let few = RoundTrips::new(&[vec![240.0; 2]], &[vec![0.0, 9.0], vec![9.0, 0.0]]).unwrap();
    assert_eq!(Distributions::constant(&few).tails().unwrap().1, 1.0);
}
