//! What is asked of this program, on its command line or, for one turn, in a command.

use scylla::statement::Consistency;

use crate::Problem;

pub(crate) const USAGE: &str = "flags: node=ADDRESS[,ADDRESS] proxy=ADDRESS \
    relay=ADDRESS[,ADDRESS] (one before each node) policy=c3 \
    rate=500 (requests/s) seconds=20 rounds=3 updates=0.05 (share) keys=10000 \
    zipf=0 (exponent) bytes=100 pause=PID[,PID] seed=1 \
    consistency=ONE|LOCAL_ONE|QUORUM|LOCAL_QUORUM speculative=NEVER \
    ways=default,adaptive,adaptive-hedged,proxy,relay,default-speculative,adaptive-speculative \
    copy_ms=20 (of speculative ones) quantile=0.99 budget=0.03 (of hedged ones, share) \
    joining=0 (requests/s from half time on, half of them updates) \
    users=0 (one request each at a time, instead of a rate) commands=no|yes";

#[derive(Clone, Debug)]
pub(crate) struct Flags {
    pub(crate) nodes: Vec<String>,
    pub(crate) proxy: Option<String>,
    /// Before each of the nodes one that passes bytes on, in their order.
    pub(crate) relays: Vec<String>,
    /// Nothing: the default, the adaptive ones, and the proxy if there is one.
    pub(crate) ways: Vec<String>,
    pub(crate) policy: String,
    pub(crate) rate: f64,
    /// How much the rate grows at half time.
    pub(crate) joining: f64,
    /// In a closed loop; none is an open loop.
    pub(crate) users: usize,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) updates: f64,
    pub(crate) keys: usize,
    /// The exponent by which some keys are asked for more often than others.
    pub(crate) zipf: f64,
    pub(crate) bytes: usize,
    pub(crate) pause: Vec<i32>,
    pub(crate) seed: u64,
    pub(crate) consistency: Consistency,
    /// The table's own speculative retry, which is the nodes' affair.
    pub(crate) speculative: String,
    /// How late a request is when ways that end in `-speculative` send a copy.
    pub(crate) copy_ms: u64,
    /// After which quantile of latency ways that end in `-hedged` send a copy.
    pub(crate) quantile: f64,
    /// Their copies as a share of requests.
    pub(crate) budget: f64,
    pub(crate) commands: bool,
}

impl Flags {
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Problem> {
        let mut flags = Self {
            nodes: vec!["127.0.0.1:9042".to_owned()],
            proxy: None,
            relays: Vec::new(),
            ways: Vec::new(),
            policy: "c3".to_owned(),
            rate: 500.0,
            joining: 0.0,
            users: 0,
            seconds: 20.0,
            rounds: 3,
            updates: 0.05,
            keys: 10_000,
            zipf: 0.0,
            bytes: 100,
            pause: Vec::new(),
            seed: 1,
            consistency: Consistency::One,
            speculative: "NEVER".to_owned(),
            copy_ms: 20,
            quantile: 0.99,
            budget: 0.03,
            commands: false,
        };
        flags.set_all(arguments)?;
        Ok(flags)
    }

    pub(crate) fn set_all(
        &mut self,
        words: impl Iterator<Item = impl AsRef<str>>,
    ) -> Result<(), Problem> {
        for word in words {
            let word = word.as_ref();
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            self.set(name, value).map_err(|why| format!("\"{word}\": {why}\n{USAGE}"))?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        match name {
            "node" => self.nodes = value.split(',').map(str::to_owned).collect(),
            "proxy" => self.proxy = Some(value.to_owned()),
            "relay" => self.relays = value.split(',').map(str::to_owned).collect(),
            "ways" => self.ways = value.split(',').map(str::to_owned).collect(),
            "policy" => value.clone_into(&mut self.policy),
            "rate" => self.rate = value.parse()?,
            "joining" => self.joining = value.parse()?,
            "users" => self.users = value.parse()?,
            "seconds" => self.seconds = value.parse()?,
            "rounds" => self.rounds = value.parse()?,
            "updates" => self.updates = value.parse()?,
            "keys" => self.keys = value.parse()?,
            "zipf" => self.zipf = value.parse()?,
            "bytes" => self.bytes = value.parse()?,
            "pause" => self.pause = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "seed" => self.seed = value.parse()?,
            "speculative" => value.clone_into(&mut self.speculative),
            "copy_ms" => self.copy_ms = value.parse()?,
            "quantile" => self.quantile = value.parse()?,
            "budget" => self.budget = value.parse()?,
            "commands" => self.commands = value == "yes",
            "consistency" => self.consistency = consistency(value)?,
            _ => return Err("there is no such flag".into()),
        }
        Ok(())
    }

    pub(crate) fn ways(&self) -> Vec<String> {
        if !self.ways.is_empty() {
            return self.ways.clone();
        }
        let proxy = self.proxy.as_ref().map(|_| "proxy");
        ["default", "adaptive", "adaptive-hedged"]
            .into_iter()
            .chain(proxy)
            .map(str::to_owned)
            .collect()
    }
}

fn consistency(name: &str) -> Result<Consistency, Problem> {
    match name {
        "ONE" => Ok(Consistency::One),
        "LOCAL_ONE" => Ok(Consistency::LocalOne),
        "QUORUM" => Ok(Consistency::Quorum),
        "LOCAL_QUORUM" => Ok(Consistency::LocalQuorum),
        _ => Err("no such consistency level here".into()),
    }
}
