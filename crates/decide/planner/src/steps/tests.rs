//! Plans between random layouts, against rules and counts that do not come from the planner.

use proptest::prelude::*;

use super::*;

/// As etcd: no vote is taken without the data, and one learner at a time.
const LIKE_ETCD: Abilities = Abilities { demote: false, learners_max: 1, ..Abilities::ALL };

fn layout(leader: usize, voters: &[usize], replicas: &[usize]) -> Layout {
    Layout::new(leader, voters.to_vec(), replicas.to_vec()).unwrap()
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let role = prop::collection::vec(0..3_u8, 8);
    (role, 0..8_usize).prop_map(|(mut roles, leader)| {
        roles[leader] = 2;
        let with = |least: u8| (0..8).filter(|site| roles[*site] >= least).collect();
        Layout::new(leader, with(2), with(1)).unwrap()
    })
}

/// With at most one learner.
fn any_etcd() -> impl Strategy<Value = Layout> {
    any_layout().prop_map(|layout| {
        let learner = layout.replicas().iter().find(|site| !layout.has_voter(**site));
        let replicas = layout.voters().iter().chain(learner).copied().collect();
        Layout::new(layout.leader(), layout.voters().to_vec(), replicas).unwrap()
    })
}

/// The layouts on the way, the first and the last among them.
fn walk(now: &Layout, steps: &[Step]) -> Vec<Layout> {
    let mut layouts = vec![now.clone()];
    for step in steps {
        layouts.push(step.after(layouts.last().unwrap()).unwrap());
    }
    layouts
}

fn is_safe(now: &Layout, goal: &Layout, able: &Abilities) -> Result<(), TestCaseError> {
    let steps = plan(now, goal, able).unwrap();
    let layouts = walk(now, &steps);
    let learners = |layout: &Layout| layout.replicas().len() - layout.voters().len();
    let least = now.voters().len().min(goal.voters().len());
    for (step, pair) in steps.iter().zip(layouts.windows(2)) {
        let (before, after) = (&pair[0], &pair[1]);
        prop_assert!(after.voters().len() >= least, "{step}: {after:?}");
        prop_assert!(learners(after) <= able.learners_max.max(learners(before)), "{step}");
        let keeps_leader = before.leader() == after.leader();
        prop_assert!(keeps_leader || before.has_voter(after.leader()), "{step}");
        let moved = before.replicas().len().abs_diff(after.replicas().len());
        prop_assert!(moved <= 1, "{step}: one change at a time");
    }
    prop_assert_eq!(layouts.last().unwrap(), goal);
    Ok(())
}

proptest! {
    #[test]
    fn every_layout_on_the_way_is_sound_and_the_goal_is_reached(
        now in any_layout(), goal in any_layout()
    ) {
        is_safe(&now, &goal, &Abilities::ALL)?;
    }

    #[test]
    fn a_system_with_one_learner_and_no_demotion_reaches_its_goal(
        now in any_etcd(), goal in any_etcd()
    ) {
        is_safe(&now, &goal, &LIKE_ETCD)?;
    }

    #[test]
    fn from_everywhere_on_the_way_there_is_a_way_back(now in any_etcd(), goal in any_etcd()) {
        for able in [Abilities::ALL, LIKE_ETCD] {
            for reached in walk(&now, &plan(&now, &goal, &able).unwrap()) {
                is_safe(&reached, &now, &able)?;
            }
        }
    }

    #[test]
    fn no_step_is_wasted(now in any_layout(), goal in any_layout()) {
        let lacking = |of: &[usize], there: &[usize]| {
            of.iter().filter(|site| !there.contains(site)).count()
        };
        let apart = |a: &[usize], b: &[usize]| lacking(a, b) + lacking(b, a);
        let expected = apart(now.replicas(), goal.replicas())
            + apart(now.voters(), goal.voters())
            + usize::from(now.leader() != goal.leader());
        prop_assert_eq!(plan(&now, &goal, &Abilities::ALL).unwrap().len(), expected);
    }

    #[test]
    fn an_even_number_of_voters_is_left_as_soon_as_it_can_be(
        now in any_layout(), goal in any_layout()
    ) {
        let steps = plan(&now, &goal, &Abilities::ALL).unwrap();
        let least = now.voters().len().min(goal.voters().len());
        for (step, layout) in steps.iter().zip(walk(&now, &steps)) {
            let (voters, leader) = (layout.voters(), layout.leader());
            if voters.len() % 2 == 1 || matches!(step, Step::Promote(_) | Step::Demote(_)) {
                continue;
            }
            let is_ready = |site: &usize| layout.has_replica(*site) && !layout.has_voter(*site);
            prop_assert!(!goal.voters().iter().any(is_ready), "{step} {layout:?}");
            let is_old = |site: &usize| *site != leader && !goal.has_voter(*site);
            let can_drop = voters.len() > least && voters.iter().any(is_old);
            prop_assert!(!can_drop, "{step} {layout:?}");
        }
    }
}

#[test]
fn a_replaced_leader_hands_over_before_it_goes() {
    let (now, goal) = (layout(0, &[0, 1, 2], &[0, 1, 2]), layout(3, &[1, 2, 3], &[1, 2, 3]));
    let expected = [
        Step::AddReplica(3),
        Step::Promote(3),
        Step::MoveLeader { from: 0, to: 3 },
        Step::Demote(0),
        Step::RemoveReplica(0),
    ];
    assert_eq!(plan(&now, &goal, &Abilities::ALL).unwrap(), expected);
    let steps = plan(&now, &goal, &LIKE_ETCD).unwrap();
    assert_eq!(steps[..3], expected[..3]);
    assert_eq!(steps[3..], [Step::RemoveVoter(0)]);
}

#[test]
fn where_there_is_nothing_to_do_nothing_needs_to_be_able() {
    let now = layout(0, &[0, 1, 2], &[0, 1, 2, 3, 4]);
    let nothing = Abilities { learners_max: 0, ..Abilities::ALL };
    assert_eq!(plan(&now, &now, &nothing), Ok(Vec::new()));
}

#[test]
fn a_goal_out_of_reach_names_the_ability_and_the_site() {
    let now = layout(0, &[0, 1, 2], &[0, 1, 2]);
    let other_leader = layout(1, &[0, 1, 2], &[0, 1, 2]);
    let more = layout(0, &[0, 1, 2, 3], &[0, 1, 2, 3]);
    let fewer = layout(0, &[0, 1], &[0, 1]);
    let all = Abilities::ALL;
    let cases = [
        (&other_leader, Abilities { move_leader: false, ..all }, Ability::MoveLeader, 1),
        (&more, Abilities { add_replica: false, ..all }, Ability::AddReplica, 3),
        (&more, Abilities { promote: false, ..all }, Ability::Promote, 3),
        (&fewer, Abilities { demote: false, remove_voter: false, ..all }, Ability::Demote, 2),
        (
            &fewer,
            Abilities { remove_replica: false, remove_voter: false, ..all },
            Ability::RemoveReplica,
            2,
        ),
    ];
    for (goal, able, ability, site) in cases {
        assert_eq!(plan(&now, goal, &able), Err(OutOfReach::Lacks { ability, site }));
    }
    let error = plan(&now, &other_leader, &cases[0].1).unwrap_err().to_string();
    assert_eq!(error, "the goal needs to move the leader (site 1), which this system cannot do");
}

#[test]
fn too_many_learners_are_refused_before_anything_is_done() {
    let now = layout(0, &[0, 1, 2], &[0, 1, 2]);
    let goal = layout(0, &[0, 1, 2], &[0, 1, 2, 3, 4]);
    let error = plan(&now, &goal, &LIKE_ETCD).unwrap_err();
    assert_eq!(error, OutOfReach::Learners { came: 2, most: 1 });
    let none = Abilities { learners_max: 0, ..Abilities::ALL };
    let voter = layout(0, &[0, 1, 2, 3], &[0, 1, 2, 3]);
    assert_eq!(plan(&now, &voter, &none), Err(OutOfReach::Learners { came: 1, most: 0 }));
}

#[test]
fn a_step_that_does_not_fit_is_refused() {
    let now = layout(0, &[0, 1, 2], &[0, 1, 2, 3]);
    for step in [
        Step::AddReplica(3),
        Step::Promote(1),
        Step::Promote(4),
        Step::MoveLeader { from: 0, to: 3 },
        Step::MoveLeader { from: 1, to: 2 },
        Step::Demote(0),
        Step::Demote(3),
        Step::RemoveReplica(1),
        Step::RemoveVoter(0),
    ] {
        assert_eq!(step.after(&now), Err(Misfit { step }));
    }
}
