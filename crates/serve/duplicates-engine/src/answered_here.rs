//! Commands within `MULTI` that no duplicate needs to see, such as `PING` or `CLIENT SETNAME`.
//!
//! They are queued as they came. `EXEC` takes them in their order, as if they came then, and puts
//! their answers between those of the duplicates. What is asked of a duplicate (`INFO`) is asked
//! before the rest of the transaction is sent, and the client is held meanwhile. A transaction that
//! has nothing else sends nothing.

use super::Inner;
use super::clients::Transaction;
use super::local::{TRANSACTION_BYTES_MAX, TRANSACTION_TOO_LONG};
use super::types::{Captured, ClientId, Form, Here, Merged, ParsedCommand};
use evenkeel_stores::resp::commands::{self, Command, Local};
use evenkeel_stores::resp::request::{Limits, RequestParser};
use evenkeel_stores::resp::{databases, encode};

/// Commands of one transaction that are asked of duplicates: none may be full of them.
const QUESTIONS_MAX: usize = 64;
const TOO_MANY_QUESTIONS: &str =
    "ERR a transaction may have 64 commands here that are asked of a server";
const ANSWERS_TOO_LONG: &str = "ERR the replies of a transaction to commands about servers and \
    connections may have 16 MiB";

/// Whether a duplicate may have to be asked.
const fn asks(local: Local) -> bool {
    matches!(
        local,
        Local::AskOne
            | Local::AskAll
            | Local::Command
            | Local::Config
            | Local::Info
            | Local::Client
            | Local::Function
            | Local::Script
    )
}

impl Transaction {
    /// Bytes that its commands take.
    pub(super) const fn bytes(&self) -> usize {
        self.commands.len() + self.here_bytes
    }

    /// It sends messages.
    pub(super) fn publishes(&self) -> bool {
        self.here.iter().any(|it| matches!(it.local, Local::Publish(_)))
    }

    /// What comes next is of the database that was chosen last.
    pub(super) fn turn(&mut self) {
        self.turn_to(self.database);
    }

    fn turn_to(&mut self, database: u8) {
        if std::mem::replace(&mut self.written_database, database) != database {
            self.reaches_elsewhere = true;
            databases::write_select(&mut self.commands, database);
            self.skipped.push(self.count);
            self.count += 1;
        }
    }

    /// No further command comes: it ends in database 0, and begins by choosing one if another is
    /// concerned.
    pub(super) fn finish(&mut self) {
        self.turn_to(0);
        if self.reaches_elsewhere && !databases::is_elsewhere(&self.commands) {
            let mut commands = Vec::new();
            databases::write_select(&mut commands, 0);
            commands.append(&mut self.commands);
            self.commands = commands;
            self.skipped.iter_mut().for_each(|at| *at += 1);
            self.skipped.insert(0, 0);
            self.count += 1;
        }
    }

    /// What the answer becomes for its client.
    pub(super) fn form(&mut self) -> Form {
        let shapes = std::mem::take(&mut self.shapes).into();
        let skipped: Box<[u32]> = std::mem::take(&mut self.skipped).into();
        if self.here.is_empty() && skipped.is_empty() {
            return Form::Each(shapes);
        }
        let here = std::mem::take(&mut self.here).into_iter();
        let here = here.map(|it| (it.place, it.answer.unwrap_or_default())).collect();
        Form::Merged(Box::new(Merged { shapes, here, skipped }))
    }
}

impl Inner {
    /// A command between MULTI and EXEC that is answered here.
    pub(super) fn queue_here(
        &mut self,
        id: ClientId,
        command: &Command,
        local: Local,
        parsed: ParsedCommand<'_>,
    ) {
        let Some(client) = self.client(id) else { return };
        let Some(transaction) = &mut client.transaction else { return };
        transaction.questions += usize::from(asks(local));
        if transaction.questions > QUESTIONS_MAX {
            return self.refuse(id, TOO_MANY_QUESTIONS);
        }
        let (place, text) = (transaction.shapes.len(), parsed.to_vec());
        let bytes = text.len() + size_of::<Here>();
        if transaction.bytes() + bytes > TRANSACTION_BYTES_MAX {
            return self.refuse(id, TRANSACTION_TOO_LONG);
        }
        transaction.here_bytes += bytes;
        transaction.writes |= matches!(local, Local::Publish(_));
        transaction.shapes.push(commands::shape(command, parsed.arguments()));
        transaction.here.push(Here { place, local, command: text, answer: None });
        if local == Local::Select {
            self.select_queued(id, parsed.argument(1));
        }
        self.reply_now(id, |out, _| encode::simple(out, "QUEUED"));
    }

    /// Takes what of a transaction is answered here, then has the rest sent.
    pub(super) fn exec_here(&mut self, id: ClientId, mut transaction: Box<Transaction>) {
        let mut bytes = 0;
        for index in 0..transaction.here.len() {
            if bytes > TRANSACTION_BYTES_MAX {
                let mut out = Vec::new();
                encode::error(&mut out, ANSWERS_TOO_LONG);
                transaction.here[index].answer = Some(out);
                continue;
            }
            let here = &mut transaction.here[index];
            let (command, local) = (std::mem::take(&mut here.command), here.local);
            let mut parser = RequestParser::new(Limits::default());
            let Ok(Some(length)) = parser.parse(&command) else { continue };
            let parsed = ParsedCommand { parser: &parser, buffer: &command, length };
            let Some(known) = commands::lookup(parsed.argument(0)) else { continue };
            let Some(client) = self.client(id) else { return };
            client.captured = Some(Captured { index, out: Vec::new(), is_waiting: false });
            match local {
                Local::Unwatch => self.ok(id), // EXEC has looked, and watches no more
                Local::Publish(kind) => {
                    transaction.published.extend_from_slice(&command);
                    self.count_listeners(id, kind, parsed.argument(1));
                }
                _ => self.local(id, (known, local), parsed),
            }
            let captured = self.client(id).and_then(|client| client.captured.take());
            if let Some(captured) = captured
                && !captured.is_waiting
            {
                bytes += captured.out.len();
                transaction.here[index].answer = Some(captured.out);
            }
        }
        if transaction.here.iter().all(|it| it.answer.is_some()) {
            return self.exec_rest(id, *transaction);
        }
        if let Some(client) = self.client(id) {
            client.executing = Some(transaction);
            self.hold(id);
        }
    }

    /// A duplicate has answered a command of a transaction, or nobody could.
    pub(super) fn answered_of_transaction(&mut self, id: ClientId, index: usize, answer: Vec<u8>) {
        let Some(client) = self.client(id) else { return };
        if let Some(captured) = &mut client.captured {
            (captured.out, captured.is_waiting) = (answer, false); // at once
            return;
        }
        let executing = client.executing.as_mut();
        if let Some(here) = executing.and_then(|transaction| transaction.here.get_mut(index)) {
            here.answer = Some(answer);
        }
        let is_there = |it: &mut Box<Transaction>| it.here.iter().all(|it| it.answer.is_some());
        if let Some(transaction) = client.executing.take_if(is_there) {
            self.questions.ready.push_back((id, transaction));
            self.schedule();
        }
    }

    /// Sends what of transactions was held for a question.
    pub(super) fn exec_ready(&mut self) {
        for (id, transaction) in std::mem::take(&mut self.questions.ready) {
            if self.busy_for(&transaction).is_some() {
                if transaction.empties {
                    self.want_all(id);
                }
                self.questions.ready.push_back((id, transaction)); // until that is done
            } else if self.client(id).is_some() {
                self.release(id);
                self.wants_all_no_more(id);
                self.exec_rest(id, *transaction);
            }
        }
    }
}
