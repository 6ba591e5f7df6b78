//! Configuration files: defaults, every problem at once, and the document that explains the keys.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_core::dimmer::Law;
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_core::request::select::registry::NAMES;
use evenkeel_duplicates::Target;
use evenkeel_http_proxy::config::{Inbound, Session, Switch};
use evenkeel_runtime::limits::Http2;
use evenkeel_server::config::{AdminConfig, Config};
use evenkeel_settings::{Node, Problems};
use proptest::prelude::*;

const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");

fn read(text: &str) -> Result<Config, Problems> {
    Node::parse(text, "run.toml").and_then(|node| Config::read(&node))
}

fn good(text: &str) -> Config {
    read(text).unwrap_or_else(|problems| panic!("{problems}\nin\n{text}"))
}

fn problems(text: &str) -> Vec<String> {
    match read(text) {
        Ok(config) => panic!("no problem found: {config:?}\nin\n{text}"),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// The TOML examples of the document: the smallest, then every key.
fn examples() -> Vec<&'static str> {
    let blocks = DOCUMENT.split("```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

#[test]
fn the_smallest_configuration_has_defaults() {
    let config = good(examples()[0]);
    assert_eq!(config.process.drain, Duration::from_secs(10));
    assert!(config.process.workers >= 1);
    assert!(config.agents.is_empty() && config.admin.is_none());
    let [listen] = config.listens.as_slice() else { panic!("{config:?}") };
    let port = listen.address.inet().unwrap().port();
    assert_eq!((port, listen.upstream, listen.http.forwarded_for), (8080, 0, true));
    assert_eq!(listen.limits.drain, config.process.drain);
    let [shop] = config.upstreams.as_slice() else { panic!("{config:?}") };
    assert_eq!(
        (shop.common.name.as_str(), shop.common.policy.text(), shop.common.proxies),
        ("shop", "c3", 1)
    );
    assert_eq!(
        shop.common.replicas.iter().filter_map(|it| it.port()).collect::<Vec<_>>(),
        [9001, 9002, 9003]
    );
    assert_eq!(shop.common.timeouts.total, Duration::from_secs(30));
    assert!(shop.common.hedge.is_none() && shop.common.health.is_none());
}

#[test]
fn the_defaults_of_the_document_are_those_of_the_reader() {
    let sparse = "[upstream.shop.hedge]\n[upstream.shop.health]\n\
                  [[agent]]\nlisten = '127.0.0.1:9001'\napp = '127.0.0.1:9101'\nconcurrency = 4\n\
                  [agent.dimmer]\n[admin]\naddress = '127.0.0.1:9901'\n";
    let sparse = good(&format!("{}{sparse}", examples()[0]));
    assert_eq!(format!("{:#?}", good(examples()[1])), format!("{sparse:#?}"));
}

#[test]
fn the_document_explains_every_key_and_no_other() {
    let mut known = BTreeMap::new();
    collect_keys("", "", "", &mut known);
    assert!(known.len() >= 12, "all tables were found: {known:?}");
    known.remove("");
    assert_eq!(explained(), known);
}

/// Asks the reader for the keys it knows: an unknown key makes it list them.
fn collect_keys(title: &str, path: &str, text: &str, known: &mut BTreeMap<String, Vec<String>>) {
    let Some(mut keys) = keys_in(text) else { return };
    for key in &keys {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        for (inner, header) in [
            (path.clone(), format!("[{path}]")),
            (path.clone(), format!("[[{path}]]")),
            (format!("{path}.NAME"), format!("[{path}.NAME]")),
        ] {
            collect_keys(&header, &inner, &format!("{text}{header}\n"), known);
        }
    }
    keys.sort_unstable();
    known.insert(title.to_owned(), keys);
}

/// The keys of the last table of this text; `None` when that is no table the reader knows.
fn keys_in(text: &str) -> Option<Vec<String>> {
    let found = read(&format!("{text}zz_probe = 1\n")).err()?;
    let unknown =
        found.iter().find(|problem| problem.what.came.contains("unknown key \"zz_probe\""))?;
    let expected = unknown.what.expected.trim_start_matches("one of ");
    Some(expected.split(", ").map(ToOwned::to_owned).collect())
}

/// The keys in the document's tables, by the heading above them.
fn explained() -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut title = None;
    for line in DOCUMENT.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            title = heading.strip_prefix('`').map(|heading| heading.trim_end_matches('`'));
        }
        let key = line.strip_prefix("| `").and_then(|row| row.split('`').next());
        if let (Some(title), Some(key)) = (title, key) {
            keys.entry(title.to_owned()).or_default().push(key.to_owned());
        }
    }
    keys.values_mut().for_each(|keys| keys.sort_unstable());
    keys
}

#[test]
fn many_problems_come_in_one_listing() {
    let text = "\
[process]
workers = 0
drian = '5s'

[[listen]]
address = '127.0.0.1:8080'
upstream = 'shoop'
limits = { idle = 60, head_bytes_max = '64k' }

[[listen]]
address = '127.0.0.1:8080'
upstream = 'shop'

[upstream.shop]
replicas = ['127.0.0.1:9001', '127.0.0.1:9001', '127.0.0.1', '127.0.0.1:8080']
policy = 'c33'
retry_budget = 20

[upstream.shop.timeouts]
attempt = '20s'
total = '10s'

[admin]
address = '0.0.0.0:9901'
";
    let expected = "\
run.toml:2:11: process.workers: got 0, expected a whole number from 1 to 1024
run.toml:3:9: process: got the unknown key \"drian\", expected one of workers, drain, \
buffers_max, resolvers, hand_over, engine; did you mean \"drain\"?
run.toml:7:12: listen.0.upstream: got \"shoop\", expected shop; did you mean \"shop\"?
run.toml:8:19: listen.0.limits.idle: got 60, expected a duration such as 30ms, 2.5s or 1m30s; \
did you mean 60ms or 60s?
run.toml:8:40: listen.0.limits.head_bytes_max: got \"64k\", expected a size such as 1000, \
64KiB or 1MiB; did you mean KiB (1024) or kB (1000)?
run.toml:11:11: listen.1.address: got 127.0.0.1:8080, expected an address of its own; \
this process already listens there, for [[listen]]
run.toml:15:31: upstream.shop.replicas.1: got 127.0.0.1:9001, expected each replica once; \
the list already has it
run.toml:15:49: upstream.shop.replicas.2: got \"127.0.0.1\", expected an address or name with a \
port to connect to, such as 127.0.0.1:9001 or shop.example:9001; the port is missing
run.toml:15:62: upstream.shop.replicas.3: got 127.0.0.1:8080, expected the address of another \
server; this process listens there for [[listen]]: requests would loop
run.toml:16:10: upstream.shop.policy: got \"c33\", expected one of {policies}; did you mean \"c3\"?
run.toml:17:16: upstream.shop.retry_budget: got 20, expected a share from 0 to 1 such as 0.05 \
or 5%; did you mean 20%?
run.toml:20:11: upstream.shop.timeouts.attempt: got 20s, expected at most the total, which is 10s
run.toml:24:11: admin.address: got 0.0.0.0:9901, expected a loopback address such as \
127.0.0.1:9901, a path such as unix:/run/evenkeel/admin.sock, or token_file, or tls with \
client_ca; whoever reaches it can change settings";
    assert_eq!(problems(text).join("\n"), expected.replace("{policies}", &NAMES.join(", ")));
}

const LISTEN: &str = "[[listen]]\naddress = '127.0.0.1:80'\nupstream = 'a'\n";
const UPSTREAM: &str = "[upstream.a]\nreplicas = ['127.0.0.1:9001', '127.0.0.1:9002']\n";
const AGENT: &str = "[[agent]]\nlisten = '127.0.0.1:81'\napp = '127.0.0.1:82'\n";

/// Asserts that exactly one problem is found, at this line, and that it says this.
fn one_problem(text: &str, line: usize, says: &str) {
    let found = problems(text);
    assert_eq!(found.len(), 1, "{found:#?}\nin\n{text}");
    assert!(found[0].starts_with(&format!("run.toml:{line}:")), "{}\nin\n{text}", found[0]);
    assert!(found[0].contains(says), "{}\nlacks {says:?}", found[0]);
}

#[test]
fn something_must_be_served_and_everything_be_of_use() {
    let whole = format!("{LISTEN}{UPSTREAM}");
    good(&whole);
    good(AGENT);
    good(&format!("{AGENT}{UPSTREAM}")); // agents only: the upstream may be a leftover
    one_problem("", 1, "nothing to serve");
    one_problem("listen = []\nagent = []", 1, "nothing to serve");
    one_problem("[listen]\naddress = '127.0.0.1:80'", 1, "write [[listen]], in double brackets");
    one_problem(LISTEN, 3, "the file has none");
    one_problem(&format!("[[listen]]\naddress = '[::]:0'\n{UPSTREAM}"), 1, "got nothing");
    let unused = "[upstream.b]\nreplicas = ['[::1]:1']";
    one_problem(&format!("{whole}{unused}"), 6, "upstream = \"b\"");
    // A misspelt name is one problem: the upstream it meant is not called unused as well.
    one_problem(&whole.replace("'a'", "'aa'"), 3, "did you mean \"a\"?");
}

#[test]
fn routes_say_what_they_take_and_where_it_goes() {
    let with = |routes: &str| {
        let listen = LISTEN.replace("'a'\n", &format!("'a'\nroutes = [{routes}]\n"));
        format!("{listen}{UPSTREAM}[upstream.b]\nreplicas = ['[::1]:1']\n")
    };
    let b = "{ upstream = 'b' }";
    good(&with(b));
    good(&with("{ weights = { a = 99, b = 1 }, path = '/x*', host = '*.example', hedge = false }"));
    good(&with(&format!("{b}, {{ respond = 404, header = {{ x-a = '*' }}, method = 'GET' }}")));
    good(&with("{ upstream = 'a', mirror = { upstream = 'b', share = '5%' } }"));
    for (route, says) in [
        ("{ path = '/' }", "got 0 of these keys, expected one of upstream, weights and respond"),
        ("{ upstream = 'b', respond = 404 }", "got 2 of these keys"),
        ("{ upstream = 'c' }", "got \"c\", expected an upstream of HTTP: a, b"),
        ("{ weights = { a = 'x', b = 0 } }", "got \"x\", expected a whole number"),
        ("{ weights = { c = 1 } }", "got \"c\", expected an upstream of HTTP: a, b"),
    ] {
        // The one that is meant may be b, which is then not called unused as well.
        one_problem(&with(route), 4, says);
    }
    for (key, says) in [
        ("path = 'x'", "got \"x\", expected a path such as"),
        ("path = '/a*b'", "or how it begins, such as \"/cart/*\""),
        ("path = '/a?b'", "expected a path such as"),
        ("host = 'a.example:80'", "expected a name without a port"),
        ("host = '*example'", "or \"*.shop.example\""),
        ("host = ''", "expected a name"),
        ("method = []", "expected one method or more"),
        ("method = 'get'", "got \"get\", expected a method such as \"GET\""),
        ("header = { 'a b' = 'x' }", "got \"a b\", expected the name of a header"),
        ("header = { a = \"\\u0000\" }", "expected the value of a header"),
        ("timeouts = { attempt = '2s', total = '1s' }", "expected at most 1s"),
        ("mirror = { share = 0.1 }", "got nothing, expected the name of an [upstream.NAME]"),
        ("mirror = { upstream = 'b', share = 2 }", "expected a share from 0 to 1"),
        ("brownout = 'on'", "expected one of strip, trust"),
    ] {
        one_problem(&with(&format!("{{ upstream = 'b', {key} }}")), 4, says);
    }
    one_problem(&with("{ weights = { a = 0, b = 0 }, path = '/a' }"), 4, "above 0");
    let mirrored = "{ respond = 404, mirror = { upstream = 'b' } }";
    one_problem(&with(mirrored), 4, "what is answered here is not mirrored");
    let many = with(&vec!["{ upstream = 'a' }"; 257].join(", "));
    let many = many.split("[upstream.b]").next().unwrap();
    one_problem(many, 4, "at most 256 routes");
    // A way back through a route is one.
    let back = with(b).replace("[::1]:1", "127.0.0.1:80");
    one_problem(&back, 8, "requests would loop");
    let cql = format!("{}protocol = 'cql'\n", with("").replace("[upstream.b]", "[upstream.c]"));
    let cql = cql.replace("upstream = 'a'", "upstream = 'c'").replace("[]", &format!("[{b}]"));
    assert!(problems(&cql).join("\n").contains("listen.0.routes"), "{:?}", problems(&cql));
}

#[test]
fn too_many_tables_are_one_problem_and_no_other_follows_from_it() {
    let tables = |upstreams: usize, listens: usize| -> String {
        let upstream = |n| format!("[upstream.u{n}]\nreplicas = ['127.0.0.1:{}']\n", 30_000 + n);
        let listen = |n| {
            format!(
                "[[listen]]\naddress = '127.0.0.1:{}'\nupstream = 'u{}'\n",
                10_000 + n,
                n % upstreams
            )
        };
        (0..upstreams).map(upstream).chain((0..listens).map(listen)).collect()
    };
    good(&tables(256, 256));
    one_problem(&tables(1_000, 256), 1, "got 1000 tables, expected at most 256 tables");
    one_problem(&tables(256, 1_000), 513, "got a list of 1000, expected at most 256 tables");
    let both = problems(&tables(1_000, 1_000));
    assert_eq!(both.len(), 2, "{both:#?}");
}

#[test]
fn http2_is_one_of_three() {
    let with = |value: &str| format!("{LISTEN}{UPSTREAM}http2 = {value}\n");
    let read = |value: &str| good(&with(value)).upstreams[0].common.limits.http2;
    let written = [("\"auto\"", Http2::Auto), ("true", Http2::Always), ("false", Http2::Never)];
    for (value, expected) in written {
        assert_eq!(read(value), expected, "{value}");
    }
    let line = with("").lines().count();
    for wrong in ["'on'", "'true'", "1", "[]", "{}"] {
        one_problem(&with(wrong), line, "expected \"auto\", true or false");
    }
}

#[test]
fn names_of_upstreams_are_plain() {
    for name in ["a b", "ä", "a{}", "", &"x".repeat(65)] {
        let text = format!("{LISTEN}{UPSTREAM}").replace("'a'", &format!("\"{name}\""));
        let text = text.replace("upstream.a", &format!("upstream.\"{name}\""));
        one_problem(&text, 4, "letters, digits");
    }
}

#[test]
fn addresses_are_listened_on_once() {
    let whole = format!("{LISTEN}{UPSTREAM}");
    one_problem(&format!("{whole}{LISTEN}"), 7, "for [[listen]]");
    one_problem(&format!("{whole}{}", AGENT.replace(":81", ":80")), 7, "for [[listen]]");
    one_problem(&format!("{whole}[admin]\naddress = '127.0.0.1:80'"), 7, "for [[listen]]");
    one_problem(&format!("{whole}[admin]\naddress = '10.0.0.1:81'"), 7, "or token_file");
    one_problem(&format!("{whole}[admin]\naddress = '[::]:81'"), 7, "or token_file");
    good(&format!("{whole}[admin]\naddress = '[::]:81'\ntoken_file = 'token'"));
    good(&format!("{whole}[admin]\naddress = '[::1]:80'"));
    // Also in another spelling, or where one is on all interfaces.
    for (one, other) in [
        ("127.0.0.1:80", "[::ffff:127.0.0.1]:80"),
        ("127.0.0.1:80", "0.0.0.0:80"),
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("0.0.0.0:80", "[::]:80"),
        ("[::]:80", "10.0.0.1:80"),
        ("[::1]:80", "[::]:80"),
        ("[::ffff:0.0.0.0]:80", "10.0.0.1:80"),
        ("[0:0:0:0:0:0:0:1]:80", "[::1]:80"),
    ] {
        let [first, second] = [one, other].map(|at| LISTEN.replace("127.0.0.1:80", at));
        one_problem(&format!("{first}{UPSTREAM}{second}"), 7, "for [[listen]]");
    }
    for (one, other) in [("0.0.0.0:80", "[::1]:80"), ("127.0.0.1:80", "127.0.0.2:80")] {
        let [first, second] = [one, other].map(|at| LISTEN.replace("127.0.0.1:80", at));
        good(&format!("{first}{UPSTREAM}{second}"));
    }
    let any_port = LISTEN.replace(":80", ":0");
    good(&format!("{any_port}{any_port}{UPSTREAM}"));
}

#[test]
fn a_replica_is_named_once_however_it_is_written() {
    let whole = format!("{LISTEN}{UPSTREAM}");
    for same in ["127.0.0.1:9002", "[::ffff:127.0.0.1]:9002", "0.0.0.0:9002"] {
        let twice = whole.replace(":9002'", &format!(":9002', '{same}'"));
        one_problem(&twice, 5, "each replica once");
    }
}

#[test]
fn requests_must_not_go_round_in_circles() {
    let proxy = |listen: &str, replica: &str| {
        format!("{LISTEN}{UPSTREAM}").replace("127.0.0.1:80'", listen).replace(":9002'", replica)
    };
    let circle = "requests would loop";
    one_problem(&proxy("127.0.0.1:80'", ":80'"), 5, circle);
    one_problem(&proxy("0.0.0.0:80'", ":80'"), 5, circle);
    one_problem(&proxy("[::]:80'", ":80'"), 5, circle);
    one_problem(&proxy("[::]:80'", ":80', '[::1]:81'"), 5, circle);
    for same in ["[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::ffff:0.0.0.0]:80"] {
        one_problem(&proxy("127.0.0.1:80'", &format!(":9003', '{same}'")), 5, circle);
        one_problem(&proxy("0.0.0.0:80'", &format!(":9003', '{same}'")), 5, circle);
        one_problem(&proxy("[::ffff:127.0.0.1]:80'", &format!(":9003', '{same}'")), 5, circle);
    }
    one_problem(&proxy("[::1]:80'", ":9003', '[::]:80'"), 5, circle);
    good(&proxy("[::1]:80'", ":80'"));
    good(&proxy("10.0.0.1:80'", ":80'"));
    one_problem(&AGENT.replace(":82", ":81"), 3, circle);
    one_problem(&AGENT.replace("127.0.0.1:81", "[::]:82"), 3, circle);
    // The proxy before an agent is no circle; the agent before the proxy closes it, twice told.
    let agent = format!("{}{AGENT}", proxy("127.0.0.1:80'", ":81'"));
    good(&agent);
    let found = problems(&agent.replace(":82'", ":80'"));
    assert_eq!(found.iter().filter(|found| found.contains(circle)).count(), 2, "{found:#?}");
    assert_eq!(found.len(), 2);
    // Two proxies in a row are no circle either.
    let second = "[[listen]]\naddress = '127.0.0.1:9001'\nupstream = 'b'\n\
                  [upstream.b]\nreplicas = ['127.0.0.1:1']\n";
    good(&format!("{LISTEN}{UPSTREAM}{second}"));
}

#[test]
fn a_single_replica_can_be_neither_hedged_nor_retried() {
    let single = format!("{LISTEN}{UPSTREAM}").replace(", '127.0.0.1:9002'", "");
    good(&single);
    good(&format!("{single}retries_max = 0"));
    one_problem(&format!("{single}retries_max = 1"), 6, "retries with 127.0.0.1:9001 as the only");
    one_problem(&format!("{single}[upstream.a.hedge]"), 6, "hedging with 127.0.0.1:9001");
    one_problem(&single.replace("'127.0.0.1:9001'", ""), 5, "an empty list");
    one_problem(&single.replace(":9001'", ":0'"), 5, "a port to connect to");
}

#[test]
fn what_belongs_to_a_whole_is_not_longer_than_it() {
    let whole = format!("{LISTEN}{UPSTREAM}");
    let with = |more: &str| format!("{whole}[upstream.a.{more}");
    one_problem(&with("timeouts]\nattempt = '31s'"), 7, "at most the total, which is 30s");
    one_problem(&with("timeouts]\nattempt = '1s'\nconnect = '2s'"), 8, "at most the attempt");
    one_problem(&with("pool]\nconnections_max = 9\nidle_connections_max = 10"), 8, "which is 9");
    one_problem(&with("safeguards]\nejection_base = '9s'"), 7, "ejection_max, which is 8s");
    one_problem(&with("health]\npath = 'healthz'"), 7, "a path such as \"/healthz\"");
    one_problem(&format!("{AGENT}queue_max = 5"), 4, "concurrency too");
    // Defaults give way.
    let short = good(&with("timeouts]\ntotal = '500ms'"));
    let (timeouts, pool) = (short.upstreams[0].common.timeouts, short.upstreams[0].common.limits);
    let half = Duration::from_millis(500);
    assert_eq!((timeouts.attempt, timeouts.total, pool.connect), (half, half, half));
    let small = good(&with("pool]\nconnections_max = 9"));
    assert_eq!(small.upstreams[0].common.limits.idle_connections_max, 9);
}

#[test]
fn an_agent_dims_by_what_is_written() {
    let with = |more: &str| format!("{AGENT}{more}");
    assert_eq!(good(AGENT).agents[0].common.dimmer, None);
    let dimmer = |text: &str| good(&with(text)).agents[0].common.dimmer.clone().unwrap();
    let bare = dimmer("[agent.dimmer]");
    assert_eq!((bare.brownout.law, bare.brownout.cores), (Law::FeedForward, None));
    assert_eq!((bare.brownout.parts, bare.parts.len()), (1, 0));
    assert_eq!((bare.inbound, bare.switch), (Inbound::Decide, Switch::Auto));
    assert_eq!(dimmer("concurrency = 3\n[agent.dimmer]").brownout.cores, Some(3.0));
    assert_eq!(dimmer("concurrency = 3\n[agent.dimmer]\ncores = 1.5").brownout.cores, Some(1.5));
    let full = dimmer(
        "[agent.dimmer]\nlaw = 'published'\nsetpoint = '50ms'\npercentile = '99%'\n\
         parts = ['recommendations', 'comments']\nsession = { cookie = 'sid' }\n\
         inbound = 'obey'\nroutes = ['/item/']\nswitch = 'lean'",
    );
    assert_eq!((full.brownout.law, full.brownout.parts), (Law::Published, 2));
    assert_eq!(full.brownout.period, Duration::from_millis(500));
    assert_eq!((full.brownout.setpoint.as_millis(), full.brownout.percentile.value()), (50, 0.99));
    assert_eq!(full.parts, ["recommendations", "comments"]);
    assert_eq!(full.session, Some(Session::Cookie("sid".to_owned())));
    assert_eq!((full.inbound, full.switch), (Inbound::Obey, Switch::Lean));
    assert_eq!(full.routes, ["/item/"]);
    let header = dimmer("[agent.dimmer.session]\nheader = 'X-User'").session;
    assert_eq!(header, Some(Session::Header("x-user".parse().unwrap())));
    assert_eq!(good(&with("[agent.dimmer]\nlaw = 'off'")).agents[0].common.dimmer, None);
}

#[test]
fn a_dimmer_that_cannot_work_is_refused() {
    for (written, says) in [
        ("law = 'published-exact'", "expected published, the same law with bounds"),
        ("setpoint = '60s'", "less than the agent's timeout, which is 1m"),
        ("setpoint = '0s'", "from 1ms to"),
        ("percentile = 0.3", "0.5"),
        ("cores = 0", "0.01"),
        ("parts = ['Comments']", "small letters"),
        ("parts = ['']", "small letters"),
        ("parts = ['a', 'a']", "\"a\" twice, expected each part once"),
        ("routes = ['item']", "such as \"/item\""),
        ("session = {}", "neither of them, expected either cookie or header"),
        ("session = { cookie = 'a', header = 'b' }", "both cookie and header"),
        ("session = { cookie = 'a b' }", "name of a cookie"),
        ("inbound = 'trust'", "expected one of decide, obey"),
        ("switch = 'off'", "expected one of auto, full, lean"),
    ] {
        one_problem(&format!("{AGENT}[agent.dimmer]\n{written}"), 5, says);
    }
    let parts: Vec<String> = (0..33).map(|part| format!("'p{part}'")).collect();
    let many = format!("{AGENT}[agent.dimmer]\nparts = [{}]", parts.join(","));
    one_problem(&many, 5, "at most 32 parts");
    one_problem(&format!("{LISTEN}brownout = 'keep'\n{UPSTREAM}"), 4, "strip, trust");
}

#[test]
fn the_document_names_every_policy() {
    let row = DOCUMENT.lines().find(|line| line.starts_with("| `policy` |")).unwrap();
    let missing: Vec<_> = NAMES.iter().filter(|name| !row.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn policies_may_have_parameters() {
    let with = |policy: &str| format!("{LISTEN}{UPSTREAM}policy = '{policy}'");
    let config = good(&with("c3:rate_control=on,weight=7"));
    assert_eq!(config.upstreams[0].common.policy.text(), "c3:rate_control=on,weight=7");
    one_problem(&with("c33:weight=7"), 6, "expected one of adaptive, random, ");
    one_problem(&with("c3:wait=7"), 6, "expected one of the parameters weight, ");
    one_problem(&with("random:x=7"), 6, "expected no parameters");
    one_problem(&with("c3:alpha=2"), 6, "for the parameter alpha a number from 0.001 to 1");
    one_problem(&with(&format!("c3:{}", "x".repeat(9_999))), 6, "a text of 10002 bytes");
    one_problem(&with("oracle"), 6, "expected one of adaptive, "); // which only the simulator has
}

/// Ways to spoil a file that stays TOML, mostly.
fn odd_values() -> impl Strategy<Value = String> {
    let values = [
        "''",
        "-1",
        "0",
        "1e300",
        "inf",
        "nan",
        "true",
        "[]",
        "[[]]",
        "{}",
        "'0s'",
        "'99d'",
        "'5%'",
        "'0.0.0.0:0'",
        "'[::]:9001'",
        "['127.0.0.1:8080']",
        "'shop'",
        "{ a = 1 }",
        "[{}]",
        "9223372036854775807",
        "'16EiB'",
        "1979-05-27",
        "'\\u001b[2J'",
    ];
    prop_oneof![prop::sample::select(values.to_vec()).prop_map(str::to_owned), "'[ -&(-~]{0,30}'",]
}

proptest! {
    #[test]
    fn every_unknown_key_is_reported_with_its_line(
        keys in prop::collection::vec((any::<prop::sample::Index>(), "zz[a-z]{0,6}"), 1..8),
    ) {
        let lines: Vec<&str> = examples()[1].lines().collect();
        // Between any two lines there is a table to put a key into.
        let by_line: BTreeMap<usize, &String> =
            keys.iter().map(|(index, key)| (1 + index.index(lines.len() - 1), key)).collect();
        let mut text = String::new();
        let mut expected = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            if let Some(key) = by_line.get(&index) {
                text.push_str(&format!("{key}{index} = 1\n"));
                expected.push((text.lines().count(), format!("the unknown key \"{key}{index}\"")));
            }
            text.push_str(&format!("{line}\n"));
        }
        let found = read(&text).unwrap_err();
        prop_assert_eq!(found.len(), expected.len(), "{}", found);
        for (problem, (line, came)) in found.iter().zip(&expected) {
            let place = format!("run.toml:{line}:");
            prop_assert!(problem.at.to_string().starts_with(&place), "{}", problem);
            prop_assert_eq!(&problem.what.came, came);
        }
    }

    #[test]
    fn odd_values_are_refused_or_make_sense(
        changes in prop::collection::vec((any::<prop::sample::Index>(), odd_values()), 1..6),
    ) {
        let mut lines: Vec<String> = examples()[1].lines().map(ToOwned::to_owned).collect();
        for (index, value) in changes {
            let index = index.index(lines.len());
            if let Some((key, _)) = lines[index].split_once(" = ") {
                lines[index] = format!("{key} = {value}");
            }
        }
        let text = lines.join("\n");
        match read(&text) {
            Ok(config) => check_sense(&config)?,
            Err(problems) => prop_assert!(problems.to_string().starts_with("run.toml:")),
        }
    }

    #[test]
    fn any_damage_is_survived(
        cuts in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..40, "[ -~\n\u{7f}-\u{ff}]{0,6}"), 1..8),
    ) {
        let mut text: Vec<char> = examples()[1].chars().collect();
        for (index, length, put) in cuts {
            let start = index.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, put.chars());
        }
        if let Ok(config) = read(&text.iter().collect::<String>()) {
            check_sense(&config)?;
        }
    }
}

/// What the rest of the program relies on.
fn check_sense(config: &Config) -> Result<(), TestCaseError> {
    prop_assert!(!config.listens.is_empty() || !config.agents.is_empty());
    prop_assert!(config.process.workers >= 1);
    prop_assert!(config.listens.iter().all(|listen| listen.upstream < config.upstreams.len()));
    for upstream in &config.upstreams {
        let distinct: BTreeSet<_> = upstream.common.replicas.iter().collect();
        prop_assert!(!distinct.is_empty() && distinct.len() == upstream.common.replicas.len());
        prop_assert!(upstream.common.timeouts.attempt <= upstream.common.timeouts.total);
        prop_assert!(!upstream.common.timeouts.attempt.is_zero());
        prop_assert!(upstream.common.hedge.is_none() || upstream.common.replicas.len() > 1);
        prop_assert!(upstream.common.limits.head_bytes_max >= 8_192);
    }
    prop_assert!(config.agents.iter().all(|agent| agent.common.app != agent.common.address));
    for (agent, dimmer) in
        config.agents.iter().flat_map(|agent| Some((agent, agent.common.dimmer.as_ref()?)))
    {
        prop_assert!(dimmer.brownout.setpoint < agent.common.timeout);
        prop_assert!(dimmer.brownout.period >= Duration::from_millis(10));
        prop_assert!(dimmer.brownout.cores.is_none_or(|cores| cores > 0.0 && cores.is_finite()));
        prop_assert_eq!(usize::from(dimmer.brownout.parts), dimmer.parts.len().max(1));
    }
    let is_kept = |admin: &AdminConfig| {
        let is_near = admin.address.inet().is_none_or(|address| address.ip().is_loopback());
        is_near || admin.token_file.is_some() || admin.asks_certificates()
    };
    prop_assert!(config.admin.iter().all(is_kept));
    Ok(())
}

#[test]
fn replicas_may_be_named_and_discovered_and_slips_are_explained() {
    let of = |more: &str| {
        format!(
            "[[listen]]\naddress = '127.0.0.1:8080'\nupstream = 'a'\n\
             [process]\nresolvers = ['10.0.0.53:53']\n[upstream.a]\n{more}\n"
        )
    };
    let sources = |more: &str| {
        let config = good(&of(more));
        let common = config.upstreams[0].common.clone();
        let sources: Vec<String> = common.sources.iter().map(ToString::to_string).collect();
        (common.replicas.len(), sources, common.tls.and_then(|tls| tls.name))
    };
    let named = sources("replicas = ['127.0.0.1:1', 'Shop.internal:2']\nhedge = {}");
    assert_eq!(named, (1, vec!["shop.internal:2".to_owned()], None));
    let service = sources("discover = { dns = '_http._tcp.Shop' }\nreplicas = ['b:1']");
    assert_eq!(service.1, ["b:1", "_http._tcp.shop"]);
    let file = sources("discover = { file = '/srv/replicas.json' }\ntls = {}");
    assert_eq!(file, (0, vec!["/srv/replicas.json".to_owned()], None));
    let one = sources("replicas = ['shop.internal.:1', 'shop.internal.:2']\ntls = {}");
    assert_eq!(one.2.as_deref(), Some("shop.internal"), "the name in their certificates");
    assert_eq!(good(&of("replicas = ['b:1']")).process.resolvers.len(), 1);
    for (more, words) in [
        ("replicas = []", "upstream.a.replicas: got an empty list"),
        ("hedge = {}", "upstream.a.replicas: got nothing"),
        ("replicas = ['b:1', 'B:1']", "upstream.a.replicas.1: got b:1, expected each replica once"),
        ("replicas = ['http://b:1']", "without a scheme"),
        ("discover = {}", "upstream.a.discover.dns: got none of dns, file and kubernetes"),
        ("discover = { dns = 'a', file = 'b' }", "got dns and file, expected one of them"),
        ("discover = { dns = 'a b' }", "expected the name of a service such as _http._tcp"),
        (
            "discover = { consul = 'a' }",
            "the unknown key \"consul\", expected one of dns, file, kubernetes",
        ),
        ("replicas = ['b:1', 'c:1']\ntls = {}", "upstream.a.tls: got replicas of several names"),
        ("discover = { dns = 'a' }\ntls = {}", "expected tls.name"),
        (
            "protocol = 'cql'\nreplicas = ['127.0.0.1:1']\ndiscover = { dns = 'a' }",
            "upstream.a.discover",
        ),
    ] {
        let found = problems(&of(more)).join("\n");
        assert!(found.contains(words), "{more}: {found}");
    }
}

/// What `docs/redirect.md` shows, with files that nobody opens here.
#[test]
fn sharing_load_without_health_or_a_door_for_others_is_doubtful() {
    let guide = include_str!("../../../../docs/redirect.md");
    let blocks = guide.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let whole = blocks.into_iter().find(|block| block.contains("[redirect]")).unwrap();
    assert_eq!(good(whole).doubts(), Vec::<String>::new());
    let reported = |text: &str, word: &str| {
        let doubts = good(text).doubts();
        assert!(doubts.len() == 1 && doubts[0].contains(word), "{doubts:?}");
    };
    let (before, rest) = whole.split_once("[upstream.shop.health]").unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    reported(&format!("{before}{after}"), "[upstream.shop.health]");
    let door = "forwarded_requests = \"trust\"";
    let of_replicas = whole.replace(door, "");
    reported(&of_replicas, door);
    let slices = "\n[redirect.kubernetes]\nfile = 'slices.json'\nservice = 'shop'\n";
    reported(&format!("{whole}{slices}"), "must list replicas");
    assert_eq!(good(&format!("{of_replicas}{slices}")).doubts(), Vec::<String>::new());
}

/// The keys of an upstream, with the same readers.
#[test]
fn reads_of_duplicates_are_balanced_as_requests_of_an_upstream() {
    let head = "[duplicates.cart]\nlisten = '127.0.0.1:6380'\ndirectory = '/tmp/cart'\n";
    let of = |text: &str| good(&format!("{head}{text}")).duplicates.remove(0);
    let default = of("");
    assert_eq!((default.policy.text(), default.read_copies), ("least-outstanding", 8));
    assert!(default.hedge.is_none() && default.safeguards == Safeguards::default());
    let text = "read_copies = 1\npolicy = 'c3:weight=7'\n[duplicates.cart.hedge]\nbudget = '1%'\n\
                [duplicates.cart.safeguards]\nslow_start = '0s'\n";
    let config = of(text);
    assert_eq!((config.policy.text(), config.read_copies), ("c3:weight=7", 1));
    assert_eq!(config.hedge.unwrap().budget_share, 0.01);
    assert_eq!(config.safeguards.slow_start, Duration::ZERO);
    let single = "store = 'redis'\npartitions = [['10.0.0.1:1'], ['10.0.0.2:1']]\nhedge = {}\n";
    let _ = of(&format!("spares = ['10.0.0.3:1']\n{single}"));
    for (text, word) in [
        ("policy = 'best'\n", "least-outstanding"),
        ("policy = 'c3:weigth=7'\n", "weight"),
        ("read_copies = 9\n", "1 to 8"),
        ("hedge = {quantile = 0.1}\n", "0.5 to"),
        ("safeguards = {ejection_failure = 1}\n", "ejection_failures"),
        (single, "two duplicates in a partition"),
    ] {
        let problems = problems(&format!("{head}{text}"));
        assert!(problems.iter().any(|problem| problem.contains(word)), "{text}: {problems:?}");
    }
}

/// Everything that can be a duplicate, and what is wrong where.
#[test]
fn duplicates_of_every_store() {
    let head = "[duplicates.cart]\nlisten = '127.0.0.1:6380'\ndirectory = '/tmp/cart'\n";
    let targets = |text: &str| {
        let config = good(&format!("{head}{text}"));
        let partitions = config.duplicates[0].partitions.iter();
        partitions.map(|one| one.iter().map(ToString::to_string).collect()).collect::<Vec<Vec<_>>>()
    };
    assert_eq!(targets("")[0].len(), 2);
    let redis = "store = 'redis'\nstore_password = 'x'\npartitions = [['10.0.0.1:6379']]\n";
    assert_eq!(targets(redis), [["10.0.0.1:6379"]]);
    let memcached = "store = 'memcached'\npartitions = [['10.0.0.1:1'], ['10.0.0.2:1']]\n";
    assert_eq!(targets(memcached), [["memcached 10.0.0.1:1"], ["memcached 10.0.0.2:1"]]);
    let zookeeper = "store = 'zookeeper'\npartitions = [['a:1,b:2', '[::1]:3/x/y']]\n";
    let expected = [["ZooKeeper a:1,b:2/evenkeel/cart", "ZooKeeper [::1]:3/x/y"]];
    assert_eq!(targets(zookeeper), expected);
    let cassandra =
        "store = 'cassandra'\npartitions = [['10.0.0.1:1,10.0.0.2:2', '[::1]:3/x_y']]\n";
    let expected = [["Cassandra 10.0.0.1:1,10.0.0.2:2/evenkeel_cart", "Cassandra [::1]:3/x_y"]];
    assert_eq!(targets(cassandra), expected);
    let access = "[duplicates.cart.cassandra]\nuser = 'cart'\npassword_file = '/tmp/secret'\n\
                  replicas = {east = 3}\nconsistency = 'local_quorum'\n\
                  tls = {ca = '/tmp/ca.pem', name = 'db'}\n";
    let config = good(&format!("{head}{cassandra}{access}"));
    let Target::Cassandra { settings } = &config.duplicates[0].partitions[0][1] else {
        panic!("{:?}", config.duplicates[0].partitions)
    };
    assert_eq!(settings.access.user.as_ref().unwrap().name, "cart");
    assert_eq!(settings.access.tls.as_ref().unwrap().name.as_deref(), Some("db"));
    assert_eq!(settings.access.replicas, BTreeMap::from([("east".to_owned(), 3)]));
    assert!(settings.access.is_local);
    for (text, word) in [
        ("store = 'cassandra'\npartitions = [['10.0.0.1']]\n", "10.0.1.1:9042"),
        ("store = 'cassandra'\npartitions = [['10.0.0.1:1/Upper']]\n", "10.0.1.1:9042"),
        ("store = 'cassandra'\npartitions = [['10.0.0.1:1/']]\n", "10.0.1.1:9042"),
        ("store = 'cassandra'\npartitions = [['10.0.0.1:1', '10.0.0.1:1']]\n", "one duplicate"),
        ("cassandra = {user = 'cart', password_file = 'x'}\n", "store = \"cassandra\""),
        ("store = 'cassandra'\npartitions = [['a:1']]\ncassandra = {user = 'cart'}\n", "password"),
        ("store = 'cassandra'\npartitions = [['a:1']]\ncassandra.replicas.x = 0\n", "1 to 100"),
        ("store = 'memcached'\nstore_password = 'x'\npartitions = [['10.0.0.1:1']]\n", "password"),
        ("store = 'memcached'\npartitions = [['10.0.0.1:1', '10.0.0.1:1']]\n", "already"),
        ("store = 'memcached'\npartitions = [[]]\n", "a list of addresses"),
        ("store = 'zookeeper'\npartitions = [['a']]\n", "10.0.1.1:2181"),
        ("store = 'zookeeper'\npartitions = [['a:0']]\n", "10.0.1.1:2181"),
        ("store = 'zookeeper'\npartitions = [['a:1/']]\n", "10.0.1.1:2181"),
        ("store = 'zookeeper'\npartitions = [['a:1/x/../y']]\n", "10.0.1.1:2181"),
        ("store = 'zookeeper'\npartitions = [['a:1/x', 'a:1/x']]\n", "one duplicate"),
        ("store = 'etcd'\n", "memcached"),
    ] {
        let problems = problems(&format!("{head}{text}"));
        assert!(problems.iter().any(|problem| problem.contains(word)), "{text}: {problems:?}");
    }
}

#[test]
fn the_document_lists_the_words_that_a_key_takes() {
    let lists: Vec<&str> =
        DOCUMENT.lines().filter_map(|line| line.strip_prefix("## `[[")).collect();
    let lists: Vec<&str> = lists.iter().filter_map(|line| line.strip_suffix("]]`")).collect();
    let (mut title, mut count) = ("", 0);
    for line in DOCUMENT.lines() {
        title = line.strip_prefix("## ").unwrap_or(title);
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [key, _, kind, _, range] = cells[..] else { continue };
        let words: Option<BTreeSet<&str>> = range.split(", ").map(word).collect();
        let Some(words) = words.filter(|words| words.len() > 1) else { continue };
        let (path, key) = (title.trim_matches(['`', '[', ']']), key.trim_matches('`'));
        let value = if kind.starts_with("list") { "['zz_probe']" } else { "'zz_probe'" };
        let text = format!("{}{key} = {value}\n", headers(path, &lists));
        let found = read(&text).unwrap_err();
        let of_probe = found.iter().find(|problem| problem.what.came.contains("zz_probe"));
        let expected = &of_probe.unwrap_or_else(|| panic!("{found}\nin\n{text}")).what.expected;
        let expected = expected.trim_start_matches("one of ");
        let is_word = |word: &&str| !["", "or", "and"].contains(word);
        let mut known: BTreeSet<&str> = expected.split([',', ' ']).filter(is_word).collect();
        known.remove("published-exact"); // of the simulator: an agent says why it refuses it
        assert_eq!(words, known, "{title} {key}");
        count += 1;
    }
    assert!(count >= 20, "{count} keys with words were found");
}

/// `strip` of `` `strip` ``.
fn word(item: &str) -> Option<&str> {
    let word = item.strip_prefix('`')?.strip_suffix('`')?;
    (!word.contains(['`', '/'])).then_some(word)
}

/// The headers of a table, those of the lists that it is in first.
fn headers(path: &str, lists: &[&str]) -> String {
    let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
    let above = ends.map(|end| &path[..end]).filter(|above| lists.contains(above));
    let mut headers: String = above.map(|above| format!("[[{above}]]\n")).collect();
    if !lists.contains(&path) {
        headers.push_str(&format!("[{path}]\n"));
    }
    headers
}
