//! `[log]`: how the process and its requests are logged.

use std::io;
use std::time::Duration;

use evenkeel_proxy::requests::access::{AccessConfig, Target};
use evenkeel_settings::Table;
use evenkeel_settings::common::{HOUR, file};

/// `[log]`
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogConfig {
    /// How the process writes its own log; default text.
    pub format: LogFormat,
    /// The log of requests; `None` = none.
    pub access: Option<AccessConfig>,
}

evenkeel_core::named! {
    /// How the log of the process is written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum LogFormat {
        /// For people.
        #[default]
        Text = "text",
        /// One JSON object for each line.
        Json = "json",
    }
}

impl LogConfig {
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        Self {
            format: table.key("format").variant(&LogFormat::NAMED).or(LogFormat::Text),
            access: table.key("access").table(access).optional(),
        }
    }

    /// Checks that the access log has a folder to be in.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn check_files(&self) -> io::Result<()> {
        let Some(AccessConfig { target: Target::File(path), .. }) = &self.access else {
            return Ok(());
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let is_there = folder.is_none_or(std::path::Path::is_dir) && !path.is_dir();
        is_there.then_some(()).ok_or_else(|| {
            let words = format!(
                "[log] access: got {}, expected a file in a folder that exists",
                path.display()
            );
            io::Error::new(io::ErrorKind::NotFound, words)
        })
    }
}

fn access(table: &mut Table<'_>) -> AccessConfig {
    let is_stdout = table.key("path").value().is_some_and(
        |value| matches!(value, evenkeel_settings::Value::Text(text) if text == "stdout"),
    );
    let target = match is_stdout {
        true => Target::Stdout,
        false => Target::File(file(table.key("path"))),
    };
    AccessConfig {
        target,
        sample: table.key("sample").probability().or(1.0),
        slow: table.key("slow").duration().between(Duration::from_micros(1)..=HOUR).optional(),
    }
}
