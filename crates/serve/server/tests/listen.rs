//! What a listener does with requests before a real nginx: which go where and under which limits,
//! who is mirrored, what a reload changes; and what it believes of who asks.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::nginx;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::wait::{block_for, block_until};

/// Names of the upstreams, one replica each.
const UPSTREAMS: [&str; 4] = ["shop", "cart", "canary", "shadow"];

struct World {
    folder: Folder,
    /// In the order of [`UPSTREAMS`].
    replicas: Vec<SocketAddr>,
    _nginx: Program,
}

impl World {
    fn new(name: &str) -> Option<Self> {
        let Some(binary) = nginx::find() else {
            println!("SKIPPED: no nginx here (Debian: apt-get install nginx-light)");
            return None;
        };
        let folder = Folder::new(name);
        let here = folder.path().display();
        let free: Vec<TcpListener> =
            UPSTREAMS.iter().map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = free.iter().map(|it| it.local_addr().unwrap().port()).collect();
        drop(free);
        let servers = UPSTREAMS.iter().zip(&ports).map(|(name, port)| {
            format!(
                "server {{ listen 127.0.0.1:{port}; client_max_body_size 1m;\n\
                 access_log {here}/{name}.log plain;\n\
                 location / {{ return 200 '{name}'; }}\n\
                 location /who {{ return 200 \
                 '$http_x_forwarded_for|$http_x_forwarded_proto|$http_forwarded'; }} }}\n"
            )
        });
        let config = format!(
            "daemon off; master_process off; pid {here}/pid;\nerror_log {here}/error.log;\n\
             events {{}}\nhttp {{ log_format plain '$request_method $request_uri $http_x_tag';\n\
             client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;\n\
             fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi;\n\
             scgi_temp_path {here}/scgi; {} }}\n",
            servers.collect::<String>()
        );
        std::fs::write(folder.path().join("nginx.conf"), config).unwrap();
        let mut command = Command::new(binary);
        command.arg("-c").arg(folder.path().join("nginx.conf")).arg("-p").arg(folder.path());
        let mut server = Program::start(&mut command);
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let replicas: Vec<SocketAddr> = ports.into_iter().map(address).collect();
        replicas.iter().for_each(|replica| server.wait_listening(*replica));
        Some(Self { folder, replicas, _nginx: server })
    }

    /// Writes a configuration with these routes.
    fn write(&self, routes: &str) -> PathBuf {
        let mut text = format!(
            "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'shop'\n\
             routes = [{routes}]\n[admin]\naddress = '127.0.0.1:0'\n"
        );
        for (name, replica) in UPSTREAMS.iter().zip(&self.replicas) {
            let is_used = *name == "shop" || routes.contains(name);
            if is_used {
                text += &format!("[upstream.{name}]\nreplicas = ['{replica}']\n");
                if *name == "shadow" {
                    // Who waits for it waits longer than curl does.
                    text += "timeouts = { attempt = '10m', total = '10m' }\n";
                }
            }
        }
        let file = self.folder.path().join("run.toml");
        std::fs::write(&file, text).unwrap();
        file
    }

    /// The requests that a replica has logged.
    fn logged(&self, name: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path().join(format!("{name}.log")));
        log.unwrap_or_default().lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

fn start(file: &Path) -> Process {
    let config = Config::load(file).unwrap_or_else(|problems| panic!("{problems}"));
    Process::start_from(file, config).unwrap()
}

/// The status and the body that curl gets at this path.
fn curl(proxy: &Process, path: &str, arguments: &[&str]) -> (String, String) {
    let url = format!("http://{}{path}", proxy.listens()[0]);
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "-w", "\n%{http_code}", "--path-as-is"]);
    let output = curl.args(arguments).arg(url).output().expect("curl is there");
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

#[test]
fn a_request_goes_where_the_first_route_says_that_it_fits() {
    let Some(world) = World::new("routes-first") else { return };
    let file = world.write(
        "{ path = '/internal/*', respond = 403 },\n\
         { host = '*.cart.example', method = ['GET', 'HEAD'], upstream = 'cart' },\n\
         { path = '/cart', upstream = 'cart' },\n\
         { header = { x-canary = 'yes' }, upstream = 'canary' }",
    );
    let proxy = start(&file);
    for (path, arguments, expected) in [
        ("/", &[][..], ("200", "shop")),
        ("/cart", &[], ("200", "cart")),
        ("/cart?item=1", &[], ("200", "cart")),
        ("/cart/1", &[], ("200", "shop")),
        ("/internal/x", &["-H", "X-Canary: yes"], ("403", "no such service here\n")),
        ("/", &["-H", "X-Canary: yes"], ("200", "canary")),
        ("/", &["-H", "X-Canary: no"], ("200", "shop")),
        ("/", &["-H", "Host: a.CART.example:80"], ("200", "cart")),
        ("/", &["-H", "Host: a.cart.example", "-d", "x"], ("200", "shop")),
    ] {
        let (status, body) = curl(&proxy, path, arguments);
        assert_eq!((status.as_str(), body.as_str()), expected, "{path} {arguments:?}");
    }
    // A client of gRPC is refused in its own form.
    let grpc = ["-d", "x", "-H", "content-type: application/grpc", "-D", "-"];
    let (status, head) = curl(&proxy, "/internal/x", &grpc);
    assert!(status == "200" && head.contains("grpc-status: 7"), "PERMISSION_DENIED: {head}");
    proxy.stop().unwrap();
}

#[test]
fn a_canary_gets_its_part_and_a_reload_changes_it() {
    let Some(world) = World::new("routes-canary") else { return };
    let file = world.write("{ weights = { shop = 9, canary = 1 } }");
    let proxy = start(&file);
    let canaries = |count| (0..count).filter(|_| curl(&proxy, "/", &[]).1 == "canary").count();
    assert_eq!(canaries(20), 2);
    world.write("{ weights = { shop = 1, canary = 1 } }");
    proxy.reloader().reload_file().unwrap();
    assert_eq!(canaries(10), 5);
    world.write("");
    proxy.reloader().reload_file().unwrap();
    assert_eq!(canaries(10), 0);
    proxy.stop().unwrap();
}

#[test]
fn a_mirror_gets_copies_that_nobody_waits_for() {
    let Some(world) = World::new("routes-mirror") else { return };
    let file = world.write(
        "{ path = '/all', upstream = 'shop', mirror = { upstream = 'shadow' } },\n\
         { path = '/half', upstream = 'shop', mirror = { upstream = 'shadow', share = 0.5 } }",
    );
    let proxy = start(&file);
    for path in ["/all", "/half", "/half", "/half", "/half", "/none"] {
        let body = ["-d", "hello", "-H", "X-Tag: from-client"];
        assert_eq!(curl(&proxy, path, &body).1, "shop", "{path}");
    }
    let expected = ["POST /all from-client", "POST /half from-client", "POST /half from-client"];
    block_until("the copies came", || world.logged("shadow").len() >= expected.len());
    let mut logged = world.logged("shadow");
    logged.sort_unstable();
    assert_eq!(logged, expected);
    assert_eq!(world.logged("shop").len(), 6);
    proxy.stop().unwrap();
}

#[test]
fn a_mirror_that_is_dead_or_silent_delays_and_breaks_nothing() {
    let Some(world) = World::new("routes-mirror-dead") else { return };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap(); // the kernel accepts, nobody answers
    let file = world.write("{ upstream = 'shop', mirror = { upstream = 'shadow' } }");
    let text = std::fs::read_to_string(&file).unwrap();
    let dead = "127.0.0.1:1".to_owned();
    for address in [dead, silent.local_addr().unwrap().to_string()] {
        let other = text.replace(&world.replicas[3].to_string(), &address);
        std::fs::write(&file, other).unwrap();
        let proxy = start(&file);
        for _ in 0..140 {
            assert_eq!(curl(&proxy, "/", &[]), ("200".to_owned(), "shop".to_owned()));
        }
        let skipped = block_for("what was mirrored is counted", || {
            let metrics = http::get(proxy.admin().unwrap(), "/metrics");
            let count = |result: &str| -> u64 {
                let is_it = |line: &&str| {
                    line.starts_with("evenkeel_mirrored_total{") && line.contains(result)
                };
                let line = metrics.lines().find(is_it);
                line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
            };
            let [sent, skipped] = ["\"sent\"", "\"skipped\""].map(count);
            (sent + skipped == 140).then_some(skipped)
        });
        // Of a dead one nothing is on its way for long; of a silent one 128 are, and no more.
        let expected = if address == "127.0.0.1:1" { 0 } else { 12 };
        assert_eq!(skipped, expected, "{address}");
        proxy.stop().unwrap();
    }
}

#[test]
fn only_trusted_proxies_say_who_asks() {
    let Some(world) = World::new("listen-believes") else { return };
    let file = world.write("");
    let text = std::fs::read_to_string(&file).unwrap();
    let start_with = |keys: &str| {
        let other = text.replace("routes = []", keys);
        std::fs::write(&file, other).unwrap();
        start(&file)
    };
    let says = [
        &["-H", "X-Forwarded-For: 192.0.2.9", "-H", "X-Forwarded-Proto: https"][..],
        &["-H", "X-Forwarded-Host: evil", "-H", "Forwarded: for=192.0.2.9"],
    ]
    .concat();
    let said = |proxy: &Process, more: &[&str]| curl(proxy, "/who", &[&says, more].concat()).1;
    let anybody = start_with("");
    assert_eq!(said(&anybody, &[]), "192.0.2.9, 127.0.0.1|https|for=192.0.2.9");
    anybody.stop().unwrap();
    let trusting = start_with("trusted_proxies = ['127.0.0.0/8']");
    assert_eq!(said(&trusting, &[]), "192.0.2.9, 127.0.0.1|https|for=192.0.2.9");
    trusting.stop().unwrap();
    let strict = start_with("trusted_proxies = []");
    assert_eq!(said(&strict, &[]), "127.0.0.1||");
    strict.stop().unwrap();
    // By the PROXY protocol the peer is somebody else, also for what is believed.
    let keys = "trusted_proxies = ['127.0.0.0/8']\nproxy_protocol = ['127.0.0.0/8']";
    let proxied = start_with(keys);
    assert_eq!(said(&proxied, &["--haproxy-protocol"]), "192.0.2.9, 127.0.0.1|https|for=192.0.2.9");
    let head = b"PROXY TCP4 198.51.100.7 10.0.0.1 4711 80\r\nGET /who HTTP/1.1\r\nhost: a\r\n\
                 x-forwarded-for: 192.0.2.9\r\nconnection: close\r\n\r\n";
    let mut client = TcpStream::connect(proxied.listens()[0]).unwrap();
    client.write_all(head).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\n198.51.100.7||"), "{answer}");
    let (status, _) = curl(&proxied, "/who", &[]);
    assert_eq!(status, "000", "without the header nobody is served");
    proxied.stop().unwrap();
}

#[test]
fn a_route_has_limits_of_its_own() {
    let Some(world) = World::new("routes-limits") else { return };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = world.write(
        "{ path = '/quick', upstream = 'cart',\n\
         timeouts = { attempt = '300ms', total = '300ms' } },\n\
         { path = '/small', upstream = 'shop', body_bytes_max = 10 }",
    );
    let text = std::fs::read_to_string(&file).unwrap();
    let text =
        text.replace(&world.replicas[1].to_string(), &silent.local_addr().unwrap().to_string());
    std::fs::write(&file, text).unwrap();
    let proxy = start(&file);
    assert_eq!(curl(&proxy, "/quick", &[]).0, "504", "curl waits 20 s, the upstream 30");
    assert_eq!(curl(&proxy, "/small", &["-d", "0123456789"]).0, "200");
    for more in
        [&["-d", "0123456789a"][..], &["-d", "0123456789a", "-H", "transfer-encoding: chunked"]]
    {
        let (status, body) = curl(&proxy, "/small", more);
        assert_eq!(status, "413", "{body}");
        assert!(body.contains("the limit of 10 bytes"), "{body}");
    }
    assert_eq!(curl(&proxy, "/large", &["-d", "0123456789a"]).0, "200");
    proxy.stop().unwrap();
}
