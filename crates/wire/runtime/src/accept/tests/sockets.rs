//! With real sockets and in real time.

use super::*;

/// What the kernel has connected before anybody accepted.
#[test]
fn clients_in_the_kernels_backlog_are_served_once() {
    worker_runtime().unwrap().block_on(async {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let mut clients: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        for client in &mut clients {
            io::Write::write_all(client, b"one\n").unwrap();
        }
        let stop = Stop::new();
        stop.enter(Stage::Draining { until: Instant::now() + 20 * SECOND });
        let handler = Rc::new(Lines::default());
        let hearing = std::thread::spawn(move || {
            clients.into_iter().map(|client| io::read_to_string(client).unwrap()).collect()
        });
        let served = accept(listener, config().fixed(), handler, stop.signal()).await.unwrap();
        assert_eq!(served, Served { accepted: 3, rejected: 0, cut_off: 0 });
        let heard: Vec<String> = hearing.join().unwrap();
        assert_eq!(heard, ["last\n"; 3]);
        assert!(std::net::TcpStream::connect(address).is_err(), "still listening");
    });
}

/// Whether a listener of this kind gets an address that another one has.
fn is_free_for(address: SocketAddr, sharing: Sharing) -> bool {
    match Listener::bind_as(address, sharing) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
            false
        }
    }
}

#[test]
fn an_address_that_is_claimed_is_shared_with_those_only_who_ask_for_it() {
    let any = |text: &str| text.parse::<SocketAddr>().unwrap();
    for own in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"].map(any) {
        let claimed = Listener::bind_as(own, Sharing::Claimed).unwrap();
        let address = claimed.address().unwrap();
        // Also once somebody shares it: the kernel remembers what it allowed last.
        let workers: Vec<Listener> = (0..3).map(|_| Listener::bind(address).unwrap()).collect();
        for other in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::ffff:127.0.0.1]:0"].map(any) {
            let other = SocketAddr::new(other.ip(), address.port());
            assert!(!is_free_for(other, Sharing::Claimed), "{other} beside {address}");
            assert!(!is_free_for(other, Sharing::Alone), "{other} beside {address}");
        }
        assert!(is_free_for(address, Sharing::Shared));
        drop(claimed);
        assert!(!is_free_for(address, Sharing::Claimed), "the workers still have it");
        drop(workers);
        assert!(is_free_for(address, Sharing::Claimed));
    }
}

#[test]
fn administration_shares_its_address_with_nobody() {
    let alone = Listener::bind_as("127.0.0.1:0".parse().unwrap(), Sharing::Alone).unwrap();
    let address = alone.address().unwrap();
    for sharing in [Sharing::Alone, Sharing::Claimed, Sharing::Shared] {
        assert!(!is_free_for(address, sharing), "{sharing:?}");
    }
}

/// Two processes that start in the same moment: whatever the order, one of them is told.
#[test]
fn of_two_who_claim_an_address_at_once_one_gets_it() {
    for _ in 0..200 {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let claim = || Listener::bind_as(address, Sharing::Claimed).ok();
        let claimed = std::thread::scope(|scope| {
            let both = [scope.spawn(claim), scope.spawn(claim)];
            both.map(|thread| thread.join().unwrap())
        });
        assert_eq!(claimed.iter().flatten().count(), 1);
    }
}

/// Every worker takes clients, the one that claimed the address among them.
#[test]
fn clients_are_spread_over_the_claimed_listener_and_those_that_share_it() {
    let first = Listener::bind_as("127.0.0.1:0".parse().unwrap(), Sharing::Claimed).unwrap();
    let address = first.address().unwrap();
    let others: Vec<Listener> = (0..3).map(|_| Listener::bind(address).unwrap()).collect();
    let clients: Vec<_> =
        (0..400).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    worker_runtime().unwrap().block_on(async {
        for listener in std::iter::once(first).chain(others) {
            let waiting = listener.open().unwrap().into_waiting().unwrap();
            assert!((40..200).contains(&waiting.len()), "{} of 400", waiting.len());
        }
    });
    drop(clients);
}

/// The kernel has the request when the drain begins; this thread has not been told of it.
#[test]
fn a_request_that_came_while_this_thread_slept_is_answered() {
    use std::io::{Read as _, Write as _};
    worker_runtime().unwrap().block_on(async {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let (stop, lines) = (Stop::new(), Rc::new(Lines::default()));
        let accepting = accept(listener, config().fixed(), Rc::clone(&lines), stop.signal());
        let serving = tokio::task::spawn_local(accepting);
        let mut clients: Vec<_> =
            (0..20).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        clients.iter_mut().for_each(|client| client.write_all(b"one\n").unwrap());
        let leaves = std::net::TcpStream::connect(address).unwrap();
        let answered = tokio::task::spawn_blocking(move || {
            let mut word = [0; 3];
            clients.iter_mut().for_each(|client| client.read_exact(&mut word).unwrap());
            clients
        });
        let mut clients = answered.await.unwrap();
        // Written and stopped within one turn of this thread.
        clients.iter_mut().for_each(|client| client.write_all(b"two\n").unwrap());
        drop(leaves);
        stop.enter(Stage::LameDuck);
        stop.enter(Stage::Draining { until: Instant::now() + 5 * SECOND });
        let heard = tokio::task::spawn_blocking(move || {
            let heard = clients.iter_mut().map(|client| {
                let mut rest = String::new();
                client.read_to_string(&mut rest).map(|_| rest).unwrap_or_default()
            });
            heard.collect::<Vec<_>>()
        });
        assert_eq!(heard.await.unwrap(), vec!["last\n"; 20]);
        assert_eq!(serving.await.unwrap().unwrap().cut_off, 0);
    });
}
