//! What people choose, checked before anything is served.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::dimmer::{BrownoutConfig, Law, PARTS_MAX, place_of, wire};
use evenkeel_core::units::Probability;
use http::request::Parts;

/// How a service dims. Every setting has a default; see each method.
#[derive(Clone)]
#[must_use = "settings do nothing until a layer is made of them"]
pub struct Settings {
    setpoint: Duration,
    percentile: f64,
    period: Duration,
    law: Law,
    cores: Option<f64>,
    parts: Vec<String>,
    inbound: Inbound,
    session: Option<SessionOf>,
}

/// Whose request it is.
pub(crate) type SessionOf = Arc<dyn Fn(&Parts) -> Option<Session> + Send + Sync>;

/// What a `Brownout-Optional` header that comes with a request means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Inbound {
    /// Nothing: it is removed, and this layer decides. For services that strangers can reach.
    #[default]
    Decide,
    /// It was decided at the edge for the whole call tree and is obeyed, so that a page is not half
    /// full. Without it this layer decides; one that cannot be read means full content.
    Obey,
}

/// A visitor whose pages should not flicker: all requests of a session change from full to lean at
/// one value of the dimmer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Session {
    place: f64,
}

impl Session {
    /// The session with this name: a user, a cookie. The name is hashed at once and not kept.
    #[must_use]
    pub fn named(name: impl AsRef<[u8]>) -> Self {
        Self { place: place_of(name.as_ref()) }
    }

    pub(crate) const fn place(self) -> f64 {
        self.place
    }
}

impl Settings {
    /// The defaults, which suit a service that people wait for: the 95th percentile at one second.
    pub fn new() -> Self {
        let BrownoutConfig { law, setpoint, percentile, period, .. } = BrownoutConfig::default();
        Self {
            setpoint,
            percentile: percentile.value(),
            period,
            law,
            cores: None,
            parts: Vec::new(),
            inbound: Inbound::default(),
            session: None,
        }
    }

    /// The response time that the percentile is kept at, 1 ms or more; default 1 s.
    pub fn setpoint(mut self, setpoint: Duration) -> Self {
        self.setpoint = setpoint;
        self
    }

    /// The percentile, between 0 and 1; default 0.95.
    pub fn percentile(mut self, percentile: f64) -> Self {
        self.percentile = percentile;
        self
    }

    /// Time between control steps, 10 ms to 1 min; default 250 ms.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// The law; default [`Law::FeedForward`], which learns the capacity at the first overload where
    /// `cores` is not set, and is the published law until then.
    pub fn law(mut self, law: Law) -> Self {
        self.law = law;
        self
    }

    /// Requests the service works on at once without slowing down, above 0: worker threads where
    /// handlers compute, connections where they wait for a pool. Default: unknown.
    ///
    /// With it the dimmer follows arrivals at once, before the percentile tells of harm; do set it
    /// where it is known. It is not guessed, because the number of worker threads is wrong for
    /// every handler that awaits: two hundred requests that wait for another service would look
    /// like two hundred on two cores, and pages would be dimmed that are in time. Without it the
    /// capacity is learnt at the first overload; until then only a percentile above the setpoint
    /// dims.
    pub fn cores(mut self, cores: f64) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Names of the optional parts, the most important first: it is left out last. At most 32;
    /// small letters, digits, `_`, `-`, `.` and `*`. Default: one part, whatever it is called.
    pub fn parts<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        // One more than allowed is enough to refuse them.
        let names = names.into_iter().take(usize::from(PARTS_MAX) + 1);
        self.parts = names.map(Into::into).collect();
        self
    }

    /// What a decision that comes with a request means; default [`Inbound::Decide`].
    pub fn inbound(mut self, inbound: Inbound) -> Self {
        self.inbound = inbound;
        self
    }

    /// Whose request it is; `None` is nobody's, for which a coin is thrown. Default: a coin for
    /// each request.
    ///
    /// ```
    /// # use evenkeel_brownout::{Session, Settings};
    /// let settings = Settings::new()
    ///     .session(|request| request.headers.get("x-user").map(Session::named));
    /// ```
    pub fn session<F>(mut self, session: F) -> Self
    where
        F: Fn(&Parts) -> Option<Session> + Send + Sync + 'static,
    {
        self.session = Some(Arc::new(session));
        self
    }

    pub(crate) fn check(self) -> Result<Checked, SettingsError> {
        if self.setpoint < SETPOINT_MIN {
            return Err(SettingsError::Setpoint(self.setpoint));
        }
        if !(self.percentile > 0.0 && self.percentile < 1.0) {
            return Err(SettingsError::Percentile(self.percentile));
        }
        if !(PERIOD_MIN..=PERIOD_MAX).contains(&self.period) {
            return Err(SettingsError::Period(self.period));
        }
        if let Some(cores) = self.cores.filter(|cores| !(cores.is_finite() && *cores > 0.0)) {
            return Err(SettingsError::Cores(cores));
        }
        check_parts(&self.parts)?;
        Ok(Checked {
            config: BrownoutConfig {
                law: self.law,
                setpoint: self.setpoint,
                percentile: Probability::clamped(self.percentile),
                period: self.period,
                cores: self.cores,
                parts: u8::try_from(self.parts.len().max(1)).unwrap_or(PARTS_MAX),
            },
            parts: self.parts,
            inbound: self.inbound,
            session: self.session,
        })
    }
}

const SETPOINT_MIN: Duration = Duration::from_millis(1);
const PERIOD_MIN: Duration = Duration::from_millis(10);
const PERIOD_MAX: Duration = Duration::from_secs(60);

fn check_parts(parts: &[String]) -> Result<(), SettingsError> {
    if parts.len() > usize::from(PARTS_MAX) {
        return Err(SettingsError::Parts);
    }
    for (number, part) in parts.iter().enumerate() {
        if !wire::is_part(part) {
            return Err(SettingsError::PartName(part.clone()));
        }
        if parts[..number].contains(part) {
            return Err(SettingsError::PartTwice(part.clone()));
        }
    }
    let together: usize = parts.iter().map(|part| part.len() + 1).sum();
    if together + 2 > wire::VALUE_BYTES_MAX {
        return Err(SettingsError::PartsLong(together));
    }
    Ok(())
}

/// Settings that make sense together.
pub(crate) struct Checked {
    pub(crate) config: BrownoutConfig,
    pub(crate) parts: Vec<String>,
    pub(crate) inbound: Inbound,
    pub(crate) session: Option<SessionOf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("setpoint", &self.setpoint)
            .field("percentile", &self.percentile)
            .field("period", &self.period)
            .field("law", &self.law)
            .field("cores", &self.cores)
            .field("parts", &self.parts)
            .field("inbound", &self.inbound)
            .field("session", &self.session.as_ref().map(|_| "a function of the request"))
            .finish()
    }
}

/// Why settings do not make sense: what came and what was expected.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum SettingsError {
    /// The setpoint is shorter than any response.
    Setpoint(Duration),
    /// No percentile.
    Percentile(f64),
    /// The period is too short to measure in, or too long to help.
    Period(Duration),
    /// Not a number of cores.
    Cores(f64),
    /// More optional parts than a decision has room for.
    Parts,
    /// Names too long for a header, in bytes together.
    PartsLong(usize),
    /// Not a name that a header can carry.
    PartName(String),
    /// Two parts with one name.
    PartTwice(String),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setpoint(came) => write!(f, "setpoint {came:?}: expected 1 ms or more"),
            Self::Percentile(came) => write!(
                f,
                "percentile {came}: expected more than 0 and less than 1 (0.95 is the 95th)"
            ),
            Self::Period(came) => write!(f, "period {came:?}: expected 10 ms to 1 min"),
            Self::Cores(came) => write!(
                f,
                "cores {came}: expected a number above 0 (leave them out if they are unknown)"
            ),
            Self::Parts => write!(f, "parts: more than {PARTS_MAX}, expected that many at most"),
            Self::PartsLong(bytes) => write!(
                f,
                "parts: {bytes} bytes of names, expected less than {} (a header carries them)",
                wire::VALUE_BYTES_MAX
            ),
            Self::PartName(name) => write!(
                f,
                "part {name:?}: expected small letters, digits, `_`, `-`, `.` or `*`, a letter or \
                 `*` first (a header carries it)"
            ),
            Self::PartTwice(name) => write!(f, "part {name:?}: named twice, expected once"),
        }
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(settings: Settings) -> String {
        settings.check().err().expect("refused").to_string()
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_came() {
        let new = Settings::new;
        for (settings, came) in [
            (new().setpoint(Duration::ZERO), "0ns"),
            (new().percentile(95.0), "95"),
            (new().percentile(f64::NAN), "NaN"),
            (new().period(Duration::from_millis(9)), "9ms"),
            (new().period(Duration::MAX), "s: expected 10 ms to 1 min"),
            (new().cores(0.0), "cores 0"),
            (new().cores(f64::INFINITY), "inf"),
            (new().parts(["Comments"]), "\"Comments\""),
            (new().parts(["a", "b", "a"]), "\"a\": named twice"),
            (new().parts((0..33).map(|part| format!("p{part}"))), "more than 32"),
            (new().parts((0..32).map(|part| format!("{}{part}", "p".repeat(128)))), "bytes"),
        ] {
            let error = refused(settings);
            assert!(error.contains(came) && error.contains("expected"), "{came}: {error}");
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_controller() {
        let checked = Settings::new().check().unwrap();
        assert_eq!(checked.config, BrownoutConfig::default());
        assert_eq!(checked.inbound, Inbound::Decide);
    }
}
