//! Redis Sentinel's protocol: clients that know it ask here who leads, and are told when that
//! changes.
//!
//! Plain clients of Redis have no list of servers; with Sentinel's protocol they have one. Each
//! process answers on an address of its own, from what it knows of the lease. The service's name is
//! the master's. Nothing is decided here: no process votes, and `FAILOVER`, `MONITOR`, `SET` are
//! refused.
//!
//! **When it misleads.** A process that stands by looks at the lease ten times while it lasts, so
//! it tells of a new leader that much later. While nobody leads, the last leader's address is
//! still told, marked as down, as Sentinel does.
//!
//! **Source**: Redis 7.0, "High availability with Redis Sentinel" (commands and events).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Context;

use evenkeel_runtime::accept::{Linger, Link, Order, Peer, Phase, ServeConnection, poll_leave};
use evenkeel_runtime::stream::Stream;
use evenkeel_settings::address::ServerAddress;
use evenkeel_stores::resp::request::{Arguments, Limits, RequestParser};
use evenkeel_stores::resp::{Protocol, encode, glob};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _};
use tokio::sync::watch;
use xxhash_rust::xxh3::xxh3_128;

use super::relay::Holder;

/// The event that tells of a new leader.
const SWITCH: &str = "+switch-master";
/// Channels and patterns that one client may listen to.
const CHANNELS_MAX: usize = 64;
const READ_ONLY: &str = "ERR the lease decides who leads; nothing can be changed here";

/// Answers clients that know Sentinel's protocol.
#[derive(Debug)]
pub struct Sentinel {
    /// The service's name, which is the master's.
    pub service: String,
    /// Who leads.
    pub holder: watch::Receiver<Holder>,
}

/// One client.
struct Session<'s> {
    sentinel: &'s Sentinel,
    protocol: Protocol,
    /// The connection's number, for `CLIENT ID` and `HELLO`.
    id: i64,
    channels: Vec<Vec<u8>>,
    patterns: Vec<Vec<u8>>,
    /// A whole command has come.
    has_asked: bool,
    is_ending: bool,
    out: Vec<u8>,
}

impl ServeConnection for Sentinel {
    const MAY_EVICT: bool = true;

    async fn serve(self: Rc<Self>, mut stream: Stream, peer: Peer, link: Rc<Link>) {
        let mut holder = self.holder.clone();
        let mut known = holder.borrow_and_update().address;
        let mut session = Session::new(&self, &peer);
        let mut parser = RequestParser::new(Limits::unauthenticated());
        let mut inbox = Vec::new();
        while !session.is_ending && link.order() < Order::Drain {
            if let Some(phase) = session.phase(&inbox) {
                link.enter(phase);
            }
            tokio::select! {
                read = stream.read_buf(&mut inbox) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(_) => session.take(&mut parser, &mut inbox),
                },
                changed = holder.changed() => {
                    if changed.is_err() {
                        break; // the service ends
                    }
                    let now = holder.borrow_and_update().address;
                    session.switched(known, now);
                    known = now.or(known);
                }
                () = link.ordered(Order::Drain) => {}
            }
            if !session.out.is_empty() {
                link.enter(Phase::Serving);
                if write(&mut stream, &link, &session.out).await.is_err() {
                    return;
                }
                session.out.clear();
            }
        }
        let leaving = |context: &mut Context<'_>| {
            poll_leave(Pin::new(&mut stream), &link, Linger::WhileSending, context)
        };
        let _ = poll_fn(leaving).await; // who does not hear it has gone
    }
}

/// Writes all of it; the sweep ends the connection of a client that takes nothing for too long.
async fn write(stream: &mut Stream, link: &Link, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let writing = poll_fn(|context| {
            let poll = Pin::new(&mut *stream).poll_write(context, bytes);
            link.write_blocked(poll.is_pending());
            poll
        });
        bytes = &bytes[writing.await?..];
    }
    stream.flush().await
}

impl<'s> Session<'s> {
    fn new(sentinel: &'s Sentinel, peer: &Peer) -> Self {
        Self {
            sentinel,
            protocol: Protocol::Resp2,
            id: i64::from(peer.address.port()),
            channels: Vec::new(),
            patterns: Vec::new(),
            has_asked: false,
            is_ending: false,
            out: Vec::new(),
        }
    }

    /// What it is doing while nothing is to be said; `None` as long as it is new.
    fn phase(&self, inbox: &[u8]) -> Option<Phase> {
        match (self.has_asked, inbox.is_empty()) {
            (false, true) => None,
            (_, false) => Some(Phase::Reading),
            (true, true) if self.listens() => Some(Phase::Serving),
            (true, true) => Some(Phase::Idle),
        }
    }

    fn listens(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty()
    }

    /// Answers all whole commands that have come.
    fn take(&mut self, parser: &mut RequestParser, inbox: &mut Vec<u8>) {
        let mut taken = 0;
        while !self.is_ending {
            match parser.parse(&inbox[taken..]) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    if !parser.is_empty() {
                        self.answer(parser.arguments(&inbox[taken..]));
                    }
                    self.has_asked = true;
                    taken += length;
                }
                Err(error) => {
                    encode::protocol_error(&mut self.out, error);
                    self.is_ending = true;
                }
            }
        }
        inbox.drain(..taken);
    }

    fn answer(&mut self, parsed: Arguments<'_>) {
        let name = parsed.at(0).to_ascii_lowercase();
        match name.as_slice() {
            b"ping" if self.listens() && self.protocol == Protocol::Resp2 => {
                encode::command(&mut self.out, &[b"pong", b""]);
            }
            b"ping" => encode::simple(&mut self.out, "PONG"),
            b"sentinel" => self.sentinel(parsed),
            b"subscribe" | b"psubscribe" => self.listen(&name, parsed),
            b"unsubscribe" | b"punsubscribe" => self.unlisten(&name, parsed),
            b"hello" => self.hello(parsed),
            b"client" => self.client(parsed),
            b"role" => {
                encode::array(&mut self.out, 2);
                encode::bulk(&mut self.out, b"sentinel");
                encode::command(&mut self.out, &[self.sentinel.service.as_bytes()]);
            }
            b"info" => self.info(),
            b"command" => encode::array(&mut self.out, 0),
            b"auth" => self.error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ),
            b"quit" => {
                encode::simple(&mut self.out, "OK");
                self.is_ending = true;
            }
            _ => {
                let name = String::from_utf8_lossy(&name[..name.len().min(64)]).into_owned();
                self.error(&format!("ERR unknown command '{name}'"));
            }
        }
    }

    fn error(&mut self, text: &str) {
        encode::error(&mut self.out, text);
    }

    /// `SENTINEL subcommand [master]`
    fn sentinel(&mut self, parsed: Arguments<'_>) {
        let what = parsed.get(1).unwrap_or_default().to_ascii_lowercase();
        let is_ours = parsed.get(2) == Some(self.sentinel.service.as_bytes());
        match (what.as_slice(), parsed.len()) {
            (b"get-master-addr-by-name", 3) => {
                let known = is_ours.then(|| self.sentinel.holder.borrow().address).flatten();
                match known {
                    None => encode::null_array(&mut self.out, self.protocol),
                    Some(address) => {
                        let (host, port) = parts(address);
                        encode::command(&mut self.out, &[host.as_bytes(), port.as_bytes()]);
                    }
                }
            }
            (b"masters", 2) => {
                encode::array(&mut self.out, 1);
                self.master();
            }
            (b"myid", 2) => {
                let id = self.run_id();
                encode::bulk(&mut self.out, id.as_bytes());
            }
            (b"is-master-down-by-addr", 6) => {
                encode::array(&mut self.out, 3);
                encode::integer(&mut self.out, 0);
                encode::bulk(&mut self.out, b"*");
                encode::integer(&mut self.out, 0);
            }
            (b"master" | b"replicas" | b"slaves" | b"sentinels" | b"ckquorum", 3) if !is_ours => {
                self.error("ERR No such master with that name");
            }
            (b"master", 3) => self.master(),
            (b"replicas" | b"slaves" | b"sentinels", 3) => encode::array(&mut self.out, 0),
            (b"ckquorum", 3) => encode::simple(
                &mut self.out,
                "OK 1 usable Sentinels. Quorum and failover authorization can be reached",
            ),
            (b"failover" | b"monitor" | b"remove" | b"set" | b"reset" | b"flushconfig", _) => {
                self.error(READ_ONLY);
            }
            _ => {
                let what = String::from_utf8_lossy(&what[..what.len().min(64)]).into_owned();
                self.error(&format!(
                    "ERR unknown subcommand or wrong number of arguments for '{what}'. Try \
                     SENTINEL MASTERS."
                ));
            }
        }
    }

    /// Of this process and service: the same as long as the process lives.
    fn run_id(&self) -> String {
        let of = format!("{} {}", self.sentinel.service, std::process::id());
        format!("{:032x}{:08x}", xxh3_128(of.as_bytes()), std::process::id())
    }

    /// The fields that clients read, named as Sentinel does.
    fn master(&mut self) {
        let holder = self.sentinel.holder.borrow().clone();
        let (host, port) = holder.address.map_or_else(Default::default, parts);
        let flags = if holder.address.is_some() { "master" } else { "master,s_down,o_down" };
        let fields = [
            ("name", self.sentinel.service.as_str()),
            ("ip", &host),
            ("port", &port),
            ("runid", ""),
            ("flags", flags),
            ("link-pending-commands", "0"),
            ("link-refcount", "1"),
            ("last-ping-sent", "0"),
            ("last-ok-ping-reply", "0"),
            ("last-ping-reply", "0"),
            ("down-after-milliseconds", "0"),
            ("info-refresh", "0"),
            ("role-reported", "master"),
            ("role-reported-time", "0"),
            ("config-epoch", "0"),
            ("num-slaves", "0"),
            ("num-other-sentinels", "0"),
            ("quorum", "1"),
            ("failover-timeout", "0"),
            ("parallel-syncs", "1"),
        ];
        encode::map(&mut self.out, fields.len(), self.protocol);
        for (name, value) in fields {
            encode::bulk(&mut self.out, name.as_bytes());
            encode::bulk(&mut self.out, value.as_bytes());
        }
    }

    fn info(&mut self) {
        let holder = self.sentinel.holder.borrow().clone();
        let (host, port) = holder.address.map_or_else(Default::default, parts);
        let status = if holder.address.is_some() { "ok" } else { "odown" };
        let service = &self.sentinel.service;
        let text = format!(
            "# Server\r\nredis_mode:sentinel\r\n\r\n# Sentinel\r\nsentinel_masters:1\r\n\
             master0:name={service},status={status},address={host}:{port},slaves=0,sentinels=1\r\n"
        );
        encode::bulk(&mut self.out, text.as_bytes());
    }

    /// `HELLO [2|3] …`: there are no users and names here, so what follows is not looked at.
    fn hello(&mut self, parsed: Arguments<'_>) {
        match parsed.get(1) {
            None => {}
            Some(b"2") => self.protocol = Protocol::Resp2,
            Some(b"3") => self.protocol = Protocol::Resp3,
            Some(_) => return self.error("NOPROTO unsupported protocol version"),
        }
        encode::map(&mut self.out, 6, self.protocol);
        for (name, value) in [("server", "redis"), ("version", "7.0.0")] {
            encode::bulk(&mut self.out, name.as_bytes());
            encode::bulk(&mut self.out, value.as_bytes());
        }
        encode::bulk(&mut self.out, b"proto");
        encode::integer(&mut self.out, if self.protocol == Protocol::Resp3 { 3 } else { 2 });
        encode::bulk(&mut self.out, b"id");
        encode::integer(&mut self.out, self.id);
        encode::bulk(&mut self.out, b"mode");
        encode::bulk(&mut self.out, b"sentinel");
        encode::bulk(&mut self.out, b"modules");
        encode::array(&mut self.out, 0);
    }

    /// What libraries say of themselves.
    fn client(&mut self, parsed: Arguments<'_>) {
        let what = parsed.get(1).unwrap_or_default().to_ascii_lowercase();
        match what.as_slice() {
            b"id" => encode::integer(&mut self.out, self.id),
            b"getname" => encode::null(&mut self.out, self.protocol),
            b"setname" | b"setinfo" | b"no-evict" | b"no-touch" => {
                encode::simple(&mut self.out, "OK");
            }
            _ => self.error("ERR a Sentinel takes CLIENT ID, GETNAME, SETNAME and SETINFO"),
        }
    }

    fn listen(&mut self, name: &[u8], parsed: Arguments<'_>) {
        if parsed.len() < 2 {
            return self.wrong_number(name);
        }
        for channel in parsed.iter().skip(1) {
            let of = self.of(name);
            if !of.iter().any(|it| it == channel) && of.len() < CHANNELS_MAX {
                of.push(channel.to_vec());
            }
            self.told(name, Some(channel));
        }
    }

    /// Without a name: from all.
    fn unlisten(&mut self, name: &[u8], parsed: Arguments<'_>) {
        let all = self.of(name).clone();
        let named: Vec<&[u8]> = parsed.iter().skip(1).collect();
        let left = if named.is_empty() { all.iter().map(Vec::as_slice).collect() } else { named };
        if left.is_empty() {
            return self.told(name, None);
        }
        for channel in left {
            self.of(name).retain(|it| it != channel);
            self.told(name, Some(channel));
        }
    }

    /// What a command of this name changes.
    fn of(&mut self, name: &[u8]) -> &mut Vec<Vec<u8>> {
        match name {
            b"psubscribe" | b"punsubscribe" => &mut self.patterns,
            _ => &mut self.channels,
        }
    }

    fn told(&mut self, name: &[u8], channel: Option<&[u8]>) {
        let count = self.channels.len() + self.patterns.len();
        encode::push(&mut self.out, 3, self.protocol);
        encode::bulk(&mut self.out, name);
        match channel {
            Some(channel) => encode::bulk(&mut self.out, channel),
            None => encode::null(&mut self.out, self.protocol),
        }
        encode::integer(&mut self.out, i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn wrong_number(&mut self, name: &[u8]) {
        let name = String::from_utf8_lossy(name).into_owned();
        self.error(&format!("ERR wrong number of arguments for '{name}' command"));
    }

    /// Another process leads: those who listen are told.
    fn switched(&mut self, before: Option<ServerAddress>, now: Option<ServerAddress>) {
        let (Some(before), Some(now)) = (before, now) else { return };
        if before == now {
            return;
        }
        let ((old, old_port), (new, new_port)) = (parts(before), parts(now));
        let service = &self.sentinel.service;
        let text = format!("{service} {old} {old_port} {new} {new_port}");
        if self.channels.iter().any(|channel| channel == SWITCH.as_bytes()) {
            encode::push(&mut self.out, 3, self.protocol);
            for part in ["message", SWITCH, &text] {
                encode::bulk(&mut self.out, part.as_bytes());
            }
        }
        for pattern in &self.patterns {
            if glob::matches(pattern, SWITCH.as_bytes()) {
                encode::push(&mut self.out, 4, self.protocol);
                for part in [b"pmessage", pattern.as_slice(), SWITCH.as_bytes(), text.as_bytes()] {
                    encode::bulk(&mut self.out, part);
                }
            }
        }
    }
}

/// Host and port, as Sentinel tells them.
fn parts(address: ServerAddress) -> (String, String) {
    match address {
        ServerAddress::Inet(address) => (address.ip().to_string(), address.port().to_string()),
        ServerAddress::Name { host, port } => (host.to_owned(), port.to_string()),
        ServerAddress::Unix(path) => (path.to_string(), "0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evenkeel_runtime::accept::{AcceptConfig, Dialer, Listener, Stop, accept};
    use tokio::io::DuplexStream;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// In virtual time: it jumps to the next deadline whenever nobody has anything to do.
    fn run(config: AcceptConfig, story: impl AsyncFnOnce(Dialer)) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let ((listener, dialer), stop) = (Listener::memory(), Stop::new());
            let (_holder, holder) = watch::channel(Holder::default());
            let sentinel = Rc::new(Sentinel { service: "cart".to_owned(), holder });
            let accepting = accept(listener, config.fixed(), sentinel, stop.signal());
            let serving = tokio::task::spawn_local(accepting);
            story(dialer).await;
            stop.stop(SECOND).await;
            serving.await.unwrap().unwrap();
        });
    }

    /// How long it takes until the connection is closed; what came is thrown away.
    async fn closed_after(mut client: DuplexStream) -> Duration {
        let begun = tokio::time::Instant::now();
        let mut room = vec![0; 1 << 16];
        while !matches!(client.read(&mut room).await, Ok(0) | Err(_)) {}
        begun.elapsed()
    }

    #[test]
    fn who_asks_nothing_or_half_a_command_is_cut_off() {
        let config = AcceptConfig { first: 4 * SECOND, ..AcceptConfig::unlimited() };
        run(config, async |dialer| {
            let silent = dialer.connect().unwrap();
            assert!(closed_after(silent).await < 8 * SECOND);
            let mut slow = dialer.connect().unwrap();
            slow.write_all(b"*2\r\n$8\r\nSENT").await.unwrap();
            assert!(closed_after(slow).await < 8 * SECOND);
        });
    }

    /// They would close the port for all others.
    #[test]
    fn clients_that_never_read_keep_nobody_out() {
        let config = AcceptConfig {
            connections_max: 2,
            write: 6 * SECOND,
            first: 4 * SECOND,
            ..AcceptConfig::unlimited()
        };
        run(config, async |dialer| {
            let ask = b"*2\r\n$8\r\nSENTINEL\r\n$7\r\nMASTERS\r\n";
            let mut greedy = Vec::new();
            for _ in 0..2 {
                let mut client = dialer.connect().unwrap();
                let flood = ask.repeat(10_000);
                let flooded = client.write_all(&flood);
                assert!(tokio::time::timeout(SECOND, flooded).await.is_err(), "it is blocked");
                greedy.push(client);
            }
            let mut client = dialer.connect().unwrap();
            client.write_all(b"*1\r\n$4\r\nPING\r\n").await.unwrap();
            let mut answer = [0; 7];
            let read = client.read_exact(&mut answer);
            tokio::time::timeout(12 * SECOND, read).await.expect("it has its turn").unwrap();
            assert_eq!(&answer, b"+PONG\r\n");
        });
    }
}
