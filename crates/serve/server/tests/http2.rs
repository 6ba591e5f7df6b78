//! HTTP/2 and gRPC on either side: curl and clients of `h2` in front, nginx and scripted replicas
//! behind. The suites h2spec and gRPC interop run where they are found:
//! `cargo test -p evenkeel-server --test http2 -- --ignored --nocapture`.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::nginx;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::nobody;
use h2::client::SendRequest;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Method, Request, Response};

fn start(folder: &Folder, text: &str) -> Process {
    let file = folder.path().join("run.toml");
    std::fs::write(&file, text).unwrap();
    let config = Config::load(&file).unwrap_or_else(|problems| panic!("{problems}"));
    Process::start_from(&file, config).unwrap()
}

/// `listen` lines and the rest of a server each; `None` without nginx.
fn nginx(folder: &Folder, servers: &[(&str, &str)]) -> Option<(Program, Vec<SocketAddr>)> {
    let Some(binary) = nginx::find() else {
        println!("SKIPPED: no nginx here (Debian: apt-get install nginx-light)");
        return None;
    };
    let path = folder.path().display();
    let mut addresses = Vec::new();
    let mut text = format!(
        "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\n\
         events {{}}\nhttp {{ access_log off; client_body_temp_path {path}/body;\n\
         proxy_temp_path {path}/proxy; fastcgi_temp_path {path}/fastcgi;\n\
         uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;\n"
    );
    for (listen, rest) in servers {
        let port = nobody().port();
        addresses.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        text += &format!("server {{ listen 127.0.0.1:{port} {listen}; {rest} }}\n");
    }
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, text + "}\n").unwrap();
    let mut command = Command::new(binary);
    command.arg("-c").arg(&file).arg("-p").arg(folder.path());
    let mut server = Program::start(&mut command);
    addresses.iter().for_each(|address| server.wait_listening(*address));
    Some((server, addresses))
}

/// What curl is answered, and in which version.
fn curl(folder: &Folder, arguments: &[&str], url: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "-w", "%{http_code} %{http_version}", "--cacert"]);
    curl.arg(folder.path().join("ca.pem")).args(arguments).arg(url);
    let output = curl.output().expect("curl is there");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    String::from_utf8_lossy(&output.stdout).into_owned() + &errors
}

fn issue(folder: &Folder, stem: &str, name: &str) {
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&[name]);
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    std::fs::write(folder.path().join(format!("{stem}.pem")), certificate).unwrap();
    std::fs::write(folder.path().join(format!("{stem}.key")), key).unwrap();
}

#[test]
fn each_side_speaks_what_it_agrees_on() {
    let folder = Folder::new("http2-either-side");
    issue(&folder, "node", "localhost");
    let path = folder.path().display();
    let tls = format!("ssl_certificate {path}/node.pem; ssl_certificate_key {path}/node.key;");
    let says = "location / { return 200 \"$server_protocol $http_host \"; }";
    let secret = format!("{tls} {says}");
    let servers =
        [("", says), ("http2", says), ("ssl", secret.as_str()), ("ssl http2", secret.as_str())];
    let Some((_nginx, replicas)) = nginx(&folder, &servers) else { return };
    let [plain, streams, secret, both] = replicas[..] else { panic!("{replicas:?}") };
    let towards = "tls = { ca = 'ca.pem', name = 'localhost' }";
    let ways = [
        (plain, String::new(), "HTTP/1.1"),
        (streams, "http2 = true".to_owned(), "HTTP/2.0"),
        (secret, towards.to_owned(), "HTTP/1.1"),
        (both, towards.to_owned(), "HTTP/2.0"),
        (both, format!("{towards}\nhttp2 = \"auto\""), "HTTP/2.0"),
        (both, format!("{towards}\nhttp2 = true"), "HTTP/2.0"),
        (both, format!("{towards}\nhttp2 = false"), "HTTP/1.1"),
    ];
    let mut text = "[process]\nworkers = 1\n".to_owned();
    for (number, (replica, rest, _)) in ways.iter().enumerate() {
        text += &format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'u{number}'\n\
             [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'u{number}'\n\
             tls = {{ certificate = 'node.pem', key = 'node.key' }}\n\
             [upstream.u{number}]\nreplicas = ['{replica}']\n{rest}\n"
        );
    }
    let proxy = start(&folder, &text);
    for ((_, rest, spoken), listeners) in ways.iter().zip(proxy.listens().chunks(2)) {
        let ports = (listeners[0].port(), listeners[1].port());
        let (plain, secret) =
            (format!("http://localhost:{}/", ports.0), format!("https://localhost:{}/", ports.1));
        let asked: [(&str, &str, &str); 4] = [
            ("--http1.1", &plain, "1.1"),
            ("--http2-prior-knowledge", &plain, "2"),
            ("--http1.1", &secret, "1.1"),
            ("--http2", &secret, "2"),
        ];
        for (how, url, version) in asked {
            let host = url.split('/').nth(2).unwrap();
            let answer = curl(&folder, &["-4", how], url);
            assert_eq!(answer, format!("{spoken} {host} 200 {version}"), "{rest} {how} {url}");
        }
    }
    proxy.stop().unwrap();
}

#[test]
fn a_replica_that_is_to_speak_http2_and_does_not_is_named() {
    let folder = Folder::new("http2-not-spoken");
    issue(&folder, "node", "localhost");
    let Some((_nginx, replicas)) = nginx(&folder, &[("", "")]) else { return };
    let text = format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         [upstream.web]\nreplicas = ['{}']\nhttp2 = true\n",
        replicas[0]
    );
    let proxy = start(&folder, &text);
    let url = format!("http://{}/", proxy.listens()[0]);
    let answer = curl(&folder, &[], &url);
    assert!(answer.ends_with("502 1.1"), "{answer}");
    proxy.stop().unwrap();
}

/// Runs the clients of a test.
fn run<T>(clients: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), clients).await };
    runtime.block_on(limited).expect("the test ends within a minute")
}

async fn client(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn post(grpc: bool) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = "http://a.example/shop.Cart/Add".parse().unwrap();
    if grpc {
        let headers = request.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        headers.insert("te", HeaderValue::from_static("trailers"));
    }
    request
}

/// The status, the `grpc-status` wherever it is, and whether that was in the head.
async fn call(mut sender: SendRequest<Bytes>, request: Request<()>) -> (u16, Option<String>, bool) {
    poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
    let (answer, mut upload) = sender.send_request(request, false).unwrap();
    upload.send_data(Bytes::from_static(b"question"), true).unwrap();
    let response = answer.await.unwrap();
    let status_of = |headers: &HeaderMap| {
        headers.get("grpc-status").map(|value| value.to_str().unwrap().to_owned())
    };
    let (code, in_head) = (response.status().as_u16(), status_of(response.headers()));
    let mut body = response.into_body();
    while let Some(piece) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.unwrap().len());
    }
    let trailers = body.trailers().await.unwrap();
    let is_in_head = in_head.is_some();
    (code, in_head.or_else(|| status_of(&trailers.unwrap_or_default())), is_in_head)
}

#[test]
fn a_replica_that_says_goodbye_again_and_again_loses_nothing() {
    let folder = Folder::new("http2-goodbye");
    issue(&folder, "node", "localhost");
    let leaves = "keepalive_requests 50; location / { return 200 ok; }";
    let Some((_nginx, replicas)) = nginx(&folder, &[("http2", leaves)]) else { return };
    let text = format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         [upstream.web]\nreplicas = ['{}']\nhttp2 = true\n",
        replicas[0]
    );
    let proxy = start(&folder, &text);
    let listener = proxy.listens()[0];
    run(async {
        let sender = client(listener).await;
        let asking = (0..20).map(|_| {
            let sender = sender.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    assert_eq!(call(sender.clone(), post(false)).await.0, 200);
                }
            })
        });
        for one in asking.collect::<Vec<_>>() {
            one.await.unwrap();
        }
    });
    proxy.stop().unwrap();
}

/// A replica that answers calls of gRPC with this status, in trailers, or never (`None`). Counts.
fn grpc_replica(status: Option<&'static str>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let its = Arc::clone(&count);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve_grpc(stream, status, Arc::clone(&its)));
            }
        });
    });
    (address, count)
}

async fn serve_grpc(
    stream: tokio::net::TcpStream,
    status: Option<&'static str>,
    count: Arc<AtomicUsize>,
) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let mut unanswered = Vec::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        assert_eq!(request.headers()["te"], "trailers");
        assert!(!request.headers().contains_key("transfer-encoding"));
        count.fetch_add(1, Relaxed);
        match status {
            Some(status) => answer_grpc(respond, status),
            None => unanswered.push(respond),
        }
    }
}

fn answer_grpc(mut respond: SendResponse<Bytes>, status: &'static str) {
    let mut head = Response::new(());
    head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let mut stream = respond.send_response(head, false).unwrap();
    stream.send_data(Bytes::from_static(b"answer"), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    stream.send_trailers(trailers).unwrap();
}

fn grpc_proxy(folder: &Folder, replicas: &[SocketAddr]) -> Process {
    let text = format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'shop'\n\
         [upstream.shop]\nreplicas = {:?}\nhttp2 = true\npolicy = 'round-robin'\n\
         [upstream.shop.safeguards]\nejection_failures = 5\n",
        replicas.iter().map(ToString::to_string).collect::<Vec<_>>()
    );
    start(folder, &text)
}

#[test]
fn a_replica_that_fails_its_calls_at_their_end_is_ejected_and_others_are_not() {
    // NOT_FOUND speaks of the request.
    for (status, is_failure) in [("14", true), ("13", true), ("5", false)] {
        let folder = Folder::new("grpc-outcome");
        let (bad, bad_count) = grpc_replica(Some(status));
        let (good, good_count) = grpc_replica(Some("0"));
        let proxy = grpc_proxy(&folder, &[bad, good]);
        let listener = proxy.listens()[0];
        run(async {
            let sender = client(listener).await;
            for _ in 0..100 {
                let (code, outcome, is_in_head) = call(sender.clone(), post(true)).await;
                assert_eq!((code, is_in_head), (200, false));
                assert!(["0", status].contains(&outcome.as_deref().unwrap()));
            }
        });
        let (bad, good) = (bad_count.load(Relaxed), good_count.load(Relaxed));
        assert_eq!(bad + good, 100, "each call was made once");
        assert_eq!(bad < 30, is_failure, "status {status}: {bad} and {good}");
        proxy.stop().unwrap();
    }
}

#[test]
fn what_cannot_be_served_is_refused_as_grpc_says_it() {
    let folder = Folder::new("grpc-refusal");
    let nobody = nobody();
    let proxy = grpc_proxy(&folder, &[nobody]);
    let listener = proxy.listens()[0];
    let refused = run(async { call(client(listener).await, post(true)).await });
    assert_eq!(refused, (200, Some("14".to_owned()), true), "UNAVAILABLE in the head");
    assert_eq!(run(async { call(client(listener).await, post(false)).await }).0, 502);
    proxy.stop().unwrap();
    let (silent, _) = grpc_replica(None);
    let proxy = grpc_proxy(&folder, &[silent]);
    let listener = proxy.listens()[0];
    let mut hurried = post(true);
    hurried.headers_mut().insert("grpc-timeout", HeaderValue::from_static("200m"));
    let refused = run(async { call(client(listener).await, hurried).await });
    assert_eq!(refused, (200, Some("4".to_owned()), true), "DEADLINE_EXCEEDED in the head");
    proxy.stop().unwrap();
}

/// A program of a suite, by its variable or in `PATH`.
fn suite(variable: &str, name: &str, how: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(name));
    let found = named.or_else(|| places.find(|file| file.is_file()));
    if found.is_none() {
        println!("SKIPPED: neither {variable} nor {name} in PATH ({how})");
    }
    found
}

#[test]
#[ignore = "needs h2spec"]
fn h2spec_passes_in_plaintext_and_tls() {
    let how = "go install github.com/summerwind/h2spec/cmd/h2spec@latest";
    let Some(h2spec) = suite("H2SPEC", "h2spec", how) else { return };
    let folder = Folder::new("h2spec");
    issue(&folder, "node", "localhost");
    let says = "location / { return 200 hello; }";
    let Some((_nginx, replicas)) = nginx(&folder, &[("", says)]) else { return };
    let text = format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         tls = {{ certificate = 'node.pem', key = 'node.key' }}\n\
         [upstream.web]\nreplicas = ['{}']\n",
        replicas[0]
    );
    let proxy = start(&folder, &text);
    for (listener, how) in proxy.listens().iter().zip([&[][..], &["-t", "-k"]]) {
        let mut command = Command::new(&h2spec);
        command.args(["-h", "127.0.0.1", "-o", "5", "-p", &listener.port().to_string()]).args(how);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let result = output.lines().last().unwrap_or_default();
        println!("h2spec {how:?}: {result}");
        assert!(result.contains(" 0 failed"), "{output}");
    }
    proxy.stop().unwrap();
}

/// The cases that need no credentials and no server of a cloud.
const INTEROP: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

#[test]
#[ignore = "needs gRPC's interop client and server"]
fn grpc_interop_passes() {
    let how = "go install google.golang.org/grpc/interop/{client,server}@v1.85.0, then these";
    let client = suite("GRPC_INTEROP_CLIENT", "grpc_interop_client", how);
    let server = suite("GRPC_INTEROP_SERVER", "grpc_interop_server", how);
    let (Some(client), Some(server)) = (client, server) else { return };
    let folder = Folder::new("grpc-interop");
    let port = nobody().port();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut server = Program::start(Command::new(server).args(["-port", &port.to_string()]));
    server.wait_listening(address);
    let proxy = grpc_proxy(&folder, &[address]);
    let port = proxy.listens()[0].port().to_string();
    for case in INTEROP {
        let mut command = Command::new(&client);
        command.args(["-server_host", "127.0.0.1", "-server_port", &port, "-test_case", case]);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case}: {errors}");
        println!("gRPC interop {case}: passed");
    }
    proxy.stop().unwrap();
}
