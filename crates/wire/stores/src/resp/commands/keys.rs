//! Which arguments of a command are keys.

use super::{Command, Refusal, integer, refusals};
use crate::resp::request::Arguments;

/// Where the keys of a command stand among its arguments; its name is argument 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// It has none.
    None,
    /// As `COMMAND` says it: the first, the last (negative: from the end), and how far apart.
    Span {
        /// The first key.
        first: u8,
        /// The last key; -1 is the last argument.
        last: i8,
        /// From one key to the next.
        step: u8,
    },
    /// As many as the argument at this index says, right after it.
    Counted(u8),
    /// The destination at 1, how many sources at 2, then these.
    Stored,
    /// As many as argument 2 says, which may be none, right after it: of scripts.
    Script,
    /// The first half of what follows the word `STREAMS`.
    Streams,
    /// At 1, and after the last `STORE`: of `SORT`.
    Sort,
    /// At 1, and after the last `STORE` or `STOREDIST`: of `GEORADIUS`.
    Radius,
}

/// The indices of the arguments that are keys; those that are written first come first when the
/// command has them first, as in `RENAME` or `ZUNIONSTORE`.
#[derive(Clone, Debug)]
pub struct KeyIndices {
    next: usize,
    end: usize,
    step: usize,
    /// One more, after all others.
    further: Option<usize>,
}

impl KeyIndices {
    fn span(first: usize, end: usize, step: usize) -> Self {
        Self { next: first, end, step, further: None }
    }

    fn of_two(first: usize, further: Option<usize>) -> Self {
        Self { further, ..Self::span(first, first + 1, 1) }
    }
}

impl Iterator for KeyIndices {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.next >= self.end {
            return self.further.take();
        }
        let index = self.next;
        self.next += self.step;
        Some(index)
    }
}

/// Which arguments are keys. Every index is one of an argument.
///
/// # Errors
/// When the command says there are more keys than it has, or not how many: what Redis would answer.
#[inline]
pub fn keys(command: &Command, arguments: Arguments<'_>) -> Result<KeyIndices, Refusal> {
    let count = arguments.len();
    match command.keys {
        Keys::None => Ok(KeyIndices::span(0, 0, 1)),
        Keys::Span { first, last, step } => {
            let (first, step) = (usize::from(first), usize::from(step));
            let end = match usize::try_from(last) {
                Ok(last) => (last + 1).min(count),
                Err(_) => count.saturating_sub(usize::from(last.unsigned_abs()) - 1),
            };
            if step == 2
                && count.is_multiple_of(2)
                && let Some(text) = refusals::odd_pairs(command.name)
            {
                return Err(Refusal(text));
            }
            Ok(KeyIndices::span(first, end, step))
        }
        Keys::Counted(at) => counted(command, arguments, usize::from(at)),
        Keys::Stored => {
            let sources = counted(command, arguments, 2)?;
            Ok(KeyIndices { further: Some(1), ..sources })
        }
        Keys::Script => script(command, arguments),
        Keys::Streams => streams(arguments),
        Keys::Sort => {
            let skipped = [("limit", 2), ("by", 1), ("get", 1)];
            Ok(KeyIndices::of_two(1, stored(arguments, 2, &["store"], &skipped)))
        }
        Keys::Radius => {
            let words = ["store", "storedist"];
            Ok(KeyIndices::of_two(1, stored(arguments, 5, &words, &[("count", 1)])))
        }
    }
}

fn counted(command: &Command, arguments: Arguments<'_>, at: usize) -> Result<KeyIndices, Refusal> {
    let no_input = refusals::no_input_keys(command.name);
    let not_a_number = no_input.map_or(refusals::NO_KEYS, |_| refusals::NOT_AN_INTEGER);
    let count = arguments.get(at).and_then(integer).ok_or(Refusal(not_a_number))?;
    let count = usize::try_from(count).ok().filter(|&count| count > 0);
    let count = count.ok_or(Refusal(no_input.unwrap_or(refusals::NO_KEYS)))?;
    if count >= arguments.len() - at {
        let is_counting = command.name == "sintercard";
        return Err(Refusal(if is_counting { refusals::MANY_KEYS } else { refusals::SYNTAX }));
    }
    Ok(KeyIndices::span(at + 1, at + 1 + count, 1))
}

fn script(command: &Command, arguments: Arguments<'_>) -> Result<KeyIndices, Refusal> {
    let text = arguments.get(1).filter(|_| command.name.starts_with("eval"));
    if text.is_some_and(|text| text.windows(8).any(|at| at == b"set_repl")) {
        return Err(Refusal(refusals::SET_REPL));
    }
    let no_number = if text.is_some() { refusals::NOT_AN_INTEGER } else { refusals::BAD_KEYS };
    let count = arguments.get(2).and_then(integer).ok_or(Refusal(no_number))?;
    let count = usize::try_from(count).map_err(|_| Refusal(refusals::NEGATIVE_KEYS))?;
    if count > arguments.len() - 3 {
        return Err(Refusal(refusals::MANY_KEYS));
    }
    Ok(KeyIndices::span(3, 3 + count, 1))
}

fn streams(arguments: Arguments<'_>) -> Result<KeyIndices, Refusal> {
    // Options come before the word, each with what belongs to it: a key of that name is none.
    let mut at = 1;
    while !arguments.is(at, "streams") {
        if at >= arguments.len() {
            return Err(Refusal(refusals::SYNTAX));
        }
        at += stream_option(arguments, at);
    }
    let rest = arguments.len() - at - 1;
    if rest == 0 || rest % 2 == 1 {
        return Err(Refusal(refusals::UNBALANCED_STREAMS));
    }
    Ok(KeyIndices::span(at + 1, at + 1 + rest / 2, 1))
}

/// How many arguments an option of `XREAD` or `XREADGROUP` has, its name included.
pub(in crate::resp) fn stream_option(arguments: Arguments<'_>, at: usize) -> usize {
    match () {
        () if arguments.is(at, "group") => 3,
        () if arguments.is(at, "noack") => 1,
        () => 2,
    }
}

/// The argument after the last of these words, of the options that begin at `from`. Other options
/// are skipped with their values, which may be such words.
fn stored(
    arguments: Arguments<'_>,
    from: usize,
    words: &[&str],
    skipped: &[(&str, usize)],
) -> Option<usize> {
    let mut found = None;
    let mut at = from;
    while at + 1 < arguments.len() {
        if words.iter().any(|word| arguments.is(at, word)) {
            found = Some(at + 1);
            at += 1;
        } else if let Some((_, values)) = skipped.iter().find(|(word, _)| arguments.is(at, word)) {
            at += values;
        }
        at += 1;
    }
    found
}
