//! Partitions and duplicates that come and go.

use evenkeel_ordered::{Dropped, Moving};

use super::{Inner, Server};
use evenkeel_duplicates_config::Connector;
use evenkeel_duplicates_config::changes::{MoveState, MovesState, millis};
use evenkeel_leadership::layout::Layout;
use evenkeel_manager::{Begun, Manager};
use evenkeel_wal::{LogError, Part};

impl Inner {
    /// A layout that is durable is in use from now on. The log has it before anything is sent that
    /// follows from it.
    ///
    /// # Errors
    /// When the log takes nothing any more.
    pub fn adopt_layout(&mut self, next: Layout) -> Result<(), LogError> {
        let begun = self.log.begin_layout(next.version()).and_then(|()| self.log.commit());
        self.map = next.map.clone();
        self.layout = next;
        self.list_again();
        self.doubt_tracked();
        begun.inspect_err(|error| self.fail(error))
    }

    /// Another duplicate, which is away and joining; its number. `None`: there are as many as there
    /// may be.
    pub fn add_joining(&mut self, partition: usize, connector: Connector) -> Option<usize> {
        let server = self.members.add_joining(partition)?;
        match self.connectors.get_mut(server) {
            Some(place) => *place = connector,
            None => self.connectors.push(connector),
        }
        match self.servers.get_mut(server) {
            Some(place) => {
                // Its connections go on counting: those before are dead.
                let (generation, connection) = (place.generation + 1, place.connection + 1);
                *place = Server { generation, connection, ..Server::default() };
            }
            None => self.servers.push(Server::default()),
        }
        self.counts.renew(server);
        self.refusals.forget(server);
        self.replan_reads();
        Some(server)
    }

    /// A duplicate is none any more: nothing is sent to it, and nobody waits for it.
    pub fn remove_server(&mut self, server: usize) {
        self.members.dismiss(server);
        self.drop_server(server, Dropped::Lost);
        self.members.drop_server(server);
        self.members.retire(server);
        self.replan_reads();
        self.servers[server].generation += 1;
        self.servers[server].error = Some("it was removed".to_owned());
    }

    /// Begins to watch whether duplicates are worth their nodes, from nothing.
    pub fn start_manager(&mut self) {
        let Some(settings) = self.config.manager else { return };
        // One that holds nothing is not compared with the others.
        let holds_some = |partition| self.map.shards_of(partition).next().is_some();
        let of = |partition| {
            let configured = self.members.configured(partition);
            configured.iter().filter(|_| holds_some(partition)).collect()
        };
        let partitions: Vec<Vec<usize>> = (0..self.members.partitions()).map(of).collect();
        self.serial += 1;
        let begun = Begun {
            at: self.clock.now(),
            seed: self.history.last().epoch.0,
            arrangement: self.serial,
            spares: self.spares_left(),
            nights: self.manager.take().and_then(|before| before.nights()),
        };
        self.manager = Manager::start(settings, &partitions, self.map.shards(), begun)
            .inspect_err(|error| tracing::warn!(%error, "nothing will be advised"))
            .ok();
    }

    /// What of the log is for a partition.
    pub fn part(&self, partition: usize) -> Part {
        let owners = self.layout.first_owners();
        let shards = owners.iter().map(|&owner| usize::from(owner) == partition).collect();
        Part { partition: partition as u16, shards }
    }

    /// The duplicate of a partition that is named so.
    pub fn server_named(&self, partition: usize, name: &str) -> Option<usize> {
        let configured = self.members.configured(partition);
        configured.iter().find(|&server| {
            let connector = &self.connectors[server];
            connector.place() == name || connector.to_string() == name
        })
    }

    /// How changes stand.
    pub fn moves_state(&self) -> MovesState {
        let changes = &self.changes;
        let now = changes.now.as_ref().map(|taken| {
            let moving = self.moving.as_ref().map(|it| &it.moving);
            MoveState {
                what: taken.change.describe(),
                phase: match moving {
                    Some(moving) => moving.phase().name(),
                    None if taken.attempts == 0 => "waiting",
                    None => "changing",
                },
                copied_keys: moving.map_or(0, Moving::copied),
                attempts: taken.attempts,
                error: changes.error.clone(),
                lasts_ms: millis(self.now.since(taken.since)),
            }
        });
        MovesState {
            now,
            last: changes.last.clone(),
            done: changes.done,
            failed: changes.failed,
            begun_again: changes.begun_again,
            keys: self.counts.moved_keys,
            left: self.layout.left.len(),
            layout: self.layout.version(),
            owners: self.map.held_by().to_vec(),
        }
    }
}
