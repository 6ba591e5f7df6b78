//! What a command says on stdout.
//!
//! `println!` panics when nobody reads what it says, as in `evenkeel plan ... --json | head -1`.
//! Who read enough has done nothing wrong: a reader that went away is no error, and the command
//! ends as it would have. A full disk is one.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;

/// Writes words and an end of line, in the form of `println!`.
macro_rules! line {
    ($($words:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($words)*))) };
}
pub(crate) use line;

/// Writes words as they are: `text!("{table}")?`.
macro_rules! text {
    ($($words:tt)*) => { $crate::output::write(format_args!($($words)*)) };
}
pub(crate) use text;

/// Writes a document on stdout, as JSON that people can read.
pub(crate) fn json(document: &impl serde::Serialize) -> anyhow::Result<()> {
    line!("{}", serde_json::to_string_pretty(document)?)
}

/// Writes a page to a file and says where it is; `what` people call it.
pub(crate) fn page(what: &str, file: &Path, page: &str) -> anyhow::Result<()> {
    std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("{what} written to {}", file.display());
    Ok(())
}

/// Writes words on stdout.
///
/// # Errors
/// When they cannot be written, though somebody reads.
pub(crate) fn write(words: Arguments<'_>) -> anyhow::Result<()> {
    write_to(&mut io::stdout().lock(), words)
}

fn write_to(sink: &mut impl Write, words: Arguments<'_>) -> anyhow::Result<()> {
    match sink.write_fmt(words).and_then(|()| sink.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to stdout (is a disk full?)"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses what is written to it.
    struct Refusing(io::ErrorKind);

    impl Write for Refusing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_error_and_a_full_disk_is() {
        let mut written = Vec::new();
        write_to(&mut written, format_args!("{} words", 2)).unwrap();
        assert_eq!(written, b"2 words");
        write_to(&mut Refusing(io::ErrorKind::BrokenPipe), format_args!("words")).unwrap();
        let full = Refusing(io::ErrorKind::StorageFull);
        let error = write_to(&mut { full }, format_args!("words")).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot write to stdout"), "{error:#}");
    }
}
