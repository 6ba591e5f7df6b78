//! Runs of the C3 authors' simulator.

use evenkeel_settings::Problems;

use crate::measure::Measure;
use crate::reference::{Cells, Group, Reference, Rows, Source, Statistic, Theirs};

/// The runs.
pub const SOURCE: Source = Source { file: "c3-absim.csv", read };

/// Strategies of that simulator, and the policies that stand for them here.
const STRATEGIES: [(&str, &str); 8] = [
    ("ORA", "oracle-absim"),
    ("C3", "c3-absim"),
    ("C3norate", "c3-absim:rate_control=off"),
    ("C3norate_w1", "c3-absim:rate_control=off,weight=1"),
    ("LOR", "least-outstanding"),
    ("RR", "c3-absim:ranking=off"),
    ("RAND", "random"),
    ("DS", "dynamic-snitch:badness=0,silence=on"),
];

/// Columns that set a parameter, and the unit they are in.
const COLUMNS: [(&str, &str, &str); 11] = [
    ("servers", "cluster.servers", ""),
    ("server_concurrency", "cluster.concurrency", ""),
    ("mean_service_ms_slow", "cluster.service_mean", "ms"),
    ("rf", "cluster.replication_factor", ""),
    ("nw_one_way_ms", "network.one_way", "ms"),
    ("fluct_interval_T_ms", "fluctuation.interval", "ms"),
    ("range_D", "fluctuation.range", ""),
    ("clients", "workload.clients", ""),
    ("shadow_read_ratio", "workload.read_repair", ""),
    ("utilisation_of_mean_rate", "workload.utilisation", ""),
    ("requests_done", "workload.requests", ""),
];

const OTHER_COLUMNS: [&str; 4] = ["strategy", "arrival_gaps", "mean_ms", "p99_ms"];

/// Reads the file's text; rows that differ in their seed alone are one group.
fn read(file: &str, text: &str) -> Result<Reference, Problems> {
    let columns = COLUMNS.iter().map(|(column, ..)| *column).chain(OTHER_COLUMNS);
    let rows = Rows::read(file, text, columns)?;
    let mut reference = Reference { groups: Vec::new() };
    for cells in rows.iter() {
        add(&mut reference, &cells)?;
    }
    Ok(reference)
}

fn add(reference: &mut Reference, cells: &Cells<'_>) -> Result<(), Problems> {
    let strategy = cells.text("strategy");
    let mut sets = Vec::new();
    for (column, path, unit) in COLUMNS {
        sets.push(format!("{path}={}{unit}", cells.positive(column)?));
    }
    let arrivals = match cells.text("arrival_gaps") {
        "intpoisson" => "ticks",
        "exp" => "poisson",
        _ => return Err(cells.wrong("arrival_gaps", "intpoisson or exp")),
    };
    sets.push(format!("workload.arrivals={arrivals}"));
    let results = [cells.positive("mean_ms")?, cells.positive("p99_ms")?];
    let same = |group: &&mut Group| group.strategy == strategy && group.sets == sets;
    if let Some(group) = reference.groups.iter_mut().find(same) {
        for (statistic, result) in group.statistics.iter_mut().zip(results) {
            let Theirs::Runs(runs) = &mut statistic.theirs else { continue };
            runs.push(result);
        }
        return Ok(());
    }
    let interval = cells.number("fluct_interval_T_ms")?;
    let requests = cells.number("requests_done")? / 1e3;
    let policy = STRATEGIES.iter().find(|(known, _)| *known == strategy);
    let measures = [Measure::of("mean_ms"), Measure::of("p99_ms")].into_iter().zip(results);
    reference.groups.push(Group {
        strategy: strategy.to_owned(),
        name: strategy.to_owned(),
        label: format!("T = {interval} ms, {requests}k, {arrivals}"),
        scenario: "absim",
        sets,
        statistics: measures
            .map(|(measure, result)| Statistic { measure, theirs: Theirs::Runs(vec![result]) })
            .collect(),
        policy: policy.map(|(_, policy)| (*policy).to_owned()),
        jobs: None,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "strategy,servers,server_concurrency,mean_service_ms_slow,rf,\
                          nw_one_way_ms,fluct_interval_T_ms,range_D,clients,shadow_read_ratio,\
                          utilisation_of_mean_rate,requests_done,arrival_gaps,seed,mean_ms,p99_ms";

    fn row(strategy: &str, gaps: &str, seed: u32, p99: &str) -> String {
        format!("\n{strategy},50,4,4.0,3,0.25,100.0,3.0,150,0.1,0.7,60000,{gaps},{seed},9,{p99}")
    }

    #[test]
    fn rows_that_differ_in_their_seed_alone_are_a_group() {
        let text = [
            HEADER.to_owned(),
            row("LOR", "exp", 1, "80"),
            row("LOR", "intpoisson", 1, "90"),
            row("LOR", "exp", 2, "125"),
        ]
        .concat();
        let reference = read("x.csv", &text).unwrap();
        let runs = |group: &Group| match &group.statistics[1].theirs {
            Theirs::Runs(runs) => runs.clone(),
            Theirs::Summary { .. } => vec![],
        };
        let p99s: Vec<_> = reference.groups.iter().map(runs).collect();
        assert_eq!(p99s, [vec![80.0, 125.0], vec![90.0]]);
        let first = &reference.groups[0];
        assert!(first.sets.contains(&"network.one_way=0.25ms".to_owned()), "{:?}", first.sets);
        assert!(first.sets.contains(&"workload.arrivals=poisson".to_owned()));
        assert_eq!(first.label, "T = 100 ms, 60k, poisson");
        assert_eq!(first.policy.as_deref(), Some("least-outstanding"));
    }

    #[test]
    fn a_file_that_is_something_else_is_one_clear_error() {
        let reported = |text: &str| read("x.csv", text).unwrap_err().to_string();
        assert!(reported("").contains("a header and a row for each run"), "{}", reported(""));
        assert!(reported("a,b\n1,2").contains("a column servers; is it another file?"));
        assert!(reported(HEADER).contains("a header alone"), "{}", reported(HEADER));
        let text = format!("{HEADER}\nLOR,50");
        assert!(reported(&text).contains("x.csv:2:1") && reported(&text).contains("2 cells"));
        let text = [HEADER.to_owned(), row("LOR", "exp", 1, "-4")].concat();
        assert!(reported(&text).contains("\"-4\"") && reported(&text).contains("p99_ms"));
        let text = [HEADER.to_owned(), row("LOR", "weekly", 1, "4")].concat();
        assert!(reported(&text).contains("intpoisson or exp"));
    }
}
