//! Papers, held to their claims.
//!
//! A paper is a folder in `papers/`: what it claims, in which setting, within which range
//! (`claims.toml`), scenarios that are not among the shipped ones, and what is known of its own
//! figures (`expected.csv`). [`Paper::plan`] lays out the runs, somebody runs them (in any order,
//! on any number of threads: a run depends on its [`Job`] alone), and [`Plan::judge`] says what
//! became of each claim. The files are part of the binary, so that the claims that are judged are
//! those the program was built with.
//!
//! | room | does |
//! |---|---|
//! | [`claims`] | reads `claims.toml` |
//! | [`measure`] | what is measured in a run, and when |
//! | [`unit`](mod@unit) | what measures are counted in |
//! | [`stats`] | intervals over paired seeds, and the rule of the verdicts |
//! | [`welch`] | the t-test that papers use |
//! | [`plan`] | experiments, unfolded into runs |
//! | [`judge`] | runs, folded into verdicts |
//! | [`figure`] | runs, folded into what is drawn |
//! | [`figure::standing`] | how policies stand over many settings |
//! | `drawn` | settings that nobody chose |
//! | [`choice`] | the part of a paper that is run |
//! | [`reference`](mod@reference) | runs of other programs, beside ours |
//! | [`adaptive`], [`brownout`], [`c3`], [`kurma`], [`leader`], [`zoolander`] | the papers |

pub mod adaptive;
mod bill;
pub mod brownout;
pub mod c3;
pub mod choice;
pub mod claims;
mod drawn;
pub mod figure;
#[cfg(test)]
mod fixtures;
pub mod judge;
pub mod kurma;
pub mod leader;
pub mod measure;
pub mod plan;
pub mod reference;
pub mod stats;
pub mod unit;
pub mod welch;
pub mod zoolander;

pub use choice::Choice;
pub use judge::{ClaimReport, PaperReport};
pub use plan::{Job, Plan};

use evenkeel_settings::{Node, Problems};

use crate::claims::Claims;
use crate::reference::Source;

/// The papers whose claims can be checked.
pub const PAPERS: [&Paper; 6] = [
    &c3::PAPER,
    &brownout::PAPER,
    &kurma::PAPER,
    &leader::PAPER,
    &zoolander::PAPER,
    &adaptive::PAPER,
];

/// A paper as files.
#[derive(Debug)]
pub struct Paper {
    /// The name users type.
    pub name: &'static str,
    /// The text of its `claims.toml`.
    pub claims: &'static str,
    /// The scenarios that its experiments name, as text.
    pub scenarios: &'static [(&'static str, &'static str)],
    /// Runs of another program that ours are compared with.
    pub reference: Option<Source>,
}

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seeds, each run once per policy and setting.
    pub seeds: Vec<u64>,
    /// Fewer settings and half the requests: a check that nothing broke, not a measurement.
    pub quick: bool,
    /// The paper's reference runs, when they are at hand: name of the file and its text.
    pub reference: Option<(String, String)>,
    /// The part of the paper that is run.
    pub choice: Choice,
}

impl Paper {
    /// The paper's claims and experiments.
    ///
    /// # Errors
    /// Everything that is wrong in its `claims.toml`.
    pub fn read(&self) -> Result<Claims, Problems> {
        let file = format!("papers/{}/claims.toml", self.name);
        Claims::read(&Node::parse(self.claims, &file)?)
    }

    /// Lays out the runs.
    ///
    /// # Errors
    /// Everything that is wrong in the paper's files, or in the file of reference runs.
    pub fn plan(&self, options: &Options) -> Result<Plan, Problems> {
        let mut claims = self.read()?;
        options.choice.apply(&mut claims)?;
        Plan::new(self, claims, options)
    }

    fn scenario(&self, name: &str) -> Option<&'static str> {
        self.scenarios.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_can_be_planned_and_every_claim_names_what_is_run() {
        for paper in PAPERS {
            for quick in [false, true] {
                let options = Options { seeds: vec![1, 2], quick, ..Options::default() };
                let plan = paper.plan(&options).unwrap_or_else(|problems| panic!("{problems}"));
                assert!(!plan.jobs().is_empty());
            }
        }
    }
}
