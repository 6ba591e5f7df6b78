//! What is printed, from numbers that are known.

use super::*;

const INPUT: &str = "
title = 'a < b'
target = '99%'
bound = '10ms'
rate = 100
service = {law = 'exponential', mean = '2ms'}
nodes_max = 4
accesses = 20000
accesses_max = 20000
model = 'both'
[cost]
per_node = 2
per_violation = 0.5
[today]
rates = [60, 40]
partitions = [{shards = [0, 1]}]
[night]
nodes = 6
";

fn plan(set: &[&str]) -> Plan {
    let mut node = Node::parse(INPUT, "d.toml").unwrap();
    set.iter().for_each(|assignment| node.set(assignment).unwrap());
    let input = Input::read(&node, Path::new("")).unwrap();
    Plan::of(input.title.clone().unwrap(), input).unwrap()
}

#[test]
fn the_document_has_the_agreed_keys_and_costs() {
    let plan = plan(&[]);
    let json = serde_json::to_value(plan.document()).unwrap();
    // 4 + 2 + 1 + 1 policies of at most 4 nodes.
    assert_eq!(json["policies"].as_array().unwrap().len(), 8);
    for policy in json["policies"].as_array().unwrap() {
        let of = |key: &str| policy[key].as_f64().unwrap();
        assert_eq!(of("nodes"), of("partitions") * of("duplicates"));
        let cost = 2.0 * of("nodes") + 100.0 * of("violations") * 0.5;
        assert!((of("cost") - cost).abs() < 1e-9, "{policy}");
        assert!((of("nines") + of("violations").log10()).abs() < 1e-12);
        assert!((of("service_level") - 1.0 + of("violations")).abs() < 1e-15);
    }
    // One exponential server of 2 ms at ρ = 0.2: e^-4 is late, more than 1 %; two partitions at
    // ρ = 0.1 e^-4.5, 1.1 %. Two duplicates are enough.
    assert_eq!((&json["best"]["partitions"], &json["best"]["duplicates"]), (&1.into(), &2.into()));
    assert_eq!((&json["model"], &json["beside"]["model"]), (&"lindley".into(), &"paper".into()));
    assert_eq!(json["night"].as_array().unwrap().len(), 4);
    assert!(!json["today"].as_array().unwrap().is_empty());
}

#[test]
fn text_and_page_say_what_is_best() {
    let plan = plan(&[]);
    let text = text::describe(&plan);
    assert!(text.contains("1p/2d: 99."), "{text}");
    assert!(text.contains("today: 98.") && text.contains("sparing"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("1p/2d") && line.ends_with("best")), "{text}");
    let page = page::page(&plan);
    assert!(page.contains("<title>a &lt; b") && page.contains("target</text>"));
    assert!(!page.contains("http") && !page.contains("<script") && !page.contains("NaN"));
}

#[test]
fn what_cannot_be_kept_is_said() {
    let plan = plan(&["target=99.99999%", "rate=1000"]);
    let text = text::describe(&plan);
    assert!(text.contains("No policy of at most 4 nodes keeps 99.99999 % within 10ms"), "{text}");
    assert!(serde_json::to_value(plan.document()).unwrap()["best"].is_null());
    assert!(!page::page(&plan).contains("NaN"));
}

#[test]
fn levels_and_costs_keep_the_digits_that_matter() {
    let reported = [0.0, 0.5, 0.02, 1.23e-4, 4e-7, 1.0].map(text::level);
    assert_eq!(reported, ["100.0 %", "50.0 %", "98.00 %", "99.9877 %", "99.9999600 %", "0.0 %"]);
    let reported = [0.0, 1234.5678, 12.0, 0.001_234_56, 1e7].map(text::cost);
    assert_eq!(reported, ["0", "1235", "12", "0.001235", "10000000"]);
}

#[test]
fn reads_go_to_all_or_are_hedged_by_load() {
    let busy = plan(&["reads=100%", "rate=400"]);
    let text = text::describe(&busy);
    assert!(text.lines().any(|line| line.contains("reads") && line.contains("nines")), "{text}");
    assert!(text.contains("to one duplicate, hedged: to all"), "{text}");
    let json = serde_json::to_value(busy.document()).unwrap();
    let best = &json["best"];
    assert_eq!(best["reads"], "hedged");
    assert!(best["violations"].as_f64() < best["violations_otherwise"].as_f64(), "{best}");
    let json = serde_json::to_value(plan(&[]).document()).unwrap();
    assert_eq!(
        (&json["best"]["reads"], json["best"].get("violations_otherwise")),
        (&"all".into(), None)
    );
}
