//! Metrics of followers, of their controller, and of how well all processes of a site keep its
//! plan.

use super::state::{ControllerState, DestinationState, FollowerState, RedirectState};
use evenkeel_runtime::metrics::{Metric, Scrape, by_reason, counter, counter_by, gauge};

const OF_FOLLOWERS: [Metric<FollowerState>; 3] = [
    gauge(
        "evenkeel_redirect_follower_part_ratio",
        "The follower's part of the caps of its site.",
        |it| it.part_ratio.into(),
    ),
    gauge(
        "evenkeel_redirect_follower_demand_per_second",
        "Requests per second of the follower's users.",
        |it| it.demand_per_s.into(),
    ),
    gauge("evenkeel_redirect_follower_workers", "Workers of the follower.", |it| it.workers.into()),
];

const OF_DESTINATIONS: [Metric<DestinationState>; 6] = [
    gauge(
        "evenkeel_redirect_site_planned_requests",
        "Requests that the plan of the last complete epoch predicted for the data centre.",
        |it| it.planned_requests.into(),
    ),
    gauge(
        "evenkeel_redirect_site_due_requests",
        "Its share of the requests that really came.",
        |it| it.due_requests.into(),
    ),
    gauge(
        "evenkeel_redirect_site_sent_requests",
        "Requests that all processes of this site sent there in that epoch.",
        |it| it.sent_requests.into(),
    ),
    gauge(
        "evenkeel_redirect_site_error_requests",
        "Requests sent beyond (negative: short of) the plan, over all processes.",
        |it| it.error_requests.into(),
    ),
    gauge(
        "evenkeel_redirect_site_divided_requests",
        "Requests over one worker's part of the cap while the whole had room.",
        |it| it.divided_requests.into(),
    ),
    gauge(
        "evenkeel_redirect_site_failover_requests",
        "Requests of that epoch sent there because no replica of this site could serve them.",
        |it| it.rescued_requests.into(),
    ),
];

const OF_CONTROLLERS: [Metric<ControllerState>; 7] = [
    gauge("evenkeel_redirect_controller_up", "1 while the controller is heard.", |it| {
        it.is_heard.into()
    }),
    gauge("evenkeel_redirect_controller_in_force", "1 while its last plan is valid.", |it| {
        it.is_in_force.into()
    }),
    gauge("evenkeel_redirect_controller_part_ratio", "This process's part of the caps.", |it| {
        it.part_ratio.into()
    }),
    counter("evenkeel_redirect_controller_plans_total", "Plans of the controller.", |it| {
        it.plans.into()
    }),
    counter("evenkeel_redirect_controller_lost_total", "Lost connections to it.", |it| {
        it.lost.into()
    }),
    counter_by(
        "evenkeel_redirect_controller_rejected_total",
        "Messages of the controller that were rejected.",
        "reason",
        |it| by_reason(&it.rejected),
    ),
    counter_by(
        "evenkeel_redirect_controller_connect_failures_total",
        "Failed connections to the controller.",
        "reason",
        |it| by_reason(&it.unmade),
    ),
];

const OF_ALL: [Metric<RedirectState>; 3] = [
    counter("evenkeel_redirect_followers_joined_total", "Followers that joined.", |it| {
        it.counts.followers_joined.into()
    }),
    counter_by("evenkeel_redirect_followers_gone_total", "Followers that left.", "reason", |it| {
        by_reason(&it.counts.followers_gone)
    }),
    counter_by(
        "evenkeel_redirect_followers_rejected_total",
        "Messages of followers that were rejected.",
        "reason",
        |it| by_reason(&it.counts.followers_rejected),
    ),
];

/// Adds what there is of it.
pub(super) fn collect(scrape: &mut Scrape, state: &RedirectState) {
    let followers = state.followers.iter().map(|it| (vec![("follower", &*it.name)], it));
    scrape.table(&OF_FOLLOWERS, followers);
    let destinations = state.enforced.iter().flat_map(|enforced| &enforced.to);
    scrape.table(&OF_DESTINATIONS, destinations.map(|it| (vec![("datacenter", &*it.name)], it)));
    scrape.single(&OF_ALL, state);
    if let Some(controller) = &state.controller {
        scrape.single(&OF_CONTROLLERS, controller);
    }
}
