//! Ways to the leaders of all groups, for plain clients of any process: in this process by a pipe,
//! in another one over a relay to the group's door there.
//!
//! A session with a leader begins as the client's connection stands (who it is, its database, …),
//! and with having seen every write: so what the client has written it sees, whoever leads now.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_runtime::accept::{Dialer, Stream, first};
use evenkeel_runtime::dial::dial;
use evenkeel_runtime::tls::ClientTls;
use evenkeel_settings::address::ServerAddress;
use evenkeel_stores::resp::encode;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::cluster::greet;
use super::groups::Known;
use super::relay::{AGAIN_AFTER, PATIENCE, ended, introduce};

/// Where the groups of a service are led.
#[derive(Debug, Clone)]
pub struct Ways {
    /// The service's name, for words.
    pub service: String,
    /// Who leads which group.
    pub known: watch::Receiver<Known>,
    /// The groups that this process leads and serves.
    pub here: watch::Receiver<Vec<Option<Dialer>>>,
    /// This process's door of each group.
    pub own: Vec<Option<ServerAddress>>,
    /// How leaders are spoken to: `None` = unencrypted.
    pub tls: Option<ClientTls>,
    /// Whether other processes may be spoken to.
    pub relays: bool,
    /// How long somebody is waited for who leads.
    pub hold: Duration,
}

/// A session with a leader.
#[derive(Debug)]
pub struct Reached {
    /// What is said there.
    pub stream: Stream,
    /// Where it is, if it is another process.
    pub at: Option<ServerAddress>,
    /// What the leader says last, if it ends in order ([`ended`]).
    pub last: String,
}

/// Why there is no session with a group's leader.
#[derive(Debug)]
pub enum Unreached {
    /// It does not take the client as it is: its words.
    Refused(Vec<u8>),
    /// Nobody leads, or whoever does is not reached: what is said of it.
    Unavailable(Vec<u8>),
}

impl Ways {
    /// Whether somebody is known to lead a group.
    pub fn is_led(&self, group: usize) -> bool {
        let is_here = self.here.borrow().get(group).is_some_and(Option::is_some);
        is_here || self.holder(group).is_some()
    }

    /// Some group that this process leads.
    pub fn any_here(&self) -> Option<usize> {
        self.here.borrow().iter().position(Option::is_some)
    }

    /// Where a group is led, as far as is known.
    pub fn holder(&self, group: usize) -> Option<ServerAddress> {
        self.known.borrow().holders.get(group)?.cluster
    }

    /// A session with a group's leader for the client at this address. `state` are commands and
    /// how many they are.
    ///
    /// # Errors
    /// When nobody is reached in time, or the leader refuses what the client is.
    pub async fn open(
        mut self,
        group: usize,
        client: SocketAddr,
        state: (Vec<u8>, usize),
    ) -> Result<Reached, Unreached> {
        let (service, of, hold) = (self.service.clone(), self.own.len(), self.hold);
        let mut last = String::from("nobody is known to lead it");
        let searching = async {
            loop {
                match timeout(PATIENCE, self.reach(group, client, &state)).await {
                    Ok(Ok((reached, None))) => return Ok(reached),
                    Ok(Ok((_, Some(refusal)))) => return Err(Unreached::Refused(refusal)),
                    Ok(Err(error)) => last = error.to_string(),
                    Err(_) => "its leader does not answer".clone_into(&mut last),
                }
                first(self.changed(), sleep(AGAIN_AFTER)).await;
            }
        };
        let found = timeout(hold, searching).await;
        found.unwrap_or_else(|_| {
            let mut said = Vec::new();
            let text = format!("UNAVAILABLE group {group} of {of} of {service}: {last}");
            encode::error(&mut said, &text);
            Err(Unreached::Unavailable(said))
        })
    }

    /// Tries it once. With a session, what the leader says against the client as it is.
    async fn reach(
        &mut self,
        group: usize,
        client: SocketAddr,
        (state, replies): &(Vec<u8>, usize),
    ) -> io::Result<(Reached, Option<Vec<u8>>)> {
        let here = self.here.borrow_and_update().get(group).cloned().flatten();
        let holder = self.known.borrow_and_update().holders.get(group).and_then(|it| it.cluster);
        let is_own = holder.is_some() && self.own.get(group) == Some(&holder);
        let (mut leader, at) = match (here, holder) {
            (Some(dialer), _) => (Stream::Memory(dialer.connect()?), None),
            (None, None) => return Err(io::Error::other("nobody is known to lead it")),
            (None, Some(_)) if is_own => return Err(io::Error::other("this process takes over")),
            (None, Some(at)) if !self.relays => {
                let why = format!("{at} leads it, which is not believed without relay_tls");
                return Err(io::Error::other(why));
            }
            (None, Some(at)) => (dial(at, self.tls.as_ref()).await?, Some(at)),
        };
        // Each state has another key, which began as the operating system's randomness.
        let word = format!("{:016x}", RandomState::new().hash_one(client));
        let whose = client.to_string();
        introduce(&mut leader, &[whose.as_bytes(), b"ROUTED", word.as_bytes()]).await?;
        let refusal = greet(&mut leader, state, *replies).await?;
        Ok((Reached { stream: leader, at, last: ended(&word) }, refusal))
    }

    /// Waits until more is known.
    async fn changed(&mut self) {
        let (known, here) = (&mut self.known, &mut self.here);
        let of_known = async {
            if known.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let of_here = async {
            if here.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        first(of_known, of_here).await;
    }
}
