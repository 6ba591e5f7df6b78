//! The controller's conversations with followers: further processes of its own site.
//!
//! A follower shows the certificate of this very site, which makes it one of us and never a peer
//! of the mesh. It says hello, then counts five times a second; it is told its part of every plan.
//! What it says is bounded, paced and checked as what a peer says, and nonsense changes nothing.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::followers::{FOLLOWERS_MAX, Gone, Unbelieved};
use super::frame::{Frame, Nonsense};
use super::hub::{Hub, Refusal};
use super::message::{Hello, PlanPart, WORKERS_MAX};

use super::settings::Unlike;
use super::wire::{Ended, Inbox, Metered, Never, RENEWED_WITHIN, write};
use evenkeel_runtime::accept::first;
use evenkeel_runtime::bucket::Bucket;

/// Frames of a follower in a second: four times what a sound one sends.
const FRAMES_PER_S: f64 = 40.0;

/// How long its first words may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);

/// Serves one follower until its connection ends.
pub(super) async fn attend(
    hub: &Hub,
    address: SocketAddr,
    generation: u64,
    mut stream: TlsStream<Metered>,
) -> Result<(), (Refusal, String)> {
    let mut inbox = Inbox::of_followers();
    let greeting = tokio::time::timeout(HELLO_TIMEOUT, greet(&mut inbox, &mut stream)).await;
    let late = || (Unbelieved::Malformed("hello"), "no hello in time".to_owned());
    let hello = match greeting.unwrap_or_else(|_| Err(late())) {
        Ok(hello) => hello,
        Err((why, words)) => {
            hub.disbelieve(&address.to_string(), why, &words);
            return Ok(());
        }
    };
    if let Some(unlike) = hub.settings.unlike(&hello) {
        let words = format!("it has {}: it gets no plans", unlike.name());
        hub.disbelieve(&address.to_string(), Unbelieved::OtherSettings, &words);
        refuse(&mut stream, unlike).await;
        return Ok(());
    }
    let now = hub.clock.now();
    let joined = hub.followers.borrow_mut().join(now, address, &hello);
    let Some((id, telling)) = joined else {
        let words = format!(
            "{FOLLOWERS_MAX} followers or {WORKERS_MAX} workers of them already, or they came \
             and went too often in the last 8 epochs"
        );
        return Err((Refusal::Full, words));
    };
    tracing::info!(%address, workers = hello.workers, "redirect: a follower joined");
    let guard = Present { hub, id };
    let ended = converse(hub, id, generation, (inbox, stream), telling).await;
    if let Ended::Nonsense(nonsense) = &ended {
        let why = Unbelieved::Malformed(nonsense.name());
        hub.disbelieve(&address.to_string(), why, &nonsense.to_string());
    }
    tracing::info!(%address, ?ended, "redirect: a follower left");
    drop(guard);
    Ok(())
}

/// Gives the follower up however its conversation ends.
struct Present<'a> {
    hub: &'a Hub,
    id: u64,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        let now = self.hub.clock.now();
        self.hub.followers.borrow_mut().remove(now, self.id, Gone::Left);
    }
}

async fn greet(
    inbox: &mut Inbox,
    stream: &mut TlsStream<Metered>,
) -> Result<Hello, (Unbelieved, String)> {
    let malformed = |words: String| (Unbelieved::Malformed("hello"), words);
    loop {
        let next = inbox.next().map_err(|nonsense| malformed(nonsense.to_string()))?;
        match next {
            Some(Frame::Hello(hello)) => {
                let why = "does a second controller use this site's certificate?";
                return Hello::read(hello)
                    .map_err(|expected| malformed(format!("expected {expected} ({why})")));
            }
            Some(frame) => {
                let words = format!(
                    "got {} from a process with this site's certificate, expected the hello of a \
                     follower (is there a second controller of this site?)",
                    frame.name()
                );
                return Err(malformed(words));
            }
            None => {
                inbox.fill(stream).await.map_err(|_| malformed("it said nothing".to_owned()))?;
            }
        }
    }
}

async fn refuse(stream: &mut TlsStream<Metered>, unlike: Unlike) {
    use tokio::io::AsyncWriteExt as _;
    let _ = write(stream, &Frame::Unlike(&[unlike.code()]).bytes()).await;
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.shutdown()).await;
}

async fn converse(
    hub: &Hub,
    id: u64,
    generation: u64,
    (inbox, stream): (Inbox, TlsStream<Metered>),
    telling: watch::Receiver<Option<PlanPart>>,
) -> Ended {
    let (mut input, output) = tokio::io::split(stream);
    let output = tokio::sync::Mutex::new(output);
    let listening = async {
        let ended = listen(hub, id, generation, inbox, &mut input, &output).await;
        ended.expect_err("it listens until the connection ends")
    };
    let speaking = async {
        speak(hub, telling, &output).await.expect_err("it speaks until the connection ends")
    };
    first(listening, speaking).await
}

async fn listen(
    hub: &Hub,
    id: u64,
    generation: u64,
    mut inbox: Inbox,
    input: &mut (impl AsyncRead + Unpin),
    output: &tokio::sync::Mutex<impl AsyncWrite + Unpin>,
) -> Result<Never, Ended> {
    let mut bucket = Bucket::new(FRAMES_PER_S, FRAMES_PER_S);
    let (mut echo, mut end_at) = (Vec::new(), None);
    loop {
        while let Some(frame) = inbox.next()? {
            while let Err(wait) = bucket.take(hub.clock.now()) {
                tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
            }
            match frame {
                Frame::Probe { sequence } => {
                    echo.clear();
                    Frame::Echo { sequence }.put(&mut echo);
                    write(&mut *output.lock().await, &echo).await?;
                }
                Frame::Counts(counts) => receive(hub, id, counts),
                _ => return Err(Nonsense::Unexpected { came: frame.name() }.into()),
            }
        }
        if !hub.followers.borrow().has(id) {
            return Err(Ended::Silent); // given up meanwhile
        }
        let now = tokio::time::Instant::now();
        if hub.generation() != generation && now >= *end_at.get_or_insert(now + RENEWED_WITHIN) {
            return Err(Ended::Renewed);
        }
        inbox.fill(input).await?;
    }
}

fn receive(hub: &Hub, id: u64, counts: &[u8]) {
    let now = hub.clock.now();
    let noted = hub.followers.borrow_mut().note(now, id, counts);
    if let Err(why) = noted {
        let name = hub.followers.borrow().name(id);
        hub.disbelieve(&name, why, &why.to_string());
    }
}

async fn speak(
    hub: &Hub,
    mut telling: watch::Receiver<Option<PlanPart>>,
    output: &tokio::sync::Mutex<impl AsyncWrite + Unpin>,
) -> Result<Never, Ended> {
    loop {
        telling.changed().await.map_err(|_| Ended::Silent)?;
        let reported = telling.borrow_and_update().clone();
        let Some(reported) = reported else { continue };
        let good_for = reported.good_until.since(hub.clock.now());
        let bytes = reported.bytes(good_for);
        write(&mut *output.lock().await, &Frame::PlanPart(&bytes).bytes()).await?;
    }
}
