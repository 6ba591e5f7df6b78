//! `evenkeel run --take-over`: one process replaces another one, and no client notices.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{PROGRAM, Running, evenkeel, replica, text};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::block_until;

/// A file of a proxy, where it listens, and what is behind it.
struct World {
    folder: Folder,
    listen: SocketAddr,
    admin: SocketAddr,
    replica: SocketAddr,
}

impl World {
    fn new(name: &str) -> Self {
        let folder = Folder::new(&format!("take-over-{name}"));
        Self { folder, listen: nobody(), admin: nobody(), replica: replica() }
    }

    fn write(&self, workers: usize, listens: &[String], more: &str) -> PathBuf {
        let file = self.folder.file("run.toml");
        let listens: String = listens
            .iter()
            .map(|it| format!("[[listen]]\naddress = '{it}'\nupstream = 'web'\n"))
            .collect();
        let Self { admin, replica, .. } = self;
        let text = format!(
            "[process]\nworkers = {workers}\n{listens}[admin]\naddress = '{admin}'\n\
             [upstream.web]\nreplicas = ['{replica}']\n{more}"
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    fn file(&self, workers: usize) -> PathBuf {
        self.write(workers, &[self.listen.to_string()], "")
    }

    /// A second upstream, whose name nobody knows: the process does not become ready.
    fn unready(&self) -> PathBuf {
        let never = format!(
            "[[listen]]\naddress = '{}'\nupstream = 'never'\n\
             [upstream.never]\nreplicas = ['nobody.invalid:80']\n",
            nobody()
        );
        self.write(2, &[self.listen.to_string()], &never)
    }

    fn is_served(&self) -> bool {
        http::try_get(self.listen, "/").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }
}

fn started(file: &Path) -> Running {
    let mut running = Running::start(file);
    running.until("SIGHUP reloads");
    running
}

fn successor(file: &Path) -> Running {
    Running::start_by(Command::new(PROGRAM).args(["run", "--take-over"]).arg(file))
}

/// Clients that ask one request after the other, on connections that they keep.
struct Load {
    ends: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Result<(), io::Error>>>,
}

impl Load {
    fn start(clients: usize, address: SocketAddr) -> Self {
        let (ends, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let client = || {
            let (ends, answered) = (Arc::clone(&ends), Arc::clone(&answered));
            std::thread::spawn(move || {
                let mut kept = None;
                while !ends.load(Relaxed) {
                    kept = ask(kept, address)?;
                    answered.fetch_add(1, Relaxed);
                }
                Ok(())
            })
        };
        let clients = (0..clients).map(|_| client()).collect();
        Self { ends, answered, clients }
    }

    /// Lets so many more requests be answered.
    fn go_on(&self, requests: u64) {
        let goal = self.answered.load(Relaxed) + requests;
        block_until("requests are answered, or one failed", || {
            let has_failed = self.clients.iter().any(JoinHandle::is_finished);
            self.answered.load(Relaxed) >= goal || has_failed
        });
    }

    /// None has failed.
    fn end(self) {
        self.go_on(50);
        self.ends.store(true, Relaxed);
        for client in self.clients {
            client.join().unwrap().expect("no request fails");
        }
    }
}

fn ask(
    kept: Option<BufReader<TcpStream>>,
    address: SocketAddr,
) -> io::Result<Option<BufReader<TcpStream>>> {
    let mut stream = match kept {
        Some(stream) => stream,
        None => BufReader::new(TcpStream::connect(address)?),
    };
    stream.get_ref().set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: web\r\n\r\n")?;
    let (mut status, mut ends) = (String::new(), false);
    stream.read_line(&mut status)?;
    if !status.starts_with("HTTP/1.1 200") {
        return Err(io::Error::other(format!("got {status:?}")));
    }
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        ends |= line.trim().eq_ignore_ascii_case("connection: close");
        if line == "\r\n" {
            return Ok((!ends).then_some(stream));
        }
    }
}

#[test]
fn no_request_fails_while_one_process_replaces_another_whatever_its_number_of_workers() {
    let world = World::new("load");
    let mut before = started(&world.file(2));
    let load = Load::start(4, world.listen);
    load.go_on(100);
    for workers in [3, 1, 2] {
        // One listener comes, and goes with the next.
        let more = nobody();
        let file = world.write(workers, &[world.listen.to_string(), more.to_string()], "");
        let mut after = successor(&file);
        let said = after.until("SIGHUP reloads");
        assert!(said.contains(&format!("replaced process {}", before.child.id())), "{said}");
        before.until(&format!("replaced by process {}", after.child.id()));
        assert!(before.child.wait().unwrap().success());
        load.go_on(100);
        assert!(http::get(more, "/").starts_with("HTTP/1.1 200"));
        assert!(http::get(world.admin, "/readyz").starts_with("HTTP/1.1 200"));
        let mut next = successor(&world.file(2));
        next.until("SIGHUP reloads");
        assert!(after.child.wait().unwrap().success());
        block_until("what is in the configuration no more is closed", || {
            TcpStream::connect(more).is_err()
        });
        before = next;
    }
    load.end();
}

#[test]
fn a_request_in_flight_stays_with_the_process_that_has_it() {
    let world = World { replica: nobody(), ..World::new("flight") };
    let slow = TcpListener::bind(world.replica).unwrap();
    let file = world.file(1);
    let mut before = started(&file);
    let mut client = TcpStream::connect(world.listen).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: web\r\n\r\n").unwrap();
    let (mut asked, _) = slow.accept().unwrap();
    assert_ne!(asked.read(&mut [0; 4096]).unwrap(), 0);
    asked.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsh").unwrap();
    let mut after = successor(&file);
    after.until("SIGHUP reloads");
    before.until("replaced by process");
    asked.write_all(b"ared").unwrap();
    assert!(before.child.wait().unwrap().success());
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nshared"), "{answer}");
}

#[test]
fn a_successor_that_is_killed_or_cannot_start_leaves_the_process_as_it_was() {
    let world = World::new("killed");
    let file = world.file(2);
    let mut running = started(&file);
    // It has the sockets and waits until it is ready.
    let mut killed = successor(&world.unready());
    killed.until("nobody.invalid");
    second_is_refused(&world);
    killed.signal("KILL");
    running.until("a process did not take over: this one goes on");
    assert!(world.is_served());
    // An address that another process has.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = taken.local_addr().unwrap().to_string();
    let file = world.write(2, &[world.listen.to_string(), other], "");
    let refused = evenkeel(&["run", "--take-over", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("another process listens there"), "{refused:?}");
    running.until("a process did not take over: this one goes on");
    // A file with a mistake does not get so far; what has one process only is said.
    let broken = world.write(0, &[], "");
    assert_eq!(evenkeel(&["run", "--take-over", broken.to_str().unwrap()]).status.code(), Some(2));
    let mut stopped = successor(&world.unready());
    stopped.until("nobody.invalid");
    stopped.signal("TERM");
    running.until("a process did not take over: this one goes on");
    for _ in 0..20 {
        assert!(world.is_served());
    }
    let mut after = successor(&world.file(2));
    after.until("replaced process");
    assert!(running.child.wait().unwrap().success());
    assert!(world.is_served());
}

/// Another process takes over: a second one is told so.
fn second_is_refused(world: &World) {
    let file = world.folder.file("run.toml");
    let refused = evenkeel(&["run", "--take-over", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains("takes over already"), "{said}");
}

#[test]
fn a_successor_serves_alone_when_the_process_is_killed_meanwhile() {
    let world = World::new("alone");
    let running = started(&world.file(2));
    let mut after = successor(&world.unready());
    after.until("nobody.invalid");
    second_is_refused(&world);
    assert!(world.is_served(), "by the one that is ready");
    running.signal("KILL");
    after.until("ended: serving in its place");
    after.until("SIGHUP reloads");
    assert!(world.is_served());
    assert!(http::get(world.admin, "/healthz").starts_with("HTTP/1.1 200"));
    // Where nobody is there is nobody to take over from.
    drop(after);
    let mut alone = successor(&world.file(2));
    alone.until("no process to take over from");
    assert!(world.is_served());
}

#[test]
fn what_has_one_process_only_is_not_taken_over() {
    let world = World::new("single");
    let mut running = started(&world.file(2));
    let duplicates = format!(
        "[duplicates.keys]\nlisten = '{}'\nstore = 'redis'\npartitions = [['{}', '{}']]\n\
         directory = '{}'\n",
        nobody(),
        nobody(),
        nobody(),
        world.folder.file("log").display()
    );
    let file = world.write(2, &[world.listen.to_string()], &duplicates);
    let refused = evenkeel(&["run", "--take-over", file.to_str().unwrap()]);
    let said = text(&refused.stderr);
    assert!(said.contains("cannot take over: [duplicates] has one process"), "{said}");
    running.until("a process did not take over: this one goes on");
    assert!(world.is_served());
}

#[test]
fn a_process_starts_its_successor_and_tells_the_service_manager_which_one_it_is() {
    let world = World::new("upgrade");
    let socket = world.folder.file("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let told = || {
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).unwrap();
        text(&buffer[..length])
    };
    let file = world.file(1);
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg(&file).env("NOTIFY_SOCKET", &socket);
    let mut running = Running::start_by(&mut command);
    assert!(told().starts_with("READY=1\n"));
    running.signal("USR2");
    let said = running.until("started process");
    let number = said.lines().last().unwrap().split([' ', ',']).nth(2).unwrap().to_owned();
    let words = [told(), told()];
    assert!(words.iter().any(|it| it.starts_with(&format!("MAINPID={number}\n"))), "{words:?}");
    assert!(running.child.wait().unwrap().success());
    assert!(world.is_served());
    assert!(Command::new("kill").args(["-s", "TERM", &number]).status().unwrap().success());
    block_until("it stops too", || !world.is_served());
}

fn over_unix(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn sockets_of_the_file_system_are_replaced_refused_and_handed_over() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new("unix");
    let (path, desk) = (world.folder.file("http.sock"), world.folder.file("admin.sock"));
    let (door, file) = (world.folder.file("door.sock"), world.folder.file("run.toml"));
    let config = |mode: &str| {
        format!(
            "[process]\nworkers = 2\nhand_over = '{}'\n[[listen]]\naddress = 'unix:{}'\n\
             mode = '{mode}'\nupstream = 'web'\n[admin]\naddress = 'unix:{}'\n\
             [upstream.web]\nreplicas = ['{}']\n",
            door.display(),
            path.display(),
            desk.display(),
            world.replica
        )
    };
    std::fs::write(&file, config("0600")).unwrap();
    let mut running = started(&file);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(&desk).unwrap().permissions().mode() & 0o777, 0o660);
    for path in [&path, &desk] {
        assert!(over_unix(path).unwrap().starts_with("HTTP/1.1 200"));
    }
    let refused = evenkeel(&["run", file.to_str().unwrap()]);
    assert!(text(&refused.stderr).contains("another process listens there"), "{refused:?}");
    let mut after = successor(&file);
    after.until("replaced process");
    assert!(running.child.wait().unwrap().success());
    for path in [&path, &desk] {
        assert!(over_unix(path).unwrap().starts_with("HTTP/1.1 200"), "the file stays");
    }
    // What a killed process leaves is replaced; one that stops leaves nothing.
    after.signal("KILL");
    after.child.wait().unwrap();
    assert!(path.exists() && desk.exists());
    running = started(&file);
    assert!(over_unix(&path).unwrap().starts_with("HTTP/1.1 200"));
    // A reload moves it.
    let moved = world.folder.file("moved.sock");
    std::fs::write(&file, config("0660").replacen("http.sock", "moved.sock", 1)).unwrap();
    running.signal("HUP");
    running.until("reloaded: configuration 2");
    assert!(over_unix(&moved).unwrap().starts_with("HTTP/1.1 200"));
    block_until("the one before is gone", || !path.exists());
    running.signal("TERM");
    assert!(running.child.wait().unwrap().success());
    assert!(!moved.exists() && !desk.exists() && !door.exists());
    // What is no socket is not removed.
    std::fs::write(&path, "kept").unwrap();
    std::fs::write(&file, config("0660")).unwrap();
    let refused = evenkeel(&["run", file.to_str().unwrap()]);
    assert!(text(&refused.stderr).contains("a file that is no socket"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
}

#[test]
fn a_stranger_at_the_door_and_one_who_says_nothing_change_nothing() {
    let world = World::new("stranger");
    let (door, file) = (world.folder.file("door.sock"), world.file(1));
    let config = std::fs::read_to_string(&file).unwrap();
    let config = config.replacen(
        "[process]\n",
        &format!("[process]\nhand_over = '{}'\n", door.display()),
        1,
    );
    std::fs::write(&file, config).unwrap();
    let mut running = started(&file);
    let mut silent = UnixStream::connect(&door).unwrap();
    silent.write_all(b"evenkeel take-over 0\n").unwrap();
    let mut told = String::new();
    silent.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("refused: got \"evenkeel take-over 0\", expected"), "{told}");
    running.until("was refused");
    assert!(world.is_served());
    drop(running);
    // Somebody else is at the door, and says nothing.
    std::fs::remove_file(&door).unwrap();
    let _mute = UnixListener::bind(&door).unwrap();
    let refused = evenkeel(&["run", "--take-over", file.to_str().unwrap()]);
    assert!(text(&refused.stderr).contains("does not answer"), "{refused:?}");
}
