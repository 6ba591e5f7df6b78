//! The mesh between data centres: real sockets, real certificates, short epochs.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod followers;
mod outsider;
mod world;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use evenkeel_geo::curve::Prior;
use evenkeel_mesh::frame::{FRAME_BYTES_MAX, Frame};

use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::wait::until_within as until;
use outsider::{Outsider, framed, row};
use world::{Diary, NAMES, PERIOD, Setup, World, epoch, metrics_of, on_one_thread};

const SOON: Duration = Duration::from_secs(15);

#[test]
fn three_sites_measure_their_ways_and_agree_on_every_plan() {
    on_one_thread(async {
        let authority = Authority::new();
        let world = World::start(&Setup::three(&authority, "agree"));
        let mut diary = Diary::default();
        until(SOON, "five epochs with equal plans of all", || {
            diary.note(&world, &[0, 1, 2]);
            diary.agreed(&[0, 1, 2], &NAMES) >= 5
        })
        .await;
        let state = world.site(0).state();
        for (index, site) in state.sites.iter().enumerate().skip(1) {
            assert_eq!((site.connections_to, site.connections_from), (3, 3), "{site:?}");
            let path = site.path.as_ref().unwrap();
            // A loopback with a busy machine: more than nothing, less than the objective.
            assert!(path.base_ms > 0.0 && path.base_ms < 50.0, "{path:?}");
            assert!(site.rejected.is_empty(), "{site:?}");
            assert!((site.demand_per_s.unwrap() - 40.0).abs() < 4.0, "{index}: {site:?}");
            // Four servers that take 20 ms for a request.
            assert_eq!(site.capacity_per_s, Some(200.0));
        }
        // On a busy machine a row may miss its plan at one site: then rows differ, and never else.
        diary.assert_that_equal_rows_made_equal_plans();
        assert!(state.counts.compared >= 4, "{:?}", state.counts);
        // The hot site is relieved, and its row says so.
        let directed = world.site(0).directed.borrow();
        let row = directed.values().next_back().unwrap();
        assert!((row.demand_per_1000_s as f64 - 190e3).abs() < 10e3, "{row:?}");
        assert!(row.rates_per_1000_s[1] + row.rates_per_1000_s[2] > 0, "{row:?}");
        let flows = &state.plan.as_ref().unwrap().flows;
        assert!(flows.iter().any(|flow| flow.starts_with("london sends ")), "{flows:?}");
        let text = metrics_of(&state);
        assert!(text.contains("evenkeel_redirect_member{datacenter=\"ireland\"} 1\n"), "{text}");
        assert!(
            text.contains("evenkeel_redirect_connections_to{datacenter=\"frankfurt\"} 3\n"),
            "{text}"
        );
        assert!(text.contains("evenkeel_redirect_refused_total{reason=\"tls\"} 0\n"), "{text}");
        assert!(state.json("app").contains("\"standing\":\"fresh\""));
    });
}

#[test]
fn sites_that_plan_by_price_agree_too_and_say_what_one_more_request_costs() {
    on_one_thread(async {
        let authority = Authority::new();
        let setup = Setup { is_priced: true, ..Setup::three(&authority, "priced") };
        let world = World::start(&setup);
        let mut diary = Diary::default();
        until(SOON, "five epochs with equal plans of all", || {
            diary.note(&world, &[0, 1, 2]);
            diary.agreed(&[0, 1, 2], &NAMES) >= 5
        })
        .await;
        diary.assert_that_equal_rows_made_equal_plans();
        let state = world.site(0).state();
        // A busy machine may lose a report; nobody makes another plan of the same ones.
        let is_other =
            |alarm: &evenkeel_mesh::AlarmState| alarm.words.contains("from the same reports");
        assert!(!state.alarms.iter().any(is_other), "{:?}", state.alarms);
        let plan = state.plan.as_ref().unwrap();
        let priced = plan.priced.as_ref().unwrap();
        assert_eq!((priced.optional, priced.wan, priced.node), (0.1, 0.015, 0.35));
        assert!(
            priced.sentences[0].starts_with("london sends ")
                && priced.sentences[0].contains("one more request costs 0."),
            "{:?}",
            priced.sentences
        );
        // What comes to a site is what all pairs of the plan send there.
        for site in &priced.sites {
            let to = plan.pairs.iter().filter(|pair| pair.to == site.name);
            let sum: f64 = to.map(|pair| pair.rate_per_s).sum();
            assert!((site.inflow_per_s - sum).abs() < 1e-6, "{site:?}: {sum}");
            assert!(site.work_ratio.unwrap() <= 1.0 && site.dimmer_ratio > 0.5, "{site:?}");
        }
        assert!(priced.sites[0].one_more > 0.0 && priced.cost_per_s > 0.0, "{priced:?}");
        until(SOON, "an epoch that was replayed", || world.site(0).state().hour.is_some()).await;
        let hour = world.site(0).state().hour.clone().unwrap();
        assert!(hour.epochs > 0 && hour.requests_per_s > 0.0, "{hour:?}");
        assert_eq!(hour.loops.copies, 0.0, "nothing is known of hedges here");
    });
}

/// London is late at 120 requests/s, as nobody with its profile of 200 is.
#[test]
fn a_site_that_is_late_tells_what_it_learnt_and_all_plan_with_it() {
    on_one_thread(async {
        let authority = Authority::new();
        let setup = Setup {
            demand: vec![120.0, 20.0, 20.0],
            learns: Some(Prior::Profile),
            late: vec![0.6],
            ..Setup::three(&authority, "learns")
        };
        let world = World::start(&setup);
        let scale = |at: usize| world.site(at).sees(0).curve_scale;
        let is_little = |at: usize| scale(at).is_some_and(|scale| scale < 0.8);
        until(SOON, "less than its profile believed of London by all", || (0..3).all(is_little))
            .await;
        let mut diary = Diary::default();
        until(SOON, "two epochs with equal plans of all", || {
            diary.note(&world, &[0, 1, 2]);
            diary.agreed(&[0, 1, 2], &NAMES) >= 2
        })
        .await;
        diary.assert_that_equal_rows_made_equal_plans();
        assert!(world.site(1).sees(0).capacity_per_s.unwrap() < 160.0);
        let row = world.site(0).directed.borrow().values().next_back().cloned().unwrap();
        let away = row.rates_per_1000_s[1] + row.rates_per_1000_s[2];
        assert!(away > 20_000, "it is relieved: {row:?}");
        // It learns on: less is believed before the profile is given up.
        until(SOON, "the profile is contradicted", || {
            world.site(0).state().learnt.as_ref().is_some_and(|learnt| learnt.is_contradicted)
        })
        .await;
        let state = world.site(0).state();
        let words = "what is served here contradicts the profile";
        assert!(state.alarms.iter().any(|alarm| alarm.words.starts_with(words)));
        // Who is in time keeps its profile.
        assert!(!world.site(1).state().learnt.as_ref().unwrap().is_contradicted);
        assert_eq!(world.site(0).sees(1).curve_scale, Some(1.0));
        let text = metrics_of(&state);
        assert!(text.contains("evenkeel_redirect_curve_scale_ratio{datacenter=\"london\"} 0."));
    });
}

#[test]
fn a_site_that_is_cut_off_gets_nothing_after_an_epoch_and_comes_back() {
    on_one_thread(async {
        let authority = Authority::new();
        let setup = Setup { is_relayed: true, ..Setup::three(&authority, "cut") };
        let world = World::start(&setup);
        let mut diary = Diary::default();
        until(SOON, "two epochs with equal plans of all", || {
            diary.note(&world, &[0, 1, 2]);
            diary.agreed(&[0, 1, 2], &NAMES) >= 2
        })
        .await;

        world.cut(2, true);
        let cut_in = epoch(PERIOD);
        let mut diary = Diary::default();
        until(SOON, "three epochs with equal plans of the two that are left", || {
            diary.note(&world, &[0, 1, 2]);
            diary.agreed(&[0, 1], &NAMES[..2]) >= 3
        })
        .await;
        // The row for the coming epoch may have left already; it is held for one epoch more.
        let after = |epoch: &u64| *epoch > cut_in + 2;
        let directed = world.site(0).directed.borrow().clone();
        for (epoch, row) in directed.iter().filter(|(epoch, _)| after(epoch)) {
            assert_eq!(row.rates_per_1000_s[2], 0, "epoch {epoch}, cut in {cut_in}: {row:?}");
            assert!(row.rates_per_1000_s[1] > 0, "the others go on: {row:?}");
        }
        let sent = directed.range(..=cut_in).next_back().unwrap().1;
        assert!(sent.rates_per_1000_s[2] > 0, "it got something before: {sent:?}");
        assert_eq!(world.site(0).sees(2).standing, "down");
        // What is cut off plans for itself, and sends nothing away.
        let alone = world.site(2).directed.borrow().values().next_back().cloned().unwrap();
        assert_eq!(alone.rates_per_1000_s[..2], [0, 0]);
        assert_eq!(world.site(2).state().plan.as_ref().unwrap().members, [NAMES[2]]);

        world.cut(2, false);
        let mut diary = Diary::default();
        until(SOON, "two epochs with equal plans of all again", || {
            diary.note(&world, &[0, 1, 2]);
            diary.agreed(&[0, 1, 2], &NAMES) >= 2
        })
        .await;
    });
}

#[test]
fn who_has_not_the_certificate_of_a_site_is_not_heard() {
    on_one_thread(async {
        let (authority, other) = (Authority::new(), Authority::new());
        let setup = Setup { absent: vec![1], ..Setup::three(&authority, "strangers") };
        let world = World::start(&setup);
        let (to, pem) = (world.site(0), authority.pem());
        let cases = [
            ("tls", None),
            ("tls", Some(other.issue(&["ireland"]))),
            ("unknown-site", Some(authority.issue(&["paris"]))),
            ("unknown-site", Some(authority.issue(&["*.ireland", "ireland.paris"]))),
            ("unknown-site", Some(authority.issue(&["ireland", "frankfurt"]))),
        ];
        for (reason, shown) in &cases {
            let before = to.refused(reason);
            let outsider = Outsider::connect(to.address, NAMES[0], &pem, shown.as_ref());
            if let Ok(mut outsider) = outsider.await {
                let reported = row(1, 3, epoch(PERIOD) + 1, to.fingerprint);
                let probe = Frame::Probe { sequence: 1 }.bytes();
                let _ = outsider.send(&probe).await;
                let _ = outsider.send(&framed(&reported)).await;
                assert!(outsider.rest().await.is_empty(), "no echo for {reason}");
            }
            let what = format!("{reason} counted");
            until(SOON, &what, || to.refused(reason) > before).await;
        }
        // Who is who it says, in a version that is spoken with drivers of Cassandra only.
        let (before, shown) = (to.refused("tls"), authority.issue(&["ireland"]));
        let old = &rustls::version::TLS12;
        let outsider = Outsider::connect_in(old, to.address, NAMES[0], &pem, Some(&shown)).await;
        assert!(outsider.is_err(), "TLS 1.2 between data centres");
        until(SOON, "TLS 1.2 counted", || to.refused("tls") > before).await;
        // Who speaks no TLS at all.
        let before = to.refused("tls");
        let mut plain = tokio::net::TcpStream::connect(to.address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        until(SOON, "plain text counted", || to.refused("tls") > before).await;
        assert_eq!((to.sees(1).rows, to.sees(1).standing), (0, "unheard"));
        // And the one who has it is heard.
        let shown = authority.issue(&["ireland"]);
        let ireland = Outsider::connect(to.address, NAMES[0], &pem, Some(&shown));
        let mut ireland = ireland.await.unwrap();
        let probe = Frame::Probe { sequence: 7 }.bytes();
        ireland.send(&probe).await.unwrap();
        assert_eq!(ireland.read(probe.len()).await, Frame::Echo { sequence: 7 }.bytes());
    });
}

#[test]
fn a_site_does_not_speak_to_an_address_where_another_site_answers() {
    on_one_thread(async {
        let authority = Authority::new();
        let mut setup = Setup::three(&authority, "swapped");
        setup.absent = vec![1];
        // Frankfurt answers where Ireland is expected.
        let world = World::start(&Setup { is_relayed: true, ..setup });
        let wrong = world.site(2).address;
        let files = world::files(&authority, &world::directory("swapped-too"), "london");
        let names: Vec<String> = NAMES.map(str::to_owned).into();
        let config = evenkeel_mesh::MeshConfig::new(
            evenkeel_geo::epoch::SiteId::new(0),
            names,
            vec![wrong; 3],
            files,
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mesh = evenkeel_mesh::Mesh::open(config, world::planner(3, PERIOD), listener);
        let mesh = mesh.unwrap();
        let state = mesh.state();
        let home = std::rc::Rc::new(world::FakeHome::idle(0, 3));
        let clock = evenkeel_runtime::clock::Clock::start();
        let running = tokio::task::spawn_local(async move {
            mesh.run(clock, home, std::future::pending()).await.unwrap();
        });
        let unmade = || state.borrow().sites.get(1).map(|site| site.unmade.clone());
        until(SOON, "refused for its name", || unmade().is_some_and(|by| by.contains_key("tls")))
            .await;
        let state = state.borrow();
        assert_eq!((state.sites[1].connections_to, &state.sites[1].path), (0, &None));
        running.abort();
    });
}

#[test]
fn nonsense_of_a_site_is_counted_by_reason_and_changes_nothing() {
    on_one_thread(async {
        let authority = Authority::new();
        let setup = Setup { absent: vec![1], ..Setup::three(&authority, "nonsense") };
        let world = World::start(&setup);
        let (to, shown) = (world.site(0), authority.issue(&["ireland"]));
        let connect = || async {
            let pem = authority.pem();
            Outsider::connect(to.address, NAMES[0], &pem, Some(&shown)).await.unwrap()
        };
        let good = |epoch| row(1, 3, epoch, to.fingerprint);
        until(SOON, "a first plan", || to.state().plan.is_some()).await;
        let mut ireland = connect().await;
        let now = || epoch(PERIOD);
        let mut violations = good(now() + 1);
        (violations.report.ended_requests, violations.report.violations) = (1, 1);
        let mut violations = framed(&violations);
        // 1 of 1 becomes 1 of 0: the two before the version of the curves, their scale and odds of
        // a million each, what each of three sites served in time, and two absent paths.
        let ended = violations.len() - 14;
        let behind = [1, 1, 0, 192, 132, 61, 192, 132, 61, 0, 0, 0, 0, 0];
        assert_eq!(violations[ended..], behind);
        violations[ended] = 0;
        let mut other_version = framed(&good(now() + 1));
        other_version[6] = 99;
        let rows: [(&str, Vec<u8>); 7] = [
            ("malformed", Frame::Row(b"no row at all").bytes()),
            ("out-of-range", violations),
            ("other-version", other_version),
            ("for-another", framed(&row(2, 3, now() + 1, to.fingerprint))),
            ("other-settings", framed(&row(1, 3, now() + 1, to.fingerprint ^ 1))),
            ("stale", framed(&good(now() - 100))),
            ("future", framed(&good(now() + 100))),
        ];
        for (reason, bytes) in &rows {
            ireland.send(bytes).await.unwrap();
            let what = format!("{reason} counted");
            until(SOON, &what, || to.sees(1).rejected.contains_key(reason)).await;
        }
        // What is no frame ends the connection.
        let frames: [(&str, Vec<u8>); 4] = [
            ("frame-oversized", (FRAME_BYTES_MAX as u32).to_be_bytes().to_vec()),
            ("frame-kind", vec![0, 0, 0, 1, 77]),
            ("frame-length", vec![0, 0, 0, 3, 1, 0, 0]),
            ("frame-unexpected", Frame::Echo { sequence: 1 }.bytes()),
        ];
        for (reason, bytes) in &frames {
            let mut ireland = connect().await;
            ireland.send(bytes).await.unwrap();
            assert!(ireland.rest().await.is_empty());
            let what = format!("{reason} counted");
            until(SOON, &what, || to.sees(1).rejected.contains_key(reason)).await;
        }
        let seen = to.sees(1);
        assert_eq!((seen.standing, seen.demand_per_s), ("unheard", None));
        assert!(seen.rejected.values().all(|count| *count == 1), "{:?}", seen.rejected);
        let text = metrics_of(&to.state());
        let labels = "{datacenter=\"ireland\",reason=\"for-another\"}";
        let line = format!("evenkeel_redirect_rejected_total{labels} 1\n");
        assert!(text.contains(&line), "{text}");
        // The connection that told nonsense rows is open, and a sound row is believed.
        let fingerprint = to.fingerprint;
        let telling = tokio::task::spawn_local(async move {
            while ireland.send(&framed(&row(1, 3, epoch(PERIOD) + 1, fingerprint))).await.is_ok() {
                tokio::time::sleep(PERIOD / 3).await;
            }
        });
        let is_believed = || matches!(to.sees(1).standing, "fresh" | "held");
        until(SOON, "a sound row to be believed", is_believed).await;
        telling.abort();
    });
}

#[test]
fn connections_that_say_nothing_do_not_keep_a_site_out() {
    on_one_thread(async {
        let authority = Authority::new();
        let setup = Setup { absent: vec![1], ..Setup::three(&authority, "silent") };
        let world = World::start(&setup);
        let to = world.site(0);
        until(SOON, "a first plan", || to.state().plan.is_some()).await;
        // From an address that is no site's, more than there are places.
        let mut silent = Vec::new();
        for _ in 0..100 {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            silent.push(socket.connect(to.address).await.unwrap());
        }
        let (pem, shown) = (authority.pem(), authority.issue(&["ireland"]));
        let ireland = Outsider::connect(to.address, NAMES[0], &pem, Some(&shown));
        let mut ireland = ireland.await.unwrap();
        ireland.send(&Frame::Probe { sequence: 7 }.bytes()).await.unwrap();
        let echo = Frame::Echo { sequence: 7 }.bytes();
        assert_eq!(ireland.read(echo.len()).await, echo);
        until(SOON, "the silent ones refused", || to.refused("full") >= 50).await;
        drop(silent);
    });
}

#[test]
fn a_flood_is_read_slowly_and_harms_nobody_else() {
    on_one_thread(async {
        let authority = Authority::new();
        let setup = Setup { absent: vec![1], ..Setup::three(&authority, "flood") };
        let world = World::start(&setup);
        let (to, shown) = (world.site(0), authority.issue(&["ireland"]));
        until(SOON, "a first plan", || to.state().plan.is_some()).await;
        let pem = authority.pem();
        let ireland = Outsider::connect(to.address, NAMES[0], &pem, Some(&shown));
        let mut ireland = ireland.await.unwrap();
        let mut frames = Vec::new();
        for _ in 0..1_000 {
            Frame::Row(b"a row of a broken peer").put(&mut frames);
        }
        let began = Instant::now();
        let flood = tokio::task::spawn_local(async move {
            let mut sent = 0_u64;
            while sent < 1_000_000 && ireland.send(&frames).await.is_ok() {
                sent += 1_000;
            }
        });
        let mut diary = Diary::default();
        until(SOON, "four epochs with equal plans of the two others", || {
            diary.note(&world, &[0, 2]);
            diary.agreed(&[0, 2], &[NAMES[0], NAMES[2]]) >= 4
        })
        .await;
        let (seen, seconds) = (to.sees(1), began.elapsed().as_secs_f64());
        flood.abort();
        // A connection with 5 probes and 10 rows a second, four times over; one second more.
        let most = 4.0 * (5.0 + 10.0) * (seconds + 1.0);
        assert!(seen.rows > 50 && (seen.rows as f64) < most, "{} rows in {seconds} s", seen.rows);
        assert!(seen.throttled > 0, "{seen:?}");
        assert_eq!(seen.rejected.keys().collect::<Vec<_>>(), [&"malformed"]);
    });
}

/// Whoever has a copy of its certificate does not push a site out of the others' plans.
#[test]
fn probes_of_one_connection_hold_up_no_report_of_the_site() {
    on_one_thread(async {
        let authority = Authority::new();
        let world = World::start(&Setup::three(&authority, "probes"));
        let (to, shown) = (world.site(0), authority.issue(&[NAMES[1]]));
        let is_fresh = || to.sees(1).standing == "fresh";
        until(SOON, "a report of Ireland", is_fresh).await;
        let pem = authority.pem();
        let copy = Outsider::connect(to.address, NAMES[0], &pem, Some(&shown));
        let mut copy = copy.await.unwrap();
        let mut frames = Vec::new();
        for sequence in 0..20_000 {
            Frame::Probe { sequence }.put(&mut frames);
        }
        // A report behind them on the same connection is heard as well.
        Frame::Row(b"no row at all").put(&mut frames);
        let before = to.sees(1).throttled;
        let flood = tokio::task::spawn_local(async move {
            let _ = copy.send(&frames).await;
            copy
        });
        until(SOON, "the flood", || to.sees(1).throttled > before).await;
        let mut diary = Diary::default();
        until(SOON, "four epochs with equal plans of all", || {
            diary.note(&world, &[0, 1, 2]);
            diary.agreed(&[0, 1, 2], &NAMES) >= 4
        })
        .await;
        let is_heard = || to.sees(1).rejected.contains_key("malformed");
        until(SOON, "what was said behind the probes", is_heard).await;
        flood.abort();
    });
}

#[test]
fn certificates_are_replaced_without_a_stop() {
    on_one_thread(async {
        let (old, new) = (Authority::new(), Authority::new());
        let setup =
            Setup { reload_every: Duration::from_millis(100), ..Setup::three(&old, "rotation") };
        let world = World::start(&setup);
        let agree_again = async |what: &str| {
            let mut diary = Diary::default();
            until(SOON, what, || {
                diary.note(&world, &[0, 1, 2]);
                diary.agreed(&[0, 1, 2], &NAMES) >= 2
            })
            .await;
        };
        agree_again("equal plans with the old authority").await;
        let replaced = |times: u64| {
            (0..3).all(|site| world.site(site).state().counts.certificates_replaced == times)
        };
        // A file that is half written is not taken.
        std::fs::write(&world.site(0).files.certificate, "-----BEGIN").unwrap();
        let failed = || world.site(0).state().counts.certificates_failed;
        until(SOON, "an unsound file to be counted", || failed() > 0).await;
        assert!(replaced(0));
        // First both authorities are believed, then certificates are of the new one, then the old
        // one is not believed any more: all go on at every step.
        let both = format!("{}{}", old.pem(), new.pem());
        let issue = |authority: &Authority, believed: &str| {
            for (site, name) in NAMES.iter().enumerate() {
                let files = &world.site(site).files;
                let (certificate, key) = authority.issue(&[name]);
                for (path, text) in [
                    (&files.key, &*key),
                    (&files.certificate, &certificate),
                    (&files.authority, believed),
                ] {
                    std::fs::write(path, text).unwrap();
                }
            }
        };
        issue(&old, &both);
        until(SOON, "both authorities", || replaced(1)).await;
        issue(&new, &both);
        until(SOON, "new certificates", || replaced(2)).await;
        issue(&new, &new.pem());
        until(SOON, "only the new authority", || replaced(3)).await;
        agree_again("equal plans with the new authority").await;
        let shown = old.issue(&["ireland"]);
        let to = world.site(0);
        let before = to.refused("tls");
        let stranger = Outsider::connect(to.address, NAMES[0], &new.pem(), Some(&shown)).await;
        if let Ok(mut stranger) = stranger {
            assert!(stranger.rest().await.is_empty());
        }
        until(SOON, "the old authority refused", || to.refused("tls") > before).await;
    });
}

#[test]
fn ten_sites_speak_with_less_than_fifty_kilobytes_a_second() {
    on_one_thread(async {
        let authority = Authority::new();
        let sites = 10;
        let period = Duration::from_millis(2_500);
        let setup = Setup {
            names: (0..sites).map(|site| format!("site-{site}")).collect(),
            period,
            demand: vec![40.0; sites],
            ..Setup::three(&authority, "bytes")
        };
        let world = World::start(&setup);
        let connections = || -> u32 {
            let state = world.site(0).state();
            state.sites.iter().map(|site| site.connections_to.min(site.connections_from)).sum()
        };
        until(SOON, "all connections", || connections() == 27).await;
        let counted = |site: usize| {
            let counts = world.site(site).state().counts.clone();
            (counts.bytes_sent, counts.bytes_received)
        };
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (began, before) = (Instant::now(), counted(0));
        tokio::time::sleep(period).await;
        let (seconds, after) = (began.elapsed().as_secs_f64(), counted(0));
        let sent = (after.0 - before.0) as f64 / seconds;
        let received = (after.1 - before.1) as f64 / seconds;
        // Of every probe here: a segment out, one back, one that acknowledges; the same of others'.
        let (probes, tcp_ip) = (9.0 * 3.0 * 5.0, 52.0);
        let sent_whole = sent + tcp_ip * 3.0 * probes;
        println!(
            "10 sites, 3 connections each, probes every 200 ms, epochs of 2.5 s: sent {:.1} kB/s, \
             received {:.1} kB/s of TLS; {:.1} kB/s sent with TCP and IP",
            sent / 1e3,
            received / 1e3,
            sent_whole / 1e3
        );
        assert!(sent > 5e3, "probes and rows were sent: {sent}");
        assert!(sent_whole < 50e3 && received < 50e3, "{sent_whole} {received}");
    });
}
