//! A running proxy before real servers is asked why its requests went as they did.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use common::{Running, evenkeel, replica, text};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::wait;

/// An address that refuses connections.
fn nobody() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// The head of the answer to a request with these lines.
fn head(address: SocketAddr, lines: &str) -> String {
    head_of(address, "GET", lines)
}

fn head_of(address: SocketAddr, method: &str, lines: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "{method} /cart?secret=1 HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n{lines}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

struct Shop {
    running: Running,
    address: SocketAddr,
    admin: String,
    folder: Folder,
}

fn shop(name: &str, replicas: &[SocketAddr]) -> Shop {
    shop_with(name, replicas, "")
}

/// The same with more tables.
fn shop_with(name: &str, replicas: &[SocketAddr], more: &str) -> Shop {
    let folder = Folder::new(name);
    let file = folder.path().join("evenkeel.toml");
    let replicas: Vec<String> = replicas.iter().map(|it| format!("{:?}", it.to_string())).collect();
    let words = format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\nupstream = \"shop\"\n\
         [upstream.shop]\nreplicas = [{}]\n[admin]\naddress = \"127.0.0.1:0\"\n{more}",
        replicas.join(", ")
    );
    std::fs::write(&file, words).unwrap();
    let mut running = Running::start(&file);
    let said = running.until("dashboard on ");
    let after = |words: &str| {
        let rest = said.split_once(words).unwrap().1;
        rest.split(['/', '\n', '"']).next().unwrap().to_owned()
    };
    let address = after("listening on http://").parse().unwrap();
    let admin = format!("http://{}", after("dashboard on http://"));
    Shop { running, address, admin, folder }
}

#[test]
fn a_request_is_explained_by_its_id() {
    let server = replica();
    let shop = shop("explain-id", &[server]);
    let answer = head(shop.address, "x-request-id: order-7/1\r\n");
    assert!(answer.contains("x-request-id: order-7/1\r\n"), "{answer}");
    let output = evenkeel(&["explain", "--admin", &shop.admin, "order-7/1"]);
    let words = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let sent = format!("  sent to {server}, the only replica (cost 1), {server} answered at ");
    assert!(words.contains(&sent), "{words}");
    assert!(words.contains("200: shop GET /cart (id order-7/1)"), "{words}");
    assert!(!words.contains("secret"), "a query is not kept: {words}");
    let other = evenkeel(&["explain", "--admin", &shop.admin, "order-8"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains("no request order-8 is kept"));
    drop(shop.running);
}

#[test]
fn a_log_in_json_has_an_object_in_each_line_whatever_happens_to_the_process() {
    let server = replica();
    let mut shop = shop_with("json-log", &[server], "[log]\nformat = \"json\"\n");
    shop.running.signal("HUP");
    let mut said = shop.running.until("reloaded: no changes");
    shop.running.signal("TERM");
    said += &shop.running.until("stopping: completing");
    let lines = said.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    for line in lines {
        assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    }
    let folder = Folder::new("json-log-fails");
    let file = folder.path().join("evenkeel.toml");
    let taken = shop.folder.path().join("evenkeel.toml");
    let words = std::fs::read_to_string(taken).unwrap();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(&file, words.replacen("127.0.0.1:0", &address, 1)).unwrap();
    let output = evenkeel(&["run", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    for line in text(&output.stderr).lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn a_proxy_header_that_a_listener_does_not_read_is_named_in_the_log() {
    let mut shop = shop("proxy-header", &[replica()]);
    let mut stream = TcpStream::connect(shop.address).unwrap();
    stream.write_all(b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(!answer.contains("200"), "it is no request: {answer}");
    let said = shop.running.until("PROXY protocol");
    assert!(said.contains("[[listen]] proxy_protocol"), "{said}");
}

#[test]
fn failed_requests_are_listed_with_what_failed() {
    let gone = nobody();
    let shop = shop("explain-failed", &[gone]);
    let answer = head(shop.address, "");
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let id = answer.split_once("x-request-id: ").unwrap().1.split_once('\r').unwrap().0;
    let output = evenkeel(&["explain", "--admin", &shop.admin, "--failed"]);
    let words = text(&output.stdout);
    assert!(words.contains(&format!("502: shop GET /cart (id {id}, failed)")), "{words}");
    assert!(words.contains(&format!(": {gone} could not be reached")), "{words}");
    let json = evenkeel(&["explain", "--admin", &shop.admin, "--failed", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["found"], 1);
    let request = &document["requests"][0];
    assert_eq!(request["end"], "unsent");
    assert_eq!(request["attempts"][0]["end"], "unsent");
    assert_eq!(request["candidates"][0]["replica"], gone.to_string());
    let slow = evenkeel(&["explain", "--admin", &shop.admin, "--slow"]);
    assert_eq!(slow.status.code(), Some(1), "nobody knows yet what is slow");
}

/// The lines of a file, once there are so many.
fn lines(file: &Path, count: usize) -> Vec<serde_json::Value> {
    wait::block_until("the access log is written", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().count() >= count && text.ends_with('\n')
    });
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_request_has_a_line_and_a_file_that_was_moved_away_is_left() {
    let server = replica();
    let mut shop = shop_with(
        "explain-access",
        &[server],
        "[log]\naccess = { path = \"access.log\", sample = 1 }\n",
    );
    let (log, moved) = (shop.folder.file("access.log"), shop.folder.file("access.log.1"));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    head(shop.address, &format!("traceparent: 00-{trace}-00f067aa0ba902b7-00\r\n"));
    head_of(shop.address, "BREW", "x-request-id: tea\r\n");
    let lines_before = lines(&log, 2);
    let [first, other] = lines_before.as_slice() else { panic!("{lines_before:?}") };
    for (field, expected) in [
        ("http.request.method", "GET"),
        ("url.path", "/cart"),
        ("http.route", "shop"),
        ("server.address", "shop"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("end", "complete"),
        ("trace_id", trace),
        ("replica", &server.to_string()),
    ] {
        assert_eq!(first[field], expected, "{field} in {first}");
    }
    assert_eq!((&first["http.response.status_code"], &first["attempts"]), (&200.into(), &1.into()));
    assert!(first.get("error.type").is_none(), "{first}");
    assert_eq!(other["http.request.method"], "_OTHER");
    assert_eq!(other["request_id"], "tea");
    std::fs::rename(&log, &moved).unwrap();
    shop.running.signal("HUP");
    shop.running.until("reloaded");
    head(shop.address, "x-request-id: later\r\n");
    assert_eq!(lines(&log, 1)[0]["request_id"], "later");
    assert_eq!(lines(&moved, 2).len(), 2);
    let metrics = evenkeel_testkit::http::get(
        shop.admin.trim_start_matches("http://").parse().unwrap(),
        "/metrics",
    );
    assert!(metrics.contains("evenkeel_access_log_lines_total 3\n"), "{metrics}");
}

#[test]
fn what_cannot_be_asked_is_told() {
    for (admin, expected) in [
        ("ftp://127.0.0.1:1", "expected http://HOST:PORT or https://HOST:PORT"),
        ("127.0.0.1:9900", "expected http://HOST:PORT"),
    ] {
        let output = evenkeel(&["explain", "--admin", admin]);
        let words = text(&output.stderr);
        assert!(output.status.code() == Some(2) && words.contains(expected), "{words}");
    }
    let refused = evenkeel(&["explain", "--admin", &format!("http://{}", nobody())]);
    assert!(text(&refused.stderr).contains("--admin http://127.0.0.1:"));
    let nothing = evenkeel(&["explain"]);
    assert_eq!(nothing.status.code(), Some(2));
}
