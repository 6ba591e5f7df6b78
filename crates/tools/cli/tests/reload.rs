//! `evenkeel run` that is told by SIGHUP to read its file again.

mod common;

use common::{Running, replica};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::story::nobody;

#[test]
fn a_signal_makes_it_read_its_file_again_and_a_wrong_file_changes_nothing() {
    let (folder, replica) = (Folder::new("reload"), replica());
    let door = nobody();
    let file = folder.file("run.toml");
    let write = |policy: &str, workers: usize| {
        let text = format!(
            "[process]\nworkers = {workers}\n[[listen]]\naddress = '{door}'\nupstream = 'web'\n\
             [upstream.web]\npolicy = '{policy}'\nreplicas = ['{replica}']\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    write("c3", 1);
    let mut running = Running::start(&file);
    running.until("SIGHUP reloads");
    write("round-robin", 1);
    running.signal("HUP");
    running.until("reloaded: configuration 2; changed: upstream.web.policy");
    write("round-robbin", 1);
    running.signal("HUP");
    running.until("not reloaded, nothing changed");
    let said = running.until("upstream.web.policy");
    assert!(said.contains("run.toml:7:10") && said.contains("round-robin"), "{said}");
    write("round-robin", 2);
    running.signal("HUP");
    running.until("process.workers has changed, and only a restart changes it");
    assert!(http::get(door, "/").starts_with("HTTP/1.1 200"), "it serves all the time");
    running.signal("TERM");
    running.until("stopping");
    assert!(running.child.wait().unwrap().success());
}
