//! What may befall a fleet.

use evenkeel_core::fleet::Health;
use evenkeel_core::request::{Failure, Replay};
use proptest::prelude::*;

/// A moment in the life of a fleet. Numbers choose among what there is, modulo how many there are.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    Open { group: usize, replay: Replay },
    StepAgain(usize),
    Reply { attempt: usize, queue: u32, service_us: u32 },
    Fail { attempt: usize, failure: Failure },
    GiveUp(usize),
    Finish(usize),
    Abandon(usize),
    Mirror { call: usize, seat: usize },
    AnswerProbe { probe: usize, rif: Option<u32> },
    Pass { micros: u64 },
    ClockOfAnotherThread { micros: u64 },
    WakeAtDeadline,
    Join,
    SetHealth { seat: usize, health: Health },
    Regroup { seed: u64 },
    StalePlan,
    TakeWindow,
}

fn failures() -> impl Strategy<Value = Failure> {
    prop::sample::select(vec![
        Failure::Unsent,
        Failure::Broken,
        Failure::TimedOut,
        Failure::Unavailable,
        Failure::ErrorReply,
    ])
}

fn replays() -> impl Strategy<Value = Replay> {
    let (often, seldom) = (Just(Replay::Always), Just(Replay::AfterFailure));
    prop_oneof![7 => often, 1 => seldom, 2 => Just(Replay::IfUnsent)]
}

pub(crate) fn moments() -> impl Strategy<Value = Moment> {
    let n = 0..64_usize;
    prop_oneof![
        12 => (n.clone(), replays()).prop_map(|(group, replay)| Moment::Open { group, replay }),
        8 => n.clone().prop_map(Moment::StepAgain),
        8 => (n.clone(), prop_oneof![0..20_u32, Just(u32::MAX)], 0..50_000_u32)
            .prop_map(|(attempt, queue, service_us)| Moment::Reply { attempt, queue, service_us }),
        5 => (n.clone(), failures())
            .prop_map(|(attempt, failure)| Moment::Fail { attempt, failure }),
        1 => n.clone().prop_map(Moment::GiveUp),
        8 => n.clone().prop_map(Moment::Finish),
        2 => n.clone().prop_map(Moment::Abandon),
        2 => (n.clone(), n.clone()).prop_map(|(call, seat)| Moment::Mirror { call, seat }),
        4 => (n.clone(), prop::option::of(prop_oneof![0..20_u32, Just(u32::MAX)]))
            .prop_map(|(probe, rif)| Moment::AnswerProbe { probe, rif }),
        8 => (0..6_000_u64).prop_map(|micros| Moment::Pass { micros }),
        1 => (0..3_000_000_u64).prop_map(|micros| Moment::Pass { micros }),
        1 => (0..3_000_u64).prop_map(|micros| Moment::ClockOfAnotherThread { micros }),
        4 => Just(Moment::WakeAtDeadline),
        1 => Just(Moment::Join),
        1 => (n, prop::sample::select(vec![Health::Up, Health::Down, Health::Draining]))
            .prop_map(|(seat, health)| Moment::SetHealth { seat, health }),
        1 => any::<u64>().prop_map(|seed| Moment::Regroup { seed }),
        1 => Just(Moment::StalePlan),
        1 => Just(Moment::TakeWindow),
    ]
}
