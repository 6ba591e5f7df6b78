//! Kills and pauses, by chance.

use std::time::Duration;

use super::random::Random;
use super::world::World;

/// What was done to them.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    pub(crate) duplicates_killed: usize,
    pub(crate) duplicates_stopped: usize,
    pub(crate) fronts_killed: usize,
    pub(crate) fronts_stopped: usize,
}

impl Troubles {
    /// One more; returns when it is over, which does not mean that all are live again.
    pub(crate) fn make(&mut self, world: &mut World, random: &mut Random) {
        let all = world.redises.len();
        let one = random.below(all);
        let lasts = Duration::from_millis(30 + random.below(500) as u64);
        match random.below(10) {
            0..=2 => {
                self.duplicates_killed += 1;
                world.redises[one].program.kill();
                std::thread::sleep(lasts);
                world.redises[one].start();
            }
            3..=5 => {
                self.duplicates_stopped += 1;
                world.redises[one].program.signal("-STOP");
                std::thread::sleep(lasts);
                world.redises[one].program.signal("-CONT");
            }
            // Of two: too few for a majority.
            6 => {
                self.duplicates_stopped += 1;
                self.duplicates_killed += 1;
                world.redises[one].program.signal("-STOP");
                world.redises[(one + 1) % all].program.kill();
                std::thread::sleep(lasts);
                world.redises[one].program.signal("-CONT");
                world.redises[(one + 1) % all].start();
            }
            7 => {
                self.fronts_stopped += 1;
                world.front.process.signal("-STOP");
                std::thread::sleep(lasts);
                world.front.process.signal("-CONT");
            }
            8 => {
                self.fronts_killed += 1;
                world.front.process.kill();
                world.front.start();
            }
            // All at once.
            _ => {
                self.fronts_killed += 1;
                self.duplicates_killed += 1;
                world.redises[one].program.kill();
                world.front.process.kill();
                world.redises[one].start();
                world.front.start();
            }
        }
        std::thread::sleep(Duration::from_millis(50 + random.below(400) as u64));
    }
}
