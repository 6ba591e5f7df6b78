//! What clients of Redis Cluster are answered otherwise than plain clients.
//!
//! They come by a door of their own ([`evenkeel_leadership::cluster`] says why). A command about
//! keys is taken if its keys have one slot that this process leads; otherwise its client is told
//! `CROSSSLOT`, or `MOVED` and where. A plain client is taken at its word: where it came, it is
//! served.
//!
//! Where duplicates are nodes of Redis Cluster themselves, they take no keys of several slots
//! together from anybody, so nobody's are taken.
//!
//! `UNAVAILABLE` (nothing was done) becomes `CLUSTERDOWN`, which these clients know and try again.

use std::borrow::Cow;

use super::Inner;
use super::gather::Join;
use super::types::{ClientId, Form, ParsedCommand};
use evenkeel_leadership::cluster::ClusterView;
use evenkeel_stores::resp::cluster::{self, Asked};
use evenkeel_stores::resp::commands::{Class, Command, Local};
use evenkeel_stores::resp::hash::SLOTS;
use evenkeel_stores::resp::locate::Location;
use evenkeel_stores::resp::reply::Shape;
use evenkeel_stores::store::keys::Servers;

const IN_MULTI: &str = "ERR CLUSTER, READONLY, READWRITE and ASKING are not taken within MULTI: \
    send it before MULTI or after EXEC";

impl Inner {
    /// Whether a client speaks Redis Cluster's protocol.
    pub(super) fn is_of_cluster(&mut self, id: ClientId) -> bool {
        self.client(id).is_some_and(|client| client.is_of_cluster)
    }

    /// Answers a command of a client of Redis Cluster if that is not for the rest of the engine;
    /// whether it did.
    pub(super) fn answers_cluster(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let are_nodes = self.config.servers() == Servers::Nodes;
        let Some(client) = self.client(id).filter(|it| it.is_known()) else { return false };
        if !client.is_of_cluster {
            return are_nodes && self.refuses_slots(id, (command, class), parsed);
        }
        let in_transaction = client.transaction.is_some();
        if matches!(command.name, "cluster" | "readonly" | "readwrite" | "asking") {
            match command.name {
                _ if in_transaction => self.refuse(id, IN_MULTI),
                "cluster" => self.cluster_command(id, parsed),
                _ => self.ok(id), // every read here is as new as the session asks for
            }
            return true;
        }
        let refusal = cluster::refusal(command, parsed.arguments());
        let of_groups = || self.cluster.as_ref().and_then(|view| view.refusal(class));
        if let Some(text) = refusal.or_else(of_groups) {
            self.refuse(id, text);
            return true;
        }
        if class == Class::Local(Local::Exec) {
            return self.refuses_exec(id);
        }
        let redirection = match cluster::slot_of(command, class, parsed.arguments()) {
            Ok(None) => return false,
            Ok(Some(slot)) => self.cluster.as_mut().and_then(|view| view.map().redirection(slot)),
            Err(refusal) => Some(refusal.0.to_owned()),
        };
        if let Some(text) = &redirection {
            self.refuse(id, text);
        }
        redirection.is_some()
    }

    /// Nodes of Redis Cluster take keys of one slot in a command, or a transaction, whoever asks;
    /// whether it was refused.
    fn refuses_slots(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        parsed: ParsedCommand<'_>,
    ) -> bool {
        if class == Class::Local(Local::Exec) {
            return self.refuses_exec(id);
        }
        // What has no keys that can be found is answered in its turn.
        let is_refused = cluster::slot_of(command, class, parsed.arguments())
            .is_err_and(|refusal| refusal.0 == cluster::CROSSSLOT.0);
        if is_refused {
            self.refuse(id, cluster::CROSSSLOT.0);
        }
        is_refused
    }

    /// The keys of a transaction have one slot, or it does nothing; whether it was refused.
    fn refuses_exec(&mut self, id: ClientId) -> bool {
        let transaction = self.client(id).and_then(|client| client.transaction.as_ref());
        let Some(transaction) = transaction.filter(|it| !it.is_spoiled) else { return false };
        let Err(refusal) = cluster::one_slot(transaction.keys.iter().map(AsRef::as_ref)) else {
            return false;
        };
        if let Some(client) = self.client(id) {
            client.transaction = None;
        }
        self.unwatch(id);
        self.refuse(id, refusal.0);
        true
    }

    /// `CLUSTER subcommand …`
    fn cluster_command(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let Some(map) = self.cluster.as_mut().map(ClusterView::map) else { return };
        let Some(client) = self.client(id) else { return };
        let (protocol, mut out) = (client.protocol, Vec::new());
        let offset = self.history.last().sequence.0;
        match map.answer(parsed.arguments(), (offset, protocol), &mut out) {
            Asked::Answered => self.reply_now(id, |all, _| all.extend_from_slice(&out)),
            Asked::Count(slot) => self.ask_slot(id, slot, None),
            Asked::Keys(slot, count) => self.ask_slot(id, slot, Some(count)),
        }
    }

    /// Counts the keys of a slot, or lists so many. They are found among all keys of the
    /// partition: it costs as much as `KEYS`.
    fn ask_slot(&mut self, id: ClientId, slot: u16, listed: Option<usize>) {
        let shard = self.map.shard(slot.min(SLOTS - 1));
        let partition = self.map.partition(shard);
        let Some(place) = Location::whole(&self.map, partition) else { return };
        let join = Join::Slot(slot, listed);
        let key = self.begin_gather(id, Form::One(Shape::Plain), join);
        let client = self.add_part(key, partition, Vec::new());
        self.send_part(client, Some(place), &[b"KEYS", b"*"]);
        self.end_gather(key, true);
    }

    /// How this process is told to a client: `cluster` or `standalone`.
    pub(super) fn mode(&mut self, id: ClientId) -> &'static str {
        if self.is_of_cluster(id) { "cluster" } else { "standalone" }
    }
}

/// An answer as clients of Redis Cluster know it: they try again at `CLUSTERDOWN`.
pub(super) fn in_its_words(answer: &[u8]) -> Cow<'_, [u8]> {
    match answer.strip_prefix(b"-UNAVAILABLE ") {
        Some(why) => [b"-CLUSTERDOWN ", why].concat().into(),
        None => answer.into(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::super::world::World;
    use evenkeel_leadership::cluster::ClusterView;
    use evenkeel_leadership::{Group, Holder, Known};
    use evenkeel_stores::resp::cluster::Endpoint;

    /// A world whose process has its doors from port 1 on, and is the first of so many groups; the
    /// sender says who leads.
    fn world(groups: usize) -> (World, watch::Sender<Known>) {
        let world = World::start(1, |_| {});
        let own = Endpoint { host: "127.0.0.1".to_owned(), port: 1 };
        let known = watch::Sender::new(Known::nothing(groups));
        let group = Group { number: 0, of: groups };
        let view = ClusterView::new("test", (own, group), false, known.subscribe());
        world.engine.borrow().cluster = Some(view);
        known.send_modify(|known| known.holders[0] = led_from(1));
        (world, known)
    }

    fn led_from(port: u16) -> Holder {
        Holder::of(&format!("127.0.0.1:9 (process 1, cluster 127.0.0.1:{port})"))
    }

    fn is_led_by(known: &watch::Sender<Known>, group: usize, holder: Holder) {
        known.send_modify(|known| known.holders[group] = holder);
    }

    fn said(world: &mut World, of_cluster: bool, commands: &[&str]) -> String {
        let client = world.client();
        world.engine.borrow().client(client).unwrap().is_of_cluster = of_cluster;
        for command in commands {
            assert!(world.tell(client, &command.split(' ').collect::<Vec<_>>()));
        }
        world.serve_all();
        world.heard(client)
    }

    #[test]
    fn keys_of_slots_that_another_one_leads_are_moved_as_soon_as_it_is_known() {
        let (mut world, known) = world(1);
        assert_eq!(said(&mut world, true, &["SET foo 1"]), "+OK\r\n");
        is_led_by(&known, 0, led_from(2));
        let moved = "-MOVED 12182 127.0.0.1:2\r\n";
        assert_eq!(said(&mut world, true, &["SET foo 2"]), moved);
        assert_eq!(said(&mut world, true, &["spublish foo x"]), moved);
        assert_eq!(said(&mut world, false, &["SET foo 3"]), "+OK\r\n", "a plain client is served");
        let aborted = said(&mut world, true, &["multi", "SET foo 4", "exec"]);
        assert!(aborted.starts_with(&format!("+OK\r\n{moved}-EXECABORT ")), "{aborted}");
        is_led_by(&known, 0, Holder::default());
        let nobody = "-CLUSTERDOWN Hash slot not served\r\n";
        assert_eq!(said(&mut world, true, &["get foo"]), nobody);
        is_led_by(&known, 0, led_from(1));
        assert_eq!(said(&mut world, true, &["SET foo 5"]), "+OK\r\n");
    }

    #[test]
    fn keys_of_another_group_are_at_another_door_also_of_this_process() {
        let (mut world, known) = world(2);
        // `b` has a slot of the first half, `foo` one of the second.
        assert_eq!(said(&mut world, true, &["SET b 1"]), "+OK\r\n");
        let nobody = "-CLUSTERDOWN Hash slot not served\r\n";
        assert_eq!(said(&mut world, true, &["SET foo 1"]), nobody);
        is_led_by(&known, 1, led_from(2));
        let moved = "-MOVED 12182 127.0.0.1:2\r\n";
        assert_eq!(said(&mut world, true, &["SET foo 1"]), moved);
        let crossing = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
        assert_eq!(said(&mut world, true, &["MGET b foo"]), crossing);
        assert_eq!(said(&mut world, true, &["GET b"]), "$1\r\n1\r\n");
        for command in ["publish c x", "subscribe c", "psubscribe c*"] {
            let told = said(&mut world, true, &[command]);
            assert!(told.starts_with("-ERR each group") && told.contains("SPUBLISH"), "{told}");
        }
        assert_eq!(said(&mut world, true, &["spublish b x"]), ":0\r\n");
    }

    #[test]
    fn what_was_said_of_a_read_that_is_moved_is_not_about_the_next_one() {
        let (mut world, known) = world(2);
        is_led_by(&known, 1, led_from(2));
        let (writer, client) = (world.client(), world.client());
        world.engine.borrow().client(client).unwrap().is_of_cluster = true;
        for command in
            ["HELLO 3", "CLIENT TRACKING ON OPTOUT", "CLIENT CACHING NO", "GET foo", "GET b"]
        {
            assert!(world.tell(client, &command.split(' ').collect::<Vec<_>>()));
        }
        world.serve_all();
        let heard = world.heard(client);
        assert!(heard.ends_with("-MOVED 12182 127.0.0.1:2\r\n_\r\n"), "{heard}");
        assert!(world.tell(writer, &["SET", "b", "1"]) && world.tell(writer, &["SET", "foo", "1"]));
        world.engine.borrow().flush();
        let told = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nb\r\n";
        assert_eq!(world.heard(client), told, "the key that it has read here, and no other");
    }

    #[test]
    fn what_redis_cluster_refuses_is_refused_to_its_clients_alone() {
        let (mut world, _known) = world(1);
        let crossing = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
        assert_eq!(said(&mut world, true, &["mset a 1 b 2"]), crossing);
        assert_ne!(said(&mut world, false, &["mset a 1 b 2"]), crossing);
        let exec = ["multi", "SET a 1", "SET b 2", "exec", "exec"];
        let told = said(&mut world, true, &exec);
        let over = "-ERR EXEC without MULTI\r\n";
        assert!(told.ends_with(&format!("+QUEUED\r\n{crossing}{over}")), "{told}");
        let select = "-ERR SELECT is not allowed in cluster mode\r\n";
        assert_eq!(said(&mut world, true, &["select 1"]), select);
        assert_eq!(said(&mut world, true, &["select 0", "readonly"]), "+OK\r\n+OK\r\n");
        let disabled = "-ERR This instance has cluster support disabled\r\n";
        assert_eq!(said(&mut world, false, &["readonly", "cluster slots"]), disabled.repeat(2));
        assert_eq!(said(&mut world, true, &["publish c x"]), ":0\r\n", "there is one group");
        // Nobody is live: nothing was done, and each hears it in its own words.
        world.lose(0, evenkeel_ordered::Dropped::Silent);
        assert!(said(&mut world, true, &["SET a 1"]).starts_with("-CLUSTERDOWN "));
        assert!(said(&mut world, false, &["SET a 1"]).starts_with("-UNAVAILABLE "));
    }
}
