//! `[envoy]`.

use std::time::Duration;

use evenkeel_settings::address::Address;
use evenkeel_settings::common::{MS, SECOND, file};
use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Table};

use crate::envoy::config::EnvoyConfig;

/// `[envoy]`, and what is checked against the other tables.
pub struct Envoy<'a> {
    /// What it says, in force once the whole file is sound.
    pub config: EnvoyConfig,
    /// Where Envoy connects for gRPC, if it does: no other listener may be there.
    pub listen: Option<Address<'a>>,
}

impl<'a> Envoy<'a> {
    /// Reads the table; `planned` says whether there is a plan to tell, and if so, whether writes
    /// stay out of it.
    pub fn read(table: &mut Table<'a>, planned: Option<bool>) -> Self {
        let (directory, listen) = (table.key("directory"), table.key("listen"));
        let config = EnvoyConfig {
            directory: directory.value().map(|_| file(directory.clone())),
            listen: None,
            report_interval: report_interval(table),
        };
        if directory.value().is_none() && listen.value().is_none() {
            let expected = "at least one of them: there is no way to Envoy";
            table.problem("directory", Mismatch::new("neither directory nor listen", expected));
        }
        if planned == Some(true) {
            let expected = "writes_stay = false: Envoy divides all requests alike";
            table.problem("directory", Mismatch::new("[envoy] with writes_stay", expected));
        }
        if planned.is_none() {
            let expected = "[redirect] too: there is no plan to tell";
            table.problem("directory", Mismatch::new("[envoy] alone", expected));
        }
        if listen.value().is_none() {
            return Self { config, listen: None };
        }
        let way = Address::to_listen(listen.clone());
        if !way.address.ip().to_canonical().is_loopback() {
            let expected = "a loopback address such as 127.0.0.1:18000";
            let wrong = Mismatch::new(way.address.to_string(), expected);
            let hint = "its clients can read the plan and report false demand: run Evenkeel \
                        next to Envoy, or use a tunnel with mutual TLS";
            listen.problem(wrong.with_hint(hint));
        }
        let config = EnvoyConfig { listen: Some(way.address), ..config };
        Self { config, listen: Some(way) }
    }
}

fn report_interval(table: &mut Table<'_>) -> Duration {
    duration(table, "report_interval", 100 * MS..=60 * SECOND, SECOND)
}
