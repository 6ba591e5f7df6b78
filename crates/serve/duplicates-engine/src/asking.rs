//! Questions about servers and not about keys: `INFO`, `COMMAND`, `CONFIG`, `SLOWLOG`, …
//!
//! One live duplicate is asked, or one of each partition, or all, past the writes that wait: on the
//! free connection. Who is lost before it answers is replaced by another of its partition. Nobody
//! waits for one that stands still: after [`PATIENCE`] the client is told what is known until then,
//! from our own table and counters where nobody has answered. What a duplicate answers here is
//! never a reason to drop it: it may forbid such questions.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_ordered::{ConnectionKind, ServerSet};
use tokio::sync::Notify;

use super::Inner;
use super::clients::Transaction;
use super::newer::Newer;
use super::types::{ClientId, Form, Owed, OwnSettings, ParsedCommand};
use evenkeel_duplicates_config::Connector;
use evenkeel_stores::resp::commands::described::{self, Described};
use evenkeel_stores::resp::reply::Shape;
use evenkeel_stores::resp::{encode, functions, settings};

/// When Redis says at the latest that it is busy with a script (`busy-reply-threshold`), and a
/// second.
pub const BUSY_WITHIN: Duration = Duration::from_secs(6);

/// One question to one duplicate.
#[derive(Debug)]
pub struct Aside {
    /// Which question, which part of it, and who is asked.
    pub question: (u64, usize, usize),
    /// The command.
    pub words: Vec<Vec<u8>>,
}

/// How long a client waits for what duplicates say of themselves.
const PATIENCE: Duration = Duration::from_secs(1);
const NOBODY: &str = "UNAVAILABLE no duplicate has answered; ask again";

/// Those that are on their way, by number.
#[derive(Debug, Default)]
pub(super) struct Questions {
    last: u64,
    open: BTreeMap<u64, Question>,
    /// Transactions of which all is known that was asked: each gets its place between two turns,
    /// and not within another write, which may have been what ended its question.
    pub(super) ready: VecDeque<(ClientId, Box<Transaction>)>,
    /// What `COMMAND` was answered last, cut; until a duplicate is live anew.
    described: BTreeMap<u8, Vec<u8>>,
    /// What was set by `CONFIG SET`: for duplicates that come back.
    pub(super) settings: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What duplicates have beyond our table.
    pub(super) newer: Newer,
    /// What is to be asked on connections of its own.
    asides: Vec<Aside>,
    wants_asides: Rc<Notify>,
    /// What was set of this process.
    pub(super) own: OwnSettings,
}

/// One question.
#[derive(Debug)]
struct Question {
    client: ClientId,
    place: Place,
    purpose: Purpose,
    command: Vec<u8>,
    parts: Vec<Part>,
    asked: Instant,
}

/// What one duplicate is asked.
#[derive(Debug)]
struct Part {
    partition: usize,
    /// Who is asked; `None` when it has answered, or nobody can.
    server: Option<usize>,
    answer: Option<(usize, Vec<u8>)>,
}

/// Where the answer goes.
#[derive(Debug, Clone, Copy)]
enum Place {
    Slot(u64),
    /// The answer to this command of a transaction.
    Transaction(usize),
}

/// What becomes of the answers.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The first of them is the client's.
    Plain,
    /// `COMMAND`, of these names.
    Described(Described, Vec<Vec<u8>>),
    /// `INFO`, of these sections.
    Info(Vec<String>),
    /// `CONFIG GET`
    Shown,
    /// `CONFIG SET` and what else is done at all.
    Set(Vec<(Vec<u8>, Vec<u8>)>),
    /// What is asked on connections of its own: the answer that says most.
    Aside,
    /// `COMMAND`, for nobody: which commands all have beyond our table.
    Newer,
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    One,
    /// One of each partition.
    EachPartition,
    All,
    /// Also those that are away.
    Configured,
}

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// What was cut from the answer to `COMMAND` is not all any more.
    pub(super) fn forget_described(&mut self) {
        self.described.clear();
    }
}

impl Inner {
    /// Whether the duplicates are servers of Redis, or what does as they do.
    pub fn is_redis(&self) -> bool {
        matches!(self.connectors.first(), Some(Connector::Tcp { .. }))
    }

    /// Has one duplicate answer a command as it came.
    pub(super) fn ask_one(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        self.put_question(id, Whom::One, Purpose::Plain, parsed.to_vec());
    }

    /// Asks a command for a client.
    pub(super) fn put_question(
        &mut self,
        id: ClientId,
        whom: Whom,
        purpose: Purpose,
        command: Vec<u8>,
    ) {
        let place = match self.client(id).and_then(|client| client.captured.as_mut()) {
            Some(captured) => {
                captured.is_waiting = true;
                Place::Transaction(captured.index)
            }
            None => Place::Slot(self.slot(id)),
        };
        let asked = self.now;
        let parts = self.parts(whom);
        self.questions.last += 1;
        let number = self.questions.last;
        let question = Question { client: id, place, purpose, command, parts, asked };
        self.questions.open.insert(number, question);
        self.send_parts(number);
        self.end_if_answered(number);
    }

    fn parts(&self, whom: Whom) -> Vec<Part> {
        let part = |partition, server| Part { partition, server, answer: None };
        let partitions = (0..self.members.partitions())
            .filter(|&partition| !self.members.configured(partition).is_empty());
        match whom {
            Whom::All => partitions
                .flat_map(|it| self.askable(it).iter().map(move |server| (it, Some(server))))
                .map(|(partition, server)| part(partition, server))
                .collect(),
            Whom::Configured => partitions
                .flat_map(|it| self.members.configured(it).iter().map(move |server| (it, server)))
                .map(|(partition, server)| part(partition, Some(server)))
                .collect(),
            Whom::EachPartition => partitions.map(|it| part(it, self.quickest(it))).collect(),
            Whom::One => {
                let mut found = partitions.map(|it| (it, self.quickest(it)));
                let found = found.find(|(_, server)| server.is_some());
                found.map(|(partition, server)| part(partition, server)).into_iter().collect()
            }
        }
    }

    /// The live duplicate of a partition that owes least, one that says something if possible.
    fn quickest(&self, partition: usize) -> Option<usize> {
        let live = self.askable(partition);
        let speaking = live.without(self.silent);
        let among = if speaking.is_empty() { live } else { speaking };
        among.iter().min_by_key(|&server| self.members.owed(server))
    }

    /// Those that do not owe as much as they may: whoever asks much has nobody dropped for it.
    fn askable(&self, partition: usize) -> ServerSet {
        let live = self.members.live(partition);
        live.iter().filter(|&server| !self.members.is_full(server)).collect()
    }

    fn send_parts(&mut self, number: u64) {
        let Some(question) = self.questions.open.get(&number) else { return };
        let parts = question.parts.iter().enumerate();
        let to: Vec<_> = parts.filter_map(|(part, it)| Some((part, it.server?))).collect();
        if matches!(question.purpose, Purpose::Aside) {
            let words = words_of(&question.command);
            let aside =
                |(part, server)| Aside { question: (number, part, server), words: words.clone() };
            self.questions.asides.extend(to.into_iter().map(aside));
            return self.questions.wants_asides.notify_one();
        }
        to.into_iter().for_each(|(part, server)| self.send_question(number, part, server));
    }

    fn send_question(&mut self, question: u64, part: usize, server: usize) {
        let Some(command) = self.questions.open.get(&question).map(|it| &it.command) else {
            return;
        };
        let connection = self.servers[server].connection(ConnectionKind::Free);
        connection.pending.extend_from_slice(command);
        connection.owe(Owed::Asked { question, part });
        self.members.sent(self.now, server, None);
        self.schedule();
    }

    /// A duplicate answered.
    pub(super) fn question_answered(
        &mut self,
        server: usize,
        (number, part): (u64, usize),
        reply: &[u8],
    ) {
        self.members.answered(self.now, server, None);
        let question = self.questions.open.get_mut(&number);
        let Some(part) = question.and_then(|it| it.parts.get_mut(part)) else { return };
        part.server = None;
        part.answer = Some((server, reply.to_vec()));
        self.end_if_answered(number);
    }

    /// Has all duplicates asked on connections of their own: one that is away may be so for the
    /// script that is to be ended.
    pub(super) fn ask_aside(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        self.put_question(id, Whom::Configured, Purpose::Aside, parsed.to_vec());
    }

    /// Who is told when there is something to ask there.
    pub fn asides_wanted(&self) -> Rc<Notify> {
        Rc::clone(&self.questions.wants_asides)
    }

    /// What nobody has asked yet.
    pub fn take_asides(&mut self) -> Vec<Aside> {
        std::mem::take(&mut self.questions.asides)
    }

    /// A duplicate answered there; none where it cannot.
    pub fn aside_answered(
        &mut self,
        (number, part): (u64, usize),
        server: usize,
        reply: Option<Vec<u8>>,
    ) {
        let question = self.questions.open.get_mut(&number);
        let Some(part) = question.and_then(|it| it.parts.get_mut(part)) else { return };
        let says_all = reply.as_ref().is_some_and(|it| functions::rank(it) == 0);
        part.server = None;
        part.answer = reply.map(|reply| (server, reply));
        match says_all {
            true => self.end_question(number), // nobody waits for the others
            false => self.end_if_answered(number),
        }
    }

    /// A duplicate is gone: another is asked, unless all were.
    pub(super) fn question_lost(&mut self, number: u64, index: usize) {
        let Some(question) = self.questions.open.get(&number) else { return };
        let is_for_one = !matches!(question.purpose, Purpose::Set(_) | Purpose::Newer);
        let partition = question.parts[index].partition;
        let other = if is_for_one { self.quickest(partition) } else { None };
        if let Some(question) = self.questions.open.get_mut(&number) {
            question.parts[index].server = other;
        }
        match other {
            Some(server) => self.send_question(number, index, server),
            None => self.end_if_answered(number),
        }
    }

    fn end_if_answered(&mut self, number: u64) {
        let question = self.questions.open.get(&number);
        if question.is_some_and(|it| it.parts.iter().all(|part| part.server.is_none())) {
            self.end_question(number);
        }
    }

    /// Tells clients what is known by now who have waited for long.
    pub(super) fn end_late_questions(&mut self) {
        let is_late = |it: &Question| {
            let is_aside = matches!(it.purpose, Purpose::Aside);
            self.now.since(it.asked) >= if is_aside { BUSY_WITHIN + PATIENCE } else { PATIENCE }
        };
        let open = self.questions.open.iter();
        let late: Vec<u64> =
            open.filter(|(_, it)| is_late(it)).map(|(&number, _)| number).collect();
        late.into_iter().for_each(|number| self.end_question(number));
    }

    fn end_question(&mut self, number: u64) {
        let Some(question) = self.questions.open.remove(&number) else { return };
        let answers = question.parts.into_iter().filter_map(|part| part.answer);
        let answers: Vec<(usize, Vec<u8>)> = answers.collect();
        if matches!(question.purpose, Purpose::Newer) {
            return self.newer_told(&answers);
        }
        let (answer, shape) = self.answer_of(question.client, question.purpose, &answers);
        match question.place {
            Place::Slot(slot) => self.reply(question.client, slot, &answer, &Form::One(shape)),
            Place::Transaction(index) => {
                self.answered_of_transaction(question.client, index, answer);
            }
        }
    }

    /// The answer to a client, in RESP3.
    fn answer_of(
        &mut self,
        id: ClientId,
        purpose: Purpose,
        answers: &[(usize, Vec<u8>)],
    ) -> (Vec<u8>, Shape) {
        let first = answers.first().map(|(_, reply)| reply.as_slice());
        let good = first.filter(|reply| !is_error(reply));
        let mut out = Vec::new();
        match purpose {
            Purpose::Plain | Purpose::Newer => {}
            Purpose::Aside => {
                let said = answers.iter().min_by_key(|(_, reply)| functions::rank(reply));
                if let Some((_, reply)) = said {
                    return (reply.clone(), Shape::Plain);
                }
            }
            Purpose::Described(what, names) => {
                match good.filter(|reply| is_aggregate(reply)) {
                    Some(reply) => {
                        let newer = |name: &[u8]| self.questions.newer.is_taken(name);
                        described::cut(reply, what, newer, &mut out);
                    }
                    // In its words: what was asked for cannot be asked.
                    None if what == Described::Names && first.is_some_and(is_refusal) => {
                        return (first.unwrap_or_default().to_vec(), Shape::Plain);
                    }
                    None => {
                        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                        described::own(what, &names, &mut out);
                    }
                }
                if good.is_some() && names.is_empty() {
                    self.questions.described.insert(what as u8, out.clone());
                }
                return (out, Shape::Plain);
            }
            Purpose::Info(sections) => {
                self.write_info(id, &sections, answers, &mut out);
                return (out, Shape::Plain);
            }
            Purpose::Shown => {
                if let Some(reply) = good.filter(|reply| is_aggregate(reply)) {
                    settings::shown(reply, &self.own_settings(id), &mut out);
                    return (out, Shape::Plain);
                }
            }
            Purpose::Set(set) => {
                let refused = answers.iter().find(|(_, reply)| is_error(reply));
                if let Some((_, refusal)) = refused {
                    return (refusal.clone(), Shape::Plain);
                }
                if first.is_some() {
                    self.note_settings(set, answers.iter().map(|(server, _)| *server).collect());
                }
            }
        }
        match first {
            Some(reply) => out.extend_from_slice(reply),
            None => encode::error(&mut out, NOBODY),
        }
        (out, Shape::Plain)
    }

    /// Asks all live duplicates which commands they have.
    pub(super) fn ask_commands(&mut self) {
        let mut command = Vec::new();
        encode::command(&mut command, &[b"COMMAND"]);
        self.put_question(ClientId::NOBODY, Whom::All, Purpose::Newer, command);
    }

    /// `COMMAND …`
    pub(super) fn command_command(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let words: Vec<Vec<u8>> = parsed.arguments().iter().skip(2).map(<[u8]>::to_vec).collect();
        let what =
            if parsed.len() > 1 { parsed.argument(1).to_ascii_lowercase() } else { Vec::new() };
        let what = match what.as_slice() {
            b"" => Described::All,
            b"info" if words.is_empty() => Described::All,
            b"info" => Described::Named,
            b"docs" => Described::Docs,
            b"list" => Described::Names,
            b"count" if words.is_empty() => Described::Count,
            _ => return self.ask_one(id, parsed), // about arguments alone, or in its words
        };
        if !self.is_redis() {
            return self.reply_now(id, |out, _| encode::array(out, 0));
        }
        let known = self.questions.described.get(&(what as u8)).filter(|_| words.is_empty());
        if let Some(known) = known.cloned() {
            return self.reply_at_once(id, &known, Shape::Plain);
        }
        let mut command = parsed.to_vec();
        if what == Described::Count {
            command.clear();
            encode::command(&mut command, &[b"COMMAND", b"LIST"]);
        }
        self.put_question(id, Whom::One, Purpose::Described(what, words), command);
    }

    /// Answers a command in RESP3, in its turn.
    pub(super) fn reply_at_once(&mut self, id: ClientId, answer: &[u8], shape: Shape) {
        let Some(client) = self.client(id) else { return };
        if let Some(captured) = &mut client.captured {
            return captured.out.extend_from_slice(answer);
        }
        let slot = self.slot(id);
        self.reply(id, slot, answer, &Form::One(shape));
    }

    /// A duplicate is live: what was known of commands may be old, and it has not the settings that
    /// were made while it was away.
    pub fn ask_anew(&mut self, server: usize) {
        self.questions.described.clear();
        self.questions.newer.forget();
        self.configure(ServerSet::only(server));
    }

    /// Tells duplicates what was set; what they answer is for nobody.
    pub(super) fn configure(&mut self, servers: ServerSet) {
        for server in servers.iter() {
            let connection = self.servers[server].connection(ConnectionKind::Free);
            // One by one: a server of another version may not know all of them.
            for (name, value) in &self.questions.settings {
                encode::command(&mut connection.pending, &[b"CONFIG", b"SET", name, value]);
                connection.owe(Owed::Asked { question: 0, part: 0 });
                self.members.sent(self.now, server, None);
            }
        }
        self.schedule();
    }
}

/// The words of one command.
fn words_of(command: &[u8]) -> Vec<Vec<u8>> {
    let words = evenkeel_stores::resp::reply::elements(command);
    words.filter_map(evenkeel_stores::resp::reply::payload).map(<[u8]>::to_vec).collect()
}

fn is_aggregate(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'*' | b'%' | b'~'))
}

/// Whether it is about the command, and not about who may ask or when.
fn is_refusal(reply: &[u8]) -> bool {
    reply.starts_with(b"-ERR ")
}

fn is_error(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'-' | b'!'))
}

#[cfg(test)]
mod tests;
