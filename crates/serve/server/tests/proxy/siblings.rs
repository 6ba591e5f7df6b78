//! Workers of one process read what their siblings learn.

use super::*;

/// Requests that no replica answers, each sent once the one before has come to a replica: none may
/// go to the replica that has more of them. Workers that knew only their own would send every
/// fourth one there or so, whichever worker a connection is of.
#[test]
fn no_worker_sends_to_a_replica_that_its_siblings_have_filled() {
    story(async {
        let stall = |_: &str| Act::Stall(String::new());
        let (one, other) = (Replica::start(stall).await, Replica::start(stall).await);
        let text = format!(
            "[process]\nworkers = 4\ndrain = '0s'\n\
             [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
             [upstream.web]\npolicy = 'least-outstanding'\nreplicas = ['{}', '{}']\n\
             [upstream.web.safeguards]\nsilence_min = '0s'\n",
            one.address, other.address
        );
        let config = Config::read(&Node::parse(&text, "test.toml").unwrap());
        let proxy = Proxy(Process::start(config.unwrap_or_else(|p| panic!("{p}"))).unwrap());
        let mut clients = Vec::new();
        for sent in 1..=40 {
            let mut client = proxy.client().await;
            client.send("GET / HTTP/1.1\r\nhost: web\r\n\r\n").await;
            clients.push(client); // it waits for its answer
            until("it came to a replica", || one.saw("GET") + other.saw("GET") == sent).await;
            let (of_one, of_other) = (one.saw("GET"), other.saw("GET"));
            assert!(of_one.abs_diff(of_other) <= 1, "{of_one} and {of_other} of {sent}");
            tokio::time::sleep(Duration::from_millis(1)).await; // four looks
        }
    });
}
