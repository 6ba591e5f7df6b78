//! Quiet hours of a running service: what the windows tell of them, and what is then advised.
//!
//! Decided is in [`quiet`](evenkeel_planner::duplicates::quiet), which the simulated days run too.
//! What is known outlives the manager, which begins anew after each change. At night there are
//! often too few accesses for a window to say how long duplicates serve: then the last window that
//! did is gone by, since idle duplicates are not slower.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_core::units::{OutOfRange, Rate};
use evenkeel_planner::duplicates::correlation::Verdict;
use evenkeel_planner::duplicates::moves::{Arrangement, Move, Planner, Steadiness};
use evenkeel_planner::duplicates::quiet::{Choice, Nights, Seen, Settings, Stage};
use evenkeel_planner::duplicates::{Effort, Model, Question, Service};
use serde::Serialize;

use crate::{ManagerSettings, Window};

/// What becomes of nodes in quiet hours.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NightAdvice {
    /// `learning`, `day`, `quiet` or `returning`.
    pub stage: &'static str,
    /// In words.
    pub why: String,
    /// Nodes that serve.
    pub nodes: u64,
    /// Nodes that served before any was closed; `None` while none is.
    pub home_nodes: Option<u64>,
    /// The most accesses per second forecast while nodes would be closed; `None` in the first day.
    pub peak_per_s: Option<f64>,
}

/// What the managers of a service know of its days, one after the other.
#[derive(Debug, Clone)]
pub struct SharedNights(Arc<Mutex<Known>>);

#[derive(Debug)]
struct Known {
    nights: Nights,
    /// How long duplicates serve, and whether their outliers coincide, by the last window that
    /// tells.
    service: Option<(Service, Verdict)>,
    /// Whether predictions held when that was last seen.
    holds: bool,
}

/// What a window says.
#[derive(Debug)]
pub(super) struct Told<'a> {
    pub(super) settings: &'a ManagerSettings,
    pub(super) window: &'a Window,
    pub(super) arrangement: &'a Arrangement,
    pub(super) rates: &'a [Rate],
    pub(super) spares: Option<usize>,
    pub(super) is_late: bool,
    /// Whether predictions held, where the window tells.
    pub(super) holds: Option<bool>,
}

/// What the night wants.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) step: Option<Move>,
    /// Steps of the day have to wait.
    pub(super) is_under_way: bool,
    pub(super) advice: NightAdvice,
}

impl SharedNights {
    /// Nothing is known.
    pub(super) fn new(settings: Settings) -> Self {
        let nights = Nights::new(settings);
        Self(Arc::new(Mutex::new(Known { nights, service: None, holds: true })))
    }

    /// A window showed how long duplicates serve.
    pub(super) fn note(&self, service: &Service, verdict: Verdict) {
        self.known().service = Some((service.clone(), verdict));
    }

    /// What is to be done about the night after this window.
    pub(super) fn learn(&self, told: &Told<'_>) -> Said {
        self.known().learn(told)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn learn(&mut self, told: &Told<'_>) -> Said {
        self.holds = told.holds.unwrap_or(self.holds);
        let nodes = told.arrangement.nodes();
        let per_s = told.rates.iter().map(|rate| rate.value()).sum();
        let Some((service, verdict)) = self.service.clone() else {
            self.nights.note(told.window.from, told.window.until, per_s);
            let why = "no window has told yet how long duplicates serve".to_owned();
            let advice =
                NightAdvice { stage: Stage::Learning.name(), why, nodes, ..NightAdvice::default() };
            return Said { step: None, is_under_way: false, advice };
        };
        let unsound = if told.window.is_away {
            Some("a duplicate is away")
        } else if !self.holds {
            Some("predictions do not hold")
        } else if verdict == Verdict::Coincide {
            Some("outliers of duplicates coincide")
        } else {
            None
        };
        let (stage, step, why) = match self.decide(told, &service, unsound) {
            Ok(Choice { stage, step, why }) => (stage, step, why),
            Err(error) => {
                (Stage::Learning, None, format!("no model fits what was measured: {error}"))
            }
        };
        let advice = NightAdvice {
            stage: stage.name(),
            why,
            nodes,
            home_nodes: self.nights.home_nodes(),
            peak_per_s: self.nights.forecast(told.window.until, per_s),
        };
        Said { step, is_under_way: self.nights.is_under_way(), advice }
    }

    fn decide(
        &mut self,
        told: &Told<'_>,
        service: &Service,
        unsound: Option<&'static str>,
    ) -> Result<Choice, OutOfRange> {
        let Told { settings, window, arrangement, rates, spares, is_late, .. } = *told;
        let effort = Effort { accesses: 20_000, accesses_max: 20_000, ..Effort::default() };
        let total = Rate::new(rates.iter().map(|rate| rate.value()).sum())?;
        let question = Question::new(service, total, settings.objective);
        let planner = Planner {
            model: Model::Lindley,
            question: Question { effort, ..question },
            target: settings.target,
            nodes_max: u32::try_from(arrangement.nodes()).unwrap_or(u32::MAX),
            prices: settings.prices,
            steadiness: Steadiness::default(),
            duplicates_min: NonZeroU32::MIN,
        };
        let (from, now) = (window.from, window.until);
        let seen = Seen { from, now, arrangement, rates, spares, is_late, unsound };
        self.nights.decide(&planner, &seen)
    }
}
