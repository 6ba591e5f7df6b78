//! The load: `h2load`, one thread, as fast as answers come: HTTP/2 with some streams at once, or
//! HTTP/1.1 in TLS with a request on each connection.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Outcome;
use crate::bench::process;

/// How load is made.
pub(super) struct Load {
    pub(super) program: PathBuf,
    pub(super) connections: u32,
    /// Of a connection at once; `None` = one request on each connection, in TLS.
    pub(super) streams: Option<u32>,
}

impl Load {
    /// Loads `127.0.0.1:port` for `length`.
    ///
    /// # Errors
    /// When h2load fails or any request did: an error answer costs other work than a good one.
    pub(super) fn run(&self, port: u16, length: Duration) -> Result<Outcome> {
        let start = Instant::now();
        let Some(streams) = self.streams else {
            let (requests, scheme) = (self.connections.to_string(), "https");
            let mut all = 0;
            while start.elapsed() < length {
                all += self.once(&["--h1", "-n", &requests], scheme, port)?.requests;
            }
            let requests_per_second = all as f64 / start.elapsed().as_secs_f64();
            return Ok(Outcome { requests: all, requests_per_second });
        };
        let (streams, seconds) = (format!("-m{streams}"), format!("-D{}", length.as_secs()));
        self.once(&[&streams, &seconds], "http", port)
    }

    /// Sends so many requests of HTTP/1.1 on kept connections.
    ///
    /// # Errors
    /// As [`Load::run`].
    pub(super) fn messages(&self, port: u16, requests: u32) -> Result<Outcome> {
        self.once(&["--h1", "-n", &requests.to_string()], "http", port)
    }

    fn once(&self, words: &[&str], scheme: &str, port: u16) -> Result<Outcome> {
        let output = process::child(&self.program)
            .args(["-t1", &format!("-c{}", self.connections)])
            .args(words)
            .arg(format!("{scheme}://127.0.0.1:{port}/"))
            .output()
            .context("h2load could not be started")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("h2load failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        parse(&text)
    }
}

fn parse(text: &str) -> Result<Outcome> {
    let line = |start| text.lines().find_map(|line| line.strip_prefix(start));
    let number_before = |text: &str, word| {
        let part = text.split(',').find_map(|part| part.trim().strip_suffix(word));
        part.and_then(|number| number.trim().parse::<f64>().ok())
    };
    let done = line("requests:").and_then(|line| number_before(line, "succeeded"));
    let good = line("status codes:").and_then(|line| number_before(line, "2xx"));
    let failed = line("requests:").and_then(|line| number_before(line, "failed"));
    let rate = line("finished in").and_then(|line| number_before(line, "req/s"));
    let (Some(done), Some(good), Some(failed), Some(rate)) = (done, good, failed, rate) else {
        bail!("h2load printed no lines of requests, status codes and rate:\n{text}");
    };
    if failed > 0.0 || good < done {
        bail!("not every request was answered well: {failed} failed, {done} done, {good} of 2xx");
    }
    Ok(Outcome { requests: done as u64, requests_per_second: rate })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form of h2load 1.52.0.
    const TEXT: &str = "\
finished in 2.01s, 37350.50 req/s, 6.52MB/s
requests: 74701 total, 74701 started, 74701 done, 74701 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 74765 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 13.05MB (13680539) total, 584.10KB (598120) headers (space savings 95.00%), 10.70MB
";

    #[test]
    fn requests_and_rate_are_read() {
        let expected = Outcome { requests: 74_701, requests_per_second: 37_350.5 };
        assert_eq!(parse(TEXT).unwrap(), expected);
    }

    #[test]
    fn a_failed_request_spoils_the_measurement() {
        for (good, bad) in [("0 failed", "3 failed"), ("74765 2xx", "9 2xx")] {
            assert!(parse(&TEXT.replace(good, bad)).is_err(), "{bad}");
        }
        assert!(parse("h2load 9 says hello").is_err());
    }
}
