//! A plan for clients that go by names: SRV records whose weights are its shares.
//!
//! RFC 2782: of the records of one priority a client takes one at random by weight. A site that
//! gets nothing has no record; a weight of 0 would mean "hardly ever". A client that cannot reach
//! the server it took tries the others.
//!
//! **When it misleads.** What clients and resolvers remember is right again a time to live later,
//! and some of them remember for longer than they are told. Clients that ask for addresses only do
//! not see weights at all.

use std::io;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use evenkeel_dns::Service;
use evenkeel_dns::update::{Key, Update, UpdateError, update};

use super::Now;
use super::config::DnsConfig;

/// What weights sum to: they have 16 bits.
const WEIGHTS: u32 = 10_000;

/// A server that is told.
#[derive(Debug)]
pub(super) struct Dns {
    config: DnsConfig,
    key: Option<Key>,
}

impl Dns {
    pub(super) fn open(config: &DnsConfig) -> io::Result<Self> {
        let read = |(name, path): &(String, std::path::PathBuf)| {
            let wrong = |why: String| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()))
            };
            let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            let secret = BASE64_STANDARD.decode(text.trim()).ok().filter(|it| !it.is_empty());
            let secret = secret.ok_or_else(|| {
                wrong(
                    "not the secret of a key, expected base64 alone (`tsig-keygen` quotes it)"
                        .into(),
                )
            })?;
            Ok::<_, io::Error>(Key::new(name, &secret))
        };
        let key = config.key.as_ref().map(read).transpose()?;
        Ok(Self { config: config.clone(), key })
    }

    /// The records that the name has by a plan.
    pub(super) fn records(&self, now: &Now<'_>) -> Update {
        let DnsConfig { zone, name, ttl, targets, .. } = &self.config;
        let weights = now.parts(now.home, WEIGHTS).into_iter().zip(targets);
        let services = weights.filter(|(weight, _)| *weight > 0).map(|(weight, (host, port))| {
            let weight = u16::try_from(weight).unwrap_or(u16::MAX);
            Service { priority: 0, weight, port: *port, host: host.clone() }
        });
        let services = services.collect();
        Update { zone: zone.clone(), name: name.clone(), ttl: *ttl, services }
    }

    pub(super) async fn tell(&self, records: &Update) -> Result<(), UpdateError> {
        let DnsConfig { server, timeout, .. } = self.config;
        update(server, records, self.key.as_ref(), timeout).await
    }
}
