//! Clients of a door that stands by, whose users are others at the leader, or were loaded anew.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::super::relay::{Door, Holder, StandIn};
use super::{ClusterStandIn, ClusterView, Endpoint, Group, Known};
use evenkeel_redis_acl::Users;
use evenkeel_runtime::accept::{AcceptConfig, Listener, Stop, accept, worker_runtime};
use evenkeel_stores::resp::request::Limits;

fn users(text: &str) -> Arc<Users> {
    Arc::new(Users::parse(text, None).unwrap())
}

/// A door that stands by for a leader at this port, and one client of it.
async fn stands_by(
    port: u16,
    users: &watch::Sender<Arc<Users>>,
) -> (DuplexStream, Stop, watch::Sender<Known>) {
    let holder = Holder::of(&format!("127.0.0.1:9 (process 1, cluster 127.0.0.1:{port})"));
    let known = watch::Sender::new(Known::nothing(1));
    known.send_modify(|known| known.holders[0] = holder.clone());
    let own = (Endpoint { host: "127.0.0.1".to_owned(), port: 1 }, Group::default());
    let relay = StandIn {
        holder: watch::Sender::new(holder).subscribe(),
        tls: None,
        relays: true,
        hold: Duration::from_secs(4),
        door: Door::Cluster,
    };
    let door = ClusterStandIn {
        relay,
        view: RefCell::new(ClusterView::new("test", own, false, known.subscribe())),
        users: users.subscribe(),
        limits: Limits::default(),
    };
    let ((listener, dialer), stop) = (Listener::memory(), Stop::new());
    let accepting = AcceptConfig::unlimited().fixed();
    tokio::task::spawn_local(accept(listener, accepting, Rc::new(door), stop.signal()));
    (dialer.connect().unwrap(), stop, known)
}

async fn ask(client: &mut DuplexStream, command: &str, bytes: usize) -> String {
    client.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
    let mut answer = vec![0; bytes];
    client.read_exact(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

async fn rest(client: &mut DuplexStream) -> String {
    let mut rest = String::new();
    let reading = client.read_to_string(&mut rest);
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("it ends").unwrap();
    rest
}

#[test]
fn a_leader_that_refuses_the_user_is_heard() {
    worker_runtime().unwrap().block_on(async {
        let leader = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = leader.local_addr().unwrap().port();
        let users = watch::Sender::new(users("user default off\nuser ann on >one ~* +@all"));
        let (mut client, _stop, _known) = stands_by(port, &users).await;
        let told = tokio::task::spawn_local(async move {
            let (mut stream, _) = leader.accept().await.unwrap();
            let mut heard = Vec::new();
            for (until, says) in [(&b"EK.RELAYED"[..], "+OK\r\n"), (b"HELLO", "-WRONGPASS no\r\n")]
            {
                while !heard.windows(until.len()).any(|at| at == until) {
                    assert!(stream.read_buf(&mut heard).await.unwrap() > 0);
                }
                stream.write_all(says.as_bytes()).await.unwrap();
            }
            while stream.read_buf(&mut heard).await.unwrap() > 0 {}
            String::from_utf8(heard).unwrap()
        });
        assert_eq!(ask(&mut client, "AUTH ann one", 5).await, "+OK\r\n");
        client.write_all(b"SCAN 0\r\n").await.unwrap();
        assert_eq!(rest(&mut client).await, "-WRONGPASS no\r\n");
        let heard = told.await.unwrap();
        assert!(heard.contains("ann") && !heard.contains("SCAN"), "{heard}");
    });
}

#[test]
fn users_that_were_loaded_since_are_heard_before_the_next_command() {
    worker_runtime().unwrap().block_on(async {
        let known = watch::Sender::new(users("user default off\nuser ann on >one ~* +@all"));
        let (mut client, _stop, _known) = stands_by(1, &known).await;
        assert_eq!(ask(&mut client, "AUTH ann one", 5).await, "+OK\r\n");
        known.send_replace(users(
            "user default off\nuser ann on >one ~* +@all\nuser bob on >b +@all",
        ));
        assert_eq!(ask(&mut client, "PING", 7).await, "+PONG\r\n", "she is who she was");
        known.send_replace(users("user default off\nuser ann on >two ~* +@all"));
        client.write_all(b"PING\r\n").await.unwrap();
        assert_eq!(rest(&mut client).await, "", "nothing is done in her name");
        let (mut client, _stop, _known) = stands_by(1, &known).await;
        assert!(ask(&mut client, "AUTH ann one", 9).await.starts_with("-WRONGPAS"));
        assert!(rest_of_line(&mut client).await.ends_with("disabled.\r\n"));
        assert_eq!(ask(&mut client, "AUTH ann two", 5).await, "+OK\r\n");
    });
}

async fn rest_of_line(client: &mut DuplexStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        line.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(line).unwrap()
}
