//! Where sites and their clients are: 48 regions with measured round trips.

use std::sync::{Arc, LazyLock};

use evenkeel_planner::model::RoundTrips;

evenkeel_core::named! {
    /// Regions of one kind, for workloads that differ by part of the world.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Continent {
        /// East of 100° W: the paper's "East Coast", and the middle.
        NorthAmericaEast = "north-america-east",
        /// West of 100° W.
        NorthAmericaWest = "north-america-west",
        /// With Israel.
        Europe = "europe",
        /// From India to Japan.
        Asia = "asia",
        /// Australia and New Zealand.
        Oceania = "oceania",
        /// South America.
        SouthAmerica = "south-america",
        /// Africa and the Gulf.
        AfricaAndGulf = "africa-and-gulf",
    }
}

impl Continent {
    const fn of(latitude: f64, longitude: f64) -> Self {
        if longitude < -30.0 {
            return match (latitude > 15.0, longitude < -100.0) {
                (false, _) => Self::SouthAmerica,
                (true, true) => Self::NorthAmericaWest,
                (true, false) => Self::NorthAmericaEast,
            };
        }
        if longitude > 100.0 && latitude < -10.0 {
            return Self::Oceania;
        }
        if longitude > 60.0 {
            return Self::Asia;
        }
        if latitude > 31.0 { Self::Europe } else { Self::AfricaAndGulf }
    }

    /// Operations from it at noon beside those of others: Europe has 35 % of the United States'
    /// (the paper's figure 5), the others are guessed.
    pub const fn weight(self) -> f64 {
        match self {
            Self::NorthAmericaEast => 60.0,
            Self::NorthAmericaWest => 40.0,
            Self::Europe => 35.0,
            Self::Asia => 45.0,
            Self::Oceania => 8.0,
            Self::SouthAmerica => 10.0,
            Self::AfricaAndGulf => 8.0,
        }
    }
}

/// One region: a site where replicas can be, and the client that is all users near it.
#[derive(Clone, PartialEq, Debug)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// Which part of the world.
    pub continent: Continent,
    /// How far its sun is ahead of Greenwich's, in hours.
    pub ahead_h: f64,
}

/// Regions and the round trips between them. Client `c` is in the region of site `c`.
#[derive(Clone, Debug)]
pub struct Geography {
    /// The regions, in the order of sites.
    pub regions: Vec<Region>,
    /// Median round trips, milliseconds.
    pub trips: Arc<RoundTrips>,
}

static AZURE: LazyLock<Geography> = LazyLock::new(|| {
    let trips = include_str!("data/azure-p50.csv");
    let sites = include_str!("data/azure-sites.csv");
    Geography::read(trips, sites).expect("the files are part of the program")
});

impl Geography {
    /// The 48 regions of Azure (`data/README.md`).
    pub fn azure() -> &'static Self {
        &AZURE
    }

    /// How many regions there are.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    fn read(trips: &str, sites: &str) -> Option<Self> {
        let rows = |text: &'_ str| -> Option<Vec<Vec<String>>> {
            let mut reader = csv::Reader::from_reader(text.as_bytes());
            let records = reader.records().map(|record| {
                let record = record.ok()?;
                Some(record.iter().map(str::to_owned).collect())
            });
            records.collect()
        };
        let number = |cell: &String| cell.parse::<f64>().ok();
        let between: Option<Vec<Vec<f64>>> =
            rows(trips)?.iter().map(|row| row[1..].iter().map(number).collect()).collect();
        let region = |row: &Vec<String>| {
            let (latitude, longitude) = (number(&row[1])?, number(&row[2])?);
            let continent = Continent::of(latitude, longitude);
            Some(Region { name: row[0].clone(), continent, ahead_h: longitude / 15.0 })
        };
        let regions: Option<Vec<Region>> = rows(sites)?.iter().map(region).collect();
        let (regions, between) = (regions?, between?);
        let trips = RoundTrips::new(&between, &between).ok()?;
        (trips.sites() == regions.len()).then(|| Self { regions, trips: Arc::new(trips) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_regions_are_where_the_world_has_them() {
        let azure = Geography::azure();
        assert_eq!(azure.len(), 48);
        let find = |name: &str| {
            azure.regions.iter().position(|region| region.name == name).expect("a region")
        };
        for (name, continent) in [
            ("East US", Continent::NorthAmericaEast),
            ("West US 2", Continent::NorthAmericaWest),
            ("Brazil South", Continent::SouthAmerica),
            ("UK South", Continent::Europe),
            ("Israel Central", Continent::Europe),
            ("UAE North", Continent::AfricaAndGulf),
            ("Japan East", Continent::Asia),
            ("Southeast Asia", Continent::Asia),
            ("New Zealand North", Continent::Oceania),
        ] {
            assert_eq!(azure.regions[find(name)].continent, continent, "{name}");
        }
        let across = azure.trips.from_site(find("East US"))[find("Japan East")];
        assert!((140.0..=190.0).contains(&across), "{across}");
        assert_eq!(azure.trips.from_site(3)[3], 0.5);
    }
}
