//! The dimmer in front of one application: who is decided for, what is told, what is learnt.
//!
//! Every decision is core's [`Brownout`]; here requests become its tickets. Which, and when they
//! end:
//!
//! | request | decided | in the statistics |
//! |---|---|---|
//! | on a route with optional content | by the dimmer, its session or the edge | until its answer has ended |
//! | elsewhere | like the first, but nobody is told | until the head of its answer |
//! | with a body of unknown or great length | like the first | as an arrival only |
//!
//! **Why others are decided too**: the law must see the load they are, and that dimming does not
//! make it less. So they get the same coin and ignore it, and their work is the same on both sides
//! of it. Counted as full ones, cheap pictures would make full pages look cheaper than lean ones.
//! **Why the end of the body**: pages that leave piece by piece compute their optional content
//! after the first piece. **When it misleads**: a client that reads a page longer than the buffers
//! of sockets slowly, or a stream that is open for minutes, makes the application look slow; leave
//! such paths out of `routes`. Uploads last as long as the client takes, so their time is not
//! looked at.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use evenkeel_core::Instant;
use evenkeel_core::dimmer::{
    Brownout, Choice, Content, DimmerState, End, Inflow, Ticket, place_of,
};
use evenkeel_core::units::Dimmer;
use http::HeaderValue;
use http::header::COOKIE;
use http_body::Body as _;

use crate::agent_state::{BrownoutState, InflowCounts};
use crate::brownout;
use crate::config::{DimmerConfig, Inbound, Session, Switch};
use crate::inflow::NoInflow;
use evenkeel_http::{self as engine, Body, FieldValue, Fields, Request, Response, SendError};
use evenkeel_runtime::clock::Clock;

/// Longest announced body of a request whose time is looked at.
const BODY_BYTES_MAX: u64 = 64 * 1024;

/// The dimmer of one application.
pub(super) struct Dimming {
    config: DimmerConfig,
    clock: Clock,
    brownout: RefCell<Brownout>,
    /// Values of `Brownout-Optional`, by the number of parts that are kept.
    decisions: Vec<HeaderValue>,
    switch: Cell<Switch>,
    /// Requests elsewhere that the coin would have served in full, and those it would not have.
    elsewhere: Cell<(u64, u64)>,
    /// Whether the application refused connections when it was last asked.
    is_refusing: Cell<bool>,
    inflows: Cell<InflowCounts>,
}

impl Dimming {
    pub(super) fn new(config: &DimmerConfig, clock: Clock, seed: u64) -> Rc<Dimming> {
        let parts = config.brownout.parts;
        let decision = |kept| brownout::write_decision(Content::new(kept, parts), &config.parts);
        let dimming = Dimming {
            decisions: (0..=parts).map(decision).collect(),
            brownout: RefCell::new(Brownout::new(config.brownout.clone(), clock.now(), seed)),
            switch: Cell::default(),
            elsewhere: Cell::default(),
            is_refusing: Cell::new(false),
            inflows: Cell::default(),
            config: config.clone(),
            clock,
        };
        dimming.set_switch(config.switch);
        Rc::new(dimming)
    }

    /// What a request says that a plan brings.
    pub(super) fn expect(&self, now: Instant, inflow: Result<Option<Inflow>, NoInflow>) {
        let mut counts = self.inflows.get();
        match inflow {
            Ok(None) => return,
            Ok(Some(inflow)) if self.brownout.borrow_mut().expect(now, inflow) => counts.taken += 1,
            Ok(Some(_)) => counts.old += 1,
            Err(NoInflow) => counts.invalid += 1,
        }
        self.inflows.set(counts);
    }

    /// A request arrives: decides what it is served and tells the application.
    pub(super) fn arrive(self: &Rc<Self>, now: Instant, request: &mut Request<Body>) -> Visit {
        let is_dimmable = self.is_dimmable(request.uri().path());
        let obeyed = self.inbound(request.headers()).filter(|_| is_dimmable);
        let choice = match obeyed {
            Some((content, _)) => Choice::Decided(content),
            None => self.choice(request.headers()),
        };
        let ticket = self.brownout.borrow_mut().arrive(now, choice);
        let content = ticket.content();
        // The edge may have left out parts that are not ours.
        let is_full = obeyed.map_or(content.is_full(), |(_, is_full)| is_full);
        self.tell(request.headers_mut(), is_dimmable.then_some(content), obeyed.is_some());
        if !is_dimmable {
            let (full, reduced) = self.elsewhere.get();
            let is_full = u64::from(content.is_full());
            self.elsewhere.set((full + is_full, reduced + 1 - is_full));
        }
        let visit = Visit { dimming: Rc::clone(self), ticket: Some(ticket), is_dimmable, is_full };
        if is_measurable(request.body()) { visit } else { visit.unmeasured(now) }
    }

    /// The dimmer in force.
    pub(super) fn dimmer(&self) -> Dimmer {
        self.brownout.borrow().dimmer()
    }

    /// Puts a hand on the dimmer, or takes it off.
    pub(super) fn set_switch(&self, switch: Switch) {
        self.switch.set(switch);
        self.brownout.borrow_mut().hold(switch.holds());
    }

    /// How it stands; requests elsewhere are not among those it counts.
    pub(super) fn stands(&self) -> BrownoutState {
        let state = self.brownout.borrow().state();
        let (full, reduced) = self.elsewhere.get();
        let state = DimmerState {
            full: state.full.saturating_sub(full),
            reduced: state.reduced.saturating_sub(reduced),
            ..state
        };
        BrownoutState { state, switch: self.switch.get(), inflows: self.inflows.get() }
    }

    /// Takes every control step when it is due: somebody reads the dimmer of an idle replica.
    pub(super) async fn keep_time(self: Rc<Self>) {
        let mut is_doubted = false;
        loop {
            let due = self.clock.std_instant(self.brownout.borrow().due());
            tokio::time::sleep_until(due.into()).await;
            self.brownout.borrow_mut().tick(self.clock.now());
            let state = self.brownout.borrow().state();
            if is_doubted != state.cores_seen.is_some() {
                is_doubted = !is_doubted;
                tracing::warn!(
                    cores = state.cores,
                    cores_seen = state.cores_seen,
                    "dimmer: requests in service {} each other as with so many cores",
                    if is_doubted { "do not slow" } else { "slow" }
                );
            }
        }
    }

    fn is_dimmable(&self, path: &str) -> bool {
        let routes = &self.config.routes;
        routes.is_empty() || routes.iter().any(|route| path.starts_with(route.as_str()))
    }

    /// What the edge decided, if it is to be obeyed, and whether that is everything.
    fn inbound(&self, headers: &Fields) -> Option<(Content, bool)> {
        if self.config.inbound == Inbound::Decide {
            return None;
        }
        let decision = brownout::decision(headers)?;
        Some((decision.content(&self.config.parts), decision.is_full()))
    }

    fn choice(&self, headers: &Fields) -> Choice {
        let session = match &self.config.session {
            None => None,
            Some(Session::Cookie(name)) => cookie(headers, name.as_bytes()),
            Some(Session::Header(name)) => headers.get(name).map(FieldValue::as_bytes),
        };
        let session = session.filter(|session| !session.is_empty());
        session.map_or(Choice::Coin, |session| Choice::Session(place_of(session)))
    }

    /// Leaves exactly one decision in the request, or none.
    fn tell(&self, headers: &mut Fields, content: Option<Content>, is_obeyed: bool) {
        let inbound = if is_obeyed { headers.take(brownout::OPTIONAL) } else { None };
        brownout::strip_decision(headers);
        let Some(content) = content else { return };
        let kept = content.share() * f64::from(self.config.brownout.parts);
        let own = || self.decisions[kept.round() as usize].clone();
        headers.insert(brownout::OPTIONAL, &inbound.unwrap_or_else(own));
    }

    /// The application answered: if it was away before, it began anew.
    fn heard(&self, now: Instant) {
        if self.is_refusing.replace(false) {
            self.brownout.borrow_mut().restarted(now);
        }
    }
}

/// A request at the application. One that goes out of scope was given up by its client.
pub(super) struct Visit {
    dimming: Rc<Dimming>,
    /// `None` once it has ended.
    ticket: Option<Ticket>,
    is_dimmable: bool,
    /// Whether it was decided that nothing is left out.
    is_full: bool,
}

impl Visit {
    /// Whether the application was told to leave something out.
    pub(super) const fn is_reduced(&self) -> bool {
        self.is_dimmable && !self.is_full
    }

    /// It is handed to the application.
    pub(super) fn begin(&mut self, now: Instant) {
        if let Some(ticket) = &mut self.ticket {
            self.dimming.brownout.borrow_mut().begin(now, ticket);
        }
    }

    /// The head of its answer is here. The answer says no more of itself than it should, and its
    /// end is the end of the visit, of which `ended` is told.
    pub(super) fn answered(
        mut self,
        now: Instant,
        mut response: Response<Body>,
        ended: impl FnOnce(engine::End) + 'static,
    ) -> Response<Body> {
        let (status, headers) = (response.status(), response.headers_mut());
        brownout::translate_served(headers);
        let said = brownout::served(headers, &self.dimming.config.parts);
        let is_full = said.map_or(self.is_full, |said| said.is_full);
        if self.is_dimmable && !is_full {
            brownout::forbid_storing(status, headers);
        }
        if status.is_server_error() {
            self.end(now, End::Failed);
        } else {
            self.dimming.heard(now);
        }
        let served = End::Answered(said.map(|said| said.content).filter(|_| self.is_dimmable));
        if !self.is_dimmable || response.body().is_complete() {
            self.end(now, served);
        }
        response.map(|body| {
            body.on_end(move |end| {
                ended(end);
                let how = match end {
                    engine::End::Complete => served,
                    engine::End::GrpcStatus(status) if engine::grpc::is_failure(status) => {
                        End::Failed
                    }
                    engine::End::GrpcStatus(_) => served,
                    engine::End::Broken => End::Failed,
                    engine::End::Abandoned => End::GivenUp,
                };
                if self.ticket.is_some() {
                    self.end(self.dimming.clock.now(), how);
                }
            })
        })
    }

    /// There was no answer in time.
    pub(super) fn timed_out(mut self, now: Instant) {
        self.end(now, End::GivenUp);
    }

    /// It was refused, or the application broke off.
    pub(super) fn failed(mut self, now: Instant, why: Option<&SendError>) {
        // Other errors of connecting (no ports, no descriptors left) are this machine's.
        if why.is_some_and(SendError::is_refused) {
            self.dimming.is_refusing.set(true);
        }
        self.end(now, End::Failed);
    }

    /// Decided for, but neither its time nor its work is looked at.
    fn unmeasured(mut self, now: Instant) -> Visit {
        self.end(now, End::Failed);
        self
    }

    fn end(&mut self, now: Instant, how: End) {
        if let Some(ticket) = self.ticket.take() {
            self.dimming.brownout.borrow_mut().end(now, ticket, how);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.end(self.dimming.clock.now(), End::GivenUp);
        }
    }
}

/// Whether the body cannot take long to come.
fn is_measurable(body: &Body) -> bool {
    body.is_complete() || body.size_hint().upper().is_some_and(|bytes| bytes <= BODY_BYTES_MAX)
}

/// The value of the first cookie of this name.
fn cookie<'a>(headers: &'a Fields, name: &[u8]) -> Option<&'a [u8]> {
    let lines = headers.get_all(COOKIE);
    let mut pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evenkeel_core::dimmer::BrownoutConfig;

    use super::*;

    /// A dimmer held at this value, with a period beyond any test.
    fn held_at(value: f64, change: impl FnOnce(&mut DimmerConfig)) -> Rc<Dimming> {
        let brownout =
            BrownoutConfig { period: Duration::from_secs(3_600), ..BrownoutConfig::default() };
        let mut config = DimmerConfig {
            brownout,
            parts: Vec::new(),
            session: None,
            inbound: Inbound::Decide,
            routes: Vec::new(),
            switch: Switch::Auto,
        };
        change(&mut config);
        let dimming = Dimming::new(&config, Clock::start(), 7);
        dimming.brownout.borrow_mut().hold(Some(Dimmer::clamped(value)));
        dimming
    }

    /// What a request with this header would be told.
    fn reported(dimming: &Rc<Dimming>, name: &'static str, value: &str) -> String {
        let request = http::Request::get("/item/1").header(name, value);
        let mut request = Request::from(request.body(Body::empty()).unwrap());
        drop(dimming.arrive(Instant::ZERO, &mut request));
        let decisions = request.headers().get_all(brownout::OPTIONAL);
        let decisions: Vec<_> = decisions.map(|value| value.to_str().unwrap()).collect();
        decisions.join(" and ")
    }

    #[test]
    fn parts_go_in_their_order_and_on_average_as_many_as_the_dimmer_says() {
        let dimming = held_at(0.75, |config| {
            config.parts = ["recommendations", "comments"].map(str::to_owned).to_vec();
            config.brownout.parts = 2;
        });
        let all: Vec<String> = (0..4_000).map(|_| reported(&dimming, "x-y", "z")).collect();
        let (full, one): (Vec<_>, Vec<_>) = all.iter().partition(|reported| *reported == "?1");
        assert!(one.iter().all(|reported| *reported == "?0;recommendations"), "{one:?}");
        // Binomial(4000, 0.5): standard deviation 32; four of them.
        assert!(full.len().abs_diff(2_000) < 127, "{}", full.len());
    }

    #[test]
    fn a_session_is_served_alike_and_others_by_a_coin() {
        let by_cookie = |config: &mut DimmerConfig| {
            config.session = Some(Session::Cookie("sid".to_owned()));
        };
        let dimming = held_at(0.5, by_cookie);
        let of = |sid: u32| reported(&dimming, "cookie", &format!("a=1; sid=s{sid}"));
        let first: Vec<String> = (0..400).map(of).collect();
        assert_eq!(first, (0..400).map(of).collect::<Vec<_>>(), "no page flickers");
        let full = first.iter().filter(|reported| *reported == "?1").count();
        // Binomial(400, 0.5): standard deviation 10; four of them.
        assert!(full.abs_diff(200) < 40, "{full}");
        // Whoever was served in full at 0.5 is so at 0.7: the place is the session's own.
        let more = held_at(0.7, by_cookie);
        for (sid, told_before) in (0..400).zip(&first) {
            let told_now = reported(&more, "cookie", &format!("sid=s{sid}"));
            assert!(told_before == "?0" || told_now == "?1", "session {sid}");
        }
        for no_session in ["a=1", "sid="] {
            let coins: Vec<_> = (0..64).map(|_| reported(&dimming, "cookie", no_session)).collect();
            assert!(coins.contains(&"?1".to_owned()) && coins.contains(&"?0".to_owned()));
        }
        let by_header = |config: &mut DimmerConfig| {
            config.session = Some(Session::Header(http::HeaderName::from_static("x-user")));
        };
        let dimming = held_at(0.5, by_header);
        let of = |user: u32| reported(&dimming, "x-user", &format!("s{user}"));
        assert_eq!((0..400).map(of).collect::<Vec<_>>(), first, "it is the value that counts");
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = Fields::new();
        headers.append(COOKIE, &HeaderValue::from_static("a=1; asid=2;sid=x=y; sid=z"));
        headers.append(COOKIE, &HeaderValue::from_static("b=\"q\""));
        let found = |name: &str| cookie(&headers, name.as_bytes());
        assert_eq!(found("sid"), Some(&b"x=y"[..]));
        assert_eq!((found("a"), found("b")), (Some(&b"1"[..]), Some(&b"\"q\""[..])));
        assert_eq!((found("si"), found("c")), (None, None));
    }
}
