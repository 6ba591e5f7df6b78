//! One connection to one duplicate: what is sent is answered in the same order. What waits to be
//! sent is the engine's (`duplicates-engine/src/connection_state.rs`).

use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use evenkeel_ordered::{ConnectionKind, Dropped};
use tokio::io::{AsyncRead, AsyncWrite};

use evenkeel_duplicates_engine::Engine;
use evenkeel_store_link::inbox::Inbox;
use evenkeel_stores::resp::reply::{ReplyScanner, strip_attributes};

/// Drives the connection until it breaks or is dropped by the engine. `Some` says how it broke.
pub(super) async fn drive(
    engine: Rc<Engine>,
    server: usize,
    connection: u64,
    kind: ConnectionKind,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Option<Dropped> {
    let (mut inbox, mut scanner) = (Inbox::default(), ReplyScanner::default());
    let mut has_come = false;
    std::future::poll_fn(move |context| {
        loop {
            let mut inner = engine.borrow();
            let Some(state) = inner.connection(server, connection, kind) else {
                return Poll::Ready(None);
            };
            match state.poll_write(Pin::new(&mut stream), context) {
                Ok(false) => {}
                Ok(true) => inner.heard_from(server),
                Err(_) => return Poll::Ready(Some(Dropped::Lost)),
            }
            if inner.holds_answers(server, kind) {
                return Poll::Pending; // woken when it is known what they may show
            }
            if let Err(why) = inner.believe_held(server, connection, kind) {
                return Poll::Ready(why);
            }
            if !std::mem::take(&mut has_come) {
                drop(inner);
                match inbox.poll_read(Pin::new(&mut stream), context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Some(Dropped::Lost)),
                    Poll::Ready(Ok(_)) => {}
                }
                inner = engine.borrow();
            }
            inner.read_clock();
            loop {
                if inner.holds_answers(server, kind) {
                    has_come = true;
                    break;
                }
                match scanner.scan(inbox.filled()) {
                    Ok(None) => {
                        if !inbox.filled().is_empty() {
                            inner.heard_from(server);
                        }
                        break;
                    }
                    Ok(Some(length)) => {
                        let mut plain = Vec::new();
                        let reply = answer(&inbox, &scanner, &mut plain);
                        if let Err(why) = inner.answered(server, connection, kind, reply) {
                            return Poll::Ready(why);
                        }
                        inbox.consume(length);
                    }
                    Err(error) => {
                        tracing::warn!(server, %error, "a duplicate does not speak RESP");
                        return Poll::Ready(Some(Dropped::Failed));
                    }
                }
            }
        }
    })
    .await
}

/// What it says beside its answer is for nobody who did not ask.
fn answer<'a>(inbox: &'a Inbox, scanner: &ReplyScanner, plain: &'a mut Vec<u8>) -> &'a [u8] {
    let reply = &inbox.filled()[scanner.body()];
    if !scanner.has_nested_attributes() {
        return reply;
    }
    strip_attributes(reply, plain);
    plain
}
