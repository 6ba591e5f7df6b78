//! A plain client before leaders that are slow, gone, or say something else than was expected.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;

use super::Router;
use evenkeel_leadership::{ENDED, Known, Ways};
use evenkeel_redis_acl::Users;
use evenkeel_runtime::accept::{
    AcceptConfig, Dialer, Link, Listener, Peer, ServeConnection, Stop, Stream, accept,
};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::request::{Limits, RequestParser};

/// What a leader does with a command.
enum Does {
    Says(&'static str),
    /// It says this, and ends.
    Ends(String),
    /// Nothing, for ever.
    Hangs,
}

type Rule = Box<dyn Fn(usize, &str) -> Does>;

/// A leader, by which session it is asked and what; what it was asked.
struct Leader {
    rule: Rule,
    asked: RefCell<Vec<String>>,
    sessions: RefCell<usize>,
}

impl ServeConnection for Leader {
    async fn serve(self: Rc<Self>, mut stream: Stream, _: Peer, _: Rc<Link>) {
        let session = self.sessions.replace_with(|count| *count + 1);
        let (mut parser, mut inbox) = (RequestParser::default(), Vec::new());
        loop {
            while let Ok(Some(length)) = parser.parse(&inbox) {
                let words: Vec<String> = parser
                    .arguments(&inbox)
                    .iter()
                    .map(|word| String::from_utf8_lossy(word).into_owned())
                    .collect();
                inbox.drain(..length);
                let words = words.join(" ");
                let does = match words.starts_with("EK.RELAYED") {
                    true => Does::Says("+OK"),
                    false => {
                        self.asked.borrow_mut().push(words.clone());
                        (self.rule)(session, &words)
                    }
                };
                match does {
                    Does::Says(text) => {
                        stream.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
                    }
                    Does::Ends(text) => {
                        stream.write_all(text.as_bytes()).await.unwrap();
                        return;
                    }
                    Does::Hangs => {}
                }
            }
            if stream.read_buf(&mut inbox).await.unwrap_or(0) == 0 {
                return;
            }
        }
    }
}

/// A client of a service of two groups, each led in this process where it has a rule.
struct World {
    leaders: Vec<Option<Rc<Leader>>>,
    here: watch::Sender<Vec<Option<Dialer>>>,
    client: DuplexStream,
    _known: watch::Sender<Known>,
    _stop: Stop,
}

impl World {
    fn begin(rules: [Option<Rule>; 2]) -> Self {
        let (stop, accepting) = (Stop::new(), || AcceptConfig::unlimited().fixed());
        let (known, here) = (watch::Sender::new(Known::nothing(2)), watch::Sender::new(vec![]));
        let leaders = rules.map(|rule| {
            let (listener, dialer) = Listener::memory();
            let is_led = rule.is_some();
            here.send_modify(|here| here.push(is_led.then_some(dialer)));
            let rule = rule?;
            let leader = Rc::new(Leader { rule, asked: RefCell::default(), sessions: 0.into() });
            let serving = accept(listener, accepting(), Rc::clone(&leader), stop.signal());
            tokio::task::spawn_local(serving);
            Some(leader)
        });
        let ways = Ways {
            service: "cart".to_owned(),
            known: known.subscribe(),
            here: here.subscribe(),
            own: vec![None; 2],
            tls: None,
            relays: true,
            hold: Duration::from_secs(4),
        };
        let users = Arc::new(watch::Sender::new(Arc::new(Users::alone(None))));
        let limits = Limits::default();
        let router =
            Router { ways, users, access: Default::default(), limits, door: String::new() };
        let (listener, dialer) = Listener::memory();
        tokio::task::spawn_local(accept(listener, accepting(), Rc::new(router), stop.signal()));
        let client = dialer.connect().unwrap();
        Self { leaders: leaders.into(), here, client, _known: known, _stop: stop }
    }

    async fn tell(&mut self, commands: &[&str]) {
        for command in commands {
            let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            let mut bytes = Vec::new();
            encode::command(&mut bytes, &words);
            self.client.write_all(&bytes).await.unwrap();
        }
    }

    /// All that is said until nothing more comes, and whether the connection has ended.
    async fn heard(&mut self) -> (String, bool) {
        let (mut bytes, mut is_over) = (Vec::new(), false);
        let reading = async {
            while self.client.read_buf(&mut bytes).await.unwrap_or(0) > 0 {}
            is_over = true;
        };
        let _ = tokio::time::timeout(Duration::from_secs(60), reading).await;
        (String::from_utf8(bytes).unwrap().replace("\r\n", " "), is_over)
    }

    fn asked(&self, group: usize) -> Vec<String> {
        self.leaders[group].as_ref().map(|it| it.asked.borrow().clone()).unwrap_or_default()
    }
}

fn rule(does: impl Fn(usize, &str) -> Does + 'static) -> Option<Rule> {
    Some(Box::new(does))
}

fn says(text: &'static str) -> Option<Rule> {
    rule(move |_, _| Does::Says(text))
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(Default::default());
    runtime.unwrap().block_on(test);
}

// `b` has a slot of the first half, `foo` one of the second.

#[test]
fn answers_come_in_the_order_of_the_commands_whoever_is_slow() {
    run(async {
        let slow =
            rule(|_, asked| if asked == "GET b" { Does::Hangs } else { Does::Says("+late") });
        let mut world = World::begin([slow, says("+other")]);
        world.tell(&["GET b", "GET foo", "PING"]).await;
        assert_eq!(world.heard().await, (String::new(), false), "the first is not answered");
        world.tell(&["SET b 1"]).await; // one answer comes, which is that of the first
        assert_eq!(world.heard().await, ("+late +other +PONG ".to_owned(), false));
    });
}

#[test]
fn what_may_be_done_is_not_sent_again_but_reads_are() {
    run(async {
        let dies = |session, _: &str| match session {
            0 => Does::Ends(String::new()),
            _ => Does::Says("+again"),
        };
        let mut world = World::begin([rule(dies), says("+fine")]);
        world.tell(&["GET b"]).await;
        assert_eq!(world.heard().await, ("+again ".to_owned(), false));
        assert_eq!(world.asked(0), ["GET b", "GET b"]);
        let mut world = World::begin([rule(dies), says("+fine")]);
        world.tell(&["GET foo", "INCR b", "GET foo"]).await;
        assert_eq!(world.heard().await, ("+fine ".to_owned(), true), "it ends as where it dies");
        assert_eq!(world.asked(0), ["INCR b"], "nobody does it twice");
    });
}

#[test]
fn a_read_whose_leader_dies_by_it_is_not_sent_for_ever() {
    run(async {
        let mut world = World::begin([rule(|_, _| Does::Ends(String::new())), says("+fine")]);
        world.tell(&["GET b"]).await;
        assert_eq!(world.heard().await, (String::new(), true));
        assert_eq!(world.asked(0).len(), 3);
    });
}

#[test]
fn a_script_that_says_what_a_leader_says_last_is_not_sent_for_ever() {
    run(async {
        let ended = rule(|_, _| Does::Ends(format!("-{ENDED}\r\n")));
        let mut world = World::begin([ended, says("+fine")]);
        world.tell(&["EVAL x 1 b"]).await;
        assert_eq!(world.heard().await, (String::new(), true));
        assert_eq!(world.asked(0).len(), 16);
    });
}

#[test]
fn what_a_leader_has_not_taken_goes_to_the_next_one() {
    run(async {
        let hands_over = |session, asked: &str| match (session, asked) {
            (0, "INCR b") => Does::Ends(format!("-{ENDED}\r\n")),
            (0, "BLPOP b 0") => {
                Does::Ends(format!("-UNAVAILABLE this process ends\r\n-{ENDED}\r\n"))
            }
            _ => Does::Says("+next"),
        };
        for asked in ["INCR b", "BLPOP b 0"] {
            let mut world = World::begin([rule(hands_over), says("+fine")]);
            world.tell(&[asked]).await;
            assert_eq!(world.heard().await, ("+next ".to_owned(), false), "{asked}");
            assert_eq!(world.asked(0), [asked, asked]);
        }
    });
}

#[test]
fn what_only_a_lost_leader_knew_ends_the_client() {
    run(async {
        for commands in [&["WATCH b"][..], &["WATCH b", "MULTI"], &["MULTI", "SET b 1"]] {
            let last = commands.last().copied().unwrap().to_owned();
            let dies = rule(move |_, asked| match asked == last {
                true => Does::Ends("+OK\r\n".to_owned()),
                false => Does::Says("+OK"),
            });
            let mut world = World::begin([dies, says("+fine")]);
            world.tell(commands).await;
            let expected = "+OK ".repeat(commands.len());
            assert_eq!(world.heard().await, (expected, true), "{commands:?}");
        }
    });
}

#[test]
fn who_listens_and_loses_a_group_is_ended_and_hears_each_message_once() {
    run(async {
        let told = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
        let message = "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n";
        let first = rule(move |_, _| Does::Ends(format!("{told}{message}")));
        let mut world = World::begin([first, says("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1")]);
        world.tell(&["SUBSCRIBE c"]).await;
        let (heard, is_over) = world.heard().await;
        assert_eq!(heard.matches("message").count(), 1);
        assert!(is_over && heard.matches("subscribe").count() <= 1, "{heard}");
    });
}

#[test]
fn a_group_that_nobody_leads_is_waited_for_and_then_told() {
    run(async {
        let mut world = World::begin([None, says("+fine")]);
        world.tell(&["GET foo", "INCR b", "GET foo"]).await;
        let (heard, is_over) = world.heard().await;
        let nobody = "-UNAVAILABLE group 0 of 2 of cart: nobody is known to lead it ";
        assert_eq!((heard, is_over), (format!("+fine {nobody}+fine "), false));
        // Somebody leads before the time is up.
        let mut world = World::begin([None, says("+fine")]);
        let (other, here) = (World::begin([says("+led"), None]), world.here.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            here.send_modify(|here| here[0] = other.here.borrow()[0].clone());
            std::future::pending::<()>().await; // it stays
        });
        world.tell(&["INCR b"]).await;
        assert_eq!(world.heard().await, ("+led ".to_owned(), false));
    });
}

#[test]
fn a_leader_that_refuses_the_user_is_heard() {
    run(async {
        let first = rule(|_, asked| match asked {
            "AUTH default secret" => Does::Says("+OK"),
            _ => Does::Says("+fine"),
        });
        let second = rule(|_, asked| match asked {
            "AUTH default secret" => Does::Says("-WRONGPASS no"),
            _ => Does::Says("+done in nobody's name"),
        });
        let mut world = World::begin([first, second]);
        world.tell(&["AUTH default secret", "GET b", "INCR foo"]).await;
        assert_eq!(world.heard().await, ("+OK +fine -WRONGPASS no ".to_owned(), true));
        assert_eq!(world.asked(1), ["AUTH default secret"]);
    });
}
