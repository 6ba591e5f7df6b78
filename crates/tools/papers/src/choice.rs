//! The part of a paper that is run.

use evenkeel_settings::{Mismatch, Place, Problem};

use crate::claims::{Axis, Claims, Experiment};

/// What the user chose of a paper; where a list is empty, all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Experiments, by their names.
    pub experiments: Vec<String>,
    /// Values along the axes of experiments, each the beginning of its name.
    pub settings: Vec<String>,
    /// The policies in place of those that experiments name.
    pub policies: Vec<String>,
}

impl Choice {
    /// Leaves in the claims what was chosen.
    ///
    /// # Errors
    /// The first name that there is not.
    pub(crate) fn apply(&self, claims: &mut Claims) -> Result<(), Problem> {
        let experiments = || claims.experiments.iter();
        for name in &self.experiments {
            let mut all = experiments().map(|experiment| experiment.id.as_str());
            if !all.clone().any(|id| id == name) {
                return Err(unknown("an experiment", name, &mut all));
            }
        }
        for name in &self.settings {
            let mut all = experiments().flat_map(|one| one.axis.values.iter().map(String::as_str));
            if !all.clone().any(|value| is_meant(value, name)) {
                return Err(unknown("a setting", name, &mut all));
            }
        }
        for experiment in &mut claims.experiments {
            self.narrow(experiment);
        }
        Ok(())
    }

    fn narrow(&self, experiment: &mut Experiment) {
        let is_chosen = match self.experiments.is_empty() {
            true => !experiment.on_request,
            false => self.experiments.contains(&experiment.id),
        };
        let axis = &mut experiment.axis;
        if !is_chosen {
            axis.keep(|_| false);
        } else if !self.settings.is_empty() {
            axis.keep(|value| self.settings.iter().any(|name| is_meant(value, name)));
        }
        if !self.policies.is_empty() {
            // A standing without its yardstick says nothing.
            let yardstick = experiment.yardstick.iter();
            let yardstick = yardstick.filter(|one| !self.policies.contains(one));
            experiment.policies = yardstick.chain(&self.policies).cloned().collect();
        }
    }
}

/// Whether a value is called by this name, or by what comes before its colon.
fn is_meant(value: &str, name: &str) -> bool {
    value == name || value.split_once(':').is_some_and(|(short, _)| short == name)
}

fn unknown(what: &str, came: &str, all: &mut dyn Iterator<Item = &str>) -> Problem {
    let known: Vec<&str> = all.filter(|one| !one.is_empty()).collect();
    let expected = format!("{what}: {}", known.join(", "));
    Problem {
        at: Place::whole("the command"),
        path: "only".to_owned(),
        what: Mismatch::new(format!("{came:?}"), expected),
    }
}

impl Axis {
    /// Leaves the values that are wanted.
    fn keep(&mut self, is_wanted: impl Fn(&str) -> bool) {
        let values = core::mem::take(&mut self.values).into_iter();
        let sets = core::mem::take(&mut self.sets);
        let kept = values.zip(sets).filter(|(value, _)| is_wanted(value));
        (self.values, self.sets) = kept.unzip();
        // Who chose is asked for what was chosen, in a quick check too.
        self.quick.clone_from(&self.values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, adaptive};

    fn plan(choice: Choice) -> Result<crate::Plan, String> {
        let options = Options { seeds: vec![1, 2], choice, ..Options::default() };
        adaptive::PAPER.plan(&options).map_err(|problems| problems.to_string())
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn what_was_chosen_is_run_with_the_yardstick() {
        let (experiments, settings) = (owned(&["suite"]), owned(&["pause", "T10"]));
        let policies = owned(&["random"]);
        let plan = plan(Choice { experiments, settings, policies }).unwrap();
        // Two settings, with agents and without, the yardstick and one policy, two seeds.
        assert_eq!(plan.jobs().len(), 2 * 2 * 2 * 2);
        assert!(plan.jobs().iter().any(|job| job.policy == "oracle"));
        assert!(plan.jobs().iter().all(|job| job.policy != "c3"));
    }

    #[test]
    fn what_is_run_on_request_is_not_run_without() {
        let jobs = |choice| plan(choice).unwrap().jobs().to_vec();
        let is_variant = |job: &crate::Job| job.policy == "adaptive:ask=off";
        assert!(!jobs(Choice::default()).iter().any(is_variant));
        let experiments = owned(&["ablation"]);
        let asked = jobs(Choice { experiments, ..Choice::default() });
        assert!(asked.iter().any(is_variant) && asked.iter().any(|job| job.policy == "adaptive"));
    }

    #[test]
    fn a_setting_that_was_drawn_is_called_by_its_number() {
        let (experiments, settings) = (owned(&["held-out"]), owned(&["7"]));
        let plan = plan(Choice { experiments, settings, policies: owned(&["c3"]) }).unwrap();
        assert_eq!(plan.jobs().len(), 2 * 2 * 2);
        assert!(plan.jobs().iter().all(|job| job.seed > 100), "seeds of its own");
    }

    #[test]
    fn a_name_that_there_is_not_is_told_with_those_there_are() {
        let experiments = owned(&["sweet"]);
        let error = plan(Choice { experiments, ..Choice::default() }).unwrap_err();
        assert!(
            error.contains("\"sweet\"") && error.contains("suite, stress, held-out"),
            "{error}"
        );
        let error = plan(Choice { settings: owned(&["T7"]), ..Choice::default() }).unwrap_err();
        assert!(error.contains("\"T7\"") && error.contains("T100skew"), "{error}");
        let policies = owned(&["c4"]);
        let error = plan(Choice { policies, ..Choice::default() }).unwrap_err();
        assert!(error.contains("c4"), "{error}");
    }
}
