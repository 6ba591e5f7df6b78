//! Replicas and applications on Unix sockets: they come, go and come back as others do, and are
//! seen under their path.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use evenkeel_http as engine;
use evenkeel_runtime::accept::{Listener, Sharing, Stop};
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_settings::address::ListenAddress;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::{LIMITS, skipped, story_within};
use evenkeel_testkit::wait::{block_until, found};

use crate::{Fleet, LIMIT, Requests, get, ip, start, stop};

/// An application on a path, which answers with its name and the host that it was asked as.
struct App {
    stop: Stop,
    serving: tokio::task::JoinHandle<()>,
}

impl App {
    fn start(path: &Path, name: &'static str) -> Self {
        let place = ListenAddress::unix(path);
        let listener = Listener::bind_all(&place, Sharing::Shared, 1).unwrap().remove(0);
        let handler = move |request: engine::Request<engine::Body>, _| async move {
            let host = request.headers().get("host").map(|it| it.to_str().unwrap().to_owned());
            let text = format!("{name} as {}", host.unwrap_or_default());
            engine::Response::new(engine::Body::full(text))
        };
        let stop = Stop::new();
        let served = engine::serve(listener, LIMITS, handler, stop.signal());
        let serving = tokio::task::spawn_local(async {
            let _served = served.await.unwrap();
        });
        Self { stop, serving }
    }

    /// Its file is gone with it.
    async fn end(self) {
        self.stop.stop(LIMITS.drain).await;
        self.serving.await.unwrap();
    }
}

fn proxy(replicas: &str, more: &str) -> Process {
    start(&format!(
        "[process]\nworkers = 1\ndrain = '3s'\n[admin]\naddress = '127.0.0.1:0'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         [upstream.web]\nreplicas = [{replicas}]\n{more}"
    ))
}

#[test]
fn a_replica_on_a_path_serves_is_checked_and_shown_and_comes_back() {
    story_within(LIMIT, async {
        let (folder, fleet) = (Folder::new("unix-replicas"), Fleet::start(1));
        let path = folder.file("app.sock");
        let (place, other) = (format!("unix:{}", path.display()), (ip(0), fleet.port));
        let app = App::start(&path, "app");
        let health = "[upstream.web.health]\npath = '/healthz'\ninterval = '50ms'\n";
        let other = format!("{}:{}", other.0, other.1);
        let process = proxy(&format!("'{place}', '{other}'"), health);
        let (at, desk) = (process.listens()[0], process.admin().unwrap());
        let states = Arc::clone(process.upstreams());
        found("both serve", async || {
            let answer = get(at, "/").await;
            let is_app = answer.ends_with("app as localhost");
            assert!(is_app || answer.ends_with("served"), "{answer}");
            let counted = states.stats(0).total;
            counted.replicas.iter().all(|it| it.succeeded > 3).then_some(())
        })
        .await;
        let metrics = get(desk, "/metrics").await;
        let label = format!("replica=\"{place}\"");
        assert!(metrics.contains(&label), "{metrics}");
        assert!(get(desk, "/api/v1/status").await.contains(&place));
        // It is gone with its file: no request fails, and it has its slot when it is back.
        let requests = Requests::start(at);
        app.end().await;
        let is_down = || states.plan(0).health[0] == evenkeel_core::Health::Down;
        evenkeel_testkit::wait::until("its checks fail", is_down).await;
        found("it is named where requests were retried", async || {
            get(desk, "/api/v1/requests").await.contains(&place).then_some(())
        })
        .await;
        let app = App::start(&path, "another");
        evenkeel_testkit::wait::until("it is back", || !is_down()).await;
        found("it serves", async || {
            get(at, "/").await.ends_with("another as localhost").then_some(())
        })
        .await;
        requests.all_are_served().await;
        app.end().await;
        stop(process).await;
    });
}

#[test]
fn http2_is_spoken_over_a_path_and_who_names_no_host_is_asked_as_localhost() {
    story_within(LIMIT, async {
        let folder = Folder::new("unix-http2");
        let path = folder.file("app.sock");
        let app = App::start(&path, "app");
        let process = proxy(&format!("'unix:{}'", path.display()), "http2 = true\n");
        let answer = get(process.listens()[0], "/").await;
        assert!(answer.contains("app as localhost"), "perhaps in pieces: {answer}");
        stop(process).await;
        let agent = start(&format!(
            "[process]\nworkers = 1\n[[agent]]\nlisten = '127.0.0.1:0'\napp = 'unix:{}'\n",
            path.display()
        ));
        let answer = get(agent.agents()[0], "/").await;
        assert!(answer.ends_with("app as localhost"), "{answer}");
        assert!(answer.to_lowercase().contains("endpoint-load-metrics"), "it reports: {answer}");
        app.end().await;
        let answer = get(agent.agents()[0], "/").await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(answer.contains(&format!("unix:{}", path.display())), "it is named: {answer}");
        stop(agent).await;
    });
}

fn nginx(folder: &Folder, socket: &Path) -> Option<Program> {
    let file = folder.file("nginx.conf");
    let text = format!(
        "daemon off; master_process off; pid {folder}/pid;\n\
         error_log {folder}/error.log; events {{}}\n\
         http {{ access_log off; client_body_temp_path {folder}/body;\n\
         proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n\
         uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
         server {{ listen unix:{}; location / {{ return 200 'nginx as $host'; }} }} }}\n",
        socket.display(),
        folder = folder.path().display(),
    );
    std::fs::File::create(&file).unwrap().write_all(text.as_bytes()).unwrap();
    let mut command = Command::new(evenkeel_testkit::nginx::find()?);
    command.args(["-c", &file.display().to_string(), "-p", &folder.path().display().to_string()]);
    Program::start_if_installed(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

#[test]
fn a_real_server_behind_a_path_is_a_replica() {
    story_within(LIMIT, async {
        let folder = Folder::new("unix-nginx");
        let socket: PathBuf = folder.file("nginx.sock");
        let Some(_server) = nginx(&folder, &socket) else {
            skipped("no nginx here (Debian: apt-get install nginx-light)");
            return;
        };
        block_until("nginx listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        let process = proxy(&format!("'unix:{}'", socket.display()), "");
        let requests = Requests::start(process.listens()[0]);
        found("it answers", async || {
            get(process.listens()[0], "/").await.ends_with("nginx as localhost").then_some(())
        })
        .await;
        evenkeel_testkit::wait::until("some are served", || {
            process.upstreams().stats(0).total.replicas.first().is_some_and(|it| it.succeeded > 200)
        })
        .await;
        requests.all_are_served().await;
        stop(process).await;
    });
}

/// What `check` says of a file.
fn problems(text: &str) -> String {
    let node = Node::parse(text, "unix.toml").unwrap();
    Config::read(&node).expect_err(text).to_string()
}

#[test]
fn what_a_path_cannot_be_is_refused_once_with_the_reason() {
    let listen = "[[listen]]\naddress = '127.0.0.1:8080'\nupstream = 'web'\n[upstream.web]\n";
    let path = "unix:/run/app.sock";
    let agent = "[[agent]]\nlisten = '127.0.0.1:9001'\n";
    for (text, words) in [
        (
            format!("{listen}replicas = ['{path}']\ntls = {{}}\n"),
            "replicas.0: got unix:/run/app.sock, expected a replica with a port",
        ),
        (
            format!("{listen}replicas = ['unix:app.sock']\n"),
            "expected unix: and an absolute path of at most 107 bytes",
        ),
        (format!("{listen}replicas = ['{path}', '{path}']\n"), "each replica once"),
        (
            format!("{listen}replicas = ['{path}']\nprotocol = 'cql'\n"),
            "Unix sockets are for HTTP: `replicas` of [upstream.NAME] and `app` of [[agent]]",
        ),
        (
            format!("{agent}app = '{path}'\n[agent.app_tls]\n"),
            "what goes over a Unix socket stays on this machine",
        ),
        (
            format!("{agent}app = '{path}'\nprotocol = 'cql'\n"),
            "nodes of Cassandra listen on no path",
        ),
        (
            format!(
                "[[listen]]\naddress = '{path}'\nupstream = 'web'\n\
                 [upstream.web]\nreplicas = ['{path}']\n"
            ),
            "requests would loop",
        ),
    ] {
        let found = problems(&text);
        assert!(found.contains(words), "{text}\n{found}");
        assert_eq!(found.lines().count(), 1, "{text}\n{found}");
    }
}
