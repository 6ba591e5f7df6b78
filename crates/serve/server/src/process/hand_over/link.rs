//! What the two processes say to each other: lines of text, and sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;

/// How long the other process may take for what it has at hand.
pub(super) const AT_ONCE: Duration = Duration::from_secs(5);

const LINE_BYTES_MAX: usize = 4096;

/// Sockets that go together; the kernel takes up to 253.
const SOCKETS_AT_ONCE: usize = 64;

pub(super) struct Link(UnixStream);

impl Link {
    pub(super) const fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    pub(super) async fn say(&mut self, line: &str) -> io::Result<()> {
        let line = line.replace('\n', " ") + "\n";
        tokio::time::timeout(AT_ONCE, self.0.write_all(line.as_bytes())).await?
    }

    /// The next line; `None` when the other process has ended.
    pub(super) async fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            // One by one: sockets come with the byte after a line.
            match self.0.read_u8().await {
                Ok(b'\n') => return Ok(Some(String::from_utf8_lossy(&line).into_owned())),
                Ok(byte) if line.len() < LINE_BYTES_MAX => line.push(byte),
                Ok(_) => return Err(io::Error::other("a line that does not end")),
                Err(error) => {
                    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
                    let is_end = [UnexpectedEof, ConnectionReset, BrokenPipe];
                    return if is_end.contains(&error.kind()) { Ok(None) } else { Err(error) };
                }
            }
        }
    }

    pub(super) async fn send(&mut self, sockets: &[OwnedFd]) -> io::Result<()> {
        for some in sockets.chunks(SOCKETS_AT_ONCE) {
            let some: Vec<BorrowedFd<'_>> = some.iter().map(|socket| socket.as_fd()).collect();
            let sent = self.0.async_io(Interest::WRITABLE, || {
                let mut space =
                    [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_AT_ONCE))];
                let mut with = SendAncillaryBuffer::new(&mut space);
                let has_space = with.push(SendAncillaryMessage::ScmRights(&some));
                debug_assert!(has_space, "as many as there is space for");
                Ok(sendmsg(&self.0, &[IoSlice::new(b"+")], &mut with, SendFlags::NOSIGNAL)?)
            });
            tokio::time::timeout(AT_ONCE, sent).await??;
        }
        Ok(())
    }

    /// As many sockets as were announced.
    pub(super) async fn receive(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut sockets = Vec::new();
        while sockets.len() < count {
            let before = sockets.len();
            let received = self.0.async_io(Interest::READABLE, || {
                let mut space =
                    [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_AT_ONCE))];
                let mut with = RecvAncillaryBuffer::new(&mut space);
                let (mut byte, flags) = ([0], RecvFlags::CMSG_CLOEXEC);
                recvmsg(&self.0, &mut [IoSliceMut::new(&mut byte)], &mut with, flags)?;
                for message in with.drain() {
                    if let RecvAncillaryMessage::ScmRights(some) = message {
                        sockets.extend(some);
                    }
                }
                Ok(())
            });
            tokio::time::timeout(AT_ONCE, received).await??;
            if sockets.len() == before {
                return Err(io::Error::other(format!(
                    "got {before} of {count} sockets; is the limit of open files too low?"
                )));
            }
        }
        Ok(sockets)
    }
}
