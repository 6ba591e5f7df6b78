//! `evenkeel plan redirect --price`: redirects, dimmers and hedges in one plan, by price.

use evenkeel_geo::joint::{Hedged, JOINT_PRICE_MAX, Joint, Planned, Prices, Service};
use evenkeel_geo::{ALL_PPM, Problem, ProblemError};
use serde::Serialize;

use crate::flag::FlagError;
use crate::output;
use crate::terminal::Table;

/// What a priced plan needs beside the problem.
#[derive(Debug)]
pub(super) struct Priceable {
    pub(super) problem: Problem,
    pub(super) names: Vec<String>,
    pub(super) services: Vec<Service>,
    pub(super) hedged: Option<Hedged>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    /// Of all requests, in violations.
    cost_per_request: f64,
    objective: u64,
    lower_bound: u64,
    proven: bool,
    status: &'static str,
    rates: &'a [Vec<u32>],
    /// The same as parts of each site's demand.
    shares: Vec<Vec<f64>>,
    loads: &'a [u32],
    redirected: u32,
    dimmer: Vec<f64>,
    hedged: Vec<bool>,
    /// Work after dimming over the capacity; null where the capacity is unknown.
    utilisation: Vec<Option<f64>>,
    /// What one more request of each site costs where that is cheapest, of the sites that may serve
    /// one more, in violations.
    price: Vec<f64>,
    /// What it costs at each site.
    one_more: Vec<Vec<f64>>,
    /// What the last one costs that is sent there; 0 where none is.
    last_sent: Vec<Vec<f64>>,
    violation_fraction: f64,
    lean_fraction: f64,
    prices: PriceList,
    hash: String,
    sentences: Vec<String>,
    cpu_ms: f64,
}

#[derive(Serialize)]
struct PriceList {
    violation: f64,
    optional: f64,
    wan: f64,
    node: f64,
}

/// Reads `optional=0.1,wan=0.015,node=0.35`; what is not named has its default.
pub(super) fn prices(text: &str) -> Result<Prices, FlagError> {
    const NAMES: [&str; 3] = ["optional", "wan", "node"];
    let highest = JOINT_PRICE_MAX / ALL_PPM;
    let expected = || format!("NAME=PRICE, a price from 0 to {highest}");
    if text.is_empty() {
        return Err(FlagError::came("nothing", expected()));
    }
    let mut given = [None; 3];
    for part in text.split(',') {
        let wrong = || FlagError::came(part, expected());
        let (name, price) = part.split_once('=').ok_or_else(wrong)?;
        let price: f64 = price.trim().parse().map_err(|_| wrong())?;
        if !(0.0..=f64::from(highest)).contains(&price) {
            return Err(wrong());
        }
        let name = name.trim();
        let place = NAMES.iter().position(|known| *known == name);
        let expected = || format!("one of {}", NAMES.join(", "));
        let place = place.ok_or_else(|| FlagError::came(name, expected()))?;
        if given[place].replace((price * f64::from(ALL_PPM)).round() as u32).is_some() {
            return Err(FlagError::came(&format!("{name} twice"), "it once"));
        }
    }
    let default = Prices::default();
    Ok(Prices {
        optional: given[0].unwrap_or(default.optional),
        wan: given[1].unwrap_or(default.wan),
        node_second: given[2].unwrap_or(default.node_second),
    })
}

pub(super) fn run(input: &Priceable, prices: &Prices, json: bool) -> anyhow::Result<()> {
    let start = cpu_time::ThreadTime::now();
    let planned = plan(input, prices)?;
    let cpu_ms = 1e3 * start.elapsed().as_secs_f64();
    if json {
        output::json(&document(input, prices, &planned, cpu_ms))?;
        return Ok(());
    }
    output::text!("{}", table(input, &planned))?;
    for sentence in planned.sentences(&input.problem, &input.names) {
        output::line!("{sentence}")?;
    }
    output::line!("\n{} ({cpu_ms:.1} ms of CPU)", summary(input, &planned))?;
    Ok(())
}

fn plan(input: &Priceable, prices: &Prices) -> Result<Planned, ProblemError> {
    let joint = Joint::new(&input.problem, input.hedged.as_ref(), &input.services, prices)?;
    joint.plan(joint.effort())
}

fn violations(ppm: u64) -> f64 {
    ppm as f64 / f64::from(ALL_PPM)
}

/// A sum over quanta as a share of all requests.
fn share(input: &Priceable, sum: f64) -> f64 {
    sum / f64::from(input.problem.demand_total().max(1))
}

fn lean_fraction(input: &Priceable, planned: &Planned) -> f64 {
    let sites = planned.states.iter().zip(&planned.answer.loads);
    let lean = sites.map(|(state, &load)| f64::from(load) * f64::from(100 - state.dimmer) / 100.0);
    share(input, lean.sum())
}

fn document<'a>(
    input: &Priceable,
    prices: &Prices,
    planned: &'a Planned,
    cpu_ms: f64,
) -> Document<'a> {
    let answer = &planned.answer;
    let utilisation = planned.utilisation_ppm.iter().map(|ppm| ppm.map(violations));
    let row = |row: &Vec<u64>| row.iter().copied().map(violations).collect();
    let shares = |(site, row): (usize, &Vec<u32>)| {
        let demand = f64::from(input.problem.demand()[site].max(1));
        row.iter().map(|&quanta| f64::from(quanta) / demand).collect()
    };
    Document {
        cost_per_request: share(input, violations(planned.cost)),
        objective: answer.objective,
        lower_bound: answer.lower_bound,
        proven: answer.proven,
        status: answer.status.name(),
        rates: &answer.rates,
        shares: answer.rates.iter().enumerate().map(shares).collect(),
        loads: &answer.loads,
        redirected: answer.redirected,
        dimmer: planned.states.iter().map(|state| f64::from(state.dimmer) / 100.0).collect(),
        hedged: planned.states.iter().map(|state| state.is_hedged).collect(),
        utilisation: utilisation.collect(),
        price: planned.price.iter().copied().map(violations).collect(),
        one_more: planned.more.iter().map(row).collect(),
        last_sent: planned.last.iter().map(row).collect(),
        violation_fraction: share(input, violations(planned.violations)),
        lean_fraction: lean_fraction(input, planned),
        prices: PriceList {
            violation: 1.0,
            optional: violations(prices.optional.into()),
            wan: violations(prices.wan.into()),
            node: violations(prices.node_second.into()),
        },
        hash: format!("{:016x}", planned.hash),
        sentences: planned.sentences(&input.problem, &input.names),
        cpu_ms,
    }
}

fn table(input: &Priceable, planned: &Planned) -> Table {
    let mut table = Table::of(
        "data centre | demand | load | work | optional content | hedges | one more costs | sends",
    );
    let percent = |ppm: u64| format!("{:.1} %", 100.0 * violations(ppm));
    for (site, name) in input.names.iter().enumerate() {
        let row = planned.answer.rates[site].iter().enumerate();
        let sent = row.filter(|&(to, &quanta)| to != site && quanta > 0);
        let sends: Vec<String> =
            sent.map(|(to, quanta)| format!("{quanta} to {}", input.names[to])).collect();
        table.row([
            name.clone(),
            input.problem.demand()[site].to_string(),
            planned.answer.loads[site].to_string(),
            planned.utilisation_ppm[site].map_or_else(|| "-".to_owned(), percent),
            format!("{} %", planned.states[site].dimmer),
            if planned.states[site].is_hedged { "yes" } else { "no" }.to_owned(),
            format!("{:.3}", violations(planned.price[site])),
            sends.join(", "),
        ]);
    }
    table
}

fn summary(input: &Priceable, planned: &Planned) -> String {
    let answer = &planned.answer;
    let gap =
        100.0 * (answer.objective - answer.lower_bound) as f64 / answer.objective.max(1) as f64;
    format!(
        "cost: {:.2} violations per 1,000 requests; {:.3} % late, {:.1} % of optional content left \
         out, {} of {} quanta redirected; at most {gap:.2} % above the best on priced curves; \
         plan {:016x}",
        1e3 * share(input, violations(planned.cost)),
        100.0 * share(input, violations(planned.violations)),
        100.0 * lean_fraction(input, planned),
        answer.redirected,
        input.problem.demand_total(),
        planned.hash,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_and_what_is_not_named_has_its_default() {
        let all = prices("optional=0.2,wan=0.03,node=0").unwrap();
        assert_eq!(all, Prices { optional: 200_000, wan: 30_000, node_second: 0 });
        assert_eq!(prices("wan=1").unwrap(), Prices { wan: 1_000_000, ..Prices::default() });
        for wrong in ["wan", "wan=x", "wan=-1", "wan=11", "wan=NaN", "violation=1"] {
            assert!(prices(wrong).is_err(), "{wrong}");
        }
    }

    /// Paris has work for 1.3 of its capacity and London for half.
    #[test]
    fn a_plan_says_what_one_more_request_costs_here_and_there() {
        let curve = |more: f64| -> Vec<u32> {
            let late = |load: u32| 1e6 * (f64::from(load) / 100.0).powi(12);
            (0..400).map(|load| (late(load) + more).min(1e6) as u32).collect()
        };
        let curves = vec![vec![curve(0.0), curve(9_000.0)], vec![curve(9_000.0), curve(0.0)]];
        let problem = Problem::new(vec![130, 50], curves).unwrap();
        let input = Priceable {
            problem: problem.with_saturation(vec![100, 100]).unwrap(),
            names: ["Paris", "London"].map(str::to_owned).to_vec(),
            services: vec![Service { full_us: 10_000, lean_us: 1_000 }; 2],
            hedged: None,
        };
        let planned = plan(&input, &Prices::default()).unwrap();
        let sentences = planned.sentences(&input.problem, &input.names);
        assert_eq!(sentences.len(), 1, "{sentences:?}");
        assert!(sentences[0].starts_with("Paris sends "), "{sentences:?}");
        assert!(sentences[0].contains("to London: one more request costs 0."), "{sentences:?}");
        let json = document(&input, &Prices::default(), &planned, 0.0);
        let json = serde_json::to_value(json).unwrap();
        let (here, there) = (json["one_more"][0][0].as_f64(), json["last_sent"][0][1].as_f64());
        let (here, there) = (here.unwrap(), there.unwrap());
        // A quantum is a hundredth of the capacity: the last one is worth about as much either way.
        assert!((0.7 * here..=here).contains(&there), "{json}");
        assert_eq!(json["prices"]["optional"], 0.1);
        assert!(summary(&input, &planned).contains("violations per 1,000 requests"));
        assert!(table(&input, &planned).to_string().contains("London"));
    }
}
