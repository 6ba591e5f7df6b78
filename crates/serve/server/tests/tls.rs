//! TLS on either side: curl in front of nginx, `redis-cli` in front of Redis, certificates that
//! change.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use evenkeel_server::config::Config;
use evenkeel_server::process::{Process, check_files};
use evenkeel_settings::Node;
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::nginx;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::redis;
use evenkeel_testkit::wait::{PATIENCE, block_until};

/// An authority, and a folder with what it has signed.
struct World {
    folder: Folder,
    authority: Authority,
}

impl World {
    fn new(name: &str) -> Self {
        let world = Self { folder: Folder::new(name), authority: Authority::new() };
        std::fs::write(world.path("ca.pem"), world.authority.pem()).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `STEM.pem` and `STEM.key`.
    fn issue(&self, stem: &str, names: &[&str]) {
        let (certificate, key) = self.authority.issue(names);
        std::fs::write(self.path(&format!("{stem}.pem")), certificate).unwrap();
        std::fs::write(self.path(&format!("{stem}.key")), key).unwrap();
    }

    /// A real server that wants a certificate of its clients, and says what it saw of them.
    fn nginx(&self) -> Option<(Program, SocketAddr)> {
        let Some(binary) = nginx::find() else {
            println!("SKIPPED: no nginx here (Debian: apt-get install nginx-light)");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = self.folder.path().display();
        let config = format!(
            "daemon off; master_process off; pid {folder}/pid;\n\
             error_log {folder}/error.log; events {{}}\n\
             http {{ access_log off; client_body_temp_path {folder}/body;\n\
             proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n\
             uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
             server {{ listen 127.0.0.1:{port} ssl;\n\
             ssl_certificate {folder}/node.pem; ssl_certificate_key {folder}/node.key;\n\
             ssl_client_certificate {folder}/ca.pem; ssl_verify_client on;\n\
             location / {{ return 200 \"$ssl_client_verify $ssl_server_name \
             $http_x_forwarded_proto $ssl_session_reused\\n\"; }} }} }}\n"
        );
        let file = self.path("nginx.conf");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(binary);
        command.arg("-c").arg(&file).arg("-p").arg(self.folder.path());
        let mut server = Program::start(&mut command);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        server.wait_listening(address);
        Some((server, address))
    }

    /// A real Redis that speaks TLS only, and only with clients of the authority.
    fn redis(&self, folder: &str) -> (Program, SocketAddr) {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::fs::create_dir_all(self.path(folder)).unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--bind", "127.0.0.1", "--tls-auth-clients", "yes"]);
        command.args(["--tls-port", &free.port().to_string(), "--save", "", "--dir"]);
        command.arg(self.path(folder)).arg("--tls-ca-cert-file").arg(self.path("ca.pem"));
        command.arg("--tls-cert-file").arg(self.path("node.pem"));
        command.arg("--tls-key-file").arg(self.path("node.key")).stdout(Stdio::null());
        let mut server = Program::start(&mut command);
        server.wait_listening(free);
        (server, free)
    }

    /// What `redis-cli` says with TLS, until it says what is expected.
    fn redis_cli(&self, address: SocketAddr, command: &[&str], expected: &str) {
        let port = address.port().to_string();
        let mut said = String::new();
        block_until(&format!("{command:?} is answered with {expected}"), || {
            let mut cli = Command::new("redis-cli");
            cli.args(["--tls", "-h", "127.0.0.1", "-p", &port, "--cacert"]);
            cli.arg(self.path("ca.pem")).arg("--cert").arg(self.path("us.pem"));
            let output = cli.arg("--key").arg(self.path("us.key")).args(command).output().unwrap();
            let parts = [output.stdout, output.stderr].concat();
            said = String::from_utf8_lossy(&parts).trim_end().to_owned();
            said.contains(expected)
        });
    }

    fn curl(&self, arguments: &[&str]) -> Output {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "10", "--cacert"]).arg(self.path("ca.pem"));
        curl.args(arguments).output().expect("curl is there")
    }

    /// What a client is answered that knows a listener by this name.
    fn get(&self, name: &str, listener: SocketAddr) -> String {
        let output = self.curl(&[
            "--resolve",
            &format!("{name}:{}:127.0.0.1", listener.port()),
            "-w",
            "%{http_code} %{http_version}",
            &format!("https://{name}:{}/", listener.port()),
        ]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        String::from_utf8_lossy(&output.stdout).into_owned() + &errors
    }
}

fn write(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("run.toml");
    std::fs::write(&file, text).unwrap();
    file
}

fn start(file: &Path) -> Process {
    let config = Config::load(file).unwrap_or_else(|problems| panic!("{problems}"));
    Process::start_from(file, config).unwrap()
}

fn text(replica: SocketAddr, upstream: &str) -> String {
    format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         tls = {{ certificate = ['shop.pem', 'other.pem'], key = ['shop.key', 'other.key'] }}\n\
         [upstream.web]\nreplicas = ['{replica}']\n\
         tls = {{ ca = 'ca.pem', {upstream} }}\n[upstream.web.health]\ninterval = '50ms'\n"
    )
}

#[test]
fn https_on_either_side_with_certificates_by_name() {
    let world = World::new("tls-either-side");
    world.issue("shop", &["shop.example"]);
    world.issue("other", &["other.example"]);
    world.issue("node", &["node.example"]);
    world.issue("us", &["proxy.example"]);
    let Some((_nginx, replica)) = world.nginx() else { return };
    let ours = "name = 'node.example', certificate = 'us.pem', key = 'us.key'";
    let file = write(world.folder.path(), &text(replica, ours));
    let proxy = start(&file);
    let listener = proxy.listens()[0];
    for name in ["shop.example", "other.example"] {
        let answer = world.get(name, listener);
        assert!(answer.starts_with("SUCCESS node.example https "), "{answer}");
        assert!(answer.ends_with("200 2"), "{answer}");
    }
    let refused = world.get("third.example", listener);
    assert!(refused.contains("subject name") || refused.contains("SSL"), "{refused}");
    // Another certificate of ours, and a new one of the replica.
    let before = std::fs::read(world.path("shop.pem")).unwrap();
    world.issue("shop", &["shop.example", "fourth.example"]);
    assert_ne!(before, std::fs::read(world.path("shop.pem")).unwrap());
    assert!(!world.get("fourth.example", listener).contains("SUCCESS"), "not yet");
    proxy.reloader().reload_file().unwrap();
    let answer = world.get("fourth.example", listener);
    assert!(answer.starts_with("SUCCESS"), "{answer}");
    // A key that does not fit stops a reload, and nobody.
    std::fs::copy(world.path("other.key"), world.path("shop.key")).unwrap();
    let error = proxy.reloader().reload_file().unwrap_err().to_string();
    assert!(error.contains("[[listen]] 127.0.0.1:") && error.contains("shop.key"), "{error}");
    let answer = world.get("fourth.example", listener);
    assert!(answer.starts_with("SUCCESS"), "{answer}");
    proxy.stop().unwrap();
}

#[test]
fn a_replica_that_cannot_prove_who_it_is_gets_no_request() {
    let world = World::new("tls-wrong-name");
    for stem in ["shop", "other", "node", "us"] {
        world.issue(stem, &["shop.example"]);
    }
    let Some((_nginx, replica)) = world.nginx() else { return };
    let ours = "name = 'node.example', certificate = 'us.pem', key = 'us.key'";
    let proxy = start(&write(world.folder.path(), &text(replica, ours)));
    let answer = world.get("shop.example", proxy.listens()[0]);
    assert!(answer.ends_with("502 2") || answer.ends_with("503 2"), "{answer}");
    assert!(!answer.contains("SUCCESS"), "{answer}");
    proxy.stop().unwrap();
}

#[test]
fn a_replica_that_says_nothing_in_the_handshake_is_given_up_in_time() {
    let world = World::new("tls-silent");
    for stem in ["shop", "other", "us"] {
        world.issue(stem, &["shop.example"]);
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap(); // the kernel accepts
    let ours = "name = 'node.example', certificate = 'us.pem', key = 'us.key'";
    let text = text(silent.local_addr().unwrap(), ours);
    let text =
        text.replace("[upstream.web.health]", "[upstream.web.timeouts]\nconnect = '300ms'\n");
    let text = text.replace("interval = '50ms'\n", "");
    let proxy = start(&write(world.folder.path(), &text));
    let answer = world.get("shop.example", proxy.listens()[0]);
    assert!(answer.ends_with("502 2"), "curl waits 10 s, an attempt 15: {answer}");
    proxy.stop().unwrap();
}

/// Two duplicates that speak TLS only, and clients that must.
fn cart(world: &World, servers: [SocketAddr; 2], store_tls: &str) -> String {
    let ([one, other], directory) = (servers, world.path("cart"));
    format!(
        "[process]\nworkers = 1\n[duplicates.cart]\nlisten = '127.0.0.1:0'\n\
         directory = '{}'\nacknowledge = 'one'\nstore = 'redis'\n\
         partitions = [['{one}', '{other}']]\n\
         store_tls = {{ ca = 'ca.pem', {store_tls} }}\n\
         tls = {{ certificate = 'shop.pem', key = 'shop.key', client_ca = 'ca.pem' }}\n",
        directory.display()
    )
}

fn redis_is_there() -> bool {
    let found = redis::possible();
    if let Err(missing) = &found {
        println!("SKIPPED: {missing}");
    }
    found.is_ok()
}

#[test]
fn duplicates_speak_tls_with_clients_and_with_servers() {
    if !redis_is_there() {
        return;
    }
    let world = World::new("tls-duplicates");
    world.issue("shop", &["127.0.0.1"]);
    world.issue("node", &["node.example"]);
    world.issue("us", &["proxy.example"]);
    let (mut first, one) = world.redis("one");
    let (_second, other) = world.redis("other");
    let ours = "name = 'node.example', certificate = 'us.pem', key = 'us.key'";
    let proxy = start(&write(world.folder.path(), &cart(&world, [one, other], ours)));
    let address = proxy.duplicates()[0].0;
    world.redis_cli(address, &["SET", "apples", "3"], "OK");
    world.redis_cli(address, &["GET", "apples"], "3");
    for server in [one, other] {
        world.redis_cli(server, &["GET", "apples"], "3");
    }
    // Who speaks without it is not served.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"*2\r\n$3\r\nGET\r\n$6\r\napples\r\n").unwrap();
    let mut came = Vec::new();
    let _ = plain.read_to_end(&mut came); // an alert, a close or a reset
    assert!(!came.windows(2).any(|bytes| bytes == b"$1"), "{came:?}");
    // One that breaks off hinders nobody.
    first.kill();
    world.redis_cli(address, &["SET", "apples", "4"], "OK");
    world.redis_cli(address, &["GET", "apples"], "4");
    proxy.stop().unwrap();
}

#[test]
fn a_redis_that_cannot_prove_who_it_is_becomes_no_duplicate() {
    if !redis_is_there() {
        return;
    }
    let world = World::new("tls-duplicates-wrong");
    world.issue("shop", &["127.0.0.1"]);
    world.issue("node", &["other.example"]);
    world.issue("us", &["proxy.example"]);
    let (_first, one) = world.redis("one");
    let (_second, other) = world.redis("other");
    let ours = "name = 'node.example', certificate = 'us.pem', key = 'us.key'";
    let proxy = start(&write(world.folder.path(), &cart(&world, [one, other], ours)));
    world.redis_cli(proxy.duplicates()[0].0, &["GET", "apples"], "UNAVAILABLE");
    proxy.stop().unwrap();
    // A key of another certificate is said at the start.
    let text = cart(&world, [one, other], ours).replace("us.key", "shop.key");
    let file = Node::load(&write(world.folder.path(), &text)).unwrap();
    let config = Config::read(&file).unwrap();
    let checked = check_files(&config, &file).unwrap_err();
    let started = Process::start(config).map(drop).unwrap_err();
    for error in [checked.to_string(), started.to_string()] {
        let names = ["duplicates.cart: store_tls: ", "shop.key"];
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
    }
}

/// The status that curl is answered at this path of `[admin]`.
fn status(world: &World, admin: SocketAddr, path: &str, more: &[&str]) -> String {
    let url = format!("https://127.0.0.1:{}{path}", admin.port());
    let discard = ["-o", "/dev/null", "-w", "%{http_code}", &url];
    let output = world.curl(&[&discard[..], more].concat());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn administration_elsewhere_asks_for_a_token_or_a_certificate() {
    let world = World::new("tls-admin");
    world.issue("admin", &["127.0.0.1"]);
    world.issue("operator", &["operator.example"]);
    std::fs::write(world.path("token"), "0123456789abcdef\n").unwrap();
    let text = "[process]\nworkers = 1\n[[agent]]\nlisten = '127.0.0.1:0'\napp = '127.0.0.1:1'\n\
                [admin]\naddress = '0.0.0.0:0'\ntoken_file = 'token'\n\
                public = ['healthz', 'metrics']\n\
                tls = { certificate = 'admin.pem', key = 'admin.key', client_ca = 'ca.pem' }\n";
    let proxy = start(&write(world.folder.path(), text));
    let admin = proxy.admin().unwrap();
    let ask = |path: &str, more: &[&str]| status(&world, admin, path, more);
    for (path, expected) in [("/healthz", "200"), ("/metrics", "200"), ("/readyz", "401")] {
        assert_eq!(ask(path, &[]), expected, "{path} without anything");
    }
    let (right, wrong) = ("Authorization: Bearer 0123456789abcdef", "Authorization: Bearer 0123");
    assert_eq!(ask("/api/v1/status", &["-H", wrong]), "401");
    assert_eq!(ask("/api/v1/status", &["-H", right]), "200");
    assert_eq!(ask("/", &["-u", "anybody:0123456789abcdef"]), "200", "as a browser asks");
    let (certificate, key) = (world.path("operator.pem"), world.path("operator.key"));
    let certified = ["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    assert_eq!(ask("/api/v1/status", &certified), "200");
    let post = ["-X", "POST", "-H", "Content-Type: application/json", "-H", right];
    assert_eq!(ask("/api/v1/reload", &post), "200");
    let foreign = [&post[..], &["-H", "Origin: https://evil.example"]].concat();
    assert_eq!(ask("/api/v1/reload", &foreign), "403");
    let unknown = [&post[..4], &["-H", wrong]].concat();
    assert_eq!(ask("/api/v1/reload", &unknown), "401");
    proxy.stop().unwrap();
}
