//! A cluster that is made up.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use evenkeel_cql::request::{AuthResponse, Query};
use evenkeel_cql::{Flags, Opcode, Version, response, write};
use tokio::sync::{Notify, broadcast};

use crate::cluster::{Cluster, Member, Notice};
use crate::front::{Backend, Conversation, Refusal, Request};
use evenkeel_cql::client::{Answer, Dialect};

/// Answers what a statement says: `ECHO n`, `HOLD`, `LONG n`, `CREATE`.
pub(super) struct Fake {
    pub(super) asked: RefCell<Vec<Request>>,
    pub(super) in_flight: Cell<usize>,
    /// Whoever waits because of `HOLD` goes on.
    pub(super) release: Notify,
    pub(super) events: broadcast::Sender<Notice>,
    /// Answers of the nodes about their schema's version; the last stays.
    pub(super) versions: RefCell<VecDeque<Vec<[u8; 16]>>>,
    /// The only password, if one is asked for.
    pub(super) password: RefCell<Option<&'static str>>,
    pub(super) greeted: Cell<usize>,
    /// So many conversations more are not answered.
    pub(super) deaf: Cell<usize>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            asked: RefCell::default(),
            in_flight: Cell::new(0),
            release: Notify::new(),
            events: broadcast::Sender::new(16),
            versions: RefCell::new([vec![[1; 16]]].into()),
            password: RefCell::default(),
            greeted: Cell::new(0),
            deaf: Cell::new(0),
        }
    }
}

fn answer(opcode: Opcode, body: Bytes) -> Answer {
    Answer { opcode, flags: Flags::NONE, body, feedback: None }
}

struct InFlight<'a>(&'a Cell<usize>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Backend for Fake {
    type Conversation = Login;

    fn cluster(&self) -> Arc<Cluster> {
        let node = Member {
            address: "127.0.0.9:9042".parse().unwrap(),
            reported: "127.0.0.9:9042".parse().unwrap(),
            host_id: [9; 16],
            datacenter: "east".to_owned(),
            rack: "r9".to_owned(),
            release_version: "5.0.9".to_owned(),
            tokens: Vec::new(),
            is_up: true,
        };
        Arc::new(Cluster {
            name: "made up".to_owned(),
            partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
            release_version: "5.0.9".to_owned(),
            nodes: vec![node],
            ..Cluster::default()
        })
    }

    fn events(&self) -> broadcast::Receiver<Notice> {
        self.events.subscribe()
    }

    async fn ask(self: &Rc<Self>, request: Request) -> Answer {
        self.in_flight.set(self.in_flight.get() + 1);
        let _counted = InFlight(&self.in_flight);
        self.asked.borrow_mut().push(request.clone());
        let query = Query::read(&request.ask.body, request.dialect.version).unwrap();
        let (word, number) = query.text.split_once(' ').unwrap_or((query.text, "0"));
        let number: usize = number.trim_start_matches('x').parse().unwrap_or(0);
        match word {
            "HOLD" => self.release.notified().await,
            "ECHO" if number.is_multiple_of(3) => tokio::task::yield_now().await,
            "ECHO" if number % 3 == 1 => tokio::time::sleep(Duration::from_millis(1)).await,
            _ => {}
        }
        let length = if word == "LONG" { number } else { 0 };
        if word == "CREATE" {
            let mut body = 5_i32.to_be_bytes().to_vec();
            for word in ["CREATED", "KEYSPACE", "k"] {
                write::string(&mut body, word);
            }
            return answer(Opcode::Result, body.into());
        }
        // A RESULT of no kind there is: it must pass as it is.
        let body = [query.text.as_bytes(), &vec![b'.'; length]].concat();
        answer(Opcode::Result, body.into())
    }

    async fn greet(self: &Rc<Self>, version: Version) -> Result<Login, Refusal> {
        self.greeted.set(self.greeted.get() + 1);
        let is_deaf = self.deaf.get() > 0;
        self.deaf.set(self.deaf.get().saturating_sub(1));
        Ok(Login { version, password: *self.password.borrow(), is_deaf })
    }

    async fn prove(self: &Rc<Self>, _: &Dialect) -> Result<(), Refusal> {
        unreachable!("no login here has several messages")
    }

    async fn schema_versions(self: &Rc<Self>) -> Vec<[u8; 16]> {
        let mut versions = self.versions.borrow_mut();
        if versions.len() > 1 { versions.pop_front().unwrap() } else { versions[0].clone() }
    }
}

pub(super) struct Login {
    version: Version,
    password: Option<&'static str>,
    is_deaf: bool,
}

impl Conversation for Login {
    async fn say(&mut self, opcode: Opcode, body: Bytes) -> Result<Answer, Refusal> {
        tokio::task::yield_now().await;
        if self.is_deaf {
            return Err(Refusal::overloaded("the made up node says nothing"));
        }
        let mut reported = BytesMut::new();
        let opcode = match opcode {
            Opcode::Options => {
                let options = vec![
                    ("CQL_VERSION", vec!["3.4.7"]),
                    ("PROTOCOL_VERSIONS", vec!["3/v3", "4/v4", "5/v5", "6/v6-beta"]),
                ];
                response::Supported { options }.write(&mut reported);
                Opcode::Supported
            }
            Opcode::Startup if self.password.is_some() => {
                write::string(&mut reported, "PasswordAuthenticator");
                Opcode::Authenticate
            }
            Opcode::Startup => Opcode::Ready,
            _ => {
                let password = self.password.unwrap_or_default();
                let plain = AuthResponse::plain("me", password);
                if AuthResponse::read(&body).unwrap().token != Some(&plain) {
                    return Ok(Refusal::bad_credentials("wrong").answer());
                }
                write::bytes(&mut reported, None);
                Opcode::AuthSuccess
            }
        };
        assert!(matches!(self.version, Version::V4 | Version::V5));
        Ok(answer(opcode, reported.freeze()))
    }
}
