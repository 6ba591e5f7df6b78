//! What services show: `/api/v1/duplicates` and, for each, `/api/v1/duplicates/NAME/moves`: shards
//! that move, duplicates and partitions that come and go.
//!
//! `GET` says how that stands, `POST` requests a change ([`ChangeRequest`]): 202 when it is under
//! way, 409 when another one is, 422 with why it cannot be done. What keeps web pages away is that
//! of the admin listener.

use std::sync::Arc;

use tokio::sync::watch;

use crate::changes::ChangeRequest;
use crate::metrics;
use crate::rejected::ChangeRejected;
use crate::{Control, DuplicatesState};
use evenkeel_duplicates_state::STANDS_BY;
use evenkeel_runtime::component::{Answer, Content, Endpoint, Readiness, Surface};

/// Where services stand, and changes of one below it.
const PATH: &str = "/api/v1/duplicates";

/// How a service stands.
type State = watch::Receiver<Arc<DuplicatesState>>;

/// What these services show, each with where it takes changes.
#[must_use]
pub fn surface(services: Vec<(State, Control)>) -> Surface {
    let (all, counted, services_ready) = (states(&services), states(&services), states(&services));
    let mut endpoints = vec![Endpoint::get(PATH, move || {
        let states: Vec<_> = all.iter().map(|state| Arc::clone(&state.borrow())).collect();
        let states: Vec<&DuplicatesState> = states.iter().map(AsRef::as_ref).collect();
        json(&states)
    })];
    endpoints.extend(services.into_iter().map(|(state, control)| moves(state, control)));
    let metrics = move |scrape: &mut _| {
        counted.iter().for_each(|state: &State| metrics::collect(scrape, &state.borrow()));
    };
    let readiness = services_ready.into_iter().map(|state| {
        let is_ready = move || readiness(&state.borrow());
        Arc::new(is_ready) as Arc<dyn Fn() -> Readiness + Send + Sync>
    });
    Surface { endpoints, readiness: readiness.collect(), ..Surface::of_metrics(metrics) }
}

/// One that stands by is ready for its turn.
fn readiness(state: &DuplicatesState) -> Readiness {
    match &state.failure {
        Some(failure) if state.role != STANDS_BY => {
            Readiness::NotReady(format!("duplicates.{}: {failure}\n", state.name))
        }
        _ => Readiness::Ready,
    }
}

fn states(services: &[(State, Control)]) -> Vec<State> {
    services.iter().map(|(state, _)| state.clone()).collect()
}

fn moves(state: State, control: Control) -> Endpoint {
    let path = format!("{PATH}/{}/moves", state.borrow().name);
    Endpoint::get(path, move || json(&state.borrow().moves)).and_post(move |body| {
        let control = control.clone();
        async move {
            match carry_out(&control, &body).await {
                Ok(json) => Answer { status: 202, content: Content::Json(json) },
                Err(why) => {
                    let content = Content::Text(format!("{why}\n"));
                    Answer { status: why.status().as_u16(), content }
                }
            }
        }
    })
}

async fn carry_out(control: &Control, body: &[u8]) -> Result<String, ChangeRejected> {
    Ok(json(&control.request_change(ChangeRequest::read(body)?).await?))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("numbers and words are JSON")
}
