//! A collector of OTLP over HTTP that keeps what it is sent, or answers as it is told.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::wait;

/// A collector on a port of its own. Its thread ends with the test's process.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    messages: Vec<ExportTraceServiceRequest>,
    heads: Vec<String>,
    answers: VecDeque<String>,
}

/// A whole answer with this status line and more lines of its head, and this body.
#[must_use]
pub fn answer(status: &str, lines: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len())
}

impl Default for Collector {
    fn default() -> Self {
        Self::start()
    }
}

impl Collector {
    /// One that takes everything.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start() -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// The same at this address.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let kept = Arc::<Mutex<Kept>>::default();
        let its = Arc::clone(&kept);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let its = Arc::clone(&its);
                std::thread::spawn(move || serve(&stream, &its));
            }
        });
        Self { address, kept }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers the next request with this, whatever it is, and keeps nothing of it. Empty: with
    /// nothing, ever.
    pub fn answer_next(&self, bytes: impl Into<String>) {
        self.lock().answers.push_back(bytes.into());
    }

    /// Heads of the requests that came, those without success included.
    #[must_use]
    pub fn heads(&self) -> Vec<String> {
        self.lock().heads.clone()
    }

    /// The messages that it took.
    #[must_use]
    pub fn messages(&self) -> Vec<ExportTraceServiceRequest> {
        self.lock().messages.clone()
    }

    /// All spans that it took, in the order in which they came.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        let scopes = self.messages().into_iter().flat_map(|it| it.resource_spans);
        scopes.flat_map(|it| it.scope_spans).flat_map(|it| it.spans).collect()
    }

    /// Waits until it has so many spans.
    ///
    /// # Panics
    /// When it does not get them.
    #[track_caller]
    #[must_use]
    pub fn until(&self, spans: usize) -> Vec<Span> {
        wait::block_until("the collector has the spans", || self.spans().len() >= spans);
        self.spans()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An attribute of a span as text; `None` where it has none of this name.
#[must_use]
pub fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|it| it.key == name)?;
    text(found.value.as_ref()?.value.as_ref()?)
}

fn text(value: &Value) -> Option<String> {
    Some(match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::BoolValue(is) => is.to_string(),
        Value::ArrayValue(list) => {
            let values = list.values.iter().filter_map(|it| text(it.value.as_ref()?));
            values.collect::<Vec<String>>().join(", ")
        }
        _ => return None,
    })
}

/// Serves a connection until one side ends it.
fn serve(stream: &TcpStream, kept: &Mutex<Kept>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.heads.push(head);
        let answer = kept.answers.pop_front().unwrap_or_else(|| {
            let message = ExportTraceServiceRequest::decode(&*body);
            kept.messages.push(message.expect("a message of OTLP"));
            answer("200 OK", "Content-Type: application/x-protobuf\r\n", "")
        });
        drop(kept);
        let mut stream = stream;
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
