//! The load: `wrk`, one thread, keep-alive, as fast as answers come.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Outcome;
use crate::bench::process;

/// How load is made.
pub(super) struct Load {
    pub(super) program: PathBuf,
    pub(super) connections: u32,
    pub(super) is_encrypted: bool,
    /// Whether each request has a connection of its own.
    pub(super) is_once: bool,
}

impl Load {
    /// Loads `127.0.0.1:port` for `length`, in whole seconds.
    ///
    /// # Errors
    /// When wrk fails or any request did: an error answer costs other work than a good one.
    pub(super) fn run(&self, port: u16, length: Duration) -> Result<Outcome> {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        let output = process::child(&self.program)
            .args(["-t1", &format!("-c{}", self.connections)])
            .arg(format!("-d{}s", length.as_secs()))
            .args(self.is_once.then_some(["-H", "Connection: close"]).into_iter().flatten())
            .arg(format!("{scheme}://127.0.0.1:{port}/"))
            .output()
            .context("wrk could not be started")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("wrk failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        parse(&text)
    }
}

fn parse(text: &str) -> Result<Outcome> {
    let mut lines = text.lines().map(str::trim);
    let is_complaint = |line: &&str| line.starts_with("Non-2xx") || line.starts_with("Socket err");
    if let Some(complaint) = lines.clone().find(is_complaint) {
        bail!("not every request was answered well: {complaint}");
    }
    let requests = lines.clone().find_map(|line| line.split_once(" requests in ")?.0.parse().ok());
    let rate = lines.find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse().ok());
    let (Some(requests), Some(requests_per_second)) = (requests, rate) else {
        bail!("wrk printed no `N requests in` or no `Requests/sec:` line:\n{text}");
    };
    Ok(Outcome { requests, requests_per_second })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form of wrk 4.1.0.
    const TEXT: &str = "\
Running 2s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.06ms  228.54us   4.79ms   84.66%
    Req/Sec    60.27k     2.91k   66.66k    80.00%
  119924 requests in 2.00s, 34.54MB read
Requests/sec:  59900.76
Transfer/sec:     17.25MB
";

    #[test]
    fn requests_and_rate_are_read() {
        let expected = Outcome { requests: 119_924, requests_per_second: 59_900.76 };
        assert_eq!(parse(TEXT).unwrap(), expected);
    }

    #[test]
    fn a_failed_request_spoils_the_measurement() {
        for complaint in [
            "  Socket errors: connect 0, read 3, write 0, timeout 0\n",
            "  Non-2xx or 3xx responses: 7\n",
        ] {
            let error = parse(&format!("{TEXT}{complaint}")).unwrap_err().to_string();
            assert!(error.contains(complaint.trim()), "{error}");
        }
    }

    #[test]
    fn an_unknown_form_is_an_error() {
        assert!(parse("wrk 9 says hello").is_err());
    }
}
