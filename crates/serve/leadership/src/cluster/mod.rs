//! Redis Cluster's protocol at a process: who leads which slots ([`ClusterView`]), and clients of a
//! process that stands by ([`ClusterStandIn`]).
//!
//! **Who is such a client?** Who comes to the address of `cluster`, a door of its own. A connection
//! does not say what its client is: a client of Redis Cluster asks for the map on one connection,
//! and sends commands on others, that say nothing of it. `MOVED` is an error for a plain client,
//! and it is what a cluster client needs. The map tells these doors only, so a plain client is
//! never told to go elsewhere, and no cluster client is passed on for ever. It also keeps the plain
//! door what it is: several databases, keys of several slots in one command.
//!
//! **A process that stands by** is a replica in the map. A command with keys gets `MOVED` to the
//! leader, commands about the connection and the map are answered here. With anything else (`SCAN`,
//! `PUBLISH`, `SUBSCRIBE`; after `READONLY` also a read) the connection becomes one to the leader,
//! and stays so (`relay.rs`): what clients do at any node of Redis Cluster works here too, with one
//! hop more, and what is read at a replica is as new as at the leader.
//!
//! **When it misleads.** Until the lease of a leader that died has ended, it is told as the leader:
//! its clients are refused there, and ask again. Where nobody is known to lead, a command waits for
//! a second; then `CLUSTERDOWN` is said, at which clients ask again too.

mod session;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use self::session::{Session, Step};
use super::groups::{Group, Known};
pub use super::relay::endpoint;
use super::relay::{PATIENCE, StandIn};
use evenkeel_redis_acl::Users;
use evenkeel_runtime::accept::{
    Linger, Link, Order, Peer, Phase, ServeConnection, Stream, poll_leave,
};
use evenkeel_runtime::buffers::{self, BufferShare};
use evenkeel_stores::resp::cluster::{ClusterMap, Endpoint};
use evenkeel_stores::resp::commands::{Channels, Class, Local};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::{Kind, ReplyScanner};
use evenkeel_stores::resp::request::{Limits, RequestParser};

/// Answers to one client that are written before further commands are looked at.
const OUT_BYTES_PAUSE: usize = 64 << 10;

const CHANNELS: &str = "ERR each group of partitions has its own channels, and a message would not \
    reach the clients of the others: use SSUBSCRIBE and SPUBLISH";
/// How long a command waits for somebody to lead its slot: most hand-overs are done in a part of
/// that, and libraries wait longer for an answer.
const HELD_FOR: Duration = Duration::from_secs(1);

/// What a process tells of the cluster: what it knows of who leads and who is there.
#[derive(Debug, Clone)]
pub struct ClusterView {
    service: String,
    own: Endpoint,
    group: Group,
    is_tls: bool,
    known: watch::Receiver<Known>,
    map: RefCell<Option<Rc<ClusterMap>>>,
}

impl ClusterView {
    /// As the process sees it whose clients of this group come to `own`. `service` is the name of
    /// all groups together.
    pub fn new(
        service: &str,
        (own, group): (Endpoint, Group),
        is_tls: bool,
        known: watch::Receiver<Known>,
    ) -> Self {
        let service = service.to_owned();
        Self { service, own, group, is_tls, known, map: RefCell::default() }
    }

    /// Why a command is not taken where there are several groups: a message would reach the clients
    /// of one of them only.
    pub fn refusal(&self, class: Class) -> Option<&'static str> {
        let is_of_all = matches!(
            class,
            Class::Local(
                Local::Publish(Channels::Plain)
                    | Local::Subscribe(Channels::Plain | Channels::Patterns)
            )
        );
        (is_of_all && !self.group.is_whole()).then_some(CHANNELS)
    }

    /// Who serves which slots, as far as is known now.
    pub fn map(&mut self) -> Rc<ClusterMap> {
        let has_changed = self.known.has_changed().unwrap_or(false);
        let known = self.map.get_mut().take_if(|_| !has_changed);
        let map = known.unwrap_or_else(|| Rc::new(self.made()));
        self.map.get_mut().insert(map).clone()
    }

    /// The one place that says who leads what: the slots of a group are led by whoever has its
    /// lease.
    fn made(&mut self) -> ClusterMap {
        let known = self.known.borrow_and_update().clone();
        let mut groups = known.slot_groups();
        if let Some(group) = groups.get_mut(self.group.number) {
            group.nodes.push(self.own.clone());
        }
        let epoch = known.processes.epoch;
        ClusterMap::new((&self.service, &self.own), &groups, (epoch, self.is_tls))
    }
}

/// Serves clients of Redis Cluster while another process leads.
#[derive(Debug)]
pub struct ClusterStandIn {
    /// How a client is passed on.
    pub relay: StandIn,
    /// What is told of the cluster.
    pub view: RefCell<ClusterView>,
    /// Who clients may be, as it is loaded last.
    pub users: watch::Receiver<Arc<Users>>,
    /// What one command may be.
    pub limits: Limits,
}

impl ServeConnection for ClusterStandIn {
    async fn serve(self: Rc<Self>, mut stream: Stream, peer: Peer, link: Rc<Link>) {
        let mut session = Session::new(&self, &peer);
        let Ok(ended) = self.answer(&mut session, (&mut stream, &link)).await else { return };
        let said = match ended {
            Ended::Said => Ok(()),
            Ended::PassedOn(asked) => {
                self.pass_on(&session, (&mut stream, asked), &peer, &link).await
            }
        };
        if said.is_ok() {
            let leaving = |context: &mut Context<'_>| {
                poll_leave(Pin::new(&mut stream), &link, Linger::WhileSending, context)
            };
            let _ = std::future::poll_fn(leaving).await; // who does not hear it has gone
        }
    }
}

/// How answering a client ended.
enum Ended {
    /// Everything is said.
    Said,
    /// The leader is to serve it, beginning with these bytes.
    PassedOn(Vec<u8>),
}

impl ClusterStandIn {
    /// Waits for somebody to lead the slots that a client has asked for: until what is known
    /// changes, and no longer than until then.
    async fn wait_for_leader(&self, until: Instant, link: &Link) -> bool {
        let mut known = self.view.borrow().known.clone();
        tokio::select! {
            changed = timeout_at(until, known.changed()) => matches!(changed, Ok(Ok(()))),
            () = link.ordered(Order::Drain) => false,
        }
    }

    /// Answers a client until it has gone, or the leader must serve it.
    async fn answer(
        &self,
        session: &mut Session<'_>,
        (stream, link): (&mut Stream, &Link),
    ) -> io::Result<Ended> {
        let mut parser = RequestParser::new(session.limits());
        let mut share = BufferShare::of(buffers::of_process());
        let (mut inbox, mut held) = (Vec::new(), None);
        loop {
            let step = take(session, &mut parser, &mut inbox);
            if step != Step::Hold {
                (held, session.is_held_enough) = (None, false);
            }
            let out = std::mem::take(&mut session.out);
            if !out.is_empty() {
                link.write_blocked(true); // who takes nothing is cut off
                stream.write_all(&out).await?;
                stream.flush().await?;
                link.write_blocked(false);
            }
            match step {
                Step::Next => continue,
                Step::Hold => {
                    link.enter(Phase::Serving);
                    let until = *held.get_or_insert_with(|| Instant::now() + HELD_FOR);
                    session.is_held_enough = !self.wait_for_leader(until, link).await;
                    continue;
                }
                Step::PassOn => return Ok(Ended::PassedOn(inbox)),
                Step::End => return Ok(Ended::Said),
                Step::Read if link.order() >= Order::Drain => return Ok(Ended::Said),
                Step::Read => {}
            }
            let holds = std::future::poll_fn(|context| {
                Poll::Ready(share.hold(inbox.len() + parser.place_bytes(), context.waker()))
            });
            if !holds.await {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            if session.is_known() {
                link.enter(Phase::Idle);
            }
            tokio::select! {
                read = stream.read_buf(&mut inbox) => if read? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                },
                () = link.ordered(Order::Drain) => {}
            }
        }
    }

    /// Has the leader serve a client, in the state that it has given its connection here.
    async fn pass_on(
        &self,
        session: &Session<'_>,
        (stream, asked): (&mut Stream, Vec<u8>),
        peer: &Peer,
        link: &Link,
    ) -> io::Result<()> {
        link.enter(Phase::Serving); // its time is for the leader to limit
        let leader = tokio::select! {
            leader = self.relay.leader(peer) => leader,
            () = link.ordered(Order::Drain) => Err(io::Error::other("this process ends")),
        };
        match leader {
            Ok((mut leader, address)) => {
                let (state, answers) = session.state();
                let greeted = greet(&mut leader, &state, answers);
                match timeout(PATIENCE, greeted).await {
                    Ok(Ok(None)) => {}
                    Ok(Ok(Some(refusal))) => return stream.write_all(&refusal).await,
                    _ => return report(stream, "the leader does not answer").await,
                }
                self.relay.pass((stream, asked), (leader, address), link).await
            }
            Err(why) => report(stream, &why.to_string()).await,
        }
    }
}

/// A client's command is not passed on.
async fn report(stream: &mut Stream, why: &str) -> io::Result<()> {
    let mut reported = Vec::new();
    encode::error(&mut reported, &format!("CLUSTERDOWN {why}"));
    stream.write_all(&reported).await
}

/// Answers the whole commands that have come.
fn take(session: &mut Session<'_>, parser: &mut RequestParser, inbox: &mut Vec<u8>) -> Step {
    let mut taken = 0;
    let step = loop {
        if session.out.len() > OUT_BYTES_PAUSE {
            break Step::Next;
        }
        parser.set_limits(session.limits());
        match parser.parse(&inbox[taken..]) {
            Ok(None) => break Step::Read,
            Ok(Some(length)) => {
                let step = match parser.is_empty() {
                    true => Step::Next,
                    false => session.answer(parser.arguments(&inbox[taken..])),
                };
                if matches!(step, Step::PassOn | Step::Hold) {
                    break step; // it is the first that the leader gets, or that is looked at again
                }
                taken += length;
                if step == Step::End {
                    break step;
                }
            }
            Err(error) => {
                encode::protocol_error(&mut session.out, error);
                break Step::End;
            }
        }
    };
    inbox.drain(..taken);
    step
}

/// Says these commands to a leader and reads so many replies, which nobody else asked for; the
/// first that is an error, if one is: it knows other users, and nothing is to be said behind it.
///
/// # Errors
/// When the connection breaks, or what comes is no reply.
pub(super) async fn greet(
    leader: &mut Stream,
    commands: &[u8],
    replies: usize,
) -> io::Result<Option<Vec<u8>>> {
    leader.write_all(commands).await?;
    leader.flush().await?;
    let (mut scanner, mut bytes, mut refusal) = (ReplyScanner::default(), Vec::new(), None);
    for _ in 0..replies {
        let length = loop {
            match scanner.scan(&bytes).map_err(io::Error::other)? {
                Some(length) => break length,
                None if leader.read_buf(&mut bytes).await? == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                None => {}
            }
        };
        let reply: Vec<u8> = bytes.drain(..length).collect();
        let is_error = matches!(scanner.kind(), Some(Kind::Error));
        refusal = refusal.or(is_error.then_some(reply));
    }
    Ok(refusal)
}
