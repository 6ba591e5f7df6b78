//! When active checks change their mind: `fall` failures in a row, `rise` successes.

use evenkeel_core::Health;

/// Counts towards the next change of mind.
#[derive(Debug, Default)]
pub struct Verdict {
    is_down: bool,
    against: u32,
}

impl Verdict {
    /// Goes on from the verdict in force.
    pub const fn begin(is_down: bool) -> Self {
        Self { is_down, against: 0 }
    }

    /// Takes a check's result in; says the new health when it changes.
    pub fn after(&mut self, is_healthy: bool, fall: u32, rise: u32) -> Option<Health> {
        if is_healthy != self.is_down {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if self.is_down { rise } else { fall };
        if self.against < needed.max(1) {
            return None;
        }
        self.against = 0;
        self.is_down = !self.is_down;
        Some(if self.is_down { Health::Down } else { Health::Up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_falls_to_go_down_and_rises_to_come_back() {
        let mut verdict = Verdict::default();
        let mut after = |is_healthy| verdict.after(is_healthy, 3, 2);
        assert_eq!([false, false, true, false, false].map(&mut after), [None; 5]);
        assert_eq!(after(false), Some(Health::Down));
        assert_eq!([false, true, false, true].map(&mut after), [None; 4]);
        assert_eq!(after(true), Some(Health::Up));
    }
}
