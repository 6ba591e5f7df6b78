//! One client's connection through an agent: both directions at once, until one of them ends.

use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};

use super::state::Session;
use super::{answers, requests};
use evenkeel_runtime::accept::{Link, Order};

/// Passes bytes in both directions until one of them ends, or the client waits for nothing and is
/// to leave.
pub(super) async fn pass(
    session: &Session,
    link: &Link,
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut node: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let ended = {
        let (from_client, to_client) = tokio::io::split(&mut client);
        let (from_node, to_node) = tokio::io::split(&mut node);
        let mut up = pin!(requests::pass(session, from_client, to_node));
        let mut down = pin!(answers::pass(session, from_node, to_client));
        std::future::poll_fn(|context| match up.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => match down.as_mut().poll(context) {
                Poll::Pending if link.order() >= Order::Drain && session.is_idle() => {
                    Poll::Ready(Ok(()))
                }
                polled => polled,
            },
        })
        .await
    };
    // TLS tells an end from a break by a last word: whoever takes it at once hears it.
    std::future::poll_fn(|context| {
        let _ = Pin::new(&mut client).poll_shutdown(context);
        let _ = Pin::new(&mut node).poll_shutdown(context);
        Poll::Ready(())
    })
    .await;
    ended
}
