//! The book of followers: what is added up, what is given up, what is not believed.

use evenkeel_geo::epoch::SiteSet;

use super::*;
use crate::message::WorkerCounts;

const PERIOD: Duration = Duration::from_secs(2);

fn ms(at: u64) -> Instant {
    Instant::from_millis(at)
}

fn hello(run: u64, workers: usize) -> Hello {
    Hello { run, workers, sites: 0, objective: 0, writes: 0 }
}

fn book() -> Followers {
    Followers::new(0, 2, PERIOD)
}

fn address() -> SocketAddr {
    "10.0.0.2:50000".parse().unwrap()
}

/// What a follower with these arrivals by worker counted; a tenth was sent on, all of it ended,
/// and a tenth of that was late.
fn counts(arrived: &[u64]) -> Vec<u8> {
    let worker = |arrived: &u64| WorkerCounts {
        at: Some(ms(*arrived)),
        arrived: *arrived,
        writes: 0,
        sent_home: arrived - arrived / 10,
    };
    let sum: u64 = arrived.iter().sum();
    let mut window = SplitWindow::empty(2);
    (window.by_site[0].sent, window.by_site[1].sent) = (sum - sum / 10, sum / 10);
    let tally = |ended: u64| SiteTally { ended, missed: ended / 10 };
    let counts = Counts {
        workers: arrived.iter().map(worker).collect(),
        window,
        by_site: vec![tally(sum - sum / 10), tally(sum / 10)],
        returned: SiteTally::default(),
        foreign: SiteTally::default(),
        inflow: sum / 2,
        waiting: 3,
        ended: None,
    };
    counts.bytes()
}

/// What a controller with one worker counted.
fn own(arrived: u64) -> SplitTally {
    let mut window = SplitWindow::empty(2);
    window.arrived = arrived;
    SplitTally {
        workers: vec![window],
        counted_at: vec![Some(ms(1)), None],
        by_site: vec![SiteTally { ended: arrived, missed: 0 }, SiteTally::default()],
        ..SplitTally::default()
    }
}

fn merged(book: &mut Followers, arrived: u64) -> (Vec<u64>, u64, u64, u64) {
    let mut tally = own(arrived);
    book.add_to(&mut tally);
    let workers = tally.workers.iter().map(|window| window.arrived).collect();
    (workers, tally.by_site.iter().map(|counts| counts.ended).sum(), tally.inflow, tally.waiting)
}

#[test]
fn followers_count_from_when_they_are_heard_and_what_is_gone_is_no_demand() {
    let mut book = book();
    assert_eq!(merged(&mut book, 7), (vec![7], 7, 0, 0), "alone nothing changes");
    let (one, _told) = book.join(ms(0), address(), &hello(1, 2)).unwrap();
    let (other, _told) = book.join(ms(0), address(), &hello(2, 1)).unwrap();
    // The first has run for long: what it counted before is not of this hour.
    book.note(ms(100), one, &counts(&[1_000, 2_000])).unwrap();
    book.note(ms(100), other, &counts(&[0])).unwrap();
    assert_eq!(merged(&mut book, 7), (vec![7, 0, 0, 0, 0], 7, 0, 6));
    book.note(ms(300), one, &counts(&[1_100, 2_300])).unwrap();
    book.note(ms(300), other, &counts(&[50])).unwrap();
    assert_eq!(merged(&mut book, 9), (vec![9, 0, 100, 300, 50], 9 + 450, 225, 6));
    // One of them says no more; what ended does not fall, its demand is over.
    assert!(book.drop_silent(ms(2_300)).is_empty());
    book.note(ms(2_299), other, &counts(&[60])).unwrap();
    assert_eq!(book.drop_silent(ms(2_301)).len(), 1);
    assert_eq!(merged(&mut book, 9), (vec![9, 0, 0, 0, 60], 9 + 460, 230, 3));
    assert_eq!(book.gone, [0, 1, 0]);
    assert_eq!(book.note(ms(2_400), one, &counts(&[1_200, 2_400])), Ok(()), "nobody's any more");
    // The same process is back: in places that nobody remembers, from where it is now.
    let (again, _told) = book.join(ms(2_500), address(), &hello(1, 2)).unwrap();
    book.note(ms(2_600), again, &counts(&[5_000, 5_000])).unwrap();
    book.note(ms(2_800), again, &counts(&[5_010, 5_020])).unwrap();
    assert_eq!(merged(&mut book, 9).0, [9, 0, 0, 0, 60, 10, 20]);
    // Much later the first places may be had again.
    assert_eq!(book.take_places(ms(2_301 + 16_000), 2), Some(vec![0, 1]));
}

#[test]
fn a_restarted_follower_begins_anew_and_replaces_no_other_run() {
    let mut book = book();
    let (first, mut reported) = book.join(ms(0), address(), &hello(1, 1)).unwrap();
    book.note(ms(100), first, &counts(&[900])).unwrap();
    assert_eq!(book.note(ms(200), first, &counts(&[3])), Err(Unbelieved::Backwards));
    let (second, _told) = book.join(ms(300), address(), &hello(2, 1)).unwrap();
    book.note(ms(400), second, &counts(&[3])).unwrap();
    book.note(ms(500), second, &counts(&[10])).unwrap();
    assert_eq!(merged(&mut book, 0).0, [0, 0, 0, 7]);
    // The first process again, over a new connection: the old one is over.
    let (third, _told) = book.join(ms(600), address(), &hello(1, 1)).unwrap();
    assert!(!book.has(first) && book.has(second) && book.has(third));
    assert!(reported.has_changed().is_err(), "who spoke with the old one is told");
    assert!(reported.borrow_and_update().is_none());
    assert_eq!(book.gone, [0, 0, 1]);
}

#[test]
fn nonsense_changes_nothing() {
    let mut book = book();
    let (id, _told) = book.join(ms(0), address(), &hello(1, 2)).unwrap();
    book.note(ms(100), id, &counts(&[100, 200])).unwrap();
    book.note(ms(200), id, &counts(&[150, 260])).unwrap();
    let before = merged(&mut book, 5);
    let mut more_missed = counts(&[160, 270]);
    let at = more_missed.len() - 8; // missed of the lane to the other site, one byte
    assert_eq!(more_missed[at..], [4, 0, 0, 0, 0, 215, 1, 3, 0][1..]);
    more_missed[at - 1] = 127;
    for (message, why) in [
        (b"nonsense".to_vec(), None),
        (counts(&[150, 259]), Some(Unbelieved::Backwards)),
        (counts(&[160]), Some(Unbelieved::Backwards)),
        (counts(&[160, 270, 1]), Some(Unbelieved::OutOfRange)),
        (counts(&[1 << 40, 270]), Some(Unbelieved::OutOfRange)),
        (more_missed, Some(Unbelieved::OutOfRange)),
        (counts(&[]), Some(Unbelieved::OutOfRange)),
    ] {
        let came = book.note(ms(300), id, &message).unwrap_err();
        assert!(why.is_none_or(|why| why == came), "{came:?} for {message:?}");
    }
    assert_eq!(merged(&mut book, 5), before);
    // And it does not keep its speaker from being silent.
    assert_eq!(book.drop_silent(ms(2_201)).len(), 1);
}

#[test]
fn there_are_so_many_followers_and_workers_and_no_more() {
    let mut book = book();
    for run in 0..FOLLOWERS_MAX as u64 {
        assert!(book.join(ms(0), address(), &hello(run, 2)).is_some());
    }
    assert!(book.join(ms(0), address(), &hello(99, 2)).is_none());
    let mut book = self::book();
    assert!(book.join(ms(0), address(), &hello(1, WORKERS_MAX - 1)).is_some());
    assert!(book.join(ms(0), address(), &hello(2, 2)).is_none());
    assert!(book.join(ms(0), address(), &hello(3, 1)).is_some());
    // Coming and going again and again takes no more places than there are.
    let mut book = self::book();
    let joined = (0..100).filter(|run| {
        let (run, now) = (*run, ms(*run));
        let Some((id, _)) = book.join(now, address(), &hello(run, 1_000)) else { return false };
        book.remove(now, id, Gone::Left).is_some()
    });
    assert_eq!(joined.count(), PLACES_MAX / 1_000);
    assert!(book.join(ms(16_100), address(), &hello(100, 1_000)).is_some(), "places are forgotten");
}

#[test]
fn parts_of_all_processes_are_one_and_go_by_what_came_to_each() {
    let mut book = book();
    let (one, mut reported) = book.join(ms(0), address(), &hello(1, 3)).unwrap();
    let (_silent, mut untold) = book.join(ms(0), address(), &hello(2, 1)).unwrap();
    book.note(ms(100), one, &counts(&[0, 0])).unwrap();
    book.note(ms(200), one, &counts(&[300, 600])).unwrap();
    let mut tally = own(100);
    book.add_to(&mut tally);
    let arrived: Vec<u64> = tally.workers.iter().map(|window| window.arrived).collect();
    let row = evenkeel_geo::split::PlanRow {
        epoch: 4,
        origin: evenkeel_geo::epoch::SiteId::new(0),
        demand_per_1000_s: 1_000,
        rates_per_1000_s: vec![500, 500],
    };
    let tell = |parts| PlanPart {
        row: row.clone(),
        spare_per_1000_s: Vec::new(),
        good_until: ms(5_000),
        settings: 1,
        hedges: SiteSet::first(2),
        inflow: None,
        parts,
    };
    let ours = book.divide(&arrived, 1, &tell);
    let theirs = reported.borrow_and_update().clone().unwrap().parts;
    let all: Vec<f64> = ours.iter().chain(&theirs).map(|part| part.value()).collect();
    // A twentieth is divided evenly.
    let expected = [100.0, 300.0, 600.0].map(|came| 0.95 * came / 1_000.0 + 0.05 / 3.0);
    assert!(all.iter().zip(expected).all(|(part, due)| (part - due).abs() < 1e-12), "{all:?}");
    assert_eq!(all.len(), 3);
    assert!(untold.borrow_and_update().is_none(), "who has not counted yet has no part");
    let shares: Vec<f64> = book.present().map(Follower::share).collect();
    assert_eq!(shares, [0.9, 0.0]);
}
