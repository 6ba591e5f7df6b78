//! The replication streams of executors: asked for, followed, and lost.

use std::rc::Rc;

use evenkeel_ordered::Dropped;
use tokio::sync::Notify;

use super::super::Inner;

/// The replication stream of a server.
#[derive(Debug)]
pub(super) struct Stream {
    /// The server's connections when it was asked for: it ends with them.
    pub(super) connection: u64,
    /// Somebody follows it.
    pub(super) is_followed: bool,
    /// All that is done from now on will come.
    pub(super) is_open: bool,
    /// It was told something of database 0, so whoever reads it knows where it is.
    pub(super) is_placed: bool,
}

impl Inner {
    /// Who is told when a stream is wanted.
    pub fn streams_wanted(&self) -> Rc<Notify> {
        Rc::clone(&self.effects.wanted)
    }

    /// Streams that nobody follows yet: of which servers, on which of their connections.
    pub fn take_wanted_streams(&mut self) -> Vec<(usize, u64)> {
        let streams = self.effects.streams.iter_mut();
        let wanted = streams.filter_map(|(&server, stream)| {
            let is_followed = std::mem::replace(&mut stream.is_followed, true);
            (!is_followed).then_some((server, stream.connection))
        });
        wanted.collect()
    }

    /// All that a server does from now on will come.
    pub fn stream_opened(&mut self, server: usize, connection: u64) {
        let Some(stream) = self.effects.streams.get_mut(&server) else { return };
        if stream.connection != connection {
            return;
        }
        stream.is_open = true;
        let partition = self.members.partition(server);
        let effect = self.effects.running.get(&partition);
        if effect.is_some_and(|it| it.executor == server && it.mark.is_none()) {
            self.send_effect(partition);
        }
    }

    /// A stream cannot be had, or has broken off for good. Where it is refused, it is so at all,
    /// most of the time.
    pub fn stream_failed(
        &mut self,
        (server, connection): (usize, u64),
        why: &str,
        is_refused: bool,
    ) {
        let of_this = |stream: &Stream| stream.connection == connection;
        if !self.effects.streams.get(&server).is_some_and(of_this) {
            return;
        }
        self.effects.streams.remove(&server);
        tracing::warn!(server, why, "the replication stream of a duplicate cannot be read");
        let partition = self.members.partition(server);
        let Some(effect) = self.effects.running.get(&partition) else { return };
        if effect.executor != server {
            return;
        }
        if effect.mark.is_some() {
            return self.drop_server(server, Dropped::Lost);
        }
        if !is_refused && self.tries_another(partition) {
            return;
        }
        let text = format!(
            "UNAVAILABLE this is done by one duplicate, and the others get what its replication \
             stream says, which cannot be read ({why}): its user needs +psync +replconf"
        );
        self.refuse_effect(partition, &text);
    }
}
