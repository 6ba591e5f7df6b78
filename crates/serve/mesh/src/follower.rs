//! A follower: a further process of a site, which takes its part of what the controller plans.
//!
//! It has no mesh: it dials the controller, shows the certificate of the same site, tells what its
//! workers counted five times a second, and hands every plan that it is told to its own workers.
//! Without the controller its last plan goes stale after two epochs, as any plan does, and all its
//! requests stay at home until the controller is back.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_geo::epoch::{RATE_MAX, SiteId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::client::TlsStream;

use super::dial::reach;
use super::frame::{Frame, Nonsense};
use super::hub::{Refusal, Refusals, Traffic, is_worth_telling, unix_ns};
use super::identity::Identity;
use super::message::{Counts, Hello, PlanPart, WORKERS_MAX};
use super::pace::Backoff;
use super::settings::{Unlike, of_objective, of_sites, of_writes};
use super::state::{AlarmState, ControllerState, CountsState, RedirectState, SiteState};
use super::wire::{Ended, Inbox, Metered, Never, write};
use super::{Files, Home, wrong};
use evenkeel_geo::demand::SplitTally;
use evenkeel_geo::traffic::Directive;
use evenkeel_runtime::accept::first;
use evenkeel_runtime::clock::Clock;
use evenkeel_settings::address::ServerAddress;

/// As often as workers hand up what they counted.
const COUNTS_EVERY: Duration = Duration::from_millis(200);
/// How often people get a new picture, at least.
const PICTURE_EVERY: Duration = Duration::from_secs(1);
/// No plan is good for longer: two of the longest periods, and a little.
const GOOD_MAX: Duration = Duration::from_secs(3 * 3_600);
/// Alarms kept for people.
const ALARMS_KEPT: usize = 64;

/// What a follower is made of.
#[derive(Clone, Debug)]
pub struct FollowerConfig {
    /// The site this is.
    pub site: SiteId,
    /// The names of all sites, as the controller has them.
    pub names: Vec<String>,
    /// The objective, as the controller has it.
    pub objective: Duration,
    /// Whether writes stay where they come, as the controller has it.
    pub writes_stay: bool,
    /// Where the mesh of the controller listens.
    pub controller: ServerAddress,
    /// The certificates; those of the site.
    pub files: Files,
    /// How often the files are looked at; default 30 s.
    pub reload_every: Duration,
}

/// A follower, ready to run.
pub struct Follower {
    config: FollowerConfig,
    identity: Identity,
    state: watch::Sender<Arc<RedirectState>>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Companion").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Follower {
    /// A follower of a controller. Reads and checks the certificates.
    ///
    /// # Errors
    /// When the site is none of the sites or the controller could not believe the certificates,
    /// with the file and the likely cause.
    pub fn open(config: FollowerConfig) -> io::Result<Self> {
        if config.site.index() >= config.names.len() {
            return Err(wrong("the site is none of the sites"));
        }
        let identity = config.files.load(&config.names, config.site)?;
        Ok(Self { config, identity, state: watch::Sender::new(Arc::default()) })
    }

    /// How it stands, as that changes.
    pub fn state(&self) -> watch::Receiver<Arc<RedirectState>> {
        self.state.subscribe()
    }

    /// Runs until `stop`. Call it in a worker runtime, best in one of its own.
    ///
    /// # Errors
    /// Never, as long as it goes on.
    pub async fn run(
        self,
        clock: Clock,
        home: Rc<dyn Home>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let Self { config, identity, state } = self;
        // Each RandomState is keyed by the operating system's randomness.
        let run = RandomState::new().hash_one(unix_ns());
        let desk = Desk {
            config,
            clock,
            home,
            run,
            state,
            identity: RefCell::new((0, Arc::new(identity))),
            traffic: Rc::default(),
            reported: RefCell::default(),
            is_heard: Cell::new(false),
            counted: Cell::default(),
            unmade: Cell::new([0; Refusal::ALL.len()]),
            rejected: RefCell::default(),
            alarms: RefCell::default(),
        };
        let reloading = async {
            loop {
                tokio::time::sleep(desk.config.reload_every).await;
                desk.reload();
            }
        };
        let showing = async {
            loop {
                desk.picture();
                tokio::time::sleep(PICTURE_EVERY).await;
            }
        };
        let going = first(first(keep(&desk), reloading), showing);
        first(going, stop).await;
        Ok(())
    }
}

/// What all parts of a follower share.
struct Desk {
    config: FollowerConfig,
    clock: Clock,
    home: Rc<dyn Home>,
    run: u64,
    state: watch::Sender<Arc<RedirectState>>,
    identity: RefCell<(u64, Arc<Identity>)>,
    traffic: Rc<Traffic>,
    reported: RefCell<Option<PlanPart>>,
    is_heard: Cell<bool>,
    counted: Cell<Counted>,
    unmade: Cell<Refusals>,
    rejected: RefCell<BTreeMap<&'static str, u64>>,
    alarms: RefCell<VecDeque<AlarmState>>,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    plans: u64,
    lost: u64,
    reloads_failed: u64,
    alarms: u64,
}

/// Keeps the connection to the controller for as long as it is polled.
async fn keep(desk: &Desk) {
    let mut backoff = Backoff::new(desk.run);
    let (site, names) = (desk.config.site, &desk.config.names);
    loop {
        let (generation, identity) = desk.identity.borrow().clone();
        let connector = identity.connector.clone();
        match reach(connector, &desk.traffic, desk.config.controller, (site, names)).await {
            Ok(stream) => {
                let ended = converse(desk, generation, stream).await;
                let was_heard = desk.is_heard.replace(false);
                if was_heard {
                    backoff.succeeded();
                }
                desk.part_from_controller(was_heard, &ended);
                desk.picture();
                if matches!(ended, Ended::Renewed) {
                    continue;
                }
            }
            Err((refusal, why)) => desk.unmade(refusal, &why),
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

async fn converse(desk: &Desk, generation: u64, stream: TlsStream<Metered>) -> Ended {
    let (mut input, mut output) = tokio::io::split(stream);
    let listening =
        async { listen(desk, &mut input).await.expect_err("it listens until the connection ends") };
    let speaking = async {
        let ended = speak(desk, generation, &mut output).await;
        ended.expect_err("it speaks until the connection ends")
    };
    first(listening, speaking).await
}

async fn listen(desk: &Desk, input: &mut (impl AsyncRead + Unpin)) -> Result<Never, Ended> {
    let mut inbox = Inbox::of_followers();
    loop {
        inbox.fill(input).await?;
        while let Some(frame) = inbox.next()? {
            match frame {
                Frame::Echo { .. } => {
                    if !desk.is_heard.replace(true) {
                        let controller = desk.config.controller;
                        tracing::info!(%controller, "redirect: controller connected");
                    }
                }
                Frame::PlanPart(reported) => desk.receive(reported),
                Frame::Unlike(code) => desk.receive_unlike(code),
                _ => return Err(Nonsense::Unexpected { came: frame.name() }.into()),
            }
        }
    }
}

async fn speak(
    desk: &Desk,
    generation: u64,
    output: &mut (impl AsyncWrite + Unpin),
) -> Result<Never, Ended> {
    let tally = desk.home.counts();
    let hello = Hello {
        run: desk.run,
        workers: workers(&tally).clamp(1, WORKERS_MAX),
        sites: of_sites(&desk.config.names),
        objective: of_objective(desk.config.objective),
        writes: of_writes(desk.config.writes_stay),
    };
    let mut bytes = Frame::Hello(&hello.bytes()).bytes();
    let mut sequence = 0;
    loop {
        sequence += 1;
        let counts = Counts::of(&desk.home.counts(), desk.home.ended(), desk.config.site.index());
        Frame::Counts(&counts.bytes()).put(&mut bytes);
        Frame::Probe { sequence }.put(&mut bytes);
        write(output, &bytes).await?;
        bytes.clear();
        tokio::time::sleep(COUNTS_EVERY).await;
        if desk.identity.borrow().0 != generation {
            return Err(Ended::Renewed);
        }
    }
}

/// All workers that there may be: what comes through other data planes is behind them.
fn workers(tally: &SplitTally) -> usize {
    tally.workers.len().max(tally.counted_at.len())
}

impl Desk {
    /// Takes a plan, when it can be one.
    fn receive(&self, reported: &[u8]) {
        let now = self.clock.now();
        let reported = match PlanPart::read(now, reported) {
            Ok(reported) => reported,
            Err(expected) => {
                return self.reject("malformed", &format!("expected {expected}"));
            }
        };
        let row = &reported.row;
        let sites = self.config.names.len();
        if row.origin != self.config.site || row.rates_per_1000_s.len() != sites {
            return self.reject("for-another", "a plan of another site");
        }
        let mut rates = row.rates_per_1000_s.iter().chain(&reported.spare_per_1000_s);
        let parts: f64 = reported.parts.iter().map(|part| part.value()).sum();
        let is_possible = row.demand_per_1000_s <= RATE_MAX && rates.all(|rate| *rate <= RATE_MAX);
        if !is_possible || parts > 1.0 + 1e-6 || reported.good_until > now + GOOD_MAX {
            return self.reject("out-of-range", "a plan that cannot be");
        }
        let before = self.reported.borrow().as_ref().map(|reported| reported.row.epoch);
        let is_in_force =
            self.reported.borrow().as_ref().is_some_and(|reported| reported.good_until > now);
        if is_in_force && before >= Some(row.epoch) {
            return self.reject("stale", "a plan that is not newer than the one in force");
        }
        self.home.direct(Directive {
            row: row.clone(),
            parts: reported.parts.clone(),
            good_until: reported.good_until,
            spare_per_1000_s: reported.spare_per_1000_s.clone(),
            hedges: reported.hedges,
            inflow: reported.inflow,
        });
        *self.reported.borrow_mut() = Some(reported);
        self.count(|counted| counted.plans += 1);
        self.picture();
    }

    fn receive_unlike(&self, code: &[u8]) {
        let unlike = match code {
            [code] => Unlike::of(*code),
            _ => None,
        };
        let differs = unlike.map_or("something set otherwise", Unlike::name);
        let words = format!("this process has {differs} than the controller and gets no plans");
        self.reject("other-settings", &words);
    }

    fn reject(&self, reason: &'static str, words: &str) {
        let mut rejected = self.rejected.borrow_mut();
        let times = rejected.entry(reason).or_default();
        *times += 1;
        if is_worth_telling(*times) {
            self.tell(format!("rejected from the controller, {times} times so far: {words}"));
        }
    }

    fn part_from_controller(&self, was_heard: bool, ended: &Ended) {
        if let Ended::Nonsense(nonsense) = ended {
            self.reject(nonsense.name(), &nonsense.to_string());
        }
        match ended {
            Ended::Renewed => {}
            _ if was_heard => {
                self.count(|counted| counted.lost += 1);
                self.tell(format!(
                    "the controller at {} is lost ({ended:?}): its last plan stays for two epochs, \
                     then all requests stay here",
                    self.config.controller
                ));
            }
            // A controller that refuses our certificate says so by closing.
            _ if self.rejected.borrow().is_empty() => {
                let why = "closed before any message (is our certificate trusted?)";
                self.unmade(Refusal::Tls, why);
            }
            _ => {}
        }
    }

    fn unmade(&self, refusal: Refusal, why: &str) {
        let mut unmade = self.unmade.get();
        unmade[refusal as usize] += 1;
        self.unmade.set(unmade);
        let times = unmade[refusal as usize];
        if is_worth_telling(times) {
            let name = refusal.name();
            self.tell(format!(
                "no connection to the controller, {name} ({times} times so far): {why}"
            ));
        }
    }

    fn reload(&self) {
        let (generation, present) = self.identity.borrow().clone();
        let FollowerConfig { files, names, site, .. } = &self.config;
        match files.reload(&present, names, *site) {
            Ok(None) => {}
            Ok(Some(identity)) => {
                *self.identity.borrow_mut() = (generation + 1, Arc::new(identity));
                self.tell("certificates have changed: the connection is made anew".to_owned());
            }
            Err(error) => {
                self.count(|counted| counted.reloads_failed += 1);
                if is_worth_telling(self.counted.get().reloads_failed) {
                    self.tell(format!("changed certificates are not taken: {error}"));
                }
            }
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counted)) {
        let mut counted = self.counted.get();
        change(&mut counted);
        self.counted.set(counted);
    }

    fn tell(&self, words: String) {
        tracing::warn!(site = self.config.names[self.config.site.index()], "redirect: {words}");
        self.count(|counted| counted.alarms += 1);
        let mut alarms = self.alarms.borrow_mut();
        alarms.retain(|kept| kept.words != words);
        if alarms.len() == ALARMS_KEPT {
            alarms.pop_front();
        }
        alarms.push_back(AlarmState { unix_ms: unix_ns() / 1_000_000, words });
    }

    /// Shows people how all stands.
    fn picture(&self) {
        let (reported, counted) = (self.reported.borrow(), self.counted.get());
        let reported = reported.as_ref();
        let is_in_force = reported.is_some_and(|reported| reported.good_until > self.clock.now());
        let rate = |index: usize| {
            let rates = &reported.filter(|_| is_in_force)?.row.rates_per_1000_s;
            rates.get(index).map(|rate| *rate as f64 * 1e-3)
        };
        let site = |(index, name): (usize, &String)| SiteState {
            name: name.clone(),
            standing: "through-controller",
            rate_per_s: rate(index),
            ..SiteState::default()
        };
        let unmade = Refusal::ALL.map(Refusal::name).into_iter().zip(self.unmade.get());
        let controller = ControllerState {
            address: self.config.controller.to_string(),
            is_heard: self.is_heard.get(),
            epoch: reported.map(|reported| reported.row.epoch),
            is_in_force,
            part_ratio: reported
                .map(|reported| reported.parts.iter().map(|part| part.value()).sum()),
            settings: reported.map(|reported| format!("{:08x}", reported.settings)),
            plans: counted.plans,
            lost: counted.lost,
            rejected: self.rejected.borrow().clone(),
            unmade: unmade.filter(|(_, count)| *count > 0).collect(),
        };
        self.state.send_replace(Arc::new(RedirectState {
            site: self.config.names[self.config.site.index()].clone(),
            objective_ms: self.config.objective.as_secs_f64() * 1e3,
            sites: self.config.names.iter().enumerate().map(site).collect(),
            alarms: self.alarms.borrow().iter().cloned().collect(),
            controller: Some(controller),
            counts: CountsState {
                alarms: counted.alarms,
                bytes_sent: self.traffic.sent.get(),
                bytes_received: self.traffic.received.get(),
                certificates_replaced: self.identity.borrow().0,
                certificates_failed: counted.reloads_failed,
                ..CountsState::default()
            },
            ..RedirectState::default()
        }));
    }
}
