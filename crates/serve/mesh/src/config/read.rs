//! `[redirect]`, its `[[redirect.sites]]` and `[[redirect.pairs]]`.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_geo::curve::{LOAD_BIAS, LOAD_BIAS_MAX, OBJECTIVE_MAX};
use evenkeel_geo::epoch::{SITES_MAX, SiteId};
use evenkeel_geo::joint::Prices;
use evenkeel_geo::planner::{Aim, CURVE_VERSIONS_MAX};
use evenkeel_geo::wan::CONNECTIONS_MAX;
use evenkeel_geo::{ALL_PPM, OVERLOAD_PPM_MAX, Overload, PRICE_MAX};
use evenkeel_settings::address::Address;
use evenkeel_settings::common::{HOUR, MS, NAME_BYTES_MAX, at_most, file, tables};
use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Setting, Table};
use rustls_pki_types::ServerName;

use crate::config::PRICE_PERCENT;
use crate::config::{RedirectConfig, RedirectPair, RedirectSite, prices};
use crate::export;

/// What a quantum beyond saturation costs with `overload = "priced"`, unless said otherwise.
const OVERLOAD_PRICE: f64 = 0.01;
const PPM: f64 = 1e6;

/// `[redirect]`, and what is checked against the other tables.
pub struct Redirect<'a> {
    /// What it says, in force once the whole file is sound.
    pub config: RedirectConfig,
    /// Where peers connect, nowhere with `controller`: no other listener may be there.
    pub listen: Address<'a>,
}

impl<'a> Redirect<'a> {
    /// Reads the table. `upstream` is the one it names, and whether some of its requests may be
    /// served by their own site only is the protocol's. `unsaid` are the prices that it leaves out.
    pub fn read(table: &mut Table<'a>, upstream: usize, has_bound: bool, unsaid: Prices) -> Self {
        let through = table.key("controller");
        let through = through.value().is_some().then(|| Address::to_server(through).server);
        let sites = sites(&table.key("sites"), through.is_some());
        let site = site(table.key("site"), &sites);
        let objective = objective(table.key("objective"));
        let listen = listen(table, through.is_some());
        let period = duration(table, "period", 100 * MS..=HOUR, 2_500 * MS);
        let margin = duration(table, "margin", Duration::ZERO..=HOUR, (20 * MS).min(period / 4));
        let offset = (10 * MS).min(period / 16);
        let clock_offset_max = duration(table, "clock_offset_max", Duration::ZERO..=HOUR, offset);
        if table.is_sound() {
            at_most(table, ("margin", margin), ("a quarter of the period", period / 4));
            let most = ("a sixteenth of the period", period / 16);
            at_most(table, ("clock_offset_max", clock_offset_max), most);
        }
        let quantum = table.key("quantum").probability();
        let quantum = quantum.between(1e-6..=1.0).or(0.01);
        let load_bias = table.key("load_bias").number().between(0.1..=LOAD_BIAS_MAX);
        let connections = table.key("connections").integer().between(1..=CONNECTIONS_MAX);
        let aim = aim(table);
        let prices = prices::read(table, aim.is_none(), unsaid);
        prices::check(table, &sites, (prices.is_some(), through.is_some()));
        let aim = aim.unwrap_or(Aim::Violations);
        let writes_stay = table.key("writes_stay").boolean().or(false);
        let why_not = match (through.is_some(), writes_stay, has_bound) {
            (true, ..) => Some(("controller", "it at the controller of this site, which plans")),
            (_, true, _) => Some(("writes_stay", "writes_stay = false: all are divided alike")),
            (.., true) => Some(("a Cassandra upstream", "an HTTP upstream: drivers go by nodes")),
            _ => None,
        };
        let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
        let exports = export::config::read(table, &names, why_not);
        let config = RedirectConfig {
            upstream,
            site,
            pairs: pairs(table.key("pairs"), &sites, aim != Aim::Violations),
            objective,
            listen: listen.address,
            through,
            certificate: file(table.key("certificate")),
            key: file(table.key("key")),
            authority: file(table.key("ca_file")),
            period,
            margin,
            clock_offset_max,
            aim,
            prices,
            relay: table.key("relay").boolean().or(false),
            overload: overload(table),
            quantum_ppm: (quantum * PPM).round() as u32,
            load_bias: load_bias.or(LOAD_BIAS),
            learn: learn(table, &sites, through.is_some()),
            writes_stay,
            has_bound,
            connections: connections.or(3),
            probe_interval: duration(table, "probe_interval", 10 * MS..=500 * MS, 200 * MS),
            exports,
            sites,
        };
        Self { config, listen }
    }
}

/// Where the mesh listens; a follower has none.
fn listen<'a>(table: &mut Table<'a>, is_follower: bool) -> Address<'a> {
    let listen = table.key("listen");
    if !is_follower {
        return Address::to_listen(listen);
    }
    if listen.value().is_some() {
        let expected = "one of them: with controller, another process of the site runs the mesh";
        table.problem("listen", Mismatch::new("listen and controller", expected));
    }
    Address::nowhere(listen)
}

/// Whether curves learn. A site without any is planned with a guess, which must.
fn learn(table: &mut Table<'_>, sites: &[RedirectSite], is_follower: bool) -> bool {
    let learns = table.key("learn").boolean().or(true);
    let guessed = sites.iter().find(|site| site.curves.is_empty()).filter(|_| !is_follower);
    if let (false, Some(site)) = (learns, guessed) {
        let came = format!("false, and {:?} has no curves", site.name);
        let expected = "curves for every site, or learn = true: a guess must be mended";
        table.problem("learn", Mismatch::new(came, expected));
    }
    learns
}

fn objective(setting: Setting<'_>) -> Duration {
    setting.duration().between(MS..=OBJECTIVE_MAX).required()
}

/// `None`: by price.
fn aim(table: &mut Table<'_>) -> Option<Aim> {
    let cost = Aim::Cost { target_ppm: 0 };
    let named =
        [("violations", Some(Aim::Violations)), ("cost", Some(cost.clone())), ("price", None)];
    let aim = table.key("aim").variant(&named).or(Some(Aim::Violations));
    let target = table.key("target").probability().optional();
    if aim.as_ref() != Some(&cost) {
        if target.is_some() {
            let expected = "aim = \"cost\" too: other aims have no target";
            table.problem("target", Mismatch::new("target alone", expected));
        }
        return aim;
    }
    Some(Aim::Cost { target_ppm: (target.unwrap_or(0.05) * PPM).round() as u32 })
}

fn overload(table: &mut Table<'_>) -> Overload {
    let kinds = [
        ("capped", Overload::Capped),
        ("priced", Overload::Priced((OVERLOAD_PRICE * PPM) as u32)),
        ("curve", Overload::Curve),
    ];
    let kind = table.key("overload").variant(&kinds).or(Overload::Capped);
    let most = f64::from(OVERLOAD_PPM_MAX) / PPM;
    let price = table.key("overload_price").probability().between(0.0..=most).optional();
    match (kind, price) {
        (Overload::Priced(_), Some(price)) => Overload::Priced((price * PPM).round() as u32),
        (kind, None) => kind,
        (kind, Some(_)) => {
            let expected = "overload = \"priced\" too: other values have no price";
            table.problem("overload_price", Mismatch::new("overload_price alone", expected));
            kind
        }
    }
}

fn site(setting: Setting<'_>, sites: &[RedirectSite]) -> SiteId {
    let names = sites.iter().map(|site| site.name.as_str());
    let named: Vec<(&str, usize)> = names.zip(0..SITES_MAX).collect();
    if setting.value().is_none() || named.is_empty() {
        setting.clone().text().required();
        return SiteId::new(0);
    }
    SiteId::new(setting.variant(&named).or(0))
}

fn sites(setting: &Setting<'_>, is_follower: bool) -> Vec<RedirectSite> {
    let sites = tables(setting.clone(), "[[redirect.sites]]", |item| {
        let problems_at = item.clone();
        let site = item.table(move |table| RedirectSite::read(table, is_follower));
        (site.required(), problems_at)
    });
    let mut names = BTreeSet::new();
    for (site, at) in &sites {
        if !site.name.is_empty() && !names.insert(site.name.as_str()) {
            at.problem(Mismatch::new(format!("the site {:?} twice", site.name), "each site once"));
        }
    }
    if !(2..=SITES_MAX).contains(&sites.len()) {
        let expected = format!("2 to {SITES_MAX} tables [[redirect.sites]], including this site");
        setting.problem(Mismatch::new(format!("{} sites", sites.len()), expected));
    }
    sites.into_iter().map(|(site, _)| site).take(SITES_MAX).collect()
}

impl RedirectSite {
    /// A follower needs the names only; what else is written is read and left.
    fn read(table: &mut Table<'_>, is_follower: bool) -> Self {
        let (work, hedged_curves) = prices::of_site(table);
        let name = "a name as in a certificate: small letters, digits, hyphens and dots";
        let name = table.key("name").text().check(name, |name| is_name(name));
        let curves = table.key("curves").list(file);
        let number = format!("at most {CURVE_VERSIONS_MAX} files of `evenkeel profile`");
        let curves = curves.check(&number, |all| all.len() <= CURVE_VERSIONS_MAX);
        let peer = table.key("peer");
        let peer = match is_follower && peer.value().is_none() {
            true => Address::nowhere(peer),
            false => Address::to_server(peer),
        };
        let curves = curves.or(Vec::new());
        let datacenter = table.key("datacenter").text();
        let is_short = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
        let datacenter = datacenter.check("a name of 1 to 64 bytes", is_short).optional();
        let (name, peer) = (name.required(), peer.server);
        Self { name, datacenter, peer, curves, hedged_curves, work }
    }
}

/// `[[redirect.pairs]]`. `has_prices` says whether the plan goes by prices.
fn pairs(setting: Setting<'_>, sites: &[RedirectSite], has_prices: bool) -> Vec<RedirectPair> {
    let names = sites.iter().zip(0..SITES_MAX);
    let named: Vec<_> = names.map(|(site, n)| (site.name.as_str(), SiteId::new(n))).collect();
    let mut seen = BTreeSet::new();
    let pairs = tables(setting, "[[redirect.pairs]]", |item| {
        let at = item.clone();
        let pair = item.table(move |table| Pair::read(table, has_prices)).optional()?;
        let Pair { from, to, price_percent, limit_ppm } = pair;
        let (from, to) = (site_named(from, &named), site_named(to, &named));
        let (from, to) = (from?, to?);
        let names = format!("the pair {:?} to {:?}", named[from.index()].0, named[to.index()].0);
        if from == to {
            let expected = "two different sites";
            at.problem(Mismatch::new(names, expected));
        } else if !seen.insert((from, to)) {
            at.problem(Mismatch::new(format!("{names} twice"), "each pair once"));
        }
        Some(RedirectPair { from, to, price_percent, limit_ppm })
    });
    pairs.into_iter().flatten().collect()
}

fn site_named(setting: Setting<'_>, named: &[(&str, SiteId)]) -> Option<SiteId> {
    if setting.value().is_none() || named.is_empty() {
        setting.text().required();
        return None;
    }
    setting.variant(named).optional()
}

/// One of `[[redirect.pairs]]`, whose sites are not looked up yet.
struct Pair<'a> {
    from: Setting<'a>,
    to: Setting<'a>,
    price_percent: u32,
    limit_ppm: u32,
}

impl<'a> Pair<'a> {
    fn read(table: &mut Table<'a>, has_prices: bool) -> Self {
        let most = f64::from(PRICE_MAX) / f64::from(PRICE_PERCENT);
        let price = table.key("price").number().between(0.0..=most).optional();
        let is_priced = table.key("price").value().is_some();
        let limit = table.key("limit").probability().optional();
        if is_priced && !has_prices {
            let expected = "aim = \"cost\" too: the default aim has no target or price";
            table.problem("price", Mismatch::new("price alone", expected));
        } else if !is_priced && table.key("limit").value().is_none() {
            let expected = "a price, a limit, or both";
            table.problem("price", Mismatch::new("neither price nor limit", expected));
        }
        let hundredths = |price: f64| (price * f64::from(PRICE_PERCENT)).round() as u32;
        Self {
            from: table.key("from"),
            to: table.key("to"),
            price_percent: price.map_or(PRICE_PERCENT, hundredths),
            limit_ppm: limit.map_or(ALL_PPM, |limit| (limit * PPM).round() as u32),
        }
    }
}

/// Whether TLS can write it as a DNS name, in one spelling.
fn is_name(name: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && matches!(ServerName::try_from(name), Ok(ServerName::DnsName(_)))
}
