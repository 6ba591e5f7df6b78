//! A pipe of the kernel, which carries a long body from one socket to another: its bytes are
//! neither copied to this process nor back.
//!
//! A pipe is filled, then emptied, by whoever holds it. An empty one goes back to those that its
//! thread keeps. **Limits**: a thread has a few ([`pipes_max`]), for each is two open files and
//! keeps what a client takes slowly; who gets none copies. Other systems than Linux have none.
//!
//! **Source**: splice(2); HAProxy's `option splice-response`.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::files::{self, pipes_max};

/// What a pipe is asked to hold, in bytes. It holds a page for each piece of a packet, so less than
/// this. The system may allow less; then it takes more turns.
const PIPE_BYTES: usize = 256 << 10;

thread_local! {
    static KEPT: RefCell<Vec<Ends>> = const { RefCell::new(Vec::new()) };
    /// Pipes of this thread, those in use and those kept.
    static OPEN: Cell<usize> = const { Cell::new(0) };
    static OPEN_MAX: usize = pipes_max(files::limit());
}

#[derive(Debug)]
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe, and how much is in it.
#[derive(Debug)]
pub struct Pipe {
    /// `None` once it is dropped.
    ends: Option<Ends>,
    length: usize,
}

impl Pipe {
    /// An empty one. `None` where the thread has too many, or the system gives no more.
    pub fn take() -> Option<Self> {
        let ends = match KEPT.with_borrow_mut(Vec::pop) {
            Some(ends) => ends,
            None if OPEN.get() >= OPEN_MAX.with(|max| *max) => return None,
            None => {
                let ends = system::open()?;
                OPEN.set(OPEN.get() + 1);
                ends
            }
        };
        Some(Self { ends: Some(ends), length: 0 })
    }

    /// Bytes that are in it.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("it has its ends until it is dropped")
    }

    /// Fills an empty pipe with what has come, up to so many bytes: how many, 0 at the end of the
    /// stream.
    ///
    /// # Panics
    /// When something is in it: a full pipe could not be told from a socket where nothing came.
    pub fn poll_fill(
        &mut self,
        from: &TcpStream,
        bytes_max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        assert!(self.is_empty(), "a pipe is emptied before it is filled again");
        loop {
            ready!(from.poll_read_ready(cx))?;
            let into = &self.ends().write;
            match from.try_io(Interest::READABLE, || system::splice(from, into, bytes_max)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                moved => {
                    self.length = *moved.as_ref().unwrap_or(&0);
                    return Poll::Ready(moved);
                }
            }
        }
    }

    /// Passes on what is in it, as far as the socket takes that: how many bytes, 0 only of an empty
    /// pipe.
    pub fn poll_drain(&mut self, to: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            ready!(to.poll_write_ready(cx))?;
            let from = &self.ends().read;
            match to.try_io(Interest::WRITABLE, || system::splice(from, to, self.length)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                moved => {
                    self.length -= moved.as_ref().unwrap_or(&0);
                    return Poll::Ready(moved);
                }
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let Some(ends) = self.ends.take() else { return };
        // Where the thread ends there is nobody to keep it for.
        if self.is_empty() && KEPT.try_with(|_| {}).is_ok() {
            KEPT.with_borrow_mut(|kept| kept.push(ends));
        } else {
            let _ = OPEN.try_with(|open| open.set(open.get() - 1));
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::AsFd;

    use rustix::pipe::{PipeFlags, SpliceFlags};

    use super::{Ends, PIPE_BYTES};

    pub(super) fn open() -> Option<Ends> {
        let (read, write) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let _ = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES); // else it is a smaller one
        Some(Ends { read, write })
    }

    pub(super) fn splice(from: impl AsFd, to: impl AsFd, length: usize) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let splice = || rustix::pipe::splice(&from, None, &to, None, length, flags);
        Ok(rustix::io::retry_on_intr(splice)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    pub(super) fn open() -> Option<super::Ends> {
        None
    }

    pub(super) fn splice<F, T>(_from: F, _to: T, _length: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(test);
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[test]
    fn what_comes_on_one_socket_leaves_on_another_up_to_so_many_bytes() {
        run(async {
            let ((mut client, from), (to, mut server)) = (pair().await, pair().await);
            client.write_all(b"hello world").await.unwrap();
            let mut pipe = Pipe::take().unwrap();
            assert_eq!(poll_fn(|cx| pipe.poll_fill(&from, 5, cx)).await.unwrap(), 5);
            assert_eq!(poll_fn(|cx| pipe.poll_drain(&to, cx)).await.unwrap(), 5);
            assert_eq!(poll_fn(|cx| pipe.poll_drain(&to, cx)).await.unwrap(), 0);
            assert_eq!(poll_fn(|cx| pipe.poll_fill(&from, 100, cx)).await.unwrap(), 6);
            assert_eq!(poll_fn(|cx| pipe.poll_drain(&to, cx)).await.unwrap(), 6);
            let cx = &mut Context::from_waker(std::task::Waker::noop());
            assert!(pipe.poll_fill(&from, 100, cx).is_pending(), "nothing is there");
            drop((client, to));
            assert_eq!(poll_fn(|cx| pipe.poll_fill(&from, 100, cx)).await.unwrap(), 0);
            let mut all = String::new();
            server.read_to_string(&mut all).await.unwrap();
            assert_eq!(all, "hello world");
        });
    }

    #[test]
    fn a_pipe_in_which_something_is_left_is_never_used_again() {
        run(async {
            let ((mut client, from), (to, mut server)) = (pair().await, pair().await);
            client.write_all(b"secret").await.unwrap();
            let mut pipe = Pipe::take().unwrap();
            poll_fn(|cx| pipe.poll_fill(&from, 3, cx)).await.unwrap();
            drop(pipe);
            assert_eq!((KEPT.with_borrow(Vec::len), OPEN.get()), (0, 0));
            let mut pipe = Pipe::take().unwrap();
            poll_fn(|cx| pipe.poll_fill(&from, 3, cx)).await.unwrap();
            poll_fn(|cx| pipe.poll_drain(&to, cx)).await.unwrap();
            drop((pipe, to));
            assert_eq!((KEPT.with_borrow(Vec::len), OPEN.get()), (1, 1));
            let mut all = String::new();
            server.read_to_string(&mut all).await.unwrap();
            assert_eq!(all, "ret");
        });
    }

    #[test]
    fn a_thread_has_so_many_pipes_and_no_more() {
        let mut pipes: Vec<Pipe> = std::iter::from_fn(Pipe::take).collect();
        let max = pipes_max(files::limit());
        assert_eq!(pipes.len(), max);
        pipes.pop();
        assert!(Pipe::take().is_some());
        drop(pipes);
        assert_eq!(KEPT.with_borrow(Vec::len), max);
    }
}
