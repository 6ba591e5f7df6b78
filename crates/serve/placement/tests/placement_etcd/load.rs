//! Clients of regions: each has one operation under way at most, at a fixed pace.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use evenkeel_planner::model::{Counts, Operation};
use evenkeel_stores::clients::rest::{Call, Client, Endpoint, Session};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::world::{SITES, World};

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Put,
    /// Serializable: from the member's own state.
    WeakGet,
    /// Linearizable: the member asks the leader.
    Get,
}

impl Kind {
    /// How the model counts it.
    pub(crate) const fn operation(self) -> Operation {
        match self {
            Self::WeakGet => Operation::WeakRead,
            Self::Put | Self::Get => Operation::SingleGroup,
        }
    }
}

/// One operation that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) site: usize,
    pub(crate) kind: Kind,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    pub(crate) is_ok: bool,
}

/// What clients did.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) done: RefCell<Vec<Done>>,
    /// Keys of puts that were acknowledged, as they are in JSON.
    pub(crate) acknowledged: RefCell<Vec<String>>,
}

/// How many clients a site has of each kind.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) puts: [usize; 5],
    pub(crate) weak_gets: [usize; 5],
    pub(crate) gets: [usize; 5],
}

/// Starts clients; dropping the set ends them.
pub(crate) fn start(world: &World, mix: Mix, every: Duration, log: &Rc<Log>) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    let of_kind = [(Kind::Put, mix.puts), (Kind::WeakGet, mix.weak_gets), (Kind::Get, mix.gets)];
    let total: usize = of_kind.iter().flat_map(|(_, by_site)| by_site).sum();
    for (kind, by_site) in of_kind {
        for (site, number) in by_site.into_iter().enumerate() {
            for _ in 0..number {
                let place = clients.len();
                // Spread over the period, so that they do not come in a crowd.
                let first = every.mul_f64((place * 7 % total) as f64 / total as f64);
                let server = Endpoint::parse(&world.client_url(site, site)).unwrap();
                clients.spawn_local(live(server, site, kind, first, every, Rc::clone(log)));
            }
        }
    }
    clients
}

async fn live(
    server: Endpoint,
    site: usize,
    kind: Kind,
    first: Duration,
    every: Duration,
    log: Rc<Log>,
) {
    let client = Client::plain(Duration::from_secs(2));
    let mut session: Option<Session> = None;
    let mut due = Instant::now() + first;
    loop {
        tokio::time::sleep_until(due.into()).await;
        if session.is_none() {
            session = Session::connect(&client, &server).await.ok();
        }
        let (path, body) = request(kind);
        let began = Instant::now();
        let answer = match &mut session {
            Some(session) => session.call(Call::post(path, &body)).await.ok(),
            None => None,
        };
        let is_ok = answer.as_ref().is_some_and(|answer| answer.status == 200);
        let took = began.elapsed();
        if answer.is_none() {
            session = None;
        }
        if is_ok && kind == Kind::Put {
            let key = body["key"].as_str().unwrap().to_owned();
            log.acknowledged.borrow_mut().push(key);
        }
        log.done.borrow_mut().push(Done { site, kind, began, took, is_ok });
        due = (due + every).max(Instant::now());
    }
}

fn request(kind: Kind) -> (&'static str, Value) {
    thread_local! {
        static KEYS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    match kind {
        Kind::Put => {
            // Eight letters of base64 are six bytes: any such text is a key.
            let number = KEYS.replace(KEYS.get() + 1);
            ("/v3/kv/put", json!({"key": format!("{number:08}"), "value": "AAAA"}))
        }
        Kind::WeakGet => ("/v3/kv/range", json!({"key": "AAAA", "serializable": true})),
        Kind::Get => ("/v3/kv/range", json!({"key": "AAAA"})),
    }
}

/// Operations that began in a stretch of time and succeeded: counts, and what they took on average.
pub(crate) struct Measured {
    pub(crate) counts: Counts,
    pub(crate) mean_ms: f64,
    pub(crate) failed: usize,
    of_kind: [(usize, f64); 3],
}

impl Measured {
    pub(crate) fn between(log: &Log, from: Instant, to: Instant) -> Self {
        let mut by_client = vec![[0.0; Operation::ALL.len()]; SITES.len()];
        let mut of_kind = [(0, 0.0); 3];
        let (mut total_ms, mut failed) = (0.0, 0);
        for done in log.done.borrow().iter().filter(|one| one.began >= from && one.began < to) {
            if !done.is_ok {
                failed += 1;
                continue;
            }
            by_client[done.site][done.kind.operation() as usize] += 1.0;
            let ms = done.took.as_secs_f64() * 1e3;
            total_ms += ms;
            let of = &mut of_kind[done.kind as usize];
            *of = (of.0 + 1, of.1 + ms);
        }
        let counts = Counts::new(by_client).unwrap();
        let mean_ms = total_ms / counts.total();
        Self { counts, mean_ms, failed, of_kind }
    }

    /// Of one kind of operation: how many, and their mean.
    pub(crate) fn of(&self, kind: Kind) -> (usize, f64) {
        let (count, total_ms) = self.of_kind[kind as usize];
        (count, total_ms / count as f64)
    }
}
