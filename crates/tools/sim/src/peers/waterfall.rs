//! Waterfall by capacity, as global load balancers do it: each site's users are served at home up
//! to its capacity, what is over goes to the nearest site with room.
//!
//! **Signal**: demand and a capacity that somebody set by hand. **When it misleads**: capacity is
//! one number, so that a request that has 22 ms less to live costs as much as one that has not, and
//! a site is filled to the brim before the next one gets anything. What nobody has room for stays
//! at home. **Source**: Google Cloud, service load-balancing policy `WATERFALL_BY_REGION`.

/// How much of each site's demand to serve where: `[origin][destination]`, in the unit of `demand`.
///
/// `distance` is by origin and destination; of equal ones the pair that comes first goes first.
pub fn waterfall(demand: &[f64], capacity: &[f64], distance: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let sites = demand.len();
    let mut over: Vec<f64> = (0..sites).map(|i| (demand[i] - capacity[i]).max(0.0)).collect();
    let mut room: Vec<f64> = (0..sites).map(|i| (capacity[i] - demand[i]).max(0.0)).collect();
    let mut pairs: Vec<(usize, usize)> =
        (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to))).collect();
    pairs.retain(|(from, to)| from != to);
    pairs.sort_by(|a, b| distance[a.0][a.1].total_cmp(&distance[b.0][b.1]));
    let mut rates = vec![vec![0.0; sites]; sites];
    for (from, to) in pairs {
        let moved = over[from].min(room[to]);
        over[from] -= moved;
        room[to] -= moved;
        rates[from][to] = moved;
    }
    for (site, row) in rates.iter_mut().enumerate() {
        row[site] = demand[site] - row.iter().sum::<f64>();
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_goes_to_the_nearest_with_room_and_the_rest_stays() {
        let distance = [vec![0.0, 9.0, 11.0], vec![9.0, 0.0, 22.0], vec![11.0, 22.0, 0.0]];
        let rates = waterfall(&[150.0, 80.0, 50.0], &[100.0; 3], &distance);
        assert_eq!(rates, [[100.0, 20.0, 30.0], [0.0, 80.0, 0.0], [0.0, 0.0, 50.0]]);
        let rates = waterfall(&[150.0, 130.0, 90.0], &[100.0; 3], &distance);
        assert_eq!(rates, [[140.0, 0.0, 10.0], [0.0, 130.0, 0.0], [0.0, 0.0, 90.0]]);
    }
}
