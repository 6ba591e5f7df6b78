//! From a request to a page: routes, what a worker does for each, and the life of the process.
//!
//! One thread speaks HTTP and only passes on; the work of a request, queries and HTML, is done by
//! the database threads. `/healthz` is answered without them: it says that the process lives, not
//! that it is quick.

use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::{ShopArguments, Speed};
use crate::brownout::Parts;
use crate::costs::Costs;
use crate::page::{self, Optional};
use crate::pool::Pool;
use crate::store::Store;

const SERVED: HeaderName = HeaderName::from_static("brownout-served");

/// How long a stopping shop waits for answers that are on their way.
const GRACE: Duration = Duration::from_secs(2);

/// Cards in each list of the front page.
const FRONT_ITEMS: i64 = 8;

/// Serves the shop until SIGTERM or Ctrl-C; prints `listening on http://ADDRESS:PORT` on stdout
/// when it is ready. Generates the catalogue first where there is none.
///
/// # Errors
/// When the catalogue cannot be read or generated, or the address cannot be listened on.
#[expect(clippy::needless_pass_by_value, reason = "a program hands over its arguments whole")]
pub fn run(arguments: ShopArguments) -> Result<()> {
    if arguments.until_stdin_ends {
        let watch = std::thread::Builder::new().name("stdin".to_owned());
        watch.spawn(exit_with_stdin).context("cannot start a thread")?;
    }
    let stores = open_stores(&arguments)?;
    let costs = arguments.costs.as_deref().map(Costs::load).transpose()?;
    let pool = Pool::start(stores, arguments.speed).context("cannot start a thread")?;
    let pool = Arc::new(pool.with_costs(costs.unwrap_or_default()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen).await.with_context(|| {
            let address = arguments.listen;
            format!("cannot listen on {address} (does another program? port 0 takes a free one)")
        })?;
        let stopping = stop_signal().context("cannot catch signals")?;
        announce(&listener)?;
        serve(listener, Arc::clone(&pool), stopping).await
    })
}

fn exit_with_stdin() {
    // An input that cannot be read has ended, too.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    std::process::exit(0);
}

/// The page of item `number` with these optional parts; `None` when there is no such item.
pub(crate) fn item_page(store: &mut Store, number: i64, parts: Parts) -> Result<Option<String>> {
    let Some(item) = store.item(number)? else { return Ok(None) };
    let mut optional = Optional::default();
    if parts.recommendations {
        optional.recommendations = Some(store.recommendations(number)?);
    }
    if parts.comments {
        optional.comments = Some(store.comments(number)?);
    }
    Ok(Some(page::item(&item, &optional)))
}

fn open_stores(arguments: &ShopArguments) -> Result<Vec<Store>> {
    ensure!(
        (arguments.speed == Speed::FULL && arguments.costs.is_none())
            || arguments.catalogue.database.is_embedded(),
        "--speed {}, --costs: PostgreSQL works in processes of its own, whose speed the shop \
         cannot pretend; leave the flags out or use the embedded database",
        arguments.speed.factor()
    );
    (0..arguments.workers).map(|_| Store::open(&arguments.catalogue)).collect()
}

fn announce(listener: &TcpListener) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "listening on http://{}", listener.local_addr()?)?;
    Ok(stdout.flush()?)
}

/// Resolves at the first SIGTERM or Ctrl-C.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

async fn serve(
    listener: TcpListener,
    pool: Arc<Pool>,
    stopping: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let (stopped, stop_seen) = tokio::sync::oneshot::channel::<()>();
    let stopping = async move {
        stopping.await;
        drop(stopped);
    };
    let serving = axum::serve(listener, routes(pool)).with_graceful_shutdown(stopping);
    let serving = tokio::spawn(serving.into_future());
    // The sender is never used: its end is the message.
    let _ = stop_seen.await;
    match tokio::time::timeout(GRACE, serving).await {
        Ok(served) => Ok(served??),
        Err(_) => Ok(()), // a full queue does not keep the process alive
    }
}

fn routes(pool: Arc<Pool>) -> Router {
    Router::new()
        .route("/", get(front))
        .route("/category/{number}", get(category))
        .route("/item/{number}", get(item))
        .route("/healthz", get(healthz))
        .fallback(no_such_page)
        .with_state(pool)
}

async fn item(
    State(pool): State<Arc<Pool>>,
    Path(number): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(number) = parse_number(&number) else { return not_a_number("item", &number) };
    let parts = Parts::allowed(&headers);
    let cost = pool.cost_of(number, parts);
    let work = pool.submit(cost, move |store| item_page(store, number, parts));
    match work.await {
        Ok(Ok(Some(html))) => with_parts(ok(html), parts),
        Ok(Ok(None)) => not_found(&format!("There is no item {number} in this auction.")),
        other => failed(other.map(|result| result.map(drop))),
    }
}

async fn front(State(pool): State<Arc<Pool>>) -> Response {
    let work = pool.submit(None, |store| {
        let categories = store.categories()?;
        let wanted = store.wanted(FRONT_ITEMS)?;
        Ok(page::front(&categories, &wanted, &store.closing(FRONT_ITEMS)?))
    });
    match work.await {
        Ok(Ok(html)) => ok(html),
        other => failed(other.map(|result| result.map(drop))),
    }
}

async fn category(State(pool): State<Arc<Pool>>, Path(number): Path<String>) -> Response {
    let Some(number) = parse_number(&number) else { return not_a_number("category", &number) };
    let work = pool.submit(None, move |store| {
        let categories = store.categories()?;
        let Some(category) = categories.iter().find(|category| category.number == number) else {
            return Ok(None);
        };
        Ok(Some(page::category(category, &store.closing_in(number)?)))
    });
    match work.await {
        Ok(Ok(Some(html))) => ok(html),
        Ok(Ok(None)) => not_found(&format!("There is no category {number} in this auction.")),
        other => failed(other.map(|result| result.map(drop))),
    }
}

async fn healthz(State(pool): State<Arc<Pool>>) -> String {
    format!("ok, {} waiting\n", pool.waiting())
}

async fn no_such_page() -> Response {
    not_found("The address leads nowhere; the front page leads everywhere.")
}

/// A number in the only form that the shop's own links have: digits without sign.
fn parse_number(text: &str) -> Option<i64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    // Longer than any number of 64 bits is still a number, of nothing that exists.
    (is_digits && !text.is_empty()).then(|| text.parse().unwrap_or(i64::MAX))
}

/// What was left out must not be kept: the next visitor may find the shop at rest.
fn with_parts(mut response: Response, parts: Parts) -> Response {
    let served = HeaderValue::try_from(parts.to_string()).expect("a structured field is ASCII");
    response.headers_mut().insert(SERVED, served);
    if parts != Parts::ALL {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn ok(html: String) -> Response {
    html_response(StatusCode::OK, html)
}

fn not_found(explanation: &str) -> Response {
    html_response(StatusCode::NOT_FOUND, page::message("Nothing here", explanation))
}

fn not_a_number(what: &str, found: &str) -> Response {
    let shown: String = found.chars().take(40).collect();
    let explanation = format!("“{shown}” is no number: expected digits, as in /{what}/7.");
    html_response(StatusCode::BAD_REQUEST, page::message("That is no number", &explanation))
}

fn failed(result: Result<Result<()>, tokio::sync::oneshot::error::RecvError>) -> Response {
    let Ok(result) = result else {
        let html = page::message("The shop is closing", "Please try again in a moment.");
        return html_response(StatusCode::SERVICE_UNAVAILABLE, html);
    };
    if let Err(error) = result {
        eprintln!("evenkeel-shop: {error:#}");
    }
    let html = page::message("This did not work", "The shop could not read its catalogue.");
    html_response(StatusCode::INTERNAL_SERVER_ERROR, html)
}

fn html_response(status: StatusCode, html: String) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
    ];
    (status, headers, html).into_response()
}
