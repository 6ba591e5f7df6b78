//! Words that all files of the engine share: who asked what, and what a duplicate owes.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::request::Attempt;
use evenkeel_ordered::{Hash, Sequence, ServerSet};
use evenkeel_runtime::accept::AcceptConfig;
use evenkeel_store_link::compared::Question;
use evenkeel_stores::resp::commands::{Local, Refusal, Repeat};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::{self, Shape};
use evenkeel_stores::resp::request::{Arguments, RequestParser};
use tokio::sync::watch;

/// What must not be done while a duplicate of the partition is ahead of the log.
pub(super) const ANOTHER_RUNS: &str = "TRYAGAIN another command is done here first: ask again";

/// What this process allows its clients, where they may change it.
#[derive(Debug, Default)]
pub(super) struct OwnSettings {
    /// How long they may idle; `None` = for ever.
    pub(super) idle_max: Option<Duration>,
    pub(super) accepting: Option<watch::Sender<Arc<AcceptConfig>>>,
}

/// What an answer becomes for a client of RESP2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// It is the answer to one command.
    One(Shape),
    /// Each element is the answer to another command.
    Each(Box<[Shape]>),
    /// The same, with answers of ours between them.
    Merged(Box<Merged>),
}

/// A command of a transaction that no duplicate needs to see.
#[derive(Debug)]
pub(super) struct Here {
    /// Its place among all commands of the transaction.
    pub(super) place: usize,
    pub(super) local: Local,
    pub(super) command: Vec<u8>,
    /// In RESP3, once EXEC has taken it.
    pub(super) answer: Option<Vec<u8>>,
}

/// Where answers go while EXEC takes them.
#[derive(Debug)]
pub(super) struct Captured {
    /// Which of them is taken.
    pub(super) index: usize,
    pub(super) out: Vec<u8>,
    /// Its answer comes later.
    pub(super) is_waiting: bool,
}

/// Answers of ours that go between those of duplicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Merged {
    pub(super) shapes: Box<[Shape]>,
    /// By place.
    pub(super) here: Vec<(usize, Vec<u8>)>,
    /// Which of the duplicates' answers are no client's: of databases that were chosen.
    pub(super) skipped: Box<[u32]>,
}

impl Merged {
    /// The whole answer to EXEC, and what it is for clients of RESP2.
    pub(super) fn with(&self, answer: &[u8]) -> (Vec<u8>, Form) {
        let form = Form::Each(self.shapes.clone());
        if answer.first() != Some(&b'*') {
            return (answer.to_vec(), form); // an error, which stands for all
        }
        let mut skipped = self.skipped.iter().peekable();
        let theirs = reply::elements(answer).zip(0_u32..);
        let theirs = theirs.filter(|(_, at)| skipped.next_if_eq(&at).is_none());
        let mut theirs = theirs.map(|(answer, _)| answer);
        let mut ours = self.here.iter().peekable();
        let mut out = Vec::with_capacity(answer.len());
        encode::array(&mut out, self.shapes.len());
        for place in 0..self.shapes.len() {
            match ours.next_if(|(own, _)| *own == place) {
                Some((_, answer)) => out.extend_from_slice(answer),
                None => out.extend_from_slice(theirs.next().unwrap_or(b"_\r\n")),
            }
        }
        (out, form)
    }
}

/// Names one client for as long as the service runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientId {
    /// Where it is kept.
    pub(super) key: usize,
    pub(super) serial: u64,
}

impl ClientId {
    /// Whose writes nobody waits for.
    pub(super) const NOBODY: Self = Self { key: usize::MAX, serial: u64::MAX };

    /// As clients see it: no other one ever has it.
    pub(super) const fn number(self) -> i64 {
        self.serial as i64
    }
}

#[cfg(test)]
impl ClientId {
    pub(super) const fn of_test() -> Self {
        Self { key: 0, serial: 0 }
    }
}

/// One command as it came.
#[derive(Clone, Copy)]
pub struct ParsedCommand<'a> {
    /// Where the words are in the buffer.
    pub parser: &'a RequestParser,
    /// What a client has sent, from this command on.
    pub buffer: &'a [u8],
    /// Bytes of the buffer that are this command.
    pub length: usize,
}

impl<'a> ParsedCommand<'a> {
    pub(super) fn arguments(&self) -> Arguments<'a> {
        self.parser.arguments(self.buffer)
    }

    pub(super) fn argument(&self, index: usize) -> &'a [u8] {
        self.parser.argument(self.buffer, index)
    }

    pub(super) fn len(&self) -> usize {
        self.parser.len()
    }

    /// The command as an array of bulk strings.
    pub(super) fn to_vec(self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// The same, at the end of `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if self.parser.is_inline() {
            self.parser.write_canonical(self.buffer, out);
        } else {
            out.extend_from_slice(&self.buffer[..self.length]);
        }
    }
}

/// What a client is told instead of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ErrorReply {
    /// What Redis's clients tell errors apart by: one word in capitals.
    pub(super) code: &'static str,
    pub(super) message: Cow<'static, str>,
}

impl ErrorReply {
    pub(super) fn new(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Refusal> for ErrorReply {
    fn from(Refusal(text): Refusal) -> Self {
        let (code, message) = text.split_once(' ').unwrap_or(("ERR", text));
        Self::new(code, message)
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// Who has done a write before it had its place.
pub(super) struct Done {
    pub(super) server: usize,
    /// What its client is told, once enough others have it.
    pub(super) told: Option<Vec<u8>>,
    /// Who waits for it.
    pub(super) waiter: Option<u64>,
    /// What it has published.
    pub(super) published: Vec<u8>,
}

/// A write that is the same for every duplicate.
pub(super) struct Write<'a> {
    /// Commands, one after the other.
    pub(super) commands: &'a [u8],
    pub(super) count: u32,
    pub(super) shard: usize,
    pub(super) repeat: Repeat,
    pub(super) keys: &'a [Hash],
    pub(super) key_names: &'a [&'a [u8]],
    pub(super) form: Form,
    /// Whether its answer is that of its one command (and not that of an EXEC).
    pub(super) is_single: bool,
}

/// A write behind which a deadline was said again.
#[derive(Clone, Debug)]
pub(super) struct Late {
    /// Its one command, whatever its database.
    pub(super) commands: Vec<u8>,
    pub(super) repeat: Repeat,
    pub(super) shard: usize,
    /// The place of its one key.
    pub(super) place: Box<[u8]>,
}

/// An `SPOP` under way.
#[derive(Debug)]
pub(crate) struct Pop {
    pub(super) client: ClientId,
    pub(super) shard: usize,
    pub(super) key: Box<[u8]>,
    /// `None` = one, which is answered by itself.
    pub(super) count: Option<usize>,
    /// The members drawn last.
    pub(super) drawn: Vec<Box<[u8]>>,
    /// The members removed for this client.
    pub(super) taken: Vec<Box<[u8]>>,
    pub(super) draws: u32,
}

/// A question for the last id of a stream.
#[derive(Debug)]
pub(crate) struct LastIdQuestion {
    pub(super) client: ClientId,
    /// The hash of the stream's key.
    pub(super) key: u128,
    pub(super) number: u64,
}

/// A question of which a client's command waits for the answer.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(super) client: ClientId,
    /// Of the command: an answer to an earlier one is nobody's.
    pub(super) number: u64,
    pub(super) key: Box<[u8]>,
    pub(super) asked: Asked,
}

/// What is asked of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// When it expires: of a key that is watched.
    Deadline,
    /// The same of one that a command is about, for this look at its keys. These have told that
    /// there is no such key.
    Expiry { look: u64, told: ServerSet },
    /// The last id of a stream, for the argument at this index.
    LastId(usize),
}

/// What a duplicate is asked because keys expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asking {
    /// Its time, at this one of ours, in µs since 1970.
    Clock { sent_unix_us: i64 },
    /// The next keys of a listing.
    Page { number: u64 },
    /// The deadline of one of these.
    Deadline { number: u64, key: u64 },
}

/// What an answer will be the answer to.
#[derive(Debug)]
pub(crate) enum Owed {
    /// A client's access, plain.
    Access { call: usize },
    /// A client's read that one answer is enough for.
    Read { attempt: Attempt },
    /// A client's writes between MULTI and EXEC: `before` answers come first (OK, QUEUED).
    /// `refusal` is the first error among them: EXEC will only say that there was one.
    Group { call: usize, before: u32, is_single: bool, refusal: Option<Box<[u8]>> },
    /// What one duplicate does for all; `before` as above.
    Effect { before: u32, refusal: Option<Box<[u8]>> },
    /// A write of the log; `before` as above.
    Replayed { write: Option<Sequence>, before: u32, refusal: Option<Box<[u8]>> },
    /// A write of ours to the stream of a partition that a shard moves to or from; `before` as
    /// above. Of a key (`is_key`) nothing but success will do.
    Moved { write: Sequence, before: u32, refusal: Option<Box<[u8]>>, is_key: bool },
    /// A page of keys that a client asked for.
    Scan { number: u64 },
    /// The members that an SPOP is to take.
    Draw { pop: Box<Pop> },
    /// The last id of a stream that an XADD waits for.
    LastId { question: Box<LastIdQuestion> },
    /// What a command of the front waits for.
    Inquiry { inquiry: Box<Inquiry> },
    /// A database was chosen; what comes behind would be of another one otherwise.
    Chosen,
    /// Whether it is still signed, after it was emptied by somebody.
    Signature,
    /// The watermark was written.
    Mark { watermark: Sequence },
    /// A key for a server that is being filled.
    Dump { copy: Copy },
    /// When that key expires; `dump` is what came for it.
    Expiry { copy: Copy, dump: Option<Box<[u8]>> },
    /// Which functions there are, behind so many changes.
    Functions { generation: u64 },
    /// What is asked because keys expire.
    Expiring { asking: Asking },
    /// A question that is asked of this duplicate, perhaps of others too.
    Asked { question: u64, part: usize },
    /// Something of a key that is compared, in this round.
    Check { round: u64, key: u32, question: Question },
    /// Some of all keys.
    Page { number: u64 },
    /// A key (then nothing but OK will do) or a held write was given to a server that is being
    /// filled.
    Given { is_key: bool },
}

impl Owed {
    /// Whether it is what a client asks for, and not a read that another may answer.
    pub(super) const fn is_access(&self) -> bool {
        matches!(self, Self::Access { .. } | Self::Group { .. } | Self::Effect { .. })
    }

    /// Whether this answer is one of those that come before the last one of a group.
    pub(super) fn is_before_the_last(&mut self, reply: &[u8]) -> bool {
        let (Self::Group { before, refusal, .. }
        | Self::Effect { before, refusal, .. }
        | Self::Replayed { before, refusal, .. }
        | Self::Moved { before, refusal, .. }) = self
        else {
            return false;
        };
        if *before == 0 {
            return false;
        }
        *before -= 1; // OK, QUEUED, or why EXEC will be an error
        if reply.first() == Some(&b'-') && refusal.is_none() {
            *refusal = Some(reply.into());
        }
        true
    }

    /// The first error before the last answer of a group.
    pub(super) fn refusal(&self) -> Option<&[u8]> {
        match self {
            Self::Group { refusal, .. }
            | Self::Effect { refusal, .. }
            | Self::Replayed { refusal, .. }
            | Self::Moved { refusal, .. } => refusal.as_deref(),
            _ => None,
        }
    }
}

/// Whom a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyTarget {
    /// A server that is being filled, and its connection then: a later one knows nothing of it.
    Server(usize, u64),
    /// The log, in this pass.
    Log(u64),
    /// The partition that a shard moves to, in the move of this number.
    Move(u64),
}

/// One key on its way from a source to a target.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    pub(super) to: CopyTarget,
    pub(super) key: Box<[u8]>,
    pub(super) hash: Hash,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_ours_stand_in_their_places() {
        let merged = |here: &[(usize, &[u8])], shapes: usize| Merged {
            shapes: vec![Shape::Plain; shapes].into(),
            here: here.iter().map(|(place, answer)| (*place, answer.to_vec())).collect(),
            skipped: Box::default(),
        };
        let both = merged(&[(0, b"+PONG\r\n"), (2, b"$1\r\na\r\n")], 4);
        let (answer, _) = both.with(b"*2\r\n:1\r\n*1\r\n:2\r\n");
        assert_eq!(answer, b"*4\r\n+PONG\r\n:1\r\n$1\r\na\r\n*1\r\n:2\r\n");
        let (answer, _) = both.with(b"-UNCERTAIN what\r\n");
        assert_eq!(answer, b"-UNCERTAIN what\r\n", "an error stands for all");
        let (answer, _) = merged(&[(0, b"+PONG\r\n")], 1).with(b"*0\r\n");
        assert_eq!(answer, b"*1\r\n+PONG\r\n");
        let (answer, _) = merged(&[], 2).with(b"*1\r\n:1\r\n");
        assert_eq!(answer, b"*2\r\n:1\r\n_\r\n", "whoever lies about the number");
        let chosen = Merged { skipped: [0, 2, 3].into(), ..merged(&[(1, b"+OK\r\n")], 3) };
        let (answer, _) = chosen.with(b"*5\r\n+OK\r\n:1\r\n+OK\r\n+OK\r\n:2\r\n");
        assert_eq!(answer, b"*3\r\n:1\r\n+OK\r\n:2\r\n", "of chosen databases nothing is told");
    }
}
