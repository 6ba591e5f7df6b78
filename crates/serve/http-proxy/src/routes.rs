//! Which upstream a listener's request goes to, and under which limits.
//!
//! A listener has one [`RouteTable`] for each worker and configuration.

use std::cell::RefCell;
use std::rc::Rc;

use evenkeel_core::turns::Turns;
use evenkeel_http::{Fields, Request};
use http::StatusCode;
use http::header::HOST;
use http::uri::Authority;

use crate::config::{HostMatch, PathMatch, RouteAction, RouteConfig, RouteMatch};
use crate::mirror::Mirror;
use crate::route::{ListenerPolicy, Route};

/// The routes of a listener.
#[derive(Debug)]
pub struct RouteTable {
    routes: Vec<(RouteMatch, Action)>,
    /// For what no route takes.
    rest: Rc<Target>,
}

/// An upstream, and how requests are passed on to it.
#[derive(Debug)]
pub struct Target {
    pub(crate) route: Rc<Route>,
    pub(crate) policy: Rc<ListenerPolicy>,
    pub(crate) mirror: Option<Rc<Mirror>>,
    /// Bytes of a request's body, where less than the listener allows.
    pub(crate) body_bytes_max: Option<u64>,
    pub(crate) hedge: bool,
}

/// What becomes of a request.
pub(crate) enum Choice {
    Forward(Rc<Target>),
    Respond(StatusCode),
}

#[derive(Debug)]
enum Action {
    Forward(Weighted),
    Respond(StatusCode),
}

/// Targets that take turns in proportion to their weights.
#[derive(Debug)]
struct Weighted {
    targets: Vec<Rc<Target>>,
    turns: RefCell<Turns>,
}

impl Target {
    /// What no route says anything of.
    pub fn new(route: Rc<Route>, policy: ListenerPolicy) -> Self {
        let policy = Rc::new(policy);
        Self { route, policy, mirror: None, body_bytes_max: None, hedge: true }
    }

    /// This target as a route of the configuration has it.
    fn of_route(self, config: &RouteConfig, mirror: Option<Rc<Mirror>>) -> Self {
        let Self { route, policy, .. } = self;
        let policy = match config.brownout {
            Some(brownout) => Rc::new(ListenerPolicy { brownout, ..(*policy).clone() }),
            None => policy,
        };
        let route = match (config.attempt, config.total) {
            (None, None) => route,
            (attempt, total) => route.with_timeouts(attempt, total),
        };
        let (body_bytes_max, hedge) = (config.body_bytes_max, config.hedge);
        Self { route, policy, mirror, body_bytes_max, hedge }
    }
}

impl RouteTable {
    /// The routes of a configuration; `target` knows upstreams by their places there.
    pub fn new(
        rest: Target,
        routes: &[RouteConfig],
        target: impl Fn(usize) -> Target,
    ) -> Rc<RouteTable> {
        let routes = routes.iter().map(|config| {
            let mirror =
                config.mirror.map(|it| Rc::new(Mirror::new(target(it.upstream).route, it)));
            let of_route = |upstream| {
                Rc::new(target(upstream).of_route(config, mirror.as_ref().map(Rc::clone)))
            };
            let action = match &config.action {
                RouteAction::Respond(status) => Action::Respond(*status),
                RouteAction::Forward(targets) => {
                    let targets =
                        targets.iter().map(|(upstream, weight)| (of_route(*upstream), *weight));
                    Action::Forward(Weighted::new(targets.collect()))
                }
            };
            (config.matches.clone(), action)
        });
        Rc::new(Self { routes: routes.collect(), rest: Rc::new(rest) })
    }

    /// The first route that the request fits.
    pub(crate) fn choose<B>(&self, request: &Request<B>) -> Choice {
        if self.routes.is_empty() {
            return Choice::Forward(Rc::clone(&self.rest));
        }
        match self.routes.iter().find(|(matches, _)| matches.takes(request)) {
            Some((_, Action::Forward(targets))) => Choice::Forward(targets.next()),
            Some((_, Action::Respond(status))) => Choice::Respond(*status),
            None => Choice::Forward(Rc::clone(&self.rest)),
        }
    }
}

impl Weighted {
    fn new(targets: Vec<(Rc<Target>, u32)>) -> Self {
        let turns = RefCell::new(Turns::new(targets.iter().map(|(_, weight)| *weight)));
        Self { targets: targets.into_iter().map(|(target, _)| target).collect(), turns }
    }

    fn next(&self) -> Rc<Target> {
        let turn = match self.targets.as_slice() {
            [_] => 0,
            _ => self.turns.borrow_mut().turn(),
        };
        Rc::clone(&self.targets[turn])
    }
}

impl RouteMatch {
    fn takes<B>(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        let has = |name, value: &Option<http::HeaderValue>| match value {
            Some(value) => headers.get_all(name).any(|it| it == *value),
            None => headers.contains(name),
        };
        (self.methods.is_empty() || self.methods.contains(request.method()))
            && self.path.as_ref().is_none_or(|path| path.takes(request.uri().path()))
            && self.headers.iter().all(|(name, value)| has(name, value))
            && self.host.as_ref().is_none_or(|host| {
                // As the head goes on: the name of an absolute form counts, else `Host`.
                let authority = request.uri().authority().map(Authority::as_str);
                authority.or_else(|| host_of(headers)).is_some_and(|name| host.takes(name))
            })
    }
}

fn host_of(headers: &Fields) -> Option<&str> {
    headers.get(HOST)?.to_str()
}

impl PathMatch {
    fn takes(&self, path: &str) -> bool {
        match self {
            Self::Exact(known) => known == path,
            Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
        }
    }
}

impl HostMatch {
    fn takes(&self, authority: &str) -> bool {
        let name = authority.rsplit_once('@').map_or(authority, |(_, name)| name);
        let name = match name.rfind(':') {
            Some(at) if !name[at..].contains(']') => &name[..at],
            _ => name,
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        match self {
            Self::Exact(known) => name.eq_ignore_ascii_case(known),
            Self::Below(end) => {
                let at = name.len().saturating_sub(end.len());
                name.len() > end.len()
                    && name.get(at..).is_some_and(|last| last.eq_ignore_ascii_case(end))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, Method};

    use super::*;

    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into()
    }

    #[test]
    fn a_host_is_a_name_whatever_its_case_and_port() {
        let exact = HostMatch::Exact("shop.example".to_owned());
        for name in ["shop.example", "SHOP.example:8080", "shop.example.", "u@shop.example:1"] {
            assert!(exact.takes(name), "{name}");
        }
        for name in ["shop.example.org", "a.shop.example", "", "shop", ":80"] {
            assert!(!exact.takes(name), "{name}");
        }
        let below = HostMatch::Below(".example".to_owned());
        for name in ["shop.example", "a.b.EXAMPLE:1"] {
            assert!(below.takes(name), "{name}");
        }
        for name in ["example", ".example", "shop.example2", "éxample"] {
            assert!(!below.takes(name), "{name}");
        }
        assert!(HostMatch::Exact("[::1]".to_owned()).takes("[::1]:80"));
    }

    #[test]
    fn a_route_takes_what_fits_in_everything_it_names() {
        let matches = RouteMatch {
            host: Some(HostMatch::Exact("shop.example".to_owned())),
            path: Some(PathMatch::Prefix("/cart/".to_owned())),
            headers: vec![
                (HeaderName::from_static("x-canary"), Some(HeaderValue::from_static("yes"))),
                (HeaderName::from_static("cookie"), None),
            ],
            methods: vec![Method::GET, Method::PUT],
        };
        let all = [("host", "shop.example"), ("x-canary", "yes"), ("cookie", "a=b")];
        assert!(matches.takes(&request("GET", "/cart/1?x=/y", &all)));
        assert!(matches.takes(&request("PUT", "http://shop.example/cart/", &all[1..])));
        assert!(!matches.takes(&request("GET", "http://other.example/cart/", &all)), "absolute");
        assert!(!matches.takes(&request("POST", "/cart/1", &all)));
        assert!(!matches.takes(&request("GET", "/cart", &all)));
        assert!(!matches.takes(&request("GET", "/?/cart/", &all)));
        for left_out in 0..all.len() {
            let some: Vec<_> = (0..all.len()).filter(|at| *at != left_out).collect();
            let some: Vec<_> = some.into_iter().map(|at| all[at]).collect();
            assert!(!matches.takes(&request("GET", "/cart/1", &some)), "without {left_out}");
        }
        let other = [("host", "shop.example"), ("x-canary", "no"), ("cookie", "a=b")];
        assert!(!matches.takes(&request("GET", "/cart/1", &other)));
        assert!(RouteMatch::default().takes(&request("GET", "/", &[])));
    }
}
