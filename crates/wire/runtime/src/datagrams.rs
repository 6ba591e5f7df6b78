//! Datagrams of UDP: a socket, and reading that no flood makes expensive.
//!
//! A socket is read no faster than its [`Bucket`] allows, whoever sends: reading is what a
//! datagram costs most, so a bound on answers alone would be none. What comes meanwhile waits in
//! the kernel, which drops what does not fit. After some datagrams in a row other tasks have
//! their turn.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;

use crate::bucket::Bucket;
use crate::clock::Clock;

/// Datagrams read before others have their turn.
const IN_A_ROW: u32 = 32;
/// Tokio's timer is no finer.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// A socket of this thread's runtime.
#[derive(Debug)]
pub struct Datagrams(UdpSocket);

impl Datagrams {
    /// At an address that nobody else has.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn at(address: SocketAddr) -> io::Result<Self> {
        let kind = Type::DGRAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
        socket.bind(&address.into())?;
        UdpSocket::from_std(socket.into()).map(Self)
    }

    /// At a port of its own, to talk to addresses of the same family.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn towards(address: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self::at(SocketAddr::new(any, 0))
    }

    /// Sends at once, or not at all.
    ///
    /// # Errors
    /// As the operating system says; [`io::ErrorKind::WouldBlock`] when its buffers are full.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        // Not by tokio, which does not send before it has seen the socket become writable.
        SockRef::from(&self.0).send_to(bytes, &to.into()).map(drop)
    }

    /// Hands over every datagram that comes, cut off after `N` bytes, for as long as it is polled;
    /// `paused` is called when the bucket is empty.
    pub async fn read<const N: usize>(
        &self,
        clock: &Clock,
        mut bucket: Bucket,
        paused: impl Fn(),
        mut took: impl FnMut(&[u8], SocketAddr),
    ) {
        let mut bytes = [0; N];
        let mut in_a_row = 0;
        loop {
            match self.0.try_recv_from(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    in_a_row = 0;
                    // An error is of the next datagram, not of this wait.
                    let _ = self.0.readable().await;
                    continue;
                }
                Ok((length, from)) => took(&bytes[..length], from),
                Err(_) => {} // of one datagram, such as a report that another did not arrive
            }
            while let Err(wait) = bucket.take(clock.now()) {
                paused();
                tokio::time::sleep(wait.max(PAUSE_MIN)).await;
                in_a_row = 0;
            }
            in_a_row += 1;
            if in_a_row == IN_A_ROW {
                in_a_row = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::time::Instant;

    use super::*;
    use crate::accept::{first, worker_runtime};

    #[test]
    fn datagrams_are_read_no_faster_than_the_bucket_allows() {
        worker_runtime().unwrap().block_on(async {
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let (sender, receiver) = (Datagrams::towards(to).unwrap(), Datagrams::at(to).unwrap());
            let (to, clock) = (receiver.0.local_addr().unwrap(), Clock::start());
            let (began, read, pauses) = (Instant::now(), RefCell::new(Vec::new()), Cell::new(0));
            let reading = receiver.read::<4>(
                &clock,
                Bucket::new(1_000.0, 10.0),
                || pauses.set(pauses.get() + 1),
                |bytes, from| {
                    assert_eq!(from, SocketAddr::from((Ipv4Addr::LOCALHOST, from.port())));
                    read.borrow_mut().push((bytes.to_vec(), began.elapsed()));
                },
            );
            let sending = async {
                for number in 0..100_u8 {
                    sender.send(&[number; 9][..usize::from(number % 9)], to).unwrap();
                }
                while read.borrow().len() < 100 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            first(reading, sending).await;
            for (number, (bytes, after)) in read.take().iter().enumerate() {
                assert_eq!(*bytes, vec![number as u8; (number % 9).min(4)], "cut off after four");
                let earliest = Duration::from_millis((number as u64).saturating_sub(11));
                assert!(*after >= earliest, "number {number} after {after:?}");
            }
            assert!(pauses.get() > 0);
        });
    }

    #[test]
    fn a_port_of_another_program_is_not_taken() {
        worker_runtime().unwrap().block_on(async {
            let other = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            SockRef::from(&other).set_reuse_port(true).unwrap();
            let error = Datagrams::at(other.local_addr().unwrap()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        });
    }
}
