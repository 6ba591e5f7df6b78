//! The same shop on a real PostgreSQL: a private server in a temporary folder, reached over
//! loopback. Without PostgreSQL's programs on the machine the test says so and passes by.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "postgres")]

mod common;

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Shop, database_in, folder};

#[test]
fn pages_are_the_same_on_both_databases() {
    let Some(server) = Server::start() else {
        eprintln!("passed by: no initdb and postgres in PATH or below /usr/lib/postgresql");
        return;
    };
    let folder = folder("both");
    let size = ["--items", "600", "--seed", "5", "--workers", "3"];
    let one = Shop::start(&database_in(&folder), &size);
    // Two that start together: one generates, the other waits for it.
    let (two, three) = std::thread::scope(|scope| {
        let other = scope.spawn(|| Shop::start(&server.url(), &size));
        (Shop::start(&server.url(), &size), other.join().unwrap())
    });
    for path in ["/", "/category/4", "/item/1", "/item/77", "/item/600", "/item/601"] {
        for headers in [&[][..], &["Brownout-Optional: ?0"]] {
            let answers = [&one, &two, &three].map(|shop| shop.request(path, headers));
            let [expected, found, other] = answers;
            assert_eq!(expected.status(), found.status(), "{path}");
            assert_eq!(expected.header("brownout-served"), found.header("brownout-served"));
            assert_eq!(expected.body, found.body, "{path}");
            assert_eq!(expected.body, other.body, "{path}");
        }
    }
    let refused = Command::new(env!("CARGO_BIN_EXE_evenkeel-shop"))
        .args(["--database", &server.url(), "--speed", "0.5"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot pretend"), "{refused:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A PostgreSQL server that ends with the test.
struct Server {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Server {
    fn start() -> Option<Self> {
        let initdb = program("initdb")?;
        let postgres = program("postgres")?;
        let folder = folder("postgres");
        if is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = folder.join("data");
        let made = unprivileged(&initdb, &folder)
            .args(["--username=shop", "--auth=trust", "--no-sync", "--pgdata"])
            .arg(&data)
            .status();
        assert!(made.unwrap().success());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = unprivileged(&postgres, &folder)
            .args(["-h", "127.0.0.1", "-c", "fsync=off", "-c", "unix_socket_directories="])
            .args(["-p", &port.to_string(), "-D"])
            .arg(&data)
            .spawn()
            .unwrap();
        let server = Self { process, folder, port };
        server.wait_until_ready();
        Some(server)
    }

    fn url(&self) -> String {
        format!("postgres://shop@127.0.0.1:{}/postgres", self.port)
    }

    fn wait_until_ready(&self) {
        let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        for _ in 0..300 {
            if log().contains("ready to accept connections") {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the server is not ready after 30 s: {}", log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGINT is PostgreSQL's fast shutdown: its children end too.
        let process = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(process, rustix::process::Signal::INT);
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// PostgreSQL refuses to run as root.
fn unprivileged(program: &Path, folder: &Path) -> Command {
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new(program);
    command.current_dir(folder).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = std::env::split_paths(&path).chain(versions.map(|v| v.path().join("bin")));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}
