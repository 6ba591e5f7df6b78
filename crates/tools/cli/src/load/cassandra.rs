//! `evenkeel load cql://…`: YCSB's workloads on a table of Cassandra.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::client::Login;
use evenkeel_load::{
    CassandraLoad, CassandraTarget, PASSWORD_VARIABLE, Popularity, RecordSize, Stop, Version,
    Workload,
};
use evenkeel_runtime::tls::{ClientTls, ClientTlsFiles, Identity};
use evenkeel_settings::{parse_bytes, parse_share};

use super::LoadArguments;
use crate::terminal::Progress;

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Cassandra (cql://HOST:PORT[,HOST:PORT…]/KEYSPACE)")]
pub(super) struct CassandraArguments {
    /// YCSB's workload: `a` 50 % updates, `b` 5 % updates, `c` only reads. Default b.
    #[arg(long, value_name = "LETTER")]
    workload: Option<String>,
    /// The share of reads, instead of a workload.
    #[arg(long, value_name = "SHARE", value_parser = parse_share, conflicts_with = "workload")]
    read_share: Option<f64>,
    /// Records of the table `usertable`. Default 1,000.
    #[arg(long, value_name = "COUNT")]
    records: Option<u64>,
    /// Distribution of requests over records: `zipfian` (scattered), `uniform` or `latest`. Default
    /// zipfian; --skew is the exponent, default 0.99.
    #[arg(long, value_name = "NAME")]
    popularity: Option<String>,
    /// Bytes of a record, in ten fields. Default 1,000.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    record_bytes: Option<u64>,
    /// Fields with Zipf-distributed lengths, mostly short; --record-bytes is then the maximum.
    #[arg(long)]
    skewed_sizes: bool,
    /// Consistency level of requests. Default LOCAL_QUORUM.
    #[arg(long, value_name = "LEVEL")]
    consistency: Option<String>,
    /// Version of the native protocol, 4 or 5. Default 5.
    #[arg(long, value_name = "VERSION")]
    protocol: Option<u8>,
    /// Let coordinators set the timestamps of updates. A proxy then never sends an update twice.
    #[arg(long)]
    server_timestamps: bool,
    /// User name; the password is in EVENKEEL_CQL_PASSWORD.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Use TLS, only with nodes whose certificate is signed by a CA in this file, PEM.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// With --ca-file: the name in the certificates. Default: the address of each node.
    #[arg(long, value_name = "NAME", requires = "ca_file")]
    certificate_name: Option<String>,
    /// With --ca-file: our client certificate, PEM, for nodes that require one.
    #[arg(long, value_name = "FILE", requires_all = ["ca_file", "key"])]
    certificate: Option<PathBuf>,
    /// The private key of --certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// First create the table if it is missing, and write every record.
    #[arg(long)]
    fill: bool,
    /// With --fill: also create the keyspace if it is missing, with this replication in CQL,
    /// such as "{'class': 'NetworkTopologyStrategy', 'dc1': 3}".
    #[arg(long, value_name = "MAP", requires = "fill")]
    replication: Option<String>,
}

impl CassandraArguments {
    /// An argument that only Cassandra understands, if one is given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--workload", self.workload.is_some()),
            ("--read-share", self.read_share.is_some()),
            ("--records", self.records.is_some()),
            ("--popularity", self.popularity.is_some()),
            ("--record-bytes", self.record_bytes.is_some()),
            ("--skewed-sizes", self.skewed_sizes),
            ("--consistency", self.consistency.is_some()),
            ("--protocol", self.protocol.is_some()),
            ("--server-timestamps", self.server_timestamps),
            ("--user", self.user.is_some()),
            ("--ca-file", self.ca_file.is_some()),
            ("--fill", self.fill),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }

    fn workload(&self) -> anyhow::Result<Workload> {
        if let Some(read_share) = self.read_share {
            return Ok(Workload { read_share });
        }
        let letter = self.workload.as_deref().unwrap_or("b");
        let workload = Workload::named(letter);
        workload.with_context(|| format!("--workload: got {letter}, expected a, b or c"))
    }

    fn popularity(&self, skew: Option<f64>) -> anyhow::Result<Popularity> {
        let name = self.popularity.as_deref().unwrap_or("zipfian");
        let popularity = Popularity::named(name).with_context(|| {
            format!("--popularity: got {name}, expected zipfian, uniform or latest")
        })?;
        Ok(match (popularity, skew) {
            (Popularity::Zipfian(_), Some(skew)) => Popularity::Zipfian(skew),
            (Popularity::Latest(_), Some(skew)) => Popularity::Latest(skew),
            (Popularity::Uniform, Some(_)) => bail!("--skew: there is none with uniform"),
            (popularity, None) => popularity,
        })
    }

    fn consistency(&self) -> anyhow::Result<Consistency> {
        let Some(name) = &self.consistency else { return Ok(Consistency::LocalQuorum) };
        let levels = (0..).map_while(Consistency::of).filter(|level| !level.is_serial());
        let levels = levels.collect::<Vec<_>>();
        let found = levels.iter().find(|level| level.name().eq_ignore_ascii_case(name));
        found.copied().with_context(|| {
            let known = levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", ");
            format!("--consistency: got {name}, expected one of {known}")
        })
    }

    fn version(&self) -> anyhow::Result<Version> {
        let number = self.protocol.unwrap_or(5);
        Version::of(number).with_context(|| format!("--protocol: got {number}, expected 4 or 5"))
    }

    fn login(&self) -> anyhow::Result<Option<Login>> {
        let Some(user) = &self.user else { return Ok(None) };
        let password = std::env::var(PASSWORD_VARIABLE);
        let password =
            password.with_context(|| format!("--user: {PASSWORD_VARIABLE} is not set"))?;
        Ok(Some(Login::plain(user, &password)))
    }

    fn tls(&self) -> anyhow::Result<Option<ClientTls>> {
        let Some(ca) = self.ca_file.clone() else { return Ok(None) };
        let identity = self.certificate.clone().zip(self.key.clone());
        let identity = identity.map(|(certificate, key)| Identity { certificate, key });
        let name = self.certificate_name.clone();
        let tls = ClientTls::load(&ClientTlsFiles { ca: Some(ca), identity, name }, &[]);
        tls.map(Some).context("TLS")
    }
}

/// The load that the arguments ask for.
pub(super) fn prepare(arguments: &LoadArguments) -> anyhow::Result<CassandraLoad> {
    if let Some(name) = arguments.first_of_http() {
        bail!("{name} is for http://, not for cql://");
    }
    let cassandra = &arguments.cassandra;
    let target = CassandraTarget::parse(&arguments.url)?;
    let mut load = CassandraLoad::new(target, super::plan(arguments)?);
    load.workload = cassandra.workload()?;
    load.records = cassandra.records.unwrap_or(load.records);
    load.popularity = cassandra.popularity(arguments.skew)?;
    let bytes =
        cassandra.record_bytes.map(usize::try_from).transpose().context("--record-bytes")?;
    let bytes = bytes.unwrap_or(load.size.bytes);
    load.size = RecordSize { bytes, is_skewed: cassandra.skewed_sizes };
    load.consistency = cassandra.consistency()?;
    load.version = cassandra.version()?;
    load.login = cassandra.login()?;
    load.tls = cassandra.tls()?;
    load.has_timestamps = !cassandra.server_timestamps;
    load.connections = arguments.connections.unwrap_or(load.connections);
    Ok(load)
}

/// Creates and fills the table, if that is asked for.
pub(super) fn fill(
    load: &CassandraLoad,
    arguments: &LoadArguments,
    stop: &Stop,
) -> anyhow::Result<()> {
    if !arguments.cassandra.fill {
        return Ok(());
    }
    let percent = Progress::new("filling", 100);
    let replication = arguments.cassandra.replication.as_deref();
    load.fill(replication, stop, |done| {
        percent.show((done as f64 / load.records as f64 * 100.0) as usize);
    })?;
    percent.clear();
    Ok(())
}
