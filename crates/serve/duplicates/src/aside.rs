//! `SCRIPT KILL`, `FUNCTION KILL`, `FUNCTION STATS`: asked of every duplicate on a connection of
//! its own.
//!
//! A duplicate that runs a script answers nothing until `busy-reply-threshold` has passed, and then
//! says `BUSY` to all but these. Its other connections have other commands before them, and answers
//! of one that is ahead of the log are held (`duplicates-engine/src/effects.rs`); here nothing is
//! before. Who runs the script is not known (a read may run anywhere, and one that does not end may
//! have taken its duplicate away), so all are asked, and the answer that says most counts
//! ([`evenkeel_stores::resp::functions::rank`]).

use std::io;
use std::rc::Rc;

use tokio::task::JoinSet;

use super::config::Connector;
use evenkeel_duplicates_engine::{Aside, BUSY_WITHIN, Engine};
use evenkeel_store_link::connect::{hello, reach};

/// Asks what is to be asked, for the life of the service.
pub(super) async fn keep(engine: Rc<Engine>) {
    let wanted = engine.look().asides_wanted();
    let mut tasks = JoinSet::new();
    loop {
        wanted.notified().await;
        for aside in engine.look().take_asides() {
            tasks.spawn_local(ask(Rc::clone(&engine), aside));
        }
        while tasks.try_join_next().is_some() {}
    }
}

async fn ask(engine: Rc<Engine>, aside: Aside) {
    let (number, part, server) = aside.question;
    let connector = engine.look().connectors[server].clone();
    let answer = answer(&connector, &aside.words).await;
    let answer = answer.inspect_err(|error| tracing::info!(server, %error, "it was not asked"));
    let mut inner = engine.borrow();
    inner.read_clock();
    inner.aside_answered((number, part), server, answer.ok());
}

async fn answer(connector: &Connector, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let mut link = reach(connector).await?;
    link.wait_for(BUSY_WITHIN);
    // What a busy one takes: CLIENT SETNAME is not.
    let hello = link.ask(&hello(connector)).await?;
    if hello.first() == Some(&b'-') {
        return Ok(hello);
    }
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    link.ask(&words).await
}
