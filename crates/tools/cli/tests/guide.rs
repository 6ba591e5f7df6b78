//! The guide `docs/getting-started.md`, typed as it is written: its files, its commands, and what
//! they say. With the program of the Debian package that `EVENKEEL_PACKAGE` names, else with that
//! of this build. Where there is a browser, it looks at the dashboard.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{PROGRAM, text};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::nginx;
use evenkeel_testkit::story::nobody;

/// The ports of the guide, of which a machine that runs tests may have none left.
const PORTS: [&str; 5] = ["9001", "9002", "9003", "8080", "9901"];

/// What is written before what a command says.
const MARK: &str = "=== ";

/// The path of a Debian package.
const PACKAGE: &str = "EVENKEEL_PACKAGE";

/// The command of the guide after which a browser opens the same page.
const OPENS_DASHBOARD: &str = "grep -o '<title>";

/// The folder with the program: a package's files are unpacked, not installed.
fn programs(folder: &Folder) -> PathBuf {
    let Some(package) = std::env::var_os(PACKAGE) else {
        return Path::new(PROGRAM).parent().unwrap().to_owned();
    };
    let root = folder.file("package");
    let status = Command::new("dpkg").arg("-x").arg(&package).arg(&root).status().unwrap();
    assert!(status.success(), "dpkg -x {package:?}");
    root.join("usr/bin")
}

/// What a browser shows of the dashboard once its scripts have asked for what it shows.
fn browse(url: &str) -> String {
    format!(
        "chromium --headless --no-sandbox --disable-gpu --user-data-dir=browser \
         --virtual-time-budget=10000 --dump-dom {url} 2>/dev/null >dashboard.html\n"
    )
}

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
        if command.contains(OPENS_DASHBOARD) {
            script +=
                &browse(command.split_whitespace().find(|word| word.contains("://")).unwrap());
        }
    }
    let programs = [programs(&folder), nginx.parent().unwrap().to_owned()];
    let programs = programs.map(|folder| folder.to_str().unwrap().to_owned()).join(":");
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
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("SKIPPED: no chromium here, nobody looks at the dashboard");
        return;
    }
    let shown = std::fs::read_to_string(folder.file("dashboard.html")).unwrap();
    assert!(shown.contains("3 of 3 up"), "the browser shows of the dashboard: {shown}");
}
