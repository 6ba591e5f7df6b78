//! Instances as files, in the words of each program.

use std::fmt::{Debug, Write};
use std::path::PathBuf;

use anyhow::Result;

use super::instances::{Family, Instance, instance};
use crate::bench::process::Workbench;

/// Curves are whole multiples of this, so that nobody's integers overflow and all optima are the
/// same to the last digit.
pub(super) const UNIT_PPM: u32 = 100;
const TARGET_PPM: u32 = 50_000;
const SEED: u64 = 1;

/// One question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) family: Family,
    pub(super) label: &'static str,
    pub(super) sites: usize,
    pub(super) by_cost: bool,
}

impl Case {
    pub(super) fn name(&self) -> String {
        let cost = if self.by_cost { ", cost" } else { "" };
        format!("{} {}{cost}", self.sites, self.label)
    }

    pub(super) fn objective(&self) -> &'static str {
        if self.by_cost { "cost" } else { "violations" }
    }
}

/// Where a case is written down.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) folder: PathBuf,
    pub(super) json: PathBuf,
    pub(super) minizinc: PathBuf,
    pub(super) model: PathBuf,
    pub(super) levels: PathBuf,
}

/// Writes the models that rivals solve.
pub(super) fn write_models(bench: &Workbench) -> Result<()> {
    bench.write("model.mzn", include_str!("model.mzn"))?;
    bench.write("levels.py", include_str!("levels.py"))?;
    Ok(())
}

impl Files {
    pub(super) fn write(case: &Case, bench: &Workbench) -> Result<Self> {
        let mut instance = instance(case.family, case.sites, 1, SEED);
        for ppm in instance.curves.iter_mut().flatten().flatten() {
            *ppm = ppm.next_multiple_of(UNIT_PPM);
        }
        let folder = bench.folder().to_owned();
        Ok(Self {
            json: bench.write("case.json", &json(&instance))?,
            minizinc: bench.write("case.dzn", &minizinc(&instance, case.by_cost))?,
            model: folder.join("model.mzn"),
            levels: folder.join("levels.py"),
            folder,
        })
    }
}

/// Lists of numbers print as JSON.
fn json(instance: &Instance) -> String {
    let Instance { demand, curves, rtt_us, capacity } = instance;
    let ms = |row: &Vec<u32>| row.iter().map(|&us| f64::from(us) / 1000.0).collect();
    let rtt_ms: Vec<Vec<f64>> = rtt_us.iter().map(ms).collect();
    let field = |name: &str, value: &dyn Debug| format!("\"{name}\": {value:?}");
    let fields = [
        field("demand", demand),
        field("curves_ppm", curves),
        field("rtt_ms", &rtt_ms),
        field("saturation", capacity),
        field("target_ppm", &TARGET_PPM),
    ];
    format!("{{{}}}\n", fields.join(",\n"))
}

fn minizinc(instance: &Instance, by_cost: bool) -> String {
    let sites = instance.demand.len();
    let most: u32 = instance.demand.iter().sum();
    let mut text = format!(
        "sites = {sites};\nmost = {most};\ndemand = {:?};\nby_cost = {by_cost};\ntarget = {};\n\
         late = array3d(1..sites, 1..sites, 0..most, [",
        instance.demand,
        TARGET_PPM / UNIT_PPM
    );
    for curve in instance.curves.iter().flatten() {
        let last = curve.len() - 1;
        for load in 0..=most as usize {
            let _ = write!(text, "{},", curve[load.min(last)] / UNIT_PPM);
        }
    }
    text + "]);\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Instance {
        Instance {
            demand: vec![1, 2],
            curves: vec![vec![vec![0, 100], vec![200]], vec![vec![300], vec![0, 0, 0, 400]]],
            rtt_us: vec![vec![0, 2500], vec![2500, 0]],
            capacity: vec![1, 3],
        }
    }

    #[test]
    fn beyond_its_end_a_curve_stays_for_everybody() {
        let text = minizinc(&small(), true);
        assert!(text.starts_with("sites = 2;\nmost = 3;\ndemand = [1, 2];\nby_cost = true;"));
        assert!(text.contains("target = 500;"));
        assert!(text.ends_with("[0,1,1,1,2,2,2,2,3,3,3,3,0,0,0,4,]);\n"), "{text}");
    }

    #[test]
    fn an_instance_is_one_json_object() {
        let text = json(&small());
        assert!(text.starts_with("{\"demand\": [1, 2],\n\"curves_ppm\": [[[0, 100], [200]], "));
        assert!(text.contains("\"rtt_ms\": [[0.0, 2.5], [2.5, 0.0]]"), "{text}");
    }
}
