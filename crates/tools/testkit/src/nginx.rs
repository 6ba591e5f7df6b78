//! Real nginx servers as replicas, for tests and for the demo's `cluster.real = "nginx"`.
//!
//! Each is one process of its own, so that a fault is the real thing: a pause is SIGSTOP, a crash
//! is SIGKILL, a slow replica is one whose `limit_req` delays what comes too fast.

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::fault::{Mishap, What};
use crate::story::nobody;

/// How long a server may take to listen.
const START_MAX: Duration = Duration::from_secs(10);

/// What the servers are like.
#[derive(Clone, Debug)]
pub struct NginxConfig {
    /// The nginx binary; see [`find`].
    pub binary: PathBuf,
    /// A directory for configurations and logs; made if missing, left behind.
    pub directory: PathBuf,
    /// By server, the rate its `limit_req` lets through, in requests per second; what comes
    /// faster waits in nginx. `None` = no limit.
    pub rate_limits: Vec<Option<f64>>,
    /// By server, the application that it passes every request to; empty = each answers itself.
    pub apps: Vec<SocketAddr>,
    /// Pauses and crashes in the order of time from [`Nginx::begin`]; others are not nginx's.
    pub mishaps: Vec<Mishap>,
}

/// Running servers. Dropping it ends them.
#[derive(Debug)]
pub struct Nginx {
    servers: Arc<Servers>,
    addresses: Vec<SocketAddr>,
    begun: Arc<OnceLock<Instant>>,
    stop: Arc<AtomicBool>,
    plan: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Servers {
    config: NginxConfig,
    ports: Vec<u16>,
    children: Vec<Mutex<Option<Child>>>,
}

/// Looks for nginx in `PATH` and where Debian puts it.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = [PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")];
    let places = std::env::split_paths(&path).chain(sbin);
    places.map(|place| place.join("nginx")).find(|binary| binary.is_file())
}

/// The body every server answers a path with: what a test compares with, byte for byte.
pub fn body_of(path: &str) -> String {
    format!("nginx answers {path}\n")
}

impl Nginx {
    /// Starts the servers on free loopback ports and waits until they listen.
    ///
    /// # Errors
    /// When a file cannot be written, or a server does not start; with its own words.
    pub fn start(config: NginxConfig) -> io::Result<Self> {
        fs::create_dir_all(&config.directory)?;
        let count = config.rate_limits.len();
        let ports: Vec<u16> = (0..count).map(|_| nobody().port()).collect();
        let addresses = ports.iter().map(|&port| (Ipv4Addr::LOCALHOST, port).into()).collect();
        let children = (0..count).map(|_| Mutex::new(None)).collect();
        let servers = Arc::new(Servers { config, ports, children });
        for number in 0..count {
            servers.start(number)?;
        }
        let (begun, stop) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
        let plan = {
            let servers = Arc::clone(&servers);
            let (begun, stop) = (Arc::clone(&begun), Arc::clone(&stop));
            let body = move || servers.follow_plan(&begun, &stop);
            std::thread::Builder::new().name("mishaps".to_owned()).spawn(body)?
        };
        Ok(Self { servers, addresses, begun, stop, plan: Some(plan) })
    }

    /// Begins the plan of mishaps.
    pub fn begin(&self) {
        self.begun.get_or_init(Instant::now);
    }

    /// Where the servers listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Stops a server where it stands (SIGSTOP) or lets it go on (SIGCONT).
    pub fn pause(&self, number: usize, is_paused: bool) {
        self.servers.signal(number, if is_paused { Signal::STOP } else { Signal::CONT });
    }

    /// Kills a server (SIGKILL).
    pub fn kill(&self, number: usize) {
        self.servers.kill(number);
    }

    /// Starts a killed server again, on its old port.
    ///
    /// # Errors
    /// As [`Nginx::start`].
    pub fn restart(&self, number: usize) -> io::Result<()> {
        self.servers.start(number)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(plan) = self.plan.take() {
            let _ = plan.join(); // it only sleeps and signals
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for number in 0..self.children.len() {
            self.kill(number);
        }
    }
}

impl Servers {
    fn start(&self, number: usize) -> io::Result<()> {
        let place = self.config.directory.join(format!("nginx-{number}"));
        fs::create_dir_all(&place)?;
        let app = self.config.apps.get(number).copied();
        let limit = self.config.rate_limits[number];
        let text = configuration(self.ports[number], limit, app, &place);
        let file = place.join("nginx.conf");
        fs::File::create(&file)?.write_all(text.as_bytes())?;
        let errors = fs::File::create(place.join("stderr.log"))?;
        let child = Command::new(&self.config.binary)
            .args(["-p".as_ref(), place.as_os_str(), "-c".as_ref(), file.as_os_str()])
            .args(["-e".as_ref(), place.join("error.log").as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()?;
        *self.child(number) = Some(child);
        self.wait_until_listening(number, &place)
    }

    fn wait_until_listening(&self, number: usize, place: &Path) -> io::Result<()> {
        let began = Instant::now();
        loop {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[number])).is_ok() {
                return Ok(());
            }
            let ended = self.child(number).as_mut().map_or(Ok(None), Child::try_wait)?;
            if ended.is_some() || began.elapsed() > START_MAX {
                let words = fs::read_to_string(place.join("stderr.log")).unwrap_or_default();
                return Err(io::Error::other(format!("nginx did not start: {}", words.trim())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, number: usize, signal: Signal) {
        if let Some(child) = self.child(number).as_ref() {
            // The process is our child and not waited for, so the number is still its own.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    fn kill(&self, number: usize) {
        if let Some(mut child) = self.child(number).take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn child(&self, number: usize) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.children[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses and kills as planned, once that is begun and until told to stop.
    fn follow_plan(&self, begun: &OnceLock<Instant>, stop: &AtomicBool) {
        let mut mishaps = self.config.mishaps.iter().peekable();
        let mut resumes: Vec<(Duration, usize)> = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
            let Some(began) = begun.get() else { continue };
            let now = began.elapsed();
            resumes.retain(|&(at, number)| {
                if at <= now {
                    self.signal(number, Signal::CONT);
                }
                at > now
            });
            while let Some(mishap) = mishaps.next_if(|mishap| mishap.at <= now) {
                match mishap.what {
                    What::Pause(length) => {
                        self.signal(mishap.replica, Signal::STOP);
                        resumes.push((mishap.at + length, mishap.replica));
                    }
                    What::Crash => self.kill(mishap.replica),
                    What::Speed(_) | What::Slow(_) | What::Fail(_) | What::Restore => {}
                }
            }
        }
        for (_, number) in resumes {
            self.signal(number, Signal::CONT);
        }
    }
}

/// One process, no daemon, everything inside its own directory.
fn configuration(
    port: u16,
    rate_limit: Option<f64>,
    app: Option<SocketAddr>,
    place: &Path,
) -> String {
    let place = place.display();
    let (zone, limit) = rate_limit.map_or((String::new(), ""), |rate| {
        let rate = rate.max(1.0) as u64;
        let zone = format!("limit_req_zone all zone=all:32k rate={rate}r/s;");
        (zone, "limit_req zone=all burst=10000;")
    });
    let (upstream, answer, more) = match app {
        None => (
            String::new(),
            "try_files /none @answer;",
            "location @answer { return 200 \"nginx answers $request_uri\\n\"; }",
        ),
        Some(app) => (
            format!("upstream app {{ server {app}; keepalive 256; }}"),
            "proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection \"\";",
            "",
        ),
    };
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {place}/nginx.pid;\n\
         error_log {place}/error.log;\nevents {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000;\n  {zone}\n  {upstream}\n\
         \x20 client_body_temp_path {place}/body;\n  proxy_temp_path {place}/proxy;\n\
         \x20 fastcgi_temp_path {place}/fastcgi;\n  uwsgi_temp_path {place}/uwsgi;\n\
         \x20 scgi_temp_path {place}/scgi;\n\
         \x20 server {{\n    listen 127.0.0.1:{port};\n    location / {{\n      {limit}\n\
         \x20     {answer}\n    }}\n    {more}\n  }}\n}}\n"
    )
}
