//! Runs of a small model of brownout replicas, written apart from this project in another
//! language: processor sharing on some cores, lognormal work, the published controller.
//!
//! Its file also holds the paper's own figures and runs of the paper's simulator; these rows are
//! left out here. Each row of the model is the mean over a few seeds with its deviation.

use evenkeel_settings::Problems;

use crate::measure::Measure;
use crate::reference::{Cells, Group, Reference, Rows, Source, Statistic, Theirs};

/// The runs.
pub const SOURCE: Source = Source { file: "brownout.csv", read };

/// Algorithms of the model, how their variants begin, and the policies that stand for them here.
/// Others
/// (equation 4 without time steps, two choices by response time, an oracle) have no counterpart.
const STRATEGIES: [(&str, &str, &str); 9] = [
    ("SQF", "lighttpd 'fair'", "least-outstanding"),
    ("SQF", "random tie-break", "least-outstanding"),
    ("PIBH", "gp=0.5 gi=Kp/Ti=0.1 int-trunc", "pibh-2014-03"),
    ("PIBH", "gp=1.0 gi=0.5 int-trunc", "pibh-2014-07"),
    ("PIBH", "gp=0.5 gi=5.0 dt-scaled", "pibh-printed"),
    ("EPBH", "ge=0.1 int-trunc", "epbh-2014"),
    ("RR", "true round robin", "round-robin"),
    ("random", "", "random"),
    ("P2C", "two choices by queue length", "two-choices"),
];

const COLUMNS: [&str; 17] = [
    "source",
    "scenario",
    "algorithm",
    "variant",
    "replicas",
    "rate_rps",
    "duration_s",
    "seeds",
    "y_optional_core_s",
    "n_mandatory_core_s",
    "cv_y",
    "cv_n",
    "core_eff_8",
    "timeout_s",
    "brownout",
    "optional_ratio",
    "optional_sd",
];

/// Reads the file's text: a group for each row of the model.
fn read(file: &str, text: &str) -> Result<Reference, Problems> {
    let rows = Rows::read(file, text, COLUMNS)?;
    let of_model = rows.iter().filter(|cells| cells.text("source").starts_with("fast model"));
    let groups = of_model.map(|cells| group(&cells)).collect::<Result<_, _>>()?;
    Ok(Reference { groups })
}

fn group(cells: &Cells<'_>) -> Result<Group, Problems> {
    let (algorithm, variant) = (cells.text("algorithm"), cells.text("variant"));
    let scenario = cells.text("scenario");
    let is_dimmed = cells.number("brownout")? > 0.0;
    let guard = if is_dimmed { "published-exact" } else { "full" };
    let policy = STRATEGIES
        .iter()
        .find(|(known, begins, _)| *known == algorithm && variant.starts_with(begins));
    let theirs = Theirs::Summary {
        mean: cells.number("optional_ratio")?,
        deviation: cells.number("optional_sd")?,
        runs: (cells.positive("seeds")? as usize).max(2),
    };
    let brownout = if is_dimmed { "" } else { ", no brownout" };
    // What follows a comma or a bracket explains the variant.
    let short = variant.split([',', '(', '[']).next().unwrap_or_default().trim();
    let comma = if short.is_empty() { "" } else { ", " };
    Ok(Group {
        strategy: algorithm.to_owned(),
        name: format!("{algorithm}{comma}{short}"),
        label: format!("{scenario}, cv {}{brownout}", cells.positive("cv_y")?),
        scenario: if scenario == "a_crash" { "brownout-crash" } else { "brownout-heterogeneous" },
        sets: sets(cells)?,
        statistics: vec![Statistic { measure: Measure::of("optional_ratio"), theirs }],
        policy: policy.map(|(_, _, policy)| format!("{policy}+{guard}")),
        jobs: None,
    })
}

/// The row's parameters, as scenarios have them.
fn sets(cells: &Cells<'_>) -> Result<Vec<String>, Problems> {
    let mut sets = vec![format!("replicas=[{}]", replicas(cells)?)];
    for (column, path, unit) in [
        ("rate_rps", "workload.rate", "/s"),
        ("duration_s", "workload.duration", "s"),
        ("y_optional_core_s", "work.optional", "s"),
        ("n_mandatory_core_s", "work.mandatory", "s"),
        ("cv_y", "work.cv", ""),
        ("cv_n", "work.cv_mandatory", ""),
        ("timeout_s", "workload.timeout", "s"),
    ] {
        sets.push(format!("{path}={}{unit}", cells.positive(column)?));
    }
    Ok(sets)
}

/// `{cores=8, speed=0.825}` for each of the row's replicas.
fn replicas(cells: &Cells<'_>) -> Result<String, Problems> {
    let numbers = |column: &str| -> Result<Vec<f64>, Problems> {
        let all = cells.text(column).split(',').map(|text| super::number(text.trim()));
        all.collect::<Option<_>>().ok_or_else(|| cells.wrong(column, "numbers with commas between"))
    };
    let (cores, speeds) = (numbers("replicas")?, numbers("core_eff_8")?);
    if cores.len() != speeds.len() {
        return Err(cells.wrong("core_eff_8", "as many numbers as there are replicas"));
    }
    let each = cores.iter().zip(speeds).map(|(c, speed)| format!("{{cores={c}, speed={speed:?}}}"));
    Ok(each.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rows: &[&str]) -> String {
        format!("{}\n{}", COLUMNS.join(","), rows.join("\n"))
    }

    const ROW: &str = "\"fast model (C++, x)\",b_2x1+3x8,PIBH,\"gp=0.5 gi=Kp/Ti=0.1 int-trunc, y\",\
                       \"1,1,8,8,8\",400,300,3,.06,.005,1.0,0.5,\
                       \"1,1,.825,.825,.825\",4,1,.87,.004";

    #[test]
    fn a_row_of_the_model_is_a_group_with_its_setting() {
        let paper = "paper Tables II-V,b,SQF,,,400,300,30,,,,,,4,1,0.8356,";
        let reference = read("x.csv", &text(&[paper, ROW])).unwrap();
        assert_eq!(reference.groups.len(), 1, "the paper's own rows are no runs of the model");
        let group = &reference.groups[0];
        assert_eq!(group.policy.as_deref(), Some("pibh-2014-03+published-exact"));
        assert!(group.sets[0].ends_with("{cores=8, speed=0.825}]"), "{:?}", group.sets);
        assert!(group.sets.contains(&"work.optional=0.06s".to_owned()), "{:?}", group.sets);
        assert_eq!(group.scenario, "brownout-heterogeneous");
        assert_eq!(group.name, "PIBH, gp=0.5 gi=Kp/Ti=0.1 int-trunc");
        assert_eq!(group.label, "b_2x1+3x8, cv 1");
    }

    #[test]
    fn what_no_policy_stands_for_is_left_out() {
        let literal = ROW.replace("gp=0.5 gi=Kp/Ti=0.1 int-trunc, y", "eq.(4) literally");
        assert_eq!(read("x.csv", &text(&[&literal])).unwrap().groups[0].policy, None);
        let without = ROW.replace("4,1,.87", "4,0,.87");
        let groups = read("x.csv", &text(&[&without])).unwrap().groups;
        assert_eq!(groups[0].policy.as_deref(), Some("pibh-2014-03+full"));
    }

    #[test]
    fn a_broken_row_is_one_clear_error() {
        let reported = |row: &str| read("x.csv", &text(&[row])).unwrap_err().to_string();
        let short = ROW.replace("1,1,.825,.825,.825", "1,1,.825");
        assert!(
            reported(&short).contains("as many numbers as there are replicas"),
            "{}",
            reported(&short)
        );
        let fuzzy = ROW.replace("400,300", "400,long");
        assert!(reported(&fuzzy).contains("\"long\"") && reported(&fuzzy).contains("duration_s"));
        assert!(reported("a,b").contains("2 cells"), "{}", reported("a,b"));
    }
}
