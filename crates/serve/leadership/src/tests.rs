//! With a real etcd, where there is one.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::*;
use evenkeel_runtime::accept::worker_runtime;
use evenkeel_stores::resp::cluster::Endpoint;

const ETCD: &str = "/usr/bin/etcd";

/// One member, which is a cluster.
struct Etcd {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Etcd {
    fn start(name: &str) -> Option<Self> {
        if !Path::new(ETCD).exists() {
            println!("SKIPPED: {ETCD} is missing (apt-get install etcd-server)");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("evenkeel-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (client, peer) = (format!("http://{}", free()), format!("http://{}", free()));
        let child = Command::new(ETCD)
            .args(["--name", "one", "--unsafe-no-fsync", "--log-level", "error"])
            .arg("--data-dir")
            .arg(folder.join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self { child, folder, url: client })
    }

    fn settings(&self) -> EtcdSettings {
        EtcdSettings {
            endpoints: vec![self.url.clone()],
            prefix: "evenkeel/duplicates/cart".to_owned(),
            lease: Duration::from_secs(2),
            user: None,
            password_file: None,
            authority: None,
            identity: None,
            standby: true,
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Nothing is left to others.
fn at_once() -> Option<usize> {
    Some(0)
}

fn reported(story: impl AsyncFnOnce()) {
    worker_runtime().unwrap().block_on(async {
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, story()).await.expect("the story hangs");
    });
}

#[test]
fn an_eighth_of_a_lease_is_not_relied_on() {
    assert_eq!(relied_on(Duration::from_secs(2)), Duration::from_millis(1_750));
    let (before, slept) = (boot_time(), Duration::from_millis(2));
    std::thread::sleep(slept);
    assert!(boot_time() - before >= slept);
}

#[test]
fn one_reigns_at_a_time_and_who_is_deposed_gives_no_epoch_and_stores_no_map() {
    let Some(etcd) = Etcd::start("reign") else { return };
    reported(async || {
        let settings = etcd.settings();
        let first = enter(&settings, "cart", "the first", at_once, |_| {}).await.unwrap();
        assert!(first.is_valid());
        assert_eq!(first.epoch_above(7).await.unwrap(), 8);
        assert_eq!(first.epoch_above(0).await.unwrap(), 9, "never one that was given");
        assert_eq!(first.load_map().await.unwrap(), None);
        assert_eq!(first.swap_map(0, b"one").await.unwrap(), Swapped::Done);
        let kept = first.load_map().await.unwrap().unwrap();
        assert_eq!(kept.bytes, b"one");
        assert_eq!(first.swap_map(0, b"two").await.unwrap(), Swapped::Other(Some(kept.clone())));

        let impatient = EtcdSettings { standby: false, ..settings.clone() };
        let refused = enter(&impatient, "cart", "the second", at_once, |_| {}).await.unwrap_err();
        assert!(refused.to_string().contains("the first leads by the lease"), "{refused}");

        let begun = Instant::now();
        let mut said = Vec::new();
        let second =
            enter(&settings, "cart", "the second", at_once, |who: Holder| said.push(who.words));
        let second = second.await.unwrap();
        assert!(begun.elapsed() > relied_on(Duration::from_secs(1)), "the lease had to end");
        // A machine that stood still does not hear who leads in time, and says so.
        let heard = said.len();
        said.retain(|who| !who.contains("no answer within"));
        if said.len() < heard {
            said.dedup();
        }
        assert_eq!(said, ["the first leads"]);
        assert!(!first.is_valid(), "it knows by its own clock");
        let lost = first.epoch_above(0).await.unwrap_err();
        assert!(lost.to_string().contains("another process has taken over"), "{lost}");
        assert_eq!(first.swap_map(kept.revision, b"late").await.unwrap(), Swapped::Deposed);
        let lost = Rc::new(first).keep().await;
        assert!(lost.to_string().contains("has ended"), "{lost}");

        assert_eq!(second.epoch_above(0).await.unwrap(), 10);
        assert_eq!(second.swap_map(kept.revision, b"two").await.unwrap(), Swapped::Done);
        assert_eq!(second.load_map().await.unwrap().unwrap().bytes, b"two");
        second.resign().await;
        let begun = Instant::now();
        let third = enter(&settings, "cart", "the third", at_once, |_| {}).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(1), "it was given back");
        assert!(third.is_valid() && !second.is_valid());
    });
}

#[test]
fn who_cannot_reach_etcd_waits_and_says_so() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = EtcdSettings {
        endpoints: vec![format!("http://{address}")],
        prefix: "p".to_owned(),
        lease: Duration::from_secs(2),
        user: None,
        password_file: None,
        authority: None,
        identity: None,
        standby: false,
    };
    reported(async || {
        let mut said = Vec::new();
        let entering = enter(&settings, "cart", "me", at_once, |why: Holder| said.push(why.words));
        let entered = tokio::time::timeout(Duration::from_millis(600), entering).await;
        assert!(entered.is_err(), "it waits");
        let words = said.concat();
        assert!(words.contains(&address.to_string()) && words.contains("is it running"), "{words}");
        let user = Some("evenkeel".to_owned());
        let missing = Some(PathBuf::from("/no/such/file"));
        let settings = EtcdSettings { user, password_file: missing, ..settings };
        let error = enter(&settings, "cart", "me", at_once, |_| {}).await.unwrap_err().to_string();
        assert!(error.contains("duplicates.cart: /no/such/file"), "{error}");
    });
}

#[test]
fn groups_are_led_apart_and_a_lease_that_nobody_has_is_left_to_others_for_a_while() {
    let Some(etcd) = Etcd::start("groups") else { return };
    reported(async || {
        let settings = etcd.settings();
        let [one, two] = [0, 1].map(|number| settings.of_group(Group { number, of: 2 }));
        let first = enter(&one, "cart", "the first", at_once, |_| {}).await.unwrap();
        let second = enter(&two, "cart", "the second", at_once, |_| {}).await.unwrap();
        assert_eq!(first.epoch_above(6).await.unwrap(), 7);
        assert_eq!(second.epoch_above(0).await.unwrap(), 1, "numbers of its own");
        let own = Endpoint { host: "127.0.0.1".to_owned(), port: 7 };
        let known = watch::Sender::new(Known::nothing(2));
        let mut seen = known.subscribe();
        let told = seen.wait_for(|it| it.processes.epoch > 0);
        let announced = tokio::select! {
            told = told => told.unwrap().processes.clone(),
            () = announce(&settings, &own, &known, std::future::pending()) => unreachable!(),
        };
        assert_eq!(announced, Processes { at: vec![own.clone()], epoch: 8, loads: vec![None; 2] });
        known.send_modify(|known| known.measured = vec![Some(1_200), None]);
        let told = seen.wait_for(|it| it.processes.loads[0].is_some());
        let announced = tokio::select! {
            told = told => told.unwrap().processes.clone(),
            () = announce(&settings, &own, &known, std::future::pending()) => unreachable!(),
        };
        assert_eq!((announced.at, announced.loads), (vec![own], vec![Some(1_200), None]));

        second.resign().await;
        let looks = Cell::new(0);
        let leaves_two = || {
            looks.set(looks.get() + 1);
            Some(2)
        };
        let third = enter(&two, "cart", "the third", leaves_two, |_| {}).await.unwrap();
        assert_eq!(looks.get(), 3, "two were left to others");
        assert!(first.is_valid() && third.is_valid());
        first.resign().await;
        let waiting = enter(&one, "cart", "the third", || None, |_| {});
        let waited = tokio::time::timeout(Duration::from_secs(1), waiting).await;
        assert!(waited.is_err(), "it takes nothing");
    });
}
