//! Unmodified drivers say the same of a proxy as of a node.
//!
//! Each runs a program of its language that tries what a driver does (see `drivers/README.md`),
//! at a node and through Evenkeel; what it prints must be the same, but for lines that tell who is
//! there. The programs are made by `cargo xtask needs --install`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::proxy::Proxy;
use evenkeel_testkit::cassandra;

/// As many programs at once: they mostly wait for nodes to agree on schemas.
const AT_ONCE: usize = 4;

/// The shortest output of a program that tried everything.
const LINES_MIN: usize = 30;

struct Driver {
    name: &'static str,
    /// Versions of the protocol and compressions to try; a driver may know fewer.
    ways: &'static [(u8, &'static str)],
    command: fn(&Path, &Path) -> Option<Command>,
}

const DRIVERS: [Driver; 5] = [
    Driver {
        name: "python",
        ways: &[(4, "none"), (5, "lz4")],
        command: |made, source| {
            let mut command = existing(made.join("python/bin/python"))?;
            command.arg(source.join("python/driver.py"));
            Some(command)
        },
    },
    Driver {
        name: "gocql",
        ways: &[(4, "snappy"), (5, "lz4")],
        command: |made, _| existing(made.join("gocql/driver")),
    },
    Driver {
        name: "java",
        ways: &[(4, "lz4"), (5, "none")],
        command: |made, _| {
            let classes = made.join("java/classes");
            let mut command = classes.is_dir().then(|| Command::new("java"))?;
            let class_path = format!("{}:{}/java/lib/*", classes.display(), made.display());
            command.args(["-Xmx128M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
            command.args(["-cp", &class_path, "Driver"]);
            Some(command)
        },
    },
    Driver {
        name: "node",
        ways: &[(4, "none")],
        command: |made, source| {
            let modules = made.join("node/node_modules");
            let mut command = modules.is_dir().then(|| Command::new("node"))?;
            command.arg(source.join("node/driver.js")).env("NODE_PATH", modules);
            Some(command)
        },
    },
    Driver {
        name: "scylla",
        ways: &[(4, "lz4")],
        command: |made, _| existing(made.join("scylla/target/debug/evenkeel-cassandra-driver")),
    },
];

fn existing(program: PathBuf) -> Option<Command> {
    program.is_file().then(|| Command::new(program))
}

/// One run of one program.
struct Run {
    driver: &'static Driver,
    way: (u8, &'static str),
    to: SocketAddr,
    keyspace: String,
}

impl Run {
    /// What it printed, with any keyspace's name.
    fn reported(&self) -> Option<Result<Vec<String>, String>> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cassandra/drivers");
        let mut command = (self.driver.command)(&target.join("xtask/cassandra"), &source)?;
        let ((version, compression), to) = (self.way, self.to);
        command.args([to.ip().to_string(), to.port().to_string(), version.to_string()]);
        let done = command.args([compression, &self.keyspace]).output().unwrap();
        let out = String::from_utf8_lossy(&done.stdout).replace(&self.keyspace, "KEYSPACE");
        let lines: Vec<String> = out.lines().map(str::to_owned).collect();
        let is_complete = lines.len() >= LINES_MIN && lines.last().is_some_and(|it| it == "done");
        if done.status.success() && is_complete {
            return Some(Ok(lines));
        }
        let error = String::from_utf8_lossy(&done.stderr);
        Some(Err(format!("{}\n{out}{error}", done.status)))
    }
}

#[test]
fn drivers_see_no_difference() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    // Others wait in vain for nodes to agree while schemas change all the time.
    let _alone = cluster.disturb();
    let proxy = Proxy::start(cluster, "");
    let only = std::env::var("EVENKEEL_CASSANDRA_DRIVERS").unwrap_or_default();
    let mut runs = Vec::new();
    for driver in DRIVERS.iter().filter(|it| only.is_empty() || only.contains(it.name)) {
        for way in driver.ways {
            for (place, to) in [("direct", cluster.address(0)), ("proxied", proxy.address())] {
                let keyspace = format!("{}_{}_{place}", driver.name, way.0);
                runs.push(Run { driver, way: *way, to, keyspace });
            }
        }
    }
    let reported = run_all(&runs);
    let mut differences = String::new();
    for (pair, reported) in runs.chunks(2).zip(reported.chunks(2)) {
        let name =
            format!("{} with version {} and {}", pair[0].driver.name, pair[0].way.0, pair[0].way.1);
        match (&reported[0], &reported[1]) {
            (None, _) | (_, None) => {
                let advice = "`cargo xtask needs --install` makes it";
                evenkeel_testkit::story::skipped(&format!("no program for {name}; {advice}"));
            }
            (Some(Err(error)), _) => panic!("{name}, at a node itself: {error}"),
            (Some(Ok(_)), Some(Err(error))) => {
                differences.push_str(&format!("{name}, through Evenkeel: {error}\n"));
            }
            (Some(Ok(direct)), Some(Ok(proxied))) => {
                let found = difference(direct, proxied).map(|it| format!("{name}: {it}\n"));
                differences.push_str(&found.unwrap_or_default());
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

type Told = Option<Result<Vec<String>, String>>;

/// What all runs told, in their order.
fn run_all(runs: &[Run]) -> Vec<Told> {
    let reported: Vec<Mutex<Told>> = runs.iter().map(|_| Mutex::default()).collect();
    let next = Mutex::new(0..runs.len());
    std::thread::scope(|threads| {
        for _ in 0..AT_ONCE {
            threads.spawn(|| {
                loop {
                    let Some(index) = next.lock().unwrap().next() else { return };
                    *reported[index].lock().unwrap() = runs[index].reported();
                }
            });
        }
    });
    reported.into_iter().map(|one| one.into_inner().unwrap()).collect()
}

/// The first line that differs where none may.
fn difference(direct: &[String], proxied: &[String]) -> Option<String> {
    let kept = |lines: &[String]| {
        lines.iter().filter(|line| !line.starts_with('~')).cloned().collect::<Vec<_>>()
    };
    let (direct, proxied) = (kept(direct), kept(proxied));
    let nothing = String::new();
    for index in 0..direct.len().max(proxied.len()) {
        let at = |lines: &[String]| lines.get(index).unwrap_or(&nothing).clone();
        if at(&direct) != at(&proxied) {
            let (direct, proxied) = (at(&direct), at(&proxied));
            return Some(format!("line {index}:\n  a node: {direct}\n  Evenkeel: {proxied}"));
        }
    }
    None
}
