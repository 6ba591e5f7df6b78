//! What clients saw and what is there in the end, judged.

use std::collections::BTreeSet;

use evenkeel_ordered::Consistency;
use proptest::prelude::*;

use super::front::{consistency, shard_of};
use super::world::{KEYS, List, World};

/// A write of a client.
#[derive(Clone, Debug)]
pub struct Written {
    pub key: u8,
    pub client: usize,
    pub term: u64,
    pub asked: u64,
    /// When it was acknowledged.
    pub reported: Option<u64>,
}

/// A read of a client.
#[derive(Clone, Debug)]
pub struct Read {
    pub key: u8,
    pub client: usize,
    pub term: u64,
    /// Logs lost before it: what nobody had acknowledged may be gone with one.
    pub life: usize,
    pub asked: u64,
    pub answer: Option<(u64, List)>,
}

pub fn nothing_twice(world: &World) -> Result<(), TestCaseError> {
    for server in &world.servers {
        for list in server.holds.values() {
            let once: BTreeSet<_> = list.iter().collect();
            prop_assert_eq!(once.len(), list.len(), "applied twice: {:?}", server);
        }
    }
    Ok(())
}

/// What a key holds in the end, where somebody is there to say it.
fn last_of(world: &World, key: u8) -> Option<List> {
    let owner = world.front.map.partition(shard_of(key));
    let server = world.front.members.live(owner).first()?;
    Some(world.servers[server].holds.get(&key).cloned().unwrap_or_default())
}

pub fn final_state(world: &World) -> Result<(), TestCaseError> {
    for partition in 0..world.opened.len() {
        let live = world.front.members.live(partition);
        let Some(first) = live.first() else { continue }; // all burnt and the log had forgotten
        let configured = world.front.members.configured(partition);
        prop_assert_eq!(live, configured, "everybody of partition {} comes back", partition);
        for server in live.iter() {
            let (one, other) = (&world.servers[first].holds, &world.servers[server].holds);
            prop_assert_eq!(one, other, "duplicates of partition {} differ", partition);
        }
    }
    for key in 0..KEYS {
        let Some(list) = last_of(world, key) else { continue };
        for (index, written) in world.written.iter().enumerate() {
            let write = index as u64 + 1;
            let is_there = list.contains(&write);
            if written.key == key && written.reported.is_some() {
                prop_assert!(is_there, "{} was acknowledged and lost: {:?}", write, written);
            }
            prop_assert!(written.key == key || !is_there, "{} is not of key {}", write, key);
        }
        // In the order in which clients had them: one that was told comes before one asked later.
        for (place, &later) in list.iter().enumerate() {
            let asked = world.written[later as usize - 1].asked;
            for &after in &list[place + 1..] {
                let reported = world.written[after as usize - 1].reported;
                prop_assert!(
                    reported.is_none_or(|reported| reported >= asked),
                    "{} before {}",
                    later,
                    after
                );
            }
        }
    }
    Ok(())
}

pub fn reads(world: &World) -> Result<(), TestCaseError> {
    for key in 0..KEYS {
        let of_key: Vec<&Read> = world.reads.iter().filter(|read| read.key == key).collect();
        for read in &of_key {
            let Some((answered, list)) = &read.answer else { continue };
            let level = consistency(read.client);
            for (index, written) in world.written.iter().enumerate() {
                let is_own = written.client == read.client && written.term == read.term;
                let must = written.key == key
                    && written.reported.is_some_and(|reported| reported < read.asked)
                    && (level == Consistency::Strong || is_own);
                let is_there = list.contains(&(index as u64 + 1));
                prop_assert!(is_there || !must, "{:?} does not see {:?}", read, written);
                prop_assert!(!is_there || written.asked <= *answered, "from the future");
            }
            for later in &of_key {
                let Some((_, after)) = &later.answer else { continue };
                let is_session = later.client == read.client && later.term == read.term;
                let is_strong = level == Consistency::Strong
                    && consistency(later.client) == level
                    && later.life == read.life;
                if later.asked > *answered && (is_session || is_strong) {
                    prop_assert!(after.starts_with(list), "{:?}, then {:?}", read, later);
                }
            }
            let Some(last) = last_of(world, key) else { continue };
            let is_past = read.life < world.logs_lost || last.starts_with(list);
            prop_assert!(is_past, "{:?} is no past of {:?}", read, last);
        }
    }
    Ok(())
}
