//! The servers that the suites of others ask, as tests start them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// How long the servers may take to start, with the compilation of what starts them.
const START_MAX: Duration = Duration::from_secs(1_800);

/// A plain Redis and a front with three duplicates, new and empty.
pub(super) struct Servers {
    child: Child,
    file: PathBuf,
    /// Ports.
    pub(super) plain: u16,
    pub(super) front: u16,
}

impl Servers {
    /// What they print goes into a file of this folder.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let (file, log) = (folder.join("servers"), folder.join("servers.log"));
        let _ = fs::remove_file(&file);
        let test = ["test", "-p", "evenkeel-duplicates", "--test", "duplicates", "--"];
        let output = fs::File::create(&log).with_context(|| format!("cannot write {log:?}"))?;
        let child = workspace::cargo()
            .args(test)
            .args(["--ignored", "--exact", "hold::hold", "--nocapture"])
            .env("EVENKEEL_DUPLICATES_HOLD", &file)
            .current_dir(workspace::root())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start the servers")?;
        let mut this = Self { child, file, plain: 0, front: 0 };
        let began = Instant::now();
        loop {
            let written = fs::read_to_string(&this.file).unwrap_or_default();
            if let Some([plain, front]) = ports(&written) {
                (this.plain, this.front) = (plain, front);
                return Ok(this);
            }
            if let Some(status) = this.child.try_wait()? {
                bail!("the servers ended ({status}), see {log:?}; `cargo xtask needs` may help");
            }
            if began.elapsed() > START_MAX {
                bail!("the servers do not start, see {log:?}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// `PLAIN FRONT` and the end of a line.
fn ports(text: &str) -> Option<[u16; 2]> {
    let (plain, front) = text.strip_suffix('\n')?.split_once(' ')?;
    Some([plain.parse().ok()?, front.parse().ok()?])
}

impl Drop for Servers {
    fn drop(&mut self) {
        if !self.file.exists() {
            let _ = self.child.kill(); // it has not come so far that it would see
        }
        // They stay as long as the file does.
        let _ = fs::remove_file(&self.file);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_once_they_are_written_whole() {
        assert_eq!(ports("7000 7001\n"), Some([7000, 7001]));
        assert_eq!(ports("7000 70"), None, "it is still being written");
    }
}
