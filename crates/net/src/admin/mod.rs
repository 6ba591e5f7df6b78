//! Administration: is it alive, is it ready, what has it counted, and a page to look at.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the dashboard, one page without outside parts |
//! | `/healthz` | 200 as long as the process lives |
//! | `/readyz` | 200 when every upstream has a replica up, else 503 and which has none |
//! | `/metrics` | Prometheus text |
//! | `/api/v1/status` | all of the dashboard as JSON |
//! | `/api/v1/brownout` | the switches of the agents' dimmers; `POST` sets them |
//! | `/api/v1/redirect` | the mesh between data centres as JSON, `null` without one |
//! | `/api/v1/duplicates` | services of duplicates as JSON, `[]` without `[duplicates]` |
//! | `/api/v1/duplicates/NAME/moves` | how changes of one stand; `POST` orders one |
//! | `/api/v1/placement` | where databases are and should be as JSON, `null` without `[placement]` |
//!
//! Everything but a `POST` only reads. It listens on the loopback without a token, so the one
//! outsider to fear is a web page in a browser of this machine: answers carry no permission for
//! other origins, a request that names a host other than this one (DNS rebinding) is refused, and
//! what changes something is for programs and our own page only.

mod agent_series;
mod agent_status;
mod cluster;
mod metrics;
mod moves;
mod series;
mod status;
mod switch;
mod view;

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{self, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode, Version};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::board::Board;
use crate::config::Config;
use crate::duplicates::{self, DuplicatesState};
use crate::envoy;
use crate::http::engine::{Body, Listener, ServerLimits, serve as serve_http};
use crate::placement::{self, PlacementState};
use crate::redirect::{self, RedirectState};
use agent_series::AgentSeries;
use series::{SAMPLED_EVERY, Series};
use view::{AgentView, View};

/// Generous to a person and a scraper, and little enough to matter to nobody.
const LIMITS: ServerLimits = ServerLimits {
    head_bytes_max: 16 * 1024,
    body_bytes_max: 4 * 1024,
    connections_max: 64,
    head: Duration::from_secs(5),
    idle: Duration::from_secs(60),
    write: Duration::from_secs(10),
    drain: Duration::from_secs(1),
};

const DASHBOARD: &str = include_str!("dashboard.html");

/// Stands in the page where each answer has a fresh nonce.
const NONCE_PLACE: &str = "{{nonce}}";

const SWITCHES: &str = "/api/v1/brownout";

const MESH: &str = "/api/v1/redirect";

const PLACEMENT: &str = "/api/v1/placement";

const DUPLICATES: &str = "/api/v1/duplicates";

const PATHS: &str = "/ /healthz /readyz /metrics /api/v1/status /api/v1/brownout \
                     /api/v1/redirect /api/v1/placement /api/v1/duplicates \
                     /api/v1/duplicates/NAME/moves";

/// What other threads tell of themselves, where they run.
#[derive(Clone, Default)]
pub(crate) struct Told {
    /// The mesh between data centres.
    pub(crate) redirect: Option<watch::Receiver<Arc<RedirectState>>>,
    /// Where databases are.
    pub(crate) placement: Option<watch::Receiver<Arc<PlacementState>>>,
    /// Services of duplicates.
    pub(crate) duplicates: Vec<watch::Receiver<Arc<DuplicatesState>>>,
    /// Where they take orders, in the same order.
    pub(crate) controls: Vec<duplicates::Control>,
}

/// Serves administration until `stop`. Call it in a worker runtime.
///
/// # Errors
/// When the listener cannot be used.
pub(crate) async fn serve(
    config: Arc<Config>,
    board: Arc<Board>,
    told: Told,
    listener: Listener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let bound = listener.address()?.ip();
    let desk = Rc::new(Desk::new(config, board, told, bound));
    let sampling = Sampling(tokio::task::spawn_local(Rc::clone(&desk).sample()));
    let handler = move |request, _| Rc::clone(&desk).answer(request);
    let served = serve_http(listener, LIMITS, handler, stop).await;
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
    config: Arc<Config>,
    board: Arc<Board>,
    told: Told,
    bound: IpAddr,
    started_at: Instant,
    /// One per upstream.
    series: RefCell<Vec<Series>>,
    /// One per agent.
    agent_series: RefCell<Vec<AgentSeries>>,
}

impl Desk {
    fn new(config: Arc<Config>, board: Arc<Board>, told: Told, bound: IpAddr) -> Self {
        let series = config.upstreams.iter().map(|_| Series::default()).collect();
        let agent_series = config.agents.iter().map(|_| AgentSeries::default()).collect();
        let (series, agent_series) = (RefCell::new(series), RefCell::new(agent_series));
        Self { config, board, told, bound, started_at: Instant::now(), series, agent_series }
    }

    async fn sample(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(SAMPLED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            for (upstream, series) in self.series.borrow_mut().iter_mut().enumerate() {
                series.sample(Instant::now(), self.board.standing(upstream).total);
            }
            for (agent, series) in self.agent_series.borrow_mut().iter_mut().enumerate() {
                series.sample(Instant::now(), &self.board.agent(agent));
            }
        }
    }

    async fn answer(self: Rc<Self>, request: Request<Body>) -> Response<Body> {
        let is_post = request.method() == Method::POST;
        let response = match check_host(&request, self.bound) {
            Ok(()) if is_post && request.uri().path() == SWITCHES => self.set_switch(request).await,
            Ok(()) if is_post && moves::service_of(request.uri().path()).is_some() => {
                self.order(request).await
            }
            Ok(()) => self.route(&request),
            Err(words) => text(StatusCode::MISDIRECTED_REQUEST, words),
        };
        with_headers(response, &COMMON_HEADERS)
    }

    async fn set_switch(&self, request: Request<Body>) -> Response<Body> {
        let body = match self.body(request).await {
            Ok(body) => body,
            Err((status, words)) => return text(status, words),
        };
        match switch::set(&self.config, &self.board, &body) {
            Ok(()) => self.switches(),
            Err((status, words)) => text(status, words),
        }
    }

    /// The body of what changes something, of somebody who may.
    async fn body(&self, request: Request<Body>) -> Result<Vec<u8>, (StatusCode, String)> {
        switch::check_sender(request.headers(), is_own_host, self.bound)?;
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

    async fn order(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let Some(place) = self.service_at(&path) else { return not_found(&path) };
        let ordered = match self.body(request).await {
            Ok(body) => moves::order(&self.told.controls[place], &body).await,
            Err(refused) => Err(refused),
        };
        match ordered {
            Ok(json) => content(StatusCode::ACCEPTED, "application/json", json),
            Err((status, words)) => text(status, words),
        }
    }

    /// The service of duplicates whose changes a path is about.
    fn service_at(&self, path: &str) -> Option<usize> {
        let name = moves::service_of(path)?;
        let names = self.told.duplicates.iter().map(|state| state.borrow().name == name);
        names.enumerate().find_map(|(place, is_it)| is_it.then_some(place))
    }

    fn moves(&self, place: usize) -> Response<Body> {
        let state = Arc::clone(&self.told.duplicates[place].borrow());
        let json = serde_json::to_string(&state.moves).expect("numbers and words are JSON");
        content(StatusCode::OK, "application/json", json)
    }

    fn route(&self, request: &Request<Body>) -> Response<Body> {
        let answer: fn(&Self) -> Response<Body> = match request.uri().path() {
            "/" => |_| dashboard(),
            "/healthz" => |_| text(StatusCode::OK, "ok\n"),
            "/readyz" => Self::readiness,
            "/metrics" => Self::metrics,
            "/api/v1/status" => Self::status,
            SWITCHES => Self::switches,
            MESH => Self::mesh,
            PLACEMENT => Self::placement,
            DUPLICATES => Self::duplicates,
            other => {
                let Some(place) = self.service_at(other) else { return not_found(other) };
                if !matches!(*request.method(), Method::GET | Method::HEAD) {
                    return method_not_allowed(request.method(), other);
                }
                return self.moves(place);
            }
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return method_not_allowed(request.method(), request.uri().path());
        }
        answer(self)
    }

    fn readiness(&self) -> Response<Body> {
        let missing = |view: &View<'_>| {
            let (name, replicas) = (&view.config.name, view.home.len());
            format!("not ready: upstream {name} has no replica up (it has {replicas} in all)\n")
        };
        let views = View::of_all(&self.config, &self.board);
        let words: String = views.iter().filter(|view| !view.is_ready()).map(missing).collect();
        if words.is_empty() {
            return text(StatusCode::OK, "ready\n");
        }
        text(StatusCode::SERVICE_UNAVAILABLE, words)
    }

    fn metrics(&self) -> Response<Body> {
        let views = View::of_all(&self.config, &self.board);
        let agents = AgentView::of_all(&self.config, &self.board);
        let mut text = metrics::render(&views, &agents, self.board.cpu());
        if let Some(redirect) = &self.told.redirect {
            redirect::metrics::write(&redirect.borrow(), &mut text);
        }
        if let Some(envoys) = self.board.envoy() {
            envoy::metrics::write(envoys, &mut text);
        }
        if let Some(placement) = &self.told.placement {
            placement::metrics::write(&placement.borrow(), &mut text);
        }
        if !self.told.duplicates.is_empty() {
            let states = self.duplicates_states();
            duplicates::metrics::write(states.iter().map(AsRef::as_ref), &mut text);
        }
        content(StatusCode::OK, metrics::CONTENT_TYPE, text)
    }

    fn status(&self) -> Response<Body> {
        let views = View::of_all(&self.config, &self.board);
        let agents = AgentView::of_all(&self.config, &self.board);
        let (series, agent_series) = (self.series.borrow(), self.agent_series.borrow());
        let upstreams = views.iter().zip(&*series);
        let agents = agents.iter().zip(&*agent_series);
        let json = status::render(upstreams, agents, self.started_at, Instant::now());
        content(StatusCode::OK, "application/json", json)
    }

    fn mesh(&self) -> Response<Body> {
        let upstream = self.config.redirect.as_ref().map(|redirect| redirect.upstream);
        let upstream = upstream.map_or("", |place| self.config.upstreams[place].name.as_str());
        let json = self.told.redirect.as_ref().map(|redirect| redirect.borrow().json(upstream));
        content(StatusCode::OK, "application/json", json.unwrap_or_else(|| "null".to_owned()))
    }

    fn placement(&self) -> Response<Body> {
        let state = self.told.placement.as_ref().map(|placement| Arc::clone(&placement.borrow()));
        let json = serde_json::to_string(&state.as_deref());
        content(StatusCode::OK, "application/json", json.expect("numbers and names are JSON"))
    }

    fn duplicates_states(&self) -> Vec<Arc<DuplicatesState>> {
        self.told.duplicates.iter().map(|state| Arc::clone(&state.borrow())).collect()
    }

    fn duplicates(&self) -> Response<Body> {
        let states = self.duplicates_states();
        let states: Vec<&DuplicatesState> = states.iter().map(AsRef::as_ref).collect();
        let json = serde_json::to_string(&states);
        content(StatusCode::OK, "application/json", json.expect("numbers and names are JSON"))
    }

    fn switches(&self) -> Response<Body> {
        let json = switch::list(&self.config, &self.board);
        content(StatusCode::OK, "application/json", json)
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
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn not_found(path: &str) -> Response<Body> {
    let path: String = path.chars().take(100).collect();
    text(StatusCode::NOT_FOUND, format!("there is no {path} here, expected one of {PATHS}\n"))
}

fn method_not_allowed(method: &Method, path: &str) -> Response<Body> {
    let (words, allow) = match path {
        SWITCHES => ("GET, HEAD or POST", "GET, HEAD, POST"),
        path if moves::service_of(path).is_some() => ("GET, HEAD or POST", "GET, HEAD, POST"),
        _ => ("GET or HEAD", "GET, HEAD"),
    };
    let words = format!("{method} does nothing here, expected {words}\n");
    let allow = [(header::ALLOW, HeaderValue::from_static(allow))];
    with_headers(text(StatusCode::METHOD_NOT_ALLOWED, words), &allow)
}

/// Refuses requests that were meant for another host: a page of another site whose name resolves
/// to this address (DNS rebinding) would otherwise read the answers.
fn check_host(request: &Request<Body>, bound: IpAddr) -> Result<(), String> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
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
    let came = named.map_or("no single valid Host".to_owned(), |host| format!("host {host:?}"));
    Err(format!(
        "came {came}, expected localhost, a loopback address or {bound}: \
         administration answers no other name (protection against DNS rebinding)\n"
    ))
}

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

fn content(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

fn with_headers(
    mut response: Response<Body>,
    headers: &[(HeaderName, HeaderValue)],
) -> Response<Body> {
    response.headers_mut().extend(headers.iter().cloned());
    response
}

#[cfg(test)]
mod tests;
