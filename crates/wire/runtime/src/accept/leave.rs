//! How a client's stream ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::link::{Link, Phase};

/// Reads of a leaving client's bytes before other clients have their turn.
const DISCARDS_MAX: usize = 16;

/// How long a client is listened to after the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linger {
    /// Only if it is sending just then.
    WhileSending,
    /// Until it has closed its side too.
    UntilClosed,
}

/// Ends our side of the connection, then throws away what the client still sends.
///
/// Closing a socket with unread bytes makes the kernel send a reset, which may destroy the last
/// answer before the client has read it. So what comes is read until the client ends, or until
/// its time in [`Phase::Leaving`] is up.
pub fn poll_leave<S: AsyncRead + AsyncWrite>(
    mut stream: Pin<&mut S>,
    link: &Link,
    linger: Linger,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if link.phase() != Phase::Leaving {
        ready!(stream.as_mut().poll_shutdown(context))?;
        if linger == Linger::UntilClosed {
            link.enter(Phase::Leaving);
        }
    }
    let mut scratch = [0; 4096];
    for _ in 0..DISCARDS_MAX {
        let mut buffer = ReadBuf::new(&mut scratch);
        match stream.as_mut().poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                if link.phase() != Phase::Leaving {
                    link.enter(Phase::Leaving);
                }
            }
            Poll::Pending if link.phase() == Phase::Leaving => return Poll::Pending,
            _ => return Poll::Ready(Ok(())),
        }
    }
    context.waker().wake_by_ref(); // let others have their turn
    Poll::Pending
}
