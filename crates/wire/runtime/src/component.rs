//! The parts of a process: what each runs, and how each takes over another configuration.
//!
//! One component for each table of the configuration. A reload asks all of them to *stage* the next
//! one, which may fail and changes nothing; then all of them *apply* it, which cannot fail, or none
//! does. What a component cannot change while it runs it refuses by the key that needs a restart
//! ([`ReloadError::NeedsRestart`]): no change is passed over in silence.
//!
//! | word | meaning |
//! |---|---|
//! | [`Component`] | one part, which knows its own configuration only |
//! | [`Mounted`] | a part in a whole: finds its configuration in that of the process |
//! | [`Job`], [`Place`] | what it runs, and on which thread |
//! | [`Surface`], [`Endpoint`] | what it shows: metrics, readiness, status, and what it can be asked |

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use evenkeel_settings::Problems;

use crate::accept::StopSignal;
use crate::metrics::Collect;

/// What runs on one thread until it is told to stop.
pub(crate) type LocalRun = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// Where a job runs. Each place is one thread; the jobs of a place share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The worker of this number.
    Worker(usize),
    /// A thread of its own, by this name: what must not wait for anything else.
    Own(String),
    /// The thread that is not in a hurry.
    Control,
}

/// Something that runs for as long as the process does.
pub struct Job {
    /// Where.
    pub place: Place,
    /// Makes it, on its thread. It ends when the signal says so, in its own time.
    pub start: Box<dyn FnOnce(StopSignal) -> LocalRun + Send>,
}

impl Job {
    /// A job that runs there.
    pub fn new<F>(place: Place, start: impl FnOnce(StopSignal) -> F + Send + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + 'static,
    {
        Self { place, start: Box::new(move |stop| Box::pin(start(stop))) }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({:?})", self.place)
    }
}

/// What a component shows of itself, all of it as it is at the moment it is asked.
#[derive(Default)]
pub struct Surface {
    /// For `/metrics`.
    pub metrics: Vec<Arc<dyn Collect>>,
    /// For `/readyz`.
    pub readiness: Vec<Arc<dyn Fn() -> Readiness + Send + Sync>>,
    /// For `/api/v1/status`: keys and JSON values.
    pub status: Vec<(&'static str, StatusOf)>,
    /// Its own paths.
    pub endpoints: Vec<Endpoint>,
    /// Called once a second: what keeps a series for people.
    pub samplers: Vec<Box<dyn Fn(Instant) + Send + Sync>>,
}

/// Whether a component can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Ready,
    /// It cannot, and why: whole lines for people.
    NotReady(String),
}

/// JSON of a moment.
pub type StatusOf = Box<dyn Fn(Instant) -> String + Send + Sync>;

impl Surface {
    /// Adds what another component shows.
    pub fn merge(&mut self, other: Self) {
        let Self { metrics, readiness, status, endpoints, samplers } = other;
        self.metrics.extend(metrics);
        self.readiness.extend(readiness);
        self.status.extend(status);
        self.endpoints.extend(endpoints);
        self.samplers.extend(samplers);
    }

    /// Only these metrics.
    #[must_use]
    pub fn of_metrics(collector: impl Collect + 'static) -> Self {
        Self { metrics: vec![Arc::new(collector)], ..Self::default() }
    }
}

impl fmt::Debug for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<&str> = self.endpoints.iter().map(|one| one.path.as_str()).collect();
        write!(f, "Surface({} collectors, {paths:?})", self.metrics.len())
    }
}

/// A path of the admin listener.
pub struct Endpoint {
    /// Such as `/api/v1/reload`.
    pub path: String,
    /// JSON for `GET`.
    pub get: Box<dyn Fn() -> String + Send + Sync>,
    /// In place of `get`, where the query of the URL says what is wanted.
    pub query: Option<ByQuery>,
    /// What `POST` changes, if anything, by its body.
    pub post: Option<Box<dyn Fn(Vec<u8>) -> Answering + Send + Sync>>,
}

impl Endpoint {
    /// One that only tells.
    pub fn get(path: impl Into<String>, get: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { path: path.into(), get: Box::new(get), query: None, post: None }
    }

    /// One that tells what the query of the URL asks for (empty where there is none).
    pub fn by_query(
        path: impl Into<String>,
        query: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self { query: Some(Box::new(query)), ..Self::get(path, String::new) }
    }

    /// The same with what `POST` does.
    #[must_use]
    pub fn and_post<F>(self, post: impl Fn(Vec<u8>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self { post: Some(Box::new(move |body| Box::pin(post(body)))), ..self }
    }
}

/// What the query of a URL is answered.
pub type ByQuery = Box<dyn Fn(&str) -> Answer + Send + Sync>;

/// A `POST` that is under way.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What a `POST` is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// What it says.
    pub content: Content,
}

/// What an [`Answer`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// For programs.
    Json(String),
    /// For people.
    Text(String),
}

/// One part of a process.
pub trait Component: Send + 'static {
    /// What it is configured by.
    type Config: Send + Sync + 'static;
    /// What [`Component::stage`] prepared: bound sockets, new tables.
    type Staged: Send;

    /// What it runs. Called once, after all parts are open.
    fn jobs(&mut self) -> Vec<Job>;

    /// What it shows. Called once, before its jobs run.
    fn surface(&mut self) -> Surface {
        Surface::default()
    }

    /// Prepares another configuration, and changes nothing.
    ///
    /// # Errors
    /// When it cannot be taken over: what it names cannot be used, or a key of it needs a restart.
    fn stage(&mut self, next: Arc<Self::Config>) -> Result<Self::Staged, ReloadError>;

    /// Takes over what was prepared. Nothing in flight is dropped.
    fn apply(&mut self, staged: Self::Staged);
}

/// A part of a whole that is configured by `Whole`.
pub trait AnyComponent<Whole>: Send {
    /// See [`Component::jobs`].
    fn jobs(&mut self) -> Vec<Job>;
    /// See [`Component::surface`].
    fn surface(&mut self) -> Surface;
    /// See [`Component::stage`]; what it prepared is kept until one of the other two is called.
    fn stage(&mut self, next: &Arc<Whole>) -> Result<(), ReloadError>;
    /// Takes over what was staged.
    fn commit(&mut self);
    /// Forgets what was staged.
    fn abort(&mut self);
}

/// A component and where its configuration is in the whole.
pub struct Mounted<C: Component, Whole> {
    component: C,
    of: fn(&Arc<Whole>) -> Arc<C::Config>,
    staged: Option<C::Staged>,
}

impl<C: Component, Whole> Mounted<C, Whole> {
    /// A component that finds its configuration there.
    pub const fn new(component: C, of: fn(&Arc<Whole>) -> Arc<C::Config>) -> Self {
        Self { component, of, staged: None }
    }
}

impl<C: Component, Whole> AnyComponent<Whole> for Mounted<C, Whole> {
    fn jobs(&mut self) -> Vec<Job> {
        self.component.jobs()
    }

    fn surface(&mut self) -> Surface {
        self.component.surface()
    }

    fn stage(&mut self, next: &Arc<Whole>) -> Result<(), ReloadError> {
        assert!(self.staged.is_none(), "what was staged is taken over or forgotten first");
        self.staged = Some(self.component.stage((self.of)(next))?);
        Ok(())
    }

    fn commit(&mut self) {
        let staged = self.staged.take().expect("all parts are staged before any is changed");
        self.component.apply(staged);
    }

    fn abort(&mut self) {
        self.staged = None;
    }
}

/// All parts of a process.
pub type Parts<Whole> = Vec<Box<dyn AnyComponent<Whole>>>;

/// Hands another configuration to all parts, or to none.
///
/// # Errors
/// That of the first part which cannot take it over.
pub fn reload<Whole>(parts: &mut Parts<Whole>, next: &Arc<Whole>) -> Result<(), ReloadError> {
    let staged = parts.iter_mut().try_for_each(|part| part.stage(next));
    match staged {
        Ok(()) => parts.iter_mut().for_each(|part| part.commit()),
        Err(_) => parts.iter_mut().for_each(|part| part.abort()),
    }
    staged
}

/// Why a configuration was not taken over. Everything is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file is wrong: every problem of it.
    #[error("{0}")]
    Invalid(#[source] Problems),
    /// This key differs from what the process runs with, and only a restart changes it.
    #[error("{key} has changed, and only a restart changes it")]
    NeedsRestart {
        /// Its path, such as `process.workers`.
        key: String,
    },
    /// Something that it names cannot be used now, such as an address.
    #[error("{0}")]
    Unusable(#[source] io::Error),
    /// The process runs with a configuration that is from no file, or was given one.
    #[error("the configuration is from no file, expected one to compare with")]
    NoFile,
    /// The process stops.
    #[error("the process stops, and takes over nothing more")]
    Stopping,
}

impl ReloadError {
    /// A change of this key needs a restart.
    pub fn needs_restart(key: impl Into<String>) -> Self {
        Self::NeedsRestart { key: key.into() }
    }

    /// The name that metrics count it under.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::NeedsRestart { .. } => "needs_restart",
            Self::Unusable(_) => "unusable",
            Self::NoFile => "no_file",
            Self::Stopping => "stopping",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes over any number but one.
    struct Picky {
        runs_with: u32,
        refuses: u32,
        reported: std::sync::mpsc::Sender<u32>,
    }

    impl Component for Picky {
        type Config = u32;
        type Staged = u32;

        fn jobs(&mut self) -> Vec<Job> {
            Vec::new()
        }

        fn stage(&mut self, next: Arc<u32>) -> Result<u32, ReloadError> {
            match *next == self.refuses {
                true => Err(ReloadError::needs_restart(format!("picky.{next}"))),
                false => Ok(*next),
            }
        }

        fn apply(&mut self, staged: u32) {
            self.runs_with = staged;
            self.reported.send(staged).unwrap();
        }
    }

    #[test]
    fn all_parts_take_over_or_none_does() {
        let (reported, heard) = std::sync::mpsc::channel();
        let part = |refuses| {
            let picky = Picky { runs_with: 0, refuses, reported: reported.clone() };
            Box::new(Mounted::new(picky, |whole: &Arc<u32>| Arc::clone(whole)))
        };
        let mut parts: Parts<u32> = vec![part(7), part(8), part(9)];
        reload(&mut parts, &Arc::new(1)).unwrap();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1; 3]);
        for refused in [8, 9, 7, 8] {
            let error = reload(&mut parts, &Arc::new(refused)).unwrap_err();
            let words = format!("picky.{refused} has changed, and only a restart changes it");
            assert_eq!(error.to_string(), words);
            assert_eq!(heard.try_iter().count(), 0, "nobody has changed");
        }
        reload(&mut parts, &Arc::new(2)).unwrap();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [2; 3]);
    }
}
