//! A relay in front of one server, over TCP and UDP at one port: bytes pass as they are, and
//! datagrams as a test says. Networks lose, delay, double, reorder and change them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What becomes of a datagram that goes to the server (true) or comes from there: what passes,
/// each after so long.
type Weather = Rc<dyn Fn(bool, Vec<u8>) -> Vec<(Duration, Vec<u8>)>>;

/// Stands for a server of this thread.
pub struct Relay {
    address: SocketAddr,
    weather: Rc<RefCell<Weather>>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// In front of a server.
    ///
    /// # Panics
    /// When there is no port to be had.
    pub async fn before(server: SocketAddr) -> Self {
        let (tcp, udp, address) = loop {
            let tcp = TcpListener::bind((HERE, 0)).await.expect("a port");
            let address = tcp.local_addr().expect("an address");
            if let Ok(udp) = UdpSocket::bind(address).await {
                break (tcp, udp, address);
            }
        };
        let calm: Weather = Rc::new(|_, bytes| vec![(Duration::ZERO, bytes)]);
        let weather = Rc::new(RefCell::new(calm));
        let mut tasks = JoinSet::new();
        tasks.spawn_local(async move {
            loop {
                let (mut client, _) = tcp.accept().await.expect("a connection");
                tokio::task::spawn_local(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        tasks.spawn_local(relay(Rc::new(udp), server, Rc::clone(&weather)));
        Self { address, weather, _tasks: tasks }
    }

    /// Where it stands for the server.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Datagrams pass so from now on.
    pub fn change(&self, weather: impl Fn(bool, Vec<u8>) -> Vec<(Duration, Vec<u8>)> + 'static) {
        *self.weather.borrow_mut() = Rc::new(weather);
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relay({})", self.address)
    }
}

async fn relay(ours: Rc<UdpSocket>, server: SocketAddr, weather: Rc<RefCell<Weather>>) {
    let mut clients: BTreeMap<SocketAddr, Rc<UdpSocket>> = BTreeMap::new();
    let mut bytes = [0; 2_000];
    loop {
        let (length, from) = ours.recv_from(&mut bytes).await.expect("a datagram");
        let theirs = match clients.get(&from) {
            Some(theirs) => Rc::clone(theirs),
            None => {
                let theirs = Rc::new(UdpSocket::bind((HERE, 0)).await.expect("a port"));
                let sockets = (Rc::clone(&theirs), Rc::clone(&ours));
                tokio::task::spawn_local(back(sockets, from, Rc::clone(&weather)));
                clients.insert(from, Rc::clone(&theirs));
                theirs
            }
        };
        pass_on(&weather, true, bytes[..length].to_vec(), (&theirs, server));
    }
}

async fn back(
    (theirs, ours): (Rc<UdpSocket>, Rc<UdpSocket>),
    client: SocketAddr,
    weather: Rc<RefCell<Weather>>,
) {
    let mut bytes = [0; 2_000];
    while let Ok((length, _)) = theirs.recv_from(&mut bytes).await {
        pass_on(&weather, false, bytes[..length].to_vec(), (&ours, client));
    }
}

fn pass_on(
    weather: &RefCell<Weather>,
    is_to_server: bool,
    bytes: Vec<u8>,
    (by, to): (&Rc<UdpSocket>, SocketAddr),
) {
    let weather = Rc::clone(&weather.borrow());
    for (after, bytes) in weather(is_to_server, bytes) {
        let by = Rc::clone(by);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(after).await;
            let _ = by.send_to(&bytes, to).await;
        });
    }
}
