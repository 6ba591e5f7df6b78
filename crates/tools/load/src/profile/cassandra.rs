//! `[cassandra]`: records of a table in place of requests over HTTP.

use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::Version;
use evenkeel_settings::{Mismatch, Table};

use crate::{
    Arrivals, CassandraLoad, CassandraTarget, LoadError, PASSWORD_VARIABLE, Popularity, RecordSize,
};
use evenkeel_cql::client::Login;
use evenkeel_runtime::tls::{ClientTls, ClientTlsFiles};

const URL: &str = "a URL such as cql://127.0.0.1:9042/keyspace";

/// The load, with one request per second in place of the arrivals of a step.
pub(super) fn load(table: &mut Table<'_>) -> CassandraLoad {
    let nowhere = CassandraTarget::parse("cql://127.0.0.1/none").expect("that is a URL");
    let target = table.key("url").parsed(URL, nowhere, |text| {
        CassandraTarget::parse(text).map_err(|_| Mismatch::new(format!("{text:?}"), URL))
    });
    let once = Arrivals::constant(1.0).expect("1/s is a rate");
    let usual = CassandraLoad::new(target.required(), once);
    let versions = [("v5", Version::V5), ("v4", Version::V4)];
    let load = CassandraLoad {
        records: table.key("records").integer().or(usual.records),
        popularity: popularity(table).unwrap_or(usual.popularity),
        size: RecordSize {
            bytes: table.key("record_bytes").bytes().or(usual.size.bytes as u64) as usize,
            is_skewed: table.key("skewed_sizes").boolean().or(usual.size.is_skewed),
        },
        consistency: table.key("consistency").variant(&levels()).or(usual.consistency),
        version: table.key("protocol").variant(&versions).or(usual.version),
        login: login(table),
        tls: tls(table),
        has_timestamps: !table.key("server_timestamps").boolean().or(!usual.has_timestamps),
        connections: table.key("connections").integer().or(usual.connections as u32) as usize,
        ..usual
    };
    if table.is_sound()
        && let Err(error) = load.check()
    {
        let (key, what) = match error {
            LoadError::Setting { name, came, expected } => (name, Mismatch::new(came, expected)),
            error => ("url", Mismatch::new(error.to_string(), "what the load generator accepts")),
        };
        table.problem(&key.replace(' ', "_"), what);
    }
    load
}

fn popularity(table: &mut Table<'_>) -> Option<Popularity> {
    let named = ["zipfian", "uniform", "latest"]
        .map(|name| (name, Popularity::named(name).expect("it is one of these")));
    let popularity = table.key("popularity").variant(&named).optional();
    let skew = table.key("skew").number().between(0.0..=10.0).optional();
    match (popularity, skew) {
        (None | Some(Popularity::Zipfian(_)), Some(skew)) => Some(Popularity::Zipfian(skew)),
        (Some(Popularity::Latest(_)), Some(skew)) => Some(Popularity::Latest(skew)),
        (Some(Popularity::Uniform), Some(skew)) => {
            let expected = "none, since all records are equally popular";
            table.problem("skew", Mismatch::new(skew.to_string(), expected));
            None
        }
        (popularity, None) => popularity,
    }
}

fn levels() -> Vec<(&'static str, Consistency)> {
    let levels = (0..).map_while(Consistency::of).filter(|level| !level.is_serial());
    levels.map(|level| (level.name(), level)).collect()
}

/// Who asks; the password is no part of a file that is kept beside its results.
fn login(table: &mut Table<'_>) -> Option<Login> {
    let user = table.key("user").text().optional()?;
    let Ok(password) = std::env::var(PASSWORD_VARIABLE) else {
        let expected = format!("the password of \"{user}\" in {PASSWORD_VARIABLE}");
        table.problem("user", Mismatch::new("no password", expected));
        return None;
    };
    Some(Login::plain(&user, &password))
}

/// What nodes are believed by; the files are looked at here, so that a profile begins or does not.
fn tls(table: &mut Table<'_>) -> Option<ClientTls> {
    let tls = table.key("tls").table(ClientTlsFiles::read).optional()?;
    if !table.is_sound() {
        return None;
    }
    match ClientTls::load(&tls, &[]) {
        Ok(tls) => Some(tls),
        Err(error) => {
            let expected = "the certificates of the nodes' authority, PEM";
            table.problem("tls", Mismatch::new(error.to_string(), expected));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ProfileConfig, Requests};
    use super::*;
    use evenkeel_cql::client::testing::tls::Certificate;
    use evenkeel_settings::{Node, Problems};

    const SMALL: &str = "name = 'store'\nservers = 3\n[cassandra]\nurl = 'cql://127.0.0.1/shop'\n";

    fn read(text: &str) -> Result<CassandraLoad, Problems> {
        let config = ProfileConfig::read(&Node::parse(text, "s.toml").expect("it is TOML"))?;
        match config.requests {
            Requests::Cassandra(load) => Ok(*load),
            Requests::Http(_) => panic!("a table of Cassandra was asked for"),
        }
    }

    #[test]
    fn a_url_is_enough_and_the_rest_is_as_with_load() {
        let load = read(SMALL).expect("it is sound");
        let usual = CassandraLoad::new(load.target.clone(), load.plan.arrivals.clone());
        assert_eq!(load.target.addresses, ["127.0.0.1:9042"]);
        assert_eq!((load.records, load.connections), (usual.records, usual.connections));
        assert_eq!((load.consistency, load.version), (usual.consistency, usual.version));
        assert!(load.has_timestamps && load.login.is_none());
    }

    #[test]
    fn what_is_written_is_what_is_asked() {
        let more = "records = 50\nconsistency = 'ONE'\nprotocol = 'v4'\nrecord_bytes = 2000\n\
                    popularity = 'latest'\nskew = 0.5\nserver_timestamps = true\n\
                    [steps]\ntimeout = '2s'\n[loads]\nwrite_shares = [0, '4%']\n";
        let load = read(&format!("{SMALL}{more}")).expect("it is sound");
        assert_eq!((load.records, load.size.bytes), (50, 2_000));
        assert_eq!((load.consistency, load.version), (Consistency::One, Version::V4));
        assert_eq!(load.popularity, Popularity::Latest(0.5));
        assert!(!load.has_timestamps);
        assert_eq!(load.plan.timeout.as_secs(), 2);
    }

    #[test]
    fn tls_is_as_towards_the_nodes_of_a_proxy() {
        let certificate = Certificate::new();
        let authority = certificate.file().display().to_string();
        let more = format!("tls = {{ ca = '{authority}', name = 'nodes.example' }}\n");
        let load = read(&format!("{SMALL}{more}")).expect("it is sound");
        let tls = format!("{:?}", load.tls.expect("it was asked for"));
        assert!(tls.contains("nodes.example") && tls.contains(&authority), "{tls}");
    }

    #[test]
    fn every_problem_is_told_with_its_place() {
        let text = "name = 's'\nservers = 1\n[read]\nurls = ['http://a/']\n[cassandra]\n\
                    url = 'http://a/'\nconsistency = 'TWOO'\npopularity = 'uniform'\nskew = 1\n";
        let reported = read(text).expect_err("nothing of it is sound").to_string();
        let expected = [
            "s.toml:3:1: read: got [read] beside [cassandra], expected either requests over HTTP",
            "s.toml:6:7: cassandra.url: got \"http://a/\", expected a URL such as cql://127.0.0.1",
            "s.toml:7:15: cassandra.consistency: got \"TWOO\", expected ",
            "cassandra.skew: got 1, expected none, since all records are equally popular",
        ];
        for expected in expected {
            assert!(reported.contains(expected), "{expected}\nis not in\n{reported}");
        }
        // Whatever was written there: it is one problem.
        for connections in ["50", "0"] {
            let steps = format!("{SMALL}[steps]\nconnections = {connections}\n");
            let reported = read(&steps).expect_err("connections of HTTP").to_string();
            assert_eq!(
                reported.trim_end(),
                "s.toml:6:15: steps.connections: got connections beside [cassandra], expected \
                 no such key: it is for HTTP; use cassandra.connections"
            );
        }
        let reported = read(&format!("{SMALL}tls = {{ ca = '/none.pem' }}\n"));
        let reported = reported.expect_err("there is no such file").to_string();
        assert!(reported.starts_with("s.toml:5:7: cassandra.tls: got /none.pem: "), "{reported}");
        let reported = read(&format!("{SMALL}records = 0\n")).expect_err("no record").to_string();
        assert!(reported.contains("cassandra.records: got 0, expected at least one"), "{reported}");
    }
}
