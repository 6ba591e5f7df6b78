//! What is kept of a layout, and which of two is in force.

use proptest::prelude::{any, prop, prop_assert, proptest};

use super::*;

fn names(partitions: &[&[&str]]) -> Vec<Vec<String>> {
    partitions.iter().map(|it| it.iter().map(|&it| it.to_owned()).collect()).collect()
}

fn layout() -> Layout {
    Layout::configured(4, &names(&[&["a", "b"], &["c"]])).unwrap()
}

#[test]
fn a_layout_is_read_as_it_was_written() {
    let opened = Position { epoch: Epoch(3), sequence: Sequence(17) };
    let layout = layout().with_partition(vec!["d".to_owned()], opened).moved(0, 2).unwrap();
    let layout = layout.with_duplicate(1, "e").without_duplicate(0, "b");
    assert_eq!(Layout::decode(&layout.encode()).unwrap(), layout);
    assert_eq!(layout.version(), 5);
    assert_eq!((layout.partition_of("e"), layout.partition_of("b")), (Some(1), None));
    assert_eq!(layout.left, [Leftover { shard: 0, partition: 0 }]);
    let forgotten = layout.forgotten(layout.left[0]);
    assert_eq!((forgotten.version(), forgotten.left.len()), (6, 0));
}

#[test]
fn what_contradicts_itself_is_not_read() {
    let sealed = |json: &str| {
        let sum = xxhash_rust::xxh3::xxh3_64(json.as_bytes());
        Layout::decode(format!("{MAGIC}{sum:016x}\n{json}").as_bytes())
    };
    let of = |shards: &str, partitions: &str, left: &str| {
        sealed(&format!(
            "{{\"version\":2,\"shards\":{shards},\"partitions\":{partitions},\"configured\":[],\
             \"left\":{left}}}"
        ))
    };
    let two = "[{\"duplicates\":[\"a\"],\"opened\":0},{\"duplicates\":[],\"opened\":0}]";
    assert!(of("[0,0]", two, "[]").is_ok());
    assert!(of("[0,1]", two, "[]").unwrap_err().to_string().contains("without duplicates"));
    assert!(of("[0,2]", two, "[]").is_err());
    assert!(of("[]", two, "[]").is_err());
    assert!(of("[0]", two, "[{\"shard\":1,\"partition\":0}]").is_err());
    assert!(sealed("{}").is_err());
    let mut damaged = layout().encode();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(Layout::decode(&damaged).unwrap_err().to_string().contains("checksum"));
}

#[test]
fn a_shard_that_comes_back_leaves_nothing_where_it_is() {
    let there = layout().moved(0, 1).unwrap();
    let back = there.moved(0, 0).unwrap();
    assert_eq!(back.left, [Leftover { shard: 0, partition: 1 }]);
    let expected = layout().expecting(0, 1);
    assert_eq!(expected.left, [Leftover { shard: 0, partition: 1 }]);
    let arrived = expected.moved(0, 1).unwrap();
    assert_eq!(arrived.left, [Leftover { shard: 0, partition: 0 }]);
}

#[test]
fn one_of_configuration_and_stored_layout_is_changed_at_a_time() {
    let configured = layout();
    let moved = configured.moved(0, 1).unwrap();
    let same = Layout::reconciled(Some(moved.clone()), configured.clone());
    assert_eq!(same.unwrap(), moved);
    let exchanged = Layout::configured(4, &names(&[&["a", "x"], &["c"]])).unwrap();
    let next = Layout::reconciled(Some(moved), exchanged.clone()).unwrap();
    assert_eq!((next.map.partition(0), next.partition_of("x")), (1, Some(0)));
    let grown = configured.with_duplicate(1, "d");
    let reported = Layout::reconciled(Some(grown.clone()), exchanged).unwrap_err().to_string();
    assert!(reported.contains("[\"c\", \"d\"]"), "{reported}");
    let caught_up = Layout::configured(4, &names(&[&["a", "b"], &["c", "d"]])).unwrap();
    assert_eq!(Layout::reconciled(Some(grown.clone()), caught_up).unwrap(), grown);
    let closed = grown.without_partition(1);
    let caught_up = Layout::configured(4, &names(&[&["a", "b"]])).unwrap();
    assert_eq!(Layout::reconciled(Some(closed.clone()), caught_up).unwrap(), closed);
    let other = Layout::configured(8, &names(&[&["a", "b"], &["c"]])).unwrap();
    assert!(Layout::reconciled(Some(grown), other).is_err());
}

#[test]
fn the_file_is_replaced_whole_and_only_where_it_is_known() {
    let directory = std::env::temp_dir().join(format!("evenkeel-layout-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("layout");
    let store = MapPlace::File(path.clone()).open().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert_eq!(store.load().await.unwrap(), None);
        let (one, two) = (layout(), layout().moved(1, 1).unwrap());
        let early = store.store(1, &two).await;
        assert!(matches!(early, Err(StoreError::Conflict { found: 0 })), "{early:?}");
        store.store(0, &one).await.unwrap();
        store.store(1, &two).await.unwrap();
        assert_eq!(store.load().await.unwrap(), Some(two.clone()));
        let late = store.store(1, &two).await;
        assert!(matches!(late, Err(StoreError::Conflict { found: 2 })), "{late:?}");
        std::fs::write(&path, b"[duplicates]").unwrap();
        let error = store.load().await.unwrap_err().to_string();
        assert!(error.contains("first line"), "{error}");
        let refused = store.store(2, &two).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    });
    std::fs::remove_dir_all(&directory).unwrap();
}

proptest! {
    #[test]
    fn any_bytes_are_a_layout_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(),
    ) {
        let _ = Layout::decode(&bytes);
        let mut changed = layout().encode();
        let at = at.index(changed.len());
        changed[at] ^= 0x20;
        prop_assert!(Layout::decode(&changed).is_err());
    }
}
