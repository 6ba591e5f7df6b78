//! The mover against a cluster that does as it is told, or not.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use evenkeel_planner::model::Layout;
use evenkeel_planner::steps::{Abilities, Step};

use super::audit::Audit;
use super::lock::FileLock;
use super::mover::{Mode, Mover, Order, Outcome, Rules};
use super::window::Window;
use super::{Cluster, Observed, Seen};
use evenkeel_runtime::accept::worker_runtime;
use evenkeel_stores::clients::error::RemoteError;
use evenkeel_testkit::disk::SmallDisk;
use evenkeel_testkit::folder::Folder;

/// What goes wrong, counted in requests for steps from 0.
#[derive(Default)]
struct Plot {
    /// Refused for good, once.
    refused: Option<usize>,
    /// Refused for now, once.
    delayed: Option<usize>,
    /// After it a site is ill.
    ill_after: Option<(usize, usize)>,
    /// Accepted, and seen only after so many looks.
    seen_late: usize,
    /// The hold is lost before it.
    hold_lost: Option<usize>,
    /// Nobody can move the leader, and after it an election makes this site the leader.
    elected_after: Option<(usize, usize)>,
    /// After so many requests and looks the leader is this site, by an election.
    bounces: Option<(usize, usize, usize)>,
}

struct Store {
    layout: RefCell<Layout>,
    asked: RefCell<Vec<Step>>,
    ill: Cell<Option<usize>>,
    coming: Cell<Option<(usize, Step)>>,
    /// Looks since the last request.
    looks: Cell<usize>,
    plot: Plot,
    lock: PathBuf,
}

impl Store {
    fn new(name: &str, plot: Plot) -> Self {
        let path = format!("evenkeel-mover-{name}-{}", std::process::id());
        Self {
            layout: RefCell::new(layout(0, &[0, 1, 2])),
            asked: RefCell::default(),
            ill: Cell::new(None),
            coming: Cell::new(None),
            looks: Cell::new(0),
            plot,
            lock: std::env::temp_dir().join(path),
        }
    }

    fn audit(&self) -> PathBuf {
        self.lock.with_extension("jsonl")
    }

    /// Events and steps that were written down.
    fn events(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.audit()).unwrap();
        let read = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let of = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            assert_eq!((of("who"), of("why")), ("somebody".to_owned(), "a reason".to_owned()));
            format!("{} {}", of("event"), of("step")).trim().to_owned()
        };
        text.lines().map(read).collect()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.lock);
        let _ = std::fs::remove_file(self.audit());
    }
}

impl Cluster for Store {
    type Hold = FileLock;

    fn name(&self) -> &str {
        "store"
    }

    fn site_name(&self, site: usize) -> String {
        format!("s{site}")
    }

    fn abilities(&self) -> Abilities {
        Abilities { move_leader: self.plot.elected_after.is_none(), ..Abilities::ALL }
    }

    fn is_reached(&self, seen: &Layout, wanted: &Layout) -> bool {
        let elects = self.plot.elected_after.is_some();
        (elects || seen.leader() == wanted.leader())
            && (seen.voters(), seen.replicas()) == (wanted.voters(), wanted.replicas())
    }

    async fn observe(&self) -> Result<Observed, RemoteError> {
        if let Some((looks, step)) = self.coming.take() {
            if looks > 0 {
                self.coming.set(Some((looks - 1, step)));
            } else {
                let mut next = step.after(&self.layout.borrow()).unwrap();
                if let Some((after, site)) = self.plot.elected_after
                    && after + 1 == self.asked.borrow().len()
                {
                    next = next.led_by(site).unwrap();
                }
                self.layout.replace(next);
            }
        }
        let looks = self.looks.replace(self.looks.get() + 1);
        if let Some((asked, at, site)) = self.plot.bounces
            && (asked, at) == (self.asked.borrow().len(), looks)
        {
            let led = self.layout.borrow().led_by(site).unwrap();
            self.layout.replace(led);
        }
        let layout = self.layout.borrow().clone();
        let seen = |site| {
            let ill = (self.ill.get() == Some(site)).then(|| "its disk is full".to_owned());
            layout.has_replica(site).then_some(Seen { ill, lag: 0 })
        };
        Ok(Observed { replicas: (0..6).map(seen).collect(), layout })
    }

    async fn say(&self, step: Step) -> String {
        format!("please {}", self.words(step))
    }

    async fn apply(&self, step: Step) -> Result<(), RemoteError> {
        let number = self.asked.borrow().len();
        self.asked.borrow_mut().push(step);
        self.looks.set(0);
        if self.plot.refused == Some(number) {
            return Err(RemoteError::lasting("no"));
        }
        if self.plot.delayed == Some(number) {
            return Err(RemoteError::passing("later"));
        }
        if let Some((_, site)) = self.plot.ill_after.filter(|(after, _)| *after == number) {
            self.ill.set(Some(site));
        }
        self.coming.set(Some((self.plot.seen_late, step)));
        Ok(())
    }

    async fn hold(&self, who: &str) -> Result<FileLock, RemoteError> {
        FileLock::take(&self.lock, who)
    }

    async fn keep(&self, _: &FileLock) -> Result<(), RemoteError> {
        match self.plot.hold_lost {
            Some(number) if number <= self.asked.borrow().len() => {
                Err(RemoteError::lasting("held no more"))
            }
            _ => Ok(()),
        }
    }

    async fn release(&self, hold: FileLock) {
        drop(hold);
    }
}

const RULES: Rules = Rules {
    step: Duration::from_millis(300),
    poll: Duration::from_millis(1),
    lag_max: 10,
    window: None,
};

fn layout(leader: usize, voters: &[usize]) -> Layout {
    Layout::new(leader, voters.to_vec(), voters.to_vec()).unwrap()
}

fn run_with(store: &Store, mode: Mode, rules: Rules, audit: &Path) -> Result<Outcome, RemoteError> {
    run_to(store, &layout(3, &[1, 2, 3]), mode, rules, audit)
}

fn run_to(
    store: &Store,
    goal: &Layout,
    mode: Mode,
    rules: Rules,
    audit: &Path,
) -> Result<Outcome, RemoteError> {
    let audit = Audit::open(audit).unwrap();
    let mover = Mover { cluster: store, rules, audit: &audit };
    worker_runtime().unwrap().block_on(mover.run(&order(goal, mode)))
}

fn order(goal: &Layout, mode: Mode) -> Order<'_> {
    Order { from: None, goal, who: "somebody", why: "a reason", mode }
}

fn run(store: &Store, mode: Mode) -> Result<Outcome, RemoteError> {
    run_with(store, mode, RULES, &store.audit())
}

/// The way to the goal, as core plans it.
const WAY: [Step; 5] = [
    Step::AddReplica(3),
    Step::Promote(3),
    Step::MoveLeader { from: 0, to: 3 },
    Step::Demote(0),
    Step::RemoveReplica(0),
];

#[test]
fn a_dry_run_says_every_request_and_makes_none() {
    let store = Store::new("dry", Plot::default());
    let Ok(Outcome::WouldDo(planned)) = run(&store, Mode::default()) else { panic!("it acts") };
    let steps: Vec<Step> = planned.iter().map(|one| one.step).collect();
    assert_eq!(steps, WAY);
    assert_eq!(planned[1].how, "please let the replica at s3 vote");
    assert!(store.asked.borrow().is_empty());
    assert_eq!(store.events()[0], "would-do add a replica at s3");
}

#[test]
fn what_was_changed_since_the_decision_is_not_undone() {
    let store = Store::new("since", Plot::default());
    let (goal, decided_about) = (layout(3, &[1, 2, 3]), layout(0, &[0, 1, 2, 4]));
    let order = Order {
        from: Some(&decided_about),
        goal: &goal,
        who: "somebody",
        why: "a reason",
        mode: Mode::Act,
    };
    let audit = Audit::open(&store.audit()).unwrap();
    let mover = Mover { cluster: &store, rules: RULES, audit: &audit };
    let refused = worker_runtime().unwrap().block_on(mover.run(&order)).unwrap_err();
    assert!(refused.message.contains("changed since it was decided about"), "{refused}");
    assert!(store.asked.borrow().is_empty());
}

#[test]
fn a_plan_is_run_step_by_step_and_written_down() {
    let store = Store::new("run", Plot { delayed: Some(1), seen_late: 3, ..Plot::default() });
    // However long this machine takes for what is not yet seen.
    let patient = Rules { step: Duration::from_secs(10), ..RULES };
    let reached = run_with(&store, Mode::Act, patient, &store.audit());
    assert_eq!(reached, Ok(Outcome::Reached(WAY.to_vec())));
    assert_eq!(*store.layout.borrow(), layout(3, &[1, 2, 3]));
    // What was only delayed is asked again, what is only not yet seen is not.
    let mut asked = WAY.to_vec();
    asked.insert(1, WAY[1]);
    assert_eq!(*store.asked.borrow(), asked);
    let events = store.events();
    assert_eq!(events[..3], ["starts", "begins add a replica at s3", "done add a replica at s3"]);
    assert_eq!(
        events[5..7],
        ["begins move the leader from s0 to s3", "done move the leader from s0 to s3"]
    );
    assert_eq!(events.last().unwrap(), "reached");
    FileLock::take(&store.lock, "the next").unwrap();
    assert_eq!(run(&store, Mode::Act), Ok(Outcome::Nothing));
}

#[test]
fn a_step_that_is_refused_is_the_last_and_all_before_it_is_taken_back() {
    for number in 0..WAY.len() {
        let store = Store::new("refused", Plot { refused: Some(number), ..Plot::default() });
        let Ok(Outcome::Stopped(stop)) = run(&store, Mode::Act) else { panic!("it goes on") };
        assert_eq!((&stop.done[..], stop.at), (&WAY[..number], Some(WAY[number])));
        assert_eq!((stop.why.as_str(), &stop.stuck), ("no", &None), "{stop}");
        assert_eq!(*store.layout.borrow(), layout(0, &[0, 1, 2]));
        assert_eq!(stop.back.len(), number);
        assert!(stop.to_string().contains("the cluster is where it began"), "{stop}");
        assert!(store.events().last().unwrap().starts_with("stopped"));
        FileLock::take(&store.lock, "the next").unwrap();
    }
}

#[test]
fn a_voter_that_falls_ill_stops_the_plan_and_is_not_asked_to_lead() {
    // The old leader falls ill when the new one takes over: back it can only go without it.
    let store = Store::new("ill", Plot { ill_after: Some((2, 0)), ..Plot::default() });
    let Ok(Outcome::Stopped(stop)) = run(&store, Mode::Act) else { panic!("it goes on") };
    assert!(stop.why.contains("s0: its disk is full"), "{stop}");
    assert!(stop.stuck.as_ref().unwrap().contains("s0 cannot lead"), "{stop}");
    assert_eq!(stop.layout.as_ref(), Some(&*store.layout.borrow()));
    assert_eq!(store.layout.borrow().leader(), 3);
}

/// A vote goes from site 2 to site 3, as what an election made of it says.
fn vote_moves(name: &str, plot: Plot) -> (Outcome, Layout) {
    let store = Store::new(name, plot);
    let goal = layout(0, &[0, 1, 3]);
    let outcome = run_to(&store, &goal, Mode::Act, RULES, &store.audit()).unwrap();
    let layout = store.layout.borrow().clone();
    (outcome, layout)
}

#[test]
fn an_election_during_a_move_of_votes_is_no_reason_to_stop() {
    let plot = Plot { elected_after: Some((1, 1)), ..Plot::default() };
    let (outcome, seen) = vote_moves("elected", plot);
    let way =
        [Step::AddReplica(3), Step::Promote(3), Step::Demote(2), Step::RemoveReplica(2)].to_vec();
    assert_eq!(outcome, Outcome::Reached(way));
    assert_eq!(seen, layout(1, &[0, 1, 3]));
}

#[test]
fn what_is_taken_back_is_led_by_whom_an_election_chose() {
    // The third step is refused; by then site 1 leads.
    let plot = Plot { refused: Some(2), elected_after: Some((1, 1)), ..Plot::default() };
    let (outcome, seen) = vote_moves("elected-back", plot);
    let Outcome::Stopped(stop) = outcome else { panic!("{outcome:?}") };
    assert_eq!((&stop.stuck, stop.elected), (&None, Some(1)), "{stop}");
    assert_eq!(stop.back, [Step::Demote(3), Step::RemoveReplica(3)]);
    assert!(stop.to_string().contains("an election made s1 the leader"), "{stop}");
    assert_eq!(seen, layout(1, &[0, 1, 2]));

    // Who is elected keeps its vote: the step that would take it is not asked for.
    let plot = Plot { elected_after: Some((1, 2)), ..Plot::default() };
    let (outcome, seen) = vote_moves("elected-out", plot);
    let Outcome::Stopped(stop) = outcome else { panic!("{outcome:?}") };
    assert!(stop.why.contains("move the leader (s0), which this system cannot do"), "{stop}");
    assert_eq!((stop.at, &stop.stuck, stop.elected), (None, &None, Some(2)), "{stop}");
    assert_eq!(seen, layout(2, &[0, 1, 2]));

    // Led by a site that did not vote before, it cannot go back, and says so.
    let plot = Plot { refused: Some(2), elected_after: Some((1, 3)), ..Plot::default() };
    let (outcome, seen) = vote_moves("elected-new", plot);
    let Outcome::Stopped(stop) = outcome else { panic!("{outcome:?}") };
    assert!(stop.stuck.as_ref().unwrap().contains("could not go back"), "{stop}");
    assert_eq!(seen, layout(3, &[0, 1, 2, 3]));
}

#[test]
fn a_leader_that_bounces_is_asked_to_move_again() {
    let patient = Rules { step: Duration::from_secs(3), ..RULES };
    // At once, to where it was or elsewhere; and while the next step is to begin.
    for (looks, site, place) in [(0, 0, 3), (0, 1, 3), (1, 0, 3), (1, 2, 4)] {
        let plot = Plot { bounces: Some((3, looks, site)), ..Plot::default() };
        let store = Store::new("bounced", plot);
        let outcome = run_with(&store, Mode::Act, patient, &store.audit()).unwrap();
        let mut way = WAY.to_vec();
        way.insert(place, Step::MoveLeader { from: site, to: 3 });
        assert_eq!(*store.asked.borrow(), way, "{looks} {site}");
        assert_eq!(*store.layout.borrow(), layout(3, &[1, 2, 3]));
        let Outcome::Reached(done) = outcome else { panic!("{outcome:?}") };
        assert_eq!(done.len(), if looks == 0 { 5 } else { 6 });
    }
}

/// Finishes a move from its start to the goal of [`WAY`].
fn finish(store: &Store) -> Outcome {
    finish_with(store, RULES, &store.audit())
}

fn finish_with(store: &Store, rules: Rules, audit: &Path) -> Outcome {
    let (start, goal) = (layout(0, &[0, 1, 2]), layout(3, &[1, 2, 3]));
    let order = Order { from: Some(&start), goal: &goal, ..order(&goal, Mode::Finish) };
    let audit = Audit::open(audit).unwrap();
    let mover = Mover { cluster: store, rules, audit: &audit };
    worker_runtime().unwrap().block_on(mover.run(&order)).unwrap()
}

#[test]
fn a_move_that_was_cut_off_anywhere_is_finished_there_or_back() {
    for after in 0..=WAY.len() {
        for ill in [false, true] {
            let store = Store::new("cut", Plot::default());
            for step in &WAY[..after] {
                let next = step.after(&store.layout.borrow()).unwrap();
                store.layout.replace(next);
            }
            // Added and never started.
            store.ill.set(Some(3).filter(|_| ill));
            let outcome = finish(&store);
            let (there, back) = (layout(3, &[1, 2, 3]), layout(0, &[0, 1, 2]));
            let (expected, event, steps) = match (after, ill) {
                (0, _) => (back, "stopped", 0),
                (5, _) => (there, "reached", 0),
                (1, true) => (back, "stopped", 1),
                // Its vote can be taken by those that are left.
                (2, true) => (back, "stopped", 2),
                // It leads, so it was well: whoever sees it ill now asks it to hand over.
                (_, true) => (back, "stopped", store.asked.borrow().len()),
                (_, false) => (there, "reached", WAY.len() - after),
            };
            assert_eq!(*store.layout.borrow(), expected, "{after} {ill}: {outcome:?}");
            assert_eq!(store.asked.borrow().len(), steps, "{after} {ill}: {outcome:?}");
            assert!(store.events().last().unwrap().starts_with(event), "{:?}", store.events());
            FileLock::take(&store.lock, "the next").unwrap();
        }
    }
}

#[test]
fn what_somebody_changed_since_a_move_was_cut_off_is_left_as_it_is() {
    for changed in [layout(1, &[1, 2]), layout(0, &[0, 1, 2, 4]), layout(0, &[0, 3, 4])] {
        let store = Store::new("changed", Plot::default());
        store.layout.replace(changed.clone());
        assert_eq!(finish(&store), Outcome::Nothing);
        assert_eq!((&*store.layout.borrow(), store.asked.borrow().len()), (&changed, 0));
        let text = std::fs::read_to_string(store.audit()).unwrap();
        assert!(text.contains("was changed by somebody else"), "{text}");
    }
}

#[test]
fn whoever_was_cut_off_holds_it_for_a_while_and_is_waited_for() {
    let store = Store::new("held-by-the-dead", Plot::default());
    store.layout.replace(WAY[0].after(&layout(0, &[0, 1, 2])).unwrap());
    let held = FileLock::take(&store.lock, "the dead").unwrap();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(held);
    });
    // However late this machine wakes who sleeps.
    let patient = Rules { step: Duration::from_secs(10), ..RULES };
    let outcome = finish_with(&store, patient, &store.audit());
    assert!(matches!(outcome, Outcome::Reached(_)), "{outcome:?}");
    ends.join().unwrap();
}

#[test]
fn a_cluster_that_is_not_well_is_left_alone() {
    let store = Store::new("unwell", Plot::default());
    store.ill.set(Some(2));
    let refused = run(&store, Mode::Act).unwrap_err();
    let expected = "store is not moved while a voter is not well: s2: its disk is full";
    assert_eq!(refused.message, expected);
    assert!(store.asked.borrow().is_empty());
    assert_eq!(store.events(), ["refused"]);
}

#[test]
fn two_do_not_move_it_at_once() {
    let store = Store::new("held", Plot::default());
    let _held = FileLock::take(&store.lock, "an operator").unwrap();
    let refused = run(&store, Mode::Act).unwrap_err();
    assert!(refused.message.contains("locked by an operator"), "{refused}");
    assert!(store.asked.borrow().is_empty());
}

#[test]
fn without_the_hold_nothing_more_is_asked_not_even_to_go_back() {
    let store = Store::new("lost", Plot { hold_lost: Some(2), ..Plot::default() });
    let Ok(Outcome::Stopped(stop)) = run(&store, Mode::Act) else { panic!("it goes on") };
    assert_eq!(stop.done, WAY[..2]);
    assert!(stop.stuck.as_ref().unwrap().contains("held no more"), "{stop}");
    assert_eq!(store.asked.borrow().len(), 2);
}

#[test]
fn outside_its_window_and_without_a_log_nothing_is_begun() {
    let store = Store::new("window", Plot::default());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let hour = |later: u64| (now / 3_600 + later) % 24;
    let hours = format!("{:02}:00-{:02}:00", hour(2), hour(4));
    let days: [&str; 0] = [];
    let window = Some(Window::parse(&hours, &days).unwrap());
    let refused =
        run_with(&store, Mode::Act, Rules { window, ..RULES }, &store.audit()).unwrap_err();
    assert!(refused.message.contains(&format!("({hours} UTC) is closed")), "{refused}");
    if Path::new("/dev/full").exists() {
        let refused = run_with(&store, Mode::Act, RULES, Path::new("/dev/full")).unwrap_err();
        assert!(refused.message.starts_with("the audit log /dev/full"), "{refused}");
    }
    assert!(store.asked.borrow().is_empty());
}

#[test]
fn when_the_disk_of_the_log_is_full_in_the_middle_of_a_move_it_goes_back() {
    let store = Store::new("full", Plot::default());
    let folder = Folder::new("full-disk");
    let Some(disk) = SmallDisk::mount(folder.path(), 1) else { return };
    let audit = folder.file("audit.jsonl");
    // What is written fits into its last page for the first two steps or so.
    std::fs::write(&audit, "\n".repeat(4_096 - 900)).unwrap();
    disk.fill(0);
    let outcome = run_with(&store, Mode::Act, RULES, &audit);
    let Ok(Outcome::Stopped(stop)) = outcome else { panic!("{outcome:?}") };
    assert!(!stop.done.is_empty() && stop.done.len() < WAY.len(), "{stop}");
    assert!(stop.why.contains("audit.jsonl: No space left"), "{stop}");
    assert_eq!((&stop.stuck, &*store.layout.borrow()), (&None, &layout(0, &[0, 1, 2])));
    // The log has its beginning and not its end: there is nothing left to be finished.
    disk.clear();
    assert_eq!(finish_with(&store, RULES, &audit), Outcome::Nothing);
}
