//! A duplicate's answer becomes the client's, or is learnt from.

use evenkeel_ordered::{ConnectionKind, Consistency, Dropped, ReplicaState, Sequence, ServerSet};

use super::Inner;
use super::emptied::is_emptying;
use super::late::TOO_LATE;
use super::types::{Copy, Owed};
use evenkeel_store_link::compared::digest;
use evenkeel_stores::resp::reply::{self, Blame};
use evenkeel_stores::resp::{cluster, functions};

impl Inner {
    /// One answer came on a connection.
    ///
    /// # Errors
    /// When the connection is to end; `None` when it is already given up.
    pub fn answered(
        &mut self,
        server: usize,
        connection: u64,
        kind: ConnectionKind,
        reply: &[u8],
    ) -> Result<(), Option<Dropped>> {
        let reply = cluster::without_redirection(reply);
        let Some(state) = self.connection(server, connection, kind) else { return Err(None) };
        if reply.first() == Some(&b'>') {
            if is_emptying(reply) {
                self.doubt(server, kind);
            }
            return Ok(()); // a push is the answer to nothing
        }
        let Some(first) = state.owed.front_mut() else { return Err(Some(Dropped::Failed)) };
        if first.is_before_the_last(reply) {
            return Ok(());
        }
        let owed = state.owed.pop_front().expect("there is a first");
        let is_signature = matches!(owed, Owed::Signature);
        if state.is_doubted && !is_signature {
            state.held.push_back((owed, reply.to_vec()));
            self.members.heard(self.now, server);
            return Ok(());
        }
        if is_signature {
            state.answered += 1;
            return self.signature_answered(server, (connection, kind), reply);
        }
        self.believe(server, (connection, kind), owed, reply)
    }

    /// An answer is that of a duplicate, and not of one that somebody has emptied.
    ///
    /// # Errors
    /// As [`Self::answered`].
    pub(super) fn believe(
        &mut self,
        server: usize,
        (connection, kind): (u64, ConnectionKind),
        owed: Owed,
        reply: &[u8],
    ) -> Result<(), Option<Dropped>> {
        let Some(state) = self.connection(server, connection, kind) else { return Err(None) };
        state.answered += 1;
        let Some(owed) = self.blameless(server, owed, reply) else {
            self.tell_shown();
            return Ok(());
        };
        let reported = owed.refusal().or_else(|| refused_within(&owed, reply));
        // The last one is not dropped for what it cannot do (out of memory, most of the time): the
        // others could not either, and with it everything would be gone.
        let is_access = owed.is_access() || self.keeps_unmarked(&owed);
        let partition = self.members.partition(server);
        let is_last = is_access && self.members.live(partition) == ServerSet::only(server);
        let is_refusal = reply::blame(reported.unwrap_or(reply)) == Some(Blame::Server);
        if is_refusal && !is_last {
            tracing::warn!(server, reply = %String::from_utf8_lossy(reply), "a duplicate failed");
            self.refused(server, &owed);
            let Some(state) = self.connection(server, connection, kind) else { return Err(None) };
            state.owed.push_front(owed); // it did not answer: it is dropped with all it owes
            return Err(Some(Dropped::Failed));
        }
        if is_refusal {
            self.refused_mark(server, &owed, reply);
        }
        if is_refusal && let Owed::Access { call } | Owed::Group { call, .. } = &owed {
            self.refused_by_last(partition, *call);
            self.doubt_deadlines(*call);
        }
        match owed {
            Owed::Page { number } => self.page_answered(server, number, reply),
            Owed::Access { call } => self.plain_answered(server, call, reply, is_refusal),
            Owed::Group { call, is_single, refusal, .. } => {
                let answer = answer_of_group(is_single, refusal, reply);
                let Some(answer) = answer.as_deref() else { return Err(Some(Dropped::Failed)) };
                self.access_answered(server, call, answer);
            }
            Owed::Effect { refusal, .. } => self.effect_answered(server, refusal.as_deref(), reply),
            Owed::Replayed { write, .. } => self.replay_answered(server, write),
            Owed::Moved { write, is_key, .. } => self.moved_answered(server, write, is_key, reply),
            Owed::Draw { pop } => self.drawn(server, pop, reply),
            Owed::LastId { question } => self.last_id_answered(server, &question, reply),
            Owed::Inquiry { inquiry } => self.inquiry_answered(server, &inquiry, reply),
            Owed::Chosen => self.chosen(server, reply)?,
            Owed::Mark { watermark } => self.mark_answered(server, watermark, reply)?,
            Owed::Given { is_key } => self.given_answered(server, is_key, reply)?,
            Owed::Dump { copy } | Owed::Expiry { copy, .. } if reply.first() == Some(&b'-') => {
                self.members.answered(self.now, server, None);
                self.give_up_copying(&copy, reply);
            }
            Owed::Dump { copy } => self.dump_answered(server, copy, reply),
            Owed::Expiry { copy, dump } => {
                self.expiry_answered(server, &copy, dump.as_deref(), reply);
            }
            _ => unreachable!("it was answered above"),
        }
        self.tell_shown();
        Ok(())
    }

    /// Takes an answer for which nobody is dropped, whatever it says; others are given back.
    fn blameless(&mut self, server: usize, owed: Owed, reply: &[u8]) -> Option<Owed> {
        match owed {
            // Another may serve a read that this one cannot; nothing differs for that.
            Owed::Read { attempt } => self.read_answered(server, attempt, reply),
            Owed::Check { round, key, question } => {
                self.check_answered(server, (round, key, question), reply);
            }
            Owed::Scan { number } => self.scan_answered(server, number, reply),
            Owed::Asked { question, part } => {
                self.question_answered(server, (question, part), reply);
            }
            Owed::Expiring { asking } => self.expiry_asked_answered(server, asking, reply),
            Owed::Functions { generation } => {
                self.members.answered(self.now, server, None);
                self.functions_told(generation, Some(reply));
            }
            Owed::Dump { copy }
                if functions::is_name(&copy.key) && functions::is_refused(reply) =>
            {
                self.dump_answered(server, copy, reply);
            }
            owed => return Some(owed),
        }
        None
    }

    /// What another holds was given to a server that is being filled.
    fn given_answered(
        &mut self,
        server: usize,
        is_key: bool,
        reply: &[u8],
    ) -> Result<(), Option<Dropped>> {
        self.members.answered(self.now, server, None);
        if is_key && reply.first() == Some(&b'-') {
            let reply = String::from_utf8_lossy(reply);
            tracing::warn!(
                server, %reply, "a duplicate does not take what another holds (versions?)"
            );
            return Err(Some(Dropped::Failed));
        }
        self.servers[server].wake();
        Ok(())
    }

    /// Whoever leads next may have no log but the duplicates', and takes the one with the highest
    /// watermark: one that has a write and not the watermark behind it may not be chosen, so it
    /// does not count. Nor does what a read has seen there until then.
    fn plain_answered(&mut self, server: usize, call: usize, reply: &[u8], is_refusal: bool) {
        let unmarked = &self.servers[server].ordered.unmarked;
        let may_show = self.calls[call].write.is_some() || !unmarked.is_empty();
        if is_refusal || !may_show || !self.is_log_in_memory() {
            return self.access_answered(server, call, reply);
        }
        self.members.answered(self.now, server, None);
        self.servers[server].ordered.unmarked.push_back((call, reply.to_vec()));
    }

    fn mark_answered(
        &mut self,
        server: usize,
        watermark: Sequence,
        reply: &[u8],
    ) -> Result<(), Option<Dropped>> {
        if self.is_log_in_memory() && reply.first() == Some(&b'-') {
            return Err(Some(Dropped::Failed));
        }
        if reply.first() == Some(&b'+') {
            self.took_mark(server);
        }
        self.members.marked(self.now, server, watermark);
        while let Some((call, reply)) = self.servers[server].ordered.unmarked.pop_front() {
            self.call_answered(server, call, &reply);
        }
        Ok(())
    }

    fn access_answered(&mut self, server: usize, call: usize, reply: &[u8]) {
        let write = self.calls[call].write_at(self.members.partition(server));
        self.members.answered(self.now, server, write);
        self.call_answered(server, call, reply);
    }

    fn call_answered(&mut self, server: usize, key: usize, reply: &[u8]) {
        let partition = self.members.partition(server);
        let call = &mut self.calls[key];
        let is_mirror = call.is_mirrored_at(partition);
        let write = call.write_at(partition);
        call.copies_at(partition).answer(server);
        let took = self.now.since(call.opened);
        call.first_took.get_or_insert(took);
        self.counts.answered(server, took);
        if let Some(manager) = &mut self.manager
            && !is_mirror
        {
            manager.answered(self.now, server, call.opened, call.sample.as_deref_mut());
        }
        let mut is_torn = false;
        let digest = digest(reply);
        // Of what another has done nothing can fail.
        let mut differs = call.done_before.is_some() && reply::has_failed(reply);
        match &mut call.mirror {
            _ if call.removes_expired => {}
            Some(mirror) if is_mirror => {
                differs = *mirror.digest.get_or_insert(digest) != digest;
                if differs {
                    self.counts.found(partition);
                }
            }
            _ if *call.digest.get_or_insert(digest) != digest => {
                differs = call.others.is_empty(); // it is followed once
                if differs && write.is_some() {
                    self.counts.found(partition);
                }
                call.others.push((server, digest, reply.to_vec()));
            }
            _ => {}
        }
        if write.is_some() {
            is_torn = self.is_mirror_different(key);
        } else if let Some((id, _)) = call.client {
            let seen = self.members.sent_to(server);
            self.saw(id, seen);
        }
        if self.calls[key].removes_expired {
            self.removal_answered(server, key, reply);
        }
        let call = &mut self.calls[key];
        if call.client.is_some() && call.answer.is_none() && !is_mirror {
            call.answer = Some(reply.to_vec());
        }
        let text = if differs { call.text.clone() } else { Vec::new() };
        self.settle(key);
        if write.is_some() && !self.wait_list.is_empty() {
            self.look_at_wait_list();
        }
        match write {
            Some(write) if differs => self.suspect_write(partition, write),
            None if differs => self.suspect_keys_of(partition, &text),
            _ => {}
        }
        if is_torn {
            self.tear_move();
        }
    }

    /// Reads never go backwards: what was answered may have held every write sent before.
    pub(super) fn saw(&mut self, id: super::ClientId, seen: Sequence) {
        if let Some(client) = self.client(id)
            && client.consistency == Consistency::ReadMyOwnWrites
        {
            client.session.saw(seen);
        }
    }

    fn replay_answered(&mut self, server: usize, write: Option<Sequence>) {
        self.members.answered(self.now, server, write);
        self.counts.replayed += 1;
        if self.members.state(server) == ReplicaState::CatchingUp {
            self.servers[server].wake();
        }
    }

    fn dump_answered(&mut self, source: usize, copy: Copy, reply: &[u8]) {
        self.members.answered(self.now, source, None);
        let dump = (!matches!(reply.first(), Some(b'_' | b'-'))).then(|| reply.into());
        // The expiry was asked for right behind; its answer comes next.
        if let Some(Owed::Expiry { dump: place, .. }) = self.servers[source].ordered.next_owed() {
            *place = dump;
        }
        drop(copy);
    }

    fn expiry_answered(&mut self, source: usize, copy: &Copy, dump: Option<&[u8]>, reply: &[u8]) {
        self.members.answered(self.now, source, None);
        self.give(copy, dump, reply::integer(reply).unwrap_or(-2));
    }
}

/// What of a group its server refused where the group was begun: a right was taken away between the
/// two. The watermark behind it was written.
fn refused_within<'a>(owed: &Owed, reply: &'a [u8]) -> Option<&'a [u8]> {
    let is_effect = matches!(owed, Owed::Effect { .. });
    let is_group = matches!(owed, Owed::Group { .. } | Owed::Replayed { .. } | Owed::Moved { .. });
    // Most have no error.
    if !(is_group || is_effect) || reply.first() != Some(&b'*') || !reply.contains(&b'-') {
        return None;
    }
    let is_refusal = |element: &&[u8]| reply::blame(element) == Some(Blame::Server);
    match is_effect {
        // A script may answer any error; the watermark is the last.
        true => reply::elements(reply).last().filter(is_refusal),
        false => reply::elements(reply).find(is_refusal),
    }
}

/// What the client of a group is answered; `None` where it was not done as a whole.
fn answer_of_group(is_single: bool, refusal: Option<Box<[u8]>>, reply: &[u8]) -> Option<Vec<u8>> {
    match refusal {
        Some(refusal) if is_single => Some(refusal.into_vec()),
        _ if is_single => single_of_exec(reply),
        _ => Some(reply::without_last(reply)),
    }
}

/// What the one command between MULTI and EXEC was answered: the first element; in another
/// database than 0 the second, between those of `SELECT`. The last is that of the watermark. Right
/// behind the command's may be that of what said a deadline again (`late.rs`).
pub(super) fn single_of_exec(reply: &[u8]) -> Option<Vec<u8>> {
    const OK: &[u8] = b"+OK\r\n";
    let mut elements = [&b""[..]; 5];
    let mut count = 0;
    for element in reply::elements(reply) {
        *elements.get_mut(count)? = element;
        count += 1;
    }
    let (answer, again) = match (count, elements) {
        (2, [answer, ..]) => (answer, 0),
        (3, [answer, again, ..]) => (answer, reply::integer(again)?),
        (4, [OK, answer, OK, ..]) => (answer, 0),
        (5, [OK, answer, again, OK, _]) => (answer, reply::integer(again)?),
        _ => return None,
    };
    Some(if again == 1 { TOO_LATE.to_vec() } else { answer.to_vec() })
}

#[cfg(test)]
mod tests {
    use evenkeel_ordered::Acknowledge;
    use evenkeel_wal::LogPlace;

    use super::super::world::World;
    use super::*;

    const ORDERED: ConnectionKind = ConnectionKind::Ordered;

    fn in_memory() -> World {
        World::start(3, |config| {
            config.members.acknowledge = Acknowledge::Majority;
            config.log.place = LogPlace::Memory;
            config.consistency = Consistency::Strong;
        })
    }

    /// Killed between the two, the leader would be followed by one that lacks the write.
    #[test]
    fn without_a_disk_a_write_counts_where_its_watermark_is() {
        let mut world = in_memory();
        let client = world.client();
        assert!(world.tell(client, &["SET", "k", "1"]));
        world.engine.borrow().flush();
        for server in 0..3 {
            let asked = world.asked(server, ORDERED);
            assert_eq!(asked, ["SET k 1", "SET evenkeel:watermark 1 1"], "in the same bytes");
        }
        world.say(0, ORDERED, "+OK\r\n");
        world.say(1, ORDERED, "+OK\r\n");
        assert_eq!(world.heard(client), "", "a majority has it, and nobody can know");
        world.say(1, ORDERED, "+OK\r\n");
        assert_eq!(world.heard(client), "", "one of three");
        world.lose(0, Dropped::Lost);
        assert_eq!(world.heard(client), "", "it has answered and counts no more");
        world.say(2, ORDERED, "+OK\r\n");
        assert_eq!(world.heard(client), "");
        world.say(2, ORDERED, "+OK\r\n");
        assert_eq!(world.heard(client), "+OK\r\n");
        let inner = world.engine.borrow();
        assert!(inner.calls.is_empty(), "something is left");
        assert!((1..3).all(|server| inner.members.applied(server) == Sequence(1)));
        assert!((1..3).all(|server| inner.members.owed(server) == 0));
    }

    /// What a strong read has seen must be found later, too.
    #[test]
    fn without_a_disk_a_strong_read_waits_for_the_watermark_of_what_it_saw() {
        let mut world = in_memory();
        let (client, other) = (world.client(), world.client());
        assert!(world.tell(client, &["SET", "k", "1"]));
        assert!(world.tell(other, &["GET", "k"]));
        world.engine.borrow().flush();
        let readers: Vec<usize> = (0..3).filter(|&server| world.waiting(server)[0] == 3).collect();
        assert_eq!(readers.len(), 2, "a majority is asked");
        for &server in &readers {
            world.say(server, ORDERED, "+OK\r\n");
            world.say(server, ORDERED, "$1\r\n1\r\n");
        }
        assert_eq!((world.heard(client), world.heard(other)), (String::new(), String::new()));
        readers.iter().for_each(|&server| drop(world.say(server, ORDERED, "+OK\r\n")));
        let told = (world.heard(client), world.heard(other));
        assert_eq!(told, ("+OK\r\n".to_owned(), "$1\r\n1\r\n".to_owned()));
    }

    /// Killed between the two, one that came back would be followed by one that lacks the write,
    /// and somebody has read it.
    #[test]
    fn without_a_disk_who_comes_back_has_a_write_once_its_watermark_is_there() {
        let mut world = in_memory();
        world.lose(2, Dropped::Lost);
        let client = world.client();
        assert!(world.tell(client, &["SET", "k", "1"]));
        {
            let mut inner = world.engine.borrow();
            inner.flush();
            inner.members.reached(2, Sequence(0));
            inner.servers[2].open();
            let part = inner.part(0);
            let mut log = inner.log.read_after(0, Some(&part)).unwrap();
            let record = log.next().unwrap().expect("it was written");
            inner.replay_one(2, &record);
            inner.is_up(2);
            inner.flush();
        }
        let asked = world.asked(2, ORDERED);
        let write = asked.iter().position(|it| it == "SET k 1").expect("it is sent");
        let mark = asked.iter().position(|it| it.starts_with("SET evenkeel:watermark")).unwrap();
        assert!(write < mark, "{asked:?}");
        (0..=write).for_each(|_| drop(world.say(2, ORDERED, "+OK\r\n")));
        assert!(!world.engine.borrow().members.is_settled(2), "nobody else knows that it has it");
        (write..mark).for_each(|_| drop(world.say(2, ORDERED, "+OK\r\n")));
        assert!(world.engine.borrow().members.is_settled(2));
    }

    /// What a transaction has as its watermark is not written where it fails.
    #[test]
    fn without_a_disk_what_comes_before_a_transaction_is_marked_before_it() {
        let mut world = in_memory();
        let client = world.client();
        assert!(world.tell(client, &["SET", "k", "1"]));
        assert!(world.tell(client, &["INCR", "k"]));
        world.engine.borrow().flush();
        let asked = world.asked(0, ORDERED);
        let expected = ["SET k 1", "SET evenkeel:watermark 1 1", "MULTI", "INCR k"];
        assert_eq!(asked[..4], expected);
        for server in 0..2 {
            world.say(server, ORDERED, "+OK\r\n");
            world.say(server, ORDERED, "+OK\r\n");
        }
        assert_eq!(world.heard(client), "+OK\r\n");
    }

    #[test]
    fn the_answer_of_a_group_is_that_of_its_commands() {
        let single = single_of_exec(b"*2\r\n:42\r\n+OK\r\n");
        assert_eq!(single.as_deref(), Some(&b":42\r\n"[..]));
        let nested = single_of_exec(b"*2\r\n*2\r\n:1\r\n$1\r\na\r\n+OK\r\n");
        assert_eq!(nested.as_deref(), Some(&b"*2\r\n:1\r\n$1\r\na\r\n"[..]));
        let again = single_of_exec(b"*3\r\n:42\r\n:0\r\n+OK\r\n");
        assert_eq!(again.as_deref(), Some(&b":42\r\n"[..]), "its deadline is what it was");
        let late = single_of_exec(b"*3\r\n:1\r\n:1\r\n+OK\r\n").unwrap_or_default();
        assert_eq!(late, TOO_LATE, "of an increment that made a new key");
        let elsewhere = single_of_exec(b"*4\r\n+OK\r\n:42\r\n+OK\r\n+OK\r\n");
        assert_eq!(elsewhere.as_deref(), Some(&b":42\r\n"[..]));
        let again = single_of_exec(b"*5\r\n+OK\r\n:42\r\n:0\r\n+OK\r\n+OK\r\n");
        assert_eq!(again.as_deref(), Some(&b":42\r\n"[..]), "the same in another database");
        let late = single_of_exec(b"*5\r\n+OK\r\n:1\r\n:1\r\n+OK\r\n+OK\r\n");
        assert_eq!(late.as_deref(), Some(TOO_LATE));
        for lost in [
            &b"*4\r\n-ERR DB index is out of range\r\n:42\r\n+OK\r\n+OK\r\n"[..],
            b"*5\r\n-ERR DB index is out of range\r\n:42\r\n:0\r\n+OK\r\n+OK\r\n",
        ] {
            assert_eq!(single_of_exec(lost), None, "it was done in another database");
        }
        for other in [
            &b"*3\r\n:1\r\n+OK\r\n+OK\r\n"[..],
            b"*3\r\n:1\r\n-ERR not an integer\r\n+OK\r\n",
            b"*5\r\n+OK\r\n:1\r\n+OK\r\n+OK\r\n+OK\r\n",
            b"*6\r\n+OK\r\n:1\r\n:0\r\n:0\r\n+OK\r\n+OK\r\n",
            b"*1\r\n:1\r\n",
        ] {
            assert_eq!(single_of_exec(other), None, "nothing of ours says that");
        }
        assert_eq!(single_of_exec(b"_\r\n"), None, "the watermark was not written");
        assert_eq!(reply::without_last(b"*3\r\n:1\r\n+OK\r\n+OK\r\n"), b"*2\r\n:1\r\n+OK\r\n");
    }
}
