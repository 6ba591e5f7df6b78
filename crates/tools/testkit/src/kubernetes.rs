//! An API server of Kubernetes as far as EndpointSlices go: lists, watches with bookmarks, versions
//! that are gone; and one that stumbles. On threads of its own: a test's may be held up.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use evenkeel_runtime::tls::ServerTls;
use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::wait::PATIENCE;

/// Between two bookmarks of a watch on which nothing changes.
const BOOKMARK_EVERY: Duration = Duration::from_millis(100);

/// The namespace of everything.
pub const NAMESPACE: &str = "shop-space";

/// How it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As it should.
    #[default]
    Honest,
    /// It reads requests and never answers.
    Hung,
    /// Its watches have a head, say nothing and do not end.
    Mute,
    /// Its watches break in the middle of their next line.
    Cut,
    /// It says what is no JSON.
    Garbage,
    /// The account may not read this: 403.
    Forbidden,
    /// Every version is gone as soon as it is told: 410, as a status or as an event.
    Expired,
    /// It closes each connection.
    Closed,
}

/// How often it was asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// For a list.
    pub lists: u32,
    /// For a watch.
    pub watches: u32,
    /// With no token or a wrong one.
    pub strangers: u32,
}

#[derive(Default)]
struct State {
    version: u64,
    /// Nothing is known of what happened up to this one.
    oldest: u64,
    slices: BTreeMap<String, Value>,
    events: Vec<(u64, &'static str, Value)>,
    manner: Manner,
    token: Option<String>,
    asked: Asked,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// It runs until the end of the test's process.
#[derive(Clone)]
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApiServer at {}", self.address)
    }
}

impl ApiServer {
    /// Has no slices; over TLS where that is given.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn start(tls: Option<ServerTls>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let server = Self { address, shared: Arc::default() };
        let serving = server.clone();
        std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let (server, tls) = (serving.clone(), tls.clone());
                // Whoever leaves ends its thread.
                std::thread::spawn(move || drop(server.serve(socket, tls.as_ref())));
            }
        });
        server
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How it answers from now on, open watches too.
    pub fn set(&self, manner: Manner) {
        let mut state = self.state();
        state.manner = manner;
        if manner == Manner::Expired {
            state.version += 1; // of some other object
            state.oldest = state.version;
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Only this token is known from now on.
    pub fn require(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// Creates or replaces a slice of a service: its `addressType`, `ports` and `endpoints`.
    pub fn put(&self, name: &str, service: &str, contents: Value) {
        let mut state = self.state();
        state.version += 1;
        let mut slice = contents;
        slice["apiVersion"] = "discovery.k8s.io/v1".into();
        slice["kind"] = "EndpointSlice".into();
        slice["metadata"] = json!({
            "name": name, "namespace": NAMESPACE, "resourceVersion": state.version.to_string(),
            "labels": {"kubernetes.io/service-name": service}, "managedFields": [],
        });
        let before = state.slices.insert(name.to_owned(), slice.clone());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        let version = state.version;
        state.events.push((version, kind, slice));
        self.shared.changed.notify_all();
    }

    /// Deletes a slice.
    pub fn remove(&self, name: &str) {
        let mut state = self.state();
        let Some(mut slice) = state.slices.remove(name) else { return };
        state.version += 1;
        let version = state.version;
        slice["metadata"]["resourceVersion"] = version.to_string().into();
        state.events.push((version, "DELETED", slice));
        self.shared.changed.notify_all();
    }

    /// How often it was asked.
    #[must_use]
    pub fn asked(&self) -> Asked {
        self.state().asked
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no thread panics with it")
    }

    fn serve(&self, socket: TcpStream, tls: Option<&ServerTls>) -> io::Result<()> {
        socket.set_read_timeout(Some(PATIENCE))?;
        match tls {
            None => self.answer(socket),
            Some(tls) => {
                let session = ServerConnection::new(tls.config()).map_err(io::Error::other)?;
                self.answer(StreamOwned::new(session, socket))
            }
        }
    }

    fn answer(&self, stream: impl Read + Write) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let (mut target, mut token) = (String::new(), None);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(rest) = line.strip_prefix("GET ") {
                target = rest.split(' ').next().unwrap_or_default().to_owned();
            } else if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("authorization")
            {
                token = value.strip_prefix("Bearer ").map(str::to_owned);
            }
        }
        let stream = stream.get_mut();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let query: BTreeMap<&str, &str> =
            query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let known = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
        let selector = query.get("labelSelector").copied().unwrap_or_default();
        let service = selector.strip_prefix("kubernetes.io%2Fservice-name%3D");
        let (Some(service), true) = (service, path == known) else {
            return refuse(stream, 404, "the server could not find the requested resource");
        };
        let mut state = self.state();
        let is_known = state.token.is_none() || state.token == token;
        let since = query.get("resourceVersion").and_then(|it| it.parse::<u64>().ok());
        let is_watch = query.contains_key("watch");
        match (is_known, is_watch) {
            (false, _) => state.asked.strangers += 1,
            (true, true) => state.asked.watches += 1,
            (true, false) => state.asked.lists += 1,
        }
        let manner = state.manner;
        let (is_gone, even) = (since.is_some_and(|it| it < state.oldest), state.asked.watches % 2);
        let list = is_known && !is_watch && manner != Manner::Garbage;
        let list = list.then(|| state.list(service));
        drop(state);
        match (manner, list, since) {
            (Manner::Closed, ..) => Ok(()),
            (Manner::Hung, ..) => {
                self.wait_while(Manner::Hung);
                Ok(())
            }
            _ if !is_known => refuse(stream, 401, "Unauthorized"),
            (Manner::Forbidden, ..) => refuse(
                stream,
                403,
                "endpointslices.discovery.k8s.io is forbidden: User \"x\" cannot list resource",
            ),
            (Manner::Expired, None, _) if even == 0 => refuse(stream, 410, "too old"),
            _ if is_watch && is_gone => refuse(stream, 410, "too old resource version"),
            (_, Some(list), _) => whole(stream, "200 OK", &list),
            (_, None, Some(since)) => {
                let seconds = query.get("timeoutSeconds").and_then(|it| it.parse().ok());
                self.watch(stream, service, since, Duration::from_secs(seconds.unwrap_or(60)))
            }
            (_, None, None) => whole(stream, "200 OK", "<html>what is no JSON</html>"),
        }
    }

    fn wait_while(&self, manner: Manner) {
        let state = self.state();
        let same = |state: &mut State| state.manner == manner;
        drop(self.shared.changed.wait_while(state, same));
    }

    fn watch(
        &self,
        stream: &mut impl Write,
        service: &str,
        mut since: u64,
        lasts: Duration,
    ) -> io::Result<()> {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\
              \r\n",
        )?;
        stream.flush()?;
        let ends = Instant::now() + lasts;
        while Instant::now() < ends {
            let state = self.state();
            let wait = |state: &mut State| {
                let is_quiet = matches!(state.manner, Manner::Honest) && state.version <= since;
                is_quiet || state.manner == Manner::Mute
            };
            let waited = self.shared.changed.wait_timeout_while(state, BOOKMARK_EVERY, wait);
            let (state, _) = waited.expect("no thread panics with it");
            let (manner, version) = (state.manner, state.version);
            let lines = state.lines(service, since);
            drop(state);
            match manner {
                Manner::Mute => {
                    self.wait_while(Manner::Mute);
                    return Ok(());
                }
                Manner::Honest => {}
                Manner::Garbage => return chunk(stream, "what is no JSON\n"),
                Manner::Cut => {
                    let line = lines.first().cloned().unwrap_or_else(|| bookmark(version));
                    return chunk(stream, &line[..line.len() / 2]);
                }
                Manner::Expired => {
                    let status = status(410, "too old resource version");
                    let event = json!({"type": "ERROR", "object": status});
                    chunk(stream, &format!("{event}\n"))?;
                    break;
                }
                Manner::Hung | Manner::Forbidden | Manner::Closed => return Ok(()),
            }
            match lines.is_empty() {
                true => chunk(stream, &bookmark(version))?,
                // Two lines may come in one piece, and one in two.
                false => {
                    let all = lines.concat();
                    let middle = all.len() / 3;
                    chunk(stream, &all[..middle])?;
                    chunk(stream, &all[middle..])?;
                }
            }
            since = version;
        }
        stream.write_all(b"0\r\n\r\n")?;
        stream.flush()
    }
}

impl State {
    fn list(&mut self, service: &str) -> String {
        let items = self.slices.values().filter(|slice| is_of(slice, service));
        let items: Vec<&Value> = items.collect();
        let list = json!({
            "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"resourceVersion": self.version.to_string()}, "items": items,
        });
        list.to_string()
    }

    /// What has happened since a version, as lines.
    fn lines(&self, service: &str, since: u64) -> Vec<String> {
        let news = self.events.iter().filter(|(version, ..)| *version > since);
        let news = news.filter(|(.., slice)| is_of(slice, service));
        news.map(|(_, kind, slice)| format!("{}\n", json!({"type": kind, "object": slice})))
            .collect()
    }
}

fn is_of(slice: &Value, service: &str) -> bool {
    slice["metadata"]["labels"]["kubernetes.io/service-name"] == *service
}

fn bookmark(version: u64) -> String {
    let metadata = json!({"resourceVersion": version.to_string()});
    let object = json!({"kind": "EndpointSlice", "metadata": metadata, "endpoints": null});
    format!("{}\n", json!({"type": "BOOKMARK", "object": object}))
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
           "message": message})
}

fn refuse(stream: &mut impl Write, code: u16, message: &str) -> io::Result<()> {
    whole(stream, &format!("{code} Refused"), &status(code, message).to_string())
}

fn whole(stream: &mut impl Write, status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = "Content-Type: application/json\r\nConnection: close\r\n";
    write!(stream, "HTTP/1.1 {status}\r\n{head}Content-Length: {length}\r\n\r\n{body}")?;
    stream.flush()
}

fn chunk(stream: &mut impl Write, text: &str) -> io::Result<()> {
    write!(stream, "{:x}\r\n{text}\r\n", text.len())?;
    stream.flush()
}
