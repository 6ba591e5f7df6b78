//! `[agent.dimmer]`: what a scenario's dimmer has in common with it, and what only an agent has.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_core::dimmer::{Law, PARTS_MAX, wire};
use evenkeel_settings::{Mismatch, Setting, Table, format_duration, shared};
use http::HeaderName;

use crate::config::{DimmerConfig, Inbound, Session, Switch};

const INBOUNDS: [(&str, Inbound); 2] = [("decide", Inbound::Decide), ("obey", Inbound::Obey)];
const ROUTES_MAX: usize = 256;
const CORES_MAX: f64 = 1e6;

impl DimmerConfig {
    /// Reads the table of an agent with this `concurrency` and `timeout`. `None` when the law is
    /// `off`.
    pub(super) fn read(
        table: &mut Table<'_>,
        concurrency: Option<u32>,
        timeout: Duration,
    ) -> Option<Self> {
        let brownout = shared::dimmer(table);
        let cores = table.key("cores").number().between(0.01..=CORES_MAX).optional();
        let parts = parts(&table.key("parts"));
        let session = table.key("session").table(session).optional().flatten();
        let inbound = table.key("inbound").variant(&INBOUNDS).or(Inbound::Decide);
        let routes = routes(table.key("routes"));
        let switch = table.key("switch").variant(&Switch::NAMES).or(Switch::Auto);
        let mut brownout = brownout?;
        check_law(table, brownout.law);
        check_setpoint(table, brownout.setpoint, timeout);
        brownout.cores = cores.or(concurrency.map(f64::from));
        brownout.parts = u8::try_from(parts.len().max(1)).unwrap_or(PARTS_MAX);
        Some(Self { brownout, parts, session, inbound, routes, switch })
    }
}

fn check_law(table: &mut Table<'_>, law: Law) {
    if law == Law::PublishedExact {
        let expected = "published, the same law with bounds";
        let wrong = Mismatch::new("published-exact", expected);
        let hint = "it is only for reproductions: two idle hours make it NaN";
        table.problem("law", wrong.with_hint(hint));
    }
}

/// What is answered later than the time limit is not answered.
fn check_setpoint(table: &mut Table<'_>, setpoint: Duration, timeout: Duration) {
    if table.is_sound() && setpoint >= timeout {
        let expected =
            format!("less than the agent's timeout, which is {}", format_duration(timeout));
        table.problem("setpoint", Mismatch::new(format_duration(setpoint), expected));
    }
}

fn parts(setting: &Setting<'_>) -> Vec<String> {
    let name = "a name of small letters, digits, hyphens, _, . or *, a letter or * first";
    let parts = setting.clone().list(|item| {
        let part = item.text().check(name, |part| part.len() <= 60 && wire::is_part(part));
        part.required()
    });
    let number = format!("at most {PARTS_MAX} parts");
    let parts = parts.check(&number, |parts| parts.len() <= usize::from(PARTS_MAX)).or(Vec::new());
    check_repeated(setting, &parts, "each part once");
    parts
}

fn check_repeated(setting: &Setting<'_>, texts: &[String], expected: &str) {
    let mut seen = BTreeSet::new();
    if let Some(twice) = texts.iter().find(|text| !text.is_empty() && !seen.insert(*text)) {
        setting.problem(Mismatch::new(format!("{twice:?} twice"), expected));
    }
}

fn routes(setting: Setting<'_>) -> Vec<String> {
    let path = "how a path begins, such as \"/item\"";
    let routes = setting.list(|item| {
        item.text().check(path, |path| path.starts_with('/') && path.len() <= 1_024).required()
    });
    let number = format!("at most {ROUTES_MAX} beginnings of paths");
    routes.check(&number, |routes| routes.len() <= ROUTES_MAX).or(Vec::new())
}

fn session(table: &mut Table<'_>) -> Option<Session> {
    let cookie = "the name of a cookie such as \"sid\"";
    let cookie = table.key("cookie").text().check(cookie, |name| is_token(name)).optional();
    let header = "the name of a header such as \"X-User\"";
    let header = table.key("header").text().check(header, |name| is_token(name)).optional();
    match (cookie, header) {
        (Some(cookie), None) => Some(Session::Cookie(cookie)),
        (None, Some(header)) => HeaderName::try_from(header).ok().map(Session::Header),
        (came, _) => {
            let came = if came.is_some() { "both cookie and header" } else { "neither of them" };
            if table.is_sound() {
                table.problem("cookie", Mismatch::new(came, "either cookie or header"));
            }
            None
        }
    }
}

fn is_token(name: &str) -> bool {
    (1..=128).contains(&name.len()) && HeaderName::try_from(name).is_ok()
}
