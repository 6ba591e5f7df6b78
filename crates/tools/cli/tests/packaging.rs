//! What people install and watch Evenkeel with: completions, man pages, the unit, sockets of
//! systemd, rules of Prometheus, the dashboard, manifests of Kubernetes.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{PROGRAM, Running, evenkeel, replica, text};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::{http, wait};
use socket2::{Domain, Socket, Type};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The output of a program of others; `None`, which is said, where it is not installed.
fn run(command: &mut Command) -> Option<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: no {name}");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Runs it to its success, if it is installed; returns what it said.
fn succeeds(command: &mut Command) -> Option<String> {
    let output = run(command)?;
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    Some(said)
}

#[test]
fn shells_read_the_completions_and_they_have_every_command() {
    let folder = Folder::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&evenkeel(&["completions", shell]).stdout);
        for word in ["run", "check", "take-over", "placement"] {
            assert!(script.contains(word), "{shell} knows no {word}");
        }
        let file = folder.file(shell);
        std::fs::write(&file, script).unwrap();
        succeeds(Command::new(shell).arg("-n").arg(&file));
    }
    let asked = "source \"$0\"; COMP_WORDS=(evenkeel che); COMP_CWORD=1; \
                 _evenkeel evenkeel che evenkeel; echo \"${COMPREPLY[@]}\"";
    let bash = succeeds(Command::new("bash").args(["-c", asked]).arg(folder.file("bash")));
    assert!(bash.is_none_or(|said| said == "check\n"));
    let unknown = evenkeel(&["completions", "tcsh"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("tcsh"), "{}", text(&unknown.stderr));
}

#[test]
fn there_is_a_man_page_for_each_command() {
    let folder = Folder::new("man");
    let into = folder.path().to_str().unwrap();
    assert!(evenkeel(&["man", into]).status.success());
    let pages = std::fs::read_dir(folder.path()).unwrap().count();
    let help = text(&evenkeel(&["help"]).stdout);
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let commands = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"run") && pages > commands.len(), "{commands:?}");
    for command in commands.iter().filter(|command| **command != "help") {
        let page = std::fs::read_to_string(folder.file(&format!("evenkeel-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    let nowhere = evenkeel(&["man", "/no/such/folder"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(text(&nowhere.stderr).contains("/no/such/folder"));
}

/// One listener with a policy; see `reload.rs`.
fn configuration(door: SocketAddr, policy: &str) -> String {
    format!(
        "[process]\nworkers = 2\n[[listen]]\naddress = '{door}'\nupstream = 'web'\n\
         [upstream.web]\npolicy = '{policy}'\nreplicas = ['{}']\n",
        replica()
    )
}

#[test]
fn the_service_manager_is_told_of_start_reload_and_stop() {
    let (folder, door) = (Folder::new("notify"), nobody());
    let (file, name) = (folder.file("run.toml"), folder.file("notify.sock"));
    let socket = UnixDatagram::bind(&name).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let told = || {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).expect("the manager is told");
        text(&buffer[..length])
    };
    std::fs::write(&file, configuration(door, "c3")).unwrap();
    let mut running =
        Running::start_by(Command::new(PROGRAM).arg("run").arg(&file).env("NOTIFY_SOCKET", &name));
    let ready = told();
    assert!(ready.starts_with("READY=1\nSTATUS=2 workers"), "{ready}");
    assert!(http::get(door, "/").starts_with("HTTP/1.1 200"), "ready means that it answers");
    for (policy, came) in [("random", "reloaded: configuration 2"), ("rand", "not reloaded")] {
        std::fs::write(&file, configuration(door, policy)).unwrap();
        running.signal("HUP");
        assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        let ready = told();
        assert!(ready.starts_with(&format!("READY=1\nSTATUS={came}")), "{ready}");
        assert_eq!(ready.lines().count(), 2, "a status is one line: {ready}");
    }
    running.signal("TERM");
    assert!(told().starts_with("STOPPING=1\n"));
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn a_service_manager_that_cannot_be_reached_is_told_and_one_that_is_gone_changes_nothing() {
    let (folder, door) = (Folder::new("notify-gone"), nobody());
    let file = folder.file("run.toml");
    std::fs::write(&file, configuration(door, "c3")).unwrap();
    let start = |name: &str| {
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg(&file).env("NOTIFY_SOCKET", name);
        command
    };
    let wrong = start("vsock:2:1").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("vsock:2:1, expected /a/path"), "{wrong:?}");
    let gone = folder.file("gone.sock");
    let mut running = Running::start_by(&mut start(gone.to_str().unwrap()));
    running.until("warning: cannot tell the service manager");
    assert!(http::get(door, "/").starts_with("HTTP/1.1 200"));
}

#[test]
fn sockets_of_systemd_are_used_and_one_without_a_listener_is_told() {
    let (folder, door, other) = (Folder::new("sockets"), nobody(), nobody());
    let file = folder.file("run.toml");
    std::fs::write(&file, configuration(door, "c3")).unwrap();
    let program = "systemd-socket-activate";
    if Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: no {program}");
        return;
    }
    let sockets = [door.to_string(), other.to_string()];
    let mut command = Command::new(program);
    command.args(["-l", &sockets[0], "-l", &sockets[1], PROGRAM, "run"]).arg(&file);
    let mut running = Running::start_by(&mut command);
    running.until("Listening on");
    // The program starts with its first client, which waits until then. Were the address bound
    // again, the program would refuse to start: somebody listens there.
    let first = std::thread::spawn(move || http::get(door, "/"));
    let said = running.until("SIGHUP reloads");
    assert!(said.contains(&format!("nothing listens on the inherited socket {other}")), "{said}");
    assert!(first.join().unwrap().starts_with("HTTP/1.1 200"));
    for _ in 0..20 {
        assert!(http::get(door, "/").starts_with("HTTP/1.1 200"));
    }
    running.signal("TERM");
    running.until("stopping");
    assert!(running.child.wait().unwrap().success());
}

/// The program with what is its standard input as the only inherited socket.
fn inheriting(input: Stdio, file: &Path) -> Command {
    let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" run \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, PROGRAM]).arg(file).stdin(input);
    command
}

#[test]
fn a_client_waits_while_the_process_restarts_where_its_socket_stays() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (folder, door) = (Folder::new("restart"), listener.local_addr().unwrap());
    let file = folder.file("run.toml");
    std::fs::write(&file, configuration(door, "c3")).unwrap();
    let start = || {
        let socket = OwnedFd::from(listener.try_clone().unwrap());
        let mut running = Running::start_by(&mut inheriting(socket.into(), &file));
        running.until("SIGHUP reloads");
        running
    };
    let mut running = start();
    assert!(http::get(door, "/").starts_with("HTTP/1.1 200"));
    // An address that a reload removes, and a later one brings back, has its socket again.
    let whole = std::fs::read_to_string(&file).unwrap();
    for (text, say) in [(whole.replace(&door.to_string(), "127.0.0.1:0"), "2"), (whole, "3")] {
        std::fs::write(&file, text).unwrap();
        running.signal("HUP");
        running.until(&format!("reloaded: configuration {say}"));
    }
    assert!(http::get(door, "/").starts_with("HTTP/1.1 200"));
    running.signal("TERM");
    assert!(running.child.wait().unwrap().success());
    let mut waits = TcpStream::connect(door).expect("the socket stays");
    waits.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let _running = start();
    let mut answer = String::new();
    waits.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn several_sockets_of_one_address_are_all_served() {
    let bind = |door: SocketAddr| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(&door.into()).unwrap();
        socket.listen(128).unwrap();
        TcpListener::from(socket)
    };
    let first = bind((Ipv4Addr::LOCALHOST, 0).into());
    let door = first.local_addr().unwrap();
    let second = bind(door);
    let folder = Folder::new("several");
    let file = folder.file("run.toml");
    std::fs::write(&file, configuration(door, "c3")).unwrap();
    let script = "exec 3<&0 4<&1 0</dev/null 1>/dev/null; \
                  LISTEN_PID=$$ LISTEN_FDS=2 exec \"$0\" run \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, PROGRAM]).arg(&file);
    command.stdin(OwnedFd::from(first)).stdout(OwnedFd::from(second));
    let mut running = Running::start_by(&mut command);
    drop(command); // and with it our copies of the sockets
    let said = running.until("SIGHUP reloads");
    assert!(!said.contains("nothing listens on"), "{said}");
    // The kernel gives each socket half of the clients: those of one that nobody accepts from would
    // wait for ever.
    for _ in 0..40 {
        assert!(http::get(door, "/").starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn what_is_inherited_and_no_socket_is_one_clear_error() {
    let folder = Folder::new("no-socket");
    let file = folder.file("run.toml");
    std::fs::write(&file, configuration(nobody(), "c3")).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let refused = inheriting(input.into(), &file).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("LISTEN_FDS: got") && said.contains("ListenStream="), "{said}");
}

#[test]
fn the_unit_is_valid_and_sandboxed() {
    let folder = Folder::new("unit");
    let unit = read("packaging/evenkeel.service");
    // Where nobody has installed it yet.
    let file = folder.file("evenkeel.service");
    std::fs::write(&file, unit.replace("/usr/bin/evenkeel", PROGRAM)).unwrap();
    std::fs::write(folder.file("evenkeel.socket"), read("packaging/evenkeel.socket")).unwrap();
    let analyze =
        |arguments: &[&str]| succeeds(Command::new("systemd-analyze").args(arguments).arg(&file));
    let Some(said) = analyze(&["verify", "--man=no"]) else { return };
    assert!(!said.contains("evenkeel"), "{said}");
    let level = analyze(&["security", "--offline=true", "--threshold=20", "--no-pager"]).unwrap();
    assert!(level.contains("Overall exposure level"), "{level}");
    for word in ["Type=notify", "KillMode=mixed", "DynamicUser=yes", "LimitNOFILE="] {
        assert!(unit.contains(word), "{word}");
    }
}

#[test]
fn the_configuration_of_the_package_is_valid() {
    let file = root().join("packaging/evenkeel.toml");
    let checked = evenkeel(&["check", file.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let socket = read("packaging/evenkeel.socket");
    let address = socket.lines().find_map(|line| line.strip_prefix("ListenStream=")).unwrap();
    let is_listened_on = format!("address = \"{address}\"");
    assert!(read("packaging/evenkeel.toml").contains(&is_listened_on), "{address}");
}

#[test]
fn prometheus_takes_the_rules_and_their_tests_pass() {
    let folder = root().join("packaging/prometheus");
    let promtool = |arguments: &[&str]| {
        succeeds(Command::new("promtool").args(arguments).current_dir(&folder))
    };
    let Some(said) = promtool(&["check", "rules", "evenkeel.rules.yml"]) else { return };
    assert!(said.contains("SUCCESS"), "{said}");
    promtool(&["test", "rules", "evenkeel.test.yml"]);
    // Every alert has a test, and a place in the guide.
    let (tests, guide) =
        (read("packaging/prometheus/evenkeel.test.yml"), read("docs/troubleshooting.md"));
    for rule in read("packaging/prometheus/evenkeel.rules.yml").lines() {
        let Some(alert) = rule.trim().strip_prefix("- alert: ") else { continue };
        assert!(tests.contains(alert), "{alert} has no test");
        assert!(guide.contains(&format!("`{alert}`")), "{alert} is not in the guide");
    }
}

#[test]
fn prometheus_reads_native_histograms_of_requests() {
    let (folder, admin, listen, prometheus) = (Folder::new("native"), nobody(), nobody(), nobody());
    let config = folder.file("evenkeel.toml");
    let text = format!(
        "[admin]\naddress = '{admin}'\n[[listen]]\naddress = '{listen}'\nupstream = 'shop'\n\
         [upstream.shop]\nreplicas = ['{}']\n",
        replica()
    );
    std::fs::write(&config, text).unwrap();
    let mut running = Running::start(&config);
    running.until("SIGHUP reloads");
    for _ in 0..20 {
        http::try_get(listen, "/").unwrap();
    }
    let file = folder.file("prometheus.yml");
    let text = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: evenkeel\n    \
         static_configs:\n      - targets: ['{admin}']\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("prometheus");
    command.args(["--enable-feature=native-histograms", "--log.level=error"]);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.file("data").display()));
    command.arg(format!("--web.listen-address={prometheus}"));
    let Some(_prometheus) = Program::start_if_installed(&mut command) else {
        eprintln!("skipped: no prometheus");
        return;
    };
    let ask = |query: &str| {
        let query = query.replace('(', "%28").replace(')', "%29");
        http::try_get(prometheus, &format!("/api/v1/query?query={query}")).unwrap_or_default()
    };
    // Only a native histogram has a count of this kind.
    wait::block_until("Prometheus has counted the requests", || {
        ask("histogram_count(evenkeel_request_duration_seconds)").contains(",\"20\"]")
    });
    let median = ask("histogram_quantile(0.5,evenkeel_request_duration_seconds)");
    let value = median.rsplit(",\"").next().unwrap().split('"').next().unwrap();
    let value: f64 = value.parse().unwrap_or_else(|_| panic!("{median}"));
    assert!(value > 1e-6 && value < 1.0, "{median}");
    // Everything else is there, too.
    assert!(ask("evenkeel_requests_total").contains("\"20\""));
    assert!(ask("evenkeel_build_info").contains(env!("CARGO_PKG_VERSION")));
}

/// `name{a="b"}` in a text, as a name and its selector.
fn series(text: &str) -> Vec<(String, String)> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let starts = text.match_indices("evenkeel_").map(|(start, _)| start);
    // `upstream:evenkeel_errors:ratio_rate5m` is a recorded one.
    let starts = starts.filter(|start| {
        *start == 0 || !text[..*start].ends_with(|before: char| before == ':' || is_name(before))
    });
    starts
        .map(|start| {
            let rest = &text[start..];
            let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
            let selector = rest[end..].strip_prefix('{').and_then(|rest| rest.split('}').next());
            (rest[..end].to_owned(), selector.unwrap_or_default().to_owned())
        })
        .collect()
}

#[test]
fn every_metric_of_rules_and_dashboard_exists_with_its_labels() {
    let page = read("docs/metrics.md");
    let known: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let exposed = exposed();
    let dashboard = read("packaging/grafana/evenkeel.json").replace("\\\"", "\"");
    let document: serde_json::Value =
        serde_json::from_str(&read("packaging/grafana/evenkeel.json")).unwrap();
    let panels = document["panels"].as_array().unwrap();
    assert!(panels.iter().filter(|panel| panel["targets"].is_array()).count() >= 15);
    let rules = read("packaging/prometheus/evenkeel.rules.yml");
    let mut checked = 0;
    for (name, selector) in series(&rules).into_iter().chain(series(&dashboard)) {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let is_known = known.contains(&*name) || family.is_some_and(|name| known.contains(name));
        assert!(is_known, "docs/metrics.md has no {name}");
        // Labels with a value of ours; `instance` is Prometheus' own.
        for condition in selector.split("\",") {
            let Some((label, value)) = condition.split_once("=~\"").or(condition.split_once("=\""))
            else {
                continue;
            };
            let label = label.trim_end_matches('!');
            if value.starts_with('$') || label == "instance" || value.trim_matches('"').is_empty() {
                continue;
            }
            for value in value.trim_matches('"').split('|') {
                let sample = format!("{label}=\"{value}\"");
                let has = |line: &&str| line.starts_with(&*name) && line.contains(&sample);
                assert!(exposed.lines().any(|line| has(&line)), "no {name} with {sample}");
                checked += 1;
            }
        }
    }
    assert!(checked >= 8, "{checked} values of labels were compared");
}

/// The metrics of a process that has served a request.
fn exposed() -> String {
    let (folder, door, admin) = (Folder::new("exposed"), nobody(), nobody());
    let file = folder.file("run.toml");
    let text = configuration(door, "c3") + &format!("[admin]\naddress = '{admin}'\n");
    std::fs::write(&file, text).unwrap();
    let mut running = Running::start(&file);
    running.until("SIGHUP reloads");
    assert!(http::get(door, "/").starts_with("HTTP/1.1 200"));
    // Workers publish what they count every so often.
    loop {
        let metrics = http::get(admin, "/metrics");
        if metrics.contains("evenkeel_responses_total{") {
            return metrics;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The text of `evenkeel.toml` in a ConfigMap.
fn configuration_of(manifest: &str) -> String {
    let lines = manifest.lines().skip_while(|line| line.trim() != "evenkeel.toml: |").skip(1);
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| line.trim_start_matches("    ").to_owned() + "\n").collect()
}

/// The number after `key:`, which comes once.
fn number(text: &str, key: &str) -> u64 {
    let found: BTreeSet<&str> = text.split(key).skip(1).collect();
    assert!(!found.is_empty(), "no {key}");
    let digits = |rest: &str| -> String {
        let rest = rest.trim_start_matches([':', ' ', '=', '"', '{']);
        rest.chars().take_while(char::is_ascii_digit).collect()
    };
    let found: BTreeSet<String> = found.into_iter().map(digits).collect();
    assert_eq!(found.len(), 1, "{key}: {found:?}");
    found.into_iter().next().unwrap().parse().unwrap()
}

#[test]
fn manifests_of_kubernetes_have_valid_configurations_and_times_that_fit() {
    let folder = Folder::new("kubernetes");
    std::fs::write(folder.file("token"), "0123456789abcdef\n").unwrap();
    for name in ["gateway", "sidecar"] {
        let path = format!("packaging/kubernetes/{name}.yaml");
        let manifest = read(&path);
        let token = folder.file("token");
        let config = configuration_of(&manifest)
            .replace("/etc/evenkeel-admin/token", token.to_str().unwrap());
        let file = folder.file(&format!("{name}.toml"));
        std::fs::write(&file, &config).unwrap();
        let checked = evenkeel(&["check", file.to_str().unwrap()]);
        assert!(checked.status.success(), "{name}: {}", text(&checked.stderr));
        let (pre_stop, drain) = (number(&manifest, "sleep: { seconds"), number(&config, "drain"));
        let grace = number(&manifest, "terminationGracePeriodSeconds:");
        assert!(grace >= pre_stop + drain + 5, "{name}: {grace} s for {pre_stop} s and {drain} s");
        for word in [
            "readinessProbe:",
            "livenessProbe:",
            "resources:",
            "runAsNonRoot: true",
            "readOnlyRootFilesystem: true",
            "allowPrivilegeEscalation: false",
            "drop: [\"ALL\"]",
            "seccompProfile:",
        ] {
            assert!(manifest.contains(word), "{name} has no {word}");
        }
        let yaml = "import sys, yaml; print(len(list(yaml.safe_load_all(open(sys.argv[1])))))";
        let parsed = run(Command::new("python3").args(["-c", yaml]).arg(root().join(&path)));
        if let Some(parsed) = parsed {
            let errors = text(&parsed.stderr);
            match parsed.status.success() {
                true => assert!(text(&parsed.stdout).trim().parse::<u32>().unwrap() >= 3),
                false if errors.contains("No module named") => eprintln!("skipped: no yaml"),
                false => panic!("{name}: {errors}"),
            }
        }
    }
}
