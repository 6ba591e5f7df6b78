//! What the replay of a long day costs: CPU time, memory, and whether its bytes are the same again.
//!
//! A process of its own records the day, and one the replay: memory is told by the process that
//! needs it.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use evenkeel_records::{DayWriter, Manifest};
use evenkeel_replay::bars::WORLDS;
use evenkeel_replay::day::Ready;
use evenkeel_replay::question::{Question, ask};
use evenkeel_sim::world::{RecordConfig, record, windows};

const RECORDED: &str = "least-outstanding";
const EXPLORED: &str = "two-choices";
const PAIRS: f64 = 0.001;
const SEED: u64 = 1;
/// Bars: CPU seconds and bytes for ten million requests.
const CPU_S_MAX: f64 = 30.0;
const BYTES_MAX: f64 = 1_073_741_824.0;

type Failure = Box<dyn Error>;

/// Measures it: `Ok(false)` when two replays differ.
pub(crate) fn measure(requests: u64) -> Result<bool, Failure> {
    let directory = std::env::temp_dir().join(format!("evenkeel-speed-{}", std::process::id()));
    let measured = measure_in(&directory, requests);
    let _ = fs::remove_dir_all(&directory);
    measured
}

fn measure_in(directory: &Path, requests: u64) -> Result<bool, Failure> {
    let _ = again("--record", directory, requests)?;
    let first = again("--replay", directory, requests)?;
    let (figures, reply) = first.split_once('\n').ok_or("a replay says nothing")?;
    println!("{reply}\n{requests} requests: {figures}");
    println!("bars for 10,000,000: {CPU_S_MAX} CPU s, {:.0} MiB", BYTES_MAX / 1_048_576.0);
    let second = again("--replay", directory, requests)?;
    let is_same = second.split_once('\n').is_some_and(|(_, other)| other == reply);
    println!("a second replay: {}", if is_same { "the same bytes" } else { "OTHER BYTES" });
    Ok(is_same)
}

/// What a process of this program prints.
fn again(what: &str, directory: &Path, requests: u64) -> Result<String, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.arg(what).arg(directory).arg(requests.to_string()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// One of the two processes.
pub(crate) fn part(what: &str, directory: &Path, requests: u64) -> Result<(), Failure> {
    match what {
        "--record" => write(directory, requests),
        _ => replay(directory),
    }
}

fn write(directory: &Path, requests: u64) -> Result<(), Failure> {
    let world = &WORLDS[0];
    let (like, set) = world.spelled(requests)?;
    let scenario = world.scenario(requests)?;
    let explored = windows(requests as f64 / scenario.rate(), 0.05, SEED);
    let explore = Some((EXPLORED.to_owned(), explored));
    let config = RecordConfig { explore, pairs: PAIRS, ..RecordConfig::default() };
    let day = record(&scenario, RECORDED, SEED, config);
    let policies = vec![RECORDED.to_owned(), EXPLORED.to_owned()];
    let replicas = scenario.cluster.servers;
    let group_size = scenario.cluster.replication_factor;
    let new = Manifest::new("bars", policies, replicas);
    let manifest = Manifest { pairs: PAIRS, group_size, like, set, ..new };
    DayWriter::write(directory, &manifest, &day)?;
    Ok(())
}

/// The first line tells what it cost; what follows is the same for the same day.
fn replay(directory: &Path) -> Result<(), Failure> {
    let ready = Ready::read(directory)?;
    let rebuilt_s = cpu_s()?;
    let question = Question::read(&ready, &["policy=c3".to_owned(), "hedge=5%".to_owned()])?;
    let reply = ask(&ready, &question, false)?;
    println!(
        "{:.1} CPU s ({rebuilt_s:.1} to read and rebuild), {:.0} MiB",
        cpu_s()?,
        bytes_most()? / 1_048_576.0
    );
    println!("{}\nbacktest {:?}\nslices {:?}", ready.described(), reply.backtest, reply.slice);
    for one in &reply.answer.percentiles {
        println!("{one:?}");
    }
    Ok(())
}

/// CPU time of this process: user and system, s.
fn cpu_s() -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) =
        stat.rsplit_once(')').ok_or("/proc/self/stat: expected a name in brackets")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || -> Result<f64, Failure> {
        Ok(fields.next().ok_or("/proc/self/stat: expected times")?.parse()?)
    };
    // Linux tells times in hundredths of a second on every platform.
    Ok((ticks()? + ticks()?) / 100.0)
}

/// The most memory that this process had at a time, bytes.
fn bytes_most() -> Result<f64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("/proc/self/status: expected VmHWM")?.parse::<f64>()? * 1024.0)
}
