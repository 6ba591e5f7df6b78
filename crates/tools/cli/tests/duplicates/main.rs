//! Duplicates whose processes are killed and stopped: the program as it is built, real Redis
//! servers, and checkers of what clients saw.
//!
//! The long run: `cargo test -p evenkeel --test duplicates -- --ignored --nocapture`

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod cluster;
#[path = "../common/mod.rs"]
mod common;
#[cfg(target_os = "linux")]
mod deeds;
mod ended;
mod ensemble;
#[cfg(target_os = "linux")]
mod full;
mod groups;
#[cfg(target_os = "linux")]
mod groups_cost;
mod groups_plain;
mod handover;
mod history;
mod in_memory;
mod leadership;
mod libraries;
mod mixed;
mod moves;
mod outcome;
mod random;
mod secure;
mod sessions;
#[cfg(target_os = "linux")]
mod soak;
mod standby;
mod strong;
mod succession;
mod trouble;
mod world;

use std::time::Duration;

#[test]
fn strong_reads_are_linearizable_while_processes_die_and_stop() {
    strong::under_trouble(Duration::from_secs(6), 1);
}

#[test]
fn a_front_that_wakes_after_another_took_over_breaks_nothing() {
    strong::with_two_fronts(1, false);
}

#[test]
fn a_duplicate_that_lacks_what_a_majority_has_is_no_history() {
    strong::with_two_fronts(2, true);
}

#[test]
fn a_duplicate_that_is_emptied_is_never_nobodys() {
    strong::emptied_duplicates_say_whose_they_are();
}

#[test]
fn another_front_takes_over_by_itself_when_the_one_that_reigns_is_killed() {
    leadership::goes(3, false);
}

#[test]
fn a_front_whose_lease_ended_while_it_was_stopped_tells_nobody_anything() {
    leadership::goes(4, true);
}

#[test]
fn strong_reads_of_one_duplicate_are_linearizable_whoever_leads() {
    leadership::one_copy_under_trouble(5);
}

#[test]
fn nothing_is_acknowledged_when_the_lease_cannot_be_renewed() {
    leadership::without_etcd();
}

#[test]
fn a_front_leads_on_while_members_of_etcd_die_one_at_a_time() {
    ensemble::members_die();
}

#[test]
#[cfg(target_os = "linux")]
fn another_front_takes_over_when_the_disk_of_the_one_that_leads_is_full() {
    full::goes();
}

#[test]
fn a_second_front_that_is_not_to_wait_ends() {
    leadership::nobody_waits();
}

#[test]
fn a_client_of_a_front_that_stands_by_is_served_by_the_one_that_leads() {
    standby::any_front_serves_any_client();
}

#[test]
fn clients_that_keep_what_they_read_are_told_through_any_front_or_let_go() {
    standby::nobody_keeps_what_a_former_leader_answered();
}

#[test]
fn a_client_behind_tls_is_passed_on_to_a_leader_that_is_believed() {
    standby::behind_tls();
}

#[test]
fn clients_that_were_passed_on_are_freed_when_another_one_leads() {
    standby::no_client_stays_with_a_former_leader();
}

#[test]
fn fronts_that_take_each_other_for_the_leader_pass_a_client_on_once() {
    standby::no_client_goes_round_in_circles();
}

#[test]
fn sentinels_clients_are_told_who_leads_and_when_that_changes() {
    standby::sentinel_tells_who_leads();
}

#[test]
fn clients_of_redis_cluster_are_told_who_leads() {
    cluster::doors_tell_who_leads();
}

#[test]
fn a_cluster_client_without_the_password_or_a_valid_lease_gets_nothing() {
    cluster::nobody_is_let_in_or_answered_too_early();
}

#[test]
fn groups_of_a_killed_process_are_led_elsewhere_and_no_other_is_harmed() {
    groups::a_process_is_killed();
}

#[test]
fn processes_that_lead_groups_are_replaced_and_no_command_fails() {
    groups::processes_are_replaced();
}

#[test]
fn plain_clients_of_groups_are_served_at_any_process_as_at_one_redis() {
    groups_plain::any_process_serves_all_keys();
}

#[test]
fn a_killed_process_harms_plain_clients_of_other_groups_in_nothing() {
    groups_plain::a_process_is_killed();
}

#[test]
fn plain_clients_elsewhere_do_not_notice_that_processes_of_groups_are_replaced() {
    groups_plain::processes_are_replaced();
}

#[test]
fn sentinels_clients_of_groups_are_told_of_any_process() {
    groups_plain::sentinel_tells_of_any();
}

#[test]
fn a_process_with_two_hot_groups_hands_one_over() {
    groups::a_hot_process_hands_over();
}

#[test]
fn a_process_that_wakes_has_lost_its_groups_and_goes_on() {
    groups::a_process_wakes();
}

#[test]
fn groups_wait_for_an_etcd_that_refuses_connections_and_go_on() {
    groups::etcd_refuses();
}

#[test]
#[ignore = "needs libraries of several languages: cargo xtask redis-clients"]
fn libraries_of_redis_cluster_go_on_while_groups_move() {
    groups::libraries_go_on();
}

/// With the optimized program: `cargo test --release -p evenkeel --test duplicates cost --
/// --ignored --nocapture`
#[test]
#[ignore = "measures CPU time, which says something of an optimized program only"]
#[cfg(target_os = "linux")]
fn three_fronts_cost_little_more_than_one_for_each_command() {
    groups_cost::three_beside_one();
}

#[test]
#[ignore = "needs libraries of several languages: cargo xtask redis-clients"]
fn libraries_of_redis_cluster_go_on_when_the_leader_goes() {
    cluster::libraries_go_on();
}

#[test]
#[ignore = "needs libraries of several languages: cargo xtask redis-clients"]
fn plain_libraries_go_on_when_the_leader_goes() {
    standby::libraries_go_on(libraries::How::Plain);
}

#[test]
#[ignore = "needs libraries of several languages: cargo xtask redis-clients"]
fn libraries_of_sentinel_go_on_when_the_leader_goes() {
    standby::libraries_go_on(libraries::How::Sentinel);
}

#[test]
fn all_of_it_works_with_an_etcd_that_wants_tls_and_a_user() {
    secure::takes_turns();
}

#[test]
fn who_takes_over_has_the_layout_as_it_was_when_the_other_was_killed() {
    succession::after_moves(11);
}

#[test]
fn who_is_killed_in_the_middle_of_a_move_leaves_each_shard_with_one_owner() {
    succession::in_the_middle(12);
}

#[test]
fn who_wakes_after_another_took_over_hands_nothing_over() {
    succession::wakes_in_the_middle(13);
}

#[test]
fn a_front_without_the_log_has_what_a_majority_acknowledged() {
    strong::without_the_log();
}

#[test]
fn sessions_see_what_they_wrote_and_never_go_back() {
    sessions::under_trouble(Duration::from_secs(4), 3);
}

#[test]
fn no_acknowledged_write_is_lost_at_majority() {
    mixed::under_trouble("majority", 60_000, 10, 4);
}

#[test]
fn no_acknowledged_write_is_lost_at_all() {
    mixed::under_trouble("all", 60_000, 10, 5);
}

#[test]
fn level_one_loses_nothing_while_there_is_the_log() {
    mixed::what_one_loses(false);
    mixed::what_one_loses(true);
}

#[test]
fn a_duplicate_that_dies_before_its_first_watermark_is_no_stranger() {
    mixed::killed_before_the_first_watermark();
}

#[test]
fn shards_move_under_kills_and_pauses_and_nothing_is_lost() {
    moves::under_trouble("majority", 60_000, 7);
}

#[test]
fn shards_move_at_every_other_level_too() {
    moves::under_trouble("all", 25_000, 8);
    moves::under_trouble("one", 25_000, 9);
}

#[test]
fn strong_reads_are_linearizable_while_shards_move() {
    moves::strong(Duration::from_secs(6), 1);
}

#[test]
fn sessions_hold_while_shards_move() {
    moves::sessions(Duration::from_secs(4), 2);
}

#[test]
fn duplicates_and_partitions_come_and_go_under_load() {
    moves::come_and_go();
}

#[test]
fn while_a_shard_is_handed_over_both_partitions_must_have_a_write() {
    handover::both_must_have_a_write();
}

#[test]
fn while_the_map_is_stored_nothing_is_acknowledged_without_the_target() {
    handover::nothing_is_acknowledged_without_the_target();
}

#[test]
fn a_partition_that_was_opened_in_an_earlier_reign_lacks_nothing() {
    moves::opened_in_an_earlier_term();
}

#[test]
fn a_leader_that_is_told_to_end_leaves_nothing_to_copy() {
    ended::told_to_end();
}

#[test]
fn a_leader_that_is_killed_leaves_only_what_is_in_doubt() {
    ended::killed();
}

#[test]
fn a_leader_keeps_its_lease_where_etcd_takes_a_fifth_of_it_to_answer() {
    leadership::slow_etcd();
}

#[test]
fn clients_of_a_new_leader_wait_while_a_majority_is_filled() {
    ended::clients_wait_for_a_majority();
}

#[test]
fn clients_of_a_new_leader_are_refused_after_two_leases() {
    ended::clients_are_refused_after_two_leases();
}

#[test]
fn without_a_disk_nothing_is_lost_or_doubled_when_the_leader_is_killed_under_load() {
    in_memory::leaders_are_killed(31);
}

#[test]
fn without_a_disk_who_lags_gets_what_it_lacks_from_the_backlog_of_another() {
    in_memory::who_lags_is_not_filled();
}

#[test]
fn without_a_disk_who_was_restarted_meanwhile_or_lags_too_far_is_filled() {
    in_memory::who_was_restarted_is_filled();
    in_memory::who_lags_behind_the_backlog_is_filled();
}

#[test]
fn without_a_disk_a_majority_is_waited_for() {
    in_memory::a_majority_is_waited_for();
}

#[test]
fn without_a_disk_settings_that_lose_writes_are_refused() {
    in_memory::settings_are_checked();
}

#[test]
#[ignore = "minutes: many seeds"]
fn shards_move_for_long() {
    for seed in 20..30 {
        moves::under_trouble("majority", 200_000, seed);
        moves::strong(Duration::from_secs(10), seed);
        moves::sessions(Duration::from_secs(6), seed);
    }
}

#[test]
#[ignore = "minutes: a million writes"]
fn a_million_writes_under_kills_and_pauses() {
    mixed::under_trouble("majority", 1_000_000, 50, 6);
}

#[test]
#[ignore = "minutes: many seeds"]
fn strong_reads_are_linearizable_for_long() {
    for seed in 10..20 {
        strong::under_trouble(Duration::from_secs(10), seed);
        strong::with_two_fronts(seed, false);
        strong::with_two_fronts(seed, true);
        sessions::under_trouble(Duration::from_secs(5), seed);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn whatever_fails_no_write_is_lost_and_duplicates_are_equal() {
    let (lasts, in_memory) = (Duration::from_secs(5), false);
    soak::runs(soak::Wanted { lasts, operations: 0, faults: 0, in_memory }, 1);
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "minutes: cargo xtask histories"]
fn whatever_fails_for_long_no_write_is_lost_and_duplicates_are_equal() {
    let number = |name: &str, default: u64| {
        let said = std::env::var(format!("EVENKEEL_HISTORIES_{name}")).ok();
        said.map_or(default, |it| it.parse().expect("a number"))
    };
    let wanted = soak::Wanted {
        lasts: Duration::from_secs(number("SECONDS", 0)),
        operations: number("OPERATIONS", 0),
        faults: usize::try_from(number("FAULTS", 500)).expect("a number"),
        in_memory: number("IN_MEMORY", 0) > 0,
    };
    let first = number("SEED", 2);
    for seed in first..first + number("SEEDS", 1) {
        soak::runs(wanted, seed);
    }
}

#[test]
#[ignore = "measures"]
fn a_duplicate_that_missed_100000_writes_is_soon_back() {
    let Some(lasted) = mixed::rejoin(100_000) else { return };
    assert!(lasted < Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 5 }));
}
