//! An agent before a node of Cassandra, as a configuration makes it.

use evenkeel_cql::Version;

use crate::config::Config;
use crate::process::Process;
use evenkeel_cql::client::NodeLimits;
use evenkeel_cql::client::testing::fake::{Peer, dialect, fake, limits, node, tagged};
use evenkeel_cql::client::testing::run;
use evenkeel_cql::client::testing::tls::{Certificate, ENDS};

#[test]
fn what_a_configuration_says_of_tls_is_what_an_agent_speaks() {
    run(async {
        let (certificate, other) = (Certificate::new(), Certificate::new());
        let (behind, seen) = fake(Peer::echo).await;
        let (app, mut agreed) = certificate.before(behind, ENDS[0].0).await;
        let start = |authority: &Certificate| {
            let text = format!(
                "[[agent]]\nprotocol = 'cql'\nlisten = '127.0.0.1:0'\napp = '{app}'\n\
                 tls = {{ certificate = '{}', key = '{}' }}\napp_tls = {{ ca = '{}' }}\n",
                certificate.file().display(),
                certificate.key().display(),
                authority.file().display(),
            );
            let read = evenkeel_settings::Node::parse(&text, "run.toml").unwrap();
            Process::start(Config::read(&read).unwrap()).unwrap()
        };
        let agent = start(&certificate);
        let in_tls = NodeLimits { tls: Some(certificate.of_nodes()), ..limits() };
        let asking = NodeLimits { asks_for_feedback: true, ..in_tls.clone() };
        let asking = node(agent.agents()[0], asking);
        for (tag, bytes) in [(1, 8), (2, 300_000)] {
            let answer = asking.ask(&dialect(Version::V5), tagged(tag, bytes)).await.unwrap();
            assert_eq!((answer.body.len(), answer.feedback.is_some()), (bytes, true));
        }
        assert_eq!(agreed.recv().await, Some(ENDS[0].1));
        // Whoever speaks none is not served.
        let plain = node(agent.agents()[0], limits());
        plain.ask(&dialect(Version::V5), tagged(3, 8)).await.unwrap_err();
        drop((asking, plain));
        agent.stop().unwrap();
        // A node with another's certificate is told nothing.
        let asked = seen.borrow().len();
        let wary = start(&other);
        let node = node(wary.agents()[0], in_tls);
        node.ask(&dialect(Version::V5), tagged(4, 8)).await.unwrap_err();
        assert_eq!(seen.borrow().len(), asked);
        drop(node);
        wary.stop().unwrap();
    });
}
