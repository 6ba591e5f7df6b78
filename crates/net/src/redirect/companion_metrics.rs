//! Companions, their seat, and how well all processes of a site keep its plan, in `/metrics`.

use super::state::{CompanionState, LaneState, RedirectState, SeatState};
use crate::exposition::{Exposition, Number, counter, gauge};

const OF_COMPANIONS: [Number<CompanionState>; 3] = [
    gauge(
        "evenkeel_redirect_companion_part_share",
        "The companion's part of the caps of its site.",
        |companion| Some(companion.part_share),
    ),
    gauge(
        "evenkeel_redirect_companion_demand_per_second",
        "Requests per second of users that come to the companion.",
        |companion| Some(companion.demand_per_s),
    ),
    gauge("evenkeel_redirect_companion_workers", "Workers of the companion.", |companion| {
        Some(companion.workers as f64)
    }),
];

const OF_LANES: [Number<LaneState>; 6] = [
    gauge(
        "evenkeel_redirect_site_planned_requests",
        "Requests that the plan of the last epoch that is over foresaw for the data centre.",
        |lane| Some(lane.planned_requests),
    ),
    gauge(
        "evenkeel_redirect_site_due_requests",
        "Requests that its share of those that really came is.",
        |lane| Some(lane.due_requests),
    ),
    gauge(
        "evenkeel_redirect_site_sent_requests",
        "Requests that all processes of this site sent there in that epoch.",
        |lane| Some(lane.sent_requests as f64),
    ),
    gauge(
        "evenkeel_redirect_site_error_requests",
        "Sent beyond (negative: short of) what the plan foresaw, over all processes.",
        |lane| Some(lane.error_requests),
    ),
    gauge(
        "evenkeel_redirect_site_divided_requests",
        "Requests that stayed over a worker's part of the cap though the whole of it had room.",
        |lane| Some(lane.divided_requests),
    ),
    gauge(
        "evenkeel_redirect_site_rescued_requests",
        "Requests of that epoch sent there because no replica of this site could serve them.",
        |lane| Some(lane.rescued_requests as f64),
    ),
];

const OF_SEATS: [Number<SeatState>; 5] = [
    gauge("evenkeel_redirect_seat_heard", "Whether the seat of this companion is heard.", |seat| {
        Some(f64::from(u8::from(seat.is_heard)))
    }),
    gauge("evenkeel_redirect_seat_in_force", "Whether its last plan is believed.", |seat| {
        Some(f64::from(u8::from(seat.is_in_force)))
    }),
    gauge("evenkeel_redirect_seat_part_share", "This process's part of the caps.", |seat| {
        seat.part_share
    }),
    counter("evenkeel_redirect_seat_plans_total", "Plans that the seat told.", |seat| {
        Some(seat.plans as f64)
    }),
    counter("evenkeel_redirect_seat_lost_total", "Connections to it that were lost.", |seat| {
        Some(seat.lost as f64)
    }),
];

/// Appends what there is of it.
pub(super) fn write(state: &RedirectState, text: &mut Exposition<'_>) {
    let companions = state.companions.iter();
    let companions: Vec<_> = companions.map(|of| ([("companion", of.name.as_str())], of)).collect();
    text.table(&OF_COMPANIONS, &companions);
    let lanes = state.enforced.iter().flat_map(|enforced| &enforced.to);
    let lanes: Vec<_> = lanes.map(|lane| ([("datacenter", lane.name.as_str())], lane)).collect();
    text.table(&OF_LANES, &lanes);
    let joined = "evenkeel_redirect_companions_joined_total";
    text.family(joined, "counter", "Companions that came.");
    text.sample(joined, &[], state.counts.companions_joined as f64);
    let gone = "evenkeel_redirect_companions_gone_total";
    text.family(gone, "counter", "Companions that are gone.");
    for (reason, count) in &state.counts.companions_gone {
        text.sample(gone, &[("reason", reason)], *count as f64);
    }
    let rejected = "evenkeel_redirect_companions_rejected_total";
    text.family(rejected, "counter", "Messages of companions that were not believed.");
    for (reason, count) in &state.counts.companions_rejected {
        text.sample(rejected, &[("reason", reason)], *count as f64);
    }
    let Some(seat) = &state.seat else { return };
    text.table(&OF_SEATS, &[([], seat)]);
    for (name, help, counts) in [
        ("rejected", "Messages of the seat that were not believed.", &seat.rejected),
        ("unmade", "Connections to the seat that could not be made.", &seat.unmade),
    ] {
        let name = format!("evenkeel_redirect_seat_{name}_total");
        text.family(&name, "counter", help);
        for (reason, count) in counts {
            text.sample(&name, &[("reason", reason)], *count as f64);
        }
    }
}
