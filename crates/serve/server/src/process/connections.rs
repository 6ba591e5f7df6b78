//! What connections of HTTP did, with clients and with replicas.

use evenkeel_http::{Counted, HttpCounts, Side, http_counts};
use evenkeel_runtime::component::Surface;
use evenkeel_runtime::metrics::{Metric, Scrape, counter, counter_by};

/// What is shown of them.
pub(super) fn surface() -> Surface {
    Surface::of_metrics(|scrape: &mut Scrape| {
        let (clients, replicas) = (http_counts(Side::Clients), http_counts(Side::Replicas));
        scrape.single(&FLOODS, &clients);
        let rows = [("clients", &clients), ("replicas", &replicas)];
        scrape.table(&BY_SIDE, rows.map(|(side, counts)| (vec![("side", side)], counts)));
    })
}

const FLOODS: [Metric<HttpCounts>; 1] = [counter(
    "evenkeel_http2_floods_total",
    "Connections of HTTP/2 that ended because the client made work without progress (rapid resets, \
     frames that ask nothing).",
    |it| it.of(Counted::Floods).into(),
)];

const BY_SIDE: [Metric<HttpCounts>; 4] = [
    counter_by(
        "evenkeel_http_connections_opened_total",
        "Connections of HTTP that were opened, by their version.",
        "version",
        |it| vec![("1.1", it.of(Counted::Http1).into()), ("2", it.of(Counted::Http2).into())],
    ),
    counter("evenkeel_http2_streams_total", "Requests on connections of HTTP/2.", |it| {
        it.of(Counted::Streams).into()
    }),
    counter_by(
        "evenkeel_http2_resets_total",
        "Streams that were reset before their end, by us (sent) or by the other side (received).",
        "direction",
        |it| {
            vec![
                ("sent", it.of(Counted::ResetsSent).into()),
                ("received", it.of(Counted::ResetsReceived).into()),
            ]
        },
    ),
    counter_by(
        "evenkeel_http2_goaways_total",
        "Connections of HTTP/2 that were told to end, by us (sent) or by the other side \
         (received).",
        "direction",
        |it| {
            vec![
                ("sent", it.of(Counted::GoAwaysSent).into()),
                ("received", it.of(Counted::GoAwaysReceived).into()),
            ]
        },
    ),
];
