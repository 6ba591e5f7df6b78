//! Administration: is it alive, is it ready, what has it counted, and a page to look at.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the dashboard, one page without outside parts |
//! | `/healthz` | 200 as long as the process lives |
//! | `/readyz` | 200 when every upstream has a replica that is up and neither failing nor silent, else 503 and which has none; 503 from when it is told to stop |
//! | `/metrics` | Prometheus text |
//! | `/api/v1/status` | all of the dashboard as JSON |
//! | `/api/v1/requests` | what became of requests and why, as JSON: the remarkable ones, or those that `?slow`, `?failed` or `?id=` names |
//! | `/api/v1/reload` | how reloads of the configuration went; `POST` asks for one |
//! | `/api/v1/brownout` | the switches of the agents' dimmers; `POST` sets them |
//! | `/api/v1/redirect` | the mesh between data centres as JSON, `null` without one |
//! | `/api/v1/duplicates` | services of duplicates as JSON, `[]` without `[duplicates]` |
//! | `/api/v1/duplicates/NAME/moves` | how changes of one stand; `POST` orders one |
//! | `/api/v1/placement` | where databases are and should be as JSON, `null` without `[placement]` |
//!
//! Everything but a `POST` only reads. On the loopback without a token the one outsider to fear is
//! a web page in a browser of this machine: answers carry no permission for other origins, a
//! request that names a host other than this one (DNS rebinding) is refused, and what changes
//! something is for programs and our own page only. Elsewhere [`access`] asks for a token or a
//! certificate.

pub(crate) mod access;
pub(crate) mod reload;
mod sender;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use http::header::{self, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{Method, StatusCode, Version};
use tokio::time::MissedTickBehavior;

use access::Access;
use evenkeel_http::{Body, Client, FieldValue, LiveLimits, Request, Response, serve_within};
use evenkeel_proxy::series::{SAMPLED_EVERY, seconds};
use evenkeel_runtime::accept::{Listener, ListenerFilters};
use evenkeel_runtime::accept::{Stage, StopSignal};
use evenkeel_runtime::component::{Answer, Content, Endpoint, Readiness, Surface};
use evenkeel_runtime::limits::{Engine, ServerLimits};
use evenkeel_runtime::metrics::{Format, Registry};

/// Generous to a person and a scraper, and little enough to matter to nobody.
const LIMITS: ServerLimits = ServerLimits {
    head_bytes_max: 16 * 1024,
    body_bytes_max: 4 * 1024,
    connections_max: 64,
    head: Duration::from_secs(5),
    idle: Duration::from_secs(60),
    write: Duration::from_secs(10),
    connection_age: Duration::MAX,
    drain: Duration::from_secs(1),
    engine: Engine::Hyper,
};

const DASHBOARD: &str = include_str!("dashboard.html");

/// Stands in the page where each answer has a fresh nonce.
const NONCE_PLACE: &str = "{{nonce}}";

/// The paths of administration itself.
const PATHS: [&str; 5] = ["/", "/healthz", "/readyz", "/metrics", "/api/v1/status"];

/// Serves what components show until `stop`. Call it in a worker runtime.
pub(crate) async fn serve(
    surface: Surface,
    access: Access,
    listener: Listener,
    stop: StopSignal,
) -> io::Result<()> {
    let bound = listener.address().map_or(Ipv4Addr::LOCALHOST.into(), |bound| bound.ip());
    let limits = LiveLimits::new(LIMITS, ListenerFilters::of_tls(access.tls.clone()));
    let desk = Rc::new(Desk::new(surface, access, bound, stop.clone())?);
    let sampling = Sampling(tokio::task::spawn_local(Rc::clone(&desk).sample()));
    let handler = move |request, client| Rc::clone(&desk).answer(request, client);
    let served = serve_within(listener, &limits, handler, stop).await;
    drop(sampling);
    served.map(drop)
}

/// Stops the sampling when the server stops, or is dropped.
struct Sampling(tokio::task::JoinHandle<()>);

impl Drop for Sampling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where questions are answered.
struct Desk {
    surface: Surface,
    registry: Registry,
    access: Access,
    bound: IpAddr,
    stop: StopSignal,
    started_at: Instant,
}

impl Desk {
    /// # Errors
    /// When two components describe one metric in two ways.
    fn new(
        mut surface: Surface,
        access: Access,
        bound: IpAddr,
        stop: StopSignal,
    ) -> io::Result<Self> {
        let mut registry = Registry::default();
        for collector in surface.metrics.drain(..) {
            registry.register(collector).map_err(io::Error::other)?;
        }
        Ok(Self { surface, registry, access, bound, stop, started_at: Instant::now() })
    }

    async fn sample(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(SAMPLED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            self.surface.samplers.iter().for_each(|sample| sample(now));
        }
    }

    async fn answer(self: Rc<Self>, request: Request<Body>, client: Rc<Client>) -> Response<Body> {
        let is_known = self.access.knows(request.headers(), &client);
        let response = if self.access.is_guarded() {
            // Whoever is told something knows a secret, or it is for everybody.
            match is_known || self.access.is_public(request.uri().path()) {
                true => self.route(request).await,
                false => unauthorized(),
            }
        } else {
            match check_host(&request, self.bound) {
                Ok(()) => self.route(request).await,
                Err(error) => text(StatusCode::MISDIRECTED_REQUEST, format!("{error}\n")),
            }
        };
        with_headers(response, &COMMON_HEADERS)
    }

    async fn route(&self, request: Request<Body>) -> Response<Body> {
        let (method, path) = (request.method(), request.uri().path());
        let endpoint = self.surface.endpoints.iter().find(|endpoint| endpoint.path == path);
        if endpoint.is_none() && !PATHS.contains(&path) {
            return self.not_found(path);
        }
        let post = endpoint.and_then(|endpoint| endpoint.post.as_ref());
        match (method, post) {
            (&Method::GET | &Method::HEAD, _) => self.get(&request, endpoint),
            (&Method::POST, Some(post)) => match self.body(request).await {
                Ok(body) => answered(post(body).await),
                Err((status, words)) => text(status, words),
            },
            (_, post) => method_not_allowed(method, post.is_some()),
        }
    }

    fn get(&self, request: &Request<Body>, endpoint: Option<&Endpoint>) -> Response<Body> {
        let json = |body: String| content(StatusCode::OK, "application/json", body);
        match (request.uri().path(), endpoint) {
            (_, Some(Endpoint { query: Some(query), .. })) => {
                answered(query(request.uri().query().unwrap_or_default()))
            }
            (_, Some(endpoint)) => json((endpoint.get)()),
            ("/", None) => dashboard(),
            ("/healthz", None) => text(StatusCode::OK, "ok\n"),
            ("/readyz", None) => self.readiness(),
            ("/metrics", None) => self.metrics(request),
            (_, None) => json(self.status(Instant::now())),
        }
    }

    /// The body of what changes something, of somebody who may.
    async fn body(&self, request: Request<Body>) -> Result<Vec<u8>, (StatusCode, String)> {
        // Where a secret is asked for, a page of another host does not have it.
        let host = request.headers().get(header::HOST).map(FieldValue::as_bytes);
        let host = host.and_then(|host| Authority::try_from(host).ok());
        let is_own = |origin: &Authority| {
            let is_asked = host.as_ref().is_some_and(|host| host == origin);
            is_own_host(origin, self.bound) || self.access.is_guarded() && is_asked
        };
        sender::check(request.headers(), is_own)?;
        let body = request.into_body().collect(LIMITS.body_bytes_max);
        match tokio::time::timeout(LIMITS.head, body).await {
            Ok(Ok(body)) => Ok(body.to_vec()),
            Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, format!("{error}\n"))),
            Err(_) => {
                let words = "the body did not come in time\n".to_owned();
                Err((StatusCode::REQUEST_TIMEOUT, words))
            }
        }
    }

    fn readiness(&self) -> Response<Body> {
        if self.stop.stage() != Stage::Running {
            return text(StatusCode::SERVICE_UNAVAILABLE, "not ready: it was told to stop\n");
        }
        let missing = self.surface.readiness.iter().filter_map(|readiness| match readiness() {
            Readiness::Ready => None,
            Readiness::NotReady(why) => Some(why),
        });
        let words: String = missing.collect();
        if words.is_empty() {
            return text(StatusCode::OK, "ready\n");
        }
        text(StatusCode::SERVICE_UNAVAILABLE, words)
    }

    fn metrics(&self, request: &Request<Body>) -> Response<Body> {
        let accept = request.headers().get(header::ACCEPT).and_then(FieldValue::to_str);
        let format = Format::accepted(accept.unwrap_or_default());
        content(StatusCode::OK, format.content_type(), self.registry.encode(format))
    }

    /// Everything that stands on the dashboard, as one JSON document.
    fn status(&self, now: Instant) -> String {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let uptime_s = seconds(now.saturating_duration_since(self.started_at));
        let mut document = format!(
            "{{\"version\":\"{}\",\"at_unix_ms\":{},\"uptime_s\":{uptime_s}",
            env!("CARGO_PKG_VERSION"),
            since.as_millis()
        );
        for (key, value) in &self.surface.status {
            document.push_str(&format!(",\"{key}\":{}", value(now)));
        }
        document + "}"
    }

    fn not_found(&self, path: &str) -> Response<Body> {
        let path: String = path.chars().take(100).collect();
        let endpoints = self.surface.endpoints.iter().map(|endpoint| endpoint.path.as_str());
        let paths: Vec<&str> = PATHS.into_iter().chain(endpoints).collect();
        let paths = paths.join(" ");
        text(StatusCode::NOT_FOUND, format!("there is no {path} here, expected one of {paths}\n"))
    }
}

/// A browser asks its user for a name, which does not matter, and the token as the password.
fn unauthorized() -> Response<Body> {
    let words = "expected Authorization: Bearer with the token of [admin] token_file, or a client \
                 certificate of tls.client_ca where that is set\n";
    let basic = HeaderValue::from_static("Basic realm=\"evenkeel\", charset=\"UTF-8\"");
    with_headers(text(StatusCode::UNAUTHORIZED, words), &[(header::WWW_AUTHENTICATE, basic)])
}

fn answered(Answer { status, content: words }: Answer) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match words {
        Content::Json(json) => content(status, "application/json", json),
        Content::Text(words) => text(status, words),
    }
}

/// Numbers are stale a second later, and no other page has any business with them.
const COMMON_HEADERS: [(HeaderName, HeaderValue); 4] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin")),
];

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

fn dashboard() -> Response<Body> {
    // Each RandomState is keyed by the operating system's randomness.
    let random = || RandomState::new().build_hasher().finish();
    let nonce = format!("{:016x}{:016x}", random(), random());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let page = DASHBOARD.replace(NONCE_PLACE, &nonce);
    let mut response = content(StatusCode::OK, "text/html; charset=utf-8", page);
    let policy = HeaderValue::try_from(policy).expect("the policy is printable ASCII");
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, &policy);
    response
}

fn method_not_allowed(method: &Method, may_post: bool) -> Response<Body> {
    let (words, allow) = match may_post {
        true => ("GET, HEAD or POST", "GET, HEAD, POST"),
        false => ("GET or HEAD", "GET, HEAD"),
    };
    let words = format!("{method} does nothing here, expected {words}\n");
    let allow = [(header::ALLOW, HeaderValue::from_static(allow))];
    with_headers(text(StatusCode::METHOD_NOT_ALLOWED, words), &allow)
}

/// Refuses requests that were meant for another host: a page of another site whose name resolves
/// to this address (DNS rebinding) would otherwise read the answers.
fn check_host(request: &Request<Body>, bound: IpAddr) -> Result<(), ForeignHost> {
    let mut hosts = request.headers().get_all(header::HOST);
    let named = match (request.uri().authority(), hosts.next(), hosts.next()) {
        (Some(authority), ..) => Some(authority.clone()),
        (None, Some(host), None) => Authority::try_from(host.as_bytes()).ok(),
        // No browser speaks HTTP/1.0; health checkers do.
        (None, None, _) if request.version() == Version::HTTP_10 => return Ok(()),
        (None, ..) => None,
    };
    if named.as_ref().is_some_and(|host| is_own_host(host, bound)) {
        return Ok(());
    }
    Err(ForeignHost { named, bound })
}

/// A request that was meant for another host than this one.
#[derive(Debug)]
struct ForeignHost {
    /// The host it names, where it names exactly one.
    named: Option<Authority>,
    /// The address this process listens on.
    bound: IpAddr,
}

impl fmt::Display for ForeignHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.named {
            Some(host) => write!(f, "got host {host:?}")?,
            None => f.write_str("got no single valid Host")?,
        }
        write!(
            f,
            ", expected localhost, a loopback address or {}: administration answers no other name \
             (protection against DNS rebinding)",
            self.bound
        )
    }
}

impl std::error::Error for ForeignHost {}

/// The port does not matter: a tunnel may well lead here from another one.
fn is_own_host(authority: &Authority, bound: IpAddr) -> bool {
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback() || address == bound,
        Err(_) => host.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    }
}

fn text(status: StatusCode, words: impl Into<String>) -> Response<Body> {
    content(status, "text/plain; charset=utf-8", words.into())
}

fn content(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Vec<u8>>,
) -> Response<Body> {
    let mut response = Response::new(Body::full(body.into()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, &content_type);
    response
}

fn with_headers(
    mut response: Response<Body>,
    headers: &[(HeaderName, HeaderValue)],
) -> Response<Body> {
    for (name, value) in headers {
        response.headers_mut().insert(name, value);
    }
    response
}

#[cfg(test)]
mod tests;
