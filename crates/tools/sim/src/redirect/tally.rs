//! Who served whom, and how late: what a run between data centres showed.

use serde::Serialize;

/// What a run between data centres showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RedirectReport {
    /// By site of the users.
    pub sites: Vec<SiteReport>,
    /// Requests served away from their site, of those that count.
    pub redirected: u64,
    /// Share of requests served away from their site.
    pub redirected_ratio: f64,
    /// Share of violations among those served away; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_violation_ratio: Option<f64>,
    /// Share of violations among those served at home; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home_violation_ratio: Option<f64>,
    /// What plans predicted of the former, weighted by what they sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_predicted_ratio: Option<f64>,
    /// What plans predicted of the latter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home_predicted_ratio: Option<f64>,
    /// Plans made, at all sites together.
    pub plans: u64,
    /// Of them made from other rows than at the first site that planned the epoch.
    pub plans_apart: u64,
    /// Plans of others that were seen to differ.
    pub disagreements: u64,
    /// Bytes of rows sent, over all pairs.
    pub row_bytes: u64,
    /// Changes of curves: when (seconds), which site, to which version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve_changes: Vec<(f64, usize, u32)>,
}

/// One site's users.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteReport {
    /// The site.
    pub name: String,
    /// Requests of its users that ended.
    pub requests: u64,
    /// Of them too late or not served.
    pub violations: u64,
    /// By site that served: how many.
    pub served_at: Vec<u64>,
    /// By site that served: of them too late or not served.
    pub late_at: Vec<u64>,
}

/// One site's users in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SiteWindow {
    /// Requests that ended.
    pub requests: u64,
    /// Of them too late or not served.
    pub violations: u64,
    /// Requests served elsewhere.
    pub away: u64,
    /// Of them too late or not served.
    pub away_violations: u64,
}

/// Predicted violations, and of how many requests, at home and away.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Predictions {
    requests: [f64; 2],
    missed: [f64; 2],
}

impl Predictions {
    /// A plan sends so many requests and predicts this share of violations among them.
    pub(crate) fn add(&mut self, is_away: bool, requests: f64, ppm: u32) {
        self.requests[usize::from(is_away)] += requests;
        self.missed[usize::from(is_away)] += requests * f64::from(ppm) * 1e-6;
    }

    fn ratio(&self, is_away: bool) -> Option<f64> {
        let place = usize::from(is_away);
        (self.requests[place] > 0.0).then(|| self.missed[place] / self.requests[place])
    }
}

/// Counts while a run goes on.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    sites: Vec<SiteReport>,
    window: Vec<SiteWindow>,
    windows: Vec<Vec<SiteWindow>>,
    pub(crate) predictions: Predictions,
    pub(crate) report: RedirectReport,
}

impl Tally {
    pub(crate) fn new(names: impl Iterator<Item = String>) -> Self {
        let names: Vec<String> = names.collect();
        let count = names.len();
        let site = |name| SiteReport {
            name,
            served_at: vec![0; count],
            late_at: vec![0; count],
            ..SiteReport::default()
        };
        Self {
            sites: names.into_iter().map(site).collect(),
            window: vec![SiteWindow::default(); count],
            windows: Vec::new(),
            predictions: Predictions::default(),
            report: RedirectReport::default(),
        }
    }

    /// A request of a site's users ended that was sent to a site.
    #[inline]
    pub(crate) fn note(&mut self, from: usize, to: usize, is_warm: bool, is_violation: bool) {
        let window = &mut self.window[from];
        let is_away = from != to;
        window.requests += 1;
        window.violations += u64::from(is_violation);
        window.away += u64::from(is_away);
        window.away_violations += u64::from(is_away && is_violation);
        if is_warm {
            let site = &mut self.sites[from];
            site.requests += 1;
            site.violations += u64::from(is_violation);
            site.served_at[to] += 1;
            site.late_at[to] += u64::from(is_violation);
        }
    }

    pub(crate) fn end_window(&mut self) {
        let empty = vec![SiteWindow::default(); self.window.len()];
        self.windows.push(core::mem::replace(&mut self.window, empty));
    }

    /// The report, and the windows in order.
    pub(crate) fn into_report(self) -> (RedirectReport, Vec<Vec<SiteWindow>>) {
        let all: u64 = self.sites.iter().map(|site| site.requests).sum();
        let of = |is_away: bool, counts: fn(&SiteReport) -> &Vec<u64>| -> u64 {
            let sites = self.sites.iter().enumerate();
            let at = |(from, site): (usize, &SiteReport)| -> u64 {
                let counts = counts(site).iter().enumerate();
                counts.filter(|(to, _)| (*to != from) == is_away).map(|(_, count)| count).sum()
            };
            sites.map(at).sum()
        };
        let ratio = |is_away| {
            let (served, late) = (of(is_away, |s| &s.served_at), of(is_away, |s| &s.late_at));
            (served > 0).then(|| late as f64 / served as f64)
        };
        let redirected = of(true, |site| &site.served_at);
        let report = RedirectReport {
            redirected,
            redirected_ratio: redirected as f64 / all.max(1) as f64,
            away_violation_ratio: ratio(true),
            home_violation_ratio: ratio(false),
            away_predicted_ratio: self.predictions.ratio(true),
            home_predicted_ratio: self.predictions.ratio(false),
            sites: self.sites,
            ..self.report
        };
        (report, self.windows)
    }
}
