//! A Service of Kubernetes, by an API server that can stumble.

use std::sync::Arc;

use evenkeel_core::discovery::Standing;
use evenkeel_testkit::kubernetes::{ApiServer, Manner, NAMESPACE};
use evenkeel_testkit::story::{nobody, story_within};
use evenkeel_testkit::wait::until;
use serde_json::{Value, json};

use crate::{Fleet, LIMIT, Requests, get, ip, log, members, source, start, stop, text};

/// A slice of these replicas, each with its conditions.
fn slice(port: u16, endpoints: &[(usize, Value)]) -> Value {
    let endpoint = |(number, conditions): &(usize, Value)| {
        let uid = format!("pod-{number}");
        json!({"addresses": [ip(*number).to_string()], "conditions": conditions,
               "targetRef": {"kind": "Pod", "uid": uid}})
    };
    let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
    let ports = json!([{"name": "http", "port": port, "protocol": "TCP"},
                       {"name": "metrics", "port": 9100}]);
    json!({"addressType": "IPv4", "ports": ports, "endpoints": endpoints})
}

fn ready(number: usize) -> (usize, Value) {
    (number, json!({"ready": true, "serving": true, "terminating": false}))
}

fn leaving(number: usize) -> (usize, Value) {
    (number, json!({"ready": false, "serving": true, "terminating": true}))
}

fn starting(number: usize) -> (usize, Value) {
    (number, json!({"ready": false, "serving": false, "terminating": false}))
}

fn all(numbers: impl IntoIterator<Item = usize>) -> Vec<(usize, Value)> {
    numbers.into_iter().map(ready).collect()
}

#[test]
fn a_service_of_kubernetes_is_followed_and_an_api_server_that_fails_loses_no_request() {
    log::keep();
    story_within(LIMIT, async {
        let (fleet, server) = (Fleet::start(6), ApiServer::start(None));
        let of = |endpoints: &[(usize, Value)]| slice(fleet.port, endpoints);
        server.put("shop-1", "shop", of(&all(0..2)));
        let discover = format!(
            "discover = {{ kubernetes = {{ service = 'shop', namespace = '{NAMESPACE}', \
             port = 'http', api = 'http://{}' }} }}",
            server.address()
        );
        let process = start(&text("podded", nobody(), &discover));
        let (states, main) = (Arc::clone(process.upstreams()), process.listens()[0]);
        assert_eq!(members(&states), fleet.addresses(0..2), "before the first request");
        let requests = Requests::start(main);
        fleet.take_part(0..2).await;

        // A rollout: another slice, one that starts and one that leaves, which finishes its work.
        server.put("shop-2", "shop", of(&[ready(2), ready(3), starting(5)]));
        until("there are four", || members(&states) == fleet.addresses(0..4)).await;
        fleet.take_part(0..4).await;
        server.put("shop-1", "shop", of(&[leaving(0), ready(1)]));
        until("one has left", || members(&states) == fleet.addresses(1..4)).await;
        server.put("shop-2", "shop", of(&all([4, 5])));
        until("most move at once", || members(&states) == fleet.addresses([1, 4, 5])).await;
        server.remove("shop-1");
        until("a slice has gone", || members(&states) == fleet.addresses(4..6)).await;
        fleet.take_part(4..6).await;

        // It may not look any more, then it lies, then it forgets: they stay, and it is said once.
        for manner in [Manner::Forbidden, Manner::Garbage, Manner::Closed] {
            let failed = source(&states).counts.failed;
            server.set(manner);
            until("it fails", || source(&states).counts.failed > failed).await;
            fleet.take_part(4..6).await;
        }
        assert_eq!(source(&states).standing, Standing::Failing);
        assert_eq!(members(&states), fleet.addresses(4..6), "they stay");
        let said = log::all("podded");
        assert_eq!(log::count("podded", "replicas stay"), 1, "{said:?}");
        assert_eq!(log::count("podded", "403"), 1, "with the reason: {said:?}");
        assert_eq!(log::count("podded", "Role"), 1, "and what is needed: {said:?}");
        let lists = server.asked().lists;
        server.set(Manner::Expired);
        until("its versions are gone", || server.asked().lists > lists).await;
        server.set(Manner::Honest);
        until("it is well", || source(&states).standing == Standing::Well).await;
        let words = "it answers well again";
        until("that is said", || log::count("podded", words) == 1).await;

        // Nobody is ready: the last ones stay; also those that leave, while they serve.
        server.put("shop-2", "shop", of(&[starting(4), starting(5)]));
        until("it is empty", || source(&states).standing == Standing::Empty).await;
        assert_eq!(members(&states), fleet.addresses(4..6), "they stay");
        server.put("shop-2", "shop", of(&[leaving(5)]));
        until("one leaves and serves", || members(&states) == fleet.addresses(5..6)).await;
        server.put("shop-2", "shop", of(&all(0..6)));
        until("all are back", || members(&states).len() == 6).await;
        fleet.take_part(0..6).await;
        requests.none_is_lost(&states).await;
        let status = get(process.admin().unwrap(), "/api/v1/status").await;
        assert!(status.contains(&format!("\"name\":\"{NAMESPACE}/shop:http\"")), "{status}");
        stop(process).await;
    });
}

#[test]
fn a_quiet_watch_goes_on_saying_that_nobody_is_there_and_a_wrong_port_takes_nobody_away() {
    log::keep();
    story_within(LIMIT, async {
        let (fleet, server) = (Fleet::start(1), ApiServer::start(None));
        server.put("gone-1", "gone", slice(fleet.port, &all(0..1)));
        let discover = format!(
            "discover = {{ kubernetes = {{ service = 'gone', namespace = '{NAMESPACE}', \
             port = {}, api = 'http://{}' }} }}",
            fleet.port,
            server.address()
        );
        let process = start(&text("emptied", nobody(), &discover));
        let states = Arc::clone(process.upstreams());
        assert_eq!(members(&states), fleet.addresses(0..1));
        // A port that no slice has is no reason to lose anybody.
        server.put("gone-1", "gone", slice(9, &all(0..1)));
        until("it is told", || log::count("emptied", "http (9), metrics (9100)") == 1).await;
        assert_eq!(members(&states), fleet.addresses(0..1));
        server.remove("gone-1");
        until("it is told", || source(&states).standing == Standing::Empty).await;
        server.set(Manner::Mute);
        let empty = source(&states).counts.empty;
        until("it goes on saying so", || source(&states).counts.empty >= empty + 2).await;
        assert_eq!(members(&states), fleet.addresses(0..1), "that takes half a minute");
        stop(process).await;
    });
}
