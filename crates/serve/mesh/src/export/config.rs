//! `[redirect.istio]`, `[redirect.kubernetes]` and `[redirect.dns]`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_settings::address::{Address, check_host};
use evenkeel_settings::common::{MS, SECOND, file};
use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Setting, Table};

/// Zones that an endpoint may have hints for, by the API of Kubernetes.
pub const ZONES_MAX: usize = 8;
/// What a name of an object or a port is.
const OBJECT: &str = "1 to 63 small letters, digits and hyphens, the last and first no hyphen";
/// What the value of a label is.
const LABEL: &str =
    "1 to 63 letters, digits, hyphens, _ or ., the last and first a letter or digit";
/// A time to live is whole seconds.
const TTL: Duration = Duration::from_secs(5);
const TTL_MAX: Duration = Duration::from_secs(86_400);

/// Who is told the plan beside our own proxies and Envoys; default nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportsConfig {
    /// `[redirect.istio]`.
    pub istio: Option<IstioConfig>,
    /// `[redirect.kubernetes]`.
    pub kubernetes: Option<KubernetesConfig>,
    /// `[redirect.dns]`.
    pub dns: Option<DnsConfig>,
}

/// `[redirect.istio]`: a `DestinationRule` in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IstioConfig {
    /// Where it is written.
    pub file: PathBuf,
    /// The host it is for, as Istio names it.
    pub host: String,
    /// The rule's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// By site, its locality in Istio's words.
    pub localities: Vec<String>,
}

/// `[redirect.kubernetes]`: `EndpointSlice`s in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// Where they are written.
    pub file: PathBuf,
    /// The service whose endpoints these are.
    pub service: String,
    /// Its namespace.
    pub namespace: String,
    /// The name of the service's port; empty where it has none.
    pub port_name: String,
    /// By site, the zone in its nodes' `topology.kubernetes.io/zone`.
    pub zones: Vec<String>,
}

/// `[redirect.dns]`: SRV records at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsConfig {
    /// The primary server of the zone.
    pub server: SocketAddr,
    /// The zone.
    pub zone: String,
    /// The name whose records these are.
    pub name: String,
    /// How long others may remember them; default 5 s.
    pub ttl: Duration,
    /// How long an answer is waited for; default 2 s.
    pub timeout: Duration,
    /// The name of a key of HMAC-SHA-256, and the file with its secret in base64.
    pub key: Option<(String, PathBuf)>,
    /// By site, the host and port that its users are sent to.
    pub targets: Vec<(String, u16)>,
}

/// Whether Kubernetes takes an address for an endpoint: one that other machines could reach.
pub fn is_endpoint(address: IpAddr) -> bool {
    let is_special = match address.to_canonical() {
        IpAddr::V4(it) => it.is_link_local() || it.octets()[..3] == [224, 0, 0],
        // Of multicast those of a link.
        IpAddr::V6(it) => it.is_unicast_link_local() || it.segments()[0] & 0xff0f == 0xff02,
    };
    let address = address.to_canonical();
    !(is_special || address.is_loopback() || address.is_unspecified())
}

impl ExportsConfig {
    /// Whether anybody is told.
    pub const fn is_empty(&self) -> bool {
        self.istio.is_none() && self.kubernetes.is_none() && self.dns.is_none()
    }
}

/// Reads the three tables. `why_not` says why nobody can be told, if so.
pub(crate) fn read<'a>(
    table: &mut Table<'a>,
    names: &[&str],
    why_not: Option<(&str, &str)>,
) -> ExportsConfig {
    for key in ["istio", "kubernetes", "dns"] {
        let Some((came, expected)) = why_not.filter(|_| table.key(key).value().is_some()) else {
            continue;
        };
        let came = format!("[redirect.{key}] with {came}");
        table.problem(key, Mismatch::new(came, expected));
    }
    let owned = || names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (for_istio, for_kubernetes, for_dns) = (owned(), owned(), owned());
    let config = ExportsConfig {
        istio: table.key("istio").table(move |it| istio(it, &for_istio)).optional(),
        kubernetes: table.key("kubernetes").table(move |it| slices(it, &for_kubernetes)).optional(),
        dns: table.key("dns").table(move |it| dns(it, &for_dns)).optional(),
    };
    if let ExportsConfig { istio: Some(istio), kubernetes: Some(kubernetes), .. } = &config
        && table.is_sound()
        && istio.file == kubernetes.file
    {
        let came = format!("{} for [redirect.istio] as well", istio.file.display());
        table.problem("kubernetes", Mismatch::new(came, "a file of its own"));
    }
    config
}

fn istio(table: &mut Table<'_>, sites: &[String]) -> IstioConfig {
    let localities = by_site(table.key("localities"), sites, locality);
    let localities = or_names(localities, sites);
    let expected = "localities that are apart";
    apart(table, ("localities", expected), sites, &localities, |one, other| {
        let is_alike = |(one, other)| one == other || one == "*" || other == "*";
        one.split('/').zip(other.split('/')).all(is_alike)
    });
    IstioConfig {
        file: file(table.key("file")),
        host: istio_host(table.key("host")),
        name: object(table.key("name")),
        namespace: namespace(table),
        localities,
    }
}

fn slices(table: &mut Table<'_>, sites: &[String]) -> KubernetesConfig {
    if sites.len() > ZONES_MAX {
        let came = format!("[redirect.kubernetes] with {} sites", sites.len());
        let expected = "at most 8: an endpoint has hints for no more zones";
        table.problem("zones", Mismatch::new(came, expected));
    }
    let zones = or_names(by_site(table.key("zones"), sites, label), sites);
    if let Some(zone) = zones.iter().find(|zone| table.is_sound() && !is_label(zone, true)) {
        let came = format!("the site {zone:?}, which is no name of a zone");
        table.problem("zones", Mismatch::new(came, LABEL));
    }
    let expected = "a zone of its own for each site";
    apart(table, ("zones", expected), sites, &zones, |one, other| one == other);
    let port_name = table.key("port_name").text().check(OBJECT, |name| is_label(name, false));
    KubernetesConfig {
        file: file(table.key("file")),
        service: object(table.key("service")),
        namespace: namespace(table),
        port_name: port_name.or(String::new()),
        zones,
    }
}

fn dns(table: &mut Table<'_>, sites: &[String]) -> DnsConfig {
    let targets = by_site(table.key("targets"), sites, target);
    let missing = sites.iter().zip(&targets).find(|(_, target)| target.is_none());
    if let Some((site, _)) = missing {
        let expected = "a host and port for every site";
        table.problem("targets", Mismatch::new(format!("none for {site:?}"), expected));
    }
    let targets: Vec<(String, u16)> = targets.into_iter().flatten().collect();
    let words: Vec<String> = targets.iter().map(|(host, port)| format!("{host}:{port}")).collect();
    let expected = "a host and port of its own for each site";
    apart(table, ("targets", expected), sites, &words, |one, other| {
        let plain = |it: &str| it.to_ascii_lowercase().replace(".:", ":");
        plain(one) == plain(other)
    });
    let (key_name, secret) = (table.key("key_name"), table.key("key_file"));
    let key = match (key_name.value().is_some(), secret.value().is_some()) {
        (false, false) => None,
        (true, true) => Some((host(key_name), file(secret))),
        (has_name, _) => {
            let came = if has_name { "key_name alone" } else { "key_file alone" };
            let expected = "both: the name is what the server knows the secret by";
            table.problem("key_name", Mismatch::new(came, expected));
            None
        }
    };
    let (zone, name) = (host(table.key("zone")), host(table.key("name")));
    let plain = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
    if !format!(".{}", plain(&name)).ends_with(&format!(".{}", plain(&zone))) {
        table.problem("name", Mismatch::new(format!("{name:?}"), format!("a name in {zone:?}")));
    }
    let ttl = duration(table, "ttl", SECOND..=TTL_MAX, TTL);
    if ttl.subsec_nanos() != 0 {
        table.problem("ttl", Mismatch::new(format!("{ttl:?}"), "whole seconds"));
    }
    DnsConfig {
        server: Address::to_connect(table.key("server")).address,
        zone,
        name,
        ttl,
        timeout: duration(table, "timeout", 100 * MS..=60 * SECOND, 2 * SECOND),
        key,
        targets,
    }
}

/// By site, what is said of it; a name that is none of the sites is told.
fn by_site<'a, T: 'a>(
    setting: Setting<'a>,
    sites: &[String],
    mut read: impl FnMut(Setting<'a>) -> T,
) -> Vec<Option<T>> {
    let one = |name: &'a str, setting: Setting<'a>| {
        if !sites.iter().any(|site| site == name) {
            let expected = "the name of one of [[redirect.sites]]";
            setting.problem(Mismatch::new(format!("the site {name:?}"), expected));
        }
        read(setting)
    };
    let mut said = setting.named(one).optional().unwrap_or_default();
    sites.iter().map(|site| said.remove(site)).collect()
}

/// Reports the first two sites that others could not tell from each other.
fn apart(
    table: &mut Table<'_>,
    (key, expected): (&str, &str),
    sites: &[String],
    said: &[String],
    is_alike: impl Fn(&str, &str) -> bool,
) {
    if !table.is_sound() {
        return;
    }
    let all = || sites.iter().zip(said);
    let before = |(later, (_, one)): &(usize, (&String, &String))| {
        all().take(*later).find(|(_, other)| is_alike(one, other))
    };
    let found = all().enumerate().find_map(|it| before(&it).map(|other| (it.1, other)));
    if let Some(((site, one), (other_site, other))) = found {
        let came = format!("{other:?} for {other_site:?} and {one:?} for {site:?}");
        let hint = "what one of them is sent would go to the other too; a site that is not named \
                    here has its own name";
        table.problem(key, Mismatch::new(came, expected).with_hint(hint));
    }
}

fn or_names(said: Vec<Option<String>>, sites: &[String]) -> Vec<String> {
    said.into_iter().zip(sites).map(|(said, site)| said.unwrap_or_else(|| site.clone())).collect()
}

fn host(setting: Setting<'_>) -> String {
    let text = setting.parsed("a name", String::new(), |text| {
        let wrong = |hint| Mismatch::new(format!("{text:?}"), "a name").with_hint(hint);
        check_host(text).map(|()| text.to_owned()).map_err(wrong)
    });
    text.required()
}

/// A host as Istio takes it: with the letters of a name in DNS alone.
fn istio_host(setting: Setting<'_>) -> String {
    let expected = "a name such as \"shop.default.svc.cluster.local\"";
    let text = setting.parsed(expected, String::new(), |text| {
        let wrong = |hint| Mismatch::new(format!("{text:?}"), expected).with_hint(hint);
        check_host(text).map_err(wrong)?;
        let is_plain = |part: &str| {
            part.is_empty() || (!part.contains('_') && is_label(&part.to_ascii_lowercase(), false))
        };
        if !text.split('.').all(is_plain) {
            return Err(wrong("Istio takes letters, digits and hyphens inside"));
        }
        Ok(text.to_owned())
    });
    text.required()
}

fn target(setting: Setting<'_>) -> (String, u16) {
    let expected = "a host and a port such as \"london.shop.example:443\"";
    let text = setting.parsed(expected, (String::new(), 0), |text| {
        let wrong = || Mismatch::new(format!("{text:?}"), expected);
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        check_host(host).map_err(|hint| wrong().with_hint(hint))?;
        Ok((host.to_owned(), port))
    });
    text.required()
}

/// Region, zone and subzone in Istio's words, such as `eu-west-2/*`.
fn locality(setting: Setting<'_>) -> String {
    let expected = "a locality such as \"eu-west-2\" or \"eu-west-2/zone-a/*\"";
    let is_plain = |text: &String| {
        let wild = text.strip_suffix('*').filter(|rest| rest.is_empty() || rest.ends_with('/'));
        let named = wild.unwrap_or(text);
        let parts = text.split('/');
        parts.clone().count() <= 3
            && parts.clone().all(|part| !part.is_empty())
            && !named.contains('*')
    };
    setting.text().check(expected, is_plain).required()
}

/// A name of an object of Kubernetes: a DNS label.
fn object(setting: Setting<'_>) -> String {
    setting.text().check(OBJECT, |name| is_label(name, false)).required()
}

fn namespace(table: &mut Table<'_>) -> String {
    let name = table.key("namespace").text().check(OBJECT, |name| is_label(name, false));
    name.or("default".to_owned())
}

/// The value of a label, which a zone is.
fn label(setting: Setting<'_>) -> String {
    setting.text().check(LABEL, |name| is_label(name, true)).required()
}

fn is_label(name: &str, is_value: bool) -> bool {
    let is_plain = |byte: u8| match is_value {
        true => byte.is_ascii_alphanumeric() || b"-_.".contains(&byte),
        false => byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-',
    };
    let ends = [name.bytes().next(), name.bytes().last()];
    (1..=63).contains(&name.len())
        && name.bytes().all(is_plain)
        && ends.iter().flatten().all(u8::is_ascii_alphanumeric)
}
