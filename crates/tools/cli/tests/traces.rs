//! A running proxy exports its traces: its spans and those of a replica fit together.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use common::Running;
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::otlp::{Collector, attribute};
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::{http, wait};

/// Two replicas: the one that is asked first cannot serve. Each tells of its requests'
/// `traceparent`.
fn replicas() -> ([SocketAddr; 2], Receiver<String>) {
    let ((told, parents), asked) = (channel(), Arc::<AtomicUsize>::default());
    let serve = |_| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (told, asked) = (told.clone(), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = [0; 4_096];
                let length = stream.read(&mut bytes).unwrap();
                let head = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let parent = head.lines().find_map(|line| line.strip_prefix("traceparent: "));
                let _ = told.send(parent.unwrap_or_default().to_owned());
                let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
                let status = if is_first { "503 Service Unavailable" } else { "200 OK" };
                let end = "content-length: 0\r\nconnection: close\r\n\r\n";
                let _ = write!(stream, "HTTP/1.1 {status}\r\n{end}");
            }
        });
        address
    };
    ([(), ()].map(serve), parents)
}

fn start(folder: &Folder, name: &str, text: &str) -> (Running, SocketAddr) {
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    let mut running = Running::start(&file);
    let said = running.until("listening on ");
    let address = said.rsplit("://").next().unwrap().split([' ', '/', '\n', ',']).next().unwrap();
    (running, address.parse().unwrap())
}

fn ask(address: SocketAddr, lines: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head =
        format!("GET /cart?secret=1 HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n{lines}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn shop(replicas: &[SocketAddr], traces: &str) -> String {
    let replicas: Vec<String> = replicas.iter().map(|it| format!("'{it}'")).collect();
    let replicas = replicas.join(", ");
    format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'shop'\n\
         [upstream.shop]\nreplicas = [{replicas}]\n[traces]\n{traces}\n"
    )
}

#[test]
fn the_spans_of_a_trace_join_those_of_client_and_replica() {
    let (folder, collector) = (Folder::new("traces"), Collector::start());
    let (servers, parents) = replicas();
    let text = shop(&servers, &format!("otlp = 'http://{}'\nsample = 0.0", collector.address()));
    let (running, address) = start(&folder, "evenkeel.toml", &text);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let answer = ask(address, &format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let spans = collector.until(3);
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(spans.iter().all(|span| hex(&span.trace_id) == trace), "{spans:#?}");
    assert_eq!(hex(&spans[0].parent_span_id), "00f067aa0ba902b7");
    for span in &spans[1..] {
        let parent = format!("00-{trace}-{}-01", hex(&span.span_id));
        assert_eq!(parents.recv().unwrap(), parent, "the replica's parent is the attempt");
        assert_eq!(span.parent_span_id, spans[0].span_id);
    }
    let whys: Vec<_> = spans.iter().map(|it| attribute(it, "evenkeel.attempt.why")).collect();
    assert_eq!(whys, [None, Some("first".to_owned()), Some("retry".to_owned())]);
    assert_eq!(attribute(&spans[1], "error.type").as_deref(), Some("unavailable"));
    assert_eq!(attribute(&spans[2], "http.request.resend_count").as_deref(), Some("1"));
    assert!(!format!("{spans:?}").contains("secret"), "a query is not exported");
    // One that nobody samples is not exported while all goes well: the next spans are of the one
    // after it.
    ask(address, &format!("traceparent: 00-{trace}-00f067aa0ba902b7-00\r\n"));
    ask(address, &format!("traceparent: 00-{trace}-00f067aa0ba902b8-01\r\n"));
    let spans = collector.until(5);
    assert_eq!(hex(&spans[3].parent_span_id), "00f067aa0ba902b8");
    drop(running);
}

#[test]
fn what_an_agent_does_is_a_span_between_those_of_proxy_and_application() {
    let (folder, collector) = (Folder::new("traces-agent"), Collector::start());
    let ([first, app], parents) = replicas();
    http::try_get(first, "/").unwrap(); // the first answer of all is an error
    parents.recv().unwrap();
    let agent = nobody();
    let otlp = format!("otlp = 'http://{}'\nsample = 1.0", collector.address());
    let text = shop(&[agent], &otlp)
        + &format!("[[agent]]\nlisten = '{agent}'\napp = '{app}'\nconcurrency = 1\n");
    let (running, address) = start(&folder, "evenkeel.toml", &text);
    assert!(ask(address, "").starts_with("HTTP/1.1 200"));
    let mut spans = collector.until(4);
    spans.sort_by_key(|span| (span.start_time_unix_nano, span.kind));
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["GET shop", "GET shop first", "GET agent", "GET agent first"]);
    assert!(spans[0].parent_span_id.is_empty());
    for (child, parent) in spans[1..].iter().zip(&spans) {
        assert_eq!(child.parent_span_id, parent.span_id, "{spans:#?}");
        assert_eq!(child.trace_id, parent.trace_id);
    }
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parent = format!("00-{}-{}-01", hex(&spans[3].trace_id), hex(&spans[3].span_id));
    assert_eq!(parents.recv().unwrap(), parent, "the application's parent is the agent's attempt");
    let address = app.to_string();
    let peer = [attribute(&spans[3], "server.address"), attribute(&spans[3], "server.port")];
    assert_eq!(peer.map(Option::unwrap).join(":"), address);
    assert!(attribute(&spans[2], "evenkeel.wait_ms").is_some());
    assert_eq!(attribute(&spans[2], "http.response.status_code").as_deref(), Some("200"));
    drop(running);
}

#[test]
fn a_failed_request_is_exported_whoever_began_its_trace() {
    let (folder, collector) = (Folder::new("traces-failed"), Collector::start());
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let text = shop(&[gone], &format!("otlp = 'http://{}'\nsample = 0.0", collector.address()));
    let (running, address) = start(&folder, "evenkeel.toml", &text);
    assert!(ask(address, "").starts_with("HTTP/1.1 502"));
    let spans = collector.until(1);
    assert_eq!(attribute(&spans[0], "error.type").as_deref(), Some("unsent"));
    assert_eq!(spans[0].flags & 1, 0, "it says that the trace is not sampled");
    drop(running);
}

#[test]
fn the_collector_is_spoken_to_in_tls() {
    let (folder, collector) = (Folder::new("traces-tls"), Collector::start());
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["localhost"]);
    for (name, text) in [("ca.pem", authority.pem()), ("node.pem", certificate), ("node.key", key)]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let front = format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'collector'\n\
         tls = {{ certificate = 'node.pem', key = 'node.key' }}\n\
         [upstream.collector]\nreplicas = ['{}']\n",
        collector.address()
    );
    let (front, secure) = start(&folder, "front.toml", &front);
    let (servers, _parents) = replicas();
    let otlp = format!("otlp = 'https://localhost:{}'\nsample = 1.0", secure.port());
    let text = shop(&servers, &format!("{otlp}\ntls = {{ ca = 'ca.pem' }}"));
    let (running, address) = start(&folder, "evenkeel.toml", &text);
    ask(address, "");
    assert_eq!(collector.until(3).len(), 3);
    drop((running, front));
}

/// Where a collector of OpenTelemetry is that has the receiver `otlp` and the exporter `debug`.
#[test]
#[ignore = "needs a collector of OpenTelemetry: OTELCOL=FILE"]
fn a_real_collector_reads_the_spans() {
    let Some(program) = std::env::var_os("OTELCOL") else {
        eprintln!("skipped: OTELCOL names no collector of OpenTelemetry");
        return;
    };
    let folder = Folder::new("traces-real");
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let (collector, said) = (free(), folder.path().join("said"));
    let file = folder.path().join("collector.yaml");
    let text = format!(
        "receivers:\n  otlp:\n    protocols:\n      http:\n        endpoint: {collector}\n\
         exporters:\n  debug:\n    verbosity: detailed\n\
         service:\n  telemetry:\n    metrics:\n      level: none\n  pipelines:\n    traces:\n      \
         receivers: [otlp]\n      exporters: [debug]\n"
    );
    std::fs::write(&file, text).unwrap();
    let log = std::fs::File::create(&said).unwrap();
    let mut child = Command::new(program)
        .arg(format!("--config=file:{}", file.display()))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let (servers, _parents) = replicas();
    let text = shop(&servers, &format!("otlp = 'http://{collector}'\nsample = 1.0"));
    let (running, address) = start(&folder, "evenkeel.toml", &text);
    wait::block_until("the collector listens", || http::try_get(collector, "/").is_ok());
    ask(address, "");
    let names = ["GET shop first", "GET shop retry", "evenkeel.explained: Str(sent to"];
    let read = || std::fs::read_to_string(&said).unwrap_or_default();
    wait::block_until("the collector tells of the spans", || {
        names.iter().all(|name| read().contains(name))
    });
    let _ = child.kill();
    let _ = child.wait();
    drop(running);
}
