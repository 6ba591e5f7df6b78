//! A plain client before leaders that are slow, gone, or say something else than was expected.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;

use super::Router;
use evenkeel_leadership::{Known, Ways, ended};
use evenkeel_redis_acl::Users;
use evenkeel_runtime::accept::{
    AcceptConfig, Dialer, Link, Listener, Peer, ServeConnection, Stop, Stream, accept,
};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::request::{Limits, RequestParser};
use evenkeel_stores::store::keys::Servers;

/// What a leader does with a command.
enum Does {
    Says(&'static str),
    /// It says this, and ends.
    Ends(String),
    /// It says this and that it has taken no more, and ends.
    HandsOver(&'static str),
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
        let mut last = String::new();
        loop {
            while let Ok(Some(length)) = parser.parse(&inbox) {
                let words: Vec<String> = parser
                    .arguments(&inbox)
                    .iter()
                    .map(|word| String::from_utf8_lossy(word).into_owned())
                    .collect();
                inbox.drain(..length);
                let words = words.join(" ");
                let does = match words.strip_prefix("EK.RELAYED ") {
                    Some(whose) => {
                        last = ended(whose.rsplit(' ').next().unwrap());
                        Does::Says("+OK")
                    }
                    None => {
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
                    Does::HandsOver(text) => {
                        stream.write_all(format!("{text}-{last}\r\n").as_bytes()).await.unwrap();
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
        Self::before(Servers::Plain, rules)
    }

    fn before(servers: Servers, rules: [Option<Rule>; 2]) -> Self {
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
        let (access, door) = (Default::default(), String::new());
        let router = Router { ways, users, access, limits, door, servers };
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
fn leaders_that_end_one_behind_the_other_are_not_asked_for_ever() {
    run(async {
        let mut world = World::begin([rule(|_, _| Does::HandsOver("")), says("+fine")]);
        world.tell(&["INCR b"]).await;
        assert_eq!(world.heard().await, (String::new(), true));
        assert_eq!(world.asked(0).len(), 16);
    });
}

#[test]
fn a_script_that_says_what_a_leader_says_last_is_answered_and_done_once() {
    run(async {
        const SAYS: &str = "-EK.ENDED 0123456789abcdef what was taken is answered, and nothing \
            else is done";
        let mut world = World::begin([says(SAYS), says("+fine")]);
        world.tell(&["EVAL x 1 b", "INCR b"]).await;
        assert_eq!(world.heard().await, (format!("{SAYS} ").repeat(2), false));
        assert_eq!(world.asked(0), ["EVAL x 1 b", "INCR b"]);
    });
}

#[test]
fn what_a_leader_has_not_taken_goes_to_the_next_one() {
    run(async {
        let hands_over = |session, asked: &str| match (session, asked) {
            (0, "INCR b") => Does::HandsOver(""),
            (0, "BLPOP b 0") => Does::HandsOver("-UNAVAILABLE this process ends\r\n"),
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

#[test]
fn who_asks_more_of_a_leader_that_ends_and_alone_knew_it_is_ended() {
    run(async {
        let hands_over = |asked: &str| match asked {
            "INCR b" => Does::HandsOver(""),
            "PING" => Does::Ends(String::new()),
            "SUBSCRIBE c" => Does::Says("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1"),
            _ => Does::Says("+OK"),
        };
        for commands in [&["WATCH b", "INCR b"][..], &["WATCH b", "MULTI", "INCR b"]] {
            let mut world = World::begin([rule(move |_, asked| hands_over(asked)), says("+fine")]);
            world.tell(commands).await;
            let expected = "+OK ".repeat(commands.len() - 1);
            assert_eq!(world.heard().await, (expected, true), "{commands:?}");
            assert_eq!(world.asked(0), commands, "nothing is sent without what it depends on");
        }
        let rules = || rule(move |_, asked| hands_over(asked));
        let mut world = World::begin([rules(), rules()]);
        world.tell(&["SUBSCRIBE c", "PING"]).await;
        let (heard, is_over) = world.heard().await;
        assert!(is_over && heard.ends_with(":1 "), "{heard}");
    });
}

#[test]
fn a_transaction_of_which_a_leader_took_nothing_goes_to_the_next_one() {
    run(async {
        let hands_over = |session, _: &str| match session {
            0 => Does::HandsOver(""),
            _ => Does::Says("+next"),
        };
        let mut world = World::begin([rule(hands_over), says("+fine")]);
        world.tell(&["MULTI", "SET b 1", "EXEC"]).await;
        assert_eq!(world.heard().await, ("+OK +next +next ".to_owned(), false));
        let mut world = World::begin([rule(hands_over), says("+fine")]);
        world.tell(&["MULTI", "SET b 1"]).await;
        assert_eq!(world.heard().await, ("+OK +next ".to_owned(), false), "it is open yet");
        world.tell(&["EXEC"]).await;
        assert_eq!(world.heard().await, ("+next ".to_owned(), false));
    });
}

#[test]
fn who_quits_is_answered_what_it_asked_before() {
    run(async {
        let dies = |session, _: &str| match session {
            0 => Does::Ends(String::new()),
            _ => Does::Says("+again"),
        };
        let mut world = World::begin([rule(dies), says("+fine")]);
        world.tell(&["GET b", "QUIT"]).await;
        assert_eq!(world.heard().await, ("+again +OK ".to_owned(), true));
    });
}

#[test]
fn nothing_is_done_behind_what_may_be_lost() {
    run(async {
        let dies = |session, _: &str| match session {
            0 => Does::Ends(String::new()),
            _ => Does::Says("+done"),
        };
        let mut world = World::begin([rule(dies), rule(|_, _| Does::Hangs)]);
        world.tell(&["GET foo", "INCR b"]).await;
        assert_eq!(world.heard().await, (String::new(), false), "the first is not answered");
        world.tell(&["INCR b"]).await;
        assert_eq!(world.heard().await, (String::new(), false));
        assert_eq!(world.asked(0), ["INCR b"]);
    });
}

#[test]
fn leaders_that_differ_over_a_client_end_it_if_it_watches_or_listens() {
    run(async {
        let told = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1";
        let refuses = |word: &'static str| {
            rule(move |_, asked| match asked {
                "SUBSCRIBE c" => Does::Says(told),
                _ if asked.starts_with(word) => Does::Says("-ERR no"),
                _ => Does::Says("+OK"),
            })
        };
        for first in ["WATCH b", "SUBSCRIBE c", "GET b"] {
            let mut world = World::begin([refuses("nothing"), refuses("SELECT")]);
            world.tell(&["GET foo", first, "SELECT 1", "MULTI", "SET b 1", "EXEC"]).await;
            let (heard, is_over) = world.heard().await;
            assert_eq!(is_over, first != "GET b", "{first}: {heard}");
            assert_eq!(is_over, heard.ends_with("-ERR no "), "{first}: {heard}");
        }
        // What was refused is not said where a session is opened anew.
        let mut world = World::begin([refuses("nothing"), refuses("SELECT")]);
        world.tell(&["GET foo", "SELECT 1", "GET b"]).await;
        assert_eq!(world.heard().await, ("+OK -ERR no +OK ".to_owned(), false));
        assert_eq!(world.asked(0), ["SELECT 1", "GET b"]);
        assert_eq!(*world.leaders[0].as_ref().unwrap().sessions.borrow(), 2);
    });
}

#[test]
fn who_is_refused_by_hello_has_no_session_of_another_user() {
    run(async {
        let refuses = || {
            rule(|session, asked| match (session, asked.starts_with("HELLO")) {
                (_, true) => Does::Says("-ERR Syntax error in HELLO option 'x'"),
                (0, false) => Does::Says("+as another"),
                _ => Does::Says("+as before"),
            })
        };
        let mut world = World::begin([refuses(), refuses()]);
        world.tell(&["HELLO 3 AUTH default pw x", "GET b"]).await;
        let (heard, is_over) = world.heard().await;
        assert!(!is_over && heard.ends_with("+as before "), "{heard}");
        let mut world = World::begin([refuses(), refuses()]);
        world.tell(&["WATCH b", "HELLO 3 AUTH default pw x", "GET b"]).await;
        let (heard, is_over) = world.heard().await;
        assert!(is_over && !heard.contains("before"), "{heard}");
    });
}

#[test]
fn channels_that_are_refused_are_not_listened_to() {
    run(async {
        let refuses = || {
            rule(|_, asked| match asked {
                "SUBSCRIBE a c" => Does::Says("-NOPERM no"),
                _ => Does::Says("*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0"),
            })
        };
        let mut world = World::begin([refuses(), refuses()]);
        world.tell(&["SUBSCRIBE a c", "UNSUBSCRIBE", "PING"]).await;
        let expected = "-NOPERM no *3 $11 unsubscribe $-1 :0 +PONG ".to_owned();
        assert_eq!(world.heard().await, (expected, false));
    });
}

#[test]
fn who_listens_and_waits_hears_messages_at_once() {
    run(async {
        let leader = || {
            rule(|_, asked| match asked {
                "SUBSCRIBE c" => Does::Says(">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1"),
                "BLPOP b 0" => Does::Says(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx"),
                _ => Does::Says("+OK"),
            })
        };
        let mut world = World::begin([leader(), leader()]);
        world.tell(&["HELLO 3", "SUBSCRIBE c", "BLPOP b 0"]).await;
        let (heard, is_over) = world.heard().await;
        assert!(!is_over && heard.ends_with(">3 $7 message $1 c $1 x "), "{heard}");
    });
}

#[test]
fn a_flood_of_messages_hides_no_answer_of_another_group() {
    run(async {
        let flood = || {
            let text = "x".repeat(10_000);
            let message = format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$10000\r\n{text}\r\n");
            let told = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
            let all = format!("{told}{}x", message.repeat(200));
            &*all[..all.len() - 3].to_owned().leak() // each answer gets its last line end
        };
        let told = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1";
        let mut world = World::begin([None, rule(move |_, _| Does::Says(flood()))]);
        let (other, here) = (World::begin([says(told), None]), world.here.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_secs(3)).await; // after the flood
            here.send_modify(|here| here[0] = other.here.borrow()[0].clone());
            std::future::pending::<()>().await; // it stays
        });
        world.tell(&["SUBSCRIBE c"]).await;
        let (heard, is_over) = world.heard().await;
        assert!(!is_over && heard.starts_with("*3 $9 subscribe"), "{heard:.60}");
        assert_eq!(heard.matches("message").count(), 200);
    });
}

#[test]
fn a_spoiled_transaction_needs_no_right_to_discard_it() {
    run(async {
        let leader = rule(|_, asked| match asked {
            "EXEC" => Does::Says("-EXECABORT said by the leader"),
            "DISCARD" => Does::Says("-NOPERM no"),
            "GET" => Does::Says("-ERR wrong number of arguments for 'get' command"),
            _ => Does::Says("+OK"),
        });
        let mut world = World::begin([leader, says("+fine")]);
        world.tell(&["MULTI", "SET b 1", "SET foo 1", "EXEC", "GET b"]).await;
        let (heard, is_over) = world.heard().await;
        assert!(heard.starts_with("+OK +OK -CROSSSLOT") && !is_over, "{heard}");
        assert!(heard.ends_with("-EXECABORT said by the leader +OK "), "{heard}");
        assert_eq!(world.asked(0), ["MULTI", "SET b 1", "GET", "EXEC", "GET b"]);
    });
}

/// One group would do its part, and the other one refuse its own.
#[test]
fn keys_of_several_groups_of_nodes_are_refused_and_nothing_of_it_is_done() {
    run(async {
        let crossing = "-CROSSSLOT Keys in request don't hash to the same slot";
        for (servers, expected) in [(Servers::Plain, "+OK"), (Servers::Nodes, crossing)] {
            let mut world = World::before(servers, [says("+OK"), says("+OK")]);
            world.tell(&["MSET b 1 foo 2", "GET b"]).await;
            let (heard, _) = world.heard().await;
            assert!(heard.starts_with(expected), "{heard}");
            let is_done = world.asked(0).iter().any(|it| it.starts_with("MSET"));
            assert_eq!(is_done, servers == Servers::Plain);
        }
    });
}

#[test]
fn what_each_group_shows_of_itself_is_refused() {
    run(async {
        let mut world = World::begin([says("+a line"), says("+a line")]);
        for commands in [&["MONITOR"][..], &["MULTI", "SET b 1", "MONITOR", "DISCARD"]] {
            world.tell(commands).await;
            let (heard, _) = world.heard().await;
            assert!(heard.contains("-ERR MONITOR shows what one group"), "{heard}");
        }
        assert!(!world.asked(0).contains(&"MONITOR".to_owned()));
    });
}

#[test]
fn what_a_client_keeps_is_tracked_at_the_doors_of_groups_alone() {
    run(async {
        let mut world = World::begin([says("+fine"), says("+fine")]);
        for command in ["CLIENT TRACKING ON", "CLIENT CACHING YES"] {
            for commands in [&[command][..], &["MULTI", "SET b 1", command, "DISCARD"]] {
                world.tell(commands).await;
                let (heard, _) = world.heard().await;
                assert!(heard.contains("-ERR a service of several groups"), "{heard}");
            }
        }
        assert!(!world.asked(0).iter().any(|it| it.starts_with("CLIENT")));
    });
}
