//! Members of clusters that are not real: they keep to their protocol, or do not.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::{Value, json};

/// Serves each connection on a thread of its own, as long as the test runs.
pub(crate) fn serve(answer: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

/// What is wrong with a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bad {
    /// Nobody listens.
    Gone,
    /// It closes the connection.
    Closes,
    /// It never answers.
    Silent,
    /// It sends what is no word of its protocol.
    Garbage,
    /// It wants TLS: NATS says so, others send an alert.
    WantsTls,
    /// It answers well, and is something else or of another cluster.
    Stranger,
}

pub(crate) const BAD: [Bad; 6] =
    [Bad::Gone, Bad::Closes, Bad::Silent, Bad::Garbage, Bad::WantsTls, Bad::Stranger];

/// Some bytes first, and then whatever is asked is read and not answered.
fn says(bytes: &'static [u8]) -> SocketAddr {
    serve(move |mut stream| {
        let _ = stream.write_all(bytes);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    })
}

const TLS_ALERT: &[u8] = b"\x15\x03\x03\x00\x02\x02\x0a";

/// A member that is bad; `tls` is what it says when it wants TLS.
fn bad(how: Bad, tls: &'static [u8], stranger: impl FnOnce() -> SocketAddr) -> SocketAddr {
    match how {
        Bad::Gone => evenkeel_testkit::story::nobody(),
        Bad::Closes => serve(drop),
        Bad::Silent => says(b""),
        Bad::Garbage => says(b"\xff\x00\xff\xff\xff\xffgarbage\r\n\r\n"),
        Bad::WantsTls => says(tls),
        Bad::Stranger => stranger(),
    }
}

/// Where something answers every request of HTTP with this.
pub(crate) fn http(answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> SocketAddr {
    serve(move |stream| {
        let mut reader = BufReader::new(&stream);
        let (mut head, mut length) = (String::new(), 0);
        if !reader.read_line(&mut head).is_ok_and(|read| read > 0) {
            return;
        }
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some(bytes) = line.to_lowercase().strip_prefix("content-length:") {
                length = bytes.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let path = head.split(' ').nth(1).unwrap_or_default();
        let said = answer(path, &serde_json::from_slice(&body).unwrap_or_default()).to_string();
        let code = if said.contains("\"error\"") { "400 Bad Request" } else { "200 OK" };
        let (close, length) = ("connection: close", said.len());
        let _ =
            write!(&stream, "HTTP/1.1 {code}\r\n{close}\r\ncontent-length: {length}\r\n\r\n{said}");
    })
}

pub(crate) fn bad_http(how: Bad) -> SocketAddr {
    bad(how, TLS_ALERT, || http(|_, _| json!({"hello": "world"})))
}

/// A Prometheus that has counted a million writes of clients at one site in every interval.
pub(crate) fn prometheus(client: &'static str) -> SocketAddr {
    http(move |path, _| {
        let end = path.split("&end=").nth(1).and_then(|end| end.split('&').next());
        let end: f64 = end.unwrap().parse().unwrap();
        let metric = json!({"datacenter": client, "operation": "single-group"});
        let series = json!({"metric": metric, "values": [[end, "1e6"]]});
        json!({"status": "success", "data": {"resultType": "matrix", "result": [series]}})
    })
}

/// A member of NATS that answers requests of these subjects.
pub(crate) fn nats(answer: impl Fn(&str) -> Value + Send + Sync + 'static) -> SocketAddr {
    serve(move |mut stream| drop(converse(&mut stream, &answer)))
}

pub(crate) fn bad_nats(how: Bad) -> SocketAddr {
    let stranger = || nats(|_| json!({"error": {"code": 404, "description": "no such stream"}}));
    bad(how, b"INFO {\"tls_required\":true}\r\n", stranger)
}

fn converse(stream: &mut TcpStream, answer: &impl Fn(&str) -> Value) -> std::io::Result<()> {
    stream.write_all(b"INFO {\"version\":\"2.11.0\",\"server_id\":\"N\",\"client_id\":1}\r\n")?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["PING"] => stream.write_all(b"PONG\r\n")?,
            ["PUB", subject, inbox, bytes] => {
                let mut payload = vec![0; bytes.parse::<usize>().unwrap() + 2];
                reader.read_exact(&mut payload)?;
                let said = answer(subject).to_string();
                write!(stream, "MSG {inbox} 1 {}\r\n{said}\r\n", said.len())?;
            }
            _ => {}
        }
        line.clear();
    }
    Ok(())
}
