//! A child that is asked in lines and answers in lines. It ends when nobody can ask any more: with
//! this process at the latest.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A child may have servers of its own to end.
const END_LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A child and the two ways to it; what it says on standard error is shown.
#[derive(Debug)]
pub(crate) struct Dialogue {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Dialogue {
    /// Starts `command`, called `name` where it is spoken of.
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{name} could not be started"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        Ok(Self { name: name.to_owned(), child, input, output })
    }

    /// Says a line and waits for the answer: what follows `mark` in the next line that begins so.
    pub(crate) fn ask(&mut self, line: &str, mark: &str) -> Result<String> {
        let input = self.input.as_mut().expect("it stays open until the end");
        let said = writeln!(input, "{line}").and_then(|()| input.flush());
        said.with_context(|| format!("{} has ended: nobody reads `{line}`", self.name))?;
        self.answer(mark)
    }

    /// Waits for what it says unasked.
    pub(crate) fn answer(&mut self, mark: &str) -> Result<String> {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line);
            if read.with_context(|| format!("{} cannot be read", self.name))? == 0 {
                bail!("{} has ended where `{mark}` was expected; it says above why", self.name);
            }
            if let Some(words) = line.strip_prefix(mark) {
                return Ok(words.trim().to_owned());
            }
        }
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        self.input = None;
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < END_LIMIT {
            sleep(POLL_INTERVAL);
        }
        // Both fail when the process is gone, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Dialogue {
        Dialogue::start("the shell", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn answers_are_told_from_other_lines() {
        let mut shell = shell("echo noise; echo ready; read a; echo noise; echo \"got $a\"; cat");
        assert_eq!(shell.answer("ready").unwrap(), "");
        assert_eq!(shell.ask("one two", "got ").unwrap(), "one two");
    }

    #[test]
    fn a_child_that_ends_is_an_error_that_names_it() {
        let error = shell("echo other").answer("ready").unwrap_err().to_string();
        assert!(error.starts_with("the shell has ended where `ready` was expected"), "{error}");
    }
}
