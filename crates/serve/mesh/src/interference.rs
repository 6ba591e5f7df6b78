//! Does the site still serve as its curves say, and if not, as which of its others?
//!
//! **Signal**: of the requests that were served where they came, how many missed the objective,
//! against what the curves in force predict for the load that the site really had, without bias.
//! Requests of others are left out: their way is not ours to judge.
//!
//! When core's sequential test finds another share than predicted, the version of the site's curves
//! that explains the time since the change best is put in force and announced with the next row, so
//! that all sites plan with it. There is one rule for both directions: the profile comes back when
//! it explains best again.
//!
//! **What the curves are by now** says core's learner, from the same counts and from how much
//! content replicas leave out. It is told with the next row, so that all sites plan with it. Lean
//! work is taken for none: what a site that dims can do is then believed to be too little, if
//! anything.
//!
//! **When it misleads**: a queue that an overload left behind, dimming (less work is less late),
//! and a site that lost a replica that nobody found yet. Without a second version nothing is
//! replaced, and the verdict is only told.

use std::time::Duration;

use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::Learnt;
use evenkeel_geo::curve::{
    Candidate, Conditions, Family, Learner, Measured, Prior, Seen, Verdict, Watch, WatchConfig,
    substitute,
};
use evenkeel_geo::demand::Lately;
use evenkeel_geo::planner::{SiteCurves, SizeClass};

use super::state::{CurvePoint, LearntState};

/// The watch over a site's curves.
#[derive(Debug)]
pub(super) struct Interference {
    watch: Watch,
    /// By version, as seen from inside.
    families: Vec<Family>,
    /// The same with hedges, where plans by price have such curves.
    hedged: Option<Vec<Family>>,
    version: usize,
    changes: u64,
    learner: Option<Learner>,
    /// Whether nobody profiled the site: a guess predicts nothing that could be wrong.
    is_guess: bool,
    /// As what was seen last: the site's servers and writes, and whether its requests were hedged.
    seen: Option<(Conditions, bool)>,
    period: Duration,
}

/// Points of a curve that people see, and the share of misses at which it ends.
const POINTS: u32 = 48;
const ENDS_AT: f64 = 0.2;

impl Interference {
    /// A watch over these versions of a site's curves, once in a period; of several sizes the first
    /// one counts. `learns` says from what they learn, if they do.
    pub(super) fn new(
        (plain, hedged): (&SiteCurves, Option<&SiteCurves>),
        learns: Option<Prior>,
        period: Duration,
    ) -> Self {
        let family = |classes: &Vec<SizeClass>| Some(Family::local(&classes.first()?.curves));
        let families = |of: &SiteCurves| of.versions.iter().filter_map(family).collect();
        let watch = Watch::new(WatchConfig::default()).expect("the defaults are in their ranges");
        let (learner, is_guess) = (learns.map(Learner::new), learns == Some(Prior::Guess));
        let (families, hedged) = (families(plain), hedged.map(families));
        let (version, changes, seen) = (0, 0, None);
        Self { watch, families, hedged, version, changes, learner, is_guess, seen, period }
    }

    /// The curves of requests that are hedged or not, as far as they are told apart.
    fn families(&self, is_hedged: bool) -> &[Family] {
        self.hedged.as_ref().filter(|_| is_hedged).unwrap_or(&self.families)
    }

    /// How the curves in force differ from their profile, for plans.
    pub(super) fn believed(&self) -> Learnt {
        self.learner.as_ref().map_or(Learnt::AS_PROFILED, Learner::believed)
    }

    /// What people see of that; `None` where curves do not learn.
    pub(super) fn learnt(&self) -> Option<LearntState> {
        let learner = self.learner.as_ref()?;
        let (likely, believed) = (learner.likely(), learner.believed());
        Some(LearntState {
            profile_probability: learner.profile_holds().value(),
            is_contradicted: learner.is_contradicted(),
            likely_scale: likely.scale(),
            likely_odds: likely.odds(),
            believed_scale: believed.scale(),
            believed_odds: believed.odds(),
            curves: self.curves([Learnt::AS_PROFILED, likely, believed]),
        })
    }

    /// The curves of a site that differs so from its profile, in the order of the fields.
    fn curves(&self, learnt: [Learnt; 3]) -> Vec<CurvePoint> {
        let Some((conditions, is_hedged)) = &self.seen else { return Vec::new() };
        let family = &self.families(*is_hedged)[self.version];
        let misses = |load_per_s: f64| {
            let load = Rate::new(load_per_s).ok()?;
            Some(learnt.map(|learnt| {
                family.miss(Duration::ZERO, load, &Conditions { learnt, ..*conditions }).value()
            }))
        };
        let ends = |load: &f64| {
            misses(*load).is_none_or(|misses| misses.iter().all(|miss| *miss >= ENDS_AT))
        };
        let doubled = (0..64).map(|power| 2_f64.powi(power));
        let Some(end) = doubled.flat_map(|load| [load, 1.4 * load]).find(ends) else {
            return Vec::new();
        };
        let point = |number: u32| {
            let load_per_s = end * f64::from(number) / f64::from(POINTS);
            let [profiled, likely, believed] = misses(load_per_s)?;
            Some(CurvePoint { load_per_s, profiled, likely, believed })
        };
        (0..=POINTS).filter_map(point).collect()
    }

    /// Learns from the same epoch, if it is known what replicas left out; told once, when the
    /// profile is found wrong.
    pub(super) fn learn(
        &mut self,
        lately: &Lately,
        (replicas, is_hedged): (u32, bool),
        content: Option<(Probability, Probability)>,
    ) -> Option<String> {
        let families = self.hedged.as_ref().filter(|_| is_hedged).unwrap_or(&self.families);
        let learner = self.learner.as_mut()?;
        let write_share = lately.writes();
        let conditions =
            Conditions { write_share, ..Conditions::with_servers(replicas).unbiased() };
        self.seen = Some((conditions, is_hedged));
        let (work, dimmed) = content?;
        let (load, requests, missed) = (lately.load(), lately.local_ended, lately.local_missed);
        let seen = Seen { load, work, dimmed, requests, missed };
        let was_contradicted = learner.is_contradicted();
        learner.observe(self.period, &families[self.version], &conditions, &seen);
        (learner.is_contradicted() && !was_contradicted).then(|| {
            format!(
                "what is served here contradicts the profile: {:.0} % of its load is likely, and \
                 plans go by {:.0} % (profile it again)",
                learner.likely().scale() * 100.0,
                learner.believed().scale() * 100.0
            )
        })
    }

    /// The version of the curves in force.
    pub(super) const fn version(&self) -> u32 {
        self.version as u32
    }

    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.watch.verdict()
    }

    /// Learns what an epoch measured with so many replicas, its requests hedged or not, and tells a
    /// change.
    pub(super) fn observe(
        &mut self,
        lately: &Lately,
        (replicas, is_hedged): (u32, bool),
    ) -> Option<String> {
        if self.is_guess || replicas == 0 || lately.local_ended == 0 {
            return None;
        }
        let write_share = lately.writes();
        let conditions =
            Conditions { write_share, ..Conditions::with_servers(replicas).unbiased() };
        let (load, requests, missed) = (lately.load(), lately.local_ended, lately.local_missed);
        let predicted =
            self.families(is_hedged)[self.version].miss(Duration::ZERO, load, &conditions);
        let before = self.watch.verdict();
        let verdict = self.watch.observe(Measured { load, requests, missed }, predicted);
        if verdict == Verdict::AsPredicted {
            return None;
        }
        let candidate = |family| Candidate { family, conditions };
        let candidates: Vec<Candidate<'_>> =
            self.families(is_hedged).iter().map(candidate).collect();
        let best = substitute(&candidates, self.watch.since_change())?;
        let measured = missed as f64 * 100.0 / requests as f64;
        let words = format!(
            "served here, {measured:.2} % missed the objective at {:.1} requests/s, and {:.2} % \
             were predicted",
            load.value(),
            predicted.value() * 100.0
        );
        if best.index == self.version {
            let is_new = before != verdict;
            return is_new.then(|| format!("{words}: no other curves of the site explain it"));
        }
        let from = std::mem::replace(&mut self.version, best.index);
        self.changes += 1;
        self.watch.restart();
        self.learner.iter_mut().for_each(Learner::restart);
        let (to, error) = (best.index, best.error * 100.0);
        Some(format!("{words}: curves {to} replace {from} (off by {error:.1} points)"))
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_geo::curve::ResponseCurves;

    use super::*;

    const SERVERS: u32 = 4;
    const PLAIN: (u32, bool) = (SERVERS, false);
    const PERIOD: Duration = Duration::from_millis(2_500);

    fn curves(service_ms: u64) -> ResponseCurves {
        let servers = SERVERS.try_into().unwrap();
        let service = Duration::from_millis(service_ms);
        ResponseCurves::markov(Duration::from_millis(100), servers, service).unwrap()
    }

    /// An epoch of 1,000 requests whose misses are as the law of these service times says.
    fn epoch(service_ms: u64) -> Lately {
        let (load, conditions) = (100.0, Conditions::with_servers(SERVERS).unbiased());
        let family = Family::local(&curves(service_ms));
        let miss = family.miss(Duration::ZERO, Rate::new(load).unwrap(), &conditions);
        let local_missed = (miss.value() * 1_000.0).round() as u64;
        Lately { local_ended: 1_000, local_missed, load, ..Lately::default() }
    }

    #[test]
    fn slower_service_brings_the_substitute_and_its_end_the_profile() {
        let curves = SiteCurves::of_versions([curves(20), curves(30)]);
        let mut watch = Interference::new((&curves, None), Some(Prior::Profile), PERIOD);
        let until = |watch: &mut Interference, epoch: &Lately, version: u32| {
            let epochs = (1..=50).find(|_| {
                watch.observe(epoch, PLAIN);
                watch.version() == version
            });
            epochs.unwrap_or_else(|| panic!("version {version} never came"))
        };
        let (calm, slow) = (epoch(20), epoch(30));
        for _ in 0..200 {
            assert_eq!(watch.observe(&calm, PLAIN), None);
        }
        assert!(until(&mut watch, &slow, 1) <= 3);
        for _ in 0..200 {
            assert_eq!(watch.observe(&slow, PLAIN), None);
        }
        assert!(until(&mut watch, &calm, 0) <= 10);
        assert_eq!((watch.changes(), watch.verdict()), (2, Verdict::AsPredicted));
    }

    #[test]
    fn without_a_substitute_the_verdict_is_told_once() {
        let curves = SiteCurves::single(curves(20));
        let mut watch = Interference::new((&curves, None), Some(Prior::Profile), PERIOD);
        let slow = epoch(30);
        let reported: Vec<_> = (0..20).filter_map(|_| watch.observe(&slow, PLAIN)).collect();
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(reported[0].ends_with("no other curves of the site explain it"), "{reported:?}");
        assert_eq!((watch.version(), watch.verdict()), (0, Verdict::Worse));
        assert_eq!(watch.observe(&slow, (0, false)), None);
        // Who only guessed what a site serves is not told that it serves otherwise.
        let mut guess = Interference::new((&curves, None), Some(Prior::Guess), PERIOD);
        assert!((0..20).all(|_| guess.observe(&slow, PLAIN).is_none()));
        assert_eq!(guess.verdict(), Verdict::AsPredicted);
    }

    #[test]
    fn a_profile_that_is_contradicted_is_told_once_and_no_longer_believed() {
        let curves = SiteCurves::single(curves(20));
        let mut watch = Interference::new((&curves, None), Some(Prior::Profile), PERIOD);
        assert_eq!(watch.learnt().unwrap().curves, [], "nothing was seen");
        let all = (Probability::ONE, Probability::ZERO);
        let calm = epoch(20);
        for _ in 0..100 {
            assert_eq!(watch.learn(&calm, PLAIN, Some(all)), None);
        }
        assert_eq!(watch.believed(), Learnt::AS_PROFILED);
        let slow = epoch(30);
        let told: Vec<_> = (0..40).filter_map(|_| watch.learn(&slow, PLAIN, Some(all))).collect();
        assert!(matches!(&told[..], [words] if words.contains("contradicts")), "{told:?}");
        let state = watch.learnt().unwrap();
        assert!(state.is_contradicted && state.believed_scale < 0.8, "{state:?}");
        let shown = &state.curves;
        assert_eq!((shown.len(), shown[0].load_per_s), (POINTS as usize + 1, 0.0));
        let [middle, last] = [shown[24], shown[48]];
        assert!(middle.believed > middle.profiled && middle.likely > middle.profiled, "{state:?}");
        assert!(last.profiled >= ENDS_AT && last.believed >= ENDS_AT, "{state:?}");
        assert!(shown.is_sorted_by(|a, b| a.load_per_s < b.load_per_s && a.likely <= b.likely));
        // Nobody serves, nothing ends: nothing is learnt.
        let before = watch.believed();
        watch.learn(&slow, (0, false), Some(all));
        watch.learn(&Lately::default(), PLAIN, Some(all));
        assert_eq!(watch.believed(), before);
    }

    #[test]
    fn requests_that_are_hedged_are_compared_with_hedged_curves() {
        let (plain, hedged) = (SiteCurves::single(curves(30)), SiteCurves::single(curves(20)));
        let all = (Probability::ONE, Probability::ZERO);
        let learnt = |epoch: &Lately, is_hedged: bool| {
            let both = (&plain, Some(&hedged));
            let mut watch = Interference::new(both, Some(Prior::Profile), PERIOD);
            let served = (SERVERS, is_hedged);
            (0..40).for_each(|_| drop(watch.learn(epoch, served, Some(all))));
            (0..20).for_each(|_| drop(watch.observe(epoch, served)));
            (watch.learnt().unwrap().is_contradicted, watch.verdict())
        };
        assert_eq!(learnt(&epoch(20), true), (false, Verdict::AsPredicted));
        assert_eq!(learnt(&epoch(30), false), (false, Verdict::AsPredicted));
        assert_eq!(learnt(&epoch(30), true), (true, Verdict::Worse));
    }

    #[test]
    fn a_site_that_dims_is_at_its_capacity_though_nobody_is_late() {
        let curves = SiteCurves::single(curves(20));
        let mut watch = Interference::new((&curves, None), Some(Prior::Profile), PERIOD);
        // 100/s are half of what the profile says; a fifth of the content is left out.
        let early = Lately { local_ended: 1_000, load: 100.0, ..Lately::default() };
        let dims = (Probability::clamped(0.8), Probability::ONE);
        (0..40).for_each(|_| drop(watch.learn(&early, PLAIN, Some(dims))));
        let scale = watch.believed().scale();
        assert!((0.3..0.45).contains(&scale), "{scale}");
        let mut deaf = Interference::new((&curves, None), None, PERIOD);
        assert_eq!(deaf.learn(&early, PLAIN, Some(dims)), None);
        assert_eq!((deaf.believed(), deaf.learnt()), (Learnt::AS_PROFILED, None));
    }
}
