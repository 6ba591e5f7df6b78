//! In what two of them differ, and which of that is known.

use std::collections::BTreeMap;

use evenkeel_testkit::corpus::Case;

use super::message::{Framing, Message};

/// What came of a case.
#[derive(Debug)]
pub(super) struct Observed {
    /// The whole requests that the origin got.
    pub(super) told: Vec<Message>,
    pub(super) answers: Vec<Message>,
    /// Bytes behind the answers that are none.
    pub(super) rest: usize,
    /// Whether the client had to give up.
    pub(super) waited: bool,
}

fn is_sentinel(request: &Message) -> bool {
    request.word(1) == "/sentinel"
}

impl Observed {
    /// Requests of the case.
    fn requests(&self) -> Vec<&Message> {
        self.told.iter().filter(|request| !is_sentinel(request)).collect()
    }

    /// Whether the connection was good for one more request.
    fn is_kept(&self) -> bool {
        self.told.iter().any(is_sentinel)
    }

    /// Answers to the case, but those that only inform.
    fn finals(&self) -> Vec<&Message> {
        let is_final = |answer: &&Message| !answer.word(1).starts_with('1') || is_switched(answer);
        let mut finals: Vec<_> = self.answers.iter().filter(is_final).collect();
        finals.pop_if(|answer| answer.body == b"GET /sentinel");
        finals
    }

    fn informs(&self) -> usize {
        let is_bare = |answer: &&Message| answer.word(1).starts_with('1') && !is_switched(answer);
        self.answers.iter().filter(is_bare).count()
    }

    /// Whether the first answer is one of the replica, as a whole.
    fn is_answered(&self) -> bool {
        let finals = self.finals();
        let is_of_replica = |answer: &&Message| !["400", "501", "502"].contains(&answer.word(1));
        finals.first().is_some_and(|answer| answer.is_whole && is_of_replica(answer))
    }

    /// On one line.
    fn show(&self) -> String {
        let request = |it: &Message| format!("{} {} {}", it.word(0), it.word(1), shown(it));
        let answer = |it: &Message| format!("{} {}", it.word(1), shown(it));
        let requests: Vec<_> = self.told.iter().map(request).collect();
        let answers: Vec<_> = self.answers.iter().map(answer).collect();
        let (rest, waited) = (self.rest, self.waited);
        format!("{requests:.200?} -> {answers:.200?} rest {rest} waited {waited}")
    }
}

fn is_switched(answer: &Message) -> bool {
    answer.word(1) == "101"
}

/// What a client makes of it: an error, whoever's, and a body that breaks off are the same.
fn class(answer: &Message) -> Option<char> {
    let class = answer.word(1).chars().next();
    class.map(|class| if answer.is_whole && class < '4' { class } else { 'x' })
}

fn shown(message: &Message) -> String {
    let body = String::from_utf8_lossy(&message.body).into_owned();
    let (whole, trailers) = (if message.is_whole { "" } else { " broken" }, &message.trailers);
    format!("{:?} {body:.40?} {trailers:.40?}{whole}", message.framing)
}

type Differs = fn(&Message, &Message) -> bool;

/// In what these differ, in words: how the first one is, beside the second.
fn words(native: &Observed, other: &Observed) -> Vec<&'static str> {
    let mut words = Vec::new();
    let (ours, theirs) = (native.requests(), other.requests());
    match ours.len().cmp(&theirs.len()) {
        std::cmp::Ordering::Less => words.push("fewer"),
        std::cmp::Ordering::Greater => words.push("more"),
        std::cmp::Ordering::Equal => {}
    }
    let any =
        |differs: Differs| ours.iter().zip(&theirs).any(|(ours, theirs)| differs(ours, theirs));
    let is_framed = |it: &Message| !matches!(it.framing, Framing::None | Framing::Length(0));
    let told: [(&str, Differs); 5] = [
        ("method", |ours, theirs| ours.word(0) != theirs.word(0)),
        ("target", |ours, theirs| ours.word(1) != theirs.word(1)),
        ("framing", |ours, theirs| {
            std::mem::discriminant(&ours.framing) != std::mem::discriminant(&theirs.framing)
        }),
        ("body", |ours, theirs| ours.body != theirs.body),
        ("trailers", |ours, theirs| ours.trailers != theirs.trailers),
    ];
    let is_bodiless = any(|ours, theirs| ours.body.is_empty() && theirs.body.is_empty());
    for (word, differs) in told {
        let is_nothing = word == "framing"
            && is_bodiless
            && !ours.iter().chain(&theirs).any(|request| is_framed(request));
        if any(differs) && !is_nothing {
            words.push(word);
        }
    }
    match (native.is_kept(), other.is_kept()) {
        (true, false) => words.push("keeps"),
        (false, true) => words.push("closes"),
        _ => {}
    }
    words.extend(answer_words(native, other));
    words
}

fn answer_words(native: &Observed, other: &Observed) -> Vec<&'static str> {
    let mut words = Vec::new();
    let (ours, theirs) = (native.finals(), other.finals());
    let classes = |answers: &[&Message]| -> Vec<_> { answers.iter().map(|it| class(it)).collect() };
    if classes(&ours) != classes(&theirs) {
        words.push("answers");
    } else {
        let of_replica = |it: &&&Message| class(it) != Some('x');
        let pairs: Vec<_> = ours.iter().zip(&theirs).filter(|it| of_replica(&it.0)).collect();
        if pairs.iter().any(|(ours, theirs)| ours.body != theirs.body) {
            words.push("answer-body");
        }
        let kind = |it: &Message| std::mem::discriminant(&it.framing);
        if pairs.iter().any(|(ours, theirs)| kind(ours) != kind(theirs)) {
            words.push("answer-framing");
        }
        if pairs.iter().any(|(ours, theirs)| ours.trailers != theirs.trailers) {
            words.push("answer-trailers");
        }
    }
    if native.informs() != other.informs() {
        words.push("informs");
    }
    words
}

/// A difference that is known: of a case, with one of them.
type Known<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

/// `KIND/CASE PEER WORDS: REASON` on lines of their own, and `reason NAME words`. Of what is not
/// always the same the WORDS are alternatives with `|` between them, `-` for none.
fn known(text: &str) -> Known<'_> {
    let reasons = text.lines().filter_map(|line| line.strip_prefix("reason "));
    let reasons: Vec<_> = reasons.filter_map(|it| Some(it.split_once(' ')?.0)).collect();
    let mut known = Known::new();
    for line in text.lines().filter(|line| line.contains('/') && !line.starts_with("reason ")) {
        if line.starts_with('#') {
            continue;
        }
        let (said, reason) = line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}"));
        assert!(reasons.contains(&reason), "an unknown reason: {line}");
        let (case, said) = said.split_once(' ').unwrap_or_else(|| panic!("no peer: {line}"));
        let (peer, words) = said.split_once(' ').unwrap_or_else(|| panic!("no words: {line}"));
        assert!(known.insert((case, peer), words).is_none(), "twice: {line}");
    }
    known
}

/// Compares all with the first of them.
pub(super) fn judge(kind: &str, cases: &[Case], all: &[(&str, Vec<Observed>)]) {
    let known = known(include_str!("differences.txt"));
    let shown = std::env::var("PEERS_SHOW").ok();
    let ((_, native), others) = all.split_first().expect("there is one");
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let name = format!("{kind}/{}", case.name);
        if shown.as_ref().is_some_and(|part| name.contains(part)) {
            println!("{name} {}", case.words);
            all.iter().for_each(|(who, of)| println!("  {who}: {}", of[at].show()));
        }
        // Whether a client that writes nothing more is still served depends on who looks first.
        let is_race = kind == "requests" && case.closes;
        for (who, of) in others.iter().filter(|_| !is_race) {
            let (said, is_known) = (words(&native[at], &of[at]).join(" "), (&*name, *who));
            let expected = known.get(&is_known).copied().unwrap_or("-");
            let said = if said.is_empty() { "-" } else { &said };
            if !expected.split(" | ").any(|expected| expected == said) {
                wrong.push(format!("{name} {who} {said}\t(expected {expected:?})"));
            }
        }
        wrong.extend(broken_rule(&name, &native[at], others, at));
    }
    let names = || cases.iter().map(|case| format!("{kind}/{}", case.name));
    let is_stale = |case: &&str| case.starts_with(kind) && !names().any(|name| name == **case);
    wrong.extend(known.keys().map(|(case, _)| *case).filter(is_stale).map(str::to_owned));
    let count = wrong.len();
    assert!(wrong.is_empty(), "{count} of {}:\n{}", cases.len(), wrong.join("\n"));
}

/// Cases of which only `native` lets something pass, with their bytes.
pub(super) fn broken_rules(
    kind: &str,
    cases: &[Case],
    all: &[(&str, Vec<Observed>)],
) -> Vec<String> {
    let ((_, native), others) = all.split_first().expect("there is one");
    let wrong = cases.iter().enumerate().filter_map(|(at, case)| {
        let why = broken_rule(&format!("{kind}/{}", case.name), &native[at], others, at)?;
        Some(format!("{why}: {}", case.pieces.concat().escape_ascii()))
    });
    wrong.collect()
}

/// Whether only `native` lets something pass.
fn broken_rule(
    name: &str,
    native: &Observed,
    others: &[(&str, Vec<Observed>)],
    at: usize,
) -> Option<String> {
    let peers: Vec<_> = others.iter().filter(|(who, _)| *who != "hyper").collect();
    let [_, _] = peers[..] else { return None }; // one is not installed
    let most = peers.iter().map(|(_, of)| of[at].requests().len()).max();
    if most < Some(native.requests().len()) {
        return Some(format!("{name}: the origin got a request that no other passed on"));
    }
    let is_alone = peers.iter().all(|(_, of)| !of[at].is_answered());
    (name.starts_with("responses/") && native.is_answered() && is_alone)
        .then(|| format!("{name}: the client got an answer that no other passed on"))
}
