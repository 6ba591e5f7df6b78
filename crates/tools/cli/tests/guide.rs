//! The guide `docs/getting-started.md`, typed as it is written: its files, its commands, and what
//! they say.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{PROGRAM, text};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::nginx;
use evenkeel_testkit::story::nobody;

/// The ports of the guide, of which a machine that runs tests may have none left.
const PORTS: [&str; 5] = ["9001", "9002", "9003", "8080", "9901"];

/// What is written before what a command says.
const MARK: &str = "=== ";

/// What the guide has of one kind: `console`, `toml`, `nginx`.
fn blocks<'a>(guide: &'a str, kind: &str) -> Vec<&'a str> {
    let opening = format!("```{kind}\n");
    guide.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Commands with the lines that they say.
fn commands(guide: &str) -> Vec<(&str, Vec<&str>)> {
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in blocks(guide, "console").into_iter().flat_map(str::lines) {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command, Vec::new())),
            None => commands.last_mut().unwrap().1.push(line),
        }
    }
    commands
}

#[test]
fn every_command_of_the_guide_does_what_it_says() {
    let Some(nginx) = nginx::find() else {
        println!("SKIPPED: no nginx here (Debian: apt-get install nginx-light)");
        return;
    };
    for program in ["curl", "openssl"] {
        if Command::new(program).arg("version").output().is_err() {
            println!("SKIPPED: no {program} here");
            return;
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/getting-started.md");
    let mut guide = std::fs::read_to_string(path).unwrap();
    for port in PORTS {
        guide = guide.replace(port, &nobody().port().to_string());
    }
    let folder = Folder::new("guide");
    for (kind, name) in [("nginx", "nginx.conf"), ("toml", "evenkeel.toml")] {
        let [file] = blocks(&guide, kind)[..] else { panic!("one file of {kind}") };
        assert!(file.starts_with(&format!("# {name}\n")), "{file}");
        std::fs::write(folder.file(name), file).unwrap();
    }
    let commands = commands(&guide);
    assert!(commands.len() >= 12, "{commands:?}");
    // Whatever happens, nothing is left running.
    let mut script = String::from("trap 'kill $(jobs -p) $(cat nginx.pid) 2>/dev/null' EXIT\n");
    for (command, _) in &commands {
        script += &format!("echo '{MARK}'\n{command}\n");
    }
    let programs = [Path::new(PROGRAM).parent().unwrap(), nginx.parent().unwrap()];
    let programs = programs.map(|folder| folder.to_str().unwrap()).join(":");
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(folder.path()).env("PATH", path);
    let output = bash.output().unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    let said: Vec<&str> = said.split(&format!("{MARK}\n")).skip(1).collect();
    assert_eq!(said.len(), commands.len(), "{said:?}\n{errors}");
    for ((command, expected), said) in commands.iter().zip(said) {
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(&lines, expected, "{command}\n{errors}");
    }
}
