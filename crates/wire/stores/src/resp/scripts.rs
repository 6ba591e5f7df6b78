//! Texts of scripts by their names, of bounded size.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::sha1;

/// Bytes of all texts that are kept; beyond, those that came first are forgotten.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Texts that are kept.
const TEXTS_MAX: usize = 16_384;

type Name = [u8; 40];

/// The texts that are known.
#[derive(Debug, Default)]
pub struct Scripts {
    texts: BTreeMap<Name, Rc<[u8]>>,
    /// As they came.
    order: VecDeque<Name>,
    bytes: usize,
}

impl Scripts {
    /// A script has come.
    pub fn remember(&mut self, text: &[u8]) {
        let name = sha1::name(text);
        if text.len() > TEXT_BYTES_MAX || self.texts.contains_key(&name) {
            return;
        }
        self.bytes += text.len();
        self.texts.insert(name, text.into());
        self.order.push_back(name);
        while self.bytes > TEXT_BYTES_MAX || self.order.len() > TEXTS_MAX {
            let Some(first) = self.order.pop_front() else { return };
            self.bytes -= self.texts.remove(&first).map_or(0, |text| text.len());
        }
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The text of a script, by its name in upper or lower case.
    pub fn find(&self, name: &[u8]) -> Option<Rc<[u8]>> {
        let name: Name = name.to_ascii_lowercase().try_into().ok()?;
        self.texts.get(&name).map(Rc::clone)
    }
}

/// Whether a script says of itself that it writes nothing, which the server then sees to:
/// `#!lua flags=no-writes` in its first line.
pub fn is_read_only(text: &[u8]) -> bool {
    let Some(rest) = text.strip_prefix(b"#!lua") else { return false };
    let first = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let flags = first.split(u8::is_ascii_whitespace).find_map(|it| it.strip_prefix(b"flags="));
    flags.is_some_and(|flags| flags.split(|&byte| byte == b',').any(|it| it == b"no-writes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_says_it_writes_nothing_is_a_read() {
        for text in ["#!lua flags=no-writes\nreturn 1", "#!lua flags=allow-stale,no-writes"] {
            assert!(is_read_only(text.as_bytes()), "{text}");
        }
        for text in ["return 'flags=no-writes'", "#!lua\n-- flags=no-writes", "#!lua flags=none"] {
            assert!(!is_read_only(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn scripts_are_found_by_their_names_and_the_oldest_are_forgotten() {
        let mut scripts = Scripts::default();
        scripts.remember(b"return 1");
        let name = b"E0E1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(scripts.find(name).as_deref(), Some(&b"return 1"[..]));
        assert_eq!(scripts.find(b"e0e1"), None);
        for number in 0..40 {
            scripts.remember(&[vec![b'-'; 1 << 20], vec![number]].concat());
        }
        assert!(scripts.bytes <= TEXT_BYTES_MAX && scripts.texts.len() == 15, "{}", scripts.bytes);
        assert_eq!((scripts.find(name), scripts.order.len()), (None, 15));
        scripts.remember(&vec![b'x'; TEXT_BYTES_MAX + 1]);
        assert_eq!(scripts.order.len(), 15);
    }
}
