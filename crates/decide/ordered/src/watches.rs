//! Whether a key was written since it was watched (`WATCH`).
//!
//! **Signal**: the hash of a key leads to one of 64 Ki places, which has the count of the last
//! write there. Who watches notes the count; who compares does so when it is given its own place
//! among the writes. **Why not the number of the write?** It goes back when the log fails; the
//! count does not. **When it misleads**: two keys of one place, and writes that change nothing,
//! abort in vain, and nothing commits wrongly. **Emptying everything** changes no key that was not
//! there when it was watched, and was not written since. **Expiry** is no write: what has a
//! deadline is taken for changed once that may have passed by any clock ([`CLOCKS_APART_MS`]).
//!
//! While nobody watches, nothing is counted.

const PLACES: usize = 1 << 16;

const fn number_of(hash: u64) -> u16 {
    (hash % PLACES as u64) as u16
}

/// How far the clocks of servers may be apart from ours for a key that expires.
pub const CLOCKS_APART_MS: u64 = 100;

/// When keys were written last.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    count: u64,
    /// The last write of each place; empty until somebody watches.
    places: Vec<u64>,
    /// The last write that may have changed any key.
    of_all: u64,
    /// The last one that removed every key.
    emptied: u64,
    watched: usize,
}

/// What one client watches.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    places: Vec<Place>,
    expires_unix_ms: Option<u64>,
    is_broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    number: u16,
    /// The count when it was watched.
    since: u64,
    /// It is watched for one key.
    is_of_one: bool,
    /// The key was not there.
    is_missing: bool,
}

impl Watched {
    /// A watched key, by its hash, was not there behind all writes until then.
    pub fn is_missing(&mut self, hash: u64) {
        let number = number_of(hash);
        let place = self.places.iter_mut().find(|place| place.number == number);
        place.into_iter().for_each(|place| place.is_missing = true);
    }

    /// How many places are watched.
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nothing is watched.
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A key of these expires then.
    pub fn expires(&mut self, unix_ms: u64) {
        let before = self.expires_unix_ms.unwrap_or(u64::MAX);
        self.expires_unix_ms = Some(before.min(unix_ms));
    }

    /// It is not known what became of a key.
    pub const fn break_it(&mut self) {
        self.is_broken = true;
    }
}

impl Watches {
    /// Whether anybody watches: only then need writes be noted.
    #[inline]
    pub const fn is_watched(&self) -> bool {
        self.watched > 0
    }

    /// Somebody begins to watch.
    pub fn begin(&mut self) -> Watched {
        self.places.resize(PLACES, 0);
        self.watched += 1;
        Watched::default()
    }

    /// One more key, by its hash.
    pub fn watch(&self, watched: &mut Watched, hash: u64) {
        let (number, since) = (number_of(hash), self.count);
        match watched.places.iter_mut().find(|place| place.number == number) {
            Some(place) => place.is_of_one = false, // of the same one, most of the time
            None => {
                let place = Place { number, since, is_of_one: true, is_missing: false };
                watched.places.push(place);
            }
        }
    }

    /// A write gets its place, of these keys or of any.
    pub fn note(&mut self, hashes: Option<&[u64]>) {
        self.count += 1;
        match hashes {
            Some(hashes) => {
                for &hash in hashes {
                    self.places[usize::from(number_of(hash))] = self.count;
                }
            }
            None => self.of_all = self.count,
        }
    }

    /// A write gets its place that removes every key.
    pub const fn note_emptied(&mut self) {
        self.count += 1;
        self.emptied = self.count;
    }

    /// Somebody watches no more; whether something may have changed.
    pub fn end(&mut self, watched: &Watched, now_unix_ms: u64) -> bool {
        self.watched -= 1;
        self.is_broken(watched, now_unix_ms)
    }

    /// Whether something may have changed by now.
    pub fn is_broken(&self, watched: &Watched, now_unix_ms: u64) -> bool {
        let is_written = |place: &Place| {
            let was_there = !(place.is_of_one && place.is_missing);
            self.of_all > place.since
                || self.places[usize::from(place.number)] > place.since
                || was_there && self.emptied > place.since
        };
        watched.is_broken
            || watched.expires_unix_ms.is_some_and(|at| at <= now_unix_ms + CLOCKS_APART_MS)
            || watched.places.iter().any(is_written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_since_is_broken_and_nothing_else() {
        let mut watches = Watches::default();
        let mut watched = watches.begin();
        watches.note(Some(&[1, 2]));
        watches.watch(&mut watched, 1);
        watches.note(Some(&[2]));
        watches.watch(&mut watched, 2);
        assert!(!watches.is_broken(&watched, 0), "each since it is watched");
        watches.watch(&mut watched, 1);
        assert_eq!(watched.len(), 2);
        let before = watches.clone();
        watches.note(Some(&[7, 1]));
        assert!(watches.is_broken(&watched, 0));
        watches = before.clone();
        watches.note(Some(&[65_536 + 2]));
        assert!(watches.is_broken(&watched, 0), "another key of the same place");
        watches = before;
        watches.note(None);
        assert!(watches.end(&watched, 0), "it may be any key");
        assert!(!watches.is_watched());
    }

    #[test]
    fn emptying_everything_breaks_what_was_there_or_may_have_been() {
        let mut watches = Watches::default();
        let watching = |watches: &mut Watches, hashes: &[u64]| {
            let mut watched = watches.begin();
            hashes.iter().for_each(|&hash| watches.watch(&mut watched, hash));
            watched
        };
        let there = watching(&mut watches, &[1]);
        let mut missing = watching(&mut watches, &[2]);
        missing.is_missing(2);
        let mut written = watching(&mut watches, &[3]);
        written.is_missing(3);
        let mut two = watching(&mut watches, &[4, 65_536 + 4]);
        two.is_missing(4);
        watches.note(Some(&[3]));
        watches.note_emptied();
        assert!(watches.is_broken(&there, 0) && !watches.is_broken(&missing, 0));
        assert!(watches.is_broken(&written, 0), "it was there by then");
        assert!(watches.is_broken(&two, 0), "the other key of the place may have been there");
    }

    #[test]
    fn a_deadline_breaks_before_it_may_have_passed_anywhere() {
        let mut watches = Watches::default();
        let mut watched = watches.begin();
        watched.expires(20_000);
        watched.expires(10_000);
        assert!(!watches.is_broken(&watched, 10_000 - CLOCKS_APART_MS - 1));
        assert!(watches.is_broken(&watched, 10_000 - CLOCKS_APART_MS));
    }
}
