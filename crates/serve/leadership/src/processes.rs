//! Which processes of a service are there: each says so in etcd, under a lease of its own.
//!
//! Clients of Redis Cluster are shown all of them ([`crate::cluster`]), and groups of partitions
//! are spread over them ([`crate::groups`]). Who may write is not decided by the list: a process
//! that is missing there for a moment still serves. Who dies is in it until its lease ends. While
//! etcd does not answer, the last list stays.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::etcd::{Election, Held, Renewed};
use super::groups::{Known, Processes};
use super::{EtcdSettings, RENEWALS};
use evenkeel_runtime::accept::first;
use evenkeel_stores::clients::error::RemoteError;
use evenkeel_stores::resp::cluster::Endpoint;

/// How long after etcd could not be used it is tried again, at least.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Makes known that this process is there, and tells who else is, until it leaves; then it is not
/// there any more, before the lease has ended. A process is known by its first door; `known` says
/// how many groups there are.
pub async fn announce(
    settings: &EtcdSettings,
    own: &Endpoint,
    known: &watch::Sender<Known>,
    leaving: impl Future<Output = ()>,
) {
    let mut held = None;
    let keeping = async { match keep(settings, own, known, &mut held).await {} };
    first(leaving, keeping).await;
    if let (Some(held), Ok(election)) = (&held, Election::open(settings)) {
        election.revoke(held).await;
    }
}

async fn keep(
    settings: &EtcdSettings,
    own: &Endpoint,
    known: &watch::Sender<Known>,
    held: &mut Option<Held>,
) -> std::convert::Infallible {
    let groups = known.borrow().holders.len();
    let (own, pause) = (own.to_string(), (settings.lease / RENEWALS).max(AGAIN_AFTER));
    let mut is_silent = false;
    loop {
        let told = match Election::open(settings) {
            Ok(election) => loop {
                match look(&election, (&own, groups), held).await {
                    Ok(processes) => {
                        is_silent = false;
                        known.send_if_modified(|last| {
                            let differs = last.processes != processes;
                            last.processes = processes;
                            differs
                        });
                    }
                    Err(error) => break error.to_string(),
                }
                sleep(pause).await;
            },
            Err(error) => error.to_string(),
        };
        if !std::mem::replace(&mut is_silent, true) {
            tracing::warn!(error = told, "it is not known which processes there are");
        }
        sleep(pause).await;
    }
}

async fn look(
    election: &Election,
    (own, groups): (&str, usize),
    held: &mut Option<Held>,
) -> Result<Processes, RemoteError> {
    if let Some(lease) = held
        && election.renew(lease).await? == Renewed::Ended
    {
        *held = None;
    }
    if held.is_none() {
        *held = Some(election.present(own).await?);
    }
    let (names, epoch) = election.processes(groups).await?;
    Ok(Processes { at: names.iter().filter_map(|name| endpoint(name)).collect(), epoch })
}

/// `HOST:PORT`; an address of IPv6 has no brackets.
fn endpoint(name: &str) -> Option<Endpoint> {
    let (host, port) = name.rsplit_once(':').filter(|(host, _)| !host.is_empty())?;
    Some(Endpoint { host: host.to_owned(), port: port.parse().ok().filter(|port| *port > 0)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_no_process() {
        for (name, expected) in [
            ("10.0.2.1:6390", Some(("10.0.2.1", 6_390))),
            ("::1:6390", Some(("::1", 6_390))),
            ("cart-1.example:1", Some(("cart-1.example", 1))),
            ("cart-1.example:0", None),
            ("cart-1.example", None),
            (":6390", None),
            ("a:65536", None),
            ("", None),
        ] {
            let found = endpoint(name);
            let parts = found.as_ref().map(|it| (&*it.host, it.port));
            assert_eq!(parts, expected, "{name}");
            assert!(found.is_none_or(|it| it.to_string() == name));
        }
    }
}
