//! Clients of a process that stands by: they are passed on to the one that leads.
//!
//! So a client may connect to any process of a service. When its first bytes have come, the leader
//! is told whose they are (`EK.RELAYED address`, which it answers with `+OK`); from then on bytes
//! pass in both directions as they come, and nothing is read into them. While nobody leads, or the
//! leader is not reached, the client is held for a while: it waits, as for a slow server, in place
//! of an error that its library would not try again.
//!
//! **No circles.** For a moment, or by a wrong `advertise`, two processes may take each other for
//! the leader. So who stands by passes on nothing that was passed on to it.
//!
//! **Cost.** One more connection and hop for each client; 16 KiB of answers, 8 of what is asked.
//! TLS of the client ends here.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use evenkeel_runtime::accept::{
    Linger, Link, Order, Peer, Phase, ServeConnection, first, poll_leave,
};
use evenkeel_runtime::dial::dial;
use evenkeel_runtime::stream::Stream;
use evenkeel_runtime::tls::ClientTls;
use evenkeel_settings::address::ServerAddress;
use evenkeel_stores::resp::cluster::Endpoint;
use evenkeel_stores::resp::encode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// What a relay says first: the command up to its argument.
const PREFACE: &[u8] = b"*2\r\n$10\r\nEK.RELAYED\r\n";
/// What a name has before the address for clients of Redis Cluster.
const CLUSTER: &str = ", cluster ";
/// What is held of what the leader answers.
const BUFFER_BYTES: usize = 16 << 10;
/// How long the leader may take to answer that it leads.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long until a leader that was not reached is tried again.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Who leads, as far as this process knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// In words, for people; empty until something is known.
    pub words: String,
    /// Where its clients connect; of whoever led last while nobody does.
    pub address: Option<ServerAddress>,
    /// Where its clients of Redis Cluster connect.
    pub cluster: Option<ServerAddress>,
}

impl Holder {
    /// By what a process says of itself in etcd: see [`name`].
    pub fn of(who: &str) -> Self {
        let (address, more) = who.split_once(" (process ").unwrap_or((who, ""));
        let cluster = more.split_once(CLUSTER).map(|(_, cluster)| cluster.trim_end_matches(')'));
        let is_somewhere = |it: &ServerAddress| match it {
            ServerAddress::Inet(address) => !address.ip().is_unspecified(),
            ServerAddress::Name { .. } => true,
            ServerAddress::Unix(_) => false,
        };
        let read = |text: &str| ServerAddress::parse(text).ok().filter(is_somewhere);
        let (address, cluster) = (read(address), cluster.and_then(read));
        Self { words: format!("{who} leads"), address, cluster }
    }

    /// Where clients of one kind connect.
    pub(super) const fn door(&self, door: Door) -> Option<ServerAddress> {
        match door {
            Door::Plain => self.address,
            Door::Cluster => self.cluster,
        }
    }
}

/// Host and port of what is no socket of this machine.
pub fn endpoint(address: ServerAddress) -> Option<Endpoint> {
    match address {
        ServerAddress::Inet(at) => Some(Endpoint { host: at.ip().to_string(), port: at.port() }),
        ServerAddress::Name { host, port } => Some(Endpoint { host: host.to_owned(), port }),
        ServerAddress::Unix(_) => None,
    }
}

/// Which of a process's addresses a client came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The one for plain clients.
    Plain,
    /// The one for clients of Redis Cluster.
    Cluster,
}

/// How a process that clients reach at this address names itself; those of Redis Cluster may have
/// another one.
pub fn name(address: impl fmt::Display, cluster: Option<ServerAddress>) -> String {
    let cluster = cluster.map(|cluster| format!("{CLUSTER}{cluster}")).unwrap_or_default();
    format!("{address} (process {}{cluster})", std::process::id())
}

/// Serves clients while another process leads.
#[derive(Debug)]
pub struct StandIn {
    /// Who leads.
    pub holder: watch::Receiver<Holder>,
    /// How the leader is spoken to: `None` = unencrypted.
    pub tls: Option<ClientTls>,
    /// Whether clients are passed on. Otherwise they are told who leads.
    pub relays: bool,
    /// How long a client waits for a leader.
    pub hold: Duration,
    /// Where its clients came to, and are passed on to.
    pub door: Door,
}

impl StandIn {
    /// For clients and whoever gives orders.
    pub fn why(&self) -> String {
        format!("this process stands by: {}", self.holder.borrow().words)
    }

    /// A connection to the leader, which knows whose it is.
    ///
    /// # Errors
    /// When none is reached in time, or it cannot be known where the leader is.
    pub(super) async fn leader(&self, peer: &Peer) -> io::Result<(Stream, ServerAddress)> {
        let mut last = None;
        let mut holder = self.holder.clone();
        let searching = async {
            loop {
                let known = holder.borrow_and_update().clone();
                match known.door(self.door) {
                    Some(address) => match self.reach(address, peer).await {
                        Ok(leader) => return Ok((leader, address)),
                        Err(error) => last = Some(format!("{address}: {error}")),
                    },
                    None if known.words.is_empty() => {} // nothing is known yet
                    None => return Err(io::Error::other(self.why())),
                }
                let told = async { holder.changed().await.unwrap_or(()) };
                first(told, sleep(AGAIN_AFTER)).await;
            }
        };
        let found = timeout(self.hold, searching).await;
        found.unwrap_or_else(|_| {
            let last = last.map(|last| format!(" ({last})")).unwrap_or_default();
            Err(io::Error::other(format!("{}{last}", self.why())))
        })
    }

    async fn reach(&self, address: ServerAddress, peer: &Peer) -> io::Result<Stream> {
        let reaching = async {
            let mut leader = dial(address, self.tls.as_ref()).await?;
            introduce(&mut leader, &[peer.address.to_string().as_bytes()]).await?;
            Ok(leader)
        };
        timeout(PATIENCE, reaching).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Passes bytes on until the leader ends, as it does when a client has and all is answered; or
    /// another one leads, or one of the two sides broke. Told to drain, it asks the leader to do
    /// so.
    pub(super) async fn pass(
        &self,
        (client, said): (&mut Stream, Vec<u8>),
        (mut leader, address): (Stream, ServerAddress),
        link: &Link,
    ) -> io::Result<()> {
        leader.write_all(&said).await?;
        leader.flush().await?;
        drop(said);
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (mut from_leader, mut to_leader) = tokio::io::split(leader);
        let asking = async {
            tokio::select! {
                copied = copy(&mut from_client, &mut to_leader) => { copied?; }
                () = link.ordered(Order::Drain) => {}
            }
            to_leader.shutdown().await?;
            std::future::pending::<io::Result<()>>().await
        };
        let answering = async {
            let mut bytes = vec![0; BUFFER_BYTES];
            loop {
                let count = from_leader.read(&mut bytes).await?;
                if count == 0 {
                    return Ok(());
                }
                link.write_blocked(true); // who takes nothing is cut off, as by the leader
                to_client.write_all(&bytes[..count]).await?;
                to_client.flush().await?;
                link.write_blocked(false);
            }
        };
        // One that was stopped keeps its connections, and answers nobody.
        let (mut holder, door) = (self.holder.clone(), self.door);
        let deposed = async {
            let _ = holder.wait_for(|holder| holder.door(door) != Some(address)).await;
            Err(io::ErrorKind::ConnectionAborted.into())
        };
        first(answering, first(asking, deposed)).await
    }
}

/// What a leader says last to a session that a process has with it for a plain client: what was
/// sent and is not answered by then was not done. It says the word that the session began with
/// (`EK.RELAYED address ROUTED word`), which no script knows.
pub fn ended(word: &str) -> String {
    format!("EK.ENDED {word} what was taken is answered, and nothing else is done")
}

/// Tells a leader whose connection this is.
///
/// # Errors
/// When it does not lead, or the connection breaks.
pub(super) async fn introduce(leader: &mut Stream, whose: &[&[u8]]) -> io::Result<()> {
    let mut preface = Vec::new();
    encode::command(&mut preface, &[&[b"EK.RELAYED".as_slice()], whose].concat());
    leader.write_all(&preface).await?;
    leader.flush().await?;
    let mut answer = [0; 5];
    leader.read_exact(&mut answer).await?;
    match &answer {
        b"+OK\r\n" => Ok(()),
        _ => Err(io::Error::other("it does not lead")),
    }
}

impl ServeConnection for StandIn {
    async fn serve(self: Rc<Self>, mut stream: Stream, peer: Peer, link: Rc<Link>) {
        let said = tokio::select! {
            said = first_words(&mut stream) => said,
            () = link.ordered(Order::Drain) => return,
        };
        let Ok(said) = said else { return };
        link.enter(Phase::Serving); // its time is for the leader to limit
        let leader = match self.relays && !said.starts_with(PREFACE) {
            true => tokio::select! {
                leader = self.leader(&peer) => leader,
                () = link.ordered(Order::Drain) => Err(io::Error::other("this process ends")),
            },
            false => Err(io::Error::other(self.why())),
        };
        let passed = match leader {
            Ok(leader) => self.pass((&mut stream, said), leader, &link).await,
            Err(why) => {
                let mut reported = Vec::new();
                encode::error(&mut reported, &format!("UNAVAILABLE {why}"));
                stream.write_all(&reported).await
            }
        };
        if passed.is_ok() {
            let leaving = |context: &mut Context<'_>| {
                poll_leave(Pin::new(&mut stream), &link, Linger::WhileSending, context)
            };
            let _ = std::future::poll_fn(leaving).await; // who does not hear it has gone
        }
    }
}

/// What a client says first: enough to know whether it was passed on already.
async fn first_words(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut said = Vec::with_capacity(512);
    loop {
        if stream.read_buf(&mut said).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if said.len() >= PREFACE.len() || !PREFACE.starts_with(&said) {
            return Ok(said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_known_by_what_it_says_of_itself() {
        for (who, address) in [
            ("10.0.2.1:6380 (process 17)", Some("10.0.2.1:6380")),
            ("[2001:db8::1]:6380 (process 17)", Some("[2001:db8::1]:6380")),
            ("cart-1.example:6380 (process 17)", Some("cart-1.example:6380")),
            // Where it listens says nothing of how it is reached.
            ("0.0.0.0:6380 (process 17)", None),
            ("[::]:6380 (process 17)", None),
            ("somebody else", None),
            ("", None),
        ] {
            let holder = Holder::of(who);
            let found = holder.address.map(|address| address.to_string());
            assert_eq!(found.as_deref(), address, "{who}");
            assert_eq!(holder.words, format!("{who} leads"));
        }
        let own = Holder::of(&name("10.0.2.1:6380", None));
        assert_eq!(own.address.unwrap().to_string(), "10.0.2.1:6380");
        assert_eq!(own.cluster, None);
        let cluster = ServerAddress::parse("[2001:db8::1]:6390").ok();
        let own = Holder::of(&name("cart-1.example:6380", cluster));
        assert_eq!(own.address.unwrap().to_string(), "cart-1.example:6380");
        assert_eq!(own.cluster, cluster);
    }
}
