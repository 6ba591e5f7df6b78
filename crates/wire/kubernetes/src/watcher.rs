//! List, watch, and list again.
//!
//! A watch goes on from the version of the list, ends after its time by the server's clock, and
//! goes on with the last version that was heard: an event's or a bookmark's. A version that the
//! server no longer knows (410) takes a new list, after a pause by chance, since all watches of a
//! server that was restarted end with it. A watch that breaks is opened again from its version; one
//! that ends without a word is not sooner than after a pause that grows.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use evenkeel_dns::Resolver;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::time::Instant;

use crate::api::{self, Answer, Api};
use crate::slices::{Metadata, Offer, Slice, Slices};
use crate::{Service, WatchError};

/// A slice of 1000 endpoints, the most there may be, has less than 1 MiB.
const LINE_BYTES_MAX: usize = 8 << 20;

/// Room for thirty of those.
const LIST_BYTES_MAX: usize = 32 << 20;

/// More than any Service has; each slice is counted too.
const SIZE_MAX: usize = 50_000;

/// Watches in a row that ended without a word before that is called a failure.
const MUTE_MAX: u32 = 3;

/// The pause before the next watch doubles up to so often, from half a second.
const DOUBLINGS_MAX: u32 = 6;

/// How long the API server may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// To answer at all, and for a whole list.
    pub answer: Duration,
    /// A watch ends after this time, and at most half of it later.
    pub watch: Duration,
    /// So much later it is taken for dead.
    pub late: Duration,
}

impl Default for Limits {
    /// A dead connection is found after 100 s. Watches that last longer would save a request in a
    /// minute.
    fn default() -> Self {
        let [answer, watch, late] = [10, 60, 10].map(Duration::from_secs);
        Self { answer, watch, late }
    }
}

/// Watches the EndpointSlices of one Service.
pub struct Watcher {
    api: Api,
    service: Service,
    limits: Limits,
    slices: Slices,
    /// What is known is of this version; `None`: a list is needed.
    version: Option<String>,
    watch: Option<Watch>,
    /// Watches in a row that ended without a word.
    mute: u32,
}

struct Watch {
    answer: Answer,
    /// What has come of the next line.
    line: Vec<u8>,
    /// When it is taken for dead.
    ends: Instant,
    within: Duration,
    /// From here on its end is no surprise.
    ripe: Instant,
}

/// A line of a watch.
#[derive(Deserialize)]
struct Event<T> {
    object: T,
}

/// The same, before it is known what it has.
#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct List {
    metadata: Metadata,
    items: Option<Vec<Slice>>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watcher of {} at version {:?}", self.service, self.version)
    }
}

impl Watcher {
    /// Knows nothing yet.
    pub fn new(api: Api, service: Service, limits: Limits) -> Self {
        let slices = Slices::default();
        Self { api, service, limits, slices, version: None, watch: None, mute: 0 }
    }

    /// Waits until the API server has said something: whom the Service offers by that. It may be
    /// what it was before.
    ///
    /// # Errors
    /// When it says nothing, or nothing of use. The caller pauses before the next call.
    pub async fn next(&mut self, resolver: &Resolver) -> Result<Offer, WatchError> {
        loop {
            let Some(version) = self.version.clone() else {
                self.list(resolver).await?;
                return Ok(self.offer());
            };
            let Some(watch) = &mut self.watch else {
                match self.open(&version, resolver).await {
                    Ok(()) if self.mute == 0 => return Ok(self.offer()),
                    Ok(()) => {}
                    Err(error) => self.end(error).await?,
                }
                continue;
            };
            let heard = watch.line().await;
            let heard = heard.and_then(|line| match line {
                Some(line) => self.apply(&line).map(|()| true),
                None => Ok(false),
            });
            match heard {
                Ok(true) => {
                    self.mute = 0;
                    return Ok(self.offer());
                }
                Ok(false) => self.end_of_watch().await?,
                Err(error) => self.end(error).await?,
            }
        }
    }

    fn offer(&self) -> Offer {
        self.slices.offer(self.service.port.as_ref())
    }

    async fn list(&mut self, resolver: &Resolver) -> Result<(), WatchError> {
        let within = self.limits.answer;
        let path = self.path()?;
        let read = async {
            let answer = api::get(&self.api, &path, resolver, within).await?;
            answer.collect(LIST_BYTES_MAX).await
        };
        let silent = |_| WatchError::Silent { server: self.api.to_string(), within };
        let bytes = tokio::time::timeout(within, read).await.map_err(silent)??;
        let wrong = |why: String| self.malformed("list of EndpointSlices", why);
        let list: List = serde_json::from_slice(&bytes).map_err(|it| wrong(it.to_string()))?;
        let version = list.metadata.resource_version;
        if !is_version(&version) {
            return Err(wrong(format!("its resourceVersion is {version:?}")));
        }
        let slices: Slices = list.items.into_iter().flatten().collect();
        self.check_size(&slices)?;
        (self.slices, self.version) = (slices, Some(version));
        Ok(())
    }

    async fn open(&mut self, version: &str, resolver: &Resolver) -> Result<(), WatchError> {
        let lasts = self.limits.watch.mul_f64(1.0 + 0.5 * chance());
        let path = format!(
            "{}&watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}",
            self.path()?,
            lasts.as_secs().max(1)
        );
        let answer = api::get(&self.api, &path, resolver, self.limits.answer).await?;
        let within = lasts + self.limits.late;
        let now = Instant::now();
        let (ends, ripe) = (now + within, now + lasts / 2);
        self.watch = Some(Watch { answer, line: Vec::new(), ends, within, ripe });
        Ok(())
    }

    /// A name in it is a label of DNS or was checked to be one: nothing needs an escape.
    fn path(&self) -> Result<String, WatchError> {
        let namespace = match &self.service.namespace {
            Some(namespace) => namespace.clone(),
            None => Api::namespace()?,
        };
        Ok(format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?labelSelector=kubernetes.io%2Fservice-name%3D{}",
            self.service.name
        ))
    }

    /// Takes in a line of a watch.
    fn apply(&mut self, line: &[u8]) -> Result<(), WatchError> {
        let server = self.api.to_string();
        let wrong = |why: String| {
            let expected = "event of a watch";
            WatchError::Malformed { server: server.clone(), expected, why }
        };
        let bad = |it: serde_json::Error| wrong(it.to_string());
        let metadata = || serde_json::from_slice(line).map(|it: Event<Object>| it.object.metadata);
        let Kind { kind } = serde_json::from_slice(line).map_err(bad)?;
        let version = match kind.as_str() {
            "ADDED" | "MODIFIED" => {
                let Event::<Slice> { object } = serde_json::from_slice(line).map_err(bad)?;
                let version = object.metadata.resource_version.clone();
                self.slices.put(object);
                self.check_size(&self.slices)?;
                version
            }
            "DELETED" => {
                let metadata = metadata().map_err(bad)?;
                self.slices.take(&metadata.name);
                metadata.resource_version
            }
            "BOOKMARK" => metadata().map_err(bad)?.resource_version,
            "ERROR" => {
                let Event::<Status> { object } = serde_json::from_slice(line).map_err(bad)?;
                let (status, message) = (object.code, object.message);
                return Err(WatchError::Refused { server, status, message });
            }
            other => return Err(wrong(format!("its type is {other:?}"))),
        };
        if !is_version(&version) {
            return Err(wrong(format!("its resourceVersion is {version:?}")));
        }
        self.version = Some(version);
        Ok(())
    }

    fn check_size(&self, slices: &Slices) -> Result<(), WatchError> {
        match slices.size() > SIZE_MAX {
            true => {
                let why = format!("it has more than {SIZE_MAX} endpoints");
                Err(self.malformed("list of EndpointSlices", why))
            }
            false => Ok(()),
        }
    }

    /// A watch is over, as every one once is.
    async fn end_of_watch(&mut self) -> Result<(), WatchError> {
        let watch = self.watch.take();
        // Bookmarks are promised, not when: a quiet watch may have had none.
        if watch.is_some_and(|watch| Instant::now() >= watch.ripe) {
            self.mute = 0;
            return Ok(());
        }
        self.mute += 1;
        if self.mute.is_multiple_of(MUTE_MAX) {
            let error = std::io::Error::other("its watches end without a word");
            return Err(WatchError::Broken { server: self.api.to_string(), error });
        }
        if self.mute > 1 {
            tokio::time::sleep(pause(self.mute - 1)).await;
        }
        Ok(())
    }

    /// A watch ended with an error, or could not be opened. `Ok` where that need not be told.
    async fn end(&mut self, error: WatchError) -> Result<(), WatchError> {
        let was_open = self.watch.is_some();
        if was_open && matches!(error, WatchError::Broken { .. }) {
            // Whether the server is still there shows with the next one.
            return self.end_of_watch().await;
        }
        self.watch = None;
        match error {
            gone if gone.is_gone() => {
                self.version = None;
                self.mute = self.mute.saturating_add(1);
                tokio::time::sleep(pause(self.mute)).await;
                Ok(())
            }
            error => {
                if matches!(error, WatchError::Malformed { .. } | WatchError::Refused { .. }) {
                    self.version = None;
                }
                Err(error)
            }
        }
    }

    fn malformed(&self, expected: &'static str, why: String) -> WatchError {
        WatchError::Malformed { server: self.api.to_string(), expected, why }
    }
}

/// Whether it may stand in a path.
fn is_version(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric())
}

impl Watch {
    /// The next whole line; `None` at the end.
    async fn line(&mut self) -> Result<Option<Vec<u8>>, WatchError> {
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let rest = self.line.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.line, rest)));
            }
            let server = || self.answer.server.clone();
            if self.line.len() > LINE_BYTES_MAX {
                let why = format!("it is longer than {LINE_BYTES_MAX} bytes");
                return Err(WatchError::Malformed { server: server(), expected: "event", why });
            }
            let frame = tokio::time::timeout_at(self.ends, self.answer.body.frame()).await;
            let silent = |_| WatchError::Silent { server: server(), within: self.within };
            match frame.map_err(silent)? {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    self.line.extend(frame.into_data().into_iter().flatten());
                }
                Some(Err(error)) => {
                    let error = api::said(&error);
                    return Err(WatchError::Broken { server: server(), error });
                }
            }
        }
    }
}

/// Before another list or watch, the `number`-th in a row: half to all of a time that doubles.
fn pause(number: u32) -> Duration {
    let longest =
        Duration::from_millis(500) * 2_u32.pow(number.saturating_sub(1).min(DOUBLINGS_MAX));
    longest.mul_f64(0.5 + 0.5 * chance())
}

/// From 0 to 1.
fn chance() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}
