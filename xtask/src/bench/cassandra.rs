//! Nodes of a real Cassandra, by the rig of the tests, which does to them what it is told.

use std::fs;

use anyhow::{Context, Result, bail};

use super::dialogue::Dialogue;
use crate::workspace;

/// The unit of processor times in proc(5), per second.
const USER_HZ: f64 = 100.0;

/// Running nodes. They end with this.
pub(crate) struct Cluster {
    rig: Dialogue,
    nodes: Vec<Node>,
}

struct Node {
    address: String,
    process: u32,
}

impl Cluster {
    /// Starts so many nodes as these words of the rig say (`tests/cassandra/obey.rs`), with what
    /// that needs compiled first.
    pub(crate) fn start(words: &str, count: usize) -> Result<Self> {
        let mut command = workspace::cargo();
        command
            .args(["test", "--quiet", "-p", "evenkeel-server", "--test", "cassandra", "--"])
            .args(["--ignored", "--exact", "obey::obey", "--nocapture"])
            .current_dir(workspace::root());
        let mut rig = Dialogue::start("the cluster", &mut command)?;
        let words = rig.ask(&format!("start {words}"), "held ")?;
        let nodes = read_nodes(&words, count)?;
        Ok(Self { rig, nodes })
    }

    pub(crate) fn addresses(&self) -> Vec<&str> {
        self.nodes.iter().map(|node| node.address.as_str()).collect()
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().map(|node| node.process)
    }

    /// Tells the rig to do something to a node; answers what it says of it.
    pub(crate) fn tell(&mut self, line: &str) -> Result<String> {
        let words = self.rig.ask(line, "held ")?;
        if words.starts_with("error ") {
            bail!("the cluster: {words}");
        }
        Ok(words)
    }

    /// User and system time that all nodes have used, in seconds; in steps of 10 ms for each.
    pub(crate) fn cpu_s(&self) -> Result<f64> {
        self.nodes.iter().try_fold(0.0, |sum, node| {
            let path = format!("/proc/{}/stat", node.process);
            let text = fs::read_to_string(&path)
                .with_context(|| format!("node {} has ended", node.address))?;
            let ticks = ticks(&text).with_context(|| format!("{path}: got `{text}`"))?;
            Ok(sum + ticks as f64 / USER_HZ)
        })
    }
}

/// `nodes 127.0.0.1:9042=4711 …`
fn read_nodes(words: &str, count: usize) -> Result<Vec<Node>> {
    let Some(words) = words.strip_prefix("nodes ") else {
        bail!("no cluster: {words}");
    };
    let node = |word: &str| {
        let (address, process) = word.split_once('=')?;
        Some(Node { address: address.to_owned(), process: process.parse().ok()? })
    };
    let nodes = words.split_whitespace().map(node).collect::<Option<Vec<_>>>();
    nodes.filter(|nodes| nodes.len() == count).with_context(|| format!("the cluster: `{words}`"))
}

/// Times are fields 14 and 15; the second, a name, may contain anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rigs_answer_is_read() {
        let nodes = read_nodes("nodes 127.1.1.1:9042=5 127.1.1.2:9042=6 127.1.1.3:9042=7", 3);
        let nodes = nodes.unwrap();
        assert_eq!((nodes[2].address.as_str(), nodes[2].process), ("127.1.1.3:9042", 7));
        let error = read_nodes("error no `java`", 3).err().unwrap().to_string();
        assert_eq!(error, "no cluster: error no `java`");
        read_nodes("nodes 127.1.1.1:9042=5", 3).err().unwrap();
    }

    /// The line of a process whose name was chosen to mislead, with 250 and 40 ticks.
    #[test]
    fn processor_times_are_read() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 100 0 0 0 250 40 0 0 20 0 1 0 99 0 0";
        assert_eq!(ticks(stat), Some(290));
    }
}
