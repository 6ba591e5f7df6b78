//! The seat's conversations with companions: further processes of its own site.
//!
//! A companion shows the certificate of this very site, which makes it one of us and never a peer
//! of the mesh. It says hello, then counts five times a second; it is told its part of every plan.
//! What it says is bounded, paced and checked as what a peer says, and nonsense changes nothing.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::accept::RENEWED_WITHIN;
use super::companions::{COMPANIONS_MAX, Gone, Unbelieved};
use super::frame::{Frame, Nonsense};
use super::hub::{Hub, Refusal};
use super::message::{Hello, Told, WORKERS_MAX};
use super::pace::Bucket;
use super::settings::Unlike;
use super::wire::{Ended, Inbox, Metered, Never, first, write};

/// Frames of a companion in a second: four times what a sound one sends.
const FRAMES_PER_S: f64 = 40.0;

/// How long its first words may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);

/// Serves one companion until its connection ends.
pub(super) async fn attend(
    hub: &Hub,
    address: SocketAddr,
    generation: u64,
    mut stream: TlsStream<Metered>,
) -> Result<(), (Refusal, String)> {
    let mut inbox = Inbox::of_companions();
    let greeting = tokio::time::timeout(HELLO_TIMEOUT, greet(&mut inbox, &mut stream)).await;
    let late = || (Unbelieved::Malformed("hello"), "no first words in time".to_owned());
    let hello = match greeting.unwrap_or_else(|_| Err(late())) {
        Ok(hello) => hello,
        Err((why, words)) => {
            hub.disbelieve(&address.to_string(), why, &words);
            return Ok(());
        }
    };
    if let Some(unlike) = hub.settings.unlike(&hello) {
        let words = format!("it has {}: it gets no plans", unlike.words());
        hub.disbelieve(&address.to_string(), Unbelieved::OtherSettings, &words);
        refuse(&mut stream, unlike).await;
        return Ok(());
    }
    let now = hub.clock.now();
    let joined = hub.companions.borrow_mut().join(now, address, &hello);
    let Some((id, telling)) = joined else {
        let words = format!(
            "{COMPANIONS_MAX} companions or {WORKERS_MAX} workers of them already, or they came \
             and went too often in the last 8 epochs"
        );
        return Err((Refusal::Full, words));
    };
    tracing::info!(%address, workers = hello.workers, "redirect: a companion joins");
    let guard = Present { hub, id };
    let ended = converse(hub, id, generation, (inbox, stream), telling).await;
    if let Ended::Nonsense(nonsense) = &ended {
        let why = Unbelieved::Malformed(nonsense.name());
        hub.disbelieve(&address.to_string(), why, &nonsense.to_string());
    }
    tracing::info!(%address, ?ended, "redirect: a companion is gone");
    drop(guard);
    Ok(())
}

/// Gives the companion up however its conversation ends.
struct Present<'a> {
    hub: &'a Hub,
    id: u64,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        let now = self.hub.clock.now();
        self.hub.companions.borrow_mut().remove(now, self.id, Gone::Left);
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
                let why = "is this site's certificate used by a second seat?";
                return Hello::read(hello)
                    .map_err(|expected| malformed(format!("expected {expected} ({why})")));
            }
            Some(frame) => {
                let words = format!(
                    "{} came from a process with this site's certificate, expected a companion's \
                     first words (is a second process set up as the seat of this site?)",
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
    telling: watch::Receiver<Option<Told>>,
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
                Frame::Counts(counts) => hear(hub, id, counts),
                _ => return Err(Nonsense::Unexpected { came: frame.name() }.into()),
            }
        }
        if !hub.companions.borrow().has(id) {
            return Err(Ended::Silent); // given up meanwhile
        }
        let now = tokio::time::Instant::now();
        if hub.generation() != generation && now >= *end_at.get_or_insert(now + RENEWED_WITHIN) {
            return Err(Ended::Renewed);
        }
        inbox.fill(input).await?;
    }
}

fn hear(hub: &Hub, id: u64, counts: &[u8]) {
    let now = hub.clock.now();
    let noted = hub.companions.borrow_mut().note(now, id, counts);
    if let Err(why) = noted {
        let name = hub.companions.borrow().name(id);
        hub.disbelieve(&name, why, &why.to_string());
    }
}

async fn speak(
    hub: &Hub,
    mut telling: watch::Receiver<Option<Told>>,
    output: &tokio::sync::Mutex<impl AsyncWrite + Unpin>,
) -> Result<Never, Ended> {
    loop {
        telling.changed().await.map_err(|_| Ended::Silent)?;
        let told = telling.borrow_and_update().clone();
        let Some(told) = told else { continue };
        let good_for = told.good_until.since(hub.clock.now());
        let bytes = told.bytes(good_for);
        write(&mut *output.lock().await, &Frame::Told(&bytes).bytes()).await?;
    }
}
