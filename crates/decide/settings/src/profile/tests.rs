//! Files of every kind, written, read and refused.

use std::time::Duration;

use evenkeel_geo::curve::ResponseCurves;
use proptest::prelude::*;

use super::*;

const SMALL: &str = "format = 'evenkeel-profile'
version = 1
servers = 2
[[saturation]]
write_share = 0.5
load = '2k/s'
[[step]]
load = 100
write_share = '50%'
unanswered = 1
latencies_ns = [[1000, 3], [2000, 4]]
";

fn parsed(text: &str) -> Result<Profile, Problems> {
    read(&Node::parse(text, "p.toml").unwrap())
}

fn problems(text: &str) -> String {
    parsed(text).unwrap_err().to_string()
}

/// Load, write share, unanswered, and buckets in any order.
type AnyStep = (f64, f64, u64, Vec<(u64, u64)>);

fn profile_of(servers: u32, steps: Vec<AnyStep>, saturated: &[bool]) -> Profile {
    let steps: Vec<LoadStep> = steps
        .into_iter()
        .map(|(load, share, unanswered, buckets)| {
            let mut buckets = buckets;
            buckets.sort_unstable();
            buckets.dedup_by_key(|(upper, _)| *upper);
            let bucket = |(upper, count)| Bucket { upper: Duration::from_nanos(upper), count };
            LoadStep {
                load: Rate::new(load).unwrap(),
                write_share: Probability::new(share).unwrap(),
                latencies: buckets.into_iter().map(bucket).collect(),
                unanswered,
            }
        })
        .collect();
    let mut saturations: Vec<Saturation> = Vec::new();
    for (step, _) in steps.iter().zip(saturated).filter(|(_, saturated)| **saturated) {
        if !saturations.iter().any(|of| of.write_share == step.write_share) {
            let load = Rate::new(step.load.value()).unwrap();
            saturations.push(Saturation { write_share: step.write_share, load });
        }
    }
    Profile { servers: NonZeroU32::new(servers).unwrap(), steps, saturations }
}

prop_compose! {
    fn any_step()(
        // Loads and shares of every magnitude and length of digits, and some that repeat.
        load in prop_oneof![(-13.0..20.0_f64).prop_map(f64::exp), Just(100.0), 1.0..2.0_f64],
        share in prop_oneof![0.0..=1.0_f64, Just(0.0), Just(-0.0), Just(1.0), Just(0.1)],
        unanswered in prop_oneof![1..1_000_u64, Just(COUNT_MAX)],
        buckets in prop::collection::vec((0..=3_600_000_000_000_u64, 1..=COUNT_MAX), 0..40),
    ) -> AnyStep {
        (load, share, unanswered, buckets)
    }
}

prop_compose! {
    fn any_profile()(
        servers in 1..=SERVERS_MAX,
        steps in prop::collection::vec(any_step(), 1..12),
        saturated in prop::collection::vec(any::<bool>(), 12),
    ) -> Profile {
        profile_of(servers, steps, &saturated)
    }
}

proptest! {
    // Files of some kilobytes each: 64 of them take half a second.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_and_written_the_same(profile in any_profile()) {
        let text = write(&profile);
        let read = parsed(&text).unwrap();
        prop_assert_eq!(&write(&read), &text);
        prop_assert_eq!(hash(&read), hash(&profile));
        prop_assert_eq!(read.servers, profile.servers);
        prop_assert_eq!(read.steps.len(), profile.steps.len());
        for step in &profile.steps {
            prop_assert!(read.steps.contains(step));
        }
        for saturation in &profile.saturations {
            prop_assert!(read.saturations.contains(saturation));
        }
    }

    #[test]
    fn the_order_of_steps_changes_nothing(profile in any_profile(), turn in 0..12_usize) {
        let mut turned = profile.clone();
        turned.steps.reverse();
        let count = turned.steps.len();
        turned.steps.rotate_left(turn % count);
        turned.saturations.reverse();
        prop_assert_eq!(write(&turned), write(&profile));
    }

    #[test]
    fn another_number_is_another_hash(profile in any_profile()) {
        let mut other = profile.clone();
        other.steps[0].unanswered -= 1;
        prop_assert_ne!(hash(&other), hash(&profile));
    }

    #[test]
    fn what_is_read_makes_curves(profile in any_profile()) {
        let read = parsed(&write(&profile)).unwrap();
        let curves = ResponseCurves::measured(Duration::from_millis(30), &read);
        // The one thing a file may hold and a curve may not: nothing measured below saturation.
        let expected = "a saturation above the load of at least one step";
        prop_assert!(curves.as_ref().err().is_none_or(|error| error.source.expected == expected));
    }

    #[test]
    fn a_record_keeps_what_is_known_of_its_run(
        profile in any_profile(), config in any::<u64>(), is_complete in any::<bool>(),
    ) {
        let steps = profile.steps.iter().enumerate();
        let step = |(place, step): (usize, &LoadStep)| {
            Step { measured: step.clone(), is_saturated: place % 2 == 0 }
        };
        let record = Record {
            servers: profile.servers,
            run: Some(Run { config, is_complete }),
            steps: steps.map(step).collect(),
            saturations: profile.saturations.clone(),
        };
        let node = Node::parse(&write_record(&record), "p.toml").unwrap();
        let read_again = read_record(&node).unwrap();
        prop_assert_eq!(read_again.run, record.run);
        for step in &record.steps {
            prop_assert!(read_again.steps.contains(step));
        }
        prop_assert_eq!(read(&node).is_ok(), is_complete);
    }
}

#[test]
fn a_file_by_hand_is_read() {
    let profile = parsed(SMALL).unwrap();
    assert_eq!(profile.servers.get(), 2);
    assert_eq!(profile.steps[0].requests(), 8);
    assert_eq!(profile.steps[0].latencies[1].upper, Duration::from_micros(2));
    assert_eq!(profile.saturations[0].load.value(), 2_000.0);
}

#[test]
fn the_hash_is_the_same_on_every_machine() {
    // FNV-1a with SplitMix64's finaliser over the canonical text, computed here step by step.
    let profile = parsed(SMALL).unwrap();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in write(&profile).bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    assert_eq!(super::hash(&profile), (hash ^ (hash >> 31)) as u32);
}

#[test]
fn every_problem_is_told_with_its_line() {
    let text = SMALL
        .replace("version = 1", "version = 2")
        .replace("servers = 2", "servers = 0\nspeed = 1")
        .replace("[1000, 3], [2000, 4]", "[2000, 0], [1000, 4], [3, 1, 2], [-1, 5]")
        .replace("unanswered = 1", "unanswered = -1");
    let reported = problems(&text);
    let expected = [
        "p.toml:2:11: version: got 2, expected 1, the version this release reads",
        "p.toml:3:11: servers: got 0, expected a whole number from 1 to 1000000",
        "p.toml:4:9: got the unknown key \"speed\"",
        "p.toml:11:14: step.0.unanswered: got -1, expected a whole number from 0 to",
        "p.toml:12:24: step.0.latencies_ns.0.1: got 0, expected a whole number from 1 to",
        "p.toml:12:28: step.0.latencies_ns.1: got 1000 ns after 2000 ns, expected buckets in",
        "p.toml:12:39: step.0.latencies_ns.2: got a list of 3, expected a bucket [longest",
        "p.toml:12:51: step.0.latencies_ns.3.0: got -1, expected a whole number from 0 to",
    ];
    for expected in expected {
        assert!(reported.contains(expected), "{expected}\nis not in\n{reported}");
    }
}

#[test]
fn what_no_curve_could_use_is_refused() {
    let wrong = |from: &str, to: &str| {
        assert!(SMALL.contains(from), "{from}");
        problems(&SMALL.replace(from, to))
    };
    let empty = wrong("unanswered = 1\nlatencies_ns = [[1000, 3], [2000, 4]]", "unanswered = 0");
    assert!(empty.contains("got nothing, expected a list of 4096 buckets at most"), "{empty}");
    let none = wrong("1\nlatencies_ns = [[1000, 3], [2000, 4]]", "0\nlatencies_ns = []");
    assert!(none.contains("got a step without a request"), "{none}");
    let share = wrong("write_share = 0.5", "write_share = 0.4");
    assert!(share.contains("got the write share 0.4, expected that of a step"), "{share}");
    let twice = wrong("[[step]]", "[[saturation]]\nwrite_share=0.5\nload=3\n[[step]]");
    assert!(twice.contains("p.toml:7:1: saturation.1: got the write share 0.5 again"), "{twice}");
    let format = wrong("evenkeel-profile", "evenkeel-plan");
    assert!(format.contains("expected evenkeel-profile"), "{format}");
    let load = wrong("load = 100", "load = 0");
    assert!(load.contains("got 0, expected a rate from 0.000001 to 1000000000"), "{load}");
    let all = problems("format = 'evenkeel-profile'\nversion = 1\nservers = 1");
    assert!(all.contains("step: got nothing, expected 1 to 4096 load steps"), "{all}");
}

#[test]
fn an_interrupted_profile_is_refused_with_the_way_out() {
    let text = SMALL.replace(
        "[[saturation]]",
        "[run]\nconfig = '00000000000000ff'\ncomplete = false\n[[saturation]]",
    );
    let reported = problems(&text);
    assert!(reported.contains("p.toml:4:1: run: got a profile that was interrupted"), "{reported}");
    assert!(reported.contains("again with the same configuration"), "{reported}");
    let node = Node::parse(&text, "p.toml").unwrap();
    assert_eq!(read_record(&node).unwrap().run, Some(Run { config: 255, is_complete: false }));
    let hex = problems(&text.replace("00ff", "00fg"));
    assert!(hex.contains("expected 16 hexadecimal digits"), "{hex}");
}

#[test]
fn a_file_is_replaced_whole() {
    let folder = std::env::temp_dir().join(format!("evenkeel-profile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("a.profile.toml");
    let record = read_record(&Node::parse(SMALL, "p.toml").unwrap()).unwrap();
    for servers in [3, 4] {
        let servers = NonZeroU32::new(servers).unwrap();
        save(&path, &Record { servers, ..record.clone() }).unwrap();
        assert_eq!(load(&path).unwrap().servers, servers);
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    assert!(save(&folder.join("absent").join("a"), &record).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
}
