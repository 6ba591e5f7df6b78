//! The servers of one site and their bill.

use std::time::Duration;

/// Servers with the step each was ordered in.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    step: u128,
    unit: u128,
    boot: u128,
    /// Since the start, like all times in nanoseconds.
    now: u128,
    servers: Vec<Server>,
    /// Billing units of servers that were given back.
    units: u64,
    orders: u64,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    ordered: u128,
    ready: u128,
}

impl Fleet {
    /// None yet; with steps and billing units above zero.
    pub(super) fn new(step: Duration, unit: Duration, boot: Duration) -> Self {
        let (step, unit, boot) = (step.as_nanos(), unit.as_nanos(), boot.as_nanos());
        Self { step, unit, boot, now: 0, servers: Vec::new(), units: 0, orders: 0 }
    }

    /// All there are, those that boot included.
    pub(super) fn servers(&self) -> u32 {
        self.servers.len() as u32
    }

    /// Those that serve in this step.
    pub(super) fn serving(&self) -> u32 {
        self.servers.iter().filter(|server| server.ready <= self.now).count() as u32
    }

    /// Those that serve and whose next unit would begin before the next step does.
    pub(super) fn free(&self) -> u32 {
        self.servers.iter().filter(|server| self.is_free(server)).count() as u32
    }

    fn is_free(&self, server: &Server) -> bool {
        let paid_until = server.ordered + self.units_of(server) as u128 * self.unit;
        server.ready <= self.now && paid_until < self.now + self.step
    }

    /// Units begun since a server was ordered.
    fn units_of(&self, server: &Server) -> u64 {
        (self.now - server.ordered).div_ceil(self.unit) as u64
    }

    /// Orders servers, or gives free ones back, until there are `wanted`. What is ordered at the
    /// start serves at once.
    pub(super) fn become_of(&mut self, wanted: u32, is_start: bool) {
        while self.servers() < wanted {
            let boot = if is_start { 0 } else { self.boot };
            self.servers.push(Server { ordered: self.now, ready: self.now + boot });
            self.orders += 1;
        }
        while self.servers() > wanted {
            let Some(free) = self.servers.iter().position(|server| self.is_free(server)) else {
                return;
            };
            let server = self.servers.remove(free);
            self.units += self.units_of(&server);
        }
    }

    /// A step goes by.
    pub(super) fn pass(&mut self) {
        self.now += self.step;
    }

    /// Gives all back; the units of all servers there ever were.
    pub(super) fn close(&mut self) -> u64 {
        let last: u64 = self.servers.iter().map(|server| self.units_of(server)).sum();
        self.units += last;
        self.servers.clear();
        self.units
    }

    /// How many servers were ordered.
    pub(super) fn orders(&self) -> u64 {
        self.orders
    }
}
