//! A configuration and the one that comes after it: what differs, and in which order upstreams are.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use evenkeel_settings::Node;

use super::{Config, UpstreamEntry};

/// The document that a configuration was read from, and what it no longer names.
#[derive(Clone, Default)]
pub struct Source {
    document: Option<Arc<Node>>,
    /// Places of upstreams that an earlier configuration had and this one has not.
    removed: BTreeSet<usize>,
}

impl Source {
    pub(super) fn of(node: &Node) -> Self {
        Self { document: Some(Arc::new(node.clone())), removed: BTreeSet::new() }
    }

    /// The document; `None` when a program made the configuration.
    pub(crate) fn document(&self) -> Option<&Node> {
        self.document.as_deref()
    }

    /// The paths of the keys that another document writes differently.
    pub(crate) fn changes(&self, next: &Self) -> Vec<String> {
        match (&self.document, &next.document) {
            (Some(before), Some(after)) => before.changes(after),
            (None, _) | (_, None) => Vec::new(),
        }
    }
}

/// Without the document: two configurations that mean the same look the same.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("removed", &self.removed).finish_non_exhaustive()
    }
}

impl Config {
    /// Whether an upstream is there only because an earlier configuration had it: what is in
    /// flight to it ends, and its counts are there when it returns.
    pub(crate) fn is_removed(&self, upstream: usize) -> bool {
        self.source.removed.contains(&upstream)
    }

    /// The upstreams that the file names, with their places.
    pub(crate) fn named_upstreams(&self) -> impl Iterator<Item = (usize, &UpstreamEntry)> {
        let upstreams = self.upstreams.iter().enumerate();
        upstreams.filter(|(place, _)| !self.is_removed(*place))
    }

    /// The same configuration with every upstream in the place that it has in the one before, by
    /// name: places are known to workers and to `UpstreamStates`. New ones follow, and those that
    /// it no longer names keep their places.
    pub(crate) fn placed_like(mut self, before: &Self) -> Self {
        let names: Vec<String> =
            self.upstreams.iter().map(|upstream| upstream.common.name.clone()).collect();
        let mut named: Vec<Option<UpstreamEntry>> =
            std::mem::take(&mut self.upstreams).into_iter().map(Some).collect();
        for (place, earlier) in before.upstreams.iter().enumerate() {
            let same = names.iter().position(|name| *name == earlier.common.name);
            let same = same.and_then(|number| named[number].take());
            if same.is_none() {
                self.source.removed.insert(place);
            }
            self.upstreams.push(same.unwrap_or_else(|| earlier.clone()));
        }
        self.upstreams.extend(named.into_iter().flatten());
        let place_of = |number: usize| {
            let name = names.get(number)?;
            self.upstreams.iter().position(|upstream| upstream.common.name == *name)
        };
        let place_of = |number: usize| place_of(number).expect("every upstream has a place");
        for listen in &mut self.listens {
            listen.upstream = place_of(listen.upstream);
            listen.routes.iter_mut().for_each(|route| route.replace_upstreams(place_of));
        }
        if let Some(redirect) = &mut self.redirect {
            redirect.upstream = place_of(redirect.upstream);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(names: &[&str]) -> Config {
        let mut text = String::new();
        for (port, name) in names.iter().enumerate() {
            text += &format!(
                "[[listen]]\naddress = '127.0.0.1:{}'\nupstream = '{name}'\n\
                 [upstream.{name}]\nreplicas = ['127.0.0.2:80']\n",
                8_000 + port
            );
        }
        Config::read(&Node::parse(&text, "test.toml").unwrap()).unwrap()
    }

    fn placed(config: &Config) -> Vec<(&str, bool)> {
        let places = config.upstreams.iter().enumerate();
        places.map(|(place, one)| (one.common.name.as_str(), config.is_removed(place))).collect()
    }

    #[test]
    fn upstreams_keep_their_places_whoever_comes_and_goes() {
        let first = config(&["shop", "cart"]);
        assert_eq!(placed(&first), [("cart", false), ("shop", false)], "by name");
        let second = config(&["shop", "admin"]).placed_like(&first);
        assert_eq!(placed(&second), [("cart", true), ("shop", false), ("admin", false)]);
        let led: Vec<usize> = second.listens.iter().map(|listen| listen.upstream).collect();
        assert_eq!(led, [1, 2], "listeners lead where they did");
        let named: Vec<usize> = second.named_upstreams().map(|(place, _)| place).collect();
        assert_eq!(named, [1, 2]);
        let third = config(&["cart"]).placed_like(&second);
        assert_eq!(placed(&third), [("cart", false), ("shop", true), ("admin", true)]);
        assert_eq!(third.listens[0].upstream, 0);
    }
}
