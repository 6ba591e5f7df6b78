//! `[[listen]] routes`: which requests go where.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_settings::common::{HOUR, MS};
use evenkeel_settings::{Mismatch, Setting, Table};
use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::Edge;
use super::read::EDGES;

/// More than anybody writes by hand; each is looked at for a request that none before fits.
const ROUTES_MAX: usize = 256;
/// In place of an upstream that there is not, which is reported.
pub const UNKNOWN: usize = usize::MAX;
const WEIGHT_MAX: u32 = 1_000_000;

/// One route. A request takes the first that it fits.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteConfig {
    /// Which requests it takes.
    pub matches: RouteMatch,
    /// Where they go.
    pub action: RouteAction,
    /// A limit in place of that of the upstream; `None` = as there.
    pub attempt: Option<Duration>,
    /// The same, for the whole request.
    pub total: Option<Duration>,
    /// Whether copies are sent in haste, where the upstream hedges; default yes.
    pub hedge: bool,
    /// Bytes of a request's body, where less than the listener allows.
    pub body_bytes_max: Option<u64>,
    /// In place of the listener's.
    pub brownout: Option<Edge>,
    /// Who gets a copy of some of its requests.
    pub mirror: Option<MirrorConfig>,
}

/// What a request must be like. Empty = every request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteMatch {
    /// The name in `Host`, in lower case, without a port.
    pub host: Option<HostMatch>,
    /// The path, as it was sent.
    pub path: Option<PathMatch>,
    /// Headers that must be there, with this value or (`None`) any.
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// One of these methods; empty = any.
    pub methods: Vec<Method>,
}

/// A name, or all names below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostMatch {
    /// This name.
    Exact(String),
    /// What ends so, with its leading dot: `.example.org`.
    Below(String),
}

/// A path, or how it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathMatch {
    /// This path.
    Exact(String),
    /// Every path that begins so.
    Prefix(String),
}

/// What becomes of the requests of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteAction {
    /// They go to upstreams, by places in the configuration, in proportion to weights.
    Forward(Vec<(usize, u32)>),
    /// They are answered here with this status.
    Respond(StatusCode),
}

/// Who gets a copy of requests, whose answers nobody sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MirrorConfig {
    /// The upstream, by its place in the configuration.
    pub upstream: usize,
    /// How many of the requests; default all.
    pub share: f64,
}

impl RouteConfig {
    /// Reads `routes` of a `[[listen]]`. `upstreams` are those of HTTP, with their places; `None`
    /// when it is not known which there are.
    pub fn read_all(setting: Setting<'_>, upstreams: Option<&[(&str, usize)]>) -> Vec<Self> {
        let item = |item: Setting<'_>| item.section(|table| Self::read(table, upstreams));
        let routes = setting.list(item);
        let few = format!("at most {ROUTES_MAX} routes");
        routes.check(&few, |all| all.len() <= ROUTES_MAX).or(Vec::new())
    }

    fn read(table: &mut Table<'_>, upstreams: Option<&[(&str, usize)]>) -> Self {
        let (attempt, total) = table.key("timeouts").section(|table| {
            let mut limit = |key| table.key(key).duration().between(MS..=HOUR).optional();
            let (attempt, total) = (limit("attempt"), limit("total"));
            if let (Some(attempt), Some(total)) = (attempt, total)
                && attempt > total
            {
                let came = format!("an attempt of {attempt:?}");
                table.problem("attempt", Mismatch::new(came, format!("at most {total:?}")));
            }
            (attempt, total)
        });
        Self {
            matches: RouteMatch::read(table),
            action: action(table, upstreams),
            attempt,
            total,
            hedge: table.key("hedge").boolean().or(true),
            body_bytes_max: table.key("body_bytes_max").bytes().between(0..=1 << 50).optional(),
            brownout: table.key("brownout").variant(&EDGES).optional(),
            mirror: table.key("mirror").table(|table| mirror(table, upstreams)).optional(),
        }
    }

    /// The places of upstreams that it names.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        let forward = match &self.action {
            RouteAction::Forward(targets) => targets.as_slice(),
            RouteAction::Respond(_) => &[],
        };
        let mirror = self.mirror.iter().map(|mirror| mirror.upstream);
        forward.iter().map(|(upstream, _)| *upstream).chain(mirror)
    }

    /// Gives the upstreams that it names other places.
    pub fn replace_upstreams(&mut self, place_of: impl Fn(usize) -> usize) {
        if let RouteAction::Forward(targets) = &mut self.action {
            targets.iter_mut().for_each(|(upstream, _)| *upstream = place_of(*upstream));
        }
        self.mirror.iter_mut().for_each(|mirror| mirror.upstream = place_of(mirror.upstream));
    }
}

impl RouteMatch {
    fn read(table: &mut Table<'_>) -> Self {
        let host = table.key("host").parsed("a name", HostMatch::Exact(String::new()), host);
        let path =
            table.key("path").parsed("a path", PathMatch::Exact(String::new()), PathMatch::parse);
        let header = |name: &str, setting: Setting<'_>| {
            let known = HeaderName::try_from(name);
            if known.is_err() {
                setting.problem(Mismatch::new(format!("{name:?}"), "the name of a header"));
            }
            let value = setting.parsed("a value, or \"*\" for any", None, |text| match text {
                "*" => Ok(None),
                text => match HeaderValue::try_from(text) {
                    Ok(value) => Ok(Some(value)),
                    Err(_) => Err(Mismatch::new(format!("{text:?}"), "the value of a header")),
                },
            });
            let value = value.required();
            known.ok().map(|name| (name, value))
        };
        let headers = table.key("header").named(header).or(BTreeMap::new());
        let method = table.key("method");
        let methods = match method.value() {
            Some(evenkeel_settings::Value::List(_)) => {
                let methods = method.list(method_named);
                methods.check("one method or more", |all| !all.is_empty()).or(Vec::new())
            }
            Some(_) => vec![method_named(method)],
            None => Vec::new(),
        };
        Self {
            host: host.optional(),
            path: path.optional(),
            headers: headers.into_values().flatten().collect(),
            methods,
        }
    }
}

impl PathMatch {
    fn parse(text: &str) -> Result<Self, Mismatch> {
        let prefix = text.strip_suffix('*');
        let is_plain = |path: &str| {
            path.starts_with('/') && !path.contains(['*', '?', '#']) && path.is_ascii()
        };
        match prefix {
            Some(prefix) if is_plain(prefix) => Ok(Self::Prefix(prefix.to_owned())),
            None if is_plain(text) => Ok(Self::Exact(text.to_owned())),
            _ => {
                let expected = "a path such as \"/cart\", or how it begins, such as \"/cart/*\"";
                Err(Mismatch::new(format!("{text:?}"), expected))
            }
        }
    }
}

fn host(text: &str) -> Result<HostMatch, Mismatch> {
    let name = text.strip_prefix('*').unwrap_or(text);
    let is_below = name.len() < text.len();
    let is_name = |name: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
        // A port is not looked at, and IPv6 is in brackets as in `Host`.
        let has_port = name.contains(':') && !name.ends_with(']');
        !name.is_empty() && name.bytes().all(plain) && !has_port
    };
    if !is_name(name) || is_below != name.starts_with('.') {
        let expected = "a name without a port, such as \"shop.example\", or \"*.shop.example\"";
        return Err(Mismatch::new(format!("{text:?}"), expected));
    }
    let name = name.to_ascii_lowercase();
    Ok(if is_below { HostMatch::Below(name) } else { HostMatch::Exact(name) })
}

fn method_named(setting: Setting<'_>) -> Method {
    let parse = |text: &str| {
        let method = Method::from_bytes(text.as_bytes()).ok();
        let is_upper = |method: &Method| !method.as_str().contains(|it: char| it.is_lowercase());
        let wrong = || Mismatch::new(format!("{text:?}"), "a method such as \"GET\"");
        method.filter(is_upper).ok_or_else(wrong)
    };
    setting.parsed("a method such as \"GET\"", Method::GET, parse).required()
}

/// `upstream`, `weights` or `respond`.
fn action(table: &mut Table<'_>, upstreams: Option<&[(&str, usize)]>) -> RouteAction {
    let written = |table: &mut Table<'_>, key: &str| table.key(key).value().is_some();
    let keys = ["upstream", "weights", "respond"];
    let count = keys.into_iter().filter(|key| written(table, key)).count();
    if count != 1 {
        let expected = "one of upstream, weights and respond";
        let came = format!("{count} of these keys");
        table.problem("upstream", Mismatch::new(came, expected));
        return RouteAction::Forward(vec![(UNKNOWN, 1)]);
    }
    if written(table, "respond") {
        let status = table.key("respond").integer::<u16>().between(400..=599).required();
        let mirror = table.key("mirror");
        if mirror.value().is_some() {
            let expected = "upstream or weights too: what is answered here is not mirrored";
            mirror.problem(Mismatch::new("mirror with respond", expected));
        }
        return RouteAction::Respond(StatusCode::from_u16(status).unwrap_or_default());
    }
    if written(table, "weights") {
        let weight = |name: &str, setting: Setting<'_>| {
            let place = place_of(name, &setting, upstreams);
            // A wrong one is told where it is, and is nobody's 0.
            (place, setting.integer().between(0..=WEIGHT_MAX).optional())
        };
        let weights = table.key("weights").named(weight);
        let some = "at least one weight above 0";
        let is_some = |weight: &Option<u32>| weight.is_none_or(|weight| weight > 0);
        let weights = weights.check(some, |all| all.values().any(|(_, weight)| is_some(weight)));
        let weights = weights.required().into_values();
        return RouteAction::Forward(weights.map(|(at, it)| (at, it.unwrap_or(0))).collect());
    }
    RouteAction::Forward(vec![(upstream_named(&table.key("upstream"), upstreams), 1)])
}

fn mirror(table: &mut Table<'_>, upstreams: Option<&[(&str, usize)]>) -> MirrorConfig {
    let upstream = table.key("upstream");
    if upstream.value().is_none() {
        upstream.problem(Mismatch::new("nothing", "the name of an [upstream.NAME]"));
    }
    MirrorConfig {
        upstream: upstream_named(&upstream, upstreams),
        share: table.key("share").probability().or(1.0),
    }
}

fn upstream_named(setting: &Setting<'_>, upstreams: Option<&[(&str, usize)]>) -> usize {
    let name = setting.clone().text().optional();
    name.map_or(UNKNOWN, |name| place_of(&name, setting, upstreams))
}

fn place_of(name: &str, setting: &Setting<'_>, upstreams: Option<&[(&str, usize)]>) -> usize {
    let Some(upstreams) = upstreams else { return UNKNOWN };
    let known = upstreams.iter().find(|(known, _)| *known == name);
    if known.is_none() {
        let names: Vec<&str> = upstreams.iter().map(|(name, _)| *name).collect();
        let expected = format!("an upstream of HTTP: {}", names.join(", "));
        setting.problem(Mismatch::new(format!("{name:?}"), expected));
    }
    known.map_or(UNKNOWN, |(_, place)| *place)
}
