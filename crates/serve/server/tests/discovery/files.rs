//! The same by a file, however it is replaced.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use evenkeel_core::discovery::Standing;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::story::{nobody, story_within};
use evenkeel_testkit::wait::until;

use crate::{Fleet, LIMIT, Requests, get, log, members, source, start, stop, text};

fn write(path: &Path, replicas: &[SocketAddr]) {
    let targets: Vec<String> = replicas.iter().map(ToString::to_string).collect();
    std::fs::write(path, format!("[{{\"targets\": {targets:?}, \"labels\": {{}}}}]")).unwrap();
}

#[test]
fn a_fleet_grows_and_shrinks_by_a_file_however_it_is_replaced() {
    log::keep();
    story_within(LIMIT, async {
        let (fleet, folder) = (Fleet::start(9), Folder::new("discovery-file"));
        let [file, next] = ["replicas.json", "next"].map(|name| folder.file(name));
        write(&file, &fleet.addresses(0..3));
        let discover = format!("discover = {{ file = '{}' }}", file.display());
        let process = start(&text("filed", nobody(), &discover));
        let (states, main) = (Arc::clone(process.upstreams()), process.listens()[0]);
        assert_eq!(members(&states), fleet.addresses(0..3), "before the first request");
        let requests = Requests::start(main);
        fleet.take_part(0..3).await;
        write(&next, &fleet.addresses(0..9));
        std::fs::rename(&next, &file).unwrap();
        until("there are nine", || members(&states).len() == 9).await;
        fleet.take_part(0..9).await;
        write(&file, &fleet.addresses(0..2));
        until("there are two", || members(&states).len() == 2).await;

        // Half written, then gone: it is said once, and where.
        std::fs::write(&next, "[{\"targets\": [\"127.0.0.11:80\"").unwrap();
        std::fs::rename(&next, &file).unwrap(); // never seen empty, which is said otherwise
        until("it is said", || log::count("filed", "line 1 column 29") == 1).await;
        std::fs::remove_file(&file).unwrap();
        let failed = source(&states).counts.failed;
        until("it is gone", || source(&states).counts.failed >= failed + 2).await;
        assert_eq!(members(&states), fleet.addresses(0..2), "they stay");
        assert_eq!(log::count("filed", "stay"), 1, "{:?}", log::all("filed"));

        // As Kubernetes replaces what a volume has: one link to a folder is exchanged.
        for (folder_name, count) in [("..first", 4), ("..second", 6)] {
            std::fs::create_dir(folder.file(folder_name)).unwrap();
            let inside = folder.file(folder_name).join("replicas.json");
            write(&inside, &fleet.addresses(0..count));
        }
        symlink("..first", folder.file("..data")).unwrap();
        symlink("..data/replicas.json", &file).unwrap();
        until("there are four", || members(&states).len() == 4).await;
        symlink("..second", folder.file("..next")).unwrap();
        std::fs::rename(folder.file("..next"), folder.file("..data")).unwrap();
        until("there are six", || members(&states).len() == 6).await;
        fleet.take_part(0..6).await;
        requests.none_is_lost(&states).await;

        // Nobody is an answer, too.
        std::fs::write(folder.file("..data").join("replicas.json"), "[]").unwrap();
        until("there is nobody", || members(&states).is_empty()).await;
        evenkeel_testkit::wait::found("it is told", async || {
            Some(get(main, "/").await).filter(|it| it.starts_with("HTTP/1.1 503"))
        })
        .await;
        std::fs::write(folder.file("..data").join("replicas.json"), "[{").unwrap();
        until("it is wrong", || source(&states).standing == Standing::Failing).await;
        let said = log::all("filed");
        assert_eq!(log::count("filed", "no replicas are known of it: "), 1, "{said:?}");
        assert_eq!(log::count("filed", " yet"), 0, "it had spoken: {said:?}");
        let status = get(process.admin().unwrap(), "/api/v1/status").await;
        assert!(status.contains("\"last_error\":\"/") && status.contains("column 2"), "{status}");
        stop(process).await;
    });
}
