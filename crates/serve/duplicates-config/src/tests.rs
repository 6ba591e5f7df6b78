//! Services of several groups: what each is made of, and what they need.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_settings::{Node, Problems};

use super::read::Duplicates;
use super::*;

/// Five partitions with a lease and a door, and these further lines.
fn read(more: &str) -> Result<DuplicatesConfig, Problems> {
    read_instead("", more)
}

/// The same without the line of this key.
fn read_instead(of: &str, more: &str) -> Result<DuplicatesConfig, Problems> {
    let lines = [
        "listen = '127.0.0.1:6380'",
        "directory = '/var/cart'",
        "store = 'redis'",
        "partitions = [['a:1'], ['b:1'], ['c:1'], ['d:1'], ['e:1']]",
        "standby = true",
        "coordination = {store = 'etcd', endpoints = ['http://127.0.0.1:2379']}",
        "cluster = '127.0.0.1:6390'",
    ];
    let is_kept = |line: &&&str| of.is_empty() || !line.starts_with(&format!("{of} "));
    let kept: Vec<&str> = lines.iter().filter(is_kept).copied().collect();
    let text = format!("[cart]\n{}\n{more}\n", kept.join("\n"));
    Node::parse(&text, "run.toml").and_then(|node| {
        node.read(|table| Duplicates::read("cart", table.key("cart"), Duration::ZERO, None).config)
    })
}

#[test]
fn each_group_has_its_run_of_everything() {
    let whole = read("spares = ['x:1', 'y:1']\nshards = 40\ngroups = 2").unwrap();
    let groups = whole.split();
    let of = |group: &DuplicatesConfig| {
        let places: Vec<String> = group.places().into_iter().flatten().collect();
        let etcd = group.etcd.as_ref().unwrap().of_group(group.group).prefix;
        (group.name.clone(), places.join(" "), group.shards, etcd)
    };
    let prefix = |group: u8| format!("evenkeel/duplicates/cart/groups/{group}");
    assert_eq!(of(&groups[0]), ("cart.0of2".to_owned(), "a:1 b:1".to_owned(), 20, prefix(0)));
    assert_eq!(of(&groups[1]), ("cart.1of2".to_owned(), "c:1 d:1 e:1".to_owned(), 20, prefix(1)));
    assert_eq!(groups[1].service(), "cart");
    assert_eq!(groups[1].cluster.unwrap().port(), 6_391);
    assert_eq!(groups[1].log_directory, Path::new("/var/cart/1/log"));
    let MapPlace::File(layout) = &groups[1].map;
    assert_eq!(layout, Path::new("/var/cart/1/layout"));
    assert_eq!(groups.iter().map(|it| it.spares.len()).collect::<Vec<_>>(), [1, 1]);
    let few = read("shards = 5\ngroups = 2").unwrap().split();
    assert_eq!((few[0].shards, few[1].shards), (2, 3), "one for each partition at least");
}

#[test]
fn groups_share_threads_unless_they_wait_for_a_disk() {
    let threads = |more: &str, workers: usize| {
        let groups = read(&format!("groups = 5\n{more}")).unwrap().split();
        let names: BTreeSet<String> = groups.iter().map(|it| it.thread(workers)).collect();
        names.len()
    };
    assert_eq!([1, 2, 5, 64].map(|workers| threads("", workers)), [1, 2, 5, 5]);
    assert_eq!(threads("log_sync = 'never'", 2), 2);
    assert_eq!(threads("log_sync = 'always'", 2), 5);
}

#[test]
fn a_service_without_groups_is_as_it_is() {
    let [one] = &read("").unwrap().split()[..] else { panic!("several") };
    assert_eq!((&*one.name, one.service(), one.shards), ("cart", "cart", 64));
    assert_eq!(one.thread(2), "cart");
    assert_eq!(one.log_directory, Path::new("/var/cart/log"));
    let etcd = one.etcd.as_ref().unwrap();
    assert_eq!(etcd.of_group(one.group).prefix, "evenkeel/duplicates/cart");
}

#[test]
fn what_groups_need_is_said() {
    for (without, more, says) in [
        ("", "groups = 6", "at most as many as partitions: 5"),
        ("", "groups = 0", "1 to 64"),
        ("standby", "groups = 2", "standby = true"),
        ("cluster", "groups = 2", "cluster too"),
        ("cluster", "groups = 2\ncluster = '127.0.0.1:0'", "a port of cluster"),
        ("cluster", "groups = 2\ncluster = '127.0.0.1:65535'", "at most 65535"),
        ("store", "groups = 2\nstore = 'memcached'", "store = \"redis\""),
    ] {
        let problems = read_instead(without, more).expect_err(more).to_string();
        assert!(problems.contains(says), "{more}: {problems}");
    }
}

#[test]
fn nights_need_a_manager_that_acts_and_a_log_on_disk() {
    let least = |more: &str| {
        let manager = read_instead("partitions", more).unwrap().manager.unwrap();
        manager.night.map(|night| night.duplicates_min.get())
    };
    let acts = "objective = '5ms'\nmode = 'move'\npartitions = [['a:1', 'b:1'], ['c:1', 'd:1']]";
    assert_eq!(least(acts), None, "off by default");
    assert_eq!(least(&format!("{acts}\nnight = true")), Some(2), "what was asked for");
    assert_eq!(least(&format!("{acts}\nnight = true\nnight_duplicates_min = 1")), Some(1));
    for (more, expected) in [
        ("night = true", "objective too"),
        ("night = true\nobjective = '5ms'", "mode = \"move\" too"),
        ("night = true\nobjective = '5ms'\nmode = 'move'\nlog = 'memory'", "log = \"disk\""),
    ] {
        let problems = read(more).unwrap_err().to_string();
        assert!(problems.contains(expected), "{more}: {problems}");
    }
}

#[test]
fn servers_of_redis_alone_may_be_nodes_of_its_cluster() {
    let servers = |more: &str| read(more).unwrap().split().last().map(DuplicatesConfig::servers);
    assert_eq!(servers(""), Some(Servers::Plain));
    assert_eq!(servers("store_cluster = false"), Some(Servers::Plain));
    assert_eq!(servers("store_cluster = true"), Some(Servers::Nodes));
    assert_eq!(servers("store_cluster = true\ngroups = 2"), Some(Servers::Nodes));
    let spare = read("store_cluster = true\nspares = ['x:1']").unwrap().spares.remove(0);
    assert!(matches!(spare, Target::Tcp { access, .. } if access.is_cluster));
    for (without, more, says) in [
        ("", "store_cluster = 1", "true or false"),
        ("store", "store_cluster = true\nstore = 'memcached'", "only store = \"redis\" has nodes"),
    ] {
        let problems = read_instead(without, more).expect_err(more).to_string();
        assert!(problems.contains(says), "{more}: {problems}");
    }
}
