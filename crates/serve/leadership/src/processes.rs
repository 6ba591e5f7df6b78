//! Which processes of a service are there: each says so in etcd, under a lease of its own, and how
//! many commands a second its groups have.
//!
//! Clients of Redis Cluster are shown all of them ([`crate::cluster`]), and groups of partitions
//! are spread over them ([`crate::groups`]). Who may write is not decided by the list: a process
//! that is missing there for a moment still serves. Who dies is in it until its lease ends. While
//! etcd does not answer, the last list stays.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::etcd::{Election, Held, Renewed};
use super::groups::{Known, Loads, Processes};
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
    let mut said = Loads::new();
    let (own, pause) = (own.to_string(), (settings.lease / RENEWALS).max(AGAIN_AFTER));
    let mut is_silent = false;
    loop {
        let told = match Election::open(settings) {
            Ok(election) => loop {
                match look(&election, (&own, known), held, &mut said).await {
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
    (own, known): (&str, &watch::Sender<Known>),
    held: &mut Option<Held>,
    said: &mut Loads,
) -> Result<Processes, RemoteError> {
    if let Some(lease) = held
        && election.renew(lease).await? == Renewed::Ended
    {
        *held = None;
    }
    let lease = match held {
        Some(lease) => lease,
        None => {
            said.clear();
            held.insert(election.present(own).await?)
        }
    };
    let (measured, last) = {
        let known = known.borrow();
        (known.measured.clone(), known.processes.loads.clone())
    };
    if is_news(said, &measured) {
        election.say(lease, own, &words(&measured)).await?;
        said.clone_from(&measured);
    }
    let (processes, epoch) = election.processes(measured.len()).await?;
    let loads = heard(last, measured.len(), processes.iter().map(|(_, words)| &**words));
    let at = processes.iter().filter_map(|(name, _)| endpoint(name)).collect();
    Ok(Processes { at, epoch, loads })
}

/// Whether others should hear of these loads: a group is there or gone, or differs by a quarter.
fn is_news(said: &[Option<u64>], measured: &[Option<u64>]) -> bool {
    let differs = |group: usize| match (said.get(group).copied().flatten(), measured[group]) {
        (None, None) => false,
        (Some(said), Some(now)) => said.abs_diff(now) > said.max(now) / 4,
        _ => true,
    };
    (0..measured.len()).any(differs)
}

/// `GROUP:LOAD` of each group whose load is known.
fn words(loads: &[Option<u64>]) -> String {
    let known = loads.iter().enumerate().filter_map(|(group, load)| Some((group, (*load)?)));
    known.map(|(group, load)| format!("{group}:{load}")).collect::<Vec<_>>().join(" ")
}

/// The loads of so many groups, by what processes say now. Who has just begun to lead has measured
/// nothing: then what was known of the group holds on.
fn heard<'a>(mut loads: Loads, groups: usize, said: impl Iterator<Item = &'a str>) -> Loads {
    loads.resize(groups, None);
    said.for_each(|words| note(words, &mut loads));
    loads
}

/// Takes over what a process says of its groups. What another release says besides is left out.
fn note(words: &str, loads: &mut [Option<u64>]) {
    for word in words.split(' ') {
        let parsed = word.split_once(':').and_then(|(group, load)| {
            Some((group.parse::<usize>().ok()?, load.parse::<u32>().ok()?))
        });
        if let Some((group, load)) = parsed
            && let Some(place) = loads.get_mut(group)
        {
            *place = Some(load.into());
        }
    }
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
    fn what_processes_say_of_their_groups_is_read_and_garbage_is_left_out() {
        let mut loads = vec![None, Some(7), Some(8), None];
        assert_eq!(words(&loads), "1:7 2:8");
        note("2:900 0:5", &mut loads);
        note("", &mut loads);
        note("9:1 x:2 3: 1:-4 :: 3:4294967296 3", &mut loads);
        assert_eq!(loads, [Some(5), Some(7), Some(900), None]);
    }

    #[test]
    fn what_was_known_of_a_group_holds_on_until_its_new_leader_has_measured_it() {
        let first = heard(Loads::new(), 3, ["0:900 1:50", "2:70"].into_iter());
        assert_eq!(first, [Some(900), Some(50), Some(70)]);
        // Group 0 went from the one to the other, which leads it and has not measured it.
        let handed_over = heard(first, 3, ["1:50", "2:70"].into_iter());
        assert_eq!(handed_over, [Some(900), Some(50), Some(70)]);
        let measured = heard(handed_over, 3, ["1:50", "0:800 2:70"].into_iter());
        assert_eq!(measured, [Some(800), Some(50), Some(70)]);
    }

    #[test]
    fn others_hear_of_loads_that_differ_by_a_quarter() {
        let measured = [None, Some(1_000)];
        assert!(is_news(&[], &measured) && is_news(&[Some(1), Some(1_000)], &measured));
        assert!(!is_news(&measured, &measured) && !is_news(&[], &[None, None]));
        assert!(!is_news(&[None, Some(800)], &measured) && is_news(&[None, Some(700)], &measured));
        assert!(!is_news(&[None, Some(0)], &[None, Some(0)]));
    }

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
