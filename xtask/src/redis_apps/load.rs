//! The applications: which processes each has, and how they are told where to go.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::count::{Tally, Trace};
use super::folder;
use super::servers::{Addresses, Process, redis};
use crate::bench::process::{child, free_ports};
use crate::needs;

/// An application, unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum App {
    Rq,
    Celery,
    Bullmq,
    Django,
    Redisson,
}

/// How a process of an application finds its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Url(usize),
    Sentinel,
}

impl App {
    pub(super) const ALL: [Self; 5] =
        [Self::Rq, Self::Celery, Self::Bullmq, Self::Django, Self::Redisson];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rq => "rq",
            Self::Celery => "celery",
            Self::Bullmq => "bullmq",
            Self::Django => "django",
            Self::Redisson => "redisson",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|app| app.name() == name)
    }

    /// What looks, at the end, for what is not seen by traces alone.
    const fn look_back(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Rq => Some(&["python/bin/python", "rq_load.py", "look-back"]),
            Self::Bullmq => Some(&["node", "bullmq_load.mjs", "look-back"]),
            Self::Django => Some(&["python/bin/python", "django_load.py", "look-back"]),
            Self::Celery | Self::Redisson => None,
        }
    }

    /// Its processes: a name, how each finds its server, and its command line.
    fn processes(self) -> Vec<(&'static str, By, &'static [&'static str])> {
        const URLS: [By; 2] = [By::Url(0), By::Url(1)];
        let (give, work, other) = (URLS[0], URLS[1], By::Sentinel);
        match self {
            Self::Rq => vec![
                ("give", give, &["python/bin/python", "rq_load.py"]),
                ("work-url", work, &["python/bin/rq", "worker", "--url", "URL", "default"]),
                ("work-other", other, &["python/bin/rq", "worker", "-c", "rq_load", "default"]),
            ],
            Self::Celery => vec![
                ("give", give, &["python/bin/python", "celery_load.py"]),
                ("work-url", work, CELERY_URL),
                ("work-other", other, CELERY_OTHER),
            ],
            Self::Bullmq => vec![
                ("give", give, &["node", "bullmq_load.mjs", "give"]),
                ("work-url", work, &["node", "bullmq_load.mjs", "work"]),
                ("work-other", other, &["node", "bullmq_load.mjs", "work"]),
            ],
            Self::Django => vec![
                ("give-url", work, &["python/bin/python", "django_load.py", "url"]),
                ("give-other", other, &["python/bin/python", "django_load.py", "other"]),
            ],
            Self::Redisson => vec![
                ("give-url", work, &["java", "-Xmx256m", "-cp", "lib/*", "Locks.java", "url"]),
                ("give-other", other, &["java", "-Xmx256m", "-cp", "lib/*", "Locks.java", "other"]),
            ],
        }
    }
}

const CELERY_URL: &[&str] =
    &["python/bin/celery", "-A", "celery_load", "worker", "-c", "2", "-n", "url@%h", "-l", "INFO"];
const CELERY_OTHER: &[&str] = &[
    "python/bin/celery",
    "-A",
    "celery_load",
    "worker",
    "-c",
    "2",
    "-n",
    "other@%h",
    "-l",
    "INFO",
];

/// An application at the front, or at the plain Redis.
pub(super) struct Side {
    app: App,
    /// Of the usual rate.
    pace: f64,
    addresses: Addresses,
    trace: Trace,
    run: PathBuf,
    processes: Vec<Process>,
    restarts: u64,
    is_over: bool,
    _server: Process,
}

impl Side {
    pub(super) fn start(
        (app, pace): (App, f64),
        name: &str,
        run: &Path,
        to: &Addresses,
    ) -> Result<Self> {
        let run = run.join(name);
        std::fs::create_dir_all(&run)?;
        let port = free_ports(1)?[0];
        let server = redis("trace", &run, port, &[])?;
        let mut side = Self {
            app,
            pace,
            addresses: to.clone(),
            trace: Trace(port),
            run,
            processes: Vec::new(),
            restarts: 0,
            is_over: false,
            _server: server,
        };
        for (name, by, words) in app.processes() {
            let process = side.process(name, by, words)?;
            side.processes.push(process);
        }
        Ok(side)
    }

    fn process(&self, name: &str, by: By, words: &[&str]) -> Result<Process> {
        let (program, rest) = words.split_first().expect("a command line has a program");
        let program = match program.contains('/') {
            true => folder().join(program),
            false => needs::require(program).or_else(|_| {
                crate::workspace::find_program(program)
                    .ok_or_else(|| anyhow::anyhow!("`{program}` is not installed"))
            })?,
        };
        let url = |which: usize| format!("redis://127.0.0.1:{}/0", self.addresses.urls[which]);
        let sentinels: Vec<String> = self.addresses.sentinels.iter().map(u16::to_string).collect();
        let by_sentinel = by == By::Sentinel && !sentinels.is_empty();
        let which = if let By::Url(which) = by { which } else { 0 };
        let url = if by_sentinel { String::new() } else { url(which) };
        let mut rest: Vec<String> = rest.iter().map(|word| word.replace("URL", &url)).collect();
        if self.app == App::Rq && by == By::Sentinel && !by_sentinel {
            rest = vec!["worker".into(), "--url".into(), url.clone(), "default".into()];
        }
        let (port, sentinels) = (self.trace.0.to_string(), sentinels.join(" "));
        let pace = self.pace.to_string();
        let make = move || {
            let mut command = child(&program);
            command.args(&rest).current_dir(folder()).process_group(0);
            command.env("TRACE_PORT", &port).env("PACE", &pace).env("PYTHONDONTWRITEBYTECODE", "1");
            command.env("PYTHONUNBUFFERED", "1").env("PYTHONPATH", folder()).env("REDIS_URL", &url);
            command.env("SENTINEL_PORTS", if by_sentinel { sentinels.as_str() } else { "" });
            command
        };
        Process::start(name, &self.run, make)
    }

    /// Starts again what ended by itself.
    pub(super) fn supervise(&mut self) -> Result<()> {
        for process in &mut self.processes {
            let gives = process.name().starts_with("give");
            if process.has_ended()? && !(gives && self.is_over) {
                process.restart()?;
                self.restarts += 1;
            }
        }
        if self.restarts > 1_000 {
            bail!("its processes end again and again, see {:?}", self.run);
        }
        Ok(())
    }

    /// Tells producers that it is over.
    pub(super) fn stop_giving(&mut self) -> Result<()> {
        self.is_over = true;
        self.trace.say(&["SET", "stop", "1"]).map(|_| ())
    }

    /// Whether producers have ended and everything acknowledged was done.
    pub(super) fn is_drained(&self) -> bool {
        let mut giving = self.processes.iter().filter(|it| it.name().starts_with("give"));
        giving.all(Process::is_gone) && self.trace.missing().is_ok_and(|count| count == 0)
    }

    /// Ends the application; what it did.
    pub(super) fn finish(mut self) -> Result<Tally> {
        self.processes.clear();
        if let Some(words) = self.app.look_back() {
            self.process("look-back", By::Url(0), words)?.wait()?;
        }
        let mut tally = self.trace.tally()?;
        tally.restarts = self.restarts;
        Ok(tally)
    }
}
