//! The end of a call: its client is told when enough duplicates have answered, or no longer can.

use evenkeel_ordered::{Agreement, ServerSet, agree};

use super::checks::DIFFERENT;
use super::late::TOO_LATE;
use super::types::Form;
use super::{Call, Inner, IsLogged, reading};
use evenkeel_store_link::compared::is_exact;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::Shape;

impl Inner {
    /// Tells the client when enough have answered or no longer can, and forgets the call when
    /// nobody owes an answer.
    pub(super) fn settle(&mut self, key: usize) {
        let call = &mut self.calls[key];
        if call.done_before == Some(IsLogged(false)) {
            return; // who has done it may be enough, and the log may fail
        }
        let voters = self.members.voters(call.partition);
        let level = call.level;
        if call.client.is_some() {
            let needed = call.mirror.as_ref().filter(|mirror| mirror.is_needed);
            let (is_there, is_hopeless) = needed.map_or((true, false), |mirror| {
                let (copies, voters) = (mirror.copies, self.members.voters(mirror.partition));
                (copies.is_acknowledged(level, voters), copies.is_hopeless(level, voters))
            });
            if is_there && call.copies.is_acknowledged(level, voters) && call.agrees(voters) {
                if call.needs_leadership && !self.leads() {
                    self.give_up(key, voters);
                } else {
                    self.acknowledge(key, voters);
                }
            } else if is_hopeless || call.copies.is_hopeless(level, voters) {
                self.give_up(key, voters);
            }
        }
        if self.calls[key].is_answered() {
            let call = self.calls.remove(key);
            self.published.remove(&key);
            self.reads.keep_text(call.text);
            if let (Some(manager), Some(sample)) = (&mut self.manager, call.sample) {
                manager.learn(*sample);
            }
        }
    }

    /// The log has what one of them had done before, or has failed.
    pub(super) fn settle_logged(&mut self, key: usize) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.done_before = Some(IsLogged(true));
        if self.failure.is_some() {
            let voters = self.members.voters(call.partition);
            self.give_up(key, voters);
        }
        self.settle(key);
    }

    fn acknowledge(&mut self, key: usize, voters: ServerSet) {
        self.note_told(key);
        let call = &mut self.calls[key];
        let Some((client, slot)) = call.client.take() else { return };
        let answer = call.told.take().unwrap_or_else(|| call.agreed(voters));
        let (opened, is_write, partition) = (call.opened, call.write.is_some(), call.partition);
        let (form, pop, waiter) = (call.form.clone(), call.pop.take(), call.waiter);
        if let Some(late) = call.late.clone().filter(|_| answer == TOO_LATE) {
            return self.was_late((client, slot), form, late);
        }
        self.counts.done(partition, is_write, self.now.since(opened));
        if let Some(sample) = &mut call.sample {
            sample.client = Some(self.now.since(opened));
        }
        self.publish_written(key, true);
        match (pop, waiter) {
            (Some(pop), _) => self.popped(pop, &answer),
            (None, Some(order)) => self.tried(order, (client, slot), (&answer, &form)),
            (None, None) => self.reply(client, slot, &answer, &form),
        }
    }

    fn give_up(&mut self, key: usize, voters: ServerSet) {
        let deposed = (!self.leads()).then(|| self.why_deposed());
        let call = &mut self.calls[key];
        let Some((client, slot)) = call.client.take() else { return };
        let (have, count) = (call.copies.answered().and(voters).len(), voters.len());
        let (is_write, pop, waiter) = (call.write.is_some(), call.pop.take(), call.waiter);
        if let Some(order) = waiter
            && !is_write
            && self.reads_again(order, client)
        {
            return;
        }
        let call = &self.calls[key];
        let text = if let (true, Some(why)) = (call.needs_leadership, &deposed) {
            match is_write {
                true => format!("UNCERTAIN {why}; nobody knows whether this write will be found"),
                false => format!("UNAVAILABLE {why}"),
            }
        } else if is_write && self.failure.is_some() {
            "UNCERTAIN the log failed: nobody knows whether this write will be found in it"
                .to_owned()
        } else if is_write {
            format!(
                "UNCERTAIN {have} of {count} duplicates have this write, fewer than asked \
                 for; it is in the log and will be applied by all"
            )
        } else {
            reading::GONE.to_owned()
        };
        self.counts.given_up(is_write);
        self.publish_written(key, false);
        let mut answer = Vec::new();
        encode::error(&mut answer, &text);
        self.reply(client, slot, &answer, &Form::One(Shape::Plain));
        if pop.is_some() {
            self.release(client);
        }
        if let Some(order) = waiter {
            self.stop_waiting(order);
        }
    }
}

impl Call {
    fn agreement(&self, voters: ServerSet) -> Agreement {
        let others = self.others.iter().map(|(server, ..)| *server).collect();
        let first = (self.copies.answered().without(others), self.digest.unwrap_or_default());
        let mut answers = vec![first];
        for &(server, digest, _) in &self.others {
            match answers.iter_mut().find(|(_, known)| *known == digest) {
                Some((who, _)) => who.insert(server),
                None => answers.push((ServerSet::only(server), digest)),
            }
        }
        agree(&answers, self.copies.owed(), voters)
    }

    /// Whether it is known which of its answers is told.
    fn agrees(&self, voters: ServerSet) -> bool {
        self.told.is_some() || self.others.is_empty() || self.agreement(voters) != Agreement::Waits
    }

    /// The answer that is told. A read of one thing that no majority says the same of has none.
    fn agreed(&mut self, voters: ServerSet) -> Vec<u8> {
        let first = self.answer.take().unwrap_or_default();
        if self.others.is_empty() {
            return first;
        }
        let agreement = self.agreement(voters);
        let digest = match agreement {
            Agreement::Most(_) if self.write.is_none() && is_exact(&self.text) => {
                let mut answer = Vec::new();
                encode::error(&mut answer, DIFFERENT);
                return answer;
            }
            Agreement::Majority(digest) | Agreement::Most(digest) => digest,
            Agreement::Waits => return first,
        };
        let other = self.others.iter_mut().find(|(_, known, _)| *known == digest);
        other.map_or(first, |(.., answer)| std::mem::take(answer))
    }
}
