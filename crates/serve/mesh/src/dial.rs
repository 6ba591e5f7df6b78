//! Connections to another site: probes and rows go out, echoes come back.
//!
//! Every site dials every other one, so that each ordered pair has connections of its own and
//! every site measures its own way there. A connection that breaks is made anew after a wait
//! that doubles; the estimator of the way is told, since a new connection may take another route.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::wan::Probe;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::frame::{Frame, Nonsense};
use super::hub::{Counted, Hub, Refusal, Traffic};
use super::identity::{Stranger, peer, server_name};
use super::pace::Backoff;
use super::wire::{Ended, Inbox, Metered, Never, write};
use evenkeel_runtime::accept::first;
use evenkeel_runtime::dial::tcp;
use evenkeel_settings::address::ServerAddress;

/// How long connecting may take, the handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Probes without an echo that are remembered.
const UNANSWERED_MAX: usize = 256;
/// Between renewals of the connections of a pair: the way is never without measurements.
const RENEWED_EVERY: Duration = Duration::from_secs(1);

/// One of the connections to a site.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) to: SiteId,
    pub(super) address: ServerAddress,
    pub(super) number: usize,
}

/// Keeps one connection to another site for as long as it is polled.
pub(super) async fn keep(hub: Rc<Hub>, line: Line, seed: u64) {
    let mut backoff = Backoff::new(seed);
    loop {
        let generation = hub.generation();
        match connect(&hub, line).await {
            Ok(stream) => {
                hub.peer(line.to).wan.borrow_mut().reconnect(line.number);
                let was_heard = Cell::new(false);
                let ended = converse(&hub, line, generation, stream, &was_heard).await;
                if was_heard.get() {
                    backoff.succeeded();
                }
                match ended {
                    Ended::Renewed => continue,
                    Ended::Nonsense(nonsense) => hub.nonsense(line.to, nonsense),
                    // A server that refuses our certificate says so by closing.
                    _ if !was_heard.get() => {
                        let why = "closed before the first echo (is our certificate trusted?)";
                        hub.unmade(line.to, Refusal::Tls, why);
                    }
                    Ended::Broken | Ended::Silent => {
                        tracing::info!(site = hub.name(line.to), ?ended, "connection ended");
                    }
                }
            }
            Err((refusal, why)) => hub.unmade(line.to, refusal, &why),
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

async fn connect(hub: &Hub, line: Line) -> Result<TlsStream<Metered>, (Refusal, String)> {
    let connector = hub.identity().1.connector.clone();
    reach(connector, &hub.traffic, line.address, (line.to, &hub.config.names)).await
}

/// A connection to where this site should answer, and nobody else.
pub(super) async fn reach(
    connector: TlsConnector,
    traffic: &Rc<Traffic>,
    address: ServerAddress,
    (to, names): (SiteId, &[String]),
) -> Result<TlsStream<Metered>, (Refusal, String)> {
    let name = server_name(&names[to.index()]);
    let name = name.map_err(|error| (Refusal::OtherSite, error.to_string()))?;
    let connecting = async {
        let unreachable = |error: std::io::Error| {
            (Refusal::Unreachable, format!("{address}: {error} (is it running?)"))
        };
        let stream = tcp(address).await.map_err(unreachable)?;
        let stream = Metered::new(stream, traffic).map_err(unreachable)?;
        let refused = |error: std::io::Error| (Refusal::Tls, error.to_string());
        connector.connect(name, stream).await.map_err(refused)
    };
    let timeout = tokio::time::timeout(CONNECT_TIMEOUT, connecting);
    let late = |_| (Refusal::Timeout, format!("{address} did not answer"));
    let stream = timeout.await.map_err(late)??;
    let came = peer(stream.get_ref().1, names);
    match came.and_then(|site| if site == to { Ok(()) } else { Err(Stranger::OtherSite) }) {
        Ok(()) => Ok(stream),
        Err(stranger) => Err((stranger.into(), stranger.to_string())),
    }
}

/// Probes that were sent and not echoed yet.
type Unanswered = RefCell<VecDeque<(u64, Instant)>>;

async fn converse(
    hub: &Hub,
    line: Line,
    generation: u64,
    stream: TlsStream<Metered>,
    was_heard: &Cell<bool>,
) -> Ended {
    let _counted = Counted::new(&hub.peer(line.to).dialled);
    let unanswered = Unanswered::default();
    let (mut input, mut output) = tokio::io::split(stream);
    let listening = async {
        let ended = listen(hub, line, &mut input, &unanswered, was_heard).await;
        ended.expect_err("it listens until the connection ends")
    };
    let speaking = async {
        let ended = speak(hub, line, generation, &mut output, &unanswered).await;
        ended.expect_err("it speaks until the connection ends")
    };
    first(listening, speaking).await
}

async fn listen(
    hub: &Hub,
    line: Line,
    input: &mut (impl AsyncRead + Unpin),
    unanswered: &Unanswered,
    was_heard: &Cell<bool>,
) -> Result<Never, Ended> {
    let mut inbox = Inbox::of_peers();
    loop {
        inbox.fill(input).await?;
        let received_at = hub.clock.now();
        while let Some(frame) = inbox.next()? {
            let Frame::Echo { sequence } = frame else {
                return Err(Nonsense::Unexpected { came: frame.name() }.into());
            };
            let mut unanswered = unanswered.borrow_mut();
            let place = unanswered.binary_search_by_key(&sequence, |(sent, _)| *sent);
            let Ok(place) = place else {
                return Err(Nonsense::Unexpected { came: "an echo of no probe" }.into());
            };
            let (_, sent_at) = unanswered[place];
            unanswered.drain(..=place);
            was_heard.set(true);
            let connection = line.number;
            hub.observe(line.to, &Probe { connection, sequence, sent_at, received_at });
        }
    }
}

async fn speak(
    hub: &Hub,
    line: Line,
    generation: u64,
    output: &mut (impl AsyncWrite + Unpin),
    unanswered: &Unanswered,
) -> Result<Never, Ended> {
    let mut rows = hub.rows.subscribe();
    rows.mark_unchanged();
    let interval = hub.config.probe_interval;
    // The connections of a pair probe one after the other, not all at once.
    let phase = interval.mul_f64(line.number as f64 / hub.config.connections as f64);
    let mut next = tokio::time::Instant::now() + phase;
    let mut renew_at = None;
    let (mut sequence, mut bytes) = (0, Vec::new());
    write(output, &Frame::Settings(&hub.settings.bytes()).bytes()).await?;
    loop {
        if let Ok(changed) = tokio::time::timeout_at(next, rows.changed()).await {
            changed.map_err(|_| Ended::Renewed)?;
            let row = rows.borrow_and_update().clone();
            write(output, &row).await?;
            continue;
        }
        let now = tokio::time::Instant::now();
        if hub.generation() != generation {
            let after = RENEWED_EVERY * line.number as u32;
            if now >= *renew_at.get_or_insert(now + after) {
                return Err(Ended::Renewed);
            }
        }
        next = (next + interval).max(now);
        sequence += 1;
        remember(unanswered, sequence, hub.clock.now());
        bytes.clear();
        Frame::Probe { sequence }.put(&mut bytes);
        write(output, &bytes).await?;
    }
}

fn remember(unanswered: &Unanswered, sequence: u64, sent_at: Instant) {
    let mut unanswered = unanswered.borrow_mut();
    if unanswered.len() == UNANSWERED_MAX {
        unanswered.pop_front();
    }
    unanswered.push_back((sequence, sent_at));
}
