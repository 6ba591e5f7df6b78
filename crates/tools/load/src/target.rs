//! What is asked for: one host, one or more paths, and what goes along.

use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Uri};

use evenkeel_core::Rng;
use evenkeel_geo::epoch::StableHash;
use http_body_util::Full;
use rand_distr::{Distribution as _, Zipf};

use super::LoadError;

/// Where requests go and what they say. All of them go to one host.
#[derive(Clone, Debug)]
pub struct Target {
    /// `GET`, …
    pub method: Method,
    /// The keys that `{key}` stands for; drawn from the seed of the load, one per request.
    pub keys: Keys,
    authority: String,
    paths: Vec<Path>,
    headers: HeaderMap,
    body: Option<Template>,
    /// What a share of the requests asks for instead.
    other: Option<(Box<Self>, f64)>,
}

/// The keys that `{key}` stands for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Keys {
    /// Keys are `0..count`; at least 1.
    pub count: u64,
    /// Zipf exponent: 0 draws all keys equally often, 0.99 is YCSB's default skew.
    pub skew: f64,
}

/// What tells one request from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    /// The sequence number, from 0, in the order requests are due.
    pub number: u64,
    /// The key drawn for it.
    pub key: u64,
    /// Its path and query.
    pub path: &'a str,
}

/// Text with `{n}` for the sequence number of a request and `{key}` for its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    Number,
    Key,
}

/// A path: parsed once when all requests share it, rendered for each otherwise.
#[derive(Clone, Debug)]
enum Path {
    Fixed(Uri),
    Rendered(Template),
}

impl Target {
    /// A `GET` of these URLs in turn: request `n` takes the URL with index `n` modulo their number.
    /// Paths may contain `{n}` and `{key}`.
    ///
    /// # Errors
    /// When there is no URL, one cannot be read, is not `http://`, names another host than the
    /// first, or has a placeholder other than `{n}` and `{key}`.
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, LoadError> {
        let mut authority: Option<String> = None;
        let mut paths = Vec::new();
        for url in urls {
            let (host, path) = split_url(url)?;
            let first = authority.get_or_insert_with(|| host.clone());
            if *first != host {
                let expected = format!("the same host as the first URL, {first}");
                return Err(LoadError::setting("url", host, expected));
            }
            paths.push(path);
        }
        let Some(authority) = authority else {
            return Err(LoadError::setting("url", "none", "at least one, http://host:port/path"));
        };
        let mut headers = HeaderMap::new();
        let host = HeaderValue::from_str(&authority);
        headers.insert(HOST, host.map_err(|_| url_error(&authority))?);
        let keys = Keys { count: 1, skew: 0.0 };
        Ok(Self { method: Method::GET, keys, authority, paths, headers, body: None, other: None })
    }

    /// Adds a header, `Name: value`; `Host` replaces the one taken from the URL.
    ///
    /// # Errors
    /// When the line has no colon or a character that a header cannot have, or is a header that
    /// frames the message (`Content-Length`, `Transfer-Encoding`, `Connection`).
    pub fn header(&mut self, line: &str) -> Result<(), LoadError> {
        let expected = "a header such as `Accept: text/html`";
        let problem = || LoadError::setting("header", format!("`{line}`"), expected);
        let (name, value) = line.split_once(':').ok_or_else(problem)?;
        let name = name.trim().parse::<HeaderName>().map_err(|_| problem())?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| problem())?;
        if ["content-length", "transfer-encoding", "connection"].contains(&name.as_str()) {
            let expected = "a header that does not frame the message (those are set here)";
            return Err(LoadError::setting("header", format!("`{line}`"), expected));
        }
        if name == HOST {
            self.headers.insert(name, value);
        } else {
            self.headers.append(name, value);
        }
        Ok(())
    }

    /// Sends this body, `{n}` and `{key}` replaced in it, with every request.
    pub fn body(&mut self, text: &str) {
        self.body = Some(Template::lenient(text));
    }

    /// Asks for `other` in this share (0 to 1) of the requests instead, such as writes among reads.
    /// Which ones depends on their numbers alone; keys are drawn as this target says.
    ///
    /// # Errors
    /// When the share is none, or `other` is on another host.
    pub fn mixed(mut self, other: Self, share: f64) -> Result<Self, LoadError> {
        if !(0.0..=1.0).contains(&share) {
            return Err(LoadError::setting("share", share, "a share from 0 to 1"));
        }
        if self.authority != other.authority {
            let expected = format!("the same host as the other requests, {}", self.authority);
            return Err(LoadError::setting("url", other.authority, expected));
        }
        self.other = Some((Box::new(other), share));
        Ok(self)
    }

    /// `host:port` of the URLs.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The path and query of a request.
    pub fn path(&self, number: u64, key: u64) -> String {
        match self.of(number).path_of(number) {
            Path::Fixed(uri) => uri.to_string(),
            Path::Rendered(template) => template.render(number, key),
        }
    }

    pub(super) fn request(&self, number: u64, key: u64) -> Request<Full<Bytes>> {
        let asked = self.of(number);
        let body = asked
            .body
            .as_ref()
            .map_or_else(Bytes::new, |body| Bytes::from(body.render(number, key)));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = asked.method.clone();
        *request.headers_mut() = asked.headers.clone();
        *request.uri_mut() = match asked.path_of(number) {
            Path::Fixed(uri) => uri.clone(),
            Path::Rendered(template) => Uri::try_from(template.render(number, key))
                .expect("a template is checked when it is made, and digits keep a path valid"),
        };
        request
    }

    /// This target, or the other one that it is mixed with.
    fn of(&self, number: u64) -> &Self {
        let Some((other, share)) = &self.other else { return self };
        let mut hash = StableHash::default();
        hash.number(number);
        let unit = (hash.finish() >> 11) as f64 / (1_u64 << 53) as f64;
        if unit < *share { other } else { self }
    }

    fn path_of(&self, number: u64) -> &Path {
        &self.paths[(number % self.paths.len() as u64) as usize]
    }
}

impl Template {
    /// Text in which every `{…}` is `{n}` or `{key}`.
    ///
    /// # Errors
    /// When another placeholder stands in it; `name` is the setting named by the error.
    pub fn strict(name: &'static str, text: &str) -> Result<Self, LoadError> {
        let template = Self::lenient(text);
        let stray = template.pieces.iter().find_map(|piece| match piece {
            Piece::Text(text) if text.contains(['{', '}']) => Some(text),
            _ => None,
        });
        match stray {
            None => Ok(template),
            Some(stray) => {
                Err(LoadError::setting(name, format!("`{stray}`"), "no braces but {n} and {key}"))
            }
        }
    }

    /// Text in which `{n}` and `{key}` are replaced and other braces stand for themselves.
    pub fn lenient(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        let next_mark = |rest: &str| {
            let marks = [("{n}", Piece::Number), ("{key}", Piece::Key)];
            let found =
                marks.map(|(mark, piece)| rest.find(mark).map(|at| (at, mark.len(), piece)));
            found.into_iter().flatten().min_by_key(|(at, ..)| *at)
        };
        while let Some((at, length, piece)) = next_mark(rest) {
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].into()));
            }
            pieces.push(piece);
            rest = &rest[at + length..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Self { pieces }
    }

    /// The text for one request.
    pub fn render(&self, number: u64, key: u64) -> String {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(64);
        for piece in &self.pieces {
            let written = match piece {
                Piece::Text(piece) => text.write_str(piece),
                Piece::Number => write!(text, "{number}"),
                Piece::Key => write!(text, "{key}"),
            };
            written.expect("writing to a String cannot fail");
        }
        text
    }

    fn is_fixed(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }
}

/// Draws the keys of requests, in the order requests are due.
pub(super) struct KeyDraw {
    count: u64,
    zipf: Option<Zipf<f64>>,
    rng: Rng,
}

impl KeyDraw {
    pub(super) fn new(keys: Keys, seed: u64) -> Result<Self, LoadError> {
        if keys.count == 0 {
            return Err(LoadError::setting("keys", 0, "at least one key"));
        }
        let zipf = if keys.skew == 0.0 {
            None
        } else {
            let expected = "a Zipf exponent of 0 (uniform) or more";
            let problem = |_| LoadError::setting("key skew", keys.skew, expected);
            Some(Zipf::new(keys.count as f64, keys.skew).map_err(problem)?)
        };
        Ok(Self { count: keys.count, zipf, rng: Rng::stream(seed, "keys") })
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        match &self.zipf {
            _ if self.count == 1 => 0,
            None => self.rng.below(self.count as usize) as u64,
            // Zipf draws ranks 1..=count; rank 1, the most frequent, is key 0.
            Some(zipf) => (zipf.sample(&mut Bits(&mut self.rng)) as u64 - 1).min(self.count - 1),
        }
    }
}

/// The seeded generator in the form that `rand_distr` asks for.
pub(super) struct Bits<'a>(pub(super) &'a mut Rng);

impl rand_core::TryRng for Bits<'_> {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok((self.0.bits() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.0.bits())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.bits().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// Host with port, and path, of an `http://` URL.
fn split_url(url: &str) -> Result<(String, Path), LoadError> {
    let rest = match url.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
            let expected = "http:// (TLS is not spoken here: put a TLS proxy in between)";
            return Err(LoadError::setting("url", format!("`{url}`"), expected));
        }
        Some(_) => return Err(url_error(url)),
        None => url,
    };
    let rest = rest.split('#').next().unwrap_or(rest);
    let split = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(split);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let template = Template::strict("url", &path)?;
    let uri = Uri::try_from(template.render(0, 0)).map_err(|_| url_error(url))?;
    let fixed = template.is_fixed();
    Ok((with_port(host, url)?, if fixed { Path::Fixed(uri) } else { Path::Rendered(template) }))
}

fn with_port(host: &str, url: &str) -> Result<String, LoadError> {
    let authority = host.parse::<Authority>().map_err(|_| url_error(url))?;
    if authority.host().is_empty() || host.contains('@') {
        return Err(url_error(url));
    }
    match authority.port_u16() {
        Some(_) => Ok(host.to_owned()),
        // A port was written, but is none: `host:99999`.
        None if authority.as_str().len() > authority.host().len() => Err(url_error(url)),
        None => Ok(format!("{host}:80")),
    }
}

fn url_error(url: &str) -> LoadError {
    LoadError::setting("url", format!("`{url}`"), "a URL such as http://127.0.0.1:8080/path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_become_host_and_path() {
        let path = |url: &str| {
            let target = Target::new([url]).unwrap();
            (target.authority().to_owned(), target.path(7, 3))
        };
        assert_eq!(path("http://a:81/x?y=1#z"), ("a:81".into(), "/x?y=1".into()));
        assert_eq!(path("http://[::1]"), ("[::1]:80".into(), "/".into()));
        assert_eq!(path("a:81?q={key}&n={n}"), ("a:81".into(), "/?q=3&n=7".into()));
    }

    #[test]
    fn urls_that_cannot_be_used_say_why() {
        let error = |urls: &[&str]| Target::new(urls.iter().copied()).unwrap_err().to_string();
        assert!(error(&[]).contains("got none"));
        assert!(error(&["https://a/"]).contains("TLS"));
        assert!(error(&["http://a/{N}"]).contains("no braces but {n} and {key}"));
        assert!(error(&["http://a/", "http://b/"]).contains("got b:80"));
        for url in ["ftp://a", "", "http://", "http://a b/", "http://a:99999/", "http://u@a/"] {
            assert!(error(&[url]).contains("expected a URL such as"), "{url}");
        }
    }

    #[test]
    fn several_urls_take_turns() {
        let target = Target::new(["http://a/x", "http://a/y/{n}"]).unwrap();
        let paths = (0..4).map(|n| target.path(n, 0)).collect::<Vec<_>>();
        assert_eq!(paths, ["/x", "/y/1", "/x", "/y/3"]);
        assert_eq!(target.request(3, 0).uri(), "/y/3");
    }

    #[test]
    fn a_share_of_the_requests_asks_for_something_else() {
        let write = || {
            let mut target = Target::new(["http://a/w"]).unwrap();
            target.method = Method::POST;
            target.body("{n}");
            target
        };
        let read = || Target::new(["http://a/r"]).unwrap();
        let writes = |share| {
            let target = read().mixed(write(), share).unwrap();
            let is_write = |n: &u64| target.request(*n, 0).method() == Method::POST;
            let both = |n: &u64| is_write(n) == (target.path(*n, 0) == "/w");
            assert!((0..100).all(|n| both(&n)));
            (0..10_000).filter(is_write).count()
        };
        assert_eq!((writes(0.0), writes(1.0)), (0, 10_000));
        // Binomial(10000, 0.3): standard deviation 45.8; four of them.
        assert!(writes(0.3).abs_diff(3_000) < 184);
        let elsewhere = Target::new(["http://b/"]).unwrap();
        assert!(read().mixed(elsewhere, 0.1).unwrap_err().to_string().contains("got b:80"));
        assert!(read().mixed(write(), 1.1).is_err());
    }

    #[test]
    fn headers_are_checked() {
        let mut target = Target::new(["http://a/"]).unwrap();
        target.header("X-One: 1").unwrap();
        target.header("host: b").unwrap();
        let request = target.request(0, 0);
        assert_eq!(request.headers()["x-one"], "1");
        assert_eq!(request.headers().get_all(HOST).iter().count(), 1);
        for line in ["no colon", "a b: c", "x: \u{1}", "Content-Length: 5"] {
            assert!(target.header(line).is_err(), "{line}");
        }
    }

    #[test]
    fn braces_of_a_body_stand_for_themselves() {
        let template = Template::lenient(r#"{"n": {n}, "k": "{key}", "o": {}}"#);
        assert_eq!(template.render(4, 9), r#"{"n": 4, "k": "9", "o": {}}"#);
    }

    #[test]
    fn skewed_keys_follow_their_law() {
        let draw = |skew| {
            let mut draw = KeyDraw::new(Keys { count: 100, skew }, 1).unwrap();
            let mut counts = vec![0.0; 100];
            (0..100_000).for_each(|_| counts[draw.next() as usize] += 1.0);
            counts
        };
        let uniform = draw(0.0);
        // Binomial(100000, 1/100): standard deviation 31.5; five of them.
        assert!(uniform.iter().all(|count: &f64| (count - 1_000.0).abs() < 158.0));
        let harmonic = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum::<f64>();
        let zipf = draw(1.0);
        for rank in [1, 2, 10] {
            let expected = 100_000.0 / harmonic / f64::from(rank);
            let count = zipf[rank as usize - 1];
            assert!((count - expected).abs() < 5.0 * expected.sqrt(), "{rank}: {count}");
        }
    }
}
