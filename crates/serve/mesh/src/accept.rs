//! Connections from other sites: probes are echoed at once, rows are handed on. Those of this
//! site's own followers are handed to [`controller`].
//!
//! Who has not shown a certificate of a site is not heard, and bounded in number, time and rate.
//! Handshakes are taken at a fixed pace: the kernel keeps who waits at the address of a site, all
//! others are turned away, and have half of the places at most. So whoever opens connections and
//! says nothing does not keep sites out, unless from an address of theirs. Who has shown a
//! certificate is read no faster than a peer with sound settings speaks, each connection by
//! itself; the rest waits in the sockets of the sender. Probes beyond that are not echoed, so that
//! no report waits behind them.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::wan::CONNECTIONS_MAX;
use evenkeel_runtime::dial::last;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::controller;
use super::frame::{Frame, Nonsense};
use super::hub::{Counted, Hub, Refusal, add};
use super::identity::peer;
use super::wire::{Ended, Inbox, Metered, RENEWED_WITHIN, write};
use evenkeel_runtime::accept::{
    AcceptConfig, Link, Listener, Peer, Phase, ServeConnection, StopSignal, Stream, accept,
};
use evenkeel_runtime::bucket::Bucket;

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Handshakes at once.
const HANDSHAKES_MAX: u32 = 64;
/// Of these, those of addresses that are no site's.
const STRANGERS_MAX: u32 = HANDSHAKES_MAX / 2;
/// Handshakes in a second, of either kind; one costs less than a millisecond of CPU.
const HANDSHAKES_PER_S: f64 = 100.0;
/// Connections of one peer: those of the largest setting, and as many that it has forgotten.
const OF_PEER_MAX: u32 = 2 * CONNECTIONS_MAX as u32;

/// Takes connections for as long as it is polled.
pub(super) async fn take(hub: Rc<Hub>, listener: Listener) -> io::Result<()> {
    let gate = Rc::new(Gate {
        hub,
        of_sites: RefCell::new(Bucket::new(HANDSHAKES_PER_S, f64::from(HANDSHAKES_MAX))),
        of_strangers: RefCell::new(Bucket::new(HANDSHAKES_PER_S, f64::from(STRANGERS_MAX))),
    });
    let config = AcceptConfig::unlimited().fixed(); // the gate has limits of its own
    accept(listener, config, gate, StopSignal::never()).await.map(drop)
}

/// Who may come in, and what is said then.
struct Gate {
    hub: Rc<Hub>,
    of_sites: RefCell<Bucket>,
    of_strangers: RefCell<Bucket>,
}

impl ServeConnection for Gate {
    async fn admit(&self, peer: &Peer) -> bool {
        let hub = &self.hub;
        let is_admitted = if is_of_site(hub, peer.address) {
            loop {
                let taken = self.of_sites.borrow_mut().take(hub.clock.now());
                let Err(wait) = taken else { break };
                tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
            }
            hub.handshakes.get() < HANDSHAKES_MAX
        } else {
            let is_paced = self.of_strangers.borrow_mut().take(hub.clock.now()).is_ok();
            is_paced && hub.handshakes.get() < STRANGERS_MAX
        };
        if !is_admitted {
            hub.refuse(Refusal::Full, &peer.address.to_string());
        }
        is_admitted
    }

    async fn serve(self: Rc<Self>, stream: Stream, peer: Peer, link: Rc<Link>) {
        let Stream::Plain(stream) = stream else { return };
        link.enter(Phase::Serving);
        if let Err((refusal, why)) = welcome(&self.hub, peer.address, stream).await {
            self.hub.refuse(refusal, &format!("{}: {why}", peer.address));
        }
    }
}

/// Whether a site has this address, as far as that says anything.
fn is_of_site(hub: &Hub, address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let mut known = hub.config.peers.iter().copied().flat_map(last);
    known.any(|peer| peer.ip().to_canonical() == ip)
}

async fn welcome(
    hub: &Hub,
    address: SocketAddr,
    stream: TcpStream,
) -> Result<(), (Refusal, String)> {
    let generation = hub.generation();
    let stream = greet(hub, stream).await?;
    let site = match peer(stream.get_ref().1, &hub.config.names) {
        Ok(site) if site == hub.config.site => {
            return controller::attend(hub, address, generation, stream).await;
        }
        Ok(site) => site,
        Err(stranger) => return Err((stranger.into(), stranger.to_string())),
    };
    if hub.peer(site).accepted.get() >= OF_PEER_MAX {
        return Err((Refusal::Full, format!("{} has {OF_PEER_MAX} already", hub.name(site))));
    }
    match converse(hub, site, generation, stream).await {
        Ended::Nonsense(nonsense) => hub.nonsense(site, nonsense),
        ended => tracing::debug!(site = hub.name(site), ?ended, "connection ended"),
    }
    Ok(())
}

async fn greet(hub: &Hub, stream: TcpStream) -> Result<TlsStream<Metered>, (Refusal, String)> {
    let _counted = Counted::new(&hub.handshakes);
    let refused = |error: io::Error| (Refusal::Tls, error.to_string());
    let stream = Metered::new(stream, &hub.traffic).map_err(refused)?;
    let greeting = hub.identity().1.acceptor.accept(stream);
    let late = |_| (Refusal::Timeout, "no handshake in time".to_owned());
    tokio::time::timeout(HANDSHAKE_TIMEOUT, greeting).await.map_err(late)?.map_err(refused)
}

async fn converse(
    hub: &Hub,
    site: SiteId,
    generation: u64,
    mut stream: TlsStream<Metered>,
) -> Ended {
    let _counted = Counted::new(&hub.peer(site).accepted);
    let mut heard = Heard {
        inbox: Inbox::of_peers(),
        reads: hub.allowance(),
        probes: hub.allowance(),
        echo: Vec::new(),
    };
    let mut end_at = None;
    loop {
        match receive(hub, site, &mut heard, &mut stream).await {
            Ok(()) => {}
            Err(ended) => return ended,
        }
        if hub.generation() != generation {
            let now = tokio::time::Instant::now();
            if now >= *end_at.get_or_insert(now + RENEWED_WITHIN) {
                return Ended::Renewed;
            }
        }
    }
}

/// What came over one connection, and what more of it may come.
struct Heard {
    inbox: Inbox,
    /// For everything but probes: reads, and what is said.
    reads: Bucket,
    probes: Bucket,
    echo: Vec<u8>,
}

/// Waits for bytes and answers all frames among them.
async fn receive(
    hub: &Hub,
    site: SiteId,
    heard: &mut Heard,
    stream: &mut TlsStream<Metered>,
) -> Result<(), Ended> {
    let Heard { inbox, reads, probes, echo } = heard;
    hub.pace(site, reads).await;
    inbox.fill(stream).await?;
    while let Some(frame) = inbox.next()? {
        if let Frame::Probe { sequence } = frame {
            if probes.take(hub.clock.now()).is_err() {
                add(&hub.peer(site).throttled, 1);
                continue;
            }
            echo.clear();
            Frame::Echo { sequence }.put(echo);
            write(stream, echo).await?;
            continue;
        }
        hub.pace(site, reads).await;
        match frame {
            Frame::Row(row) => hub.receive(site, row),
            Frame::Settings(hashes) if hub.receive_settings(site, hashes) => {}
            _ => {
                return Err(Nonsense::Unexpected { came: frame.name() }.into());
            }
        }
    }
    Ok(())
}
