//! `SPOP`: one duplicate draws the members, all remove them.
//!
//! Each duplicate would draw others. So one live duplicate is asked which it would take, behind all
//! writes sent before; then the removal of exactly these is a write as any other, and what it
//! removed is the answer. Between the two another client may have removed one of them: each is
//! removed by a command of its own, whose answer says who was first, and for those that were lost
//! it is drawn again. Until the answer is known nothing more is taken from this client: what it
//! sends behind `SPOP` must find the members gone.

use evenkeel_ordered::{ConnectionKind, Consistency};
use xxhash_rust::xxh3::xxh3_128;

use super::Inner;
use super::types::{ClientId, Form, Owed, ParsedCommand, Pop, Write};
use evenkeel_stores::resp::commands::{Command, Repeat};
use evenkeel_stores::resp::reply::{self, Shape};
use evenkeel_stores::resp::{databases, encode, rewrite};

/// How often is drawn for one command, before its client is told to try again.
const DRAWS_MAX: u32 = 16;
/// Members of one command: each is a command of its own to the duplicates, in one transaction.
const COUNT_MAX: usize = 1_024;

impl Pop {
    fn missing(&self) -> usize {
        self.count.unwrap_or(1) - self.taken.len()
    }

    /// The answer, in RESP3.
    fn answer(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.count {
            Some(_) => out.extend_from_slice(format!("~{}\r\n", self.taken.len()).as_bytes()),
            None if self.taken.is_empty() => out.extend_from_slice(b"_\r\n"),
            None => {}
        }
        self.taken.iter().for_each(|member| encode::bulk(&mut out, member));
        out
    }
}

impl Inner {
    /// `SPOP key [count]`
    pub(super) fn pop(&mut self, id: ClientId, command: &Command, parsed: ParsedCommand<'_>) {
        let shard = match self.shard_of(command, parsed) {
            Ok(shard) => shard,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        if let Err(refusal) = rewrite::pop_question(parsed.arguments(), &mut Vec::new()) {
            return self.refuse(id, refusal.0);
        }
        // A count that is a number, as was just found; one too large for it is too large.
        let number = |text: &[u8]| str::from_utf8(text).ok()?.parse().ok();
        let count = (parsed.len() > 2).then(|| number(parsed.argument(2)).unwrap_or(usize::MAX));
        if count.is_some_and(|count| count > COUNT_MAX) {
            let text = format!("ERR SPOP takes at most {COUNT_MAX} members at once here");
            return self.refuse(id, &text);
        }
        let (drawn, taken) = (Vec::new(), Vec::new());
        let key = databases::place(self.database_of(id), parsed.argument(1)).into();
        self.hold(id);
        self.draw(Box::new(Pop { client: id, shard, key, count, drawn, taken, draws: 0 }));
    }

    /// Asks one live duplicate.
    pub(super) fn draw(&mut self, mut pop: Box<Pop>) {
        if self.effects.is_ahead(self.map.partition(pop.shard)) {
            return self.effects.postpone(*pop);
        }
        let Some(client) = self.client(pop.client) else { return };
        let session = client.session;
        if pop.draws == DRAWS_MAX {
            let text = "ERR SPOP: each time others took the members that were drawn; ask again";
            return self.end_with_error(&pop, text);
        }
        pop.draws += 1;
        let partition = self.map.partition(pop.shard);
        let eligible = match self.members.eligible(partition, Consistency::Strong, session) {
            Ok(eligible) => eligible,
            Err(refused) => return self.end_with_error(&pop, &format!("UNAVAILABLE {refused}")),
        };
        // What is drawn is removed behind what was sent before: who owes least is soonest there.
        let least = eligible.from.iter().min_by_key(|&server| self.members.owed(server));
        let Some(server) = least else { return };
        let missing = pop.missing().to_string();
        let (database, key) = databases::at(&pop.key);
        let words: [&[u8]; 3] = [b"SRANDMEMBER", key, missing.as_bytes()];
        let mut question = Vec::new();
        encode::command(&mut question, &words[..2 + usize::from(pop.count.is_some())]);
        let place = (server, ConnectionKind::Ordered, database);
        self.ask_in(place, Owed::Draw { pop }, |out| out.append(&mut question));
        self.schedule();
    }

    /// What it drew is removed from all.
    pub(super) fn drawn(&mut self, server: usize, mut pop: Box<Pop>, reply: &[u8]) {
        self.members.answered(self.now, server, None);
        if self.client(pop.client).is_none() {
            return; // nobody would get them
        }
        if matches!(reply.first(), Some(b'-' | b'!')) && pop.taken.is_empty() {
            return self.end(&pop, reply);
        }
        if self.effects.is_ahead(self.map.partition(pop.shard)) {
            pop.draws -= 1;
            return self.effects.postpone(*pop);
        }
        let mut commands = Vec::new();
        pop.drawn.clear();
        let single = (reply.first() == Some(&b'$')).then_some(reply);
        for member in reply::elements(reply).chain(single) {
            if rewrite::pop_answer(databases::key(&pop.key), member, &mut commands) == 1 {
                pop.drawn.extend(reply::payload(member).map(Box::from));
            }
        }
        // What was removed already is the client's, even if no more can be.
        let partition = self.map.partition(pop.shard);
        let cannot = self.can_write(partition).is_err();
        if pop.drawn.is_empty() || (cannot && !pop.taken.is_empty()) {
            return self.end(&pop, &pop.answer());
        }
        let mut count = u32::try_from(pop.drawn.len()).expect("there is a most");
        let (database, _) = databases::at(&pop.key);
        if database > 0 {
            let plain = std::mem::take(&mut commands);
            databases::write_group(&mut commands, database, &plain);
            count += 2; // of which `popped` knows
        }
        let written = self.write(
            pop.client,
            &Write {
                commands: &commands,
                count,
                shard: pop.shard,
                repeat: Repeat::Once,
                keys: &[xxh3_128(&pop.key)],
                key_names: &[&pop.key],
                form: Form::One(Shape::Plain),
                is_single: false,
            },
        );
        match written {
            Some(call) => self.calls[call].pop = Some(pop),
            None => self.release(pop.client), // it was told why
        }
    }

    /// The removal was acknowledged: `answer` has 1 for each member that was there.
    pub(super) fn popped(&mut self, mut pop: Box<Pop>, answer: &[u8]) {
        let drawn = std::mem::take(&mut pop.drawn);
        let count = drawn.len();
        let chosen = usize::from(databases::at(&pop.key).0 > 0);
        let removed =
            reply::elements(answer).skip(chosen).map(|element| reply::integer(element) == Some(1));
        let removed = drawn.into_iter().zip(removed).filter(|(_, was_there)| *was_there);
        let before = pop.taken.len();
        pop.taken.extend(removed.map(|(member, _)| member));
        // Its slot is the last: it sent nothing since.
        self.take_back_slot(pop.client);
        if pop.taken.len() - before < count {
            self.draw(pop);
        } else {
            self.end(&pop, &pop.answer());
        }
    }

    fn end_with_error(&mut self, pop: &Pop, text: &str) {
        let mut answer = Vec::new();
        if pop.taken.is_empty() {
            self.counts.refused += 1;
            encode::error(&mut answer, text);
        } else {
            answer = pop.answer(); // fewer than asked for, but those are gone from the set
        }
        self.end(pop, &answer);
    }

    fn end(&mut self, pop: &Pop, answer: &[u8]) {
        let slot = self.slot(pop.client);
        self.reply(pop.client, slot, answer, &Form::One(Shape::Plain));
        self.release(pop.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_form_of_spop() {
        let pop = |count, taken: &[&[u8]]| Pop {
            client: ClientId::of_test(),
            shard: 0,
            key: (*b"k").into(),
            count,
            drawn: Vec::new(),
            taken: taken.iter().map(|&member| member.into()).collect(),
            draws: 1,
        };
        // As Redis 7 answers a client of RESP3.
        for (count, taken, expected) in [
            (None, &[][..], &b"_\r\n"[..]),
            (None, &[&b"a"[..]], b"$1\r\na\r\n"),
            (Some(2), &[], b"~0\r\n"),
            (Some(2), &[b"a"], b"~1\r\n$1\r\na\r\n"),
        ] {
            assert_eq!(pop(count, taken).answer(), expected);
        }
    }
}
