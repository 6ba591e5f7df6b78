//! Parts that take over no change while they run: they refuse it by its key.

use std::sync::Arc;

use evenkeel_settings::Node;

use crate::config::Config;
use evenkeel_runtime::component::{Component, Job, ReloadError, Surface};

/// One table of the configuration as it is written.
#[derive(Clone, Debug)]
pub(super) struct Section {
    name: &'static str,
    /// `None` where the file has no such table, or where there is no file.
    table: Option<Node>,
}

impl Section {
    pub(super) fn of(config: &Config, name: &'static str) -> Arc<Self> {
        let table = config.source.document().and_then(|document| document.entry(name));
        Arc::new(Self { name, table: table.cloned() })
    }

    /// The first key that is written differently.
    fn first_change(&self, next: &Self) -> Option<String> {
        match (&self.table, &next.table) {
            (None, None) => None,
            (Some(before), Some(after)) => {
                let key = before.changes(after).into_iter().next()?;
                Some(if key.is_empty() {
                    self.name.to_owned()
                } else {
                    self.name.to_owned() + "." + &key
                })
            }
            (None, Some(_)) | (Some(_), None) => Some(self.name.to_owned()),
        }
    }
}

/// A part that runs as it was configured at the start.
pub(super) struct Fixed {
    runs_with: Arc<Section>,
    jobs: Vec<Job>,
    surface: Surface,
}

impl Fixed {
    pub(super) const fn new(runs_with: Arc<Section>, jobs: Vec<Job>, surface: Surface) -> Self {
        Self { runs_with, jobs, surface }
    }
}

impl Component for Fixed {
    type Config = Section;
    type Staged = ();

    fn jobs(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    fn surface(&mut self) -> Surface {
        std::mem::take(&mut self.surface)
    }

    fn stage(&mut self, next: Arc<Section>) -> Result<(), ReloadError> {
        self.runs_with
            .first_change(&next)
            .map_or(Ok(()), |key| Err(ReloadError::needs_restart(key)))
    }

    fn apply(&mut self, (): ()) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key that keeps `next` from being taken over after `before`.
    fn refused(name: &'static str, before: &str, next: &str) -> Option<String> {
        let section = |text: &str| {
            let document = Node::parse(text, "test.toml").unwrap();
            Arc::new(Section { name, table: document.entry(name).cloned() })
        };
        match Fixed::new(section(before), Vec::new(), Surface::default()).stage(section(next)) {
            Ok(()) => None,
            Err(ReloadError::NeedsRestart { key }) => Some(key),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_key_that_changed_is_named_and_an_unchanged_part_has_no_objection() {
        let agent = "[[agent]]\nlisten = 'a'\ntimeout = '1s'";
        let same = "# the same\n[[agent]]\ntimeout = '1s'\nlisten = 'a'\n[admin]\naddress = 'b'";
        assert_eq!(refused("agent", agent, same), None);
        let slower = refused("agent", agent, "[[agent]]\nlisten = 'a'\ntimeout = '2s'");
        assert_eq!(slower.as_deref(), Some("agent.0.timeout"));
        assert_eq!(refused("agent", agent, "").as_deref(), Some("agent"));
        let cart = |partitions| format!("[duplicates.cart]\npartitions = {partitions}");
        let key = refused("duplicates", &cart("[['a', 'b']]"), &cart("[['a'], ['b']]"));
        assert_eq!(key.as_deref(), Some("duplicates.cart.partitions"));
    }
}
