//! From loads to an allocation: who serves whom at the least price.

use super::bound::Domain;
use super::model::{Flow, Model};
use super::pairs::Pairs;
use super::transport::Transport;

/// The cheapest allocation with exactly these loads, violations priced at `violation` for each row
/// of the target; `None` when there is none. `is_canonical` picks the smallest among equally cheap
/// ones.
pub(super) fn place(
    model: &Model,
    domain: &Domain,
    violation: &[i64],
    loads: &[u32],
    is_canonical: bool,
) -> Option<Flow> {
    let sites = model.sites;
    let mut flow = Pairs::filled(sites, 0);
    let mut supply = model.demand.clone();
    let mut need = loads.to_vec();
    for site in 0..sites {
        let own = if model.relay { 0 } else { loads[site].min(model.demand[site]) };
        for origin in 0..sites {
            let kept = if origin == site { own } else { 0 };
            let amount = kept.max(domain.least[(origin, site)]);
            flow[(origin, site)] = amount;
            supply[origin] = supply[origin].checked_sub(amount)?;
            need[site] = need[site].checked_sub(amount)?;
        }
    }
    let from: Vec<usize> = (0..sites).filter(|&site| supply[site] > 0).collect();
    let to: Vec<usize> = (0..sites).filter(|&site| need[site] > 0).collect();
    let pairs = || from.iter().flat_map(|&i| to.iter().map(move |&j| (i, j)));
    let price = |(i, j): (usize, usize)| {
        let extra = match &model.side {
            Some(side) => {
                side.weight[i] * violation[side.row[i]] * i64::from(model.ppm(i, j, loads[j]))
            }
            None => 0,
        };
        model.unit_price(i, j, loads[j]) + extra
    };
    let room = |(i, j): (usize, usize)| match i == j && !model.relay {
        true => 0,
        false => domain.most[(i, j)] - domain.least[(i, j)],
    };
    let transport = Transport {
        supply: from.iter().map(|&site| supply[site]).collect(),
        need: to.iter().map(|&site| need[site]).collect(),
        price: pairs().map(price).collect(),
        most: pairs().map(room).collect(),
    };
    let placed = transport.solve(is_canonical);
    for ((i, j), &amount) in pairs().zip(&placed) {
        flow[(i, j)] += amount;
        supply[i] -= amount;
        need[j] -= amount;
    }
    let is_whole = supply.iter().chain(&need).all(|&left| left == 0);
    is_whole.then_some(flow)
}
