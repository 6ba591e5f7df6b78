//! Everything that may change while clients are served changes, and no client notices: of HTTP/1.1,
//! of HTTP/2 with TLS, and of gRPC.
//!
//! Replicas come and go by DNS and by file, the configuration is reloaded, certificates are
//! replaced, and so is the program. By default the program is the one of the tests; name another in
//! `EVENKEEL_PROGRAM`. Needs dnsmasq and curl.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../common/mod.rs"]
mod common;
mod grpc;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{PROGRAM, Running};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait;

const REPLICAS: u8 = 9;

/// Answers every request with its path, on connections that stay.
fn replica(address: SocketAddr, asked: Arc<AtomicU64>) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let asked = Arc::clone(&asked);
            std::thread::spawn(move || serve(BufReader::new(stream.unwrap()), &asked));
        }
    });
}

fn serve(mut stream: BufReader<TcpStream>, asked: &AtomicU64) -> io::Result<()> {
    stream.get_ref().set_nodelay(true)?;
    loop {
        let mut first = String::new();
        if stream.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line)?;
        }
        asked.fetch_add(1, Relaxed);
        let body = first.split(' ').nth(1).unwrap_or_default();
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.get_mut().write_all(answer.as_bytes())?;
    }
}

/// One client of HTTP/1.1, on connections that it keeps, at a rate.
fn client(
    address: SocketAddr,
    number: u64,
    every: Duration,
    ends: &AtomicBool,
    answered: &AtomicU64,
) -> io::Result<()> {
    let mut kept: Option<BufReader<TcpStream>> = None;
    let (mut due, mut sent) = (Instant::now(), 0);
    while !ends.load(Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due += every;
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect(address)?),
        };
        stream.get_ref().set_read_timeout(Some(Duration::from_secs(20)))?;
        let path = format!("/{number}/{sent}");
        write!(stream.get_mut(), "GET {path} HTTP/1.1\r\nhost: web\r\n\r\n")?;
        let (mut status, mut line, mut closes) = (String::new(), String::new(), false);
        stream.read_line(&mut status)?;
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Err(io::Error::other(format!("broken off after {status:?}")));
            }
            closes |= line.trim().eq_ignore_ascii_case("connection: close");
        }
        let mut body = vec![0; path.len()];
        stream.read_exact(&mut body)?;
        if !status.starts_with("HTTP/1.1 200") || body != path.as_bytes() {
            let body = String::from_utf8_lossy(&body).into_owned();
            return Err(io::Error::other(format!("{path}: got {status:?} {body:?}")));
        }
        sent += 1;
        answered.fetch_add(1, Relaxed);
        kept = (!closes).then_some(stream);
    }
    Ok(())
}

/// Clients of HTTP/2 with TLS, run after run; each answer is compared.
fn curls(
    address: SocketAddr,
    folder: &Path,
    ends: &AtomicBool,
    answered: &AtomicU64,
) -> io::Result<()> {
    const EACH: u64 = 100;
    while !ends.load(Relaxed) {
        let url = format!("https://{address}/h2/[1-{EACH}]");
        let mut command = Command::new("curl");
        command.args(["-sS", "-k", "--http2", "-Z", "--parallel-max", "8", "--max-time", "60"]);
        command.args(["-w", "%{http_code} %{http_version}\\n", "-o"]).arg(folder.join("#1"));
        let output = command.arg(url).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || said.lines().any(|line| line != "200 2") {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let wrong: Vec<&str> = said.lines().filter(|line| *line != "200 2").collect();
            return Err(io::Error::other(format!("curl: {errors} {wrong:?}")));
        }
        for number in 1..=EACH {
            let file = folder.join(number.to_string());
            let body = std::fs::read_to_string(&file)?;
            std::fs::remove_file(&file)?;
            if body != format!("/h2/{number}") {
                return Err(io::Error::other(format!("/h2/{number}: got {body:?}")));
            }
        }
        answered.fetch_add(EACH, Relaxed);
    }
    Ok(())
}

/// Whether a client of HTTP/2 is answered.
fn is_served(address: SocketAddr) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-k", "-f", "-o", "/dev/null"]).arg(format!("https://{address}/h2/1"));
    curl.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Clients of all protocols, and what they were answered.
#[derive(Default)]
struct Clients {
    ends: Arc<AtomicBool>,
    /// Of HTTP/1.1, HTTP/2 and gRPC.
    answered: [Arc<AtomicU64>; 3],
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Clients {
    fn start(world: &World, rate: u64) -> Self {
        let mut clients = Self::default();
        let every = Duration::from_secs(20) / u32::try_from(rate).unwrap();
        for number in 0..20 {
            let address = world.plain;
            clients.spawn(0, move |ends, answered| client(address, number, every, ends, answered));
        }
        let (address, bodies) = (world.secure, world.folder.file("bodies"));
        std::fs::create_dir(&bodies).unwrap();
        clients.spawn(1, move |ends, answered| curls(address, &bodies, ends, answered));
        let address = world.grpc;
        clients.spawn(2, move |ends, answered| grpc::clients(address, ends, answered));
        clients
    }

    fn spawn(
        &mut self,
        protocol: usize,
        run: impl FnOnce(&Arc<AtomicBool>, &Arc<AtomicU64>) -> io::Result<()> + Send + 'static,
    ) {
        let (ends, answered) = (Arc::clone(&self.ends), Arc::clone(&self.answered[protocol]));
        self.threads.push(std::thread::spawn(move || run(&ends, &answered)));
    }

    fn counts(&self) -> [u64; 3] {
        self.answered.each_ref().map(|count| count.load(Relaxed))
    }

    /// Waits until clients of every protocol were answered often.
    fn go_on(&mut self) {
        let aims = self.counts();
        wait::block_until("clients of every protocol are answered", || {
            if let Some(place) = self.threads.iter().position(JoinHandle::is_finished) {
                panic!("a client ended: {:?}", self.threads.swap_remove(place).join());
            }
            self.counts().iter().zip(aims).all(|(count, before)| *count >= before + 100)
        });
    }

    fn end(self) -> [u64; 3] {
        self.ends.store(true, Relaxed);
        for client in self.threads {
            client.join().unwrap().expect("no request fails");
        }
        self.answered.map(|count| count.load(Relaxed))
    }
}

/// Everything that changes, as files.
struct World {
    folder: Folder,
    port: u16,
    /// How often the replicas of HTTP/1.1 and of gRPC were asked.
    asked: [[Arc<AtomicU64>; REPLICAS as usize]; 2],
    plain: SocketAddr,
    secure: SocketAddr,
    grpc: SocketAddr,
    dns: SocketAddr,
    dnsmasq: Option<Child>,
}

impl World {
    fn new() -> Self {
        let folder = Folder::new("change");
        let port = nobody().port();
        let asked: [[Arc<AtomicU64>; REPLICAS as usize]; 2] = Default::default();
        for (number, (http, grpc)) in (1..=REPLICAS).zip(asked[0].iter().zip(&asked[1])) {
            replica((Ipv4Addr::new(127, 0, 9, number), port).into(), Arc::clone(http));
            grpc::replica((Ipv4Addr::new(127, 0, 10, number), port).into(), Arc::clone(grpc));
        }
        let (plain, secure, grpc, dns) = (nobody(), nobody(), nobody(), nobody());
        Self { folder, port, asked, plain, secure, grpc, dns, dnsmasq: None }
    }

    /// Waits until all of so many replicas are asked, and the others are not any more.
    fn until_scaled(&self, replicas: u8, clients: &mut Clients) {
        let count = || self.asked.each_ref().map(|of| of.each_ref().map(|it| it.load(Relaxed)));
        wait::block_until("requests go to those that are replicas now", || {
            let before = count();
            clients.go_on();
            let (now, replicas) = (count(), usize::from(replicas));
            let moved = |protocol: usize, it: usize| now[protocol][it] > before[protocol][it];
            let is_right = |protocol| (0..9).all(|it| moved(protocol, it) == (it < replicas));
            is_right(0) && is_right(1)
        });
    }

    fn scale(&self, replicas: u8) {
        let addresses = (1..=replicas).map(|number| format!("127.0.9.{number}"));
        let hosts: String = addresses.map(|it| format!("{it} web.test\n")).collect();
        self.replace("hosts", &hosts);
        for (name, net) in [("replicas.json", 9), ("grpc.json", 10)] {
            let target = |number| format!("\"127.0.{net}.{number}:{}\"", self.port);
            let targets: Vec<_> = (1..=replicas).map(target).collect();
            self.replace(name, &format!("[{{\"targets\": [{}]}}]", targets.join(",")));
        }
        if let Some(dnsmasq) = &self.dnsmasq {
            let number = dnsmasq.id().to_string();
            assert!(Command::new("kill").args(["-s", "HUP", &number]).status().unwrap().success());
        }
    }

    fn rotate(&self) {
        let issued = rcgen::generate_simple_self_signed(vec!["web.test".to_owned()]).unwrap();
        let pem = issued.cert.pem() + &issued.signing_key.serialize_pem();
        self.replace("certificate.pem", &pem);
    }

    fn configure(&self, number: usize) {
        let policy = ["c3", "least-outstanding", "peak-ewma", "two-choices"][number / 2 % 4];
        let Self { plain, secure, grpc, dns, port, .. } = self;
        let max = 5_000 + number;
        self.replace(
            "run.toml",
            &format!(
                "[process]\nworkers = 2\nresolvers = ['{dns}']\n\
                 [[listen]]\naddress = '{plain}'\nupstream = 'file'\n\
                 limits = {{ connections_max = {max} }}\n\
                 [[listen]]\naddress = '{secure}'\nupstream = 'dns'\n\
                 tls = {{ certificate = 'certificate.pem', key = 'certificate.pem' }}\n\
                 [[listen]]\naddress = '{grpc}'\nupstream = 'grpc'\n\
                 [upstream.file]\ndiscover = {{ file = 'replicas.json' }}\npolicy = '{policy}'\n\
                 [upstream.grpc]\ndiscover = {{ file = 'grpc.json' }}\npolicy = '{policy}'\n\
                 http2 = true\n\
                 [upstream.dns]\nreplicas = ['web.test:{port}']\npolicy = '{policy}'\n"
            ),
        );
    }

    fn replace(&self, name: &str, text: &str) {
        let next = self.folder.file("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.folder.file(name)).unwrap();
    }

    /// `false`, which is said, where it is not installed.
    fn start_dnsmasq(&mut self) -> bool {
        let hosts = self.folder.file("hosts");
        let started = Command::new("dnsmasq")
            .args(["--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-interfaces"])
            .args(["--conf-file=/dev/null", "--user=root", "--pid-file", "--local-ttl=1"])
            .args(["--listen-address=127.0.0.1", &format!("--port={}", self.dns.port())])
            .arg(format!("--addn-hosts={}", hosts.display()))
            .stderr(Stdio::null())
            .spawn();
        self.dnsmasq = started.ok();
        if self.dnsmasq.is_none() {
            eprintln!("skipped: no dnsmasq");
        }
        self.dnsmasq.is_some()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(dnsmasq) = &mut self.dnsmasq {
            let _ = dnsmasq.kill();
            let _ = dnsmasq.wait();
        }
    }
}

#[test]
#[ignore = "takes half a minute of both cores; run it with --ignored"]
fn nothing_fails_while_replicas_configuration_certificates_and_program_change() {
    let program = std::env::var("EVENKEEL_PROGRAM").unwrap_or_else(|_| PROGRAM.to_owned());
    let rate: u64 = std::env::var("EVENKEEL_RATE").map_or(1_000, |rate| rate.parse().unwrap());
    let mut world = World::new();
    world.scale(3);
    world.rotate();
    world.configure(0);
    if !world.start_dnsmasq() {
        return;
    }
    let file = world.folder.file("run.toml");
    let mut running = Running::start_by(Command::new(&program).arg("run").arg(&file));
    running.until("SIGHUP reloads");
    // Whoever starts before DNS answers has no replicas yet, and says so.
    wait::block_until("replicas by DNS", || is_served(world.secure));
    let mut clients = Clients::start(&world, rate);
    let begun = Instant::now();
    let (mut reloads, mut take_overs) = (0, 0);
    for step in 1..=50 {
        match step {
            10 => world.scale(9),
            30 => world.scale(2),
            _ => {}
        }
        if step % 10 == 5 {
            world.rotate();
        }
        world.configure(2 * step);
        if step % 15 == 0 {
            let mut command = Command::new(&program);
            let mut next = Running::start_by(command.args(["run", "--take-over"]).arg(&file));
            next.until("SIGHUP reloads");
            assert!(running.child.wait().unwrap().success());
            running = next;
            world.configure(2 * step + 1);
            take_overs += 1;
        }
        running.signal("HUP");
        running.until("reloaded: configuration");
        reloads += 1;
        match step {
            10 => world.until_scaled(9, &mut clients),
            30 => world.until_scaled(2, &mut clients),
            _ => clients.go_on(),
        }
    }
    let (seconds, counts) = (begun.elapsed().as_secs_f64(), clients.end());
    let [one, two, grpc] = counts.map(|count| format!("{count} ({:.0}/s)", count as f64 / seconds));
    println!(
        "{reloads} reloads, {take_overs} take-overs, 3 -> 9 -> 2 replicas by file and by DNS, \
         5 certificates in {seconds:.1} s: HTTP/1.1 {one}, HTTP/2 {two}, gRPC {grpc}; 0 failed, \
         0 wrong"
    );
}
