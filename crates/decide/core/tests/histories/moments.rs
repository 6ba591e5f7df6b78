//! What may befall a fleet.

use evenkeel_core::fleet::Health;
use evenkeel_core::request::{BodyEnd, Failure, Replay, ReplicaSet};
use proptest::prelude::*;

/// A moment in the life of a fleet. Numbers choose among what there is, modulo how many there are.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    Open {
        group: usize,
        fallback: Option<usize>,
        replay: Replay,
        among: Option<ReplicaSet>,
        copies: u8,
    },
    Limit {
        call: usize,
        among: ReplicaSet,
    },
    StepAgain(usize),
    Reply {
        attempt: usize,
        queue: u32,
        service_us: u32,
    },
    /// A replica says that an attempt waits, and may lie.
    Queued {
        attempt: usize,
        queue: u32,
        service_us: u32,
    },
    Fail {
        attempt: usize,
        failure: Failure,
    },
    GiveUp(usize),
    Finish {
        attempt: usize,
        end: BodyEnd,
    },
    Abandon(usize),
    Mirror {
        call: usize,
        slot: usize,
    },
    AnswerProbe {
        probe: usize,
        rif: Option<u32>,
    },
    Pass {
        micros: u64,
    },
    ClockOfAnotherThread {
        micros: u64,
    },
    WakeAtDeadline,
    Join,
    SetHealth {
        slot: usize,
        health: Health,
    },
    Regroup {
        seed: u64,
    },
    StalePlan,
    /// Another policy, or the same with other parameters, other limits, hedged or not.
    Reconfigure {
        policy: usize,
        held_max: usize,
        hedged: bool,
    },
    /// A slot that nobody uses is given to another replica.
    Reassign {
        slot: usize,
    },
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

fn ends() -> impl Strategy<Value = BodyEnd> {
    let broken = prop::sample::select(vec![BodyEnd::UpstreamBroke, BodyEnd::TimedOut]);
    prop_oneof![6 => Just(BodyEnd::Complete), 1 => Just(BodyEnd::ClientGone), 2 => broken]
}

fn replays() -> impl Strategy<Value = Replay> {
    let (often, seldom) = (Just(Replay::Always), Just(Replay::AfterFailure));
    prop_oneof![7 => often, 1 => seldom, 2 => Just(Replay::IfUnsent)]
}

fn sets() -> impl Strategy<Value = ReplicaSet> {
    prop::collection::vec(0..8_usize, 0..6).prop_map(|slots| slots.into_iter().collect())
}

fn copies() -> impl Strategy<Value = u8> {
    prop_oneof![8 => Just(1_u8), 2 => 2..5_u8, 1 => Just(u8::MAX)]
}

pub(crate) fn moments() -> impl Strategy<Value = Moment> {
    let n = 0..64_usize;
    prop_oneof![
        12 => (
            (n.clone(), prop::option::of(n.clone())),
            (replays(), prop::option::weighted(0.3, sets()), copies()),
        )
            .prop_map(|((group, fallback), (replay, among, copies))| {
                Moment::Open { group, fallback, replay, among, copies }
            }),
        1 => (n.clone(), sets()).prop_map(|(call, among)| Moment::Limit { call, among }),
        8 => n.clone().prop_map(Moment::StepAgain),
        8 => (n.clone(), prop_oneof![0..20_u32, Just(u32::MAX)], 0..50_000_u32)
            .prop_map(|(attempt, queue, service_us)| Moment::Reply { attempt, queue, service_us }),
        18 => (n.clone(), prop_oneof![0..2_000_u32, Just(u32::MAX)], 1_000..50_000_u32)
            .prop_map(|(attempt, queue, service_us)| Moment::Queued { attempt, queue, service_us }),
        5 => (n.clone(), failures())
            .prop_map(|(attempt, failure)| Moment::Fail { attempt, failure }),
        1 => n.clone().prop_map(Moment::GiveUp),
        8 => (n.clone(), ends()).prop_map(|(attempt, end)| Moment::Finish { attempt, end }),
        2 => n.clone().prop_map(Moment::Abandon),
        2 => (n.clone(), n.clone()).prop_map(|(call, slot)| Moment::Mirror { call, slot }),
        8 => (n.clone(), prop::option::of(prop_oneof![0..20_u32, Just(u32::MAX)]))
            .prop_map(|(probe, rif)| Moment::AnswerProbe { probe, rif }),
        8 => (0..6_000_u64).prop_map(|micros| Moment::Pass { micros }),
        1 => (0..3_000_000_u64).prop_map(|micros| Moment::Pass { micros }),
        1 => (0..3_000_u64).prop_map(|micros| Moment::ClockOfAnotherThread { micros }),
        4 => Just(Moment::WakeAtDeadline),
        1 => Just(Moment::Join),
        1 => (n.clone(), prop::sample::select(vec![Health::Up, Health::Down, Health::Draining]))
            .prop_map(|(slot, health)| Moment::SetHealth { slot, health }),
        1 => any::<u64>().prop_map(|seed| Moment::Regroup { seed }),
        1 => Just(Moment::StalePlan),
        1 => (n.clone(), 3..7_usize, any::<bool>()).prop_map(|(policy, held_max, hedged)| {
            Moment::Reconfigure { policy, held_max, hedged }
        }),
        1 => n.clone().prop_map(|slot| Moment::Reassign { slot }),
        1 => Just(Moment::TakeWindow),
    ]
}
