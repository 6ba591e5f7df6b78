//! Certificates and authorities in use, by the tables of the configuration that name their files.
//!
//! A table that stays as it was keeps what was loaded, and with it the sessions of its clients.

use std::io;
use std::sync::Arc;

use crate::config::{Config, Protocol};
use evenkeel_runtime::tls::{ClientTls, ClientTlsFiles, ServerTls, ServerTlsFiles};

/// What a listener of HTTP speaks, the preferred first.
const HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];

/// What was loaded, for one configuration.
#[derive(Debug, Default)]
pub(crate) struct LoadedTls {
    /// By `[[listen]]`.
    pub(crate) listens: Vec<Option<ServerTls>>,
    /// By upstream of HTTP.
    pub(crate) upstreams: Vec<Option<ClientTls>>,
    /// By `[[agent]]`: towards proxies and towards the application.
    pub(crate) agents: Vec<(Option<ServerTls>, Option<ClientTls>)>,
    config: Option<Arc<Config>>,
}

impl LoadedTls {
    /// Loads what a configuration names and `before` has not loaded.
    ///
    /// # Errors
    /// When a file cannot be used; the error names it and its table.
    pub(crate) fn load(config: &Arc<Config>, before: &Self) -> io::Result<Self> {
        let listens = config.listens.iter().map(|listen| {
            let files = listen.tls.as_ref();
            let alpn = protocol_names(config.protocol_of(listen.upstream));
            let table = || format!("[[listen]] {}", listen.address);
            match before.server(files, alpn) {
                Some(known) => looked_at(known, ServerTls::look, table),
                None => load(files, |files| ServerTls::load(files, alpn), table),
            }
        });
        let upstreams = config.upstreams.iter().map(|upstream| {
            // Nodes of a cluster are spoken to by its own.
            let files = upstream.common.tls.as_ref().filter(|_| upstream.cql.is_none());
            let table = || format!("[upstream.{}]", upstream.common.name);
            let alpn = upstream.common.limits.http2.alpn();
            match before.client(files, alpn) {
                Some(known) => looked_at(known, ClientTls::look, table),
                None => load(files, |files| ClientTls::load(files, alpn), table),
            }
        });
        let agents = config.agents.iter().map(|agent| {
            let alpn = protocol_names(agent.protocol);
            let table = || format!("[[agent]] {}", agent.common.address);
            let (tls, app_tls) = (agent.common.tls.as_ref(), agent.common.app_tls.as_ref());
            let tls = load(tls, |files| ServerTls::load(files, alpn), table)?;
            let alpn = match agent.protocol {
                Protocol::Http => agent.common.upstream_limits.http2.alpn(),
                Protocol::Cql => alpn,
            };
            Ok((tls, load(app_tls, |files| ClientTls::load(files, alpn), table)?))
        });
        Ok(Self {
            listens: listens.collect::<io::Result<_>>()?,
            upstreams: upstreams.collect::<io::Result<_>>()?,
            agents: agents.collect::<io::Result<_>>()?,
            config: Some(Arc::clone(config)),
        })
    }

    /// What is loaded already of these files, as they are now.
    fn server(&self, files: Option<&ServerTlsFiles>, alpn: &[&[u8]]) -> Option<Option<ServerTls>> {
        let config = self.config.as_ref()?;
        let same = config.listens.iter().position(|listen| {
            let protocol = config.protocol_of(listen.upstream);
            listen.tls.as_ref() == files && protocol_names(protocol) == alpn
        });
        self.listens.get(same?).cloned()
    }

    fn client(&self, files: Option<&ClientTlsFiles>, alpn: &[&[u8]]) -> Option<Option<ClientTls>> {
        let mut known = self.config.as_ref()?.upstreams.iter();
        let same = known.position(|upstream| {
            let common = &upstream.common;
            upstream.cql.is_none()
                && common.tls.as_ref() == files
                && common.limits.http2.alpn() == alpn
        });
        self.upstreams.get(same?).cloned()
    }
}

const fn protocol_names(protocol: Protocol) -> &'static [&'static [u8]] {
    match protocol {
        Protocol::Http => HTTP,
        Protocol::Cql => &[],
    }
}

/// What was loaded before, made anew if its files have changed.
fn looked_at<T>(
    known: Option<T>,
    look: impl Fn(&T) -> io::Result<bool>,
    table: impl Fn() -> String,
) -> io::Result<Option<T>> {
    if let Some(known) = &known {
        look(known).map_err(|error| of_table(&error, &table()))?;
    }
    Ok(known)
}

fn load<F, T>(
    files: Option<&F>,
    load: impl Fn(&F) -> io::Result<T>,
    table: impl Fn() -> String,
) -> io::Result<Option<T>> {
    files.map(load).transpose().map_err(|error| of_table(&error, &table()))
}

fn of_table(error: &io::Error, table: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{table}: TLS: {error}"))
}
