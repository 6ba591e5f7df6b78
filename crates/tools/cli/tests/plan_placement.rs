//! `evenkeel plan placement` as a person runs it.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_evenkeel");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn example() -> PathBuf {
    root().join("plans/placement-follow-the-sun.toml")
}

fn plan(input: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["plan", "placement"]).arg(input).args(options).output().expect("it starts")
}

fn answer(input: &Path, options: &[&str]) -> Value {
    let output = plan(input, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("evenkeel-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    folder
}

/// Where the instances are, beside the project; none, with a line, when they are not.
fn instances() -> Vec<PathBuf> {
    let folder = root().join("../shared/data/placement-instances");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no placement instances in {}", folder.display());
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect()
}

#[test]
fn every_stored_optimum_is_found_and_proven() {
    for path in instances() {
        let stored: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for route in ["nearest", "bestpath"] {
            let answer = answer(&path, &["--route", route]);
            let results = answer["results"].as_array().unwrap();
            let problems = stored["problems"].as_array().unwrap();
            assert_eq!(results.len(), problems.len());
            for (result, problem) in results.iter().zip(problems) {
                let expected = problem[route]["optimal_score"].as_f64().unwrap();
                let score = result["score"].as_f64().unwrap();
                let difference = (score - expected).abs() / expected;
                assert!(difference <= 1e-9, "{} {route}: {result}", path.display());
                assert_eq!(result["proven"], true, "{} {route}", path.display());
            }
        }
    }
}

#[test]
fn each_tier_may_do_more_and_so_does_no_worse() {
    let mean = |tier: &str| {
        let answer = answer(&example(), &["--tier", tier]);
        answer["results"][0]["mean_ms"].as_f64().unwrap()
    };
    let today = answer(&example(), &[])["today"]["mean_ms"].as_f64().unwrap();
    let (one, two, three) = (mean("1"), mean("2"), mean("3"));
    assert!(today >= one && one >= two && two >= three, "{today} {one} {two} {three}");
    assert!(three < today, "the example leaves something to gain");
}

#[test]
fn the_example_of_the_documentation_is_what_comes() {
    let output = plan(&example(), &[]);
    let reported = String::from_utf8(output.stdout).unwrap();
    let text = std::fs::read_to_string(root().join("docs/plan-placement.md")).unwrap();
    let shown = text.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(reported, shown);
    // The README has its beginning.
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut shown = text.split("```text\n").filter_map(|rest| rest.split("```").next());
    let begins = shown.find(|block| block.contains("further replicas")).unwrap();
    assert!(reported.starts_with(begins), "{reported}");
}

#[test]
fn a_page_stands_alone() {
    let folder = folder("placement-page");
    let page = folder.join("plan.html");
    let output = plan(&example(), &["--html", page.to_str().unwrap(), "--worth", "4"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(text.contains("follow the sun") && text.contains("optimal"));
    assert!(!text.contains("<script") && !text.contains("http") && !text.contains("NaN"));
}

#[test]
fn what_is_wrong_is_told_with_its_file_row_and_column() {
    let folder = folder("placement-wrong");
    let reported = |rtt: &str, counts: &str, options: &[&str]| {
        std::fs::write(folder.join("rtt.csv"), rtt).unwrap();
        std::fs::write(folder.join("counts.csv"), counts).unwrap();
        let output = plan(&folder, options);
        assert_eq!(output.status.code(), Some(2), "{rtt}{counts}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (rtt, counts) = ("x,a,b\na,0,9\nb,9,0\n", "interval,client,weak-read\n0,a,1\n");
    let sizes = ["--replicas", "2", "--voters", "1"];
    assert!(reported("x,a,b\na,0,9\n", counts, &sizes).contains("not square"));
    assert!(reported("x,a,b\na,0,-9\nb,9,0\n", counts, &sizes).contains("rtt.csv:2:3: got \"-9\""));
    assert!(reported(rtt, "interval,client,weak-read\n0,c,1\n", &sizes).contains("counts.csv:2:2"));
    assert!(reported(rtt, counts, &["--replicas", "3", "--voters", "1"]).contains("1 to 2"));
    std::fs::write(folder.join("domains.csv"), "site,domain\na,one\nb,one\n").unwrap();
    let options = ["--replicas", "2", "--voters", "2", "--voter-domains", "2"];
    assert!(reported(rtt, counts, &options).contains("2 failure domains were asked for"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_plan_can_be_told_in_a_databases_own_words() {
    let best = &answer(&example(), &[])["results"][0];
    let sites = answer(&example(), &[])["sites"].clone();
    let leader = sites[best["leader"].as_u64().unwrap() as usize].as_str().unwrap().to_owned();
    let reported = |options: &[&str]| {
        let output = plan(&example(), options);
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = reported(&["--statements", "cockroachdb", "--database", "a\"b"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("ALTER DATABASE \"a\"\"b\" CONFIGURE ZONE USING num_replicas = 5,"));
    assert!(text.contains(&format!("lease_preferences = '[[+region={leader}]]';")), "{text}");
    let (code, text) = reported(&["--statements", "tidb", "--database", "d", "--table", "t"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("ALTER TABLE `d`.`t` PLACEMENT POLICY=`evenkeel_d`;"), "{text}");
    let (code, text) = reported(&["--statements", "tidb"]);
    assert!(code == Some(2) && text.contains("--database NAME"), "{text}");
    let (code, text) = reported(&["--statements", "yugabytedb"]);
    assert!(code == Some(2) && text.contains("cloud.region.zone"), "{text}");
}

/// A folder with these files.
fn with_files(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = folder(name);
    for (file, text) in files {
        std::fs::write(folder.join(file), text).unwrap();
    }
    folder
}

/// What goes wrong, in one line.
fn refused(input: &Path, options: &[&str]) -> String {
    let output = plan(input, options);
    assert_eq!(output.status.code(), Some(2), "{options:?}");
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(reported.trim_end().lines().count(), 1, "{reported}");
    reported
}

#[test]
fn the_runners_up_have_other_leaders_and_are_the_best_without_those_before() {
    let best = &answer(&example(), &[])["results"][0];
    let others = best["runners_up"].as_array().unwrap();
    assert_eq!(others.len(), 2);
    let mean = |line: &Value| line["mean_ms"].as_f64().unwrap();
    let (second, third) = (&others[0], &others[1]);
    assert!(mean(best) <= mean(second) && mean(second) <= mean(third));
    let leaders = [best, second, third].map(|line| line["leader"].as_u64().unwrap());
    assert!(leaders[0] != leaders[1] && leaders[1] != leaders[2] && leaders[0] != leaders[2]);
    assert!(others.iter().all(|line| line["proven"] == true));
    // A plan that may not lead from the best leader's site, nor have a replica there, is no better.
    let text = std::fs::read_to_string(example()).unwrap();
    let sites = answer(&example(), &[])["sites"].clone();
    let name = sites[leaders[0] as usize].as_str().unwrap();
    let folder = with_files("placement-runner", &[]);
    for file in
        ["aws-2020-rtt", "aws-2020-spread", "follow-the-sun-counts", "follow-the-sun-domains"]
    {
        let file = format!("placement-{file}.csv");
        std::fs::copy(root().join("plans").join(&file), folder.join(&file)).unwrap();
    }
    let without = text.replace("[today]", &format!("forbidden = [\"{name}\"]\n[today]"));
    std::fs::write(folder.join("without.toml"), without).unwrap();
    let without = answer(&folder.join("without.toml"), &[]);
    assert!(mean(&without["results"][0]) >= mean(second) - 1e-9);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A client that reads strongly, two sites: `a` is fast but for one round trip in ten, `b` steady.
const TWO_SITES: [(&str, &str); 3] = [
    ("rtt.csv", "x,a,b\nc,29,40\na,0,5\nb,5,0\n"),
    ("counts.csv", "interval,client,strong-read\n0,c,1000\n"),
    (
        "plan.toml",
        "round_trips = 'rtt.csv'\ncounts = 'counts.csv'\n\
         [today]\nleader = 'a'\nvoters = ['a', 'b']\nreplicas = ['a', 'b']\n",
    ),
];

#[test]
fn a_percentile_ranks_by_the_tail_of_what_was_sampled() {
    let mut samples = "from,to,rtt_ms\n".to_owned();
    for sample in 0..10 {
        let slow = if sample == 0 { 200 } else { 10 };
        samples += &format!("c,a,{slow}\nc,b,40\na,a,0\na,b,5\nb,a,5\nb,b,0\n");
    }
    let folder = with_files("placement-tail", &TWO_SITES);
    let toml = format!("distributions = 'samples.csv'\n{}", TWO_SITES[2].1);
    std::fs::write(folder.join("samples.csv"), &samples).unwrap();
    std::fs::write(folder.join("sampled.toml"), &toml).unwrap();
    let sampled = folder.join("sampled.toml");
    for (tier, percentile, key, expected, leader) in [
        ("1", "50", "p50_ms", 10.0, 0),
        ("1", "99", "p99_ms", 40.0, 1),
        ("2", "99.9", "p999_ms", 40.0, 1),
        // Tier 3 goes by the mean, 29 ms against 40, and says what the tail will be.
        ("3", "99", "p99_ms", 200.0, 0),
    ] {
        let answer = answer(&sampled, &["--tier", tier, "--percentile", percentile]);
        let best = &answer["results"][0];
        assert_eq!(best[key], expected, "{tier} {answer:#}");
        assert_eq!(best["leader"], leader, "{tier} {answer:#}");
        assert_eq!(best["proven"], true);
        assert_eq!(answer["percentile"]["round_trips"], "sampled");
        assert_eq!(answer["today"][key], if percentile == "50" { 10.0 } else { 200.0 });
    }
    let text = plan(&sampled, &["--tier", "1", "--percentile", "99"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("p99 200 ms → 40.0 ms, 80.0 % less"), "{text}");

    // Only means: the percentile of constants, and that is said.
    let means = folder.join("plan.toml");
    let constant = answer(&means, &["--tier", "1", "--percentile", "99"]);
    assert_eq!(constant["results"][0]["p99_ms"], 29.0);
    assert_eq!(constant["percentile"]["round_trips"], "constant");
    let text = plan(&means, &["--percentile", "99"]).stdout;
    assert!(String::from_utf8(text).unwrap().contains("taken as constant"));

    let output = plan(&means, &["--percentile", "100"]);
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && reported.contains("expected 10 to 99.99"),
        "{reported}"
    );
    std::fs::write(folder.join("samples.csv"), samples.replace("a,b,5\n", "")).unwrap();
    let reported = refused(&sampled, &["--percentile", "99"]);
    assert!(reported.contains("no row from \"a\" to \"b\""), "{reported}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_log_normal_round_trip_has_its_quantile() {
    let folder = with_files("placement-spread", &TWO_SITES);
    let spread =
        "from,to,avg_ms,mdev_ms\nc,a,29,57\nc,b,40,0\na,a,0,0\na,b,5,1\nb,a,5,1\nb,b,0,0\n";
    let toml = format!("distributions = 'spread.csv'\n{}", TWO_SITES[2].1);
    std::fs::write(folder.join("spread.csv"), spread).unwrap();
    std::fs::write(folder.join("spread.toml"), toml).unwrap();
    let answer = answer(&folder.join("spread.toml"), &["--percentile", "99"]);
    // sigma^2 = ln(1 + (57/29)^2), mu = ln 29 - sigma^2 / 2, z(0.99) = 2.3263479.
    let variance = (1.0_f64 + (57.0_f64 / 29.0).powi(2)).ln();
    let expected = (29.0_f64.ln() - variance / 2.0 + 2.326_347_9 * variance.sqrt()).exp();
    let came = answer["results"][0]["p99_ms"].as_f64().unwrap();
    assert!(came >= expected && came < expected + 1.0, "{came}, {expected} expected");
    assert_eq!(answer["percentile"]["round_trips"], "log-normal");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_interval_counts_with_its_own_round_trips() {
    let counts = "interval,client,strong-read\n0,c,10\n1,c,10\n";
    let slow = "x,a,b\nc,100,40\na,0,5\nb,5,0\n";
    let toml = "round_trips_by_interval = ['slow.csv', 'rtt.csv']\ncounts = 'counts.csv'\n\
                tau = 1\nreplicas = 1\nvoters = 1\n";
    let folder = with_files(
        "placement-intervals",
        &[TWO_SITES[0], ("counts.csv", counts), ("slow.csv", slow), ("plan.toml", toml)],
    );
    let input = folder.join("plan.toml");
    let best = &answer(&input, &[])["results"][0];
    // At a 100 ms and 29 ms, at b 40 ms both times.
    assert_eq!((&best["leader"], &best["mean_ms"]), (&Value::from(1), &Value::from(40.0)));
    assert_eq!(best["runners_up"][0]["mean_ms"], 64.5);
    std::fs::write(&input, toml.replace("tau = 1", "tau = 100")).unwrap();
    assert_eq!(answer(&input, &[])["results"][0]["leader"], 0, "the last interval decides");
    std::fs::write(&input, toml.replace("'slow.csv', ", "")).unwrap();
    let reported = refused(&input, &[]);
    assert!(
        reported.contains("1 tables of round trips") && reported.contains("2, one for each"),
        "{reported}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn voters_are_limited_by_domain_and_learners_are_not() {
    let folder = with_files("placement-voters", &[]);
    for entry in std::fs::read_dir(root().join("plans")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "csv") {
            std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
    let text = std::fs::read_to_string(example()).unwrap();
    let text = text.replace("voter_domains = 2 ", "domain_voters_max = 1 #");
    assert!(text.contains("domain_voters_max"));
    let input = folder.join("strict.toml");
    std::fs::write(&input, text.replace("domain_replicas_max = 3", "")).unwrap();
    let answer = answer(&input, &[]);
    let domains = std::fs::read_to_string(folder.join("placement-follow-the-sun-domains.csv"));
    let domains: Vec<String> = domains.unwrap().lines().skip(1).map(str::to_owned).collect();
    let domain = |site: &Value| {
        let name = answer["sites"][site.as_u64().unwrap() as usize].as_str().unwrap();
        let row = domains.iter().find(|row| row.starts_with(&format!("{name},"))).unwrap();
        row.split_once(',').unwrap().1.to_owned()
    };
    let best = &answer["results"][0];
    for line in std::iter::once(best).chain(best["runners_up"].as_array().unwrap()) {
        let mut of: Vec<String> = line["voters"].as_array().unwrap().iter().map(domain).collect();
        of.sort();
        of.dedup();
        assert_eq!(of.len(), 3, "{line:#}");
        assert_eq!(line["proven"], true);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn fleet() -> PathBuf {
    root().join("plans/placement-fleet")
}

/// Operations at the leader per second, as the tables say: τ is 2, so the interval before the last
/// counts half.
fn load_per_s(database: &str, cost: f64) -> f64 {
    let table = std::fs::read_to_string(fleet().join(format!("{database}.csv"))).unwrap();
    let mut operations = 0.0;
    for row in table.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let at_leader: f64 = cells[3..].iter().map(|cell| cell.parse::<f64>().unwrap()).sum();
        operations += at_leader * if cells[0] == "00:00" { 0.5 } else { 1.0 };
    }
    operations / 1.5 / 300.0 * cost
}

#[test]
fn leaders_of_many_databases_keep_the_capacities_of_sites() {
    for tier in ["2", "3"] {
        let answer = answer(&fleet(), &["--tier", tier]);
        let databases = answer["databases"].as_array().unwrap();
        assert_eq!(databases.len(), 4);
        let mut loads = std::collections::BTreeMap::new();
        for one in databases {
            let name = one["name"].as_str().unwrap();
            let expected = load_per_s(name, if name == "payments" { 2.0 } else { 1.0 });
            let load = one["load_per_s"].as_f64().unwrap();
            assert!((load / expected - 1.0).abs() < 1e-9, "{name}: {load}, expected {expected}");
            let leader = one["result"]["leader"].as_u64().unwrap() as usize;
            *loads.entry(one["sites"][leader].as_str().unwrap()).or_insert(0.0) += load;
            let mean = |which: &str| one[which]["mean_ms"].as_f64().unwrap();
            assert!(mean("alone") <= mean("result"), "{one:#}");
        }
        let capacity = answer["capacity"].as_array().unwrap();
        for site in capacity {
            let load = loads.remove(site["site"].as_str().unwrap()).unwrap_or(0.0);
            assert!((load - site["load_per_s"].as_f64().unwrap()).abs() < 1e-9);
            assert!(load <= site["capacity_per_s"].as_f64().unwrap());
        }
        assert!(loads.is_empty());
        let crowded =
            |site: &&Value| site["alone_per_s"].as_f64() > site["capacity_per_s"].as_f64();
        assert!(capacity.iter().any(|site| crowded(&site)), "capacities change something");
        assert_eq!(answer["gap"], 0.0);
    }
    let reported = refused(&fleet(), &["--tier", "1"]);
    assert!(
        reported.contains("nothing fits") && reported.contains("it can take 150"),
        "{reported}"
    );
    assert!(refused(&fleet(), &["--percentile", "99"]).contains("for one database"));
}

#[test]
fn what_cannot_fit_or_is_not_said_of_many_databases_is_one_error() {
    let [rtt, counts, (_, toml)] = TWO_SITES;
    let (one, two) = (format!("interval = '10s'\n{toml}"), format!("interval = '5s'\n{toml}"));
    let files = [rtt, counts, ("one.toml", &*one), ("two.toml", &*two)];
    let folder = with_files("placement-fleet", &files);
    let with = |capacities: &str| {
        std::fs::write(folder.join("capacity.csv"), capacities).unwrap();
        refused(&folder, &["--tier", "1"])
    };
    // 1000 operations in 10 s and in 5 s: 100/s and 200/s.
    let reported = with("site,capacity_per_s\na,190\nb,190\n");
    assert!(
        reported.contains("leader of two takes 200") && reported.contains("more than 190"),
        "{reported}"
    );
    let reported = with("site,capacity_per_s\na,200\nb,90\n");
    assert!(reported.contains("take 300 operations per second together"), "{reported}");
    assert!(reported.contains("can take 290"), "{reported}");
    assert!(with("site,capacity_per_s\na,200\n").contains("no row for the site \"b\""));
    assert!(with("site,capacity_per_s\na,200\nb,-1\n").contains("capacity.csv:3:2: got \"-1\""));
    std::fs::write(folder.join("capacity.csv"), "site,capacity_per_s\na,200\nb,inf\n").unwrap();
    let sites = answer(&folder, &["--tier", "1"]);
    let leader = |k: usize| sites["databases"][k]["result"]["leader"].as_u64().unwrap();
    // The busier one costs more to send away: 200/s by 11 ms.
    assert_eq!((leader(0), leader(1)), (1, 0));
    std::fs::write(folder.join("two.toml"), toml).unwrap();
    let reported = refused(&folder, &["--tier", "1"]);
    assert!(
        reported.contains("two.toml") && reported.contains("the length of an interval"),
        "{reported}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_fleet_of_the_documentation_is_what_comes_and_its_page_stands_alone() {
    let folder = folder("placement-fleet-page");
    let page = folder.join("fleet.html");
    let options = ["plan", "placement", "plans/placement-fleet", "--html", page.to_str().unwrap()];
    let output = Command::new(PROGRAM).current_dir(root()).args(options).output().unwrap();
    let reported = String::from_utf8(output.stdout).unwrap();
    let text = std::fs::read_to_string(root().join("docs/plan-placement.md")).unwrap();
    assert!(text.contains(&format!("```text\n{reported}```")), "{reported}");
    let text = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(text.contains("sessions") && text.contains("us-west-2"));
    assert!(!text.contains("<script") && !text.contains("http") && !text.contains("NaN"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let args = ["plan", "placement", "--json"];
    let mut command = Command::new(PROGRAM);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader); // as head does, only sooner
    let output = command.args(args).arg(example()).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &[][..]));
    // What nobody can store is told.
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else {
        return eprintln!("skipped: no /dev/full");
    };
    let output = command.stdout(full).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.starts_with("evenkeel: cannot write to stdout"), "{words}");
}
