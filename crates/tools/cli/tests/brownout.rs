//! Five shops behind agents and the proxy, all processes of their own: two are killed and started
//! again under open-loop load, with brownout and without it at the same time.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use common::PROGRAM;
use evenkeel_core::dimmer::place_of;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::story::{free_addresses, nobody};
use evenkeel_testkit::wait::block_until;
use serde_json::Value;

const ITEMS: u32 = 30_000;
const SHOPS: usize = 5;
const KILLED: [usize; 2] = [3, 4];
/// Seconds of the load: when two shops are killed, when they are started again, and its end.
const KILL_S: f64 = 2.0;
const RESTORE_S: f64 = 30.0;
const END_S: f64 = 38.0;

/// Tests measure what this machine can do, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The shop's program, which lies beside ours. Without the whole workspace it may have to be built.
fn shop() -> &'static Path {
    static SHOP: OnceLock<PathBuf> = OnceLock::new();
    SHOP.get_or_init(|| {
        let shop = Path::new(PROGRAM).with_file_name("evenkeel-shop");
        if !shop.exists() {
            let folder = shop.parent().unwrap().file_name().unwrap().to_str().unwrap();
            let profile = if folder == "debug" { "dev" } else { folder };
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "-p", "evenkeel-shop", "--profile", profile]);
            assert!(build.status().unwrap().success());
        }
        shop
    })
}

/// What the shop says about the catalogue in `folder`.
fn shop_says(folder: &Folder, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(shop());
    command.args(arguments).arg("--database").arg(folder.file("shop.db"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn wait_for(address: SocketAddr) {
    block_until(&format!("a listener on {address}"), || TcpStream::connect(address).is_ok());
}

/// A shop in a process of its own.
fn start_shop(folder: &Path, address: SocketAddr, speed: f64) -> Process {
    let mut command = Command::new(shop());
    command.args(["--until-stdin-ends", "--database"]).arg(folder.join("shop.db"));
    command.arg("--listen").arg(address.to_string());
    command.arg("--speed").arg(format!("{speed:.6}"));
    let shop = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::null()));
    wait_for(address);
    shop
}

/// Five shops, and `evenkeel run` before them.
struct Service {
    folder: PathBuf,
    speed: f64,
    addresses: Vec<SocketAddr>,
    shops: Vec<Option<Process>>,
    proxy: SocketAddr,
    front: Process,
}

impl Service {
    fn start(folder: &Path, speed: f64, has_brownout: bool) -> Self {
        let all = free_addresses::<{ 2 * SHOPS + 1 }>();
        let (proxy, addresses, agents) = (all[0], &all[1..=SHOPS], &all[SHOPS + 1..]);
        let shops = addresses.iter().map(|shop| Some(start_shop(folder, *shop, speed))).collect();
        let text = if has_brownout {
            configuration(proxy, "pibh", agents, addresses)
        } else {
            configuration(proxy, "least-outstanding", addresses, &[])
        };
        let file = folder.join(format!("evenkeel-{}.toml", proxy.port()));
        std::fs::write(&file, text).unwrap();
        let front = Process::start(Command::new(PROGRAM).arg("run").arg(file));
        wait_for(proxy);
        let (folder, addresses) = (folder.to_owned(), addresses.to_vec());
        Self { folder, speed, addresses, shops, proxy, front }
    }

    fn kill(&mut self) {
        KILLED.iter().for_each(|&number| drop(self.shops[number].take()));
    }

    fn restore(&mut self) {
        for number in KILLED {
            let shop = start_shop(&self.folder, self.addresses[number], self.speed);
            self.shops[number] = Some(shop);
        }
    }

    fn pids(&self) -> Vec<u32> {
        let shops = self.shops.iter().flatten().map(|shop| shop.0.id());
        shops.chain([self.front.0.id()]).collect()
    }
}

/// What `evenkeel run` is told; without `apps` there are no agents.
fn configuration(
    proxy: SocketAddr,
    policy: &str,
    replicas: &[SocketAddr],
    apps: &[SocketAddr],
) -> String {
    let replicas: Vec<String> = replicas.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "[process]\nworkers = 1\n\n[[listen]]\naddress = '{proxy}'\nupstream = 'shop'\n\n\
         [upstream.shop]\npolicy = '{policy}'\nretries_max = 2\nreplicas = {replicas:?}\n"
    );
    for (agent, app) in replicas.iter().zip(apps) {
        text += &format!(
            "\n[[agent]]\nlisten = '{agent}'\napp = '{app}'\nconcurrency = 1\n\n[agent.dimmer]\n\
             setpoint = '1s'\nroutes = ['/item']\nsession = {{header = 'X-Session'}}\n"
        );
    }
    text
}

/// A page, and what its head says was served.
struct Page {
    is_full: bool,
    body: Vec<u8>,
}

/// Asks and does not wait for the answer.
fn ask(address: SocketAddr, path: &str, header: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{header}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn page(mut stream: TcpStream) -> Page {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let is_full = head.contains("\r\nbrownout-served: ?1");
    assert!(is_full || head.contains("\r\nbrownout-served: ?0"), "{head}");
    let is_kept = !head.contains("\r\ncache-control: no-store");
    assert!(is_full || !is_kept, "a lean page may be kept: {head}");
    Page { is_full, body: answer[end + 4..].to_vec() }
}

/// Full pages per second that shops make together when they never wait; of items at even distances
/// from `first`.
fn capacity(shops: &[SocketAddr], first: usize) -> f64 {
    const EACH: usize = 40;
    let time = |slot: usize| {
        let item = |number: usize| {
            let spread = (number * shops.len() + slot) * ITEMS as usize / (EACH * shops.len());
            ask(shops[slot], &format!("/item/{}", first + spread), "brownout-optional: ?1")
        };
        let began = Instant::now();
        let asked: Vec<_> = (0..EACH).map(item).collect();
        asked.into_iter().for_each(|stream| drop(page(stream)));
        began.elapsed().as_secs_f64()
    };
    let times: Vec<f64> = std::thread::scope(|scope| {
        let time = &time;
        let threads: Vec<_> =
            (0..shops.len()).map(|slot| scope.spawn(move || time(slot))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let seconds_each = times.iter().sum::<f64>() / (EACH * shops.len()) as f64;
    shops.len() as f64 / seconds_each
}

/// `evenkeel load` on a proxy; [`report`] waits for its end.
fn start_load(proxy: SocketAddr, rate: f64) -> Process {
    let mut command = Command::new(PROGRAM);
    command.arg("load").arg(format!("http://{proxy}/item/{{key}}1"));
    command.args(["--keys", "3000", "--timeout", "4s", "--json"]);
    command.arg(format!("--rate={rate:.2}")).arg(format!("--duration={END_S}s"));
    Process::start(command.stdout(Stdio::piped()))
}

fn report(mut load: Process) -> Value {
    let mut text = String::new();
    load.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["runs"][0].clone()
}

fn share(report: &Value, part: &str) -> f64 {
    report[part].as_f64().unwrap() / report["requests"].as_f64().unwrap()
}

/// What a browser makes of a page; `None` without a browser.
fn browse(folder: &Path, proxy: SocketAddr) -> Option<String> {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", folder.join("browser").display()));
    command.arg(format!("http://{proxy}/item/17"));
    let output = command.stderr(Stdio::null()).output().ok()?;
    let document = String::from_utf8(output.stdout).unwrap();
    assert!(document.contains("</html>"), "the browser shows no page: {document:?}");
    Some(document)
}

/// Browses until the page is as wanted; visibly skipped where there is no browser.
fn browse_until(folder: &Path, proxy: SocketAddr, wanted: &str, is_full: bool) {
    for visit in 1..=20 {
        let Some(document) = browse(folder, proxy) else {
            eprintln!("SKIPPED: no chromium in PATH, nobody looks for {wanted}");
            return;
        };
        if document.contains("id=\"recommendations\"") == is_full {
            eprintln!("the browser saw {wanted} at visit {visit}");
            return;
        }
    }
    panic!("the browser did not see {wanted} in 20 visits");
}

fn sleep_until(began: Instant, at_s: f64) {
    let at = Duration::from_secs_f64(at_s);
    std::thread::sleep(at.saturating_sub(began.elapsed()));
}

/// A session whose place is between these.
fn session(low: f64, high: f64) -> String {
    let mut names = (0..).map(|number| format!("visitor-{number}"));
    names.find(|name| (low..high).contains(&place_of(name.as_bytes()))).unwrap()
}

/// Visits while shops are missing: sessions with a high place are the first to lose what is
/// optional. Of high and of low sessions, how many visits they made and how many were lean.
fn visit(proxy: SocketAddr, reference: SocketAddr, began: Instant) -> [(u32, u32); 2] {
    let sessions = [session(0.97, 1.0), session(0.0, 0.03)];
    let mut counts = [(0, 0); 2];
    let mut item = 0;
    while began.elapsed().as_secs_f64() < RESTORE_S - 1.0 {
        for (session, (visits, lean)) in sessions.iter().zip(&mut counts) {
            item += 997;
            let path = format!("/item/{}", item % ITEMS + 1);
            let came = page(ask(proxy, &path, &format!("X-Session: {session}")));
            let decision = if came.is_full { "?1" } else { "?0" };
            let expected = page(ask(reference, &path, &format!("Brownout-Optional: {decision}")));
            assert!(came.body == expected.body, "{path} came otherwise through the proxy");
            *visits += 1;
            *lean += u32::from(!came.is_full);
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    counts
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn assert_gone(pids: &[u32]) {
    let began = Instant::now();
    while pids.iter().any(|&pid| is_running(pid)) {
        assert!(began.elapsed() < Duration::from_secs(5), "some of {pids:?} outlive their parent");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn brownout_serves_everybody_where_without_it_less_than_half_are_served() {
    let _turn = turn();
    let folder = Folder::new("brownout-test");
    shop_says(&folder, &["generate", "--seed", "1", "--items", &ITEMS.to_string()]);
    let cost = shop_says(&folder, &["measure", "--pages", "200", "--json"]);
    let cost: Value = serde_json::from_slice(&cost).unwrap();
    let mean_ms = |part: &str| cost[part]["mean_ms"].as_f64().unwrap();
    let speed = (mean_ms("mandatory") + mean_ms("optional")) / 45.0;
    let reference = nobody();
    let _reference_shop = start_shop(folder.path(), reference, 1.0);
    let mut plain = Service::start(folder.path(), speed, false);
    let mut dimmed = Service::start(folder.path(), speed, true);
    capacity(&plain.addresses, 80); // fills the caches of processes that have just begun
    let rate = 0.93 * capacity(&plain.addresses, 1);
    eprintln!("{rate:.0} requests/s, 0.93 of what five shops can serve in full");
    browse_until(folder.path(), dimmed.proxy, "the full page before", true);

    let began = Instant::now();
    let loads = [&plain, &dimmed].map(|service| start_load(service.proxy, rate));
    let proxy = dimmed.proxy;
    let visitor = std::thread::spawn(move || {
        sleep_until(began, KILL_S + 4.0);
        visit(proxy, reference, began)
    });
    sleep_until(began, KILL_S);
    plain.kill();
    dimmed.kill();
    sleep_until(began, KILL_S + 4.0);
    browse_until(folder.path(), proxy, "the lean page while two shops are dead", false);
    let lean_seen_s = began.elapsed().as_secs_f64();
    assert!(lean_seen_s < RESTORE_S, "the lean page took until {lean_seen_s:.0} s");
    sleep_until(began, RESTORE_S);
    plain.restore();
    dimmed.restore();
    let visits = visitor.join().unwrap();
    let reports = loads.map(report);
    browse_until(folder.path(), proxy, "the full page after", true);

    judge(&reports, visits);
    let pids = [plain.pids(), dimmed.pids()].concat();
    drop((plain, dimmed));
    assert_gone(&pids);
}

fn judge([without, with]: &[Value; 2], visits: [(u32, u32); 2]) {
    for (name, report) in [("without", without), ("with", with)] {
        let parts = ["served", "optional", "timeouts", "failed"].map(|part| share(report, part));
        eprintln!("{name} brownout: served, in full, timed out, failed: {parts:.3?}");
    }
    let [(high, high_lean), (low, low_lean)] = visits;
    eprintln!("lean: {high_lean} of {high} visits of a high place, {low_lean} of {low} of a low");
    assert!(share(with, "served") >= 0.99, "{with}");
    assert!(share(with, "timeouts") <= 0.01, "{with}");
    let in_full = share(with, "optional");
    assert!((0.3..0.97).contains(&in_full), "some content is dimmed, not all: {in_full}");
    // About 0.45 where nothing else runs; a machine that is busy only while the shops' speed is
    // measured gives them up to 15 % too much of it.
    assert!(share(without, "served") < 0.6, "{without}");
    assert!(high >= 10 && f64::from(high_lean) >= 0.5 * f64::from(high), "{high_lean} of {high}");
    assert!(f64::from(low_lean) <= 0.2 * f64::from(low), "{low_lean} of {low} were lean");
}

/// The processes that this one started.
fn children_of(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().map(|rest| rest.split_whitespace().nth(1));
        fields.flatten() == Some(parent.to_string().as_str())
    };
    pids.filter(is_child).collect()
}

/// A demo that has started its shops, and these.
fn start_demo() -> (Process, Vec<u32>) {
    shop();
    let mut command = Command::new(PROGRAM);
    command.args(["demo", "brownout"]).stdout(Stdio::null()).stderr(Stdio::null());
    let demo = Process::start(&mut command);
    let began = Instant::now();
    loop {
        let children = children_of(demo.0.id());
        if children.len() == SHOPS {
            return (demo, children);
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the demo started {children:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_shop_outlives_a_demo_that_is_killed() {
    let _turn = turn();
    let (demo, children) = start_demo();
    let folder = std::env::temp_dir().join(format!("evenkeel-demo-{}", demo.0.id()));
    drop(demo); // SIGKILL: it can do nothing any more
    assert_gone(&children);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn control_c_ends_a_demo_with_all_its_shops_and_leaves_nothing_behind() {
    let _turn = turn();
    let (mut demo, children) = start_demo();
    let pid = demo.0.id();
    let folder = std::env::temp_dir().join(format!("evenkeel-demo-{pid}"));
    assert!(Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = demo.0.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the demo goes on");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(130));
    assert_gone(&children);
    assert!(!folder.exists(), "{} is left behind", folder.display());
}
