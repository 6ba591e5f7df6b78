//! Distance on one machine: a relay that passes TCP bytes on as late as a long way would.
//!
//! For demonstrations and tests of what spans data centres, without privileges and without touching
//! the host's network. Each lane leads from a port of its own to one target. Half of the base round
//! trip is added in each direction, and on the way there what a distribution says for the residual
//! of a whole round trip; bytes keep their order, as TCP's do, so that a slow one delays those
//! behind it. **What it is not**: no loss, no limit of bandwidth, and the handshake of a connection
//! is short, since the relay answers it.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_core::Rng;
use evenkeel_core::distribution::Distribution;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use evenkeel_runtime::accept::{
    AcceptConfig, Link, Listener, Peer, ServeConnection, Stop, StopSignal, Stream, accept,
    worker_runtime,
};
use evenkeel_runtime::timer::Timer;

/// Bytes read at once.
const CHUNK_BYTES: usize = 16 * 1_024;
/// Chunks under way in one direction of a connection; then the sender waits.
const CHUNKS_MAX: usize = 256;

/// A way from a port of this machine to a target.
#[derive(Clone)]
pub struct Lane {
    /// Where it leads.
    pub target: SocketAddr,
    /// The round trip at best.
    pub base: Duration,
    /// What a round trip takes beyond it; `None` = nothing.
    pub residual: Option<Arc<dyn Distribution + Send + Sync>>,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane to {} in {:?}", self.target, self.base)
    }
}

/// Lanes at work. Dropping them ends every connection.
#[derive(Debug)]
pub struct Lanes {
    addresses: Vec<SocketAddr>,
    states: Vec<watch::Sender<State>>,
    stop: Option<Stop>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What of a lane can change.
#[derive(Clone, Copy, Debug)]
struct State {
    base: Duration,
    is_cut: bool,
}

impl Lanes {
    /// Opens the lanes on loopback ports that the system chooses, all on one thread. `seed` is that
    /// of the residuals.
    ///
    /// # Errors
    /// When a port or a thread is refused.
    pub fn start(lanes: Vec<Lane>, seed: u64) -> io::Result<Self> {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::start_at(lanes.into_iter().map(|lane| (anywhere, lane)).collect(), seed)
    }

    /// The same, each lane on an address of its own (port 0: the system chooses the port). For
    /// programs that find each other by names: every program can be given another address for the
    /// same name, and a lane there.
    ///
    /// # Errors
    /// When an address, a port or a thread is refused.
    pub fn start_at(lanes: Vec<(SocketAddr, Lane)>, seed: u64) -> io::Result<Self> {
        let (begins, lanes): (Vec<SocketAddr>, Vec<Lane>) = lanes.into_iter().unzip();
        let bind = |at: &SocketAddr| std::net::TcpListener::bind(at).map(Listener::from);
        let listeners = begins.iter().map(bind).collect::<io::Result<Vec<_>>>()?;
        let addresses: Vec<SocketAddr> =
            listeners.iter().map(Listener::address).collect::<io::Result<_>>()?;
        let state = |lane: &Lane| watch::Sender::new(State { base: lane.base, is_cut: false });
        let states: Vec<watch::Sender<State>> = lanes.iter().map(state).collect();
        let subscribed: Vec<_> = states.iter().map(watch::Sender::subscribe).collect();
        let stop = Stop::new();
        let mut signal = stop.signal();
        let body = move || {
            worker_runtime()?.block_on(async move {
                let mut open = JoinSet::new();
                let timer = Timer::new()?;
                let parts = lanes.into_iter().zip(listeners).zip(subscribed);
                for (number, ((lane, listener), state)) in (0_u64..).zip(parts) {
                    let way = Way {
                        lane: Rc::new(lane),
                        state,
                        timer: timer.clone(),
                        seed: Cell::new(seed.wrapping_mul(1_009).wrapping_add(number)),
                    };
                    let config = AcceptConfig::unlimited().fixed();
                    open.spawn_local(accept(listener, config, Rc::new(way), StopSignal::never()));
                }
                signal.stopping().await;
                Ok(())
            })
        };
        let thread = std::thread::Builder::new().name("distance".to_owned()).spawn(body)?;
        Ok(Self { addresses, states, stop: Some(stop), thread: Some(thread) })
    }

    /// Where a lane begins.
    pub fn address(&self, lane: usize) -> SocketAddr {
        self.addresses[lane]
    }

    /// Cuts a lane or mends it: its connections are reset and new ones are closed at once.
    pub fn cut(&self, lane: usize, is_cut: bool) {
        self.states[lane].send_modify(|state| state.is_cut = is_cut);
    }

    /// Makes a lane longer or shorter from now on, as a change of route does.
    pub fn set_base(&self, lane: usize, base: Duration) {
        self.states[lane].send_modify(|state| state.base = base);
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // What failed in it showed in the connections.
            let _ = thread.join();
        }
    }
}

/// A lane as its thread sees it.
#[derive(Clone)]
struct Way {
    lane: Rc<Lane>,
    state: watch::Receiver<State>,
    timer: Timer,
    /// Another one for every connection.
    seed: Cell<u64>,
}

impl ServeConnection for Way {
    async fn serve(self: Rc<Self>, stream: Stream, _peer: Peer, _link: Rc<Link>) {
        if let Stream::Plain(client) = stream {
            self.seed.set(self.seed.get().wrapping_add(1 << 32));
            Self::clone(&self).connect(client).await;
        }
    }
}

impl Way {
    async fn connect(self, client: TcpStream) {
        let mut state = self.state.clone();
        if state.borrow().is_cut {
            return;
        }
        let Ok(server) = TcpStream::connect(self.lane.target).await else { return };
        if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
            return;
        }
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let residual = self.lane.residual.clone();
        let residual = residual.map(|law| (law, Rng::stream(self.seed.get(), "distance")));
        let mut both = JoinSet::new();
        both.spawn_local(self.clone().carry(from_client, to_server, residual));
        both.spawn_local(self.carry(from_server, to_client, None));
        let mut cut = std::pin::pin!(state.wait_for(|state| state.is_cut));
        // Both directions end by themselves, or the cut drops them.
        std::future::poll_fn(|context| {
            if cut.as_mut().poll(context).is_ready() {
                return std::task::Poll::Ready(());
            }
            while let std::task::Poll::Ready(ended) = both.poll_join_next(context) {
                if ended.is_none() {
                    return std::task::Poll::Ready(());
                }
            }
            std::task::Poll::Pending
        })
        .await;
    }

    /// One direction of a connection, until it ends.
    async fn carry(self, from: OwnedReadHalf, to: OwnedWriteHalf, mut residual: Option<Residual>) {
        let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
        let (state, timer) = (self.state, self.timer);
        let mut writing = JoinSet::new();
        writing.spawn_local(async move {
            while let Some((due, chunk)) = receiver.recv().await {
                timer.at(due).await;
                if write_all(&to, &chunk).await.is_err() {
                    return;
                }
            }
            // Dropping the half tells the other side that nothing more comes.
        });
        let mut last_due = Instant::now();
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = read(&from, &mut buffer).await {
            let more = residual.as_mut().map_or(Duration::ZERO, |(law, rng)| law.sample(rng));
            let due = Instant::now() + state.borrow().base / 2 + more;
            last_due = due.max(last_due);
            if sender.send((last_due, buffer[..length].to_vec())).await.is_err() {
                return;
            }
        }
        drop(sender);
        while writing.join_next().await.is_some() {}
    }
}

type Residual = (Arc<dyn Distribution + Send + Sync>, Rng);

async fn read(from: &OwnedReadHalf, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        from.readable().await?;
        match from.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

async fn write_all(to: &OwnedWriteHalf, mut chunk: &[u8]) -> io::Result<()> {
    while !chunk.is_empty() {
        to.writable().await?;
        match to.try_write(chunk) {
            Ok(written) => chunk = &chunk[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use evenkeel_core::distribution::LogNormal;

    use super::*;

    /// A server that sends back what it is sent.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 4_096];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        stream.write_all(&buffer[..length]).unwrap();
                    }
                });
            }
        });
        address
    }

    fn round_trip(stream: &mut TcpStream) -> Duration {
        let began = Instant::now();
        stream.write_all(b"there").unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"there");
        began.elapsed()
    }

    fn lane(base_ms: u64) -> Lane {
        Lane { target: echo(), base: Duration::from_millis(base_ms), residual: None }
    }

    #[test]
    fn a_round_trip_takes_its_base_and_a_residual() {
        let law = LogNormal::with_median_sigma(Duration::from_millis(5), 0.1).unwrap();
        let far = Lane { residual: Some(Arc::new(law)), ..lane(20) };
        let lanes = Lanes::start(vec![lane(20), far], 1).unwrap();
        for (lane, least_ms, most_ms) in [(0, 20, 24), (1, 23, 30)] {
            let mut stream = TcpStream::connect(lanes.address(lane)).unwrap();
            stream.set_nodelay(true).unwrap();
            // The quickest: a busy machine adds to the others.
            let trip = (0..15).map(|_| round_trip(&mut stream)).min().unwrap();
            let expected = Duration::from_millis(least_ms)..=Duration::from_millis(most_ms);
            assert!(expected.contains(&trip), "{trip:?}, expected {expected:?}");
        }
    }

    #[test]
    fn a_lane_changes_its_length_and_is_cut_and_mended() {
        let lanes = Lanes::start(vec![lane(10)], 1).unwrap();
        let mut stream = TcpStream::connect(lanes.address(0)).unwrap();
        assert!(round_trip(&mut stream) >= Duration::from_millis(10));
        lanes.set_base(0, Duration::from_millis(40));
        assert!(round_trip(&mut stream) >= Duration::from_millis(40));
        lanes.cut(0, true);
        let ended = |stream: &mut TcpStream| !matches!(stream.read(&mut [0; 1]), Ok(1..));
        assert!(ended(&mut stream), "its connections end");
        let mut refused = TcpStream::connect(lanes.address(0)).unwrap();
        assert!(ended(&mut refused), "new ones are closed");
        lanes.cut(0, false);
        lanes.set_base(0, Duration::ZERO);
        let mut mended = TcpStream::connect(lanes.address(0)).unwrap();
        round_trip(&mut mended);
    }

    #[test]
    fn bytes_keep_their_order_and_an_end_is_passed_on() {
        let law = LogNormal::with_median_sigma(Duration::from_millis(1), 2.0).unwrap();
        let lanes = Lanes::start(vec![Lane { residual: Some(Arc::new(law)), ..lane(2) }], 7);
        let lanes = lanes.unwrap();
        let mut stream = TcpStream::connect(lanes.address(0)).unwrap();
        let sent: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
        let mut writer = stream.try_clone().unwrap();
        let bytes = sent.clone();
        let writing = std::thread::spawn(move || {
            for chunk in bytes.chunks(7_001) {
                writer.write_all(chunk).unwrap();
            }
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        writing.join().unwrap();
        assert!(back == sent);
    }
}
