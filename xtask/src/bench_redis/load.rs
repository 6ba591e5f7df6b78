//! The load: `redis-benchmark`, one thread, in a closed loop, on keys that all have a value. Where
//! latency is the question a loop of our own: `redis-benchmark` counts in steps of 8 us, as much
//! as some of the differences.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::process;

pub(super) const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 100;
const OK: &[u8] = b"+OK\r\n";
/// Writes sent before their answers are read; the answers fit into any socket buffer.
const FILL_BATCH: u64 = 500;
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A kind of load.
pub(super) struct Load {
    pub(super) name: &'static str,
    /// The word for it in JSON.
    pub(super) key: &'static str,
    pub(super) test: &'static str,
    pub(super) connections: u64,
    pub(super) pipeline: u64,
}

impl Load {
    pub(super) fn is_read(&self) -> bool {
        self.test == "get"
    }

    /// Whether it measures the latency that a lonely client sees.
    pub(super) fn is_latency(&self) -> bool {
        self.connections == 1
    }
}

const fn load(
    name: &'static str,
    key: &'static str,
    test: &'static str,
    connections: u64,
    pipeline: u64,
) -> Load {
    Load { name, key, test, connections, pipeline }
}

pub(super) const LOADS: [Load; 7] = [
    load("SET, 50 connections, pipeline 16", "set_50x16", "set", 50, 16),
    load("GET, 50 connections, pipeline 16", "get_50x16", "get", 50, 16),
    load("SET, 50 connections, pipeline 1", "set_50x1", "set", 50, 1),
    load("GET, 50 connections, pipeline 1", "get_50x1", "get", 50, 1),
    load("SET, 1 connection, pipeline 1", "set_1x1", "set", 1, 1),
    load("GET, 1 connection, pipeline 1", "get_1x1", "get", 1, 1),
    load("EVAL of a SET, 1 connection, pipeline 1", "eval_1x1", "eval", 1, 1),
];

/// Its effects are what the load `set_1x1` writes.
const SCRIPT: &str = "return redis.call('SET', KEYS[1], ARGV[1])";

/// `redis-benchmark`.
pub(super) struct Tool {
    pub(super) program: PathBuf,
}

/// What one run says.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) commands_per_s: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

impl Tool {
    /// Sends `commands` to `127.0.0.1:port`.
    ///
    /// # Errors
    /// When it fails, as it does at the first answer that is an error.
    pub(super) fn run(&self, port: u16, load: &Load, commands: u64) -> Result<Outcome> {
        if load.is_latency() {
            return ask_alone(port, load, commands);
        }
        let output = process::child(&self.program)
            .args(["-h", "127.0.0.1", "--csv", "-t", load.test])
            .args(["-p", &port.to_string(), "-n", &commands.to_string()])
            .args(["-c", &load.connections.to_string(), "-P", &load.pipeline.to_string()])
            .args(["-r", &KEYS.to_string(), "-d", &VALUE_BYTES.to_string()])
            .output()
            .context("redis-benchmark could not be started")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("redis-benchmark failed ({}): {words}{text}", output.status);
        }
        parse(&text, load.test)
    }
}

/// One connection, one command at a time; of what comes only the length is looked at.
fn ask_alone(port: u16, load: &Load, commands: u64) -> Result<Outcome> {
    ensure!(commands > 0, "no command to measure");
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let length = if load.is_read() { value_reply().len() } else { OK.len() };
    let (mut answer, value) = (vec![0; length], value());
    let mut latencies_ns = Vec::new();
    let begun = Instant::now();
    for number in 0..commands {
        // A stride that shares no factor with the number of keys visits all of them.
        let key = name(number * 7919 % KEYS);
        let words = match load.test {
            "get" => vec!["GET", &key],
            "eval" => vec!["EVAL", SCRIPT, "1", &key, &value],
            _ => vec!["SET", &key, &value],
        };
        let bytes = command(&words);
        let sent = Instant::now();
        stream.write_all(bytes.as_bytes())?;
        stream.read_exact(&mut answer).context("no whole answer")?;
        latencies_ns.push(sent.elapsed().as_nanos() as u64);
        ensure!(answer[0] != b'-', "an error: {}", String::from_utf8_lossy(&answer));
    }
    let commands_per_s = commands as f64 / begun.elapsed().as_secs_f64();
    latencies_ns.sort_unstable();
    let at = |share: f64| latencies_ns[((commands - 1) as f64 * share) as usize] as f64 / 1e3;
    Ok(Outcome { commands_per_s, p50_us: at(0.50), p99_us: at(0.99) })
}

/// Reads the columns by the names in their head.
fn parse(text: &str, test: &str) -> Result<Outcome> {
    let fields = |line: &str| -> Vec<String> {
        line.split(',').map(|field| field.trim().trim_matches('"').to_owned()).collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.starts_with("\"test\""));
    let head = lines.next().map(fields).unwrap_or_default();
    let row = lines.map(fields).find(|row| row[0].eq_ignore_ascii_case(test)).unwrap_or_default();
    let value = |name: &str| -> Result<f64> {
        let place = head.iter().position(|one| one == name);
        let value = place.and_then(|place| row.get(place)?.parse().ok());
        value.with_context(|| format!("redis-benchmark printed no `{name}` of {test}:\n{text}"))
    };
    Ok(Outcome {
        commands_per_s: value("rps")?,
        p50_us: value("p50_latency_ms")? * 1e3,
        p99_us: value("p99_latency_ms")? * 1e3,
    })
}

/// Gives every key of the load a value, and reads one back.
pub(super) fn fill(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    for first in (0..KEYS).step_by(FILL_BATCH as usize) {
        let keys = first..first + FILL_BATCH;
        stream.write_all(
            keys.map(|key| command(&["SET", &name(key), &value()])).collect::<String>().as_bytes(),
        )?;
        expect(&mut stream, &OK.repeat(FILL_BATCH as usize))?;
    }
    stream.write_all(command(&["GET", &name(KEYS - 1)]).as_bytes())?;
    expect(&mut stream, value_reply().as_bytes())
}

/// Whether a write is taken yet.
///
/// # Errors
/// When it is not; with what was answered.
pub(super) fn try_write(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(command(&["SET", &name(0), &value()]).as_bytes())?;
    expect(&mut stream, OK)
}

/// The spelling of `redis-benchmark`.
pub(super) fn name(key: u64) -> String {
    format!("key:{key:012}")
}

fn value() -> String {
    "x".repeat(VALUE_BYTES)
}

pub(super) fn value_reply() -> String {
    format!("${VALUE_BYTES}\r\n{}\r\n", value())
}

pub(super) fn command(words: &[&str]) -> String {
    let words = words.iter().map(|word| (word.len(), word));
    let parts: Vec<String> = words.map(|(len, word)| format!("${len}\r\n{word}\r\n")).collect();
    format!("*{}\r\n{}", parts.len(), parts.concat())
}

/// Reads exactly what is expected. A wrong answer may be shorter: every part is looked at.
fn expect(stream: &mut TcpStream, expected: &[u8]) -> Result<()> {
    let mut answer = vec![0; expected.len()];
    let mut filled = 0;
    while filled < answer.len() {
        let count = stream.read(&mut answer[filled..]).context("no answer")?;
        filled += count;
        ensure!(
            count > 0 && answer[..filled] == expected[..filled],
            "expected {:?}, got {:?}",
            String::from_utf8_lossy(&expected[..expected.len().min(80)]),
            String::from_utf8_lossy(&answer[filled - count..filled.min(filled - count + 80)])
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The form of redis-benchmark 7.0.15.
    const TEXT: &str = "\
\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
\"p99_latency_ms\",\"max_latency_ms\"
\"GET\",\"99009.90\",\"0.258\",\"0.080\",\"0.263\",\"0.327\",\"0.367\",\"0.503\"
";

    #[test]
    fn columns_are_found_by_their_names() {
        let expected = Outcome { commands_per_s: 99_009.9, p50_us: 263.0, p99_us: 367.0 };
        assert_eq!(parse(TEXT, "get").unwrap(), expected);
        let warned = format!("WARNING: Could not fetch server CONFIG\n{TEXT}");
        assert_eq!(parse(&warned, "get").unwrap(), expected);
    }

    #[test]
    fn another_form_is_an_error_that_names_what_is_missing() {
        let error = parse(TEXT, "set").unwrap_err().to_string();
        assert!(error.starts_with("redis-benchmark printed no `rps` of set"), "{error}");
        assert!(parse(&TEXT.replace("p99", "p98"), "get").is_err());
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        assert_eq!(command(&["GET", "key"]), "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
        assert_eq!(name(7), "key:000000000007");
    }

    #[test]
    fn the_latency_of_a_lonely_client_is_that_of_the_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 1024];
            while stream.read(&mut bytes).unwrap() > 0 {
                std::thread::sleep(Duration::from_millis(3));
                stream.write_all(OK).unwrap();
            }
        });
        let outcome = ask_alone(port, &LOADS[4], 20).unwrap();
        assert!(outcome.p50_us >= 3000.0 && outcome.p50_us <= outcome.p99_us, "{outcome:?}");
        assert!(outcome.commands_per_s < 1e6 / 3000.0, "{outcome:?}");
        server.join().unwrap();
    }

    #[test]
    fn a_wrong_answer_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"-NO\r\n").unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        });
        let error = try_write(port).unwrap_err().to_string();
        assert!(error.contains("expected \"+OK") && error.contains("-NO"), "{error}");
        server.join().unwrap();
    }
}
