//! `/api/v1/reload`: the configuration, read again from its file.
//!
//! `POST` reads the file that the process was started from, checks it whole and takes it over, all
//! of it or nothing; `GET` tells how reloads went. A reload that fails changes nothing:
//!
//! | status | when |
//! |---|---|
//! | 200 | it was taken over, or nothing has changed |
//! | 409 | `restart` names a key that only a restart changes |
//! | 422 | the file is wrong (`problems`), or something that it names cannot be used |
//! | 503 | the process stops |

use serde::Serialize;

use crate::process::reload::{ReloadStatus, Reloaded, Reloader};
use evenkeel_runtime::component::{Answer, Content, Endpoint, ReloadError, Surface};
use evenkeel_runtime::metrics::{Metric, counter_by, gauge};

const PATH: &str = "/api/v1/reload";

/// What a reloader shows, and how it is asked.
pub(crate) fn surface(reloader: Reloader) -> Surface {
    let [counted, status, get] = [(); 3].map(|()| reloader.clone());
    let endpoint = Endpoint::get(PATH, move || status_json(get.status()));
    Surface {
        status: vec![("config", Box::new(move |_| status_json(status.status())))],
        endpoints: vec![endpoint.and_post(move |_| carry_out(reloader.clone()))],
        ..Surface::of_metrics(move |scrape: &mut evenkeel_runtime::metrics::Scrape| {
            scrape.single(&OF_RELOADS, &counted.status());
        })
    }
}

pub(super) fn status_json(status: ReloadStatus) -> String {
    json(&ReloadState::of(status))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers and strings are always JSON")
}

#[derive(Serialize)]
struct Outcome {
    applied: bool,
    /// How many configurations the process has had.
    generation: u64,
    /// The keys that were written differently.
    changed: Vec<String>,
    /// Why nothing was taken over.
    error: Option<String>,
    /// The key that needs a restart.
    restart: Option<String>,
    /// Everything that is wrong with the file.
    problems: Vec<Problem>,
}

#[derive(Serialize)]
struct Problem {
    /// File, line and column.
    at: String,
    key: String,
    problem: String,
}

/// How reloads went.
#[derive(Serialize)]
struct ReloadState {
    /// How many configurations the process has had.
    generation: u64,
    /// When the configuration was last to be reloaded; `null` before.
    last_reload_unix_ms: Option<u64>,
    /// Why the last reload took nothing over; `null` when it did, or there was none.
    last_error: Option<String>,
}

/// Reloads the file beside the runtime of this thread, which goes on.
async fn carry_out(reloader: Reloader) -> Answer {
    let its = reloader.clone();
    let ended = tokio::task::spawn_blocking(move || its.reload_file()).await;
    let result =
        ended.unwrap_or_else(|died| Err(ReloadError::Unusable(std::io::Error::other(died))));
    let (status, outcome) = outcome(result, reloader.status().generation);
    Answer { status, content: Content::Json(json(&outcome)) }
}

fn outcome(result: Result<Reloaded, ReloadError>, generation: u64) -> (u16, Outcome) {
    let error = match result {
        Ok(Reloaded { generation, changed }) => {
            let (error, restart, problems) = (None, None, Vec::new());
            let outcome = Outcome { applied: true, generation, changed, error, restart, problems };
            return (200, outcome);
        }
        Err(error) => error,
    };
    let problem = |problem: &evenkeel_settings::Problem| Problem {
        at: problem.at.to_string(),
        key: problem.path.clone(),
        problem: problem.what.to_string(),
    };
    let words = Some(error.to_string());
    let (status, restart, problems) = match error {
        ReloadError::NeedsRestart { key } => (409, Some(key), Vec::new()),
        ReloadError::NoFile => (409, None, Vec::new()),
        ReloadError::Invalid(problems) => {
            let problems = problems.iter().map(problem).collect();
            (422, None, problems)
        }
        ReloadError::Unusable(_) => (422, None, Vec::new()),
        ReloadError::Stopping => (503, None, Vec::new()),
    };
    let changed = Vec::new();
    (status, Outcome { applied: false, generation, changed, error: words, restart, problems })
}

impl ReloadState {
    fn of(status: ReloadStatus) -> Self {
        let (at, error) = status.last.map(|last| (last.at_unix_ms, last.error)).unzip();
        Self { generation: status.generation, last_reload_unix_ms: at, last_error: error.flatten() }
    }
}

const OF_RELOADS: [Metric<ReloadStatus>; 3] = [
    gauge(
        "evenkeel_config_generation",
        "Configurations so far: 1 before the first reload.",
        |it| it.generation.into(),
    ),
    gauge(
        "evenkeel_config_last_reload_timestamp_seconds",
        "Unix time of the last reload; absent before.",
        |it| it.last.as_ref().map(|last| last.at_unix_ms as f64 / 1_000.0).into(),
    ),
    counter_by("evenkeel_config_reloads_total", "Reloads by their result.", "result", |it| {
        it.results.iter().map(|(result, count)| (*result, (*count).into())).collect()
    }),
];
