//! Replicas that use HTTP/2 to its limits: the cases of gRPC's suite for clients ("negative HTTP/2
//! interop tests"), with Evenkeel between a client and such a server, which is here on bare frames.
//!
//! What comes through must be whole, or broken off: never a part that looks like the whole. gRPC's
//! own client runs where it is found:
//! `cargo test -p evenkeel-server --test http2_hostile -- --ignored --nocapture`.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::wait;
use h2::Reason;
use h2::client::SendRequest;
use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Says goodbye after each answer.
    Goaway,
    /// Resets, with NO_ERROR as all that follow, after the head of its answer,
    RstAfterHeader,
    /// after half of the answer,
    RstDuringData,
    /// after all of it, without trailers.
    RstAfterData,
    /// After the trailers, which may be: nobody need read a request to its end.
    RstAfterAll,
    /// Asks for a sign of life around each of its frames.
    Ping,
    /// Takes one stream at a time.
    MaxStreams,
}

impl Case {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Goaway, "goaway"),
        (Self::RstAfterHeader, "rst_after_header"),
        (Self::RstDuringData, "rst_during_data"),
        (Self::RstAfterData, "rst_after_data"),
        (Self::RstAfterAll, ""), // the suite has it not
        (Self::Ping, "ping"),
        (Self::MaxStreams, "max_streams"),
    ];

    const fn breaks_off(self) -> bool {
        matches!(self, Self::RstAfterHeader | Self::RstDuringData | Self::RstAfterData)
    }

    const fn resets(self) -> bool {
        self.breaks_off() || matches!(self, Self::RstAfterAll)
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
/// ACK has the same bit.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const BODY_BYTES: usize = 314_159;

/// The answer that the suite's clients expect: a `SimpleResponse` with a body of zeros.
fn message() -> Vec<u8> {
    let varint =
        |number: usize| [number as u8 | 0x80, (number >> 7) as u8 | 0x80, (number >> 14) as u8];
    let payload = [&[0x12][..], &varint(BODY_BYTES), &[0; BODY_BYTES]].concat();
    let response = [&[0x0a][..], &varint(payload.len()), &payload].concat();
    [&[0][..], &u32::try_from(response.len()).unwrap().to_be_bytes(), &response].concat()
}

/// A field of HPACK that no table keeps.
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// What the server has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// Sent and not answered.
    pings: AtomicI64,
    most_streams: AtomicUsize,
}

/// A server on a thread of its own.
fn hostile(case: Case) -> (SocketAddr, Arc<Seen>) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::<Seen>::default());
    let its = Arc::clone(&seen);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                its.connections.fetch_add(1, Relaxed);
                tokio::spawn(Speaker::new(stream, case, Arc::clone(&its)).serve());
            }
        });
    });
    (address, seen)
}

/// The server's side of a connection.
struct Speaker {
    stream: TcpStream,
    case: Case,
    seen: Arc<Seen>,
    message: Vec<u8>,
    window: i64,
    stream_window: i64,
    streams: BTreeMap<u32, Stream>,
    is_limit_known: bool,
    has_left: bool,
}

#[derive(Clone, Copy)]
struct Stream {
    window: i64,
    /// Of the message, once the request was read.
    sent: Option<usize>,
}

impl Speaker {
    fn new(stream: TcpStream, case: Case, seen: Arc<Seen>) -> Self {
        let (window, streams) = (65_535, BTreeMap::new());
        let (message, stream_window) = (message(), window);
        let (is_limit_known, has_left) = (false, false);
        Self {
            stream,
            case,
            seen,
            message,
            window,
            stream_window,
            streams,
            is_limit_known,
            has_left,
        }
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.stream.write_all(&[&head, payload].concat()).await
    }

    async fn ping(&mut self) -> io::Result<()> {
        if self.case == Case::Ping {
            self.seen.pings.fetch_add(1, Relaxed);
            self.write(PING, 0, 0, b"are you?").await?;
        }
        Ok(())
    }

    /// Until the peer leaves.
    async fn serve(mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        self.stream.read_exact(&mut [0; 24]).await?;
        let one_stream: &[u8] = &[0, 3, 0, 0, 0, 1];
        let settings = if self.case == Case::MaxStreams { one_stream } else { &[] };
        self.write(SETTINGS, 0, 0, settings).await?;
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await?;
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.stream.read_exact(&mut payload).await?;
            let stream = u32::from_be_bytes(stream);
            // Streams that cross a goodbye belong on another connection.
            if !self.has_left || kind != HEADERS {
                self.hear((kind, flags, stream), &payload).await?;
            }
            self.go_on().await?;
        }
    }

    async fn hear(
        &mut self,
        (kind, flags, number): (u8, u8, u32),
        payload: &[u8],
    ) -> io::Result<()> {
        let increment = payload.first_chunk().map_or(0, |it| i64::from(u32::from_be_bytes(*it)));
        match kind {
            SETTINGS if flags & END_STREAM != 0 => self.is_limit_known = true,
            SETTINGS => {
                for setting in payload.chunks_exact(6).filter(|setting| setting[1] == 4) {
                    let window = i64::from(u32::from_be_bytes(setting[2..].try_into().unwrap()));
                    let by = window - std::mem::replace(&mut self.stream_window, window);
                    self.streams.values_mut().for_each(|stream| stream.window += by);
                }
                self.write(SETTINGS, END_STREAM, 0, &[]).await?;
            }
            PING if flags & END_STREAM != 0 => {
                self.seen.pings.fetch_sub(1, Relaxed);
            }
            PING => self.write(PING, END_STREAM, 0, payload).await?,
            WINDOW_UPDATE if number == 0 => self.window += increment,
            WINDOW_UPDATE => {
                self.streams.entry(number).and_modify(|stream| stream.window += increment);
            }
            HEADERS => {
                let stream = Stream { window: self.stream_window, sent: None };
                self.streams.insert(number, stream);
                if self.is_limit_known {
                    self.seen.most_streams.fetch_max(self.streams.len(), Relaxed);
                }
            }
            DATA if !payload.is_empty() => {
                let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
                self.write(WINDOW_UPDATE, 0, 0, &length).await?;
                self.write(WINDOW_UPDATE, 0, number, &length).await?;
            }
            RST_STREAM => {
                self.streams.remove(&number);
            }
            _ => {}
        }
        let is_asked = matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0;
        if is_asked && self.streams.contains_key(&number) {
            self.begin(number).await?;
        }
        Ok(())
    }

    async fn begin(&mut self, number: u32) -> io::Result<()> {
        let head = [vec![0x88], field("content-type", "application/grpc")].concat();
        self.ping().await?;
        self.write(HEADERS, END_HEADERS, number, &head).await?;
        self.ping().await?;
        if self.case == Case::RstAfterHeader {
            return self.reset(number).await;
        }
        self.streams.get_mut(&number).unwrap().sent = Some(0);
        Ok(())
    }

    async fn reset(&mut self, number: u32) -> io::Result<()> {
        self.streams.remove(&number);
        self.write(RST_STREAM, 0, number, &[0; 4]).await
    }

    /// Sends what may be sent.
    async fn go_on(&mut self) -> io::Result<()> {
        let halves = if self.case == Case::RstDuringData { 2 } else { 1 };
        let all = self.message.len() / halves;
        for number in self.streams.keys().copied().collect::<Vec<_>>() {
            let Some(Stream { window, sent: Some(mut sent) }) = self.streams.get(&number).copied()
            else {
                continue;
            };
            let room = usize::try_from(window.min(self.window)).unwrap_or(0);
            let until = all.min(sent + room);
            let by = (until - sent) as i64;
            while sent < until {
                let piece = self.message[sent..until.min(sent + 16_384)].to_vec();
                sent += piece.len();
                self.ping().await?;
                self.write(DATA, 0, number, &piece).await?;
                self.ping().await?;
            }
            self.window -= by;
            let stream = self.streams.get_mut(&number).unwrap();
            (stream.window, stream.sent) = (window - by, Some(sent));
            if sent == all {
                self.end(number).await?;
            }
        }
        Ok(())
    }

    async fn end(&mut self, number: u32) -> io::Result<()> {
        if self.case.breaks_off() {
            return self.reset(number).await;
        }
        let trailers = field("grpc-status", "0");
        self.write(HEADERS, END_HEADERS | END_STREAM, number, &trailers).await?;
        self.streams.remove(&number);
        if self.case == Case::RstAfterAll {
            self.reset(number).await?;
        }
        if self.case == Case::Goaway && !std::mem::replace(&mut self.has_left, true) {
            // What has begun is answered, and nothing else.
            self.streams.retain(|_, stream| stream.sent.is_some());
            let last = self.streams.keys().last().map_or(number, |last| number.max(*last));
            let goodbye = [&last.to_be_bytes()[..], &[0; 4]].concat();
            self.write(GOAWAY, 0, 0, &goodbye).await?;
        }
        Ok(())
    }
}

fn proxy(folder: &Folder, replica: SocketAddr) -> Process {
    let text = format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'shop'\n\
         [upstream.shop]\nreplicas = ['{replica}']\nhttp2 = true\n"
    );
    let file = folder.path().join("run.toml");
    std::fs::write(&file, text).unwrap();
    let config = Config::load(&file).unwrap_or_else(|problems| panic!("{problems}"));
    Process::start_from(&file, config).unwrap()
}

/// Runs the clients of a test.
fn run<T>(clients: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), clients).await };
    runtime.block_on(limited).expect("no client hangs")
}

/// How an answer ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// With the `grpc-status` of its trailers.
    Trailers(Option<String>),
    Reset(Option<Reason>),
    /// Refused in its head, as gRPC says it.
    Refused(String),
}

/// A unary call: the bytes of its answer, and how that ended.
async fn call(mut sender: SendRequest<Bytes>) -> (Vec<u8>, End) {
    let request = Request::post("http://a.example/grpc.testing.TestService/UnaryCall")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
    let (answer, mut upload) = sender.send_request(request.body(()).unwrap(), false).unwrap();
    upload.send_data(Bytes::from(vec![0; 271_828]), true).unwrap();
    let mut bytes = Vec::new();
    let response = match answer.await {
        Ok(response) => response,
        Err(error) => return (bytes, End::Reset(error.reason())),
    };
    assert_eq!(response.status(), 200);
    if let Some(words) = response.headers().get("grpc-message") {
        return (bytes, End::Refused(words.to_str().unwrap().to_owned()));
    }
    let mut body = response.into_body();
    while let Some(piece) = body.data().await {
        match piece {
            Ok(piece) => {
                bytes.extend_from_slice(&piece);
                let _ = body.flow_control().release_capacity(piece.len());
            }
            Err(error) => return (bytes, End::Reset(error.reason())),
        }
    }
    match body.trailers().await {
        Ok(trailers) => {
            let status = trailers.and_then(|all| all.get("grpc-status").cloned());
            (bytes, End::Trailers(status.map(|status| status.to_str().unwrap().to_owned())))
        }
        Err(error) => (bytes, End::Reset(error.reason())),
    }
}

/// How many calls are made at once, again and again.
const AT_ONCE: usize = 15;

#[test]
fn a_call_is_whole_or_broken_off_whatever_a_replica_does_with_its_frames() {
    let whole = message();
    for (case, _) in Case::ALL {
        let folder = Folder::new("http2-hostile");
        let (replica, seen) = hostile(case);
        let proxy = proxy(&folder, replica);
        let listener = proxy.listens()[0];
        run(async {
            let stream = TcpStream::connect(listener).await.unwrap();
            let (sender, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            // Of many at once some would be refused where one is served for each connection.
            let many = if case == Case::Goaway { 1 } else { AT_ONCE };
            for at_once in [1, 1, many] {
                let calls = (0..at_once).map(|_| tokio::spawn(call(sender.clone())));
                for call in calls.collect::<Vec<_>>() {
                    let (bytes, end) = call.await.unwrap();
                    assert!(whole.starts_with(&bytes), "{case:?}: {} bytes", bytes.len());
                    if case.breaks_off() {
                        assert_eq!(end, End::Reset(Some(Reason::INTERNAL_ERROR)), "{case:?}");
                    } else {
                        assert_eq!(end, End::Trailers(Some("0".to_owned())), "{case:?}");
                        assert_eq!(bytes.len(), whole.len(), "{case:?}");
                    }
                }
            }
            wait::until("pings are answered", || seen.pings.load(Relaxed) == 0).await;
        });
        if case == Case::Goaway {
            assert!(seen.connections.load(Relaxed) == 3, "a connection after each goodbye");
        }
        let most = seen.most_streams.load(Relaxed);
        assert!(case != Case::MaxStreams || most == 1, "{most} streams at once");
        proxy.stop().unwrap();
    }
}

#[test]
fn a_client_of_http1_sees_that_a_stream_was_broken_off() {
    for (case, _) in Case::ALL.into_iter().filter(|(case, _)| case.resets()) {
        let folder = Folder::new("http1-hostile");
        let (replica, _) = hostile(case);
        let proxy = proxy(&folder, replica);
        let listener = proxy.listens()[0];
        let bytes = run(async {
            let mut stream = TcpStream::connect(listener).await.unwrap();
            let head = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.map(|_| bytes)
        });
        let bytes = bytes.unwrap();
        let is_whole = bytes.ends_with(b"\r\n0\r\n\r\n");
        assert_eq!(is_whole, !case.breaks_off(), "{case:?}: {} bytes", bytes.len());
        proxy.stop().unwrap();
    }
}

#[test]
#[ignore = "needs gRPC's client for hostile servers"]
fn grpc_is_content_with_what_comes_through() {
    let how = "go install google.golang.org/grpc/interop/http2@v1.85.0, then this";
    let Some(client) = std::env::var_os("GRPC_INTEROP_HTTP2").map(PathBuf::from) else {
        println!("SKIPPED: no GRPC_INTEROP_HTTP2 ({how})");
        return;
    };
    for (case, name) in Case::ALL.into_iter().filter(|(_, name)| !name.is_empty()) {
        let folder = Folder::new("grpc-hostile");
        let (replica, _) = hostile(case);
        let proxy = proxy(&folder, replica);
        let [directly, through] = [replica, proxy.listens()[0]].map(|server| {
            let mut command = Command::new(&client);
            command.args(["-server_host", "127.0.0.1", "-server_port", &server.port().to_string()]);
            let output = command.args(["-test_case", name]).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            // After when, and what for.
            let errors = errors.split_once("UnaryCall()").map(|(_, rest)| rest.to_owned());
            (output.status.success(), errors)
        });
        println!("gRPC {name}: {directly:?} directly, {through:?} through");
        // Some versions expect another code of rst_during_data than they make of it.
        assert_eq!(through, directly, "{name}");
        assert!(through.0 || case == Case::RstDuringData, "{name}");
        proxy.stop().unwrap();
    }
}
