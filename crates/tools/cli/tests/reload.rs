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

#[test]
fn a_watched_file_is_reloaded_however_it_is_replaced_and_a_broken_one_is_told_once() {
    use std::os::unix::fs::symlink;
    let (folder, replica, door) = (Folder::new("watch"), replica(), nobody());
    // As Kubernetes has it: file -> ..data/file, ..data -> a folder that is replaced.
    let (file, data) = (folder.file("run.toml"), folder.file("..data"));
    let text = |policy: &str| {
        format!(
            "[process]\nworkers = 1\n[[listen]]\naddress = '{door}'\nupstream = 'web'\n\
             [upstream.web]\npolicy = '{policy}'\nreplicas = ['{replica}']\n"
        )
    };
    let swap = |version: &str, policy: &str| {
        let next = folder.file(version);
        std::fs::create_dir(&next).unwrap();
        std::fs::write(next.join("run.toml"), text(policy)).unwrap();
        symlink(version, folder.file("..data_tmp")).unwrap();
        std::fs::rename(folder.file("..data_tmp"), &data).unwrap();
    };
    swap("..1", "c3");
    symlink("..data/run.toml", &file).unwrap();
    let mut command = std::process::Command::new(common::PROGRAM);
    let mut running = Running::start_by(command.args(["run", "--watch"]).arg(&file));
    running.until("SIGHUP reloads");
    swap("..2", "random");
    running.until("reloaded: configuration 2; changed: upstream.web.policy");
    let next = folder.file("next");
    std::fs::write(&next, text("round-robin")).unwrap();
    std::fs::rename(&next, &file).unwrap();
    running.until("reloaded: configuration 3");
    std::fs::write(&file, text("round-robbin")).unwrap();
    running.until("not reloaded, nothing changed");
    running.until("upstream.web.policy");
    std::fs::remove_file(&file).unwrap();
    let said = running.until("not reloaded, nothing changed");
    assert!(!said.contains("robbin\n"), "once: {said}");
    // What it names is not there yet, and comes.
    let token = folder.file("certificate.pem");
    let tls = format!(
        "[[listen]]\naddress = '{}'\nupstream = 'web'\n\
         tls = {{ certificate = '{2}', key = '{2}' }}\n{}",
        nobody(),
        text("c3"),
        token.display()
    );
    std::fs::write(&file, tls).unwrap();
    running.until("certificate.pem");
    assert!(http::get(door, "/").starts_with("HTTP/1.1 200"));
    let issued = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
    let pem = issued.cert.pem() + &issued.signing_key.serialize_pem();
    std::fs::write(&token, pem).unwrap();
    running.until("reloaded: configuration 4");
    assert!(http::get(door, "/").starts_with("HTTP/1.1 200"), "it serves all the time");
}
